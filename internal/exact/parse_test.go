package exact_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
)

// wide are limits that no test text reaches by accident.
var wide = exact.Limits{Bytes: 1 << 24, Depth: 100, Values: 1 << 20}

// wantRule fails unless err is a *Problem with that rule, or nil for no rule.
func wantRule(t testing.TB, what string, err error, rule *refusal.Kind) {
	t.Helper()
	if rule == nil {
		if err != nil {
			t.Errorf("%s: %v, want no error", what, err)
		}
		return
	}
	var p *exact.Problem
	if !errors.As(err, &p) || p.Rule != rule || !errors.Is(err, rule) {
		t.Errorf("%s: %v, want %s", what, err, rule.Name())
	}
}

// wantPlainRule also wants no place and no need: the document as a whole.
func wantPlainRule(t testing.TB, what string, err error, rule *refusal.Kind) {
	t.Helper()
	wantRule(t, what, err, rule)
	if p, ok := err.(*exact.Problem); err != nil && (!ok || p.Path != "" || p.Need != "") {
		t.Errorf("%s: %#v, want a *Problem without place and need", what, err)
	}
}

// isObject reports whether v is an object, by reading it as one.
func isObject(v exact.Value) bool {
	_, err := exact.Shape[struct{}]{Unknown: exact.Drop, Fields: func(*exact.Object, *struct{}) {}}.From(v)
	return err == nil
}

// isZero reports whether v is no value.
func isZero(v exact.Value) bool {
	_, text := v.Text()
	_, number := v.Number()
	_, member := v.Member("")
	return !text && !number && !member && !isObject(v) && fmt.Sprint(v) == fmt.Sprint(exact.Value{})
}

func parseRefused(t testing.TB, what, src string, lim exact.Limits, rule *refusal.Kind) {
	t.Helper()
	v, err := exact.Parse([]byte(src), lim)
	wantPlainRule(t, what, err, rule)
	if !isZero(v) {
		t.Errorf("%s: an error came with a value", what)
	}
}

