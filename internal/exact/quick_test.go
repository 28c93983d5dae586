package exact

import (
	"bytes"
	"io"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// decoded is what the decoder alone makes of a text.
func decoded(src []byte, lim Limits) ([]node, error) {
	p := &parser{src: src, lim: lim, dec: jsontext.NewDecoder(bytes.NewBuffer(src))}
	err := p.value(nil)
	if err == nil {
		if _, end := p.dec.ReadToken(); end != io.EOF {
			err = &Problem{Rule: ErrSyntax}
		}
	}
	return p.nodes, err
}

func quickly(src []byte, lim Limits) ([]node, bool) {
	p := &parser{src: src, lim: lim}
	ok := p.quick()
	return p.nodes, ok
}

// FuzzQuick holds that what is parsed quickly is what the decoder parses, node by
// node.
func FuzzQuick(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,-2.5e+3,0],"b":{"c":"d\n\u00e9","e":true},"f":null,"g":false}`, ` [ ] `, `"x"`, `-0`, `1E9`, `{}`,
		`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `[1,]`, `{"a":1,}`, `01`, `1.`, `.5`, `+1`, `1e`, `"\ud800"`, `"\uD83D\uDE00"`,
		"\"\t\"", `"\x"`, `tru`, `nulls`, `[1 2]`, `{"a" 1}`, `{1:2}`, `[[[[]]]]`, `"`, `{"a":`, `[`, "", " ", `1 1`, "\ufeff1",
	} {
		f.Add([]byte(seed), 8, 64)
	}
	f.Fuzz(func(t *testing.T, src []byte, depth, values int) {
		if !utf8.Valid(src) {
			return
		}
		lim := Limits{Bytes: len(src), Depth: min(max(depth, 0), 16), Values: min(max(values, 0), 256)}
		got, ok := quickly(src, lim)
		if !ok {
			return
		}
		want, err := decoded(src, lim)
		if err != nil {
			t.Fatalf("%q is taken, though it is refused: %v", src, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q is %+v, and should be %+v", src, got, want)
		}
	})
}

// TestQuick holds which documents are parsed quickly: plain ones are, and none
// that would take long.
func TestQuick(t *testing.T) {
	members := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, `"m`+strconv.Itoa(i)+`":0`)
		}
		return "{" + strings.Join(list, ",") + "}"
	}
	for text, want := range map[string]bool{
		`{"a":[1,-2.5e+3,0],"b":{"c":"d\n\u00e9","e":true},"f":null,"g":false}`: true,
		" [ 1 , { } ] \r\n\t":   true,
		members(maxMembers):     true,
		members(maxMembers + 1): false,
		`{"a":1,"a":2}`:         false,
		`{"\u0061":1}`:          false,
		`"\uD83D\uDE00"`:        false,
		`"\ud800"`:              false,
	} {
		if _, ok := quickly([]byte(text), Limits{Depth: 8, Values: 64}); ok != want {
			t.Errorf("%.40s: parsed quickly: %v", text, ok)
		}
	}
}

// TestBytes holds that what is written has room of its own, and that nothing of it
// stays in the room that is kept.
func TestBytes(t *testing.T) {
	type text struct{ V string }
	shape := Shape[text]{Fields: func(o *Object, v *text) { Text(o, "v", &v.V, 1, 0) }}
	first, err := shape.Bytes(text{"first"})
	if err != nil {
		t.Fatal(err)
	}
	second, err := shape.Bytes(text{"other"})
	if err != nil || string(first) != `{"v":"first"}` || string(second) != `{"v":"other"}` {
		t.Errorf("written %s and %s, %v", first, second, err)
	}
	if refused, err := shape.Bytes(text{}); err == nil || refused != nil {
		t.Errorf("a value that is refused is written as %q, %v", refused, err)
	}
	room := *rooms.Get().(*[]byte)
	if bytes.ContainsAny(room[:cap(room)], "frst") {
		t.Errorf("the room still holds %q", room[:cap(room)])
	}
}
