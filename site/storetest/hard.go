package storetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

func testReopen(t *testing.T, e Engine) {
	f := newFixture(t, e)
	dev := f.device("alice", 1)
	if err := f.store.Keys().Use(f.ctx(), Identity[key.SiteRole](9), f.now); err != nil {
		t.Fatal(err)
	}
	f.enqueue("done", "alice")
	f.finish(dev, ai.DispositionOK)
	f.enqueue("held", "alice")
	_, g := f.claimOne(dev)
	f.enqueue("waiting", "alice")
	f.enqueue("blocked", "alice", after("waiting"))
	before := []site.Job{f.job("done"), f.job("held"), f.job("waiting"), f.job("blocked")}
	f.close()
	_, err := f.jobs.Job(f.ctx(), "done", true)
	if err == nil {
		t.Error("a closed store still answers")
	}
	f.open(e)
	for _, want := range before {
		if got := f.job(want.ID); fmt.Sprintf("%+v %+v %+v", got, got.Lease, got.Result) != fmt.Sprintf("%+v %+v %+v", want, want.Lease, want.Result) {
			// Pointers differ; what they point to must not.
			g, w := got, want
			g.Lease, g.Result, w.Lease, w.Result = nil, nil, nil, nil
			if fmt.Sprintf("%+v", g) != fmt.Sprintf("%+v", w) ||
				(got.Lease == nil) != (want.Lease == nil) || got.Lease != nil && *got.Lease != *want.Lease ||
				(got.Result == nil) != (want.Result == nil) || got.Result != nil && *got.Result != *want.Result {
				t.Errorf("%s was %+v and is %+v", want.ID, want, got)
			}
		}
	}
	if out := f.renew(dev, g); len(out.Lost) > 0 {
		t.Errorf("a grant was lost: %+v", out)
	}
	if keys, err := f.store.Keys().Keys(f.ctx()); err != nil || len(keys) != 1 {
		t.Errorf("keys: %v, %v", keys, err)
	}
	equal(t, "claimable", ids(f.claim(dev, 8)), "waiting")
}

func testDamaged(t *testing.T, e Engine) {
	f := newFixture(t, e)
	dev := f.device("alice", 1)
	f.enqueue("bad", "alice")
	f.now += Second
	f.enqueue("good", "alice")
	f.close()
	if err := e.Damage(f.dir, "bad"); err != nil {
		t.Fatal(err)
	}
	f.open(e)
	equal(t, "claimed beside a damaged job", ids(f.claim(dev, 8)), "good")
	_, err := f.jobs.Job(f.ctx(), "bad", true)
	wantErr(t, "a damaged job", err, site.ErrSetAside)
	_, _, err = f.jobs.Enqueue(f.ctx(), Job("bad", "alice", f.now))
	wantErr(t, "a new job of the same id", err, site.ErrSetAside)
	_, err = f.jobs.Cancel(f.ctx(), site.CancelRequest{ID: "bad", Now: f.now})
	wantErr(t, "canceling it", err, site.ErrSetAside)
	f.now += ai.Millis(2 * ttl.Milliseconds())
	f.sweep()
	list, err := f.store.SetAside(f.ctx())
	if err != nil || len(list) != 1 || list[0].What != "job" || list[0].ID != "bad" || list[0].Why == "" {
		t.Errorf("set aside: %+v, %v", list, err)
	}
}

