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

// TestForeign has a program, and a folder above one, that another ordinary user
// owns, and so can write whatever the mode says.
func TestForeign(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	for _, foreign := range []string{"a/b/claude", "a/b", "a"} {
		top, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(top, "a/b")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "claude"), nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := find("claude", []string{dir}); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(top, foreign), 4242, -1); err != nil {
			t.Fatal(err)
		}
		if _, err := find("claude", []string{dir}); err != ErrReplaceable {
			t.Errorf("%s: %v", foreign, err)
		}
		if path := pathOf([]string{dir}); foreign == "a/b" && path != "PATH=" {
			t.Errorf("it is searched: %s", path)
		}
	}
}

// TestInstalledAtHome: a program in the home itself, or in a folder above it,
// opens nothing but its own file.
func TestInstalledAtHome(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home, link := filepath.Join(top, "home"), filepath.Join(top, "link")
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(home, link); err != nil {
		t.Fatal(err)
	}
	for _, as := range []string{home, link, home + "/"} {
		p := &Program{home: as}
		for file, want := range map[string]string{
			home + "/claude":                          home + "/claude",
			top + "/claude":                           top + "/claude",
			home + "/bin/claude":                      home + "/bin",
			home + "/node_modules/x/cli.js":           home + "/node_modules",
			filepath.Dir(top) + "/elsewhere/bin/tool": filepath.Dir(top) + "/elsewhere/bin",
		} {
			if got := p.installed(file); got != want {
				t.Errorf("with the home %s, %s opens %s", as, file, got)
			}
		}
	}
}
