package repocheck

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the lists of modules in testdata anew")

// publicRoots are the packages that strangers import. What each of them links is in modules.txt.
// A package belongs to the first root that matches it, so a store is listed apart from what it serves.
// A root that has to exist fails when it is gone, since a list of nothing would always agree.
var publicRoots = []publicRoot{
	{"key", true},
	{"refusal", true},
	{"wire/...", true},
	{"site/postgres/...", false},
	{"site/sqlite/...", false},
	{"site/storetest/...", false},
	{"site/webhook/...", false},
	{"site/...", false},
	{"certify/...", true},
}

type publicRoot struct {
	pattern string
	exists  bool
}

// rootOf returns the root that a package belongs to, or nothing for one that is not public.
func rootOf(name string) string {
	for _, r := range publicRoots {
		if matches(r.pattern, name) {
			return r.pattern
		}
	}
	return ""
}

const publicHeader = `# The modules of others that our public packages link, on any system.
# Strangers who import the package take them on, so the list stays short.
# To change it: go test ./internal/repocheck -run TestModules -update
# Then say in the commit what the new module replaces.
`

const allodHeader = `# The modules of others that cmd/allod links, on any system.
# Whoever runs the binary trusts them, so a new one shows in review.
# To change it: go test ./internal/repocheck -run TestModules -update
# Then say in the commit what the new module replaces.
`

// linkedModules returns the modules of others that the chosen packages of ours link.
// The values are the systems on which they are linked.
func linkedModules(all map[string][]listed, chosen func(name string) bool) (modules map[string][]string, found bool) {
	modules = map[string][]string{}
	for _, goos := range systems {
		byPath := index(all[goos])
		for _, p := range all[goos] {
			name, ours := local(p.ImportPath)
			if !ours || !chosen(name) {
				continue
			}
			found = true
			for _, dep := range p.Deps {
				m := byPath[dep].Module
				if m == nil || m.Path == module {
					continue
				}
				if !slices.Contains(modules[m.Path], goos) {
					modules[m.Path] = append(modules[m.Path], goos)
				}
			}
		}
	}
	return modules, found
}

// lines writes the modules one a line, with the systems where they are not on all of them.
func lines(prefix string, modules map[string][]string) (out []string) {
	for _, m := range slices.Sorted(maps.Keys(modules)) {
		line := prefix + m
		if len(modules[m]) < len(systems) {
			line += " (" + strings.Join(modules[m], ", ") + ")"
		}
		out = append(out, line)
	}
	return out
}

// difference names the lines that were added to and removed from a list.
func difference(old, new []string) (problems []string) {
	for _, line := range new {
		if !slices.Contains(old, line) {
			problems = append(problems, "new: "+line)
		}
	}
	for _, line := range old {
		if !slices.Contains(new, line) {
			problems = append(problems, "gone: "+line)
		}
	}
	return problems
}

// entries returns the lines of a list without comments.
func entries(list string) (out []string) {
	for line := range strings.Lines(list) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

// compare holds a list in testdata to what is linked, or writes it.
func compare(t *testing.T, file, header string, linked []string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, []byte(header+strings.Join(linked, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	report(t, rule{
		fmt.Sprintf("The linked modules are not those in internal/repocheck/testdata/%s.", file),
		"every module is code that our users run or build without having chosen it, so a person decides about each",
		"if the change is meant: go test ./internal/repocheck -run TestModules -update, and say in the commit what it replaces",
	}, difference(entries(string(data)), linked))
}

func TestModulesOfPublicPackages(t *testing.T) {
	var linked []string
	for _, r := range publicRoots {
		modules, found := linkedModules(mustList(t), func(name string) bool { return rootOf(name) == r.pattern })
		if r.exists && !found {
			t.Errorf("no package matches %s; has it moved?", r.pattern)
		}
		linked = append(linked, lines(strings.TrimSuffix(r.pattern, "/...")+" ", modules)...)
	}
	compare(t, "modules.txt", publicHeader, linked)
}

func TestModulesOfAllod(t *testing.T) {
	modules, found := linkedModules(mustList(t), func(name string) bool { return name == "cmd/allod" })
	if !found {
		t.Fatal("there is no cmd/allod; has it moved?")
	}
	compare(t, "modules-allod.txt", allodHeader, lines("", modules))
}

func TestModulesControl(t *testing.T) {
	mod := func(path string) *struct{ Path string } { return &struct{ Path string }{path} }
	base := []listed{
		{ImportPath: module + "/wire/ai", Module: mod(module), Deps: []string{"fmt", "example.org/a/sub", module + "/key"}},
		{ImportPath: module + "/key", Module: mod(module)},
		{ImportPath: "example.org/a/sub", Module: mod("example.org/a")},
		{ImportPath: "fmt", Standard: true},
	}
	windows := slices.Clone(base)
	windows[0].Deps = append(slices.Clone(windows[0].Deps), "example.org/b")
	windows = append(windows, listed{ImportPath: "example.org/b", Module: mod("example.org/b")})
	all := map[string][]listed{"darwin": base, "linux": base, "windows": windows}

	modules, found := linkedModules(all, func(name string) bool { return rootOf(name) == "wire/..." })
	if !found {
		t.Error("wire/ai was not found")
	}
	got := lines("wire ", modules)
	mustFind(t, got, "wire example.org/a", "wire example.org/b (windows)")

	mustFind(t, difference(entries("# comment\n\nwire example.org/a\nwire example.org/old\n"), got),
		"new: wire example.org/b (windows)", "gone: wire example.org/old")
	mustFind(t, difference(entries("wire example.org/b (windows)\nwire example.org/a\n"), got))

	for name, want := range map[string]string{"wire/ai/v0": "wire/...", "site": "site/...", "site/sqlite": "site/sqlite/...", "site/other": "site/...", "internal/relay": ""} {
		if got := rootOf(name); got != want {
			t.Errorf("%s belongs to %q, want %q", name, got, want)
		}
	}
	if _, found := linkedModules(all, func(name string) bool { return rootOf(name) == "site/..." }); found {
		t.Error("site was found, but there is none")
	}
}
