package repocheck

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strconv"
	"testing"
)

// exports are the functions and methods by which a private key leaves memory.
// Whatever is called so counts, whichever type it belongs to.
var exports = []string{"MarshalFile"}

// exportsDeclared is the package that declares them, and exportsCalled the only one that may use them.
const (
	exportsDeclared = "key"
	exportsCalled   = "internal/keyfile"
)

// clock are the functions of package time that look at the clock or wait for it.
var clock = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}

// checkExports finds uses of the functions that export private keys.
// Going by the name alone finds more than calls: a method value or a renamed import must not hide one.
func checkExports(c codebase) (problems []string) {
	for _, s := range c.sources {
		if s.dir() == exportsCalled {
			continue
		}
		declared := map[*ast.Ident]bool{}
		for _, decl := range s.file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && s.dir() == exportsDeclared {
				declared[f.Name] = true
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && slices.Contains(exports, id.Name) && !declared[id] {
				problems = append(problems, fmt.Sprintf("%s: %s", c.at(id), id.Name))
			}
			return true
		})
	}
	return problems
}

// checkClock finds pure packages that look at the clock.
func checkClock(c codebase) (problems []string) {
	for _, s := range c.sources {
		if _, t, _ := place(s.dir()); t != pure {
			continue
		}
		names := importNames(s.file, "time")
		if slices.Contains(names, ".") {
			problems = append(problems, fmt.Sprintf("%s: imports all names of package time", c.at(s.file)))
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && slices.Contains(names, x.Name) && slices.Contains(clock, sel.Sel.Name) {
				problems = append(problems, fmt.Sprintf("%s: time.%s", c.at(sel), sel.Sel.Name))
			}
			return true
		})
	}
	return problems
}

// importNames returns the names under which a file imports a package.
func importNames(f *ast.File, importPath string) (names []string) {
	for _, spec := range f.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err != nil || p != importPath {
			continue
		}
		if spec.Name != nil {
			names = append(names, spec.Name.Name)
		} else {
			names = append(names, path.Base(importPath))
		}
	}
	return names
}

func TestPrivateKeysLeaveThroughKeyfileOnly(t *testing.T) {
	c := mustCode(t)
	// A stale list would find nothing, so each name must be declared, and used by the one that may.
	for _, name := range exports {
		var declared, called bool
		for _, s := range c.sources {
			ast.Inspect(s.file, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && id.Name == name {
					declared = declared || s.dir() == exportsDeclared
					called = called || s.dir() == exportsCalled
				}
				return true
			})
		}
		if !declared || !called {
			t.Errorf("%s is not declared in %s or not used in %s; what exports private keys now?", name, exportsDeclared, exportsCalled)
		}
	}
	report(t, rule{
		"These places name a function that exports private keys.",
		"a key file is the only place for a private key outside of memory, and internal/keyfile is what keeps others out of it",
		"use internal/keyfile; where a key is only to be used, take a key.Signer or key.Opener",
	}, checkExports(c))
}

func TestPurePackagesDoNotLookAtTheClock(t *testing.T) {
	report(t, rule{
		"These pure packages look at the clock.",
		"time is an argument, so that a test, a simulation and a replay decide what it is",
		"take the time as an argument",
	}, checkClock(mustCode(t)))
}

func TestCallsControl(t *testing.T) {
	t.Run("exports", func(t *testing.T) {
		mustFind(t, checkExports(parse(t, map[string]string{
			"key/file.go":              "package key\nfunc MarshalFile() {}\nfunc other() { MarshalFile() }",
			"internal/keyfile/file.go": `package keyfile; import "` + module + `/key"; func f() { key.MarshalFile() }`,
			"internal/relay/call.go":   "package relay\nfunc f() { k.MarshalFile[int](1) }",
			"internal/relay/value.go":  "package relay\nvar f = keys.MarshalFile",
			"internal/relay/dot.go":    "package relay\nimport . \"" + module + "/key\"\nfunc f() { MarshalFile() }",
			"internal/relay/tagged.go": "//go:build plan9\n\npackage relay\n\nvar f = key.MarshalFile",
			"internal/relay/fine.go":   "package relay\n// MarshalFile is only named here.\nvar f = key.ParseFile // \"MarshalFile\"",
		})),
			"key/file.go:3: MarshalFile", "relay/call.go:2: MarshalFile", "relay/value.go:2: MarshalFile",
			"relay/dot.go:3: MarshalFile", "relay/tagged.go:5: MarshalFile")
	})
	t.Run("clock", func(t *testing.T) {
		mustFind(t, checkClock(parse(t, map[string]string{
			"wire/ai/a.go":        "package ai\nimport \"time\"\nvar a = time.Now()\nvar f = time.Since\nvar d time.Duration",
			"key/a.go":            "package key\nimport clock \"time\"\nvar a = clock.Now()\ntype T struct{ time clock.Time }",
			"refusal/a.go":        "package refusal\nimport . \"time\"\nvar a = Now()",
			"internal/relay/a.go": "package relay\nimport \"time\"\nvar a = time.Now()",
		})),
			"wire/ai/a.go:3: time.Now", "wire/ai/a.go:4: time.Since", "key/a.go:3: time.Now", "refusal/a.go:1: imports all names")
	})
}
