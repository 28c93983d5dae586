//go:build unix

package datadir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/allodhq/allod/internal/keyfile"
)

// owned is a private folder that says it belongs to a user.
type owned struct {
	fs.FileInfo
	sys any
}

func (o owned) Sys() any          { return o.sys }
func (o owned) Mode() fs.FileMode { return fs.ModeDir | 0o700 }

// Few machines let a test make folders of several users, so the rule itself is
// asked.
func TestReached(t *testing.T) {
	me := uint32(os.Geteuid())
	for what, c := range map[string]struct {
		info fs.FileInfo
		want bool
	}{
		"mine":       {owned{sys: &syscall.Stat_t{Uid: me}}, false},
		"of root":    {owned{sys: &syscall.Stat_t{Uid: 0}}, false},
		"another's":  {owned{sys: &syscall.Stat_t{Uid: me + 1}}, true},
		"no answer":  {owned{}, false},
		"other type": {owned{sys: 1}, false},
	} {
		if got := keyfile.Reached(c.info); got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

func TestPrepareRefusesAnothersFolder(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a folder away")
	}
	dir := filepath.Join(t.TempDir(), "theirs")
	if err := Prepare(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 4711, -1); err != nil {
		t.Fatal(err)
	}
	if err := Prepare(dir); !errors.Is(err, ErrData) {
		t.Errorf("%v", err)
	}
}
