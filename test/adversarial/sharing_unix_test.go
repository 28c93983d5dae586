//go:build unix

package adversarial

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/runner/program"
	"github.com/allodhq/allod/test/programs"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

// TestRoot has an agent run as root, with a server and the programs.
func TestRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this user is not root")
	}
	m := pairedMachine(t, wirebackend.Generic, "echo", nil)
	backends := object{"mine": object{"backend": wirebackend.Generic, "baseUrl": m.server().URL + "/v1"}}
	for id, name := range names {
		m.install(name)
		backends[name] = object{"backend": id}
	}
	m.set("reports", "")
	m.agent.Configure(object{
		"backends": backends,
		"routes":   object{"llm.generate": object{"backend": "mine", "model": "model-1"}, "llm.chat": object{"backend": "claude", "model": "model-1"}},
	})
	m.run("llm.generate")
	if got := m.answer(m.prompt("a")); got != "a" {
		t.Errorf("%q", got)
	}
	var rows []struct{ Name, State, Refusal string }
	m.tellJSON(&rows, "agent", "backends")
	for _, r := range rows {
		if r.Name != "mine" && (r.State != "unusable" || r.Refusal != program.ErrRoot.Name()) {
			t.Errorf("%+v", r)
		}
	}
	if status := m.tell("", "agent", "status"); len(rows) != 3 || strings.Count(status, program.ErrRoot.Name()) != 2 {
		t.Errorf("%+v %s", rows, status)
	}
	if !m.available("alice", "self", "llm.chat", false) {
		t.Error("a program is offered")
	}
	if m.get("seen") != "" || m.get("asked") != "" {
		t.Error("root started a program")
	}
}

// TestSubscriptionIsItsOwners: whatever is configured and said, a program serves
// nobody else.
func TestSubscriptionIsItsOwners(t *testing.T) {
	t.Parallel()
	for _, id := range []wirebackend.ID{"claude-cli", wirebackend.CodexCLI} {
		t.Run(string(id), func(t *testing.T) {
			if os.Geteuid() == 0 {
				t.Skip("nothing is started for root")
			}
			t.Parallel()
			lock := match.ErrSubscription.Name()
			m := newMachine(t, id, "echo", nil)
			m.tell(lock, "agent", "offer", "mine", "named", "--yes")
			m.tell(lock, "agent", "offer", "mine", "public", "--cap", "500", "--yes")
			m.tell("", "agent", "allow", m.site.URL, "bob", "--yes")
			job := m.ask("llm.generate", "bob", "named", object{"prompt": "canary of bob"})
			if !m.available("bob", "named", "llm.generate", false) || !m.available("bob", "public", "llm.generate", false) {
				t.Error("a subscription is offered to bob")
			}
			// What is asked later by its owner is answered, and bob still waits.
			if got := m.answer(m.prompt("a")); got != "a" {
				t.Errorf("%q", got)
			}
			if got := m.site.Call("GET", "/v1/jobs/"+job, nil); got["state"] != "queued" || got["noRunner"] == nil {
				t.Errorf("%v", got)
			}
			for _, s := range m.runs() {
				if strings.Contains(string(s.Stdin), "bob") {
					t.Error("it ran for bob")
				}
			}
			m.works.Terminate(t)

			// What no command writes is refused where it is read.
			config := filepath.Join(m.agent.Home, "config.json")
			for _, offer := range []string{"named", "public"} {
				m.agent.Configure(object{"backends": object{"mine": object{
					"backend": id, "offer": offer, "spend": object{"acknowledged": true, "dailyCapCents": 500},
				}}})
				m.tell(lock, "config", "check", config)
				m.tell(lock, "agent", "run")
			}
		})
	}
}

