package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// stop ends a site as a service manager does.
func (s *served) stop() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("told to end: %v\n%s", err, s.errs)
	}
}

// TestKeysOfARunningSite changes the keys of a site that runs, as its operator
// does, and looks at what an app is answered.
func TestKeysOfARunningSite(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	s := serve(t, data)
	allod := allodBinary(t)
	keys := func(fails string, words ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		c := exec.CommandContext(t.Context(), allod, append([]string{"site", "key"}, words...)...)
		c.Args, c.Stdout, c.Stderr = append(c.Args, "--data", data), &out, &errs
		if err := c.Run(); (err != nil) != (fails != "") || !strings.Contains(errs.String(), fails) {
			t.Fatalf("%v: %v\n%s%s", words, err, &out, &errs)
		}
		return strings.TrimSpace(out.String())
	}
	first := s.appKey
	code := func(key, path string) int {
		t.Helper()
		s.appKey = key
		var into any
		return s.call("GET", path, "", &into)
	}

	web := keys("", "add", "--name", "web", "--scope", "enqueue,read", "--owner", "alice")
	if list := keys("", "ls"); !strings.Contains(list, " web ") || !strings.Contains(list, "alice") || !strings.Contains(list, " first ") {
		t.Errorf("listed\n%s", list)
	}
	keys("(app-key-taken)", "add", "--name", "web", "--scope", "read")
	keys("(app-key-invalid)", "add", "--name", "web\xff", "--scope", "read")
	keys("(app-key-invalid)", "add", "--name", "x", "--scope", "canary")
	keys("(app-key-unknown)", "rm", "canary")
	keys("(app-key-unknown)", "rm", "canary\xff")
	for key, want := range map[string][2]int{web: {200, 403}, first: {200, 200}, web + "x": {401, 401}} {
		if got := [2]int{code(key, "/v1/jobs"), code(key, "/v1/runners")}; got != want {
			t.Errorf("%d, want %d", got, want)
		}
	}

	// Removed, it counts no more from the next request on, and never again.
	keys("", "rm", "web")
	keys("", "rm", "first")
	for range 2 {
		for _, key := range []string{web, first} {
			if got := code(key, "/v1/jobs"); got != 401 {
				t.Errorf("a removed key: %d", got)
			}
		}
		s.stop()
		if strings.Contains(s.errs.String(), "allod-app-") {
			t.Errorf("the log holds a key:\n%s", s.errs)
		}
		s = serve(t, data)
	}

	// Not by what is in the file either.
	s.stop()
	file := filepath.Join(data, "app-key")
	other := "allod-app-" + strings.Repeat("A", 43)
	if err := os.WriteFile(file, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	s = serve(t, data)
	if got := code(other, "/v1/jobs"); got != 401 {
		t.Errorf("a key that was written into the file: %d", got)
	}
	if list := keys("", "ls"); !strings.Contains(list, "no app keys") {
		t.Errorf("listed\n%s", list)
	}
	s.stop()
}
