package main

import (
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/allodhq/allod/wire/ai/must"
)

// A proof is the mutations of one duty: of a MUST of the AI contract, or of what the zone has.
type proof struct {
	id        string        // of a MUST, of a family of the zone contract, or a part's name
	by        must.Enforcer // server or daemon; empty for what is no MUST
	part      bool          // what it proves is not all of the duty
	mutations []mutation
}

func (p proof) name() string {
	if p.by == "" {
		return p.id
	}
	return p.id + " by the " + string(p.by)
}

// A mutation is one change of the code and the test that must notice it.
type mutation struct {
	list  string // the file that lists it
	id    string // of its proof
	title string // what the change does
	why   string // why the duty is broken by it
	line  int    // of the title in the list

	file     string // from the top of the module, in slashes
	old, new []string
	target   target
}

// A target is the test that must turn red.
type target struct {
	pkg     string // as the go command takes it, from the top of the module
	pattern string // for -run
	// timeout is zero, or after how long the test counts as red.
	timeout time.Duration
}

// Bounds of a mutation's own timeout: below, a loaded machine would fail it; above, it costs too much.
const (
	minTimeout = 5 * time.Second
	maxTimeout = time.Minute
)

// parts are what the zone stands on and no family of its contract names.
var parts = []string{"CA", "Carrier", "Console", "Store"}

var (
	dutyForm   = regexp.MustCompile(`^## (\w+)(?: \((server|daemon)\))?(, in part)?$`)
	familyForm = regexp.MustCompile(`^F(?:0[1-9]|[1-7][0-9])$`)
	placeForm  = regexp.MustCompile("^In `([^`]+)`, seen by `go test (\\./[A-Za-z0-9_./-]+) -run ([^` ]+)(?: -timeout ([0-9a-z.]+))?`:$")
)

// parse reads a list, which is called by its file. What stands before the first duty is for people. It
// returns all problems, each with its line.
func parse(file, text string) (proofs []proof, problems []error) {
	r := reader{file: file, lines: strings.Split(strings.TrimSuffix(text, "\n"), "\n")}
	r.intro()
	for !r.done() {
		err := r.duty(&proofs)
		if err != nil {
			problems = append(problems, err)
			r.next++ // past the line that cannot be read, so that this ends
			r.skip(func(line string) bool { return !strings.HasPrefix(line, "## ") && !strings.HasPrefix(line, "### ") })
		}
	}
	if len(proofs) == 0 && len(problems) == 0 {
		problems = append(problems, fmt.Errorf("%s proves nothing", file))
	}
	for _, p := range proofs {
		if len(p.mutations) == 0 {
			problems = append(problems, fmt.Errorf("%s: %s has no mutation", file, p.name()))
		}
	}
	return proofs, problems
}

// A reader walks over the lines of the list.
type reader struct {
	file  string
	lines []string
	next  int // the line that is looked at, from 0
}

func (r *reader) done() bool { return r.next >= len(r.lines) }

func (r *reader) line() string {
	if r.done() {
		return ""
	}
	return r.lines[r.next]
}

func (r *reader) skip(while func(line string) bool) {
	for !r.done() && while(r.line()) {
		r.next++
	}
}

func (r *reader) blank() { r.skip(func(line string) bool { return line == "" }) }

func (r *reader) wrong(what string) error { return fmt.Errorf("%s: %s", at(r.file, r.next+1), what) }

// intro passes the text before the first duty. A block of code in it may show what a duty looks like.
func (r *reader) intro() {
	fence := ""
	r.skip(func(line string) bool {
		switch marks := line[:len(line)-len(strings.TrimLeft(line, "`"))]; {
		case fence == "" && len(marks) >= 3:
			fence = marks
		case fence != "" && marks == line && len(marks) >= len(fence):
			fence = ""
		}
		return fence != "" || !strings.HasPrefix(line, "## ")
	})
}

