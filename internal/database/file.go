package database

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	// fileMode lets the owner read and write, and nobody else.
	fileMode fs.FileMode = 0o600
	// littleSpace is how many free bytes count as a full disk after a write
	// has failed. The engine writes pages of 4 KiB, and several at once.
	littleSpace = 64 << 10
)

// filePath reads the URL of a database.
func filePath(url string) (string, error) {
	engine, path, ok := strings.Cut(url, ":")
	switch {
	case !ok:
		return "", ErrURL
	case engine == "postgres" || engine == "postgresql":
		return "", ErrEngine
	case engine != "sqlite":
		return "", ErrURL.With("It must begin with sqlite and a colon.")
	case path == "" || strings.ContainsAny(path, "?#\x00"),
		strings.HasPrefix(path, ":"),                                     // :memory: would keep nothing
		strings.HasPrefix(path, "//") && !strings.HasPrefix(path, "///"): // a host
		return "", ErrURL
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", ErrUnreadable.Because(err)
	}
	// The engine puts its other files beside what a link points to.
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return path, nil
}

// openable makes sure that there is a plain file which can be read and
// written, creates it empty if it is absent, and returns its size in bytes.
func openable(path string) (size int64, err error) {
	if err := isFolder(filepath.Dir(path)); err != nil {
		return 0, err
	}
	// Asked before opening, since opening a pipe would wait for the other end.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return 0, ErrUnreadable.With("It is not a plain file.")
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, fileMode)
	if isFull(err) {
		return 0, ErrFull.Because(err)
	} else if err != nil {
		return 0, ErrUnreadable.Because(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, ErrUnreadable.Because(err)
	}
	return info.Size(), nil
}

func isFolder(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ErrFolder
	case err != nil:
		return ErrUnreadable.Because(err)
	case !info.IsDir():
		return ErrFolder
	}
	return nil
}

// private closes the database's files to other users. A restored backup may
// have been open to them. The index file is created here because the engine
// would create it with the mode that the user's mask leaves.
func private(path string) error {
	if runtime.GOOS == "windows" {
		return nil // a mode is no access list there
	}
	index, err := os.OpenFile(path+"-shm", os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return err
	}
	if err := index.Close(); err != nil {
		return err
	}
	for _, name := range []string{path, path + "-shm", path + "-wal"} {
		info, err := os.Stat(name)
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			err = os.Chmod(name, fileMode)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// syncFile returns once the file's content is on the disk.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = f.Sync()
	return errors.Join(err, f.Close())
}

// syncFolder returns once the names in the folder are on the disk.
func syncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil // folders cannot be synced there, and names are journalled
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	return errors.Join(err, f.Close())
}

// publish gives a whole and synced file its final name, which must be free. Its
// present name was taken exclusively, so of two that want the same name one has
// failed already.
func publish(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return ErrCopyExists
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(to))
}
