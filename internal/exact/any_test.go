package exact_test

import (
	"testing"

	"github.com/allodhq/allod/internal/exact"
)

type parcel struct{ In, May exact.Value }

var parcels = exact.Shape[parcel]{Fields: func(o *exact.Object, p *parcel) {
	exact.Any(o, "in", &p.In)
	exact.OptAny(o, "may", &p.May)
}}

var roomy = exact.Limits{Bytes: 4096, Depth: 16, Values: 256}

func TestAnyKeepsEveryTypeAndWritesItAsItWasRead(t *testing.T) {
	for in, want := range map[string]string{
		`{"in":null}`:     `{"in":null}`,
		` { "in" : [ ] }`: `{"in":[]}`,
		`{"may":true,"in":{ "a\u0062" : [1.0, -0, {"x":"é\n"} , []], "c":{}}}`: `{"in":{"a\u0062":[1.0,-0,{"x":"é\n"},[]],"c":{}},"may":true}`,
		`{"in":"text","may":null}`: `{"in":"text","may":null}`,
	} {
		p, err := parcels.Read([]byte(in), roomy)
		if err != nil {
			t.Fatalf("%s: %v", in, err)
		}
		got, err := parcels.Append(nil, p)
		if err != nil || string(got) != want {
			t.Errorf("%s became %s, %v, want %s", in, got, err, want)
		}
		if alone := string(p.In.Append([]byte("x"))); alone[1:] != want[6:6+len(alone)-1] {
			t.Errorf("%s: alone it is %s", in, alone)
		}
	}
	for _, bad := range []string{`{}`, `{"may":1}`, `{"in":1,"other":2}`} {
		if _, err := parcels.Read([]byte(bad), roomy); err == nil {
			t.Errorf("%s is read", bad)
		}
	}
	if _, err := parcels.Append(nil, parcel{}); err == nil {
		t.Error("no value is written")
	}
}

func TestValueTellsWhatItIs(t *testing.T) {
	for in, want := range map[string]struct {
		null, object bool
		len          int
	}{
		`null`: {true, false, 0}, `{}`: {false, true, 0}, `{"a":{"b":1},"c":2}`: {false, true, 2},
		`[1,[2,3]]`: {false, false, 2}, `"x"`: {false, false, 0}, `0`: {false, false, 0},
	} {
		v, err := exact.Parse([]byte(in), roomy)
		if err != nil {
			t.Fatal(err)
		}
		if v.IsNull() != want.null || v.IsObject() != want.object || v.Len() != want.len || v.IsZero() {
			t.Errorf("%s: null %v, object %v, len %d", in, v.IsNull(), v.IsObject(), v.Len())
		}
	}
	if v := (exact.Value{}); !v.IsZero() || v.IsNull() || v.IsObject() || v.Len() != 0 || v.Append(nil) != nil {
		t.Error("no value is something")
	}
}
