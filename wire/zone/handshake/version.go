package handshake

import (
	"cmp"
	"strings"
)

// maxVersion is the longest version, in bytes.
const maxVersion = 64

// Version is a release: MAJOR.MINOR.PATCH in decimal numbers without leading
// zeros, and nothing else. The zero value names none. Values compare with ==.
type Version struct{ major, minor, patch string }

// ParseVersion reads a version of at most 64 bytes.
func ParseVersion(s string) (Version, bool) {
	if len(s) > maxVersion {
		return Version{}, false
	}
	parts := strings.Split(s, ".")
	if len(parts) != 3 {
		return Version{}, false
	}
	for _, p := range parts {
		if p == "" || len(p) > 1 && p[0] == '0' || strings.Trim(p, "0123456789") != "" {
			return Version{}, false
		}
	}
	return Version{parts[0], parts[1], parts[2]}, true
}

// String is the version as it is written, or "" for none.
func (v Version) String() string {
	if v == (Version{}) {
		return ""
	}
	return v.major + "." + v.minor + "." + v.patch
}

// compare orders versions of one kind by their numbers, of any length.
func (v Version) compare(w Version) int {
	return cmp.Or(number(v.major, w.major), number(v.minor, w.minor), number(v.patch, w.patch))
}

// number compares two decimal numbers without leading zeros.
func number(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}
