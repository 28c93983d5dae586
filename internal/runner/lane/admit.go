package lane

import (
	"slices"

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
	ErrPayload = refusal.NewKind("community-payload-too-large", 403,
		"The question is somebody else's and longer than this device's owner takes from others.",
		"Ask something shorter. The owner can raise maxPayloadChars under community in the configuration.")
	ErrLong = refusal.NewKind("grant-too-long", 403,
		"The job's id, owner or lease is longer than any that an honest server gives.",
		"Report it to whoever runs the server.")
)

// MaxID bounds the ids of a job that is taken on, in UTF-16 code units. They
// stand in the owner's log, which a server must not fill.
const MaxID = 1024

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Taking on jobs", Kinds: []*refusal.Kind{ErrSite, ErrGrant, ErrPayload, ErrLong, ErrChanged, ErrFollowed, ErrFull}}

// Admit decides whether a granted job may run here, from its stub alone, and
// under which offer. It judges in this order: whose grant it is ([ErrGrant]), the
// length of its ids ([ErrLong]), the site ([ErrSite]), the kind
// (match.ErrNoCapability), then both sides' wishes as package match does (MUST
// AUDIENCE_BOTH_SIDES), and the size of what somebody else asks ([ErrPayload]).
// What others may cost is decided by who keeps the ledger, before anything is
// fetched.
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
		return o, m.judge(o, s) // the first offer of a kind decides, as at the server
	}
	return Offer{}, match.ErrNoCapability
}

// judge decides whether a job may run under an offer.
func (m *Machine) judge(o Offer, s ai.ClaimedStub) error {
	err := match.Audience(
		match.Job{Owner: s.Owner, Audience: s.Audience},
		match.Offer{Owner: m.c.Owner, Scope: o.Capability.OfferScope, Cost: o.Cost, Spend: o.Spend},
		func(owner ai.Owner) bool { return m.allowed[owner] })
	if err == nil && m.foreign(s) && atLeast(s.SizeClass) > m.c.OthersUnits {
		return ErrPayload
	}
	return err
}

// foreign reports whether a job is somebody else's.
func (m *Machine) foreign(s ai.ClaimedStub) bool { return s.Owner != m.c.Owner }

// others is how many jobs of others are in work.
func (m *Machine) others() (n int) {
	for _, j := range m.jobs {
		if !j.done && m.foreign(j.stub) {
			n++
		}
	}
	return n
}

// crowded reports whether others get no place now: they have all that they may
// have, one being kept for the owner where there is more than one, or what they
// had came to nothing.
func (m *Machine) crowded() bool {
	return m.others() >= max(m.c.Concurrency-1, 1) || m.now.Before(m.shun)
}

// dismiss gives back what others have running that its owner no longer wishes.
func (m *Machine) dismiss() {
	var back []*job
	m.each(func(j *job) {
		if j.done || !m.foreign(j.stub) {
			return
		}
		i := slices.IndexFunc(m.offers, func(o Offer) bool {
			c, was := o.Capability, j.offer.Capability
			return c.Kind == was.Kind && c.Service == was.Service && c.Model == was.Model
		})
		if i < 0 {
			return // a model that is gone for a moment says nothing about wishes
		}
		if err := m.judge(m.offers[i], j.stub); err != nil {
			m.note(NoteRefused, j, err)
			back = append(back, j)
		}
	})
	m.release(ai.ReleaseRefused, back...)
	for _, j := range back {
		m.stop(j)
	}
}

// atLeast is the least length of a payload of a size class, in UTF-16 code units.
// What it really is is judged once it was opened.
func atLeast(c ai.SizeClass) int {
	classes := ai.SizeClasses()
	i := slices.Index(classes, c)
	if i <= 0 {
		return 0
	}
	most, _ := classes[i-1].Ceiling()
	return most + 1
}
