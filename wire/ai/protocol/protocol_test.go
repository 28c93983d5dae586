package protocol_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/protocol"
)

// canary is a text that no message has by chance.
const canary = "canarybird"

// verdict is how a choice ended: the version, or why not.
func verdict(t testing.TB, codec ai.Codec, err error) string {
	t.Helper()
	if err == nil {
		if codec.Version == "" || codec.ClaimRequest == nil {
			t.Errorf("the codec is %v", codec)
		}
		return codec.Version
	}
	if !reflect.DeepEqual(codec, ai.Codec{}) {
		t.Error("an error came with a codec")
	}
	e, ok := err.(*ai.Error)
	if !ok {
		t.Fatalf("the error is a %T", err)
	}
	if strings.Contains(e.Error(), canary) || strings.Contains(fmt.Sprintf("%+v", *e), canary) {
		t.Errorf("the refusal repeats the input: %v", e)
	}
	if e.RetryAfter != nil || e.ServerTime != 0 || e.MaxSkewMs != 0 {
		t.Errorf("the refusal says more than it knows: %+v", e)
	}
	if e.Code == "unsupported-protocol-version" {
		if !slices.Equal(e.Supported, protocol.Supported()) || e.Minimum != protocol.Minimum() {
			t.Errorf("the refusal does not say what is spoken: %+v", e)
		}
		switch {
		case strings.Contains(e.Message, "The caller is behind"):
			return "caller behind"
		case strings.Contains(e.Message, "This server is behind"):
			return "server behind"
		}
		t.Errorf("the refusal says nobody has to upgrade: %v", e)
	}
	if e.Supported != nil || e.Minimum != "" {
		t.Errorf("the refusal says more than it knows: %+v", e)
	}
	return string(e.Code)
}

func choose(t testing.TB, body, query string) string {
	t.Helper()
	codec, err := protocol.Choose([]byte(body), ai.MaxBody, query)
	return verdict(t, codec, err)
}

const (
	bad    = "bad-request"
	caller = "caller behind"
	server = "server behind"
)

// v and newest are the oldest and the newest version that this module speaks.
// The tests do not write them out, as no code outside their packages does.
var v, newest = protocol.Minimum(), protocol.Latest().Version

