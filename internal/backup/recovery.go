package backup

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/age"
)

// recipientFile holds the public half of the recovery key, beside what is backed
// up.
const recipientFile = "backup-recipient.txt"

// Recipient returns the recovery key's public half that belongs to a party's
// folder. The first time it makes the key, keeps the public half in the folder,
// and returns the private half, to be shown once and nowhere kept. It returns
// [ErrRecipient] and [ErrFiles].
func Recipient(dir string) (to age.Recipient, shownOnce string, err error) {
	path := filepath.Join(dir, recipientFile)
	f, err := os.Open(path)
	switch {
	case err == nil:
		defer f.Close()
		text, err := io.ReadAll(io.LimitReader(f, 1024))
		if err != nil {
			return nil, "", ErrFiles.Because(err)
		}
		r, err := age.ParseX25519Recipient(strings.TrimSpace(string(text)))
		if err != nil {
			return nil, "", ErrRecipient
		}
		return r, "", nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, "", ErrFiles.Because(err)
	}
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, "", ErrFiles.Because(err)
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, "", ErrFiles.Because(err)
	}
	_, err = io.WriteString(out, identity.Recipient().String()+"\n")
	if err == nil {
		err = out.Sync()
	}
	if closing := out.Close(); err == nil {
		err = closing
	}
	if err != nil {
		_ = os.Remove(path)
		return nil, "", ErrFiles.Because(err)
	}
	return identity.Recipient(), identity.String(), nil
}
