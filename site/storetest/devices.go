package storetest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"reflect"
	"sync"
	"testing"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

func testPairing(t *testing.T, e Engine) {
	f := newFixture(t, e)
	start := func(p site.NewPairing) {
		t.Helper()
		if err := f.devs.StartPairing(f.ctx(), p); err != nil {
			t.Fatalf("start: %v", err)
		}
	}
	status := func(p site.NewPairing, want ai.PairStatus) site.Runner {
		t.Helper()
		got, err := f.devs.Poll(f.ctx(), p.DeviceCode, f.now)
		if err != nil || got.Status != want {
			t.Errorf("poll: %s, %v, want %s", got.Status, err, want)
		}
		return got.Runner
	}
	gone := func(what string, p site.NewPairing) {
		t.Helper()
		_, err := f.devs.Poll(f.ctx(), p.DeviceCode, f.now)
		wantErr(t, what, err, site.ErrNoPairing)
	}
	approve := func(p site.NewPairing, owner ai.Owner, id ai.RunnerID) (site.Runner, error) {
		return f.devs.Approve(f.ctx(), site.Approval{UserCode: p.UserCode, Owner: owner, RunnerID: id, Now: f.now})
	}

	// What waits is shown, and nothing is told before the decision.
	a := pairing(1, f.now)
	gone("an unknown code", a)
	start(a)
	got, err := f.devs.Pairing(f.ctx(), a.UserCode, f.now)
	want := site.Pairing{
		UserCode: a.UserCode, Device: a.Device, Daemon: a.Daemon, Capabilities: a.Capabilities, CreatedAt: f.now, ExpiresAt: a.ExpiresAt,
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("pairing %+v, %v\nwant    %+v", got, err, want)
	}
	if r := status(a, ai.PairPending); !reflect.DeepEqual(r, site.Runner{}) {
		t.Errorf("a pending poll tells %+v", r)
	}
	_, err = f.devs.Pairing(f.ctx(), "CODE-9999", f.now)
	wantErr(t, "another code", err, site.ErrNoPairing)

	// An approval makes a runner, once; the answer can be had again.
	f.now += Second
	r, err := approve(a, "alice", "r1")
	wantRunner := site.Runner{
		ID: "r1", Owner: "alice", Device: a.Device, Daemon: a.Daemon, Capabilities: a.Capabilities, CreatedAt: f.now, SeenAt: f.now,
	}
	if err != nil || !reflect.DeepEqual(r, wantRunner) {
		t.Errorf("approved %+v, %v\nwant     %+v", r, err, wantRunner)
	}
	_, err = approve(a, "mallory", "r2")
	wantErr(t, "approving twice", err, site.ErrNoPairing)
	wantErr(t, "denying what is approved", f.devs.Deny(f.ctx(), a.UserCode, f.now), site.ErrNoPairing)
	for range 2 {
		if r := status(a, ai.PairApproved); !reflect.DeepEqual(r, wantRunner) {
			t.Errorf("collected %+v", r)
		}
	}
	f.now = a.ExpiresAt - 1
	status(a, ai.PairApproved)
	f.now = a.ExpiresAt
	gone("a collected approval after its end", a)
	if r, err := f.devs.Runner(f.ctx(), "r1"); err != nil || r.Revoked() {
		t.Errorf("a collected runner: %+v, %v", r, err)
	}

	// An approval late in its time can be collected for a while longer. If nobody
	// does, the runner has no rights.
	b := pairing(2, f.now)
	start(b)
	f.now = b.ExpiresAt - Second
	if _, err := approve(b, "alice", "r3"); err != nil {
		t.Fatal(err)
	}
	f.now += ai.Millis(site.CollectFor.Milliseconds()) - 1
	if err := f.devs.SweepPairings(f.ctx(), f.now); err != nil {
		t.Fatal(err)
	}
	if r, err := f.devs.Runner(f.ctx(), "r3"); err != nil || r.Revoked() {
		t.Errorf("still to be collected: %+v, %v", r, err)
	}
	f.now++
	gone("an approval that nobody collected", b)
	if err := f.devs.SweepPairings(f.ctx(), f.now); err != nil {
		t.Fatal(err)
	}
	if r, err := f.devs.Runner(f.ctx(), "r3"); err != nil || !r.Revoked() {
		t.Errorf("never collected: %+v, %v", r, err)
	}

	// Codes end, and cannot be approved or denied after.
	c := pairing(3, f.now)
	start(c)
	f.now = c.ExpiresAt
	status(c, ai.PairExpired)
	_, err = approve(c, "alice", "r4")
	wantErr(t, "approving after the end", err, site.ErrNoPairing)
	wantErr(t, "denying after the end", f.devs.Deny(f.ctx(), c.UserCode, f.now), site.ErrNoPairing)

	// A denial is told, also after the end of the code.
	d := pairing(4, f.now)
	start(d)
	if err := f.devs.Deny(f.ctx(), d.UserCode, f.now); err != nil {
		t.Fatal(err)
	}
	status(d, ai.PairDenied)
	_, err = approve(d, "alice", "r5")
	wantErr(t, "approving what is denied", err, site.ErrNoPairing)
	f.now = d.ExpiresAt + 1
	status(d, ai.PairDenied)

	// A start from the same address replaces its own, another's stays, and a key
	// has few at once.
	first := pairing(5, f.now)
	start(first)
	second := pairing(6, f.now)
	second.Device = first.Device
	start(second)
	status(first, ai.PairExpired)
	status(second, ai.PairPending)
	_, err = f.devs.Pairing(f.ctx(), first.UserCode, f.now)
	wantErr(t, "a replaced code", err, site.ErrNoPairing)
	elsewhere := second
	for seed := byte(7); seed < 7+site.MaxPairings-1; seed++ {
		elsewhere = pairing(seed, f.now)
		elsewhere.Device, elsewhere.Address = first.Device, "192.0.2."+string(rune('0'+seed))
		start(elsewhere)
	}
	status(second, ai.PairPending)
	more := pairing(20, f.now)
	more.Device, more.Address = first.Device, "198.51.100.1"
	wantErr(t, "one more for the same key", f.devs.StartPairing(f.ctx(), more), site.ErrTooManyPairings)
	gone("what was refused", more)
	more.Address = elsewhere.Address
	start(more)
	status(elsewhere, ai.PairExpired)
	other := pairing(21, f.now)
	other.Address = "198.51.100.1"
	start(other) // another key has its own count

	// Pairing a key again supersedes its old runner, of the same owner only.
	pair := func(seed byte, owner ai.Owner, id ai.RunnerID) {
		t.Helper()
		p := pairing(seed, f.now)
		p.Device = Identity[key.DeviceRole](30)
		start(p)
		if _, err := approve(p, owner, id); err != nil {
			t.Fatal(err)
		}
	}
	pair(31, "alice", "old")
	pair(32, "bob", "bobs")
	pair(33, "alice", "new")
	for id, revoked := range map[ai.RunnerID]bool{"old": true, "bobs": false, "new": false} {
		if r, err := f.devs.Runner(f.ctx(), id); err != nil || r.Revoked() != revoked {
			t.Errorf("%s: %+v, %v", id, r, err)
		}
	}
}

