package zone

import (
	"encoding/base64"
	"time"
)

// Release is the release of the contract, and with it the protocol version: there
// is no other version number anywhere in it (F02, decision O14).
const Release = "32.0.0"

// Bounds of what every message holds (decision O12).
const (
	// MaxText is the longest text, in bytes.
	MaxText = 4096
	// MaxID is the longest identifier, in bytes.
	MaxID = 128
	// MaxBytes is the largest message where its family names no other bound, in
	// bytes (decision O06).
	MaxBytes = 1 << 20
	// MaxDepth is the deepest nesting of a message; an object or a list with no other
	// in it has depth 1.
	MaxDepth = 16
	// MaxValues is how many values a message holds at most.
	MaxValues = 1 << 15
	// MaxPage is how many entries one answer lists at most. The answer's nextCursor
	// says where the next page begins.
	MaxPage = 256
	// MaxCursor is the longest cursor, in bytes.
	MaxCursor = 256
	// MaxToken is the longest token of a person or a machine, in bytes.
	MaxToken = 2048
)

// Identity is the proof by which a person or a machine asks: the member identity of
// a request. It holds a token and nothing else; who that is, and what they may do,
// is for the server to find out (decision O13).
type Identity struct{ JWT Secret }

// Cursor says where the next page of a list begins. Only the server that made one
// knows what it means. "" is the beginning in a request and the end in an answer;
// both are null in a message.
type Cursor string

// After is the cursor of the page that begins behind an entry, by the key that the
// list is in the order of, of at most 192 bytes.
func After(key string) Cursor { return Cursor(base64.RawURLEncoding.EncodeToString([]byte(key))) }

// Key is the key that a cursor was made of, and "" at the beginning. It reports
// false for a text that [After] does not make.
func (c Cursor) Key() (string, bool) {
	key, err := base64.RawURLEncoding.Strict().DecodeString(string(c))
	return string(key), err == nil && After(string(key)) == c
}

// Identifiers. Each is a text that [ValidID] knows (decision O11) and is unique
// among its kind at one controller.
type (
	// OrganizationID names an organization: whoever owns clusters and services.
	OrganizationID string
	// ClusterID names a cluster: nodes that work together.
	ClusterID string
	// NodeID names a node: one machine.
	NodeID string
	// ServiceID names a service: what runs on nodes.
	ServiceID string
	// OperatorID names a person who may ask the controller for something.
	OperatorID string
	// MutationID names one change that a caller asks for. Whoever repeats a request
	// keeps it, so that the change happens once (F07).
	MutationID string
)

// ValidID reports whether s can be an identifier: 1 to [MaxID] lower-case letters,
// digits, dots, underscores and hyphens, with a letter or digit at both ends
// (decision O11).
func ValidID(s string) bool {
	if s == "" || len(s) > MaxID {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case (c == '.' || c == '_' || c == '-') && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return true
}

// Millis is an instant in milliseconds since 1970 (decision O10).
type Millis int64

// At is an instant as it is written in messages. Parts of a millisecond are cut.
func At(t time.Time) Millis { return Millis(t.UnixMilli()) }

// Time is the instant in UTC.
func (m Millis) Time() time.Time { return time.UnixMilli(int64(m)).UTC() }

// Codec reads and writes one kind of message, exactly: each member has its type
// and bounds, none may be missing and none may be added (F04). It is safe for
// concurrent use. Only packages of the contract make one.
type Codec[T any] interface {
	// Read reads one JSON text of at most [MaxBytes]. Its error names the first rule
	// that is broken and where, never the input, and then the value is the zero value.
	Read(src []byte) (T, error)
	// Reasons lists everything that keeps a JSON text from being such a message, each
	// as "<path> <words>" (decision O08); an empty list means that it is one. path is
	// what the message is called, "value" where it is empty.
	Reasons(src []byte, path string) []string
	// Append writes a message behind dst, in its one form. It refuses to write what Read
	// would refuse, and then there are no bytes.
	Append(dst []byte, v T) ([]byte, error)
}
