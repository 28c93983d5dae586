package enroll

import (
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone/internal/member"
)

// ProofKind is how somebody shows the right to enroll.
type ProofKind string

// The kinds of proof (F08).
const (
	// Bootstrap is the original right. It counts as long as there is no receipt.
	Bootstrap ProofKind = "bootstrap"
	// PendingSpark is the bearer that Spark prepared. It counts when there is a
	// receipt, for whoever lost the answer.
	PendingSpark ProofKind = "pending-spark"
)

// Proof travels beside a proposal and is no part of its digest. It is as silent as
// the secret in it. The zero value is none.
type Proof struct {
	secret
	kind ProofKind
}

// BootstrapByCode is the bootstrap proof of a fresh node.
func BootstrapByCode(c JumpCode) Proof { return Proof{c.secret, Bootstrap} }

// BootstrapByBearer is the bootstrap proof of a node that adopts Pallet: the bearer
// that Spark has so far.
func BootstrapByBearer(b Bearer) Proof { return Proof{b.secret, Bootstrap} }

// PendingSparkProof is the proof by the bearer that Spark prepared.
func PendingSparkProof(b Bearer) Proof { return Proof{b.secret, PendingSpark} }

// Kind is the kind of proof, or "" for none.
func (p Proof) Kind() ProofKind { return p.kind }

// Hash is the hash of the secret, to look up which authority it belongs to.
func (p Proof) Hash() CredentialHash { return hashOf(p.secret) }

var proofShape = exact.Shape[Proof]{Fields: func(o *exact.Object, p *Proof) {
	exact.Word(o, "kind", &p.kind, []ProofKind{Bootstrap, PendingSpark})
	member.Secret(o, "value", &p.secret, BearerText, "a Jump code of 16 or a bearer of 43 base64url characters", func(s string) bool {
		return canonical(s, BearerBytes) || canonical(s, JumpCodeBytes)
	})
}}

// VerifyProof decides whether a proof counts for a proposal. receiptExists says
// whether this exact proposal has been recorded; the controller finds that out by
// itself and believes nobody.
//
//	no receipt   bootstrap proof, of the proposal's bootstrapProofHash
//	a receipt    pending-spark proof, of Spark's prepared hash
//
// It returns [ErrProof] for the wrong secret, and [ErrProofMode] for the right
// secret of the kind that does not count now, so that only those learn whether
// there is a receipt who have a secret of this enrollment. It says nothing about
// whether the right behind a bootstrap proof still stands: that is the
// controller's to check, in the transaction that commits.
func VerifyProof(p Proposal, receiptExists bool, proof Proof) error {
	want := p.BootstrapProofHash
	switch proof.kind {
	case Bootstrap:
		// What makes the right is known from the proposal, and so is its length.
		if canonical(proof.Reveal(), JumpCodeBytes) != p.Fresh() {
			return ErrProof
		}
	case PendingSpark:
		want = p.Spark.CredentialHash
	default:
		return ErrProof
	}
	if !proof.Hash().Equal(want) {
		return ErrProof
	}
	if (proof.kind == PendingSpark) != receiptExists {
		return ErrProofMode
	}
	return nil
}
