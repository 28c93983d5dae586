package programs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gofrs/flock"
)

var (
	folder string // of this test binary, removed at its end
	self   string // this test binary, where it is the command as well
)

// Itself has the command be this test binary, which was linked with what the
// compiler was told to change, and can be run by a user who can build nothing. A
// package's TestMain calls it before [Main], and is the command where the binary was
// started by its name.
func Itself() (err error) {
	self, err = os.Executable()
	return err
}

// Main runs the tests of a package and ends the process. A package that uses
// [Allod] calls it from its TestMain.
func Main(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "allod-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(folder); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

var built = sync.OnceValues(func() (string, error) {
	if folder == "" {
		return "", errors.New("the package's TestMain does not call programs.Main")
	}
	path := filepath.Join(folder, "allod")
	if self != "" {
		return path, os.Symlink(self, path)
	}
	build := exec.Command("go", "build", "-o", path, "github.com/allodhq/allod/cmd/allod")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the command does not build: %w\n%s", err, out)
	}
	return path, nil
})

// Allod is the path of the command, which is built once for all tests of a package.
func Allod(t *testing.T) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// errAbsent is returned when a program that this machine may lack is absent.
var errAbsent = errors.New("absent")

// Node is the path of node, once the packages are there that the package-lock.json
// of a folder names. Where either cannot be had it skips the test, or fails it where
// ALLOD_INTEROP is "required".
func Node(t *testing.T, dir string) string {
	t.Helper()
	once, _ := prepared.LoadOrStore(dir, sync.OnceValues(func() (string, error) { return prepare(dir) }))
	path, err := once.(func() (string, error))()
	if errors.Is(err, errAbsent) && os.Getenv("ALLOD_INTEROP") != "required" {
		t.Skipf("programs of others were not run: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// prepared has for each folder what prepares it once: without a network npm takes
// its time to give up.
var prepared sync.Map

func prepare(dir string) (string, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return "", fmt.Errorf("node is %w from the PATH", errAbsent)
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", fmt.Errorf("npm is %w from the PATH", errAbsent)
	}
	return node, install(npm, dir)
}

// install fetches the packages that the lock names, unless they are there. npm
// begins by removing what is there, so only one process does it at a time.
func install(npm, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(dir))
	lock := flock.New(filepath.Join(os.TempDir(), "allod-npm-"+hex.EncodeToString(sum[:8])+".lock"))
	if err := lock.Lock(); err != nil {
		return err
	}
	defer func() { _ = lock.Unlock() }()
	wanted, err := os.Stat(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return err
	}
	// npm writes this file last.
	have, err := os.Stat(filepath.Join(dir, "node_modules", ".package-lock.json"))
	if err == nil && !have.ModTime().Before(wanted.ModTime()) {
		return nil
	}
	ci := exec.Command(npm, "ci", "--ignore-scripts", "--loglevel=error")
	ci.Dir = dir
	if out, err := ci.CombinedOutput(); err != nil {
		return fmt.Errorf("the packages are %w, and npm ci could not get them: %v\n%s", errAbsent, err, out)
	}
	return nil
}
