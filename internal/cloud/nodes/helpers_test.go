package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	logic "github.com/allodhq/allod/internal/cloud/nodes"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/store/memory"
	"github.com/allodhq/allod/internal/cloud/store/sqlite"
	"github.com/allodhq/allod/internal/cloud/store/storecount"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/nodes"
	"github.com/allodhq/allod/wire/zone/spark"
)

// Who asks. Anna administers ours and Vera sees it; Tom administers theirs.
var (
	anna  = who.Principal{Kind: who.Operator, Operator: "anna"}
	vera  = who.Principal{Kind: who.Operator, Operator: "vera"}
	tom   = who.Principal{Kind: who.Operator, Operator: "tom"}
	local = who.Principal{Kind: who.Local}
)

var ctx = context.Background()

// cloud is a controller with two organizations that have a cluster each.
type cloud struct {
	*storecount.Store
	*logic.Nodes
	faults *faults
	rand   *random
	now    time.Time
	ids    int
}

const origin = "https://zone.test:8443"

func start(t testing.TB) *cloud { return on(t, memory.New()) }

func on(t testing.TB, s store.Store) *cloud {
	t.Helper()
	f := &faults{Store: s}
	c := &cloud{Store: storecount.Wrap(f), faults: f, rand: &random{from: rand.NewChaCha8([32]byte{7})}, now: time.UnixMilli(1_000_000_000_500)}
	at, err := enroll.ParseOrigin(origin)
	if err != nil {
		t.Fatal(err)
	}
	c.Nodes = logic.New(logic.Config{Store: c.Store, Clock: func() time.Time { return c.now }, Rand: c.rand, Origin: at, Pin: enroll.PinOf([]byte("ca"))})
	c.write(t, func(tx store.Tx) error {
		return errors.Join(
			tx.PutOrganization(store.Organization{ID: "ours", Name: "Ours"}),
			tx.PutOrganization(store.Organization{ID: "theirs", Name: "Theirs"}),
			tx.PutMember(store.Member{Organization: "ours", Operator: "anna", Role: who.Administrator}),
			tx.PutMember(store.Member{Organization: "ours", Operator: "vera", Role: who.Viewer}),
			tx.PutMember(store.Member{Organization: "theirs", Operator: "tom", Role: who.Administrator}),
			tx.PutCluster(store.Cluster{ID: "c1", Organization: "ours", Name: "one", Revision: 1}),
			tx.PutCluster(store.Cluster{ID: "c2", Organization: "theirs", Name: "two", Revision: 1}),
		)
	})
	return c
}

// both runs a test on each engine.
func both(t *testing.T, do func(t *testing.T, c *cloud)) {
	t.Run("memory", func(t *testing.T) { do(t, start(t)) })
	t.Run("sqlite", func(t *testing.T) {
		s, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(t.TempDir(), "zone.db")})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		do(t, on(t, s))
	})
}

type random struct {
	mu   sync.Mutex
	from *rand.ChaCha8
}

func (r *random) Read(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.from.Read(b)
}

func (c *cloud) write(t testing.TB, fn func(tx store.Tx) error) {
	t.Helper()
	if err := c.Write(ctx, fn); err != nil {
		t.Fatal(err)
	}
}

func (c *cloud) pass(d time.Duration) { c.now = c.now.Add(d) }

