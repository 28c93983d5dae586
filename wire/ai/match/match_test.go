package match_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

var (
	owners    = []ai.Owner{"alice", "bob", "carol", "Alice", "alice ", ""}
	audiences = append(ai.Audiences(), "", "everyone", "Public", "public ")
	scopes    = append(ai.OfferScopes(), "", "everyone", "Public", "public ")
	costs     = append(backend.Costs(), "", "cheap", "Free", "free ")
)

// situation is everything that a decision depends on.
type situation struct {
	job     match.Job
	offer   match.Offer
	allowed bool // the device's own list has the job's owner
}

var situations = rapid.Custom(func(t *rapid.T) situation {
	s := situation{
		job: match.Job{
			Owner:    rapid.SampledFrom(owners).Draw(t, "job's owner"),
			Audience: rapid.SampledFrom(audiences).Draw(t, "audience"),
		},
		offer: match.Offer{
			Owner: rapid.SampledFrom(owners).Draw(t, "device's owner"),
			Scope: rapid.SampledFrom(scopes).Draw(t, "scope"),
			Cost:  rapid.SampledFrom(costs).Draw(t, "cost"),
			Spend: match.Spend{Acknowledged: rapid.Bool().Draw(t, "agreed"), CeilingReached: rapid.Bool().Draw(t, "ceiling")},
		},
		allowed: rapid.Bool().Draw(t, "allowed"),
	}
	if rapid.Bool().Draw(t, "has list") {
		s.job.AllowedOwners = rapid.SliceOfN(rapid.SampledFrom(owners), 0, 3).Draw(t, "list")
	}
	return s
})

// decide asks the package, and holds how it asks back.
func (s situation) decide(t interface{ Fatalf(string, ...any) }) error {
	asked := 0
	err := match.Audience(s.job, s.offer, func(owner ai.Owner) bool {
		if asked++; asked > 1 {
			t.Fatalf("the list is asked twice: %v", s)
		}
		if owner != s.job.Owner {
			t.Fatalf("the list is asked for %q: %v", owner, s)
		}
		if s.offer.Scope != ai.OfferNamed {
			t.Fatalf("the list is asked where it does not decide: %v", s)
		}
		return s.allowed
	})
	if asked == 1 && (err == nil) != s.allowed {
		t.Fatalf("the list says %v and the answer is %v: %v", s.allowed, err, s)
	}
	if err != nil && !slices.ContainsFunc(match.Kinds.Kinds, func(k *refusal.Kind) bool { return err == k }) {
		t.Fatalf("the refusal %v is none of the contract's", err)
	}
	return err
}

// TestRules holds what must be true whatever the situation.
func TestRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := situations.Draw(t, "situation")
		err := s.decide(t)
		if s.job.Owner == s.offer.Owner {
			if err != nil {
				t.Fatalf("an owner's own device refuses: %v", err)
			}
			return
		}
		switch {
		case err == nil && s.offer.Cost == backend.Subscription:
			t.Fatalf("a subscription serves another: %v", s)
		case err == nil && s.offer.Cost == backend.Metered && (!s.offer.Spend.Acknowledged || s.offer.Spend.CeilingReached):
			t.Fatalf("another spends the owner's money: %v", s)
		case err == nil && !slices.Contains(backend.Costs(), s.offer.Cost):
			t.Fatalf("an unknown cost counts as free: %v", s)
		case err == nil && !slices.Contains(ai.Audiences(), s.job.Audience), err == nil && s.job.Audience == ai.AudienceSelf:
			t.Fatalf("a job leaves its owner's devices: %v", s)
		case err == nil && !slices.Contains(ai.OfferScopes(), s.offer.Scope), err == nil && s.offer.Scope == ai.OfferSelf:
			t.Fatalf("a device serves others than its owner: %v", s)
		case err == nil && s.offer.Scope == ai.OfferNamed && !s.allowed:
			t.Fatalf("a device serves somebody who is not on its list: %v", s)
		case err == nil && s.job.Audience == ai.AudienceNamed && s.job.AllowedOwners != nil && !slices.Contains(s.job.AllowedOwners, s.offer.Owner):
			t.Fatalf("a device runs a job whose site named others: %v", s)
		}
		// And the other way: where nothing speaks against it, it is taken.
		free := s.offer.Cost == backend.Free || s.offer.Cost == backend.Metered && s.offer.Spend == match.Spend{Acknowledged: true}
		reaches := s.job.Audience == ai.AudiencePublic || s.job.Audience == ai.AudienceNamed && (s.job.AllowedOwners == nil || slices.Contains(s.job.AllowedOwners, s.offer.Owner))
		admits := s.offer.Scope == ai.OfferPublic || s.offer.Scope == ai.OfferNamed && s.allowed
		if free && reaches && admits && err != nil {
			t.Fatalf("refused without a reason: %v, %v", err, s)
		}
	})
}

