package backend

import (
	"math"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/ai"
)

// Bounds of what is read of a server, besides its size in bytes.
const (
	// maxDepth is the deepest nesting of a message. Those in use have six levels.
	maxDepth = 64
	// maxModels is how many models of a list are kept, the first ones.
	maxModels = 4096
	// maxModelID is the longest id that is kept, in bytes.
	maxModelID = 512
)

// lenient reads what servers in use write: repeated names, of which the last
// counts, and broken characters, which cut answers end in.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// completion is what is read of a server's answer to a chat.
type completion struct {
	// text is valid UTF-8, and answered says whether there is one.
	text     string
	answered bool
	// generated says that the model made something, be it not yet an answer.
	generated bool
	usage     Usage
	stop      ai.Stop
}

// stopOf is why a model stopped, in the contract's words.
func stopOf(reason string) ai.Stop {
	s := ai.Stop{Reason: ai.StopUnknown, Reported: true}
	switch reason {
	case "stop":
		s.Reason = ai.StopEnd
	case "length":
		s.Reason = ai.StopLength
	}
	return s
}

// readCompletion reads the answer to a chat. It reports false for what is none;
// an answer without a text is one whose answered is not set.
func readCompletion(body []byte) (completion, bool) {
	var m struct {
		Choices first[struct {
			FinishReason text `json:"finish_reason"`
			Message      object[struct {
				Content text `json:"content"`
				// What a model thought before it answers, by two names.
				ReasoningContent text `json:"reasoning_content"`
				Reasoning        text `json:"reasoning"`
			}] `json:"message"`
		}] `json:"choices"`
		Usage object[struct {
			Prompt     count `json:"prompt_tokens"`
			Completion count `json:"completion_tokens"`
		}] `json:"usage"`
	}
	if !shallow(body) || json.Unmarshal(body, &m, lenient) != nil {
		return completion{}, false
	}
	message, used := m.Choices.v.Message.v, m.Usage.v
	c := completion{text: message.Content.s, answered: message.Content.set, stop: stopOf(m.Choices.v.FinishReason.s)}
	if used.Prompt.set && used.Completion.set {
		c.usage = Usage{Prompt: used.Prompt.n, Completion: used.Completion.n, Counted: true}
	}
	// A model that thinks first may reach a small limit before its answer begins.
	cut := m.Choices.v.FinishReason.s == "length" && c.usage.Completion > 0
	c.generated = cut || !blank(c.text) || !blank(message.ReasoningContent.s) || !blank(message.Reasoning.s)
	return c, true
}

// listing is what is read of a list of models.
type listing struct {
	ids []string
	// owner is owned_by of the first model.
	owner string
}

// readModels reads a list of models, which some servers write without the
// object around it. Ids that no owner could read or type are left out.
func readModels(body []byte) (listing, bool) {
	var l models
	if !shallow(body) || json.Unmarshal(body, &l, lenient) != nil || !l.set {
		return listing{}, false
	}
	return l.listing, true
}

type models struct {
	listing
	set bool
}

// UnmarshalJSONFrom reads either form of the list.
func (l *models) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == '[' {
		return l.read(d)
	}
	var wrapped object[struct {
		Data data `json:"data"`
	}]
	if err := json.UnmarshalDecode(d, &wrapped); err != nil {
		return err
	}
	*l = models(wrapped.v.Data)
	return nil
}

// data is a list of models within an object.
type data models

// UnmarshalJSONFrom reads a list, and takes anything else for none.
func (l *data) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	*l = data{}
	if d.PeekKind() != '[' {
		return d.SkipValue()
	}
	return (*models)(l).read(d)
}

func (l *models) read(d *jsontext.Decoder) error {
	*l = models{set: true}
	seen := map[string]bool{}
	return each(d, func() error {
		if len(l.ids) >= maxModels {
			return d.SkipValue()
		}
		var m object[struct {
			ID    text `json:"id"`
			Owner text `json:"owned_by"`
		}]
		if err := json.UnmarshalDecode(d, &m); err != nil {
			return err
		}
		id := m.v.ID.s
		if len(l.ids) == 0 {
			l.owner = m.v.Owner.s
		}
		if id != "" && len(id) <= maxModelID && !seen[id] && strings.IndexFunc(id, unreadable) < 0 {
			seen[id] = true
			l.ids = append(l.ids, id)
		}
		return nil
	})
}

// unreadable characters could hide an id's end or drive a terminal.
func unreadable(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }

func blank(s string) bool { return strings.TrimSpace(s) == "" }

// each calls read at each element of the list that comes next. read must
// consume it.
func each(d *jsontext.Decoder, read func() error) error {
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != ']' {
		if err := read(); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

// first is a list of which the first element is kept: a list of a million
// choices costs as much as one of one.
type first[T any] struct{ v T }

// UnmarshalJSONFrom reads a list, and takes anything else for an empty one.
func (f *first[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	*f = first[T]{}
	if d.PeekKind() != '[' {
		return d.SkipValue()
	}
	n := 0
	return each(d, func() error {
		if n++; n > 1 {
			return d.SkipValue()
		}
		var v object[T]
		err := json.UnmarshalDecode(d, &v)
		f.v = v.v
		return err
	})
}

// object is an object, or zero where there is something else.
type object[T any] struct{ v T }

// UnmarshalJSONFrom reads an object, and takes anything else for an empty one.
func (o *object[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	*o = object[T]{}
	if d.PeekKind() != '{' {
		return d.SkipValue()
	}
	return json.UnmarshalDecode(d, &o.v)
}

// text is a string, or not set where there is something else.
type text struct {
	s   string
	set bool
}

// UnmarshalJSONFrom reads a string, and takes anything else for none.
func (t *text) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	*t = text{}
	if d.PeekKind() != '"' {
		return d.SkipValue()
	}
	t.set = true
	return json.UnmarshalDecode(d, &t.s)
}

// count is a whole number from 0 to 2^53-1, or not set where there is something
// else.
type count struct {
	n   int64
	set bool
}

// UnmarshalJSONFrom reads a number, and takes anything else for none.
func (c *count) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	*c = count{}
	if d.PeekKind() != '0' {
		return d.SkipValue()
	}
	token, err := d.ReadToken()
	if err != nil {
		return err
	}
	// What no float can hold comes with an error and as infinite.
	if f, _ := token.Float(); f >= 0 && f <= exact.MaxWhole && f == math.Trunc(f) {
		*c = count{int64(f), true}
	}
	return nil
}

// shallow reports whether a text nests no deeper than allowed. It asks before
// the parser does, which would follow it ten thousand levels down.
func shallow(body []byte) bool {
	depth, quoted := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return false
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return true
}
