package lane

import (
	"cmp"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
)

// Times. A server's own lease length can only shorten them.
const (
	// heartbeat is how often a device says that it is there, give or take 15 %.
	heartbeat = 10 * time.Second
	// hold is how long a server is asked to hold a request.
	hold = 20 * time.Second
	// cover is how soon after a grant a heartbeat includes it.
	cover = 200 * time.Millisecond
	// grace is how long a stopping device still tries to hand in results.
	grace = 5 * time.Second
	// firstRetry and lastRetry are the first and the longest wait between tries,
	// before jitter.
	firstRetry = 500 * time.Millisecond
	lastRetry  = time.Minute
	// shortest and longest are the leases that are believed. Under a shorter one
	// there is no time to work, and only time to be kept busy.
	shortest = time.Second
	longest  = 24 * time.Hour
	// shortIdle is the shortest wait for a server that does not hold requests, and
	// idleShare the part of the time since it had work that it is left alone.
	shortIdle = time.Second
	idleShare = 4
	// guessedLease stands for the lease length until a claim has told it.
	guessedLease = 5 * time.Second
)

// Bounds of what a server can make a machine remember.
const (
	maxTold = 64   // sites that the owner was told about
	maxPast = 1024 // leases that ended
	maxBack = 1024 // grants to give back
)

// MaxConcurrency bounds how many jobs a device runs at once for one server.
const MaxConcurrency = 32

// Config says for whom a machine decides.
type Config struct {
	// Runner and Owner are what the server said when it paired the device.
	Runner ai.RunnerID
	Owner  ai.Owner
	// Sites are the sites that were approved on this machine.
	Sites map[ai.KeyID]key.Site
	// Followed are those of Sites that another key came after, and Changed those
	// under whose name another key was shown.
	Followed map[ai.KeyID]Followed
	Changed  map[ai.KeyID]bool
	// Pending are the sites that are known to wait for the owner.
	Pending map[ai.KeyID]key.Site
	// Concurrency is how many jobs run at once, 1 to [MaxConcurrency].
	Concurrency int
	// Allowed are the users of the server that are on the local list.
	Allowed []ai.Owner
	// OthersUnits bounds the text of what other people ask, in UTF-16 code units.
	OthersUnits int
	// Paused is whether it begins paused.
	Paused bool
}

// Machine is the state of one device at one server. It is used by one goroutine.
type Machine struct {
	c      Config
	rand   *rand.Rand
	offers []Offer
	// ownFirst is whether the next claim asks for the owner's own jobs, without
	// waiting for one. Servers hand out the oldest first, and where there is one
	// place the owner would wait behind everybody who asked before.
	ownFirst bool
	allowed  map[ai.Owner]bool
	served   map[ai.KeyID]bool
	jobs     map[ai.LeaseID]*job

	beat, claim request
	took        time.Time           // when a job was last taken on; zero means never
	covers      map[ai.LeaseID]bool // what the heartbeat under way renews
	seq         int
	lease       time.Duration // zero until a claim told it
	offset      time.Duration // the server's clock less ours
	timed       bool          // offset is known

	reachable, asked bool
	why              *refusal.Kind // of the last failure
	answered         time.Time
	noSites          bool
	told             map[ai.KeyID]What // what the owner was told about a site
	offered, pending map[ai.KeyID]key.Site
	changed          int        // how many of c.Changed were to be kept
	kept             bool       // pending and changed are
	back             []giveBack // grants to give back
	releasing        bool
	past             map[ai.LeaseID]bool // leases that ended, which are not worked under again
	stopping, ended  bool
	stopBy           time.Time

	// Only while a step runs.
	now  time.Time
	todo []Action
}

// request is one kind of request of which at most one is under way.
type request struct {
	seq  int // of the one under way; zero means none
	sent time.Time
	wait time.Duration
	// next is when the next is wanted; zero means not by itself.
	next  time.Time
	fails int
	max   int // jobs that a claim asks for
	// ownerOnly is whether a claim asks for the owner's own jobs only.
	ownerOnly bool
}

// giveBack is one grant that is to be given back.
type giveBack struct {
	grant  ai.Grant
	reason ai.ReleaseReason
}