func testRunners(t *testing.T, e Engine) {
	f := newFixture(t, e)
	list := func(q site.RunnerQuery) []ai.RunnerID {
		t.Helper()
		runners, err := f.devs.Runners(f.ctx(), q)
		if err != nil {
			t.Fatal(err)
		}
		out := []ai.RunnerID{}
		for _, r := range runners {
			out = append(out, r.ID)
		}
		return out
	}
	equal(t, "none yet", list(site.RunnerQuery{}))
	a1 := f.device("alice", 1)
	f.now += Second
	b := f.device("bob", 2)
	f.now += Second
	a2 := f.device("alice", 3)
	equal(t, "all", list(site.RunnerQuery{}), a1, b, a2)
	equal(t, "one owner's", list(site.RunnerQuery{Owner: "alice"}), a1, a2)
	equal(t, "nobody's", list(site.RunnerQuery{Owner: "Alice"}))
	_, err := f.devs.Runner(f.ctx(), "unknown")
	wantErr(t, "an unknown device", err, site.ErrNoRunner)

	// The newest heartbeat, by the device's own clock, says how things are there.
	beat := func(issued ai.Millis, version string, paused bool) {
		t.Helper()
		if _, err := f.jobs.Renew(f.ctx(), site.Renewal{
			RunnerID: a1, Lease: leaseFor, IssuedAt: issued, Version: version, Paused: paused,
			Capabilities: []ai.Capability{capability, capability}, Now: f.now,
		}); err != nil {
			t.Fatal(err)
		}
	}
	f.now += Minute
	beat(100, "2", true)
	seen := f.now
	r, err := f.devs.Runner(f.ctx(), a1)
	if err != nil || r.SeenAt != seen || !r.Paused || r.Daemon.Version != "2" || len(r.Capabilities) != 2 {
		t.Errorf("after a heartbeat: %+v, %v", r, err)
	}
	equal(t, "live, with one paused", list(site.RunnerQuery{LiveSince: 1}), b, a2)
	f.now += Second
	beat(99, "1", false) // an older one that was delayed
	if r, err := f.devs.Runner(f.ctx(), a1); err != nil || !r.Paused || r.Daemon.Version != "2" || r.SeenAt != f.now {
		t.Errorf("after a delayed heartbeat: %+v, %v", r, err)
	}
	beat(101, "3", false)
	equal(t, "live since a while ago", list(site.RunnerQuery{LiveSince: f.now}), a1)
	equal(t, "live since long ago", list(site.RunnerQuery{LiveSince: T0}), a1, b, a2)
	equal(t, "live, one owner's", list(site.RunnerQuery{LiveSince: T0, Owner: "bob"}), b)

	// Revocation is one-way, and the first time counts.
	first := f.now
	if r, err := f.devs.Revoke(f.ctx(), b, f.now); err != nil || r.RevokedAt != first {
		t.Errorf("revoked: %+v, %v", r, err)
	}
	f.now += Minute
	if r, err := f.devs.Revoke(f.ctx(), b, f.now); err != nil || r.RevokedAt != first {
		t.Errorf("revoked again: %+v, %v", r, err)
	}
	_, err = f.devs.Revoke(f.ctx(), "unknown", f.now)
	wantErr(t, "revoking an unknown device", err, site.ErrNoRunner)
	equal(t, "live without the revoked", list(site.RunnerQuery{LiveSince: T0}), a1, a2)
	equal(t, "all with the revoked", list(site.RunnerQuery{}), a1, b, a2)
}

