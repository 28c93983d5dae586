package enroll

import (
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/internal/codec"
	"github.com/allodhq/allod/wire/zone/internal/member"
)

// RotationID names one rotation. Whoever repeats a request keeps it.
type RotationID string

// Rotation asks for the next credential of one purpose. Its owner has prepared it
// and keeps the bearer, and the whole rotation, until there is a receipt. Values
// compare with ==.
type Rotation struct {
	Purpose            Purpose
	NextCredentialHash CredentialHash
	// ExpectedGeneration is that of the current credential, at least 1.
	ExpectedGeneration Generation
	RotationID         RotationID
}

// RotateRequest is a rotation with what proves the right to it
// (rotateNodeCredential).
type RotateRequest struct {
	Protocol handshake.Offer
	// Bearer is the current credential, or the next one where the answer was lost.
	Bearer   Bearer
	Rotation Rotation
}

// RotationReceipt is the controller's evidence that it rotated a credential. Every
// repetition is answered with the first one. Values compare with ==.
type RotationReceipt struct {
	RotationID   RotationID
	NodeID       zone.NodeID
	Purpose      Purpose
	Generation   Generation
	SessionEpoch Epoch
	RotatedAt    zone.Millis
}

// RotateResponse is the answer of rotateNodeCredential.
type RotateResponse struct {
	Receipt  RotationReceipt
	Protocol handshake.Offer
}

// Identity is the authority from then on.
func (r RotationReceipt) Identity() Identity {
	return Identity{r.NodeID, r.Purpose, r.Generation, r.SessionEpoch}
}

func rotationFields(o *exact.Object, r *Rotation) {
	exact.Word(o, "purpose", &r.Purpose, purposes)
	hashMember(o, "nextCredentialHash", &r.NextCredentialHash)
	exact.Whole(o, "expectedGeneration", &r.ExpectedGeneration, 1, MaxCounter-1)
	member.ID(o, "rotationId", &r.RotationID)
}

// RotationCodec is the object of a rotation alone: what has a digest, and what its
// owner keeps.
var RotationCodec zone.Codec[Rotation] = codec.Of(rotationFields)

// RotateRequestCodec is the request of rotateNodeCredential. The rotation's members
// stand beside protocol and bearer.
var RotateRequestCodec zone.Codec[RotateRequest] = codec.Of(func(o *exact.Object, r *RotateRequest) {
	member.Protocol(o, &r.Protocol)
	bearerMember(o, "bearer", &r.Bearer)
	rotationFields(o, &r.Rotation)
})

// RotationReceiptCodec is the object of a receipt.
var RotationReceiptCodec zone.Codec[RotationReceipt] = codec.Of(func(o *exact.Object, r *RotationReceipt) {
	member.ID(o, "rotationId", &r.RotationID)
	member.ID(o, "nodeId", &r.NodeID)
	exact.Word(o, "purpose", &r.Purpose, purposes)
	counters(o, &r.Generation, &r.SessionEpoch)
	member.Millis(o, "rotatedAt", &r.RotatedAt)
})

// RotateResponseCodec is the answer of rotateNodeCredential.
var RotateResponseCodec zone.Codec[RotateResponse] = codec.Of(func(o *exact.Object, r *RotateResponse) {
	exact.Sub(o, "receipt", &r.Receipt, codec.Shape(RotationReceiptCodec))
	member.Protocol(o, &r.Protocol)
})

// RotationDigest is the identity of a rotation, by which a controller knows an exact
// repetition. The offer and the bearer take no part in it. It returns what writing
// the rotation does.
func RotationDigest(r Rotation) (canon.Sum, error) {
	return canon.Of(canon.NodeRotation, RotationCodec, r)
}

// VerifyRotationProof decides whether a bearer counts for a rotation. current is the
// hash of the credential that the rotation replaces, and receiptExists says whether
// this exact rotation has been recorded; the controller finds out both by itself.
// Without a receipt the current bearer counts, and the next one must be another;
// with one the next bearer counts, and no longer the one before. It returns
// [ErrRotationProof]. Whether the next bearer itself still stands is the
// controller's to check.
func VerifyRotationProof(r Rotation, current CredentialHash, receiptExists bool, b Bearer) error {
	want := current
	if receiptExists {
		want = r.NextCredentialHash
	} else if r.NextCredentialHash == current {
		return ErrRotationProof
	}
	if !b.Hash().Equal(want) {
		return ErrRotationProof
	}
	return nil
}

// BindRotation returns who the owner is from now on, where a receipt is that of its
// rotation: of the same node, purpose and rotation, with the generation exactly one
// higher than expected, and a session epoch above the one that the owner knew. (The
// epoch goes up with sessions too, so it need not be the next one.) active is who
// the owner was when it made the rotation. It returns [ErrRotation].
func BindRotation(active Identity, r Rotation, receipt RotationReceipt) (Identity, error) {
	switch {
	case r.Purpose != active.Purpose || r.ExpectedGeneration != active.Generation:
		return Identity{}, ErrRotation.With("The rotation was made for another credential.")
	case receipt.RotationID != r.RotationID:
		return Identity{}, ErrRotation.With("It is for another rotation.")
	case receipt.NodeID != active.NodeID:
		return Identity{}, ErrRotation.With("It is for another node.")
	case receipt.Purpose != r.Purpose:
		return Identity{}, ErrRotation.With("It is for another purpose.")
	case receipt.Generation != r.ExpectedGeneration+1:
		return Identity{}, ErrRotation.With("Its generation is not the next one.")
	case receipt.SessionEpoch <= active.SessionEpoch:
		return Identity{}, ErrRotation.With("Its session epoch has not advanced.")
	}
	return receipt.Identity(), nil
}
