package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Compiling and linking a test takes far longer than running it. So most mutations are compiled
// together: a function that one of them changes gets a changed twin, and begins by asking whether it is
// that twin's turn. One binary of a test then serves for all of them and for none.

// switchEnv is the environment variable that says whose turn it is.
const switchEnv = "ALLOD_MUTATION"

const (
	switchVar  = "mutation__"
	switchFile = "zz_mutation.go"
)

// lineMark and a number stand for the name of the file in what the compiler says of a twin.
const lineMark = "mutation-"

var guiltyForm = regexp.MustCompile(lineMark + `(\d+):`)

// guilty are the numbers of the mutations that the compiler complains of.
func guilty(said string) (numbers []int) {
	for _, found := range guiltyForm.FindAllStringSubmatch(said, -1) {
		if n, err := strconv.Atoi(found[1]); err == nil && !slices.Contains(numbers, n) {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// A merger collects the mutations that can be compiled together.
type merger struct {
	root  string
	files map[string]*merged
}

// merged is one file with all its mutations.
type merged struct {
	source string
	syntax *ast.File
	set    *token.FileSet
	// turns are put behind the opening brace of a function, by its offset.
	turns map[int]string
	twins string
}

func newMerger(root string) *merger { return &merger{root: root, files: map[string]*merged{}} }

// add takes a mutation in under a number, and reports whether it can be compiled with others: it must
// change the body of one function, whose parameters all have names.
func (g *merger) add(number int, m mutation) bool {
	f, err := g.file(m.file)
	if err != nil {
		return false
	}
	mutated, err := m.apply(f.source)
	if err != nil {
		return false
	}
	syntax, err := parser.ParseFile(token.NewFileSet(), m.file, mutated, parser.SkipObjectResolution)
	if err != nil || len(syntax.Decls) != len(f.syntax.Decls) {
		return false
	}
	from, to := change(f.source, mutated)
	for _, d := range f.syntax.Decls {
		d, ok := d.(*ast.FuncDecl)
		if !ok || d.Body == nil || from <= f.offset(d.Body.Lbrace) || to > f.offset(d.Body.Rbrace) {
			continue
		}
		// The name is not exported, for tests that look at all methods of a type.
		twin := fmt.Sprintf("%s%d_%s", switchVar, number, d.Name.Name)
		call, ok := callOf(d, twin)
		if !ok {
			return false
		}
		open, end := f.offset(d.Body.Lbrace)+1, f.offset(d.Body.Rbrace)+1
		f.turns[open] += fmt.Sprintf(" if %s == \"%d\" { %s };", switchVar, number, call)
		f.twins += fmt.Sprintf("\n//line %s%d:1\n", lineMark, number) + f.source[f.offset(d.Pos()):f.offset(d.Name.Pos())] + twin + f.source[f.offset(d.Name.End()):open] +
			mutated[open:end+len(mutated)-len(f.source)] + "\n"
		return true
	}
	return false
}

func (g *merger) file(name string) (*merged, error) {
	if f := g.files[name]; f != nil {
		return f, nil
	}
	source, err := os.ReadFile(filepath.Join(g.root, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	f := &merged{source: string(source), set: token.NewFileSet(), turns: map[int]string{}}
	if f.syntax, err = parser.ParseFile(f.set, name, source, parser.SkipObjectResolution); err != nil {
		return nil, err
	}
	g.files[name] = f
	return f, nil
}

func (f *merged) offset(p token.Pos) int { return f.set.Position(p).Offset }

// change is where a text differs from another: all before from and from to on is the same.
func change(source, mutated string) (from, to int) {
	n := min(len(source), len(mutated))
	for from < n && source[from] == mutated[from] {
		from++
	}
	back := 0
	for back < n-from && source[len(source)-1-back] == mutated[len(mutated)-1-back] {
		back++
	}
	return from, len(source) - back
}

// callOf is the statement by which a function calls its twin and returns.
func callOf(d *ast.FuncDecl, twin string) (call string, ok bool) {
	if d.Name.Name == "init" || d.Name.Name == "main" || d.Name.Name == "_" {
		return "", false
	}
	names := func(list *ast.FieldList) (all []string, ok bool) {
		if list == nil {
			return nil, true
		}
		for _, field := range list.List {
			for _, n := range field.Names {
				all = append(all, n.Name)
			}
			if len(field.Names) == 0 {
				return nil, false
			}
			if _, many := field.Type.(*ast.Ellipsis); many {
				all[len(all)-1] += "..."
			}
		}
		return all, !slices.Contains(all, "_")
	}
	receiver, ok1 := names(d.Recv)
	arguments, ok2 := names(d.Type.Params)
	types, ok3 := names(d.Type.TypeParams)
	if !ok1 || !ok2 || !ok3 {
		return "", false
	}
	if call = twin; len(receiver) > 0 {
		call = receiver[0] + "." + twin
	}
	if len(types) > 0 {
		call += "[" + strings.Join(types, ", ") + "]"
	}
	call += "(" + strings.Join(arguments, ", ") + ")"
	if d.Type.Results == nil {
		return call + "; return", true
	}
	return "return " + call, true
}

// text is the file with all its twins. Its lines have the numbers that they have in the source.
func (f *merged) text() string {
	var b strings.Builder
	last := 0
	for _, at := range slices.Sorted(maps.Keys(f.turns)) {
		b.WriteString(f.source[last:at] + f.turns[at])
		last = at
	}
	return b.String() + f.source[last:] + f.twins
}

// texts are the files that take the place of others, by their names from the top of the module.
func (g *merger) texts() map[string]string {
	texts := map[string]string{}
	for name, f := range g.files {
		if len(f.turns) == 0 {
			continue
		}
		texts[name] = f.text()
		texts[path.Join(path.Dir(name), switchFile)] = fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar %s = os.Getenv(%q)\n",
			f.syntax.Name.Name, switchVar, switchEnv)
	}
	return texts
}