func refused(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func (c *cloud) bearer(t testing.TB) enroll.Bearer {
	t.Helper()
	b, err := enroll.NewBearer(c.rand)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// machine is what a machine has of its enrollment.
type machine struct {
	proposal      enroll.Proposal
	bootstrap     enroll.Proof
	spark, pallet enroll.Bearer
	id            zone.NodeID
	ack           enroll.Acknowledgement
}

// invited is a machine with a line of the cluster c1 that it has not used.
func (c *cloud) invited(t testing.TB) *machine {
	t.Helper()
	return c.machine(t, c.code(t))
}

func (c *cloud) code(t testing.TB) enroll.JumpCode {
	t.Helper()
	a, err := c.Invite(ctx, anna, nodes.Invite{Cluster: "c1"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := enroll.ParseJoinLine(a.Line.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	return l.Code
}

func (c *cloud) machine(t testing.TB, code enroll.JumpCode) *machine {
	t.Helper()
	m := &machine{bootstrap: enroll.BootstrapByCode(code), spark: c.bearer(t), pallet: c.bearer(t)}
	m.proposal = c.proposal(m)
	m.proposal.BootstrapProofHash = code.Hash()
	return m
}

func (c *cloud) proposal(m *machine) enroll.Proposal {
	c.ids++
	p := enroll.Proposal{Hostname: "host", EnrollmentID: enroll.EnrollmentID(fmt.Sprintf("e%d", c.ids))}
	p.Origin, _ = enroll.ParseOrigin(origin)
	p.Spark.CredentialHash, p.Pallet.CredentialHash = m.spark.Hash(), m.pallet.Hash()
	return p
}

// joined is a machine that is a node.
func (c *cloud) joined(t testing.TB) *machine {
	t.Helper()
	m := c.invited(t)
	c.enroll(t, m)
	return m
}

func (c *cloud) enroll(t testing.TB, m *machine) {
	t.Helper()
	ack, err := c.Enroll(ctx, m.proposal, m.bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	m.ack, m.id = ack, ack.NodeID
}

// adopts is the same node with a proposal for a new Pallet.
func (c *cloud) adopts(t testing.TB, m *machine) *machine {
	t.Helper()
	a := &machine{bootstrap: enroll.BootstrapByBearer(m.spark), spark: c.bearer(t), pallet: c.bearer(t), id: m.id}
	a.proposal = c.proposal(a)
	a.proposal.BootstrapProofHash, a.proposal.NodeID = m.spark.Hash(), m.id
	id, s, _, err := c.State(ctx, m.spark)
	if err != nil || id != m.id {
		t.Fatal(id, err)
	}
	a.proposal.Spark.ExpectedGeneration, a.proposal.Spark.ExpectedSessionEpoch = s.Generation, s.SessionEpoch
	return a
}

func (c *cloud) rotation(t testing.TB, u enroll.Purpose, g enroll.Generation) (enroll.Bearer, enroll.Rotation) {
	t.Helper()
	c.ids++
	next := c.bearer(t)
	return next, enroll.Rotation{Purpose: u, NextCredentialHash: next.Hash(), ExpectedGeneration: g, RotationID: enroll.RotationID(fmt.Sprintf("r%d", c.ids))}
}

func (c *cloud) mutation() zone.MutationID {
	c.ids++
	return zone.MutationID(fmt.Sprintf("m%d", c.ids))
}

func report() spark.Report {
	return spark.Report{
		ObservedAt: 1_000_000_000_500, Load: spark.Load{CPU: 1, Memory: 2, Disk: 3},
		Host: spark.Host{
			Hostname: "host", Kernel: "6.1", OS: "Linux", Architecture: "amd64", BootID: "b1", CPUs: 1, MemoryBytes: 1, DiskBytes: 1,
		},
		Bundle: spark.Bundle{Version: "0.1.0", SourceCommit: strings.Repeat("0", 40), ManifestDigest: canon.Sum{1}},
	}
}

// held is everything that the store has of nodes, to compare with ==.
func (c *cloud) held(t testing.TB, codes ...enroll.CredentialHash) string {
	t.Helper()
	var b strings.Builder
	err := c.Read(ctx, func(tx store.Tx) error {
		list, err := tx.Nodes("", "", 0)
		if err != nil {
			return err
		}
		for _, n := range list {
			r, _, err := tx.Report(n.ID)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "%+v\n%d %d %s %s\n", n, r.AcceptedAt, r.Generation, r.Report, r.Receipt)
			for _, u := range []enroll.Purpose{enroll.Spark, enroll.Pallet} {
				k, found, err := tx.Credential(n.ID, string(u))
				if err != nil {
					return err
				}
				fmt.Fprintf(&b, "%v %+v\n", found, k)
			}
		}
		for _, h := range codes {
			sum, _ := canon.ParseSum(h.Text())
			i, found, err := tx.Invitation(sum)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "%v %+v\n", found, i)
		}
		for i := range c.ids + 1 {
			e, found, err := tx.Enrollment(fmt.Sprintf("e%d", i))
			if err != nil {
				return err
			}
			if found {
				fmt.Fprintf(&b, "%+v\n", e)
			}
			k, found, err := tx.Receipt("ours", zone.MutationID(fmt.Sprintf("m%d", i)))
			if err != nil {
				return err
			}
			if found {
				fmt.Fprintf(&b, "%+v\n", k)
			}
		}
		audit, err := tx.Audit("", 0, 0)
		fmt.Fprintf(&b, "%+v\n", audit)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func (c *cloud) audited(t testing.TB) (actions []string) {
	t.Helper()
	c.write(t, func(tx store.Tx) error {
		list, err := tx.Audit("", 0, 0)
		for _, e := range list {
			actions = append(actions, e.Actor+" "+e.Action+" "+e.Subject)
		}
		return err
	})
	return actions
}

var errFault = errors.New("the disk is gone")

// faults is a store whose transactions fail at one call: at the n-th that its
// functions make since arm, or, with one more than there are, at the commit.
type faults struct {
	store.Store
	at    int // 0 for none
	calls int
}

// arm lets the n-th call from now on fail, or, for 0, none.
func (f *faults) arm(n int) { f.at, f.calls = n, 0 }

func (f *faults) Read(ctx context.Context, fn func(store.Tx) error) error {
	return f.Store.Read(ctx, func(tx store.Tx) error {
		if f.at == 0 {
			return fn(tx)
		}
		return fn(&faultyTx{tx, f})
	})
}

func (f *faults) Write(ctx context.Context, fn func(store.Tx) error) error {
	return f.Store.Write(ctx, func(tx store.Tx) error {
		if f.at == 0 {
			return fn(tx)
		}
		if err := fn(&faultyTx{tx, f}); err != nil {
			return err
		}
		return f.call()
	})
}

func (f *faults) call() error {
	if f.calls++; f.calls == f.at {
		return errFault
	}
	return nil
}

// faultyTx fails in every method that this package's changes use. A test holds that
// there are no others.
type faultyTx struct {
	store.Tx
	f *faults
}

func get[T any](f *faults, v T, found bool, err error) (T, bool, error) {
	if fault := f.call(); fault != nil {
		var none T
		return none, false, fault
	}
	return v, found, err
}

func (x *faultyTx) put(do func() error) error {
	if err := x.f.call(); err != nil {
		return err
	}
	return do()
}

func (x *faultyTx) Operator(id zone.OperatorID) (store.Operator, bool, error) {
	v, found, err := x.Tx.Operator(id)
	return get(x.f, v, found, err)
}

func (x *faultyTx) Member(o zone.OrganizationID, p zone.OperatorID) (store.Member, bool, error) {
	v, found, err := x.Tx.Member(o, p)
	return get(x.f, v, found, err)
}

func (x *faultyTx) Cluster(id zone.ClusterID) (store.Cluster, bool, error) {
	v, found, err := x.Tx.Cluster(id)
	return get(x.f, v, found, err)
}

func (x *faultyTx) Node(id zone.NodeID) (store.Node, bool, error) {
	v, found, err := x.Tx.Node(id)
	return get(x.f, v, found, err)
}

func (x *faultyTx) Report(id zone.NodeID) (store.Report, bool, error) {
	v, found, err := x.Tx.Report(id)
	return get(x.f, v, found, err)
}

func (x *faultyTx) Credential(id zone.NodeID, u string) (store.Credential, bool, error) {
	v, found, err := x.Tx.Credential(id, u)
	return get(x.f, v, found, err)
}

func (x *faultyTx) CredentialByHash(h store.Hash) (store.Credential, bool, error) {
	v, found, err := x.Tx.CredentialByHash(h)
	return get(x.f, v, found, err)
}

func (x *faultyTx) Invitation(h store.Hash) (store.Invitation, bool, error) {
	v, found, err := x.Tx.Invitation(h)
	return get(x.f, v, found, err)
}

func (x *faultyTx) Enrollment(id string) (store.Enrollment, bool, error) {
	v, found, err := x.Tx.Enrollment(id)
	return get(x.f, v, found, err)
}

func (x *faultyTx) Receipt(scope string, id zone.MutationID) (store.Receipt, bool, error) {
	v, found, err := x.Tx.Receipt(scope, id)
	return get(x.f, v, found, err)
}

func (x *faultyTx) PutNode(v store.Node) error { return x.put(func() error { return x.Tx.PutNode(v) }) }

func (x *faultyTx) PutReport(v store.Report) error {
	return x.put(func() error { return x.Tx.PutReport(v) })
}

func (x *faultyTx) PutCredential(v store.Credential) error {
	return x.put(func() error { return x.Tx.PutCredential(v) })
}

func (x *faultyTx) DeleteCredential(id zone.NodeID, u string) error {
	return x.put(func() error { return x.Tx.DeleteCredential(id, u) })
}

func (x *faultyTx) PutInvitation(v store.Invitation) error {
	return x.put(func() error { return x.Tx.PutInvitation(v) })
}

func (x *faultyTx) PutEnrollment(v store.Enrollment) error {
	return x.put(func() error { return x.Tx.PutEnrollment(v) })
}

func (x *faultyTx) PutReceipt(v store.Receipt) error {
	return x.put(func() error { return x.Tx.PutReceipt(v) })
}

func (x *faultyTx) AppendAudit(v store.AuditEntry) error {
	return x.put(func() error { return x.Tx.AppendAudit(v) })
}

// same fails unless two values are.
func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}
