//go:build unix

package interop

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/test/programs"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/signing"
	"github.com/allodhq/allod/wire/ai/v2"
)

// daemon is the published daemon, whose key file is looked into.
type daemon struct {
	*programs.Daemon
	t *testing.T
}

func newDaemon(t *testing.T, m *programs.Model, kinds ...[]string) *daemon {
	t.Helper()
	return &daemon{programs.NewDaemon(t, m, kinds...), t}
}

var shownFingerprint = regexp.MustCompile(`BYOLLM(?:-[0-9A-Z]{4}){6}`)

// connect begins to pair and returns what the daemon shows.
func (d *daemon) connect(s *site) (connecting *programs.Process, code, fingerprint string) {
	d.t.Helper()
	connecting, code = d.Connect(s.URL)
	return connecting, code, shownFingerprint.FindString(connecting.Said.String())
}

// pair pairs the daemon with a site for alice, who compares what the app shows with
// what the machine shows. It returns the runner's id.
func (d *daemon) pair(s *site) (runner string) {
	d.t.Helper()
	connecting, code, fingerprint := d.connect(s)
	pending := s.Call("GET", "/v1/pairings/"+code, nil)
	if pending["fingerprint"] != fingerprint || fingerprint != d.keys().Identity().String() || pending["label"] != "judge" {
		d.t.Errorf("the app shows %v, the daemon %s", pending, fingerprint)
	}
	runner, _ = s.Approve(code)["id"].(string)
	if rc := connecting.Ended(d.t); rc != 0 || !strings.Contains(connecting.Said.String(), "paired as alice") {
		d.t.Fatalf("paired: exit %d\n%s", rc, connecting.Said)
	}
	return runner
}

// keys are the daemon's private keys, in its own key file.
func (d *daemon) keys() key.DeviceKeys {
	d.t.Helper()
	content, err := os.ReadFile(filepath.Join(d.Home, "keys.json"))
	if err != nil {
		d.t.Fatal(err)
	}
	k, err := key.ParseFile[key.DeviceRole](content)
	if err != nil {
		d.t.Fatalf("the published daemon's key file: %v", err)
	}
	return k
}

