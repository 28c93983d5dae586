package compose

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/allodhq/allod/wire/ai/envelope"
)

func TestSealedQuestion(t *testing.T) {
	dir := t.TempDir()
	d, err := SealedQuestion(rand.Reader, time.Now, dir, "canary question")
	if err != nil {
		t.Fatal(err)
	}
	if d.Site.Question != "canary question" || d.Device.Question != "canary question" {
		t.Errorf("the two ends see %q and %q", d.Site.Question, d.Device.Question)
	}
	if d.Relay.QuestionFound {
		t.Error("the relay holds the question")
	}
	if d.Stranger.Refusal != envelope.ErrUnopenable.Name() {
		t.Errorf("the stranger got %q", d.Stranger.Refusal)
	}
	if d.WidenedStub.Refusal != envelope.ErrReach.Name() {
		t.Errorf("the widened stub got %q", d.WidenedStub.Refusal)
	}
	if len(d.Steps) != 6 {
		t.Errorf("%d steps", len(d.Steps))
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("files left behind: %v %v", left, err)
	}
}

func TestSealedQuestionWithoutRandomness(t *testing.T) {
	broken := errors.New("broken")
	_, err := SealedQuestion(iotest.ErrReader(broken), time.Now, t.TempDir(), "q")
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

// TestHolds plants a text on purpose in each form and must find it, since the
// demo's word that nothing was found is worth no more than the search.
func TestHolds(t *testing.T) {
	const text = `a "canary" of some length`
	for name, place := range map[string]string{
		"plain": text, "in JSON": `{"prompt":"a \"canary\" of some length"}`,
		"hex":                  hex.EncodeToString([]byte("xx" + text + "yy")),
		"base64url, offset 0":  base64.RawURLEncoding.EncodeToString([]byte(text + "yy")),
		"base64url, offset 1":  base64.RawURLEncoding.EncodeToString([]byte("x" + text + "yy")),
		"base64url, offset 2":  base64.RawURLEncoding.EncodeToString([]byte("xx" + text + "yy")),
		"base64url, offset 3":  base64.RawURLEncoding.EncodeToString([]byte("xxx" + text)),
		"base64 with alphabet": base64.StdEncoding.EncodeToString([]byte("xxxx" + text)),
	} {
		if !holds([]byte(text), []byte("before"), []byte("...."+place+"....")) {
			t.Errorf("not found: %s", name)
		}
	}
	if holds([]byte(text), []byte(strings.ToUpper(text))) {
		t.Error("found where it is not")
	}
}
