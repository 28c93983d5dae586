package backend

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// maxKey bounds an API key in bytes. Those in use have one or two hundred.
const maxKey = 4096

// Key is the API key of a backend. It never prints, logs or marshals itself.
// The zero value is no key.
type Key struct {
	_      [0]func()
	secret func() string // a closure, so that reflection finds no text
}

// NewKey keeps a key without the white space around it, which files and shells
// add. A text of white space alone is no key.
func NewKey(text string) Key {
	text = strings.TrimSpace(text)
	if text == "" {
		return Key{}
	}
	return Key{secret: func() string { return text }}
}

// IsZero reports whether there is no key.
func (k Key) IsZero() bool { return k.secret == nil }

func (k Key) text() string {
	if k.secret == nil {
		return ""
	}
	return k.secret()
}

// valid reports whether the key fits into a header as it is: visible ASCII
// only, so that it can end neither the header nor the request.
func (k Key) valid() bool {
	text := k.text()
	return len(text) <= maxKey && strings.IndexFunc(text, func(r rune) bool { return r < '!' || r > '~' }) < 0
}

// shortestSecret is the length in bytes from which a key is looked for in what a
// server says. Shorter ones are words that servers without keys are given, and
// would be found in answers by chance.
const shortestSecret = 8

// within reports whether a text holds the key.
func (k Key) within(s string) bool {
	text := k.text()
	return len(text) >= shortestSecret && strings.Contains(s, text)
}

// conceal puts a placeholder where a text holds the key. A server that encodes
// the key before it echoes it is not found out.
func (k Key) conceal(s string) string {
	if !k.within(s) {
		return s
	}
	return strings.ReplaceAll(s, k.text(), placeholder)
}

const placeholder = "(API key)"

var errKeyMarshal = errors.New("backend: an API key is never marshalled")

// String is a placeholder.
func (Key) String() string { return placeholder }

// GoString is a placeholder.
func (Key) GoString() string { return placeholder }

// Format prints a placeholder for every verb.
func (Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, placeholder) }

// LogValue logs a placeholder.
func (Key) LogValue() slog.Value { return slog.StringValue(placeholder) }

// MarshalJSON refuses.
func (Key) MarshalJSON() ([]byte, error) { return nil, errKeyMarshal }

// MarshalText refuses.
func (Key) MarshalText() ([]byte, error) { return nil, errKeyMarshal }

// MarshalBinary refuses. encoding/gob asks it too.
func (Key) MarshalBinary() ([]byte, error) { return nil, errKeyMarshal }
