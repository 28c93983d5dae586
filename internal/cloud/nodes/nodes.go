package nodes

import (
	"context"
	"io"
	"time"

	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/enroll"
)

// ErrRemoved refuses to change a node that is none any more.
var ErrRemoved = refusal.NewKind("node-removed", 409,
	"The node was removed.",
	"Run allod-node leave on the machine, and join it again with a new line from allod node invite.")

// Kinds are this package's refusals. What nodes are refused with is in package
// wire/zone/enroll, since they act on it.
var Kinds = refusal.Registry{Title: "Zone: nodes", Kinds: []*refusal.Kind{ErrRemoved}}

// Times are how long things last. The zero value of each is its default.
type Times struct {
	// Invitation is how long a join line works: an hour.
	Invitation time.Duration
	// Late and Lost are how old the last report of a node is that is no more online,
	// and of one that is lost: 30 seconds and 5 minutes.
	Late, Lost time.Duration
	// Renew is how old a credential is when its owner is asked to rotate it: 30 days.
	Renew time.Duration
	// Expire is how old one is when it counts no more: 90 days.
	Expire time.Duration
	// Skew is by how much a node's clock may differ before that is a finding: 30 seconds.
	Skew time.Duration
}

func (t Times) withDefaults() Times {
	for _, d := range []struct {
		at    *time.Duration
		value time.Duration
	}{
		{&t.Invitation, time.Hour}, {&t.Late, 30 * time.Second}, {&t.Lost, 5 * time.Minute},
		{&t.Renew, 30 * 24 * time.Hour}, {&t.Expire, 90 * 24 * time.Hour}, {&t.Skew, 30 * time.Second},
	} {
		if *d.at == 0 {
			*d.at = d.value
		}
	}
	return t
}

// Config says what [New] works with. All but Pin and Times is required.
type Config struct {
	Store store.Store
	Clock func() time.Time
	Rand  io.Reader
	// Origin is where nodes reach this controller. A proposal names it.
	Origin enroll.Origin
	// Pin is that of the controller's own authority; none where Origin has a
	// certificate that machines trust anyway.
	Pin   enroll.Pin
	Times Times
}

// Nodes admits nodes and answers them, and operators about them.
type Nodes struct {
	store  store.Store
	clock  func() time.Time
	rand   io.Reader
	origin enroll.Origin
	pin    enroll.Pin
	times  Times
}

// New makes a Nodes.
func New(c Config) *Nodes {
	return &Nodes{c.Store, c.Clock, c.Rand, c.Origin, c.Pin, c.Times.withDefaults()}
}

func (n *Nodes) now() zone.Millis { return zone.At(n.clock()) }

// live finds the credential of a bearer, if it counts at a time.
func live(tx store.Tx, hash enroll.CredentialHash, now zone.Millis) (store.Credential, error) {
	c, found, err := tx.CredentialByHash(sum(hash))
	switch {
	case err != nil:
		return store.Credential{}, err
	case !found || enroll.State(c.State) != enroll.Active:
		return store.Credential{}, enroll.ErrCredential
	case now >= c.ExpiresAt:
		return store.Credential{}, enroll.ErrExpired
	}
	return c, nil
}

// sum is a hash as the store has it.
func sum(h enroll.CredentialHash) canon.Sum {
	s, _ := canon.ParseSum(h.Text())
	return s
}

// metadata is what may be told about a credential (F09).
func (n *Nodes) metadata(c store.Credential, now zone.Millis) enroll.Metadata {
	return enroll.Metadata{
		Purpose: enroll.Purpose(c.Purpose), State: enroll.State(c.State),
		Generation: enroll.Generation(c.Generation), SessionEpoch: enroll.Epoch(c.Epoch),
		RotationRequired: n.due(c, now),
	}
}

// due reports whether the owner of a credential must rotate it.
func (n *Nodes) due(c store.Credential, now zone.Millis) bool {
	return c.Rotate || now-c.IssuedAt >= zone.Millis(n.times.Renew.Milliseconds())
}

// issue is the next generation of a credential.
func (n *Nodes) issue(before store.Credential, hash enroll.CredentialHash, now zone.Millis) store.Credential {
	return store.Credential{
		Node: before.Node, Purpose: before.Purpose, Hash: sum(hash),
		Generation: before.Generation + 1, Epoch: before.Epoch + 1,
		State: string(enroll.Active), IssuedAt: now, ExpiresAt: now + zone.Millis(n.times.Expire.Milliseconds()),
	}
}

// Credential answers one program of a node about its own credential
// (getNodeCredential). It returns enroll.ErrCredential and enroll.ErrExpired.
func (n *Nodes) Credential(ctx context.Context, b enroll.Bearer) (id zone.NodeID, m enroll.Metadata, err error) {
	now := n.now()
	err = n.store.Read(ctx, func(tx store.Tx) error {
		c, err := live(tx, b.Hash(), now)
		id, m = c.Node, n.metadata(c, now)
		return err
	})
	if err != nil {
		return "", enroll.Metadata{}, err
	}
	return id, m, nil
}

// State answers Spark about what its node could adopt (getNodeEnrollmentState). It
// returns enroll.ErrCredential and enroll.ErrExpired.
func (n *Nodes) State(ctx context.Context, b enroll.Bearer) (id zone.NodeID, spark enroll.Metadata, palletAbsent bool, err error) {
	now := n.now()
	err = n.store.Read(ctx, func(tx store.Tx) error {
		c, err := live(tx, b.Hash(), now)
		if err != nil {
			return err
		}
		if enroll.Purpose(c.Purpose) != enroll.Spark {
			return enroll.ErrCredential
		}
		_, found, err := tx.Credential(c.Node, string(enroll.Pallet))
		id, spark, palletAbsent = c.Node, n.metadata(c, now), !found
		return err
	})
	if err != nil {
		return "", enroll.Metadata{}, false, err
	}
	return id, spark, palletAbsent, nil
}
