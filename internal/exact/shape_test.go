package exact_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
)

// sample has a member for every accessor.
type sample struct {
	Bounded string // 2 to 5
	Free    string
	Opt     string // 1 to 3
	Word    color
	Count   int64 // 1 to 10
	Signed  number
	OptNum  exact.Opt[int64] // 1 to 100
	Yes     bool
	OptYes  bool
	In      inner
	OptIn   *inner
	List    []inner // 1 to 3
	Names   []string
	OptList []color
	Map     map[color]inner
	Only    bool    // true or absent
	Items   []inner // up to 2, or absent
}

type (
	color  string
	number int64
	inner  struct{ A string }
)

var colors = []color{"red", "green", "dark blue"}

const kindText = "sample/1"

func innerShape(unknown exact.Unknown) exact.Shape[inner] {
	return exact.Shape[inner]{Unknown: unknown, Fields: func(o *exact.Object, v *inner) {
		exact.Text(o, "a", &v.A, 1, 4)
	}}
}

func sampleShape(unknown exact.Unknown) exact.Shape[sample] {
	in := innerShape(unknown)
	return exact.Shape[sample]{Unknown: unknown, Fields: func(o *exact.Object, v *sample) {
		exact.Literal(o, "kind", kindText)
		exact.Text(o, "bounded", &v.Bounded, 2, 5)
		exact.Text(o, "free", &v.Free, 0, 0)
		exact.OptText(o, "opt", &v.Opt, 1, 3)
		exact.Word(o, "word", &v.Word, colors)
		exact.Whole(o, "count", &v.Count, 1, 10)
		exact.Whole(o, "signed", &v.Signed, -5, 0)
		exact.OptWhole(o, "optNum", &v.OptNum, 1, 100)
		exact.Bool(o, "yes", &v.Yes)
		exact.OptBool(o, "optYes", &v.OptYes)
		exact.Sub(o, "in", &v.In, in)
		exact.OptSub(o, "optIn", &v.OptIn, in)
		exact.List(o, "list", &v.List, 1, 3, in)
		exact.Texts(o, "names", &v.Names)
		exact.OptTexts(o, "optList", &v.OptList)
		exact.Map(o, "map", &v.Map, in)
		exact.OptTrue(o, "only", &v.Only)
		exact.OptList(o, "items", &v.Items, 0, 2, in)
	}}
}

var strict = sampleShape(exact.Refuse)

// members are the parts of a text that the shape reads, in order. The
// optional ones are absent.
var members = []struct{ name, value string }{
	{"kind", `"sample/1"`}, {"bounded", `"ab"`}, {"free", `""`}, {"word", `"red"`}, {"count", `1`}, {"signed", `-5`},
	{"yes", `false`}, {"in", `{"a":"x"}`}, {"list", `[{"a":"y"}]`}, {"names", `[]`}, {"map", `{}`},
}

var optional = []string{"opt", "optNum", "optYes", "optIn", "optList", "only", "items"}

// textWith is the smallest text with other values; an empty value takes the
// member out.
func textWith(values ...string) string {
	var out []string
	for _, m := range members {
		value := m.value
		for i := 0; i < len(values); i += 2 {
			if values[i] == m.name {
				value = values[i+1]
			}
		}
		if value != "" {
			out = append(out, strconv.Quote(m.name)+":"+value)
		}
	}
	for i := 0; i < len(values); i += 2 {
		if !slices.ContainsFunc(members, func(m struct{ name, value string }) bool { return m.name == values[i] }) {
			out = append(out, strconv.Quote(values[i])+":"+values[i+1])
		}
	}
	return "{" + strings.Join(out, ",") + "}"
}

// smallest is what textWith() reads as.
func smallest(change func(*sample)) sample {
	s := sample{Bounded: "ab", Word: "red", Count: 1, Signed: -5, In: inner{"x"}, List: []inner{{"y"}}, Names: []string{}, Map: map[color]inner{}}
	if change != nil {
		change(&s)
	}
	return s
}

// needs are the words that a problem uses for what was needed.
const (
	needBounded = "a string of 2 to 5 UTF-16 code units"
	needOne     = "a string of at least 1 UTF-16 code units"
	needInner   = "a string of 1 to 4 UTF-16 code units"
	needCount   = "a whole number from 1 to 10"
	needSigned  = "a whole number from -5 to 9007199254740991"
	needName    = "a name that every reader keeps"
)

