package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/wire/ai/must"
)

// TestListFitsTheRepository holds that the list is well formed and that every old
// text still stands once in its file. Run make mutate to see that the tests turn red.
func TestListFitsTheRepository(t *testing.T) {
	proofs, err := load(filepath.Join("..", "..", ".."), "")
	if err != nil {
		t.Fatalf("the list does not fit the code any more; mend the entries, and run make mutate:\n%v", err)
	}
	musts, zone, mutations := 0, 0, 0
	for _, p := range proofs {
		if mutations += len(p.mutations); p.by == "" {
			zone++
		} else {
			musts++
		}
	}
	if musts < 20 || zone < 10 || mutations < 100 {
		t.Errorf("%d mutations of %d duties and %d families and parts: the search is blind", mutations, musts, zone)
	}
}

const (
	head  = "# A list\n\nFor people.\n\n```\n## NOT_READ\n```\n\n## CLAIM_ATOMIC\n\nMore for people.\n\n"
	title = "### It breaks\n\n"
	why   = "Because it is\nso.\n\n"
	place = "In `a.go`, seen by\n`go test ./pkg -run TestA`:\n\n"
	diff  = "```diff\n one\n-two\n+three\n\n four\n```\n"
	good  = title + why + place + diff
)

func TestParse(t *testing.T) {
	text := head + good +
		"\n### It breaks again\n\nWhy.\n\nIn `b/c.go`, seen by `go test ./b -run '^TestB$/^c|d$' -timeout 20s`:\n```diff\n-gone\n```\n" +
		"\n## PAIR_ONE_USER (server)\n" + good + "## PAIR_ONE_USER (daemon)\n\n" + good + "\n## F08\n\nWords.\n\n" + good + "\n## CA\n" + good
	proofs, problems := parse(listFile, text)
	if len(problems) > 0 {
		t.Fatal(errors.Join(problems...))
	}
	var got []string
	for _, p := range proofs {
		got = append(got, p.id+" "+string(p.by))
	}
	if want := []string{"CLAIM_ATOMIC server", "PAIR_ONE_USER server", "PAIR_ONE_USER daemon", "F08 ", "CA "}; !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
	first, second := proofs[0].mutations[0], proofs[0].mutations[1]
	if first.name() != "CLAIM_ATOMIC: It breaks" || first.where() != listFile+":13" || first.why != "Because it is so." || first.file != "a.go" ||
		first.target != (target{pkg: "./pkg", pattern: "TestA"}) {
		t.Errorf("read %+v", first)
	}
	if !slices.Equal(first.old, []string{"one", "two", "", "four"}) || !slices.Equal(first.new, []string{"one", "three", "", "four"}) {
		t.Errorf("%q becomes %q", first.old, first.new)
	}
	if second.target != (target{"./b", "^TestB$/^c|d$", 20 * time.Second}) || !slices.Equal(second.old, []string{"gone"}) || len(second.new) > 0 {
		t.Errorf("read %+v", second)
	}
}

