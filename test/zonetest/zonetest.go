package zonetest

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/allodhq/allod/wire/zone"
)

// Options say what is special about a message. Paths are those of [zone.Codec]'s
// reasons without the name of the whole and without positions: "jobs[].name".
type Options struct {
	// Maps are the objects whose names are free. Their entries are "labels[]".
	Maps []string
	// Varieties are the objects that have different members by the word in one of them,
	// with that member's name: {"proof": "kind"}. Each variety is held to what golden
	// texts show of it alone. "" is the whole.
	Varieties map[string]string
	// Long are the texts that may be longer than [zone.MaxText] bytes.
	Long []string
}

// Exact holds a codec to F04. Golden texts are valid, each exactly as the codec
// writes it. Together they show every variety: an optional member once present and
// once absent, a nullable one once null and once not, a list once with an entry.
// What they do not show to be right has to be refused.
func Exact[T any](t *testing.T, c zone.Codec[T], golden ...string) {
	t.Helper()
	ExactWith(t, c, Options{}, golden...)
}

// ExactWith is [Exact] for a message that has something special about it.
func ExactWith[T any](t *testing.T, c zone.Codec[T], o Options, golden ...string) {
	t.Helper()
	trees := check(t, c, o, golden)
	if t.Failed() {
		return // a property would say it again, less clearly
	}
	rapid.Check(t, func(t *rapid.T) { agree(t, c, spoil(t, golden, trees)) })
}

// reporter is what a check needs of a test, so that the checks can be tested.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// canary stands in for what strangers send. No answer may repeat it.
const canary = "zqcanary"

// maxEntries is the largest bound of any list in the contract.
const maxEntries = 4096

const exactSchema = " must use its exact schema"

// check goes through every place of every golden text.
func check[T any](t reporter, c zone.Codec[T], o Options, golden []string) []*node {
	t.Helper()
	if len(golden) == 0 {
		t.Errorf("there is no golden text")
	}
	var trees []*node
	for _, text := range golden {
		tree, err := parse(text)
		if err != nil || tree.kind != '{' {
			t.Errorf("not the text of an object: %s", text)
			return nil
		}
		trees = append(trees, tree)
	}
	shown := shownBy(trees, o)
	for variety, s := range shown {
		if s.kinds['['] && !s.filled {
			t.Errorf("no golden text has an entry in the list %q", variety)
		}
	}
	for i, text := range golden {
		valid(t, c, o, text, trees[i])
		broken(t, c, text)
		for _, p := range places(trees[i], o) {
			breakPlace(t, c, o, trees[i], p, shown)
		}
	}
	return trees
}

// shown is what the golden texts show of one place.
type shown struct {
	kinds    map[jsontext.Kind]bool
	filled   bool            // a list or a map with entries
	optional map[string]bool // members that some object there does without
}

func shownBy(trees []*node, o Options) map[string]*shown {
	all := map[string]*shown{}
	names := map[string]map[string]bool{}
	each := func(do func(place)) {
		for _, tree := range trees {
			for _, p := range places(tree, o) {
				do(p)
			}
		}
	}
	each(func(p place) {
		s := all[p.variety]
		if s == nil {
			s = &shown{map[jsontext.Kind]bool{}, false, map[string]bool{}}
			all[p.variety], names[p.variety] = s, map[string]bool{}
		}
		s.kinds[p.kind] = true
		s.filled = s.filled || len(p.children) > 0
		if p.kind == '{' && !p.free {
			for _, name := range p.names {
				names[p.variety][name] = true
			}
		}
	})
	each(func(p place) {
		for name := range names[p.variety] {
			if p.kind == '{' && !slices.Contains(p.names, name) {
				all[p.variety].optional[name] = true
			}
		}
	})
	return all
}

// valid holds that a text is read and written again, however it is laid out.
func valid[T any](t reporter, c zone.Codec[T], o Options, text string, tree *node) {
	t.Helper()
	turned, err := parse(text)
	if err != nil {
		t.Errorf("%v", err)
		return
	}
	for _, p := range places(turned, o) {
		if p.kind == '{' {
			slices.Reverse(p.names)
			slices.Reverse(p.children)
		}
	}
	var spaced jsontext.Value = []byte(text)
	if err := spaced.Indent(); err != nil {
		t.Errorf("%v", err)
	}
	for what, in := range map[string]string{
		"as written":          text,
		"with spaces":         " \t\r\n" + string(spaced) + "\n",
		"with members turned": turned.text(plain),
		"with escaped names":  tree.text(escaped),
	} {
		agree(t, c, []byte(in))
		v, err := c.Read([]byte(in))
		if err != nil {
			t.Errorf("a golden text %s is refused: %v: %s", what, err, c.Reasons([]byte(in), ""))
			continue
		}
		if out, err := c.Append(nil, v); err != nil || string(out) != text {
			t.Errorf("a golden text %s is written again as\n%s, %v, want\n%s", what, out, err, text)
		}
	}
}

