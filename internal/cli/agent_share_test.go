package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/sharing"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

var shareRows = []runner.BackendStatus{
	{Name: "free", Cost: backend.Free}, {Name: "paid", Cost: backend.Metered, CapCents: 250, PriceCents: 90},
	{Name: "new", Cost: backend.Metered}, {Name: "mine", Cost: backend.Subscription},
	{Name: "both", Model: "a", Cost: backend.Free}, {Name: "both", Model: "b:cloud", Cost: backend.Metered},
}

// TestMoneyInTheQuestion: what costs money is asked about with the sums in the
// question, and what cannot be shared is not asked about.
func TestMoneyInTheQuestion(t *testing.T) {
	for name, c := range map[string]struct {
		backend        string
		scope          ai.OfferScope
		ceiling, price int64
		want           sharing.Terms
		asks           []string // nil for no question
		err            error
	}{
		"free to named":             {"free", ai.OfferNamed, 0, 0, sharing.Terms{Scope: ai.OfferNamed}, nil, nil},
		"free to anybody":           {"free", ai.OfferPublic, 0, 0, sharing.Terms{Scope: ai.OfferPublic}, []string{"Whoever may ask"}, nil},
		"paid, as set before":       {"paid", ai.OfferNamed, 0, 0, sharing.Terms{Scope: ai.OfferNamed, Acknowledged: true, Ceiling: 250, Price: 90}, []string{"$2.50 in any 24 hours", "$0.90 for a million tokens", "people on your list"}, nil},
		"paid, set anew, to anyone": {"paid", ai.OfferPublic, 7, 5, sharing.Terms{Scope: ai.OfferPublic, Acknowledged: true, Ceiling: 7, Price: 5}, []string{"$0.07", "$0.05", "whoever may ask"}, nil},
		"paid, price unknown":       {"new", ai.OfferNamed, 100, 0, sharing.Terms{Scope: ai.OfferNamed, Acknowledged: true, Ceiling: 100}, []string{"$1.00", "$15.00 for a million tokens"}, nil},
		"paid without an end":       {"new", ai.OfferNamed, 0, 0, sharing.Terms{}, nil, sharing.ErrNoCeiling},
		"the costliest counts":      {"both", ai.OfferNamed, 0, 0, sharing.Terms{}, nil, sharing.ErrNoCeiling},
		"a subscription":            {"mine", ai.OfferNamed, 100, 0, sharing.Terms{}, nil, match.ErrSubscription},
		"none":                      {"else", ai.OfferSelf, 0, 0, sharing.Terms{}, nil, runner.ErrNoBackend},
	} {
		terms, question, err := widened(shareRows, c.backend, c.scope, c.ceiling, c.price)
		if terms != c.want || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || (question == "") != (c.asks == nil) {
			t.Errorf("%s: %+v, %q, %v", name, terms, question, err)
		}
		for _, part := range c.asks {
			if !strings.Contains(question, part) {
				t.Errorf("%s: %q does not say %q", name, question, part)
			}
		}
	}
}

// TestNarrowingWithdraws: to the owner alone nothing is asked, and the consent to
// pay is gone; the numbers stay for the next time.
func TestNarrowingWithdraws(t *testing.T) {
	for name, want := range map[string]sharing.Terms{
		"free": {Scope: ai.OfferSelf}, "paid": {Scope: ai.OfferSelf, Ceiling: 250, Price: 90}, "mine": {Scope: ai.OfferSelf},
	} {
		if terms, question, err := widened(shareRows, name, ai.OfferSelf, 0, 0); terms != want || question != "" || err != nil {
			t.Errorf("%s: %+v, %q, %v", name, terms, question, err)
		}
	}
}
