package exact_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"testing"
	"unicode/utf8"

	"github.com/allodhq/allod/internal/exact"
)

// lone reports whether a JSON text holds half of a surrogate pair as an
// escape. It reads escapes only, since they can stand in strings only.
func lone(src []byte) bool {
	unit := func(i int) int { // the code unit of an escape at i, or -1
		if i+6 > len(src) || src[i] != '\\' || src[i+1] != 'u' {
			return -1
		}
		n := 0
		for _, c := range src[i+2 : i+6] {
			switch {
			case c >= '0' && c <= '9':
				n = n*16 + int(c-'0')
			case c >= 'a' && c <= 'f':
				n = n*16 + int(c-'a') + 10
			default:
				n = n*16 + int(c-'A') + 10
			}
		}
		return n
	}
	for i := 0; i < len(src); i++ {
		if src[i] != '\\' {
			continue
		}
		u := unit(i)
		switch {
		case u >= 0xdc00 && u <= 0xdfff:
			return true
		case u >= 0xd800 && u <= 0xdbff:
			if next := unit(i + 6); next < 0xdc00 || next > 0xdfff {
				return true
			}
			i += 11
		case u >= 0:
			i += 5
		default:
			i++ // another escape, of two characters
		}
	}
	return false
}

// facts are what the limits count, found with encoding/json.
type facts struct {
	depth, values int
	twins         bool
}

func factsOf(t *testing.T, src []byte) (f facts) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(src))
	dec.UseNumber()
	type level struct {
		names map[string]bool // nil in a list
		name  bool            // a name comes next
	}
	var levels []level
	for {
		token, err := dec.Token()
		if err == io.EOF {
			return f
		}
		if err != nil {
			t.Fatalf("encoding/json finds it valid but cannot read it: %v", err)
		}
		last := len(levels) - 1
		if d, ok := token.(json.Delim); ok && (d == '}' || d == ']') {
			levels = levels[:last]
			continue
		}
		if last >= 0 && levels[last].names != nil {
			if levels[last].name {
				name := token.(string)
				f.twins = f.twins || levels[last].names[name]
				levels[last].names[name] = true
				levels[last].name = false
				continue
			}
			levels[last].name = true
		}
		f.values++
		if d, ok := token.(json.Delim); ok {
			l := level{}
			if d == '{' {
				l = level{map[string]bool{}, true}
			}
			levels = append(levels, l)
			f.depth = max(f.depth, len(levels))
		}
	}
}

// sameValue compares a parsed value with what encoding/json read.
func sameValue(t *testing.T, v exact.Value, want any) {
	t.Helper()
	text, isText := v.Text()
	number, isNumber := v.Number()
	wantText, textWanted := want.(string)
	if isText != textWanted || text != wantText {
		t.Fatalf("the text %q, %v, want %v", text, isText, want)
	}
	wantNumber, numberWanted := want.(json.Number)
	if isNumber != numberWanted {
		t.Fatalf("a number: %v, want %v", isNumber, want)
	}
	if isNumber {
		f, _ := wantNumber.Float64()
		if float64(number) != f {
			t.Fatalf("the number %v, want %v", number, want)
		}
	}
	object, objectWanted := want.(map[string]any)
	if isObject(v) != objectWanted {
		t.Fatalf("an object: %v, want %v", isObject(v), want)
	}
	for name, w := range object {
		m, ok := v.Member(name)
		if !ok {
			t.Fatalf("the member %q is absent", name)
		}
		sameValue(t, m, w)
	}
}

