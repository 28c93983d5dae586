package configfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tailscale/hujson"

	"github.com/allodhq/allod/internal/configfile"
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
)

// machine is a configuration with everything that a shape can have.
type machine struct {
	Site  *party
	Agent *party
}

type party struct {
	Name    string
	Count   exact.Opt[int64]
	On      bool
	Files   []string
	Routes  []route
	Clients map[string]route
}

type route struct {
	Kind, Model string
	Cap         exact.Opt[int64]
}

var errPair = refusal.NewKind("test-pair", 400, "A public route has no cap.", "Give it a cap.")

var routeShape = exact.Shape[route]{Fields: func(o *exact.Object, r *route) {
	exact.Word(o, "kind", &r.Kind, []string{"own", "public"})
	exact.OptText(o, "model", &r.Model, 1, 20)
	exact.OptWhole(o, "cap", &r.Cap, 1, 100)
	if r.Kind == "public" && !r.Cap.Set {
		o.Fail(errPair, "")
	}
}}

var partyShape = exact.Shape[party]{Fields: func(o *exact.Object, p *party) {
	exact.OptText(o, "name", &p.Name, 1, 10)
	exact.OptWhole(o, "count", &p.Count, 0, 9)
	exact.OptBool(o, "on", &p.On)
	exact.OptTexts(o, "files", &p.Files)
	if p.On {
		exact.List(o, "routes", &p.Routes, 1, 100, routeShape)
		exact.Map(o, "clients", &p.Clients, routeShape)
	}
}}

var machineShape = exact.Shape[machine]{Fields: func(o *exact.Object, m *machine) {
	exact.OptSub(o, "site", &m.Site, partyShape)
	exact.OptSub(o, "agent", &m.Agent, partyShape)
}}

// wantRefused fails unless err is that refusal with that detail.
func wantRefused(t *testing.T, what string, err error, kind *refusal.Kind, detail string) {
	t.Helper()
	if r := refusal.From(err); r.Kind() != kind || r.Detail() != detail {
		t.Errorf("%.80q: %v, want %s %s", what, err, kind.Name(), detail)
	}
}

func TestReadBytes(t *testing.T) {
	for content, want := range map[string]machine{
		`{}`:       {},
		`{/**/}//`: {},
		"// A machine.\n{\n\t\"site\": { /* \"name\": \"b\", */ \"name\": \"a\", },\n} // end": {Site: &party{Name: "a"}},
		"\r\n{\"site\":{\"files\":[\"//\",\"/*\",\"\\\"\",],},}\r\n":                           {Site: &party{Files: []string{"//", "/*", `"`}}},
		`{"\u0073ite":{"count":1e0},"agent":{"name":"ä\ud83d\ude00"}}`:                         {Site: &party{Count: exact.Some[int64](1)}, Agent: &party{Name: "ä😀"}},
		`{"agent":{"on":true,"routes":[{"kind":"own"},],"clients":{"x.y":{"kind":"own"}}}}`:    {Agent: &party{On: true, Routes: []route{{Kind: "own"}}, Clients: map[string]route{"x.y": {Kind: "own"}}}},
	} {
		before := []byte(content)
		got, err := configfile.ReadBytes(before, machineShape)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", content, got, err)
		}
		if string(before) != content {
			t.Errorf("%q was changed to %q", content, before)
		}
	}
}

