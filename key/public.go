package key

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"strings"
)

// SigningPublic is the public half of a [Signing] key: a raw Ed25519 public key
// of 32 bytes. It is the identity that peers pin. Values compare with ==.
type SigningPublic struct{ b [32]byte }

// ParseSigningPublic reads the text form, 43 characters of base64url. It
// returns [ErrText] for any other text.
func ParseSigningPublic(s string) (SigningPublic, error) {
	var p SigningPublic
	err := decode(p.b[:], s, &p)
	return p, err
}

// String is the text form.
func (p SigningPublic) String() string { return encode(p.b[:]) }

// IsZero reports whether p was never set.
func (p SigningPublic) IsZero() bool { return p == SigningPublic{} }

// Verify reports whether sig is this key's signature over message (RFC 8032,
// Ed25519 without prehash). The zero key verifies nothing.
func (p SigningPublic) Verify(message []byte, sig Signature) bool {
	return !p.IsZero() && ed25519.Verify(p.b[:], message, sig.b[:])
}

// Fingerprint is the short name of the identity, for people and for messages.
func (p SigningPublic) Fingerprint() Fingerprint {
	digest := sha256.Sum256(p.b[:])
	symbols := crockford.EncodeToString(digest[:fingerprintBytes])
	var b strings.Builder
	b.WriteString(fingerprintPrefix)
	for i := 0; i < len(symbols); i += 4 {
		b.WriteString("-" + symbols[i:i+4])
	}
	return Fingerprint{b.String()}
}

// SealingPublic is the public half of a [Sealing] key: a raw X25519 public key
// of 32 bytes. Values compare with ==.
type SealingPublic struct{ b [32]byte }

// ParseSealingPublic reads the text form, 43 characters of base64url. It
// returns [ErrText] for any other text. Whether the point is fit for sealing
// shows when something is sealed to it.
func ParseSealingPublic(s string) (SealingPublic, error) {
	var p SealingPublic
	err := decode(p.b[:], s, &p)
	return p, err
}

// String is the text form.
func (p SealingPublic) String() string { return encode(p.b[:]) }

// IsZero reports whether p was never set.
func (p SealingPublic) IsZero() bool { return p == SealingPublic{} }

// Signature is an Ed25519 signature of 64 bytes.
type Signature struct{ b [64]byte }

// ParseSignature reads the text form, 86 characters of base64url. It returns
// [ErrText] for any other text, so a signature has one text only.
func ParseSignature(s string) (Signature, error) {
	var sig Signature
	err := decode(sig.b[:], s, &sig)
	return sig, err
}

// String is the text form.
func (s Signature) String() string { return encode(s.b[:]) }

// Fingerprint is the short name of a [SigningPublic]: the prefix BYOLLM and the
// first 15 bytes of the key's SHA-256 in Crockford's base32, as six groups of
// four symbols. The contract also calls it the key id. The zero value names no
// key. Values compare with ==.
type Fingerprint struct{ text string }

// ParseFingerprint reads the text form exactly as it is written: upper case,
// with all dashes. It returns [ErrText] for any other text.
func ParseFingerprint(s string) (Fingerprint, error) {
	groups := strings.Split(s, "-")
	if len(groups) != 7 || groups[0] != fingerprintPrefix {
		return Fingerprint{}, ErrText
	}
	for _, g := range groups[1:] {
		if len(g) != 4 || strings.Trim(g, crockfordAlphabet) != "" {
			return Fingerprint{}, ErrText
		}
	}
	return Fingerprint{s}, nil
}

// String is the text form, or "" for the zero value.
func (f Fingerprint) String() string { return f.text }

// IsZero reports whether f names no key.
func (f Fingerprint) IsZero() bool { return f.text == "" }

const (
	fingerprintPrefix = "BYOLLM"
	fingerprintBytes  = 15 // 120 bits, 24 symbols without padding
	crockfordAlphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
)

var (
	crockford = base32.NewEncoding(crockfordAlphabet).WithPadding(base32.NoPadding)
	base64url = base64.RawURLEncoding.Strict()
)

func encode(b []byte) string { return base64url.EncodeToString(b) }

// decode fills dst from the text form and zeroes *whole when it cannot. Strict
// decoding still skips line breaks, so the length of the text is checked first.
func decode[T any](dst []byte, s string, whole *T) error {
	if len(s) == base64url.EncodedLen(len(dst)) {
		if n, err := base64url.Decode(dst, []byte(s)); err == nil && n == len(dst) {
			return nil
		}
	}
	var zero T
	*whole = zero
	return ErrText
}
