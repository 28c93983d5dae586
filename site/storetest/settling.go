package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// testSettling holds that no operation settles more than [site.MaxSettled]
// dependents, however many there are, and that the sweeps lose none of the rest.
func testSettling(t *testing.T, e Engine) {
	fan := func(int) ai.JobID { return "root" }
	chain := func(i int) ai.JobID { return named(i - 1) }
	cancel := func(f *fixture) { f.cancel("root") }
	for _, test := range []struct {
		name string
		on   func(i int) ai.JobID
		end  func(f *fixture)
	}{
		{"a fan is canceled", fan, cancel},
		{"a chain is canceled", chain, cancel},
		{"a fan fails", fan, func(f *fixture) { f.finish(f.device("alice", 1), ai.DispositionError) }},
		{"a chain expires", chain, func(f *fixture) { f.now += ai.Millis(ttl.Milliseconds()); f.sweep() }},
		{"a chain whose root is asked last", chain, func(f *fixture) {
			f.enqueue("first", "alice")
			f.cancel("first")
			f.enqueue("root", "alice", after("first"))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, e)
			f.use(site.Hook{ID: "all"})
			if test.name != "a chain whose root is asked last" {
				f.enqueue("root", "alice")
			}
			// As many as are settled at once, and one.
			for i := range site.MaxSettled + 1 {
				f.enqueue(named(i), "alice", after(test.on(i)))
			}
			test.end(f)
			last := named(site.MaxSettled)
			f.wantState(named(site.MaxSettled-1), ai.StateCanceled, site.ReasonDependency)
			f.wantState(last, ai.StateQueued, site.ReasonNone)
			changed, stop := f.store.Watch(site.Watch{Jobs: []ai.JobID{last}})
			defer stop()
			select {
			case <-changed:
			default:
			}
			f.now++
			if s := f.sweep(); s != (site.Swept{}) {
				t.Errorf("the sweep that settles the last: %+v", s)
			}
			f.wantState(last, ai.StateCanceled, site.ReasonDependency)
			if j := f.job(last); j.UpdatedAt != f.now {
				t.Errorf("the last was settled at %d, want %d", j.UpdatedAt, f.now)
			}
			select {
			case <-changed:
			case <-time.After(10 * time.Second):
				t.Error("no signal for the last")
			}
			if got := len(f.toldOf("all")); got < site.MaxSettled+2 {
				t.Errorf("%d ends were told of", got)
			}
			n := Job("next", "alice", f.now)
			n.Quota = 1
			if _, _, err := f.jobs.Enqueue(f.ctx(), n); err != nil {
				t.Errorf("after all have ended: %v", err)
			}
		})
	}

	const many = 1000
	for name, on := range map[string]func(int) ai.JobID{"fan": fan, "chain": chain} {
		t.Run("a "+name+" of 1000", func(t *testing.T) {
			f := newFixture(t, e)
			f.enqueue("root", "alice")
			for i := range many {
				f.enqueue(named(i), "alice", after(on(i)))
			}
			left := many
			settles := func(what string, do func()) {
				t.Helper()
				f.now++
				do()
				now := f.blocked()
				if n := left - now; n != min(left, site.MaxSettled) {
					t.Errorf("%s settled %d of %d", what, n, left)
				}
				left = now
			}
			settles("cancel", func() { f.cancel("root") })
			// What others do goes first, and on with the rest.
			f.enqueue("other", "bob")
			f.enqueue("its dependent", "bob", after("other"))
			left++
			settles("another's cancel", func() { f.cancel("other") })
			f.wantState("its dependent", ai.StateCanceled, site.ReasonDependency)
			dev := f.device("carol", 1)
			settles("a heartbeat", func() { f.renew(dev) })
			settles("a claim", func() { equal(t, "claimed", ids(f.claim(dev, 1))) })
			for left > 0 && !t.Failed() {
				if left < many/2 {
					f.close()
					f.open(e)
				}
				settles("a sweep", func() {
					if more := f.sweep().More; more != (left > site.MaxSettled) {
						t.Errorf("%d were left, and more is %v", left, more)
					}
				})
			}
			for i := range many {
				if j := f.job(named(i)); j.State != ai.StateCanceled || j.Reason != site.ReasonDependency {
					t.Fatalf("job %d: %+v", i, j)
				}
			}
		})
	}

	// Those of a fan that become claimable are granted in the order of arrival,
	// and each claim goes on with the rest.
	t.Run("a fan becomes claimable", func(t *testing.T) {
		f := newFixture(t, e)
		dev := f.device("alice", 1)
		f.enqueue("root", "alice")
		var want, got []ai.JobID
		for i := range 3*site.MaxSettled + 5 {
			want = append(want, named(i))
			f.enqueue(named(i), "alice", after("root"))
		}
		f.finish(dev, ai.DispositionOK)
		if n := f.blocked(); n != len(want)-site.MaxSettled {
			t.Errorf("%d are still blocked", n)
		}
		for len(got) < len(want) {
			f.now++
			granted := ids(f.claim(dev, 50))
			if len(granted) == 0 {
				break
			}
			got = append(got, granted...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("granted %v", got)
		}
	})

	// One that is damaged does not keep the rest.
	t.Run("beside a damaged job", func(t *testing.T) {
		f := newFixture(t, e)
		f.enqueue("root", "alice")
		f.enqueue("bad", "alice", after("root"))
		f.enqueue("good", "alice", after("root"))
		f.close()
		if err := e.Damage(f.dir, "bad"); err != nil {
			t.Fatal(err)
		}
		f.open(e)
		f.cancel("root")
		f.wantState("good", ai.StateCanceled, site.ReasonDependency)
		if list, err := f.store.SetAside(f.ctx()); err != nil || len(list) != 1 || list[0].ID != "bad" {
			t.Errorf("set aside: %+v, %v", list, err)
		}
	})
}

// named is the id of the i-th dependent; the one before the first is root.
func named(i int) ai.JobID {
	if i < 0 {
		return "root"
	}
	return ai.JobID(fmt.Sprintf("job-%04d", i))
}

// blocked counts the jobs that wait for others.
func (f *fixture) blocked() (n int) {
	f.t.Helper()
	q := site.JobQuery{State: ai.StateQueued, Limit: site.MaxPage}
	for {
		p, err := f.store.ListJobs(f.ctx(), q)
		if err != nil {
			f.t.Fatalf("list: %v", err)
		}
		for _, j := range p.Jobs {
			if j.Blocked() {
				n++
			}
		}
		if q.After = p.Next; p.Next == "" {
			return n
		}
	}
}

// toldOf takes all events of a hook and returns their jobs.
func (f *fixture) toldOf(hook site.HookID) (all []ai.JobID) {
	f.t.Helper()
	for {
		list := f.told(hook)
		if len(list) == 0 {
			return all
		}
		all = append(all, list...)
	}
}
