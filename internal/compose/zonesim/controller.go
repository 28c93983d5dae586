package zonesim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/allodhq/allod/internal/cloud/nodes"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/store/memory"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/methods"
	"github.com/allodhq/allod/wire/zone/rpc"
	"github.com/allodhq/allod/wire/zone/spark"
)

// A controller is the real one, but for its sockets and its disk.
type controller struct {
	w       *world
	store   *flaky
	nodes   *nodes.Nodes
	settled *nodes.Nodes
	server  *rpc.Server
	model   *model
}

const origin = "https://zone.test:8443"

// Times are short, so that everything happens within minutes.
var times = nodes.Times{Invitation: time.Minute, Renew: 40 * time.Second, Expire: time.Hour}

// flaky is a store that loses a transaction when it is told to, as a machine does
// that crashes before it has committed.
type flaky struct {
	store.Store
	breaks bool
}

func (f *flaky) Write(ctx context.Context, fn func(store.Tx) error) error {
	return f.Store.Write(ctx, func(tx store.Tx) error {
		err := fn(tx)
		if err == nil && f.breaks {
			return database.ErrIO
		}
		return err
	})
}

func newController(w *world) (*controller, error) {
	c := &controller{w: w, store: &flaky{Store: memory.New()}, model: newModel()}
	at, err := enroll.ParseOrigin(origin)
	if err != nil {
		return nil, err
	}
	c.nodes = nodes.New(nodes.Config{Store: c.store, Clock: func() time.Time { return w.now }, Rand: w.random(), Origin: at, Times: times})
	// The same controller, started again by somebody who wants no renewals.
	still := times
	still.Renew = time.Hour
	c.settled = nodes.New(nodes.Config{Store: c.store, Clock: func() time.Time { return w.now }, Rand: w.random(), Origin: at, Times: still})
	c.server = rpc.NewServer(rpc.Config{
		Registry: methods.Controller, Authenticator: c,
		Bindings: []rpc.Binding{
			rpc.Bind(methods.EnrollNode, enroll.RequestCodec, enroll.ResponseCodec, c.enroll),
			rpc.Bind(methods.EnrollmentState, enroll.StateRequestCodec, enroll.StateResponseCodec, c.state),
			rpc.Bind(methods.GetCredential, enroll.CredentialRequestCodec, enroll.CredentialResponseCodec, c.credential),
			rpc.Bind(methods.RotateCredential, enroll.RotateRequestCodec, enroll.RotateResponseCodec, c.rotate),
		},
	})
	return c, c.store.Write(context.Background(), func(tx store.Tx) error {
		return errors.Join(
			tx.PutOrganization(store.Organization{ID: "o1", Name: "One"}),
			tx.PutCluster(store.Cluster{ID: "c1", Organization: "o1", Name: "one", Revision: 1}),
		)
	})
}

// Authenticate says which program of which node a bearer is.
func (c *controller) Authenticate(ctx context.Context, q rpc.Credential) (rpc.Principal, error) {
	b, err := enroll.ParseBearer(q.Bearer.Reveal())
	if err != nil {
		return rpc.Principal{}, err
	}
	id, m, err := c.nodes.Credential(ctx, b)
	c.w.wrong(c.accepted(b, owner{id, m.Purpose}, m.Generation, m.SessionEpoch, err))
	if err != nil {
		return rpc.Principal{}, err
	}
	caller := rpc.NodeSpark
	if m.Purpose == enroll.Pallet {
		caller = rpc.NodePallet
	}
	return rpc.Principal{Caller: caller, Subject: string(id), Generation: int64(m.Generation), Epoch: int64(m.SessionEpoch)}, nil
}

func ours() handshake.Offer { return handshake.Ours(handshake.SparkNode) }

func (c *controller) enroll(ctx context.Context, _ *rpc.Call, r enroll.Request) (enroll.Response, error) {
	ack, err := c.nodes.Enroll(ctx, r.Proposal, r.Proof)
	committed, wrong := c.model.enrollment(zone.At(c.w.now), r.Proposal, r.Proof, ack, err)
	c.w.wrong(wrong)
	switch {
	case committed && r.Proposal.Fresh():
		c.w.seen.Enrolled++
	case committed:
		c.w.seen.Adopted++
	case err == nil:
		c.w.seen.Replayed++
	}
	return enroll.Response{Acknowledgement: ack, Protocol: ours()}, err
}

