package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/cloud/act"
	logic "github.com/allodhq/allod/internal/cloud/cluster"
	"github.com/allodhq/allod/internal/cloud/page"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/store/memory"
	"github.com/allodhq/allod/internal/cloud/store/storecount"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/cluster"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/spark"
)

// Who asks. Anna administers ours and Vera sees it; Tom administers theirs.
var (
	anna    = who.Principal{Kind: who.Operator, Operator: "anna"}
	vera    = who.Principal{Kind: who.Operator, Operator: "vera"}
	tom     = who.Principal{Kind: who.Operator, Operator: "tom"}
	local   = who.Principal{Kind: who.Local}
	machine = who.Principal{Kind: who.Machine, Service: "s1", Organization: "ours"}
	node    = who.Principal{Kind: who.Node, Node: "n1", Purpose: "spark"}
)

type cloud struct {
	*storecount.Store
	clusters *logic.Clusters
	services *logic.Services
	now      time.Time
}

// start makes a controller with two organizations.
func start(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{Store: storecount.Wrap(memory.New()), now: time.UnixMilli(1_000_000)}
	var mu sync.Mutex
	random := rand.NewChaCha8([32]byte{1})
	config := logic.Config{Store: c.Store, Clock: func() time.Time { return c.now }, Rand: reader(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return random.Read(b)
	})}
	c.clusters, c.services = logic.NewClusters(config), logic.NewServices(config)
	c.write(t, func(tx store.Tx) error {
		return errors.Join(
			tx.PutOrganization(store.Organization{ID: "ours", Name: "Ours"}),
			tx.PutOrganization(store.Organization{ID: "theirs", Name: "Theirs"}),
			tx.PutMember(store.Member{Organization: "ours", Operator: "anna", Role: who.Administrator}),
			tx.PutMember(store.Member{Organization: "ours", Operator: "vera", Role: who.Viewer}),
			tx.PutMember(store.Member{Organization: "theirs", Operator: "tom", Role: who.Administrator}),
		)
	})
	return c
}

type reader func(b []byte) (int, error)

func (r reader) Read(b []byte) (int, error) { return r(b) }