func TestLimitsAtTheirExactBounds(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	nestedObjects := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	list := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("1,", n), ",") + "]" }
	object := func(n int) string {
		var members []string
		for i := range n {
			members = append(members, `"`+strconv.Itoa(i)+`":0`)
		}
		return "{" + strings.Join(members, ",") + "}"
	}
	for what, c := range map[string]struct {
		src  string
		lim  exact.Limits
		rule *refusal.Kind
	}{
		"bytes at the bound":             {`"abc"`, exact.Limits{Bytes: 5, Depth: 9, Values: 9}, nil},
		"bytes beyond":                   {`"abc"`, exact.Limits{Bytes: 4, Depth: 9, Values: 9}, exact.ErrTooLarge},
		"spaces count":                   {`1    `, exact.Limits{Bytes: 4, Depth: 9, Values: 9}, exact.ErrTooLarge},
		"bytes, not characters, at":      {`"é"`, exact.Limits{Bytes: 4, Depth: 9, Values: 9}, nil},
		"bytes, not characters, beyond":  {`"é"`, exact.Limits{Bytes: 3, Depth: 9, Values: 9}, exact.ErrTooLarge},
		"no bytes":                       {``, exact.Limits{Values: 1}, exact.ErrSyntax},
		"a scalar has depth 0":           {`1`, exact.Limits{Bytes: 99, Depth: 0, Values: 9}, nil},
		"a list has depth 1, beyond":     {`[]`, exact.Limits{Bytes: 99, Depth: 0, Values: 9}, exact.ErrTooDeep},
		"an object has depth 1, beyond":  {`{}`, exact.Limits{Bytes: 99, Depth: 0, Values: 9}, exact.ErrTooDeep},
		"a list has depth 1":             {`[]`, exact.Limits{Bytes: 99, Depth: 1, Values: 9}, nil},
		"an object has depth 1":          {`{"a":1}`, exact.Limits{Bytes: 99, Depth: 1, Values: 9}, nil},
		"lists at the bound":             {nested(32), exact.Limits{Bytes: 999, Depth: 32, Values: 99}, nil},
		"lists beyond":                   {nested(33), exact.Limits{Bytes: 999, Depth: 32, Values: 99}, exact.ErrTooDeep},
		"objects at the bound":           {nestedObjects(32), exact.Limits{Bytes: 999, Depth: 32, Values: 99}, nil},
		"objects beyond":                 {nestedObjects(33), exact.Limits{Bytes: 999, Depth: 32, Values: 99}, exact.ErrTooDeep},
		"mixed at the bound":             {`[{"a":[{}]}]`, exact.Limits{Bytes: 99, Depth: 4, Values: 9}, nil},
		"mixed beyond":                   {`[{"a":[{}]}]`, exact.Limits{Bytes: 99, Depth: 3, Values: 9}, exact.ErrTooDeep},
		"depth is no sum":                {`[[],[],[[]]]`, exact.Limits{Bytes: 99, Depth: 3, Values: 9}, nil},
		"one value":                      {`1`, exact.Limits{Bytes: 99, Depth: 9, Values: 1}, nil},
		"no value":                       {`1`, exact.Limits{Bytes: 99, Depth: 9, Values: 0}, exact.ErrTooMany},
		"the list counts":                {`[]`, exact.Limits{Bytes: 99, Depth: 9, Values: 1}, nil},
		"list of values at the bound":    {list(8), exact.Limits{Bytes: 99, Depth: 9, Values: 9}, nil},
		"list of values beyond":          {list(9), exact.Limits{Bytes: 99, Depth: 9, Values: 9}, exact.ErrTooMany},
		"names do not count":             {object(8), exact.Limits{Bytes: 99, Depth: 9, Values: 9}, nil},
		"object of values beyond":        {object(9), exact.Limits{Bytes: 99, Depth: 9, Values: 9}, exact.ErrTooMany},
		"values anywhere at the bound":   {`[[1],{"a":[2]}]`, exact.Limits{Bytes: 99, Depth: 9, Values: 6}, nil},
		"values anywhere beyond":         {`[[1],{"a":[2]}]`, exact.Limits{Bytes: 99, Depth: 9, Values: 5}, exact.ErrTooMany},
		"many values at the bound":       {list(999), exact.Limits{Bytes: 9999, Depth: 9, Values: 1000}, nil},
		"many values beyond":             {list(1000), exact.Limits{Bytes: 9999, Depth: 9, Values: 1000}, exact.ErrTooMany},
		"bytes are asked first":          {"[[[\xff", exact.Limits{Bytes: 3, Depth: 1, Values: 1}, exact.ErrTooLarge},
		"UTF-8 is asked before depth":    {"[[[\"\xff\"]]]", exact.Limits{Bytes: 99, Depth: 1, Values: 9}, exact.ErrEncoding},
		"depth is asked before what is":  {`[[[nonsense`, exact.Limits{Bytes: 99, Depth: 2, Values: 9}, exact.ErrTooDeep},
		"values are asked before syntax": {`[1,2,nonsense`, exact.Limits{Bytes: 99, Depth: 2, Values: 3}, exact.ErrTooMany},
	} {
		if c.rule == nil {
			v, err := exact.Parse([]byte(c.src), c.lim)
			if err != nil || fmt.Sprint(v) == fmt.Sprint(exact.Value{}) {
				t.Errorf("%s: %v, %v", what, v, err)
			}
			continue
		}
		parseRefused(t, what, c.src, c.lim, c.rule)
	}
}

// deepTexts open n levels in each way there is.
func deepTexts(n int) map[string]string {
	return map[string]string{
		"lists":                   strings.Repeat("[", n),
		"closed lists":            strings.Repeat("[", n) + strings.Repeat("]", n),
		"objects":                 strings.Repeat(`{"a":`, n),
		"closed objects":          strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n),
		"lists in an object":      `{"a":` + strings.Repeat("[", n),
		"lists in a list":         `[1,` + strings.Repeat("[", n),
		"objects as names":        strings.Repeat("{", n),
		"lists as a name":         "{" + strings.Repeat("[", n),
		"closed lists as a name":  "{" + strings.Repeat("[", n) + strings.Repeat("]", n) + ":1}",
		"after a lone surrogate":  `["\ud800",` + strings.Repeat("[", n),
		"objects after the value": `1` + strings.Repeat("{", n),
	}
}