// TestParseRefuses has a fault in each text.
func TestParseRefuses(t *testing.T) {
	swap := func(old, new string) string {
		if strings.Count(good, old) != 1 {
			t.Fatalf("%q is not once in the good entry", old)
		}
		return head + strings.Replace(good, old, new, 1)
	}
	for name, c := range map[string]struct{ text, want string }{
		"an empty list":            {"", "proves nothing"},
		"prose alone":              {"# A list\n\n```\n## CLAIM_ATOMIC\n```\n", "proves nothing"},
		"no mutation":              {head, "has no mutation"},
		"no mutation, then one":    {head + "## TTL_EXPIRY\n\n" + good, "CLAIM_ATOMIC by the server has no mutation"},
		"no id":                    {head + good + "\n## Other things\n", "a heading is"},
		"an id that is none":       {head + good + "\n## MADE_UP\n\n" + good, "name no MADE_UP"},
		"a family that is none":    {head + good + "\n## F80\n\n" + good, "name no F80"},
		"the family before all":    {head + good + "\n## F00\n\n" + good, "name no F00"},
		"a part that is none":      {head + good + "\n## Shop\n\n" + good, "name no Shop"},
		"a half of a family":       {head + good + "\n## F08 (server)\n\n" + good, "F08 is no MUST"},
		"a family in part":         {head + good + "\n## F08, in part\n\nSo.\n\n" + good, "F08 is no MUST"},
		"a family twice":           {head + good + "\n## F08\n\n" + good + "\n## F08\n\n" + good, "F08 is there twice"},
		"no mutation of a family":  {head + good + "\n## F08\n", "F08 has no mutation"},
		"a retired id":             {head + good + "\n## RESULT_PROVENANCE\n\n" + good, "name no RESULT_PROVENANCE"},
		"an id twice":              {head + good + "\n## CLAIM_ATOMIC\n\n" + good, "there twice"},
		"whose half":               {head + good + "\n## PAIR_ONE_USER\n\n" + good, "whose half"},
		"a half of what has none":  {head + good + "\n## TTL_EXPIRY (server)\n\n" + good, "names nobody"},
		"a part that is not named": {head + good + "\n## TTL_EXPIRY, in part\n\n" + good, "which part of TTL_EXPIRY"},
		"a half that is none":      {head + good + "\n## PAIR_ONE_USER (relay)\n\n" + good, "a heading is"},
		"a title twice":            {head + good + good, "It breaks is there twice"},
		"a title without text":     {swap("### It breaks", "### "), "is called by"},
		"a deeper heading":         {swap("### It breaks", "#### It breaks"), "here a mutation begins"},
		"no reason":                {swap(why, ""), "says why"},
		"a reason cut short":       {swap("so.", "so"), "says why"},
		"no place":                 {swap(place, ""), "In `FILE`, seen by"},
		"no package":               {swap("./pkg", "pkg"), "In `FILE`, seen by"},
		"a pattern of two words":   {swap("TestA", "Test A"), "In `FILE`, seen by"},
		"another flag":             {swap("TestA", "TestA -race"), "In `FILE`, seen by"},
		"a timeout too short":      {swap("TestA", "TestA -timeout 1s"), "the timeout"},
		"a timeout too long":       {swap("TestA", "TestA -timeout 1h"), "the timeout"},
		"a timeout that is none":   {swap("TestA", "TestA -timeout 20"), "the timeout"},
		"no block":                 {swap(diff, ""), "```diff"},
		"a block of something":     {swap("```diff", "```go"), "```diff"},
		"a block without an end":   {swap(" four\n```\n", " four\n"), "has no end"},
		"a line with no mark":      {swap(" one", "one"), "begins with"},
		"nothing changes":          {swap("-two\n+three\n", " two\n"), "replaces nothing"},
		"nothing is replaced":      {swap(" one\n-two\n+three\n\n four\n", "+three\n"), "replaces nothing"},
		"more behind the block":    {head + good + "\nAnd so on.\n", "nothing but a heading"},
		"two blocks":               {head + good + diff, "nothing but a heading"},
		"a mutation before a MUST": {"## Nothing\n" + good, "stands under no duty"},
	} {
		_, problems := parse(listFile, c.text)
		if err := errors.Join(problems...); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), listFile) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	// One fault hides no other, and what follows is read.
	_, problems := parse(listFile, swap("so.", "so")+strings.Replace(good, "./pkg", "pkg", 1)+"\n## TTL_EXPIRY\n\n"+good)
	if len(problems) != 3 { // and CLAIM_ATOMIC is left without one
		t.Errorf("%d problems: %v", len(problems), problems)
	}
}

