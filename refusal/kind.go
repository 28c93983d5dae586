package refusal

import (
	"regexp"
	"strings"
)

// Kind is one registered reason to refuse. The pointer is the identity:
// errors.Is(err, kind) finds it, and a kind can be returned as it is where no
// detail is needed. Kinds never change after [NewKind].
type Kind struct {
	name    string
	status  int
	meaning string
	wayOut  string
}

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// NewKind declares a kind. The name is lower-case words joined by hyphens; the
// status is an HTTP status from 400 to 599 and also decides the exit code (see
// [ExitCode]); meaning and wayOut are whole sentences for the person refused.
// It panics when one of them is missing or malformed, since kinds are declared
// once, at start.
func NewKind(name string, status int, meaning, wayOut string) *Kind {
	switch {
	case !nameForm.MatchString(name):
		panic("refusal: bad name for a kind: " + name)
	case status < 400 || status > 599:
		panic("refusal: status outside 400 to 599: " + name)
	case !sentence(meaning):
		panic("refusal: meaning is not a sentence: " + name)
	case !sentence(wayOut):
		panic("refusal: way out is not a sentence: " + name)
	}
	return &Kind{name: name, status: status, meaning: meaning, wayOut: wayOut}
}

func sentence(s string) bool {
	return len(s) > 10 && strings.TrimSpace(s) == s && strings.HasSuffix(s, ".")
}

// Name is the kind's name, unique over all registries.
func (k *Kind) Name() string { return k.name }

// Status is the HTTP status, from 400 to 599.
func (k *Kind) Status() int { return k.status }

// Meaning says what happened and why, as whole sentences.
func (k *Kind) Meaning() string { return k.meaning }

// WayOut says what the person refused can do, as whole sentences.
func (k *Kind) WayOut() string { return k.wayOut }

// Error is the name and the meaning. It makes a kind usable as an error and as
// the target of errors.Is.
func (k *Kind) Error() string { return k.name + ": " + k.meaning }

// With refuses with a detail that says what was special about this case. The
// detail must be a whole sentence of our own: never the caller's input and
// never a library's error text.
func (k *Kind) With(detail string) *Refusal { return &Refusal{kind: k, detail: detail} }

// Because refuses and keeps the inner cause for logs and for errors.Is. The
// cause's text is never shown to the caller.
func (k *Kind) Because(cause error) *Refusal { return &Refusal{kind: k, cause: cause} }

// Registry is the list of kinds that one package or contract declares.
type Registry struct {
	// Title says whose refusals these are, as a heading.
	Title string
	// Kinds are in the order in which they are documented.
	Kinds []*Kind
}

// Find returns the kind of that name, or nil.
func (r Registry) Find(name string) *Kind {
	for _, k := range r.Kinds {
		if k.name == name {
			return k
		}
	}
	return nil
}
