package repocheck

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The needles are put together from pieces, so that this file does not find itself.
var (
	// machinePath is a folder of one machine. It counts only at the start of a path:
	// a folder of that name inside the repository or in an address is fine.
	machinePath = regexp.MustCompile(`(?:^|[^A-Za-z0-9_.~/)}\-])(/` + `work/)`)

	// hosts are registries that a machine downloads from. The go command knows them itself.
	hosts = []string{
		"proxy" + ".golang.org",
		"registry" + ".npmjs.org",
		"deb" + ".debian.org",
	}

	// unfinished are marks of work that was left for later.
	unfinished = regexp.MustCompile(`\b(?:TO` + `DO|FIX` + `ME|X` + `XX)\b`)
)

// checkText finds traces of one machine in a file.
func checkText(name string, data []byte) (problems []string) {
	if bytes.IndexByte(data, 0) >= 0 {
		return nil // not a text
	}
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if m := machinePath.FindSubmatch(text); m != nil {
			problems = append(problems, fmt.Sprintf("%s:%d: %s...", name, line, m[1]))
		}
		for _, host := range hosts {
			if bytes.Contains(text, []byte(host)) {
				problems = append(problems, fmt.Sprintf("%s:%d: %s", name, line, host))
			}
		}
	}
	return problems
}

// checkUnfinished finds marks of unfinished work in comments of Go code.
// Outside of comments the same letters may be part of a pattern or of a name from a library.
func checkUnfinished(c codebase) (problems []string) {
	for _, s := range c.sources {
		for _, group := range s.file.Comments {
			for _, comment := range group.List {
				if mark := unfinished.FindString(comment.Text); mark != "" {
					problems = append(problems, fmt.Sprintf("%s: %s", c.at(comment), mark))
				}
			}
		}
	}
	return problems
}

func TestNoTracesOfOneMachine(t *testing.T) {
	var problems []string
	for _, name := range mustTracked(t) {
		problems = append(problems, checkText(name, readTracked(t, name))...)
	}
	report(t, rule{
		"These lines name a folder or a download host of one machine.",
		"the repository must build and read the same for everybody who clones it",
		"use a path from the top of the repository, and leave the choice of a registry to the user's settings",
	}, problems)
}

func TestNothingIsLeftForLater(t *testing.T) {
	c := codebase{fset: mustCode(t).fset, sources: slices.Clone(mustCode(t).sources)}
	for _, name := range mustTracked(t) {
		if strings.HasSuffix(name, "_test.go") && !inTestdata(name) {
			if err := c.add(name, readTracked(t, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	report(t, rule{
		"These comments leave work for later.",
		"a mark in the code is read by nobody who could plan the work, and tells users that we ship what we know to be unfinished",
		"do it now, open an issue, or say in plain words what the code does not do and why",
	}, checkUnfinished(c))
}

func TestTextControl(t *testing.T) {
	folder := "/wo" + "rk/"
	mustFind(t, checkText("a.txt", []byte(strings.Join([]string{
		folder + "main",            // 1
		`"` + folder + `x"`,        // 2
		"see=" + folder + "x",      // 3
		"docs" + folder + "x",      // 4, inside the repository
		"example.org" + folder,     // 5, an address
		"$HOME" + folder,           // 6, somebody's own folder
		"/wo" + "rker/x",           // 7, another folder
		"https://" + hosts[0] + "", // 8
		hosts[1] + " " + hosts[2],  // 9
	}, "\n"))),
		"a.txt:1: ", "a.txt:2: ", "a.txt:3: ", "a.txt:8: "+hosts[0], "a.txt:9: "+hosts[1], "a.txt:9: "+hosts[2])
	mustFind(t, checkText("a.bin", []byte("\x00"+folder)))

	mark := "TO" + "DO"
	mustFind(t, checkUnfinished(parse(t, map[string]string{
		"a/a.go": "package a\n// " + mark + ": later\n/* FIX" + "ME */\nvar x = \"" + mark + "\" // X" + "XX\n",
		"a/b.go": "package a\n// The " + mark + "S of others.\nvar c = context." + mark + "()\n",
	})), "a/a.go:2: ", "a/a.go:3: ", "a/a.go:4: ")
}

// TestCodeIsSeen makes sure that the lists of files hold what they should.
// Every test above would agree with an empty repository.
func TestCodeIsSeen(t *testing.T) {
	names := mustTracked(t)
	self := path.Join("internal", "repocheck", "text_test.go")
	for _, want := range []string{"go.mod", self, "key/doc.go"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not among the files of the repository", want)
		}
	}
	c := mustCode(t)
	if !slices.ContainsFunc(c.sources, func(s source) bool { return s.name == "key/doc.go" }) {
		t.Error("key/doc.go is not among the code")
	}
	if slices.ContainsFunc(c.sources, func(s source) bool { return inTestdata(s.name) || s.name == self }) {
		t.Error("tests or test data are among the code")
	}
}