func TestApply(t *testing.T) {
	lines := func(s string) []string {
		if s == "" {
			return nil
		}
		return strings.Split(s, ",")
	}
	for _, c := range []struct{ source, old, new, want, refused string }{
		{"a\nb\nc\n", "b", "x", "a\nx\nc\n", ""},
		{"a\nb\nc\n", "a", "x,y", "x\ny\nb\nc\n", ""},
		{"a\nb\nc\n", "c", "x", "a\nb\nx\n", ""},
		{"a\nb\nc\n", "a,b,c", "", "", ""},
		{"a\nb\nc\n", "b", "", "a\nc\n", ""},
		{"a\nab\nb\n", "a", "x", "x\nab\nb\n", ""}, // whole lines
		{"a\nb\na\nc\n", "a,c", "x", "a\nb\nx\n", ""},
		{"a\nb\n", "c", "x", "", "not in"},
		{"ab\n", "a", "x", "", "not in"},
		{"a\n b\n", "b", "x", "", "not in"}, // white space counts
		{"a\nb\na\n", "a", "x", "", "more than once"},
		{"a\na\na\n", "a,a", "x", "", "more than once"}, // also where the two overlap
		{"", "a", "x", "", "not in"},
	} {
		got, err := mutation{file: "f.go", old: lines(c.old), new: lines(c.new)}.apply(c.source)
		switch {
		case c.refused == "" && (err != nil || got != c.want):
			t.Errorf("%q with %q for %q: %q, %v", c.source, c.new, c.old, got, err)
		case c.refused != "" && (err == nil || got != "" || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%q with %q for %q: %q, %v, want %q", c.source, c.new, c.old, got, err, c.refused)
		}
	}
}

// fixture is a module with a function, its tests and a list of mutations.
func fixture(t *testing.T, list string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"go.mod":            "module example.test/fixture\n\ngo 1.26\n",
		"a/a.go":            "package a\n\n// Add adds.\nfunc Add(a, b int) int {\n\treturn a + b\n}\n\n// Name is a name.\nfunc Name() string {\n\treturn \"a\"\n}\n",
		"a/wait_test.go":    "package a\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestWaits(t *testing.T) {\n\tif Add(1, 2) != 3 {\n\t\tselect {}\n\t}\n}\n\nfunc TestLeaves(t *testing.T) {\n\tif Add(1, 2) != 3 {\n\t\tos.Exit(3)\n\t}\n}\n",
		"a/a_test.go":       "package a\n\nimport \"testing\"\n\nfunc TestAdd(t *testing.T) {\n\tt.Run(\"small\", func(t *testing.T) {\n\t\tif Add(1, 2) != 3 {\n\t\t\tt.Error(\"wrong\")\n\t\t}\n\t})\n}\n\nfunc TestRed(t *testing.T) { t.Error(\"always\") }\n",
		"a/suitetest/s.go":  "package suitetest\n",
		"b/b_test.go":       "package b\n\nimport (\n\t\"testing\"\n\n\t\"example.test/fixture/a\"\n)\n\nfunc TestName(t *testing.T) {\n\tif a.Name() != \"a\" {\n\t\tt.Error(\"wrong\")\n\t}\n}\n",
		"test/mutations.md": list,
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func entry(title, file, pkg, run, diff string) string {
	return "### " + title + "\n\nWhy.\n\nIn `" + file + "`, seen by `go test ./" + pkg + " -run " + run + "`:\n\n```diff\n" + diff + "\n```\n"
}

const (
	minus = "-\treturn a + b\n+\treturn a - b"
	named = "-\treturn \"a\"\n+\treturn \"b\""
)

func TestProve(t *testing.T) {
	dir := fixture(t, "## CLAIM_ATOMIC\n"+
		entry("killed", "a/a.go", "a", "TestAdd/small", minus)+
		entry("killed from elsewhere", "a/a.go", "b", "TestName", named)+
		"## TTL_EXPIRY\n"+
		entry("survives", "a/a.go", "a", "TestAdd", named)+
		entry("does not compile", "a/a.go", "a", "TestAdd", "-\treturn a + b\n+\treturn c")+
		entry("is killed all the same", "a/a.go", "a", "TestAdd/small", minus)+
		entry("without such a subtest", "a/a.go", "a", "TestAdd/large", minus)+
		entry("red anyway", "a/a.go", "a", "TestRed", minus)+
		entry("leaves", "a/a.go", "a", "TestLeaves", minus))
	before, err := os.ReadFile(filepath.Join(dir, "a", "a.go"))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), &out, dir, options{only: "CLAIM_ATOMIC"}); err != nil {
		t.Errorf("mutations that are noticed: %v\n%s", err, &out)
	}
	if !strings.Contains(out.String(), "2 mutations, 2 of them red") || strings.Contains(out.String(), "TTL_EXPIRY") {
		t.Errorf("printed\n%s", &out)
	}

	out.Reset()
	if err := run(t.Context(), &out, dir, options{}); err == nil || !strings.Contains(err.Error(), "5 mutations prove nothing") {
		t.Errorf("with mutations that prove nothing: %v", err)
	}
	table, details, _ := strings.Cut(out.String(), "\n\n")
	for title, want := range map[string]verdict{
		"killed": red, "killed from elsewhere": red, "is killed all the same": red, "survives": green, "does not compile": noBuild,
		"without such a subtest": noTest, "red anyway": already, "leaves": died,
	} {
		i := slices.IndexFunc(strings.Split(table, "\n"), func(line string) bool {
			return strings.Contains(line, ": "+title+" ") && strings.HasSuffix(line, "  "+string(want))
		})
		if i < 0 {
			t.Errorf("%s is not shown as %s", title, want)
		}
		if shown := strings.Contains(details, ": "+title+": "); shown != (want != red) {
			t.Errorf("%s: details %v", title, shown)
		}
	}
	if !strings.Contains(details, "undefined: c") || !strings.Contains(details, "8 mutations, 3 of them red") {
		t.Errorf("printed\n%s", &out)
	}
	if t.Failed() {
		t.Logf("printed\n%s", &out)
	}

	if err := run(t.Context(), &out, dir, options{only: "PAIR_ONE_USER"}); err == nil {
		t.Error("a MUST without a mutation is proved")
	}
	after, err := os.ReadFile(filepath.Join(dir, "a", "a.go"))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file was changed: %v\n%s", err, after)
	}
}

