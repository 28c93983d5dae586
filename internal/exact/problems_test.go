package exact_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/exact"
)

type leaf struct {
	Name string
	Load float64
}

type tree struct {
	Leaf  leaf
	Maybe exact.Opt[string]
	List  []leaf
	Kind  string
}

func lower(s string) bool { return s != "" && s == strings.ToLower(s) }

var leafShape = exact.Shape[leaf]{Fields: func(o *exact.Object, l *leaf) {
	exact.Spelled(o, "name", &l.Name, 4, "a small word", lower)
	exact.Float(o, "load", &l.Load, 0, 1)
}}

var treeShape = exact.Shape[tree]{Fields: func(o *exact.Object, t *tree) {
	exact.Sub(o, "leaf", &t.Leaf, leafShape)
	exact.Nullable(o, "maybe", &t.Maybe, func(o *exact.Object, name string, s *string) {
		exact.Spelled(o, name, s, 4, "a small word", lower)
	})
	exact.List(o, "list", &t.List, 0, 3, leafShape)
	exact.Word(o, "kind", &t.Kind, []string{"a", "b"})
}}

var small = exact.Limits{Bytes: 1 << 14, Depth: 4, Values: 1000}

func TestProblemsNamesEveryOne(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"leaf":{"name":"ab","load":0.5},"maybe":null,"list":[],"kind":"a"}`, ``},
		{`{"leaf":{"name":"AB","load":1.5},"maybe":7,"list":[{"name":"ab","load":-1},{"load":0}],"kind":"c","x":1}`,
			`json-range leaf.name; json-range leaf.load; json-type maybe; json-range list[0].load; json-missing list[1].name; json-not-a-choice kind; json-unknown-name `},
		{`{"leaf":[],"list":{},"kind":null}`, `json-type leaf; json-missing maybe; json-type list; json-type kind`},
		{`{"leaf":{"name":"abcde","load":0,"y":1},"maybe":"A","list":[1],"kind":"b"}`, `json-range leaf.name; json-unknown-name leaf; json-range maybe; json-type list[0]`},
		{`7`, `json-type `},
	} {
		v, err := exact.Parse([]byte(c.in), small)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range treeShape.Problems(v) {
			got = append(got, p.Rule.Name()+" "+p.Path)
		}
		if s := strings.Join(got, "; "); s != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.in, s, c.want)
		}
		// The two ways of reading agree on what is refused, and on the first reason.
		_, err = treeShape.From(v)
		if (err == nil) != (c.want == "") {
			t.Errorf("%s: From says %v", c.in, err)
		}
		if p := new(exact.Problem); errors.As(err, &p) && p.Rule.Name()+" "+p.Path != got[0] {
			t.Errorf("%s: From says %v, Problems %s", c.in, err, got[0])
		}
	}
	if got := treeShape.Problems(exact.Value{}); len(got) != 1 || got[0].Rule != exact.ErrMissing {
		t.Errorf("no value: %v", got)
	}
	wide := exact.Shape[struct{}]{Fields: func(o *exact.Object, _ *struct{}) {
		for i := range 2 * exact.MaxProblems {
			var b bool
			exact.Bool(o, fmt.Sprint("m", i), &b)
		}
	}}
	v, _ := exact.Parse([]byte(`{}`), small)
	if got := wide.Problems(v); len(got) != exact.MaxProblems || got[0].Path != "m0" {
		t.Errorf("%d problems, first at %s", len(got), got[0].Path)
	}
}

// TestProblemsJudgesEachObjectByItself has a rule between the members of an object,
// which nothing outside of that object keeps from being looked at.
func TestProblemsJudgesEachObjectByItself(t *testing.T) {
	type span struct{ From, To int64 }
	spans := exact.Shape[span]{Fields: func(o *exact.Object, s *span) {
		exact.Whole(o, "from", &s.From, 0, 0)
		exact.Whole(o, "to", &s.To, 0, 0)
		if !o.Failed() && s.From > s.To {
			o.Fail(exact.ErrRange, "a span that does not end before it begins")
		}
	}}
	type two struct {
		Name string
		A, B span
	}
	both := exact.Shape[two]{Fields: func(o *exact.Object, v *two) {
		exact.Text(o, "name", &v.Name, 1, 4)
		exact.Sub(o, "a", &v.A, spans)
		exact.Sub(o, "b", &v.B, spans)
		if !o.Failed() && v.A != v.B {
			o.Fail(exact.ErrRange, "twice the same span")
		}
	}}
	for _, c := range []struct{ in, want string }{
		{`{"name":"n","a":{"from":1,"to":2},"b":{"from":1,"to":2}}`, ``},
		{`{"name":"","a":{"from":2,"to":1},"b":{"from":2,"to":1}}`, `json-range name; json-range a; json-range b`},
		{`{"name":"n","a":{"from":2,"to":-1},"b":{"from":2,"to":1}}`, `json-range a.to; json-range b`},
		{`{"name":"n","a":{"from":1,"to":1},"b":{"from":2,"to":2}}`, `json-range `},
		{`{"name":"","a":{"from":1,"to":1},"b":{"from":2,"to":2}}`, `json-range name`},
	} {
		v, err := exact.Parse([]byte(c.in), small)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range both.Problems(v) {
			got = append(got, p.Rule.Name()+" "+p.Path)
		}
		if s := strings.Join(got, "; "); s != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.in, s, c.want)
		}
		if _, err := both.From(v); (err == nil) != (c.want == "") {
			t.Errorf("%s: From says %v", c.in, err)
		}
	}
}

func TestNullableAndFloatAreWrittenAsRead(t *testing.T) {
	for _, in := range []string{
		`{"leaf":{"name":"ab","load":0.5},"maybe":null,"list":[],"kind":"a"}`,
		`{"leaf":{"name":"ab","load":1},"maybe":"x","list":[{"name":"a","load":0}],"kind":"b"}`,
	} {
		v, err := treeShape.Read([]byte(in), small)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := treeShape.Bytes(v); err != nil || string(out) != in {
			t.Errorf("%s, %v", out, err)
		}
		again, err := treeShape.Read([]byte(in), small)
		if err != nil || !reflect.DeepEqual(v, again) {
			t.Errorf("%+v, %v", again, err)
		}
	}
	good := tree{Leaf: leaf{Name: "ab"}, Maybe: exact.Some("x"), Kind: "a"}
	for _, f := range []float64{math.NaN(), math.Inf(1), -0.1, 1.1} {
		bad := good
		bad.Leaf.Load = f
		if out, err := treeShape.Bytes(bad); err == nil {
			t.Errorf("%v is written as %s", f, out)
		}
	}
	good.Leaf.Load = math.Copysign(0, -1)
	if out, err := treeShape.Bytes(good); err != nil || !strings.Contains(string(out), `"load":0}`) {
		t.Errorf("%s, %v", out, err)
	}
	good.Maybe.V = "LOUD"
	if out, err := treeShape.Bytes(good); !errors.Is(err, exact.ErrRange) {
		t.Errorf("%s, %v", out, err)
	}
}
