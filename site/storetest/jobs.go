package storetest

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

// equal compares two lists by content; an empty one equals nil.
func equal[T comparable](t *testing.T, what string, got []T, want ...T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func testEnqueue(t *testing.T, e Engine) {
	f := newFixture(t, e)
	n := Job("a", "alice", f.now)
	n.Audience, n.AllowedOwners, n.SizeClass, n.DeadlineAt = ai.AudienceNamed, []ai.Owner{"bob", "carol"}, ai.SizeLarge, f.now+Minute
	n.DependsOn = []ai.JobID{"z", "b", "b"}
	want := site.Job{
		ID: "a", Kind: ai.KindGenerate, Owner: "alice", Audience: ai.AudienceNamed, AllowedOwners: []ai.Owner{"bob", "carol"},
		SizeClass: ai.SizeLarge, DependsOn: []ai.JobID{"b", "z"}, State: ai.StateQueued, CreatedAt: f.now, UpdatedAt: f.now,
		TTL: ttl, DeadlineAt: f.now + Minute,
	}
	got, created, err := f.jobs.Enqueue(f.ctx(), n)
	if err != nil || !created || !reflect.DeepEqual(got, want) {
		t.Errorf("stored %+v, created %v, %v\nwant   %+v", got, created, err, want)
	}
	if got, err := f.jobs.Job(f.ctx(), "a", false); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read   %+v, %v\nwant   %+v", got, err, want)
	}
	want.Payload = n.Payload
	if got := f.job("a"); !reflect.DeepEqual(got, want) {
		t.Errorf("read   %+v\nwant   %+v", got, want)
	}

	// The same id again gives the job as it stands, whatever else is said.
	again := n
	again.Payload, again.TTL, again.Now = Envelope("other", ai.DirectionPayload), time.Second, f.now+Second
	if got, created, err := f.jobs.Enqueue(f.ctx(), again); err != nil || created || got.TTL != ttl || got.CreatedAt != f.now {
		t.Errorf("again: %+v, created %v, %v", got, created, err)
	}
	for name, change := range map[string]func(*site.NewJob){
		"owner":    func(n *site.NewJob) { n.Owner = "mallory" },
		"kind":     func(n *site.NewJob) { n.Kind = ai.KindChat },
		"audience": func(n *site.NewJob) { n.Audience = ai.AudiencePublic },
	} {
		other := n
		change(&other)
		got, _, err := f.jobs.Enqueue(f.ctx(), other)
		wantErr(t, "the same id with another "+name, err, site.ErrConflict)
		if !reflect.DeepEqual(got, site.Job{}) {
			t.Errorf("a refusal came with %+v", got)
		}
	}
	_, err = f.jobs.Job(f.ctx(), "unknown", true)
	wantErr(t, "an unknown job", err, site.ErrNoJob)

	// The quota counts what is unfinished.
	limited := func(id ai.JobID) error {
		n := Job(id, "quinn", f.now)
		n.Quota = 2
		_, _, err := f.jobs.Enqueue(f.ctx(), n)
		return err
	}
	if err := errors.Join(limited("q1"), limited("q2"), limited("q2")); err != nil {
		t.Errorf("within the quota: %v", err)
	}
	wantErr(t, "above the quota", limited("q3"), site.ErrQuota)
	_, err = f.jobs.Job(f.ctx(), "q3", true)
	wantErr(t, "what the quota refused", err, site.ErrNoJob)
	if _, err := f.jobs.Cancel(f.ctx(), site.CancelRequest{ID: "q1", Now: f.now}); err != nil {
		t.Fatal(err)
	}
	if err := limited("q3"); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}

