package member_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone"
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