// TestTimeouts holds that running out of time is red only where the list says so.
func TestTimeouts(t *testing.T) {
	dir := fixture(t, "")
	m := mutation{file: "a/a.go", old: []string{"\treturn a + b"}, new: []string{"\treturn a - b"}, target: target{"./a", "TestWaits", 200 * time.Millisecond}}
	if o := m.try(t.Context(), dir, filepath.Join(t.TempDir(), "1")); o.verdict != late {
		t.Errorf("with a timeout of its own: %s\n%s", o.verdict, o.output)
	}
	joint := newMerger(dir)
	if !joint.add(7, m) {
		t.Fatal("it cannot be compiled with others")
	}
	overlay, err := writeOverlay(dir, filepath.Join(t.TempDir(), "2"), joint.texts())
	if err != nil {
		t.Fatal(err)
	}
	b := build(t.Context(), dir, "./a", overlay, filepath.Join(t.TempDir(), "3"))
	if o := m.target.run(t.Context(), b, "7"); o.verdict != stuck {
		t.Errorf("without one: %s\n%s", o.verdict, o.output)
	}
	m.target.timeout = time.Minute // it needs less, but this may be a busy machine
	if o := m.target.run(t.Context(), b, ""); o.verdict != green {
		t.Errorf("unchanged: %s\n%s", o.verdict, o.output)
	}
}

