// Package sharing decides how far a backend's owner offers it.
//
// An owner's wish is one thing and what it comes to is another: a personal
// subscription serves nobody else whatever is wished, and what costs money for
// each run serves others only while its owner agreed to pay up to a ceiling.
// [Terms.On] is the one place where the wish meets the cost. The reader of the
// configuration, what is offered to sites and the admission of jobs all ask it, so
// they cannot differ.
//
// The package refuses to know people: who of the others may come is a list of its
// own, package allowlist, and what is left of a ceiling is the ledger's.
package sharing

import (
	"cmp"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

// ErrNoCeiling refuses to let others spend without an end (MUST
// METERED_REQUIRES_CEILING).
var ErrNoCeiling = refusal.NewKind("metered-no-ceiling", 400,
	"The backend costs money for each run, and it was to be offered to others without a ceiling on what they may spend.",
	"Set a ceiling for each day: allod agent offer BACKEND SCOPE --cap CENTS, or the member dailyCapCents.")

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Sharing a backend", Kinds: []*refusal.Kind{ErrNoCeiling}}

// Bounds and defaults of money, in US cents.
const (
	// MaxCeiling bounds a ceiling for one day.
	MaxCeiling = 100_000_000
	// DefaultPrice and MaxPrice are of a million tokens.
	DefaultPrice = 1500
	MaxPrice     = 100_000_000
)

// Terms are what an owner decided about one backend. The zero value offers it to
// nobody else.
type Terms struct {
	// Scope is how far the owner wants to offer it; empty is self.
	Scope ai.OfferScope
	// Acknowledged is whether the owner agreed to pay for others.
	Acknowledged bool
	// Ceiling is how many cents others may cost within 24 hours, 1 to [MaxCeiling];
	// zero is none set, and not without end.
	Ceiling int64
	// Price is how many cents a million tokens cost, 1 to [MaxPrice]; zero is
	// [DefaultPrice].
	Price int64
}

// PerMillion is the price in force, in cents for a million tokens.
func (t Terms) PerMillion() int64 { return cmp.Or(t.Price, DefaultPrice) }

// Effective is what terms come to at a cost.
type Effective struct {
	Scope ai.OfferScope
	Spend match.Spend
	// Narrowed says why Scope is less than was wished; nil where it is not.
	Narrowed *refusal.Kind
}

// On is what the terms come to on a backend of that cost. Narrowed is
// match.ErrSubscription (MUST SUBSCRIPTION_SELF_LOCK), match.ErrNoConsent (MUST
// METERED_DEFAULTS_SELF) or [ErrNoCeiling].
func (t Terms) On(cost backend.Cost) Effective {
	wish := cmp.Or(t.Scope, ai.OfferSelf)
	// Consent without an end to it is none.
	spend := match.Spend{Acknowledged: t.Acknowledged && t.Ceiling > 0}
	e := Effective{Scope: match.EffectiveScope(wish, cost, spend), Spend: spend}
	switch {
	case e.Scope == wish:
	case cost != backend.Metered:
		e.Narrowed = match.ErrSubscription
	case !t.Acknowledged:
		e.Narrowed = match.ErrNoConsent
	default:
		e.Narrowed = ErrNoCeiling
	}
	return e
}
