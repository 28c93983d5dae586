package nodes

import (
	"context"
	"errors"
	"time"

	"github.com/allodhq/allod/internal/cloud/act"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
)

// Rotate gives one program of a node its next credential, and answers an exact
// repetition by the new bearer with the first receipt (rotateNodeCredential). The
// bearer before counts no more. It returns enroll.ErrRotationProof, enroll.ErrCredential,
// enroll.ErrExpired, enroll.ErrRotationConflict and enroll.ErrRotationPace.
func (n *Nodes) Rotate(ctx context.Context, b enroll.Bearer, r enroll.Rotation) (enroll.RotationReceipt, error) {
	digest, err := enroll.RotationDigest(r)
	if err != nil {
		return enroll.RotationReceipt{}, err
	}
	now := n.now()
	var receipt enroll.RotationReceipt
	err = n.store.Write(ctx, func(tx store.Tx) error {
		c, err := live(tx, b.Hash(), now)
		if err != nil {
			return err
		}
		if enroll.Purpose(c.Purpose) != r.Purpose {
			return enroll.ErrCredential
		}
		repeated := c.Request == digest
		if err := enroll.VerifyRotationProof(r, b.Hash(), repeated, b); err != nil {
			return err
		}
		if repeated {
			receipt, err = enroll.RotationReceiptCodec.Read(c.Receipt)
			return err
		}
		if enroll.Generation(c.Generation) != r.ExpectedGeneration {
			return enroll.ErrRotationConflict
		}
		node, _, err := tx.Node(c.Node)
		if err != nil {
			return err
		}
		if wait := pace(c, node, now); wait > 0 && !n.due(c, now) {
			return enroll.ErrRotationPace.With("").After(wait)
		}
		next := n.issue(c, r.NextCredentialHash, now)
		receipt = enroll.RotationReceipt{
			RotationID: r.RotationID, NodeID: c.Node, Purpose: r.Purpose,
			Generation: enroll.Generation(next.Generation), SessionEpoch: enroll.Epoch(next.Epoch), RotatedAt: now,
		}
		next.Request = digest
		if next.Receipt, err = enroll.RotationReceiptCodec.Append(nil, receipt); err != nil {
			return err
		}
		if err := taken(tx.PutCredential(next), enroll.ErrRotationConflict); err != nil {
			return err
		}
		return act.Record(tx, act.Act{
			By: who.Principal{Kind: who.Node, Node: c.Node, Purpose: c.Purpose}, Organization: node.Organization,
			Action: enroll.MethodRotate, Subject: "node/" + string(c.Node), At: now,
		})
	})
	if err != nil {
		return enroll.RotationReceipt{}, err
	}
	return receipt, nil
}

// How often a credential is rotated that nobody asks to: the audit log keeps each
// rotation for ever, so whoever has a bearer must not make as many as they like.
const (
	freeRotations = 64
	rotationEvery = time.Hour
)

// pace is how long a node has to wait before it rotates a credential unasked, and
// not more than zero where it may now: the first ones are free, then there is one
// for each hour of its life.
func pace(c store.Credential, node store.Node, now zone.Millis) time.Duration {
	next := node.JoinedAt.Time().Add(time.Duration(min(max(c.Generation-freeRotations, 0), maxPaced)) * rotationEvery)
	return next.Sub(now.Time())
}

// maxPaced keeps pace within what a time.Duration holds; it is more than 200 years.
const maxPaced = 2_000_000

// taken names what a put was refused for.
func taken(err error, kind *refusal.Kind) error {
	if errors.Is(err, store.ErrTaken) {
		return kind.Because(err)
	}
	return err
}