// TestReadEachMember tries absent, null, wrong types and bounds for every
// accessor.
func TestReadEachMember(t *testing.T) {
	type want struct {
		value sample
		rule  *refusal.Kind
		path  string
		need  string
	}
	ok := func(change func(*sample)) want { return want{value: smallest(change)} }
	not := func(rule *refusal.Kind, path, need string) want { return want{rule: rule, path: path, need: need} }
	type cases map[string]want

	all := cases{
		textWith(): ok(nil),
		textWith("bounded", `"abcde"`, "free", `"\u0000"`, "opt", `"o"`, "optNum", `100`, "optYes", `true`, "optIn", `{"a":"z"}`, "optList", `["green","x"]`, "names", `["n"]`,
			"map", `{"red":{"a":"m"},"":{"a":"m"}}`): not(exact.ErrRange, "map[1]", needName),
		textWith("bounded", `"abcde"`, "free", `"\u0000"`, "opt", `"o"`, "optNum", `100`, "optYes", `true`, "optIn", `{"a":"z"}`, "optList", `["green","x"]`, "names", `["n"]`,
			"map", `{"red":{"a":"m"},"any":{"a":"n"}}`): ok(func(s *sample) {
			*s = sample{"abcde", "\x00", "o", "red", 1, -5, exact.Some[int64](100), false, true, inner{"x"}, &inner{"z"}, []inner{{"y"}}, []string{"n"},
				[]color{"green", "x"}, map[color]inner{"red": {"m"}, "any": {"n"}}, false, nil}
		}),
		`[]`: not(exact.ErrType, "", "an object"), `"x"`: not(exact.ErrType, "", "an object"), `null`: not(exact.ErrType, "", "an object"),
		`1`: not(exact.ErrType, "", "an object"), `[` + textWith() + `]`: not(exact.ErrType, "", "an object"),
		`{}`: not(exact.ErrMissing, "kind", ""), ``: not(exact.ErrSyntax, "", ""),

		// Literal and Word.
		textWith("kind", `"sample/2"`): not(exact.ErrMember, "kind", ""), textWith("kind", `"Sample/1"`): not(exact.ErrMember, "kind", ""),
		textWith("kind", `""`): not(exact.ErrMember, "kind", ""), textWith("kind", `"sample\u002f1"`): ok(nil),
		textWith("word", `"dark blue"`): ok(func(s *sample) { s.Word = "dark blue" }),
		textWith("word", `"Red"`):       not(exact.ErrMember, "word", ""), textWith("word", `"red "`): not(exact.ErrMember, "word", ""), textWith("word", `""`): not(exact.ErrMember, "word", ""),

		// Text: bounds count UTF-16 code units.
		textWith("bounded", `"a"`): not(exact.ErrRange, "bounded", needBounded), textWith("bounded", `""`): not(exact.ErrRange, "bounded", needBounded),
		textWith("bounded", `"abcdef"`): not(exact.ErrRange, "bounded", needBounded), textWith("bounded", `"ééééé"`): ok(func(s *sample) { s.Bounded = "ééééé" }),
		textWith("bounded", `"éééééé"`): not(exact.ErrRange, "bounded", needBounded), textWith("bounded", `"é"`): not(exact.ErrRange, "bounded", needBounded),
		textWith("bounded", `"😀"`): ok(func(s *sample) { s.Bounded = "😀" }), textWith("bounded", `"😀😀a"`): ok(func(s *sample) { s.Bounded = "😀😀a" }),
		textWith("bounded", `"😀😀😀"`):                             not(exact.ErrRange, "bounded", needBounded),
		textWith("bounded", `"\ud83d\ude00\ud83d\ude00\u0061"`):  ok(func(s *sample) { s.Bounded = "😀😀a" }),
		textWith("bounded", `"\ud83d\ude00\ud83d\ude00é\u0301"`): not(exact.ErrRange, "bounded", needBounded),
		textWith("opt", `""`):                                    not(exact.ErrRange, "opt", "a string of 1 to 3 UTF-16 code units"),
		textWith("opt", `"😀a"`):                                  ok(func(s *sample) { s.Opt = "😀a" }),
		textWith("opt", `"😀aa"`):                                 not(exact.ErrRange, "opt", "a string of 1 to 3 UTF-16 code units"),
		textWith("opt", `"abcd"`):                                not(exact.ErrRange, "opt", "a string of 1 to 3 UTF-16 code units"),

		// Whole: any spelling of the number, its bounds, 0 for no bound.
		textWith("count", `10`): ok(func(s *sample) { s.Count = 10 }), textWith("count", `1e1`): ok(func(s *sample) { s.Count = 10 }),
		textWith("count", `2.0`): ok(func(s *sample) { s.Count = 2 }), textWith("count", `0`): not(exact.ErrRange, "count", needCount),
		textWith("count", `11`): not(exact.ErrRange, "count", needCount), textWith("count", `1.5`): not(exact.ErrRange, "count", needCount),
		textWith("count", `-1`): not(exact.ErrRange, "count", needCount), textWith("count", `1e400`): not(exact.ErrRange, "count", needCount),
		textWith("signed", `-6`): not(exact.ErrRange, "signed", needSigned), textWith("signed", `-0`): ok(func(s *sample) { s.Signed = 0 }),
		textWith("signed", `9007199254740991`): ok(func(s *sample) { s.Signed = 9007199254740991 }), textWith("signed", `9007199254740992`): not(exact.ErrRange, "signed", needSigned),
		textWith("signed", `175E+10`): ok(func(s *sample) { s.Signed = 1750000000000 }), textWith("signed", `-5.1`): not(exact.ErrRange, "signed", needSigned),
		textWith("optNum", `1`):   ok(func(s *sample) { s.OptNum = exact.Some[int64](1) }),
		textWith("optNum", `0`):   not(exact.ErrRange, "optNum", "a whole number from 1 to 100"),
		textWith("optNum", `101`): not(exact.ErrRange, "optNum", "a whole number from 1 to 100"),

		// Bool.
		textWith("yes", `true`):    ok(func(s *sample) { s.Yes = true }),
		textWith("optYes", `true`): ok(func(s *sample) { s.OptYes = true }), textWith("optYes", `false`): ok(nil),

		// OptTrue: false would be said by a peer that means something by it.
		textWith("only", `true`): ok(func(s *sample) { s.Only = true }), textWith("only", `false`): not(exact.ErrMember, "only", ""),

		// Sub and OptSub.
		textWith("in", `{}`): not(exact.ErrMissing, "in.a", ""), textWith("in", `{"a":""}`): not(exact.ErrRange, "in.a", needInner),
		textWith("in", `{"a":null}`): not(exact.ErrType, "in.a", "a string"), textWith("in", `{"a":"x","b":1}`): not(exact.ErrUnknown, "in", ""),
		textWith("optIn", `{"a":"z"}`): ok(func(s *sample) { s.OptIn = &inner{"z"} }), textWith("optIn", `{}`): not(exact.ErrMissing, "optIn.a", ""),
		textWith("optIn", `{"a":"x","A":"y"}`): not(exact.ErrUnknown, "optIn", ""),

		// List.
		textWith("list", `[]`):                                        not(exact.ErrRange, "list", "1 to 3 entries"),
		textWith("list", `[{"a":"1"},{"a":"2"},{"a":"3"}]`):           ok(func(s *sample) { s.List = []inner{{"1"}, {"2"}, {"3"}} }),
		textWith("list", `[{"a":"1"},{"a":"2"},{"a":"3"},{"a":"4"}]`): not(exact.ErrRange, "list", "1 to 3 entries"),
		textWith("list", `[{"a":"1"},{"a":"2","b":[1,{"c":2}]}]`):     not(exact.ErrUnknown, "list[1]", ""),
		textWith("list", `[{"a":"1"},{"a":"2"},{"a":1}]`):             not(exact.ErrType, "list[2].a", "a string"),
		textWith("list", `[{"a":"1"},null]`):                          not(exact.ErrType, "list[1]", "an object"),
		textWith("list", `[[]]`):                                      not(exact.ErrType, "list[0]", "an object"),

		// OptList: an empty list is another thing than none.
		textWith("items", `[]`):                              ok(func(s *sample) { s.Items = []inner{} }),
		textWith("items", `[{"a":"1"},{"a":"2"}]`):           ok(func(s *sample) { s.Items = []inner{{"1"}, {"2"}} }),
		textWith("items", `[{"a":"1"},{"a":"2"},{"a":"3"}]`): not(exact.ErrRange, "items", "0 to 2 entries"),
		textWith("items", `[{"a":"1"},{"a":2}]`):             not(exact.ErrType, "items[1].a", "a string"),
		textWith("items", `[{"a":"1","b":1}]`):               not(exact.ErrUnknown, "items[0]", ""),
		textWith("items", `[null]`):                          not(exact.ErrType, "items[0]", "an object"),

		// Texts and OptTexts.
		textWith("names", `["a","","c"]`): not(exact.ErrRange, "names[1]", needOne), textWith("names", `["a",1]`): not(exact.ErrType, "names[1]", "a string"),
		textWith("names", `["😀","a","a"]`): ok(func(s *sample) { s.Names = []string{"😀", "a", "a"} }), textWith("names", `[[],"a"]`): not(exact.ErrType, "names[0]", "a string"),
		textWith("optList", `[]`): ok(func(s *sample) { s.OptList = []color{} }), textWith("optList", `["x"]`): ok(func(s *sample) { s.OptList = []color{"x"} }),
		textWith("optList", `[""]`): not(exact.ErrRange, "optList[0]", needOne), textWith("optList", `[null]`): not(exact.ErrType, "optList[0]", "a string"),

		// Map.
		textWith("map", `{"b":{"a":"1"},"a":{"a":"2"}}`):         ok(func(s *sample) { s.Map = map[color]inner{"b": {"1"}, "a": {"2"}} }),
		textWith("map", `{"b":{"a":"1"},"a":{"a":""}}`):          not(exact.ErrRange, "map[1].a", needInner),
		textWith("map", `{"b":[1,2],"a":{"a":"2"}}`):             not(exact.ErrType, "map[0]", "an object"),
		textWith("map", `{"b":{"a":"1","x":{}},"a":1}`):          not(exact.ErrUnknown, "map[0]", ""),
		textWith("map", `{"":{"a":"1"}}`):                        not(exact.ErrRange, "map[0]", needName),
		textWith("map", `{"x":{"a":"1"},"__proto__":{"a":"1"}}`): not(exact.ErrRange, "map[1]", needName),
		textWith("map", `{"\u005f_proto__":{"a":"1"}}`):          not(exact.ErrRange, "map[0]", needName),
		textWith("map", `{"__proto":{"a":"1"},"constructor":{"a":"2"},"\u00e9":{"a":"3"}}`): ok(func(s *sample) {
			s.Map = map[color]inner{"__proto": {"1"}, "constructor": {"2"}, "é": {"3"}}
		}),
	}

	// Absent, null, and every type that a member does not have.
	typeOf := map[string]string{
		"kind": "string", "bounded": "string", "free": "string", "word": "string", "opt": "string", "count": "number", "signed": "number", "optNum": "number",
		"yes": "bool", "optYes": "bool", "in": "object", "optIn": "object", "map": "object", "list": "list", "names": "list", "optList": "list", "only": "bool", "items": "list",
	}
	needOf := map[string]string{"string": "a string", "number": "a number", "bool": "true or false", "object": "an object", "list": "a list"}
	exampleOf := map[string][]string{
		"string": {`"x"`, `"true"`, `"1"`}, "number": {`1`, `0`}, "bool": {`true`, `false`}, "object": {`{}`, `{"a":"x"}`}, "list": {`[]`, `["x"]`}, "null": {`null`},
	}
	for name, typ := range typeOf {
		if !slices.Contains(optional, name) {
			all[textWith(name, "")] = not(exact.ErrMissing, name, "")
		}
		for other, examples := range exampleOf {
			if other == typ {
				continue
			}
			for _, example := range examples {
				all[textWith(name, example)] = not(exact.ErrType, name, needOf[typ])
			}
		}
	}
	// Names are exact.
	for _, m := range members {
		upper := strings.ToUpper(m.name[:1]) + m.name[1:]
		all[strings.Replace(textWith(), strconv.Quote(m.name), strconv.Quote(upper), 1)] = not(exact.ErrMissing, m.name, "")
		all[textWith(upper, m.value)] = not(exact.ErrUnknown, "", "")
		escaped := fmt.Sprintf(`"\u%04x%s"`, m.name[0], m.name[1:])
		all[strings.Replace(textWith(), strconv.Quote(m.name), escaped, 1)] = ok(nil)
	}
	for _, name := range optional {
		all[textWith(strings.ToUpper(name[:1])+name[1:], `"x"`)] = not(exact.ErrUnknown, "", "")
	}
	for _, name := range []string{"", " kind", "kind ", "ﬁn", "\u212aind", "li\u017ft", "__proto__"} { // the Kelvin sign and the long s fold to k and s
		all[textWith(name, `1`)] = not(exact.ErrUnknown, "", "")
	}

	for text, w := range all {
		got, err := strict.Read([]byte(text), wide)
		if w.rule == nil {
			if err != nil || !reflect.DeepEqual(got, w.value) {
				t.Errorf("%s\n is read as %+v, %v\n want       %+v", text, got, err, w.value)
			}
			continue
		}
		p, isProblem := err.(*exact.Problem)
		if !isProblem || *p != (exact.Problem{Rule: w.rule, Path: w.path, Need: w.need}) {
			t.Errorf("%s\n gives %#v\n want  %s at %q, need %q", text, err, w.rule.Name(), w.path, w.need)
		}
		if !reflect.DeepEqual(got, sample{}) {
			t.Errorf("%s: an error came with %+v", text, got)
		}
	}
}

