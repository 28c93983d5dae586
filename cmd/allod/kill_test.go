//go:build unix && killpoints

package main

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/allodhq/allod/internal/killpoint"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/sqlite"
)

// TestKillPoints kills the site or the agent at each point, starts it again, and
// looks whether what was acknowledged is still true: a job that was asked is
// answered once, by the same pairing, and a result that was kept is not computed
// again.
func TestKillPoints(t *testing.T) {
	hit := map[killpoint.Point]bool{}
	for _, p := range killpoint.All() {
		t.Run(string(p), func(t *testing.T) {
			switch p {
			case killpoint.SitePairStarted, killpoint.SitePairCollected, killpoint.AgentPaired:
				killWhilePairing(t, p)
			case killpoint.SiteWebhookSent:
				killWhileTelling(t, p)
			case killpoint.AgentLogReduced:
				killWhileReducing(t, p)
			default:
				killWhileWorking(t, p)
			}
			hit[p] = true
		})
	}
	for _, p := range killpoint.All() {
		if !hit[p] {
			t.Errorf("%s was not hit", p)
		}
	}
}

// killed waits for a process that is to kill itself.
func killed(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the process ended with %v, and not by its own kill", err)
	}
}

// post asks a site that may be dead before it answers.
func (s *served) post(path, body string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), "POST", s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.appKey)
	r.Header.Set("Content-Type", "application/json")
	if answer, err := http.DefaultClient.Do(r); err == nil {
		answer.Body.Close()
	}
}

func killWhileWorking(t *testing.T, p killpoint.Point) {
	m := newModel(t)
	var siteURL string
	road := newRoad(t, &siteURL)
	road.cut = func(string) (bool, bool) { return false, false }
	data := filepath.Join(t.TempDir(), "data")
	flags := []string{"--limits", "off", "--lease", "3s", "--origin", road.URL}
	s := serve(t, data, flags...)
	siteURL = s.url
	a := newMachine(t, m)
	a.pair(s, road.URL)

	atSite := strings.HasPrefix(string(p), "site-")
	if atSite {
		if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		_ = s.cmd.Wait()
		t.Setenv("ALLOD_KILLPOINT", string(p))
		s = serve(t, data, flags...)
		siteURL = s.url
		t.Setenv("ALLOD_KILLPOINT", "")
		a.run()
	} else {
		t.Setenv("ALLOD_KILLPOINT", string(p))
		a.run()
		t.Setenv("ALLOD_KILLPOINT", "")
	}
	// The question may be stored although its asker did not hear so; asked again
	// by its id it is one job.
	body := `{"id":"j","kind":"llm.generate","owner":"alice","payload":{"prompt":"once"}}`
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/v1/jobs", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.appKey)
	if answer, err := http.DefaultClient.Do(r); err == nil {
		answer.Body.Close()
	} else if p != killpoint.SiteJobStored {
		t.Fatal(err)
	}
	if atSite {
		killed(t, s.cmd)
		s = serve(t, data, flags...)
		siteURL = s.url
		if p == killpoint.SiteJobStored {
			var job anyJSON
			if code := s.call("POST", "/v1/jobs", body, &job); code != 201 || job["id"] != "j" {
				t.Errorf("asked again: %d %v", code, job)
			}
		}
	} else {
		killed(t, a.cmd)
		a.run()
	}
	job := s.answer("j")
	if job["state"] != "ok" || text(job) != "echo once" {
		t.Errorf("job %v\n%s", job, a.errs)
	}
	once := p == killpoint.SiteJobStored || p == killpoint.SiteJobGranted || p == killpoint.SiteResultRecorded ||
		p == killpoint.AgentGranted || p == killpoint.AgentPromptLogged || p == killpoint.AgentResultKept || p == killpoint.AgentResultSent
	if n := len(m.questions()); once && n != 1 || n > 2 {
		t.Errorf("the model ran %d times", n)
	}
	// Nothing is left to hand in, and the log has the prompt as often as it ran.
	until(t, "nothing is kept", func() bool { return a.server(0)["resultsKept"] == 0.0 })
	log := a.do("agent", "log", "-n", "100")
	if n := strings.Count(log, "runs llm.generate"); n < len(m.questions()) {
		t.Errorf("the model ran %d times, and the log says\n%s", len(m.questions()), log)
	}
}

