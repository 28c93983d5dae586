package exact

import (
	"strconv"
	"strings"

	"github.com/allodhq/allod/refusal"
)

// The rules that a document can break. Each is a refusal of its own.
var (
	ErrTooLarge = refusal.NewKind("json-too-large", 400,
		"The JSON text is larger than this message may be.",
		"Send a shorter message, or split the work.")
	ErrTooDeep = refusal.NewKind("json-too-deep", 400,
		"The JSON text is nested deeper than any message of this contract.",
		"Send the message flat, as its documentation shows it.")
	ErrTooMany = refusal.NewKind("json-too-many-values", 400,
		"The JSON text holds more values than any message of this contract.",
		"Send fewer entries at once.")
	ErrSyntax = refusal.NewKind("json-syntax", 400,
		"The text is not one JSON value.",
		"Send one JSON value as RFC 8259 defines it, with nothing after it.")
	ErrEncoding = refusal.NewKind("json-encoding", 400,
		"The JSON text holds bytes or escapes that are not valid Unicode.",
		"Send valid UTF-8 and no lone surrogates.")
	ErrDuplicate = refusal.NewKind("json-duplicate-name", 400,
		"An object has the same name twice, and readers disagree about which one counts.",
		"Send each name once.")
	ErrUnknown = refusal.NewKind("json-unknown-name", 400,
		"An object has a name that this message does not define.",
		"Send only the documented names, spelled exactly.")
	ErrMissing = refusal.NewKind("json-missing", 400,
		"A required member is absent.",
		"Send every required member; false and empty lists count as present.")
	ErrType = refusal.NewKind("json-type", 400,
		"A member has another type than this message defines, or is null.",
		"Send the documented type, and leave optional members out instead of sending null.")
	ErrRange = refusal.NewKind("json-range", 400,
		"A member's value or length is outside its bounds.",
		"Keep to the documented bounds.")
	ErrMember = refusal.NewKind("json-not-a-choice", 400,
		"A member's text is none of the words that this message defines.",
		"Send one of the documented words, spelled exactly.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Reading JSON", Kinds: []*refusal.Kind{
	ErrTooLarge, ErrTooDeep, ErrTooMany, ErrSyntax, ErrEncoding, ErrDuplicate,
	ErrUnknown, ErrMissing, ErrType, ErrRange, ErrMember,
}}

// Problem says which rule a document broke, and where.
type Problem struct {
	// Rule is one of this package's kinds.
	Rule *refusal.Kind
	// Path leads to the place, as in "jobs[3].lease.expiresAt". It is made of
	// member names that a shape defines and of positions, never of names that
	// came with the input. Empty means the document as a whole.
	Path string
	// Need says in a few words what was needed, as in "a whole number from 1".
	// It may be empty.
	Need string
}

// Error names the rule and the place.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Rule.Name())
	if p.Path != "" {
		b.WriteString(" at " + p.Path)
	}
	if p.Need != "" {
		b.WriteString(": needs " + p.Need)
	}
	return b.String()
}

// Sentence is the problem as a sentence for the person who sent the document.
func (p *Problem) Sentence() string {
	where := "The document"
	if p.Path != "" {
		where = "The member " + p.Path
	}
	if p.Need == "" {
		return where + " breaks the rule " + p.Rule.Name() + "."
	}
	return where + " needs to be " + p.Need + " (" + p.Rule.Name() + ")."
}

// Unwrap returns the rule, so that errors.Is finds it.
func (p *Problem) Unwrap() error { return p.Rule }

// step is one step of a path: a member's name, or a position in a list.
type step struct {
	name  string
	index int
}

func join(steps []step) string {
	var b strings.Builder
	for _, s := range steps {
		if s.name == "" {
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(s.name)
	}
	return b.String()
}