// job is one grant that the machine works under.
type job struct {
	stub  ai.ClaimedStub
	offer Offer // what it was taken on under; zero for a result of an earlier run
	done  bool  // its result is kept
	// heldUntil is until when the lease is known to be held.
	heldUntil time.Time
	canceled  bool

	// Of a kept result.
	until   ai.Millis
	next    time.Time
	sending bool
	fails   int
}

func (j *job) grant() ai.Grant { return ai.Grant{JobID: j.stub.ID, LeaseID: j.stub.Lease.ID} }

// New begins a machine. rand spreads its timers. The first step should follow at
// once.
func New(c Config, rand *rand.Rand, now time.Time) *Machine {
	m := &Machine{
		c: c, rand: rand, served: map[ai.KeyID]bool{}, jobs: map[ai.LeaseID]*job{}, told: map[ai.KeyID]What{}, past: map[ai.LeaseID]bool{},
	}
	m.c.Sites, m.c.Followed, m.c.Changed = own(c.Sites), own(c.Followed), own(c.Changed)
	m.pending, m.changed, m.kept = own(c.Pending), len(c.Changed), true
	m.beat.next, m.claim.next = now, now
	m.allow(c.Allowed)
	return m
}

// own is a copy of a map, and an empty one of none.
func own[V any](of map[ai.KeyID]V) map[ai.KeyID]V {
	if of == nil {
		return map[ai.KeyID]V{}
	}
	return maps.Clone(of)
}

// Step takes in what happened at now and returns what to do, in order. Times
// never go backwards.
func (m *Machine) Step(now time.Time, e Event) []Action {
	m.now, m.todo = now, nil
	if !m.ended {
		e.apply(m)
	}
	if !m.ended {
		m.lapse()
		m.plan()
	}
	return m.todo
}

// Status is what a machine has to tell.
type Status struct {
	// Reachable is whether the last heartbeat was answered.
	Reachable bool
	// Serving are the approved sites that the server offers now.
	Serving []ai.KeyID
	// Running and Kept count jobs in work and results not handed in yet.
	Running, Kept int
	// Answered is when a heartbeat was last answered; zero means not yet.
	Answered time.Time
	// Asked is whether a heartbeat was answered or failed yet.
	Asked bool
}

// Status describes the machine.
func (m *Machine) Status() Status {
	s := Status{Reachable: m.reachable, Answered: m.answered, Asked: m.asked, Serving: slices.Sorted(maps.Keys(m.served))}
	for _, j := range m.jobs {
		if j.done {
			s.Kept++
		} else {
			s.Running++
		}
	}
	return s
}

func (m *Machine) do(a Action) { m.todo = append(m.todo, a) }

func (m *Machine) note(what What, j *job, err error) {
	m.do(Note{What: what, Stub: &j.stub, Site: j.stub.Site, Err: err})
}

// each walks the jobs in a fixed order, so that a run can be repeated.
func (m *Machine) each(visit func(j *job)) {
	for _, id := range slices.Sorted(maps.Keys(m.jobs)) {
		visit(m.jobs[id])
	}
}

// end forgets a job. What was kept of it is removed.
func (m *Machine) end(j *job) {
	delete(m.jobs, j.stub.Lease.ID)
	if len(m.past) >= maxPast {
		clear(m.past)
	}
	m.past[j.stub.Lease.ID] = true
	if j.done {
		m.do(Drop{j.grant()})
	}
}

// stop ends a job without a report.
func (m *Machine) stop(j *job) {
	if !j.done {
		m.do(Abort{Lease: j.stub.Lease.ID})
	}
	m.end(j)
}

// release has grants given back. One request at a time does that.
func (m *Machine) release(reason ai.ReleaseReason, jobs ...*job) {
	for i, j := range jobs {
		if len(m.back) == maxBack {
			return // the rest will lapse
		}
		if i < MaxConcurrency {
			m.note(NoteReleased, j, nil)
		}
		m.back = append(m.back, giveBack{j.grant(), reason})
	}
}

// planRelease gives back what has the same reason as the first that waits.
func (m *Machine) planRelease() {
	if m.releasing || len(m.back) == 0 {
		return
	}
	r := Release{Reason: m.back[0].reason}
	rest := m.back[:0:0]
	for _, b := range m.back {
		if b.reason == r.Reason && len(r.Grants) < ai.MaxClaim {
			r.Grants = append(r.Grants, b.grant)
		} else {
			rest = append(rest, b)
		}
	}
	m.back, m.releasing = rest, true
	m.do(r)
}

