package compose

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/runner/ingress"
)

// TestDemo runs the whole lane and looks at the result as its reader would.
func TestDemo(t *testing.T) {
	dir := t.TempDir()
	const question = "canary question of the demo"
	var progress []string
	d, err := RunDemo(t.Context(), DemoConfig{
		Dir: dir, Question: question, Version: "test", StandIn: true, NoNode: NotWanted, Progress: func(s string) { progress = append(progress, s) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if d.Answer != standInAnswer(question) || !d.StandIn || d.Backend != "openai-http" || !d.SealedAtRest || d.Refused != "not-locally-allowed" || len(d.Steps) != 9 || len(progress) == 0 {
		t.Errorf("%+v", d)
	}
	if d.StoredQuestion == "" || d.StoredAnswer == "" || d.StoredQuestion == d.StoredAnswer || len(d.StoredFiles) < 2 || d.Provenance == nil {
		t.Errorf("%+v", d)
	}
	// The owner's log is the one place that has the question, which shows that
	// the search would find it.
	log, err := os.ReadFile(filepath.Join(dir, "agent", ingress.FileName))
	if err != nil || !holds([]byte(question), log) {
		t.Errorf("the owner's log does not have the question: %v", err)
	}
	for _, step := range d.Steps {
		if step.Ms <= 0 {
			t.Errorf("%s took %v ms", step.Name, step.Ms)
		}
	}
}

// TestDemoEnds stops a demo in the middle; it must come back with everything
// closed.
func TestDemoEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := RunDemo(ctx, DemoConfig{Dir: t.TempDir(), Question: "q", Version: "test", StandIn: true, Progress: func(string) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
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