func (c *cloud) write(t *testing.T, fn func(tx store.Tx) error) {
	t.Helper()
	if err := c.Write(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

func (c *cloud) read(t *testing.T, fn func(tx store.Tx) error) {
	t.Helper()
	if err := c.Read(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

func (c *cloud) audit(t *testing.T, o zone.OrganizationID) (list []store.AuditEntry) {
	t.Helper()
	c.read(t, func(tx store.Tx) (err error) {
		list, err = tx.Audit(o, 0, store.MaxList)
		return err
	})
	return list
}

func (c *cloud) newCluster(t *testing.T, p who.Principal, o zone.OrganizationID, m zone.MutationID) cluster.Cluster {
	t.Helper()
	a, err := c.clusters.Create(t.Context(), p, cluster.Create{Organization: o, Cluster: cluster.Writable{Name: "a cluster"}, Mutation: m})
	if err != nil {
		t.Fatal(err)
	}
	return a.Cluster
}

func (c *cloud) newService(t *testing.T, p who.Principal, o zone.OrganizationID, in zone.ClusterID, m zone.MutationID) cluster.Service {
	t.Helper()
	a, err := c.services.Create(t.Context(), p, cluster.CreateService{Organization: o, Service: cluster.WritableService{Name: "shop", Cluster: in}, Mutation: m})
	if err != nil {
		t.Fatal(err)
	}
	return a.Service
}

func (c *cloud) runtime(t *testing.T, id zone.ClusterID) cluster.RuntimeAnswer {
	t.Helper()
	a, err := c.clusters.Runtime(t.Context(), vera, cluster.GetRuntime{Cluster: id})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.RuntimeAnswerCodec.Append(nil, a); err != nil {
		t.Errorf("the answer cannot be sent: %v", err)
	}
	return a
}

func TestF40NewClustersStartAtPallet(t *testing.T) {
	c := start(t)
	made := c.newCluster(t, anna, "ours", "m1")
	if want := (cluster.Cluster{ID: made.ID, Organization: "ours", Revision: 1, CreatedAt: 1_000_000, Data: cluster.Writable{Name: "a cluster"}}); made != want {
		t.Errorf("%+v", made)
	}
	if len(made.ID) != 26 || strings.Trim(string(made.ID), "abcdefghijklmnopqrstuvwxyz234567") != "" {
		t.Errorf("the id %q is no label of a DNS name", made.ID)
	}
	got := c.runtime(t, made.ID)
	if want := (cluster.Runtime{ID: made.ID, Phase: "pallet", Generation: 1, ChangedAt: 1_000_000, ChangedBy: "anna"}); got.Runtime != want {
		t.Errorf("%+v", got.Runtime)
	}
	if got.Blockers == nil || len(got.Blockers) != 0 {
		t.Errorf("%v", got.Blockers)
	}
	if again := c.newCluster(t, anna, "ours", "m2"); again.ID == made.ID {
		t.Error("two clusters have one id")
	}
}

// TestF40AClusterUpdateCannotReachTheRuntime also is F77's check that an update
// cannot change what lies beside the document.
func TestF40AClusterUpdateCannotReachTheRuntime(t *testing.T) {
	c := start(t)
	made := c.newCluster(t, anna, "ours", "m1")
	beside := store.Runtime{Cluster: made.ID, Phase: "draining", Generation: 7, ChangedAt: 5, ChangedBy: "controller"}
	c.write(t, func(tx store.Tx) error { return tx.PutRuntime(beside) })
	c.now = c.now.Add(time.Hour)
	a, err := c.clusters.Update(t.Context(), anna, cluster.Update{Cluster: made.ID, Expected: 1, Data: cluster.Writable{Name: "b"}, Mutation: "m2"})
	made.Data.Name, made.Revision = "b", 2
	if err != nil || a != (cluster.Answer{Cluster: made}) {
		t.Errorf("%+v, %v", a, err)
	}
	c.read(t, func(tx store.Tx) error {
		if got, found, err := tx.Runtime(made.ID); got != beside || !found || err != nil {
			t.Errorf("the record became %+v, %v", got, err)
		}
		if got, _, _ := tx.Cluster(made.ID); got != (store.Cluster{ID: made.ID, Organization: "ours", Name: "b", Revision: 2, CreatedAt: 1_000_000}) {
			t.Errorf("the cluster became %+v", got)
		}
		return nil
	})
	// With these members in it there is no request at all.
	if _, err := cluster.UpdateCodec.Read([]byte(`{"clusterId":"c1","expectedRevision":2,"cluster":{"name":"c","phase":"swarm"},"mutationId":"m3"}`)); err == nil {
		t.Error("an update with a phase is taken")
	}
}

func TestF40BlockersThroughTheStore(t *testing.T) {
	c := start(t)
	id := c.newCluster(t, anna, "ours", "m1").ID
	other := zone.ClusterID("")
	blocked := func(when string, id zone.ClusterID, want ...cluster.Blocker) {
		t.Helper()
		if got := c.runtime(t, id).Blockers; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	phase := func(p cluster.Phase) {
		c.write(t, func(tx store.Tx) error {
			return tx.PutRuntime(store.Runtime{Cluster: id, Phase: string(p), Generation: 2, ChangedBy: "controller"})
		})
	}
	for _, p := range []cluster.Phase{cluster.Swarm, cluster.Draining, cluster.Switching} {
		phase(p)
		blocked(string(p), id, cluster.Blocker{Kind: cluster.RelayNotEnabled}, cluster.Blocker{Kind: cluster.AddressPlanMissing}, cluster.Blocker{Kind: cluster.VPNUnconfigured})
	}
	phase(cluster.Pallet)
	blocked("pallet", id)

	credential := store.Credential{Node: "n1", Purpose: "pallet", Hash: canon.Sum{1}, Generation: 1, Epoch: 1, State: "active", ExpiresAt: 2_000_000}
	lacking := cluster.Blocker{Kind: cluster.NodeWithoutPalletCredential, Node: "n1"}
	put := func(change func(*store.Credential)) {
		changed := credential
		change(&changed)
		c.write(t, func(tx store.Tx) error { return tx.PutCredential(changed) })
	}
	n1 := store.Node{ID: "n1", Cluster: id, Organization: "ours", Hostname: "h1"}
	c.write(t, func(tx store.Tx) error { return tx.PutNode(n1) })
	blocked("a node with nothing", id, lacking)
	put(func(s *store.Credential) { s.Purpose, s.Hash = "spark", canon.Sum{2} })
	blocked("Spark's alone", id, lacking)
	put(func(*store.Credential) {})
	blocked("active", id)
	put(func(s *store.Credential) { s.State = string(enroll.Retiring) })
	blocked("retiring", id)
	put(func(s *store.Credential) { s.State = string(enroll.Revoked) })
	blocked("revoked", id, lacking)
	put(func(*store.Credential) {})
	c.now = time.UnixMilli(1_999_999)
	blocked("about to end", id)
	c.now = time.UnixMilli(2_000_000)
	blocked("ended", id, lacking)
	c.now = time.UnixMilli(1_000_000)

	report := func(architecture string) {
		text, err := spark.ReportCodec.Append(nil, spark.Report{
			Host:   spark.Host{Hostname: "h1", Kernel: "6.1", OS: "Debian", Architecture: architecture, BootID: "b1", CPUs: 1, MemoryBytes: 1, DiskBytes: 1},
			Bundle: spark.Bundle{Version: "1.0.0", SourceCommit: strings.Repeat("0", 40), ManifestDigest: canon.Sum{1}},
		})
		if err != nil {
			t.Fatal(err)
		}
		c.write(t, func(tx store.Tx) error { return tx.PutReport(store.Report{Node: "n1", Report: text}) })
	}
	report("riscv64")
	blocked("riscv64", id, cluster.Blocker{Kind: cluster.NodeArchUnsupported, Node: "n1"})
	for _, architecture := range logic.Architectures() {
		report(architecture)
		blocked(architecture, id)
	}
	report("riscv64")
	n1.RemovedAt = 5
	c.write(t, func(tx store.Tx) error { return tx.PutNode(n1) })
	put(func(s *store.Credential) { s.State = string(enroll.Revoked) })
	blocked("removed", id)

	s := c.newService(t, anna, "ours", "", "m2")
	c.newService(t, tom, "theirs", "", "m3")
	blocked("a service without a cluster, beside one", id)
	other = c.newCluster(t, anna, "ours", "m4").ID
	wide := cluster.Blocker{Kind: cluster.ServiceMultiClusterScope, Service: s.ID}
	blocked("beside two", id, wide)
	blocked("beside two, the other one", other, wide)
	if _, err := c.services.Update(t.Context(), anna, cluster.UpdateService{Service: s.ID, Expected: 1, Data: cluster.WritableService{Name: "shop", Cluster: other}, Mutation: "m5"}); err != nil {
		t.Fatal(err)
	}
	blocked("in the other one", id)
	blocked("in it", other)
}

// damaged is a store with records that cannot be read.
type damaged struct{ store.Store }

func (d damaged) Read(ctx context.Context, fn func(tx store.Tx) error) error {
	return d.Store.Read(ctx, func(tx store.Tx) error { return fn(damagedTx{tx}) })
}

type damagedTx struct{ store.Tx }

func (damagedTx) Credential(zone.NodeID, string) (store.Credential, bool, error) {
	return store.Credential{}, false, store.ErrSetAside
}

func (damagedTx) Report(zone.NodeID) (store.Report, bool, error) {
	return store.Report{}, false, store.ErrSetAside
}

func TestF40ADamagedRecordHidesNothingElse(t *testing.T) {
	c := start(t)
	id := c.newCluster(t, anna, "ours", "m1").ID
	c.write(t, func(tx store.Tx) error {
		return tx.PutNode(store.Node{ID: "n1", Cluster: id, Organization: "ours"})
	})
	config := c.clusters.Config
	config.Store = damaged{config.Store}
	a, err := logic.NewClusters(config).Runtime(t.Context(), anna, cluster.GetRuntime{Cluster: id})
	if want := []cluster.Blocker{{Kind: cluster.NodeWithoutPalletCredential, Node: "n1"}}; err != nil || !slices.Equal(a.Blockers, want) {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestF40EveryNodeAndServiceIsJudged(t *testing.T) {
	c := start(t)
	id := c.newCluster(t, anna, "ours", "m1").ID
	c.newCluster(t, anna, "ours", "m2")
	c.write(t, func(tx store.Tx) error {
		for i := range store.MaxList + 1 {
			if err := errors.Join(
				tx.PutNode(store.Node{ID: zone.NodeID(fmt.Sprintf("n%04d", i)), Cluster: id, Organization: "ours"}),
				tx.PutService(store.Service{ID: zone.ServiceID(fmt.Sprintf("s%04d", i)), Organization: "ours", Name: "a", Revision: 1}),
			); err != nil {
				return err
			}
		}
		return nil
	})
	got := c.runtime(t, id).Blockers
	if len(got) != 2*(store.MaxList+1) || got[store.MaxList].Node != "n1000" || got[len(got)-1].Service != "s1000" {
		t.Errorf("%d blockers", len(got))
	}
}

func TestF40AClusterWithoutItsRecord(t *testing.T) {
	c := start(t)
	c.write(t, func(tx store.Tx) error {
		return tx.PutCluster(store.Cluster{ID: "c1", Organization: "ours", Name: "a", Revision: 1})
	})
	a, err := c.clusters.Runtime(t.Context(), anna, cluster.GetRuntime{Cluster: "c1"})
	if !errors.Is(err, logic.ErrRuntime) || a.Runtime != (cluster.Runtime{}) || a.Blockers != nil {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := c.clusters.Runtime(t.Context(), tom, cluster.GetRuntime{Cluster: "c1"}); !errors.Is(err, who.ErrAbsent) {
		t.Errorf("a stranger: %v", err)
	}
}

func TestF07OfTwoWritesExactlyOneWins(t *testing.T) {
	c := start(t)
	made, service := c.newCluster(t, anna, "ours", "m1"), c.newService(t, anna, "ours", "", "m2")
	const writers = 16
	for what, write := range map[string]func(i int) error{
		"clusters": func(i int) error {
			_, err := c.clusters.Update(t.Context(), anna, cluster.Update{
				Cluster: made.ID, Expected: 1, Data: cluster.Writable{Name: fmt.Sprint(i)}, Mutation: zone.MutationID(fmt.Sprintf("c%d", i)),
			})
			return err
		},
		"services": func(i int) error {
			_, err := c.services.Update(t.Context(), anna, cluster.UpdateService{
				Service: service.ID, Expected: 1, Data: cluster.WritableService{Name: fmt.Sprint(i)}, Mutation: zone.MutationID(fmt.Sprintf("s%d", i)),
			})
			return err
		},
	} {
		before := len(c.audit(t, "ours"))
		errs := make([]error, writers)
		var group sync.WaitGroup
		for i := range writers {
			group.Go(func() { errs[i] = write(i) })
		}
		group.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else if !errors.Is(err, act.ErrRevision) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if won != 1 || len(c.audit(t, "ours")) != before+1 {
			t.Errorf("%s: %d won, %d audit entries", what, won, len(c.audit(t, "ours"))-before)
		}
	}
	c.read(t, func(tx store.Tx) error {
		one, _, _ := tx.Cluster(made.ID)
		two, _, _ := tx.Service(service.ID)
		if one.Revision != 2 || two.Revision != 2 {
			t.Errorf("the revisions are %d and %d", one.Revision, two.Revision)
		}
		return nil
	})
}

func TestF07Replay(t *testing.T) {
	c := start(t)
	ctx := t.Context()
	create := cluster.Create{Organization: "ours", Cluster: cluster.Writable{Name: "a"}, Mutation: "m1"}
	createService := cluster.CreateService{Organization: "ours", Service: cluster.WritableService{Name: "a"}, Mutation: "m2"}
	made, err := c.clusters.Create(ctx, anna, create)
	if err != nil {
		t.Fatal(err)
	}
	service, err := c.services.Create(ctx, anna, createService)
	if err != nil {
		t.Fatal(err)
	}
	update := cluster.Update{Cluster: made.Cluster.ID, Expected: 1, Data: cluster.Writable{Name: "b"}, Mutation: "m3"}
	updateService := cluster.UpdateService{Service: service.Service.ID, Expected: 1, Data: cluster.WritableService{Name: "b", Cluster: made.Cluster.ID}, Mutation: "m4"}
	updated, err := c.clusters.Update(ctx, anna, update)
	if err != nil {
		t.Fatal(err)
	}
	updatedService, err := c.services.Update(ctx, anna, updateService)
	if err != nil {
		t.Fatal(err)
	}
	if made.Replayed || service.Replayed || updated.Replayed || updatedService.Replayed {
		t.Error("what happens first is called a repeat")
	}
	made.Replayed, service.Replayed, updated.Replayed, updatedService.Replayed = true, true, true, true
	replay := func(when string) {
		t.Helper()
		c.now = c.now.Add(time.Minute)
		cost := c.Cost(func() {
			if a, err := c.clusters.Create(ctx, anna, create); a != made || err != nil {
				t.Errorf("%s, createCluster: %+v, %v", when, a, err)
			}
			if a, err := c.services.Create(ctx, anna, createService); a != service || err != nil {
				t.Errorf("%s, createService: %+v, %v", when, a, err)
			}
			if a, err := c.clusters.Update(ctx, anna, update); a != updated || err != nil {
				t.Errorf("%s, updateCluster: %+v, %v", when, a, err)
			}
			if a, err := c.services.Update(ctx, anna, updateService); a != updatedService || err != nil {
				t.Errorf("%s, updateService: %+v, %v", when, a, err)
			}
		})
		if len(cost.Writes) != 0 {
			t.Errorf("%s: a repeat wrote %q", when, cost.Writes)
		}
	}
	replay("after success")
	later := cluster.Update{Cluster: made.Cluster.ID, Expected: 2, Data: cluster.Writable{Name: "c"}, Mutation: "m5"}
	if _, err := c.clusters.Update(ctx, anna, later); err != nil {
		t.Fatal(err)
	}
	replay("after later writes")

	// Another request under a mutation id that was used is a conflict, whatever differs.
	for name, ask := range map[string]func() error{
		"another name": func() error {
			r := update
			r.Data.Name = "x"
			_, err := c.clusters.Update(ctx, anna, r)
			return err
		},
		"another revision": func() error {
			r := update
			r.Expected = 3
			_, err := c.clusters.Update(ctx, anna, r)
			return err
		},
		"another method": func() error {
			r := later
			r.Mutation = create.Mutation
			_, err := c.clusters.Update(ctx, anna, r)
			return err
		},
		"another cluster": func() error {
			r := updateService
			r.Data.Cluster = ""
			_, err := c.services.Update(ctx, anna, r)
			return err
		},
	} {
		if err := ask(); !errors.Is(err, act.ErrMutation) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Elsewhere the same mutation id is another one.
	if a, err := c.clusters.Create(ctx, tom, cluster.Create{Organization: "theirs", Cluster: cluster.Writable{Name: "a"}, Mutation: "m1"}); err != nil || a.Replayed || a.Cluster.Organization != "theirs" {
		t.Errorf("theirs: %+v, %v", a, err)
	}
	if got := c.audit(t, "ours"); len(got) != 5 || got[0].Action != "updateCluster" || got[0].Subject != "cluster/"+string(made.Cluster.ID) || got[0].Actor != "anna" || got[0].Detail != `{"name":"c"}` {
		t.Errorf("the audit log has %+v", got)
	}
}

// refusing fails at one step of a transaction.
type refusing struct {
	store.Store
	fail string
}

var errFull = errors.New("full")

func (r refusing) Write(ctx context.Context, fn func(tx store.Tx) error) error {
	return r.Store.Write(ctx, func(tx store.Tx) error { return fn(refusingTx{tx, r.fail}) })
}

type refusingTx struct {
	store.Tx
	fail string
}

func (t refusingTx) PutRuntime(r store.Runtime) error {
	return t.or("runtime", func() error { return t.Tx.PutRuntime(r) })
}
func (t refusingTx) PutReceipt(r store.Receipt) error {
	return t.or("receipt", func() error { return t.Tx.PutReceipt(r) })
}
func (t refusingTx) AppendAudit(e store.AuditEntry) error {
	return t.or("audit", func() error { return t.Tx.AppendAudit(e) })
}
func (t refusingTx) or(step string, do func() error) error {
	if t.fail == step {
		return errFull
	}
	return do()
}

func TestF07AChangeIsKeptWholeOrNotAtAll(t *testing.T) {
	for _, step := range []string{"runtime", "receipt", "audit"} {
		c := start(t)
		config := c.clusters.Config
		config.Store = refusing{config.Store, step}
		r := cluster.Create{Organization: "ours", Cluster: cluster.Writable{Name: "a"}, Mutation: "m1"}
		if a, err := logic.NewClusters(config).Create(t.Context(), anna, r); !errors.Is(err, errFull) || a != (cluster.Answer{}) {
			t.Errorf("%s: %+v, %v", step, a, err)
		}
		c.read(t, func(tx store.Tx) error {
			list, _ := tx.Clusters("", "", 10)
			_, kept, _ := tx.Receipt("ours", "m1")
			if len(list) != 0 || kept || len(c.audit(t, "")) != 0 {
				t.Errorf("%s: %v is left, receipt %v", step, list, kept)
			}
			return nil
		})
		if a, err := c.clusters.Create(t.Context(), anna, r); err != nil || a.Replayed {
			t.Errorf("%s: asked again: %+v, %v", step, a, err)
		}
	}
}

// ask is one method, asked about an organization, a cluster and a service.
type ask func(p who.Principal, o zone.OrganizationID, id zone.ClusterID, service zone.ServiceID) error

// asks are all methods. changes are those that change something.
func (c *cloud) asks(ctx context.Context) (all, changes map[string]ask) {
	n := 0
	mutation := func() zone.MutationID { n++; return zone.MutationID(fmt.Sprintf("ask%d", n)) }
	changes = map[string]ask{
		"createCluster": func(p who.Principal, o zone.OrganizationID, _ zone.ClusterID, _ zone.ServiceID) error {
			_, err := c.clusters.Create(ctx, p, cluster.Create{Organization: o, Cluster: cluster.Writable{Name: "x"}, Mutation: mutation()})
			return err
		},
		"updateCluster": func(p who.Principal, _ zone.OrganizationID, id zone.ClusterID, _ zone.ServiceID) error {
			_, err := c.clusters.Update(ctx, p, cluster.Update{Cluster: id, Expected: 1, Data: cluster.Writable{Name: "x"}, Mutation: mutation()})
			return err
		},
		"createService": func(p who.Principal, o zone.OrganizationID, _ zone.ClusterID, _ zone.ServiceID) error {
			_, err := c.services.Create(ctx, p, cluster.CreateService{Organization: o, Service: cluster.WritableService{Name: "x"}, Mutation: mutation()})
			return err
		},
		"updateService": func(p who.Principal, _ zone.OrganizationID, _ zone.ClusterID, s zone.ServiceID) error {
			_, err := c.services.Update(ctx, p, cluster.UpdateService{Service: s, Expected: 1, Data: cluster.WritableService{Name: "x"}, Mutation: mutation()})
			return err
		},
	}
	all = map[string]ask{
		"getClusters": func(p who.Principal, o zone.OrganizationID, _ zone.ClusterID, _ zone.ServiceID) error {
			_, err := c.clusters.List(ctx, p, cluster.List{Organization: o})
			return err
		},
		"getClusterRuntime": func(p who.Principal, _ zone.OrganizationID, id zone.ClusterID, _ zone.ServiceID) error {
			_, err := c.clusters.Runtime(ctx, p, cluster.GetRuntime{Cluster: id})
			return err
		},
		"getServices": func(p who.Principal, o zone.OrganizationID, _ zone.ClusterID, _ zone.ServiceID) error {
			_, err := c.services.List(ctx, p, cluster.ListServices{Organization: o})
			return err
		},
	}
	for name, do := range changes {
		all[name] = do
	}
	return all, changes
}

// same holds that two requests are refused with the same words and the same calls of
// the store, and change nothing.
func (c *cloud) same(t *testing.T, what string, want error, absent, foreign func() error) {
	t.Helper()
	var one, two error
	first := c.Cost(func() { one = absent() })
	second := c.Cost(func() { two = foreign() })
	if !errors.Is(one, want) || !errors.Is(two, want) || one.Error() != two.Error() {
		t.Errorf("%s: %v and %v", what, one, two)
	}
	if !first.Equal(second) || len(first.Reads) == 0 || len(first.Writes) != 0 {
		t.Errorf("%s: %+v and %+v", what, first, second)
	}
}

// TestF77AbsentAndForeignAreTheSame is F68's check as well that a foreign
// organization is refused.
func TestF77AbsentAndForeignAreTheSame(t *testing.T) {
	c := start(t)
	theirs := c.newCluster(t, tom, "theirs", "m1")
	service := c.newService(t, tom, "theirs", "", "m2")
	ours := c.newService(t, anna, "ours", "", "m3")
	before := len(c.audit(t, ""))
	all, _ := c.asks(t.Context())
	for name, do := range all {
		for _, p := range []who.Principal{anna, vera, machine, node, {}} {
			c.same(t, name+" by "+string(p.Kind), who.ErrAbsent,
				func() error { return do(p, "nobody", "nothing", "nothing") },
				func() error { return do(p, "theirs", theirs.ID, service.ID) })
		}
		// Whoever administers everything learns that it is not there, too.
		if err := do(local, "nobody", "nothing", "nothing"); !errors.Is(err, who.ErrAbsent) {
			t.Errorf("%s by %s: %v", name, local.Kind, err)
		}
	}
	n := 0
	for name, in := range map[string]func(id zone.ClusterID) error{
		"createService": func(id zone.ClusterID) error {
			n++
			_, err := c.services.Create(t.Context(), anna, cluster.CreateService{Organization: "ours", Service: cluster.WritableService{Name: "x", Cluster: id}, Mutation: zone.MutationID(fmt.Sprint("in", n))})
			return err
		},
		"updateService": func(id zone.ClusterID) error {
			n++
			_, err := c.services.Update(t.Context(), anna, cluster.UpdateService{Service: ours.ID, Expected: 1, Data: cluster.WritableService{Name: "x", Cluster: id}, Mutation: zone.MutationID(fmt.Sprint("in", n))})
			return err
		},
	} {
		c.same(t, name+" in a cluster", who.ErrAbsent, func() error { return in("nothing") }, func() error { return in(theirs.ID) })
	}
	// It is not there for somebody who may see both, either: it is another organization's.
	c.write(t, func(tx store.Tx) error {
		return tx.PutMember(store.Member{Organization: "theirs", Operator: "anna", Role: who.Administrator})
	})
	if _, err := c.services.Create(t.Context(), anna, cluster.CreateService{Organization: "ours", Service: cluster.WritableService{Name: "x", Cluster: theirs.ID}, Mutation: "both"}); !errors.Is(err, who.ErrAbsent) {
		t.Errorf("a service of ours in a cluster of theirs: %v", err)
	}
	if got := len(c.audit(t, "")); got != before {
		t.Errorf("%d audit entries of what was refused", got-before)
	}
	c.read(t, func(tx store.Tx) error {
		clusters, _ := tx.Clusters("", "", 10)
		mine, _ := tx.Services("ours", "", 10)
		other, _ := tx.Services("theirs", "", 10)
		if len(clusters) != 1 || len(mine) != 1 || len(other) != 1 || mine[0].Revision != 1 {
			t.Errorf("%v, %v and %v are there", clusters, mine, other)
		}
		return nil
	})
}

func TestF77ViewersSeeAndChangeNothing(t *testing.T) {
	c := start(t)
	made, service := c.newCluster(t, anna, "ours", "m1"), c.newService(t, anna, "ours", "", "m2")
	before := len(c.audit(t, ""))
	all, changes := c.asks(t.Context())
	for name, do := range all {
		err := do(vera, "ours", made.ID, service.ID)
		if changes[name] == nil && err != nil || changes[name] != nil && !errors.Is(err, who.ErrRole) {
			t.Errorf("%s: %v", name, err)
		}
		if err := do(anna, "ours", made.ID, service.ID); err != nil {
			t.Errorf("%s by an administrator: %v", name, err)
		}
		// A role that was taken away is gone with the next request.
		c.write(t, func(tx store.Tx) error {
			return tx.PutMember(store.Member{Organization: "ours", Operator: "anna"})
		})
		if err := do(anna, "ours", made.ID, service.ID); !errors.Is(err, who.ErrAbsent) {
			t.Errorf("%s by nobody: %v", name, err)
		}
		c.write(t, func(tx store.Tx) error {
			return tx.PutMember(store.Member{Organization: "ours", Operator: "anna", Role: who.Administrator})
		})
	}
	if got := len(c.audit(t, "")) - before; got != len(changes) {
		t.Errorf("%d audit entries for %d changes", got, len(changes))
	}
}

func TestF77ListsShowOnlyTheOrganization(t *testing.T) {
	c := start(t)
	var clusters []cluster.Cluster
	var services []cluster.Service
	for i := range zone.MaxPage + 1 {
		clusters = append(clusters, c.newCluster(t, anna, "ours", zone.MutationID(fmt.Sprint("c", i))))
		services = append(services, c.newService(t, anna, "ours", "", zone.MutationID(fmt.Sprint("s", i))))
	}
	c.newCluster(t, tom, "theirs", "m1")
	c.newService(t, tom, "theirs", "", "m2")
	slices.SortFunc(clusters, func(a, b cluster.Cluster) int { return strings.Compare(string(a.ID), string(b.ID)) })
	slices.SortFunc(services, func(a, b cluster.Service) int { return strings.Compare(string(a.ID), string(b.ID)) })

	one, err := c.clusters.List(t.Context(), vera, cluster.List{Organization: "ours"})
	if err != nil {
		t.Fatal(err)
	}
	two, err := c.clusters.List(t.Context(), vera, cluster.List{Organization: "ours", Cursor: one.Next})
	if err != nil || len(one.Clusters) != zone.MaxPage || two.Next != "" || !slices.Equal(append(slices.Clone(one.Clusters), two.Clusters...), clusters) {
		t.Errorf("%d and %d clusters, %v", len(one.Clusters), len(two.Clusters), err)
	}
	a, err := c.services.List(t.Context(), vera, cluster.ListServices{Organization: "ours"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.services.List(t.Context(), vera, cluster.ListServices{Organization: "ours", Cursor: a.Next})
	if err != nil || len(a.Services) != zone.MaxPage || b.Next != "" || !slices.Equal(append(slices.Clone(a.Services), b.Services...), services) {
		t.Errorf("%d and %d services, %v", len(a.Services), len(b.Services), err)
	}
	// What is answered passes its exact validator.
	for _, page := range []cluster.Page{one, two} {
		text, err := cluster.PageCodec.Append(nil, page)
		if err != nil || len(cluster.PageCodec.Reasons(text, "")) != 0 {
			t.Errorf("a page cannot be sent: %v", err)
		}
	}
	for _, page := range []cluster.ServicePage{a, b} {
		text, err := cluster.ServicePageCodec.Append(nil, page)
		if err != nil || len(cluster.ServicePageCodec.Reasons(text, "")) != 0 {
			t.Errorf("a page of services cannot be sent: %v", err)
		}
	}
	if theirs, err := c.clusters.List(t.Context(), tom, cluster.List{Organization: "theirs"}); err != nil || len(theirs.Clusters) != 1 {
		t.Errorf("theirs are %v, %v", theirs, err)
	}
	if p, err := c.clusters.List(t.Context(), vera, cluster.List{Organization: "ours", Cursor: "YR"}); !errors.Is(err, page.ErrCursor) || p.Clusters != nil {
		t.Errorf("a cursor of nobody: %v", err)
	}
	if p, err := c.services.List(t.Context(), vera, cluster.ListServices{Organization: "ours", Cursor: "YR"}); !errors.Is(err, page.ErrCursor) || p.Services != nil {
		t.Errorf("a cursor of nobody: %v", err)
	}
}

func TestF68Ownership(t *testing.T) {
	c := start(t)
	for id, want := range map[zone.OrganizationID]string{"": "json-range", "Ours": "json-range", "theirs": "zone-absent", "nobody": "zone-absent"} {
		a, err := c.services.Create(t.Context(), anna, cluster.CreateService{Organization: id, Service: cluster.WritableService{Name: "x"}, Mutation: "m1"})
		if err == nil || !strings.HasPrefix(err.Error(), want) || a != (cluster.ServiceAnswer{}) {
			t.Errorf("%q: %+v, %v", id, a, err)
		}
	}
	c.read(t, func(tx store.Tx) error {
		for _, o := range []zone.OrganizationID{"ours", "theirs"} {
			if list, err := tx.Services(o, "", 10); err != nil || len(list) != 0 {
				t.Errorf("%s has %v", o, list)
			}
		}
		return nil
	})
	in := c.newCluster(t, anna, "ours", "m1")
	made := c.newService(t, anna, "ours", in.ID, "m2")
	if want := (cluster.Service{ID: made.ID, Organization: "ours", Revision: 1, CreatedAt: 1_000_000, Data: cluster.WritableService{Name: "shop", Cluster: in.ID}}); made != want {
		t.Errorf("%+v", made)
	}
	a, err := c.services.Update(t.Context(), anna, cluster.UpdateService{Service: made.ID, Expected: 1, Data: cluster.WritableService{Name: "kiosk"}, Mutation: "m3"})
	made.Data, made.Revision = cluster.WritableService{Name: "kiosk"}, 2
	if err != nil || a != (cluster.ServiceAnswer{Service: made}) {
		t.Errorf("%+v, %v", a, err)
	}
	c.read(t, func(tx store.Tx) error {
		if got, _, _ := tx.Service(made.ID); got != (store.Service{ID: made.ID, Organization: "ours", Name: "kiosk", Revision: 2, CreatedAt: 1_000_000}) {
			t.Errorf("kept as %+v", got)
		}
		return nil
	})
	if _, err := c.services.Update(t.Context(), anna, cluster.UpdateService{Service: made.ID, Expected: 1, Data: cluster.WritableService{Name: "x"}, Mutation: "m4"}); !errors.Is(err, act.ErrRevision) {
		t.Errorf("at an old revision: %v", err)
	}
}

func TestIdentifiersOfNoRandomness(t *testing.T) {
	c := start(t)
	config := c.clusters.Config
	config.Rand = reader(func([]byte) (int, error) { return 0, errFull })
	if _, err := logic.NewClusters(config).Create(t.Context(), anna, cluster.Create{Organization: "ours", Cluster: cluster.Writable{Name: "a"}, Mutation: "m1"}); !errors.Is(err, errFull) {
		t.Errorf("%v", err)
	}
	// Where the randomness repeats itself, nothing that is there is replaced.
	config.Rand = reader(func(b []byte) (int, error) { clear(b); return len(b), nil })
	clusters, services := logic.NewClusters(config), logic.NewServices(config)
	for i, want := range []error{nil, store.ErrTaken} {
		m := zone.MutationID(fmt.Sprint("m", i))
		if _, err := clusters.Create(t.Context(), anna, cluster.Create{Organization: "ours", Cluster: cluster.Writable{Name: "a"}, Mutation: m}); !errors.Is(err, want) {
			t.Errorf("%v", err)
		}
		if _, err := services.Create(t.Context(), anna, cluster.CreateService{Organization: "ours", Service: cluster.WritableService{Name: "a"}, Mutation: m + "s"}); !errors.Is(err, want) {
			t.Errorf("%v", err)
		}
	}
}
