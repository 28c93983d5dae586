package bench

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// temporary is the pattern of a temporary folder's name.
const temporary = "allod-bench-"

// workFolder returns the absolute path of an empty folder on a disk, and what
// takes away what was put there. data is where it shall be; empty means the
// system's folder for temporary files or, where that is in memory, the current
// one. It returns [ErrFolder] and [ErrMemoryDisk].
func workFolder(data string) (dir string, remove func(), err error) {
	if data != "" {
		return namedFolder(data)
	}
	parent := os.TempDir()
	if inMemory(parent) {
		parent = "."
	}
	if inMemory(parent) {
		return "", nil, ErrMemoryDisk
	}
	if dir, err = os.MkdirTemp(parent, temporary); err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return "", nil, ErrFolder.Because(err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

func namedFolder(data string) (dir string, remove func(), err error) {
	if dir, err = filepath.Abs(data); err != nil {
		return "", nil, ErrFolder.Because(err)
	}
	entries, err := os.ReadDir(dir)
	made := errors.Is(err, fs.ErrNotExist)
	if made {
		err = os.MkdirAll(dir, 0o700)
	}
	remove = func() {
		if made {
			_ = os.RemoveAll(dir)
			return
		}
		// Somebody else's folder stays, as the root of a disk must.
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
	switch {
	case err != nil:
		return "", nil, ErrFolder.Because(err)
	case inMemory(dir):
		if made {
			remove()
		}
		return "", nil, ErrMemoryDisk
	case len(entries) > 0:
		return "", nil, ErrFolder
	}
	return dir, remove, nil
}