// broken holds that what is not one clean JSON text is refused as that.
func broken[T any](t reporter, c zone.Codec[T], text string) {
	t.Helper()
	for i := range text {
		refused(t, c, "cut off", text[:i], "value must be one JSON text (json-syntax)")
	}
	refused(t, c, "with another value behind it", text+"{}", "value must be one JSON text (json-syntax)")
	refused(t, c, "with a comma behind it", text+",", "value must be one JSON text (json-syntax)")
	refused(t, c, "behind a byte order mark", "\ufeff"+text, "value must be one JSON text (json-syntax)")
	refused(t, c, "in a list", "["+text+"]", "value must be an object")
	refused(t, c, "with half a character", strings.Replace(text, `"`, "\"\xff", 1), "value must be one JSON text (json-encoding)")
	refused(t, c, "with half a pair", strings.Replace(text, `"`, `"\ud800`, 1), "value must be one JSON text (json-encoding)")
	refused(t, c, "larger than any message", text+strings.Repeat(" ", zone.MaxBytes), "value must be one JSON text (json-too-large)")
}

// breakPlace changes one place of a golden text in every way, and leaves it as it was.
func breakPlace[T any](t reporter, c zone.Codec[T], o Options, tree *node, p place, all map[string]*shown) {
	t.Helper()
	s := all[p.variety]
	at := named("value", p.path)
	was := *p.node

	// Another type.
	for _, raw := range []string{`"` + canary + `"`, "7", "true", "null", "{}", "[]"} {
		kind := jsontext.Value(raw).Kind()
		if s.kinds[kind] {
			continue
		}
		*p.node = node{kind: kind, raw: raw}
		refusedAt(t, c, "with "+raw+" at "+at, tree.text(plain), at)
		*p.node = was
	}

	// What no bound can hold.
	switch {
	case p.kind == '"' && !slices.Contains(o.Long, p.generic):
		p.raw = `"` + strings.Repeat("x", zone.MaxText+1) + `"`
		refusedAt(t, c, "with a text of more than MaxText bytes at "+at, tree.text(plain), at)
	case p.kind == '0':
		p.raw = "1e400"
		refusedAt(t, c, "with 1e400 at "+at, tree.text(plain), at)
	}
	*p.node = was
	if p.kind == '[' && len(was.children) > 0 {
		entry := was.children[0]
		p.children = slices.Repeat([]*node{entry}, maxEntries+1)
		text := tree.text(plain)
		if values := (maxEntries + 1) * len(places(entry, Options{})); values < zone.MaxValues/2 && len(text) <= zone.MaxBytes && agree(t, c, []byte(text)) {
			t.Errorf("a golden text with %d entries at %s is accepted", maxEntries+1, at)
		}
		*p.node = was
	}

	if p.kind != '{' || p.free {
		return
	}
	for i, name := range was.names {
		p.names, p.children = slices.Delete(slices.Clone(was.names), i, i+1), slices.Delete(slices.Clone(was.children), i, i+1)
		what := "without " + name + " in " + at
		if s.optional[name] {
			agree(t, c, []byte(tree.text(plain)))
		} else {
			refused(t, c, what, tree.text(plain), at+exactSchema)
		}

		other := strings.ToUpper(name[:1]) + name[1:]
		if other == name {
			other = strings.ToLower(name[:1]) + name[1:]
		}
		if other != name && !slices.Contains(was.names, other) {
			p.names, p.children = slices.Clone(was.names), was.children
			p.names[i] = other
			refused(t, c, "with "+other+" for "+name+" in "+at, tree.text(plain), at+exactSchema)
		}

		p.names, p.children = append(slices.Clone(was.names), name), append(slices.Clone(was.children), was.children[i])
		twins := tree.text(plain)
		refused(t, c, "with two of "+name+" in "+at, twins, "value must be one JSON text (json-duplicate-name)")
		last := strings.LastIndex(twins, plain(name)) // nothing behind the added member has that name, or it is a twin too
		refused(t, c, "with two of "+name+" in "+at+", one escaped", twins[:last]+escaped(name)+twins[last+len(plain(name)):],
			"value must be one JSON text (json-duplicate-name)")
	}
	for _, name := range []string{canary, "schemaVersion", "__proto__", ""} {
		for _, first := range []bool{true, false} {
			at0 := len(was.names)
			if first {
				at0 = 0
			}
			p.names = slices.Insert(slices.Clone(was.names), at0, name)
			p.children = slices.Insert(slices.Clone(was.children), at0, &node{kind: 'n', raw: "null"})
			refused(t, c, fmt.Sprintf("with %q in %s", name, at), tree.text(plain), at+exactSchema)
		}
	}
	*p.node = was
}

// refused holds that a text is refused for that reason, among others.
func refused[T any](t reporter, c zone.Codec[T], what, text, reason string) {
	t.Helper()
	if agree(t, c, []byte(text)) {
		t.Errorf("a golden text %s is accepted", what)
	} else if got := c.Reasons([]byte(text), ""); !slices.Contains(got, reason) {
		t.Errorf("a golden text %s is refused with %q, want %q", what, got, reason)
	}
}

