package runner_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/ledger"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/internal/runner/sharing"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/match"
)

// paid is a farm whose model costs a cent for a thousand tokens and is shared with
// bob up to a ceiling in cents.
func paid(t *testing.T, ceiling int64, site key.SiteKeys, change ...func(*settings.Settings)) *farm {
	t.Helper()
	f := newTapped(t, &tap{}, func(s *settings.Settings) {
		b := s.Backends["mine"]
		b.Terms = sharing.Terms{Scope: ai.OfferNamed, Acknowledged: true, Ceiling: ceiling, Price: 1000}
		s.Backends["mine"] = b
		s.Routes[ai.KindGenerate] = settings.Route{Backend: "mine", Model: "m1:cloud"}
		for _, c := range change {
			c(s)
		}
	}, site)
	if err := f.agent.Allow(server, "bob", ""); err != nil {
		t.Fatal(err)
	}
	f.offers(ai.OfferNamed)
	return f
}

func (f *farm) spending() runner.Spending {
	f.t.Helper()
	s, err := f.agent.Spending(f.t.Context(), time.Now().AddDate(0, 0, -2))
	if err != nil {
		f.t.Fatalf("%v: %v", err, errors.Unwrap(refusal.From(err)))
	}
	return s
}

func (f *farm) say(body string) {
	f.model.mu.Lock()
	defer f.model.mu.Unlock()
	f.model.says = body
}

const (
	counted   = `{"choices":[{"message":{"role":"assistant","content":"an answer"}}],"usage":{"prompt_tokens":1200,"completion_tokens":300}}`
	uncounted = `{"choices":[{"message":{"role":"assistant","content":"an answer"}}]}`
)

// TestSpending: what others use is settled by the backend's own counts, else by a
// marked estimate; the owner's own is kept beside it and counts in no limit.
func TestSpending(t *testing.T) {
	site := newSiteKeys(t)
	f := paid(t, 500, site)
	f.say(counted)
	f.askFor("one", "bob", ai.AudienceNamed, site, "")
	f.answered("one")
	f.say(uncounted)
	f.askFor("two", "bob", ai.AudienceNamed, site, `{"prompt":"`+strings.Repeat("y", 397)+`"}`)
	f.answered("two")
	f.say(counted)
	f.askFor("own", "alice", ai.AudienceSelf, site, "")
	f.answered("own")
	s := f.spending()
	day := time.Now().UTC().Format(time.DateOnly)
	// 1,500 tokens cost a cent and a half; 397 characters and 9 are 100 and 3 tokens.
	want := []runner.SpentRow{
		{Day: day, Backend: "mine", Owner: "alice", Own: true, Jobs: 1, Prompt: 1200, Completion: 300, Amount: 1_500_000},
		{Day: day, Backend: "mine", Owner: "bob", Jobs: 2, Prompt: 1300, Completion: 303, Amount: 1_603_000, Estimated: 103_000},
	}
	if !slices.Equal(s.Rows, want) {
		t.Errorf("%+v", s.Rows)
	}
	if s.JobsHour != 2 || s.JobsDay != 2 || s.MostHour != 20 || s.MostDay != 100 {
		t.Errorf("%+v", s)
	}
	if i := slices.IndexFunc(s.Backends, func(l runner.SpendingLimit) bool { return l.Backend == "mine" }); i < 0 ||
		s.Backends[i].Limit != ledger.Cents(500) || s.Backends[i].Used != 1_603_000 || s.Backends[i].Reserved != 0 {
		t.Errorf("%+v", s.Backends)
	}
}

// TestCeiling: once no other small question fits below the ceiling the offer is
// its owner's alone, a job that comes all the same is refused with the numbers in
// the owner's log, nothing of it is asked, and raising the ceiling helps at once
// (MUST METERED_REQUIRES_CEILING).
func TestCeiling(t *testing.T) {
	site := newSiteKeys(t)
	// A small question is reckoned at 2,000 and 4,096 tokens, 6.096 cents.
	f := paid(t, 7, site)
	f.say(counted)
	f.askFor("one", "bob", ai.AudienceNamed, site, "")
	f.answered("one")
	f.offers(ai.OfferSelf)
	asked := f.model.count()
	f.askFor("two", "bob", ai.AudienceNamed, site, "")
	if why := f.refusedFor("two"); why != match.ErrCeiling.Name() {
		t.Errorf("refused for %s", why)
	}
	if lines := f.lines("two"); !strings.Contains(lines[0].Reason, "The limit is $0.07 within 24 hours; $0.02 used and $0.00 reserved, and this job may cost $0.06.") {
		t.Errorf("%+v", lines)
	}
	if f.model.count() != asked {
		t.Error("the model saw a question that nobody would pay for")
	}
	f.askFor("own", "alice", ai.AudienceSelf, site, "")
	f.answered("own")
	if err := f.agent.SetTerms("mine", sharing.Terms{Scope: ai.OfferNamed, Acknowledged: true, Ceiling: 8, Price: 1000}); err != nil {
		t.Fatal(err)
	}
	f.offers(ai.OfferNamed)
	f.askFor("three", "bob", ai.AudienceNamed, site, "")
	f.answered("three")
}