// lapse stops the work whose lease has run out by this machine's own clock, and
// gives up results that are not worth keeping.
func (m *Machine) lapse() {
	m.each(func(j *job) {
		switch {
		case !j.done && !m.now.Before(j.heldUntil):
			m.note(NoteLapsed, j, nil)
			m.stop(j)
		case j.done && !j.sending && ai.MillisOf(m.now) >= j.until:
			m.note(NoteNotAccepted, j, nil)
			m.end(j)
		}
	})
}

// plan sends what is due and says when to look again.
func (m *Machine) plan() {
	m.planRelease()
	if m.stopping {
		m.planStop()
	} else {
		m.planBeat()
		m.planClaim()
	}
	if m.ended {
		return
	}
	m.each(func(j *job) {
		if j.done && !j.sending && m.now.Before(j.heldUntil) && !m.now.Before(j.next) {
			j.sending = true
			m.do(Send{j.grant()})
		}
	})
	m.do(Wake{m.wake()})
}

func (m *Machine) wake() time.Time {
	at := m.now.Add(time.Hour)
	soonest := func(t time.Time) {
		if !t.IsZero() && t.Before(at) {
			at = t
		}
	}
	if m.stopping {
		soonest(m.stopBy)
	} else {
		if m.beat.seq == 0 || m.beat.wait > 0 {
			soonest(m.beat.next)
		}
		if m.claim.seq == 0 && m.free() > 0 {
			soonest(m.claim.next)
		}
	}
	for _, j := range m.jobs {
		switch {
		case !j.done:
			soonest(j.heldUntil)
		case !j.sending && m.now.Before(j.heldUntil):
			soonest(j.next)
		}
	}
	return at
}

// want asks for a heartbeat no later than at.
func (m *Machine) want(at time.Time) {
	if m.beat.next.IsZero() || at.Before(m.beat.next) {
		m.beat.next = at
	}
}

func (m *Machine) planBeat() {
	b := &m.beat
	// One that is held may be replaced; one that is not will be back soon.
	if b.next.IsZero() || m.now.Before(b.next) || b.seq != 0 && b.wait == 0 {
		return
	}
	m.seq++
	*b = request{seq: m.seq, sent: m.now, fails: b.fails}
	q := ai.HeartbeatRequest{RunnerID: m.c.Runner, Capabilities: m.capabilities(false), ActiveLeases: []ai.Grant{}, Paused: m.c.Paused}
	m.covers = map[ai.LeaseID]bool{}
	working := false
	m.each(func(j *job) {
		q.ActiveLeases = append(q.ActiveLeases, j.grant())
		m.covers[j.stub.Lease.ID] = true
		working = working || !j.done
	})
	// Only work in flight can be canceled, so only then is news worth waiting for.
	// A server that was not heard yet is not asked to keep us waiting.
	if working && m.reachable && m.lease > 0 {
		b.wait = min(hold, m.lease/3).Truncate(time.Second)
	}
	m.do(Beat{Seq: b.seq, Wait: b.wait, Request: q})
}

// capabilities are what is offered now, or what is of it to the owner alone. A
// paused device offers nothing, which is how it says so in a version that has no
// other word for it.
func (m *Machine) capabilities(ownerOnly bool) []ai.Capability {
	list := make([]ai.Capability, 0, len(m.offers))
	if m.c.Paused {
		return list
	}
	for _, o := range m.offers {
		c := o.Capability
		if o.Full || ownerOnly {
			c.OfferScope = ai.OfferSelf
		}
		list = append(list, c)
	}
	return list
}

// free is how many jobs more may be taken on.
func (m *Machine) free() int {
	if m.c.Paused || len(m.offers) == 0 || len(m.served) == 0 || !m.reachable {
		return 0
	}
	return m.c.Concurrency - len(m.jobs)
}

