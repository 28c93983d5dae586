package key_test

import (
	"bytes"
	"crypto/ecdh"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"math/big"
	"slices"
	"testing"

	"golang.org/x/crypto/blake2b"
	"golang.org/x/crypto/curve25519"
	"golang.org/x/crypto/nacl/box"
	"golang.org/x/crypto/nacl/secretbox"
	//lint:ignore SA1019 the contract's boxes are libsodium's, and this is their key derivation
	"golang.org/x/crypto/salsa20/salsa"
	"pgregory.net/rapid"

	"github.com/allodhq/allod/key"
)

// counted32 are the bytes 0 to 31, the ephemeral secret of the golden boxes.
func counted32() []byte {
	b := make([]byte, 32)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// The boxes were made with libsodium (libsodium-wrappers 0.8.4): crypto_box_easy with
// the ephemeral secret 0 to 31 and crypto_generichash for the nonce.
// Its crypto_box_seal_open opened them.
var goldenBoxes = map[string]string{
	"sealed for Alice": "8f40c5adb68f25624ae5b214ea767a6ec94d829d3d7b5e1ad1ba6f3e2138285fd22c651c62e7ce1db550e528b6a98d6591a003c56dfb9e14d02c4f9e4de487bc",
	"":                 "8f40c5adb68f25624ae5b214ea767a6ec94d829d3d7b5e1ad1ba6f3e2138285f430f536730a7fb0a4a47b5506212e6ca",
}

func TestGoldenBoxes(t *testing.T) {
	k := exampleKeys(t)
	for message, want := range goldenBoxes {
		got := must(k.Identity().Sealing().Seal(bytes.NewReader(counted32()), []byte(message)))(t)
		if hex.EncodeToString(got) != want {
			t.Errorf("sealing %q\n gives %x\n want  %s", message, got, want)
		}
		opened, err := k.Opener().Open(unhex(t, want))
		if err != nil || string(opened) != message {
			t.Errorf("opened %q, %v, want %q", opened, err, message)
		}
	}
}

// boxNonce is the nonce of a sealed box: BLAKE2b with 24 bytes over both
// public keys.
func boxNonce(t testing.TB, from, to []byte) *[24]byte {
	t.Helper()
	h := must(blake2b.New(24, nil))(t)
	h.Write(from)
	h.Write(to)
	return (*[24]byte)(h.Sum(nil))
}

// compose makes a sealed box from its parts. The shared point is an argument,
// so that it also makes boxes that nobody should open.
func compose(t testing.TB, from, to, shared, message []byte) []byte {
	t.Helper()
	var k [32]byte
	salsa.HSalsa20(&k, new([16]byte), (*[32]byte)(shared), &salsa.Sigma)
	return secretbox.Seal(slices.Clone(from), message, boxNonce(t, from, to), &k)
}

func TestSealIsComposedOfItsParts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ephemeral := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(rt, "ephemeral")
		secret := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(rt, "secret")
		message := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(rt, "message")

		s := must(key.NewSealing(bytes.NewReader(secret)))(t)
		to := must(curve25519.X25519(secret, curve25519.Basepoint))(t)
		from := must(curve25519.X25519(ephemeral, curve25519.Basepoint))(t)
		want := compose(t, from, to, must(curve25519.X25519(ephemeral, to))(t), message)

		got := must(s.Public().Seal(bytes.NewReader(ephemeral), message))(t)
		if !bytes.Equal(got, want) {
			rt.Fatalf("sealed %x, want %x", got, want)
		}
		if len(got) != len(message)+key.BoxOverhead {
			rt.Fatalf("the box has %d bytes for %d", len(got), len(message))
		}
		// The library that Allod does not use makes and opens the same honest boxes.
		theirs := must(box.SealAnonymous(nil, message, (*[32]byte)(to), bytes.NewReader(ephemeral)))(t)
		if !bytes.Equal(got, theirs) {
			rt.Fatalf("nacl/box seals %x, want %x", theirs, got)
		}
		if opened, ok := box.OpenAnonymous(nil, got, (*[32]byte)(to), (*[32]byte)(secret)); !ok || !bytes.Equal(opened, message) {
			rt.Fatalf("nacl/box opened %x, %v", opened, ok)
		}
		if opened, err := s.Open(want); err != nil || !bytes.Equal(opened, message) {
			rt.Fatalf("opened %x, %v", opened, err)
		}
	})
}

