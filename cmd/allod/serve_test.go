package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/test/programs"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/protocol"
)

// served is a site in a process of its own.
type served struct {
	t      *testing.T
	cmd    *exec.Cmd
	url    string
	appKey string
	errs   *programs.Transcript
}

// allodBinary is this test binary under the name by which it is the command.
func allodBinary(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "allod")
	if err := os.Symlink(self, path); err != nil {
		t.Skip("no symbolic links here")
	}
	return path
}

func serve(t *testing.T, data string, flags ...string) *served {
	t.Helper()
	return serveBy(t, nil, data, flags...)
}

// serveBy starts a site by a command that is given the site's command.
func serveBy(t *testing.T, by []string, data string, flags ...string) *served {
	t.Helper()
	s := &served{t: t, errs: &programs.Transcript{}}
	words := append(append(by, allodBinary(t), "site", "serve", "--data", data, "--json"), flags...)
	s.cmd = exec.CommandContext(t.Context(), words[0], words[1:]...)
	s.cmd.Stderr = s.errs
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("no first line: %v\n%s", err, s.errs)
	}
	var first struct {
		Listening, SiteKeyID, AppKeyFile string
		WebhookSecretFiles               []string
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&first); err != nil || first.SiteKeyID == "" {
		t.Fatalf("first line %s: %v", line, err)
	}
	s.url = "http://" + first.Listening
	if first.AppKeyFile == "" { // the first key was removed
		return s
	}
	text, err := os.ReadFile(first.AppKeyFile)
	if err != nil {
		t.Fatal(err)
	}
	s.appKey = strings.TrimSpace(string(text))
	return s
}

// call calls the app interface and decodes its answer.
func (s *served) call(method, path, body string, into any) int {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.appKey)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		s.t.Fatalf("%s %s: %d %s", method, path, answer.StatusCode, text)
	}
	return answer.StatusCode
}

type anyJSON = map[string]any

// TestServe runs a site as a process: it starts, is asked, is killed, starts
// again with everything it acknowledged, and ends when it is told to.
func TestServe(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	s := serve(t, data)
	var job anyJSON
	if code := s.call("POST", "/v1/jobs", `{"id":"a","kind":"llm.generate","owner":"alice","payload":{"prompt":"canary-e2e"}}`, &job); code != 201 || job["state"] != "queued" || job["noRunner"] != "no-runner-paired" {
		t.Errorf("ask: %d %v", code, job)
	}
	var found anyJSON
	if code := s.call("GET", "/v1/availability?owner=alice", "", &found); code != 200 || found["available"] != false || found["reason"] != "no-runner-paired" {
		t.Errorf("availability: %d %v", code, found)
	}

	// A device pairs, and the app approves it by its code.
	k, err := key.NewKeys[key.DeviceRole](rand.Reader, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	body, err := protocol.Latest().PairRequest.Write(ai.PairRequest{Start: &ai.PairStartRequest{
		Daemon: ai.Daemon{Version: "1", Label: "laptop", Platform: ai.PlatformLinux}, Device: ai.PublicIdentityOf(k.Identity()), Capabilities: []ai.Capability{},
	}})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Post(s.url+"/byollm/pair", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	started, err := protocol.Latest().PairStartResponse.Read(text)
	if err != nil || started.VerificationURL != s.url+"/pair" || answer.Header.Get("X-Request-Id") == "" {
		t.Fatalf("pair: %s %v", text, err)
	}
	var pending, runner anyJSON
	if code := s.call("GET", "/v1/pairings/"+started.UserCode, "", &pending); code != 200 || pending["fingerprint"] != k.Identity().String() {
		t.Errorf("pairing: %d %v", code, pending)
	}
	if code := s.call("POST", "/v1/pairings/"+started.UserCode+"/approve", `{"owner":"alice"}`, &runner); code != 200 || runner["owner"] != "alice" {
		t.Errorf("approve: %d %v", code, runner)
	}

	// One folder, one process.
	second := exec.CommandContext(t.Context(), allodBinary(t), "site", "serve", "--data", data)
	if out, err := second.CombinedOutput(); err == nil || !strings.Contains(string(out), "(party-running)") {
		t.Errorf("a second process: %v\n%s", err, out)
	}

	// Health and metrics are on the socket, and nowhere else.
	admin := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(data, "admin.sock"))
	}}}
	for path, want := range map[string]string{"/health": "ok", "/metrics": "allod_site_commits_total", "/debug/pprof/": "goroutine"} {
		answer, err := admin.Get("http://admin" + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != 200 || !strings.Contains(string(text), want) {
			t.Errorf("%s: %d %.200s %v", path, answer.StatusCode, text, err)
		}
		if outside, err := http.Get(s.url + path); err != nil || outside.StatusCode != 404 {
			t.Errorf("%s outside: %v %v", path, outside, err)
		} else {
			outside.Body.Close()
		}
	}
	if info, err := os.Stat(filepath.Join(data, "admin.sock")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v %v", info.Mode(), err)
	}

	// Killed without warning: what was acknowledged is there.
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	s = serve(t, data)
	if code := s.call("GET", "/v1/jobs/a", "", &job); code != 200 || job["state"] != "queued" {
		t.Errorf("after a kill: %d %v", code, job)
	}
	var runners struct{ Runners []anyJSON }
	if code := s.call("GET", "/v1/runners?owner=alice", "", &runners); code != 200 || len(runners.Runners) != 1 || runners.Runners[0]["id"] != runner["id"] {
		t.Errorf("devices after a kill: %d %v", code, runners)
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("told to end: %v\n%s", err, s.errs)
	}
	for _, text := range []string{"canary-e2e", s.appKey} {
		if strings.Contains(s.errs.String(), text) {
			t.Errorf("the log holds %s", text)
		}
	}
}
