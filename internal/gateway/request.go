package gateway

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// maxBody bounds a request: the largest payload, every character escaped.
const maxBody = 32 << 20

// limits leave room for what is dropped, as the schemas of tools.
var limits = exact.Limits{Bytes: maxBody, Depth: 64, Values: 1 << 16}

// request is what a body asks.
type request struct {
	model   string
	owner   ai.Owner // the member user; empty where it is missing
	payload ai.Payload
	stream  bool
	usage   bool // the usage is wanted at the end of a stream
	// dropped are members that were there and were dropped, in the order of their
	// names.
	dropped []string
}

// readRequest reads a body of one of the two endpoints. Drop are the members that
// are dropped instead of refused.
func readRequest(body []byte, kind ai.Kind, drop []string) (request, error) {
	// The whole is judged once, so that no part needs a bound of its own.
	if _, err := exact.Parse(body, limits); err != nil {
		var p *exact.Problem
		if errors.As(err, &p) {
			return request{}, ErrJSON.With(p.Sentence())
		}
		return request{}, ErrJSON.Because(err)
	}
	all, ok := present(body)
	if !ok {
		return request{}, ErrJSON
	}
	var q request
	if err := q.sift(all, kind, drop); err != nil {
		return request{}, err
	}
	if err := q.options(all); err != nil {
		return request{}, err
	}
	var err error
	if kind == ai.KindChat {
		q.payload, err = readTurns(all["messages"])
	} else {
		q.payload, err = readPrompt(all["prompt"])
	}
	if err == nil && q.payload.TextUnits() > ai.MaxPayloadUnits {
		err = ErrTextLength.With("All text together is at most 4000000 characters long.")
	}
	return q, err
}

// members reads an object whose values are read later. It is false for anything
// else.
func members(raw jsontext.Value) (map[string]jsontext.Value, bool) {
	if raw.Kind() != '{' {
		return nil, false
	}
	var m map[string]jsontext.Value
	return m, json.Unmarshal(raw, &m) == nil
}

// present are the members of an object but for those that are null. A null is
// taken for an absent member, as OpenAI's API takes it.
func present(raw jsontext.Value) (map[string]jsontext.Value, bool) {
	all, ok := members(raw)
	maps.DeleteFunc(all, func(_ string, v jsontext.Value) bool { return v.Kind() == 'n' })
	return all, ok
}

// sift drops what is to be dropped and refuses what is left and not carried.
func (q *request) sift(all map[string]jsontext.Value, kind ai.Kind, drop []string) error {
	other := "messages"
	if kind == ai.KindChat {
		other = "prompt"
	}
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	left := map[string]jsontext.Value{}
	for _, name := range names {
		switch {
		case name != other && slices.Contains(carriedFields, name):
		case slices.Contains(drop, name):
			delete(all, name)
			q.dropped = append(q.dropped, name)
		case slices.Contains(refusedFields, name):
			if !asksNothing(name, all[name]) {
				return about(name, ErrUnsupported.With(canDrop))
			}
		default:
			left[name] = all[name] // those that are known come first
		}
	}
	return unknown(left, "")
}

// canDrop is said of members of the request itself. What stands within another
// member is never dropped.
const canDrop = "The site can be told to drop it."

// unknown refuses members that mean nothing here, if there are any, by the first
// name that may be repeated. At is where they stand; empty is the request itself.
func unknown(left map[string]jsontext.Value, at string) error {
	if len(left) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(left))
	i := slices.IndexFunc(names, repeatable)
	switch {
	case i < 0:
		return about(at, ErrUnknown)
	case at != "":
		return about(at+"."+names[i], ErrUnknown)
	case Droppable(names[i]):
		return about(names[i], ErrUnknown.With(canDrop))
	}
	return about(names[i], ErrUnknown)
}