// claim claims in the daemon's name, as it would.
func (d *daemon) claim(s *site, runner string) (status int, code string) {
	d.t.Helper()
	body, err := v2.Codec().ClaimRequest.Write(ai.ClaimRequest{RunnerID: ai.RunnerID(runner), Max: 1, Capabilities: []ai.Capability{}})
	if err != nil {
		d.t.Fatal(err)
	}
	signed, err := signing.Sign(d.keys().Signer(), signing.Request{Plane: signing.DaemonPlane, Endpoint: ai.EndpointClaim, Body: body}, runner, ai.MillisOf(time.Now()))
	if err != nil {
		d.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(d.t.Context(), "POST", s.URL+"/byollm/claim", bytes.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, header := range signed.Headers(signing.DaemonPlane) {
		r.Header.Set(header[0], header[1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	var e struct{ Error string }
	if err := json.Unmarshal(text, &e); err != nil {
		d.t.Fatal(err)
	}
	return answer.StatusCode, e.Error
}

// TestDaemon is the published daemon with `allod site serve`: it pairs, runs both
// kinds, is cancelled, survives a restart of the site, and is revoked.
func TestDaemon(t *testing.T) {
	programs.Node(t, ".")
	t.Parallel()
	m := programs.NewModel(t, "m1")
	data := filepath.Join(t.TempDir(), "data")
	s := serve(t, data, "")
	d := newDaemon(t, m, []string{"llm.generate", "llm.chat"})

	runner := d.pair(s)

	s.ask("generate", "llm.generate", object{"prompt": "what is it?", "system": "be short"})
	s.ask("chat", "llm.chat", object{"system": "be kind", "messages": []object{
		{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"},
	}})
	running := d.Start("run")
	for _, id := range []string{"generate", "chat"} {
		job := s.becomes(id, "ok")
		answer, _ := at(job, "outcome", "text").(string)
		if !strings.HasPrefix(answer, "no model, but: ") || at(job, "provenance", "model") != "m1" || at(job, "provenance", "runnerId") != runner || at(job, "provenance", "untrusted") != false {
			t.Errorf("%s: %v", id, job)
		}
		if at(job, "provenance", "stop") != "end" || at(job, "provenance", "stopReported") != true {
			t.Errorf("%s does not say why the model stopped: %v", id, job)
		}
	}
	// The published daemon makes one message of any job.
	asked := m.Questions()
	want := []string{
		"user: System instructions:\nbe short\n\nwhat is it?",
		"user: System instructions:\nbe kind\n\nUser: one\n\nAssistant: two\n\nUser: three",
	}
	if !slices.Equal(asked, want) {
		t.Errorf("the model was asked %q", asked)
	}

	// Cancelled in the middle: the model sees that nobody listens any more.
	long := m.Hold("a long one")
	s.ask("long", "llm.generate", object{"prompt": "a long one"})
	programs.Wait(t, long.Asked, "the long job to run", running.Said)
	if job := s.Call("POST", "/v1/jobs/long/cancel", nil); job["cancelRequested"] != true {
		t.Errorf("cancel: %v", job)
	}
	programs.Wait(t, long.Gone, "the model's connection to end", running.Said)
	if job := s.becomes("long", "canceled"); at(job, "outcome", "text") != nil {
		t.Errorf("canceled: %v", job)
	}

	// The site is killed with one job under way and one that waits, and starts
	// again where it was.
	flight := m.Hold("in flight")
	s.ask("flight", "llm.generate", object{"prompt": "in flight"})
	programs.Wait(t, flight.Asked, "the job in flight", running.Said)
	s.ask("waiting", "llm.generate", object{"prompt": "waiting"})
	s.Kill()
	s = serve(t, data, s.Address)
	if job := s.Call("GET", "/v1/jobs/waiting", nil); job["state"] != "queued" {
		t.Errorf("after a restart: %v", job)
	}
	close(flight.Answer)
	s.becomes("flight", "ok")
	s.becomes("waiting", "ok")
	if n := m.Times("in flight"); n != 1 {
		t.Errorf("the job in flight ran %d times", n)
	}

	// Revoked: it stops, it keeps nothing under way, and its claims are refused.
	last := m.Hold("the last one")
	s.ask("last", "llm.generate", object{"prompt": "the last one"})
	programs.Wait(t, last.Asked, "the last job", running.Said)
	s.Call("POST", "/v1/runners/"+runner+"/revoke", nil)
	if status, code := d.claim(s, runner); status != http.StatusForbidden || code != "revoked" {
		t.Errorf("a claim after the revocation: %d %s", status, code)
	}
	programs.Wait(t, last.Gone, "the model's connection to end after the revocation", running.Said)
	running.Said.Shows(t, "this runner was revoked. Stopping.")
	if rc := running.Ended(t); rc != 0 {
		t.Errorf("revoked: exit %d\n%s", rc, running.Said)
	}
	s.ask("after", "llm.generate", object{"prompt": "after"})
	if job := s.Call("GET", "/v1/jobs/after", nil); job["state"] != "queued" || m.Times("after") != 0 {
		t.Errorf("after the revocation: %v", job)
	}
	if strings.Contains(running.Said.String(), "does not match protocol") {
		t.Errorf("the daemon did not understand the site:\n%s", running.Said)
	}

	// It says so to its owner, and a new approval is all it needs.
	again, code, same := d.connect(s)
	said := strings.Join(strings.Fields(again.Said.String()), " ")
	if !strings.Contains(said, "no longer accepted (revoked)") || same != d.keys().Identity().String() {
		t.Errorf("pairing again: %s\n%s", same, again.Said)
	}
	s.Approve(code)
	if rc := again.Ended(t); rc != 0 {
		t.Fatalf("paired again: exit %d\n%s", rc, again.Said)
	}
	back := d.Start("run")
	s.becomes("after", "ok")
	back.Terminate(t)
}

// TestDaemonWithholds is the published daemon where two services answer one kind
// and its owner has not chosen between them. Its heartbeat says that it withholds
// the kind. It advertises the kind all the same, claims such a job and gives it
// back as refused; the site does not offer it that job again.
func TestDaemonWithholds(t *testing.T) {
	programs.Node(t, ".")
	t.Parallel()
	m := programs.NewModel(t, "m1")
	s := serve(t, filepath.Join(t.TempDir(), "data"), "")
	d := newDaemon(t, m, []string{"llm.generate", "llm.chat"}, []string{"llm.chat"})
	d.pair(s)
	s.ask("chat", "llm.chat", object{"messages": []object{{"role": "user", "content": "which one?"}}})
	s.ask("first", "llm.generate", object{"prompt": "first"})
	running := d.Start("run")
	s.becomes("first", "ok")
	running.Said.Shows(t, "refused chat: ")
	// Each of these is a further claim.
	for _, id := range []string{"second", "third"} {
		s.ask(id, "llm.generate", object{"prompt": id})
		s.becomes(id, "ok")
	}
	if job := s.Call("GET", "/v1/jobs/chat", nil); job["state"] != "queued" || job["attempts"] != float64(1) {
		t.Errorf("the job that was refused: %v", job)
	}
	if n := len(m.Questions()); n != 3 {
		t.Errorf("the model was asked %d times", n)
	}
	if text := running.Said.String(); strings.Contains(text, "does not match protocol") || strings.Contains(text, "HTTP") {
		t.Errorf("the daemon says:\n%s", text)
	}
}
