package key_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
)

// The private halves of the examples are published ones: RFC 8032, section 7.1,
// test 1, and RFC 7748, section 6.1, Alice. Their public halves are from there
// as well.
const (
	seedHex    = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
	signingHex = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
	secretHex  = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
	sealingHex = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
)

// The texts of the same example, made with Python's cryptography package.
const (
	signingText     = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
	sealingText     = "hSDwCYkwp1R0i33ctD73Wg2_Og0mOBr066SpjqqbTmo"
	bindingText     = "riCNFoYvRD0ItAiXuXF7CXzSVsJpMx6v39wmnXbixm5yqoKPuZO67RMe4GALQUCMjJc0DCStmEU23zsd1GXBAQ"
	fingerprintText = "BYOLLM-47Z3-3QX1-AJH6-2RKB-Z1A0-8VYJ"
)

var created = time.Date(2026, 7, 31, 12, 0, 0, 123_000_000, time.UTC)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// exampleKeys are the keys of the constants above.
func exampleKeys(t testing.TB) key.DeviceKeys {
	t.Helper()
	k, err := key.NewKeys[key.DeviceRole](bytes.NewReader(unhex(t, seedHex+secretHex)), created)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// otherKeys are keys that belong to somebody else, another for each number.
func otherKeys(t testing.TB, number byte) key.DeviceKeys {
	t.Helper()
	k, err := key.NewKeys[key.DeviceRole](bytes.NewReader(bytes.Repeat([]byte{number, 7}, 32)), created)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func signingPublic(t testing.TB, text string) key.SigningPublic {
	t.Helper()
	p, err := key.ParseSigningPublic(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return p
}

func sealingPublic(t testing.TB, text string) key.SealingPublic {
	t.Helper()
	p, err := key.ParseSealingPublic(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return p
}

func sign(t testing.TB, s key.Signer, message []byte) key.Signature {
	t.Helper()
	sig, err := s.Sign(message)
	if err != nil {
		t.Fatal(err)
	}
	return sig
}

// errBroken is what a broken source of randomness says.
var errBroken = errors.New("broken source")

// short gives n bytes and then an error.
func short(n int, err error) io.Reader {
	return io.MultiReader(bytes.NewReader(make([]byte, n)), failing{err})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// counting counts what is read from it.
type counting struct {
	n    int
	from io.Reader
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.from.Read(b)
	c.n += n
	return n, err
}

// wantKind fails unless err is of that kind and is of no other of this package.
func wantKind(t testing.TB, what string, err error, kind *refusal.Kind) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: error %v, want %s", what, err, kind.Name())
	}
	if got := refusal.From(err); got != nil && got.Kind() != kind {
		t.Errorf("%s: a caller sees %s, want %s", what, got.Kind().Name(), kind.Name())
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(fmt.Errorf("unexpected: %w", err))
		}
		return v
	}
}