// asksNothing reports whether a member's value asks for what happens anyway.
func asksNothing(name string, raw jsontext.Value) bool {
	value, has := nothing[name]
	if !has || len(raw) > 64 {
		return false
	}
	if raw.Kind() == '0' {
		given, err := strconv.ParseFloat(string(raw), 64)
		same, none := strconv.ParseFloat(value, 64)
		return err == nil && none == nil && given == same
	}
	compact := raw.Clone()
	return compact.Compact() == nil && string(compact) == value
}

// options reads everything but the text.
func (q *request) options(all map[string]jsontext.Value) error {
	if err := text(all["model"], "model", &q.model); err != nil {
		return err
	}
	if all["user"] != nil {
		var user string
		if err := text(all["user"], "user", &user); err != nil {
			return err
		}
		if !nameable(user) {
			return about("user", ErrValue.With("It must be 1 to 256 characters without control characters."))
		}
		q.owner = ai.Owner(user)
	}
	for _, name := range []string{"n", "store"} {
		if raw := all[name]; raw != nil && !asksNothing(name, raw) {
			return about(name, ErrUnsupportedValue.With("It can only be "+nothing[name]+"."))
		}
	}
	if err := flag(all["stream"], "stream", &q.stream); err != nil {
		return err
	}
	raw := all["stream_options"]
	if raw == nil {
		return nil
	}
	inner, ok := present(raw)
	switch {
	case !ok:
		return about("stream_options", ErrValue.With("It must be an object."))
	case !q.stream:
		return about("stream_options", ErrValue.With("It can only be there where stream is true."))
	}
	var padded bool
	if err := flag(inner["include_usage"], "stream_options.include_usage", &q.usage); err != nil {
		return err
	}
	if err := flag(inner["include_obfuscation"], "stream_options.include_obfuscation", &padded); err != nil {
		return err
	}
	if padded {
		return about("stream_options.include_obfuscation", ErrUnsupported)
	}
	delete(inner, "include_usage")
	delete(inner, "include_obfuscation")
	return unknown(inner, "stream_options")
}

// nameable reports whether a text can be an owner: what package site takes.
func nameable(s string) bool {
	return s != "" && ai.TextUnits(s) <= site.MaxIDUnits && strings.IndexFunc(s, unicode.IsControl) < 0
}

// text reads a required string.
func text(raw jsontext.Value, param string, into *string) error {
	switch {
	case raw == nil || raw.Kind() == 'n':
		return about(param, ErrMissing)
	case raw.Kind() != '"' || json.Unmarshal(raw, into) != nil:
		return about(param, ErrValue.With("It must be a string."))
	}
	return nil
}

// flag reads an optional true or false.
func flag(raw jsontext.Value, param string, into *bool) error {
	if raw == nil {
		return nil
	}
	switch raw.Kind() {
	case 't':
		*into = true
	case 'f':
	default:
		return about(param, ErrValue.With("It must be true or false."))
	}
	return nil
}

// list reads a required list.
func list(raw jsontext.Value, param string) ([]jsontext.Value, error) {
	if raw == nil || raw.Kind() == 'n' {
		return nil, about(param, ErrMissing)
	}
	var entries []jsontext.Value
	if raw.Kind() != '[' || json.Unmarshal(raw, &entries) != nil {
		return nil, about(param, ErrValue.With("It must be a list."))
	}
	if len(entries) == 0 {
		return nil, about(param, ErrValue.With("It must not be empty."))
	}
	return entries, nil
}

// readPrompt reads the prompt of a completion: a text, or a list of one.
func readPrompt(raw jsontext.Value) (ai.Payload, error) {
	const param = "prompt"
	if raw.Kind() == '[' {
		entries, err := list(raw, param)
		if err != nil {
			return nil, err
		}
		if len(entries) > 1 {
			return nil, about(param, ErrUnsupportedValue.With("It can only be one text."))
		}
		raw = entries[0]
	}
	if k := raw.Kind(); k == '0' || k == '[' {
		return nil, about(param, ErrUnsupportedValue.With("It can only be text, and no tokens."))
	}
	var g ai.Generate
	if err := text(raw, param, &g.Prompt); err != nil {
		return nil, err
	}
	if g.Prompt == "" {
		return nil, about(param, ErrValue.With("It must not be empty."))
	}
	return g, fits(g.Prompt, param)
}

