package runner_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/settings"
)

// TestOrphans: an agent that was killed leaves a run's processes behind. The next
// one ends them as it takes the folder, by whatever name, and no others.
func TestOrphans(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(top, "link")
	if err := os.Symlink(filepath.Join(top, "agent"), link); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(top, "agent"), 0o700); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(top, "agent", "scratch", "allod-run-1")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	begin := func(tmp string) *exec.Cmd {
		c := exec.Command("sleep", "600")
		c.Env = []string{"A=b", "TMPDIR=" + tmp, "PATH=" + os.Getenv("PATH")}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
		return c
	}
	orphan, other := begin(left), begin(filepath.Join(top, "agent", "scratch"))
	ended := make(chan error, 1)
	go func() { ended <- orphan.Wait() }()
	a, err := runner.Open(runner.Config{Home: link, Version: "test", Settings: settings.Defaults()})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("what a run left behind lives on")
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Error("another process was ended")
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("its folder is left: %v", err)
	}
}