// TestRot holds that a list which does not fit its module is refused before
// anything runs, with the entry's name, also when it is only to be printed.
func TestRot(t *testing.T) {
	for name, c := range map[string]struct{ entry, want string }{
		"the text is gone":        {entry("x", "a/a.go", "a", "TestAdd", "-\treturn b + a\n+\treturn 1"), "not in a/a.go any more"},
		"the text is there twice": {entry("x", "a/a.go", "a", "TestAdd", "-}\n+}}"), "more than once"},
		"the new text is no Go":   {entry("x", "a/a.go", "a", "TestAdd", "-\treturn a + b\n+\treturn a +"), "no Go"},
		"the file is gone":        {entry("x", "a/b.go", "a", "TestAdd", minus), "no file a/b.go"},
		"the file is outside":     {entry("x", "../a.go", "a", "TestAdd", minus), "top of the module"},
		"the file has two names":  {entry("x", "a/../a/a.go", "a", "TestAdd", minus), "top of the module"},
		"a test is changed":       {entry("x", "a/a_test.go", "a", "TestAdd", "-\t\t\tt.Error(\"wrong\")\n+\t\t\tt.Log(\"wrong\")"), "change of the test"},
		"a suite is changed":      {entry("x", "a/suitetest/s.go", "a", "TestAdd", "-package suitetest\n+package x"), "change of the test"},
		"the test is gone":        {entry("x", "a/a.go", "a", "TestSubtract", minus), "./a has no test TestSubtract"},
		"the package is gone":     {entry("x", "a/a.go", "c", "TestAdd", minus), "./c has no test TestAdd"},
		"the pattern is none":     {entry("x", "a/a.go", "a", "Test(", minus), "no pattern"},
	} {
		var out bytes.Buffer
		for _, o := range []options{{}, {list: true}} {
			err := run(t.Context(), &out, fixture(t, "## CLAIM_ATOMIC\n"+c.entry), o)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), listFile+":2: CLAIM_ATOMIC: x: ") || out.Len() > 0 {
				t.Errorf("%s: %v, want %q\n%s", name, err, c.want, &out)
			}
		}
	}
	if err := run(t.Context(), &bytes.Buffer{}, t.TempDir(), options{list: true}); err == nil {
		t.Error("a module without a list is fine")
	}
}

func TestMissing(t *testing.T) {
	var out bytes.Buffer
	one := entry("x", "a/a.go", "a", "TestAdd", minus)
	list := "## CLAIM_ATOMIC\n" + one + "## PAIR_ONE_USER (server)\n" + one + "## FALLBACK_LABELED (daemon), in part\n\nThe rest comes later.\n\n" + one + "## F08\n" + one + "## CA\n" + one
	if err := run(t.Context(), &out, fixture(t, list), options{list: true}); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for want, is := range map[string]bool{
		" 2 proved ": true, "CLAIM_ATOMIC by": false, "PAIR_ONE_USER by the server": false, "PAIR_ONE_USER by the daemon": true,
		"TTL_EXPIRY by the server": true, "in part: FALLBACK_LABELED by the daemon Not proved yet:": true, "for a test: RELAY_BLIND by the server": true,
		"2 families and parts have changes: F08 CA": true, "by the Of": false,
	} {
		if strings.Contains(text, want) != is {
			t.Errorf("%q is there: %v\n%s", want, !is, &out)
		}
	}
	both := 0
	for _, m := range must.All() {
		if m.EnforcedBy == must.Both {
			both++
		}
	}
	if got := len(duties()); got != len(must.All())+both || both == 0 {
		t.Errorf("%d duties", got)
	}
}

func TestReport(t *testing.T) {
	const run = mark + "=== RUN   TestA\n" + mark + "=== RUN   TestA/b\n"
	const timeout = "panic: test timed out after 1s\n"
	for name, c := range map[string]struct {
		text    string
		ok      bool
		slashes int
		want    verdict
	}{
		"passed":                   {run, true, 1, green},
		"passed without a subtest": {run, true, 2, noTest},
		"passed without a test":    {"", true, 0, noTest},
		"failed":                   {run + mark + "    --- FAIL: TestA/b (0.00s)\n", false, 1, red},
		"failed behind a print":    {run + "printed" + mark + "--- FAIL: TestA (0.00s)\n", false, 1, red},
		"failed, then out of time": {run + mark + "--- FAIL: TestA (0.00s)\n" + timeout, false, 1, red},
		"out of time":              {run + timeout, false, 1, stuck},
		"printed as if it failed":  {run + "--- FAIL: TestA (0.00s)\nFAIL\n", false, 1, died},
		"printed as if it ran":     {"=== RUN   TestA\n", true, 0, noTest},
		"left":                     {run, false, 1, died},
	} {
		r := readReport(strings.NewReader(c.text))
		if got := r.verdict(c.ok, c.slashes); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if strings.Contains(r.tail, mark) {
			t.Errorf("%s: the mark is shown", name)
		}
	}
	r := readReport(strings.NewReader("here\n" + strings.Repeat("x\n", 2*maxTail) + "end"))
	if len(r.tail) != maxTail || !strings.HasPrefix(r.tail, "...") || !strings.HasSuffix(r.tail, "x\nend") {
		t.Errorf("%d bytes are kept", len(r.tail))
	}
}