func TestUnknownMembersAreDroppedWhereTheShapeSaysSo(t *testing.T) {
	drop := sampleShape(exact.Drop)
	for text, want := range map[string]sample{
		textWith("more", `{"deep":[1,{"a":2}]}`, "Kind", `1`, "", `null`):         smallest(nil),
		textWith("in", `{"b":[],"a":"x","c":{"a":"no"}}`):                         smallest(nil),
		textWith("list", `[{"x":{"a":"no"},"a":"1"},{"a":"2","y":[{}]}]`):         smallest(func(s *sample) { s.List = []inner{{"1"}, {"2"}} }),
		textWith("map", `{"m":{"x":1,"a":"1"}}`):                                  smallest(func(s *sample) { s.Map = map[color]inner{"m": {"1"}} }),
		`{"more":{"kind":"no","count":99},` + strings.TrimPrefix(textWith(), "{"): smallest(nil),
	} {
		got, err := drop.Read([]byte(text), wide)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n is read as %+v, %v\n want       %+v", text, got, err, want)
		}
		if _, err := strict.Read([]byte(text), wide); !errors.Is(err, exact.ErrUnknown) {
			t.Errorf("%s: %v, want %s where unknown members are refused", text, err, exact.ErrUnknown.Name())
		}
	}
	// Dropping says nothing about names that differ in case, or about faults.
	for text, rule := range map[string]*refusal.Kind{
		strings.Replace(textWith(), `"count"`, `"Count"`, 1): exact.ErrMissing,
		textWith("more", `1`, "count", `0`):                  exact.ErrRange,
		textWith("more", `"\ud800"`):                         exact.ErrEncoding,
		textWith("more", `{"a":1,"a":2}`):                    exact.ErrDuplicate,
	} {
		_, err := drop.Read([]byte(text), wide)
		wantRule(t, text, err, rule)
	}
	if got, err := drop.Read([]byte(textWith("Opt", `"x"`, "OPTYES", `true`)), wide); err != nil || got.Opt != "" || got.OptYes {
		t.Errorf("names of another case are read: %+v, %v", got, err)
	}
}

