package enroll_test

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/allodhq/allod/wire/zone/enroll"
)

// pinText is the SHA-256 of "x", by openssl and basenc.
const pinText = "LXEWQrcmsEQBYnyp-6wy9chTD7GQPMTbAiWHF5IaSIE"

func TestJoinLine(t *testing.T) {
	pin := enroll.PinOf([]byte("x"))
	if pin.String() != pinText || must(enroll.ParsePin(pinText))(t) != pin {
		t.Errorf("the pin is %s, want %s", pin, pinText)
	}
	if sum := sha256.Sum256([]byte("x")); base64.RawURLEncoding.EncodeToString(sum[:]) != pinText {
		t.Error("the example is wrong")
	}
	for text, want := range map[string]enroll.JoinLine{
		"https://10.0.0.7:8443/join#" + codeText + "." + pinText: {Origin: origin("https://10.0.0.7:8443"), Code: code(codeText), Pin: pin},
		"https://cloud.example/join#" + codeText:                 {Origin: origin("https://cloud.example"), Code: code(codeText)},
		"https://[::1]:1/join#" + codeText + "." + pinText:       {Origin: origin("https://[::1]:1"), Code: code(codeText), Pin: pin},
	} {
		got, err := enroll.ParseJoinLine(text)
		if err != nil || got.Text() != text || got.Origin != want.Origin || got.Pin != want.Pin || got.Code.Hash() != want.Code.Hash() || want.Text() != text {
			t.Errorf("%s is read as %s, %v", text, got.Text(), err)
		}
		if strings.Contains(got.Origin.String(), codeText) {
			t.Error("the address that is dialed holds the code")
		}
	}
	good := "https://10.0.0.7:8443/join#" + codeText + "." + pinText
	for _, text := range []string{
		"", "x", codeText, "https://10.0.0.7:8443", "https://10.0.0.7:8443/join", "https://10.0.0.7:8443/join#", "https://10.0.0.7:8443/join#.", "https://10.0.0.7:8443/join#." + pinText,
		good + "\n", " " + good, good + " ", good + "." + pinText, good + "#", good[:len(good)-1], good + "A", strings.Replace(good, pinText, "", 1), strings.Replace(good, ".", "#", 4),
		strings.Replace(good, "https", "http", 1), strings.Replace(good, "/join#", "/join/#", 1), strings.Replace(good, "/join#", "/Join#", 1), strings.Replace(good, "/join#", "//join#", 1), strings.Replace(good, "/join#", "/join?#", 1), strings.Replace(good, "/join#", "/join?code=", 1), strings.Replace(good, "/join#", "/x/join#", 1),
		strings.Replace(good, "10.0.0.7:8443", "10.0.0.7:443", 1), strings.Replace(good, "10.0.0.7", "u@10.0.0.7", 1),
		strings.Replace(good, codeText, codeText[1:], 1), strings.Replace(good, codeText, codeText+"A", 1), strings.Replace(good, codeText, codeText+"==", 1),
		strings.Replace(good, pinText, pinText[:42]+"F", 1), strings.Replace(good, pinText, strings.Repeat("A", 43), 1), strings.Replace(good, pinText, pinText+"=", 1),
		"https://" + strings.Repeat("a.", 1<<16) + "a/join#" + codeText, good + "/join#" + codeText,
	} {
		if l, err := enroll.ParseJoinLine(text); !errors.Is(err, enroll.ErrJoinLine) || l.Text() != "" {
			t.Errorf("%.200q is read as %s, %v", text, l.Text(), err)
		}
	}
	for what, l := range map[string]enroll.JoinLine{"nothing": {}, "no origin": {Code: code(codeText)}, "no code": {Origin: origin(originText), Pin: pin}} {
		if l.Text() != "" {
			t.Errorf("%s is a line: %s", what, l.Text())
		}
	}
	long := enroll.JoinLine{Origin: origin("https://" + strings.Repeat(strings.Repeat("a", 63)+".", 3) + strings.Repeat("b", 61) + ":65535"), Code: code(codeText), Pin: pin}
	if got := must(enroll.ParseJoinLine(long.Text()))(t); len(long.Text()) != enroll.MaxJoinLine || got.Text() != long.Text() {
		t.Errorf("the longest line has %d bytes, not %d", len(long.Text()), enroll.MaxJoinLine)
	}
	for what, text := range misspelled(pinText) {
		if p, err := enroll.ParsePin(text); !errors.Is(err, enroll.ErrPin) || !p.IsZero() {
			t.Errorf("a pin with %s: %v", what, err)
		}
	}
}

// FuzzJoinLine: what is read is written again as it came, and nothing else is read.
func FuzzJoinLine(f *testing.F) {
	for _, s := range []string{"https://10.0.0.7:8443/join#" + codeText + "." + pinText, "https://a/join#" + codeText, "https://a/join#" + codeText + ".", "https://a/join#/join#" + codeText} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := enroll.ParseJoinLine(text)
		if err != nil && (!errors.Is(err, enroll.ErrJoinLine) || l.Text() != "") || err == nil && (l.Text() != text || len(text) > enroll.MaxJoinLine) {
			t.Fatalf("%q is read as %q, %v", text, l.Text(), err)
		}
	})
}

// FuzzSecrets: a secret has one text.
func FuzzSecrets(f *testing.F) {
	for _, s := range []string{codeText, sparkText, pinText, sparkHash, codeText[:4] + "\n" + codeText[4:], "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if b, err := enroll.ParseBearer(text); err == nil && (b.Reveal() != text || len(text) != enroll.BearerText || b.Hash() != hashOf(text)) {
			t.Fatalf("the bearer %q is %q", text, b.Reveal())
		}
		if c, err := enroll.ParseJumpCode(text); err == nil && (c.Reveal() != text || len(text) != enroll.JumpCodeText || c.Hash() != hashOf(text)) {
			t.Fatalf("the code %q is %q", text, c.Reveal())
		}
		if p, err := enroll.ParsePin(text); err == nil && p.String() != text {
			t.Fatalf("the pin %q is %q", text, p)
		}
		if h, ok := enroll.ParseCredentialHash(text); ok && h.Text() != text {
			t.Fatalf("the hash %q is %q", text, h.Text())
		}
		if raw, err := base64.RawURLEncoding.Strict().DecodeString(text); err == nil && base64.RawURLEncoding.EncodeToString(raw) == text {
			_, isBearer := enroll.ParseBearer(text)
			_, isCode := enroll.ParseJumpCode(text)
			if (isBearer == nil) != (len(raw) == 32) || (isCode == nil) != (len(raw) == 12) {
				t.Fatalf("%q of %d bytes is refused or taken wrongly", text, len(raw))
			}
		}
	})
}
