package canon_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/internal/codec"
)

// TestF05Golden holds digests that never change. Forms and digests come from Node
// 20: JSON.stringify for scalars, Object.keys(v).sort() for the order of members,
// and its SHA-256 over domain, NUL and form. The preimage is written out once more
// here, and hashed by hand.
func TestF05Golden(t *testing.T) {
	for _, c := range []struct {
		domain             canon.Domain
		src, preimage, sum string
	}{
		{canon.NodeEnrollment,
			`{"hostname":"node-a","cloudlyOrigin":"https://cloud.example:8443","enrollmentId":"e-1","nodeId":null,"bootstrapProofHash":"00ff","credentials":[{"purpose":"spark","expectedGeneration":0},{"purpose":"pallet","expectedGeneration":0}]}`,
			"serve.zone/node-enrollment\x00" + `{"bootstrapProofHash":"00ff","cloudlyOrigin":"https://cloud.example:8443","credentials":[{"expectedGeneration":0,"purpose":"spark"},{"expectedGeneration":0,"purpose":"pallet"}],"enrollmentId":"e-1","hostname":"node-a","nodeId":null}`,
			"53a8d6fde197e4abc9c4a1fd313e8e4608738b5e5317791bfbd029f469e35acc"},
		{canon.NodeRotation,
			` { "b" : 9007199254740991, "a" : [ -9007199254740991, 0, true, false, null ] } `,
			"serve.zone/node-rotation\x00" + `{"a":[-9007199254740991,0,true,false,null],"b":9007199254740991}`,
			"02a3b48677331a14675fc8087440a8b61c92f007a166f2bde941b768897ab7e1"},
		{canon.SparkNodeReport,
			`{"\ufb33":1,"\ud83d\ude00":2,"\uffff":3,"\ue000":4,"\ud7ff":5,"z":6,"":7}`,
			"serve.zone/spark-node-report\x00{\"\":7,\"z\":6,\"\xed\x9f\xbf\":5,\"\xf0\x9f\x98\x80\":2,\"\xee\x80\x80\":4,\"\xef\xac\xb3\":1,\"\xef\xbf\xbf\":3}",
			"0d3f0c75720e2aa592d0dc53cf49aa054f105f847f7e64771c74b13b0f526d34"},
		{canon.Mutation,
			`{"text":"\u0041\/\u20ac\u000f\n\b\u2028\u007f\"\\\u001f"}`,
			"serve.zone/mutation\x00{\"text\":\"A/\xe2\x82\xac\\u000f\\n\\b\xe2\x80\xa8\x7f\\\"\\\\\\u001f\"}",
			"96b00c491a34f8037272271cd18c1cca70660ea294891e86aecc705c4eda9d11"},
		{canon.RuntimeNetworkProjectionSignature, `[]`, "serve.zone/runtime-network-projection-signature\x00[]",
			"754e8d097e7fd64d9f8d9765566cc5460530d4efadd8b7bc50780feee79e8995"},
		{canon.Mutation, `"x"`, "serve.zone/mutation\x00\"x\"",
			"08cb0c80b7a0ccf012a038d2c477fa61148ef8812be6ff1b594536ca1d939019"},
	} {
		got, err := canon.Digest(c.domain, []byte(c.src))
		if err != nil || got.String() != c.sum {
			t.Errorf("%s %s: %s, %v, want %s", c.domain, c.src, got, err, c.sum)
		}
		if by := sha256.Sum256([]byte(c.preimage)); hex.EncodeToString(by[:]) != c.sum {
			t.Errorf("%s: SHA-256 of the written preimage is %x, want %s", c.domain, by, c.sum)
		}
		_, form, _ := strings.Cut(c.preimage, "\x00")
		if got, err := canon.JSON([]byte(c.src)); err != nil || string(got) != form {
			t.Errorf("%s has the form %s, %v, want %s", c.src, got, err, form)
		}
		if got, ok := reference(c.src); !ok || got != form {
			t.Errorf("%s has by the RFC's words the form %s, %v, want %s", c.src, got, ok, form)
		}
	}
}