// TestBudget: others' jobs are counted whatever they cost, over all that is
// offered (MUST COMMUNITY_BUDGETS).
func TestBudget(t *testing.T) {
	site := newSiteKeys(t)
	f := newTapped(t, &tap{}, func(s *settings.Settings) {
		b := s.Backends["mine"]
		b.Terms.Scope = ai.OfferNamed
		s.Backends["mine"] = b
		s.Community.JobsPerHour = 2
	}, site)
	if err := f.agent.Allow(server, "bob", ""); err != nil {
		t.Fatal(err)
	}
	f.offers(ai.OfferNamed)
	for _, id := range []ai.JobID{"one", "two"} {
		f.askFor(string(id), "bob", ai.AudienceNamed, site, "")
		f.answered(id)
	}
	f.offers(ai.OfferSelf)
	f.askFor("three", "bob", ai.AudienceNamed, site, "")
	if why := f.refusedFor("three"); why != ledger.ErrHour.Name() {
		t.Errorf("refused for %s", why)
	}
	f.askFor("own", "alice", ai.AudienceSelf, site, "")
	f.answered("own")
	if s := f.spending(); s.JobsHour != 2 || len(s.Rows) != 1 || s.Rows[0].Amount != 0 || s.Rows[0].Jobs != 2 {
		t.Errorf("%+v", s)
	}
	// It is the same after a restart.
	f.stop()
	a, err := runner.Open(runner.Config{Home: f.home, Version: "test", Settings: settings.Defaults(), Transport: f.liar})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if s, err := a.Spending(t.Context(), time.Now().AddDate(0, 0, -2)); err != nil || s.JobsHour != 2 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestStoppedRun: a run that its app canceled costs what had been asked by then,
// as an estimate; a job that never ran costs nothing and counts as none.
func TestStoppedRun(t *testing.T) {
	site := newSiteKeys(t)
	f := paid(t, 500, site)
	asked, hold := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(hold) })
	f.model.mu.Lock()
	// What is bounded for others has max_tokens, as a proof has.
	f.model.askAll = true
	f.model.ask = func(body []byte) {
		if bytes.Contains(body, []byte("yyyy")) {
			close(asked)
			<-hold
		}
	}
	f.model.mu.Unlock()
	f.askFor("stopped", "bob", ai.AudienceNamed, site, `{"prompt":"`+strings.Repeat("y", 400)+`"}`)
	<-asked
	if err := f.agent.Disallow(server, "bob"); err != nil {
		t.Fatal(err)
	}
	if why := f.refusedFor("stopped"); why != match.ErrNotLocallyAllowed.Name() {
		t.Errorf("refused for %s", why)
	}
	until(t, func() bool { return len(f.spending().Rows) == 1 })
	if r := f.spending().Rows[0]; r.Jobs != 1 || r.Prompt != 100 || r.Completion != 0 || r.Amount != 100_000 || r.Estimated != r.Amount {
		t.Errorf("%+v", r)
	}
	// One that is damaged is opened by nobody, and its room is given back.
	f.model.mu.Lock()
	f.model.ask, f.model.askAll = nil, false
	f.model.mu.Unlock()
	if err := f.agent.Allow(server, "bob", ""); err != nil {
		t.Fatal(err)
	}
	f.askFor("odd", "bob", ai.AudienceNamed, site, `{"nothing":1}`)
	if reason, _ := f.end("odd"); reason != ai.ReleaseRefused {
		t.Errorf("released as %s", reason)
	}
	until(t, func() bool {
		s := f.spending()
		i := slices.IndexFunc(s.Backends, func(l runner.SpendingLimit) bool { return l.Backend == "mine" })
		return s.JobsHour == 1 && s.Backends[i].Reserved == 0
	})
}

// TestDamagedLedger: no job of others is taken and none that costs money, the rest
// goes on, the owner is told, and the file stays as it is.
func TestDamagedLedger(t *testing.T) {
	site := newSiteKeys(t)
	f := newFarm(t, site)
	f.stop()
	const damage = "this is no database, however long one looks at it"
	path := filepath.Join(f.home, ledger.File)
	if err := os.WriteFile(path, []byte(damage), 0o600); err != nil {
		t.Fatal(err)
	}
	f.open()
	if err := f.agent.SetTerms("mine", sharing.Terms{Scope: ai.OfferNamed}); err != nil {
		t.Fatal(err)
	}
	f.run()
	if err := f.agent.Allow(server, "bob", ""); err != nil {
		t.Fatal(err)
	}
	f.askFor("own", "alice", ai.AudienceSelf, site, "")
	f.answered("own")
	f.askFor("bobs", "bob", ai.AudienceNamed, site, "")
	if reason, _ := f.end("bobs"); reason != ai.ReleaseBackendDown {
		t.Errorf("released as %s", reason)
	}
	if f.model.count() != 1 {
		t.Error("the model saw a question that nobody counted")
	}
	if _, err := f.agent.Spending(t.Context(), time.Now()); !errors.Is(err, database.ErrFormat) {
		t.Error(err)
	}
	s, err := f.agent.Status()
	if err != nil || !slices.ContainsFunc(s.Problems, func(p string) bool { return strings.Contains(p, database.ErrFormat.Meaning()) }) {
		t.Errorf("%q, %v", s.Problems, err)
	}
	if left, err := os.ReadFile(path); err != nil || string(left) != damage {
		t.Errorf("%q, %v", left, err)
	}
}
