package runner

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/internal/runner/program"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/internal/runner/sharing"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// priced is an engine that is only asked what it costs.
type priced struct {
	engine
	cost   wirebackend.Cost
	models map[string]wirebackend.Cost // those that cost something else
}

func (p priced) Cost() wirebackend.Cost { return p.cost }

func (p priced) CostOf(model string) wirebackend.Cost {
	if c, ok := p.models[model]; ok {
		return c
	}
	return p.cost
}

// TestFallbackKeepsItsClass: whatever backends there are, what they cost, how they
// do and what their owner wished, a job goes to one of the owner's backends that
// costs what the first choice costs, and one that a route names is never exchanged.
func TestFallbackKeepsItsClass(t *testing.T) {
	reasons := []*refusal.Kind{backend.ErrUnreachable, backend.ErrTimeout, backend.ErrUnauthorized, program.ErrOld}
	rapid.Check(t, func(t *rapid.T) {
		at := newClock()
		sh := &shelf{settings: settings.Defaults(), clock: at.now, slots: newSlots(1)}
		names := rapid.IntRange(0, 5).Draw(t, "backends")
		for i := range names {
			st := &stand{name: fmt.Sprint("b", i), id: wirebackend.Generic, proofs: map[string]*backend.Prober{}}
			st.terms.Scope = rapid.SampledFrom(ai.OfferScopes()).Draw(t, "scope")
			if rapid.IntRange(0, 5).Draw(t, "engine") > 0 {
				p := priced{cost: rapid.SampledFrom(append(wirebackend.Costs(), wirebackend.Free, wirebackend.Free, wirebackend.Free)).Draw(t, "cost"), models: map[string]wirebackend.Cost{}}
				for m := range rapid.IntRange(0, 3).Draw(t, "models") {
					model := rapid.SampledFrom([]string{"m", "embed-"}).Draw(t, "sort") + fmt.Sprint(m)
					st.models = append(st.models, model)
					if rapid.IntRange(0, 3).Draw(t, "costs something else") == 0 {
						p.models[model] = rapid.SampledFrom(wirebackend.Costs()).Draw(t, "its cost")
					}
				}
				st.engine = p
				for _, model := range st.models {
					switch proof := st.proof(model, at.now()); rapid.IntRange(0, 3).Draw(t, "state") {
					case 0:
						proof.Failed(at.now(), rapid.SampledFrom(reasons).Draw(t, "reason"))
					case 1, 2:
						proof.Succeeded(at.now())
					}
				}
			}
			sh.stands = append(sh.stands, st)
		}
		sh.settings.Routes = map[ai.Kind]settings.Route{}
		for _, kind := range ai.Kinds() {
			if rapid.IntRange(0, 2).Draw(t, "wished") == 0 {
				sh.settings.Routes[kind] = settings.Route{
					Backend: fmt.Sprint("b", rapid.IntRange(0, 5).Draw(t, "route")), Model: fmt.Sprint("m", rapid.IntRange(0, 3).Draw(t, "its model")),
				}
			}
		}
		routes := sh.routesLocked()
		for _, kind := range ai.Kinds() {
			var got []route
			for _, r := range routes {
				if r.kind == kind {
					got = append(got, r)
				}
			}
			wish, wished := sh.settings.Routes[kind]
			// The first choice, worked out once more.
			var first *stand
			model := wish.Model
			for _, st := range sh.stands {
				if first != nil || st.engine == nil {
					continue
				}
				if wished {
					if st.name == wish.Backend {
						first = st
					}
					continue
				}
				i := slices.IndexFunc(st.models, func(m string) bool { return m[0] == 'm' && st.engine.CostOf(m) == wirebackend.Free })
				if st.engine.Cost() == wirebackend.Free && i >= 0 {
					first, model = st, st.models[i]
				}
			}
			if first == nil {
				if len(got) != 0 {
					t.Fatalf("%s goes to %s, and there is no first choice", kind, got[0].stand.name)
				}
				continue
			}
			if len(got) != 1 {
				t.Fatalf("%s goes to %d places", kind, len(got))
			}
			r := got[0]
			if !slices.Contains(sh.stands, r.stand) || r.proof != r.stand.proofs[r.model] {
				t.Fatalf("%s goes to a backend that is not on the shelf", kind)
			}
			if r.stand.engine.CostOf(r.model) != first.engine.CostOf(model) {
				t.Fatalf("%s goes to what is %s, and the first choice is %s", kind, r.stand.engine.CostOf(r.model), first.engine.CostOf(model))
			}
			state := first.proofs[model].State(at.now())
			switch {
			case r.stand == first && r.model == model:
				if r.instead != (lane.Instead{}) {
					t.Fatalf("the first choice stands in for %+v", r.instead)
				}
			case wished:
				t.Fatalf("%s goes to %s, and its owner named %s", kind, r.stand.name, wish.Backend)
			case first.proofs[model].Offered(at.now()) || !r.proof.Offered(at.now()):
				t.Fatalf("%s goes to %s, and the first choice is %s", kind, r.stand.name, state.State)
			default:
				want := lane.Instead{Service: first.name, Model: model, Why: state.Refusal, Offer: first.terms.Scope}
				if want.Why == "" {
					want.Why = "model-unproven"
				}
				if r.instead != want || !(ai.Instead{Model: want.Model, Why: want.Why}).Valid() || Explain(want.Why) == nil {
					t.Fatalf("it stands in for %+v, want %+v", r.instead, want)
				}
			}
		}
		for _, o := range sh.offered() {
			i := slices.IndexFunc(routes, func(r route) bool { return r.kind == o.Capability.Kind })
			if r := routes[i]; o.Capability.Service != r.stand.name || o.Capability.Model != r.model || o.Instead != r.instead || o.Cost != r.stand.engine.CostOf(r.model) {
				t.Fatalf("offers %+v, and jobs go to %s", o, r.stand.name)
			}
		}
	})
}