// The first fault in the order of the fields counts, so that one text always
// has one answer.
func TestFirstProblemCounts(t *testing.T) {
	text := `{"zzz":1,"word":"no","count":0,"bounded":1,"kind":"sample/1"}`
	_, err := strict.Read([]byte(text), wide)
	want := exact.Problem{Rule: exact.ErrType, Path: "bounded", Need: "a string"}
	if p, ok := err.(*exact.Problem); !ok || *p != want {
		t.Errorf("%#v, want %+v", err, want)
	}
	// What Fields does after a fault reads and writes nothing.
	reached := false
	s := exact.Shape[sample]{Fields: func(o *exact.Object, v *sample) {
		exact.Whole(o, "count", &v.Count, 1, 10)
		failed := o.Failed()
		exact.Text(o, "free", &v.Free, 0, 0)
		exact.OptSub(o, "optIn", &v.OptIn, innerShape(exact.Refuse))
		o.Fail(exact.ErrMember, "something else")
		if failed != o.Failed() || v.OptIn != nil || !o.Writing() && v.Free != "" {
			t.Error("Fields went on after a problem")
		}
		reached = true
	}}
	want = exact.Problem{Rule: exact.ErrRange, Path: "count", Need: needCount}
	if _, err := s.Read([]byte(`{"count":99,"free":"x","optIn":{"a":"x"}}`), wide); *err.(*exact.Problem) != want || !reached {
		t.Errorf("reading: %v", err)
	}
	if out, err := s.Append(nil, sample{Count: 99, Free: "x"}); *err.(*exact.Problem) != want || out != nil {
		t.Errorf("writing: %q, %v", out, err)
	}
}