func (c *controller) rotate(ctx context.Context, _ *rpc.Call, r enroll.RotateRequest) (enroll.RotateResponse, error) {
	receipt, err := c.nodes.Rotate(ctx, r.Bearer, r.Rotation)
	committed, wrong := c.model.rotation(r.Bearer, r.Rotation, receipt, err)
	c.w.wrong(wrong)
	switch {
	case committed:
		c.w.seen.Rotated++
	case err == nil:
		c.w.seen.Replayed++
	}
	return enroll.RotateResponse{Receipt: receipt, Protocol: ours()}, err
}

func (c *controller) state(ctx context.Context, _ *rpc.Call, r enroll.StateRequest) (enroll.StateResponse, error) {
	id, m, absent, err := c.nodes.State(ctx, r.Bearer)
	if o, a := c.model.current(r.Bearer.Hash()); err == nil && (a == nil || o != owner{id, enroll.Spark} || absent != (c.model.nodes[id].pallet == nil)) {
		c.w.wrong(fmt.Errorf("the state of %s", id))
	}
	return enroll.StateResponse{NodeID: id, Spark: m, PalletAbsent: absent, Protocol: ours()}, err
}

func (c *controller) credential(ctx context.Context, _ *rpc.Call, r enroll.CredentialRequest) (enroll.CredentialResponse, error) {
	id, m, err := c.nodes.Credential(ctx, r.Bearer)
	c.w.wrong(c.accepted(r.Bearer, owner{id, m.Purpose}, m.Generation, m.SessionEpoch, err))
	return enroll.CredentialResponse{NodeID: id, Credential: m, Protocol: ours()}, err
}

// accepted compares with the model whether a bearer was taken, and as whose.
func (c *controller) accepted(b enroll.Bearer, as owner, g enroll.Generation, e enroll.Epoch, err error) error {
	o, a := c.model.current(b.Hash())
	switch {
	case broke(err):
		return nil
	case (a != nil) != (err == nil):
		return fmt.Errorf("a bearer of %v that the model says %v to: %v", o, a != nil, err)
	case a != nil && (o != as || a.generation != g || a.epoch != e):
		return fmt.Errorf("a bearer of %v was taken for one of %v, generation %d, epoch %d", o, as, g, e)
	}
	return nil
}

// heartbeat is the route of reports, from bytes to bytes. A refusal travels as it is.
func (c *controller) heartbeat(body []byte) ([]byte, error) {
	offer, err := handshake.Read(body)
	if err == nil {
		err = handshake.Negotiate(ours(), offer)
	}
	if err != nil {
		return nil, err
	}
	r, err := spark.RequestCodec.Read(body)
	if err != nil {
		return nil, err
	}
	receipt, due, err := c.nodes.Report(context.Background(), r.Bearer, r.Report)
	o, _ := c.model.current(r.Bearer.Hash())
	if o.purpose == enroll.Pallet { // as if it were unknown
		if err == nil {
			c.w.wrong(errors.New("a report by Pallet"))
		}
		return nil, err
	}
	c.w.wrong(c.accepted(r.Bearer, owner{receipt.NodeID, enroll.Spark}, receipt.CredentialGeneration, receipt.SessionEpoch, err))
	if err != nil {
		return nil, err
	}
	c.w.seen.Reported++
	return spark.ResponseCodec.Append(nil, spark.Response{Receipt: receipt, RotationRequired: due, Protocol: ours()})
}

// handle is what arrives.
func (c *controller) handle(beat bool, body []byte) ([]byte, error) {
	if beat {
		return c.heartbeat(body)
	}
	a := c.server.Serve(context.Background(), body, rpc.Incoming{Carrier: rpc.HTTP, Now: c.w.now})
	return a.Body, nil
}

// check compares what the store has of every node with the model.
func (c *controller) check() error {
	return c.store.Read(context.Background(), func(tx store.Tx) error {
		list, err := tx.Audit("", 0, 1)
		if err != nil {
			return err
		}
		if n := int64(0); true {
			if len(list) > 0 {
				n = list[0].Seq
			}
			if n != c.model.audit {
				return fmt.Errorf("%d audit entries for %d commits", n, c.model.audit)
			}
		}
		for _, id := range c.model.order {
			n := c.model.nodes[id]
			for _, u := range []enroll.Purpose{enroll.Spark, enroll.Pallet} {
				kept, found, err := tx.Credential(id, string(u))
				if err != nil {
					return err
				}
				a := *n.of(u)
				if found != (a != nil) || found && (kept.Hash.String() != a.hash.Text() || kept.Generation != int64(a.generation) || kept.Epoch != int64(a.epoch)) {
					return fmt.Errorf("%s of %s is kept as generation %d, and is %s", u, id, kept.Generation, a)
				}
			}
		}
		return nil
	})
}

var local = who.Principal{Kind: who.Local}
