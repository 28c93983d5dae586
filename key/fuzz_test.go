package key_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"golang.org/x/crypto/nacl/box"

	"github.com/allodhq/allod/key"
)

// Whatever the bytes: no panic, an error gives zero keys, and what is read is
// written in one form only.
func FuzzParseFile(f *testing.F) {
	f.Add([]byte(goldenFile))
	f.Add(must(key.MarshalFile(otherKeys(f, 1)))(f))
	f.Add([]byte(strings.Replace(goldenFile, "/Vpg", `\/V\u0070g`, 1)))
	f.Add([]byte(strings.Replace(goldenFile, "1785499200123", "1e3", 1)))
	f.Add([]byte(strings.Replace(goldenFile, "cuSwq", "cuSwq\\n", 1)))
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, content []byte) {
		k, err := key.ParseFile[key.DeviceRole](content)
		if err != nil {
			wantFileRefused(t, "fuzzed", content)
			return
		}
		written, err := key.MarshalFile(k)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := key.ParseFile[key.DeviceRole](written)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		wantSameKeys(t, "fuzzed", again, k)
		if twice := must(key.MarshalFile(again))(t); !bytes.Equal(twice, written) {
			t.Fatalf("written\n%s, then\n%s", written, twice)
		}
	})
}

func FuzzParseFingerprint(f *testing.F) {
	f.Add(fingerprintText)
	f.Add("BYOLLM-0123-4567-89AB-CDEF-GHJK-MNPQ")
	f.Add("BYOLLM-I123-4567-89AB-CDEF-GHJK-MNPQ")
	f.Add("byollm-0123-4567-89ab-cdef-ghjk-mnpq")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := key.ParseFingerprint(text)
		if err != nil {
			wantKind(t, "fuzzed", err, key.ErrText)
			if !p.IsZero() || p.String() != "" {
				t.Fatalf("an error came with %q", p)
			}
			return
		}
		if p.String() != text || len(text) != len(fingerprintText) || p.IsZero() {
			t.Fatalf("%q is read as %q", text, p)
		}
	})
}

// fuzzText is the body of the fuzz tests of the base64url texts.
func fuzzText(t *testing.T, form textForm, text string) {
	got, zero, err := form.parse(text)
	if err != nil {
		wantKind(t, form.name, err, key.ErrText)
		if !zero {
			t.Fatalf("%s: an error came with %q", form.name, got)
		}
		// What is refused is no text of a key, as another reader sees it.
		raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
		if err == nil && len(raw) == form.size && !strings.ContainsAny(text, "\r\n") {
			t.Fatalf("%s: %q is refused", form.name, text)
		}
		return
	}
	if got != text {
		t.Fatalf("%s: %q is read as %q", form.name, text, got)
	}
}

func FuzzParseSigningPublic(f *testing.F) {
	f.Add(signingText)
	f.Add(signingText + "\n")
	f.Add(strings.Repeat("A", 43))
	f.Fuzz(func(t *testing.T, text string) {
		fuzzText(t, textForms[0], text)
		fuzzText(t, textForms[1], text) // the sealing half has the same form
	})
}

func FuzzParseSignature(f *testing.F) {
	f.Add(bindingText)
	f.Add(bindingText[:85] + "R")
	f.Add(strings.Repeat("_", 86))
	f.Fuzz(func(t *testing.T, text string) { fuzzText(t, textForms[2], text) })
}

// FuzzOpen compares with nacl/box. They may differ where the ephemeral key is of
// low order, and then only Allod refuses.
func FuzzOpen(f *testing.F) {
	secret, public := unhex(f, secretHex), unhex(f, sealingHex)
	opener := must(key.NewSealing(bytes.NewReader(secret)))(f)
	for _, b := range goldenBoxes {
		f.Add(unhex(f, b))
	}
	f.Add([]byte(nil))
	f.Add(make([]byte, key.BoxOverhead))
	f.Add(compose(f, make([]byte, 32), public, make([]byte, 32), []byte("forged")))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := hex.EncodeToString(b)
		m, err := opener.Open(b)
		if hex.EncodeToString(b) != before {
			t.Fatal("opening changed the box")
		}
		theirs, ok := box.OpenAnonymous(nil, b, (*[32]byte)(public), (*[32]byte)(secret))
		switch {
		case err == nil:
			if !ok || !bytes.Equal(m, theirs) || len(m) != len(b)-key.BoxOverhead {
				t.Fatalf("opened %q, nacl/box opened %q, %v", m, theirs, ok)
			}
		case !errors.Is(err, key.ErrUnopenable) || m != nil:
			t.Fatalf("%q, %v", m, err)
		case ok:
			forged := compose(t, b[:32], public, make([]byte, 32), theirs)
			if !bytes.Equal(forged, b) {
				t.Fatalf("an honest box is refused: %x", b)
			}
		}
	})
}
