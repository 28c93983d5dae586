package command

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Inert shows text without letting it control the terminal or reorder what
// stands around it (MUST OUTPUT_INERT).
func Inert(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && drivesTerminal(r) {
			return '\ufffd'
		}
		return r
	}, text)
}

// InertJSON is a JSON text that means the same and has escapes for what a
// terminal could act on. JSON itself asks for them below the space only.
func InertJSON(text []byte) []byte {
	b := make([]byte, 0, len(text))
	for _, r := range string(text) {
		if r > '~' && drivesTerminal(r) {
			b = fmt.Appendf(b, `\u%04x`, r) // each of them is in the first plane
		} else {
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}

// drivesTerminal reports whether a character does something else than stand where
// it is: it controls, turns the order around, or ends a line.
func drivesTerminal(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}