// refusedAt holds that a text is refused for a reason at that path.
func refusedAt[T any](t reporter, c zone.Codec[T], what, text, at string) {
	t.Helper()
	if agree(t, c, []byte(text)) {
		t.Errorf("a golden text %s is accepted", what)
	} else if got := c.Reasons([]byte(text), ""); !slices.ContainsFunc(got, func(r string) bool { return strings.HasPrefix(r, at+" ") }) {
		t.Errorf("a golden text %s is refused with %q, of which none names the place", what, got)
	}
}

// agree holds what is true of every text, and reports whether it is accepted:
// reading and giving reasons agree; what is refused gives no value and is not
// repeated; what is accepted is written, reads back as the same value, and has
// nothing to do with the bytes it came from.
func agree[T any](t reporter, c zone.Codec[T], src []byte) bool {
	t.Helper()
	brief := fmt.Sprintf("%.300q", src)
	room := bytes.Clone(src)
	v, err := c.Read(room)
	reasons := c.Reasons(src, "")
	if !bytes.Equal(room, src) {
		t.Errorf("reading changes the text %s", brief)
	}
	if (err == nil) != (len(reasons) == 0) {
		t.Errorf("reading says %v, the reasons are %q: %s", err, reasons, brief)
	}
	for i, longer := range c.Reasons(src, "body.in") {
		if !strings.HasPrefix(longer, "body.in") || i >= len(reasons) || longer != "body.in"+strings.TrimPrefix(reasons[i], "value") {
			t.Errorf("the reasons are %q, and called body.in %q: %s", reasons, longer, brief)
		}
		if rest := strings.TrimPrefix(longer, "body.in"); rest == "" || !strings.ContainsRune(" .[", rune(rest[0])) {
			t.Errorf("the reason has no path of its own: %q", longer)
		}
	}
	if err != nil {
		var zero T
		if !reflect.DeepEqual(v, zero) {
			t.Errorf("what is refused gives the value %+v: %s", v, brief)
		}
		if said := err.Error() + strings.Join(reasons, " "); strings.Contains(said, canary) {
			t.Errorf("the answer repeats what came in: %s", said)
		}
		return false
	}
	out, err := c.Append(nil, v)
	if err != nil {
		t.Errorf("what was read cannot be written, %v: %s", err, brief)
		return true
	}
	for i := range room {
		room[i] = 'x'
	}
	again, err := c.Read(out)
	if err != nil || !same(c, again, v) {
		t.Errorf("what is written reads as %+v, %v, want %+v: %s", again, err, v, brief)
	}
	if behind, err := c.Append([]byte("front"), v); err != nil || string(behind) != "front"+string(out) {
		t.Errorf("written twice as\n%s and, behind \"front\", as\n%s, %v", out, behind, err)
	}
	return true
}

// same reports whether two values are the same. One that holds a secret is not even
// the same as itself to reflection, so there what is written decides.
func same[T any](c zone.Codec[T], a, b T) bool {
	if reflect.DeepEqual(a, b) || reflect.DeepEqual(b, b) {
		return reflect.DeepEqual(a, b)
	}
	written, err := c.Append(nil, a)
	want, err2 := c.Append(nil, b)
	return err == nil && err2 == nil && bytes.Equal(written, want)
}

func named(whole, path string) string {
	if path == "" || path[0] == '[' {
		return whole + path
	}
	return whole + "." + path
}

// fragments are put where they do harm.
var fragments = []string{
	`null`, `true`, `{}`, `[]`, `""`, `0`, `-0`, `1.0`, `1e2`, `-1`, `9007199254740991`, `9007199254740992`, `1e400`, `"a"`, `"A"`, `"\u0000"`, `"\ud83d\ude00"`,
	`"\ud800"`, "\"\xc3\"", `"`, `{`, `}`, `[`, `]`, `,`, `:`, ` `, `"a":1`, `,"a":1`, "\x00", "\ufeff", `"` + canary + `"`, `"__proto__":null,`,
}

// spoil draws a text that a few changes have made out of golden ones.
func spoil(t *rapid.T, golden []string, trees []*node) []byte {
	i := rapid.IntRange(0, len(golden)-1).Draw(t, "golden")
	text := golden[i]
	for range rapid.IntRange(0, 2).Draw(t, "moves") { // a value from somewhere takes the place of another
		tree, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		all := places(tree, Options{})
		to := all[rapid.IntRange(0, len(all)-1).Draw(t, "to")]
		if rapid.Bool().Draw(t, "scalar") {
			raw := rapid.SampledFrom(fragments[:17]).Draw(t, "value")
			*to.node = node{kind: '0', raw: raw}
		} else {
			others := places(trees[rapid.IntRange(0, len(trees)-1).Draw(t, "other")], Options{})
			from := others[rapid.IntRange(0, len(others)-1).Draw(t, "from")]
			*to.node = *from.node
		}
		text = tree.text(plain)
	}
	for range rapid.IntRange(0, 2).Draw(t, "splices") {
		from := rapid.IntRange(0, len(text)).Draw(t, "from")
		to := min(len(text), from+rapid.IntRange(0, 4).Draw(t, "gone"))
		text = text[:from] + rapid.SampledFrom(fragments).Draw(t, "fragment") + text[to:]
	}
	return []byte(text)
}
