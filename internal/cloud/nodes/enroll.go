package nodes

import (
	"context"
	"encoding/base32"
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
	var ack enroll.Acknowledgement
	err = n.store.Write(ctx, func(tx store.Tx) error {
		kept, found, err := tx.Enrollment(string(p.EnrollmentID))
		if err != nil {
			return err
		}
		receipt := found && kept.Digest == digest
		if err := enroll.VerifyProof(p, receipt, proof); err != nil {
			return err
		}
		if receipt {
			ack, err = enroll.AcknowledgementCodec.Read(kept.Answer)
			return err
		}
		if p.Origin != n.origin {
			return enroll.ErrElsewhere
		}
		var node store.Node
		var spark store.Credential
		by := who.Principal{Kind: who.Node, Node: fresh}
		if p.Fresh() {
			node, err = n.invited(tx, p, proof, fresh, now)
			spark = store.Credential{Node: node.ID, Purpose: string(enroll.Spark)}
		} else {
			node, spark, err = adopted(tx, p, proof, now)
			by.Node = node.ID
		}
		if err != nil {
			return err
		}
		if found { // after the right was shown, so that names of enrollments cannot be tried
			return enroll.ErrConflict
		}
		if ack, err = enroll.Acknowledge(p, node.ID); err != nil {
			return err
		}
		return n.commit(tx, commitment{p, ack, digest, node, spark, by, now})
	})
	if err != nil {
		return enroll.Acknowledgement{}, err
	}
	return ack, nil
}

// invited is the new node of whoever has a join line's code, which is used up.
func (n *Nodes) invited(tx store.Tx, p enroll.Proposal, proof enroll.Proof, id zone.NodeID, now zone.Millis) (store.Node, error) {
	i, found, err := tx.Invitation(sum(proof.Hash()))
	if err != nil {
		return store.Node{}, err
	}
	if !found || i.Enrollment != "" || now >= i.ExpiresAt {
		return store.Node{}, enroll.ErrInvitation
	}
	c, found, err := tx.Cluster(i.Cluster)
	if err != nil {
		return store.Node{}, err
	}
	if !found {
		return store.Node{}, enroll.ErrInvitation
	}
	i.Enrollment = string(p.EnrollmentID)
	if err := tx.PutInvitation(i); err != nil {
		return store.Node{}, err
	}
	return store.Node{ID: id, Cluster: c.ID, Organization: c.Organization, Hostname: p.Hostname, JoinedAt: now}, nil
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