// TestWiderNeverRefuses widens one thing at a time: what was taken stays taken.
func TestWiderNeverRefuses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := situations.Draw(t, "situation")
		if s.decide(t) != nil {
			return
		}
		wider := func(what string, change func(s *situation)) {
			w := s
			change(&w)
			if err := w.decide(t); err != nil {
				t.Fatalf("%s: taken before, now %v: %v", what, err, w)
			}
		}
		wider("scope", func(s *situation) { s.offer.Scope = ai.OfferPublic })
		if s.offer.Scope == ai.OfferSelf {
			wider("scope by one", func(s *situation) { s.offer.Scope = ai.OfferNamed })
		}
		wider("audience", func(s *situation) { s.job.Audience = ai.AudiencePublic })
		wider("site's list", func(s *situation) { s.job.AllowedOwners = nil })
		wider("site's list by one", func(s *situation) { s.job.AllowedOwners = append(slices.Clone(s.job.AllowedOwners), s.offer.Owner) })
		wider("device's list", func(s *situation) { s.allowed = true })
		wider("consent", func(s *situation) { s.offer.Spend.Acknowledged = true })
		wider("ceiling", func(s *situation) { s.offer.Spend.CeilingReached = false })
		wider("cost", func(s *situation) { s.offer.Cost = backend.Free })
	})
}

// TestEffectiveScopeAgrees holds that what a device declares and what it does
// are one: for others, an offer admits exactly what the same offer would with
// its effective scope and no cost, but for the ceiling, which no scope tells.
func TestEffectiveScopeAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := situations.Draw(t, "situation")
		declared := s
		declared.offer.Scope = match.EffectiveScope(s.offer.Scope, s.offer.Cost, s.offer.Spend)
		declared.offer.Cost, declared.offer.Spend = backend.Free, match.Spend{}
		ceiling := s.offer.Cost == backend.Metered && s.offer.Spend.CeilingReached && s.job.Owner != s.offer.Owner
		want := declared.decide(t) == nil && !ceiling
		if got := s.decide(t) == nil; got != want {
			t.Fatalf("declared as %q it says %v, and does %v: %v", declared.offer.Scope, want, got, s)
		}
		// Declaring twice declares the same, and never more than was configured.
		if again := match.EffectiveScope(declared.offer.Scope, s.offer.Cost, s.offer.Spend); again != declared.offer.Scope {
			t.Fatalf("%q becomes %q", declared.offer.Scope, again)
		}
		if declared.offer.Scope != s.offer.Scope && declared.offer.Scope != ai.OfferSelf {
			t.Fatalf("%q becomes %q", s.offer.Scope, declared.offer.Scope)
		}
	})
}

func TestEffectiveScope(t *testing.T) {
	for _, scope := range scopes {
		for _, cost := range costs {
			for _, spend := range []match.Spend{{}, {Acknowledged: true}, {CeilingReached: true}, {Acknowledged: true, CeilingReached: true}} {
				want := ai.OfferSelf
				if cost == "free" || cost == "metered" && spend.Acknowledged {
					want = scope
				}
				if got := match.EffectiveScope(scope, cost, spend); got != want {
					t.Errorf("%q, %q, %v: %q", scope, cost, spend, got)
				}
			}
		}
	}
}

