package repocheck

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"slices"
	"strings"
	"testing"
)

// checkPackageComments finds packages without a comment that introduces them.
// The keys are folders. A folder may hold more than one file with a comment.
func checkPackageComments(c codebase) (problems []string) {
	introduced := map[string]bool{}
	var folders []string
	for _, s := range c.sources {
		if !slices.Contains(folders, s.dir()) {
			folders = append(folders, s.dir())
		}
		text := s.file.Doc.Text()
		name := s.file.Name.Name
		// Tools show the first sentence in lists, so it must name the package.
		if strings.HasPrefix(text, "Package "+name+" ") || name == "main" && len(strings.Fields(text)) > 1 {
			introduced[s.dir()] = true
		}
	}
	for _, folder := range folders {
		if !introduced[folder] {
			problems = append(problems, folder)
		}
	}
	return problems
}

// checkComments finds exported declarations outside of internal packages that nobody explains.
func checkComments(c codebase) (problems []string) {
	for _, s := range c.sources {
		if slices.Contains(strings.Split(s.dir(), "/"), "internal") {
			continue
		}
		missing := func(n ast.Node, name string) {
			problems = append(problems, fmt.Sprintf("%s: %s.%s", c.at(n), path.Base(s.dir()), name))
		}
		for _, decl := range s.file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				name, exported := decl.Name.Name, decl.Name.IsExported()
				if decl.Recv != nil {
					receiver := receiverName(decl.Recv.List[0].Type)
					name, exported = receiver+"."+name, exported && ast.IsExported(receiver)
				}
				if exported && decl.Doc.Text() == "" {
					missing(decl, name)
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						if !spec.Name.IsExported() {
							continue
						}
						// A comment above a group of types explains the group, not the type.
						alone := !decl.Lparen.IsValid() && decl.Doc.Text() != ""
						if !alone && !explained(spec.Doc, spec.Comment) {
							missing(spec, spec.Name.Name)
						}
						checkMembers(spec.Type, spec.Name.Name, missing)
					case *ast.ValueSpec:
						// A comment above a group of constants or variables is enough for the group.
						if explained(decl.Doc, spec.Doc, spec.Comment) {
							continue
						}
						for _, name := range spec.Names {
							if name.IsExported() {
								missing(name, name.Name)
							}
						}
					}
				}
			}
		}
	}
	return problems
}

// checkMembers looks at exported fields of structs and exported methods of interfaces.
// An embedded type has its own documentation. So has the declared type of a field: a comment on
// "JobID JobID" could only repeat it. A field of built-in types alone has nothing else to speak for it.
func checkMembers(t ast.Expr, where string, missing func(ast.Node, string)) {
	var fields *ast.FieldList
	switch t := t.(type) {
	case *ast.StructType:
		fields = t.Fields
	case *ast.InterfaceType:
		fields = t.Methods
	case *ast.StarExpr:
		checkMembers(t.X, where, missing)
		return
	case *ast.ArrayType:
		checkMembers(t.Elt, where, missing)
		return
	case *ast.MapType:
		checkMembers(t.Value, where, missing)
		return
	default:
		return
	}
	for _, f := range fields.List {
		for _, name := range f.Names {
			if !name.IsExported() {
				continue
			}
			if !explained(f.Doc, f.Comment) && !speaks(f.Type) {
				missing(name, where+"."+name.Name)
			}
			checkMembers(f.Type, where+"."+name.Name, missing)
		}
	}
}

// speaks reports whether a declared type is part of a type. Of methods only a plain getter speaks for itself.
func speaks(t ast.Expr) bool {
	switch t := t.(type) {
	case *ast.Ident:
		return types.Universe.Lookup(t.Name) == nil
	case *ast.SelectorExpr, *ast.IndexExpr, *ast.IndexListExpr:
		return true
	case *ast.StarExpr:
		return speaks(t.X)
	case *ast.ArrayType:
		return speaks(t.Elt)
	case *ast.MapType:
		return speaks(t.Key) || speaks(t.Value)
	case *ast.FuncType:
		return t.Params.NumFields() == 0 && t.Results.NumFields() == 1 && speaks(t.Results.List[0].Type)
	}
	return false
}

// explained reports whether one of the comments says something.
// Text leaves out directives such as //go:generate, which explain nothing.
func explained(comments ...*ast.CommentGroup) bool {
	return slices.ContainsFunc(comments, func(c *ast.CommentGroup) bool { return strings.TrimSpace(c.Text()) != "" })
}