// A shape may set a value before it reads one, for a member that is absent.
// What is there counts more.
func TestReadingReplacesWhatWasThere(t *testing.T) {
	s := exact.Shape[sample]{Fields: func(o *exact.Object, v *sample) {
		if !o.Writing() {
			*v = sample{Yes: true, OptYes: true, Free: "before", Opt: "before", Names: []string{"before"}, Map: map[color]inner{"before": {}}, Count: 5, OptIn: &inner{"before"}}
		}
		exact.Bool(o, "yes", &v.Yes)
		exact.OptBool(o, "optYes", &v.OptYes)
		exact.Text(o, "free", &v.Free, 0, 0)
		exact.OptText(o, "opt", &v.Opt, 0, 0)
		exact.Texts(o, "names", &v.Names)
		exact.Map(o, "map", &v.Map, innerShape(exact.Refuse))
		exact.Whole(o, "count", &v.Count, 0, 0)
		exact.OptSub(o, "optIn", &v.OptIn, innerShape(exact.Refuse))
	}}
	got, err := s.Read([]byte(`{"yes":false,"optYes":false,"free":"","opt":"","names":[],"map":{},"count":0,"optIn":{"a":"x"}}`), wide)
	if want := (sample{Names: []string{}, Map: map[color]inner{}, OptIn: &inner{"x"}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read as %+v, %v, want %+v", got, err, want)
	}
}

func TestObjectFailNamesTheObject(t *testing.T) {
	even := exact.Shape[[]inner]{Fields: func(o *exact.Object, v *[]inner) {
		exact.List(o, "list", v, 0, 0, exact.Shape[inner]{Fields: func(o *exact.Object, v *inner) {
			if o.Failed() {
				t.Error("it failed before it began")
			}
			exact.Text(o, "a", &v.A, 0, 0)
			if !o.Failed() && len(v.A)%2 != 0 {
				o.Fail(exact.ErrRange, "an even text")
			}
		}})
	}}
	want := exact.Problem{Rule: exact.ErrRange, Path: "list[2]", Need: "an even text"}
	got, err := even.Read([]byte(`{"list":[{"a":""},{"a":"xx"},{"a":"x"},{"a":1}]}`), wide)
	if p, ok := err.(*exact.Problem); !ok || *p != want || got != nil {
		t.Errorf("reading: %v, %#v, want %+v", got, err, want)
	}
	out, err := even.Append([]byte("before"), []inner{{""}, {"xx"}, {"x"}, {"xxx"}})
	if p, ok := err.(*exact.Problem); !ok || *p != want || out != nil {
		t.Errorf("writing: %q, %#v, want %+v", out, err, want)
	}
	root := exact.Shape[inner]{Fields: func(o *exact.Object, v *inner) { o.Fail(exact.ErrMember, "anything else") }}
	want = exact.Problem{Rule: exact.ErrMember, Need: "anything else"}
	if _, err := root.Read([]byte(`{}`), wide); *err.(*exact.Problem) != want {
		t.Errorf("reading: %#v, want %+v", err, want)
	}
	if _, err := root.Append(nil, inner{}); *err.(*exact.Problem) != want {
		t.Errorf("writing: %#v, want %+v", err, want)
	}
}

// Paths are read by people who look for the place.
func TestPathsThroughSeveralLevels(t *testing.T) {
	type lease struct{ expires int64 }
	type job struct {
		lease lease
		more  map[string]lease
	}
	leases := exact.Shape[lease]{Fields: func(o *exact.Object, v *lease) { exact.Whole(o, "expiresAt", &v.expires, 1, 0) }}
	jobs := exact.Shape[job]{Fields: func(o *exact.Object, v *job) {
		exact.Sub(o, "lease", &v.lease, leases)
		exact.Map(o, "more", &v.more, leases)
	}}
	all := exact.Shape[[]job]{Fields: func(o *exact.Object, v *[]job) { exact.List(o, "jobs", v, 0, 0, jobs) }}
	good := `{"lease":{"expiresAt":1},"more":{"b":{"expiresAt":1}}}`
	for bad, want := range map[string]exact.Problem{
		`{"lease":{"expiresAt":0},"more":{}}`:                                   {exact.ErrRange, "jobs[3].lease.expiresAt", "a whole number from 1 to 9007199254740991"},
		`{"lease":{},"more":{}}`:                                                {exact.ErrMissing, "jobs[3].lease.expiresAt", ""},
		`{"lease":{"expiresAt":1,"x":1},"more":{}}`:                             {exact.ErrUnknown, "jobs[3].lease", ""},
		`{"lease":{"expiresAt":1},"more":{},"x":1}`:                             {exact.ErrUnknown, "jobs[3]", ""},
		`{"lease":{"expiresAt":1}}`:                                             {exact.ErrMissing, "jobs[3].more", ""},
		`{"lease":{"expiresAt":1},"more":{"b":{"expiresAt":1},"a":{}}}`:         {exact.ErrMissing, "jobs[3].more[1].expiresAt", ""},
		`{"lease":{"expiresAt":1},"more":{"b":{"expiresAt":1},"a":{"x":[[]]}}}`: {exact.ErrMissing, "jobs[3].more[1].expiresAt", ""},
		`{"lease":{"expiresAt":1},"more":{"b":{"expiresAt":"1"},"a":{"x":[]}}}`: {exact.ErrType, "jobs[3].more[0].expiresAt", "a number"},
		`"x"`: {exact.ErrType, "jobs[3]", "an object"},
	} {
		text := `{"jobs":[` + strings.Join([]string{good, good, good, bad, good}, ",") + `]}`
		if _, err := all.Read([]byte(text), wide); *err.(*exact.Problem) != want {
			t.Errorf("%s: %#v, want %+v", bad, err, want)
		}
	}
	fine := job{lease{1}, nil}
	for _, c := range []struct {
		bad  job
		want exact.Problem
	}{
		{job{lease{0}, nil}, exact.Problem{Rule: exact.ErrRange, Path: "jobs[1].lease.expiresAt", Need: "a whole number from 1 to 9007199254740991"}},
		{job{lease{1}, map[string]lease{"b": {0}, "a": {1}}}, exact.Problem{Rule: exact.ErrRange, Path: "jobs[1].more[1].expiresAt", Need: "a whole number from 1 to 9007199254740991"}},
		{job{lease{1}, map[string]lease{"b": {1}, "\xff": {1}}}, exact.Problem{Rule: exact.ErrEncoding, Path: "jobs[1].more[1]", Need: "valid UTF-8"}},
		{job{lease{1}, map[string]lease{"": {1}, "x": {1}}}, exact.Problem{Rule: exact.ErrRange, Path: "jobs[1].more[0]", Need: needOne}},
		{job{lease{1}, map[string]lease{"a": {1}, "__proto__": {1}, "A": {1}}}, exact.Problem{Rule: exact.ErrRange, Path: "jobs[1].more[1]", Need: needName}},
	} {
		out, err := all.Append(nil, []job{fine, c.bad, {lease{0}, nil}})
		if p, ok := err.(*exact.Problem); !ok || *p != c.want || out != nil {
			t.Errorf("%+v: %q, %#v, want %+v", c.bad, out, err, c.want)
		}
	}
}

func TestProblemTexts(t *testing.T) {
	for _, c := range []struct {
		p               exact.Problem
		error, sentence string
	}{
		{exact.Problem{Rule: exact.ErrSyntax}, "json-syntax", "The document breaks the rule json-syntax."},
		{exact.Problem{Rule: exact.ErrMissing, Path: "jobs[3].lease"}, "json-missing at jobs[3].lease", "The member jobs[3].lease breaks the rule json-missing."},
		{exact.Problem{Rule: exact.ErrType, Need: "an object"}, "json-type: needs an object", "The document needs to be an object (json-type)."},
		{exact.Problem{Rule: exact.ErrRange, Path: "a", Need: "a text"}, "json-range at a: needs a text", "The member a needs to be a text (json-range)."},
	} {
		if got := c.p.Error(); got != c.error {
			t.Errorf("Error() = %q, want %q", got, c.error)
		}
		if got := c.p.Sentence(); got != c.sentence {
			t.Errorf("Sentence() = %q, want %q", got, c.sentence)
		}
		if !errors.Is(&c.p, c.p.Rule) || refusal.From(&c.p).Kind() != c.p.Rule {
			t.Errorf("%s is not its rule", c.p.Rule.Name())
		}
	}
	for _, k := range exact.Kinds.Kinds {
		if exact.Kinds.Find(k.Name()) != k || k.Status() != 400 {
			t.Errorf("%s: status %d, want 400", k.Name(), k.Status())
		}
	}
	if len(exact.Kinds.Kinds) != 11 {
		t.Errorf("%d kinds are registered, want 11", len(exact.Kinds.Kinds))
	}
}

// Problems are shown to callers, so they must not quote what came in.
func TestProblemsQuoteNoInput(t *testing.T) {
	const canary = "canary-5fb3"
	q := strconv.Quote(canary)
	texts := []string{
		q, `[` + q + `]`, `{` + q + `:1}`, `{` + q + `:1,` + q + `:2}`, `{"a":` + q, q + q, canary, `{` + canary + `}`, `{"a":1}` + canary,
		`"` + canary + `\ud800"`, "\"" + canary + "\xff\"", `{"` + canary + `\ud800":1}`, `["` + canary + `"`, `{"a":` + canary + `}`, `{"` + canary + `"}`,
		strings.Repeat(`{`+q+`:`, 200), `"` + strings.Repeat(canary, 5000) + `"`, `[` + strings.Repeat(q+",", 2000) + `1]`,
		textWith(canary, `1`), textWith("in", `{"a":"x",`+q+`:1}`), textWith("list", `[{"a":"x",`+q+`:1}]`), textWith("map", `{`+q+`:1}`),
		textWith("map", `{`+q+`:{"a":1}}`), textWith("map", `{`+q+`:{"a":"x",`+q+`:1}}`), textWith("map", `{"x":{"a":`+q+`}}`),
	}
	for _, name := range append([]string{"kind", "bounded", "word", "count", "signed", "yes", "in", "list", "names", "map"}, optional...) {
		texts = append(texts, textWith(name, q), textWith(name, `[`+q+`]`), textWith(name, `{`+q+`:`+q+`}`), textWith(name, `{"a":`+q+`}`), textWith(name, `[{"a":`+q+`}]`))
	}
	refused := 0
	for _, text := range texts {
		_, err := strict.Read([]byte(text), exact.Limits{Bytes: 20000, Depth: 50, Values: 1000})
		if err == nil {
			continue
		}
		refused++
		p := err.(*exact.Problem)
		for _, said := range []string{p.Error(), p.Sentence(), p.Path, p.Need, fmt.Sprintf("%+v %#v", err, err), string(refusal.JSON(err)), refusal.Terminal(err)} {
			if strings.Contains(said, canary) {
				t.Errorf("%s: a problem quotes it: %s", text, said)
			}
		}
	}
	if refused < len(texts)-5 {
		t.Errorf("only %d of %d texts are refused, so the test shows little", refused, len(texts))
	}
	// Writing: a value is input, too.
	for _, s := range []sample{
		smallest(func(s *sample) { s.Bounded = canary }), smallest(func(s *sample) { s.Word = canary }), smallest(func(s *sample) { s.In.A = canary }),
		smallest(func(s *sample) { s.Map = map[color]inner{canary: {}} }), smallest(func(s *sample) { s.Free = canary + "\xff" }),
		smallest(func(s *sample) { s.Map = map[color]inner{canary + "\xff": {"x"}} }),
	} {
		_, err := strict.Append(nil, s)
		if err == nil || strings.Contains(fmt.Sprintf("%+v %#v", err, err)+err.(*exact.Problem).Sentence(), canary) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

func TestFromAValueInside(t *testing.T) {
	root, err := exact.Parse([]byte(`{"x":[1,{}],"in":{"a":"x"},"bad":{"a":1},"text":"t"}`), wide)
	if err != nil {
		t.Fatal(err)
	}
	shape := innerShape(exact.Refuse)
	in, _ := root.Member("in")
	if got, err := shape.From(in); err != nil || got != (inner{"x"}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for name, want := range map[string]exact.Problem{
		"bad":    {Rule: exact.ErrType, Path: "a", Need: "a string"},
		"text":   {Rule: exact.ErrType, Need: "an object"},
		"absent": {Rule: exact.ErrMissing},
	} {
		v, _ := root.Member(name)
		got, err := shape.From(v)
		if p, ok := err.(*exact.Problem); !ok || *p != want || got != (inner{}) {
			t.Errorf("%s: %+v, %#v, want %+v", name, got, err, want)
		}
	}
}

func TestReadKeepsToTheLimits(t *testing.T) {
	text := textWith()
	lim := exact.Limits{Bytes: len(text), Depth: 3, Values: 15}
	if _, err := strict.Read([]byte(text), lim); err != nil {
		t.Errorf("at the bounds: %v", err)
	}
	for name, c := range map[string]struct {
		lim  exact.Limits
		rule *refusal.Kind
	}{
		"bytes":  {exact.Limits{Bytes: len(text) - 1, Depth: 3, Values: 15}, exact.ErrTooLarge},
		"depth":  {exact.Limits{Bytes: len(text), Depth: 2, Values: 15}, exact.ErrTooDeep},
		"values": {exact.Limits{Bytes: len(text), Depth: 3, Values: 14}, exact.ErrTooMany},
	} {
		got, err := strict.Read([]byte(text), c.lim)
		wantPlainRule(t, name, err, c.rule)
		if !reflect.DeepEqual(got, sample{}) {
			t.Errorf("%s: an error came with %+v", name, got)
		}
	}
}

func TestUnits(t *testing.T) {
	for s, want := range map[string]int{"": 0, "a": 1, "é": 1, "€": 1, "\uffff": 1, "\U00010000": 2, "😀": 2, "a😀b": 4, "e\u0301": 2, "\x00": 1, "\U0010ffff": 2} {
		if got := exact.Units(s); got != want {
			t.Errorf("Units(%q) = %d, want %d", s, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune{'a', 'é', '€', 0xffff, 0x10000, '😀', 0x10ffff}))).Draw(t, "s")
		if got, want := exact.Units(s), len(utf16.Encode([]rune(s))); got != want {
			t.Fatalf("Units(%q) = %d, want %d", s, got, want)
		}
	})
}

// bound is a text with bounds that a test chooses.
func bound(min, max int) exact.Shape[string] {
	return exact.Shape[string]{Fields: func(o *exact.Object, v *string) { exact.Text(o, "t", v, min, max) }}
}

func TestTextBoundsCountUTF16(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOfN(rapid.SampledFrom([]rune{'a', 'é', '€', 0xffff, 0x10000, '😀'}), 0, 6, -1).Draw(t, "s")
		min, max := rapid.IntRange(0, 8).Draw(t, "min"), rapid.IntRange(0, 8).Draw(t, "max")
		units := len(utf16.Encode([]rune(s)))
		want := units >= min && (max == 0 || units <= max)
		shape := bound(min, max)
		read, err := shape.Read([]byte(`{"t":`+naiveQuote(s)+`}`), wide)
		if (err == nil) != want || err == nil && read != s {
			t.Fatalf("%q of %d units within %d to %d: read as %q, %v", s, units, min, max, read, err)
		}
		out, err := shape.Append(nil, s)
		if (err == nil) != want || err == nil && string(out) != `{"t":`+naiveQuote(s)+`}` {
			t.Fatalf("%q of %d units within %d to %d: written as %q, %v", s, units, min, max, out, err)
		}
	})
}

