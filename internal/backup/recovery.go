package backup

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/age"

	"github.com/allodhq/allod/internal/keyfile"
)

// recipientFile holds the public half of the recovery key, beside what is backed
// up.
const recipientFile = "backup-recipient.txt"

// Recovery is the recovery key of a party's folder.
type Recovery struct {
	// To is the public half, to which archives are sealed.
	To age.Recipient

	path    string
	private *age.X25519Identity // nil unless it is new
}

// LoadRecovery returns the recovery key of a folder, or a new one where there is
// none yet. A new one is kept only by [Recovery.Keep], so that a first backup
// that fails leaves nothing behind. It returns [ErrRecipient] and [ErrFiles].
func LoadRecovery(dir string) (*Recovery, error) {
	r := &Recovery{path: filepath.Join(dir, recipientFile)}
	f, err := os.Open(r.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if r.private, err = age.GenerateX25519Identity(); err != nil {
			return nil, ErrFiles.Because(err)
		}
		r.To = r.private.Recipient()
		return r, nil
	case err != nil:
		return nil, ErrFiles.Because(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1024))
	if err != nil {
		return nil, ErrFiles.Because(err)
	}
	if r.To, err = age.ParseX25519Recipient(strings.TrimSpace(string(text))); err != nil {
		return nil, ErrRecipient
	}
	return r, nil
}

// ShownOnce is the private half of a new key, to be shown and nowhere kept, or
// "" for a key that was shown before.
func (r *Recovery) ShownOnce() string {
	if r.private == nil {
		return ""
	}
	return r.private.String()
}

// Keep makes a new key the folder's: from now on it is not shown again. Call it
// once the archive is safe and the key has been shown. It returns [ErrFiles].
func (r *Recovery) Keep() error {
	if r.private == nil {
		return nil
	}
	if err := keyfile.WriteNew(r.path, []byte(r.private.Recipient().String()+"\n")); err != nil {
		return ErrFiles.Because(err)
	}
	return nil
}
