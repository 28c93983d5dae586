package token

import (
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
)

// The files of the keys, in the controller's data folder.
const (
	OperatorFile = "operator-tokens.key"
	MachineFile  = "machine-tokens.key"
)

// How long tokens last.
const (
	OperatorLife = 12 * time.Hour
	MachineLife  = time.Hour // decision O25
)

// class is a kind of tokens.
type class struct {
	purpose  string // in the key file
	typ      string // in the header
	audience string
	life     time.Duration
	machine  bool
}

var (
	operators = class{"operator tokens", "operator+jwt", "zone-operator", OperatorLife, false}
	machines  = class{"machine tokens", "machine+jwt", "zone-machine", MachineLife, true}
)

// Keys are the two keys of one controller. They print as a placeholder.
type Keys struct{ operators, machines signing }

// signing is one key with what its tokens have in common.
type signing struct {
	class
	_       [0]func()
	issuer  string // the controller, as random as the key
	kid     string
	header  string // the first part of each token
	public  ed25519.PublicKey
	private func() crypto.Signer // a closure, so that reflection finds no key
}

const placeholder = "(private keys)"

// String is a placeholder.
func (*Keys) String() string { return placeholder }

// GoString is a placeholder.
func (*Keys) GoString() string { return placeholder }

// Format prints a placeholder for every verb.
func (*Keys) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, placeholder) }

// LogValue logs a placeholder.
func (*Keys) LogValue() slog.Value { return slog.StringValue(placeholder) }

// Open loads the keys of a data folder, and makes those that are not there. Of
// several processes that do so at once, all get the ones that won. It returns
// ErrKeyFile, keyfile.ErrOpen, keyfile.ErrPlatform and keyfile.ErrUnreadable; after
// each of them the file is as it was.
func Open(dir string, rand io.Reader, now time.Time) (*Keys, error) {
	o, err := open(filepath.Join(dir, OperatorFile), operators, rand, now)
	if err != nil {
		return nil, err
	}
	m, err := open(filepath.Join(dir, MachineFile), machines, rand, now)
	if err != nil {
		return nil, err
	}
	return &Keys{o, m}, nil
}

func open(path string, c class, rand io.Reader, now time.Time) (signing, error) {
	content, err := keyfile.LoadSecret(path, maxFile)
	if errors.Is(err, keyfile.ErrAbsent) {
		content, err = create(path, c, rand, now)
	}
	if err != nil {
		return signing{}, err
	}
	return parse(content, c)
}

// maxFile is the largest key file, in bytes.
const maxFile = 1 << 10

// stored is what a key file holds.
type stored struct {
	purpose, issuer string
	public, private string // base64url, the private half as its seed (RFC 8032)
	created         zone.Millis
}

var storedShape = exact.Shape[stored]{Fields: func(o *exact.Object, s *stored) {
	version := int64(1)
	exact.Whole(o, "version", &version, 1, 1)
	exact.Text(o, "purpose", &s.purpose, 1, 0)
	exact.Text(o, "issuer", &s.issuer, 1, 0)
	exact.Text(o, "publicKey", &s.public, 1, 0)
	exact.Text(o, "privateKey", &s.private, 1, 0)
	exact.Whole(o, "createdAt", &s.created, 0, 0)
}}

const issuerBytes = 16

// create makes a key in a new file and returns what the file holds.
func create(path string, c class, rand io.Reader, now time.Time) ([]byte, error) {
	random := make([]byte, issuerBytes+ed25519.SeedSize)
	if _, err := io.ReadFull(rand, random); err != nil {
		return nil, refusal.Internal.Because(err)
	}
	seed := random[issuerBytes:]
	content, err := storedShape.Bytes(stored{
		purpose: c.purpose,
		issuer:  hex.EncodeToString(random[:issuerBytes]),
		public:  encode(ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)),
		private: encode(seed),
		created: zone.At(now),
	})
	if err != nil {
		return nil, refusal.Internal.Because(err) // a time before 1970
	}
	content = append(content, '\n')
	if err := keyfile.CreateSecret(path, content); errors.Is(err, keyfile.ErrExists) {
		return keyfile.LoadSecret(path, maxFile) // another process was first
	} else if err != nil {
		return nil, err
	}
	return content, nil
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// decode reads exactly n bytes. Decoding skips line ends, so the text is compared.
func decode(text string, n int) ([]byte, bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	return b, err == nil && len(b) == n && encode(b) == text
}

// parse reads what create wrote, and insists on exactly that. Every part must fit
// the others. It returns ErrKeyFile.
func parse(content []byte, c class) (signing, error) {
	s, err := storedShape.Read(content, exact.Limits{Bytes: maxFile, Depth: 1, Values: 16})
	if err != nil {
		return signing{}, ErrKeyFile.Because(err)
	}
	seed, ok1 := decode(s.private, ed25519.SeedSize)
	public, ok2 := decode(s.public, ed25519.PublicKeySize)
	issuer, err := hex.DecodeString(s.issuer)
	if !ok1 || !ok2 || err != nil || len(issuer) != issuerBytes || hex.EncodeToString(issuer) != s.issuer || s.purpose != c.purpose {
		return signing{}, ErrKeyFile
	}
	private := ed25519.NewKeyFromSeed(seed)
	if !private.Public().(ed25519.PublicKey).Equal(ed25519.PublicKey(public)) {
		return signing{}, ErrKeyFile
	}
	sum := sha256.Sum256(public)
	k := signing{
		class: c, issuer: s.issuer, kid: encode(sum[:12]),
		public: public, private: func() crypto.Signer { return private },
	}
	// Tokens of this key have this header in this spelling and no other.
	k.header = encode([]byte(`{"alg":"` + jwt.SigningMethodEdDSA.Alg() + `","kid":"` + k.kid + `","typ":"` + c.typ + `"}`))
	return k, nil
}
