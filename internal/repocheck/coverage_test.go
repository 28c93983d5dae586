package repocheck

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/catalog"
)

// coverageRows are how many rows the zone contract has, Z01 to Z120.
const coverageRows = 120

var (
	coverageRow  = regexp.MustCompile(`^\| (Z\d{2,3}) \| ([^|]+) \| (works|works in part|refused|not yet) \| ([^|]+) \|$`)
	coverageTest = regexp.MustCompile("`([a-z./-]+): (Test[A-Za-z0-9_]+)`")
	coverageKind = regexp.MustCompile("`([a-z-]+)`")
)

// checkCoverage finds what is wrong with the list of what the zone contract asks for: each row is there once
// and in order, what works names a test, and what is refused names its refusal.
func checkCoverage(text string, hasTest func(dir, name string) bool, hasKind func(name string) bool) (problems []string) {
	next := 1
	for _, line := range strings.Split(text, "\n") {
		if !strings.HasPrefix(line, "| Z") {
			continue
		}
		m := coverageRow.FindStringSubmatch(line)
		if m == nil {
			problems = append(problems, "this is no row: "+line)
			continue
		}
		id, state, proof := m[1], m[3], m[4]
		if want := fmt.Sprintf("Z%02d", next); id != want {
			problems = append(problems, id+" stands where "+want+" should")
		}
		n, _ := strconv.Atoi(id[1:])
		next = n + 1
		switch state {
		case "works", "works in part":
			tests := coverageTest.FindAllStringSubmatch(proof, -1)
			if len(tests) == 0 {
				problems = append(problems, id+" names no test")
			}
			for _, test := range tests {
				if !hasTest(test[1], test[2]) {
					problems = append(problems, id+": there is no "+test[1]+": "+test[2])
				}
			}
		case "refused":
			kinds := coverageKind.FindAllStringSubmatch(proof, -1)
			if len(kinds) == 0 {
				problems = append(problems, id+" names no refusal")
			}
			for _, kind := range kinds {
				if !hasKind(kind[1]) {
					problems = append(problems, id+": there is no refusal "+kind[1])
				}
			}
		}
	}
	if next != coverageRows+1 {
		problems = append(problems, fmt.Sprintf("the rows end before Z%02d", next))
	}
	return problems
}

func TestZoneCoverageIsTrue(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "zone-coverage.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{}
	hasTest := func(dir, name string) bool {
		if _, read := tests[dir]; !read {
			files, _ := filepath.Glob(filepath.Join(root, filepath.FromSlash(dir), "*_test.go"))
			for _, f := range files {
				src, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				tests[dir] += string(src)
			}
		}
		return strings.Contains(tests[dir], "\nfunc "+name+"(t *testing.T)")
	}
	hasKind := func(name string) bool {
		for _, register := range catalog.All() {
			if register.Find(name) != nil {
				return true
			}
		}
		return false
	}
	report(t, rule{
		"docs/zone-coverage.md does not tell the truth about the zone contract.",
		"it is where an operator reads what they can rely on",
		"name the test that proves a row, or say that it does not work yet",
	}, checkCoverage(string(text), hasTest, hasKind))
}

func TestZoneCoverageControl(t *testing.T) {
	rows := func(change map[int]string) string {
		var lines []string
		for i := 1; i <= coverageRows; i++ {
			line := fmt.Sprintf("| Z%02d | something | not yet | |", i)
			line = strings.Replace(line, "| |", "| later |", 1)
			if c, ok := change[i]; ok {
				line = c
			}
			lines = append(lines, line)
		}
		return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return l == "" }), "\n")
	}
	check := func(change map[int]string) []string {
		return checkCoverage(rows(change),
			func(dir, name string) bool { return dir == "wire/zone/canon" && name == "TestF05Digest" },
			func(name string) bool { return name == "zone-not-built" })
	}
	mustFind(t, check(nil))
	mustFind(t, check(map[int]string{
		9:  "| Z09 | canonical | works | `wire/zone/canon: TestF05Digest` |",
		10: "| Z10 | network | refused | `zone-not-built` |",
	}))
	mustFind(t, check(map[int]string{
		1: "| Z01 | a | works | trust us |",
		2: "| Z02 | a | works | `wire/zone/canon: TestGone` |",
		3: "| Z03 | a | refused | politely |",
		4: "| Z04 | a | refused | `no-such-name` |",
		5: "| Z05 | a | perhaps | x |",
		7: "| Z07 | a | works in part | x |",
	}), "Z01 names no test", "Z02: there is no wire/zone/canon: TestGone", "Z03 names no refusal", "Z04: there is no refusal no-such-name", "this is no row: | Z05", "Z06 stands where Z05", "Z07 names no test")
	mustFind(t, check(map[int]string{120: ""}), "the rows end before Z120")
	mustFind(t, check(map[int]string{50: ""}), "Z51 stands where Z50")
}
