package runner_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/succession"
)

// rebound is the identity with another sealing key, which it signed as well.
func rebound(t *testing.T, k key.SiteKeys) key.Site {
	t.Helper()
	other := newSiteKeys(t).Identity().Sealing().String()
	signature, err := k.Signer().Sign([]byte("byollm/v1/encryption-key:" + other))
	if err != nil {
		t.Fatal(err)
	}
	id, err := key.ParseIdentity[key.SiteRole](k.Identity().Signing().String(), other, signature.String())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// comesAfter is a server's word that one key came after another.
func comesAfter(t *testing.T, previous, next key.SiteKeys) map[ai.KeyID]ai.SiteSuccession {
	t.Helper()
	signature, err := previous.Signer().Sign(succession.Statement(previous.Identity().Fingerprint(), next.Identity().Fingerprint()))
	if err != nil {
		t.Fatal(err)
	}
	return map[ai.KeyID]ai.SiteSuccession{idOf(next): {Succeeds: []ai.Succession{
		{Identity: ai.PublicIdentityOf(previous.Identity()), Signature: signature.String()},
	}}}
}

// again stops the agent, changes what the server shows, and opens it anew.
func (f *farm) again(change func(l *liar)) {
	f.t.Helper()
	f.stop()
	f.liar.mu.Lock()
	change(f.liar)
	f.liar.mu.Unlock()
	f.open()
}

// site is what the agent says of a site.
func (f *farm) site(id ai.KeyID) runner.SiteStatus {
	f.t.Helper()
	list, err := f.agent.Sites()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, s := range list {
		if s.Fingerprint == id && s.Server == server {
			return s
		}
	}
	return runner.SiteStatus{}
}

// problem reports whether the agent's status has a problem with all these words.
func (f *farm) problem(words ...string) bool {
	f.t.Helper()
	s, err := f.agent.Status()
	if err != nil {
		f.t.Fatal(err)
	}
	return slices.ContainsFunc(s.Problems, func(p string) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(p, w) })
	})
}

// runs has the server offer an honest job, and reports whether it was answered.
func (f *farm) runs(id string, s key.SiteKeys) bool {
	f.t.Helper()
	stub := f.stub(id, s)
	f.liar.offer(stub, seal(f.t, s.Signer(), f.agent.Keys().Identity(), letter(stub)))
	_, outcome := f.end(stub.ID)
	return outcome == ai.Answer{Text: "an answer"}
}

// TestApprove: a site that the server offers is listed, with its fingerprint, and
// served once its owner approves the very key that was shown.
func TestApprove(t *testing.T) {
	a, k := newSiteKeys(t), newSiteKeys(t)
	f := newFarm(t, a)
	before := ai.MillisOf(time.Now())
	f.again(func(l *liar) { l.sites[idOf(k)] = k })
	f.run()
	until(t, func() bool { return f.site(idOf(k)).State == runner.SitePending })
	row := f.site(idOf(k))
	if shown, err := row.Identity.Site(); err != nil || shown != k.Identity() || row.SeenAt < before || row.ApprovedBy != "" {
		t.Errorf("%+v, %v", row, err)
	}
	if !f.problem("waits for your approval", string(idOf(k))) {
		t.Error("no problem is shown")
	}
	if f.runs("unapproved", k) || f.model.count() > 0 {
		t.Error("it is served")
	}
	for want, c := range map[*refusal.Kind]struct {
		server string
		site   key.Site
	}{
		home.ErrNotPaired:    {"https://other.example", k.Identity()},
		runner.ErrNotOffered: {server, newSiteKeys(t).Identity()},
		runner.ErrMoved:      {server, rebound(t, k)},
		lane.ErrChanged:      {server, rebound(t, a)},
	} {
		if err := f.agent.Approve(c.server, c.site); !errors.Is(err, want) {
			t.Errorf("%v, want %s", err, want.Name())
		}
	}
	if got := f.site(idOf(k)); got != row {
		t.Errorf("%+v", got)
	}
	if err := f.agent.Approve(server+"/", k.Identity()); err != nil {
		t.Fatal(err)
	}
	if !f.runs("approved", k) {
		t.Error("it is not served once it is approved")
	}
	got := f.site(idOf(k))
	if got.State != runner.SiteApproved || got.ApprovedBy != home.ByOwner || got.ApprovedAt < row.SeenAt || f.problem("waits") {
		t.Errorf("%+v", got)
	}
	if err := f.agent.Approve(server, k.Identity()); err != nil || f.site(idOf(k)) != got {
		t.Errorf("twice: %v", err)
	}
	if got := f.site(idOf(a)); got.ApprovedBy != home.ByPairing || got.ApprovedAt == 0 || got.State != runner.SiteApproved {
		t.Errorf("%+v", got)
	}
	f.again(func(l *liar) { delete(l.sites, idOf(a)) })
	f.run()
	if !f.runs("after a restart", k) {
		t.Error("it is forgotten")
	}
}