// TestOrder puts several reasons against a job together. The first by the order
// of the package decides, so that every party gives the same answer.
func TestOrder(t *testing.T) {
	consent := match.Spend{Acknowledged: true}
	reached := match.Spend{Acknowledged: true, CeilingReached: true}
	other := []ai.Owner{"carol"}
	for i, c := range []struct {
		audience ai.Audience
		list     []ai.Owner
		cost     backend.Cost
		spend    match.Spend
		scope    ai.OfferScope
		allowed  bool
		want     error
	}{
		{"self", other, "subscription", match.Spend{}, "self", false, match.ErrOtherOwner},
		{"", other, "subscription", match.Spend{}, "self", false, match.ErrOtherOwner},
		{"everyone", nil, "free", consent, "public", true, match.ErrOtherOwner},
		{"named", other, "subscription", match.Spend{}, "self", false, match.ErrNotInServerList},
		{"named", []ai.Owner{}, "free", consent, "public", true, match.ErrNotInServerList},
		{"named", []ai.Owner{"Bob"}, "free", consent, "public", true, match.ErrNotInServerList},
		{"named", []ai.Owner{"carol", "bob"}, "subscription", reached, "self", false, match.ErrSubscription},
		{"public", other, "subscription", reached, "public", true, match.ErrSubscription},
		{"public", nil, "", consent, "public", true, match.ErrSubscription},
		{"public", nil, "cheap", consent, "public", true, match.ErrSubscription},
		{"public", nil, "metered", match.Spend{CeilingReached: true}, "self", false, match.ErrNoConsent},
		{"public", nil, "metered", match.Spend{}, "public", true, match.ErrNoConsent},
		{"public", nil, "metered", reached, "self", false, match.ErrCeiling},
		{"public", nil, "metered", reached, "public", true, match.ErrCeiling},
		{"public", nil, "metered", consent, "self", true, match.ErrScope},
		{"public", nil, "free", match.Spend{}, "self", true, match.ErrScope},
		{"public", nil, "free", match.Spend{}, "everyone", true, match.ErrScope},
		{"public", nil, "free", match.Spend{}, "", true, match.ErrScope},
		{"public", nil, "free", match.Spend{}, "named", false, match.ErrNotLocallyAllowed},
		{"public", nil, "free", match.Spend{CeilingReached: true}, "named", true, nil},
		{"named", nil, "metered", consent, "named", true, nil},
		{"named", []ai.Owner{"bob"}, "free", match.Spend{}, "public", false, nil},
		{"public", other, "free", match.Spend{}, "public", false, nil}, // the list is for named jobs
	} {
		s := situation{
			match.Job{Owner: "alice", Audience: c.audience, AllowedOwners: c.list},
			match.Offer{Owner: "bob", Scope: c.scope, Cost: c.cost, Spend: c.spend}, c.allowed,
		}
		if err := s.decide(t); c.want == nil && err != nil || c.want != nil && err != c.want {
			t.Errorf("%d: %v, want %v", i, err, c.want)
		}
		// None of it matters to the owner.
		s.job.Owner = "bob"
		if err := s.decide(t); err != nil {
			t.Errorf("%d: the owner is refused: %v", i, err)
		}
	}
}

// TestKinds holds the names, statuses and order of the refusals. Programs and
// documents name them.
func TestKinds(t *testing.T) {
	want := []string{"no-capability 409", "audience-self-other-owner 403", "not-locally-allowed 403", "not-in-server-allowlist 403", "offer-scope-too-narrow 403", "subscription-self-lock 403", "metered-no-spend-consent 403", "metered-ceiling-reached 403"}
	var got []string
	for _, k := range match.Kinds.Kinds {
		got = append(got, fmt.Sprint(k.Name(), " ", k.Status()))
	}
	if !slices.Equal(got, want) || match.Kinds.Title != "Matching jobs and devices" {
		t.Errorf("%q: %q", match.Kinds.Title, got)
	}
}
