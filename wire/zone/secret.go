package zone

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"

	"github.com/allodhq/allod/refusal"
)

// ErrSecret refuses to write a secret by a general encoder.
var ErrSecret = refusal.NewKind("zone-secret", 500,
	"Something tried to write a secret in a way that is not made for it.",
	"Report this with the log line; the secret was not written.")

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Zone: the vocabulary", Kinds: []*refusal.Kind{ErrSecret}}

// Secret is a text that proves something to whoever gets it: a token, a bearer, a
// code (F06). It prints as a placeholder, general encoders refuse it, and == does
// not compile. Only a message's own codec writes it, and [Secret.Reveal] shows it.
// The zero value is none.
type Secret struct {
	_    [0]func()     // no ==
	text func() string // a closure, so that reflection finds no text
}

// Conceal makes a secret of a text. An empty text makes none.
func Conceal(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{text: func() string { return text }}
}

// Reveal is the text, for whoever must send it or show it to its owner.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return s.text()
}

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.text == nil }

// Sum is the SHA-256 of the text, which is all that a store keeps of it.
func (s Secret) Sum() [sha256.Size]byte { return sha256.Sum256([]byte(s.Reveal())) }

// Equal compares in a time that depends on the lengths alone. No secret equals none.
func (s Secret) Equal(t Secret) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(t.Reveal())) == 1
}

const placeholder = "(secret)"

// String is a placeholder.
func (Secret) String() string { return placeholder }

// GoString is a placeholder.
func (Secret) GoString() string { return placeholder }

// Format prints a placeholder for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, placeholder) }

// LogValue logs a placeholder.
func (Secret) LogValue() slog.Value { return slog.StringValue(placeholder) }

// MarshalJSON returns [ErrSecret].
func (Secret) MarshalJSON() ([]byte, error) { return nil, ErrSecret }

// MarshalText returns [ErrSecret].
func (Secret) MarshalText() ([]byte, error) { return nil, ErrSecret }

// MarshalBinary returns [ErrSecret].
func (Secret) MarshalBinary() ([]byte, error) { return nil, ErrSecret }
