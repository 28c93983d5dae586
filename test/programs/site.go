package programs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Site is `allod site serve` in a process of its own.
type Site struct {
	Address string // on which it listens
	URL     string // of the same, without a path
	KeyFile string // of the app key that it made, which acts for every user
	Key     string // what is in that file
	Said    *Transcript
	t       *testing.T
	cmd     *exec.Cmd
}

// Serve starts a site with these flags besides --json. It is killed at the end of
// the test.
func Serve(t *testing.T, flags ...string) *Site {
	t.Helper()
	s := &Site{t: t, Said: &Transcript{}}
	s.cmd = exec.CommandContext(t.Context(), Allod(t), append([]string{"site", "serve", "--json"}, flags...)...)
	s.cmd.Stderr = s.Said
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var first struct{ Listening, AppKeyFile string }
	if err := errors.Join(err, json.Unmarshal(line, &first)); err != nil {
		t.Fatalf("first line %s: %v\n%s", line, err, s.Said)
	}
	key, err := os.ReadFile(first.AppKeyFile)
	if err != nil {
		t.Fatal(err)
	}
	s.Address, s.URL = first.Listening, "http://"+first.Listening
	s.KeyFile, s.Key = first.AppKeyFile, strings.TrimSpace(string(key))
	return s
}

// Kill ends the site without warning.
func (s *Site) Kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// Call calls the app interface with the site's key. A nil body is none. The test
// ends if the status is no 2xx.
func (s *Site) Call(method, path string, body any) (answer map[string]any) {
	s.t.Helper()
	var sent []byte
	if body != nil {
		var err error
		if sent, err = json.Marshal(body); err != nil {
			s.t.Fatal(err)
		}
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+path, bytes.NewReader(sent))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.Key)
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := json.Unmarshal(text, &answer); err != nil || got.StatusCode/100 != 2 {
		s.t.Fatalf("%s %s: %d %s", method, path, got.StatusCode, text)
	}
	return answer
}

// Approve approves the pairing with this code for alice and returns the runner.
func (s *Site) Approve(code string) (runner map[string]any) {
	s.t.Helper()
	return s.Call("POST", "/v1/pairings/"+code+"/approve", map[string]any{"owner": "alice"})
}