// testMany claims from many goroutines: every job is granted once.
func testMany(t *testing.T, e Engine) {
	f := newFixture(t, e)
	const jobs, devices = 120, 8
	for i := range jobs {
		f.enqueue(ai.JobID("job-"+strconv.Itoa(i)), "alice")
	}
	runners := make([]ai.RunnerID, devices)
	for i := range runners {
		runners[i] = f.device("alice", byte(i+1))
	}
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		got = map[ai.JobID]int{}
	)
	for _, r := range runners {
		wg.Go(func() {
			for {
				claimed, err := f.jobs.Claim(f.ctx(), f.order(r, 3))
				if err != nil {
					t.Error(err)
					return
				}
				list := claimed.Jobs
				if len(list) == 0 {
					return
				}
				mu.Lock()
				for _, j := range list {
					got[j.ID]++
				}
				mu.Unlock()
				for _, j := range list {
					if _, err := f.complete(r, ai.Grant{JobID: j.ID, LeaseID: j.Lease.ID}, ai.DispositionOK); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if len(got) != jobs {
		t.Errorf("%d of %d jobs were granted", len(got), jobs)
	}
	for id, n := range got {
		if n != 1 {
			t.Errorf("%s was granted %d times", id, n)
		}
	}
}

// What a child process is told through its environment.
const (
	childTask = "ALLOD_STORETEST_TASK"
	childDir  = "ALLOD_STORETEST_DIR"
	childName = "ALLOD_STORETEST_NAME"
)

// Child runs the task of a child process of the suite and exits; in any other
// process it does nothing. An engine's TestMain calls it first.
func Child(e Engine) {
	task := os.Getenv(childTask)
	if task == "" {
		return
	}
	if err := child(task, e); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func child(task string, e Engine) error {
	store, err := e.Open(os.Getenv(childDir))
	if err != nil {
		return err
	}
	defer store.Close()
	ctx, name := context.Background(), os.Getenv(childName)
	switch task {
	case "claim":
		return claimAll(ctx, store, name)
	case "take":
		return takeEach(ctx, store, site.HookID(name), func(id ai.JobID) { fmt.Println(id) })
	case "end":
		return endAll(ctx, store, name)
	case "enqueue":
		for i := 0; ; i++ {
			id := ai.JobID(name + "-" + strconv.Itoa(i))
			if _, _, err := store.Jobs().Enqueue(ctx, Job(id, "alice", T0)); err != nil {
				return err
			}
			fmt.Println(id) // acknowledged
		}
	}
	return errors.New("storetest: no such task")
}

// claimAll claims as the named runner until nothing is left and prints what it
// got.
func claimAll(ctx context.Context, store site.Store, name string) error {
	f := &fixture{now: T0}
	for {
		order := f.order(ai.RunnerID(name), 2)
		order.NewLease = func() ai.LeaseID { return ai.LeaseID(name + "-" + strconv.FormatUint(f.ids.Add(1), 10)) }
		got, err := store.Jobs().Claim(ctx, order)
		if err != nil || len(got.Jobs) == 0 {
			return err
		}
		for _, j := range got.Jobs {
			fmt.Println(j.ID)
		}
	}
}

// start starts a child process and returns its output.
func (f *fixture) start(task, name string) (*exec.Cmd, io.Reader) {
	f.t.Helper()
	self, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	cmd := exec.CommandContext(f.ctx(), self, "-test.run", "^$")
	cmd.Env = append(os.Environ(), childTask+"="+task, childDir+"="+f.dir, childName+"="+name)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	return cmd, out
}

// testProcesses claims from three processes on one folder: every job is granted
// once.
func testProcesses(t *testing.T, e Engine) {
	f := newFixture(t, e)
	const jobs = 60
	for i := range jobs {
		f.enqueue(ai.JobID("job-"+strconv.Itoa(i)), "alice")
	}
	var names []string
	for seed := range byte(3) {
		names = append(names, string(f.device("alice", seed+1)))
	}
	f.shared(jobs, "claim", names[1:], func(got func(ai.JobID)) error {
		for {
			list := f.claim(ai.RunnerID(names[0]), 2)
			if len(list) == 0 {
				return nil
			}
			for _, j := range list {
				got(j.ID)
			}
		}
	})
}

// shared does a task in a process for each name, and this process's part of it
// beside them. Together they must get every one of so many jobs, each once.
func (f *fixture) shared(jobs int, task string, names []string, mine func(got func(ai.JobID)) error) {
	f.t.Helper()
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		all []string
	)
	for _, name := range names {
		cmd, out := f.start(task, name)
		wg.Go(func() {
			text, err := io.ReadAll(out)
			if err := errors.Join(err, cmd.Wait()); err != nil {
				f.t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, strings.Fields(string(text))...)
		})
	}
	err := mine(func(id ai.JobID) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, string(id))
	})
	if err != nil {
		f.t.Error(err)
	}
	wg.Wait()
	slices.Sort(all)
	if n := len(all); n != jobs || len(slices.Compact(all)) != jobs {
		f.t.Errorf("%s: got %d of %d jobs: %v", task, n, jobs, all)
	}
}

// testKill kills a process while it enqueues: what it acknowledged is there.
func testKill(t *testing.T, e Engine) {
	for round := range 3 {
		f := newFixture(t, e)
		f.close()
		cmd, out := f.start("enqueue", "k")
		lines := bufio.NewScanner(out)
		var acknowledged []ai.JobID
		for lines.Scan() {
			acknowledged = append(acknowledged, ai.JobID(lines.Text()))
			if len(acknowledged) == 5+20*round {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the child was not killed")
		}
		if len(acknowledged) < 5+20*round {
			t.Fatalf("the child ended after %d jobs", len(acknowledged))
		}
		f.open(e)
		for _, id := range acknowledged {
			f.wantState(id, ai.StateQueued, site.ReasonNone)
		}
	}
}