// What a hostile text costs is counted in allocations and in memory, since
// time depends on the machine.
func TestDeepTextsAreRefusedCheaply(t *testing.T) {
	syntax := map[string]bool{
		"objects as names": true, "lists as a name": true, "closed lists as a name": true,
		"after a lone surrogate": true, "objects after the value": true,
	}
	lim := exact.Limits{Bytes: 1 << 24, Depth: 32, Values: 1 << 20}
	for _, n := range []int{10_000, 1_000_000} {
		for what, text := range deepTexts(n) {
			src := []byte(text)
			rule := exact.ErrTooDeep
			if syntax[what] {
				rule = exact.ErrSyntax
			}
			_, err := exact.Parse(src, lim)
			wantPlainRule(t, fmt.Sprint(what, n), err, rule)
			if allocs := testing.AllocsPerRun(1, func() { _, _ = exact.Parse(src, lim) }); allocs > 100 {
				t.Errorf("%s %d: %v allocations", what, n, allocs)
			}
		}
	}
}

// A text within its bytes must not make the parser keep more than the values
// that the limits allow.
func TestMemoryIsBoundedByTheLimits(t *testing.T) {
	lim := exact.Limits{Bytes: 1 << 24, Depth: 8, Values: 64}
	var names strings.Builder
	for i := range 1 << 16 {
		fmt.Fprintf(&names, `"%d":1,`, i)
	}
	for what, text := range map[string]string{
		"numbers": "[" + strings.Repeat("1,", 1<<20) + "1]",
		"lists":   "[" + strings.Repeat("[],", 1<<20) + "1]",
		"names":   "{" + names.String() + `"":1}`,
		"blanks":  "[" + strings.Repeat(" ", 1<<22) + "1]",
		"text":    `"` + strings.Repeat("a", 1<<22) + `"`,
	} {
		src := []byte(text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = exact.Parse(src, lim)
		runtime.ReadMemStats(&after)
		if total := after.TotalAlloc - before.TotalAlloc; total > 64<<10 {
			t.Errorf("%s: %d bytes of memory for 64 values", what, total)
		}
	}
}

func TestSyntax(t *testing.T) {
	for _, src := range []string{
		"", " ", "\n", "nul", "NULL", "None", "True", "undefined", "NaN", "Infinity", "-Infinity",
		"{", "}", "[", "]", "{]", "[}", "[1,]", "[,1]", "[1 2]", "[1,,2]", `{"a"}`, `{"a":}`, `{"a":1,}`, `{,"a":1}`, `{"a" 1}`, `{"a":1 "b":2}`,
		`{a:1}`, `{'a':1}`, `{1:1}`, `{null:1}`, `{{}:1}`, `{[]:1}`, `{"a":1:2}`, `"a`, `a"`, `'a'`, `"\x"`, `"\u12"`, `"\u123g"`, `"\`, "\"\n\"", "\"\x00\"", "\"\x1f\"", "\"\t\"",
		"01", "+1", "1.", ".1", "1e", "1e+", "--1", "-", "0x1", "1_000", "1 2", "1,", "1;", "{}{}", "{} x", "[]]", "null null", `"a" "b"`,
		"// c\n1", "/* c */1", "1 // c", "\v1", "\f1", "\u00a01", "\u20281", "\ufeff1", "1\ufeff", "\ufeff", "\x001", "1\x00",
	} {
		parseRefused(t, fmt.Sprintf("%q", src), src, wide, exact.ErrSyntax)
	}
	for _, src := range []string{
		"0", "-0", "1e5", "1E+5", "1.5e-7", "null", "true", "false", `""`, "[]", "{}", " \t\r\n1 \t\r\n", "[ ]", "{ }", `[1 , 2]`, `{ "a" : 1 , "b" : [ ] }`,
		`"\"\\\/\b\f\n\r\t\u0000\u001f\uD83D\uDE00\ud83d\ude00"`, "\"\u007f\u2028\u2029\ufffe\U0001F600\ufeff\"", `{"":1}`, `{"\u0000":1,"\ud83d\ude00":2}`,
	} {
		if _, err := exact.Parse([]byte(src), wide); err != nil {
			t.Errorf("%q: %v", src, err)
		}
	}
}

func TestDuplicateNames(t *testing.T) {
	for _, src := range []string{
		`{"id":1,"id":2}`, `{"id":1,"id":1}`, `{"id":1,"\u0069d":2}`, `{"\u0069d":1,"i\u0064":2}`, `{"\u0069d":1,"id":2}`,
		`{"":1,"":2}`, `{"a":1,"b":2,"c":3,"a":4}`, `[{"a":{"b":1,"b":2}}]`, `{"a":{"x":1},"a":{"y":1}}`,
		`{"é":1,"\u00e9":2}`, "{\"\U0001F600\":1,\"\\ud83d\\ude00\":2}", `{"/":1,"\/":2}`, `{"\n":1,"\u000a":2}`,
		`{"id":1,"id"`, `{"id":1,"id":nonsense`,
	} {
		parseRefused(t, src, src, wide, exact.ErrDuplicate)
	}
	// Many names are watched in another way than few.
	var many strings.Builder
	for i := range 500 {
		fmt.Fprintf(&many, `"n%d":0,`, i)
	}
	parseRefused(t, "among many", "{"+many.String()+`"n250":1}`, wide, exact.ErrDuplicate)
	parseRefused(t, "among many, escaped", "{"+many.String()+`"\u006e250":1}`, wide, exact.ErrDuplicate)

	for _, src := range []string{
		"{" + many.String() + `"n":1}`, `{"id":1,"ID":2,"Id":3}`, `{"a":{"id":1},"id":2,"b":{"id":3}}`, `[{"id":1},{"id":1}]`,
		`{"e\u0301":1,"\u00e9":2}`, `{"a":1,"a ":2," a":3}`, `{"id":"id"}`,
	} {
		if _, err := exact.Parse([]byte(src), wide); err != nil {
			t.Errorf("%s: %v", src, err)
		}
	}
}

// badUTF8 are the ways to break UTF-8.
var badUTF8 = map[string]string{
	"a byte that never is":    "\xff",
	"a lone continuation":     "\x80",
	"a cut sequence":          "\xe2\x82",
	"an overlong slash":       "\xc0\xaf",
	"an overlong zero":        "\xe0\x80\x80",
	"a surrogate as three":    "\xed\xa0\x80",
	"a pair as six":           "\xed\xa0\xbd\xed\xb8\x80",
	"beyond Unicode":          "\xf4\x90\x80\x80",
	"five bytes":              "\xf8\x88\x80\x80\x80",
	"a start before a letter": "\xc3a",
}

// loneSurrogates are escapes of half a character.
var loneSurrogates = map[string]string{
	"high":               `\ud800`,
	"low":                `\udc00`,
	"last high":          `\udbff`,
	"last low":           `\udfff`,
	"upper case":         `\uD83D`,
	"high and a letter":  `\ud83da`,
	"high and an escape": `\ud83d\n`,
	"high and no half":   `\ud83d\u0061`,
	"two high":           `\ud83d\ud83d`,
	"swapped":            `\ude00\ud83d`,
	"high before a pair": `\ud83d\ud83d\ude00`,
	"a pair and a low":   `\ud83d\ude00\ude00`,
	"high and the char":  `\ud83d` + "\U0001F600",
	"after a letter":     `a\ud800`,
	"high, escaped half": `\ud83d\\ude00`,
}

func TestEncoding(t *testing.T) {
	for _, bad := range []map[string]string{badUTF8, loneSurrogates} {
		for what, text := range bad {
			for where, src := range map[string]string{
				"as the value":  `"` + text + `"`,
				"in a list":     `[1,"` + text + `",2]`,
				"as a name":     `{"` + text + `":1}`,
				"as an element": `{"a":{"b":["x` + text + `"]}}`,
				"in two places": `{"` + text + `":"` + text + `"}`,
			} {
				parseRefused(t, what+" "+where, src, wide, exact.ErrEncoding)
			}
		}
	}
	for what, text := range badUTF8 {
		parseRefused(t, what+" outside of a text", "[1,"+text+"]", wide, exact.ErrEncoding)
		parseRefused(t, what+" after the value", "1 "+text, wide, exact.ErrEncoding)
	}
	// A text that is no JSON besides is no JSON.
	for what, text := range loneSurrogates {
		for _, after := range []string{`,`, `" x`, `"]]`, `":1}`} {
			parseRefused(t, what+" and "+after, `["`+text+after, wide, exact.ErrSyntax)
		}
	}
	// A name twice and a lone surrogate: the first fault counts.
	parseRefused(t, "duplicate first", `{"a":1,"a":"\ud800"}`, wide, exact.ErrDuplicate)
	parseRefused(t, "surrogate first", `{"b":"\ud800","a":1,"a":2}`, wide, exact.ErrEncoding)
	// Pairs and what only looks like a surrogate are fine.
	for _, src := range []string{`"\ud83d\ude00"`, `"\\ud800"`, `"\ud7ff\ue000\uffff"`, `{"\uDBFF\uDFFF":1}`} {
		if _, err := exact.Parse([]byte(src), wide); err != nil {
			t.Errorf("%s: %v", src, err)
		}
	}
}

