//go:build unix

package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// proxyBefore stands before a site and waits so long for its answers.
func proxyBefore(t *testing.T, site string, patience time.Duration) *httptest.Server {
	t.Helper()
	to, err := url.Parse(site)
	if err != nil {
		t.Fatal(err)
	}
	through := &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusGatewayTimeout) },
	}
	p := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		through.ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(p.Close)
	return p
}

// examine runs allod doctor and returns its report by "about name", and its code.
func (a *machine) examine(words ...string) (states map[string]string, text string, code int) {
	a.t.Helper()
	cmd := a.command(append([]string{"doctor", "--json"}, words...)...)
	// No service of whoever runs the tests has a say.
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+filepath.Join(a.home, "none"), "HOME="+filepath.Join(a.home, "none"))
	out, err := cmd.Output()
	if err != nil && cmd.ProcessState == nil {
		a.t.Fatal(err)
	}
	var r struct {
		Probes []struct{ About, Name, State string }
	}
	if err := json.Unmarshal(out, &r); err != nil {
		a.t.Fatalf("%v: %s", err, out)
	}
	states = map[string]string{}
	for _, p := range r.Probes {
		states[p.About+" "+p.Name] = p.State
	}
	return states, string(out), cmd.ProcessState.ExitCode()
}

// TestDoctor: a real site, directly and through proxies, a machine that is paired
// with it, and one of them at a time that is in the way.
func TestDoctor(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	data := filepath.Join(t.TempDir(), "data")
	s := serve(t, data, "--limits", "off")
	a := newMachine(t, m)
	must := func(states map[string]string, text string, want map[string]string) {
		t.Helper()
		for about, state := range want {
			if states[about] != state {
				t.Errorf("%s is %q, want %s\n%s", about, states[about], state, text)
			}
		}
		if strings.Contains(text, canaryAPIKey) {
			t.Errorf("a key is shown: %s", text)
		}
	}

	// A site that this machine is not paired with is looked at as far as it goes.
	states, text, code := a.examine(s.url)
	at := "site " + s.url
	must(states, text, map[string]string{
		"folder keys": "failed", "backend mine models": "ok",
		at + " way": "ok", at + " contract": "ok", at + " signature": "ok", at + " clock": "ok", at + " size": "ok", at + " held": "skipped",
	})
	if code != 1 {
		t.Errorf("it ends with %d", code)
	}

	// All is well, and nothing came of looking.
	a.pair(s, s.url)
	s.ask("j1", "wait for me")
	states, text, code = a.examine("--hold", "2s")
	must(states, text, map[string]string{
		"folder keys": "ok", "folder pairings": "ok", "folder write": "ok", "backend mine models": "ok", "service state": "ok",
		at + " way": "ok", at + " contract": "ok", at + " signature": "ok", at + " clock": "ok", at + " size": "ok", at + " held": "ok",
	})
	if code != 0 || !strings.Contains(text, "as it should") {
		t.Errorf("it ends with %d\n%s", code, text)
	}
	if q := m.questions(); len(q) > 0 {
		t.Errorf("a model was asked %q", q)
	}
	var job anyJSON
	if s.call("GET", "/v1/jobs/j1", "", &job); job["state"] != "queued" {
		t.Errorf("the job is %v", job)
	}

	// The agent runs: it is not spoken for, and it goes on.
	a.run()
	if job := s.answer("j1"); job["state"] != "ok" {
		t.Errorf("the job is %v", job)
	}
	states, text, code = a.examine("--hold", "2s")
	must(states, text, map[string]string{at + " signature": "ok", at + " held": "skipped", "folder write": "ok"})
	if code != 0 || a.status()["running"] != true {
		t.Errorf("it ends with %d\n%s", code, text)
	}
	a.end()

	// A proxy that cuts what takes long.
	hasty := proxyBefore(t, s.url, 500*time.Millisecond)
	pairings := filepath.Join(a.home, "pairings.json")
	list, err := os.ReadFile(pairings)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pairings, []byte(strings.ReplaceAll(string(list), s.url, hasty.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	states, text, code = a.examine("--hold", "5s")
	at = "site " + hasty.URL
	must(states, text, map[string]string{at + " way": "ok", at + " contract": "ok", at + " signature": "ok", at + " held": "failed"})
	if code != 1 || !strings.Contains(text, "Something between cut the request after") {
		t.Errorf("it ends with %d\n%s", code, text)
	}
	s.ask("j2", "go on")
	a.run()
	if job := s.answer("j2"); job["state"] != "ok" {
		t.Errorf("after it, the job is %v", job)
	}
}
