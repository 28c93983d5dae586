package key

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"fmt"
	"io"
	"log/slog"
)

// Signer signs as one identity. Whoever holds one can speak in that identity's
// name: send requests as the device, or vouch for a payload as the site. It may
// be a [Signing] key or something that keeps the key elsewhere, which is why it
// can fail.
type Signer interface {
	// Public is the half that verifies.
	Public() SigningPublic
	// Sign signs the message. Nothing is hashed or prefixed first, so a caller
	// that signs text from outside can be made to sign a request: sign only
	// messages that this module's wire packages built.
	Sign(message []byte) (Signature, error)
}

// Opener opens what was sealed to one key. Whoever holds one can read every
// message sealed to it, past and future, since sealed boxes have no forward
// secrecy.
type Opener interface {
	// Public is the half that others seal to.
	Public() SealingPublic
	// Open opens a sealed box. It returns [ErrUnopenable] for a box that was
	// sealed to another key or changed, and says no more about it. Any other
	// error means that the key could not be used.
	Open(box []byte) ([]byte, error)
}

// Signing is a private Ed25519 key. The zero value is no key: it signs nothing
// and its public half is zero.
type Signing struct {
	hidden
	private func() ed25519.PrivateKey // a closure, so that reflection finds no bytes
}

// NewSigning makes a key from 32 bytes of rand. It returns rand's error.
func NewSigning(rand io.Reader) (Signing, error) {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(rand, seed); err != nil {
		return Signing{}, fmt.Errorf("key: no randomness: %w", err)
	}
	return signingFromSeed(seed), nil
}

func signingFromSeed(seed []byte) Signing {
	private := ed25519.NewKeyFromSeed(seed)
	return Signing{private: func() ed25519.PrivateKey { return private }}
}

// Public is the half that verifies.
func (s Signing) Public() SigningPublic {
	var p SigningPublic
	if s.private != nil {
		copy(p.b[:], s.private().Public().(ed25519.PublicKey))
	}
	return p
}

// Sign signs the message (RFC 8032). It returns [ErrNoKey] for the zero value.
func (s Signing) Sign(message []byte) (Signature, error) {
	if s.private == nil {
		return Signature{}, ErrNoKey
	}
	var sig Signature
	copy(sig.b[:], ed25519.Sign(s.private(), message))
	return sig, nil
}

// Sealing is a private X25519 key. The zero value is no key: it opens nothing
// and its public half is zero.
type Sealing struct {
	hidden
	private func() *ecdh.PrivateKey
}

// NewSealing makes a key from 32 bytes of rand. It returns rand's error.
func NewSealing(rand io.Reader) (Sealing, error) {
	// ecdh's own GenerateKey may ignore the reader; reading the bytes here keeps
	// randomness an argument.
	secret := make([]byte, 32)
	if _, err := io.ReadFull(rand, secret); err != nil {
		return Sealing{}, fmt.Errorf("key: no randomness: %w", err)
	}
	return sealingFromSecret(secret), nil
}

func sealingFromSecret(secret []byte) Sealing {
	private, err := ecdh.X25519().NewPrivateKey(secret)
	if err != nil { // only for a wrong length
		return Sealing{}
	}
	return Sealing{private: func() *ecdh.PrivateKey { return private }}
}

// Public is the half that others seal to.
func (s Sealing) Public() SealingPublic {
	var p SealingPublic
	if s.private != nil {
		copy(p.b[:], s.private().PublicKey().Bytes())
	}
	return p
}

// hidden gives a private half its silence. The func makes == a compile error.
type hidden struct{ _ [0]func() }

const placeholder = "(private key)"

// String is a placeholder.
func (hidden) String() string { return placeholder }

// GoString is a placeholder.
func (hidden) GoString() string { return placeholder }

// Format prints a placeholder for every verb.
func (hidden) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, placeholder) }

// LogValue logs a placeholder.
func (hidden) LogValue() slog.Value { return slog.StringValue(placeholder) }

// MarshalJSON refuses with [ErrPrivate].
func (hidden) MarshalJSON() ([]byte, error) { return nil, ErrPrivate }

// MarshalText refuses with [ErrPrivate].
func (hidden) MarshalText() ([]byte, error) { return nil, ErrPrivate }

// MarshalBinary refuses with [ErrPrivate]. encoding/gob asks it too.
func (hidden) MarshalBinary() ([]byte, error) { return nil, ErrPrivate }