func TestListBounds(t *testing.T) {
	for _, c := range []struct {
		n, min, max int
		need        string // "" where the list fits
	}{
		{0, 0, 0, ""}, {9, 0, 0, ""}, {0, 1, 0, "at least 1 entries"}, {1, 1, 0, ""}, {2, 2, 2, ""}, {1, 2, 2, "2 to 2 entries"}, {3, 2, 2, "2 to 2 entries"}, {2, 0, 2, ""}, {3, 0, 2, "0 to 2 entries"},
	} {
		shape := exact.Shape[[]inner]{Fields: func(o *exact.Object, v *[]inner) { exact.List(o, "l", v, c.min, c.max, innerShape(exact.Refuse)) }}
		list := make([]inner, c.n)
		for i := range list {
			list[i].A = strconv.Itoa(i)
		}
		text := naiveList(list, func(v inner) string { return `{"a":` + naiveQuote(v.A) + `}` })
		read, err1 := shape.Read([]byte(`{"l":`+text+`}`), wide)
		out, err2 := shape.Append(nil, list)
		for what, err := range map[string]error{"reading": err1, "writing": err2} {
			p, ok := err.(*exact.Problem)
			switch {
			case c.need == "" && err != nil:
				t.Errorf("%s %d within %d to %d: %v", what, c.n, c.min, c.max, err)
			case c.need != "" && (!ok || *p != exact.Problem{Rule: exact.ErrRange, Path: "l", Need: c.need}):
				t.Errorf("%s %d within %d to %d: %#v, want %q", what, c.n, c.min, c.max, err, c.need)
			}
		}
		if c.need == "" && (!slices.Equal(read, list) || read == nil || string(out) != `{"l":`+text+`}`) {
			t.Errorf("%d entries: read %v, written %s", c.n, read, out)
		}
		if c.need != "" && (read != nil || out != nil) {
			t.Errorf("%d entries: errors came with %v and %s", c.n, read, out)
		}
	}
}

// What a double cannot hold exactly is never written, whatever bounds a shape
// gives: no reader would take it.
func TestWholeIsNeverBeyondAllReaders(t *testing.T) {
	for _, c := range []struct {
		w, min, max int64
		ok          bool
	}{
		{exact.MaxWhole, 0, 0, true}, {exact.MaxWhole + 1, 0, 0, false}, {exact.MaxWhole + 1, 0, math.MaxInt64, false}, {math.MaxInt64, 0, math.MaxInt64, false},
		{-exact.MaxWhole, -exact.MaxWhole, 0, true}, {-exact.MaxWhole - 1, math.MinInt64, 0, false}, {math.MinInt64, math.MinInt64, math.MaxInt64, false}, {exact.MaxWhole, 0, math.MaxInt64, true},
	} {
		shape := exact.Shape[int64]{Fields: func(o *exact.Object, v *int64) { exact.Whole(o, "n", v, c.min, c.max) }}
		text := fmt.Sprintf(`{"n":%d}`, c.w)
		out, err := shape.Append(nil, c.w)
		if (err == nil) != c.ok || c.ok && string(out) != text {
			t.Errorf("%d within %d to %d: written as %s, %v", c.w, c.min, c.max, out, err)
		}
		read, err := shape.Read([]byte(text), wide)
		if (err == nil) != c.ok || c.ok && read != c.w {
			t.Errorf("%d within %d to %d: read as %d, %v", c.w, c.min, c.max, read, err)
		}
	}
}

