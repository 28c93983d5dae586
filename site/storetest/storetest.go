// Package storetest is the suite that every engine of a site's store passes. An
// engine's own test calls [Run], and [Child] from its TestMain, so that the suite
// can also run it from several processes on one folder.
package storetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

// Engine is how the suite reaches one engine.
type Engine struct {
	// Open opens the store that is kept in a folder, and makes it the first time.
	Open func(dir string) (site.Store, error)
	// Damage spoils the stored row of a job behind the store's back. The store is
	// closed meanwhile.
	Damage func(dir string, id ai.JobID) error

	// look makes every claim look first.
	look bool
}

// Run runs the suite.
func Run(t *testing.T, e Engine) {
	for _, group := range []group{
		{"Enqueue", testEnqueue},
		{"Dependencies", testDependencies},
		{"Settling", testSettling},
		{"Claim", testClaim},
		{"Audiences", testAudiences},
		{"Leases", testLeases},
		{"Clocks", testClocks},
		{"Release", testRelease},
		{"LookFirst", testLookFirst},
		{"Complete", testComplete},
		{"Cancel", testCancel},
		{"Purge", testPurge},
		{"Pairing", testPairing},
		{"PairingsOfAll", testPairingsOfAll},
		{"Links", testLinks},
		{"Runners", testRunners},
		{"Protocols", testProtocols},
		{"Keys", testKeys},
		{"AppKeys", testAppKeys},
		{"ListJobs", testListJobs},
		{"HookEnds", testHookEnds},
		{"Hooks", testHooks},
		{"Watch", testWatch},
		{"Reopen", testReopen},
		{"Damaged", testDamaged},
		{"Many", testMany},
		{"Processes", testProcesses},
		{"Kill", testKill},
		{"HookProcesses", testHookProcesses},
		{"HookKill", testHookKill},
	} {
		t.Run(group.name, func(t *testing.T) { group.run(t, e) })
	}
}

type group struct {
	name string
	run  func(t *testing.T, e Engine)
}

// testLookFirst holds that a claim that looks first finds all that any other does.
func testLookFirst(t *testing.T, e Engine) {
	e.look = true
	for _, group := range []group{
		{"Dependencies", testDependencies},
		{"Claim", testClaim},
		{"Audiences", testAudiences},
		{"Leases", testLeases},
		{"Clocks", testClocks},
		{"Release", testRelease},
		{"Damaged", testDamaged},
		{"Many", testMany},
		{"Alone", testLooksAlone},
	} {
		t.Run(group.name, func(t *testing.T) { group.run(t, e) })
	}
}

// testLooksAlone looks where there is one thing only that a look can find.
func testLooksAlone(t *testing.T, e Engine) {
	f := newFixture(t, e)
	one, two := f.device("alice", 1), f.device("alice", 2)
	equal(t, "where nothing waits", ids(f.claim(one, 4)))
	f.enqueue("a", "alice")
	order := f.order(one, 4)
	again := func() []ai.JobID {
		got, err := f.jobs.Claim(f.ctx(), order)
		if err != nil {
			t.Fatal(err)
		}
		return ids(got.Jobs)
	}
	equal(t, "a job that waits", again(), "a")
	equal(t, "its request again", again(), "a")
	equal(t, "another's claim", ids(f.claim(two, 4)))
	if _, err := f.jobs.Renew(f.ctx(), site.Renewal{RunnerID: one, Lease: leaseFor, IssuedAt: f.now, Version: "1", Paused: true, Now: f.now}); err != nil {
		t.Fatal(err)
	}
	equal(t, "the request of a device that was paused since", again(), "a")
	f.now += 2 * Minute
	equal(t, "a lease that has lapsed and was not swept", ids(f.claim(two, 4)), "a")
	// What is settled at once is of a kind that is not asked for.
	for i := range site.MaxSettled {
		f.enqueue(named(i), "carol", after("root"), func(n *site.NewJob) { n.Kind = ai.KindChat })
	}
	f.enqueue("last", "carol", after("root"))
	f.enqueue("root", "carol")
	three := f.device("carol", 3)
	f.finish(three, ai.DispositionOK)
	equal(t, "a dependent that no sweep has settled", ids(f.claim(three, 4)), "last")
}

// T0 is the instant at which every test of the suite begins.
const T0 ai.Millis = 1_750_000_000_000

// Second and Minute are steps of the suite's clock.
const (
	Second ai.Millis = 1000
	Minute           = 60 * Second
)

const (
	leaseFor = time.Minute
	ttl      = 15 * time.Minute
)