func testKeys(t *testing.T, e Engine) {
	f := newFixture(t, e)
	ring := f.store.Keys()
	one, two, three := Identity[key.SiteRole](1), Identity[key.SiteRole](2), Identity[key.SiteRole](3)
	check := func(what string, want ...site.RingKey) {
		t.Helper()
		got, err := ring.Keys(f.ctx())
		if err != nil {
			t.Fatal(err)
		}
		equal(t, what, got, want...)
	}
	use := func(k key.Site) {
		t.Helper()
		if err := ring.Use(f.ctx(), k, f.now); err != nil {
			t.Fatal(err)
		}
	}
	check("empty")
	use(one)
	t1 := f.now
	check("one key", site.RingKey{Site: one, AddedAt: t1, Current: true})
	f.now += Second
	use(two)
	t2 := f.now
	check("two keys", site.RingKey{Site: two, AddedAt: t2, Current: true}, site.RingKey{Site: one, AddedAt: t1})
	f.now += Second
	use(one)
	check("the older is current again", site.RingKey{Site: one, AddedAt: t1, Current: true}, site.RingKey{Site: two, AddedAt: t2})
	wantErr(t, "removing the current key", ring.Remove(f.ctx(), one.Fingerprint()), site.ErrNoKey)
	wantErr(t, "removing an unknown key", ring.Remove(f.ctx(), three.Fingerprint()), site.ErrNoKey)
	if err := ring.Remove(f.ctx(), two.Fingerprint()); err != nil {
		t.Error(err)
	}
	check("after a removal", site.RingKey{Site: one, AddedAt: t1, Current: true})
}

// testPairingsOfAll holds how many codes of all devices wait at once.
func testPairingsOfAll(t *testing.T, e Engine) {
	f := newFixture(t, e)
	// A key may have a few, so there are not as many keys to be made.
	nth := func(i int) site.NewPairing {
		p := pairing(1, f.now)
		k, err := key.NewKeys[key.DeviceRole](bytes.NewReader(bytes.Repeat([]byte{byte(i / 3), byte(i / 3 >> 8), 0x5a, 0xa5}, 16)), T0.Time())
		if err != nil {
			t.Error(err)
		}
		p.Device, p.Address = k.Identity(), fmt.Sprint("192.0.2.", i%site.MaxPairings)
		p.DeviceCode, p.UserCode = sha256.Sum256([]byte{byte(i), byte(i >> 8)}), fmt.Sprintf("CODE-%04d", i)
		return p
	}
	var starts sync.WaitGroup
	const together = 64 // which is fewer commits
	for from := range together {
		starts.Go(func() {
			for i := from; i < site.MaxWaitingPairings; i += together {
				if err := f.devs.StartPairing(f.ctx(), nth(i)); err != nil {
					t.Errorf("start %d: %v", i, err)
				}
			}
		})
	}
	starts.Wait()
	more := nth(site.MaxWaitingPairings)
	err := f.devs.StartPairing(f.ctx(), more)
	wantErr(t, "one more", err, site.ErrTooManyPairings)
	if refusal.From(err).Detail() == "" {
		t.Error("the refusal does not say that the bound is the site's")
	}
	if _, err := f.devs.Pairing(f.ctx(), more.UserCode, f.now); err == nil {
		t.Error("what was refused waits")
	}
	again := nth(0)
	again.DeviceCode, again.UserCode = more.DeviceCode, more.UserCode
	if err := f.devs.StartPairing(f.ctx(), again); err != nil {
		t.Errorf("one that replaces its own: %v", err)
	}
	if err := f.devs.Deny(f.ctx(), nth(1).UserCode, f.now); err != nil {
		t.Fatal(err)
	}
	last := nth(site.MaxWaitingPairings + 1)
	if err := f.devs.StartPairing(f.ctx(), last); err != nil {
		t.Errorf("after one was decided: %v", err)
	}
	last = nth(site.MaxWaitingPairings + 2)
	wantErr(t, "one more again", f.devs.StartPairing(f.ctx(), last), site.ErrTooManyPairings)
	f.now += 10 * Minute
	if err := f.devs.StartPairing(f.ctx(), nth(site.MaxWaitingPairings+2)); err != nil {
		t.Errorf("after they have ended: %v", err)
	}
}
