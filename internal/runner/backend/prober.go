package backend

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/allodhq/allod/refusal"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// When a route is proved again.
const (
	firstRetry = 10 * time.Second // after the first failure, doubling with each
	lastRetry  = 5 * time.Minute
	idleProof  = 15 * time.Minute // after the last sign of life
)

// State is what is known of a route.
type State string

// The states.
const (
	// Ready means that a generation passed, a small one that was asked for or a
	// job.
	Ready State = "ready"
	// Failed means that the last generation did not pass.
	Failed State = "failed"
	// Unproven means that a backend that costs money or is an account was not
	// tried yet: only its owner's word or a job tries it.
	Unproven State = "unproven"
	// Unknown means that the first proof is still to come.
	Unknown State = "unknown"
)

// Readiness is what is known of a route, and since when.
type Readiness struct {
	State State
	// At is when it became known: the age of a ready route is the time since.
	At time.Time
	// Refusal is the name of the last failure's kind; empty without one.
	Refusal string
	// Next is when the route is tried again, by a proof or, where proofs are not
	// made unasked, by a job. Zero means not before its owner asks.
	Next time.Time
}

// Prober decides when one route, a model at a backend, is to prove itself, and
// whether it is offered meanwhile. It has no clock and starts nothing; times
// must not go back. It is not safe for concurrent use.
type Prober struct {
	self bool // it may be proved unasked

	state   State
	at      time.Time
	refusal string
	next    time.Time // of a failed route
	retries int       // failures since the last success

	jobs    int
	ended   time.Time
	probing bool
	doubt   bool // a proof is wanted, whatever is known
}

// NewProber begins with a route that nothing is known of. Only a free backend is
// proved unasked.
func NewProber(cost wirebackend.Cost, now time.Time) *Prober {
	p := &Prober{self: cost == wirebackend.Free, state: Unproven, at: now}
	if p.self {
		p.state = Unknown
	}
	return p
}

// Due reports whether a proof is to be made now: at the start, when the wait
// after a failure is over, and after 15 idle minutes; never beside a job or
// another proof.
func (p *Prober) Due(now time.Time) bool {
	if !p.self || p.jobs > 0 || p.probing {
		return false
	}
	return !now.Before(p.due())
}

func (p *Prober) due() time.Time {
	if p.doubt && p.state != Failed {
		return p.at
	}
	switch p.state {
	case Ready:
		if p.ended.After(p.at) {
			return p.ended.Add(idleProof)
		}
		return p.at.Add(idleProof)
	case Failed:
		return p.next
	}
	return p.at
}

// Probing says that a proof begins. It ends with [Prober.Probed].
func (p *Prober) Probing() { p.probing = true }

// Probed says how a proof ended, one that was due or one that the owner asked
// for. One that was canceled, as for a job that came, tells nothing.
func (p *Prober) Probed(now time.Time, err error) {
	p.probing = false
	if errors.Is(err, context.Canceled) {
		return
	}
	p.doubt = false
	if err != nil {
		p.fail(now, refusal.From(err).Kind())
	} else {
		p.Succeeded(now)
	}
}

// Started says that a job begins at this backend, whichever model it is for.
func (p *Prober) Started(now time.Time) {
	p.jobs++
	p.ended = now
}

// Ended says that such a job ended, however it did.
func (p *Prober) Ended(now time.Time) {
	p.jobs = max(p.jobs-1, 0)
	p.ended = now
}

// Succeeded says that a job of this route got an answer, which proves it.
func (p *Prober) Succeeded(now time.Time) {
	p.state, p.at, p.refusal, p.next, p.retries, p.doubt = Ready, now, "", time.Time{}, 0, false
}

// Doubt says that a job of this route failed in a way that may be the job's own.
// The route stays what it is and is to prove itself.
func (p *Prober) Doubt() { p.doubt = true }

// Failed says that a job of this route failed for that reason. An answer that
// was too large tells nothing against the route. Failures of jobs that were
// under way when the route failed do not make its wait longer.
func (p *Prober) Failed(now time.Time, why *refusal.Kind) {
	if why == ErrOutputTooLarge || p.state == Failed && now.Before(p.next) {
		return
	}
	p.fail(now, why)
}

func (p *Prober) fail(now time.Time, kind *refusal.Kind) {
	wait := min(firstRetry<<min(p.retries, 10), lastRetry)
	p.retries++
	p.state, p.at, p.refusal, p.next = Failed, now, kind.Name(), now.Add(wait)
	if s := kind.Status(); !p.self && (s == http.StatusUnauthorized || s == http.StatusNotFound) {
		p.next = time.Time{} // a job would not mend a login or a model's name
	}
}

// State is what is known at that time. A failed route that is not proved
// unasked is unproven again when its wait is over.
func (p *Prober) State(now time.Time) Readiness {
	r := Readiness{State: p.state, At: p.at, Refusal: p.refusal}
	switch {
	case p.self:
		r.Next = p.due()
	case p.state == Failed && p.waited(now):
		r.State = Unproven
	case p.state == Failed:
		r.Next = p.next
	}
	return r
}

// Offered reports whether jobs of this route are to be claimed.
func (p *Prober) Offered(now time.Time) bool {
	return p.state == Ready || p.state == Unproven || !p.self && p.waited(now)
}

// waited reports whether the wait of a failed route is over.
func (p *Prober) waited(now time.Time) bool {
	return p.state == Failed && !p.next.IsZero() && !now.Before(p.next)
}
