package tty

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// maxMarks is how many marks stand on one character. Languages need three at most;
// more of them would be drawn over other lines.
const maxMarks = 3

// Cell is a text in exactly so many columns: cut with an ellipsis, or filled with
// spaces. Characters that take two columns count as two, and marks as none. What
// has no width or no shape of its own is left out or replaced.
func Cell(text string, columns int) string {
	var b strings.Builder
	used, marks := 0, maxMarks // no mark stands on what is outside
	cut, cutAt := 0, 0         // where the ellipsis goes, if one is needed
	for _, r := range text {
		switch {
		case unicode.Is(unicode.Cf, r), unicode.Is(unicode.Variation_Selector, r):
			continue
		case unicode.IsSpace(r):
			r = ' '
		case !unicode.IsPrint(r):
			r = unicode.ReplacementChar
		}
		if unicode.In(r, unicode.Mn, unicode.Me) {
			if marks++; marks <= maxMarks {
				b.WriteRune(r)
				if used < columns {
					cut, cutAt = b.Len(), used
				}
			}
			continue
		}
		n := columnsOf(r)
		if used+n > columns {
			if columns < 1 {
				return ""
			}
			return b.String()[:cut] + "…" + strings.Repeat(" ", columns-cutAt-1)
		}
		b.WriteRune(r)
		marks = 0
		if used += n; used < columns {
			cut, cutAt = b.Len(), used
		}
	}
	return b.String() + strings.Repeat(" ", max(columns-used, 0))
}

// columnsOf is how many columns a character takes that is no mark.
func columnsOf(r rune) int {
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}
