package key

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/allodhq/allod/internal/exact"
)

// MaxFile is the largest key file that is read, in bytes.
const MaxFile = 16 << 10

var fileLimits = exact.Limits{Bytes: MaxFile, Depth: 1, Values: 16}

// stored is a key file's content, field for field. The contract's own daemons
// write and read the same file.
type stored struct {
	identityPublic, identityPrivate     string
	encryptionPublic, encryptionPrivate string
	encryptionSig                       string
	createdAt                           int64
}

var storedShape = exact.Shape[stored]{Fields: func(o *exact.Object, s *stored) {
	version := int64(1)
	exact.Whole(o, "version", &version, 1, 1)
	exact.Text(o, "identityPublic", &s.identityPublic, 1, 0)
	exact.Text(o, "identityPrivate", &s.identityPrivate, 1, 0)
	exact.Text(o, "encryptionPublic", &s.encryptionPublic, 1, 0)
	exact.Text(o, "encryptionPrivate", &s.encryptionPrivate, 1, 0)
	exact.Text(o, "encryptionSig", &s.encryptionSig, 1, 0)
	exact.Whole(o, "createdAt", &s.createdAt, 1, 0)
}}

// PKCS#8 (RFC 5958, RFC 8410) wraps both private keys in a fixed prefix:
// version 0, the algorithm, and the 32 bytes as an octet string in an octet
// string. A longer file with optional attributes is refused.
var (
	pkcs8Ed25519 = []byte{0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20}
	pkcs8X25519  = []byte{0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x6e, 0x04, 0x22, 0x04, 0x20}
)

// MarshalFile returns the content of a key file: the private halves in the
// clear, as the contract's StoredKeys object, indented, with a final newline.
// This is the only way out for a private key. Only internal/keyfile may call
// it, which a test of the repository holds. It returns [ErrNoKey], and
// another error for keys from before 1970.
func MarshalFile[R Role](k Keys[R]) ([]byte, error) {
	if k.IsZero() {
		return nil, ErrNoKey
	}
	text, err := storedShape.Append(nil, stored{
		identityPublic:    k.identity.signing.String(),
		identityPrivate:   wrap(pkcs8Ed25519, k.signing.private().Seed()),
		encryptionPublic:  k.identity.sealing.String(),
		encryptionPrivate: wrap(pkcs8X25519, k.sealing.private().Bytes()),
		encryptionSig:     k.identity.binding.String(),
		createdAt:         k.created.UnixMilli(),
	})
	if err != nil {
		return nil, err
	}
	v := jsontext.Value(text)
	if err := v.Indent(jsontext.WithIndent("  ")); err != nil {
		return nil, err
	}
	return append(v, '\n'), nil
}

// ParseFile reads the content of a key file. Every part must fit the others:
// the public halves are computed from the private ones and compared, and the
// binding is verified. It returns [ErrFile] for anything else.
func ParseFile[R Role](content []byte) (Keys[R], error) {
	s, err := storedShape.Read(content, fileLimits)
	if err != nil {
		return Keys[R]{}, ErrFile.Because(err)
	}
	seed, ok1 := unwrap(pkcs8Ed25519, s.identityPrivate)
	secret, ok2 := unwrap(pkcs8X25519, s.encryptionPrivate)
	if !ok1 || !ok2 {
		return Keys[R]{}, ErrFile
	}
	id, err := ParseIdentity[R](s.identityPublic, s.encryptionPublic, s.encryptionSig)
	if err != nil {
		return Keys[R]{}, ErrFile.Because(err)
	}
	k := Keys[R]{
		signing: signingFromSeed(seed), sealing: sealingFromSecret(secret),
		identity: id, created: time.UnixMilli(s.createdAt).UTC(),
	}
	if k.signing.Public() != id.signing || k.sealing.Public() != id.sealing {
		return Keys[R]{}, ErrFile
	}
	return k, nil
}

func wrap(prefix, secret []byte) string {
	return base64.StdEncoding.EncodeToString(append(bytes.Clone(prefix), secret...))
}

// unwrap checks the length of the text, since strict decoding skips line
// breaks.
func unwrap(prefix []byte, text string) ([]byte, bool) {
	size := len(prefix) + ed25519.SeedSize
	der, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(der) != size || len(text) != base64.StdEncoding.EncodedLen(size) {
		return nil, false
	}
	return bytes.CutPrefix(der, prefix)
}