func TestChoose(t *testing.T) {
	declare := func(version string) string { return `{"protocolVersion":"` + version + `"}` }
	for what, c := range map[string]struct{ body, query, want string }{
		"declared in the body":  {declare(v), "", v},
		"the body decides":      {declare(v), "protocolVersion=99", v},
		"even if unknown":       {declare("99"), "protocolVersion=" + v, server},
		"even if a number":      {`{"protocolVersion":` + v + `}`, "protocolVersion=" + v, caller},
		"even if null":          {`{"protocolVersion":null}`, "protocolVersion=" + v, caller},
		"even if a list":        {`{"protocolVersion":["` + v + `"]}`, "protocolVersion=" + v, caller},
		"even if an object":     {`{"protocolVersion":{"` + canary + `":1}}`, "protocolVersion=" + v, caller},
		"even if a flag":        {`{"protocolVersion":true}`, "protocolVersion=" + v, caller},
		"even if empty":         {declare(""), "protocolVersion=" + v, caller},
		"no member, so a query": {`{"a":1}`, "protocolVersion=" + v, v},
		"no object, so a query": {`[]`, "protocolVersion=" + v, v},
		"null, so a query":      {` null `, "protocolVersion=" + v, v},
		"a number, so a query":  {`1`, "protocolVersion=" + v, v},
		"a text, so a query":    {`"` + v + `"`, "protocolVersion=" + v, v},
		"not of the top":        {`{"a":{"protocolVersion":"` + v + `"}}`, "", caller},
		"not in a list":         {`[{"protocolVersion":"` + v + `"}]`, "", caller},
		"nowhere":               {`{}`, "", caller},
		"nowhere, and no text":  {`"` + canary + `"`, "", caller},
		"an escaped name":       {`{"\u0070rotocolVersion":"` + v + `"}`, "", v},
		"an escaped version":    {`{"protocolVersion":"\u00` + fmt.Sprintf("%x", v) + `"}`, "", v},
		"a name in capitals":    {`{"ProtocolVersion":"` + v + `"}`, "", caller},
		"a name with a space":   {`{"protocolVersion ":"` + v + `"}`, "", caller},
		"the newest":            {declare(newest), "", newest},
		"the newest in a query": {`{}`, "protocolVersion=" + newest, newest},
		"a longer version":      {declare(newest + "0"), "", server},
		"a version and a space": {declare(newest + " "), "", server},
		"a space and a version": {declare(" " + newest), "", caller},
		"a version below":       {declare("-1"), "", caller},
		"a version above":       {declare(newest + "1"), "", server},
		"a version between":     {declare(v + "1"), "", caller}, // the newest is there for it
		"a word":                {declare(canary), "", server},

		// What is not JSON is refused before the version.
		"nothing":                      {"", "protocolVersion=" + v, bad},
		"no JSON":                      {canary, "protocolVersion=" + v, bad},
		"cut":                          {`{"protocolVersion":"99"`, "", bad},
		"cut before it":                {`{"` + canary + `":`, "", bad},
		"no JSON behind the version":   {`{"protocolVersion":"99",` + canary + `}`, "", bad},
		"text behind an unknown one":   {declare("99") + canary, "", bad},
		"twice, the second unknown":    {`{"protocolVersion":"99","protocolVersion":"` + v + `"}`, "", bad},
		"another twice, and unknown":   {`{"a":1,"a":2,"protocolVersion":"99"}`, "", bad},
		"another twice behind it":      {`{"protocolVersion":"99","a":1,"a":2}`, "", bad},
		"not UTF-8, and unknown":       {`{"protocolVersion":"` + canary + "\xff" + `"}`, "", bad},
		"half a surrogate behind it":   {`{"protocolVersion":"99","a":"\ud800"}`, "", bad},
		"deep before it":               {`{"a":` + strings.Repeat("[", 8) + strings.Repeat("]", 8) + `,"protocolVersion":"` + v + `"}`, "", bad},
		"deep behind an unknown one":   {`{"protocolVersion":"99","a":` + strings.Repeat("[", 8) + strings.Repeat("]", 8) + `}`, "", bad},
		"as deep as allowed before it": {`{"a":` + strings.Repeat("[", 7) + strings.Repeat("]", 7) + `,"protocolVersion":"` + v + `"}`, "", v},
		"very deep":                    {strings.Repeat("[", 100_000), "protocolVersion=" + v, bad},
		"very deep in an object":       {strings.Repeat(`{"a":`, 20_000), "", bad},
		"a closing bracket":            {`]`, "protocolVersion=" + v, bad},
		"brackets that do not fit":     {`{"a":[}`, "", bad},
		"a name that is no text":       {`{1:2}`, "", bad},
		"a byte order mark":            {"\ufeff" + declare(v), "", bad},
		"too many values before it":    {`{"a":[` + strings.Repeat("0,", 1<<16) + `0],"protocolVersion":"` + v + `"}`, "", bad},
		"many values before it":        {`{"a":[` + strings.Repeat("0,", 1<<16-4) + `0],"protocolVersion":"` + v + `"}`, "", v},

		// JSON comes before the version, also where the version is known.
		"known, then cut":         {`{"protocolVersion":"` + v + `",`, "", bad},
		"known, then no JSON":     {`{"protocolVersion":"` + v + `",` + canary, "", bad},
		"known, then twice":       {`{"protocolVersion":"` + v + `","protocolVersion":"99"}`, "", bad},
		"known, and no such body": {`{"protocolVersion":"` + v + `","a":1}`, "", v},
	} {
		if got := choose(t, c.body, c.query); got != c.want {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
	}
}

// TestChooseKnowsTheLimit holds that the size comes before everything, and that
// the version may stand at the very end of the largest body.
func TestChooseKnowsTheLimit(t *testing.T) {
	const limit = 100_000
	last := func(size int, version string) []byte {
		before, after := `{"a":"`, `","protocolVersion":"`+version+`"}`
		return []byte(before + strings.Repeat("a", size-len(before)-len(after)) + after)
	}
	for what, c := range map[string]struct {
		body  []byte
		query string
		want  string
	}{
		"the largest":               {last(limit, v), "", v},
		"one byte more":             {last(limit+1, v), "", bad},
		"the largest, unknown":      {last(limit, "99"), "", server},
		"one byte more, unknown":    {last(limit+1, "99"), "", bad},
		"too large and no JSON":     {[]byte(strings.Repeat(canary, limit)), "protocolVersion=" + v, bad},
		"the largest without it":    {[]byte(`{}` + strings.Repeat(" ", limit-2)), "protocolVersion=" + v, v},
		"one byte more without it":  {[]byte(`{}` + strings.Repeat(" ", limit-1)), "protocolVersion=" + v, bad},
		"the version first, larger": {[]byte(`{"protocolVersion":"` + v + `"}` + strings.Repeat(" ", limit)), "", bad},
	} {
		codec, err := protocol.Choose(c.body, limit, c.query)
		if got := verdict(t, codec, err); got != c.want {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
		if c.want == bad && !strings.Contains(err.Error(), "json-too-large") {
			t.Errorf("%s: refused for another reason: %v", what, err)
		}
	}
	for _, limit := range []int{0, -1, 1} {
		codec, err := protocol.Choose([]byte(`{"protocolVersion":"`+v+`"}`), limit, "")
		if got := verdict(t, codec, err); got != bad {
			t.Errorf("a limit of %d: %s", limit, got)
		}
	}
}

func TestChooseByQuery(t *testing.T) {
	for query, want := range map[string]string{
		"": caller, "?": caller, "protocolVersion": caller, "protocolVersion=": caller, "protocolVersion==" + v: server,
		"protocolVersion=" + v: v, "?protocolVersion=" + v: v, "a=1&protocolVersion=" + v + "&b=2": v, "&&protocolVersion=" + v + "&&": v,
		"??protocolVersion=" + v: caller, "#protocolVersion=" + v: caller,
		// The first value counts.
		"protocolVersion=" + v + "&protocolVersion=99": v, "protocolVersion=99&protocolVersion=" + v: server,
		"protocolVersion=&protocolVersion=" + v: caller, "protocolVersion&protocolVersion=" + v: caller,
		// Only & separates.
		"a=1;protocolVersion=" + v: caller, "protocolVersion=" + newest + ";a=1": server, "protocolVersion=" + newest + "#a": server,
		// Escapes.
		"protocol%56ersion=" + v: v, "%70rotocolVersion=%" + fmt.Sprintf("%x", v): v, "protocolVersion=%" + fmt.Sprintf("%x", newest) + "%20": server,
		"protocolVersion=%": caller, "protocolVersion=%zz": caller, "protocolVersion=%3": caller, "protocolVersion=" + newest + "%": server,
		"protocolVersion%=" + v: caller, "%zz&protocolVersion=" + v: v, "%=%&protocolVersion=" + v: v,
		"protocolVersion%3D" + v: caller, "a=%26protocolVersion=" + v: caller, "protocolVersion=%26": caller,
		"protocolVersion=+" + v: caller, "protocolVersion=" + newest + "+": server, "protocol+Version=" + v: caller, "+protocolVersion=" + v: caller,
		"protocolVersion=%00": caller, "protocolVersion=" + newest + "%00": server, "protocolVersion=\xff": server, "protocolVersion=%ff": server,
		"protocolversion=" + v: caller, "PROTOCOLVERSION=" + v: caller, "protocolVersion[]=" + v: caller, "protocolVersion =" + v: caller,
		"protocolVersion=" + canary: server, canary + "=" + canary: caller, "protocolVersion=" + strings.Repeat(canary, 10_000): server,
		strings.Repeat("&", 100_000) + "protocolVersion=" + v: v,
	} {
		codec, err := protocol.ChooseByQuery(query)
		if got := verdict(t, codec, err); got != want {
			t.Errorf("%.60q: %s, want %s", query, got, want)
		}
		// A body without the member asks the same question.
		if got := choose(t, "{}", query); got != want {
			t.Errorf("{} and %.60q: %s, want %s", query, got, want)
		}
	}
}

func TestSupported(t *testing.T) {
	versions := protocol.Supported()
	if len(versions) == 0 || !slices.IsSorted(versions) || len(slices.Compact(slices.Clone(versions))) != len(versions) {
		t.Fatalf("supported are %v", versions)
	}
	if protocol.Minimum() != versions[0] || protocol.Latest().Version != versions[len(versions)-1] {
		t.Errorf("of %v the oldest is %s and the newest %s", versions, protocol.Minimum(), protocol.Latest().Version)
	}
	for _, version := range versions {
		codec, err := protocol.ChooseByQuery("protocolVersion=" + version)
		if err != nil || codec.Version != version {
			t.Errorf("%s is chosen as %s, %v", version, codec.Version, err)
		}
	}
	for _, version := range append(versions, "", "99", canary) {
		codec, ok := protocol.Find(version)
		if ok != slices.Contains(versions, version) || ok && codec.Version != version || !ok && !reflect.DeepEqual(codec, ai.Codec{}) {
			t.Errorf("%q is found as %q, %v", version, codec.Version, ok)
		}
	}
	versions[0] = "changed" // by a caller
	if protocol.Minimum() == "changed" || protocol.Supported()[0] == "changed" {
		t.Error("a caller can change what is supported")
	}
}

// TestBest holds that the order in which a peer lists its versions does not
// matter, and that what nobody speaks is nobody's best.
func TestBest(t *testing.T) {
	for what, c := range map[string]struct {
		versions []string
		want     string
	}{
		"nothing":               {nil, ""},
		"unknown ones":          {[]string{"", "99", canary}, ""},
		"the oldest":            {[]string{v}, v},
		"the newest":            {[]string{newest}, newest},
		"both":                  {[]string{v, newest}, newest},
		"the newest first":      {[]string{newest, v}, newest},
		"with unknown ones":     {[]string{"99", v, canary}, v},
		"the newest, and above": {[]string{newest, newest + "1", "99"}, newest},
		"one twice":             {[]string{v, v}, v},
	} {
		codec, ok := protocol.Best(c.versions)
		if ok != (c.want != "") || codec.Version != c.want || !ok && !reflect.DeepEqual(codec, ai.Codec{}) {
			t.Errorf("%s: %q, %v", what, codec.Version, ok)
		}
	}
}

// TestAnyTextsOfAQuery holds that the first pair of the name decides and
// everything else is read past.
func TestAnyTextsOfAQuery(t *testing.T) {
	noise := rapid.StringMatching(`[a-z%;+=?#]{0,6}`).Filter(func(s string) bool { return !strings.Contains(s, "protocolVersion") })
	rapid.Check(t, func(t *rapid.T) {
		before := rapid.SliceOfN(noise, 0, 3).Draw(t, "before")
		after := rapid.SliceOfN(rapid.OneOf(noise, rapid.Just("protocolVersion="+v), rapid.Just("protocolVersion=99")), 0, 3).Draw(t, "after")
		declared := rapid.SampledFrom([]string{v, "99"}).Draw(t, "version")
		query := strings.Join(slices.Concat(before, []string{"protocolVersion=" + declared}, after), "&")
		codec, err := protocol.ChooseByQuery(query)
		if (err == nil) != (declared == v) || err == nil && codec.Version != v {
			t.Fatalf("%q: %v", query, err)
		}
	})
}

// FuzzChoose chooses by any body and query.
func FuzzChoose(f *testing.F) {
	f.Add([]byte(`{"protocolVersion":"`+v+`"}`), "")
	f.Add([]byte(`{"a":[1,{"b":"\u00e4"}],"protocolVersion":"99"}`), "?a=%zz&protocolVersion="+v)
	f.Add([]byte(`[]`), "protocolVersion=%30")
	f.Add([]byte(``), "")
	f.Fuzz(func(t *testing.T, body []byte, query string) {
		codec, err := protocol.Choose(body, ai.MaxBody, query)
		got := verdict(t, codec, err)
		chosen := slices.Contains(protocol.Supported(), got)
		if !chosen && got != bad && got != caller && got != server {
			t.Fatalf("%s", got)
		}
		if !jsontext.Value(body).IsValid() {
			// It may have been chosen by what stands before the fault.
			if got == caller || got == server {
				t.Fatalf("%s comes before what is no JSON", got)
			}
			return
		}
		var members map[string]any
		_ = json.Unmarshal(body, &members) // no object has no members
		declared, has := members["protocolVersion"]
		text, _ := declared.(string)
		if chosen && has && text != got {
			t.Fatalf("%v is chosen for %v", got, declared)
		}
		if !chosen && got != bad && has && slices.Contains(protocol.Supported(), text) {
			t.Fatalf("%v is refused as %s", declared, got)
		}
		if !has && got != bad {
			codec, err := protocol.ChooseByQuery(query)
			if want := verdict(t, codec, err); got != want {
				t.Fatalf("without a declaration %s, by the query %s", got, want)
			}
		}
	})
}