func testDependencies(t *testing.T, e Engine) {
	f := newFixture(t, e)
	dev := f.device("alice", 1)
	f.enqueue("c", "alice", after("a", "b")) // named before they exist
	f.enqueue("a", "alice")
	f.now += Minute
	f.enqueue("b", "alice")
	if j := f.job("c"); !j.Blocked() || j.ClaimableAt != 0 {
		t.Errorf("c is not blocked: %+v", j)
	}
	equal(t, "claimable before", ids(f.claim(dev, 8)), "a", "b")
	done := func(id ai.JobID, d ai.Disposition) {
		t.Helper()
		j := f.job(id)
		if _, err := f.complete(dev, ai.Grant{JobID: id, LeaseID: j.Lease.ID}, d); err != nil {
			t.Fatal(err)
		}
	}
	done("a", ai.DispositionOK)
	equal(t, "claimable while one is missing", ids(f.claim(dev, 8)))
	f.now += Second
	done("b", ai.DispositionOK)
	if j := f.job("c"); j.ClaimableAt != f.now {
		t.Errorf("c is claimable from %d, want %d", j.ClaimableAt, f.now)
	}
	equal(t, "claimable after", ids(f.claim(dev, 8)), "c")

	// A dependency that ends otherwise ends what waits for it, all the way down.
	for _, d := range []ai.Disposition{ai.DispositionError, ai.DispositionCanceled} {
		t.Run(string(d), func(t *testing.T) {
			f := newFixture(t, e)
			dev := f.device("alice", 1)
			f.enqueue("root", "alice")
			f.enqueue("child", "alice", after("root"))
			f.enqueue("grandchild", "alice", after("child", "root"))
			f.enqueue("other", "alice", after("unknown"))
			f.finish(dev, d)
			f.wantState("child", ai.StateCanceled, site.ReasonDependency)
			f.wantState("grandchild", ai.StateCanceled, site.ReasonDependency)
			f.wantState("other", ai.StateQueued, site.ReasonNone)
			f.enqueue("late", "alice", after("root"))
			f.wantState("late", ai.StateCanceled, site.ReasonDependency)
			f.enqueue("unknown", "alice", after("late")) // ends at once, and so does other
			f.wantState("other", ai.StateCanceled, site.ReasonDependency)
		})
	}
	t.Run("expired", func(t *testing.T) {
		f := newFixture(t, e)
		f.enqueue("root", "alice")
		f.enqueue("child", "alice", after("root"))
		f.now += ai.Millis(ttl.Milliseconds())
		f.sweep()
		f.wantState("root", ai.StateExpired, site.ReasonTTL)
		f.wantState("child", ai.StateCanceled, site.ReasonDependency)
	})
	t.Run("canceled by the app", func(t *testing.T) {
		f := newFixture(t, e)
		f.enqueue("root", "alice")
		f.enqueue("child", "alice", after("root"))
		if _, err := f.jobs.Cancel(f.ctx(), site.CancelRequest{ID: "root", Now: f.now}); err != nil {
			t.Fatal(err)
		}
		f.wantState("root", ai.StateCanceled, site.ReasonApp)
		f.wantState("child", ai.StateCanceled, site.ReasonDependency)
	})
	testOthersDependencies(t, e)
}

// testOthersDependencies: the contract's own conformance lets a job wait for one of
// another owner.
func testOthersDependencies(t *testing.T, e Engine) {
	t.Run("another owner's", func(t *testing.T) {
		f := newFixture(t, e)
		f.enqueue("x", "bob")
		f.enqueue("waits", "alice", after("x"))
		if j := f.job("waits"); !j.Blocked() {
			t.Errorf("before: %+v", j)
		}
		f.finish(f.device("bob", 1), ai.DispositionOK)
		if j := f.job("waits"); j.ClaimableAt != f.now {
			t.Errorf("after: %+v", j)
		}
	})
}

