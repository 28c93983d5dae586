package storetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

const holdFor = time.Minute

// use makes these the hooks.
func (f *fixture) use(hooks ...site.Hook) {
	f.t.Helper()
	if err := f.store.Hooks().Use(f.ctx(), hooks, f.now); err != nil {
		f.t.Fatalf("use: %v", err)
	}
}

// take takes up to 16 events of a hook that are due.
func (f *fixture) take(hook site.HookID) ([]site.HookEvent, ai.Millis) {
	f.t.Helper()
	events, next, err := f.store.Hooks().Take(f.ctx(), site.HookTake{Hook: hook, Max: 16, Hold: holdFor, Now: f.now})
	if err != nil {
		f.t.Fatalf("take: %v", err)
	}
	return events, next
}

// told takes events and returns their jobs.
func (f *fixture) told(hook site.HookID) []ai.JobID {
	f.t.Helper()
	events, _ := f.take(hook)
	list := []ai.JobID{}
	for _, e := range events {
		list = append(list, e.Job)
	}
	return list
}

func (f *fixture) waiting() int {
	f.t.Helper()
	n, err := f.store.Hooks().Waiting(f.ctx())
	if err != nil {
		f.t.Fatalf("waiting: %v", err)
	}
	return n
}

func (f *fixture) cancel(id ai.JobID) {
	f.t.Helper()
	if _, err := f.jobs.Cancel(f.ctx(), site.CancelRequest{ID: id, Now: f.now}); err != nil {
		f.t.Fatalf("cancel %s: %v", id, err)
	}
}

// testHookEnds holds that each way in which a job ends is told once.
func testHookEnds(t *testing.T, e Engine) {
	hold := func(f *fixture) ai.Grant { _, g := f.claimOne("runner-alice-1"); return g }
	by := func(d ai.Disposition) func(f *fixture) {
		return func(f *fixture) {
			if c, err := f.complete("runner-alice-1", hold(f), d); err != nil || !c.Accepted {
				f.t.Fatalf("complete: %+v, %v", c, err)
			}
		}
	}
	for _, test := range []struct {
		name   string
		change func(*site.NewJob)
		end    func(f *fixture)
		state  ai.State
		reason site.Reason
	}{
		{"answered", nil, by(ai.DispositionOK), ai.StateOK, ""},
		{"failed", nil, by(ai.DispositionError), ai.StateError, ""},
		{"stopped at its device", nil, func(f *fixture) {
			g := hold(f)
			f.cancel("a")
			if c, err := f.complete("runner-alice-1", g, ai.DispositionCanceled); err != nil || !c.Accepted {
				f.t.Fatalf("complete: %+v, %v", c, err)
			}
		}, ai.StateCanceled, ""},
		{"canceled while it waits", nil, func(f *fixture) { f.cancel("a") }, ai.StateCanceled, site.ReasonApp},
		{"not taken in time", nil, func(f *fixture) { f.now += ai.Millis(ttl.Milliseconds()); f.sweep() }, ai.StateExpired, site.ReasonTTL},
		{"past its deadline", func(n *site.NewJob) { n.DeadlineAt = T0 + Minute },
			func(f *fixture) { f.now += Minute; f.sweep() }, ai.StateExpired, site.ReasonDeadline},
		{"expired by another's claim", func(n *site.NewJob) { n.DeadlineAt = T0 + Minute },
			func(f *fixture) { f.now += Minute; f.claim("runner-alice-1", 1) }, ai.StateExpired, site.ReasonDeadline},
		{"expired by a heartbeat", func(n *site.NewJob) { n.DeadlineAt = T0 + Minute },
			func(f *fixture) { f.now += Minute; f.renew("runner-alice-1") }, ai.StateExpired, site.ReasonDeadline},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, e)
			f.device("alice", 1)
			f.use(site.Hook{ID: "h"})
			if test.change == nil {
				test.change = func(*site.NewJob) {}
			}
			f.enqueue("a", "alice", test.change)
			equal(t, "before the end", f.told("h"))
			test.end(f)
			want := []site.HookEvent{{
				Job: "a", Owner: "alice", Kind: ai.KindGenerate, State: test.state, Reason: test.reason, EndedAt: f.now, Attempts: 1,
			}}
			if got, _ := f.take("h"); !reflect.DeepEqual(got, want) {
				t.Errorf("told of %+v\nwant    %+v", got, want)
			}
			if n := f.waiting(); n != 1 {
				t.Errorf("%d events wait", n)
			}
		})
	}

	// A chain of jobs ends with its first one, also where that was there last.
	f := newFixture(t, e)
	f.use(site.Hook{ID: "h"})
	f.enqueue("a", "alice")
	f.enqueue("b", "alice", after("a"))
	f.enqueue("c", "alice", after("b"))
	f.cancel("a")
	f.enqueue("d", "alice", after("c")) // is over when it is stored
	events, _ := f.take("h")
	var got []string
	for _, e := range events {
		got = append(got, string(e.Job)+" "+string(e.Reason))
	}
	equal(t, "a chain", got, "a app", "b dependency", "c dependency", "d dependency")

	// A result that comes again, a cancel of what is over, and what only asks for an
	// end tell nothing.
	f = newFixture(t, e)
	dev := f.device("alice", 1)
	f.use(site.Hook{ID: "h"})
	f.enqueue("a", "alice")
	_, g := f.claimOne(dev)
	f.cancel("a")
	equal(t, "a held job that is to be canceled", f.told("h"))
	for range 2 {
		if _, err := f.complete(dev, g, ai.DispositionOK); err != nil {
			t.Fatal(err)
		}
		f.cancel("a")
	}
	if n := f.waiting(); n != 1 {
		t.Errorf("%d events of one end", n)
	}
}

