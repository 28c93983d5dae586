package ai_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/allodhq/allod/wire/ai/protocol"
)

// versionMentions lists the places in non-test code below folder where a text
// is one of the versions, or holds one as a JSON message would.
func versionMentions(t *testing.T, folder string, skip func(dir string) bool) (found []string, files int) {
	t.Helper()
	var texts []string
	for _, v := range protocol.Supported() {
		texts = append(texts, v, `"`+v+`"`, `"protocolVersion":"`+v+`"`, "protocolVersion="+v)
	}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || skip(filepath.ToSlash(path))):
			return filepath.SkipDir
		case entry.IsDir(), !strings.HasSuffix(path, ".go"), strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files++
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING && lit.Kind != token.CHAR {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Errorf("%s: %v", fset.Position(lit.Pos()), err)
			}
			if slices.Contains(texts, text) || strings.Contains(text, `protocolVersion":"`) {
				found = append(found, fset.Position(lit.Pos()).String())
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found, files
}

// TestVersionsStayInTheirPackages holds that no code outside a version's own
// package writes the version out, so that a further version is a package of its
// own and one line in package protocol.
func TestVersionsStayInTheirPackages(t *testing.T) {
	found, files := versionMentions(t, ".", func(dir string) bool { return dir == "v0" || dir == "v2" })
	if len(found) > 0 {
		t.Errorf("a version is written out at %v", found)
	}
	if files < 15 {
		t.Errorf("only %d files were read", files)
	}
	// The same search finds what it should where a version belongs.
	for _, own := range []string{"v0", "v2"} {
		if found, _ := versionMentions(t, own, func(string) bool { return false }); len(found) == 0 {
			t.Errorf("the search does not find the version in its own package %s, so the test shows nothing", own)
		}
	}
}