// TestApproveIdle: an approval needs no running agent, and one that waits is
// forgotten once it is not offered.
func TestApproveIdle(t *testing.T) {
	a, k, x := newSiteKeys(t), newSiteKeys(t), newSiteKeys(t)
	f := newFarm(t, a)
	f.again(func(l *liar) { l.sites[idOf(k)], l.sites[idOf(x)] = k, x })
	f.run()
	until(t, func() bool {
		return f.site(idOf(k)).State == runner.SitePending && f.site(idOf(x)).State == runner.SitePending
	})
	seen := f.site(idOf(x)).SeenAt
	f.again(func(*liar) {})
	if err := f.agent.Approve(server, k.Identity()); err != nil || f.site(idOf(k)).State != runner.SiteApproved {
		t.Fatalf("%v", err)
	}
	f.run()
	if !f.runs("approved", k) {
		t.Error("it is not served")
	}
	if got := f.site(idOf(x)); got.State != runner.SitePending || got.SeenAt != seen {
		t.Errorf("what waits: %+v", got)
	}
	f.again(func(l *liar) { delete(l.sites, idOf(x)) })
	f.run()
	until(t, func() bool { return f.site(idOf(x)) == runner.SiteStatus{} })
	if err := f.agent.Approve(server, x.Identity()); !errors.Is(err, runner.ErrNotOffered) {
		t.Errorf("%v", err)
	}
}

// TestChangedKeyStays: that an approved site showed another key is shown to its
// owner for the life of the pairing, and nothing is pinned anew.
func TestChangedKeyStays(t *testing.T) {
	a := newSiteKeys(t)
	f := newFarm(t, a)
	f.again(func(l *liar) {
		l.shown = map[ai.KeyID]ai.PublicIdentity{idOf(a): ai.PublicIdentityOf(rebound(t, a))}
	})
	f.run()
	until(t, func() bool { return f.site(idOf(a)).ChangedAt > 0 })
	f.again(func(l *liar) { l.shown = nil })
	f.run()
	if !f.runs("approved", a) {
		t.Error("the approved key is not served any more")
	}
	if shown, err := f.site(idOf(a)).Identity.Site(); err != nil || shown != a.Identity() {
		t.Errorf("pinned is %v, %v", shown, err)
	}
	if !f.problem("another key", string(idOf(a)), "allod agent forget") {
		t.Error("no problem is shown")
	}
	// It names no successor either, also after a restart.
	k := newSiteKeys(t)
	f.again(func(l *liar) { l.sites[idOf(k)], l.said = k, comesAfter(t, a, k) })
	f.run()
	until(t, func() bool { return f.site(idOf(k)).State != "" })
	if f.runs("successor", k) || f.site(idOf(k)).State != runner.SitePending {
		t.Errorf("%+v", f.site(idOf(k)))
	}
}

// TestSuccessionIsKept before anything runs for the key that came after.
func TestSuccessionIsKept(t *testing.T) {
	a, k := newSiteKeys(t), newSiteKeys(t)
	f := newFarm(t, a)
	if !f.runs("before", a) { // from now on it must sign what a job may reach
		t.Fatal("the first key is not served")
	}
	file, aside := filepath.Join(f.home, "pairings.json"), filepath.Join(f.home, "aside")
	var away bool
	f.again(func(l *liar) {
		l.sites[idOf(k)], l.said = k, comesAfter(t, a, k)
		l.beat = func() { // the list cannot be changed
			if !away {
				away = true
				if err := errors.Join(os.Rename(file, aside), os.Mkdir(file, 0o700)); err != nil {
					t.Error(err)
				}
			}
		}
	})
	f.run()
	if f.runs("not kept", k) {
		t.Error("served, though it could not be kept")
	}
	f.again(func(l *liar) { l.beat = nil })
	if err := errors.Join(os.Remove(file), os.Rename(aside, file)); err != nil {
		t.Fatal(err)
	}
	f.run()
	until(t, func() bool { return f.site(idOf(k)).State == runner.SiteApproved })
	if !f.runs("kept", k) || !f.runs("of the key before", a) {
		t.Error("not served")
	}
	now, before := f.site(idOf(k)), f.site(idOf(a))
	if now.ApprovedBy != home.BySuccession || now.Succeeds != idOf(a) || now.ApprovedAt == 0 || now.SucceededBy != "" {
		t.Errorf("%+v", now)
	}
	if before.State != runner.SiteRetiring || before.SucceededBy != idOf(k) || before.CountsUntil <= now.ApprovedAt || before.CountsUntil > now.ApprovedAt+ai.MaxRetirementMs {
		t.Errorf("%+v", before)
	}
	// The key that came after must sign what the one before it signed.
	stub := f.stub("unsigned", k)
	l := letter(stub)
	l.Reach = nil
	f.liar.offer(stub, seal(t, k.Signer(), f.agent.Keys().Identity(), l))
	if reason, _ := f.end(stub.ID); reason != ai.ReleaseRefused {
		t.Errorf("without its reach: %s", reason)
	}
	// A job that was granted under the key before and sealed by the next is not
	// opened with any other key than its stub names. It may come again.
	stub = f.stub("resealed", a)
	f.liar.offer(stub, seal(t, k.Signer(), f.agent.Keys().Identity(), letter(stub)))
	if reason, _ := f.end(stub.ID); reason != ai.ReleaseBackendDown {
		t.Errorf("sealed anew: %s", reason)
	}
	if lines := f.lines(stub.ID); len(lines) != 1 || lines[0].Outcome != "given-back" || lines[0].Detail != runner.ErrResealed.Name() {
		t.Errorf("%+v", lines)
	}
	// The owner takes the old key back.
	if err := f.agent.Approve(server, a.Identity()); err != nil {
		t.Fatal(err)
	}
	if got := f.site(idOf(a)); got.State != runner.SiteApproved || got.ApprovedBy != home.ByOwner || got.SucceededBy != "" {
		t.Errorf("%+v", got)
	}
}

// TestRetiredKeyEnds: a key whose time is over is not served, is not listed as
// approved, and names no successor.
func TestRetiredKeyEnds(t *testing.T) {
	a, k, x := newSiteKeys(t), newSiteKeys(t), newSiteKeys(t)
	f := newFarm(t, a)
	f.again(func(l *liar) {
		l.sites[idOf(k)], l.said = k, comesAfter(t, a, k)
		s := l.said[idOf(k)]
		s.RetiringUntil = 1
		l.said[idOf(k)] = s
	})
	f.run()
	until(t, func() bool { return f.site(idOf(a)).State == runner.SiteRetired })
	if !f.runs("next", k) || f.runs("before", a) {
		t.Error("the wrong key is served")
	}
	s, err := f.agent.Status()
	if err != nil || len(s.Servers) != 1 || !slices.Equal(s.Servers[0].Sites, []string{string(idOf(k))}) {
		t.Errorf("%+v, %v", s.Servers, err)
	}
	f.again(func(l *liar) { l.sites[idOf(x)], l.said = x, comesAfter(t, a, x) })
	f.run()
	until(t, func() bool { return f.site(idOf(x)).State == runner.SitePending })
	if f.runs("another successor", x) {
		t.Error("a key has two successors")
	}
}
