package site

import (
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/allodhq/allod/wire/ai"
)

// plain reports whether a text can be an id or an owner: valid, of 1 to
// [MaxIDUnits], and without characters that control a log or a terminal.
func plain(s string) bool {
	return s != "" && utf8.ValidString(s) && ai.TextUnits(s) <= MaxIDUnits && strings.IndexFunc(s, unicode.IsControl) < 0
}

func validAudience(a ai.Audience) bool { return slices.Contains(ai.Audiences(), a) }

// newID makes a random id of 128 bits behind a prefix.
func newID(rand io.Reader, prefix string) (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(rand, b[:]); err != nil {
		return "", fmt.Errorf("site: no randomness: %w", err)
	}
	return prefix + hex.EncodeToString(b[:]), nil
}

// mountable reports whether a handler can be mounted at a path.
func mountable(path string) bool {
	return strings.HasPrefix(path, "/") && !strings.Contains(path, "//") && !strings.ContainsAny(path, "?#*") && !strings.HasSuffix(path, "/")
}
