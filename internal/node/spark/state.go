package spark

import (
	"encoding/base64"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/node/authority"
	"github.com/allodhq/allod/internal/node/keep"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
	wire "github.com/allodhq/allod/wire/zone/spark"
)

// State is what Spark must not forget. The zero value is that of a machine which
// nobody has joined.
type State struct {
	// Controller is where the controller is.
	Controller Controller
	// Pending is the enrollment that was begun, or nil.
	Pending *Pending
	// Active is who Spark is, or nil.
	Active *authority.Authority
	// Evidence is the acknowledgement that made it so, or nil.
	Evidence *enroll.Acknowledgement
	// Line is the hash of the join line's code by which the machine became a node, so
	// that the same line again is no mistake. The code is used up and no secret.
	Line enroll.CredentialHash
	// Last is the receipt of the last report, and on the disk that of an earlier one; or
	// nil.
	Last *wire.Receipt
}

// Controller is where a controller is, and how it is known again.
type Controller struct {
	Origin enroll.Origin
	// Pin is that of its authority; none where its certificate is one that the machine
	// trusts anyway.
	Pin enroll.Pin
}

// Pending is an enrollment on its way.
type Pending struct {
	ID       enroll.EnrollmentID
	Hostname string
	// Bearer is the credential that Spark prepared.
	Bearer enroll.Bearer
	// Code is the join line's; none for an adoption, whose proof is the active bearer.
	Code enroll.JumpCode
	// Proposal is nil until Pallet has prepared its credential.
	Proposal *enroll.Proposal
	// Acknowledged is nil until the controller has answered.
	Acknowledged *enroll.Acknowledgement
}

// adopts reports whether the enrollment is that of a node which has no Pallet.
func (p Pending) adopts() bool { return p.Code.IsZero() }

// Shape is the state in Spark's file.
var Shape = exact.Shape[State]{Fields: func(o *exact.Object, s *State) {
	controller(o, &s.Controller)
	exact.OptSub(o, "pending", &s.Pending, pendingShape)
	exact.OptSub(o, "active", &s.Active, authority.Shape)
	keep.Document(o, "evidence", enroll.AcknowledgementCodec, &s.Evidence)
	keep.Document(o, "lastReceipt", wire.ReceiptCodec, &s.Last)
	line := ""
	if !s.Line.IsZero() {
		line = s.Line.Text()
	}
	exact.OptText(o, "line", &line, 64, 64)
	if !o.Writing() && line != "" {
		var ok bool
		if s.Line, ok = enroll.ParseCredentialHash(line); !ok {
			o.Fail(exact.ErrRange, "the hash of a join line's code")
		}
	}
	if o.Writing() || o.Failed() {
		return
	}
	switch {
	case s.Active != nil && s.Active.Who.Purpose != enroll.Spark:
		o.Fail(exact.ErrMember, "an authority of spark")
	case (s.Active != nil || s.Pending != nil) && s.Controller.Origin.IsZero():
		o.Fail(exact.ErrMissing, "the origin of a controller")
	case s.Pending != nil && (s.Pending.adopts() || s.Pending.Acknowledged != nil) && s.Active == nil:
		o.Fail(exact.ErrMissing, "the code of a join line, or an authority")
	}
}}

var pendingShape = exact.Shape[Pending]{Fields: func(o *exact.Object, p *Pending) {
	exact.Spelled(o, "enrollmentId", &p.ID, zone.MaxID, "an identifier", zone.ValidID)
	exact.Spelled(o, "hostname", &p.Hostname, enroll.MaxHostname, "a host name", enroll.ValidHostname)
	keep.Bearer(o, "bearer", &p.Bearer)
	code := p.Code.Reveal()
	exact.OptText(o, "code", &code, 1, enroll.JumpCodeText)
	keep.Document(o, "proposal", enroll.ProposalCodec, &p.Proposal)
	keep.Document(o, "acknowledged", enroll.AcknowledgementCodec, &p.Acknowledged)
	if o.Writing() || o.Failed() {
		return
	}
	if code != "" {
		var err error
		if p.Code, err = enroll.ParseJumpCode(code); err != nil {
			o.Fail(exact.ErrRange, "the code of a join line")
		}
	}
	if p.Bearer.IsZero() || p.Acknowledged != nil && p.Proposal == nil {
		o.Fail(exact.ErrMissing, "a bearer, and a proposal before its acknowledgement")
		return
	}
	if p.Proposal != nil && !p.Proposal.Spark.CredentialHash.Equal(p.Bearer.Hash()) ||
		p.Acknowledged != nil && enroll.BindAcknowledgement(*p.Proposal, *p.Acknowledged) != nil {
		o.Fail(exact.ErrRange, "a proposal of the bearer, and its acknowledgement")
	}
}}

// ControllerShape is a controller in a file.
var ControllerShape = exact.Shape[Controller]{Fields: controller}

func controller(o *exact.Object, c *Controller) {
	origin, pin := "", ""
	if o.Writing() {
		if !c.Origin.IsZero() {
			origin = c.Origin.String()
		}
		if !c.Pin.IsZero() {
			pin = c.Pin.String()
		}
	}
	exact.OptText(o, "origin", &origin, 1, enroll.MaxOrigin)
	exact.OptText(o, "pin", &pin, 1, base64.RawURLEncoding.EncodedLen(32))
	if o.Writing() || o.Failed() {
		return
	}
	var err error
	if origin != "" {
		if c.Origin, err = enroll.ParseOrigin(origin); err != nil {
			o.Fail(exact.ErrRange, "an origin")
		}
	}
	if pin != "" {
		if c.Pin, err = enroll.ParsePin(pin); err != nil {
			o.Fail(exact.ErrRange, "a pin")
		}
	}
}
