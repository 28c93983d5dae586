package catalog_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/catalog"
)

// TestRegisters holds that refusals are unique, documented and reachable.
func TestRegisters(t *testing.T) {
	docs, err := os.ReadFile("../../docs/refusals.md")
	if err != nil {
		t.Fatal(err)
	}
	registered := map[string]string{}
	titles := map[string]bool{}
	for _, r := range catalog.All() {
		if titles[r.Title] || r.Title == "" || len(r.Kinds) == 0 {
			t.Errorf("the register %q is unnamed, empty or listed twice", r.Title)
		}
		titles[r.Title] = true
		for _, k := range r.Kinds {
			if other, twice := registered[k.Name()]; twice {
				t.Errorf("%s is registered under %q and under %q", k.Name(), other, r.Title)
			}
			registered[k.Name()] = r.Title
			if !strings.Contains(string(docs), "`"+k.Name()+"`") {
				t.Errorf("docs/refusals.md does not list %s: run make generate", k.Name())
			}
		}
	}
	declared, used := scan(t, "../..")
	for name, where := range declared {
		if _, ok := registered[name]; !ok {
			t.Errorf("%s (%s) is in no register: add it to its package's and the package's to catalog.All", name, where)
		}
		if !used[name] {
			t.Errorf("%s (%s) is declared and nothing refuses with it: use it or delete it", name, where)
		}
	}
	for name := range registered {
		if declared[name] == "" {
			t.Errorf("%s is registered and the scan found no declaration of it: the scan is blind", name)
		}
	}
}

// scan reads the module's own code and returns where each kind is declared, and
// which kinds are mentioned outside their declaration and their register.
func scan(t *testing.T, root string) (declared map[string]string, used map[string]bool) {
	t.Helper()
	type variable struct{ pkg, ident string }
	kinds := map[variable]string{}
	uses := map[variable]int{}
	declared, used = map[string]string{}, map[string]bool{}
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name == "testdata" || name == "node_modules" || name == "tools" || strings.HasPrefix(name, ".") && name != ".." && name != "." {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			return err
		}
		pkg := file.Name.Name
		skip := map[*ast.Ident]bool{}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			call, ok := spec.Values[0].(*ast.CallExpr)
			if ok && called(call) == "NewKind" && len(call.Args) == 4 {
				lit, ok := call.Args[0].(*ast.BasicLit)
				if !ok {
					t.Errorf("%s: a kind's name must be a literal", fset.Position(call.Pos()))
					return true
				}
				name, _ := strconv.Unquote(lit.Value)
				kinds[variable{pkg, spec.Names[0].Name}] = name
				declared[name] = fset.Position(call.Pos()).String()
				skip[spec.Names[0]] = true
			}
			if lit, ok := spec.Values[0].(*ast.CompositeLit); ok && strings.HasSuffix(typeName(lit.Type), "Registry") {
				ast.Inspect(lit, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok {
						skip[id] = true
					}
					return true
				})
			}
			return true
		})
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok {
					uses[variable{x.Name, n.Sel.Name}]++
				}
			case *ast.Ident:
				if !skip[n] {
					uses[variable{pkg, n.Name}]++
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for v, name := range kinds {
		used[name] = uses[v] > 0
	}
	return declared, used
}

func called(call *ast.CallExpr) string {
	switch fun := call.Fun.(type) {
	case *ast.SelectorExpr:
		return fun.Sel.Name
	case *ast.Ident:
		return fun.Name
	}
	return ""
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}
