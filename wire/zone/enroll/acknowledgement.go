package enroll

import (
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/internal/codec"
	"github.com/allodhq/allod/wire/zone/internal/member"
)

// Acknowledgement is the controller's evidence that it committed an enrollment:
// both authorities at once. It stays true for ever and is no authority by itself.
// Values compare with ==.
type Acknowledgement struct {
	// EnrollmentDigest is the [Digest] of the whole proposal.
	EnrollmentDigest canon.Sum
	NodeID           zone.NodeID
	Spark, Pallet    Granted
}

// Granted is where the counters of one authority stand once it is committed, each
// at least 1.
type Granted struct {
	Generation   Generation
	SessionEpoch Epoch
}

// Of is what a purpose was granted.
func (a Acknowledgement) Of(u Purpose) Granted {
	if u == Pallet {
		return a.Pallet
	}
	return a.Spark
}

// Identity is who a program of the node is from now on.
func (a Acknowledgement) Identity(u Purpose) Identity {
	g := a.Of(u)
	return Identity{a.NodeID, u, g.Generation, g.SessionEpoch}
}

// Identity is one authority as its owner knows it: what answers to it must name.
// Values compare with ==.
type Identity struct {
	NodeID       zone.NodeID
	Purpose      Purpose
	Generation   Generation
	SessionEpoch Epoch
}

type grantedEntry struct {
	purpose Purpose
	Granted
}

var grantedShape = exact.Shape[grantedEntry]{Fields: func(o *exact.Object, e *grantedEntry) {
	exact.Word(o, "purpose", &e.purpose, purposes)
	counters(o, &e.Generation, &e.SessionEpoch)
}}

// counters are those of an authority that exists.
func counters(o *exact.Object, g *Generation, e *Epoch) {
	exact.Whole(o, "generation", g, 1, MaxCounter)
	exact.Whole(o, "sessionEpoch", e, 1, MaxCounter)
}

// AcknowledgementCodec is the object of an acknowledgement. It refuses any other
// order than Spark, then Pallet.
var AcknowledgementCodec zone.Codec[Acknowledgement] = codec.Of(func(o *exact.Object, a *Acknowledgement) {
	member.Sum(o, "enrollmentDigest", &a.EnrollmentDigest)
	member.ID(o, "nodeId", &a.NodeID)
	pair := []grantedEntry{{Spark, a.Spark}, {Pallet, a.Pallet}}
	exact.List(o, "credentials", &pair, 2, 2, grantedShape)
	if o.Failed() {
		return
	}
	if pair[0].purpose != Spark || pair[1].purpose != Pallet {
		o.Fail(exact.ErrMember, "an acknowledgement of the credentials of spark and pallet, in this order")
	}
	a.Spark, a.Pallet = pair[0].Granted, pair[1].Granted
})

// Acknowledge is what a controller says about a proposal that it committed: its
// digest, and each counter one higher. node is the ID of the node; for an adoption
// it must be the proposal's. It returns [ErrReceipt] where it is not, and what
// writing the proposal does.
func Acknowledge(p Proposal, node zone.NodeID) (Acknowledgement, error) {
	digest, err := Digest(p)
	switch {
	case err != nil:
		return Acknowledgement{}, err
	case !zone.ValidID(string(node)) || !p.Fresh() && node != p.NodeID:
		return Acknowledgement{}, ErrReceipt.With("The node is not the one that was proposed.")
	}
	return Acknowledgement{digest, node, p.Spark.next(), p.Pallet.next()}, nil
}

// next is what this credential is granted, if it is.
func (c Proposed) next() Granted {
	return Granted{c.ExpectedGeneration + 1, c.ExpectedSessionEpoch + 1}
}

// BindAcknowledgement returns nil where an acknowledgement is that of a proposal:
// it has its digest, for an adoption its node, and for both owners counters that are
// exactly one higher. It returns [ErrReceipt], and what writing the proposal does.
// Believe an acknowledgement only from a controller that was authenticated.
func BindAcknowledgement(p Proposal, a Acknowledgement) error {
	digest, err := Digest(p)
	switch {
	case err != nil:
		return err
	case a.EnrollmentDigest != digest:
		return ErrReceipt.With("It is for another enrollment.")
	case !zone.ValidID(string(a.NodeID)):
		return ErrReceipt.With("It names no node.")
	case !p.Fresh() && a.NodeID != p.NodeID:
		return ErrReceipt.With("It is for another node.")
	case a.Spark != p.Spark.next():
		return ErrReceipt.With("It is for another credential of Spark.")
	case a.Pallet != p.Pallet.next():
		return ErrReceipt.With("It is for another credential of Pallet.")
	}
	return nil
}
