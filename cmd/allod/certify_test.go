package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allodhq/allod/certify"
	"github.com/allodhq/allod/wire/ai/protocol"
)

// command runs the command and returns its exit code.
func command(t *testing.T, words ...string) (code int, out, errs string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), allodBinary(t), words...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// TestCertifySite runs the kit as its user does, against a site in a process of its
// own.
func TestCertifySite(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	s := serve(t, data, "--lease", "2s", "--liveness", "2s", "--pair-ttl", "2s", "--limits", "off")
	key := filepath.Join(data, "app-key")

	code, out, errs := command(t, "certify", s.url, "--app-key-file", key, "--strict", "--json")
	var r certify.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("no report: %v\n%s\n%s", err, out, errs)
	}
	if want := len(certify.Checks()) * len(protocol.Supported()); code != 0 || errs != "" || r.Passed != want || r.Failed+r.NotProved > 0 {
		t.Errorf("ended with %d, %d passed, want %d\n%s\n%s", code, r.Passed, want, out, errs)
	}
	code, out, errs = command(t, "certify", s.url, "--app-key-file", key, "--only", "A01,A13")
	if code != 0 || errs != "" || !strings.Contains(out, "4 passed, 0 failed, 0 not proved.") || strings.Contains(out, "A02") || !strings.Contains(out, "RELAY_BLIND") {
		t.Errorf("two checks ended with %d\n%s\n%s", code, out, errs)
	}
	// A clock that is too long for the wait is not proved, and strict minds it.
	code, out, errs = command(t, "certify", s.url, "--app-key-file", key, "--only", "A05", "--max-wait", "100ms")
	if code != 0 || errs != "" || !strings.Contains(out, "A05 is not proved: a pairing code lasts 2s;") || strings.Count(out, "is not proved") != 1 {
		t.Errorf("a check that is not proved ended with %d\n%s\n%s", code, out, errs)
	}
	code, _, errs = command(t, "certify", s.url, "--app-key-file", key, "--only", "A05", "--max-wait", "100ms", "--strict")
	if code != 5 || !strings.Contains(errs, "(certify-not-proved)") {
		t.Errorf("a check that is not proved ended under --strict with %d\n%s", code, errs)
	}

	for _, words := range [][]string{{"certify", "audit", s.url, "--pair"}, {"certify", "audit", s.url}} {
		code, out, errs = command(t, words...)
		if code != 0 || errs != "" || !strings.Contains(out, " passed, 0 failed, 0 not proved.") {
			t.Errorf("%q ended with %d\n%s\n%s", words, code, out, errs)
		}
	}

	// A key that is none, and one of another site.
	wrong := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(wrong, []byte("allod-app-"+strings.Repeat("A", 43)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs = command(t, "certify", s.url, "--app-key-file", wrong)
	if code != 1 || out != "" || !strings.Contains(errs, "(certify-app)") || !strings.Contains(errs, "status 401") {
		t.Errorf("a key of another site ended with %d\n%s\n%s", code, out, errs)
	}
}
