//go:build unix

package service

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// entry is a file as it might be.
type entry struct {
	mode fs.FileMode
	uid  int
	gid  int
}

func (e entry) Name() string       { return "x" }
func (e entry) Size() int64        { return 0 }
func (e entry) Mode() fs.FileMode  { return e.mode }
func (e entry) ModTime() time.Time { return time.Time{} }
func (e entry) IsDir() bool        { return e.mode.IsDir() }
func (e entry) Sys() any           { return &syscall.Stat_t{Uid: uint32(e.uid), Gid: uint32(e.gid)} }

// TestOthersChange: who can change what is started.
func TestOthersChange(t *testing.T) {
	me := os.Geteuid()
	const strangers = 54321 // a group that no system has
	for what, c := range map[string]struct {
		e    entry
		want bool
	}{
		"mine":                      {entry{0o755, me, strangers}, false},
		"root's":                    {entry{0o755, 0, 0}, false},
		"mine, root's group writes": {entry{0o775, me, 0}, false},
		"mine, a group writes":      {entry{0o775, me, strangers}, true},
		"mine, all write":           {entry{0o757, me, 0}, true},
		"a stranger's":              {entry{0o755, me + 1, 0}, true},
		"a folder":                  {entry{fs.ModeDir | 0o755, 0, 0}, false},
		"a folder, all write":       {entry{fs.ModeDir | 0o777, 0, 0}, true},
		"a sticky folder":           {entry{fs.ModeDir | fs.ModeSticky | 0o777, 0, 0}, false},
		"a stranger's sticky one":   {entry{fs.ModeDir | fs.ModeSticky | 0o755, me + 1, 0}, true},
		"a sticky file":             {entry{fs.ModeSticky | 0o777, me, 0}, true},
		"a link":                    {entry{fs.ModeSymlink | 0o777, me, 0}, false},
		"a stranger's link":         {entry{fs.ModeSymlink | 0o777, me + 1, 0}, true},
	} {
		if got := othersChange(c.e); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

func TestOthersWrite(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	deep := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(deep, "allod")
	if err := os.WriteFile(file, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if othersWrite(file) {
		t.Error("nobody can write, and it is refused")
	}
	for _, path := range []string{file, deep, filepath.Join(dir, "a")} {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
		if !othersWrite(file) {
			t.Errorf("others can write %s", path)
		}
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if !othersWrite(filepath.Join(dir, "absent")) {
		t.Error("what is not there can be put there")
	}
}

func TestTemporary(t *testing.T) {
	t.Setenv("TMPDIR", "/srv/scratch")
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/7")
	for path, want := range map[string]bool{
		"/usr/local/bin/allod": false, "/home/ann/bin/allod": false, "/opt/tmp/allod": false, "/tmpx/allod": false, "/srv/scratchy/allod": false, "/home/ann/..tmp/allod": false,
		"/tmp/allod": true, "/tmp/a/b/allod": true, "/var/tmp/allod": true, "/dev/shm/allod": true, "/srv/scratch/allod": true, "/run/user/7/allod": true, "/run/user/8/allod": true,
		"/private/tmp/allod": true, "/private/var/folders/x/T/allod": true, "/home/ann/.cache/go-build/12/allod": true, "/home/ann/go-build12/b001/exe/allod": true,
		"/Users/ann/AppTranslocation/1/allod": true,
	} {
		if got := temporary(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	for path, want := range map[string]bool{"/home/ann/Downloads/allod": true, "/home/ann/downloads/x/allod": true, "/home/ann/bin/downloads.d/allod": false} {
		if Downloaded(path) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
}

func TestCheckProgram(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckProgram(self); !errors.Is(err, ErrTemporary) {
		t.Errorf("a program of go test: %v", err)
	}
	if err := CheckProgram("/absent/allod"); !errors.Is(err, ErrProgram) {
		t.Errorf("an absent one: %v", err)
	}
	if err := CheckProgram("/"); !errors.Is(err, ErrProgram) {
		t.Errorf("a folder: %v", err)
	}
	if err := CheckProgram("/etc/passwd"); !errors.Is(err, ErrProgram) {
		t.Errorf("no program: %v", err)
	}
	if err := CheckProgram("/bin/sh"); err != nil && runtime.GOOS == "linux" {
		t.Errorf("a system's own: %v", err)
	}
	// A name of a good program in a place for what is thrown away.
	link := filepath.Join(t.TempDir(), "allod")
	if err := os.Symlink("/bin/sh", link); err != nil {
		t.Fatal(err)
	}
	if err := CheckProgram(link); !errors.Is(err, ErrTemporary) {
		t.Errorf("a link in a temporary folder: %v", err)
	}
}

func TestSafePath(t *testing.T) {
	if _, err := os.Stat("/usr/bin"); err != nil {
		t.Skip("there is no /usr/bin")
	}
	open := t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/usr/bin": "/usr/bin", "/usr/bin:/usr/bin": "/usr/bin", ".:/usr/bin:": "/usr/bin", "bin:/absent:/usr/bin/sh:/usr/bin": "/usr/bin",
		open + ":/usr/bin": "/usr/bin", "/tmp:/usr/bin": "/usr/bin", "": "",
	} {
		if got := SafePath(path); got != want {
			t.Errorf("%s: %s", path, got)
		}
	}
}
