package ca_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/internal/ca"
)

// golden is the pin of the key 0102..20, as openssl computes it:
// ec -pubout -outform DER, dgst -sha256 -binary, base64.
const golden = "8dWUSbcnFl3nMr8oMzgSK5liimFZGP7cZ9h4__z0fac"

func TestPinText(t *testing.T) {
	p, err := ca.ParsePin(golden)
	if err != nil || p.String() != golden || p.IsZero() || p[0] != 0xf1 || p[31] != 0xa7 {
		t.Errorf("%v, %v", p, err)
	}
	for name, text := range map[string]string{
		"nothing":             "",
		"one character less":  golden[1:],
		"one more":            golden + "A",
		"padding":             golden + "=",
		"of base64":           strings.ReplaceAll(golden, "_", "/"),
		"a second way":        golden[:42] + "d", // the last two bits are no part of it
		"a line break":        golden[:42] + "\n",
		"a line break within": golden[:20] + "\n" + golden[21:],
		"a space":             " " + golden[1:],
		"no pin":              strings.Repeat("A", 43),
	} {
		if p, err := ca.ParsePin(text); !errors.Is(err, ca.ErrPinText) || !p.IsZero() {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := ca.Pin(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "pin"))
		if got, err := ca.ParsePin(p.String()); got != p || (err == nil) == p.IsZero() {
			t.Fatalf("%v became %v, %v", p, got, err)
		}
	})
}

func FuzzParsePin(f *testing.F) {
	f.Add(golden)
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := ca.ParsePin(text); err == nil && p.String() != text {
			t.Errorf("%q is read and written as %q", text, p)
		}
	})
}

func TestReadHost(t *testing.T) {
	label := strings.Repeat("a", 63)
	longest := strings.Join([]string{label, label, label, label[:61]}, ".")
	for text, want := range map[string]string{
		"cloud.example.org": "cloud.example.org", "Cloud.Example.ORG": "cloud.example.org", "localhost": "localhost", "a-b.3d": "a-b.3d",
		"xn--bcher-kva.example": "xn--bcher-kva.example", longest: longest,
		"192.0.2.1": "192.0.2.1", "::1": "::1", "2001:DB8:0::1": "2001:db8::1", "::ffff:192.0.2.1": "192.0.2.1",
	} {
		h, err := ca.ReadHost(text)
		if err != nil || h.String() != want || (h.Name() != "" && h.Name() != want) {
			t.Errorf("%s: %q, %v", text, h, err)
		}
	}
	for _, text := range []string{
		"", ".", "a.", ".a", "a..b", "-a", "a-.b", "*.example.org", "a b", "a_b", "bücher.example", "a/b", "a:443", "[::1]", "[::1]:443",
		"192.0.2.1:443", "192.0.2", "127.1", "1", "a.1", "fe80::1%eth0", "::ffff:192.0.2.1%x", "a\x00", "a\n", label + "a", longest + "b", strings.Repeat("a.", 5000),
	} {
		if h, err := ca.ReadHost(text); !errors.Is(err, ca.ErrHostName) {
			t.Errorf("%q is %q, %v", text, h, err)
		}
	}
}

func FuzzReadHost(f *testing.F) {
	for _, text := range []string{"cloud.example.org", "192.0.2.1", "::1", "A.b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := ca.ReadHost(text)
		if err != nil {
			return
		}
		if again, err := ca.ReadHost(h.String()); err != nil || again != h {
			t.Errorf("%q is %q, and that is %q, %v", text, h, again, err)
		}
	})
}

func FuzzTrustCertificate(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, certificate []byte) {
		trust, err := ca.TrustCertificate(certificate, "localhost", nil)
		if (err == nil) == trust.Pin().IsZero() {
			t.Errorf("%v, %v", trust.Pin(), err)
		}
	})
}