func (m *Machine) planClaim() {
	c := &m.claim
	crowded := m.crowded()
	if c.seq != 0 && c.ownerOnly && c.wait > 0 && !crowded {
		m.claimAnew(m.now) // a place for others is free again
	}
	if c.seq != 0 || m.now.Before(c.next) || m.free() <= 0 {
		return
	}
	m.seq++
	*c = request{seq: m.seq, sent: m.now, wait: hold, fails: c.fails, max: m.free(), ownerOnly: crowded || m.ownFirst}
	if m.ownFirst && !crowded {
		c.wait = 0
	}
	m.do(Claim{Seq: c.seq, Wait: c.wait, Request: ai.ClaimRequest{
		RunnerID: m.c.Runner, Capabilities: m.capabilities(c.ownerOnly), Max: int64(m.free()),
	}})
}

func (m *Machine) planStop() {
	pending := m.releasing || len(m.back) > 0
	for _, j := range m.jobs {
		pending = pending || j.sending || m.now.Before(j.heldUntil)
	}
	if !pending || !m.now.Before(m.stopBy) {
		m.finish(Ended{})
	}
}

func (m *Machine) finish(how Ended) {
	m.do(Quit{Beat: true, Claim: true})
	m.do(how)
	m.ended = true
}

// retry is how long to wait after the n-th failure in a row: exponential, with
// full jitter, and never sooner than the server asked.
func (m *Machine) retry(n int, err error) time.Duration {
	_, asked := client.Retry(err)
	most := lastRetry
	if m.lease > 0 && len(m.jobs) > 0 {
		most = max(min(most, m.lease/6), firstRetry)
	}
	wait := min(firstRetry<<min(n, 16), most)
	return max(asked, time.Duration(m.rand.Int64N(int64(wait)+1)))
}

// interval is the time to the next heartbeat: shorter than a third of a lease
// while there is one to renew.
func (m *Machine) interval() time.Duration {
	d := heartbeat
	if m.lease > 0 && len(m.jobs) > 0 {
		d = min(d, m.lease/4)
	}
	return time.Duration(float64(d) * (0.85 + 0.3*m.rand.Float64()))
}

// idle is how long a server that does not hold requests is left alone when it had
// no work: briefly after there was some, since more often follows, and then longer
// and longer up to once a heartbeat.
func (m *Machine) idle() time.Duration {
	most := m.interval()
	if m.took.IsZero() {
		return most
	}
	return min(most, max(m.now.Sub(m.took)/idleShare, shortIdle))
}

func (Tick) apply(*Machine) {}

func (e Offered) apply(m *Machine) {
	if slices.EqualFunc(m.offers, e.Offers, Offer.Equal) {
		return
	}
	m.offers = slices.Clone(e.Offers)
	m.dismiss()
	m.want(m.now)
	m.claimAnew(m.now)
}

// claimAnew ends a claim that asks for what is no longer wanted, and asks again
// at that time.
func (m *Machine) claimAnew(next time.Time) {
	if m.claim.seq != 0 {
		m.do(Quit{Claim: true})
		m.claim.seq = 0
	}
	m.claim.next = next
}

func (m *Machine) allow(owners []ai.Owner) {
	m.allowed = map[ai.Owner]bool{}
	for _, owner := range owners {
		m.allowed[owner] = true
	}
}

func (e Allowed) apply(m *Machine) {
	m.allow(e.Owners)
	// Who was taken off the list is served no longer, also by what runs already.
	m.dismiss()
}

func (e Paused) apply(m *Machine) {
	if e.On != m.c.Paused {
		m.c.Paused = e.On
		m.want(m.now)
		m.claimAnew(m.now)
	}
	if e.On && e.Release {
		m.giveBack(ai.ReleasePause)
	}
}

// giveBack stops all work in flight and releases it.
func (m *Machine) giveBack(reason ai.ReleaseReason) {
	var back []*job
	m.each(func(j *job) {
		if !j.done {
			back = append(back, j)
		}
	})
	m.release(reason, back...)
	for _, j := range back {
		m.stop(j)
	}
}

func (Stop) apply(m *Machine) {
	if m.stopping {
		return
	}
	m.stopping, m.stopBy = true, m.now.Add(grace)
	m.do(Quit{Beat: true, Claim: true})
	m.beat.seq, m.claim.seq = 0, 0
	m.giveBack(ai.ReleaseShutdown)
}