// TestMerge has functions of each form, and changes that can and cannot be compiled with others.
func TestMerge(t *testing.T) {
	const source = `package a

import "errors"

var table = []int{1, 2}

type box[T any] struct{ v T }

func (b *box[T]) get(more ...T) (v T, err error) {
	if len(more) > 0 {
		return b.v, errors.New("x") // what
	}
	return b.v, nil
}

func of[T, U any](v T, u U) box[T] { return box[T]{v} }

func (b *box[T]) set(v T) {
	b.v = v
}

func unnamed(int) int { return 1 }

func blank(_ int) int { return 1 }

func init() { table[0]++ }
`
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	joint := newMerger(dir)
	for i, c := range []struct {
		old, new string
		want     bool
	}{
		{"\t\treturn b.v, errors.New(\"x\") // what", "\t\treturn b.v, nil", true},
		{"\tif len(more) > 0 {", "\tif len(more) > 1 {", true},
		{"\tb.v = v", "", true},
		{"func of[T, U any](v T, u U) box[T] { return box[T]{v} }", "func of[T, U any](v T, u U) box[T] { return box[T]{} }", true},
		{"func unnamed(int) int { return 1 }", "func unnamed(int) int { return 2 }", false},
		{"func blank(_ int) int { return 1 }", "func blank(_ int) int { return 2 }", false},
		{"func init() { table[0]++ }", "func init() { table[1]++ }", false},
		{"var table = []int{1, 2}", "var table = []int{1, 3}", false},
		{"func (b *box[T]) set(v T) {", "func (b *box[T]) set(v T) (err error) {", false},
		{"\tb.v = v", "\tb.v = v\n}\nfunc more() {", false},
	} {
		m := mutation{file: "a.go", old: strings.Split(c.old, "\n"), new: strings.Split(c.new, "\n")}
		if got := joint.add(i, m); got != c.want {
			t.Errorf("%d can be compiled with others: %v", i, got)
		}
	}
	texts := joint.texts()
	if len(texts) != 2 || !strings.HasPrefix(texts["zz_mutation.go"], "package a\n") {
		t.Errorf("files %v", texts)
	}
	text := texts["a.go"]
	for _, want := range []string{
		"(v T, err error) { if mutation__ == \"0\" { return b.mutation__0_get(more...) }; if mutation__ == \"1\" { return b.mutation__1_get(more...) };\n\tif len(more) > 0 {\n",
		"set(v T) { if mutation__ == \"2\" { b.mutation__2_set(v); return };\n\tb.v = v\n}\n",
		"{ if mutation__ == \"3\" { return mutation__3_of[T, U](v, u) }; return box[T]{v} }\n",
		"\n//line mutation-0:1\nfunc (b *box[T]) mutation__0_get(more ...T) (v T, err error) {\n\tif len(more) > 0 {\n\t\treturn b.v, nil\n\t}\n\treturn b.v, nil\n}\n",
		"\n//line mutation-1:1\nfunc (b *box[T]) mutation__1_get(more ...T) (v T, err error) {\n\tif len(more) > 1 {\n\t\treturn b.v, errors.New(\"x\") // what\n",
		"\n//line mutation-2:1\nfunc (b *box[T]) mutation__2_set(v T) {\n\n}\n",
		"\n//line mutation-3:1\nfunc mutation__3_of[T, U any](v T, u U) box[T] { return box[T]{} }\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("without\n%s", want)
		}
	}
	if got := guilty("# a\n../mutation-12:3:4: undefined: x\nmutation-7:1:1: no\nmutation-12:9:9: no\na.go:1: no\n"); !slices.Equal(got, []int{12, 7}) {
		t.Errorf("guilty are %v", got)
	}
	if strings.Count(text, "mutation__ ==") != 4 || t.Failed() {
		t.Errorf("the merged text is\n%s", text)
	}
}
