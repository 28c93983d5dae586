package admin

import (
	"encoding/base64"
	"io"
	"unicode"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/internal/member"
)

// Bounds of what people write.
const (
	// MaxName is the longest name of an organization or an operator, in bytes.
	MaxName = 128
	// MaxMemberships is in how many organizations an operator can be.
	MaxMemberships = 64
	// MaxDetail is the longest detail of an entry of the audit log, in bytes.
	MaxDetail = 64 << 10
)

// Role is an operator's place in an organization. "" is none, and null in a message.
type Role string

// The roles.
const (
	// Administrator changes everything that belongs to the organization.
	Administrator Role = "administrator"
	// Viewer sees it.
	Viewer Role = "viewer"
)

var roles = []Role{Administrator, Viewer}

// Kind is what a caller is.
type Kind string

// The kinds of callers.
const (
	// Local is whoever reaches the controller's admin socket.
	Local Kind = "local"
	// Person is an operator with a token.
	Person Kind = "operator"
	// Machine is a program that acts for one service.
	Machine Kind = "machine"
)

var kinds = []Kind{Local, Person, Machine}

// codeBytes is how much randomness a login code has.
const codeBytes = 16

// NewLoginCode makes the code of a login link: 16 random bytes as 22 characters of
// base64url. It returns the reader's error.
func NewLoginCode(rand io.Reader) (zone.Secret, error) {
	b := make([]byte, codeBytes)
	if _, err := io.ReadFull(rand, b); err != nil {
		return zone.Secret{}, err
	}
	return zone.Conceal(base64.RawURLEncoding.EncodeToString(b)), nil
}

// ReadLoginCode reads a code in its one spelling.
func ReadLoginCode(text string) (zone.Secret, bool) {
	if !validCode(text) {
		return zone.Secret{}, false
	}
	return zone.Conceal(text), true
}

func validCode(s string) bool {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	// Decoding skips line ends, so both lengths count.
	return err == nil && len(b) == codeBytes && len(s) == base64.RawURLEncoding.EncodedLen(codeBytes)
}

func code(o *exact.Object, name string, p *zone.Secret) {
	member.Secret(o, name, p, base64.RawURLEncoding.EncodedLen(codeBytes), "a code of 22 base64url characters", validCode)
}

// name is what people call something: 1 to MaxName bytes that are seen as they are.
func name(o *exact.Object, p *string) {
	exact.Spelled(o, "name", p, MaxName, "a name of 1 to 128 bytes without control characters", func(s string) bool {
		for _, r := range s {
			if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co) {
				return false
			}
		}
		return s != ""
	})
}

func role(o *exact.Object, name string, p *Role) { exact.Word(o, name, p, roles) }

func cursor(o *exact.Object, p *zone.Cursor) { member.Cursor(o, "cursor", p) }

func next(o *exact.Object, p *zone.Cursor) { member.Cursor(o, "nextCursor", p) }

func mutation(o *exact.Object, p *zone.MutationID) { member.ID(o, "mutationId", p) }

// replayed says whether the answer is the recorded one of an earlier request (F07).
func replayed(o *exact.Object, p *bool) { exact.Bool(o, "replayed", p) }

// page is a list of at most zone.MaxPage entries.
func page[T any](o *exact.Object, name string, p *[]T, fields func(o *exact.Object, v *T)) {
	exact.List(o, name, p, 0, zone.MaxPage, exact.Shape[T]{Fields: fields})
}
