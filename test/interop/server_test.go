//go:build unix

package interop

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allodhq/allod/test/programs"
	"github.com/allodhq/allod/wire/ai/v2"
)

// peer is an app with the published server, led line by line.
type peer struct {
	t    *testing.T
	node string
	keys string
	port string
	cmd  *exec.Cmd
	in   io.Writer
	out  *bufio.Reader
	said *programs.Transcript
	url  string
	site string // its key's fingerprint
}

// newPeer starts one with new keys, which a later process keeps.
func newPeer(t *testing.T, node string) *peer {
	t.Helper()
	s := &peer{t: t, node: node, keys: filepath.Join(t.TempDir(), "site-keys.json"), port: "0"}
	s.start()
	return s
}

func (s *peer) start() {
	s.t.Helper()
	s.said = &programs.Transcript{}
	s.cmd = script(s.t, s.node, "peer-server.mjs", "--keys", s.keys, "--port", s.port, "--poll", "500")
	s.cmd.Stderr = s.said
	in, err := s.cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(s.kill)
	s.in, s.out = in, bufio.NewReader(out)
	var first struct{ Listening, Site string }
	s.read(&first)
	if s.site != "" && s.site != first.Site {
		s.t.Fatalf("the peer came back as another site: %s, not %s", first.Site, s.site)
	}
	s.url, s.site = "http://"+first.Listening, first.Site
	_, s.port, _ = strings.Cut(first.Listening, ":")
}

func (s *peer) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func (s *peer) read(into any) {
	s.t.Helper()
	line, err := s.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, into)
	}
	if err != nil {
		s.t.Fatalf("the peer said %q: %v\n%s", line, err, s.said)
	}
}

// do runs one of its commands and returns the answer.
func (s *peer) do(name string, arguments object) any {
	s.t.Helper()
	command := object{"do": name}
	for k, v := range arguments {
		command[k] = v
	}
	line, err := json.Marshal(command)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.in.Write(append(line, '\n')); err != nil {
		s.t.Fatal(err)
	}
	var answer struct {
		OK    any
		Error string
	}
	s.read(&answer)
	if answer.Error != "" {
		s.t.Fatalf("%s: %s\n%s", line, answer.Error, s.said)
	}
	return answer.OK
}

// ask enqueues a job of alice.
func (s *peer) ask(id, kind string, payload object) {
	s.t.Helper()
	s.do("enqueue", object{"job": object{"id": id, "kind": kind, "owner": "alice", "payload": payload}})
}

// becomes waits for a job's state.
func (s *peer) becomes(id, state string, a *agent) (job any) {
	s.t.Helper()
	if !programs.Eventually(s.t, func() bool { job = s.do("job", object{"id": id}); return at(job, "state") == state }) {
		s.t.Fatalf("job %s never becomes %s: %v\nthe agent says:\n%s", id, state, job, a.running.Said)
	}
	return job
}

// asked is what was asked of the peer since the last time: how often each
// endpoint answered with each status.
func (s *peer) asked() map[string]int {
	s.t.Helper()
	counts := map[string]int{}
	list, _ := s.do("asked", nil).([]any)
	for _, one := range list {
		row := one.([]any)
		counts[fmt.Sprintf("%s %v", row[0], row[1])]++
	}
	return counts
}

// agent is Allod's, on an owner's machine.
type agent struct {
	*programs.Agent
	t       *testing.T
	running *programs.Process
}

// pair pairs the agent with a peer and returns its runner id there.
func (a *agent) pair(s *peer) (runner string) {
	a.t.Helper()
	var approved any
	runner, owner := a.Pair(s.url, func(code string) {
		if pending := s.do("pending", object{"code": code}); at(pending, "platform") == nil {
			a.t.Fatalf("the peer knows nothing of the code: %v", pending)
		}
		approved = s.do("approve", object{"code": code, "owner": "alice"})
	})
	if owner != "alice" || runner != at(approved, "id") {
		a.t.Fatalf("paired as %s of %s, approved %v", runner, owner, approved)
	}
	return runner
}

// server is what the agent's status says of its first server.
func (a *agent) server() object {
	a.t.Helper()
	out, err := a.Command("agent", "status", "--json").Output()
	if err != nil {
		a.t.Fatalf("status: %v\n%s", err, a.running.Said)
	}
	var status struct{ Servers []object }
	if err := json.Unmarshal(out, &status); err != nil {
		a.t.Fatal(err)
	}
	if len(status.Servers) == 0 {
		return nil
	}
	return status.Servers[0]
}

