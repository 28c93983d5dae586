package pallet_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/node/keep"
	"github.com/allodhq/allod/internal/node/pallet"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/handshake"
)

// host is a Pallet with its disk, and a clock that only the test moves.
type host struct {
	t    *testing.T
	disk []byte
	full bool
	core *pallet.Core
	now  time.Time
	rand io.Reader
}

func newHost(t *testing.T) *host {
	h := &host{t: t, now: time.UnixMilli(1_700_000_000_000), rand: rand.NewChaCha8([32]byte{11})}
	h.restart()
	return h
}

func (h *host) save(s pallet.State) error {
	if h.full {
		return datadir.ErrWrite
	}
	text, err := pallet.Shape.Bytes(s)
	if err == nil {
		h.disk = text
	}
	return err
}

func (h *host) restart() {
	h.t.Helper()
	var s pallet.State
	if h.disk != nil {
		var err error
		if s, err = pallet.Shape.Read(h.disk, keep.Limits); err != nil {
			h.t.Fatal(err)
		}
	}
	h.core = pallet.New(s, h.save, h.rand)
}

func take[S pallet.Step](h *host) S {
	h.t.Helper()
	for range 5 {
		step := h.core.Next(h.now)
		if s, ok := step.(S); ok {
			return s
		}
		w, ok := step.(pallet.Wait)
		if !ok || w.Until.IsZero() {
			h.t.Fatalf("the next step is %+v", step)
		}
		h.now = w.Until
	}
	h.t.Fatal("it waits for ever")
	panic("")
}

func (h *host) ok(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) proposal(fill byte) enroll.Proposal {
	h.t.Helper()
	r, err := h.core.Prepare()
	h.ok(err)
	b, err := enroll.NewBearer(rand.NewChaCha8([32]byte{fill}))
	h.ok(err)
	code, err := enroll.NewJumpCode(rand.NewChaCha8([32]byte{fill}))
	h.ok(err)
	p := enroll.Proposal{Hostname: "host", EnrollmentID: "e1", BootstrapProofHash: code.Hash()}
	p.Origin, err = enroll.ParseOrigin("https://zone.test")
	h.ok(err)
	p.Spark.CredentialHash, p.Pallet.CredentialHash = b.Hash(), r.CredentialHash
	return p
}

func (h *host) activation(p enroll.Proposal) enroll.ActivateRequest {
	h.t.Helper()
	a, err := enroll.Acknowledge(p, "node-1")
	h.ok(err)
	return enroll.ActivateRequest{Enrollment: p, Acknowledgement: a}
}

func (h *host) joins() enroll.ActivateRequest {
	h.t.Helper()
	p := h.proposal(1)
	_, err := h.core.Bind(enroll.BindRequest{Enrollment: p})
	h.ok(err)
	r := h.activation(p)
	_, err = h.core.Activate(r)
	h.ok(err)
	return r
}

var errAway = errors.New("the controller is away")

// TestF10EveryStepIsDurableAndCanBeRepeated kills Pallet after every step. What it
// confirmed is still there, and a repetition has the same answer.
func TestF10EveryStepIsDurableAndCanBeRepeated(t *testing.T) {
	h := newHost(t)
	first, err := h.core.Prepare()
	h.ok(err)
	h.restart()
	again, err := h.core.Prepare()
	if err != nil || again != first {
		t.Errorf("prepared %v, then %v: %v", first, again, err)
	}
	p := h.proposal(1)
	if _, err := h.core.Activate(h.activation(p)); !errors.Is(err, pallet.ErrNotBound) {
		t.Errorf("activated before it was bound: %v", err)
	}
	other := p
	stranger, err := enroll.NewBearer(h.rand)
	h.ok(err)
	other.Pallet.CredentialHash = stranger.Hash()
	if _, err := h.core.Bind(enroll.BindRequest{Enrollment: other}); !errors.Is(err, pallet.ErrNotPrepared) {
		t.Errorf("bound to another credential: %v", err)
	}
	for range 2 {
		b, err := h.core.Bind(enroll.BindRequest{Enrollment: p})
		if err != nil || b.NodeID != "" || enroll.BindBound(enroll.BindRequest{Enrollment: p}, b) != nil {
			t.Errorf("%+v %v", b, err)
		}
		h.restart()
	}
	foreign := p
	foreign.EnrollmentID = "e9"
	if _, err := h.core.Activate(h.activation(foreign)); !errors.Is(err, pallet.ErrNotBound) {
		t.Errorf("activated by another enrollment: %v", err)
	}
	r := h.activation(p)
	bad := r
	bad.Acknowledgement.Pallet.Generation = 2
	if _, err := h.core.Activate(bad); !errors.Is(err, enroll.ErrReceipt) {
		t.Errorf("activated by a receipt that does not bind: %v", err)
	}
	for range 2 {
		a, err := h.core.Activate(r)
		if err != nil || enroll.BindActive(r, a) != nil {
			t.Errorf("%+v %v", a, err)
		}
		h.restart()
		if s := h.core.State(); s.Active == nil || !s.Prepared.IsZero() || s.Active.Bearer.Hash() != first.CredentialHash || s.Active.Who.NodeID != "node-1" {
			t.Errorf("%+v", s)
		}
	}
	// Now it is active: nothing of another enrollment counts, and what comes late of
	// this one has its answer.
	if _, err := h.core.Prepare(); !errors.Is(err, pallet.ErrActive) {
		t.Error(err)
	}
	if _, err := h.core.Bind(enroll.BindRequest{Enrollment: foreign}); !errors.Is(err, pallet.ErrActive) {
		t.Error(err)
	}
	if _, err := h.core.Bind(enroll.BindRequest{Enrollment: p}); err != nil {
		t.Error(err)
	}
}

