package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/allodhq/allod/internal/keyfile"
)

// Bounds of a secret.
const (
	secretPrefix = "whsec_"
	minSecret    = 24 // bytes, as the specification has it
	maxSecret    = 64
	newSecret    = 32
	// MaxSecrets is how many secrets an endpoint has at most: the new one and,
	// while it is rotated, the old one.
	MaxSecrets = 2
	// maxSecretFile is in bytes.
	maxSecretFile = 1024
)

// Secret is what an endpoint's messages are signed with, shared with its server.
type Secret struct{ key string }

// ParseSecret reads a secret's text form. It returns [ErrSecret].
func ParseSecret(text string) (Secret, error) {
	rest, ok := strings.CutPrefix(text, secretPrefix)
	// Strict takes line breaks.
	key, err := base64.StdEncoding.Strict().DecodeString(rest)
	if !ok || err != nil || strings.ContainsAny(rest, "\r\n") || len(key) < minSecret || len(key) > maxSecret {
		return Secret{}, ErrSecret
	}
	return Secret{string(key)}, nil
}

// String hides the secret.
func (Secret) String() string { return "(webhook secret)" }

// GoString hides the secret.
func (Secret) GoString() string { return "(webhook secret)" }

// LoadSecrets reads a file of one or two secrets, a line each, which only this
// user can read. All of them sign; the order does not matter. It returns
// [ErrSecretFile], which is [fs.ErrNotExist] too where no file is there, or
// [ErrSecret].
func LoadSecrets(path string) ([]Secret, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrSecretFile.With("There is no file at this path.").Because(err)
	case err != nil:
		return nil, ErrSecretFile.Because(err)
	case !info.Mode().IsRegular(): // opening a pipe would wait for a writer
		return nil, ErrSecretFile.With("It is no plain file.")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, ErrSecretFile.Because(err)
	}
	defer f.Close()
	// Asked of the open file, since the name may have changed hands.
	if info, err = f.Stat(); err != nil {
		return nil, ErrSecretFile.Because(err)
	}
	if keyfile.Reached(info) {
		return nil, ErrSecretFile.With("Other users can read or change it, so the secret may no longer be one.")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err != nil || len(text) > maxSecretFile {
		return nil, ErrSecretFile.With("It cannot be read, or it is longer than such a file is.").Because(err)
	}
	var secrets []Secret
	for line := range strings.Lines(string(text)) {
		s, err := ParseSecret(strings.TrimSpace(line))
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, s)
	}
	if len(secrets) < 1 || len(secrets) > MaxSecrets {
		return nil, ErrSecretFile.With("It has no line, or more than two.")
	}
	return secrets, nil
}

// CreateSecret makes a secret of 32 bytes of rand in a new file that only this
// user can read. It never writes over a file: then the error is
// [ErrSecretFile], and [fs.ErrExist] too.
func CreateSecret(path string, rand io.Reader) error {
	var key [newSecret]byte
	if _, err := io.ReadFull(rand, key[:]); err != nil {
		return ErrSecretFile.Because(err)
	}
	line := secretPrefix + base64.StdEncoding.EncodeToString(key[:]) + "\n"
	if err := keyfile.WriteNew(path, []byte(line)); err != nil {
		return ErrSecretFile.With("It cannot be made.").Because(err)
	}
	return nil
}

// sign is the value of webhook-signature: a signature by each secret, separated
// by spaces. The seconds are those of webhook-timestamp.
func sign(secrets []Secret, id string, seconds int64, body []byte) string {
	var list []string
	for _, s := range secrets {
		h := hmac.New(sha256.New, []byte(s.key))
		h.Write([]byte(id + "." + strconv.FormatInt(seconds, 10) + "."))
		h.Write(body)
		list = append(list, "v1,"+base64.StdEncoding.EncodeToString(h.Sum(nil)))
	}
	return strings.Join(list, " ")
}
