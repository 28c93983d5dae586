package exact_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/allodhq/allod/internal/exact"
)

type carrier struct {
	A, B []byte
}

var carrierShape = exact.Shape[carrier]{Fields: func(o *exact.Object, v *carrier) {
	exact.Raw(o, "a", &v.A)
	exact.OptRaw(o, "b", &v.B)
}}

var rawLimits = exact.Limits{Bytes: 200, Depth: 4, Values: 9}

// TestRaw: what comes out of a member is what was written there, byte for byte.
func TestRaw(t *testing.T) {
	for _, text := range []string{
		"null", "true", "-0.50e1", `"\u00e9 \" }"`, "[]", "{}", "[ 1,\t[2 ] ]", `{"x" : {"y":[]}, "z":"]"}`, `{"\u0061":"{"}`,
	} {
		for what, doc := range map[string]string{
			"tight":     `{"a":` + text + `}`,
			"loose":     " {\n\"a\" :  " + text + "\t} ",
			"first":     `{"a":` + text + `,"b":[1]}`,
			"last":      `{"b":{"a":7},"a":` + text + `}`,
			"both":      `{"b":` + text + ` , "a":` + text + `}`,
			"in a name": `{"\u0061":` + text + `}`,
		} {
			src := []byte(doc)
			got, err := carrierShape.Read(src, rawLimits)
			if err != nil || string(got.A) != text {
				t.Errorf("%s: %s: read %s, %v", what, doc, got.A, err)
				continue
			}
			clear(src)
			if string(got.A) != text {
				t.Errorf("%s: what was read changes with the document", what)
			}
			out, err := carrierShape.Append(nil, carrier{A: got.A, B: got.A})
			if want := `{"a":` + text + `,"b":` + text + `}`; err != nil || string(out) != want || !json.Valid(out) {
				t.Errorf("%s: wrote %s, %v", what, out, err)
			}
		}
	}
	if got, err := carrierShape.Read([]byte(`{"a":1}`), rawLimits); err != nil || got.B != nil {
		t.Errorf("an absent member: %q, %v", got.B, err)
	}
	if out, err := carrierShape.Append(nil, carrier{A: []byte("1")}); err != nil || string(out) != `{"a":1}` {
		t.Errorf("wrote %s, %v", out, err)
	}
}

func TestRawRefuses(t *testing.T) {
	for doc, want := range map[string]error{
		`{"b":1}`:                 exact.ErrMissing,
		`{"a":[[[[]]]]}`:          exact.ErrTooDeep,
		`{"a":[1,2,3,4,5,6,7,8]}`: exact.ErrTooMany,
		`{"a":{"x":1,"x":1}}`:     exact.ErrDuplicate,
		`{"a":{"x":1}`:            exact.ErrSyntax,
		`{"a":1,"c":1}`:           exact.ErrUnknown,
	} {
		if got, err := carrierShape.Read([]byte(doc), rawLimits); !errors.Is(err, want) || got.A != nil {
			t.Errorf("%s: %q, %v", doc, got.A, err)
		}
	}
	for _, text := range []string{"", " ", "1 2", "{", `{"x":1,"x":2}`, "\"\xff\"", `"\ud800"`, `1},"c":{`, "nul"} {
		if out, err := carrierShape.Append(nil, carrier{A: []byte(text)}); !errors.Is(err, exact.ErrSyntax) {
			t.Errorf("%q was written: %s, %v", text, out, err)
		}
	}
}
