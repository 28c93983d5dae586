package member_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/test/zonetest"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/internal/codec"
	"github.com/allodhq/allod/wire/zone/internal/member"
)

type message struct {
	ID   zone.NodeID
	Note string
	At   zone.Millis
	Kind string
	In   []inner
}

type inner struct{ Name string }

var messages = codec.Of(func(o *exact.Object, m *message) {
	member.ID(o, "id", &m.ID)
	member.MayBeEmpty(o, "note", &m.Note)
	member.Millis(o, "at", &m.At)
	exact.Word(o, "kind", &m.Kind, []string{"a"})
	exact.List(o, "in", &m.In, 0, 4, exact.Shape[inner]{Fields: func(o *exact.Object, i *inner) { member.Text(o, "name", &i.Name) }})
})

// all has each member once.
type all struct {
	ID       zone.ServiceID
	Text     string
	Note     string
	At       zone.Millis
	Count    int64
	Sum      canon.Sum
	Protocol handshake.Offer
}

var alls = codec.Of(func(o *exact.Object, a *all) {
	member.ID(o, "id", &a.ID)
	member.Text(o, "text", &a.Text)
	member.MayBeEmpty(o, "note", &a.Note)
	member.Millis(o, "at", &a.At)
	member.Counter(o, "count", &a.Count)
	member.Sum(o, "sum", &a.Sum)
	member.Protocol(o, &a.Protocol)
})

const golden = `{"id":"node-a","text":"t","note":"","at":1796133600987,"count":0,"sum":"0a9f0000000000000000000000000000000000000000000000000000000000ff","protocol":{"interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.0"}}`

func TestF04Members(t *testing.T) { zonetest.Exact(t, alls, golden) }

func TestF04BoundsOfMembers(t *testing.T) {
	good, err := alls.Read([]byte(golden))
	if err != nil {
		t.Fatal(err)
	}
	full := strings.Repeat("é", 2048)
	for _, c := range []struct {
		name   string
		change func(a *all)
		ok     bool
	}{
		{"nothing", func(a *all) {}, true},
		{"the longest id", func(a *all) { a.ID = zone.ServiceID(strings.Repeat("x", 128)) }, true},
		{"a longer id", func(a *all) { a.ID = zone.ServiceID(strings.Repeat("x", 129)) }, false},
		{"no id", func(a *all) { a.ID = "" }, false},
		{"no id of the grammar", func(a *all) { a.ID = "a/b" }, false},
		{"the longest text, in bytes", func(a *all) { a.Text, a.Note = full, full }, true},
		{"a longer text", func(a *all) { a.Text = full + "x" }, false},
		{"a longer note", func(a *all) { a.Note = full + "x" }, false},
		{"an empty text", func(a *all) { a.Text = "" }, false},
		{"a text that is none", func(a *all) { a.Text = "\xc3" }, false},
		{"a zero byte", func(a *all) { a.Text = "\x00" }, true},
		{"the beginning", func(a *all) { a.At = 0 }, true},
		{"before the beginning", func(a *all) { a.At = -1 }, false},
		{"the last instant", func(a *all) { a.At = 1<<53 - 1 }, true},
		{"after it", func(a *all) { a.At = 1 << 53 }, false},
		{"the last count", func(a *all) { a.Count = 1<<53 - 1 }, true},
		{"a count too many", func(a *all) { a.Count = 1 << 53 }, false},
		{"a count below zero", func(a *all) { a.Count = -1 }, false},
		{"a digest nobody computed", func(a *all) { a.Sum = canon.Sum{} }, false},
		{"no offer", func(a *all) { a.Protocol = handshake.Offer{} }, false},
	} {
		a := good
		c.change(&a)
		out, err := alls.Append(nil, a)
		if (err == nil) != c.ok || (out == nil) == c.ok {
			t.Errorf("%s: %.80s, %v", c.name, out, err)
		}
		if c.ok {
			if again, err := alls.Read(out); err != nil || again != a {
				t.Errorf("%s: %+v, %v", c.name, again, err)
			}
		}
	}
	for _, sum := range []string{"", strings.Repeat("0", 64), strings.Repeat("A", 64), strings.Repeat("a", 63), strings.Repeat("a", 65), "sha256:" + strings.Repeat("a", 64)} {
		text := strings.Replace(golden, good.Sum.String(), sum, 1)
		want := []string{"value.sum must be a digest of 64 lower-case hexadecimal digits"}
		if got := alls.Reasons([]byte(text), ""); !slices.Equal(got, want) {
			t.Errorf("%q: %q", sum, got)
		}
	}
	// A rule of the offer is looked at although something else is wrong.
	text := strings.Replace(strings.Replace(golden, `"node-a"`, `"A"`, 1), `Version":"32.0.0"}`, `Version":"32.0.1"}`, 1)
	if got := alls.Reasons([]byte(text), ""); len(got) != 2 || !strings.HasPrefix(got[1], "value.protocol must be an offer whose") {
		t.Errorf("%q", got)
	}
}

func TestF04EveryViolationHasItsReason(t *testing.T) {
	for _, c := range []struct {
		in, path string
		want     []string
	}{
		{`{"id":"a","note":"","at":1,"kind":"a","in":[{"name":"x"}]}`, "", nil},
		{`{"id":"A","note":7,"at":-1,"kind":"b","in":[{"name":""},{}]}`, "body", []string{
			"body.id must be an identifier of lower-case letters, digits and . _ - between them",
			"body.note must be a string",
			"body.at must be a whole number from 0 to 9007199254740991",
			"body.kind must be one of the contract's words",
			"body.in[0].name must be a text of 1 to 4096 bytes",
			"body.in[1] must use its exact schema",
		}},
		{`{"ID":"a","note":"","kind":"a","in":[]}`, "", []string{"value must use its exact schema"}},
		{`[]`, "", []string{"value must be an object"}},
		{`{"id":"a","note":"` + strings.Repeat("é", 2049) + `","at":1,"kind":"a","in":[]}`, "", []string{"value.note must be a text of at most 4096 bytes"}},
	} {
		if got := messages.Reasons([]byte(c.in), c.path); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.in, got, c.want)
		}
	}
	if got := messages.Reasons([]byte(`{"id":"a"`), "x"); !slices.Equal(got, []string{"x must be one JSON text (json-syntax)"}) {
		t.Errorf("half a text: %q", got)
	}
	if got := codec.Reasons(codec.Shape(messages).Problems(exact.Value{}), "x"); !slices.Equal(got, []string{"x must use its exact schema"}) {
		t.Errorf("an absent value: %q", got)
	}
}
