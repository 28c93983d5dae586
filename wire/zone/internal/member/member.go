package member

import (
	"crypto/sha256"
	"strings"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/internal/codec"
)

// ID is an identifier.
func ID[S ~string](o *exact.Object, name string, p *S) {
	exact.Spelled(o, name, p, zone.MaxID, "an identifier of lower-case letters, digits and . _ - between them", zone.ValidID)
}

// Text is a text of 1 to [zone.MaxText] bytes.
func Text[S ~string](o *exact.Object, name string, p *S) {
	exact.Spelled(o, name, p, zone.MaxText, "a text of 1 to 4096 bytes", func(s string) bool { return s != "" })
}

// MayBeEmpty is a text of at most [zone.MaxText] bytes.
func MayBeEmpty[S ~string](o *exact.Object, name string, p *S) {
	exact.Spelled(o, name, p, zone.MaxText, "a text of at most 4096 bytes", func(string) bool { return true })
}

// Millis is an instant.
func Millis(o *exact.Object, name string, p *zone.Millis) { exact.Whole(o, name, p, 0, 0) }

// Counter is a generation, an epoch, a revision or a sequence: a whole number from 0.
func Counter[N ~int64](o *exact.Object, name string, p *N) { exact.Whole(o, name, p, 0, 0) }

// Sum is a digest. The zero value, which is the digest of nothing, is refused both
// ways.
func Sum(o *exact.Object, name string, p *canon.Sum) {
	text := ""
	if o.Writing() {
		text = p.String()
	}
	exact.Spelled(o, name, &text, 2*sha256.Size, "a digest of 64 lower-case hexadecimal digits", func(s string) bool {
		_, ok := canon.ParseSum(s)
		return ok
	})
	if !o.Writing() {
		*p, _ = canon.ParseSum(text)
	}
}

// Protocol is the offer of the side that sends the message (F03).
func Protocol(o *exact.Object, p *handshake.Offer) {
	exact.Sub(o, handshake.Member, p, codec.Shape(handshake.OfferCodec))
}

// Secret is a text of at most max bytes that proves something, as ok knows it; need
// says in a few words what that is.
func Secret(o *exact.Object, name string, p *zone.Secret, max int, need string, ok func(s string) bool) {
	text := ""
	if o.Writing() {
		text = p.Reveal()
	}
	exact.Spelled(o, name, &text, max, need, ok)
	if !o.Writing() && !o.Failed() {
		*p = zone.Conceal(text)
	}
}

// Identity is whose proof a request carries: exactly a token (decision O13).
func Identity(o *exact.Object, p *zone.Identity) {
	exact.Sub(o, "identity", p, exact.Shape[zone.Identity]{Fields: func(o *exact.Object, i *zone.Identity) { JWT(o, "jwt", &i.JWT) }})
}

// JWT is a token: three parts of base64url with a dot between them (RFC 7519).
func JWT(o *exact.Object, name string, p *zone.Secret) {
	Secret(o, name, p, zone.MaxToken, "a token of at most 2048 bytes", func(s string) bool {
		parts := strings.Split(s, ".")
		for _, part := range parts {
			if part == "" || !urlSafe(part) {
				return false
			}
		}
		return len(parts) == 3
	})
}

// Cursor is where a page begins, or null.
func Cursor(o *exact.Object, name string, p *zone.Cursor) {
	OrNull(o, name, p, func(o *exact.Object, name string, p *zone.Cursor) {
		exact.Spelled(o, name, p, zone.MaxCursor, "a cursor of an answer, or null", func(s string) bool { return s != "" && urlSafe(s) })
	})
}

// OrNull is a required member that is null, kept as the zero value, or what field
// makes of it.
func OrNull[T comparable](o *exact.Object, name string, p *T, field func(o *exact.Object, name string, p *T)) {
	var zero T
	v := exact.Opt[T]{Set: true, Null: *p == zero, V: *p}
	exact.Nullable(o, name, &v, field)
	*p = v.V
}

// urlSafe reports whether s has the letters of base64url and no others.
func urlSafe(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}
