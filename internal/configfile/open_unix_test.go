//go:build unix

package configfile_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/allodhq/allod/internal/configfile"
)

var errNotFolder error = syscall.ENOTDIR

// A pipe has no end, and opening one waits for a writer.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skipf("no pipes here: %v", err)
	}
	_, err := configfile.Read(path, machineShape)
	wantRefused(t, "a pipe", err, configfile.ErrUnreadable, "The path is not a plain file.")
}

func TestWithoutPermission(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	path := filepath.Join(t.TempDir(), "closed")
	if err := os.WriteFile(path, []byte("{}"), 0); err != nil {
		t.Fatal(err)
	}
	_, err := configfile.Read(path, machineShape)
	wantRefused(t, "closed", err, configfile.ErrUnreadable, "")
}