// TestF10AReceiptOfThePastConfirmsNothing: after a rotation the same activation is
// not confirmed, and Pallet says that it is active.
func TestF10AReceiptOfThePastConfirmsNothing(t *testing.T) {
	h := newHost(t)
	r := h.joins()
	h.rotates()
	if _, err := h.core.Activate(r); !errors.Is(err, pallet.ErrActive) {
		t.Error(err)
	}
	h.restart()
	if _, err := h.core.Activate(r); !errors.Is(err, pallet.ErrActive) || h.core.State().Active.Who.Generation != 2 {
		t.Error(err)
	}
}

func (h *host) told(rotate bool) error {
	who := h.core.State().Active.Who
	return h.core.Told(h.now, enroll.CredentialResponse{NodeID: who.NodeID, Credential: enroll.Metadata{
		Purpose: who.Purpose, State: enroll.Active, Generation: who.Generation, SessionEpoch: who.SessionEpoch, RotationRequired: rotate,
	}})
}

func receiptOf(who enroll.Identity, r enroll.Rotation) enroll.RotationReceipt {
	return enroll.RotationReceipt{RotationID: r.RotationID, NodeID: who.NodeID, Purpose: who.Purpose, Generation: who.Generation + 1, SessionEpoch: who.SessionEpoch + 1, RotatedAt: 1}
}

func (h *host) rotates() {
	h.t.Helper()
	take[pallet.Ask](h)
	h.ok(h.told(true))
	r := take[pallet.Rotate](h)
	h.ok(h.core.Rotated(h.now, receiptOf(h.core.State().Active.Who, r.Rotation)))
}

func TestF08AnotherEnrollmentTakesThePlaceOfOneThatWasGivenUp(t *testing.T) {
	h := newHost(t)
	one := h.proposal(1)
	_, err := h.core.Bind(enroll.BindRequest{Enrollment: one})
	h.ok(err)
	two := h.proposal(2)
	two.EnrollmentID = "e2"
	if _, err = h.core.Bind(enroll.BindRequest{Enrollment: two}); !errors.Is(err, pallet.ErrNotPrepared) {
		t.Errorf("one credential in two enrollments: %v", err)
	}
	h.restart()
	two = h.proposal(2)
	two.EnrollmentID = "e2"
	if two.Pallet.CredentialHash == one.Pallet.CredentialHash {
		t.Error("there is no other credential")
	}
	_, err = h.core.Bind(enroll.BindRequest{Enrollment: two})
	h.ok(err)
	h.restart()
	if _, err := h.core.Activate(h.activation(one)); !errors.Is(err, pallet.ErrNotBound) {
		t.Errorf("the one that was given up: %v", err)
	}
	if _, err := h.core.Activate(h.activation(two)); err != nil {
		t.Error(err)
	}
}

// TestAFullDiskConfirmsNothing, and sends no bearer that is not on it.
func TestAFullDiskConfirmsNothing(t *testing.T) {
	h := newHost(t)
	h.full = true
	if _, err := h.core.Prepare(); !errors.Is(err, datadir.ErrWrite) || !h.core.State().Prepared.IsZero() {
		t.Error(err)
	}
	h.full = false
	p := h.proposal(1)
	h.full = true
	if _, err := h.core.Bind(enroll.BindRequest{Enrollment: p}); !errors.Is(err, datadir.ErrWrite) || h.core.State().Bound != nil {
		t.Error(err)
	}
	h.full = false
	_, err := h.core.Bind(enroll.BindRequest{Enrollment: p})
	h.ok(err)
	h.full = true
	r := h.activation(p)
	if _, err := h.core.Activate(r); !errors.Is(err, datadir.ErrWrite) || h.core.State().Active != nil {
		t.Error(err)
	}
	h.full = false
	_, err = h.core.Activate(r)
	h.ok(err)
	take[pallet.Ask](h)
	h.full = true
	h.ok(h.told(true))
	for range 5 {
		step := h.core.Next(h.now)
		w, wait := step.(pallet.Wait)
		if !wait || h.core.State().Active.Renewing() {
			t.Fatalf("%T with a disk that is full", step)
		}
		h.now = w.Until
	}
	h.full = false
	q := take[pallet.Rotate](h)
	next, _ := h.core.State().Active.Ask(true)
	if !strings.Contains(string(h.disk), next.Reveal()) {
		t.Error("the next bearer is not on the disk")
	}
	h.full = true
	h.ok(h.core.Rotated(h.now, receiptOf(h.core.State().Active.Who, q.Rotation)))
	h.full = false
	h.restart() // it has both, and finds out which counts
	q = take[pallet.Rotate](h)
	h.core.Failed(h.now, q, enroll.ErrCredential)
	q = take[pallet.Rotate](h)
	if !q.Bearer.Equal(next) {
		t.Error("the next bearer is not tried")
	}
	h.ok(h.core.Rotated(h.now, receiptOf(h.core.State().Active.Who, q.Rotation)))
	if h.core.State().Active.Who.Generation != 2 || !h.core.State().Active.Bearer.Equal(next) {
		t.Error("the rotation is lost")
	}
}

