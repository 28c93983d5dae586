//go:build unix

package sitekeys

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allodhq/allod/test/programs"
)

func TestMain(m *testing.M) { programs.Main(m) }

type object = map[string]any

// world is a site and an agent that is paired with it.
type world struct {
	*programs.Site
	t        *testing.T
	data     string
	agent    *programs.Agent
	model    *programs.Model
	old, new string // key files
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, data: filepath.Join(t.TempDir(), "data"), model: programs.NewModel(t, "m1")}
	w.old, w.new = w.keygen("old"), w.keygen("new")
	w.serve("127.0.0.1:0", w.old)
	w.agent = programs.NewAgent(t, w.model, 2)
	w.agent.Pair(w.URL, func(code string) { w.Approve(code) })
	return w
}

// keygen makes a key file.
func (w *world) keygen(name string) (path string) {
	w.t.Helper()
	path = filepath.Join(w.t.TempDir(), name+".json")
	w.do("site", "keygen", "--key-file", path)
	return path
}

// serve starts the site with these key files, the current one first.
func (w *world) serve(address string, keys ...string) {
	w.t.Helper()
	flags := []string{"--data", w.data, "--listen", address}
	for _, k := range keys {
		flags = append(flags, "--key-file", k)
	}
	w.Site = programs.Serve(w.t, flags...)
}

// do runs a command and returns what it wrote.
func (w *world) do(args ...string) []byte {
	w.t.Helper()
	a := w.agent
	if a == nil {
		a = programs.NewAgent(w.t, w.model, 1)
	}
	out, err := a.Command(args...).Output()
	if err != nil {
		w.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// siteRow is what allod agent sites says of one site.
type siteRow struct{ Fingerprint, State, ApprovedBy, Succeeds, SucceededBy string }

// sites are those that the agent lists, by state.
func (w *world) sites() map[string]siteRow {
	w.t.Helper()
	var rows []siteRow
	if err := json.Unmarshal(w.do("agent", "sites", "--json"), &rows); err != nil {
		w.t.Fatal(err)
	}
	byState := map[string]siteRow{}
	for _, r := range rows {
		byState[r.State] = r
	}
	if len(byState) != len(rows) {
		w.t.Fatalf("sites %+v", rows)
	}
	return byState
}

func (w *world) ask(id string) {
	w.t.Helper()
	w.Call("POST", "/v1/jobs", object{"id": id, "kind": "llm.generate", "owner": "alice", "payload": object{"prompt": id}})
}

// answered waits for a job to end well.
func (w *world) answered(id string, agent *programs.Process) {
	w.t.Helper()
	var job object
	if !programs.Eventually(w.t, func() bool { job = w.Call("GET", "/v1/jobs/"+id, nil); return job["state"] == "ok" }) {
		w.t.Fatalf("job %s: %v\n%s\n%s", id, job, w.Said, agent.Said)
	}
}

// TestSuccession: a site that goes on with a new key, and still has the old one, is
// served on without its owner being asked, a job under way and one that waits among
// what is served; and its owner is told.
func TestSuccession(t *testing.T) {
	w := newWorld(t)
	agent := w.agent.Run()
	w.ask("before")
	w.answered("before", agent)
	held := w.model.Hold("held")
	w.ask("held")
	programs.Wait(t, held.Asked, "the model to be asked", agent.Said)
	w.Kill()
	w.serve(w.Address, w.new, w.old)
	w.ask("after")
	w.answered("after", agent)
	agent.Said.Shows(t, "site-succeeded")
	close(held.Answer)
	w.answered("held", agent)
	if n := w.model.Times("held"); n != 1 {
		t.Errorf("the job under way ran %d times", n)
	}
	sites := w.sites()
	now, before := sites["approved"], sites["retiring"]
	if len(sites) != 2 || now.ApprovedBy != "succession" || now.Succeeds != before.Fingerprint || before.SucceededBy != now.Fingerprint || before.ApprovedBy != "pairing" {
		t.Errorf("sites %+v", sites)
	}
	if status := string(w.do("agent", "status")); !strings.Contains(status, "site "+now.Fingerprint+", succeeds "+before.Fingerprint+" since ") || strings.Contains(status, "waits for your approval") {
		t.Errorf("status:\n%s", status)
	}
	// It is remembered, also by an agent that begins anew at a site without the old
	// key.
	agent.Terminate(t)
	w.Kill()
	w.serve(w.Address, w.new)
	agent = w.agent.Run()
	w.ask("later")
	w.answered("later", agent)
	if strings.Contains(agent.Said.String(), "site-pending") {
		t.Errorf("the owner is asked:\n%s", agent.Said)
	}
}

// TestNewKeyIsApproved: a key that nothing vouches for is served nothing until the
// owner approves it: where the version of the protocol has no word for successions,
// and where the site does not have the old key any more. It can be approved while
// the agent runs, and while it does not.
func TestNewKeyIsApproved(t *testing.T) {
	for name, c := range map[string]struct {
		version0, oldStays, running bool
	}{
		"version 0":                 {true, true, true},
		"version 0, not running":    {true, true, false},
		"no old key":                {false, false, true},
		"no old key, and version 0": {true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if c.version0 {
				w.speak0()
			}
			agent := w.agent.Run()
			w.ask("before")
			w.answered("before", agent)
			w.Kill()
			keys := []string{w.new}
			if c.oldStays {
				keys = append(keys, w.old)
			}
			w.serve(w.Address, keys...)
			agent.Said.Shows(t, "site-pending")
			w.ask("meanwhile")
			var pending siteRow
			if !programs.Eventually(t, func() bool { pending = w.sites()["pending"]; return pending.Fingerprint != "" }) {
				t.Fatalf("no site waits:\n%s", agent.Said)
			}
			if status := string(w.do("agent", "status")); !strings.Contains(status, "! "+w.URL+" offers a site that waits for your approval") || !strings.Contains(status, "allod agent approve "+pending.Fingerprint) {
				t.Errorf("status:\n%s", status)
			} else if c.version0 != strings.Contains(status, ", protocol version 0") {
				t.Errorf("another version is spoken:\n%s", status)
			}
			if !c.running {
				agent.Terminate(t)
			}
			// Nobody says yes.
			if out, err := w.agent.Command("agent", "approve", pending.Fingerprint).CombinedOutput(); err == nil || !strings.Contains(string(out), "needs-yes") {
				t.Errorf("approved unasked: %v\n%s", err, out)
			}
			if n := w.model.Times("meanwhile"); n != 0 || w.sites()["pending"] != pending {
				t.Errorf("it ran %d times", n)
			}
			w.do("agent", "approve", strings.ToLower(pending.Fingerprint), "--yes")
			if !c.running {
				agent = w.agent.Run()
			}
			w.ask("after")
			w.answered("after", agent)
		})
	}
}

// speak0 has the agent believe that its server speaks version 0, for a day.
func (w *world) speak0() {
	w.t.Helper()
	path := filepath.Join(w.agent.Home, "pairings.json")
	text, err := os.ReadFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	changed := strings.Replace(string(text), `"protocol":{"version":"2"`, `"protocol":{"version":"0"`, 1)
	if changed == string(text) {
		w.t.Fatalf("no version in %s", text)
	}
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		w.t.Fatal(err)
	}
}