func fits(s, param string) error {
	if ai.TextUnits(s) > ai.MaxTextUnits {
		return about(param, ErrTextLength.With("It is at most 1000000 characters long."))
	}
	return nil
}

// readTurns reads the messages of a chat.
func readTurns(raw jsontext.Value) (ai.Payload, error) {
	entries, err := list(raw, "messages")
	if err != nil {
		return nil, err
	}
	if len(entries) > ai.MaxMessages {
		return nil, about("messages", ErrListLength.With("There can be at most 256."))
	}
	c := ai.Chat{Messages: make([]ai.ChatMessage, len(entries))}
	for i, entry := range entries {
		if c.Messages[i], err = readTurn(entry, "messages["+strconv.Itoa(i)+"]"); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// roles are OpenAI's roles that a device knows, as it knows them.
var roles = map[string]ai.Role{
	"system": ai.RoleSystem, "developer": ai.RoleSystem, "user": ai.RoleUser, "assistant": ai.RoleAssistant,
}

func readTurn(raw jsontext.Value, at string) (ai.ChatMessage, error) {
	refuse := func(err error) (ai.ChatMessage, error) { return ai.ChatMessage{}, err }
	written, ok := members(raw)
	all, _ := present(raw)
	if !ok {
		return refuse(about(at, ErrValue.With("It must be an object.")))
	}
	var role string
	if err := text(all["role"], at+".role", &role); err != nil {
		return refuse(err)
	}
	m := ai.ChatMessage{Role: roles[role]}
	if m.Role == "" {
		return refuse(about(at+".role", ErrUnsupportedValue.With("It can only be system, developer, user or assistant.")))
	}
	for _, name := range turnFields {
		if raw := all[name]; raw != nil && !empty(raw) {
			return refuse(about(at+"."+name, ErrUnsupported))
		}
		delete(all, name)
	}
	// An answer without a text comes back as a turn whose text is null. What else
	// it can ask for is refused above.
	if m.Role != ai.RoleAssistant || written["content"].Kind() != 'n' {
		var err error
		if m.Content, err = readContent(all["content"], at+".content"); err != nil {
			return refuse(err)
		}
	}
	delete(all, "role")
	delete(all, "content")
	if err := unknown(all, at); err != nil {
		return refuse(err)
	}
	return m, fits(m.Content, at+".content")
}

// empty reports whether a value is a list or a text without content.
func empty(raw jsontext.Value) bool {
	compact := raw.Clone()
	if len(raw) > 64 || compact.Compact() != nil {
		return false
	}
	return string(compact) == "[]" || string(compact) == `""`
}

// readContent reads the text of a turn: one text, or parts that are texts. Parts
// are lines of their own, as model servers read them.
func readContent(raw jsontext.Value, param string) (string, error) {
	if raw.Kind() != '[' {
		var content string
		err := text(raw, param, &content)
		return content, err
	}
	entries, err := list(raw, param)
	if err != nil {
		return "", err
	}
	parts := make([]string, len(entries))
	for i, entry := range entries {
		at := param + "[" + strconv.Itoa(i) + "]"
		part, ok := present(entry)
		if !ok {
			return "", about(at, ErrValue.With("It must be an object."))
		}
		var kind string
		if err := text(part["type"], at+".type", &kind); err != nil {
			return "", err
		}
		if kind != "text" {
			return "", about(at+".type", ErrUnsupportedValue.With("It can only be text: images, sound and files are not carried."))
		}
		if err := text(part["text"], at+".text", &parts[i]); err != nil {
			return "", err
		}
		delete(part, "type")
		delete(part, "text")
		if err := unknown(part, at); err != nil {
			return "", err
		}
	}
	return strings.Join(parts, "\n"), nil
}
