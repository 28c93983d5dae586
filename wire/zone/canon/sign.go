package canon

import (
	"crypto"
	"crypto/ed25519"
	"encoding/base64"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/internal/codec"
)

// envelope is what is signed: an object of the domain, the authority that signs
// and the document (F05). The two are JSON texts.
func envelope(d Domain, authority, document []byte) ([]byte, error) {
	if d == (Domain{}) {
		return nil, refusal.Internal
	}
	// Each must be one value of its own, or it could say a member of the envelope.
	for _, part := range [][]byte{authority, document} {
		if _, err := exact.Parse(part, codec.Limits); err != nil {
			return nil, err
		}
	}
	src := append([]byte(`{"domain":"`+d.name+`","authority":`), authority...)
	src = append(append(append(src, `,"projection":`...), document...), '}')
	lim := codec.Limits
	lim.Bytes, lim.Depth, lim.Values = 2*lim.Bytes+1024, lim.Depth+1, 2*lim.Values+4
	return form(src, lim)
}

// Sign signs a document, a JSON text, in the name of an authority, another one.
// The signature is base64url without padding (decision O05). key must be an Ed25519
// key. It returns what [JSON] does, refusal.Internal for another key and for the
// zero domain, and the key's own error.
func Sign(key crypto.Signer, d Domain, authority, document []byte) (string, error) {
	text, err := envelope(d, authority, document)
	if err != nil {
		return "", err
	}
	if _, ok := key.Public().(ed25519.PublicKey); !ok {
		return "", refusal.Internal
	}
	sig, err := key.Sign(nil, text, crypto.Hash(0))
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(sig), nil
}

// Verify returns nil where signature is the key's over the document in the name of
// the authority. It returns ErrSignature, what [JSON] does, and refusal.Internal for
// the zero domain.
func Verify(key ed25519.PublicKey, d Domain, authority, document []byte, signature string) error {
	text, err := envelope(d, authority, document)
	if err != nil {
		return err
	}
	sig, err := base64.RawURLEncoding.Strict().DecodeString(signature)
	if err != nil || len(signature) != base64.RawURLEncoding.EncodedLen(ed25519.SignatureSize) ||
		len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, text, sig) {
		return ErrSignature
	}
	return nil
}