// TestF09WhatIsToldOfAnotherCredentialCountsForNothing: of a generation before or
// after, of another node or purpose.
func TestF09WhatIsToldOfAnotherCredentialCountsForNothing(t *testing.T) {
	h := newHost(t)
	h.joins()
	h.rotates()
	for what, change := range map[string]func(r *enroll.CredentialResponse){
		"node": func(r *enroll.CredentialResponse) { r.NodeID = "n9" }, "purpose": func(r *enroll.CredentialResponse) { r.Credential.Purpose = enroll.Spark },
		"generation before": func(r *enroll.CredentialResponse) { r.Credential.Generation-- }, "generation after": func(r *enroll.CredentialResponse) { r.Credential.Generation++ },
	} {
		take[pallet.Ask](h)
		at := h.now
		who := h.core.State().Active.Who
		r := enroll.CredentialResponse{NodeID: who.NodeID, Credential: enroll.Metadata{Purpose: who.Purpose, State: enroll.Active, Generation: who.Generation, SessionEpoch: who.SessionEpoch, RotationRequired: true}}
		change(&r)
		before := string(h.disk)
		if err := h.core.Told(h.now, r); !errors.Is(err, enroll.ErrCredential) || string(h.disk) != before {
			t.Errorf("another %s: %v", what, err)
		}
		take[pallet.Ask](h)
		if d := h.now.Sub(at); d != pallet.Poll || h.core.State().Active.Renewing() {
			t.Errorf("another %s: it asks after %s", what, d)
		}
	}
}

func TestF03OnlyAProtocolRefusalWaitsForFiveMinutes(t *testing.T) {
	h := newHost(t)
	h.joins()
	old, err := handshake.Make("31.0.0", "31.0.0")
	h.ok(err)
	refused := handshake.Negotiate(handshake.Ours(handshake.SparkNode), old)
	for _, c := range []struct {
		err  error
		want time.Duration
	}{{errAway, pallet.Poll}, {refused, 300 * time.Second}, {enroll.ErrCredential, pallet.Poll}, {handshake.ErrOffer, pallet.Poll}} {
		a := take[pallet.Ask](h)
		at := h.now
		h.core.Failed(h.now, a, c.err)
		take[pallet.Ask](h)
		if d := h.now.Sub(at); d != c.want {
			t.Errorf("after %v it waits for %s", c.err, d)
		}
	}
	take[pallet.Ask](h)
	h.ok(h.told(true))
	r := take[pallet.Rotate](h)
	at := h.now
	h.core.Failed(h.now, r, refused)
	r = take[pallet.Rotate](h)
	if d := h.now.Sub(at); d != 300*time.Second {
		t.Errorf("a rotation waits for %s", d)
	}
	// A conflict ends the rotation: nobody has recorded it.
	h.core.Failed(h.now, r, enroll.ErrRotationConflict)
	if h.core.State().Active.Renewing() || strings.Contains(string(h.disk), `"next"`) {
		t.Error("the rotation goes on")
	}
}

func TestShapeRefusesWhatDoesNotGoTogether(t *testing.T) {
	h := newHost(t)
	p := h.proposal(1)
	_, err := h.core.Bind(enroll.BindRequest{Enrollment: p})
	h.ok(err)
	bound := string(h.disk)
	bearer := h.core.State().Prepared.Reveal()
	_, err = h.core.Activate(h.activation(p))
	h.ok(err)
	active := string(h.disk)
	for _, c := range []struct{ text, old, new string }{
		{bound, bearer, strings.Repeat("A", 43)}, {bound, `"prepared":"` + bearer + `",`, ""}, {bound, `"bound":"{`, `"bound":"[`},
		{active, `"purpose":"pallet"`, `"purpose":"spark"`}, {active, `"active":{`, `"none":{`}, {active, `"generation":1`, `"generation":0`},
	} {
		bad := strings.Replace(c.text, c.old, c.new, 1)
		if bad == c.text {
			t.Errorf("%s is not there", c.old)
		}
		if _, err := pallet.Shape.Read([]byte(bad), keep.Limits); err == nil {
			t.Errorf("%.40s instead of %.40s is taken", c.new, c.old)
		}
	}
	for _, text := range []string{bound, active} {
		s, err := pallet.Shape.Read([]byte(text), keep.Limits)
		h.ok(err)
		if again, err := pallet.Shape.Bytes(s); err != nil || string(again) != text {
			t.Errorf("%s became %s", text, again)
		}
	}
}
