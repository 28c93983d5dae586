package runner_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/allowlist"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/internal/runner/sharing"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

// askFor offers a job of somebody to the machine.
func (f *farm) askFor(id string, owner ai.Owner, audience ai.Audience, site key.SiteKeys, plaintext string) {
	f.t.Helper()
	s := f.stub(id, site)
	s.Owner, s.Audience = owner, audience
	l := letter(s)
	if plaintext != "" {
		l.Plaintext = plaintext
	}
	f.liar.offer(s, seal(f.t, site.Signer(), f.liar.device, l))
}

// offers waits until the server was told of an offer of that scope.
func (f *farm) offers(scope ai.OfferScope) {
	f.t.Helper()
	until(f.t, func() bool {
		f.liar.mu.Lock()
		defer f.liar.mu.Unlock()
		return slices.ContainsFunc(f.liar.offered, func(c ai.Capability) bool { return c.OfferScope == scope })
	})
}

func (f *farm) refusedFor(id ai.JobID) string {
	f.t.Helper()
	if reason, outcome := f.end(id); reason != ai.ReleaseRefused {
		f.t.Fatalf("%s ended as %s, %v", id, reason, outcome)
	}
	for _, l := range f.lines(id) {
		if l.Outcome == "refused" {
			return l.Detail
		}
	}
	return ""
}

func (f *farm) answered(id ai.JobID) {
	f.t.Helper()
	if reason, outcome := f.end(id); outcome != (ai.Answer{Text: "an answer"}) {
		f.t.Fatalf("%s ended as %s, %v", id, reason, outcome)
	}
}

