package member

import (
	"crypto/sha256"

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
