package enroll

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/internal/member"
)

// Sizes of the secrets and their texts, in bytes (F08, decision O22).
const (
	BearerBytes   = 32
	BearerText    = 43
	JumpCodeBytes = 12
	JumpCodeText  = 16
	// HashText is the text of a [CredentialHash]: hexadecimal digits.
	HashText = 2 * sha256.Size
)

// Bearer is the credential of one purpose of one node: whoever has it is that
// program of that node. It is a [zone.Secret] of one form, and as silent. The zero
// value is none.
type Bearer struct{ secret }

// NewBearer makes a bearer of 32 bytes of rand. It returns rand's error.
func NewBearer(rand io.Reader) (Bearer, error) {
	text, err := random(rand, BearerBytes)
	if err != nil {
		return Bearer{}, err
	}
	return Bearer{text}, nil
}

// ParseBearer reads the text of a bearer, in its one spelling. It returns
// [ErrBearer].
func ParseBearer(text string) (Bearer, error) {
	if !canonical(text, BearerBytes) {
		return Bearer{}, ErrBearer
	}
	return Bearer{zone.Conceal(text)}, nil
}

// Text is the secret itself, as it travels, or "" for none. It is for sending and
// for the node's own store, and for nothing else.
func (b Bearer) Text() string { return b.Reveal() }

// Hash is what the controller keeps: the SHA-256 of the bearer's text, not of the
// bytes behind it. It is the zero value for none.
func (b Bearer) Hash() CredentialHash { return hashOf(b.secret) }

// Equal compares in constant time. It is false where one is none.
func (b Bearer) Equal(c Bearer) bool { return b.Hash().Equal(c.Hash()) }

// JumpCode is the one-time right to become a node: whoever has it can enroll a
// machine once. It is a [zone.Secret] of one form, and as silent. The zero value is
// none.
type JumpCode struct{ secret }

// NewJumpCode makes a code of 12 bytes of rand. It returns rand's error.
func NewJumpCode(rand io.Reader) (JumpCode, error) {
	text, err := random(rand, JumpCodeBytes)
	if err != nil {
		return JumpCode{}, err
	}
	return JumpCode{text}, nil
}

// ParseJumpCode reads the text of a code, in its one spelling. It returns
// [ErrJumpCode].
func ParseJumpCode(text string) (JumpCode, error) {
	if !canonical(text, JumpCodeBytes) {
		return JumpCode{}, ErrJumpCode
	}
	return JumpCode{zone.Conceal(text)}, nil
}

// Text is the secret itself, or "" for none.
func (c JumpCode) Text() string { return c.Reveal() }

// Hash is what the controller keeps and a fresh proposal names: the SHA-256 of the
// code's text. It is the zero value for none.
func (c JumpCode) Hash() CredentialHash { return hashOf(c.secret) }

// CredentialHash is the SHA-256 of the text of a [Bearer] or a [JumpCode]. It is no
// secret in itself, since neither can be guessed, but it stays out of logs and URLs
// all the same (F06), so it does not print. Values compare with ==, and are to be
// compared with Equal where one comes from a stranger. The zero value is none.
type CredentialHash struct{ sum [sha256.Size]byte }

// ParseCredentialHash reads the text of a hash: 64 lower-case hexadecimal digits,
// not all of them 0.
func ParseCredentialHash(text string) (CredentialHash, bool) {
	var h CredentialHash
	if len(text) != HashText {
		return CredentialHash{}, false
	}
	if _, err := hex.Decode(h.sum[:], []byte(text)); err != nil || h.Text() != text {
		return CredentialHash{}, false
	}
	return h, h != CredentialHash{}
}

// Text is the hash as messages and stores have it.
func (h CredentialHash) Text() string { return hex.EncodeToString(h.sum[:]) }

// IsZero reports whether h is the hash of nothing.
func (h CredentialHash) IsZero() bool { return h == CredentialHash{} }

// Equal compares in constant time. The zero value equals none, not even itself.
func (h CredentialHash) Equal(g CredentialHash) bool {
	return subtle.ConstantTimeCompare(h.sum[:], g.sum[:]) == 1 && !h.IsZero()
}

const placeholder = "(hash)"

// String is a placeholder.
func (CredentialHash) String() string { return placeholder }

// Format prints a placeholder for every verb.
func (CredentialHash) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, placeholder) }

// LogValue logs a placeholder.
func (CredentialHash) LogValue() slog.Value { return slog.StringValue(placeholder) }

func hashOf(s zone.Secret) CredentialHash {
	if s.IsZero() {
		return CredentialHash{}
	}
	return CredentialHash{s.Sum()}
}

func random(rand io.Reader, size int) (zone.Secret, error) {
	b := make([]byte, size)
	if _, err := io.ReadFull(rand, b); err != nil {
		return zone.Secret{}, fmt.Errorf("enroll: no randomness: %w", err)
	}
	return zone.Conceal(base64.RawURLEncoding.EncodeToString(b)), nil
}

// canonical reports whether a text is the one base64url spelling of that many bytes.
func canonical(text string, size int) bool {
	if len(text) != base64.RawURLEncoding.EncodedLen(size) {
		return false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	return err == nil && len(b) == size // Strict takes line breaks, and then there are fewer bytes
}

// secret is unexported as a field, so that only this package fills it.
type secret = zone.Secret

func bearerMember(o *exact.Object, name string, p *Bearer) {
	member.Secret(o, name, &p.secret, BearerText, "a bearer of 43 base64url characters", func(s string) bool {
		return canonical(s, BearerBytes)
	})
}

func hashMember(o *exact.Object, name string, p *CredentialHash) {
	text := ""
	if !p.IsZero() {
		text = p.Text()
	}
	exact.Spelled(o, name, &text, HashText, "a hash of 64 lower-case hexadecimal digits", func(s string) bool {
		_, ok := ParseCredentialHash(s)
		return ok
	})
	if !o.Writing() {
		*p, _ = ParseCredentialHash(text)
	}
}
