package webhook

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

const (
	short = "whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4"                                                         // 24 letters
	long  = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZg==" // 64 digits
)

func secret(t testing.TB, text string) Secret {
	t.Helper()
	s, err := ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParseSecret(t *testing.T) {
	for _, text := range []string{
		"", "whsec_", "canary", short[6:], "Whsec_" + short[6:], short + "=", short + "\n", short[:20] + "\n" + short[20:], " " + short,
		"whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnc=",                                                         // 23 bytes
		"whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eR",                                                       // no padding
		"whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eR==",                                                     // bits that say nothing
		"whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZmc=", // 65 bytes
		"whsec_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_",
	} {
		if s, err := ParseSecret(text); !errors.Is(err, ErrSecret) || s != (Secret{}) {
			t.Errorf("%q: %v", text, err)
		}
	}
	s := secret(t, short)
	if all := fmt.Sprintf("%v %+v %#v %s", s, s, s, []Secret{s}); strings.Contains(all, "abcd") || strings.Contains(all, "YWJj") {
		t.Errorf("a secret is shown: %s", all)
	}
}

// TestSign compares with the vector of the reference libraries, and with what
// openssl made of words put together by hand.
func TestSign(t *testing.T) {
	body := []byte(`{"test": 2432232314}`)
	got := sign([]Secret{secret(t, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")}, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	e := site.HookEvent{
		Job: `job "1" ä`, Owner: "alice", Kind: ai.KindGenerate, State: ai.StateCanceled, Reason: site.ReasonDependency, EndedAt: 1750000000007, Attempts: 3,
	}
	tg, err := newTarget(Endpoint{URL: "https://hooks.example/allod?a=b"}, nil)
	if err != nil || tg.id != "ccd4d8e71473376d93217ffdc91fdb20" {
		t.Errorf("the hook is %v, %v", tg, err)
	}
	id := messageID(tg.id, e.Job, e.EndedAt)
	if want := "msg_c95fd500889dd397f13cacbbe3332bcb"; id != want {
		t.Errorf("the id is %s, want %s", id, want)
	}
	body, err = message(e)
	want := `{"type":"job.finished","timestamp":"2025-06-15T15:06:40.007Z","data":{"jobId":"job \"1\" ä","owner":"alice","kind":"llm.generate","state":"canceled","reason":"dependency"}}`
	if err != nil || string(body) != want {
		t.Errorf("%s, %v\nwant %s", body, err, want)
	}
	got = sign([]Secret{secret(t, short), secret(t, long)}, id, 1750000003, body)
	if want := "v1,ewG3vRX6HqD4vAcqa35/r2kVflqQENRyQVDMV/OaObY= v1,XKDWQ7ndfZLCOnXsXfNsg7NFGXa9htnCSoTzwh37n7A="; got != want {
		t.Errorf("%s, want %s", got, want)
	}

	// A result has no reason, and each part of the id counts.
	e.State, e.Reason = ai.StateOK, ""
	if body, err = message(e); err != nil || !strings.HasSuffix(string(body), `"state":"ok"}}`) {
		t.Errorf("%s, %v", body, err)
	}
	for _, other := range []string{messageID("h", e.Job, e.EndedAt), messageID(tg.id, "j", e.EndedAt), messageID(tg.id, e.Job, e.EndedAt+1)} {
		if other == id {
			t.Error("two messages have one id")
		}
	}
}

// TestExampleOfTheDocumentation holds that the message in docs/webhooks.md is one
// that a site sends, so that readers can try their own code with it.
func TestExampleOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	tg, err := newTarget(Endpoint{URL: "https://app.example/hooks/allod"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := site.HookEvent{Job: "a", Owner: "alice", Kind: ai.KindGenerate, State: ai.StateCanceled, Reason: site.ReasonApp, EndedAt: 1750000000007}
	body, err := message(e)
	if err != nil {
		t.Fatal(err)
	}
	id := messageID(tg.id, e.Job, e.EndedAt)
	want := "    Webhook-Id: " + id + "\n    Webhook-Timestamp: 1750000003\n    Webhook-Signature: " +
		sign([]Secret{secret(t, short)}, id, 1750000003, body) + "\n\n    " + string(body) + "\n"
	if !strings.Contains(string(text), want) || !strings.Contains(string(text), short) {
		t.Errorf("it should say\n%s", want)
	}
}

func TestSecretFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	if _, err := LoadSecrets(path); !errors.Is(err, ErrSecretFile) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := CreateSecret(path, iotest.ErrReader(errors.New("none"))); !errors.Is(err, ErrSecretFile) {
		t.Errorf("without randomness: %v", err)
	}
	if err := CreateSecret(path, bytes.NewReader([]byte("abcdefghijklmnopqrstuvwxabcdefgh"))); err != nil {
		t.Fatal(err)
	}
	// base64 of the 32 letters, by another program.
	text, err := os.ReadFile(path)
	if want := "whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4YWJjZGVmZ2g=\n"; err != nil || string(text) != want {
		t.Errorf("the file holds %q, %v", text, err)
	}
	if list, err := LoadSecrets(path); err != nil || len(list) != 1 || list[0].key != "abcdefghijklmnopqrstuvwxabcdefgh" {
		t.Errorf("read %v", err)
	}
	if err := CreateSecret(path, bytes.NewReader(make([]byte, 32))); !errors.Is(err, ErrSecretFile) || !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a file: %v", err)
	}
	if now, _ := os.ReadFile(path); !bytes.Equal(now, text) {
		t.Error("the file was written over")
	}

	for _, test := range []struct {
		name, text string
		want       error
		keys       int
	}{
		{"two", short + "\n" + long + "\n", nil, 2},
		{"no line break at the end", short, nil, 1},
		{"other line breaks", short + "\r\n", nil, 1},
		{"empty", "", ErrSecretFile, 0},
		{"three", short + "\n" + short + "\n" + long, ErrSecretFile, 0},
		{"an empty line", short + "\n\n", ErrSecret, 0},
		{"another word", short + "\ncanary", ErrSecret, 0},
		{"long", short + strings.Repeat(" ", maxSecretFile), ErrSecretFile, 0},
	} {
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if list, err := LoadSecrets(path); !errors.Is(err, test.want) || len(list) != test.keys || err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %d, %v", test.name, len(list), err)
		}
	}
	if _, err := LoadSecrets(dir); !errors.Is(err, ErrSecretFile) {
		t.Errorf("a folder: %v", err)
	}
	if runtime.GOOS == "windows" {
		return
	}
	if err := os.WriteFile(path, []byte(short), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadSecrets(path); !errors.Is(err, ErrSecretFile) {
		t.Errorf("a file that others can read: %v", err)
	}
}