func TestAppend(t *testing.T) {
	s := smallest(func(s *sample) {
		s.Opt, s.OptNum, s.OptYes, s.OptIn, s.OptList = "o", exact.Some[int64](7), true, &inner{"z"}, []color{"x", "y"}
		s.Names = []string{"n", "m"}
		s.List = []inner{{"1"}, {"2"}}
		s.Map = map[color]inner{"b": {"1"}, "a": {"2"}, "B": {"3"}, "é": {"4"}, "\uffff": {"5"}, "😀": {"6"}, "aa": {"7"}, " ": {"8"}}
	})
	// The names of the map are in the order of their bytes, where the last
	// character of three bytes is before those of four. By UTF-16 it is not.
	want := `{"kind":"sample/1","bounded":"ab","free":"","opt":"o","word":"red","count":1,"signed":-5,"optNum":7,"yes":false,"optYes":true,"in":{"a":"x"},"optIn":{"a":"z"},` +
		`"list":[{"a":"1"},{"a":"2"}],"names":["n","m"],"optList":["x","y"],"map":{" ":{"a":"8"},"B":{"a":"3"},"a":{"a":"2"},"aa":{"a":"7"},"b":{"a":"1"},"é":{"a":"4"},"` + "\uffff" + `":{"a":"5"},"😀":{"a":"6"}}}`
	if got, err := strict.Append(nil, s); err != nil || string(got) != want {
		t.Errorf("written as\n%s, %v, want\n%s", got, err, want)
	}
	// Absent members leave nothing behind; nil lists and maps are empty ones.
	bare := smallest(func(s *sample) { s.Names, s.Map = nil, nil })
	want = `{"kind":"sample/1","bounded":"ab","free":"","word":"red","count":1,"signed":-5,"yes":false,"in":{"a":"x"},"list":[{"a":"y"}],"names":[],"map":{}}`
	if got, err := strict.Append(nil, bare); err != nil || string(got) != want {
		t.Errorf("written as\n%s, %v, want\n%s", got, err, want)
	}
	if got, err := strict.Append(nil, smallest(func(s *sample) { s.OptList = []color{} })); err != nil || !strings.Contains(string(got), `"optList":[],`) {
		t.Errorf("an empty list is written as %s, %v", got, err)
	}
	if got, err := strict.Append(nil, smallest(func(s *sample) { s.Only, s.Items = true, []inner{} })); err != nil || !strings.HasSuffix(string(got), `"map":{},"only":true,"items":[]}`) {
		t.Errorf("true and an empty list are written as %s, %v", got, err)
	}
	if got, err := strict.Append([]byte("before"), bare); err != nil || string(got) != "before"+want {
		t.Errorf("appended to a text it is %s, %v", got, err)
	}
	if got, err := strict.Append([]byte("before"), sample{}); err == nil || got != nil {
		t.Errorf("an error came with %q", got)
	}
	empty := exact.Shape[inner]{Fields: func(*exact.Object, *inner) {}}
	if got, err := empty.Append(nil, inner{}); err != nil || string(got) != "{}" {
		t.Errorf("no members are written as %s, %v", got, err)
	}
	if got, err := empty.Read([]byte(`{}`), wide); err != nil || got != (inner{}) {
		t.Errorf("no members are read as %v, %v", got, err)
	}
}

func TestAppendRefusesInvalidUTF8(t *testing.T) {
	for what, text := range badUTF8 {
		for where, change := range map[string]func(*sample){
			"free":       func(s *sample) { s.Free = text },
			"bounded":    func(s *sample) { s.Bounded = "ab" + text },
			"opt":        func(s *sample) { s.Opt = text },
			"names[0]":   func(s *sample) { s.Names = []string{text} },
			"optList[1]": func(s *sample) { s.OptList = []color{"x", color(text)} },
			"in.a":       func(s *sample) { s.In.A = text },
			"optIn.a":    func(s *sample) { s.OptIn = &inner{text} },
			"list[0].a":  func(s *sample) { s.List = []inner{{text}} },
			"map[0]":     func(s *sample) { s.Map = map[color]inner{color(text): {"x"}} },
			"items[1].a": func(s *sample) { s.Items = []inner{{"x"}, {text}} },
			"map[0].a":   func(s *sample) { s.Map = map[color]inner{"x": {text}} },
		} {
			got, err := strict.Append(nil, smallest(change))
			want := exact.Problem{Rule: exact.ErrEncoding, Path: where, Need: "valid UTF-8"}
			if p, ok := err.(*exact.Problem); !ok || *p != want || got != nil {
				t.Errorf("%s in %s: %q, %#v, want %+v", what, where, got, err, want)
			}
		}
		got, err := strict.Append(nil, smallest(func(s *sample) { s.Word = color(text) }))
		if !errors.Is(err, exact.ErrMember) || got != nil {
			t.Errorf("%s as a word: %q, %v", what, got, err)
		}
	}
}

// naiveQuote writes a string as JSON.stringify does, by its rules: quotation
// mark, backslash and control characters are escaped, the short way where there
// is one, and nothing else is. It does not look at the encoding.
func naiveQuote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"', c == '\\':
			b.WriteString(`\` + string(rune(c)))
		case c == '\b':
			b.WriteString(`\b`)
		case c == '\f':
			b.WriteString(`\f`)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c < 0x20:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func naiveList[T any](list []T, each func(T) string) string {
	var parts []string
	for _, v := range list {
		parts = append(parts, each(v))
	}
	return "[" + strings.Join(parts, ",") + "]"
}

func TestQuotingIsThatOfJSONStringify(t *testing.T) {
	shape := bound(0, 0)
	for in, want := range map[string]string{
		"\x00": `\u0000`, "\x01": `\u0001`, "\x07": `\u0007`, "\b": `\b`, "\t": `\t`, "\n": `\n`, "\x0b": `\u000b`, "\f": `\f`, "\r": `\r`, "\x0e": `\u000e`, "\x1b": `\u001b`, "\x1f": `\u001f`,
		" ": " ", "\x7f": "\x7f", "\u0080": "\u0080", "<": "<", ">": ">", "&": "&", "'": "'", "/": "/", `"`: `\"`, `\`: `\\`, "`": "`",
		"\u2028": "\u2028", "\u2029": "\u2029", "\ufeff": "\ufeff", "\ufffd": "\ufffd", "\uffff": "\uffff", "é": "é", "😀": "😀", "\U0010ffff": "\U0010ffff", "</script>": "</script>", `\u0041`: `\\u0041`,
	} {
		got, err := shape.Append(nil, in)
		if err != nil || string(got) != `{"t":"`+want+`"}` {
			t.Errorf("%q is written as %s, %v, want %s", in, got, err, want)
		}
		if naiveQuote(in) != `"`+want+`"` {
			t.Errorf("the test's own rules write %q as %s", in, naiveQuote(in))
		}
	}
	for r := rune(0); r < 0x3000; r++ {
		in := "a" + string(r) + "b"
		got, err := shape.Append(nil, in)
		if err != nil || string(got) != `{"t":`+naiveQuote(in)+`}` {
			t.Errorf("%q is written as %s, %v", in, got, err)
		}
		if read, err := shape.Read(got, wide); err != nil || read != in {
			t.Errorf("%s is read as %q, %v", got, read, err)
		}
	}
	// Names of a map are written in the same way.
	names := exact.Shape[map[string]inner]{Fields: func(o *exact.Object, v *map[string]inner) { exact.Map(o, "m", v, innerShape(exact.Refuse)) }}
	got, err := names.Append(nil, map[string]inner{"\x01\"\\<\u2028": {"x"}})
	if want := "{\"m\":{\"\\u0001\\\"\\\\<\u2028\":{\"a\":\"x\"}}}"; err != nil || string(got) != want {
		t.Errorf("a name is written as %s, %v, want %s", got, err, want)
	}
}

