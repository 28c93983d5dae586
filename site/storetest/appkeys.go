package storetest

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"testing"

	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

func testAppKeys(t *testing.T, e Engine) {
	f := newFixture(t, e)
	keys := f.store.AppKeys()
	hash := func(text string) [32]byte { return sha256.Sum256([]byte(text)) }
	ask := func(name string, scopes ...site.Scope) site.NewAppKey {
		return site.NewAppKey{ID: "key_" + name, Hash: hash(name), Name: name, Scopes: scopes, Now: f.now}
	}
	add := func(n site.NewAppKey) site.AppKey {
		t.Helper()
		got, err := keys.Add(f.ctx(), n)
		want := site.AppKey{ID: n.ID, Name: n.Name, Scopes: n.Scopes, Owner: n.Owner, CreatedAt: n.Now}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("add %s: %+v, %v\nwant %+v", n.Name, got, err, want)
		}
		return got
	}
	refused := func(what string, n site.NewAppKey, want error) {
		t.Helper()
		_, err := keys.Add(f.ctx(), n)
		wantErr(t, what, err, want)
	}
	listed := func(what string, want ...site.AppKey) {
		t.Helper()
		got, err := keys.List(f.ctx())
		if err != nil || !reflect.DeepEqual(got, append([]site.AppKey{}, want...)) {
			t.Errorf("%s: %+v, %v\nwant %+v", what, got, err, want)
		}
	}
	found := func(what, text string, want site.AppKey) {
		t.Helper()
		if got, err := keys.Find(f.ctx(), hash(text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v\nwant %+v", what, got, err, want)
		}
	}
	gone := func(what, text string) {
		t.Helper()
		_, err := keys.Find(f.ctx(), hash(text))
		wantErr(t, what, err, site.ErrNoAppKey)
	}
	remove := func(idOrName string, want site.AppKey) site.AppKey {
		t.Helper()
		want.RemovedAt = f.now
		if got, err := keys.Remove(f.ctx(), idOrName, f.now); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("remove %s: %+v, %v\nwant %+v", idOrName, got, err, want)
		}
		return want
	}

	// A site's first key is the first one only.
	listed("an empty store")
	gone("a key of nobody", "first")
	first := ask("first", site.ScopeAdmin)
	first.First = true
	one := add(first)
	again := ask("second", site.ScopeAdmin)
	again.First = true
	refused("a second first key", again, site.ErrAppKeyTaken)

	// Several keys, each with its rights.
	f.now += Second
	bound := ask("alice's", site.ScopeEnqueue, site.ScopeRead)
	bound.Owner = "alice"
	two := add(bound)
	three := add(ask("pairs", site.ScopePair))
	listed("three keys", one, two, three)
	found("the first", "first", one)
	found("one that is bound", "alice's", two)
	gone("no key's", "canary")

	// Neither a key nor the name of one that counts is taken twice.
	same := ask("other", site.ScopeRead)
	same.Hash = hash("pairs")
	refused("a key that is there", same, site.ErrAppKeyTaken)
	same = ask("other", site.ScopeRead)
	same.Name = "pairs"
	refused("a name that is there", same, site.ErrAppKeyTaken)
	listed("after what was refused", one, two, three)

	// A removed key counts no more, for good, and its name is free.
	f.now += Second
	two = remove("alice's", two)
	gone("a removed key", "alice's")
	for _, name := range []string{"alice's", "key_alice's", "canary", ""} {
		_, err := keys.Remove(f.ctx(), name, f.now)
		wantErr(t, "removing "+name, err, site.ErrNoAppKey)
	}
	refused("a removed key again", bound, site.ErrAppKeyTaken)
	f.now += Second
	renewed := ask("new", site.ScopeRead)
	renewed.Name = "alice's"
	four := add(renewed)
	listed("a name again", one, two, three, four)

	// An id goes before a name that looks like it.
	odd := ask("odd", site.ScopeRead)
	odd.Name = three.ID
	five := add(odd)
	three = remove(three.ID, three)
	listed("after an id", one, two, three, four, five)
	one = remove("first", one)

	// What was said holds after the store is opened again.
	f.close()
	f.open(e)
	keys = f.store.AppKeys()
	listed("opened again", one, two, three, four, five)
	gone("a removed key, opened again", "first")
	found("a key, opened again", "new", four)
	refused("the first key again", first, site.ErrAppKeyTaken)

	// A site whose first key was removed gets no other one by itself.
	other := newFixture(t, e).store.AppKeys()
	if _, err := other.Add(f.ctx(), first); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Remove(f.ctx(), "first", f.now); err != nil {
		t.Fatal(err)
	}
	_, err := other.Add(f.ctx(), again)
	wantErr(t, "a first key after all were removed", err, site.ErrAppKeyTaken)

	// There is an end to it.
	for i := range site.MaxAppKeys - 2 {
		if _, err := keys.Add(f.ctx(), ask(fmt.Sprint("many-", i), site.ScopeRead)); err != nil {
			t.Fatal(err)
		}
	}
	refused("one too many", ask("too-many", site.ScopeRead), site.ErrTooManyAppKeys)
}

