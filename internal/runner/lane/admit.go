package lane

import (
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/match"
)

// What a device refuses to take on, besides what matching refuses.
var (
	ErrSite = refusal.NewKind("site-not-approved", 403,
		"The job is from a site that was not approved on this machine.",
		"See allod agent sites. To serve the site compare its fingerprint with whoever runs it, and approve it: allod agent approve.")
	ErrGrant = refusal.NewKind("grant-foreign", 403,
		"The server granted the job to another device than this one.",
		"Report it to whoever runs the server.")
	ErrLong = refusal.NewKind("grant-too-long", 403,
		"The job's id, owner or lease is longer than any that an honest server gives.",
		"Report it to whoever runs the server.")
)

// MaxID bounds the ids of a job that is taken on, in UTF-16 code units. They
// stand in the owner's log, which a server must not fill.
const MaxID = 1024

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Taking on jobs", Kinds: []*refusal.Kind{ErrSite, ErrGrant, ErrLong, ErrChanged, ErrFollowed, ErrFull}}

// Admit decides whether a granted job may run here, from its stub alone, and
// under which offer. It judges in this order: whose grant it is ([ErrGrant]), the
// length of its ids ([ErrLong]), the site ([ErrSite]), the kind (match.ErrNoCapability), then both sides' wishes as
// package match does. Status commands ask it too.
func (m *Machine) Admit(s ai.ClaimedStub) (Offer, error) {
	switch {
	case s.Lease.RunnerID != m.c.Runner:
		return Offer{}, ErrGrant
	case max(ai.TextUnits(string(s.ID)), ai.TextUnits(string(s.Lease.ID)), ai.TextUnits(string(s.Owner))) > MaxID:
		return Offer{}, ErrLong
	case !m.served[s.Site]:
		return Offer{}, ErrSite
	}
	for _, o := range m.offers {
		if o.Capability.Kind != s.Kind {
			continue
		}
		// The first offer of a kind decides, as at the server. Offers beyond self
		// come with the sharing of backends, and so does the local list.
		return o, match.Audience(
			match.Job{Owner: s.Owner, Audience: s.Audience},
			match.Offer{Owner: m.c.Owner, Scope: o.Capability.OfferScope, Cost: o.Cost},
			func(ai.Owner) bool { return false })
	}
	return Offer{}, match.ErrNoCapability
}