func (e Restored) apply(m *Machine) {
	// Whether the leases are still held is asked by the first heartbeat.
	for _, k := range e.Results {
		m.jobs[k.Grant.LeaseID] = &job{
			stub: ai.ClaimedStub{Stub: ai.Stub{ID: k.Grant.JobID, Site: k.Site}, Lease: ai.Lease{ID: k.Grant.LeaseID, RunnerID: m.c.Runner}},
			done: true, until: k.Until,
		}
	}
}

// failed takes in a request that was refused or not answered.
func (m *Machine) failed(err error) {
	switch {
	case errors.Is(err, ai.ErrRevoked):
		m.revoked()
		return
	case errors.Is(err, client.ErrTwoAgents):
		m.twoAgents()
		return
	}
	// Another reason is news: a network that is away and a server that does not
	// know the device any more want different things of the owner.
	why := refusal.From(err).Kind()
	if m.reachable || !m.asked || why != m.why {
		m.do(Note{What: NoteUnreachable, Err: err})
	}
	m.reachable, m.asked, m.why = false, true, why
}

func (m *Machine) revoked() {
	m.do(Note{What: NoteRevoked})
	m.each(m.stop)
	m.finish(Ended{Revoked: true})
}

// twoAgents ends everything without a report: whether what was done here is what
// the owner asked for is not known until they said which agent is theirs. What
// was granted lapses.
func (m *Machine) twoAgents() {
	m.do(Note{What: NoteTwoAgents, Err: client.ErrTwoAgents})
	m.each(m.stop)
	m.finish(Ended{TwoAgents: true})
}

func (e BeatDone) apply(m *Machine) {
	b := &m.beat
	if e.Seq != b.seq {
		return
	}
	sent, held := b.sent, b.wait > 0 && m.now.Sub(b.sent) >= b.wait/2
	b.seq = 0
	if e.Err != nil {
		if m.failed(e.Err); m.ended {
			return
		}
		b.next = m.now.Add(m.retry(b.fails, e.Err))
		b.fails++
		return
	}
	b.fails = 0
	if !m.reachable && m.asked {
		m.do(Note{What: NoteReachable})
	}
	m.reachable, m.asked, m.answered = true, true, m.now
	m.offset, m.timed = e.Answer.ServerTime.Time().Sub(m.now), true
	m.sites(e.Answer)
	m.renewed(sent, e.Answer)
	next := sent.Add(m.interval())
	if held && len(m.jobs) > 0 {
		next = m.now
	}
	m.want(next)
}

// renewed takes in what a heartbeat said about grants.
func (m *Machine) renewed(sent time.Time, a ai.HeartbeatResponse) {
	for _, g := range a.Lost {
		if j := m.jobs[g.LeaseID]; j != nil && j.stub.ID == g.JobID && m.covers[g.LeaseID] {
			m.note(NoteLost, j, nil)
			m.stop(j)
		}
	}
	// The server renewed after it was asked, so the time counts from the asking.
	m.each(func(j *job) {
		if until := sent.Add(cmp.Or(m.lease, guessedLease)); m.covers[j.stub.Lease.ID] && until.After(j.heldUntil) {
			j.heldUntil = until
		}
	})
	for _, g := range a.Cancel {
		if j := m.jobs[g.LeaseID]; j != nil && j.stub.ID == g.JobID && !j.done && !j.canceled {
			j.canceled = true
			m.note(NoteCanceled, j, nil)
			m.do(Abort{Lease: g.LeaseID, Canceled: true})
		}
	}
}

func (e ClaimDone) apply(m *Machine) {
	c := &m.claim
	if e.Seq != c.seq {
		// It was given up, and perhaps answered before the server knew.
		var back []*job
		for _, s := range e.Answer.Jobs {
			back = append(back, &job{stub: s})
		}
		m.release(ai.ReleaseShutdown, back...)
		return
	}
	held := m.now.Sub(c.sent) >= c.wait/2
	c.seq = 0
	if e.Err != nil {
		if m.failed(e.Err); m.ended {
			return
		}
		c.next = m.now.Add(m.retry(c.fails, e.Err))
		c.fails++
		// Whether the server is there is the heartbeat's to find out.
		m.want(c.next)
		return
	}
	// Longer than longest is cut before it is multiplied.
	m.lease = time.Duration(min(max(e.Answer.LeaseMs, 0), longest.Milliseconds())) * time.Millisecond
	taken := m.take(e.Answer.Jobs, c.max)
	if taken > 0 {
		m.took = m.now
	}
	first := m.ownFirst && c.ownerOnly && c.wait == 0
	if first {
		m.ownFirst = false
	}
	switch {
	case first && len(e.Answer.Jobs) == 0:
		c.fails, c.next = 0, m.now // and now for anybody's
	case taken > 0 || len(e.Answer.Jobs) == 0 && held:
		c.fails, c.next = 0, m.now
	case len(e.Answer.Jobs) == 0:
		c.fails, c.next = 0, m.now.Add(m.idle())
	default:
		// A server that grants what cannot be taken is asked less and less.
		c.next = m.now.Add(m.retry(c.fails, nil))
		c.fails++
	}
}