// FuzzParse compares with encoding/json, which is more lenient in ways that the
// test counts itself.
func FuzzParse(f *testing.F) {
	for _, src := range []string{
		`{"a":[1,2.5e3,{"b":null}],"c":"\u0041\n\ud83d\ude00","d":true,"":false}`, `{"a":1,"\u0061":2}`, `["\ud800"]`, `["\ud83d\ud83d\ude00"]`, "\"\xff\"", "\ufeff1",
		`[1,]`, `{"a":1,}`, `{} {}`, ` [ ] `, `"`, ``, `-0.0e-0`, `01`, `[[[[[[]]]]]]`, `[1,2,3,4,5,6,7,8,9,10,11,12,13]`, textWith(), `{"a":{"a":{"a":"a"}}}`, `"\\ud800"`, "[\"\\u2028\u2028\"]",
	} {
		f.Add([]byte(src))
	}
	lim := exact.Limits{Bytes: 300, Depth: 5, Values: 12}
	f.Fuzz(func(t *testing.T, src []byte) {
		before := bytes.Clone(src)
		v, err := exact.Parse(src, lim)
		if !bytes.Equal(src, before) {
			t.Fatal("parsing changed the text")
		}
		valid := json.Valid(src)
		if err == nil && !valid {
			t.Fatalf("%q is parsed", src)
		}
		if err != nil {
			var p *exact.Problem
			if !errors.As(err, &p) || p.Path != "" || p.Need != "" || !isZero(v) {
				t.Fatalf("%q: %#v", src, err)
			}
		}
		if !valid {
			return
		}
		counted := factsOf(t, src)
		clean := utf8.Valid(src) && !lone(src)
		want := clean && !counted.twins && len(src) <= lim.Bytes && counted.depth <= lim.Depth && counted.values <= lim.Values
		if (err == nil) != want {
			t.Fatalf("%q: %v, but counted were %+v, clean %v", src, err, counted, clean)
		}
		// One fault alone has one name.
		large, deep, many := len(src) > lim.Bytes, counted.depth > lim.Depth, counted.values > lim.Values
		switch [5]bool{large, deep, many, !clean, counted.twins} {
		case [5]bool{true}:
			wantPlainRule(t, "large", err, exact.ErrTooLarge)
		case [5]bool{1: true}:
			wantPlainRule(t, "deep", err, exact.ErrTooDeep)
		case [5]bool{2: true}:
			wantPlainRule(t, "many", err, exact.ErrTooMany)
		case [5]bool{3: true}:
			wantPlainRule(t, "unclean", err, exact.ErrEncoding)
		case [5]bool{4: true}:
			wantPlainRule(t, "twins", err, exact.ErrDuplicate)
		}
		if err != nil {
			return
		}
		dec := json.NewDecoder(bytes.NewReader(src))
		dec.UseNumber()
		var whole any
		if err := dec.Decode(&whole); err != nil {
			t.Fatal(err)
		}
		sameValue(t, v, whole)
	})
}

// FuzzShape reads, writes and reads again: the value stays the same, and what
// is written once is written again.
func FuzzShape(f *testing.F) {
	f.Add([]byte(textWith()), false)
	f.Add([]byte(textWith("bounded", `"\ud83d\ude00b"`, "opt", `"o"`, "optNum", `1e1`, "optYes", `false`, "optIn", `{"a":"\u0000"}`, "optList", `[]`,
		"names", `["\u2028"]`, "map", `{"b":{"a":"1"},"\u0061":{"a":"\/"}}`)), true)
	f.Add([]byte(textWith("more", `[{}]`, "in", `{"a":"x","b":1}`)), true)
	f.Add([]byte(textWith("map", `{"__proto__":{"a":"1"}}`)), false)
	f.Fuzz(func(t *testing.T, src []byte, drop bool) {
		shape := sampleShape(exact.Unknown(drop))
		v, err := shape.Read(src, wide)
		if err != nil {
			var p *exact.Problem
			if !errors.As(err, &p) || !reflect.DeepEqual(v, sample{}) {
				t.Fatalf("%+v, %#v", v, err)
			}
			return
		}
		out, err := shape.Append(nil, v)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if string(out) != naive(v) {
			t.Fatalf("written as\n%s, want\n%s", out, naive(v))
		}
		again, err := strict.Read(out, wide)
		if err != nil || !reflect.DeepEqual(again, v) {
			t.Fatalf("read again as %+v, %v, want %+v", again, err, v)
		}
	})
}