func testClaim(t *testing.T, e Engine) {
	f := newFixture(t, e)
	alice, bob := f.device("alice", 1), f.device("bob", 2)
	f.enqueue("chat", "alice", func(n *site.NewJob) { n.Kind = ai.KindChat })
	f.now += Second
	f.enqueue("a-self", "alice")
	f.now += Second
	f.enqueue("a-public", "alice", audience(ai.AudiencePublic))
	f.now += Second
	f.enqueue("a-named", "alice", audience(ai.AudienceNamed))
	f.now += Second
	f.enqueue("a-listed", "alice", audience(ai.AudienceNamed, "bob", "zed"))
	f.now += Second
	f.enqueue("a-listed-else", "alice", audience(ai.AudienceNamed, "zed"))
	f.enqueue("a-listed-none", "alice", func(n *site.NewJob) { n.Audience, n.AllowedOwners = ai.AudienceNamed, []ai.Owner{} })

	// peek claims and gives everything back.
	peek := func(runner ai.RunnerID, max int, offers ...site.KindOffer) []ai.JobID {
		t.Helper()
		got := f.claim(runner, max, offers...)
		before := f.now
		for _, j := range got {
			f.now = j.ClaimableAt // so that the order stays
			f.release(runner, false, ai.Grant{JobID: j.ID, LeaseID: j.Lease.ID})
		}
		f.now = before
		return ids(got)
	}
	free := func(scope ai.OfferScope) site.KindOffer { return offer(ai.KindGenerate, scope) }
	paid := func(scope ai.OfferScope, cost backend.Cost, spend match.Spend) site.KindOffer {
		return site.KindOffer{Kind: ai.KindGenerate, Offer: match.Offer{Scope: scope, Cost: cost, Spend: spend}}
	}
	own := []ai.JobID{"a-self", "a-public", "a-named", "a-listed", "a-listed-else", "a-listed-none"}
	others := []ai.JobID{"a-public", "a-named", "a-listed"}
	agreed := match.Spend{Acknowledged: true}
	for _, c := range []struct {
		name   string
		runner ai.RunnerID
		offers []site.KindOffer
		want   []ai.JobID
	}{
		{"own, offered to self", alice, []site.KindOffer{free(ai.OfferSelf)}, own},
		{"own, offered to all", alice, []site.KindOffer{free(ai.OfferPublic)}, own},
		{"own, subscription", alice, []site.KindOffer{paid(ai.OfferSelf, backend.Subscription, match.Spend{})}, own},
		{"own, metered without consent", alice, []site.KindOffer{paid(ai.OfferSelf, backend.Metered, match.Spend{})}, own},
		{"other's, offered to self", bob, []site.KindOffer{free(ai.OfferSelf)}, nil},
		{"other's, offered to named", bob, []site.KindOffer{free(ai.OfferNamed)}, others},
		{"other's, offered to all", bob, []site.KindOffer{free(ai.OfferPublic)}, others},
		{"other's, subscription", bob, []site.KindOffer{paid(ai.OfferPublic, backend.Subscription, agreed)}, nil},
		{"other's, metered without consent", bob, []site.KindOffer{paid(ai.OfferPublic, backend.Metered, match.Spend{})}, nil},
		{"other's, metered with consent", bob, []site.KindOffer{paid(ai.OfferPublic, backend.Metered, agreed)}, others},
		{"another kind", alice, []site.KindOffer{offer(ai.KindChat, ai.OfferSelf)}, []ai.JobID{"chat"}},
		{"two kinds, oldest first", alice, []site.KindOffer{free(ai.OfferSelf), offer(ai.KindChat, ai.OfferSelf)}, append([]ai.JobID{"chat"}, own...)},
		{"nothing offered", alice, []site.KindOffer{}, nil},
	} {
		if got := peek(c.runner, 64, c.offers...); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	equal(t, "max", peek(alice, 2), "a-self", "a-public")

	j, g := f.claimOne(alice)
	want := ai.Lease{ID: g.LeaseID, RunnerID: alice, ExpiresAt: f.now + ai.Millis(leaseFor.Milliseconds())}
	if j.State != ai.StateClaimed || *j.Lease != want || j.Payload != (ai.SealedEnvelope{}) {
		t.Errorf("claimed %+v", j)
	}
	if stored := f.job(j.ID); stored.State != ai.StateClaimed || *stored.Lease != want || stored.Attempts != j.Attempts {
		t.Errorf("stored %+v", stored)
	}

	// A repeat of the same request gets what is left of its grants, and no more.
	order := f.order(alice, 2)
	again := func() ([]site.Job, error) {
		got, err := f.jobs.Claim(f.ctx(), order)
		return got.Jobs, err
	}
	first, err := again()
	if err != nil || len(first) != 2 {
		t.Fatalf("claimed %v, %v", ids(first), err)
	}
	repeat, err := again()
	if err != nil || !slices.Equal(ids(repeat), ids(first)) || *repeat[0].Lease != *first[0].Lease {
		t.Errorf("a repeat got %v, %v, want %v", ids(repeat), err, ids(first))
	}
	if _, err := f.complete(alice, ai.Grant{JobID: first[0].ID, LeaseID: first[0].Lease.ID}, ai.DispositionOK); err != nil {
		t.Fatal(err)
	}
	repeat, err = again()
	if err != nil || !slices.Equal(ids(repeat), ids(first[1:])) {
		t.Errorf("a repeat after one has ended got %v, %v, want %v", ids(repeat), err, ids(first[1:]))
	}

	// Who may not work gets nothing.
	_, err = f.jobs.Claim(f.ctx(), f.order("runner-unknown", 1))
	wantErr(t, "an unknown device", err, site.ErrNoRunner)
	if _, err := f.jobs.Renew(f.ctx(), site.Renewal{RunnerID: bob, Lease: leaseFor, IssuedAt: f.now, Version: "1", Paused: true, Now: f.now}); err != nil {
		t.Fatal(err)
	}
	equal(t, "a paused device", ids(f.claim(bob, 8)))
	if got, err := f.jobs.Claim(f.ctx(), f.order(bob, 8)); err != nil || !got.Paused {
		t.Errorf("it is not told that it is paused: %+v, %v", got, err)
	}
	if _, err := f.devs.Revoke(f.ctx(), bob, f.now); err != nil {
		t.Fatal(err)
	}
	_, err = f.jobs.Claim(f.ctx(), f.order(bob, 1))
	wantErr(t, "a revoked device", err, site.ErrRunnerRevoked)
}

func testLeases(t *testing.T, e Engine) {
	f := newFixture(t, e)
	one, two := f.device("alice", 1), f.device("alice", 2)
	f.enqueue("a", "alice")
	j, g := f.claimOne(one)

	// A renewal extends and makes it running, and never shortens.
	f.now += 30 * Second
	if out := f.renew(one, g); len(out.Lost)+len(out.Cancel) > 0 {
		t.Errorf("a held grant: %+v", out)
	}
	if j = f.job("a"); j.State != ai.StateRunning || j.Lease.ExpiresAt != f.now+Minute || j.Lease.ID != g.LeaseID {
		t.Errorf("renewed: %+v", j.Lease)
	}
	if _, err := f.jobs.Renew(f.ctx(), site.Renewal{RunnerID: one, Grants: []ai.Grant{g}, Lease: time.Second, IssuedAt: f.now, Version: "1", Now: f.now}); err != nil {
		t.Fatal(err)
	}
	if got := f.job("a").Lease.ExpiresAt; got != j.Lease.ExpiresAt {
		t.Errorf("a renewal shortened the lease by %d ms", j.Lease.ExpiresAt-got)
	}

	// Exactly the named grant, of exactly this device.
	for name, grant := range map[string]ai.Grant{
		"another lease": {JobID: "a", LeaseID: "lease-x"}, "an unknown job": {JobID: "x", LeaseID: g.LeaseID},
	} {
		if out := f.renew(one, grant); !slices.Equal(out.Lost, []ai.Grant{grant}) {
			t.Errorf("%s: lost %v", name, out.Lost)
		}
	}
	if out := f.renew(two, g); !slices.Equal(out.Lost, []ai.Grant{g}) {
		t.Errorf("another device's grant: lost %v", out.Lost)
	}

	// Held is for the holder alone, and ends with the lease, also before a sweep.
	if held, err := f.jobs.Held(f.ctx(), g, one, f.now); err != nil || held.Payload != Envelope("a", ai.DirectionPayload) {
		t.Errorf("held: %+v, %v", held.Payload, err)
	}
	for name, c := range map[string]struct {
		g   ai.Grant
		r   ai.RunnerID
		now ai.Millis
	}{
		"another device": {g, two, f.now}, "another lease": {ai.Grant{JobID: "a", LeaseID: "x"}, one, f.now},
		"an unknown job": {ai.Grant{JobID: "x", LeaseID: g.LeaseID}, one, f.now}, "a lapsed lease": {g, one, j.Lease.ExpiresAt},
	} {
		_, err := f.jobs.Held(f.ctx(), c.g, c.r, c.now)
		wantErr(t, name, err, site.ErrNotHeld)
	}

	// A lease that lapses makes the job claimable again, under a new grant.
	f.now = j.Lease.ExpiresAt
	if out := f.renew(one, g); !slices.Equal(out.Lost, []ai.Grant{g}) {
		t.Errorf("a late heartbeat kept its lease: %+v", out)
	}
	if j = f.job("a"); j.State != ai.StateQueued || j.Lease != nil || j.ClaimableAt != f.now {
		t.Errorf("lapsed: %+v", j)
	}
	j, again := f.claimOne(two)
	if again.LeaseID == g.LeaseID || j.Attempts != 2 {
		t.Errorf("claimed again: %+v", j)
	}
	_, err := f.complete(one, g, ai.DispositionOK)
	wantErr(t, "a result under the old grant", err, site.ErrNotHeld)
	if released := f.release(one, false, g); len(released) > 0 {
		t.Errorf("the old grant released %v", released)
	}

	// Revocation: nothing more, from the moment of the change.
	if _, err := f.devs.Revoke(f.ctx(), two, f.now); err != nil {
		t.Fatal(err)
	}
	_, err = f.jobs.Held(f.ctx(), again, two, f.now)
	wantErr(t, "fetch by a revoked device", err, site.ErrRunnerRevoked)
	_, err = f.complete(two, again, ai.DispositionOK)
	wantErr(t, "a result by a revoked device", err, site.ErrRunnerRevoked)
	_, err = f.jobs.Renew(f.ctx(), site.Renewal{RunnerID: two, Grants: []ai.Grant{again}, Lease: leaseFor, IssuedAt: f.now, Version: "1", Now: f.now})
	wantErr(t, "a heartbeat by a revoked device", err, site.ErrRunnerRevoked)
	f.now += Minute
	f.sweep()
	f.wantState("a", ai.StateQueued, site.ReasonNone)
}

func testClocks(t *testing.T, e Engine) {
	f := newFixture(t, e)
	dev := f.device("alice", 1)
	ttlMs := ai.Millis(ttl.Milliseconds())

	// The TTL starts when the job becomes claimable, not when it is enqueued.
	f.enqueue("root", "alice")
	f.enqueue("child", "alice", after("root"))
	f.now += ttlMs - Second
	f.finish(dev, ai.DispositionOK)
	f.now += ttlMs - 1
	f.sweep()
	f.wantState("child", ai.StateQueued, site.ReasonNone)
	f.now++
	if s := f.sweep(); s.Expired != 1 || s.More {
		t.Errorf("swept %+v", s)
	}
	f.wantState("child", ai.StateExpired, site.ReasonTTL)

	// It starts again when a lease lapses.
	f.enqueue("a", "alice")
	f.now += ttlMs - 1
	f.claimOne(dev)
	f.now += Minute
	f.sweep()
	f.now += ttlMs - 1
	f.sweep()
	f.wantState("a", ai.StateQueued, site.ReasonNone)
	f.now++
	f.sweep()
	f.wantState("a", ai.StateExpired, site.ReasonTTL)

	// A deadline ends a wait, also of a blocked job. A held job is left alone
	// until its lease ends, and then both happen in one sweep.
	deadline := f.now + 10*Second
	until := func(n *site.NewJob) { n.DeadlineAt = deadline }
	f.enqueue("held", "alice", until)
	f.claimOne(dev)
	f.enqueue("waiting", "alice", until)
	f.enqueue("blocked", "alice", until, after("unknown"))
	f.now = deadline - 1
	f.sweep()
	f.wantState("waiting", ai.StateQueued, site.ReasonNone)
	f.now = deadline
	f.sweep()
	f.wantState("waiting", ai.StateExpired, site.ReasonDeadline)
	f.wantState("blocked", ai.StateExpired, site.ReasonDeadline)
	f.wantState("held", ai.StateClaimed, site.ReasonNone)
	f.now += Minute
	if s := f.sweep(); s.Requeued != 1 || s.Expired != 1 {
		t.Errorf("swept %+v, want both in one sweep", s)
	}
	f.wantState("held", ai.StateExpired, site.ReasonDeadline)

	// A claim sweeps first: what is due is not granted.
	f.enqueue("due", "alice")
	f.now += ttlMs
	equal(t, "claimed at the end of its time", ids(f.claim(dev, 8)))
	f.wantState("due", ai.StateExpired, site.ReasonTTL)

	// Many due at once are swept in steps, and none is forgotten.
	for i := range 200 {
		f.enqueue(ai.JobID("many-"+string(rune('a'+i%26))+string(rune('a'+i/26))), "alice")
	}
	f.now += ttlMs
	total := 0
	for more := true; more; {
		s := f.sweep()
		total += s.Expired
		more = s.More
	}
	if total != 200 {
		t.Errorf("%d of 200 expired", total)
	}
}

func testRelease(t *testing.T, e Engine) {
	f := newFixture(t, e)
	one, two := f.device("alice", 1), f.device("alice", 2)
	f.enqueue("a", "alice")
	_, g := f.claimOne(one)
	f.now += Second
	if got := f.release(two, false, g); len(got) > 0 {
		t.Errorf("another device released %v", got)
	}
	if got := f.release(one, false, ai.Grant{JobID: "a", LeaseID: "x"}, ai.Grant{JobID: "x", LeaseID: g.LeaseID}); len(got) > 0 {
		t.Errorf("grants that are not held released %v", got)
	}
	equal(t, "released", f.release(one, false, g), "a")
	if j := f.job("a"); j.State != ai.StateQueued || j.Lease != nil || j.ClaimableAt != f.now {
		t.Errorf("released: %+v", j)
	}
	equal(t, "released twice", f.release(one, false, g))
	_, g = f.claimOne(one) // not refused, so it may have it again

	// What a device refused is not offered to it again, but to others.
	equal(t, "refused", f.release(one, true, g), "a")
	equal(t, "offered to who refused", ids(f.claim(one, 8)))
	f.now += Minute
	equal(t, "offered to who refused, later", ids(f.claim(one, 8)))
	_, g = f.claimOne(two)
	if _, err := f.complete(two, g, ai.DispositionOK); err != nil {
		t.Fatal(err)
	}
	if got := f.release(two, false, g); len(got) > 0 {
		t.Errorf("a finished job was released: %v", got)
	}
	f.wantState("a", ai.StateOK, site.ReasonNone)
	if out := f.renew(two, g); !slices.Equal(out.Lost, []ai.Grant{g}) {
		t.Errorf("a finished job was renewed: %+v", out)
	}
}

func testComplete(t *testing.T, e Engine) {
	f := newFixture(t, e)
	one, two := f.device("alice", 1), f.device("alice", 2)
	for _, d := range ai.Dispositions() {
		id := ai.JobID("ends-" + d)
		f.enqueue(id, "alice")
		j, g := f.claimOne(one)
		if j.ID != id {
			t.Fatalf("claimed %s", j.ID)
		}
		f.now += Second
		// Straight from claimed: a job may end before its first renewal.
		done, err := f.complete(one, g, d)
		if err != nil || done != (site.Completed{Accepted: true, State: d.State()}) {
			t.Errorf("%s: %+v, %v", d, done, err)
		}
		j = f.job(id)
		want := site.Result{
			Envelope: Envelope(id, ai.DirectionResult), Disposition: d, RunnerID: one, RunnerOwner: "alice",
			LeaseID: g.LeaseID, Device: Identity[key.DeviceRole](1), At: f.now,
		}
		if j.State != d.State() || j.Lease != nil || j.Result == nil || *j.Result != want {
			t.Errorf("%s: stored %+v\n%+v", d, j, j.Result)
		}

		// The first outcome wins; only who sent it learns that it is known.
		f.now += Second
		for _, other := range ai.Dispositions() {
			done, err := f.complete(one, g, other)
			if err != nil || done != (site.Completed{Duplicate: true, State: d.State()}) {
				t.Errorf("%s again as %s: %+v, %v", d, other, done, err)
			}
		}
		if again := f.job(id); again.State != d.State() || *again.Result != want {
			t.Errorf("a repeat changed the result: %+v", again.Result)
		}
		_, err = f.complete(two, g, d)
		wantErr(t, "a finished job, by another device", err, site.ErrNotHeld)
		_, err = f.complete(one, ai.Grant{JobID: id, LeaseID: "x"}, d)
		wantErr(t, "a finished job, under another grant", err, site.ErrNotHeld)
	}

	// A result counts only from the holder, under its grant, in its time.
	f.enqueue("a", "alice")
	j, g := f.claimOne(one)
	_, err := f.complete(two, g, ai.DispositionOK)
	wantErr(t, "another device that knows the grant", err, site.ErrNotHeld)
	_, err = f.complete(one, ai.Grant{JobID: "a", LeaseID: "x"}, ai.DispositionOK)
	wantErr(t, "another grant", err, site.ErrNotHeld)
	_, err = f.complete(one, ai.Grant{JobID: "unknown", LeaseID: g.LeaseID}, ai.DispositionOK)
	wantErr(t, "an unknown job", err, site.ErrNotHeld)
	f.now = j.Lease.ExpiresAt
	_, err = f.complete(one, g, ai.DispositionOK)
	wantErr(t, "a lapsed lease before a sweep", err, site.ErrNotHeld)
	f.sweep()
	_, err = f.complete(one, g, ai.DispositionOK)
	wantErr(t, "a lapsed lease after a sweep", err, site.ErrNotHeld)
	if j := f.job("a"); j.State != ai.StateQueued || j.Result != nil {
		t.Errorf("a refused result left %+v", j)
	}
	f.now += ai.Millis(ttl.Milliseconds())
	f.sweep()
	_, err = f.complete(one, g, ai.DispositionOK)
	wantErr(t, "an expired job", err, site.ErrNotHeld)
	f.wantState("a", ai.StateExpired, site.ReasonTTL)
}

func testCancel(t *testing.T, e Engine) {
	f := newFixture(t, e)
	one, two := f.device("alice", 1), f.device("alice", 2)
	cancel := func(id ai.JobID) site.Job {
		t.Helper()
		j, err := f.jobs.Cancel(f.ctx(), site.CancelRequest{ID: id, Now: f.now})
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	f.enqueue("waiting", "alice")
	if j := cancel("waiting"); j.State != ai.StateCanceled || j.Reason != site.ReasonApp {
		t.Errorf("a waiting job: %+v", j)
	}
	f.enqueue("blocked", "alice", after("unknown"))
	if j := cancel("blocked"); j.State != ai.StateCanceled {
		t.Errorf("a blocked job: %+v", j)
	}
	equal(t, "claimable", ids(f.claim(one, 8)))
	_, err := f.jobs.Cancel(f.ctx(), site.CancelRequest{ID: "unknown", Now: f.now})
	wantErr(t, "an unknown job", err, site.ErrNoJob)

	// Asked for only while it waits, it is left to a device that was quicker.
	waiting := func(id ai.JobID) site.Job {
		t.Helper()
		j, err := f.jobs.Cancel(f.ctx(), site.CancelRequest{ID: id, Waiting: true, Now: f.now})
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	f.enqueue("quick", "alice")
	if j := waiting("quick"); j.State != ai.StateCanceled || j.Reason != site.ReasonApp {
		t.Errorf("a job that waits: %+v", j)
	}
	f.enqueue("late", "alice")
	_, late := f.claimOne(one)
	if j := waiting("late"); j.State != ai.StateClaimed || j.CancelRequested {
		t.Errorf("a job that was taken: %+v", j)
	}
	if out := f.renew(one, late); len(out.Cancel) > 0 {
		t.Errorf("its holder is told %+v", out)
	}
	if j := waiting("late"); j.State != ai.StateRunning || j.CancelRequested {
		t.Errorf("a job that runs: %+v", j)
	}
	if done, err := f.complete(one, late, ai.DispositionOK); err != nil || !done.Accepted {
		t.Errorf("its result: %+v, %v", done, err)
	}
	if j := waiting("late"); j.State != ai.StateOK {
		t.Errorf("a job that is over: %+v", j)
	}

	f.enqueue("held", "alice")
	_, g := f.claimOne(one)
	if j := cancel("held"); j.State != ai.StateClaimed || !j.CancelRequested {
		t.Errorf("a held job: %+v", j)
	}
	if out := f.renew(one, g); !slices.Equal(out.Cancel, []ai.Grant{g}) || len(out.Lost) > 0 {
		t.Errorf("the holder is told %+v", out)
	}
	if out := f.renew(two); len(out.Cancel) > 0 {
		t.Errorf("another device is told %+v", out)
	}

	// It survives a release and a new claim: the next holder is told.
	f.release(one, false, g)
	_, g2 := f.claimOne(two)
	if out := f.renew(two, g2); !slices.Equal(out.Cancel, []ai.Grant{g2}) {
		t.Errorf("the next holder is told %+v", out)
	}
	if out := f.renew(one, g); len(out.Cancel) > 0 {
		t.Errorf("the former holder is told %+v", out)
	}
	// A result ends it, whatever it says.
	if done, err := f.complete(two, g2, ai.DispositionOK); err != nil || !done.Accepted {
		t.Errorf("a result after a cancel: %+v, %v", done, err)
	}
	if out := f.renew(two); len(out.Cancel) > 0 {
		t.Errorf("after the end the device is told %+v", out)
	}
	if j := cancel("held"); j.State != ai.StateOK || j.CancelRequested {
		t.Errorf("a finished job: %+v", j)
	}
}

func testPurge(t *testing.T, e Engine) {
	f := newFixture(t, e)
	dev := f.device("alice", 1)
	f.enqueue("old", "alice")
	f.finish(dev, ai.DispositionOK)
	f.enqueue("needed", "alice")
	f.finish(dev, ai.DispositionOK)
	f.enqueue("waits", "alice", after("needed", "unknown"))
	cut := f.now + 1
	f.now += Minute
	f.enqueue("new", "alice")
	f.finish(dev, ai.DispositionOK)
	purge := func(content, rows ai.Millis) site.Purged {
		t.Helper()
		p, err := f.jobs.Purge(f.ctx(), site.Purge{ContentBefore: content, RowsBefore: rows})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := purge(cut, 0); p != (site.Purged{Contents: 2}) {
		t.Errorf("contents: %+v", p)
	}
	if j := f.job("old"); j.State != ai.StateOK || j.Payload != (ai.SealedEnvelope{}) || j.Result != nil {
		t.Errorf("after its content was removed: %+v", j)
	}
	if j := f.job("new"); j.Result == nil {
		t.Error("a newer job lost its content")
	}
	if j, err := f.jobs.Job(f.ctx(), "new", false); err != nil || j.State != ai.StateOK || j.Payload != (ai.SealedEnvelope{}) || j.Result != nil {
		t.Errorf("without content: %+v, %v", j, err)
	}
	if p := purge(cut, cut); p != (site.Purged{Rows: 1}) {
		t.Errorf("rows: %+v", p)
	}
	_, err := f.jobs.Job(f.ctx(), "old", true)
	wantErr(t, "a purged job", err, site.ErrNoJob)
	f.wantState("needed", ai.StateOK, site.ReasonNone) // something unfinished waits for it
	f.wantState("waits", ai.StateQueued, site.ReasonNone)
	if _, created, err := f.jobs.Enqueue(f.ctx(), Job("old", "alice", f.now)); err != nil || !created {
		t.Errorf("a purged id: created %v, %v", created, err)
	}
}
