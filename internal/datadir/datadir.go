package datadir

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/gofrs/flock"

	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/refusal"
)

// What this package refuses.
var (
	ErrData = refusal.NewKind("data-folder", 500,
		"The data folder cannot be used: it cannot be made or read, or other users can reach it.",
		"Give a folder that this user owns and nobody else can read, as chmod 700 makes it.")
	ErrRunning = refusal.NewKind("party-running", 409,
		"Another process uses the data folder.",
		"Stop it first. If it is a service, use its own command to do so.")
	ErrWrite = refusal.NewKind("data-write", 500,
		"A file in the data folder could not be written; what was there before is unchanged.",
		"Free some space, and check that this user may write there.")
	ErrRead = refusal.NewKind("data-read", 500,
		"A file in the data folder could not be read, or is larger than any that Allod writes there.",
		"Check the file's owner and rights; if the disk is damaged, restore a backup.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Data folders", Kinds: []*refusal.Kind{ErrData, ErrRunning, ErrWrite, ErrRead}}

// LockFile is locked while a process uses the folder. It stays when the process
// ends, and its lock does not.
const LockFile = "allod.lock"

// Prepare makes the folder, or checks that no other user reaches it. It returns
// [ErrData]. On Windows the rights of a folder are not checked.
func Prepare(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return ErrData.Because(err)
		}
		info, err = os.Stat(dir)
	}
	switch {
	case err != nil:
		return ErrData.Because(err)
	case !info.IsDir() || keyfile.Reached(info):
		return ErrData
	}
	return nil
}

// Lock keeps two processes from using one folder. It returns [ErrRunning] at
// once where another one does, and [ErrData].
func Lock(dir string) (release func(), err error) {
	l := flock.New(filepath.Join(dir, LockFile), flock.SetPermissions(0o600))
	switch got, err := l.TryLock(); {
	case err != nil:
		return nil, ErrData.Because(err)
	case !got:
		return nil, ErrRunning
	}
	return func() { _ = l.Unlock() }, nil
}

// Replace writes a file that only this user can read, in the place of one that
// is there. It returns once the new content is on the disk. After [ErrWrite] the
// old one is still there, but for one case: where the folder itself could not be
// written out, a power cut decides which of the two, and it is whole.
func Replace(path string, content []byte) error { return ReplaceAs(path, content, 0o600) }

// ReplaceAs is [Replace] for a file that has these permissions.
func ReplaceAs(path string, content []byte, mode fs.FileMode) error {
	temp, err := keyfile.WriteTemp(path, content)
	if err != nil {
		return ErrWrite.Because(err)
	}
	if mode != 0o600 {
		err = os.Chmod(temp, mode)
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp)
		return ErrWrite.Because(err)
	}
	return Sync(filepath.Dir(path))
}

// Sync returns once the names in a folder are on the disk. It returns [ErrWrite].
// Windows has no such thing, so there it does nothing.
func Sync(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	if err := keyfile.SyncDir(dir); err != nil {
		return ErrWrite.Because(err)
	}
	return nil
}

// Read reads a file of at most limit bytes. It returns fs.ErrNotExist as it is,
// so that callers can tell an absent file, and [ErrRead].
func Read(path string, limit int) ([]byte, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fs.ErrNotExist
	case err != nil:
		return nil, ErrRead.Because(err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil || len(content) > limit {
		return nil, ErrRead.Because(err)
	}
	return content, nil
}