// duty reads a heading with what belongs to it: a duty, or a mutation of the one above.
func (r *reader) duty(proofs *[]proof) error {
	if strings.HasPrefix(r.line(), "### ") {
		if len(*proofs) == 0 {
			return r.wrong("this mutation stands under no duty")
		}
		p := &(*proofs)[len(*proofs)-1]
		m, err := r.mutation(p.id)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(p.mutations, func(other mutation) bool { return other.title == m.title }) {
			return fmt.Errorf("%s: %s is there twice", m.where(), m.name())
		}
		p.mutations = append(p.mutations, m)
		return nil
	}
	p, err := readDuty(r.line())
	if err != nil {
		return r.wrong(err.Error())
	}
	if slices.ContainsFunc(*proofs, func(other proof) bool { return other.id == p.id && other.by == p.by }) {
		return r.wrong(p.id + " is there twice")
	}
	*proofs = append(*proofs, p)
	r.next++
	// What follows the heading is for people.
	if r.blank(); p.part && (r.line() == "" || r.line()[0] == '#') {
		return r.wrong("before this stands which part of " + p.id + " is not proved")
	}
	r.skip(func(line string) bool { return !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "```") })
	if !r.done() && !strings.HasPrefix(r.line(), "## ") && !strings.HasPrefix(r.line(), "### ") {
		return r.wrong(`here a mutation begins: "### What it changes"`)
	}
	return nil
}

// readDuty reads the heading of a duty.
func readDuty(line string) (p proof, err error) {
	found := dutyForm.FindStringSubmatch(line)
	if found == nil {
		return p, errors.New(`a heading is "## MUST_ID", "## MUST_ID (server)" or "## MUST_ID (daemon)", or such a one with ", in part" behind it, or "## F01" to "## F79", or "## PART"`)
	}
	p = proof{id: found[1], by: must.Enforcer(found[2]), part: found[3] != ""}
	if familyForm.MatchString(p.id) || slices.Contains(parts, p.id) {
		if p.by != "" || p.part {
			return p, errors.New(p.id + " is no MUST, so its heading names nobody and no part")
		}
		return p, nil
	}
	i := slices.IndexFunc(must.All(), func(m must.Must) bool { return m.ID == p.id })
	if i < 0 {
		return p, errors.New("the contracts name no " + p.id)
	}
	by := must.All()[i].EnforcedBy
	switch both := by == must.Both; {
	case both && p.by == "":
		return p, errors.New(p.id + " is kept by both, so its heading says whose half this is: (server) or (daemon)")
	case !both && p.by != "":
		return p, errors.New(p.id + " is kept by the " + string(by) + " alone, so its heading names nobody")
	case !both:
		p.by = by
	}
	return p, nil
}

// paragraph reads lines up to a blank one and joins them.
func (r *reader) paragraph() string {
	r.blank()
	start := r.next
	r.skip(func(line string) bool {
		return line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "```")
	})
	return strings.Join(r.lines[start:r.next], " ")
}

func (r *reader) mutation(id string) (mutation, error) {
	m := mutation{list: r.file, id: id, title: strings.TrimPrefix(r.line(), "### "), line: r.next + 1}
	if strings.TrimSpace(m.title) != m.title || m.title == "" {
		return m, r.wrong("a mutation is called by what it changes")
	}
	r.next++
	if m.why = r.paragraph(); !strings.HasSuffix(m.why, ".") || strings.HasPrefix(m.why, "In `") {
		return m, r.wrong("before this stands a sentence that says why the duty is broken")
	}
	place := r.paragraph()
	found := placeForm.FindStringSubmatch(place)
	if found == nil {
		return m, r.wrong("before this stands: In `FILE`, seen by `go test ./PACKAGE -run PATTERN`:")
	}
	m.file, m.target.pkg, m.target.pattern = found[1], found[2], strings.Trim(found[3], "'")
	if found[4] != "" {
		d, err := time.ParseDuration(found[4])
		if err != nil || d < minTimeout || d > maxTimeout {
			return m, r.wrong(fmt.Sprintf("the timeout above is no time of %s to %s", minTimeout, maxTimeout))
		}
		m.target.timeout = d
	}
	r.blank()
	if r.line() != "```diff" {
		return m, r.wrong("here a block of code begins: ```diff")
	}
	return m, r.diff(&m)
}