func TestValueAccessors(t *testing.T) {
	src := `{"text":"a\u0062\n","empty":"","number":1.5e1,"object":{"inner":{"deep":"d"},"text":"other"},"list":[{"text":"in a list"},2],"yes":true,"no":false,"null":null,"\u006eame":"n","last":"l"}`
	root, err := exact.Parse([]byte(src), wide)
	if err != nil {
		t.Fatal(err)
	}
	member := func(v exact.Value, path ...string) exact.Value {
		t.Helper()
		for _, name := range path {
			var ok bool
			if v, ok = v.Member(name); !ok {
				t.Fatalf("no member %s", name)
			}
		}
		return v
	}
	type seen struct {
		text     string
		isText   bool
		number   exact.Number
		isNumber bool
		isObject bool
	}
	look := func(v exact.Value) (s seen) {
		s.text, s.isText = v.Text()
		s.number, s.isNumber = v.Number()
		s.isObject = isObject(v)
		return s
	}
	for _, c := range []struct {
		path []string
		want seen
	}{
		{nil, seen{isObject: true}},
		{[]string{"text"}, seen{text: "ab\n", isText: true}},
		{[]string{"empty"}, seen{isText: true}},
		{[]string{"number"}, seen{number: 15, isNumber: true}},
		{[]string{"object"}, seen{isObject: true}},
		{[]string{"object", "text"}, seen{text: "other", isText: true}},
		{[]string{"object", "inner", "deep"}, seen{text: "d", isText: true}},
		{[]string{"list"}, seen{}},
		{[]string{"yes"}, seen{}},
		{[]string{"no"}, seen{}},
		{[]string{"null"}, seen{}},
		{[]string{"name"}, seen{text: "n", isText: true}},
		{[]string{"last"}, seen{text: "l", isText: true}},
	} {
		if got := look(member(root, c.path...)); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.path, got, c.want)
		}
	}
	for _, c := range []struct {
		of   exact.Value
		name string
	}{
		{root, ""}, {root, "Text"}, {root, "inner"}, {root, "deep"}, {root, `\u006eame`}, {root, `"text"`}, {root, "tex"}, {root, "text "},
		{member(root, "object"), "number"}, {member(root, "object"), "last"}, {member(root, "list"), "text"}, {member(root, "list"), "0"},
		{member(root, "text"), "text"}, {member(root, "null"), "name"}, {member(root, "last"), "last"}, {exact.Value{}, "text"}, {exact.Value{}, ""},
	} {
		if v, ok := c.of.Member(c.name); ok || !isZero(v) {
			t.Errorf("there is a member %q", c.name)
		}
	}
	if got := look(exact.Value{}); got != (seen{}) {
		t.Errorf("the zero value is %+v", got)
	}
	for src, want := range map[string]seen{
		`"x"`: {text: "x", isText: true}, `12`: {number: 12, isNumber: true}, `[]`: {}, `null`: {}, `true`: {}, `{}`: {isObject: true},
	} {
		v, err := exact.Parse([]byte(src), wide)
		if got := look(v); got != want || err != nil {
			t.Errorf("%s is %+v, %v, want %+v", src, got, err, want)
		}
	}
}