// TestF05Form is what has a form, and which. Samples of RFC 8785 and of its author's
// test data stand here as far as decision O01 leaves them.
func TestF05Form(t *testing.T) {
	for _, c := range []struct{ name, src, want string }{
		{"RFC 8785, 3.2.2, without its fractions",
			`{"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}`,
			`{"literals":[null,true,false],"string":"€$\u000f\nA'B\"\\\\\"/"}`},
		{"RFC 8785, 3.2.3",
			`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`,
			"{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"\u00f6\":\"Latin Small Letter O With Diaeresis\",\"\u20ac\":\"Euro Sign\",\"\U0001f600\":\"Emoji: Grinning Face\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}"},
		{"arrays", `[56,{"d":true,"10":null,"1":[ ]}]`, `[56,{"1":[],"10":null,"d":true}]`},
		{"french", `{"peach":"This sorting order","péché":"is wrong according to French","pêche":"but canonicalization MUST","sin":"ignore locale"}`,
			`{"peach":"This sorting order","péché":"is wrong according to French","pêche":"but canonicalization MUST","sin":"ignore locale"}`},
		{"structures", "{\n\"1\":{\"f\":{\"f\":\"hi\",\"F\":5},\"\\n\":56},\"10\":{},\"\":\"empty\",\"a\":{},\"111\":[{\"e\":\"yes\",\"E\":\"no\"}],\"A\":{}}",
			`{"":"empty","1":{"\n":56,"f":{"F":5,"f":"hi"}},"10":{},"111":[{"E":"no","e":"yes"}],"A":{},"a":{}}`},
		{"not normalised", "[\"A\u030a\",\"\u00c5\",\"\u212b\"]", "[\"A\u030a\",\"\u00c5\",\"\u212b\"]"},
		{"above U+FFFF before U+E000", "{\"\uffff\":1,\"\ue000\":2,\"\U00010000\":3,\"\U0010ffff\":4,\"\ud7ff\":5}", "{\"\ud7ff\":5,\"\U00010000\":3,\"\U0010ffff\":4,\"\ue000\":2,\"\uffff\":1}"},
		{"the same behind a common start", "{\"a\uffff\":1,\"a\U00010000b\":2,\"a\":3,\"a\U00010000\":4}", "{\"a\":3,\"a\U00010000\":4,\"a\U00010000b\":2,\"a\uffff\":1}"},
		{"the same within an inner object", "[{\"\ufffd\":0,\"\U0001d306\":0}]", "[{\"\U0001d306\":0,\"\ufffd\":0}]"},
		{"an escaped letter", `{"\u0041":"\u0041\u007a"}`, `{"A":"Az"}`},
		{"escapes in capitals", `"\u00E9\u001F\uD83D\uDE00"`, "\"é\\u001f\U0001f600\""},
		{"all controls", `"\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\u0008\u0009\u000a\u000b\u000c\u000d\u000e\u000f\u0010\u001e\u007f\u0080"`,
			"\"\\u0000\\u0001\\u0002\\u0003\\u0004\\u0005\\u0006\\u0007\\b\\t\\n\\u000b\\f\\r\\u000e\\u000f\\u0010\\u001e\x7f\u0080\""},
		{"nothing for browsers", "\"<script>&\u2028\u2029\"", "\"<script>&\u2028\u2029\""},
		{"no characters", "\"\ufffe\uffff\ufdd0\ufffd\"", "\"\ufffe\uffff\ufdd0\ufffd\""},
		{"a mark within a text", "\"\ufeff\"", "\"\ufeff\""},
		{"names of JavaScript", `{"toString":1,"__proto__":{"a":2},"constructor":3}`, `{"__proto__":{"a":2},"constructor":3,"toString":1}`},
		{"spaces", " \t\r\n[ 1 ,\n2 ] \n", "[1,2]"},
		{"numbers", `[0,1,-1,10,9007199254740990,9007199254740991,-9007199254740991,1000000000000000]`, `[0,1,-1,10,9007199254740990,9007199254740991,-9007199254740991,1000000000000000]`},
		{"a scalar", ` true `, `true`},
		{"names like numbers", `{"10":1,"9":2,"1":3,"-1":4}`, `{"-1":4,"1":3,"10":1,"9":2}`},
	} {
		got, err := canon.JSON([]byte(c.src))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v, want %s", c.name, got, err, c.want)
		}
		if got, ok := reference(c.src); !ok || got != c.want {
			t.Errorf("%s: by the RFC's words %s, %v, want %s", c.name, got, ok, c.want)
		}
		again, err := canon.JSON(got)
		if err != nil || !bytes.Equal(again, got) {
			t.Errorf("%s: the form of the form is %s, %v", c.name, again, err)
		}
	}
}

