package bench

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestMemoryDisk(t *testing.T) {
	const shared = "/dev/shm"
	if !inMemory(shared) {
		t.Skip("no folder in memory here")
	}
	dir, err := os.MkdirTemp(shared, "bench-test-")
	if err != nil {
		t.Skip("no folder in memory that may be written")
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	absent := filepath.Join(dir, "absent")
	for _, data := range []string{dir, absent} {
		if _, _, err := workFolder(data); !errors.Is(err, ErrMemoryDisk) {
			t.Errorf("%s: %v", data, err)
		}
	}
	if _, err := os.Stat(absent); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was made: %v", err)
	}

	// A temporary folder falls back to the current one, if that is on a disk.
	t.Setenv("TMPDIR", dir)
	t.Chdir(dir)
	if _, _, err := workFolder(""); !errors.Is(err, ErrMemoryDisk) {
		t.Errorf("both in memory: %v", err)
	}
	t.Setenv("TMPDIR", "")
	onDisk := t.TempDir()
	if inMemory(onDisk) {
		return
	}
	t.Setenv("TMPDIR", dir)
	t.Chdir(onDisk)
	got, remove, err := workFolder("")
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	if real, err := filepath.EvalSymlinks(filepath.Dir(got)); err != nil || real != mustReal(t, onDisk) {
		t.Errorf("it is in %s", got)
	}
}

func mustReal(t *testing.T, path string) string {
	t.Helper()
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return real
}

func TestPeak(t *testing.T) {
	for _, c := range []struct {
		status string
		want   int64
		ok     bool
	}{
		{"Name:\tallod\nVmPeak:\t  999 kB\nVmHWM:\t   30 kB\nVmRSS:\t 20 kB\n", 30 << 10, true},
		{"VmHWM:\t7 kB", 7 << 10, true},
		{"VmPeak:\t7 kB\n", 0, false},
		{"VmHWM:\t7 MB\n", 0, false},
		{"VmHWM:\tmany kB\n", 0, false},
		{"VmHWM:\n", 0, false},
		{"", 0, false},
	} {
		if got, ok := peakIn([]byte(c.status)); ok != c.ok || ok && got != c.want {
			t.Errorf("%q: %d %v", c.status, got, ok)
		}
	}
	if got, ok := peakOfRunning(os.Getpid()); !ok || got < 1<<20 {
		t.Errorf("this process: %d %v", got, ok)
	}
	if _, ok := peakOfRunning(-1); ok {
		t.Error("no process has memory")
	}
}