func TestBoxOverhead(t *testing.T) {
	// 32 bytes of ephemeral key and 16 of Poly1305.
	if got := []int{key.BoxOverhead, box.AnonymousOverhead}; got[0] != 48 || got[1] != 48 {
		t.Errorf("the overhead is %d, want 48 for both", got)
	}
	k := exampleKeys(t)
	for _, size := range []int{0, 1, 15, 16, 17, 1 << 16} {
		b := must(k.Identity().Sealing().Seal(bytes.NewReader(counted32()), make([]byte, size)))(t)
		if len(b) != size+48 {
			t.Errorf("the box of %d bytes has %d", size, len(b))
		}
		if m, err := k.Opener().Open(b); err != nil || len(m) != size {
			t.Errorf("the box of %d bytes opens to %d, %v", size, len(m), err)
		}
	}
}

func TestSealTwiceFromOneReader(t *testing.T) {
	public := exampleKeys(t).Identity().Sealing()
	message := []byte("twice the same message")
	random := append(counted32(), bytes.Repeat([]byte{9}, 32)...)
	reader := bytes.NewReader(random)
	first := must(public.Seal(reader, message))(t)
	second := must(public.Seal(reader, message))(t)
	if reader.Len() != 0 {
		t.Errorf("%d bytes are left of 64, want none", reader.Len())
	}
	if bytes.Equal(first[:32], second[:32]) || bytes.Equal(first[32:], second[32:]) {
		t.Error("two boxes from different randomness share a part")
	}
	// The same bytes again give the same boxes: randomness is an argument.
	reader.Reset(random)
	for _, want := range [][]byte{first, second} {
		if got := must(public.Seal(reader, message))(t); !bytes.Equal(got, want) {
			t.Error("the same bytes gave another box")
		}
	}
}

func TestSealNeedsItsRandomness(t *testing.T) {
	public := exampleKeys(t).Identity().Sealing()
	for n := range 32 {
		b, err := public.Seal(short(n, errBroken), []byte("m"))
		if !errors.Is(err, errBroken) || b != nil {
			t.Errorf("after %d bytes: %x, %v", n, b, err)
		}
		b, err = public.Seal(bytes.NewReader(make([]byte, n)), []byte("m"))
		if !(errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) || b != nil {
			t.Errorf("after %d bytes: %x, %v", n, b, err)
		}
	}
}

func TestChangedBoxNeverOpens(t *testing.T) {
	t.Parallel() // slow under the race detector
	k := exampleKeys(t)
	b := must(k.Identity().Sealing().Seal(bytes.NewReader(counted32()), []byte{0}))(t)
	for i := range b {
		for x := 1; x < 256; x++ {
			if testing.Short() && x&(x-1) != 0 {
				continue // one bit at a time
			}
			b[i] ^= byte(x)
			m, err := k.Opener().Open(b)
			if !errors.Is(err, key.ErrUnopenable) || m != nil {
				t.Fatalf("byte %d changed by %#x: %q, %v", i, x, m, err)
			}
			b[i] ^= byte(x)
		}
	}
	b = unhex(t, goldenBoxes["sealed for Alice"])
	for n := range b {
		if m, err := k.Opener().Open(b[:n]); !errors.Is(err, key.ErrUnopenable) || m != nil {
			t.Errorf("the first %d bytes: %q, %v", n, m, err)
		}
		if m, err := k.Opener().Open(b[n+1:]); !errors.Is(err, key.ErrUnopenable) || m != nil {
			t.Errorf("without the first %d bytes: %q, %v", n+1, m, err)
		}
	}
	for what, changed := range map[string][]byte{
		"nil": nil, "a byte more": append(slices.Clone(b), 0), "a byte before": append([]byte{0}, b...), "twice": append(slices.Clone(b), b...),
	} {
		m, err := k.Opener().Open(changed)
		wantKind(t, what, err, key.ErrUnopenable)
		if m != nil {
			t.Errorf("%s: an error came with %q", what, m)
		}
	}
	if m, err := k.Opener().Open(b); err != nil || string(m) != "sealed for Alice" {
		t.Errorf("the box itself: %q, %v", m, err)
	}
}

