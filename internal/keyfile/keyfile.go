package keyfile

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
)

// What this package refuses.
var (
	ErrExists = refusal.NewKind("key-file-exists", 409,
		"There already is a key file at this path, and a key file is never written over.",
		"Use the existing file, or choose another path. To give an identity up for good, move its file away first.")
	ErrAbsent = refusal.NewKind("key-file-absent", 404,
		"There is no key file at this path.",
		"Check the path, or create the key file first.")
	ErrOpen = refusal.NewKind("key-file-open-to-others", 403,
		"Other users of this machine can read or change the key file, so the key may no longer be secret.",
		"Run chmod 600 on the file. If somebody else may have read it, make a new key and pair again.")
	ErrUnreadable = refusal.NewKind("key-file-unreadable", 500,
		"The key file cannot be read or written.",
		"Look in the log for the system's reason; check the owner, the folder and the free space.")
	ErrPlatform = refusal.NewKind("key-file-platform", 501,
		"On this operating system Allod cannot yet keep other users from reading a key file.",
		"Keep the keys on a Linux or macOS machine.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Key files", Kinds: []*refusal.Kind{
	ErrExists, ErrAbsent, ErrOpen, ErrUnreadable, ErrPlatform,
}}

// mode lets the owner read and write, and nobody else.
const mode fs.FileMode = 0o600

// Platform returns [ErrPlatform] where nothing here could keep a secret, for
// packages whose libraries write key files themselves.
func Platform() error {
	if !protects {
		return ErrPlatform
	}
	return nil
}

// Create writes k to a new file, as [CreateSecret] does.
func Create[R key.Role](path string, k key.Keys[R]) error {
	if !protects {
		return ErrPlatform
	}
	content, err := key.MarshalFile(k)
	if err != nil {
		return err
	}
	return CreateSecret(path, content)
}

// CreateSecret writes content to a new file at path with mode 0600 and returns
// once it is on the disk. Of several processes that create the same path one
// wins; the others get [ErrExists] and the file is the winner's, whole. A crash
// leaves either no file or a whole one at path, and may leave a temporary file
// beside it that holds the same secret; where the file system has no hard links,
// it may leave a damaged file at path. It returns [ErrPlatform], [ErrExists] and
// [ErrUnreadable].
func CreateSecret(path string, content []byte) error {
	if !protects {
		return ErrPlatform
	}
	temp, err := WriteTemp(path, content)
	if err != nil {
		return ErrUnreadable.Because(err)
	}
	defer func() { _ = os.Remove(temp) }()
	// Link fails where the path exists, so a half-written file is never seen
	// under the final name and an existing one is never replaced.
	switch err := os.Link(temp, path); {
	case err == nil:
	case errors.Is(err, fs.ErrExist):
		return ErrExists
	default:
		// Some file systems have no hard links. Exclusive create keeps the
		// "never over another file" half of the promise.
		if err := WriteNew(path, content); errors.Is(err, fs.ErrExist) {
			return ErrExists
		} else if err != nil {
			return ErrUnreadable.Because(err)
		}
	}
	if err := SyncDir(filepath.Dir(path)); err != nil {
		return ErrUnreadable.Because(err)
	}
	return nil
}

// Load reads the key file at path. It returns [key.ErrFile] when its content is
// damaged, and what [LoadSecret] returns.
func Load[R key.Role](path string) (key.Keys[R], error) {
	content, err := LoadSecret(path, key.MaxFile)
	if err != nil {
		return key.Keys[R]{}, err
	}
	return key.ParseFile[R](content)
}

// LoadSecret reads at most limit bytes, and one more, which tells the caller that
// the file is too long to be one. It returns [ErrPlatform], [ErrAbsent],
// [ErrOpen] when others can reach the file, and [ErrUnreadable] for the rest.
func LoadSecret(path string, limit int) ([]byte, error) {
	if !protects {
		return nil, ErrPlatform
	}
	// Asked before opening, since opening a pipe would wait for a writer.
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrAbsent
	case err != nil:
		return nil, ErrUnreadable.Because(err)
	case !info.Mode().IsRegular():
		return nil, ErrUnreadable.With("The path is not a plain file.")
	}
	f, err := os.OpenFile(path, os.O_RDONLY|openWithoutWait, 0)
	if err != nil {
		return nil, ErrUnreadable.Because(err)
	}
	defer f.Close()
	// Asked again of the open file, since the name may have changed hands.
	if info, err = f.Stat(); err != nil {
		return nil, ErrUnreadable.Because(err)
	}
	if Reached(info) {
		return nil, ErrOpen
	}
	content, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, ErrUnreadable.Because(err)
	}
	return content, nil
}

// WriteTemp writes a secret, as [WriteNew] does, to a new file beside path, from
// which it can be brought to its name in one step. It returns the system's error.
func WriteTemp(path string, content []byte) (string, error) {
	var suffix [8]byte
	if _, err := rand.Read(suffix[:]); err != nil {
		return "", err
	}
	temp := path + "." + hex.EncodeToString(suffix[:]) + ".tmp"
	return temp, WriteNew(temp, content)
}

// WriteNew writes a secret to a new file that only this user can read, and
// returns once it is on the disk. After an error no file of its is left. It
// returns the system's error, fs.ErrExist where the path is taken.
func WriteNew(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	err = f.Chmod(mode) // a umask may have taken the owner's bits away
	if err == nil {
		_, err = f.Write(content)
	}
	if err == nil {
		err = f.Sync()
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err != nil {
		_ = os.Remove(path) // ours, by O_EXCL
	}
	return err
}

// SyncDir returns once the names in a folder are on the disk. It returns the
// system's error.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
