package ingress

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/allodhq/allod/wire/ai"
)

// TestFullDisk: what was not written is refused, what was is there, and the log
// goes on when there is room.
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
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 30<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	l := mustOpen(t, dir, maxFile)
	large := func(job ai.JobID) Line {
		line := lineOf(job)
		line.SetPrompt(strings.Repeat("x", 20<<10), 1, true)
		return line
	}
	mustWrite(t, l, large("a"))
	for range 3 {
		mustRefuse(t, "full", l.Write(large("b")))
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, l, lineOf("c"))
	if got, damaged := read(t, dir); damaged != 1 && damaged != 3 || !slices.Equal(jobs(got), []ai.JobID{"a", "c"}) {
		t.Errorf("%v, %d damaged", jobs(got), damaged)
	}
}
