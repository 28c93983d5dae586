package key

import (
	"crypto/ecdh"
	"fmt"
	"io"

	"golang.org/x/crypto/blake2b"
	"golang.org/x/crypto/nacl/secretbox"
	//lint:ignore SA1019 the contract's boxes are libsodium's, and this is their key derivation
	"golang.org/x/crypto/salsa20/salsa"
)

// BoxOverhead is how many bytes a sealed box is longer than its message.
const BoxOverhead = 32 + secretbox.Overhead

// Seal seals message to p as libsodium's crypto_box_seal does: an ephemeral
// X25519 key from 32 bytes of rand, its public half, then the message under
// XSalsa20-Poly1305. Only the holder of the private half can open it, and
// nothing in it says who sealed it. It returns [ErrWeak] for a point of low
// order, and rand's error.
//
// golang.org/x/crypto/nacl/box has the same operation but accepts points of low
// order at both ends, so anyone could forge a box that opens.
func (p SealingPublic) Seal(rand io.Reader, message []byte) ([]byte, error) {
	ephemeral, err := NewSealing(rand)
	if err != nil {
		return nil, err
	}
	return ephemeral.sealTo(p, message)
}

func (s Sealing) sealTo(p SealingPublic, message []byte) ([]byte, error) {
	from := s.Public()
	k, err := agree(s.private(), p)
	if err != nil {
		return nil, ErrWeak
	}
	nonce := boxNonce(from, p)
	box := make([]byte, 0, len(message)+BoxOverhead)
	return secretbox.Seal(append(box, from.b[:]...), message, &nonce, &k), nil
}

// Open opens a box that [SealingPublic.Seal] or libsodium sealed to this key.
// It returns [ErrUnopenable] when it cannot, and says no more about it; the zero
// value, which is no key, returns [ErrNoKey].
func (s Sealing) Open(box []byte) ([]byte, error) {
	if s.private == nil {
		return nil, ErrNoKey
	}
	if len(box) < BoxOverhead {
		return nil, ErrUnopenable
	}
	var from SealingPublic
	copy(from.b[:], box)
	k, err := agree(s.private(), from)
	if err != nil {
		return nil, ErrUnopenable
	}
	nonce := boxNonce(from, s.Public())
	message, ok := secretbox.Open(nil, box[len(from.b):], &nonce, &k)
	if !ok {
		return nil, ErrUnopenable
	}
	return message, nil
}

// agree derives the box key as NaCl does: HSalsa20 over the X25519 secret. ECDH
// fails for points of low order, whose shared secret anyone knows.
func agree(private *ecdh.PrivateKey, public SealingPublic) (k [32]byte, err error) {
	point, err := ecdh.X25519().NewPublicKey(public.b[:])
	if err != nil {
		return k, fmt.Errorf("key: %w", err)
	}
	shared, err := private.ECDH(point)
	if err != nil {
		return k, fmt.Errorf("key: %w", err)
	}
	salsa.HSalsa20(&k, new([16]byte), (*[32]byte)(shared), &salsa.Sigma)
	return k, nil
}

func boxNonce(from, to SealingPublic) (nonce [24]byte) {
	h, err := blake2b.New(len(nonce), nil)
	if err != nil { // only for sizes out of range
		panic(err)
	}
	h.Write(from.b[:])
	h.Write(to.b[:])
	h.Sum(nonce[:0])
	return nonce
}