// TestServer is Allod's agent with the published server: it pairs, runs both
// kinds, is cancelled, keeps a result while the network is cut, says so when the
// server has forgotten it, and is revoked.
func TestServer(t *testing.T) {
	node := programs.Node(t, ".")
	t.Parallel()
	m := programs.NewModel(t, "m1")
	s := newPeer(t, node)
	a := &agent{Agent: programs.NewAgent(t, m, 1), t: t}
	runner := a.pair(s)
	a.running = a.Run()

	// The peer holds no requests, so the agent asks it often only while there is
	// work: each part is asked before the one before it ends.
	s.ask("generate", "llm.generate", object{"prompt": "what is it?", "system": "be short"})
	s.ask("chat", "llm.chat", object{"system": "be kind", "messages": []object{
		{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"},
	}})
	long := m.Hold("a long one")
	s.ask("long", "llm.generate", object{"prompt": "a long one"})
	programs.Wait(t, long.Asked, "the long job to run", a.running.Said)
	for id, text := range map[string]string{"generate": "no model, but: what is it?", "chat": "no model, but: three"} {
		job := s.becomes(id, "ok", a)
		if at(job, "outcome", "text") != text || at(job, "provenance", "runnerId") != runner || at(job, "provenance", "model") != "m1" || at(job, "provenance", "untrusted") != false {
			t.Errorf("%s: %v", id, job)
		}
		// Why the model stopped travels sealed.
		if at(job, "provenance", "stop") != "end" || at(job, "provenance", "stopReported") != true {
			t.Errorf("%s does not say why the model stopped: %v", id, job)
		}
	}
	want := []string{
		"system: be short\nuser: what is it?",
		"system: be kind\nuser: one\nassistant: two\nuser: three",
		"user: a long one",
	}
	if !slices.Equal(m.Questions(), want) {
		t.Errorf("the model was asked %q", m.Questions())
	}
	if server := a.server(); server["state"] != "serving" || server["protocol"] != v2.Codec().Version || server["owner"] != "alice" || fmt.Sprint(server["sites"]) != "["+s.site+"]" {
		t.Errorf("status: %v, the peer's site is %s", server, s.site)
	}

	// Cancelled in the middle: the model sees that nobody listens any more.
	flight := m.Hold("in flight")
	s.ask("flight", "llm.generate", object{"prompt": "in flight"})
	s.do("cancel", object{"id": "long"})
	programs.Wait(t, long.Gone, "the model's connection to end", a.running.Said)
	s.becomes("long", "canceled", a)

	// An answer that is too long for the peer, once it is sealed, becomes an error
	// of the job and is not sent for ever.
	programs.Wait(t, flight.Asked, "the job in flight", a.running.Said)
	m.Say("too much", strings.Repeat("\u0001", 4_000_000))
	s.ask("too-much", "llm.generate", object{"prompt": "too much"})

	// The network is cut with a job under way. Its answer is kept until it can be
	// handed in, and the model is not asked again.
	s.do("cut", nil)
	close(flight.Answer)
	if !programs.Eventually(t, func() bool { return a.server()["resultsKept"] == float64(1) }) {
		t.Errorf("the result is not kept: %v\n%s", a.server(), a.running.Said)
	}
	s.ask("waiting", "llm.generate", object{"prompt": "waiting"})
	s.do("mend", nil)
	s.becomes("flight", "ok", a)
	s.becomes("waiting", "ok", a)
	if job := s.becomes("too-much", "error", a); at(job, "outcome", "code") != "output-too-large" {
		t.Errorf("an answer that is too long: %v", job)
	}
	if n := m.Times("in flight"); n != 1 {
		t.Errorf("the job in flight ran %d times", n)
	}
	for what, n := range s.asked() {
		if !strings.HasSuffix(what, " 200") {
			t.Errorf("up to here the peer answered %q %d times", what, n)
		}
	}

	// The peer is killed and comes back as the same site, which has forgotten
	// everybody. The agent is told so, and does not press.
	s.kill()
	s.start()
	forgotten := 0
	told := func() bool {
		counts := s.asked()
		forgotten += counts["heartbeat 401"] + counts["claim 401"]
		return forgotten > 0
	}
	if !programs.Eventually(t, told) {
		t.Errorf("the server is not asked again:\n%s", a.running.Said)
	}
	if !programs.Eventually(t, func() bool { return a.server()["refusal"] == "unauthorized" }) {
		t.Errorf("a server that has forgotten it: %v\n%s", a.server(), a.running.Said)
	}
	again := a.pair(s)
	last := m.Hold("the last one")
	s.ask("after", "llm.generate", object{"prompt": "after"})
	s.ask("last", "llm.generate", object{"prompt": "the last one"})
	s.becomes("after", "ok", a)
	told()
	if forgotten > 20 || again == runner {
		t.Errorf("a server that has forgotten it was asked %d times", forgotten)
	}

	// Revoked: it stops what is under way, and asks no more.
	programs.Wait(t, last.Asked, "the last job", a.running.Said)
	s.do("revoke", object{"runner": again})
	s.ask("never", "llm.generate", object{"prompt": "never"})
	programs.Wait(t, last.Gone, "the model's connection to end after the revocation", a.running.Said)
	if !programs.Eventually(t, func() bool { return a.server()["state"] == "revoked" }) {
		t.Errorf("revoked: %v\n%s", a.server(), a.running.Said)
	}
	a.running.Terminate(t)
	if job := s.do("job", object{"id": "never"}); at(job, "state") != "queued" || m.Times("never") != 0 {
		t.Errorf("after the revocation: %v", job)
	}
	if counts := s.asked(); counts["claim 403"]+counts["heartbeat 403"]+counts["result 403"] > 3 {
		t.Errorf("after the revocation it asked %v", counts)
	}
}