// testListJobs reads lists as an app does, page by page.
func testListJobs(t *testing.T, e Engine) {
	f := newFixture(t, e)
	list := func(q site.JobQuery) site.JobPage {
		t.Helper()
		if q.Limit == 0 {
			q.Limit = site.MaxPage
		}
		p, err := f.store.ListJobs(f.ctx(), q)
		if err != nil {
			t.Fatalf("list %+v: %v", q, err)
		}
		return p
	}
	check := func(what string, q site.JobQuery, next ai.JobID, want ...ai.JobID) {
		t.Helper()
		p := list(q)
		equal(t, what, ids(p.Jobs), want...)
		if p.Next != next {
			t.Errorf("%s: next %q, want %q", what, p.Next, next)
		}
	}
	check("an empty store", site.JobQuery{}, "")
	f.enqueue("a1", "alice")
	f.enqueue("b1", "bob")
	f.enqueue("a2", "alice", after("a1", "b1"))
	f.enqueue("a3", "alice", audience(ai.AudienceNamed, "bob"))
	f.enqueue("b2", "bob")

	check("everybody's", site.JobQuery{}, "", "b2", "a3", "a2", "b1", "a1")
	check("one owner's", site.JobQuery{Owner: "alice"}, "", "a3", "a2", "a1")
	check("nobody's", site.JobQuery{Owner: "carol"}, "")
	check("a page", site.JobQuery{Limit: 2}, "a3", "b2", "a3")
	check("the next page", site.JobQuery{Limit: 2, After: "a3"}, "b1", "a2", "b1")
	check("the last page", site.JobQuery{Limit: 2, After: "b1"}, "", "a1")
	check("a page that ends with the last", site.JobQuery{Owner: "alice", Limit: 3}, "", "a3", "a2", "a1")
	check("a page of an owner", site.JobQuery{Owner: "alice", Limit: 2}, "a2", "a3", "a2")
	check("the next one of an owner", site.JobQuery{Owner: "alice", Limit: 2, After: "a2"}, "", "a1")
	for _, q := range []site.JobQuery{{After: "canary"}, {Owner: "alice", After: "b1"}, {Owner: "carol", After: "a1"}} {
		q.Limit = 1
		_, err := f.store.ListJobs(f.ctx(), q)
		wantErr(t, "a cursor that is none", err, site.ErrNoJob)
	}

	// A listed job is the job, without its content.
	for _, j := range list(site.JobQuery{}).Jobs {
		want := f.job(j.ID)
		want.Payload = ai.SealedEnvelope{}
		if !reflect.DeepEqual(j, want) {
			t.Errorf("listed %+v\nwant   %+v", j, want)
		}
	}

	// By state.
	device := f.device("alice", 1)
	f.finish(device, ai.DispositionOK)
	if _, err := f.jobs.Cancel(f.ctx(), site.CancelRequest{ID: "b1", Now: f.now}); err != nil {
		t.Fatal(err)
	}
	check("what waits", site.JobQuery{State: ai.StateQueued}, "", "b2", "a3")
	check("what is answered", site.JobQuery{State: ai.StateOK}, "", "a1")
	check("what is canceled of one owner", site.JobQuery{Owner: "alice", State: ai.StateCanceled}, "", "a2")
	check("a page of a state", site.JobQuery{State: ai.StateCanceled, Limit: 1}, "a2", "a2")
	check("its next one", site.JobQuery{State: ai.StateCanceled, Limit: 1, After: "a2"}, "", "b1")

	// A damaged job is left out, and does not end the list.
	f.close()
	if err := e.Damage(f.dir, "a3"); err != nil {
		t.Fatal(err)
	}
	f.open(e)
	for range 2 { // found to be damaged the first time, known to be the second
		check("a page that it would end", site.JobQuery{Limit: 2}, "a3", "b2")
		check("without a damaged one", site.JobQuery{}, "", "b2", "a2", "b1", "a1")
		check("the page after it", site.JobQuery{Limit: 2, After: "a3"}, "b1", "a2", "b1")
	}
	if list, err := f.store.SetAside(f.ctx()); err != nil || len(list) != 1 || list[0].ID != "a3" {
		t.Errorf("set aside: %+v, %v", list, err)
	}
}