// receiverName is the name of the type that a method belongs to.
func receiverName(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiverName(t.X)
	case *ast.ParenExpr:
		return receiverName(t.X)
	case *ast.IndexExpr:
		return receiverName(t.X)
	case *ast.IndexListExpr:
		return receiverName(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

func TestEveryPackageIsIntroduced(t *testing.T) {
	c := mustCode(t)
	// A folder that has tests only counts as well.
	tests := codebase{fset: token.NewFileSet()}
	for _, name := range mustTracked(t) {
		if strings.HasSuffix(name, "_test.go") && !inTestdata(name) {
			folder := path.Dir(name)
			if slices.ContainsFunc(c.sources, func(s source) bool { return s.dir() == folder }) {
				continue
			}
			if err := tests.add(name, readTracked(t, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	report(t, rule{
		"These packages have no comment that introduces them.",
		"a reader decides by the package comment whether to read on; it says what the package gives and what it refuses to do",
		`write "// Package NAME ..." above the package clause, in doc.go if it is longer than a few lines; for a command, say what it does`,
	}, append(checkPackageComments(c), checkPackageComments(tests)...))
}

func TestEverythingExportedIsExplained(t *testing.T) {
	report(t, rule{
		"These exported names have no comment.",
		"strangers import these packages and read their documentation instead of our code",
		"write a comment above or beside the name (what it means, its bounds, what an error or zero value says), or give a field a type of its own",
	}, checkComments(mustCode(t)))
}

func TestCommentsControl(t *testing.T) {
	t.Run("packages", func(t *testing.T) {
		mustFind(t, checkPackageComments(parse(t, map[string]string{
			"a/doc.go":      "// Package a does.\npackage a",
			"a/a.go":        "package a",
			"b/b.go":        "package b",
			"c/c.go":        "// Copyright someone.\n\npackage c",
			"d/d.go":        "// This package is named nowhere.\npackage d",
			"e/e.go":        "// E does.\npackage main",
			"f/f.go":        "package main",
			"internal/g.go": "package internal",
		})), "b", "c", "d", "f", "internal")
	})
	t.Run("names", func(t *testing.T) {
		mustFind(t, checkComments(parse(t, map[string]string{
			"internal/x/x.go":   "package x\nfunc Exported() {}",
			"cmd/internal/x.go": "package x\nfunc Exported() {}",
			"wire/x.go": `// Package wire is it.
package wire

func BadFunc() {}

// Fine.
func Fine() {}

func fine() {}

//go:noinline
func BadDirective() {}

type BadType struct {
	BadField int
	// Above.
	Above int
	Beside int // Beside.
	inner  int
	Embedded
	BadOne, BadTwo int
	BadList []string
	BadMap map[string]error
	BadFunc func(Generic)
	Speaks Generic[int, int]
	SpeaksToo map[string][]*time.Time
	// Nested.
	Nested []struct{ BadDeep int }
}

// Embedded is.
type Embedded int

func (BadType) BadMethod() {}
func (*BadType) BadPointer() {}
func (Generic[A, B]) BadGeneric() {}
func (BadType) String() string { return "" }
func (hidden) Fine() {}

type hidden struct{ Fine int }

// Generic is.
type Generic[A, B any] struct{}

// Face is.
type Face interface {
	BadFace()
	BadGetter() string
	BadPair() (Generic, error)
	BadSetter(Generic) Generic
	Getter() Generic
	// Above.
	Above()
	Beside() // Beside.
	hidden()
	Embeds
}

// A group of types.
type (
	BadGrouped int
	// FineGrouped is.
	FineGrouped int
)

// Group.
const (
	FineA = 1
	FineB = 2
)

const (
	BadConst = 1
	FineC = 2 // Beside.
	// Above.
	FineD = 3
	fineE = 4
)

var BadVar, BadOther int

var FineV = 1 // Beside.
`})),
			"wire.BadFunc", "wire.BadDirective", "wire.BadType", "wire.BadType.BadField", "wire.BadType.BadOne", "wire.BadType.BadTwo",
			"wire.BadType.BadList", "wire.BadType.BadMap", "wire.BadType.BadFunc",
			"wire.BadType.Nested.BadDeep", "wire.BadType.BadMethod", "wire.BadType.BadPointer", "wire.Generic.BadGeneric",
			"wire.BadType.String", "wire.Face.BadFace", "wire.Face.BadGetter", "wire.Face.BadPair", "wire.Face.BadSetter", "wire.BadGrouped", "wire.BadConst", "wire.BadVar", "wire.BadOther")
	})
}