func TestBoxForAnotherDoesNotOpen(t *testing.T) {
	_, err := otherKeys(t, 1).Opener().Open(unhex(t, goldenBoxes[""]))
	wantKind(t, "another's box", err, key.ErrUnopenable)
	// All refusals to open look the same to the one who sent the box.
	if err != error(key.ErrUnopenable) {
		t.Errorf("the refusal says more than its kind: %#v", err)
	}
}

// Open must leave the caller's box as it is, and give memory of its own.
func TestOpenAndSealKeepNoMemoryOfTheCaller(t *testing.T) {
	k := exampleKeys(t)
	b := unhex(t, goldenBoxes["sealed for Alice"])
	m := must(k.Opener().Open(b))(t)
	if hex.EncodeToString(b) != goldenBoxes["sealed for Alice"] {
		t.Error("opening changed the box")
	}
	clear(b)
	if string(m) != "sealed for Alice" {
		t.Error("the message changed with the box")
	}
	message := []byte("sealed for Alice")
	b = must(k.Identity().Sealing().Seal(bytes.NewReader(counted32()), message))(t)
	if string(message) != "sealed for Alice" {
		t.Error("sealing changed the message")
	}
	clear(message)
	if hex.EncodeToString(b) != goldenBoxes["sealed for Alice"] {
		t.Error("the box changed with the message")
	}
}

// lowOrder are all 32-byte strings that X25519 reads as a point of low order:
// the u coordinates 0, 1, -1 and the two of order 8, each with every number of
// 255 bits that equals it modulo p, and each with the top bit that X25519
// ignores.
func lowOrder(t *testing.T) [][]byte {
	t.Helper()
	p := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))
	limit := new(big.Int).Lsh(big.NewInt(1), 255)
	decimal := func(s string) *big.Int {
		n, ok := new(big.Int).SetString(s, 10)
		if !ok {
			t.Fatal(s)
		}
		return n
	}
	var all [][]byte
	for _, u := range []*big.Int{
		big.NewInt(0), big.NewInt(1), new(big.Int).Sub(p, big.NewInt(1)),
		decimal("325606250916557431795983626356110631294008115727848805560023387167927233504"),
		decimal("39382357235489614581723060781553021112529911719440698176882885853963445705823"),
	} {
		for ; u.Cmp(limit) < 0; u = new(big.Int).Add(u, p) {
			b := u.FillBytes(make([]byte, 32))
			slices.Reverse(b)
			all = append(all, b)
			b = slices.Clone(b)
			b[31] |= 0x80
			all = append(all, b)
		}
	}
	if len(all) != 14 {
		t.Fatalf("the list has %d strings, want 14", len(all))
	}
	return all
}