// fixture is a store in use, with a clock of its own.
type fixture struct {
	t     *testing.T
	dir   string
	store site.Store
	jobs  site.JobStore
	devs  site.DeviceStore
	now   ai.Millis
	ids   atomic.Uint64
	look  bool // claims look first
}

func newFixture(t *testing.T, e Engine) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: t.TempDir(), now: T0, look: e.look}
	f.open(e)
	t.Cleanup(func() { _ = f.store.Close() })
	return f
}

func (f *fixture) open(e Engine) {
	f.t.Helper()
	store, err := e.Open(f.dir)
	if err != nil {
		f.t.Fatalf("open: %v", err)
	}
	f.store, f.jobs, f.devs = store, store.Jobs(), store.Devices()
}

func (f *fixture) close() {
	f.t.Helper()
	if err := f.store.Close(); err != nil {
		f.t.Fatalf("close: %v", err)
	}
}

func (f *fixture) ctx() context.Context { return f.t.Context() }

// Identity makes a party's public identity from a seed.
func Identity[R key.Role](seed byte) key.Identity[R] {
	k, err := key.NewKeys[R](bytes.NewReader(bytes.Repeat([]byte{seed, 0x5a}, 32)), T0.Time())
	if err != nil {
		panic(err)
	}
	return k.Identity()
}

// Envelope is sealed material as a store sees it: texts it must keep as they
// are.
func Envelope(id ai.JobID, direction ai.Direction) ai.SealedEnvelope {
	return ai.SealedEnvelope{
		Ciphertext: "sealed-" + string(id), RecipientKeyID: "R", SenderKeyID: "S", Direction: direction, DeadlineAt: T0 + 1,
	}
}

// Job is a job of an owner that anyone's device may see fit.
func Job(id ai.JobID, owner ai.Owner, now ai.Millis) site.NewJob {
	return site.NewJob{
		ID: id, Kind: ai.KindGenerate, Owner: owner, Audience: ai.AudienceSelf, SizeClass: ai.SizeSmall,
		TTL: ttl, Payload: Envelope(id, ai.DirectionPayload), Now: now,
	}
}

func (f *fixture) enqueue(id ai.JobID, owner ai.Owner, change ...func(*site.NewJob)) site.Job {
	f.t.Helper()
	n := Job(id, owner, f.now)
	for _, c := range change {
		c(&n)
	}
	j, created, err := f.jobs.Enqueue(f.ctx(), n)
	if err != nil || !created {
		f.t.Fatalf("enqueue %s: created %v, %v", id, created, err)
	}
	return j
}

func after(ids ...ai.JobID) func(*site.NewJob) {
	return func(n *site.NewJob) { n.DependsOn = ids }
}

func audience(a ai.Audience, allowed ...ai.Owner) func(*site.NewJob) {
	return func(n *site.NewJob) { n.Audience, n.AllowedOwners = a, allowed }
}

// device pairs a device of an owner and returns its runner id.
func (f *fixture) device(owner ai.Owner, seed byte) ai.RunnerID {
	f.t.Helper()
	return Pair(f.t, f.store, owner, seed, f.now)
}

// Pair pairs a device, from start to approval.
func Pair(t testing.TB, store site.Store, owner ai.Owner, seed byte, now ai.Millis) ai.RunnerID {
	t.Helper()
	p := pairing(seed, now)
	id := ai.RunnerID(fmt.Sprintf("runner-%s-%d", owner, seed))
	if err := store.Devices().StartPairing(t.Context(), p); err != nil {
		t.Fatalf("start pairing: %v", err)
	}
	if _, err := store.Devices().Approve(t.Context(), site.Approval{UserCode: p.UserCode, Owner: owner, RunnerID: id, Now: now}); err != nil {
		t.Fatalf("approve: %v", err)
	}
	if _, err := store.Devices().Poll(t.Context(), p.DeviceCode, now); err != nil {
		t.Fatalf("poll: %v", err)
	}
	return id
}

func pairing(seed byte, now ai.Millis) site.NewPairing {
	return site.NewPairing{
		DeviceCode: sha256.Sum256([]byte{seed}), UserCode: fmt.Sprintf("CODE-%04d", seed),
		Device: Identity[key.DeviceRole](seed), Daemon: ai.Daemon{Version: "1", Label: "laptop", Platform: ai.PlatformLinux},
		Capabilities: []ai.Capability{capability}, Address: "192.0.2.1", ExpiresAt: now + 10*Minute, Now: now,
	}
}

