package pallet

import (
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/node/authority"
	"github.com/allodhq/allod/internal/node/keep"
	"github.com/allodhq/allod/wire/zone/enroll"
)

// State is what Pallet must not forget. The zero value is that of a machine which
// nobody has joined.
type State struct {
	// Prepared is the credential that waits for an enrollment; none when there is none.
	Prepared enroll.Bearer
	// Bound is the enrollment that the prepared credential is tied to, or nil.
	Bound *enroll.Proposal
	// Active is who Pallet is, or nil.
	Active *authority.Authority
	// Activation is what made it so, so that a repetition has the same answer; or nil.
	Activation *enroll.ActivateRequest
}

// Shape is the state in Pallet's file.
var Shape = exact.Shape[State]{Fields: func(o *exact.Object, s *State) {
	keep.Bearer(o, "prepared", &s.Prepared)
	keep.Document(o, "bound", enroll.ProposalCodec, &s.Bound)
	exact.OptSub(o, "active", &s.Active, authority.Shape)
	keep.Document(o, "activation", enroll.ActivateRequestCodec, &s.Activation)
	if o.Writing() || o.Failed() {
		return
	}
	switch {
	case s.Active != nil && s.Active.Who.Purpose != enroll.Pallet:
		o.Fail(exact.ErrMember, "an authority of pallet")
	case s.Bound != nil && !s.Bound.Pallet.CredentialHash.Equal(s.Prepared.Hash()):
		o.Fail(exact.ErrRange, "a binding of the prepared bearer")
	case s.Activation != nil && s.Active == nil:
		o.Fail(exact.ErrMissing, "an authority behind its activation")
	}
}}