// testHooks holds who is told, when, and what becomes of an event.
func testHooks(t *testing.T, e Engine) {
	f := newFixture(t, e)
	end := func(id ai.JobID, owner ai.Owner) {
		f.enqueue(id, owner)
		f.cancel(id)
	}
	if events, next := f.take("all"); events != nil || next != 0 {
		t.Errorf("an unknown hook: %v, %d", events, next)
	}
	end("before", "alice")

	// Each hook has its own events, narrowed by owner and by state.
	f.use(
		site.Hook{ID: "all"}, site.Hook{ID: "alice's", Owners: []ai.Owner{"alice", "carol"}},
		site.Hook{ID: "answers", States: []ai.State{ai.StateOK, ai.StateError}},
		site.Hook{ID: "alice's canceled", Owners: []ai.Owner{"alice"}, States: []ai.State{ai.StateCanceled}},
		site.Hook{ID: "nobody's", Owners: []ai.Owner{}},
	)
	end("a", "alice")
	f.now += Second
	end("b", "bob")
	f.use( // in the other order, and once more
		site.Hook{ID: "nobody's", Owners: []ai.Owner{}},
		site.Hook{ID: "alice's canceled", Owners: []ai.Owner{"alice"}, States: []ai.State{ai.StateCanceled}},
		site.Hook{ID: "answers", States: []ai.State{ai.StateOK, ai.StateError}},
		site.Hook{ID: "alice's", Owners: []ai.Owner{"alice", "carol"}}, site.Hook{ID: "all"},
	)
	end("named like a state", "canceled")
	dev := f.device("alice", 1)
	f.now += Second
	f.enqueue("c", "alice")
	f.finish(dev, ai.DispositionOK)
	equal(t, "all", f.told("all"), "a", "b", "named like a state", "c")
	equal(t, "alice's", f.told("alice's"), "a", "c")
	equal(t, "answers", f.told("answers"), "c")
	equal(t, "alice's canceled", f.told("alice's canceled"), "a")
	equal(t, "nobody's", f.told("nobody's"))

	// What is taken is nobody else's until its hold ends.
	held := f.now + ai.Millis(holdFor.Milliseconds())
	if events, next := f.take("all"); len(events) != 0 || next != held {
		t.Errorf("while held: %v, next at %d, want %d", events, next, held)
	}
	f.now = held - 1
	equal(t, "before the hold ends", f.told("all"))
	f.now = held
	events, _ := f.take("all")
	if len(events) != 4 || events[0].Attempts != 2 {
		t.Errorf("after the hold: %+v", events)
	}
	if err := f.store.Hooks().Done(f.ctx(), "all", "named like a state"); err != nil {
		t.Fatal(err)
	}

	// Done and put off: each for its own hook.
	hooks := f.store.Hooks()
	for range 2 { // twice is no error
		if err := hooks.Done(f.ctx(), "all", "a"); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []site.HookRetry{
		{Hook: "all", Job: "b", At: f.now + 2*Second, Why: "timeout"}, {Hook: "all", Job: "c", At: f.now + Second, Why: "timeout"},
		{Hook: "all", Job: "a", At: f.now}, {Hook: "no", Job: "b", At: f.now}, {Hook: "all", Job: "no", At: f.now},
	} {
		if err := hooks.Retry(f.ctx(), r); err != nil {
			t.Fatal(err)
		}
	}
	if events, next := f.take("all"); len(events) != 0 || next != f.now+Second {
		t.Errorf("put off: %v, next at %d", events, next)
	}
	f.now += 2 * Second
	one, next, err := hooks.Take(f.ctx(), site.HookTake{Hook: "all", Max: 1, Hold: holdFor, Now: f.now})
	if err != nil || len(one) != 1 || one[0].Job != "c" || one[0].Attempts != 3 || next != f.now {
		t.Errorf("the longest due first: %+v, next at %d, %v", one, next, err)
	}
	equal(t, "the rest", f.told("all"), "b")
	f.now = held + ai.Millis(holdFor.Milliseconds())
	equal(t, "of another hook", f.told("alice's"), "a", "c")

	// A job that is removed takes its events along.
	before := f.waiting()
	if _, err := f.jobs.Purge(f.ctx(), site.Purge{RowsBefore: T0 + Second}); err != nil {
		t.Fatal(err)
	}
	if n := f.waiting(); n != before-2 { // a of alice's and of alice's canceled
		t.Errorf("%d events of %d are left", n, before)
	}

	// A hook that is left out is told nothing more. What waits for it stays for a
	// day.
	f = newFixture(t, e)
	hook := site.Hook{ID: "h"}
	f.use(hook)
	end("a", "alice")
	f.use()
	end("b", "alice")
	f.now += ai.Millis(site.HookKept.Milliseconds()) - 1
	f.use()
	f.use(site.Hook{ID: "h", States: []ai.State{ai.StateCanceled}})
	f.use(site.Hook{ID: "h", States: []ai.State{ai.StateOK}})
	end("c", "alice")
	equal(t, "back in use, with another filter", f.told("h"), "a")
	f.use(hook)
	end("d", "alice")
	equal(t, "with the filter taken away", f.told("h"), "d")
	f.use()
	f.now += ai.Millis(site.HookKept.Milliseconds())
	if n := f.waiting(); n != 2 {
		t.Errorf("%d events wait", n)
	}
	f.use(site.Hook{ID: "other"})
	if n := f.waiting(); n != 0 {
		t.Errorf("after a day %d events wait for a hook that was left out", n)
	}

	// All of it outlasts the process, and a job that was damaged since is passed over.
	f = newFixture(t, e)
	f.use(hook)
	end("a", "alice")
	end("b", "alice")
	f.close()
	if err := e.Damage(f.dir, "a"); err != nil {
		t.Fatal(err)
	}
	f.open(e)
	equal(t, "after a restart", f.told("h"), "b")
	list, err := f.store.SetAside(f.ctx())
	if n := f.waiting(); n != 1 || err != nil || len(list) != 1 || list[0].ID != "a" {
		t.Errorf("%d events wait, and set aside are %+v, %v", n, list, err)
	}
}

// testHookProcesses takes from three processes on one folder: every event is
// taken once.
func testHookProcesses(t *testing.T, e Engine) {
	f := newFixture(t, e)
	f.use(site.Hook{ID: "h"})
	const jobs = 120
	for i := range jobs {
		id := ai.JobID("job-" + strconv.Itoa(i))
		f.enqueue(id, "alice")
		f.cancel(id)
	}
	f.shared(jobs, "take", []string{"h", "h"}, func(got func(ai.JobID)) error { return takeEach(f.ctx(), f.store, "h", got) })
}

// takeEach takes the events of a hook one by one until nothing is due, or far too
// many were.
func takeEach(ctx context.Context, store site.Store, hook site.HookID, show func(ai.JobID)) error {
	for range 1000 {
		events, _, err := store.Hooks().Take(ctx, site.HookTake{Hook: hook, Max: 1, Hold: holdFor, Now: T0})
		if err != nil || len(events) == 0 {
			return err
		}
		show(events[0].Job)
	}
	return errors.New("storetest: events without end")
}

// endAll asks and cancels until it is killed, and prints what was acknowledged.
func endAll(ctx context.Context, store site.Store, name string) error {
	for i := 0; ; i++ {
		id := ai.JobID(name + "-" + strconv.Itoa(i))
		if _, _, err := store.Jobs().Enqueue(ctx, Job(id, "alice", T0)); err != nil {
			return err
		}
		if _, err := store.Jobs().Cancel(ctx, site.CancelRequest{ID: id, Now: T0}); err != nil {
			return err
		}
		fmt.Println(id)
	}
}

// testHookKill kills a process while it ends jobs: every end that it acknowledged
// is told, and no other job's is.
func testHookKill(t *testing.T, e Engine) {
	f := newFixture(t, e)
	f.use(site.Hook{ID: "h"})
	f.close()
	cmd, out := f.start("end", "k")
	lines := bufio.NewScanner(out)
	var acknowledged []ai.JobID
	for lines.Scan() {
		if acknowledged = append(acknowledged, ai.JobID(lines.Text())); len(acknowledged) == 10 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || len(acknowledged) < 10 {
		t.Fatalf("the child ended with %v after %d jobs", err, len(acknowledged))
	}
	f.open(e)
	var told []ai.JobID
	if err := takeEach(f.ctx(), f.store, "h", func(id ai.JobID) { told = append(told, id) }); err != nil {
		t.Fatal(err)
	}
	for _, id := range acknowledged {
		if !slices.Contains(told, id) {
			t.Errorf("%s is not told", id)
		}
	}
	for _, id := range told {
		f.wantState(id, ai.StateCanceled, site.ReasonApp)
	}
	if len(told) > len(acknowledged)+1 {
		t.Errorf("%d ends are told, and %d were acknowledged", len(told), len(acknowledged))
	}

	// A taker that dies leaves its events to the next one.
	f.now += ai.Millis(holdFor.Milliseconds())
	if again := f.told("h"); len(again) == 0 || again[0] != told[0] {
		t.Errorf("after the hold of one that died: %v", again)
	}
}