func TestF05NoForm(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct {
		name, src string
		want      error
	}{
		{"minus zero", `-0`, canon.ErrNumber},
		{"minus zero in depth", `{"a":[{"b":-0}]}`, canon.ErrNumber},
		{"a fraction of zero", `1.0`, canon.ErrNumber},
		{"a fraction", `0.5`, canon.ErrNumber},
		{"zero with a fraction", `0.0`, canon.ErrNumber},
		{"an exponent", `1e2`, canon.ErrNumber},
		{"an exponent in capitals", `1E2`, canon.ErrNumber},
		{"an exponent of zero", `1e0`, canon.ErrNumber},
		{"zero with an exponent", `0e0`, canon.ErrNumber},
		{"2^53", `9007199254740992`, canon.ErrNumber},
		{"2^53+1", `9007199254740993`, canon.ErrNumber},
		{"-2^53", `-9007199254740992`, canon.ErrNumber},
		{"2^64", `18446744073709551616`, canon.ErrNumber},
		{"2^64+1, which wraps to 1", `18446744073709551617`, canon.ErrNumber},
		{"beyond a double", `1e400`, canon.ErrNumber},
		{"a thousand digits", strings.Repeat("9", 1000), canon.ErrNumber},
		{"a small number", `1e-400`, canon.ErrNumber},
		{"RFC 8785, 3.2.2", `{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001]}`, canon.ErrNumber},
		{"the last number of many", `[1,2,3,4,5.5]`, canon.ErrNumber},
		{"a leading zero", `01`, exact.ErrSyntax},
		{"a plus", `+1`, exact.ErrSyntax},
		{"hexadecimal", `0x1`, exact.ErrSyntax},
		{"no digits", `-`, exact.ErrSyntax},
		{"half a fraction", `1.`, exact.ErrSyntax},
		{"no number", `NaN`, exact.ErrSyntax},
		{"infinity", `-Infinity`, exact.ErrSyntax},
		{"twins", `{"a":1,"a":1}`, exact.ErrDuplicate},
		{"twins apart", `{"a":1,"b":{},"a":2}`, exact.ErrDuplicate},
		{"twins, one escaped", `{"a":1,"\u0061":1}`, exact.ErrDuplicate},
		{"twins, a pair and its character", "{\"\U0001f600\":1,\"\\ud83d\\ude00\":1}", exact.ErrDuplicate},
		{"twins in depth", `[{"x":{"a":1,"a":1}}]`, exact.ErrDuplicate},
		{"empty twins", `{"":1,"":1}`, exact.ErrDuplicate},
		{"a lone high half", `"\ud800"`, exact.ErrEncoding},
		{"a lone low half", `"\udc00"`, exact.ErrEncoding},
		{"halves turned", `"\udc00\ud800"`, exact.ErrEncoding},
		{"two high halves", `"\ud83d\ud83d\ude00"`, exact.ErrEncoding},
		{"a half in a name", `{"\ud800":1}`, exact.ErrEncoding},
		{"a half as bytes", "\"\xed\xa0\x80\"", exact.ErrEncoding},
		{"a byte that begins nothing", "\"\xff\"", exact.ErrEncoding},
		{"a cut character", "\"\xc3\"", exact.ErrEncoding},
		{"a long way to write a slash", "\"\xc0\xaf\"", exact.ErrEncoding},
		{"above U+10FFFF", "\"\xf4\x90\x80\x80\"", exact.ErrEncoding},
		{"bad bytes outside", "1\xff", exact.ErrEncoding},
		{"a mark in front", "\ufeff{}", exact.ErrSyntax},
		{"a raw control", "\"\n\"", exact.ErrSyntax},
		{"an escape that is none", `"\x41"`, exact.ErrSyntax},
		{"another escape that is none", `"\'"`, exact.ErrSyntax},
		{"a short escape", `"\u004"`, exact.ErrSyntax},
		{"another value behind", `{}{}`, exact.ErrSyntax},
		{"letters behind", `{} x`, exact.ErrSyntax},
		{"a comma behind", `1,`, exact.ErrSyntax},
		{"a zero byte behind", "1\x00", exact.ErrSyntax},
		{"a comma too many", `[1,]`, exact.ErrSyntax},
		{"a comma too many in an object", `{"a":1,}`, exact.ErrSyntax},
		{"a comment", `/**/1`, exact.ErrSyntax},
		{"a name without quotes", `{a:1}`, exact.ErrSyntax},
		{"other quotes", `'a'`, exact.ErrSyntax},
		{"another space", "\u00a01", exact.ErrSyntax},
		{"nothing", ``, exact.ErrSyntax},
		{"only space", ` `, exact.ErrSyntax},
		{"capitals", `True`, exact.ErrSyntax},
		{"one level too deep", nested(zone.MaxDepth + 1), exact.ErrTooDeep},
		{"a bomb", strings.Repeat("[", 1<<19), exact.ErrTooDeep},
		{"one value too many", "[" + strings.Repeat("0,", zone.MaxValues-1) + "0]", exact.ErrTooMany},
		{"one byte too many", `"` + strings.Repeat("x", zone.MaxBytes-1) + `"`, exact.ErrTooLarge},
		{"space to one byte too many", "1" + strings.Repeat(" ", zone.MaxBytes), exact.ErrTooLarge},
	} {
		src := c.src
		if len(src) > 100 {
			src = src[:100] + "..."
		}
		form, err := canon.JSON([]byte(c.src))
		if !errors.Is(err, c.want) || form != nil {
			t.Errorf("%s: %q, %v, want %v: %s", c.name, form, err, c.want, src)
		}
		if _, ok := reference(c.src); ok {
			t.Errorf("%s has a form by the RFC's words: %s", c.name, src)
		}
		if sum, err := canon.Digest(canon.Mutation, []byte(c.src)); !errors.Is(err, c.want) || !sum.IsZero() {
			t.Errorf("%s: the digest %s, %v, want %v", c.name, sum, err, c.want)
		}
	}
	for name, src := range map[string]string{
		"as deep as may be":  nested(zone.MaxDepth),
		"as many as may be":  "[" + strings.Repeat("0,", zone.MaxValues-2) + "0]",
		"as large as may be": `"` + strings.Repeat("x", zone.MaxBytes-2) + `"`,
	} {
		form, err := canon.JSON([]byte(src))
		if err != nil || string(form) != src {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestF05TheTextStaysTheCallers(t *testing.T) {
	src := []byte(`{"b":1,"a":2}`)
	before := bytes.Clone(src)
	form, err := canon.JSON(src)
	if err != nil || !bytes.Equal(src, before) {
		t.Fatalf("the caller's text is now %s, %v", src, err)
	}
	for i := range src {
		src[i] = 'x'
	}
	if string(form) != `{"a":2,"b":1}` {
		t.Errorf("the form changes with the caller's text: %s", form)
	}
}

func TestF05AbsentAndEmptyDiffer(t *testing.T) {
	seen := map[canon.Sum]string{}
	for _, src := range []string{`{}`, `{"a":null}`, `{"a":[]}`, `{"a":{}}`, `{"a":""}`, `{"a":0}`, `{"a":false}`, `{"":null}`, `[]`, `null`, `""`, `0`, `false`, `[null]`, `[[]]`} {
		sum, err := canon.Digest(canon.Mutation, []byte(src))
		if err != nil {
			t.Errorf("%s: %v", src, err)
		}
		if other := seen[sum]; other != "" {
			t.Errorf("%s and %s have one digest", src, other)
		}
		seen[sum] = src
	}
}

func TestF05DomainsKeepApart(t *testing.T) {
	seen := map[canon.Sum]canon.Domain{}
	for _, d := range canon.Domains() {
		sum, err := canon.Digest(d, []byte(`{}`))
		if other, twice := seen[sum]; err != nil || twice {
			t.Errorf("%s and %s give {} one digest, %v", d, other, err)
		}
		seen[sum] = d
	}
	if sum, err := canon.Digest(canon.Domain{}, []byte(`{}`)); !errors.Is(err, refusal.Internal) || !sum.IsZero() {
		t.Errorf("no domain gives %s, %v", sum, err)
	}
}

type message struct {
	Name string
	Note string
	At   float64
}

var messages = codec.Of(func(o *exact.Object, m *message) {
	exact.Text(o, "name", &m.Name, 1, 8)
	exact.OptText(o, "note", &m.Note, 1, 8)
	exact.Float(o, "at", &m.At, 0, 1e300)
})

func TestF05OfAMessage(t *testing.T) {
	for _, c := range []struct {
		in       message
		preimage string
	}{
		{message{Name: "a", At: 1}, "serve.zone/mutation\x00" + `{"at":1,"name":"a"}`},
		{message{Name: "a", Note: "b"}, "serve.zone/mutation\x00" + `{"at":0,"name":"a","note":"b"}`},
	} {
		sum, err := canon.Of(canon.Mutation, messages, c.in)
		if want := canon.Sum(sha256.Sum256([]byte(c.preimage))); err != nil || sum != want {
			t.Errorf("%+v: %s, %v, want %s", c.in, sum, err, want)
		}
	}
	for _, c := range []struct {
		in   message
		want error
	}{
		{message{At: 1}, exact.ErrRange},
		{message{Name: "a", At: 0.5}, canon.ErrNumber},
		{message{Name: "a", At: 1 << 53}, canon.ErrNumber},
		{message{Name: "a", At: 1e21}, canon.ErrNumber},
	} {
		if sum, err := canon.Of(canon.Mutation, messages, c.in); !errors.Is(err, c.want) || !sum.IsZero() {
			t.Errorf("%+v: %s, %v, want %v", c.in, sum, err, c.want)
		}
	}
	if sum, err := canon.Of(canon.Domain{}, messages, message{Name: "a"}); !errors.Is(err, refusal.Internal) || !sum.IsZero() {
		t.Errorf("no domain gives %s, %v", sum, err)
	}
}

func TestF05SumText(t *testing.T) {
	text := "00" + strings.Repeat("0a9f", 15) + "ff"
	sum, ok := canon.ParseSum(text)
	if !ok || sum.String() != text || sum[0] != 0 || sum[1] != 0x0a || sum[31] != 0xff || sum.IsZero() {
		t.Errorf("%s is read as %s, %v", text, sum, ok)
	}
	if !(canon.Sum{}).IsZero() {
		t.Error("the zero value is the digest of something")
	}
	for _, bad := range []string{
		"", "0", text[1:], text + "0", text + "00", strings.ToUpper(text), "sha256:" + text, " " + text[1:], text[:63] + " ", text[:63] + "g",
		text[:63] + "\n", "0x" + text[2:], text[:62] + "é", strings.Repeat("0", 64), text[:63] + "/", text[:63] + ":", text[:63] + "`", "A" + text[1:],
	} {
		if sum, ok := canon.ParseSum(bad); ok || !sum.IsZero() {
			t.Errorf("%q is read as %s", bad, sum)
		}
	}
}

// drawn is any value that has a form.
func drawn(t *rapid.T, depth int) any {
	kinds := 5
	if depth == 0 {
		kinds = 3
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return rapid.SampledFrom([]any{nil, true, false}).Draw(t, "literal")
	case 1:
		return number(fmt.Sprint(rapid.Int64Range(-1<<53+1, 1<<53-1).Draw(t, "number")))
	case 2:
		return drawnText(t)
	case 3:
		v := list{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			v = append(v, drawn(t, depth-1))
		}
		return v
	}
	v := object{}
	for range rapid.IntRange(0, 4).Draw(t, "members") {
		v[drawnText(t)] = drawn(t, depth-1)
	}
	return v
}

var letters = []rune{'a', 'b', 'A', '0', '"', '\\', '/', ' ', 0, '\n', 0x1f, 0x7f, 0x80, 'é', 0x30a, 0x2028, 0xd7ff, 0xe000, 0xfb33, 0xfeff, 0xfffd, 0xffff, 0x10000, 0x1f600, 0x10ffff}

func drawnText(t *rapid.T) string {
	return string(rapid.SliceOfN(rapid.SampledFrom(letters), 0, 4).Draw(t, "text"))
}

// spelled writes a value in one of its many ways.
func spelled(v any, r *rand.Rand) string {
	space := func() string { return []string{"", "", "", " ", "\t\n", "\r\n  "}[r.IntN(6)] }
	text := func(s string) string {
		b := `"`
		for _, c := range s {
			switch i := strings.IndexRune("\b\t\n\f\r\"\\/", c); {
			case i >= 0 && r.IntN(2) == 0:
				b += `\` + `btnfr"\/`[i:i+1]
			case c > 0xffff && r.IntN(2) == 0:
				b += fmt.Sprintf(`\u%04x\u%04X`, 0xd800+(c-0x10000)>>10, 0xdc00+(c-0x10000)&0x3ff)
			case c <= 0xffff && (r.IntN(2) == 0 || c < ' ' || c == '"' || c == '\\'):
				b += fmt.Sprintf([]string{`\u%04x`, `\u%04X`}[r.IntN(2)], c)
			default:
				b += string(c)
			}
		}
		return b + `"`
	}
	all := func(open, shut string, parts []string) string {
		r.Shuffle(len(parts), func(i, j int) {
			if open == "{" {
				parts[i], parts[j] = parts[j], parts[i]
			}
		})
		return space() + open + space() + strings.Join(parts, space()+","+space()) + space() + shut + space()
	}
	var parts []string
	switch v := v.(type) {
	case string:
		return text(v)
	case list:
		for _, e := range v {
			parts = append(parts, spelled(e, r))
		}
		return all("[", "]", parts)
	case object:
		for name, e := range v {
			parts = append(parts, text(name)+space()+":"+space()+spelled(e, r))
		}
		return all("{", "}", parts)
	}
	return space() + write(v) + space()
}

// changed returns another value: one place of it is not what it was.
func changed(t *rapid.T, v any) any {
	switch v := v.(type) {
	case list:
		if len(v) > 0 && rapid.Bool().Draw(t, "inside") {
			i := rapid.IntRange(0, len(v)-1).Draw(t, "entry")
			other := append(list{}, v...)
			if i+1 < len(v) && !reflect.DeepEqual(v[i], v[i+1]) && rapid.Bool().Draw(t, "swap") {
				other[i], other[i+1] = v[i+1], v[i] // the order of a list counts
			} else {
				other[i] = changed(t, v[i])
			}
			return other
		}
		return append(append(list{}, v...), nil)
	case object:
		other := object{}
		for name, e := range v {
			other[name] = e
		}
		if len(v) > 0 && rapid.Bool().Draw(t, "inside") {
			var names []string
			for name := range v {
				names = append(names, name)
			}
			name := rapid.SampledFrom(names).Draw(t, "name")
			switch rapid.IntRange(0, 2).Draw(t, "change") {
			case 0:
				other[name] = changed(t, v[name])
			case 1:
				delete(other, name)
			case 2:
				delete(other, name)
				other[name+name+"x"] = v[name]
			}
			if !reflect.DeepEqual(other, v) {
				return other
			}
		}
		other["zzzzzz"] = nil
		return other
	case string:
		return v + rapid.SampledFrom([]string{" ", "\x00", "\u030a", "x"}).Draw(t, "more")
	case number:
		if v == "0" {
			return number("1")
		}
		return number("0")
	case bool:
		return !v
	}
	return rapid.SampledFrom([]any{false, "", number("0"), list{}, object{}, "null"}).Draw(t, "something")
}

// TestF05EverySpellingHasOneDigestAndEveryChangeAnother also has the reference agree
// on the form.
func TestF05EverySpellingHasOneDigestAndEveryChangeAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawn(t, 3)
		domain := rapid.SampledFrom(canon.Domains()).Draw(t, "domain")
		seed := rapid.Uint64().Draw(t, "seed")
		want := canon.Sum(sha256.Sum256([]byte(domain.String() + "\x00" + write(v))))
		for i := range 3 {
			src := spelled(v, rand.New(rand.NewPCG(seed, uint64(i))))
			if sum, err := canon.Digest(domain, []byte(src)); err != nil || sum != want {
				t.Fatalf("%s has the digest %s, %v, want %s", src, sum, err, want)
			}
			if form, ok := reference(src); !ok || form != write(v) {
				t.Fatalf("%s has by the RFC's words the form %s, %v", src, form, ok)
			}
		}
		other := changed(t, v)
		src := spelled(other, rand.New(rand.NewPCG(seed, 9)))
		if sum, err := canon.Digest(domain, []byte(src)); err != nil || sum == want {
			t.Fatalf("%s has the digest of %s, %v", src, write(v), err)
		}
		for _, d := range canon.Domains() {
			if sum, err := canon.Digest(d, []byte(write(v))); err != nil || (sum == want) != (d == domain) {
				t.Fatalf("%s in the domain %s: %s, %v", write(v), d, sum, err)
			}
		}
	})
}