func TestPlacesInBrokenText(t *testing.T) {
	const stops, twice, lone = "the text cannot be read from here on", "the object has this name twice", "an escape in this text stands for no character"
	for content, want := range map[string]string{
		"":                                     "Line 1, column 1: " + stops,
		"{":                                    "Line 1, column 2: " + stops,
		"{\n":                                  "Line 2, column 1: " + stops,
		"{\n  \"site\": {},\n  canary":         "Line 3, column 3: " + stops,
		"{\n  \"ä😀\" canary: 1}":               "Line 2, column 8: " + stops,
		"{\r\n\"site\": 'canary'}":             "Line 2, column 9: " + stops,
		"{\"site\": canary}":                   "Line 1, column 10: " + stops,
		"{\"site\": {}} canary":                "Line 1, column 14: " + stops,
		"{\"site\": {},, }":                    "Line 1, column 13: " + stops,
		"{\"site\": [1 2]}":                    "Line 1, column 13: " + stops,
		"{\"site\": 01}":                       "Line 1, column 10: " + stops,
		"{\"site\": +1}":                       "Line 1, column 10: " + stops,
		"{\"site\": \"canary\n\"}":             "Line 1, column 10: " + stops,
		"{\"site\": \"\\canary\"}":             "Line 1, column 10: " + stops,
		"{} /* canary":                         "Line 1, column 4: " + stops,
		"# canary\n{}":                         "Line 1, column 1: " + stops,
		"{]":                                   "Line 1, column 2: " + stops,
		"{\n\"a\": 1,\n\"a\": 2}":              "Line 3, column 1: " + twice,
		"{\n\"ä\": 1, /* ä */ \"\\u00e4\": 2}": "Line 2, column 17: " + twice,
		"{\"site\": \"\\ud800canary\"}":        "Line 1, column 11: " + lone,
		"\xef\xbb\xbf{}":                       "Line 1, column 1: the file begins with a byte order mark; save it as UTF-8 without one",
		"\xff\xfe{\x00":                        "Line 1, column 1: this is not UTF-8",
		"{}\n// ä\xe4":                         "Line 2, column 5: this is not UTF-8",
		"{}\n\"\xed\xa0\x80\"":                 "Line 2, column 2: this is not UTF-8",
		"{} // \ufffd \xc3":                    "Line 1, column 9: this is not UTF-8",
	} {
		got, err := configfile.ReadBytes([]byte(content), machineShape)
		wantRefused(t, content, err, configfile.ErrNotJSON, want+".")
		if got != (machine{}) {
			t.Errorf("%q: an error came with %+v", content, got)
		}
	}
}

func TestBounds(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	wide := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("0,", n-1), ",") + "]" }
	long := func(n int) string { return "{}" + strings.Repeat(" ", n-2) }
	for content, want := range map[string]string{
		"\n" + deep(9):                        "Line 2, column 9: one level or value too many.",
		"\n\n" + wide(4097):                   "Line 3, column 8191: one level or value too many.",
		strings.Repeat(`{"a":`, 9):            "Line 1, column 41: one level or value too many.",
		strings.Repeat("[", 1<<20):            "Line 1, column 9: one level or value too many.",
		"// [\n/* [ */ \"[\\\"[\" " + deep(9): "Line 2, column 24: one level or value too many.",
		long(configfile.MaxBytes + 1):         "",
		strings.Repeat("[", 1<<20+1):          "",
	} {
		_, err := configfile.ReadBytes([]byte(content), machineShape)
		wantRefused(t, content, err, configfile.ErrTooLarge, want)
	}
	anything := exact.Shape[struct{}]{Unknown: exact.Drop, Fields: func(*exact.Object, *struct{}) {}}
	for _, content := range []string{
		long(configfile.MaxBytes),
		`{"a":` + deep(7) + `}`,
		`{"a":` + wide(4094) + `}`,
		`{"a":["` + strings.Repeat("[{,", 5000) + `"]}//` + strings.Repeat("[{,", 5000) + "\n/*" + strings.Repeat("[{,", 5000) + "*/",
	} {
		if _, err := configfile.ReadBytes([]byte(content), anything); err != nil {
			t.Errorf("%.40q: %v", content, err)
		}
	}
}