var capability = ai.Capability{Kind: ai.KindGenerate, BackendID: "ollama", BackendClass: backend.HTTP, Model: "m", OfferScope: ai.OfferSelf}

// offer is a free backend for one kind.
func offer(kind ai.Kind, scope ai.OfferScope) site.KindOffer {
	return site.KindOffer{Kind: kind, Offer: match.Offer{Scope: scope, Cost: backend.Free}}
}

// claim asks for up to max jobs with one offer that all owners' jobs fit.
func (f *fixture) claim(runner ai.RunnerID, max int, offers ...site.KindOffer) []site.Job {
	f.t.Helper()
	got, err := f.jobs.Claim(f.ctx(), f.order(runner, max, offers...))
	if err != nil {
		f.t.Fatalf("claim: %v", err)
	}
	return got.Jobs
}

func (f *fixture) order(runner ai.RunnerID, max int, offers ...site.KindOffer) site.Claim {
	if offers == nil {
		offers = []site.KindOffer{offer(ai.KindGenerate, ai.OfferPublic)}
	}
	c := site.Claim{
		RunnerID: runner, Offers: offers, Max: max, Lease: leaseFor, Now: f.now, LookFirst: f.look,
		NewLease: func() ai.LeaseID { return ai.LeaseID("lease-" + strconv.FormatUint(f.ids.Add(1), 10)) },
	}
	binary.BigEndian.PutUint64(c.Request[:], f.ids.Add(1)) // no two requests are alike
	return c
}

// claimOne claims exactly one job and returns it with its grant.
func (f *fixture) claimOne(runner ai.RunnerID) (site.Job, ai.Grant) {
	f.t.Helper()
	got := f.claim(runner, 1)
	if len(got) != 1 || got[0].Lease == nil {
		f.t.Fatalf("claimed %v, want one job with a lease", ids(got))
	}
	return got[0], ai.Grant{JobID: got[0].ID, LeaseID: got[0].Lease.ID}
}

func (f *fixture) renew(runner ai.RunnerID, grants ...ai.Grant) site.Renewed {
	f.t.Helper()
	out, err := f.jobs.Renew(f.ctx(), site.Renewal{
		RunnerID: runner, Grants: grants, Lease: leaseFor, IssuedAt: f.now, Version: "1",
		Capabilities: []ai.Capability{capability}, Now: f.now,
	})
	if err != nil {
		f.t.Fatalf("renew: %v", err)
	}
	return out
}

func (f *fixture) complete(runner ai.RunnerID, g ai.Grant, d ai.Disposition) (site.Completed, error) {
	return f.jobs.Complete(f.ctx(), site.Completion{
		Grant: g, RunnerID: runner, Envelope: Envelope(g.JobID, ai.DirectionResult), Disposition: d, Now: f.now,
	})
}

// finish claims the oldest job and ends it.
func (f *fixture) finish(runner ai.RunnerID, d ai.Disposition) ai.JobID {
	f.t.Helper()
	j, g := f.claimOne(runner)
	if c, err := f.complete(runner, g, d); err != nil || !c.Accepted {
		f.t.Fatalf("complete %s: %+v, %v", j.ID, c, err)
	}
	return j.ID
}

func (f *fixture) release(runner ai.RunnerID, refused bool, grants ...ai.Grant) []ai.JobID {
	f.t.Helper()
	out, err := f.jobs.Release(f.ctx(), site.Release{RunnerID: runner, Grants: grants, Refused: refused, Now: f.now})
	if err != nil {
		f.t.Fatalf("release: %v", err)
	}
	return out
}

func (f *fixture) job(id ai.JobID) site.Job {
	f.t.Helper()
	j, err := f.jobs.Job(f.ctx(), id, true)
	if err != nil {
		f.t.Fatalf("job %s: %v", id, err)
	}
	return j
}

func (f *fixture) sweep() site.Swept {
	f.t.Helper()
	s, err := f.jobs.Sweep(f.ctx(), f.now)
	if err != nil {
		f.t.Fatalf("sweep: %v", err)
	}
	return s
}

// wantState checks a job's state and why it ended.
func (f *fixture) wantState(id ai.JobID, state ai.State, reason site.Reason) {
	f.t.Helper()
	if j := f.job(id); j.State != state || j.Reason != reason {
		f.t.Errorf("job %s is %s (%q), want %s (%q)", id, j.State, j.Reason, state, reason)
	}
}

func ids(jobs []site.Job) []ai.JobID {
	list := []ai.JobID{}
	for _, j := range jobs {
		list = append(list, j.ID)
	}
	return list
}
