package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"filippo.io/age"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
)

// What this package refuses.
var (
	ErrRecoveryKey = refusal.NewKind("recovery-key", 400,
		"This is no recovery key, or not the one that this archive was sealed to.",
		"Use the key that was shown when the first backup of this party was made. It begins with AGE-SECRET-KEY-1.")
	ErrRecipient = refusal.NewKind("backup-recipient", 500,
		"The file that names the recovery key's public half is damaged.",
		"Remove the file to begin with a new recovery key. Older archives still need the older key.")
	ErrArchive = refusal.NewKind("backup-damaged", 400,
		"The archive is damaged or incomplete, or is no backup of Allod.",
		"Use another copy of it, or an older backup. Nothing was restored.")
	ErrTaken = refusal.NewKind("restore-taken", 409,
		"The folder to restore to holds something already, and nothing is written over.",
		"Choose a folder that is empty or does not exist yet.")
	ErrFiles = refusal.NewKind("backup-files", 500,
		"A file of the backup could not be read or written.",
		"Look in the log for the system's reason; check the path, the owner and the free space.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Backups", Kinds: []*refusal.Kind{
	ErrRecoveryKey, ErrRecipient, ErrArchive, ErrTaken, ErrFiles,
}}

// Bounds of an archive.
const (
	maxParts    = 64
	maxManifest = 64 << 10
)

// Part is one file of a backup.
type Part struct {
	// Name is the file's name in the archive and in the folder it is restored to:
	// lower-case letters, digits, dots and dashes.
	Name string
	// Path is where it lies now. It must not change meanwhile.
	Path string
}

// Manifest is what an archive says of itself.
type Manifest struct {
	// Party is what the archive was made of, as in "site".
	Party string
	// Created is when, to the millisecond.
	Created time.Time
	// Files are the parts in their order.
	Files []File
}

// File is one part as the manifest names it.
type File struct {
	Name   string
	Size   int64  // bytes
	SHA256 string // lower-case hex
}

const format = 1

var fileShape = exact.Shape[File]{Fields: func(o *exact.Object, f *File) {
	exact.Text(o, "name", &f.Name, 1, 100)
	exact.Whole(o, "size", &f.Size, 0, 0)
	exact.Text(o, "sha256", &f.SHA256, 64, 64)
}}

var manifestShape = exact.Shape[Manifest]{Fields: func(o *exact.Object, m *Manifest) {
	version := int64(format)
	exact.Whole(o, "format", &version, format, format)
	exact.Text(o, "party", &m.Party, 1, 100)
	created := m.Created.UnixMilli()
	exact.Whole(o, "createdAt", &created, 1, 0)
	m.Created = time.UnixMilli(created).UTC()
	exact.List(o, "files", &m.Files, 1, maxParts, fileShape)
}}

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,98}$`)

const manifestName = "manifest.json"

// Write writes an archive of the parts, sealed to the recipient. It returns
// [ErrFiles].
func Write(w io.Writer, to age.Recipient, party string, now time.Time, parts []Part) error {
	m := Manifest{Party: party, Created: now}
	for _, p := range parts {
		if !nameForm.MatchString(p.Name) {
			return ErrFiles.With("A part's name is not plain.")
		}
		f, err := describe(p)
		if err != nil {
			return ErrFiles.Because(err)
		}
		m.Files = append(m.Files, f)
	}
	text, err := manifestShape.Append(nil, m)
	if err != nil {
		return ErrFiles.Because(err)
	}
	sealed, err := age.Encrypt(w, to)
	if err != nil {
		return ErrFiles.Because(err)
	}
	out := tar.NewWriter(sealed)
	err = add(out, manifestName, int64(len(text)), now, bytes.NewReader(text))
	for i, p := range parts {
		if err == nil {
			err = addFile(out, p, m.Files[i], now)
		}
	}
	if err == nil {
		err = out.Close()
	}
	if err == nil {
		err = sealed.Close()
	}
	if err != nil {
		return ErrFiles.Because(err)
	}
	return nil
}

func describe(p Part) (File, error) {
	f, err := os.Open(p.Path)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	return File{Name: p.Name, Size: n, SHA256: sum(h)}, err
}

func addFile(out *tar.Writer, p Part, f File, now time.Time) error {
	in, err := os.Open(p.Path)
	if err != nil {
		return err
	}
	defer in.Close()
	return add(out, f.Name, f.Size, now, in)
}

func add(out *tar.Writer, name string, size int64, now time.Time, content io.Reader) error {
	if err := out.WriteHeader(&tar.Header{Name: name, Size: size, Mode: 0o600, ModTime: now, Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err := io.CopyN(out, content, size)
	return err
}

// Restore puts an archive back into a folder that is empty or absent. It returns
// [ErrTaken], [ErrRecoveryKey], [ErrArchive] or [ErrFiles], and after an error
// the folder is as it was.
func Restore(r io.Reader, recoveryKey, dir string) (m Manifest, err error) {
	identity, err := age.ParseX25519Identity(recoveryKey)
	if err != nil {
		return Manifest{}, ErrRecoveryKey
	}
	made, err := takeFolder(dir)
	if err != nil {
		return Manifest{}, err
	}
	defer func() {
		if err != nil {
			clear(dir, made, m)
			m = Manifest{}
		}
	}()
	opened, err := age.Decrypt(r, identity)
	var other *age.NoIdentityMatchError
	switch {
	case errors.As(err, &other):
		return Manifest{}, ErrRecoveryKey
	case err != nil:
		return Manifest{}, ErrArchive.Because(err)
	}
	in := tar.NewReader(opened)
	if m, err = readManifest(in); err != nil {
		return m, err
	}
	for _, f := range m.Files {
		if err := restoreFile(in, f, dir); err != nil {
			return m, err
		}
	}
	// The end counts too: a stream that was cut is no backup.
	if _, err := in.Next(); err != io.EOF {
		return m, ErrArchive
	}
	if _, err := io.Copy(io.Discard, opened); err != nil {
		return m, ErrArchive.Because(err)
	}
	return m, syncFolder(dir)
}

func readManifest(in *tar.Reader) (Manifest, error) {
	head, err := in.Next()
	if err != nil || head.Name != manifestName || head.Size > maxManifest {
		return Manifest{}, ErrArchive
	}
	text, err := io.ReadAll(io.LimitReader(in, maxManifest))
	if err != nil {
		return Manifest{}, ErrArchive.Because(err)
	}
	m, err := manifestShape.Read(text, exact.Limits{Bytes: maxManifest, Depth: 3, Values: 8 * maxParts})
	if err != nil {
		return Manifest{}, ErrArchive.Because(err)
	}
	seen := map[string]bool{}
	for _, f := range m.Files {
		if !nameForm.MatchString(f.Name) || seen[f.Name] {
			return Manifest{}, ErrArchive
		}
		seen[f.Name] = true
	}
	return m, nil
}

func restoreFile(in *tar.Reader, f File, dir string) error {
	head, err := in.Next()
	if err != nil || head.Name != f.Name || head.Size != f.Size || head.Typeflag != tar.TypeReg {
		return ErrArchive
	}
	out, err := os.OpenFile(filepath.Join(dir, f.Name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return ErrFiles.Because(err)
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(out, h), in)
	if err == nil {
		err = out.Sync()
	}
	if closing := out.Close(); err == nil {
		err = closing
	}
	switch {
	case isPathError(err): // the disk
		return ErrFiles.Because(err)
	case err != nil: // the stream
		return ErrArchive.Because(err)
	case n != f.Size || sum(h) != f.SHA256:
		return ErrArchive
	}
	return nil
}

func isPathError(err error) bool {
	var p *fs.PathError
	return errors.As(err, &p)
}

// takeFolder makes the folder if it is absent, and reports whether it did.
func takeFolder(dir string) (made bool, err error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.Mkdir(dir, 0o700); err != nil {
			return false, ErrFiles.Because(err)
		}
		return true, nil
	case err != nil:
		return false, ErrFiles.Because(err)
	case len(entries) > 0:
		return false, ErrTaken
	}
	return false, nil
}

// clear removes what a failed restore has written.
func clear(dir string, made bool, m Manifest) {
	for _, f := range m.Files {
		_ = os.Remove(filepath.Join(dir, f.Name))
	}
	if made {
		_ = os.Remove(dir)
	}
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return ErrFiles.Because(err)
	}
	defer d.Close()
	_ = d.Sync() // not every system can
	return nil
}

func sum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }
