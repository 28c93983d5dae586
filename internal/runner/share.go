package runner

import (
	"errors"
	"slices"

	"github.com/allodhq/allod/internal/runner/allowlist"
	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/internal/runner/sharing"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// ErrNoBackend refuses to share what is not there.
var ErrNoBackend = refusal.NewKind("no-such-backend", 404,
	"The agent has no backend of this name.",
	"See allod agent backends for their names.")

// Allow takes the jobs of a user of a paired server from now on, besides the
// owner's, as far as backends are offered. It returns home.ErrNotPaired, and the
// errors of allowlist.Add.
func (a *Agent) Allow(server string, owner ai.Owner, note string) error {
	return a.changeList(server, func(server string) error {
		return allowlist.Add(a.home.Dir(), allowlist.Entry{Server: server, Owner: owner, Note: note, AddedAt: ai.MillisOf(a.config.Clock())})
	})
}

// Disallow takes no more jobs of a user, and gives back those that run. It
// returns home.ErrNotPaired, and the errors of allowlist.Remove.
func (a *Agent) Disallow(server string, owner ai.Owner) error {
	return a.changeList(server, func(server string) error { return allowlist.Remove(a.home.Dir(), server, owner) })
}

// Allowed are the people on the list. It returns the errors of allowlist.Read.
func (a *Agent) Allowed() ([]allowlist.Entry, error) { return allowlist.Read(a.home.Dir()) }

func (a *Agent) changeList(server string, change func(server string) error) error {
	if s, err := client.ParseServer(server); err == nil {
		server = s.String()
	}
	a.change.Lock()
	defer a.change.Unlock()
	pairings, err := a.home.Pairings()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(pairings, func(p home.Pairing) bool { return p.Server == server }) {
		return home.ErrNotPaired
	}
	if err := change(server); err != nil {
		return err
	}
	a.mu.Lock()
	r := a.lanes[server]
	a.mu.Unlock()
	if r != nil {
		r.driver.tell(r.driver.allowed())
	}
	return nil
}

// allowed reads whom the list has of this driver's server. A list that cannot be
// read has nobody.
func (d *driver) allowed() lane.Allowed {
	list, err := allowlist.Read(d.home)
	if err != nil {
		d.log.Error("nobody's jobs but the owner's are taken", "error", refusal.From(err))
	}
	return lane.Allowed{Owners: allowlist.Of(list, d.server)}
}

// SetTerms decides how far a backend is offered, from now on and after a restart.
// What others have running on it that the new terms do not allow is given back. It
// returns [ErrNoBackend], why the terms do not hold at the backend's cost (see
// sharing.Terms.On), and the error of [Config.Save].
func (a *Agent) SetTerms(name string, terms sharing.Terms) error {
	a.change.Lock()
	defer a.change.Unlock()
	backends, err := a.shelf.withTerms(name, terms)
	if err != nil {
		return err
	}
	if a.config.Save != nil {
		if err := a.config.Save(backends, name); err != nil {
			return err
		}
	}
	a.shelf.setTerms(name, terms)
	return nil
}

// withTerms are the shelf's backends as settings, with other terms for one.
func (sh *shelf) withTerms(name string, terms sharing.Terms) (map[string]settings.Backend, error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	i := slices.IndexFunc(sh.stands, func(st *stand) bool { return st.name == name })
	if i < 0 {
		return nil, ErrNoBackend
	}
	if why := terms.On(sh.costliest(sh.stands[i])).Narrowed; why != nil {
		return nil, why
	}
	backends := map[string]settings.Backend{}
	for _, st := range sh.stands {
		b := settings.Backend{ID: st.id, Terms: st.terms}
		if known, ok := sh.settings.Backends[st.name]; ok {
			b = known
		} else if st.http != nil {
			b.BaseURL = st.http.BaseURL()
		}
		if st.name == name {
			b.Terms = terms
		}
		backends[st.name] = b
	}
	return backends, nil
}

// costliest is what a backend costs with the costliest model in use. The caller
// holds the lock.
func (sh *shelf) costliest(st *stand) wirebackend.Cost {
	cost, _ := wirebackend.CostOf(st.id, sh.settings.Backends[st.name].BaseURL, "")
	if st.engine != nil {
		cost = st.engine.Cost()
	}
	for _, r := range sh.candidatesLocked() {
		if r.stand == st && cost == wirebackend.Free {
			cost = st.engine.CostOf(r.model)
		}
	}
	return cost
}

func (sh *shelf) setTerms(name string, terms sharing.Terms) {
	sh.mu.Lock()
	for _, st := range sh.stands {
		if st.name == name {
			st.terms = terms
		}
	}
	sh.mu.Unlock()
	sh.refresh()
}

// forgetPeople takes everybody of a server off the list, since nobody of it is
// known any more.
func (a *Agent) forgetPeople(server string) {
	err := allowlist.RemoveServer(a.home.Dir(), server)
	if err != nil && !errors.Is(err, allowlist.ErrDamaged) { // which admits nobody
		a.log.Error("people of a pairing that is no more stay on the list", "server", server, "error", refusal.From(err))
	}
}