// TestProblems holds what is said of each mistake, and that all are said.
func TestProblems(t *testing.T) {
	for content, want := range map[string]string{
		`[]`:                              "The file must be an object (line 1, column 1).",
		`null`:                            "The file must be an object (line 1, column 1).",
		"{\n \"site\": 1}":                "site: must be an object (line 2, column 2).",
		"{\n \"sight\": 1, \"SITE\": {}}": "Line 2, column 2: the file has no section of this name. Line 2, column 14: the file has no section of this name.",
		"{\"site\": {\n\"count\": 10,\n\"name\":\n\"canary canary\"}}": "site.name: must be a string of 1 to 10 UTF-16 code units (line 3, column 1). " +
			"site.count: must be a whole number from 0 to 9 (line 2, column 1).",
		"{\"agent\": {\"on\": null}, \"site\": {\"canary\": {}, \"on\": 1}}": "site.on: must be true or false (line 1, column 48). Line 1, column 34: site has no member of this name. " +
			"agent.on: must be true or false (line 1, column 12).",
		"{\"site\": {\"files\": [\"\",\n1]}}":        "site.files[0]: must be a string of at least 1 UTF-16 code units (line 1, column 21).",
		"{\"agent\": {\"on\": true,\n \"name\": 1}}": "agent.name: must be a string (line 2, column 2). agent.routes: must be given (line 1, column 2).",
		"{\"agent\": {\"on\": true, \"routes\": [{\"kind\": \"own\"},\n{\"model\": \"x\", \"other\": 1}], \"clients\": {}}}": "agent.routes[1].kind: must be given (line 2, column 1).",
		"{\"agent\": {\"on\": true, \"routes\": [{\"kind\": \"own\", \"model\": 1},\n{\"kind\": \"own\",\n\"other\": 1}], \"clients\": {\"canary\": {\"kind\": \"public\"}, \"b\": {}}}}": "agent.routes[0].model: must be a string (line 1, column 51). " +
			"Line 3, column 1: agent.routes[1] has no member of this name. agent.clients[0]: must keep to the rule test-pair (line 3, column 37).",
		// A cap that is no number is one mistake, not a missing cap as well.
		"{\"agent\": {\"on\": true, \"routes\": [{\"kind\": \"public\", \"cap\": \"canary\"}], \"clients\": {}, \"x\": 1}}": "agent.routes[0].cap: must be a number (line 1, column 54).",
		"{\"agent\": {\"on\": true, \"routes\": [{\"kind\": \"canary\"}], \"clients\": {}, \"site\": 1}, \"site\": {\"count\": -1}}": "site.count: must be a whole number from 0 to 9 (line 1, column 92). " +
			"agent.routes[0].kind: must keep to the rule json-not-a-choice (line 1, column 36).",
		"{\"agent\": {\"on\": true, \"routes\": [], \"clients\": {\"canary.\": {\"kind\": \"own\"}, \"b\": {\"kind\": \"own\", \"cap\": 0}}}}": "agent.routes: must be 1 to 100 entries (line 1, column 24).",
	} {
		got, err := configfile.ReadBytes([]byte(content), machineShape)
		wantRefused(t, content, err, configfile.ErrMember, want)
		if got != (machine{}) {
			t.Errorf("%q: an error came with %+v", content, got)
		}
	}
	// A rule of the shape's own keeps its name.
	_, err := configfile.ReadBytes([]byte("{\"agent\":{\"on\":true,\"routes\":[\n{\"kind\":\"public\"}],\"clients\":{}},\"x\":1}"), machineShape)
	wantRefused(t, "no cap", err, errPair, "agent.routes[0]: must keep to the rule test-pair (line 2, column 1). Line 2, column 34: the file has no section of this name.")

	// Names of the shape can hold what parts paths.
	dotted := exact.Shape[struct{}]{Fields: func(o *exact.Object, _ *struct{}) {
		var in struct{}
		exact.Sub(o, "llm.chat", &in, exact.Shape[struct{}]{Fields: func(o *exact.Object, _ *struct{}) {
			var yes bool
			exact.OptBool(o, "a.b", &yes)
		}})
	}}
	_, err = configfile.ReadBytes([]byte("{\"\":1,\n\"llm.chat\":\n{\"\":1,\n\"a.b\":1}}"), dotted)
	wantRefused(t, "dots", err, configfile.ErrMember, "llm.chat.a.b: must be true or false (line 4, column 1). Line 3, column 2: llm.chat has no member of this name. "+
		"Line 1, column 2: the file has no section of this name.")

	_, err = configfile.ReadBytes([]byte(`{"site":{"on":1}}`), machineShape)
	if !errors.Is(err, exact.ErrType) {
		t.Errorf("the rule is lost: %v", err)
	}
}