// take takes on what may run here of at most most grants, and gives the others
// back.
func (m *Machine) take(grants []ai.ClaimedStub, most int) (taken int) {
	var refused, surplus []*job
	for i, s := range grants {
		if m.jobs[s.Lease.ID] != nil || m.past[s.Lease.ID] {
			continue
		}
		j := &job{stub: s, heldUntil: m.until(s.Lease)}
		switch offer, err := m.Admit(s); {
		case i >= most || len(m.jobs) >= m.c.Concurrency || err == nil && m.foreign(s) && m.crowded():
			// More than was asked for, or than is wanted now.
			surplus = append(surplus, j)
		case err != nil:
			m.note(NoteRefused, j, err)
			refused = append(refused, j)
		case m.lease < shortest:
			m.note(NoteShortLease, j, nil)
			surplus = append(surplus, j)
		default:
			j.offer = offer
			m.jobs[s.Lease.ID] = j
			m.note(NoteGranted, j, nil)
			m.do(Work{Stub: s, Offer: offer})
			m.ownFirst = m.c.Concurrency == 1 && m.foreign(s)
			m.want(m.now.Add(cover))
			taken++
		}
	}
	m.release(ai.ReleaseShutdown, surplus...)
	m.release(ai.ReleaseRefused, refused...)
	return taken
}

// until is how long a lease that was just granted is held at least: its length
// from now, and never later than its own end by the server's clock.
func (m *Machine) until(l ai.Lease) time.Time {
	until := m.now.Add(m.lease)
	if m.timed {
		if left := l.ExpiresAt.Time().Sub(m.now.Add(m.offset)); m.now.Add(left).Before(until) {
			until = m.now.Add(left)
		}
	}
	return until
}

func (e WorkDone) apply(m *Machine) {
	j := m.jobs[e.Lease]
	if j == nil || j.done {
		if e.End == WorkKept && j == nil {
			// Its lease ended in the meantime, so nothing is reported.
			m.do(Drop{ai.Grant{LeaseID: e.Lease}})
		}
		return
	}
	switch e.End {
	case WorkKept:
		j.done, j.until, j.next = true, e.Until, m.now
		return
	case WorkRefused:
		m.note(NoteRefused, j, e.Err)
		m.release(ai.ReleaseRefused, j)
	case WorkDown:
		m.release(ai.ReleaseBackendDown, j)
		m.end(j)
		// What was just given back would come again at once, also to a claim that is
		// held already.
		m.claimAnew(m.now.Add(m.interval()))
		return
	}
	m.end(j)
	m.claim.soon(m.now)
}

// soon asks again now, unless the server told us to wait.
func (r *request) soon(now time.Time) {
	if r.fails == 0 {
		r.next = now
	}
}

func (e SendDone) apply(m *Machine) {
	j := m.jobs[e.Lease]
	if j == nil || !j.sending {
		return
	}
	j.sending = false
	switch {
	case e.Err == nil && e.Answer.Accepted:
		m.note(NoteAnswered, j, nil)
	case e.Err == nil:
		m.note(NoteNotAccepted, j, nil)
	case errors.Is(e.Err, ai.ErrRevoked):
		m.revoked()
		return
	default:
		if again, _ := client.Retry(e.Err); again || errors.Is(e.Err, ai.ErrUnauthorized) {
			j.next = m.now.Add(m.retry(j.fails, e.Err))
			j.fails++
			return
		}
		m.note(NoteNotAccepted, j, e.Err)
	}
	m.end(j)
	m.claim.soon(m.now)
}

func (e ReleaseDone) apply(m *Machine) { m.releasing = false }
