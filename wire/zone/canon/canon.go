package canon

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/internal/codec"
)

// What this package refuses, besides what package exact does.
var (
	ErrNumber = refusal.NewKind("canon-number", 400,
		"A number in a document that has a digest is not whole, is not within plus and minus 2^53-1, or is spelled in another way than canonical JSON has it.",
		"Send whole numbers without a fraction, an exponent or a minus before zero.")
	ErrSignature = refusal.NewKind("canon-signature", 400,
		"The signature is not that of this key over this document in this domain.",
		"Take the document again from whoever signed it. If it stays, their key has changed, or the document was changed on its way.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Canonical JSON", Kinds: []*refusal.Kind{ErrNumber, ErrSignature}}

// JSON returns the canonical form of one JSON text of at most [zone.MaxBytes]. It
// returns ErrNumber, and the refusals of reading JSON, and then no bytes.
func JSON(src []byte) ([]byte, error) { return form(src, codec.Limits) }

func form(src []byte, lim exact.Limits) ([]byte, error) {
	// exact has found it one value, bounded, without duplicate names and in valid Unicode.
	if _, err := exact.Parse(src, lim); err != nil {
		return nil, err
	}
	d := jsontext.NewDecoder(bytes.NewReader(src))
	for {
		token, err := d.ReadToken()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, &exact.Problem{Rule: exact.ErrSyntax}
		}
		if token.Kind() == '0' && !whole(token.String()) {
			return nil, ErrNumber
		}
	}
	v := jsontext.Value(bytes.Clone(src))
	if err := v.Canonicalize(); err != nil {
		return nil, &exact.Problem{Rule: exact.ErrSyntax}
	}
	return v, nil
}

// whole reports whether a number is spelled as JCS writes a whole number that
// every reader holds exactly.
func whole(s string) bool {
	digits := s
	if digits[0] == '-' {
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > len(largest) || digits[0] == '0' && s != "0" {
		return false
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return false
		}
	}
	return len(digits) < len(largest) || digits <= largest
}

const largest = "9007199254740991" // exact.MaxWhole

// Sum is the digest of a document. The zero value is the digest of none.
type Sum [sha256.Size]byte

// String is the digest as messages have it: 64 lower-case hexadecimal digits
// (decision O03).
func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// IsZero reports whether s is the digest of no document.
func (s Sum) IsZero() bool { return s == Sum{} }

// ParseSum reads the text of a digest, in its one spelling. 64 zeros are no digest:
// they are what is written by whoever forgot to compute one.
func ParseSum(text string) (Sum, bool) {
	var s Sum
	if len(text) != hex.EncodedLen(len(s)) || !lowerHex(text) {
		return Sum{}, false
	}
	_, err := hex.Decode(s[:], []byte(text))
	return s, err == nil && !s.IsZero()
}

func lowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Digest returns the digest of one JSON text in a domain (decision O02). It
// returns what [JSON] does, and refusal.Internal for the zero domain.
func Digest(d Domain, src []byte) (Sum, error) {
	if d == (Domain{}) {
		return Sum{}, refusal.Internal
	}
	form, err := JSON(src)
	if err != nil {
		return Sum{}, err
	}
	h := sha256.New()
	h.Write([]byte(d.name))
	h.Write([]byte{0})
	h.Write(form)
	return Sum(h.Sum(nil)), nil
}

// Of returns the digest of a message in a domain. It returns what writing the
// message and [Digest] do.
func Of[T any](d Domain, c zone.Codec[T], v T) (Sum, error) {
	src, err := c.Append(nil, v)
	if err != nil {
		return Sum{}, err
	}
	return Digest(d, src)
}
