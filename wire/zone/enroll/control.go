package enroll

import (
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/internal/codec"
	"github.com/allodhq/allod/wire/zone/internal/member"
)

// The methods of Pallet's local control socket (requests.pallet, F10), in their
// order. They are never served over a network. None of them carries a bearer, and
// there is none that rotates.
const (
	MethodPalletPrepare  = "preparePalletNodeEnrollment"
	MethodPalletBind     = "bindPalletNodeEnrollment"
	MethodPalletActivate = "activatePalletNodeEnrollment"
)

// PrepareRequest asks Pallet to make a credential for an authority that does not
// exist yet. Its message says generation 0 and session epoch 0, and can say nothing
// else. Repeated, it has the same answer until the credential is active.
type PrepareRequest struct{}

// PrepareResponse is all that Pallet shows of its credential.
type PrepareResponse struct{ CredentialHash CredentialHash }

// BindRequest asks Pallet to tie its credential to a whole enrollment, durably.
type BindRequest struct{ Enrollment Proposal }

// BindResponse confirms that it did.
type BindResponse struct {
	EnrollmentDigest canon.Sum
	// NodeID is the node before the assignment: empty, and null in the message, for a
	// fresh one.
	NodeID zone.NodeID
}

// ActivateRequest hands Pallet the controller's acknowledgement.
type ActivateRequest struct {
	Enrollment      Proposal
	Acknowledgement Acknowledgement
}

// ActivateResponse confirms exactly who Pallet is now. Pallet sends it only where
// that is its current state; a receipt of the past is not enough.
type ActivateResponse struct {
	EnrollmentDigest canon.Sum
	NodeID           zone.NodeID
	CredentialHash   CredentialHash
	Generation       Generation
	SessionEpoch     Epoch
}

// PrepareRequestCodec is the request of preparePalletNodeEnrollment.
var PrepareRequestCodec zone.Codec[PrepareRequest] = codec.Of(func(o *exact.Object, _ *PrepareRequest) {
	var authority Granted
	exact.Sub(o, "authority", &authority, initialShape)
})

// initialShape is an authority that does not exist yet.
var initialShape = exact.Shape[Granted]{Fields: func(o *exact.Object, g *Granted) {
	exact.Whole(o, "generation", &g.Generation, 0, MaxCounter)
	exact.Whole(o, "sessionEpoch", &g.SessionEpoch, 0, MaxCounter)
	if !o.Failed() && *g != (Granted{}) {
		o.Fail(exact.ErrRange, "an authority whose generation and session epoch are 0")
	}
}}

// PrepareResponseCodec is the answer of preparePalletNodeEnrollment.
var PrepareResponseCodec zone.Codec[PrepareResponse] = codec.Of(func(o *exact.Object, r *PrepareResponse) {
	hashMember(o, "credentialHash", &r.CredentialHash)
})

// BindRequestCodec is the request of bindPalletNodeEnrollment.
var BindRequestCodec zone.Codec[BindRequest] = codec.Of(func(o *exact.Object, r *BindRequest) {
	exact.Sub(o, "enrollment", &r.Enrollment, codec.Shape(ProposalCodec))
})

// BindResponseCodec is the answer of bindPalletNodeEnrollment.
var BindResponseCodec zone.Codec[BindResponse] = codec.Of(func(o *exact.Object, r *BindResponse) {
	member.Sum(o, "enrollmentDigest", &r.EnrollmentDigest)
	member.OrNull(o, "nodeId", &r.NodeID, member.ID[zone.NodeID])
})

// ActivateRequestCodec is the request of activatePalletNodeEnrollment.
var ActivateRequestCodec zone.Codec[ActivateRequest] = codec.Of(func(o *exact.Object, r *ActivateRequest) {
	exact.Sub(o, "enrollment", &r.Enrollment, codec.Shape(ProposalCodec))
	exact.Sub(o, "acknowledgement", &r.Acknowledgement, codec.Shape(AcknowledgementCodec))
})

// ActivateResponseCodec is the answer of activatePalletNodeEnrollment.
var ActivateResponseCodec zone.Codec[ActivateResponse] = codec.Of(func(o *exact.Object, r *ActivateResponse) {
	member.Sum(o, "enrollmentDigest", &r.EnrollmentDigest)
	member.ID(o, "nodeId", &r.NodeID)
	hashMember(o, "credentialHash", &r.CredentialHash)
	counters(o, &r.Generation, &r.SessionEpoch)
})

// BindPrepared returns the hash that Pallet prepared, for the proposal. others are
// hashes that it must not be: of what Spark prepared, and of the bootstrap proof.
// It returns [ErrConfirmation].
func BindPrepared(r PrepareResponse, others ...CredentialHash) (CredentialHash, error) {
	if r.CredentialHash.IsZero() {
		return CredentialHash{}, ErrConfirmation.With("It prepared no credential.")
	}
	for _, o := range others {
		if r.CredentialHash == o {
			return CredentialHash{}, ErrConfirmation.With("Its credential is not one of its own.")
		}
	}
	return r.CredentialHash, nil
}

// Bound is what Pallet confirms once it is tied to an enrollment. It returns what
// writing the proposal does.
func Bound(r BindRequest) (BindResponse, error) {
	digest, err := Digest(r.Enrollment)
	if err != nil {
		return BindResponse{}, err
	}
	return BindResponse{digest, r.Enrollment.NodeID}, nil
}

// BindBound returns nil where a confirmation is that of a whole enrollment: it has
// its digest, and the node before the assignment. It returns [ErrConfirmation], and
// what writing the proposal does.
func BindBound(r BindRequest, got BindResponse) error {
	want, err := Bound(r)
	if err == nil && got != want {
		err = ErrConfirmation.With("It is bound to another enrollment.")
	}
	return err
}

// ActivePallet is what Pallet confirms once it is active, and with it what it has to
// become: the proposal's credential with the counters and the node of the
// acknowledgement. It returns what [BindAcknowledgement] does.
func ActivePallet(r ActivateRequest) (ActivateResponse, error) {
	if err := BindAcknowledgement(r.Enrollment, r.Acknowledgement); err != nil {
		return ActivateResponse{}, err
	}
	a := r.Acknowledgement
	return ActivateResponse{a.EnrollmentDigest, a.NodeID, r.Enrollment.Pallet.CredentialHash, a.Pallet.Generation, a.Pallet.SessionEpoch}, nil
}

// BindActive returns nil where a confirmation is that of the whole activation, and
// the acknowledgement that of the proposal. It returns [ErrConfirmation], and what
// [BindAcknowledgement] does.
func BindActive(r ActivateRequest, got ActivateResponse) error {
	want, err := ActivePallet(r)
	if err == nil && got != want {
		err = ErrConfirmation.With("It is active as somebody else.")
	}
	return err
}
