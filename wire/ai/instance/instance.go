// Package instance names the running programs that use one device's keys, so
// that a site can tell two of them apart: a machine's folder that was copied, or
// restored beside the one it came from, signs as well as the first.
//
// A program draws an [ID] when it starts and sends it with every signed request
// in [Header]. A site that sees two of them alive at once refuses both as
// forbidden, and says why in [Conflict]. Both headers are Allod's own: other
// programs neither send nor read them, and are treated as ever.
//
// Neither header is signed, as the text that is signed has no place for them. A
// site therefore reads an id only from a request whose signature is good, and
// one who can change requests on their way can do no more than stop a device,
// or keep two from being told apart.
//
// The package refuses to say what a conflict is; the site does.
package instance

import (
	"encoding/base64"
	"io"
)

// Header carries the id of the program that sends a request.
const Header = "X-Allod-Instance"

// Conflict stands in a refusal, with the value [TwoAgents], where it is for two
// programs that use the keys of one device.
const (
	Conflict  = "X-Allod-Conflict"
	TwoAgents = "two-agents"
)

// ID is what a program calls itself from start to end: 128 random bits. The zero
// value is none.
type ID [16]byte

// New draws an id.
func New(random io.Reader) (id ID, err error) {
	_, err = io.ReadFull(random, id[:])
	return id, err
}

// encoding refuses what is not in its one form.
var encoding = base64.RawURLEncoding.Strict()

// Parse reads what [ID.String] wrote. Anything else is none.
func Parse(text string) (id ID, ok bool) {
	if len(text) != encoding.EncodedLen(len(id)) {
		return ID{}, false
	}
	raw, err := encoding.DecodeString(text)
	if err != nil || len(raw) != len(id) {
		return ID{}, false
	}
	id = ID(raw)
	return id, !id.IsZero()
}

// String is the id as it stands in a header.
func (id ID) String() string { return encoding.EncodeToString(id[:]) }

// IsZero reports whether it is none.
func (id ID) IsZero() bool { return id == ID{} }
