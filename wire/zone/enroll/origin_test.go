package enroll_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/allodhq/allod/wire/ai/weburl"
	"github.com/allodhq/allod/wire/zone/enroll"
)

func TestF08Origin(t *testing.T) {
	long := strings.Repeat(strings.Repeat("a", 63)+".", 3) + strings.Repeat("b", 61)
	for text, c := range map[string]struct{ host, address string }{
		"https://cloud.example":         {"cloud.example", "cloud.example:443"},
		"https://cloud.example:8443":    {"cloud.example", "cloud.example:8443"},
		"https://localhost:1":           {"localhost", "localhost:1"},
		"https://10.0.0.7:65535":        {"10.0.0.7", "10.0.0.7:65535"},
		"https://[::1]":                 {"::1", "[::1]:443"},
		"https://[2001:db8::1]:8443":    {"2001:db8::1", "[2001:db8::1]:8443"},
		"https://xn--bcher-kva.example": {"xn--bcher-kva.example", "xn--bcher-kva.example:443"},
		"https://1.2.3.4.example":       {"1.2.3.4.example", "1.2.3.4.example:443"},
		"https://0.0.0.0x.example":      {"0.0.0.0x.example", "0.0.0.0x.example:443"},
		"https://" + long:               {long, long + ":443"},
		"https://" + long + ":65535":    {long, long + ":65535"},
		"https://a--b.c-d.7e":           {"a--b.c-d.7e", "a--b.c-d.7e:443"},
	} {
		o, err := enroll.ParseOrigin(text)
		if err != nil || o.String() != text || o.Host() != c.host || o.Address() != c.address || o.IsZero() {
			t.Errorf("%s is read as %s, host %s, address %s, %v", text, o, o.Host(), o.Address(), err)
		}
		// Browsers agree, by another implementation.
		if u, err := weburl.ParseWeb(text); err != nil || u.String() != text+"/" {
			t.Errorf("browsers read %s as %v, %v", text, u, err)
		}
	}
	for _, text := range []string{
		"", "https://", "https:", "cloud.example", "http://cloud.example", "HTTPS://cloud.example", "https:/cloud.example", "https:///cloud.example", "wss://cloud.example",
		"https://Cloud.example", "https://cloud.EXAMPLE", "https://bücher.example", "https://cloud%2eexample", "https://cloud_1.example",
		"https://cloud.example/", "https://cloud.example/x", "https://cloud.example?x", "https://cloud.example#x", "https://cloud.example/join#" + codeText,
		"https://user@cloud.example", "https://user:pass@cloud.example", "https://@cloud.example", "https://cloud.example\\x",
		"https://cloud.example:443", "https://cloud.example:", "https://cloud.example:0", "https://cloud.example:08443", "https://cloud.example:65536", "https://cloud.example:+8443",
		"https://cloud.example:8443:1", "https://cloud.example:-1", "https://cloud.example: 8443", "https://cloud.example:8443 ", " https://cloud.example", "https://cloud.example\n", "https://cl\toud.example",
		"https://cloud.example.", "https://.cloud.example", "https://cloud..example", "https://-cloud.example", "https://cloud-.example",
		"https://" + strings.Repeat("a", 64), "https://" + long + "b", "https://" + long + "b:65535", "https://:8443", "https://cloud.example:8443\x00",
		"https://127.1", "https://127.0.0.01", "https://2130706433", "https://0x7f000001", "https://0x7f.0.0.1", "https://1.2.3.4.5", "https://a.1", "https://a.0x", "https://1.2.3.256", "https://1.2.3.0x4",
		"https://::1", "https://::1:8443", "https://[::1", "https://::1]", "https://[]", "https://[1.2.3.4]", "https://[::0001]", "https://[0:0:0:0:0:0:0:1]", "https://[2001:DB8::1]", "https://[::ffff:1.2.3.4]", "https://[::ffff:102:304]",
		"https://[fe80::1%25eth0]", "https://[fe80::1%eth0]", "https://[::1]x", "https://[::1]x:1", "https://[[::1]]", "https://[::1]:443", "https://x[::1]", "https://[2001:db8:0:0:1:0:0:1]", "https://[fe80::1:2:3:4:5:6:7]:444",
	} {
		if o, err := enroll.ParseOrigin(text); !errors.Is(err, enroll.ErrOrigin) || !o.IsZero() {
			t.Errorf("%q is read as %s, %v", text, o, err)
		}
	}
	var none enroll.Origin
	if none.String() != "" || none.Address() != "" || none.Host() != "" || !none.IsZero() {
		t.Error("no origin has a text")
	}
	if len("https://"+long+":65535") != enroll.MaxOrigin {
		t.Errorf("the longest origin has %d bytes, not %d", len("https://"+long+":65535"), enroll.MaxOrigin)
	}
}

// FuzzOrigin: one origin has one text, and browsers read that text as the same host.
func FuzzOrigin(f *testing.F) {
	for _, s := range []string{originText, "https://a", "https://[::1]:8443", "https://1.2.3.4", "https://127.1", "https://a.0x", "https://xn--a", "https://cloud.example:443", "https://a@b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o, err := enroll.ParseOrigin(text)
		if err != nil {
			if !o.IsZero() || !errors.Is(err, enroll.ErrOrigin) {
				t.Fatalf("%q: %v, %v", text, o, err)
			}
			return
		}
		if o.String() != text || len(text) > enroll.MaxOrigin {
			t.Fatalf("%q is written as %q", text, o)
		}
		u, err := weburl.ParseWeb(text)
		if err != nil && strings.Contains(text, "xn--") {
			return // a label that decodes to nothing; no name server knows it
		}
		if err != nil || u.String() != text+"/" {
			t.Fatalf("browsers read %q as %v, %v", text, u, err)
		}
	})
}
