package datadir_test

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/allodhq/allod/internal/datadir"
)

// TestFullDisk: what was there stays, whole, and nothing is left beside it.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		t.Skip("this machine does not let us mount a file system: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "file")
	old := bytes.Repeat([]byte("old"), 10_000)
	if err := datadir.Replace(path, old); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		mustBe(t, "full", datadir.Replace(path, make([]byte, 60_000)), datadir.ErrWrite)
		mustBe(t, "full, a new file", datadir.Replace(filepath.Join(dir, "new"), make([]byte, 60_000)), datadir.ErrWrite)
		if got, err := datadir.Read(path, 1<<20); err != nil || !bytes.Equal(got, old) {
			t.Errorf("%d bytes are there: %v", len(got), err)
		}
		only(t, dir, "file")
	}
	if err := datadir.Replace(path, []byte("new")); err != nil {
		t.Errorf("there is room again: %v", err)
	}
}
