package nodes

import (
	"context"
	"encoding/base32"
	"errors"
	"io"
	"strings"

	"github.com/allodhq/allod/internal/cloud/act"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/nodes"
)

// Invite makes a join line for one machine of a cluster (inviteNode). It returns
// who's refusals.
func (n *Nodes) Invite(ctx context.Context, by who.Principal, r nodes.Invite) (nodes.Invitation, error) {
	code, err := enroll.NewJumpCode(n.rand)
	if err != nil {
		return nodes.Invitation{}, err
	}
	now := n.now()
	expires := now + zone.Millis(n.times.Invitation.Milliseconds())
	err = n.store.Write(ctx, func(tx store.Tx) error {
		c, _, err := tx.Cluster(r.Cluster)
		if err != nil {
			return err
		}
		if err := by.Change(tx, c.Organization); err != nil {
			return err
		}
		if err := tx.PutInvitation(store.Invitation{
			Code: sum(code.Hash()), Cluster: c.ID, CreatedBy: by.Actor(), CreatedAt: now, ExpiresAt: expires,
		}); err != nil {
			return err
		}
		return act.Record(tx, act.Act{By: by, Organization: c.Organization, Action: nodes.MethodInvite, Subject: "cluster/" + string(c.ID), At: now})
	})
	if err != nil {
		return nodes.Invitation{}, err
	}
	line := enroll.JoinLine{Origin: n.origin, Code: code, Pin: n.pin}
	return nodes.Invitation{Line: zone.Conceal(line.Text()), ExpiresAt: expires}, nil
}

// Enroll admits both programs of a machine or neither, and answers an exact
// repetition with the first acknowledgement (enrollNode, F08). It returns
// enroll.ErrProof and ErrProofMode, enroll.ErrElsewhere, enroll.ErrInvitation, enroll.ErrCredential,
// enroll.ErrExpired, enroll.ErrConflict and ErrRemoved.
func (n *Nodes) Enroll(ctx context.Context, p enroll.Proposal, proof enroll.Proof) (enroll.Acknowledgement, error) {
	digest, err := enroll.Digest(p)
	if err != nil {
		return enroll.Acknowledgement{}, err
	}
	fresh, err := n.newNodeID()
	if err != nil {
		return enroll.Acknowledgement{}, err
	}
	now := n.now()
	// Whoever has no right shall not keep others from writing.
	var right admission
	err = n.store.Read(ctx, func(tx store.Tx) (err error) { right, err = n.admit(tx, p, proof, digest, fresh, now); return err })
	if err != nil || right.receipt {
		return right.ack, err
	}
	err = n.store.Write(ctx, func(tx store.Tx) error {
		if right, err = n.admit(tx, p, proof, digest, fresh, now); err != nil || right.receipt {
			return err
		}
		if right.ack, err = enroll.Acknowledge(p, right.node.ID); err != nil {
			return err
		}
		if i := right.invitation; p.Fresh() {
			i.Enrollment = string(p.EnrollmentID)
			if err := tx.PutInvitation(i); err != nil {
				return err
			}
		}
		return n.commit(tx, commitment{p, right.ack, digest, right.node, right.spark, who.Principal{Kind: who.Node, Node: right.node.ID}, now})
	})
	if err != nil {
		return enroll.Acknowledgement{}, err
	}
	return right.ack, nil
}

// admission is what whoever asks to enroll has a right to.
type admission struct {
	receipt    bool // to the answer that was given before, and then there is no more
	ack        enroll.Acknowledgement
	node       store.Node
	spark      store.Credential // the generation before
	invitation store.Invitation // of a fresh node
}

// admit finds the right behind a proposal and changes nothing.
func (n *Nodes) admit(tx store.Tx, p enroll.Proposal, proof enroll.Proof, digest store.Hash, fresh zone.NodeID, now zone.Millis) (a admission, err error) {
	kept, found, err := tx.Enrollment(string(p.EnrollmentID))
	if err != nil {
		return admission{}, err
	}
	a.receipt = found && kept.Digest == digest
	if err := enroll.VerifyProof(p, a.receipt, proof); err != nil {
		return admission{}, err
	}
	if a.receipt {
		a.ack, err = enroll.AcknowledgementCodec.Read(kept.Answer)
		return a, err
	}
	if p.Origin != n.origin {
		return admission{}, enroll.ErrElsewhere
	}
	if p.Fresh() {
		a.node, a.invitation, err = invited(tx, p, proof, fresh, now)
		a.spark = store.Credential{Node: a.node.ID, Purpose: string(enroll.Spark)}
	} else {
		a.node, a.spark, err = adopted(tx, p, proof, now)
	}
	if err == nil && found { // after the right was shown, so that names of enrollments cannot be tried
		err = enroll.ErrConflict
	}
	if err != nil {
		return admission{}, err
	}
	return a, nil
}

