package repocheck

import (
	"os"
	"path/filepath"
	"testing"
)

// thin reports whether a document says too little to be one.
func thin(text []byte) bool { return len(text) < 200 }

// TestDocumentsSaySomething holds that no document is empty: links lead to them.
func TestDocumentsSaySomething(t *testing.T) {
	if !thin(nil) || !thin([]byte("# Title\n")) {
		t.Error("the check does not bite")
	}
	found := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md"} {
		paths, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			found++
			if text, err := os.ReadFile(path); err != nil || thin(text) {
				t.Errorf("%s says nothing yet, and other documents lead to it (%v). Write it, or remove it and its links.", path, err)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d documents were found: the search is blind", found)
	}
}
