package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCheckBites(t *testing.T) {
	dir := t.TempDir()
	if err := run(dir, true); err == nil {
		t.Error("missing documents pass the check")
	}
	if err := run(dir, false); err != nil {
		t.Fatal(err)
	}
	if err := run(dir, true); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"refusals.md", "musts.md"} {
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(text, ' '), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := run(dir, true); err == nil {
			t.Errorf("a changed %s passes the check", name)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