// TestInsteadIsShown: what stands in for the first choice says so, and no longer
// when the first is back.
func TestInsteadIsShown(t *testing.T) {
	first, second := newModelServer(t, "m1"), newModelServer(t, "m2")
	first.proof = status(http.StatusInternalServerError)
	at := newClock()
	theirs := first.generic()
	theirs.Terms = sharing.Terms{Scope: ai.OfferNamed}
	sh := shelfOf(map[string]settings.Backend{"a": theirs, "b": second.generic()}, at)
	sh.lookOnce(t.Context())
	want := lane.Instead{Service: "a", Model: "m1", Why: "backend-failing", Offer: ai.OfferNamed}
	for _, o := range sh.current() {
		if o.Instead != want {
			t.Errorf("offers %+v", o)
		}
	}
	if a, b := row(t, sh, "a"), row(t, sh, "b"); a.Instead != "" || a.InsteadWhy != "" || b.Instead != "a" || b.InsteadWhy != want.Why {
		t.Errorf("shown as %+v and %+v", a, b)
	}
	first.set(func() { first.proof = nil })
	at.pass(10 * time.Second)
	sh.lookOnce(t.Context())
	if offers := sh.current(); len(offers) != 2 || offers[0].Instead != (lane.Instead{}) {
		t.Errorf("offers %+v", offers)
	}
	if a, b := row(t, sh, "a"), row(t, sh, "b"); a.Instead+b.Instead+a.InsteadWhy+b.InsteadWhy != "" {
		t.Errorf("shown as %+v and %+v", a, b)
	}
}

// TestWhoHearsOfTheFirstChoice: an app is told which model would have run, other
// people's only where that model is offered as far as the one that ran.
func TestWhoHearsOfTheFirstChoice(t *testing.T) {
	d := newTestDriver(t, nil, func(ai.Endpoint, []byte) (int, string) { return http.StatusNotFound, "" })
	first := lane.Instead{Service: "canary-name", Model: "m1", Why: "backend-unreachable", Offer: ai.OfferNamed}
	change := func(f func(*lane.Instead)) lane.Instead {
		i := first
		f(&i)
		return i
	}
	narrow, wide := change(func(i *lane.Instead) { i.Offer = ai.OfferSelf }), change(func(i *lane.Instead) { i.Offer = ai.OfferPublic })
	for name, c := range map[string]struct {
		owner    ai.Owner
		audience ai.Audience
		offer    ai.OfferScope
		instead  lane.Instead
		told     bool
	}{
		"one's own":                      {"alice", ai.AudienceSelf, ai.OfferSelf, first, true},
		"one's own, narrower":            {"alice", ai.AudiencePublic, ai.OfferPublic, narrow, true},
		"another's, as far":              {"bob", ai.AudienceNamed, ai.OfferNamed, first, true},
		"another's, farther":             {"bob", ai.AudiencePublic, ai.OfferPublic, wide, true},
		"another's, narrower":            {"bob", ai.AudienceNamed, ai.OfferNamed, narrow, false},
		"anybody's, of the named":        {"bob", ai.AudiencePublic, ai.OfferPublic, first, false},
		"the first ran":                  {"alice", ai.AudienceSelf, ai.OfferSelf, lane.Instead{}, false},
		"a model that nobody could read": {"alice", ai.AudienceSelf, ai.OfferSelf, change(func(i *lane.Instead) { i.Model = strings.Repeat("x", 513) }), false},
		"a reason that is no such thing": {"alice", ai.AudienceSelf, ai.OfferSelf, change(func(i *lane.Instead) { i.Why = "No such reason" }), false},
	} {
		w := d.granted()
		w.Stub.Owner, w.Stub.Audience, w.Offer.Capability.OfferScope, w.Offer.Instead = c.owner, c.audience, c.offer, c.instead
		got := d.insteadFor(w)
		if (got != nil) != c.told || got != nil && *got != (ai.Instead{Model: c.instead.Model, Why: c.instead.Why}) {
			t.Errorf("%s: told %+v", name, got)
		}
	}
}