// diff reads whole lines: "-" before one that goes, "+" before one that comes, " " before one that stays.
func (r *reader) diff(m *mutation) error {
	for r.next++; ; r.next++ {
		line := r.line()
		switch {
		case r.done():
			return r.wrong("the block of code has no end")
		case line == "```":
			if len(m.old) == 0 || slices.Equal(m.old, m.new) {
				return r.wrong("the block above replaces nothing")
			}
			r.next++
			r.blank()
			if line := r.line(); !r.done() && !strings.HasPrefix(line, "## ") && !strings.HasPrefix(line, "### ") {
				return r.wrong("nothing but a heading follows a block of code")
			}
			return nil
		case line == "":
			m.old, m.new = append(m.old, ""), append(m.new, "")
		case line[0] == ' ':
			m.old, m.new = append(m.old, line[1:]), append(m.new, line[1:])
		case line[0] == '-':
			m.old = append(m.old, line[1:])
		case line[0] == '+':
			m.new = append(m.new, line[1:])
		default:
			return r.wrong(`a line of the block begins with "-", "+" or a space`)
		}
	}
}

// apply makes the change in a text.
func (m mutation) apply(source string) (string, error) {
	// Whole lines are compared, and each begins behind the end of another.
	source = "\n" + source
	old := "\n" + strings.Join(m.old, "\n") + "\n"
	at := strings.Index(source, old)
	if at < 0 {
		return "", errors.New("the old text is not in " + m.file + " any more")
	}
	if strings.Contains(source[at+1:], old) {
		return "", errors.New("the old text is in " + m.file + " more than once; add lines around it")
	}
	var b strings.Builder
	b.WriteString(source[1 : at+1])
	for _, line := range m.new {
		b.WriteString(line + "\n")
	}
	b.WriteString(source[at+len(old):])
	return b.String(), nil
}

// check finds mutations that do not fit the files of a module: a list that nobody runs must not rot
// unseen. It compiles nothing.
func check(root string, proofs []proof) (problems []error) {
	tests := tests{root: root, of: map[string][]string{}}
	for _, p := range proofs {
		for _, m := range p.mutations {
			if err := m.fits(root, tests); err != nil {
				problems = append(problems, fmt.Errorf("%s: %s: %w", m.where(), m.name(), err))
			}
		}
	}
	return problems
}

func (m mutation) fits(root string, tests tests) error {
	mutated, err := m.mutate(root)
	if err != nil {
		return err
	}
	if strings.HasSuffix(m.file, ".go") {
		if _, err := parser.ParseFile(token.NewFileSet(), m.file, mutated, parser.SkipObjectResolution); err != nil {
			return fmt.Errorf("the new text is no Go: %w", err)
		}
	}
	return m.target.exists(tests)
}

// mutate reads the file and makes the change.
func (m mutation) mutate(root string) (string, error) {
	switch {
	case !filepath.IsLocal(filepath.FromSlash(m.file)) || path.Clean(m.file) != m.file:
		return "", errors.New("the file is not named from the top of the module")
	case strings.HasSuffix(m.file, "_test.go") || strings.HasSuffix(path.Dir(m.file), "test"):
		return "", errors.New("a change of the test proves nothing")
	}
	source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.file)))
	if err != nil {
		return "", errors.New("there is no file " + m.file)
	}
	return m.apply(string(source))
}

var testForm = regexp.MustCompile(`(?m)^func (Test\w*)\(`)

// tests are the names of the tests of packages. Each package is read once.
type tests struct {
	root string
	of   map[string][]string
}

func (t tests) in(pkg string) ([]string, error) {
	if names, ok := t.of[pkg]; ok {
		return names, nil
	}
	files, err := filepath.Glob(filepath.Join(t.root, filepath.FromSlash(pkg), "*_test.go"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, found := range testForm.FindAllSubmatch(text, -1) {
			names = append(names, string(found[1]))
		}
	}
	t.of[pkg] = names
	return names, nil
}

// exists looks for a test that the pattern names. Whether it has the subtests is seen when it runs.
func (t target) exists(tests tests) error {
	top, _, _ := strings.Cut(t.pattern, "/")
	pattern, err := regexp.Compile(top)
	if err != nil {
		return fmt.Errorf("-run %s is no pattern", t.pattern)
	}
	names, err := tests.in(t.pkg)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(names, pattern.MatchString) {
		return fmt.Errorf("%s has no test %s", t.pkg, top)
	}
	return nil
}
