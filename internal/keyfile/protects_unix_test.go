//go:build unix

package keyfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// owned is a file that says it belongs to a user.
type owned struct {
	fs.FileInfo
	sys any
}

func (o owned) Sys() any { return o.sys }

// Few machines let a test make files of several users, so the rule itself is
// asked.
func TestForeign(t *testing.T) {
	me := os.Geteuid()
	for what, c := range map[string]struct {
		info fs.FileInfo
		want bool
	}{
		"mine":       {owned{sys: &syscall.Stat_t{Uid: uint32(me)}}, false},
		"of root":    {owned{sys: &syscall.Stat_t{Uid: 0}}, false},
		"another's":  {owned{sys: &syscall.Stat_t{Uid: uint32(me) + 1}}, true},
		"a third's":  {owned{sys: &syscall.Stat_t{Uid: uint32(me) + 4711}}, true},
		"no answer":  {owned{}, false},
		"other type": {owned{sys: 1}, false},
	} {
		if got := foreign(c.info); got != c.want {
			t.Errorf("%s: foreign is %v, want %v", what, got, c.want)
		}
	}
}

// writeNew is the way for file systems without hard links, which a test can
// hardly have. It must not write over a file either.
func TestWriteNewWritesOverNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "keys")
	if err := WriteNew(path, []byte("first")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"keys", "link"} {
		if name == "link" {
			if err := os.Symlink("nowhere", filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		if err := WriteNew(filepath.Join(dir, name), []byte("second")); !os.IsExist(err) {
			t.Errorf("%s: %v, want that it exists", name, err)
		}
	}
	content, err := os.ReadFile(path)
	if err != nil || string(content) != "first" {
		t.Errorf("the file holds %q, %v", content, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "nowhere")); err == nil {
		t.Error("it wrote through a link")
	}
}
