//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/allodhq/allod/test/programs"
)

// patience is how long a test waits for something that should take moments. It
// is no measure of speed.
const patience = time.Minute

// model is an OpenAI-compatible server that a test holds in its hand.
type model struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string // the last message of each request that is no proof
	// hold, where set, is called for each such request and says what to answer.
	hold func(r *http.Request, prompt string) string
	// headers has the Authorization of every request.
	headers []string
}

func newModel(t *testing.T) *model {
	t.Helper()
	m := &model{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"data":[{"id":"m1"}]}`) })
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			MaxTokens int `json:"max_tokens"`
			Messages  []struct{ Role, Content string }
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || len(q.Messages) == 0 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		last := q.Messages[len(q.Messages)-1].Content
		answer := "echo " + last
		if q.MaxTokens == 0 { // a proof asks for a few tokens only
			m.mu.Lock()
			m.asked = append(m.asked, last)
			m.headers = append(m.headers, r.Header.Get("Authorization"))
			hold := m.hold
			m.mu.Unlock()
			if hold != nil {
				answer = hold(r, last)
			}
		}
		_ = json.NewEncoder(w).Encode(anyJSON{"choices": []anyJSON{{"message": anyJSON{"role": "assistant", "content": answer}}}})
	})
	m.Server = httptest.NewServer(mux)
	t.Cleanup(m.Server.Close)
	return m
}

func (m *model) holding(f func(r *http.Request, prompt string) string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hold = f
}

func (m *model) questions() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.asked...)
}

// machine is an owner's machine: a folder, a command, and perhaps an agent that
// runs.
type machine struct {
	t    *testing.T
	home string
	path string
	cmd  *exec.Cmd
	said *lines // by the last connect
	errs *programs.Transcript
}

func newMachine(t *testing.T, m *model) *machine {
	t.Helper()
	a := &machine{t: t, home: filepath.Join(t.TempDir(), "agent"), path: allodBinary(t), errs: &programs.Transcript{}}
	if err := os.Mkdir(a.home, 0o700); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`{
		// The model of this test.
		"agent": {"backends": {"mine": {"backend": "openai-http", "baseUrl": "%s/v1", "apiKeyEnv": "CANARY_API_KEY"}}, "concurrency": 2},
	}`, m.URL)
	if err := os.WriteFile(filepath.Join(a.home, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

const canaryAPIKey = "canary-api-key-91c4"

func (a *machine) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(a.t.Context(), a.path, args...)
	cmd.Env = append(os.Environ(), "ALLOD_HOME="+a.home, "CANARY_API_KEY="+canaryAPIKey)
	return cmd
}

// do runs a command to its end.
func (a *machine) do(args ...string) string {
	a.t.Helper()
	out, err := a.command(args...).CombinedOutput()
	if err != nil {
		a.t.Fatalf("allod %s: %v\n%s\nthe agent's log:\n%s", strings.Join(args, " "), err, out, a.errs)
	}
	return string(out)
}

// run starts the agent.
func (a *machine) run() {
	a.t.Helper()
	a.cmd = a.command("agent", "run")
	a.cmd.Stderr = a.errs
	if err := a.cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	t, cmd := a.t, a.cmd
	t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGCONT); _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

func (a *machine) kill() {
	a.t.Helper()
	if err := a.cmd.Process.Kill(); err != nil {
		a.t.Fatal(err)
	}
	_ = a.cmd.Wait()
}

// end stops the agent as a service manager does.
func (a *machine) end() {
	a.t.Helper()
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		a.t.Fatal(err)
	}
	if err := a.cmd.Wait(); err != nil {
		a.t.Errorf("told to end: %v\n%s", err, a.errs)
	}
}

// startPairing begins to pair with a site at that address and returns what the
// agent shows.
func (a *machine) startPairing(at string) (cmd *exec.Cmd, code anyJSON) {
	a.t.Helper()
	cmd = a.command("connect", at, "--pair-only", "--json")
	cmd.Stderr = a.errs
	out := &lines{more: make(chan []byte, 8)}
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = cmd.Process.Kill() })
	a.said = out
	if err := json.Unmarshal(out.next(a.t), &code); err != nil {
		a.t.Fatalf("connect: %v\n%s", err, a.errs)
	}
	return cmd, code
}

// lines hands out what a process writes, line by line.
type lines struct {
	rest []byte
	more chan []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		l.more <- bytes.Clone(line)
		l.rest = rest
	}
}

func (l *lines) next(t *testing.T) []byte {
	t.Helper()
	select {
	case line := <-l.more:
		return line
	case <-time.After(patience):
		t.Fatal("the process says nothing")
		return nil
	}
}

// approve approves a code as alice, who compares the fingerprints first.
func (s *served) approve(code anyJSON) (runner anyJSON) {
	s.t.Helper()
	var pending anyJSON
	if status := s.call("GET", "/v1/pairings/"+code["userCode"].(string), "", &pending); status != 200 || pending["fingerprint"] != code["fingerprint"] {
		s.t.Fatalf("the app shows %d %v, the agent %v", status, pending, code)
	}
	if status := s.call("POST", "/v1/pairings/"+code["userCode"].(string)+"/approve", `{"owner":"alice"}`, &runner); status != 200 {
		s.t.Fatalf("approve: %d %v", status, runner)
	}
	return runner
}

// pair pairs the machine with a site at that address, which alice approves.
func (a *machine) pair(s *served, at string) {
	a.t.Helper()
	cmd, code := a.startPairing(at)
	runner := s.approve(code)
	var paired anyJSON
	if err := json.Unmarshal(a.said.next(a.t), &paired); err != nil || paired["owner"] != "alice" || paired["runnerId"] != runner["id"] {
		a.t.Fatalf("paired: %v %v", paired, err)
	}
	if err := cmd.Wait(); err != nil {
		a.t.Fatalf("connect: %v\n%s", err, a.errs)
	}
}

// until waits for something to become true.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !is() {
		select {
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (a *machine) status() (s anyJSON) {
	a.t.Helper()
	out, err := a.command("agent", "status", "--json").Output()
	if err != nil {
		a.t.Fatalf("status: %v\n%s", err, a.errs)
	}
	if err := json.Unmarshal(out, &s); err != nil {
		a.t.Fatal(err)
	}
	return s
}

func (a *machine) server(n int) anyJSON {
	servers := a.status()["servers"].([]any)
	if len(servers) <= n {
		return anyJSON{}
	}
	return servers[n].(anyJSON)
}

func (s *served) ask(id, prompt string) {
	s.t.Helper()
	var job anyJSON
	body := fmt.Sprintf(`{"id":%q,"kind":"llm.generate","owner":"alice","payload":{"prompt":%q}}`, id, prompt)
	if code := s.call("POST", "/v1/jobs", body, &job); code != 201 {
		s.t.Fatalf("ask: %d %v", code, job)
	}
}

// answer waits for a job's end.
func (s *served) answer(id string) (job anyJSON) {
	s.t.Helper()
	until(s.t, "job "+id+" ends", func() bool {
		job = nil
		s.call("GET", "/v1/jobs/"+id+"?waitMs=1000", "", &job)
		switch job["state"] {
		case "ok", "error", "canceled", "expired":
			return true
		}
		return false
	})
	return job
}

func text(job anyJSON) any {
	o, _ := job["outcome"].(anyJSON)
	return o["text"]
}

// TestAgent is the whole lane with real processes: pair, ask, answer, log, and
// what each side can read of it.
func TestAgent(t *testing.T) {
	t.Parallel()
	const question, answer = "canary question 5b21", "canary answer 77aa"
	m := newModel(t)
	m.holding(func(*http.Request, string) string { return answer })
	data := filepath.Join(t.TempDir(), "data")
	s := serve(t, data, "--limits", "off")
	a := newMachine(t, m)
	a.pair(s, s.url)
	a.run()
	s.ask("j1", question)
	job := s.answer("j1")
	if job["state"] != "ok" || text(job) != answer {
		t.Fatalf("job %v\n%s", job, a.errs)
	}
	provenance := job["provenance"].(anyJSON)
	if provenance["model"] != "m1" || provenance["runnerOwner"] != "alice" || provenance["untrusted"] != false || provenance["backendClass"] != "http" {
		t.Errorf("provenance %v", provenance)
	}
	if m.headers[0] != "Bearer "+canaryAPIKey {
		t.Errorf("the model server got %q", m.headers[0])
	}
	st := a.status()
	if st["running"] != true || a.server(0)["state"] != "serving" || a.server(0)["resultsKept"] != 0.0 {
		t.Errorf("status %v", st)
	}
	// The log has the prompt, in the owner's own folder.
	if log := a.do("agent", "log", "--full"); !strings.Contains(log, question) || !strings.Contains(log, "ok after") || strings.Contains(log, answer) {
		t.Errorf("log:\n%s", log)
	}
	if log := a.do("agent", "log"); strings.Contains(log, question) {
		t.Errorf("the short log shows prompts:\n%s", log)
	}
	if why := a.do("agent", "why", "j1"); !strings.Contains(why, "ok after") {
		t.Errorf("why:\n%s", why)
	}
	// One folder, one agent.
	if out, err := a.command("agent", "run").CombinedOutput(); err == nil || !strings.Contains(string(out), "(party-running)") {
		t.Errorf("a second agent: %v\n%s", err, out)
	}
	keys, err := os.ReadFile(filepath.Join(a.home, "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	var private struct{ Identity, Encryption struct{ PrivateKey string } }
	if err := json.Unmarshal(keys, &private); err != nil {
		t.Fatal(err)
	}
	a.end()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	appKey := s.appKey
	siteFolder, agentFolder := folder(t, data), folder(t, a.home)
	for name, place := range map[string]struct{ has, hasNot []string }{
		"the site's folder":  {[]string{appKey}, []string{question, answer, canaryAPIKey}},
		"the agent's folder": {[]string{question}, []string{answer, appKey, canaryAPIKey}},
		"the site's log":     {nil, []string{question, answer, appKey, canaryAPIKey}},
		"the agent's log":    {nil, []string{question, answer, appKey, canaryAPIKey}},
	} {
		content := map[string]string{"the site's folder": siteFolder, "the agent's folder": agentFolder, "the site's log": s.errs.String(), "the agent's log": a.errs.String()}[name]
		if content == "" {
			t.Errorf("%s is empty", name)
		}
		for _, c := range place.has {
			if !strings.Contains(content, c) {
				t.Errorf("%s does not have %q, so the search proves nothing", name, c)
			}
		}
		for _, c := range place.hasNot {
			if strings.Contains(content, c) {
				t.Errorf("%s has %q", name, c)
			}
		}
	}
}

// folder is all content below a folder.
func folder(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		b.Write(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestCancelFreesTheBackend: a canceled job's call to the model ends while the
// model still works.
func TestCancelFreesTheBackend(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	began, freed := make(chan struct{}), make(chan struct{})
	m.holding(func(r *http.Request, _ string) string {
		close(began)
		<-r.Context().Done()
		close(freed)
		return ""
	})
	s := serve(t, filepath.Join(t.TempDir(), "data"), "--limits", "off")
	a := newMachine(t, m)
	a.pair(s, s.url)
	a.run()
	s.ask("long", "think for a day")
	wait(t, "the model is asked", began)
	var job anyJSON
	s.call("POST", "/v1/jobs/long/cancel", "", &job)
	if job["cancelRequested"] != true {
		t.Errorf("cancel: %v", job)
	}
	wait(t, "the model is freed", freed)
	if job := s.answer("long"); job["state"] != "canceled" {
		t.Errorf("job %v", job)
	}
}

func wait(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("never: %s", what)
	}
}

// road is what lies between the agent and the site: a proxy that a test can cut.
type road struct {
	*httptest.Server
	// cut, where it returns true, takes a request to the site and throws its
	// answer away, or with before, the request itself.
	cut    func(path string) (cut, before bool)
	posted sync.Map // counts by path
}

func newRoad(t *testing.T, to *string) *road {
	t.Helper()
	r := &road{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		n, _ := r.posted.LoadOrStore(q.URL.Path, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
		target, err := url.Parse(*to)
		if err != nil {
			panic(err)
		}
		cut, before := r.cut(q.URL.Path)
		if cut && before {
			panic(http.ErrAbortHandler)
		}
		proxy := &httputil.ReverseProxy{
			Rewrite:       func(p *httputil.ProxyRequest) { p.SetURL(target) },
			FlushInterval: -1,
			ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
			ModifyResponse: func(*http.Response) error {
				if cut {
					panic(http.ErrAbortHandler)
				}
				return nil
			},
		}
		proxy.ServeHTTP(w, q)
	}))
	r.Server.Config.ErrorLog = nil
	t.Cleanup(r.Server.Close)
	return r
}

// TestResultSurvives: a result is computed once and handed in although the road
// is cut, the agent is killed and the site is killed in between.
func TestResultSurvives(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	data := filepath.Join(t.TempDir(), "data")
	var siteURL string
	road := newRoad(t, &siteURL)
	var cutting atomic.Bool
	tried := make(chan struct{}, 100)
	road.cut = func(path string) (bool, bool) {
		if path == "/byollm/result" && cutting.Load() {
			tried <- struct{}{}
			return true, true
		}
		return false, false
	}
	s := serve(t, data, "--limits", "off", "--origin", road.URL)
	siteURL = s.url
	a := newMachine(t, m)
	a.pair(s, road.URL)
	cutting.Store(true)
	a.run()
	s.ask("j", "once")
	wait(t, "a result is sent", tried)
	a.kill()
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	cutting.Store(false)
	s = serve(t, data, "--limits", "off", "--origin", road.URL)
	siteURL = s.url
	a.run()
	if job := s.answer("j"); job["state"] != "ok" || text(job) != "echo once" || job["attempts"] != 1.0 {
		t.Errorf("job %v\n%s", job, a.errs)
	}
	if q := m.questions(); len(q) != 1 {
		t.Errorf("the model ran %d times", len(q))
	}
	until(t, "the kept result is gone", func() bool { return a.server(0)["resultsKept"] == 0.0 })
}

// TestAnswerOfResultIsLost: the site has the result, and the agent did not hear
// so. Sent again, it changes nothing.
func TestAnswerOfResultIsLost(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	var siteURL string
	road := newRoad(t, &siteURL)
	var cuts atomic.Int64
	road.cut = func(path string) (bool, bool) { return path == "/byollm/result" && cuts.Add(1) == 1, false }
	s := serve(t, filepath.Join(t.TempDir(), "data"), "--limits", "off", "--origin", road.URL)
	siteURL = s.url
	a := newMachine(t, m)
	a.pair(s, road.URL)
	a.run()
	s.ask("j", "once")
	if job := s.answer("j"); job["state"] != "ok" || text(job) != "echo once" {
		t.Errorf("job %v", job)
	}
	until(t, "the agent hears that it is done", func() bool { return a.server(0)["resultsKept"] == 0.0 && cuts.Load() >= 1 })
	if q := m.questions(); len(q) != 1 {
		t.Errorf("the model ran %d times", len(q))
	}
}

// TestAsleep: an agent that slept through its lease reports nothing for it, and
// the job runs elsewhere or again, once.
func TestAsleep(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	began := make(chan struct{}, 10)
	release := make(chan struct{})
	m.holding(func(r *http.Request, p string) string {
		began <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
		return "late or again"
	})
	s := serve(t, filepath.Join(t.TempDir(), "data"), "--limits", "off", "--lease", "2s")
	a := newMachine(t, m)
	a.pair(s, s.url)
	a.run()
	s.ask("j", "sleepy")
	wait(t, "the model is asked", began)
	if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until(t, "the lease lapses", func() bool {
		var job anyJSON
		s.call("GET", "/v1/jobs/j", "", &job)
		return job["state"] == "queued"
	})
	if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	wait(t, "the job runs again", began)
	close(release)
	if job := s.answer("j"); job["state"] != "ok" || job["attempts"].(float64) < 2 {
		t.Errorf("job %v\n%s", job, a.errs)
	}
}

// TestOwnerHasTheLastWord: pause, resume, name, forget, with the agent running
// and without.
func TestOwnerHasTheLastWord(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	s := serve(t, filepath.Join(t.TempDir(), "data"), "--limits", "off")
	a := newMachine(t, m)
	a.pair(s, s.url)
	a.do("agent", "pause")
	a.run()
	until(t, "the agent answers", func() bool { _, err := os.Stat(filepath.Join(a.home, "admin.sock")); return err == nil })
	until(t, "the agent is heard", func() bool { return a.server(0)["state"] == "serving" })
	if text := a.do("agent", "status"); a.server(0)["protocol"] != "2" || !strings.Contains(text, ", protocol version 2\n") {
		t.Errorf("the version that is spoken is not shown: %v\n%s", a.server(0), text)
	}
	s.ask("j1", "while paused")
	var job anyJSON
	s.call("GET", "/v1/jobs/j1", "", &job)
	if job["noRunner"] != "no-matching-capability" { // it offers nothing
		t.Errorf("paused, the app hears %v", job)
	}
	if why := a.do("agent", "why"); !strings.Contains(why, "paused") {
		t.Errorf("why:\n%s", why)
	}
	a.do("agent", "resume")
	if job := s.answer("j1"); job["state"] != "ok" {
		t.Errorf("resumed: %v", job)
	}
	began := make(chan struct{}, 10)
	m.holding(func(r *http.Request, _ string) string { began <- struct{}{}; <-r.Context().Done(); return "" })
	s.ask("j2", "in flight")
	wait(t, "the model is asked", began)
	a.do("agent", "pause", "--release")
	until(t, "the job is given back", func() bool {
		job = nil
		s.call("GET", "/v1/jobs/j2", "", &job)
		return job["state"] == "queued"
	})
	a.do("agent", "name", "the desk")
	if name := a.do("agent", "name"); name != "the desk\n" {
		t.Errorf("name %q", name)
	}
	a.do("agent", "forget", s.url+"/")
	if st := a.status(); len(st["servers"].([]any)) != 0 {
		t.Errorf("status %v", st)
	}
	a.end()
	if out, err := a.command("agent", "run").CombinedOutput(); err == nil || !strings.Contains(string(out), "(no-pairings)") {
		t.Errorf("runs for nobody: %v\n%s", err, out)
	}
}

// TestRevokedAgent: a revoked device stops at once, also in the middle of a run.
func TestRevokedAgent(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	began, freed := make(chan struct{}), make(chan struct{})
	m.holding(func(r *http.Request, _ string) string { close(began); <-r.Context().Done(); close(freed); return "" })
	s := serve(t, filepath.Join(t.TempDir(), "data"), "--limits", "off")
	a := newMachine(t, m)
	a.pair(s, s.url)
	a.run()
	s.ask("j", "never answered")
	wait(t, "the model is asked", began)
	var runners struct{ Runners []anyJSON }
	s.call("GET", "/v1/runners?owner=alice", "", &runners)
	var gone anyJSON
	s.call("POST", "/v1/runners/"+runners.Runners[0]["id"].(string)+"/revoke", "", &gone)
	wait(t, "the model is freed", freed)
	until(t, "the agent knows", func() bool { return a.server(0)["state"] == "revoked" })
	if why := a.do("agent", "why"); !strings.Contains(why, "revoked this machine") {
		t.Errorf("why:\n%s", why)
	}
	a.end()
}

// TestConnectToARunningAgent: the agent that runs takes the pairing over.
func TestConnectToARunningAgent(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	first := serve(t, filepath.Join(t.TempDir(), "data"), "--limits", "off")
	second := serve(t, filepath.Join(t.TempDir(), "data"), "--limits", "off")
	a := newMachine(t, m)
	a.pair(first, first.url)
	a.run()
	until(t, "the agent runs", func() bool { return a.status()["running"] == true })
	a.pair(second, second.url)
	second.ask("j", "hello")
	if job := second.answer("j"); text(job) != "echo hello" {
		t.Errorf("job %v", job)
	}
	first.ask("j", "hello too")
	if job := first.answer("j"); text(job) != "echo hello too" {
		t.Errorf("job %v", job)
	}
	a.end()
}

// TestOneWayRoad: what the agent sends arrives and no answer comes back, then the
// road is whole again. The job is answered once.
func TestOneWayRoad(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	var siteURL string
	road := newRoad(t, &siteURL)
	var oneWay atomic.Bool
	road.cut = func(string) (bool, bool) { return oneWay.Load(), false }
	s := serve(t, filepath.Join(t.TempDir(), "data"), "--limits", "off", "--lease", "3s", "--origin", road.URL)
	siteURL = s.url
	a := newMachine(t, m)
	a.pair(s, road.URL)
	a.run()
	until(t, "the agent is heard", func() bool { return a.server(0)["state"] == "serving" })
	oneWay.Store(true)
	s.ask("j", "one way")
	until(t, "a grant is lost on the way", func() bool {
		var job anyJSON
		s.call("GET", "/v1/jobs/j", "", &job)
		return job["attempts"].(float64) >= 1
	})
	oneWay.Store(false)
	if job := s.answer("j"); job["state"] != "ok" || text(job) != "echo one way" {
		t.Errorf("job %v\n%s", job, a.errs)
	}
	if q := m.questions(); len(q) != 1 {
		t.Errorf("the model ran %d times", len(q))
	}
}

// TestDescriptorsGone: strangers take every descriptor the site may have. It goes
// on when they let go, with everything it had acknowledged.
func TestDescriptorsGone(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	data := filepath.Join(t.TempDir(), "data")
	// Its own limit, set by the shell that becomes the site.
	s := serveBy(t, []string{"/bin/sh", "-c", `ulimit -n 64; exec "$0" "$@"`}, data, "--limits", "off")
	a := newMachine(t, m)
	a.pair(s, s.url)
	s.ask("before", "before")
	var crowd []net.Conn
	for range 100 {
		c, err := net.DialTimeout("tcp", strings.TrimPrefix(s.url, "http://"), time.Second)
		if err != nil {
			break // the queue of those who wait to be let in is full too
		}
		crowd = append(crowd, c)
	}
	if len(crowd) < 64 {
		t.Skipf("only %d connections could be made", len(crowd))
	}
	a.run() // while nobody gets in
	short := &http.Client{Timeout: 300 * time.Millisecond, Transport: &http.Transport{DisableKeepAlives: true}}
	if answer, err := short.Get(s.url + "/v1/availability"); err == nil {
		answer.Body.Close()
		t.Fatal("somebody got in, so the test proves nothing")
	}
	for _, c := range crowd {
		_ = c.Close()
	}
	if job := s.answer("before"); job["state"] != "ok" || text(job) != "echo before" {
		t.Errorf("job %v\n%s\n%s", job, a.errs, s.errs)
	}
}
