package compose

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestDemoWithoutANode(t *testing.T) {
	d, err := RunDemo(t.Context(), DemoConfig{
		Dir: t.TempDir(), Question: "why", Version: "test", StandIn: true, NoNode: NoSibling, Progress: func(string) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	if z := d.Zone; z.Absent != NoSibling || !strings.HasPrefix(z.Controller, "https://127.0.0.1:") || len(z.List) != 0 || z.Nodes == nil || len(z.Nodes) != 0 {
		t.Errorf("%+v", z)
	}
}

// TestDemoTellsANodeThatIsNone: a program that fails, and one that does nothing and
// says that all is well.
func TestDemoTellsANodeThatIsNone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no shell scripts here")
	}
	for name, c := range map[string]struct{ script, said string }{
		"fails":        {"#!/bin/sh\necho the words of the node >&2\nexit 3\n", "the words of the node"},
		"does nothing": {"#!/bin/sh\nexit 0\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), NodeProgram)
			if err := os.WriteFile(program, []byte(c.script), 0o700); err != nil {
				t.Fatal(err)
			}
			var told []string
			_, err := RunDemo(t.Context(), DemoConfig{
				Dir: t.TempDir(), Question: "why", Version: "test", StandIn: true, Node: program, Progress: func(s string) { told = append(told, s) },
			})
			if !errors.Is(err, ErrNoNode) || !strings.Contains(strings.Join(told, "|"), c.said) {
				t.Errorf("%v, told %q", err, told)
			}
		})
	}
}

func TestSibling(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "allod")
	node := filepath.Join(dir, NodeProgram)
	check := func(what, want string) {
		t.Helper()
		if runtime.GOOS != "linux" {
			want = NoLinux
		}
		path, absent := Sibling(program)
		if absent != want || (path == node) != (want == "") {
			t.Errorf("%s: %q %q, want %q", what, path, absent, want)
		}
	}
	check("nothing", NoSibling)
	if err := os.Mkdir(node, 0o700); err != nil {
		t.Fatal(err)
	}
	check("a folder", NoSibling)
	if err := os.Remove(node); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(node, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check("no program", NoSibling)
	if err := os.Chmod(node, 0o700); err != nil {
		t.Fatal(err)
	}
	check("a program", "")
}