func TestExamine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.json")
	content := "{\n\"site\": {\"name\": \"a\", \"count\": \"canary\", \"more\": 1, \"on\": false},\n\"agent\": {\"name\": \"b\"}}"
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	got, problems, err := configfile.Examine(path, machineShape)
	if want := (machine{Site: &party{Name: "a"}, Agent: &party{Name: "b"}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if want := []configfile.Problem{
		{Path: "site.count", Line: 2, Column: 23, Rule: exact.ErrType, Need: "a number"},
		{Path: "site", Line: 2, Column: 42, Rule: exact.ErrUnknown},
	}; !reflect.DeepEqual(problems, want) {
		t.Errorf("%+v", problems)
	}
	for i, want := range []string{"site.count: must be a number (line 2, column 23).", "Line 2, column 42: site has no member of this name."} {
		wantRefused(t, want, problems[i].Refusal(), configfile.ErrMember, want)
	}

	// There is no end to mistakes, but to their list.
	many := func(n int) string {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("%q: 1", fmt.Sprint("n", i))
		}
		return "{\"site\": {\"name\": \"a\", " + strings.Join(names, ", ") + "}}"
	}
	for n, want := range map[int]int{1: 1, 19: 19, 21: 20, 60: 20, 2000: 20} {
		if err := os.WriteFile(path, []byte(many(n)), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, problems, err = configfile.Examine(path, machineShape); err != nil || len(problems) != want {
			t.Errorf("of %d problems %d are named, %v", n, len(problems), err)
		}
	}
	// An unknown member behind many known ones is not looked for, but refused.
	var known, all []string
	wide := exact.Shape[struct{}]{Fields: func(o *exact.Object, _ *struct{}) {
		for _, name := range known {
			var yes bool
			exact.OptBool(o, name, &yes)
		}
	}}
	for i := range 70 {
		known = append(known, fmt.Sprint("n", i))
		all = append(all, fmt.Sprintf("%q: true", known[i]))
	}
	_, err = configfile.ReadBytes([]byte("\n{"+strings.Join(all, ",")+`,"canary":1}`), wide)
	wantRefused(t, "far", err, configfile.ErrMember, "Line 2, column 1: the file has no section of this name.")
	all[3] = `"n3":0`
	_, err = configfile.ReadBytes([]byte("\n{"+strings.Join(all, ",")+`,"canary":1}`), wide)
	wantRefused(t, "far behind a problem", err, configfile.ErrMember, "n3: must be true or false (line 2, column 35). Line 2, column 1: the file has no section of this name.")
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	in := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := in("good", `{"site": {"name": "a",}} // good`)
	if got, err := configfile.Read(good, machineShape); err != nil || got.Site.Name != "a" {
		t.Errorf("%+v, %v", got, err)
	}
	for what, c := range map[string]struct {
		path   string
		kind   *refusal.Kind
		detail string
	}{
		"absent":       {filepath.Join(dir, "canary"), configfile.ErrAbsent, ""},
		"no path":      {"", configfile.ErrAbsent, ""},
		"a folder":     {dir, configfile.ErrUnreadable, "The path is not a plain file."},
		"below a file": {filepath.Join(good, "x"), configfile.ErrUnreadable, ""},
		"long name":    {filepath.Join(dir, strings.Repeat("n", 5000)), configfile.ErrUnreadable, ""},
		"large":        {in("large", "{}"+strings.Repeat("\n", configfile.MaxBytes-1)), configfile.ErrTooLarge, ""},
		"broken":       {in("broken", "{"), configfile.ErrNotJSON, "Line 1, column 2: the text cannot be read from here on."},
		"unknown":      {in("unknown", "{\"canary\":1}"), configfile.ErrMember, "Line 1, column 2: the file has no section of this name."},
	} {
		if what == "below a file" && !errors.Is(mustFail(os.Stat(c.path)), errNotFolder) {
			continue // this system says that it is absent
		}
		got, err := configfile.Read(c.path, machineShape)
		wantRefused(t, what, err, c.kind, c.detail)
		if got != (machine{}) {
			t.Errorf("%s: an error came with %+v", what, got)
		}
		left, problems, err := configfile.Examine(c.path, machineShape)
		if what == "unknown" {
			if left != (machine{}) || err != nil || len(problems) != 1 {
				t.Errorf("%s: %v, %+v", what, err, problems)
			}
			continue
		}
		wantRefused(t, what, err, c.kind, c.detail)
		if left != (machine{}) || problems != nil {
			t.Errorf("%s: an error came with %+v, %+v", what, left, problems)
		}
	}
	if got, err := configfile.Read(in("full", "{}"+strings.Repeat("\n", configfile.MaxBytes-2)), machineShape); err != nil {
		t.Errorf("at the bound: %+v, %v", got, err)
	}
}

func mustFail(_ os.FileInfo, err error) error { return err }

// said is every sentence that the package has, so that none can hold a part of
// the file.
var said = regexp.MustCompile(`^((config|test)-[a-z-]+: [^:]*\.)( (Line \d+, column \d+: (the text cannot be read from here on|the object has this name twice|an escape in this text stands for no character|this is not UTF-8|one level or value too many|(the file|(site|agent)(\.(routes|clients)\[\d+\])?) has no (member|section) of this name|the file begins with a byte order mark; save it as UTF-8 without one)\.` +
	`|The file must be an object \(line \d+, column \d+\)\.` +
	`|(site|agent)(\.(name|count|on|files|routes|clients))?(\[\d+\])?(\.(kind|model|cap))?: must (be [a-zA-Z0-9 -]+|keep to the rule [a-z-]+) \(line \d+, column \d+\)\.))*$`)

// FuzzReadBytes compares with the two parsers below, and holds that nothing of
// the text is repeated.
func FuzzReadBytes(f *testing.F) {
	for _, content := range []string{
		`{}`, "// a\n{\"site\":{\"name\":\"a\",},}", `{"site":{"x":1},"y":[/**/]}`, `{"agent":{"on":true,"routes":[{"kind":"public"}],"clients":{"a":{"kind":"b"}}}}`,
		"\xef\xbb\xbf{}", `{"a":1,"a":2}`, `["\ud800"]`, "[[[[[[[[[]]]]]]]]]", "{} //", "{} /*", "\"\n", `{"site":{"files":["",1],"name":"","count":-1,"on":2}}`, "{\"\xff\":1}", "{} // \u2028",
		`{"agent":{"on":true,"routes":[{"kind":"public","cap":""},{}],"clients":{"__proto__":{}}}}`, "[1\r,]\r\n", `{"site":{"name":"😀","on":falsy}}`,
	} {
		f.Add([]byte(content))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		before := bytes.Clone(content)
		v, err := configfile.ReadBytes(content, machineShape)
		if !bytes.Equal(before, content) {
			t.Fatal("reading changed the text")
		}
		limits := exact.Limits{Bytes: configfile.MaxBytes + 1, Depth: 8, Values: 4096}
		if err == nil {
			plain, err := hujson.Standardize(append(bytes.Clone(content), '\n'))
			if err != nil {
				t.Fatalf("%q is read", content)
			}
			want, err := machineShape.Read(plain, limits)
			if err != nil || !reflect.DeepEqual(v, want) {
				t.Fatalf("%q is read as %+v, want %+v, %v", content, v, want, err)
			}
			return
		}
		if v != (machine{}) {
			t.Fatalf("%q: an error came with %+v", content, v)
		}
		if kind := refusal.From(err).Kind(); kind != errPair && !slices.Contains(configfile.Kinds.Kinds, kind) {
			t.Fatalf("%q: %v", content, err)
		}
		if !said.MatchString(err.Error()) {
			t.Fatalf("%q is refused with other words: %s", content, err)
		}
		if len(content) > 1<<10 {
			return // commas that end a list could make the difference
		}
		if _, plain := machineShape.Read(content, limits); plain == nil {
			t.Fatalf("%q is refused: %v", content, err)
		}
		for _, place := range regexp.MustCompile(`(?i)line (\d+), column (\d+)(: (?:the file|site|agent)\S* has no)?`).FindAllStringSubmatch(err.Error(), -1) {
			var line, column int
			fmt.Sscan(place[1], &line)
			fmt.Sscan(place[2], &column)
			lines := strings.Split(string(content)+"\n", "\n")
			if line > len(lines) || column > len([]rune(lines[line-1]))+1 {
				t.Fatalf("%q has no %s", content, place[0])
			}
			if at := []rune(lines[line-1] + " ")[column-1]; place[3] != "" && at != '"' && at != '{' {
				t.Fatalf("%q has no member at %s, but %q", content, place[0], at)
			}
		}
	})
}

// TestKinds holds the names and statuses of the refusals. Programs and documents
// name them.
func TestKinds(t *testing.T) {
	want := []string{"config-absent 404", "config-unreadable 500", "config-too-large 400", "config-not-json 400", "config-member 400", "config-not-changed 500"}
	var got []string
	for _, k := range configfile.Kinds.Kinds {
		got = append(got, fmt.Sprint(k.Name(), " ", k.Status()))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