func killWhilePairing(t *testing.T, p killpoint.Point) {
	m := newModel(t)
	data := filepath.Join(t.TempDir(), "data")
	var siteURL string
	road := newRoad(t, &siteURL)
	road.cut = func(string) (bool, bool) { return false, false }
	flags := []string{"--limits", "off", "--origin", road.URL}
	a := newMachine(t, m)
	if p == killpoint.AgentPaired {
		s := serve(t, data, flags...)
		siteURL = s.url
		t.Setenv("ALLOD_KILLPOINT", string(p))
		cmd, code := a.startPairing(road.URL)
		t.Setenv("ALLOD_KILLPOINT", "")
		s.approve(code)
		killed(t, cmd)
		// Nothing was recorded here, so the machine pairs anew and takes the place of
		// the device that the site believes to have.
		a.pair(s, road.URL)
		a.works(s)
		return
	}
	t.Setenv("ALLOD_KILLPOINT", string(p))
	s := serve(t, data, flags...)
	siteURL = s.url
	t.Setenv("ALLOD_KILLPOINT", "")
	if p == killpoint.SitePairStarted {
		if out, err := a.command("connect", road.URL, "--pair-only", "--json").CombinedOutput(); err == nil {
			t.Errorf("paired with a dead site: %s", out)
		}
		killed(t, s.cmd)
		s = serve(t, data, flags...)
		siteURL = s.url
		a.pair(s, road.URL)
		a.works(s)
		return
	}
	// The approval was read once and the answer lost: the same code gets it again.
	cmd, code := a.startPairing(road.URL)
	s.post("/v1/pairings/"+code["userCode"].(string)+"/approve", `{"owner":"alice"}`)
	killed(t, s.cmd)
	s = serve(t, data, flags...)
	siteURL = s.url
	if err := cmd.Wait(); err != nil {
		t.Fatalf("connect ended with %v", err)
	}
	a.works(s)
}

// killWhileTelling kills the site between the delivery of an event and its record:
// the event comes again, under the same id.
func killWhileTelling(t *testing.T, p killpoint.Point) {
	r := newReceiver(t)
	data := filepath.Join(t.TempDir(), "data")
	t.Setenv("ALLOD_KILLPOINT", string(p))
	s := serve(t, data, "--config", r.config)
	t.Setenv("ALLOD_KILLPOINT", "")
	var job anyJSON
	s.call("POST", "/v1/jobs", `{"id":"j","kind":"llm.generate","owner":"alice","payload":{"prompt":"once"}}`, &job)
	s.post("/v1/jobs/j/cancel", "")
	first := r.next()
	killed(t, s.cmd)
	// Half a minute passes, after which the event is no longer taken for being under way.
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(data, sqlite.DatabaseFile)})
	if err != nil {
		t.Fatal(err)
	}
	err = store.Hooks().Retry(t.Context(), site.HookRetry{Hook: r.hook, Job: "j", At: 1})
	if err := errors.Join(err, store.Close()); err != nil {
		t.Fatal(err)
	}
	s = serve(t, data, "--config", r.config)
	if again := r.next(); again != first {
		t.Errorf("delivered %v, and after the kill %v", first, again)
	}
	until(t, "it is recorded", func() bool { return s.metric("allod_site_webhooks_waiting") == "0" })
}

// killWhileReducing kills the agent when the text of old prompts is out of a copy of
// its log, and not out of the log: nothing is lost, and the next start does it.
func killWhileReducing(t *testing.T, p killpoint.Point) {
	m := newModel(t)
	s := serve(t, filepath.Join(t.TempDir(), "data"), "--limits", "off")
	a := newMachine(t, m)
	a.pair(s, s.url)
	path := filepath.Join(a.home, "ingress.log")
	line := func(prompt string) string {
		return `{"type":"prompt","at":"2020-01-01T00:00:00Z","server":"https://a.example","jobId":"old","audience":"public","owner":"bob","promptHash":"aa"` + prompt + "}\n"
	}
	const own = `{"type":"prompt","at":"2020-01-01T00:00:00Z","server":"https://a.example","jobId":"own","audience":"self","owner":"alice","prompt":"mine"}` + "\n"
	before := line(`,"prompt":"canary"`) + own
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	content := func() string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	t.Setenv("ALLOD_KILLPOINT", string(p))
	a.run()
	t.Setenv("ALLOD_KILLPOINT", "")
	killed(t, a.cmd)
	if got := content(); got != before {
		t.Errorf("after the kill the log is %q", got)
	}
	if out := a.do("agent", "log"); strings.Count(out, "runs") != 2 {
		t.Errorf("after the kill the log says\n%s", out)
	}
	a.works(s)
	until(t, "the text is gone", func() bool { return strings.HasPrefix(content(), line("")+own) })
	left, err := filepath.Glob(filepath.Join(a.home, "*.tmp"))
	if err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// works runs the agent and has it answer.
func (a *machine) works(s *served) {
	a.t.Helper()
	a.run()
	s.ask("works", "hello")
	if job := s.answer("works"); text(job) != "echo hello" {
		a.t.Errorf("job %v\n%s", job, a.errs)
	}
	var runners struct{ Runners []anyJSON }
	s.call("GET", "/v1/runners?owner=alice", "", &runners)
	live := 0
	for _, r := range runners.Runners {
		if r["revokedAt"] == nil {
			live++
		}
	}
	if live != 1 {
		a.t.Errorf("%d devices are paired: %v", live, runners.Runners)
	}
}
