package spark

import (
	"errors"
	"io"
	"time"

	"github.com/allodhq/allod/internal/node/authority"
	"github.com/allodhq/allod/internal/node/pace"
	"github.com/allodhq/allod/internal/node/pallet"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/handshake"
	wire "github.com/allodhq/allod/wire/zone/spark"
)

// What this package refuses.
var (
	ErrJoined = refusal.NewKind("node-joined", 409,
		"This machine is a node already.",
		"To move it to another controller, remove the node there, run allod-node leave here, and join again.")
	ErrNotJoined = refusal.NewKind("node-not-joined", 409,
		"This machine is no node yet.",
		"Join it with a line from allod node invite.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Spark", Kinds: []*refusal.Kind{ErrJoined, ErrNotJoined}}

// KeepReceipt is how often a receipt is written to the disk.
const KeepReceipt = 5 * time.Minute

// Core is Spark's part in node trust. It is used by one goroutine at a time.
type Core struct {
	state State
	save  func(State) error
	rand  io.Reader

	unsaved bool
	looked  bool // the controller said that the node may adopt
	bound   bool // Pallet confirmed the pending proposal, to this process
	orphan  bool // Pallet has not the credential of the pending proposal
	recover bool // the controller has a receipt for the pending proposal
	due     bool // the controller asked for a new credential
	late    bool // the current bearer counts no more, as far as is known
	turn    bool // the rotation was tried since the last report
	kept    time.Time
	retry   backoff
	pace    pace.Pace
}

// New continues from a state. save returns once a state is on the disk.
func New(s State, save func(State) error, rand io.Reader) *Core {
	return &Core{state: s, save: save, rand: rand, pace: pace.New(wire.Interval)}
}

// Every sets how often Core reports, where it is not once per wire.Interval. It comes before the
// first Next.
func (c *Core) Every(d time.Duration) { c.pace = pace.New(d) }

// State is what Core has now.
func (c *Core) State() State { return c.state }

// must makes a state the current one once it is on the disk, and returns save's
// error, after which the old state counts.
func (c *Core) must(s State) error {
	if err := c.save(s); err != nil {
		return err
	}
	c.state, c.unsaved = s, false
	return nil
}

// may makes a state the current one and tries to save it. What is lost with it can
// be asked for again, so a full disk does not keep the node from going on.
func (c *Core) may(s State) {
	c.unsaved = c.save(s) != nil
	c.state = s
}

// Join begins the enrollment of a fresh node. The same line again goes on with what
// was begun, or finds it done; another line takes the place of one whose enrollment has
// no acknowledgement. It returns ErrJoined, save's and rand's errors.
func (c *Core) Join(l enroll.JoinLine, hostname string) error {
	to := Controller{l.Origin, l.Pin}
	if p := c.state.Pending; p != nil && p.Code.Hash().Equal(l.Code.Hash()) && c.state.Controller == to {
		return nil
	}
	if c.state.Active != nil {
		if c.state.Line.Equal(l.Code.Hash()) {
			return nil // whoever asked was cut off before the end
		}
		return ErrJoined
	}
	p, err := c.newPending(hostname)
	if err != nil {
		return err
	}
	p.Code = l.Code
	return c.begin(State{Controller: to, Pending: p})
}

// Adopt begins the enrollment of a new Pallet of a node. It takes the place of an
// enrollment that the controller has acknowledged and Pallet has not confirmed. It
// returns ErrNotJoined, save's and rand's errors.
func (c *Core) Adopt(hostname string) error {
	if c.state.Active == nil {
		return ErrNotJoined
	}
	if p := c.state.Pending; p != nil && p.Acknowledged == nil {
		return nil
	}
	p, err := c.newPending(hostname)
	if err != nil {
		return err
	}
	s := c.state
	s.Pending = p
	return c.begin(s)
}

func (c *Core) newPending(hostname string) (*Pending, error) {
	b, err := enroll.NewBearer(c.rand)
	if err != nil {
		return nil, err
	}
	id, err := authority.NewID(c.rand, "enrollment")
	if err != nil {
		return nil, err
	}
	return &Pending{ID: enroll.EnrollmentID(id), Hostname: hostname, Bearer: b}, nil
}

// again begins the pending enrollment anew, where it can be kept.
func (c *Core) again() {
	p, err := c.newPending(c.state.Pending.Hostname)
	if err != nil {
		return
	}
	p.Code = c.state.Pending.Code
	s := c.state
	s.Pending = p
	_ = c.begin(s)
}

func (c *Core) begin(s State) error {
	if err := c.must(s); err != nil {
		return err
	}
	c.forget()
	return nil
}

// forget forgets how far a pending enrollment is.
func (c *Core) forget() {
	c.looked, c.bound, c.orphan, c.recover, c.retry = false, false, false, false, backoff{}
}

// drop ends a pending enrollment.
func (c *Core) drop() {
	s := c.state
	s.Pending = nil
	c.may(s)
	c.forget()
}

// Move makes another address the controller's, whose authority has the same pin. The
// caller has found that it answers this node. It returns save's error.
func (c *Core) Move(to Controller) error {
	s := c.state
	s.Controller = to
	return c.must(s)
}

// Step is the next thing to do.
type Step interface{ step() }

// Wait is to do nothing before a time, or for ever where Until is zero.
type Wait struct{ Until time.Time }

// Look is to ask the controller whether the node may adopt (getNodeEnrollmentState).
// [Core.Looked] takes the answer.
type Look struct{ Bearer enroll.Bearer }

// Prepare is to have Pallet prepare its credential. [Core.Prepared] takes the answer.
type Prepare struct{}

// Bind is to have Pallet bind it to the proposal. [Core.Bound] takes the answer.
type Bind struct{ Request enroll.BindRequest }

// Enroll is to bring the proposal before the controller. [Core.Enrolled] takes the
// answer.
type Enroll struct {
	Proposal enroll.Proposal
	Proof    enroll.Proof
}

// Activate is to hand Pallet the acknowledgement. [Core.Activated] takes the answer.
type Activate struct{ Request enroll.ActivateRequest }

// Report is to post a report, with the bearer. [Core.Reported] takes the answer.
type Report struct{ Bearer enroll.Bearer }

// Rotate is to ask the controller for the next credential. [Core.Rotated] takes the
// answer.
type Rotate struct {
	Bearer   enroll.Bearer
	Rotation enroll.Rotation
}

func (Wait) step()     {}
func (Look) step()     {}
func (Prepare) step()  {}
func (Bind) step()     {}
func (Enroll) step()   {}
func (Activate) step() {}
func (Report) step()   {}
func (Rotate) step()   {}

// Next is what to do now. [Core.Failed] takes a step that failed.
func (c *Core) Next(now time.Time) Step {
	if c.unsaved {
		c.may(c.state)
	}
	p := c.state.Pending
	pending := p != nil
	// A credential is renewed before and after an enrollment, and never while one that
	// names it may be on its way.
	renews := p == nil || p.Proposal == nil || p.Acknowledged != nil
	retry, wait := c.retry.wait(now)
	if pending && p.Proposal == nil && c.state.Active != nil && c.state.Active.Renewing() {
		pending = false // only the controller knows which of the two bearers counts
	}
	switch {
	case pending && !wait:
		return c.enrolling()
	case pending && c.state.Active == nil:
		return Wait{retry}
	case c.state.Active == nil:
		return Wait{}
	}
	if until, wait := c.pace.Wait(now, c.rand); wait {
		if pending && retry.Before(until) {
			until = retry
		}
		return Wait{until}
	}
	if c.due && renews && !c.state.Active.Renewing() {
		// A next bearer that is not on the disk is never sent. Reports go on without.
		if a, err := c.state.Active.Renew(c.rand); err == nil {
			s := c.state
			s.Active = &a
			_ = c.must(s)
		}
	}
	// Where a rotation fails, reports and rotations take turns, since either may be
	// what the controller answers.
	if c.state.Active.Renewing() && renews && !c.turn {
		b, r := c.state.Active.Ask(c.late)
		return Rotate{b, r}
	}
	return Report{c.state.Active.Bearer}
}

// enrolling is the next step of the pending enrollment.
func (c *Core) enrolling() Step {
	p := c.state.Pending
	switch {
	case p.Acknowledged != nil:
		return Activate{enroll.ActivateRequest{Enrollment: *p.Proposal, Acknowledgement: *p.Acknowledged}}
	case p.Proposal == nil && p.adopts() && !c.looked:
		return Look{c.state.Active.Bearer}
	case p.Proposal == nil:
		return Prepare{}
	case !c.bound && !c.orphan:
		return Bind{enroll.BindRequest{Enrollment: *p.Proposal}}
	case c.recover:
		return Enroll{*p.Proposal, enroll.PendingSparkProof(p.Bearer)}
	case p.adopts():
		return Enroll{*p.Proposal, enroll.BootstrapByBearer(c.state.Active.Bearer)}
	default:
		return Enroll{*p.Proposal, enroll.BootstrapByCode(p.Code)}
	}
}

// Looked takes what the controller says about the node. It returns enroll.ErrConflict
// where there is a Pallet, after which the adoption is given up, and
// enroll.ErrCredential where the answer is about somebody else.
func (c *Core) Looked(now time.Time, r enroll.StateResponse) error {
	var err error
	switch who := c.state.Active.Who; {
	case r.Spark.Identity(r.NodeID) != who:
		err = enroll.ErrCredential
	case !r.PalletAbsent:
		c.drop()
		return enroll.ErrConflict
	}
	c.looked = err == nil
	return c.went(now, err)
}

// Prepared takes the hash of Pallet's credential and makes the proposal. It returns
// what enroll.BindPrepared does, and save's error.
func (c *Core) Prepared(now time.Time, r enroll.PrepareResponse) error {
	if c.state.Pending == nil || c.state.Pending.Proposal != nil {
		return nil // for an enrollment that another one has replaced
	}
	p := *c.state.Pending
	proposal := enroll.Proposal{Origin: c.state.Controller.Origin, Hostname: p.Hostname, EnrollmentID: p.ID}
	proposal.Spark.CredentialHash = p.Bearer.Hash()
	if p.adopts() {
		who := c.state.Active.Who
		proposal.NodeID = who.NodeID
		proposal.BootstrapProofHash = c.state.Active.Bearer.Hash()
		proposal.Spark.ExpectedGeneration, proposal.Spark.ExpectedSessionEpoch = who.Generation, who.SessionEpoch
	} else {
		proposal.BootstrapProofHash = p.Code.Hash()
	}
	hash, err := enroll.BindPrepared(r, proposal.Spark.CredentialHash, proposal.BootstrapProofHash)
	if err == nil {
		proposal.Pallet.CredentialHash = hash
		p.Proposal = &proposal
		s := c.state
		s.Pending = &p
		err = c.must(s)
	}
	return c.went(now, err)
}

// Bound takes Pallet's confirmation. It returns what enroll.BindBound does.
func (c *Core) Bound(now time.Time, r enroll.BindResponse) error {
	if c.proposal() == nil {
		return enroll.ErrConfirmation
	}
	err := enroll.BindBound(enroll.BindRequest{Enrollment: *c.state.Pending.Proposal}, r)
	c.bound = err == nil
	return c.went(now, err)
}

// Enrolled takes the controller's acknowledgement, with which Spark is who it says:
// Spark and Pallet become active apart from each other (F08). It returns what
// enroll.BindAcknowledgement does.
func (c *Core) Enrolled(now time.Time, a enroll.Acknowledgement) error {
	if c.proposal() == nil {
		return enroll.ErrReceipt
	}
	err := enroll.BindAcknowledgement(*c.state.Pending.Proposal, a)
	if err == nil && c.state.Pending.Acknowledged == nil {
		p := *c.state.Pending
		p.Acknowledged = &a
		active := authority.New(a.Identity(enroll.Spark), p.Bearer)
		line := c.state.Line
		if !p.adopts() {
			line = p.Code.Hash()
		}
		c.may(State{Controller: c.state.Controller, Pending: &p, Active: &active, Evidence: &a, Line: line})
		c.due, c.late, c.turn = false, false, false
		c.pace.Now(now)
	}
	return c.went(now, err)
}

// Activated takes Pallet's confirmation, which ends the enrollment. It returns what
// enroll.BindActive does.
func (c *Core) Activated(now time.Time, r enroll.ActivateResponse) error {
	p := c.state.Pending
	if p == nil || p.Acknowledged == nil {
		return enroll.ErrConfirmation
	}
	err := enroll.BindActive(enroll.ActivateRequest{Enrollment: *p.Proposal, Acknowledgement: *p.Acknowledged}, r)
	if err != nil {
		return c.went(now, err)
	}
	c.drop()
	return nil
}

// proposal is the pending one, or nil.
func (c *Core) proposal() *enroll.Proposal {
	if c.state.Pending == nil {
		return nil
	}
	return c.state.Pending.Proposal
}

// went notes how a step of an enrollment went.
func (c *Core) went(now time.Time, err error) error {
	if err != nil {
		c.retry.failed(now, err)
	} else {
		c.retry = backoff{}
	}
	return err
}

// Reported takes the answer to a report. It returns what spark.BindReceipt does.
func (c *Core) Reported(now time.Time, report wire.Report, r wire.Response) error {
	c.turn = false
	if err := wire.BindReceipt(c.state.Active.Who, report, r.Receipt); err != nil {
		c.pace.Failed(now, err)
		return err
	}
	c.state.Last = &r.Receipt
	if now.Sub(c.kept) >= KeepReceipt || now.Before(c.kept) {
		c.may(c.state)
		c.kept = now
	}
	asked := c.due
	if c.due = r.RotationRequired; c.due && !asked {
		c.pace.Soon(now, c.rand)
	} else {
		c.pace.Done(now)
	}
	return nil
}

// Rotated takes the receipt of a rotation. It returns what
// authority.Authority.Renewed does, which changes nothing.
func (c *Core) Rotated(now time.Time, r enroll.RotationReceipt) error {
	a, err := c.state.Active.Renewed(r)
	if err != nil {
		c.turn = true
		c.pace.Failed(now, err)
		return err
	}
	s := c.state
	s.Active = &a
	c.may(s)
	c.due, c.late, c.turn = false, false, false
	c.pace.Done(now)
	return nil
}

// Failed takes the error of a step. It reports whether a pending enrollment was
// given up, because the controller refused it for good.
func (c *Core) Failed(now time.Time, step Step, err error) (gaveUp bool) {
	switch step := step.(type) {
	case Report:
		c.turn = false
		c.pace.Failed(now, err)
		if errors.Is(err, enroll.ErrCredential) && c.state.Active.Renewing() {
			c.late = true // the answer to the rotation was lost
		}
	case Rotate:
		c.turn = true
		c.pace.Failed(now, err)
		switch {
		case errors.Is(err, enroll.ErrCredential), errors.Is(err, enroll.ErrRotationProof):
			c.late = !c.late // the other bearer is the one that counts, or neither is
		case errors.Is(err, enroll.ErrRotationConflict):
			s := c.state
			a := s.Active.GiveUp()
			s.Active = &a
			c.may(s)
			c.late = false
		}
	case Enroll:
		if p := c.proposal(); p == nil || *p != step.Proposal || c.state.Pending.Acknowledged != nil {
			return false // it is another enrollment's, or over
		}
		if errors.Is(err, enroll.ErrProofMode) {
			if c.orphan { // nothing was recorded, so it begins again with what Pallet has now
				c.again()
				c.retry.failed(now, err)
				return false
			}
			if c.recover = !c.recover; c.recover {
				return false // at once: somebody waits
			}
			c.retry.failed(now, err)
			return false
		}
		c.retry.failed(now, err)
		if final(err) && !c.recover {
			c.drop()
			return true
		}
	case Look:
		c.retry.failed(now, err)
		if p := c.state.Pending; final(err) && p != nil && p.Proposal == nil {
			c.drop()
			return true
		}
	case Bind:
		c.retry.failed(now, err)
		if p := c.proposal(); p != nil && *p == step.Request.Enrollment && errors.Is(err, pallet.ErrNotPrepared) {
			// Pallet has another credential now. Whether the proposal was recorded before
			// that only the controller knows, and this proof makes it record nothing.
			c.orphan, c.recover = true, true
		}
	case Activate:
		c.retry.failed(now, err)
		if errors.Is(err, pallet.ErrActive) {
			c.drop() // it was activated, and has renewed its credential since
		}
	default:
		c.retry.failed(now, err)
	}
	return false
}

// final reports whether a controller refused an enrollment for good, and has
// recorded nothing of it.
func final(err error) bool {
	for _, kind := range []error{enroll.ErrInvitation, enroll.ErrElsewhere, enroll.ErrConflict, enroll.ErrProof, enroll.ErrCredential, enroll.ErrExpired} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// backoff spaces the tries of an enrollment, which somebody waits for.
type backoff struct {
	tries int
	until time.Time
	ahead time.Duration // how far until was ahead when it was set
}

func (b *backoff) wait(now time.Time) (time.Time, bool) {
	if b.until.Sub(now) > b.ahead { // the clock was set back
		b.until = now.Add(b.ahead)
	}
	return b.until, now.Before(b.until)
}

func (b *backoff) failed(now time.Time, err error) {
	b.ahead = min(time.Second<<min(b.tries, 10), 30*time.Second)
	if errors.Is(err, handshake.ErrIncompatible) {
		b.ahead = handshake.RetryInterval
	} else {
		b.tries++
	}
	b.until = now.Add(b.ahead)
}
