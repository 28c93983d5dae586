package zone_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The release that both sides exchange is the only version, so no name says another
// one (F02, decision O14).
var (
	// suffix is a version within an identifier: SessionV1, sessionV2Digest, V1.
	suffix = regexp.MustCompile(`(?:^|[a-z0-9_])V[0-9]+(?:[A-Z_]|$)|_v[0-9]+(?:_|$)|^v[0-9]+$`)
	// inText is one within a text: /spark/v2/nodes, spark-swarm-observation-v2, sessionV2, map.v1.json.
	inText = regexp.MustCompile(`(?:^|[-_./ "])[vV][0-9]+(?:[^0-9a-zA-Z]|$)|[a-z]V[0-9]+(?:[^0-9a-z]|$)`)
	// schemaVersion is a version of one shape, however it is spelled.
	schemaVersion = regexp.MustCompile(`(?i)schema[-_ ]?version`)
	// addresses are of a kind that has a number in its name.
	addresses = regexp.MustCompile(`(?i)ipv[46]`)
	// gone are calls and shapes that must not come back in any spelling.
	gone = regexp.MustCompile(`(?i)settlement|coreflow[a-z]*IsolatedRestore`)
)

// versions finds what in a file's identifiers and texts names a version of its own.
func versions(t *testing.T, fset *token.FileSet, name string, src any) (found []string) {
	t.Helper()
	file, err := parser.ParseFile(fset, name, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	imports := map[ast.Node]bool{}
	for _, spec := range file.Imports {
		imports[spec.Path] = true // a module of somebody else has the name it has
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			if word := addresses.ReplaceAllString(n.Name, ""); suffix.MatchString(word) || schemaVersion.MatchString(word) || gone.MatchString(word) {
				found = append(found, fset.Position(n.Pos()).String()+": "+n.Name)
			}
		case *ast.BasicLit:
			if n.Kind != token.STRING || imports[n] {
				return true
			}
			text, err := strconv.Unquote(n.Value)
			if err != nil {
				t.Fatal(err)
			}
			if word := addresses.ReplaceAllString(text, ""); inText.MatchString(word) || schemaVersion.MatchString(word) || gone.MatchString(word) {
				found = append(found, fset.Position(n.Pos()).String()+": "+n.Value)
			}
		}
		return true
	})
	return found
}

func TestF02NoNameSaysAVersion(t *testing.T) {
	fset := token.NewFileSet()
	files := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == "testdata" {
			return filepath.SkipDir // what is refused may stand there
		}
		if base := strings.TrimSuffix(d.Name(), ".go"); inText.MatchString(base) || suffix.MatchString(base) {
			t.Errorf("%s has a version in its name", path)
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil // tests spell what has to be refused
		}
		files++
		for _, place := range versions(t, fset, path, nil) {
			t.Errorf("%s says a version; the release is the only one", place)
		}
		return nil
	})
	if err != nil || files < 10 {
		t.Fatalf("%d files were read, %v", files, err)
	}
}

// TestF02TheScanBites shows the scan what it is there for.
func TestF02TheScanBites(t *testing.T) {
	for _, bad := range []string{
		`type SessionV1 struct{}`, `func computeSessionV2Digest() {}`, `var session_v2 int`, `const V1 = 1`, `var v2 = 1`, `type IPv4SessionV1 struct{}`,
		`const x = "/spark/v2/nodes/heartbeat"`, `const x = "serve.zone/spark-swarm-observation-v2"`, `const x = "serve.zone/report-v1"`, `const x = "registerSessionV1"`,
		`const x = "schemaVersion"`, `type x struct { SchemaVersion int }`, `var schemaVersion int`, `const x = "workloadinit-map.v1.json"`, `const x = "argon2id-v1"`,
		`const x = "v1"`, "const x = `{\"schemaVersion\":1}`", `const x = "bindings_v1"`, `const x = "schema-version"`, `func f() { g("a", "b/v1") }`, `const x = "a V2"`,
		`func settlementPlan() {}`, `const x = "coreflowStageIsolatedRestore"`, `const x = "IRelayV2"`,
	} {
		if found := versions(t, token.NewFileSet(), "bad.go", "package bad\n"+bad); len(found) != 1 {
			t.Errorf("%s: found %q", bad, found)
		}
	}
	for _, good := range []string{
		`import "github.com/example/thing/v2"`, `const x = "interfacesVersion"`, `type Version struct{}`, `var v = 1`, `const x = "32.0.0"`, `func parseIPv4() {}`, `const x = "ipv6"`,
		`const x = "argon2id"`, `const x = "/spark/nodes/heartbeat"`, `const x = "serve.zone/node-enrollment"`, `var Version2 int`, `const x = "sha256"`, `var ev1 int`, `const x = "level1"`, `const x = "IPv4 address"`,
	} {
		if found := versions(t, token.NewFileSet(), "good.go", "package good\n"+good); len(found) != 0 {
			t.Errorf("%s: found %q", good, found)
		}
	}
	if !slices.ContainsFunc([]string{"session.v1", "report_v2", "map-v1"}, inText.MatchString) {
		t.Error("names of files are not looked at")
	}
}
