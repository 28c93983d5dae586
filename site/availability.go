package site

import (
	"context"
	"slices"

	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
	"github.com/allodhq/allod/wire/ai/protocol"
)

// NoRunner says why no device can run a job; "" means that one can.
type NoRunner string

// The reasons, from the first to be true on.
const (
	NonePaired   NoRunner = "no-runner-paired"
	NoneOnline   NoRunner = "no-runner-online"
	NoneCapable  NoRunner = "no-matching-capability"
	NoneAdmitted NoRunner = "audience-admits-nobody"
)

func (n NoRunner) sentence() string {
	switch n {
	case NonePaired:
		return "No device that this audience could reach is paired with the site."
	case NoneOnline:
		return "No device that this audience could reach was heard of lately."
	case NoneCapable:
		return "No device that is there offers this kind of job."
	case NoneAdmitted:
		return "The devices that are there do not run this owner's jobs, or the job does not admit them."
	}
	return ""
}

// Availability says whether a job would find a device now.
type Availability struct {
	// Available is true when at least one device would take the job now.
	Available bool
	// Why is empty when a device is there.
	Why NoRunner
	// Candidates is how many devices could run the job.
	Candidates int
}

// Availability says whether a job of that kind, owner and audience would find a
// device now (MUST NO_RUNNER_SIGNAL). It judges by what the devices declared in
// their last heartbeat. For an audience that other people's devices are not in,
// only the owner's own are looked at: others' are none to the owner, and nobody
// learns of them.
func (j *Jobs) Availability(ctx context.Context, kind ai.Kind, m match.Job) (Availability, error) {
	var whose ai.Owner // empty for everybody's
	if m.Audience != ai.AudienceNamed && m.Audience != ai.AudiencePublic {
		if whose = m.Owner; whose == "" {
			return Availability{Why: NonePaired}, nil
		}
	}
	live, err := j.c.devs.Runners(ctx, RunnerQuery{Owner: whose, LiveSince: ai.MillisOf(j.c.Clock().Add(-j.c.Liveness))})
	if err != nil {
		return Availability{}, err
	}
	if len(live) == 0 {
		all, err := j.c.devs.Runners(ctx, RunnerQuery{Owner: whose})
		if err != nil {
			return Availability{}, err
		}
		for _, r := range all {
			if !r.Revoked() {
				return Availability{Why: NoneOnline}, nil
			}
		}
		return Availability{Why: NonePaired}, nil
	}
	capable, admitted := 0, 0
	for _, r := range live {
		spoken, known := protocol.Find(r.Protocol)
		told := m.Audience != ai.AudiencePublic || !known || slices.Contains(spoken.Audiences, m.Audience)
		for _, o := range Offers(r.Capabilities) {
			if o.Kind != kind {
				continue
			}
			capable++
			if !told {
				continue // no claim of this device is offered such a job
			}
			o.Offer.Owner = r.Owner
			if match.Audience(m, o.Offer, listedByDevice) == nil {
				admitted++
			}
		}
	}
	switch {
	case admitted > 0:
		return Availability{Available: true, Candidates: admitted}, nil
	case capable > 0:
		return Availability{Why: NoneAdmitted}, nil
	}
	return Availability{Why: NoneCapable}, nil
}

// missing says why nobody can run a job, or "" if somebody can or holds it, or
// if it waits for others.
func (c *core) missing(ctx context.Context, job Job) (NoRunner, error) {
	if job.Lease != nil || job.Blocked() {
		return "", nil
	}
	a, err := (&Jobs{c}).Availability(ctx, job.Kind, job.Matching())
	return a.Why, err
}

// listedByDevice stands in for the device's own list, which only the device
// knows: a site assumes a yes, and the device decides.
func listedByDevice(ai.Owner) bool { return true }

// offered are a heartbeat's capabilities but for the kinds that it says are
// withheld: other daemons list those as well, and then refuse each such job.
func offered(q ai.HeartbeatRequest) []ai.Capability {
	list := make([]ai.Capability, 0, len(q.Capabilities))
	for _, c := range q.Capabilities {
		if !slices.ContainsFunc(q.Withheld, func(w ai.Withheld) bool { return w.Kind == c.Kind }) {
			list = append(list, c)
		}
	}
	return list
}

// Offers are the offers in a list of capabilities as a site may act on them:
// the first of each kind, at its declared scope, with the cost that the table
// gives the backend and its model, and not what the device says of it (MUST
// EFFECTIVE_OFFER_ONLY). A metered backend that is offered to others counts as
// consented, since its device decides that.
func Offers(capabilities []ai.Capability) []KindOffer {
	var list []KindOffer
	seen := map[ai.Kind]bool{}
	for _, c := range capabilities {
		if seen[c.Kind] {
			continue
		}
		seen[c.Kind] = true
		// Where a generic backend is, and with it what it costs, is not known here.
		cost, err := backend.CostOf(c.BackendID, "", c.Model)
		if err != nil {
			cost = backend.Metered
		}
		list = append(list, KindOffer{Kind: c.Kind, Offer: match.Offer{
			Scope: c.OfferScope, Cost: cost, Spend: match.Spend{Acknowledged: true},
		}})
	}
	return list
}
