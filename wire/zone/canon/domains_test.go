package canon_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/allodhq/allod/wire/zone/canon"
)

// TestF05DomainRegistry holds that each domain stands in the one list, once, and in
// the contract's pattern (decision O04, F02).
func TestF05DomainRegistry(t *testing.T) {
	fset := token.NewFileSet()
	var declared, listed, texts []string
	file, err := parser.ParseFile(fset, "domains.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	isDomain := func(e ast.Expr) (*ast.CompositeLit, bool) {
		lit, ok := e.(*ast.CompositeLit)
		if !ok {
			return nil, false
		}
		id, ok := lit.Type.(*ast.Ident)
		return lit, ok && id.Name == "Domain"
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, value := range n.Values {
				if lit, ok := isDomain(value); ok {
					text, err := strconv.Unquote(lit.Elts[0].(*ast.BasicLit).Value)
					if err != nil {
						t.Fatal(err)
					}
					declared, texts = append(declared, n.Names[i].Name), append(texts, text)
				}
			}
		case *ast.FuncDecl:
			if n.Name.Name == "Domains" {
				lit := n.Body.List[0].(*ast.ReturnStmt).Results[0].(*ast.CompositeLit)
				for _, e := range lit.Elts {
					listed = append(listed, e.(*ast.Ident).Name)
				}
			}
		}
		return true
	})
	if len(declared) < 5 || !slices.Equal(declared, listed) {
		t.Errorf("declared are %q, listed %q", declared, listed)
	}
	kebab := regexp.MustCompile(`^serve\.zone/[a-z]+(-[a-z]+)*$`) // no digits, and so no version
	seen := map[string]bool{}
	for i, d := range canon.Domains() {
		if !kebab.MatchString(d.String()) {
			t.Errorf("%q is not serve.zone/ and words with hyphens", d)
		}
		if seen[d.String()] {
			t.Errorf("%q stands twice", d)
		}
		seen[d.String()] = true
		if i >= len(texts) || texts[i] != d.String() {
			t.Errorf("%q is not what is declared there", d)
		}
	}

	// No other file makes a domain, whoever reads it.
	names, err := filepath.Glob("*.go")
	if err != nil || len(names) < 4 {
		t.Fatalf("the files are %q, %v", names, err)
	}
	for _, name := range names {
		if name == "domains.go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok {
				if lit, ok := isDomain(e); ok && len(lit.Elts) > 0 {
					t.Errorf("%s makes a domain", fset.Position(lit.Pos()))
				}
			}
			return true
		})
	}
}