// TestSharing is an owner's way: nobody, then a person on the list, then nobody
// again, also after a restart.
func TestSharing(t *testing.T) {
	site := newSiteKeys(t)
	f := newFarm(t, site)
	f.askFor("stranger", "bob", ai.AudienceNamed, site, "")
	if why := f.refusedFor("stranger"); why != match.ErrScope.Name() {
		t.Errorf("refused for %s", why)
	}
	if err := f.agent.SetTerms("mine", sharing.Terms{Scope: ai.OfferNamed}); err != nil {
		t.Fatal(err)
	}
	f.offers(ai.OfferNamed)
	f.askFor("unlisted", "bob", ai.AudienceNamed, site, "")
	if why := f.refusedFor("unlisted"); why != match.ErrNotLocallyAllowed.Name() {
		t.Errorf("refused for %s", why)
	}
	if f.model.count() != 0 {
		t.Fatal("the model saw a stranger's question")
	}
	if err := f.agent.Allow(server+"/", "bob", "a friend"); err != nil {
		t.Fatal(err)
	}
	f.askFor("listed", "bob", ai.AudienceNamed, site, "")
	f.answered("listed")
	if s, err := f.agent.Status(); err != nil || s.Allowed != 1 || s.Backends[0].Offer != ai.OfferNamed {
		t.Errorf("%+v, %v", s, err)
	}

	// The list is kept.
	f.stop()
	f.open()
	if err := f.agent.SetTerms("mine", sharing.Terms{Scope: ai.OfferNamed}); err != nil {
		t.Fatal(err)
	}
	f.run()
	f.askFor("after", "bob", ai.AudienceNamed, site, "")
	f.answered("after")

	// Taking somebody off the list ends what they have running.
	asked, gone := make(chan struct{}), make(chan struct{})
	f.model.mu.Lock()
	f.model.ask = func([]byte) { close(asked); <-gone }
	f.model.mu.Unlock()
	f.askFor("running", "bob", ai.AudienceNamed, site, "")
	<-asked
	if err := f.agent.Disallow(server, "bob"); err != nil {
		t.Fatal(err)
	}
	if why := f.refusedFor("running"); why != match.ErrNotLocallyAllowed.Name() {
		t.Errorf("refused for %s", why)
	}
	close(gone)
	if list, err := f.agent.Allowed(); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestListAndPairings: the list has people of paired servers only, and goes with
// the pairing or with the person that it was for.
func TestListAndPairings(t *testing.T) {
	site := newSiteKeys(t)
	f := newFarm(t, site)
	until(t, func() bool { s, err := f.agent.Status(); return err == nil && s.Running })
	if err := f.agent.Allow("https://other.example", "bob", ""); !errors.Is(err, home.ErrNotPaired) {
		t.Error(err)
	}
	if err := f.agent.Allow("no address", "bob", ""); !errors.Is(err, home.ErrNotPaired) {
		t.Error(err)
	}
	if err := f.agent.Disallow(server, "bob"); !errors.Is(err, allowlist.ErrNotListed) {
		t.Error(err)
	}
	if err := f.agent.Allow(server, "a\nb", ""); !errors.Is(err, allowlist.ErrEntry) {
		t.Error(err)
	}
	left := func() int {
		t.Helper()
		list, err := f.agent.Allowed()
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	if err := f.agent.Allow(server, "bob", ""); err != nil {
		t.Fatal(err)
	}
	f.pair("alice", "r2", site) // the same person once more
	if n := left(); n != 1 {
		t.Errorf("%d people after the same person paired again", n)
	}
	f.pair("carol", "r3", site)
	if n := left(); n != 0 {
		t.Errorf("%d people of alice's are carol's", n)
	}
	if err := f.agent.Allow(server, "bob", ""); err != nil {
		t.Fatal(err)
	}
	if err := f.agent.Forget(server); err != nil {
		t.Fatal(err)
	}
	if n := left(); n != 0 {
		t.Errorf("%d people of a server that was forgotten", n)
	}
}

// TestDamagedList: it admits nobody, and the owner is told.
func TestDamagedList(t *testing.T) {
	site := newSiteKeys(t)
	f := newFarm(t, site)
	f.stop()
	if err := os.WriteFile(filepath.Join(f.home, allowlist.FileName), []byte(`{"version":1,"entries":[{"server":"`+server+`","owner":"bob","addedAt":1},]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	f.open()
	if err := f.agent.SetTerms("mine", sharing.Terms{Scope: ai.OfferNamed}); err != nil {
		t.Fatal(err)
	}
	f.run()
	f.offers(ai.OfferNamed)
	f.askFor("bobs", "bob", ai.AudienceNamed, site, "")
	if why := f.refusedFor("bobs"); why != match.ErrNotLocallyAllowed.Name() {
		t.Errorf("refused for %s", why)
	}
	f.askFor("own", "alice", ai.AudienceSelf, site, "")
	f.answered("own")
	s, err := f.agent.Status()
	if err != nil || s.Allowed != 0 || !slices.ContainsFunc(s.Problems, func(p string) bool { return strings.Contains(p, "allow.json") }) {
		t.Errorf("%+v, %v", s, err)
	}
	if err := f.agent.Allow(server, "bob", ""); !errors.Is(err, allowlist.ErrDamaged) {
		t.Error(err)
	}
}

// TestTerms: terms that the cost forbids are refused and kept nowhere.
func TestTerms(t *testing.T) {
	p := &tap{}
	f := newTapped(t, p, func(s *settings.Settings) {
		s.Backends["paid"] = settings.Backend{ID: backend.Generic, BaseURL: "https://gpu.invalid/v1"}
		s.Backends["cloud"] = settings.Backend{ID: "ollama"}
		s.Routes[ai.KindChat] = settings.Route{Backend: "cloud", Model: "big:cloud"}
	}, newSiteKeys(t))
	for name, c := range map[string]struct {
		backend string
		terms   sharing.Terms
		want    error
	}{
		"no such backend":                 {"else", sharing.Terms{}, runner.ErrNoBackend},
		"costs money":                     {"paid", sharing.Terms{Scope: ai.OfferNamed}, match.ErrNoConsent},
		"costs money, agreed, no end":     {"paid", sharing.Terms{Scope: ai.OfferNamed, Acknowledged: true}, sharing.ErrNoCeiling},
		"costs money, an end, not agreed": {"paid", sharing.Terms{Scope: ai.OfferNamed, Ceiling: 5}, match.ErrNoConsent},
		"a model that costs money":        {"cloud", sharing.Terms{Scope: ai.OfferPublic}, match.ErrNoConsent},
	} {
		if err := f.agent.SetTerms(c.backend, c.terms); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := f.agent.SetTerms("paid", sharing.Terms{Scope: ai.OfferNamed, Acknowledged: true, Ceiling: 5}); err != nil {
		t.Error(err)
	}
	s, err := f.agent.Status()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range s.Backends {
		if want := map[string]ai.OfferScope{"mine": ai.OfferSelf, "paid": ai.OfferNamed, "cloud": ai.OfferSelf}[b.Name]; b.Offer != want {
			t.Errorf("%s is offered to %s", b.Name, b.Offer)
		}
	}
}

// TestTermsAreSavedFirst: what cannot be kept is not in force either.
func TestTermsAreSavedFirst(t *testing.T) {
	m := newModel(t)
	var saved map[string]settings.Backend
	broken := errors.New("no disk")
	s := settings.Defaults()
	s.Backends = map[string]settings.Backend{"mine": {ID: backend.Generic, BaseURL: m.URL + "/v1", KeyEnv: "ALLOD_TEST_KEY"}, "other": {ID: "mlx"}}
	t.Setenv("ALLOD_TEST_KEY", "k")
	fail := true
	a, err := runner.Open(runner.Config{Home: filepath.Join(t.TempDir(), "home"), Version: "test", Settings: s, Save: func(b map[string]settings.Backend, name string) error {
		if saved = b; name != "mine" {
			t.Errorf("saves %s", name)
		}
		if fail {
			return broken
		}
		return nil
	}})
	if err != nil {
		t.Skip(err)
	}
	defer a.Close()
	offer := func() ai.OfferScope {
		st, err := a.Status()
		if err != nil {
			t.Fatal(err)
		}
		return st.Backends[0].Offer
	}
	if err := a.SetTerms("mine", sharing.Terms{Scope: ai.OfferPublic}); !errors.Is(err, broken) || offer() != ai.OfferSelf {
		t.Errorf("%v, %s", err, offer())
	}
	fail = false
	if err := a.SetTerms("mine", sharing.Terms{Scope: ai.OfferPublic}); err != nil || offer() != ai.OfferPublic {
		t.Errorf("%v, %s", err, offer())
	}
	want := s.Backends["mine"]
	want.Terms.Scope = ai.OfferPublic
	if saved["mine"] != want || saved["other"] != s.Backends["other"] || len(saved) != 2 {
		t.Errorf("%+v", saved)
	}
}

// TestOthersRunWithinTheirBounds: what is asked of the model for others is bounded
// as their owner set, whatever was asked, and the owner's own is not (MUST
// COMMUNITY_BUDGETS).
func TestOthersRunWithinTheirBounds(t *testing.T) {
	site := newSiteKeys(t)
	p := &tap{}
	f := newTapped(t, p, func(s *settings.Settings) {
		b := s.Backends["mine"]
		b.Terms.Scope = ai.OfferNamed
		s.Backends["mine"] = b
		s.Community.MaxPayload, s.Community.MaxOutput = 20, 100
	}, site)
	if err := f.agent.Allow(server, "bob", ""); err != nil {
		t.Fatal(err)
	}
	f.offers(ai.OfferNamed)
	f.model.mu.Lock()
	f.model.says = `{"choices":[{"message":{"role":"assistant","content":"` + strings.Repeat("x", 200) + `"}}]}`
	f.model.mu.Unlock()
	long := `{"prompt":"` + strings.Repeat("y", 21) + `"}`
	f.askFor("long", "bob", ai.AudienceNamed, site, long)
	if reason, _ := f.end("long"); reason != ai.ReleaseRefused {
		t.Errorf("released as %s", reason)
	}
	if lines := f.lines("long"); lines[len(lines)-1].Detail != "community-payload-too-large" || f.model.count() != 0 {
		t.Errorf("%+v", lines)
	}
	f.askFor("just", "bob", ai.AudienceNamed, site, `{"prompt":"`+strings.Repeat("y", 20)+`"}`)
	if _, outcome := f.end("just"); !isFailure(outcome, "output-too-large") {
		t.Errorf("%v", outcome)
	}
	f.askFor("own", "alice", ai.AudienceNamed, site, long)
	if _, outcome := f.end("own"); outcome != (ai.Answer{Text: strings.Repeat("x", 200)}) {
		t.Errorf("%v", outcome)
	}
}

func isFailure(o ai.Outcome, code string) bool {
	f, ok := o.(ai.Failure)
	return ok && f.Code == code
}

// TestOthersTime: others' runs end when their time does, and the owner's goes on.
func TestOthersTime(t *testing.T) {
	site := newSiteKeys(t)
	p := &tap{}
	f := newTapped(t, p, func(s *settings.Settings) {
		b := s.Backends["mine"]
		b.Terms.Scope = ai.OfferNamed
		s.Backends["mine"] = b
		s.Community.MaxTime = 50 * time.Millisecond
	}, site)
	if err := f.agent.Allow(server, "bob", ""); err != nil {
		t.Fatal(err)
	}
	f.offers(ai.OfferNamed)
	hold, own := make(chan struct{}), make(chan struct{})
	f.model.mu.Lock()
	f.model.ask = func(body []byte) {
		if bytes.Contains(body, []byte("mine")) {
			close(own)
		}
		<-hold
	}
	f.model.mu.Unlock()
	f.askFor("own", "alice", ai.AudienceSelf, site, `{"prompt":"mine"}`)
	<-own
	f.askFor("bobs", "bob", ai.AudienceNamed, site, `{"prompt":"theirs"}`)
	if _, outcome := f.end("bobs"); !isFailure(outcome, "timeout") {
		t.Errorf("%v", outcome)
	}
	close(hold)
	f.answered("own")
}

// TestMeteredAnswersAreBounded: where each token costs, others' answers have a
// bound that the provider is told. The owner's own have none.
func TestMeteredAnswersAreBounded(t *testing.T) {
	site := newSiteKeys(t)
	p := &tap{}
	f := newTapped(t, p, func(s *settings.Settings) {
		b := s.Backends["mine"]
		b.Terms = sharing.Terms{Scope: ai.OfferNamed, Acknowledged: true, Ceiling: 100_000}
		s.Backends["mine"] = b
		s.Routes[ai.KindGenerate] = settings.Route{Backend: "mine", Model: "m1:cloud"}
	}, site)
	if err := f.agent.Allow(server, "bob", ""); err != nil {
		t.Fatal(err)
	}
	f.offers(ai.OfferNamed)
	f.model.mu.Lock()
	f.model.says = `{"choices":[{"message":{"role":"assistant","content":"an answer"}}],"usage":{"prompt_tokens":7,"completion_tokens":3}}`
	f.model.mu.Unlock()
	f.askFor("bobs", "bob", ai.AudienceNamed, site, "")
	f.answered("bobs")
	f.askFor("own", "alice", ai.AudienceSelf, site, "")
	f.answered("own")
	var got []int
	f.model.mu.Lock()
	for _, body := range f.model.all {
		var m struct {
			Model     string
			MaxTokens int `json:"max_tokens"`
		}
		if err := json.Unmarshal(body, &m); err != nil {
			t.Fatal(err)
		}
		if m.Model == "m1:cloud" {
			got = append(got, m.MaxTokens)
		}
	}
	f.model.mu.Unlock()
	if !slices.Equal(got, []int{4096, 0}) {
		t.Errorf("asked for at most %v tokens", got)
	}
}
