//go:build unix

package program

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestNeeds has a program as npm installs one, with the node of the PATH in a
// folder of the owner's.
func TestNeeds(t *testing.T) {
	as(t, 1000)
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(top, name) }
	const script = "lib/node_modules/@openai/codex/bin/codex.js"
	for _, name := range []string{script, "node/bin/node"} {
		if err := os.MkdirAll(filepath.Dir(in(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(in(name), []byte("#!/usr/bin/env node"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(in("bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../"+script, in("bin/codex")); err != nil {
		t.Fatal(err)
	}
	agent := map[string]string{"PATH": in("bin") + ":" + in("node/bin"), "HOME": in("home")}
	p, err := Open(Config{ID: "codex-cli", Env: func(name string) (string, bool) { v, ok := agent[name]; return v, ok }})
	if err != nil {
		t.Fatal(err)
	}
	n := p.needs("scratch")
	if p.Path() != in("bin/codex") || !slices.Equal(n.Run, []string{in("lib/node_modules"), in("node/bin")}) ||
		!slices.Equal(n.Write, []string{"scratch", in("home/.codex")}) || n.Read != nil {
		t.Errorf("%s needs %+v", p.Path(), n)
	}
}

// TestReplaceable has each place at which another user could put a program of
// their own.
func TestReplaceable(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(top, name) }
	for _, dir := range []string{"a", "a/b", "bin"} {
		if err := os.Mkdir(in(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(in("a/b/program"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(in("a/b/program"), in("bin/claude")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		mode os.FileMode
		want error
	}{
		{"a", 0o755, nil},
		{"a/b/program", 0o757, ErrReplaceable},
		{"a/b/program", 0o644, ErrNotFound},
		{"a/b", 0o777, ErrReplaceable},
		{"a/b", 0o777 | os.ModeSticky, ErrReplaceable},
		{"a", 0o777, ErrReplaceable},
		{"a", 0o777 | os.ModeSticky, nil},
		{"bin", 0o777, ErrReplaceable},
		{"bin", 0o775, nil}, // a group is its members' business
	} {
		old, err := os.Stat(in(c.path))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(in(c.path), c.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := find("claude", []string{in("nowhere"), in("bin")}); err != c.want {
			t.Errorf("%s with %v: %v", c.path, c.mode, err)
		}
		if path := pathOf([]string{in("bin"), in("a")}); c.path == "bin" && (path == "PATH="+in("a")) != (c.want != nil) {
			t.Errorf("%s with %v: %s", c.path, c.mode, path)
		}
		if err := os.Chmod(in(c.path), old.Mode()); err != nil {
			t.Fatal(err)
		}
	}
}