// Parsing must not touch what it was given: signatures are checked over it.
// Several readers may share it, which the race detector watches.
func TestParseLeavesItsInputAlone(t *testing.T) {
	src := []byte(`{"a":"\u0061\n","b":[1,2,{"c":null}],"\u0064":"x"}`)
	before := bytes.Clone(src)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			v, err := exact.Parse(src, wide)
			if err != nil {
				t.Error(err)
				return
			}
			d, _ := v.Member("d")
			if text, _ := d.Text(); text != "x" {
				t.Errorf("d is %q", text)
			}
		})
	}
	group.Wait()
	if !bytes.Equal(src, before) {
		t.Errorf("the input became %s", src)
	}
}

func TestNumbers(t *testing.T) {
	const maxWhole = 9007199254740991
	if exact.MaxWhole != maxWhole {
		t.Errorf("MaxWhole is %d", int64(exact.MaxWhole))
	}
	// The values are those of JavaScript: Number(text) and Number.isSafeInteger.
	for text, c := range map[string]struct {
		number float64
		whole  int64
		ok     bool
	}{
		"0":                              {0, 0, true},
		"-0":                             {math.Copysign(0, -1), 0, true},
		"-0.0":                           {math.Copysign(0, -1), 0, true},
		"0e5":                            {0, 0, true},
		"1":                              {1, 1, true},
		"1.0":                            {1, 1, true},
		"1.000000000000000":              {1, 1, true},
		"10e-1":                          {1, 1, true},
		"1e2":                            {100, 100, true},
		"1E2":                            {100, 100, true},
		"175E+10":                        {1.75e12, 1750000000000, true},
		"1.785499200123e12":              {1785499200123, 1785499200123, true},
		"-7":                             {-7, -7, true},
		"-7.5e1":                         {-75, -75, true},
		"1.5":                            {1.5, 0, false},
		"-1.5":                           {-1.5, 0, false},
		"0.1":                            {0.1, 0, false},
		"1e-1":                           {0.1, 0, false},
		"1.00000000000000000000001":      {1, 1, true}, // nearest to 1, as JavaScript reads it
		"0.99999999999999999999999":      {1, 1, true},
		"9007199254740991":               {maxWhole, maxWhole, true},
		"9007199254740990.9":             {maxWhole, maxWhole, true},
		"9007199254740990.4":             {9007199254740990, 9007199254740990, true},
		"9007199254740991.4":             {maxWhole, maxWhole, true},
		"9007199254740991.5":             {9007199254740992, 0, false},
		"9007199254740992":               {9007199254740992, 0, false},
		"9007199254740993":               {9007199254740992, 0, false},
		"-9007199254740991":              {-maxWhole, -maxWhole, true},
		"-9007199254740992":              {-9007199254740992, 0, false},
		"9223372036854775807":            {9223372036854775807, 0, false},
		"9223372036854775808":            {9223372036854775808, 0, false},
		"1e308":                          {1e308, 0, false},
		"1.7976931348623157e308":         {math.MaxFloat64, 0, false},
		"1e400":                          {math.Inf(1), 0, false},
		"-1e400":                         {math.Inf(-1), 0, false},
		"1e-400":                         {0, 0, true},
		"-1e-400":                        {math.Copysign(0, -1), 0, true},
		"5e-324":                         {5e-324, 0, false},
		"1e99999999999":                  {math.Inf(1), 0, false},
		"1" + strings.Repeat("0", 400):   {math.Inf(1), 0, false},
		"0." + strings.Repeat("0", 400):  {0, 0, true},
		strings.Repeat("9", 20) + "e-20": {1, 1, true},
	} {
		v, err := exact.Parse([]byte(text), wide)
		n, isNumber := v.Number()
		if err != nil || !isNumber {
			t.Errorf("%s: %v, %v", text, isNumber, err)
			continue
		}
		if math.Float64bits(float64(n)) != math.Float64bits(c.number) {
			t.Errorf("%s is %v, want %v", text, n, c.number)
		}
		if whole, ok := n.Whole(); whole != c.whole || ok != c.ok {
			t.Errorf("%s is the whole number %d, %v, want %d, %v", text, whole, ok, c.whole, c.ok)
		}
	}
	if whole, ok := exact.Number(math.NaN()).Whole(); ok || whole != 0 {
		t.Errorf("NaN is the whole number %d, %v", whole, ok)
	}
	if got, want := exact.Some(7), (exact.Opt[int]{Set: true, V: 7}); got != want {
		t.Errorf("Some(7) is %+v, want %+v", got, want)
	}
}
