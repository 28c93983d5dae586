package storetest

import (
	"strconv"
	"testing"

	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// testAudiences holds that a claim is granted nothing for an audience that its
// device cannot be told of, gets everything else, and that what it is not told of
// stays for a device that can be.
func testAudiences(t *testing.T, e Engine) {
	f := newFixture(t, e)
	alice, bob, carol := f.device("alice", 1), f.device("bob", 2), f.device("carol", 3)
	f.enqueue("a-public", "alice", audience(ai.AudiencePublic))
	f.now += Second
	f.enqueue("a-self", "alice")
	f.now += Second
	f.enqueue("a-named", "alice", audience(ai.AudienceNamed))
	f.now += Second
	f.enqueue("a-listed", "alice", audience(ai.AudienceNamed, "bob"))
	f.now += Second
	f.enqueue("b-public", "bob", audience(ai.AudiencePublic))

	// peek claims and gives everything back.
	peek := func(runner ai.RunnerID, scope ai.OfferScope, told []ai.Audience, max int) []ai.JobID {
		t.Helper()
		order := f.order(runner, max, offer(ai.KindGenerate, scope))
		order.Audiences = told
		got, err := f.jobs.Claim(f.ctx(), order)
		if err != nil {
			t.Fatal(err)
		}
		before := f.now
		for _, j := range got.Jobs {
			f.now = j.ClaimableAt // so that the order stays
			f.release(runner, false, ai.Grant{JobID: j.ID, LeaseID: j.Lease.ID})
		}
		f.now = before
		return ids(got.Jobs)
	}
	for _, c := range []struct {
		name   string
		runner ai.RunnerID
		scope  ai.OfferScope
		told   []ai.Audience
		want   []ai.JobID
	}{
		{"own, with all words", alice, ai.OfferSelf, nil, []ai.JobID{"a-public", "a-self", "a-named", "a-listed"}},
		{"own, with all words by name", alice, ai.OfferSelf, ai.Audiences(), []ai.JobID{"a-public", "a-self", "a-named", "a-listed"}},
		{"own, without a word for public", alice, ai.OfferSelf, unspoken, []ai.JobID{"a-self", "a-named", "a-listed"}},
		{"own, with a word for self only", alice, ai.OfferSelf, []ai.Audience{ai.AudienceSelf}, []ai.JobID{"a-self"}},
		{"own, with no words", alice, ai.OfferSelf, []ai.Audience{}, nil},
		{"own and others', with all words", alice, ai.OfferPublic, nil, []ai.JobID{"a-public", "a-self", "a-named", "a-listed", "b-public"}},
		{"own and others', without", alice, ai.OfferPublic, unspoken, []ai.JobID{"a-self", "a-named", "a-listed"}},
		{"others', with all words", bob, ai.OfferNamed, nil, []ai.JobID{"a-public", "a-named", "a-listed", "b-public"}},
		{"others', without a word for public", bob, ai.OfferNamed, unspoken, []ai.JobID{"a-named", "a-listed"}},
		{"others', offered to all, without", bob, ai.OfferPublic, unspoken, []ai.JobID{"a-named", "a-listed"}},
		{"a stranger's, with all words", carol, ai.OfferPublic, nil, []ai.JobID{"a-public", "a-named", "b-public"}},
		{"a stranger's, without", carol, ai.OfferPublic, unspoken, []ai.JobID{"a-named"}},
		{"a stranger's, with a word for public only", carol, ai.OfferPublic, []ai.Audience{ai.AudiencePublic}, []ai.JobID{"a-public", "b-public"}},
		{"a stranger's, offered to self, with all words", carol, ai.OfferSelf, nil, nil},
	} {
		equal(t, c.name, peek(c.runner, c.scope, c.told, 64), c.want...)
	}

	// However many come first, they keep nothing else from such a claim.
	for i := range 20 {
		f.enqueue(ai.JobID("more-"+strconv.Itoa(i)), "alice", audience(ai.AudiencePublic))
	}
	f.now += Second
	f.enqueue("a-late", "alice")
	equal(t, "one, without", peek(alice, ai.OfferPublic, unspoken, 1), "a-self")
	equal(t, "one, with all words", peek(alice, ai.OfferPublic, nil, 1), "a-public")
	equal(t, "the last, without", peek(alice, ai.OfferSelf, unspoken, 4), "a-self", "a-named", "a-listed", "a-late")

	// Given back, or lapsed, a job waits where it waited before.
	order := f.order(carol, 1)
	got, err := f.jobs.Claim(f.ctx(), order)
	if err != nil || len(got.Jobs) != 1 || got.Jobs[0].ID != "a-public" {
		t.Fatalf("claimed %v, %v", ids(got.Jobs), err)
	}
	f.now += 2 * Minute
	f.sweep()
	equal(t, "after a lease that lapsed, without", peek(carol, ai.OfferPublic, unspoken, 64), "a-named")
	if list := peek(carol, ai.OfferPublic, nil, 64); list[len(list)-1] != "a-public" {
		t.Errorf("after a lease that lapsed, with all words: %v", list)
	}
	// What was waited for is done, and then a public job waits like the others.
	f.enqueue("after", "alice", audience(ai.AudiencePublic), after("a-self"))
	order = f.order(alice, 1, offer(ai.KindGenerate, ai.OfferSelf))
	order.Audiences = unspoken
	if got, err = f.jobs.Claim(f.ctx(), order); err != nil || len(got.Jobs) != 1 || got.Jobs[0].ID != "a-self" {
		t.Fatalf("claimed %v, %v", ids(got.Jobs), err)
	}
	if _, err := f.complete(alice, ai.Grant{JobID: "a-self", LeaseID: got.Jobs[0].Lease.ID}, ai.DispositionOK); err != nil {
		t.Fatal(err)
	}
	equal(t, "what waited for another, without", peek(bob, ai.OfferPublic, unspoken, 64), "a-named", "a-listed")
	if list := peek(bob, ai.OfferPublic, nil, 64); list[len(list)-1] != "after" {
		t.Errorf("what waited for another, with all words: %v", list)
	}
}

// testProtocols holds that the version which a device speaks is that of its newest
// heartbeat.
func testProtocols(t *testing.T, e Engine) {
	f := newFixture(t, e)
	dev, other := f.device("alice", 1), f.device("alice", 2)
	speaks := func(what string, want string) {
		t.Helper()
		r, err := f.devs.Runner(f.ctx(), dev)
		if err != nil || r.Protocol != want {
			t.Errorf("%s: the device speaks %q, %v, want %q", what, r.Protocol, err, want)
		}
		list, err := f.devs.Runners(f.ctx(), site.RunnerQuery{Owner: "alice"})
		if err != nil || len(list) != 2 || list[0].Protocol != want || list[1].Protocol != "" {
			t.Errorf("%s: listed as %+v, %v", what, list, err)
		}
	}
	beat := func(issued ai.Millis, protocol string) {
		t.Helper()
		if _, err := f.jobs.Renew(f.ctx(), site.Renewal{
			RunnerID: dev, Lease: leaseFor, IssuedAt: issued, Version: "1", Protocol: protocol, Capabilities: []ai.Capability{capability}, Now: f.now,
		}); err != nil {
			t.Fatal(err)
		}
	}
	speaks("before a heartbeat", "")
	beat(100, "0")
	speaks("after one", "0")
	beat(101, "2")
	speaks("after a newer one", "2")
	f.now += Minute
	beat(99, "0")
	speaks("after an older one that was delayed", "2")
	beat(101, "0")
	speaks("after one of the same instant", "2")
	f.close()
	f.open(e)
	speaks("after a restart", "2")
	beat(102, "0") // its program went back
	speaks("after the newest", "0")
	if r, err := f.devs.Runner(f.ctx(), other); err != nil || r.Protocol != "" {
		t.Errorf("another device speaks %q, %v", r.Protocol, err)
	}
}
