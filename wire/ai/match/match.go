// Package match decides whether a job may run on a device: both sides must
// agree (MUST AUDIENCE_BOTH_SIDES).
//
// The job's audience must admit the device's owner, and the device's offer must
// admit the job's owner. Money decides too: a subscription serves nobody but
// its owner, and a metered backend serves others only while its owner agreed to
// pay and the ceiling is not reached.
//
// Sites, relays, devices and "why" call the same functions. The package refuses
// to know lists: whether an owner is on the device's local list is asked of the
// caller.
package match

import (
	"slices"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
)

// What this package refuses. [Audience] judges in this order; [ErrNoCapability]
// is for callers that find nothing to match against.
var (
	ErrNoCapability = refusal.NewKind("no-capability", 409,
		"The device offers nothing for this kind of job.",
		"Ask a device that does, or let its owner add a backend for this kind.")
	ErrOtherOwner = refusal.NewKind("audience-self-other-owner", 403,
		"The job is for its owner's own machines, and this device belongs to somebody else.",
		"Pair a device of your own, or ask with a wider audience.")
	ErrNotInServerList = refusal.NewKind("not-in-server-allowlist", 403,
		"The site named the owners who may run this job, and this device's owner is not among them.",
		"Have the site add the owner, or use another device.")
	ErrSubscription = refusal.NewKind("subscription-self-lock", 403,
		"The backend is a personal subscription, which serves nobody but its owner.",
		"Use a local model or a metered account for other people's jobs.")
	ErrNoConsent = refusal.NewKind("metered-no-spend-consent", 403,
		"The backend costs its owner money, and the owner has not agreed to pay for others.",
		"The owner can widen the offer and set a ceiling.")
	ErrCeiling = refusal.NewKind("metered-ceiling-reached", 403,
		"The ceiling that the backend's owner set for other people's jobs is reached.",
		"Wait until it resets, or the owner raises it.")
	ErrScope = refusal.NewKind("offer-scope-too-narrow", 403,
		"The device's owner offers this backend to nobody else.",
		"The owner can widen the offer.")
	ErrNotLocallyAllowed = refusal.NewKind("not-locally-allowed", 403,
		"The person who asks is not on the list of people whose jobs this device's owner takes.",
		"The owner can add them by site and user.")
)

// Kinds are the refusals, in the contract's order.
var Kinds = refusal.Registry{Title: "Matching jobs and devices", Kinds: []*refusal.Kind{
	ErrNoCapability, ErrOtherOwner, ErrNotLocallyAllowed, ErrNotInServerList, ErrScope,
	ErrSubscription, ErrNoConsent, ErrCeiling,
}}

// Spend is what an owner decided about paying for other people's jobs on one
// metered backend. The zero value is no consent.
type Spend struct {
	// Acknowledged is true once the owner agreed to pay.
	Acknowledged bool
	// CeilingReached is true while nothing more may be spent.
	CeilingReached bool
}

// Job is what matching looks at of a job.
type Job struct {
	Owner    ai.Owner
	Audience ai.Audience
	// AllowedOwners narrows a named job to devices of these owners. nil means
	// that the site named nobody; an empty list admits nobody. It never travels
	// (MUST ROSTER_NOT_DISCLOSED).
	AllowedOwners []ai.Owner
}

// Offer is what matching looks at of a device: one backend, as it is offered.
type Offer struct {
	Owner ai.Owner
	Scope ai.OfferScope
	Cost  backend.Cost
	Spend Spend
}

// EffectiveScope is how far an offer reaches once cost is considered: a
// subscription is for its owner only (MUST SUBSCRIPTION_SELF_LOCK), and so is a
// metered backend until its owner agreed to pay (MUST METERED_DEFAULTS_SELF).
func EffectiveScope(configured ai.OfferScope, cost backend.Cost, spend Spend) ai.OfferScope {
	if cost == backend.Free || cost == backend.Metered && spend.Acknowledged {
		return configured
	}
	return ai.OfferSelf
}

// Audience decides whether job may run under offer. It returns nil or one of
// this package's refusals. locallyAllows says whether the job's owner is on the
// device's local list; it is asked last, only where it decides, and for the
// job's owner (MUST NAMED_LOCAL_ALLOWLIST). An audience, cost or scope that the
// contract does not define counts as the narrowest, and a nil list as empty.
func Audience(job Job, offer Offer, locallyAllows func(ai.Owner) bool) error {
	switch {
	case job.Owner == offer.Owner:
		return nil
	case job.Audience != ai.AudienceNamed && job.Audience != ai.AudiencePublic:
		return ErrOtherOwner
	case job.Audience == ai.AudienceNamed && job.AllowedOwners != nil && !slices.Contains(job.AllowedOwners, offer.Owner):
		return ErrNotInServerList
	case offer.Cost != backend.Free && offer.Cost != backend.Metered:
		return ErrSubscription
	case offer.Cost == backend.Metered && !offer.Spend.Acknowledged:
		return ErrNoConsent
	case offer.Cost == backend.Metered && offer.Spend.CeilingReached:
		return ErrCeiling
	case offer.Scope == ai.OfferPublic:
		return nil
	case offer.Scope == ai.OfferNamed && locallyAllows != nil && locallyAllows(job.Owner):
		return nil
	case offer.Scope == ai.OfferNamed:
		return ErrNotLocallyAllowed
	}
	return ErrScope
}