// TestSharing has an owner share by commands while the agent runs.
func TestSharing(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("the others run as an ordinary user")
	}
	m := pairedMachine(t, wirebackend.Generic, "echo", nil)
	url := m.server().URL + "/v1"
	m.agent.Configure(object{
		"backends": object{"mine": object{"backend": wirebackend.Generic, "baseUrl": url}, "cloud": object{"backend": wirebackend.Generic, "baseUrl": url}},
		"routes":   object{"llm.generate": object{"backend": "mine", "model": "model-1"}, "llm.chat": object{"backend": "cloud", "model": "x:cloud"}},
	})
	m.run("llm.generate", "llm.chat")
	bob := func(kind string) string {
		if kind == "llm.chat" {
			return m.ask(kind, "bob", "named", object{"messages": []any{object{"role": "user", "content": "of bob"}}})
		}
		return m.ask(kind, "bob", "named", object{"prompt": "of bob"})
	}
	offered := func(kind string, want bool) {
		t.Helper()
		if !m.available("bob", "named", kind, want) {
			t.Fatalf("for bob, %s is not offered as it should be (%v)\n%s", kind, want, m.works.Said)
		}
	}

	// Nobody at first; then who is on the list, as far as it is offered.
	m.tell("needs-yes", "agent", "allow", m.site.URL, "bob")
	m.tell("", "agent", "allow", m.site.URL, "bob", "Bob from work", "--yes")
	waits := bob("llm.generate")
	offered("llm.generate", false)
	m.tell("", "agent", "offer", "mine", "named")
	if got := m.answer(waits); got != "of bob" {
		t.Errorf("%q", got)
	}
	var allowed []struct{ Server, Owner, Note string }
	if m.tellJSON(&allowed, "agent", "allow", "--list"); len(allowed) != 1 || allowed[0].Owner != "bob" || allowed[0].Note != "Bob from work" || allowed[0].Server != m.site.URL {
		t.Errorf("%+v", allowed)
	}
	type row struct {
		Backend, Owner                        string
		Own                                   bool
		Jobs, PromptTokens                    int64
		CompletionTokens                      int64
		AmountMicrocents, EstimatedMicrocents int64
	}
	var spent struct {
		Rows     []row
		JobsHour int64
		Backends []struct {
			Backend                                             string
			LimitMicrocents, UsedMicrocents, ReservedMicrocents int64
		}
	}
	if m.tellJSON(&spent, "agent", "spend"); len(spent.Rows) != 1 || spent.Rows[0].Backend != "mine" || spent.Rows[0].Owner != "bob" || spent.Rows[0].Own || spent.Rows[0].Jobs != 1 || spent.JobsHour != 1 {
		t.Errorf("%+v", spent)
	}

	// What runs is given back when its owner changes their mind.
	m.set("mode", "hang")
	runs := bob("llm.generate")
	if !programs.Eventually(t, func() bool { return m.get("hangs") != "" }) {
		t.Fatalf("it does not run\n%s", m.works.Said)
	}
	var now struct{ Running []struct{ Owner string } }
	if m.tellJSON(&now, "agent", "jobs"); len(now.Running) != 1 || now.Running[0].Owner != "bob" {
		t.Errorf("%+v", now)
	}
	m.tell("", "agent", "disallow", m.site.URL, "bob")
	if !programs.Eventually(t, func() bool { return m.site.Call("GET", "/v1/jobs/"+runs, nil)["state"] == "queued" }) {
		t.Errorf("it is not given back\n%s", m.works.Said)
	}
	if why := m.tell("", "agent", "why", runs); !strings.Contains(why, match.ErrNotLocallyAllowed.Name()) {
		t.Error(why)
	}
	m.set("mode", "echo")
	m.tell("", "agent", "allow", m.site.URL, "bob", "--yes")
	if got := m.answer(bob("llm.generate")); got != "of bob" {
		t.Errorf("%q", got)
	}

	// What costs money has an end. A job is reckoned at half a cent, and costs 0.8.
	m.tell("metered-no-ceiling", "agent", "offer", "cloud", "named", "--yes")
	m.tell("needs-yes", "agent", "offer", "cloud", "named", "--cap", "1")
	m.set("usage", `{"prompt_tokens":7000,"completion_tokens":3000}`)
	m.tell("", "agent", "offer", "cloud", "named", "--cap", "1", "--price", "80", "--yes")
	if got := m.answer(bob("llm.chat")); got != "of bob" {
		t.Errorf("%q", got)
	}
	offered("llm.chat", false)
	waits = bob("llm.chat")
	if m.tellJSON(&spent, "agent", "spend"); len(spent.Rows) != 2 || len(spent.Backends) != 1 || spent.Backends[0].LimitMicrocents != 1_000_000 || spent.Backends[0].UsedMicrocents != 800_000 || spent.Backends[0].ReservedMicrocents != 0 {
		t.Errorf("%+v", spent)
	}
	for _, r := range spent.Rows {
		if r.Backend == "cloud" && r != (row{"cloud", "bob", false, 1, 7000, 3000, 800_000, 0}) {
			t.Errorf("%+v", r)
		}
	}
	if got := m.site.Call("GET", "/v1/jobs/"+waits, nil); got["state"] != "queued" || got["noRunner"] == nil {
		t.Errorf("beyond the ceiling: %v", got)
	}
	m.tell("", "agent", "offer", "cloud", "named", "--cap", "2", "--yes")
	if got := m.answer(waits); got != "of bob" {
		t.Errorf("%q", got)
	}
	m.tell("", "agent", "offer", "cloud", "self")
	offered("llm.chat", false)
	m.tell("", "agent", "spend")
	var backends []struct {
		Name, Offer   string
		DailyCapCents int64
	}
	m.tellJSON(&backends, "agent", "offer")
	for _, b := range backends {
		if want := map[string]string{"mine": "named", "cloud": "self"}[b.Name]; b.Offer != want {
			t.Errorf("%+v", b)
		}
	}
}
