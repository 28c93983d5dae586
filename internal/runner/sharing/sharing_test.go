package sharing_test

import (
	"testing"

	"github.com/allodhq/allod/internal/runner/sharing"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

// TestOn has every combination of what an owner can decide and what a backend can
// cost, with what it comes to written out by hand.
func TestOn(t *testing.T) {
	const self, named, public = ai.OfferSelf, ai.OfferNamed, ai.OfferPublic
	type row struct {
		wish ai.OfferScope
		ack  bool
		cap  int64
	}
	type end struct {
		scope ai.OfferScope
		spend bool
		why   *refusal.Kind
	}
	for cost, rows := range map[backend.Cost]map[row]end{
		backend.Free: {
			{"", false, 0}: {self, false, nil}, {"", true, 5}: {self, true, nil},
			{self, false, 0}: {self, false, nil}, {self, true, 5}: {self, true, nil},
			{named, false, 0}: {named, false, nil}, {named, false, 5}: {named, false, nil}, {named, true, 0}: {named, false, nil}, {named, true, 5}: {named, true, nil},
			{public, false, 0}: {public, false, nil}, {public, false, 5}: {public, false, nil}, {public, true, 0}: {public, false, nil}, {public, true, 5}: {public, true, nil},
		},
		backend.Metered: {
			{"", false, 0}: {self, false, nil}, {"", true, 5}: {self, true, nil},
			{self, false, 0}: {self, false, nil}, {self, true, 0}: {self, false, nil}, {self, true, 5}: {self, true, nil},
			{named, false, 0}: {self, false, match.ErrNoConsent}, {named, false, 5}: {self, false, match.ErrNoConsent},
			{named, true, 0}: {self, false, sharing.ErrNoCeiling}, {named, true, 5}: {named, true, nil},
			{public, false, 0}: {self, false, match.ErrNoConsent}, {public, false, 5}: {self, false, match.ErrNoConsent},
			{public, true, 0}: {self, false, sharing.ErrNoCeiling}, {public, true, 5}: {public, true, nil}, {public, true, -5}: {self, false, sharing.ErrNoCeiling},
		},
		backend.Subscription: {
			{"", false, 0}: {self, false, nil}, {self, true, 5}: {self, true, nil},
			{named, false, 0}: {self, false, match.ErrSubscription}, {named, true, 5}: {self, true, match.ErrSubscription},
			{public, false, 0}: {self, false, match.ErrSubscription}, {public, true, 5}: {self, true, match.ErrSubscription},
		},
		// A cost that the contract does not have is nobody's to share.
		"gratis": {{named, true, 5}: {self, true, match.ErrSubscription}, {public, false, 0}: {self, false, match.ErrSubscription}, {self, false, 0}: {self, false, nil}},
	} {
		for r, want := range rows {
			got := sharing.Terms{Scope: r.wish, Acknowledged: r.ack, Ceiling: r.cap}.On(cost)
			if got.Scope != want.scope || got.Spend != (match.Spend{Acknowledged: want.spend}) || got.Narrowed != want.why {
				t.Errorf("%s, %+v: %+v, want %+v", cost, r, got, want)
			}
		}
	}
}

// TestPrice: what was not said is the contract's price.
func TestPrice(t *testing.T) {
	if got := (sharing.Terms{}).PerMillion(); got != 1500 {
		t.Error(got)
	}
	if got := (sharing.Terms{Price: 1}).PerMillion(); got != 1 {
		t.Error(got)
	}
}
