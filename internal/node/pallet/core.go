package pallet

import (
	"errors"
	"io"
	"time"

	"github.com/allodhq/allod/internal/node/authority"
	"github.com/allodhq/allod/internal/node/pace"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/enroll"
)

// What this package refuses.
var (
	ErrActive = refusal.NewKind("pallet-active", 409,
		"Pallet is active already, and makes no credential for another enrollment.",
		"To give the node a new Pallet, run allod node rm with --pallet-only at the controller, and allod-node leave --pallet here. To end the node, remove it there and run allod-node leave here.")
	ErrNotPrepared = refusal.NewKind("pallet-not-prepared", 409,
		"The enrollment does not name the credential that Pallet has prepared.",
		"Begin the enrollment again, so that Pallet is asked for its credential first.")
	ErrNotBound = refusal.NewKind("pallet-not-bound", 409,
		"Pallet is not bound to this enrollment.",
		"Bind the enrollment first, as allod-node join does.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Pallet", Kinds: []*refusal.Kind{ErrActive, ErrNotPrepared, ErrNotBound}}

// Poll is how often Pallet asks the controller about its credential.
const Poll = time.Minute

// Core is Pallet's part in node trust. It is used by one goroutine at a time.
type Core struct {
	state State
	save  func(State) error
	rand  io.Reader

	unsaved bool
	due     bool // the controller asked for a new credential
	late    bool // the current bearer counts no more, as far as is known
	pace    pace.Pace
}

// New continues from a state. save returns once a state is on the disk.
func New(s State, save func(State) error, rand io.Reader) *Core {
	return &Core{state: s, save: save, rand: rand, pace: pace.New(Poll)}
}

// Every sets how often Core asks the controller, where it is not once per Poll. It comes before the
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

// Prepare makes the credential for an enrollment to come, or answers with the one
// that was made. It returns ErrActive, save's and rand's errors.
func (c *Core) Prepare() (enroll.PrepareResponse, error) {
	if c.state.Active != nil {
		return enroll.PrepareResponse{}, ErrActive
	}
	if c.state.Prepared.IsZero() {
		b, err := enroll.NewBearer(c.rand)
		if err != nil {
			return enroll.PrepareResponse{}, err
		}
		s := c.state
		s.Prepared = b
		if err := c.must(s); err != nil {
			return enroll.PrepareResponse{}, err
		}
	}
	return enroll.PrepareResponse{CredentialHash: c.state.Prepared.Hash()}, nil
}

// Bind ties the prepared credential to an enrollment, and to no other ever after:
// the controller may have recorded that one, whoever gave it up. So another
// enrollment is refused, and Pallet has a new credential for it from then on. It
// returns ErrActive, ErrNotPrepared, save's and rand's errors.
func (c *Core) Bind(r enroll.BindRequest) (enroll.BindResponse, error) {
	answer, err := enroll.Bound(r)
	if err != nil {
		return enroll.BindResponse{}, err
	}
	if a := c.state.Activation; a != nil && a.Enrollment == r.Enrollment {
		return answer, nil // a repetition that comes late
	}
	switch {
	case c.state.Active != nil:
		return enroll.BindResponse{}, ErrActive
	case c.state.Prepared.IsZero() || !r.Enrollment.Pallet.CredentialHash.Equal(c.state.Prepared.Hash()):
		return enroll.BindResponse{}, ErrNotPrepared
	}
	if c.state.Bound != nil && *c.state.Bound != r.Enrollment {
		b, err := enroll.NewBearer(c.rand)
		if err != nil {
			return enroll.BindResponse{}, err
		}
		if err := c.must(State{Prepared: b}); err != nil {
			return enroll.BindResponse{}, err
		}
		return enroll.BindResponse{}, ErrNotPrepared
	}
	if c.state.Bound == nil {
		s := c.state
		s.Bound = &r.Enrollment
		if err := c.must(s); err != nil {
			return enroll.BindResponse{}, err
		}
	}
	return answer, nil
}

// Activate makes Pallet who the acknowledgement says. It returns ErrNotBound, what
// enroll.ActivePallet does, and save's error; and ErrActive to a repetition that
// comes after Pallet has renewed its credential, which the answer could not name.
func (c *Core) Activate(r enroll.ActivateRequest) (enroll.ActivateResponse, error) {
	answer, err := enroll.ActivePallet(r)
	if err != nil {
		return enroll.ActivateResponse{}, err
	}
	if a := c.state.Activation; a != nil && *a == r {
		// A receipt of the past confirms nothing: it must be who Pallet is now.
		if w := c.state.Active.Who; w.Generation != answer.Generation || w.SessionEpoch != answer.SessionEpoch {
			return enroll.ActivateResponse{}, ErrActive
		}
		return answer, nil
	}
	if c.state.Bound == nil || *c.state.Bound != r.Enrollment {
		return enroll.ActivateResponse{}, ErrNotBound
	}
	active := authority.New(r.Acknowledgement.Identity(enroll.Pallet), c.state.Prepared)
	if err := c.must(State{Active: &active, Activation: &r}); err != nil {
		return enroll.ActivateResponse{}, err
	}
	return answer, nil
}

// Step is the next thing to do.
type Step interface{ step() }

// Wait is to do nothing before a time, or for ever where Until is zero: then only a
// request over the control socket changes anything.
type Wait struct{ Until time.Time }

// Ask is to ask the controller about the credential (getNodeCredential), with the
// bearer. [Core.Told] takes the answer.
type Ask struct{ Bearer enroll.Bearer }

// Rotate is to ask the controller for the next credential (rotateNodeCredential).
// [Core.Rotated] takes the answer.
type Rotate struct {
	Bearer   enroll.Bearer
	Rotation enroll.Rotation
}

func (Wait) step()   {}
func (Ask) step()    {}
func (Rotate) step() {}

// Next is what to do now. [Core.Failed] takes a step that failed.
func (c *Core) Next(now time.Time) Step {
	if c.unsaved {
		c.may(c.state)
	}
	if c.state.Active == nil {
		return Wait{}
	}
	if until, wait := c.pace.Wait(now, c.rand); wait {
		return Wait{until}
	}
	if c.due && !c.state.Active.Renewing() {
		a, err := c.state.Active.Renew(c.rand)
		if err == nil {
			s := c.state
			s.Active = &a
			err = c.must(s)
		}
		if err != nil { // a next bearer that is not on the disk is never sent
			c.pace.Failed(now, err)
			return Wait{c.pace.At()}
		}
	}
	if c.state.Active.Renewing() {
		b, r := c.state.Active.Ask(c.late)
		return Rotate{b, r}
	}
	return Ask{c.state.Active.Bearer}
}

// Told takes what the controller says about the credential. It returns
// enroll.ErrCredential where that is another one's, which changes nothing.
func (c *Core) Told(now time.Time, r enroll.CredentialResponse) error {
	who := c.state.Active.Who
	if r.NodeID != who.NodeID || r.Credential.Purpose != who.Purpose || r.Credential.Generation != who.Generation {
		c.pace.Failed(now, enroll.ErrCredential)
		return enroll.ErrCredential
	}
	asked := c.due
	if c.due = r.Credential.RotationRequired; c.due && !asked {
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
		c.pace.Failed(now, err)
		return err
	}
	s := c.state
	s.Active = &a
	c.may(s)
	c.due, c.late = false, false
	c.pace.Done(now)
	return nil
}

// Failed takes the error of a step.
func (c *Core) Failed(now time.Time, step Step, err error) {
	c.pace.Failed(now, err)
	if _, rotating := step.(Rotate); !rotating {
		return
	}
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
}