// TestPointsOfLowOrderAreRefused shows at each end that nacl/box accepts what
// is refused here. Otherwise the refusal might have another reason.
func TestPointsOfLowOrderAreRefused(t *testing.T) {
	secret := unhex(t, secretHex)
	to := unhex(t, sealingHex)
	k := exampleKeys(t)
	message := []byte("forged without any secret")
	for _, point := range lowOrder(t) {
		var zero [32]byte // the shared point, which everybody knows
		forged := compose(t, point, to, zero[:], message)
		if got, ok := box.OpenAnonymous(nil, forged, (*[32]byte)(to), (*[32]byte)(secret)); !ok || !bytes.Equal(got, message) {
			t.Errorf("%x: nacl/box does not open the forged box, so the test shows nothing", point)
		}
		m, err := k.Opener().Open(forged)
		wantKind(t, hex.EncodeToString(point), err, key.ErrUnopenable)
		if m != nil {
			t.Errorf("%x: a forged box opened: %q", point, m)
		}
		// Where nothing was agreed, no key that is left over may open anything.
		left := secretbox.Seal(slices.Clone(point), message, boxNonce(t, point, to), new([32]byte))
		if m, err := k.Opener().Open(left); !errors.Is(err, key.ErrUnopenable) || m != nil {
			t.Errorf("%x: a box under the zero key gives %q, %v", point, m, err)
		}

		sealed, err := box.SealAnonymous(nil, message, (*[32]byte)(point), bytes.NewReader(counted32()))
		if err != nil {
			t.Errorf("%x: nacl/box does not seal, so the test shows nothing: %v", point, err)
		}
		if want := compose(t, sealed[:32], point, zero[:], message); !bytes.Equal(sealed, want) {
			t.Errorf("%x: nacl/box did not seal with the shared point that everybody knows", point)
		}
		public := sealingPublic(t, base64.RawURLEncoding.EncodeToString(point))
		b, err := public.Seal(bytes.NewReader(counted32()), message)
		wantKind(t, hex.EncodeToString(point), err, key.ErrWeak)
		if b != nil {
			t.Errorf("%x: sealed to a point of low order", point)
		}
	}
}

// The opposite holds as well: what is refused is of low order. So no honest
// key is locked out.
func TestOtherOddPointsAreServed(t *testing.T) {
	k := exampleKeys(t)
	for name, point := range map[string][]byte{
		"base point":          curve25519.Basepoint,
		"2":                   append([]byte{2}, make([]byte, 31)...),
		"on the twist":        append([]byte{3}, make([]byte, 31)...),
		"p+3, not reduced":    append([]byte{0xf0}, append(bytes.Repeat([]byte{0xff}, 30), 0x7f)...),
		"all bits set":        bytes.Repeat([]byte{0xff}, 32),
		"top bit of a good":   append(unhex(t, sealingHex)[:31:31], unhex(t, sealingHex)[31]|0x80),
		"a point as it comes": unhex(t, signingHex),
	} {
		ephemeral := counted32()
		public := sealingPublic(t, base64.RawURLEncoding.EncodeToString(point))
		b, err := public.Seal(bytes.NewReader(ephemeral), []byte("m"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		from := must(curve25519.X25519(ephemeral, curve25519.Basepoint))(t)
		if want := compose(t, from, point, must(curve25519.X25519(ephemeral, point))(t), []byte("m")); !bytes.Equal(b, want) {
			t.Errorf("%s: sealed %x, want %x", name, b, want)
		}
		// A sender may have such an ephemeral key.
		private := must(ecdh.X25519().NewPrivateKey(unhex(t, secretHex)))(t)
		shared := must(private.ECDH(must(ecdh.X25519().NewPublicKey(point))(t)))(t)
		m, err := k.Opener().Open(compose(t, point, unhex(t, sealingHex), shared, []byte("m")))
		if err != nil || string(m) != "m" {
			t.Errorf("%s as the sender: %q, %v", name, m, err)
		}
	}
}

// Every 32 bytes are a private key; X25519 sets the bits that it needs itself.
func TestEverySecretIsAKey(t *testing.T) {
	for _, secret := range [][]byte{make([]byte, 32), bytes.Repeat([]byte{0xff}, 32)} {
		s := must(key.NewSealing(bytes.NewReader(secret)))(t)
		b := must(s.Public().Seal(bytes.NewReader(counted32()), []byte("m")))(t)
		if m, err := s.Open(b); err != nil || string(m) != "m" {
			t.Errorf("%x: %q, %v", secret, m, err)
		}
	}
}
