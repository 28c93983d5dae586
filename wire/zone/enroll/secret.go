package enroll

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/allodhq/allod/internal/exact"
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
// program of that node. It never prints, logs or marshals itself, and cannot be
// compared with ==. The zero value is none.
type Bearer struct {
	hidden
	text func() string // a closure, so that reflection finds no bytes
}

// NewBearer makes a bearer of 32 bytes of rand. It returns rand's error.
func NewBearer(rand io.Reader) (Bearer, error) {
	text, err := random(rand, BearerBytes)
	if err != nil {
		return Bearer{}, err
	}
	return Bearer{text: text}, nil
}

// ParseBearer reads the text of a bearer, in its one spelling. It returns
// [ErrBearer].
func ParseBearer(text string) (Bearer, error) {
	if !canonical(text, BearerBytes) {
		return Bearer{}, ErrBearer
	}
	return Bearer{text: func() string { return text }}, nil
}

// Text is the secret itself, as it travels, or "" for none. It is for sending and
// for the node's own store, and for nothing else.
func (b Bearer) Text() string { return reveal(b.text) }

// Hash is what the controller keeps: the SHA-256 of the bearer's text, not of the
// bytes behind it. It is the zero value for none.
func (b Bearer) Hash() CredentialHash { return hashOf(b.Text()) }

// IsZero reports whether there is no bearer.
func (b Bearer) IsZero() bool { return b.text == nil }

// Equal compares in constant time. No bearer equals none.
func (b Bearer) Equal(c Bearer) bool { return b.Hash().Equal(c.Hash()) }

// JumpCode is the one-time right to become a node: whoever has it can enroll a
// machine once. It is as silent as a [Bearer]. The zero value is none.
type JumpCode struct {
	hidden
	text func() string
}

// NewJumpCode makes a code of 12 bytes of rand. It returns rand's error.
func NewJumpCode(rand io.Reader) (JumpCode, error) {
	text, err := random(rand, JumpCodeBytes)
	if err != nil {
		return JumpCode{}, err
	}
	return JumpCode{text: text}, nil
}

// ParseJumpCode reads the text of a code, in its one spelling. It returns
// [ErrJumpCode].
func ParseJumpCode(text string) (JumpCode, error) {
	if !canonical(text, JumpCodeBytes) {
		return JumpCode{}, ErrJumpCode
	}
	return JumpCode{text: func() string { return text }}, nil
}

// Text is the secret itself, or "" for none.
func (c JumpCode) Text() string { return reveal(c.text) }

// Hash is what the controller keeps and a fresh proposal names: the SHA-256 of the
// code's text. It is the zero value for none.
func (c JumpCode) Hash() CredentialHash { return hashOf(c.Text()) }

// IsZero reports whether there is no code.
func (c JumpCode) IsZero() bool { return c.text == nil }

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

// String is a placeholder.
func (CredentialHash) String() string { return placeholder }

// Format prints a placeholder for every verb.
func (CredentialHash) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, placeholder) }

// LogValue logs a placeholder.
func (CredentialHash) LogValue() slog.Value { return slog.StringValue(placeholder) }

func hashOf(text string) CredentialHash {
	if text == "" {
		return CredentialHash{}
	}
	return CredentialHash{sha256.Sum256([]byte(text))}
}

func random(rand io.Reader, size int) (func() string, error) {
	b := make([]byte, size)
	if _, err := io.ReadFull(rand, b); err != nil {
		return nil, fmt.Errorf("enroll: no randomness: %w", err)
	}
	text := base64.RawURLEncoding.EncodeToString(b)
	return func() string { return text }, nil
}

// canonical reports whether a text is the one base64url spelling of that many bytes.
func canonical(text string, size int) bool {
	if len(text) != base64.RawURLEncoding.EncodedLen(size) {
		return false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	return err == nil && len(b) == size // Strict takes line breaks, and then there are fewer bytes
}

func reveal(text func() string) string {
	if text == nil {
		return ""
	}
	return text()
}

// hidden gives a secret its silence. The func makes == a compile error.
type hidden struct{ _ [0]func() }

const placeholder = "(withheld)"

var errMarshal = errors.New("enroll: a secret is never marshalled")

// String is a placeholder.
func (hidden) String() string { return placeholder }

// GoString is a placeholder.
func (hidden) GoString() string { return placeholder }

// Format prints a placeholder for every verb.
func (hidden) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, placeholder) }

// LogValue logs a placeholder.
func (hidden) LogValue() slog.Value { return slog.StringValue(placeholder) }

// MarshalJSON refuses.
func (hidden) MarshalJSON() ([]byte, error) { return nil, errMarshal }

// MarshalText refuses.
func (hidden) MarshalText() ([]byte, error) { return nil, errMarshal }

// MarshalBinary refuses. encoding/gob asks it too.
func (hidden) MarshalBinary() ([]byte, error) { return nil, errMarshal }

func bearerMember(o *exact.Object, name string, p *Bearer) {
	text := p.Text()
	exact.Spelled(o, name, &text, BearerText, "a bearer of 43 base64url characters", func(s string) bool {
		return canonical(s, BearerBytes)
	})
	if !o.Writing() {
		*p, _ = ParseBearer(text)
	}
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
