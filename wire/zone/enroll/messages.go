package enroll

import (
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/internal/codec"
	"github.com/allodhq/allod/wire/zone/internal/member"
)

// The methods between a node and its controller. All of their requests are
// sensitive as a whole (F06).
const (
	MethodEnroll     = "enrollNode"
	MethodState      = "getNodeEnrollmentState"
	MethodCredential = "getNodeCredential"
	MethodRotate     = "rotateNodeCredential"
)

// Request asks to enroll a machine (enrollNode).
type Request struct {
	Protocol handshake.Offer
	Proposal Proposal
	Proof    Proof
}

// Response is the acknowledgement of the controller, the first one for every
// repetition.
type Response struct {
	Acknowledgement Acknowledgement
	Protocol        handshake.Offer
}

// StateRequest asks whether a node can adopt Pallet (getNodeEnrollmentState). Bearer
// is that of Spark.
type StateRequest struct {
	Protocol handshake.Offer
	Bearer   Bearer
}

// StateResponse is what a proposal to adopt Pallet has to expect.
type StateResponse struct {
	NodeID zone.NodeID
	// Spark is the authority that asked; its purpose is Spark.
	Spark Metadata
	// PalletAbsent is true where the node has no authority of Pallet, and so may
	// adopt it.
	PalletAbsent bool
	Protocol     handshake.Offer
}

// CredentialRequest asks about the credential by which it is asked, of either
// purpose (getNodeCredential).
type CredentialRequest struct {
	Protocol handshake.Offer
	Bearer   Bearer
}

// CredentialResponse is what may be told of that credential.
type CredentialResponse struct {
	NodeID     zone.NodeID
	Credential Metadata
	Protocol   handshake.Offer
}

// State is where a credential is in its life (decision O24).
type State string

// The states of a credential.
const (
	// Active is the one credential of its purpose that counts.
	Active State = "active"
	// Retiring still counts and is to be rotated, since it ends soon.
	Retiring State = "retiring"
	// Revoked counts no more, and never will again.
	Revoked State = "revoked"
)

// Metadata is all that may be told of a credential (INodeCredentialMetadata, F09).
// It has neither the bearer nor its hash, and does not say which peer or which
// process serves it. Values compare with ==.
type Metadata struct {
	Purpose      Purpose
	State        State
	Generation   Generation
	SessionEpoch Epoch
	// RotationRequired asks the owner to rotate it.
	RotationRequired bool
}

// Identity is the authority that the metadata of a node's credential is about.
func (m Metadata) Identity(node zone.NodeID) Identity {
	return Identity{node, m.Purpose, m.Generation, m.SessionEpoch}
}

// MetadataCodec is the object of a credential's metadata, for messages and for
// whoever shows it.
var MetadataCodec zone.Codec[Metadata] = codec.Of(func(o *exact.Object, m *Metadata) {
	exact.Word(o, "purpose", &m.Purpose, purposes)
	exact.Word(o, "state", &m.State, []State{Active, Retiring, Revoked})
	counters(o, &m.Generation, &m.SessionEpoch)
	exact.Bool(o, "rotationRequired", &m.RotationRequired)
})

// RequestCodec is the request of enrollNode. It refuses a proof whose value cannot
// be what its kind says.
var RequestCodec zone.Codec[Request] = codec.Of(func(o *exact.Object, r *Request) {
	member.Protocol(o, &r.Protocol)
	exact.Sub(o, "proposal", &r.Proposal, codec.Shape(ProposalCodec))
	exact.Sub(o, "proof", &r.Proof, proofShape)
	if !o.Failed() && canonical(r.Proof.Reveal(), JumpCodeBytes) != (r.Proof.kind == Bootstrap && r.Proposal.Fresh()) {
		o.Fail(exact.ErrRange, "a request whose proof is a Jump code where a fresh node has no receipt, and else a bearer")
	}
})

// ResponseCodec is the answer of enrollNode.
var ResponseCodec zone.Codec[Response] = codec.Of(func(o *exact.Object, r *Response) {
	exact.Sub(o, "acknowledgement", &r.Acknowledgement, codec.Shape(AcknowledgementCodec))
	member.Protocol(o, &r.Protocol)
})

// StateRequestCodec is the request of getNodeEnrollmentState.
var StateRequestCodec zone.Codec[StateRequest] = codec.Of(func(o *exact.Object, r *StateRequest) {
	member.Protocol(o, &r.Protocol)
	bearerMember(o, "bearer", &r.Bearer)
})

// StateResponseCodec is the answer of getNodeEnrollmentState.
var StateResponseCodec zone.Codec[StateResponse] = codec.Of(func(o *exact.Object, r *StateResponse) {
	member.ID(o, "nodeId", &r.NodeID)
	exact.Sub(o, "spark", &r.Spark, codec.Shape(MetadataCodec))
	exact.Bool(o, "palletAbsent", &r.PalletAbsent)
	member.Protocol(o, &r.Protocol)
	if !o.Failed() && r.Spark.Purpose != Spark {
		o.Fail(exact.ErrMember, "an answer about the credential of spark")
	}
})

// CredentialRequestCodec is the request of getNodeCredential.
var CredentialRequestCodec zone.Codec[CredentialRequest] = codec.Of(func(o *exact.Object, r *CredentialRequest) {
	member.Protocol(o, &r.Protocol)
	bearerMember(o, "bearer", &r.Bearer)
})

// CredentialResponseCodec is the answer of getNodeCredential.
var CredentialResponseCodec zone.Codec[CredentialResponse] = codec.Of(func(o *exact.Object, r *CredentialResponse) {
	member.ID(o, "nodeId", &r.NodeID)
	exact.Sub(o, "credential", &r.Credential, codec.Shape(MetadataCodec))
	member.Protocol(o, &r.Protocol)
})