// naive writes a sample without any check, in the order of the shape.
func naive(s sample) string {
	in := func(v inner) string { return `{"a":` + naiveQuote(v.A) + `}` }
	out := `{"kind":"sample/1","bounded":` + naiveQuote(s.Bounded) + `,"free":` + naiveQuote(s.Free)
	if s.Opt != "" {
		out += `,"opt":` + naiveQuote(s.Opt)
	}
	out += `,"word":` + naiveQuote(string(s.Word)) + fmt.Sprintf(`,"count":%d,"signed":%d`, s.Count, s.Signed)
	if s.OptNum.Set {
		out += fmt.Sprintf(`,"optNum":%d`, s.OptNum.V)
	}
	out += fmt.Sprintf(`,"yes":%t`, s.Yes)
	if s.OptYes {
		out += `,"optYes":true`
	}
	out += `,"in":` + in(s.In)
	if s.OptIn != nil {
		out += `,"optIn":` + in(*s.OptIn)
	}
	out += `,"list":` + naiveList(s.List, in) + `,"names":` + naiveList(s.Names, naiveQuote)
	if s.OptList != nil {
		out += `,"optList":` + naiveList(s.OptList, func(c color) string { return naiveQuote(string(c)) })
	}
	var names []string
	for name := range s.Map {
		names = append(names, string(name))
	}
	slices.Sort(names)
	out += `,"map":{` + strings.Trim(naiveList(names, func(name string) string { return naiveQuote(name) + ":" + in(s.Map[color(name)]) }), "[]") + "}"
	if s.Only {
		out += `,"only":true`
	}
	if s.Items != nil {
		out += `,"items":` + naiveList(s.Items, in)
	}
	return out + "}"
}

// drawSample draws values around the bounds, about half of which fit.
func drawSample(t *rapid.T) sample {
	odd := rapid.IntRange(0, 3).Draw(t, "odd") == 0 // one draw in four may hold faults everywhere
	text := func(min, max int, label string) string {
		if odd {
			min, max = 0, max+2
			if rapid.IntRange(0, 9).Draw(t, label+" bad") == 0 {
				return rapid.SampledFrom([]string{"\xff", "a\xed\xa0\x80", "\xc3"}).Draw(t, label)
			}
		}
		runes := rapid.SampledFrom([]rune{'a', 'b', '"', '\\', '\n', 0, 0x7f, 'é', 0x2028, 0xfffd, '😀'})
		s := rapid.StringOfN(runes, min, max, -1).Draw(t, label)
		for !odd && exact.Units(s) > max {
			s = string([]rune(s)[1:]) + "a"
			s = strings.Replace(s, "😀", "", 1)
		}
		for !odd && exact.Units(s) < min {
			s += "x"
		}
		return s
	}
	whole := func(min, max int64, label string) int64 {
		if odd {
			min, max = min-2, max+2
		}
		return rapid.Int64Range(min, max).Draw(t, label)
	}
	draw := func(label string) bool { return rapid.Bool().Draw(t, label) }
	in := func(label string) inner { return inner{text(1, 4, label)} }
	s := sample{
		Bounded: text(2, 5, "bounded"), Free: text(0, 20, "free"), Word: rapid.SampledFrom(colors).Draw(t, "word"),
		Count: whole(1, 10, "count"), Signed: number(whole(-5, exact.MaxWhole, "signed")), Yes: draw("yes"), OptYes: draw("optYes"), In: in("in"),
		List: []inner{}, Names: []string{}, Map: map[color]inner{},
	}
	if odd && draw("odd word") {
		s.Word = color(text(0, 5, "odd word"))
	}
	if draw("has opt") {
		s.Opt = text(1, 3, "opt")
	}
	if draw("has optNum") {
		s.OptNum = exact.Some(whole(1, 100, "optNum"))
	}
	if draw("has optIn") {
		v := in("optIn")
		s.OptIn = &v
	}
	for range whole(1, 3, "list") {
		s.List = append(s.List, in("entry"))
	}
	for range rapid.IntRange(0, 3).Draw(t, "names") {
		s.Names = append(s.Names, text(1, 6, "name"))
	}
	if draw("has optList") {
		s.OptList = []color{}
		for range rapid.IntRange(0, 3).Draw(t, "optList") {
			s.OptList = append(s.OptList, color(text(1, 6, "opt name")))
		}
	}
	s.Only = draw("only")
	if draw("has items") {
		s.Items = []inner{}
		for range whole(2, 2, "items") - int64(rapid.IntRange(0, 2).Draw(t, "fewer items")) {
			s.Items = append(s.Items, in("item"))
		}
	}
	for range rapid.IntRange(0, 4).Draw(t, "map") {
		name := color(text(1, 3, "key"))
		if odd && rapid.IntRange(0, 9).Draw(t, "proto") == 0 {
			name = "__proto__"
		}
		s.Map[name] = in("value")
	}
	return s
}

// TestWriteRefusesWhatReadRefuses compares with a writer that has no rules: a
// value is written if and only if its plain text can be read, and then both
// texts are the same and read as the value.
func TestWriteRefusesWhatReadRefuses(t *testing.T) {
	fits, not := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawSample(t)
		plain := naive(s)
		read, readErr := strict.Read([]byte(plain), wide)
		out, writeErr := strict.Append(nil, s)
		if (readErr == nil) != (writeErr == nil) {
			t.Fatalf("%s\nreading: %v\nwriting: %v", plain, readErr, writeErr)
		}
		if writeErr != nil {
			not++
			if out != nil || !reflect.DeepEqual(read, sample{}) {
				t.Fatalf("%s: errors came with %q and %+v", plain, out, read)
			}
			return
		}
		fits++
		if string(out) != plain {
			t.Fatalf("written as\n%s, want\n%s", out, plain)
		}
		if !reflect.DeepEqual(read, s) {
			t.Fatalf("read as %+v, want %+v", read, s)
		}
		if !utf8.Valid(out) {
			t.Fatalf("not UTF-8: %q", out)
		}
	})
	if fits == 0 || not == 0 {
		t.Errorf("%d values fit and %d do not, so the test shows little", fits, not)
	}
}