// invited is the new node of whoever has a join line's code, and the line.
func invited(tx store.Tx, p enroll.Proposal, proof enroll.Proof, id zone.NodeID, now zone.Millis) (store.Node, store.Invitation, error) {
	refuse := func(err error) (store.Node, store.Invitation, error) { return store.Node{}, store.Invitation{}, err }
	i, found, err := tx.Invitation(sum(proof.Hash()))
	if err != nil {
		return refuse(err)
	}
	if !found || i.Enrollment != "" || now >= i.ExpiresAt {
		return refuse(enroll.ErrInvitation)
	}
	c, found, err := tx.Cluster(i.Cluster)
	if err != nil {
		return refuse(err)
	}
	if !found {
		return refuse(enroll.ErrInvitation)
	}
	if err := inviter(tx, i.CreatedBy, c.Organization); err != nil {
		return refuse(err)
	}
	return store.Node{ID: id, Cluster: c.ID, Organization: c.Organization, Hostname: p.Hostname, JoinedAt: now}, i, nil
}

// inviter returns enroll.ErrInvitation where the operator who made a join line might
// not make it now: who was put out must not have kept a way in.
func inviter(tx store.Tx, actor string, o zone.OrganizationID) error {
	if actor == (who.Principal{Kind: who.Local}).Actor() {
		return nil
	}
	by := who.Principal{Kind: who.Operator, Operator: zone.OperatorID(actor)}
	operator, _, err := tx.Operator(by.Operator)
	if err != nil {
		return err
	}
	by.Installation = operator.Installation
	err = by.Change(tx, o)
	if operator.Disabled || errors.Is(err, who.ErrAbsent) || errors.Is(err, who.ErrRole) {
		return enroll.ErrInvitation
	}
	return err
}

// adopted is the node that Spark's bearer belongs to, with that credential.
func adopted(tx store.Tx, p enroll.Proposal, proof enroll.Proof, now zone.Millis) (store.Node, store.Credential, error) {
	var none store.Node
	c, err := live(tx, proof.Hash(), now)
	if err != nil {
		return none, store.Credential{}, err
	}
	if enroll.Purpose(c.Purpose) != enroll.Spark || c.Node != p.NodeID {
		return none, store.Credential{}, enroll.ErrCredential
	}
	if enroll.Generation(c.Generation) != p.Spark.ExpectedGeneration || enroll.Epoch(c.Epoch) != p.Spark.ExpectedSessionEpoch {
		return none, store.Credential{}, enroll.ErrConflict
	}
	_, found, err := tx.Credential(c.Node, string(enroll.Pallet))
	if err != nil {
		return none, store.Credential{}, err
	}
	if found {
		return none, store.Credential{}, enroll.ErrConflict
	}
	node, found, err := tx.Node(c.Node)
	if err != nil {
		return none, store.Credential{}, err
	}
	if !found || node.RemovedAt != 0 {
		return none, store.Credential{}, ErrRemoved
	}
	return node, c, nil
}

// commitment is an enrollment that was decided.
type commitment struct {
	proposal enroll.Proposal
	ack      enroll.Acknowledgement
	digest   store.Hash
	node     store.Node
	spark    store.Credential // the generation before
	by       who.Principal
	now      zone.Millis
}

// commit writes both authorities, the receipt and the audit entry.
func (n *Nodes) commit(tx store.Tx, c commitment) error {
	if err := tx.PutNode(c.node); err != nil {
		return err
	}
	pallet := store.Credential{Node: c.node.ID, Purpose: string(enroll.Pallet)}
	for _, next := range []store.Credential{
		n.issue(c.spark, c.proposal.Spark.CredentialHash, c.now),
		n.issue(pallet, c.proposal.Pallet.CredentialHash, c.now),
	} {
		if err := taken(tx.PutCredential(next), enroll.ErrConflict); err != nil {
			return err
		}
	}
	proposal, err := enroll.ProposalCodec.Append(nil, c.proposal)
	if err != nil {
		return err
	}
	answer, err := enroll.AcknowledgementCodec.Append(nil, c.ack)
	if err != nil {
		return err
	}
	if err := taken(tx.PutEnrollment(store.Enrollment{
		ID: string(c.proposal.EnrollmentID), Digest: c.digest, Node: c.node.ID, Proposal: proposal, Answer: answer, CommittedAt: c.now,
	}), enroll.ErrConflict); err != nil {
		return err
	}
	return act.Record(tx, act.Act{
		By: c.by, Organization: c.node.Organization, Action: enroll.MethodEnroll, Subject: "node/" + string(c.node.ID), At: c.now,
	})
}

// newNodeID is an identifier that nobody can guess before it is given out: 80 random
// bits.
func (n *Nodes) newNodeID() (zone.NodeID, error) {
	var b [10]byte
	if _, err := io.ReadFull(n.rand, b[:]); err != nil {
		return "", err
	}
	return zone.NodeID("node-" + strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))), nil
}