// FuzzForm compares with the reference, which also decides what has a form, and
// holds that a form is its own form and means what the text meant.
func FuzzForm(f *testing.F) {
	for _, src := range []string{
		`{"b":[1,-1,0,9007199254740991],"a":{"\u20ac":"\ud83d\ude00","\ufb33":null}}`, `-0`, `1.0`, `1e2`, `9007199254740992`, `{"a":1,"\u0061":2}`, `"\ud800"`, "\"\xff\"",
		"\ufeff1", `[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]`, `{} `, `{}{}`, "\"\u2028\\u2028\\/\"", `"\u0000\b\f\u000b"`, `[1,]`, `[ ]`, `tru`, `nulll`, `01`, `1e400`, "{\"\uffff\":1,\"\U00010000\":2}",
	} {
		f.Add([]byte(src))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		before := bytes.Clone(src)
		form, err := canon.JSON(src)
		if !bytes.Equal(src, before) {
			t.Fatal("the text is changed")
		}
		want, ok := reference(string(src))
		if ok != (err == nil) || string(form) != want {
			t.Fatalf("%q has the form %q, %v, want %q, %v", src, form, err, want, ok)
		}
		if err != nil {
			var r *refusal.Refusal
			var p *exact.Problem
			if err != canon.ErrNumber && !errors.As(err, &p) && !errors.As(err, &r) || form != nil {
				t.Fatalf("%q: %v", src, err)
			}
			return
		}
		if again, err := canon.JSON(form); err != nil || !bytes.Equal(again, form) {
			t.Fatalf("%q has the form %q, and that %q, %v", src, form, again, err)
		}
		if a, b := decoded(t, src), decoded(t, form); !reflect.DeepEqual(a, b) {
			t.Fatalf("%q means %v, its form %q %v", src, a, form, b)
		}
	})
}

// decoded is what another reader sees.
func decoded(t *testing.T, src []byte) any {
	d := json.NewDecoder(bytes.NewReader(src))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q has a form but is no JSON to another reader: %v", src, err)
	}
	return v
}
