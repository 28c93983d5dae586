package ledger

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

// TestRefusals has what each refusal says, to the letter.
func TestRefusals(t *testing.T) {
	const cent = Cent
	for _, c := range []struct {
		what   string
		before func(t *testing.T, l *Ledger, c *clocks)
		claim  Claim
		limits Limits
		kind   *refusal.Kind
		detail string
		after  time.Duration
	}{
		{"no jobs an hour", nil, free("x"), Limits{0, 9, 0}, ErrHour,
			"The limit is 0 jobs within an hour; 0 used and 0 reserved. It does not reset.", 0},
		{"less than none", nil, free("x"), Limits{-1, 9, 0}, ErrHour,
			"The limit is 0 jobs within an hour; 0 used and 0 reserved. It does not reset.", 0},
		{"no jobs a day", nil, free("x"), Limits{9, 0, 0}, ErrDay,
			"The limit is 0 jobs within 24 hours; 0 used and 0 reserved. It does not reset.", 0},
		{"the hour is used up", func(t *testing.T, l *Ledger, c *clocks) {
			runs(t, l, free("a"), plenty, 0)
			c.pass(10*time.Minute + 30*time.Second)
			must(t, l.Reserve(ctx, free("b"), plenty))
		}, free("x"), Limits{2, 9, 0}, ErrHour,
			"The limit is 2 jobs within an hour; 1 used and 1 reserved. It resets at 2026-03-01 11:00 UTC.", 49*time.Minute + 30*time.Second},
		{"the hour is all reserved", func(t *testing.T, l *Ledger, c *clocks) {
			must(t, l.Reserve(ctx, free("b"), plenty))
			c.pass(100 * time.Hour)
		}, free("x"), Limits{1, 9, 0}, ErrHour,
			"The limit is 1 job within an hour; 0 used and 1 reserved. It resets when a reserved job is given back.", 0},
		{"the day is used up, and the hour is not", func(t *testing.T, l *Ledger, c *clocks) {
			for _, lease := range []string{"a", "b", "c"} {
				runs(t, l, free(lease), plenty, 0)
				c.pass(2*time.Hour + time.Second)
			}
		}, free("x"), Limits{1, 2, 0}, ErrDay,
			"The limit is 2 jobs within 24 hours; 3 used and 0 reserved. It resets at 2026-03-02 12:01 UTC.", 20*time.Hour - 2*time.Second},
		{"no ceiling", nil, another("x", 10*cent), Limits{9, 9, 0}, match.ErrCeiling,
			"The limit is $0.00 within 24 hours; $0.00 used and $0.00 reserved, and this job may cost $0.10. It does not reset.", 0},
		{"a negative ceiling", nil, another("x", 10*cent), Limits{9, 9, -Dollar}, match.ErrCeiling,
			"The limit is $0.00 within 24 hours; $0.00 used and $0.00 reserved, and this job may cost $0.10. It does not reset.", 0},
		{"the job is too large", nil, another("x", Dollar+1), Limits{9, 9, Dollar}, match.ErrCeiling,
			"The limit is $1.00 within 24 hours; $0.00 used and $0.00 reserved, and this job may cost $1.00. It does not reset for a job that may cost so much.", 0},
		{"others are reserved", func(t *testing.T, l *Ledger, c *clocks) {
			must(t, l.Reserve(ctx, another("a", 60*cent), plenty))
		}, another("x", 41*cent), Limits{9, 9, Dollar}, match.ErrCeiling,
			"The limit is $1.00 within 24 hours; $0.00 used and $0.60 reserved, and this job may cost $0.41. It resets when jobs that run have ended.", 0},
		{"the money is used up", func(t *testing.T, l *Ledger, c *clocks) {
			runs(t, l, another("a", 60*cent), plenty, 30*cent)
			c.pass(time.Hour)
			runs(t, l, another("b", 60*cent), plenty, 40*cent)
			c.pass(time.Hour)
			must(t, l.Reserve(ctx, another("c", 20*cent), plenty))
		}, another("x", 50*cent), Limits{9, 9, Dollar}, match.ErrCeiling,
			"The limit is $1.00 within 24 hours; $0.70 used and $0.20 reserved, and this job may cost $0.50. It resets at 2026-03-02 11:00 UTC.", 23 * time.Hour},
		{"a ceiling that was lowered", func(t *testing.T, l *Ledger, c *clocks) {
			runs(t, l, another("a", 60*cent), plenty, 60*cent)
		}, another("x", 1), Limits{9, 9, 50 * cent}, match.ErrCeiling,
			"The limit is $0.50 within 24 hours; $0.60 used and $0.00 reserved, and this job may cost $0.00000001. It resets at 2026-03-02 10:00 UTC.", 24 * time.Hour},
	} {
		t.Run(c.what, func(t *testing.T) {
			l, clocks := newLedger(t)
			if c.before != nil {
				c.before(t, l, clocks)
			}
			for what, err := range map[string]error{"Reserve": l.Reserve(ctx, c.claim, c.limits), "Room": l.Room(ctx, c.claim, c.limits)} {
				mustBe(t, err, c.kind)
				if r := refusal.From(err); r.Detail() != c.detail || r.RetryAfter() != c.after {
					t.Errorf("%s: %s, after %v\nwant %s, after %v", what, r.Detail(), r.RetryAfter(), c.detail, c.after)
				}
			}
			// The owner's own job is taken all the same.
			mine := own("mine", c.claim.Hold)
			mine.Backend, mine.Cost = c.claim.Backend, c.claim.Cost
			must(t, l.Reserve(ctx, mine, c.limits))
			if c.after == 0 {
				return
			}
			clocks.pass(c.after - time.Millisecond)
			mustBe(t, l.Reserve(ctx, c.claim, c.limits), c.kind)
			clocks.pass(time.Millisecond)
			must(t, l.Reserve(ctx, c.claim, c.limits))
		})
	}
}

// TestClaims has what cannot be entered, and names that can.
func TestClaims(t *testing.T) {
	l, _ := newLedger(t)
	long := strings.Repeat("x", maxText+1)
	for what, c := range map[string]struct {
		change func(*Claim)
		want   *refusal.Kind
	}{
		"no server":                  {func(c *Claim) { c.Server = "" }, ErrClaim},
		"no lease":                   {func(c *Claim) { c.Lease = "" }, ErrClaim},
		"no job":                     {func(c *Claim) { c.Job = "" }, ErrClaim},
		"no owner":                   {func(c *Claim) { c.Owner = "" }, ErrClaim},
		"no backend":                 {func(c *Claim) { c.Backend = "" }, ErrClaim},
		"no model":                   {func(c *Claim) { c.Model = "" }, ErrClaim},
		"a long lease":               {func(c *Claim) { c.Lease = ai.LeaseID(long) }, ErrClaim},
		"a long job":                 {func(c *Claim) { c.Job = ai.JobID(long) }, ErrClaim},
		"a long owner":               {func(c *Claim) { c.Owner = ai.Owner(long) }, ErrClaim},
		"a long model":               {func(c *Claim) { c.Model = long }, ErrClaim},
		"no cost":                    {func(c *Claim) { c.Cost = "" }, ErrClaim},
		"another cost":               {func(c *Claim) { c.Cost = "Free" }, ErrClaim},
		"no hold":                    {func(c *Claim) { c.Hold = 0 }, ErrClaim},
		"a negative hold":            {func(c *Claim) { c.Hold = -1 }, ErrClaim},
		"a hold out of bounds":       {func(c *Claim) { c.Hold = MaxMoney + 1 }, ErrClaim},
		"an own negative hold":       {func(c *Claim) { c.Own, c.Hold = true, -1 }, ErrClaim},
		"another's on an abo":        {func(c *Claim) { c.Cost = backend.Subscription }, match.ErrSubscription},
		"own on an abo":              {func(c *Claim) { c.Own, c.Cost = true, backend.Subscription }, nil},
		"own without a hold":         {func(c *Claim) { c.Own, c.Hold = true, 0 }, nil},
		"the largest":                {func(c *Claim) { c.Owner, c.Job = ai.Owner(long[1:]), ai.JobID(long[1:]) }, nil},
		"odd names":                  {func(c *Claim) { c.Owner, c.Job, c.Model = "a\x00b", "\xff'\"; --", "\u202e" }, nil},
		"a free one with a bad hold": {func(c *Claim) { c.Cost, c.Hold = backend.Free, -1 }, nil},
	} {
		claim := another(what, Cent)
		c.change(&claim)
		if c.want == nil {
			// Twice, since it is read back the second time.
			must(t, l.Reserve(ctx, claim, plenty))
			must(t, l.Reserve(ctx, claim, plenty))
			continue
		}
		mustBe(t, l.Reserve(ctx, claim, plenty), c.want)
	}
	for what, c := range map[string]struct {
		claim Claim
		want  *refusal.Kind
	}{
		"no cost":         {Claim{Backend: "b", Hold: 1}, ErrClaim},
		"a subscription":  {Claim{Backend: "b", Cost: backend.Subscription}, match.ErrSubscription},
		"no hold":         {Claim{Backend: "b", Cost: backend.Metered}, ErrClaim},
		"a negative hold": {Claim{Backend: "b", Cost: backend.Metered, Hold: -1}, ErrClaim},
	} {
		if err := l.Room(ctx, c.claim, plenty); !errors.Is(err, c.want) {
			t.Errorf("room for %s: %s", what, explain(err))
		}
	}
	// Whose it is does not matter there, since it is asked for others.
	mustBe(t, l.Room(ctx, own("x", 10), Limits{}), ErrHour)
	must(t, l.Room(ctx, Claim{Backend: "b", Cost: backend.Metered, Hold: 1}, plenty))
}

// TestLeases: one lease pays for one run.
func TestLeases(t *testing.T) {
	l, _ := newLedger(t)
	c := another("l", 10)
	for _, fn := range []func() error{
		func() error { return l.Begin(ctx, c.Ref) },
		func() error { return l.Settle(ctx, c.Ref, Settlement{}) },
		func() error { return l.Release(ctx, c.Ref) },
	} {
		mustBe(t, fn(), ErrLease)
	}
	must(t, l.Reserve(ctx, c, plenty))
	must(t, l.Reserve(ctx, c, Limits{})) // it has its room
	for what, change := range map[string]func(*Claim){
		"job": func(c *Claim) { c.Job = "other" }, "owner": func(c *Claim) { c.Owner = "carol" }, "own": func(c *Claim) { c.Own = true },
		"backend": func(c *Claim) { c.Backend = "other" }, "model": func(c *Claim) { c.Model = "other" }, "hold": func(c *Claim) { c.Hold++ },
		"cost": func(c *Claim) { c.Cost = backend.Free },
	} {
		other := c
		change(&other)
		if err := l.Reserve(ctx, other, plenty); !errors.Is(err, ErrLease) {
			t.Errorf("another %s: %s", what, explain(err))
		}
	}
	// The same words under another server are another grant, wherever they part.
	elsewhere := c
	elsewhere.Server = "https://other.example"
	must(t, l.Reserve(ctx, elsewhere, plenty))
	shifted := c
	shifted.Server, shifted.Lease = c.Server+string(c.Lease[:1]), "rest"
	must(t, l.Reserve(ctx, shifted, plenty))
	shifted.Server, shifted.Lease = c.Server, c.Lease[:1]+"rest"
	must(t, l.Reserve(ctx, shifted, plenty))

	must(t, l.Begin(ctx, c.Ref))
	must(t, l.Begin(ctx, c.Ref))
	mustBe(t, l.Reserve(ctx, c, plenty), ErrLease)
	mustBe(t, l.Release(ctx, c.Ref), ErrLease)
	must(t, l.Settle(ctx, c.Ref, Settlement{Amount: 4, Prompt: -1, Completion: math.MaxInt64}))
	must(t, l.Settle(ctx, c.Ref, Settlement{Amount: 7}))
	mustBe(t, l.Begin(ctx, c.Ref), ErrLease)
	mustBe(t, l.Release(ctx, c.Ref), ErrLease)
	mustBe(t, l.Reserve(ctx, c, plenty), ErrLease)

	must(t, l.Release(ctx, elsewhere.Ref))
	must(t, l.Release(ctx, elsewhere.Ref))
	mustBe(t, l.Begin(ctx, elsewhere.Ref), ErrLease)
	mustBe(t, l.Settle(ctx, elsewhere.Ref, Settlement{}), ErrLease)
	mustBe(t, l.Reserve(ctx, elsewhere, plenty), ErrLease)

	rows, err := l.Spent(ctx, time.Time{})
	must(t, err)
	want := []Row{{
		Day: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), Backend: "work", Owner: "bob", Jobs: 1,
		Completion: MaxTokens, Amount: 4, Estimated: 4,
	}}
	if !reflect.DeepEqual(rows, want) {
		t.Errorf("%+v", rows)
	}
}

// TestAmounts: what a backend says is bounded, and only metered ones cost money.
func TestAmounts(t *testing.T) {
	l, _ := newLedger(t)
	for i, a := range []Money{-1, math.MinInt64, math.MaxInt64} {
		runs(t, l, another(fmt.Sprint(i), 1), plenty, a)
		b, err := l.Balance(ctx, "work", plenty)
		must(t, err)
		if want := []Money{0, 0, MaxMoney}[i]; b.Used != want {
			t.Errorf("%d: %d", a, b.Used)
		}
	}
	// A ceiling as high as it goes does not let another through after that.
	mustBe(t, l.Reserve(ctx, another("next", 1), plenty), match.ErrCeiling)
	runs(t, l, free("free"), plenty, Dollar)
	sub := own("sub", 0)
	sub.Cost = backend.Subscription
	runs(t, l, sub, plenty, Dollar)
	rows, err := l.Spent(ctx, time.Time{})
	must(t, err)
	for _, r := range rows {
		if r.Amount != 0 && r.Owner == "alice" || r.Amount != 0 && r.Backend == "home" {
			t.Errorf("%+v", r)
		}
	}
	if len(rows) != 3 {
		t.Errorf("%+v", rows)
	}
}

// TestRace: of many who want the last room, one gets it.
func TestRace(t *testing.T) {
	l, _ := newLedger(t)
	for round := range 20 {
		for _, c := range []struct {
			limits Limits
			kind   *refusal.Kind
		}{
			{Limits{JobsPerHour: 1, JobsPerDay: 9, Ceiling: Dollar}, ErrHour},
			{Limits{JobsPerHour: 9, JobsPerDay: 1, Ceiling: Dollar}, ErrDay},
			{Limits{JobsPerHour: 9, JobsPerDay: 9, Ceiling: 19}, match.ErrCeiling},
		} {
			const racers = 8
			var wg sync.WaitGroup
			errs := make([]error, racers)
			start := make(chan struct{})
			for i := range racers {
				wg.Go(func() {
					<-start
					errs[i] = l.Reserve(ctx, another(fmt.Sprint(round, c.kind.Name(), i), 10), c.limits)
				})
			}
			close(start)
			wg.Wait()
			passed := 0
			for i, err := range errs {
				if err == nil {
					passed++
					must(t, l.Release(ctx, another(fmt.Sprint(round, c.kind.Name(), i), 10).Ref))
					continue
				}
				mustBe(t, err, c.kind)
			}
			if passed != 1 {
				t.Fatalf("%s: %d passed", c.kind.Name(), passed)
			}
		}
	}
}

// TestClocks sets the clock on the wall.
func TestClocks(t *testing.T) {
	const year = 366 * 24 * time.Hour
	limits := Limits{JobsPerHour: 1, JobsPerDay: 9, Ceiling: 10}
	day := Limits{JobsPerHour: 9, JobsPerDay: 1, Ceiling: 10}
	for _, c := range []struct {
		what string
		do   func(c *clocks, again func())
		// hour and day say whether there is room again.
		hour, day bool
	}{
		{"an hour passes", func(c *clocks, _ func()) { c.pass(time.Hour) }, true, false},
		{"a day passes", func(c *clocks, _ func()) { c.pass(24 * time.Hour) }, true, true},
		{"the machine sleeps for a day", func(c *clocks, _ func()) { c.set(24 * time.Hour) }, true, true},
		{"it is off for a day", func(c *clocks, again func()) { c.set(24 * time.Hour); again() }, true, true},
		{"two hours back", func(c *clocks, _ func()) { c.set(-2 * time.Hour); c.pass(59 * time.Minute) }, false, false},
		{"two hours back, and an hour passes", func(c *clocks, _ func()) { c.set(-2 * time.Hour); c.pass(time.Hour) }, true, false},
		{"a year back, and a day passes", func(c *clocks, _ func()) { c.set(-year); c.pass(24 * time.Hour) }, true, true},
		{"a year back, an hour passes, a new process", func(c *clocks, again func()) {
			c.set(-year)
			again()
			c.pass(time.Hour)
			again()
		}, true, false},
		{"a year back, a day passes in five processes", func(c *clocks, again func()) {
			c.set(-year)
			for range 5 {
				again()
				c.pass(24 * time.Hour / 5)
			}
			again()
		}, true, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			cl := newClocks()
			path := filepath.Join(t.TempDir(), File)
			l := mustOpen(t, cl.config(path))
			again := func() {
				must(t, l.Close())
				l = mustOpen(t, cl.config(path))
			}
			runs(t, l, another("a", 10), plenty, 10)
			c.do(cl, again)
			if err := l.Room(ctx, free("x"), limits); (err == nil) != c.hour {
				t.Errorf("the hour: %s", explain(err))
			}
			if err := l.Room(ctx, free("x"), day); (err == nil) != c.day {
				t.Errorf("the day: %s", explain(err))
			}
			if err := l.Room(ctx, another("x", 1), Limits{9, 9, 10}); (err == nil) != c.day {
				t.Errorf("the money: %s", explain(err))
			}
		})
	}
	// Forward a year and back, twice, with and without new processes: the windows are
	// emptied once, and nothing is blocked for longer than they are.
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("a year forward and back, new process ", restart), func(t *testing.T) {
			cl := newClocks()
			path := filepath.Join(t.TempDir(), File)
			l := mustOpen(t, cl.config(path))
			set := func(d time.Duration) {
				if restart {
					must(t, l.Close())
				}
				cl.set(d)
				if restart {
					l = mustOpen(t, cl.config(path))
				}
			}
			both := Limits{JobsPerHour: 9, JobsPerDay: 1, Ceiling: 10}
			runs(t, l, another("a", 10), both, 10)
			mustBe(t, l.Reserve(ctx, another("b", 10), both), ErrDay)
			set(year)
			runs(t, l, another("b", 10), both, 10)
			for i := range 3 {
				set(-year)
				cl.pass(time.Hour)
				mustBe(t, l.Reserve(ctx, another("c", 10), both), ErrDay)
				mustBe(t, l.Reserve(ctx, another("c", 10), Limits{9, 9, 10}), match.ErrCeiling)
				set(year)
				cl.pass(time.Hour)
				mustBe(t, l.Reserve(ctx, another("c", 10), both), ErrDay)
				mustBe(t, l.Reserve(ctx, another("c", 10), Limits{9, 9, 10}), match.ErrCeiling)
				if i == 1 {
					must(t, l.Reserve(ctx, own("mine", 10), both))
					must(t, l.Release(ctx, own("mine", 10).Ref))
				}
			}
			set(-year)
			cl.pass(18*time.Hour - time.Millisecond)
			mustBe(t, l.Reserve(ctx, another("c", 10), both), ErrDay)
			cl.pass(time.Millisecond)
			runs(t, l, another("c", 10), both, 10)
		})
	}
}

// TestCeilingMoves: a limit is the owner's of this moment.
func TestCeilingMoves(t *testing.T) {
	l, _ := newLedger(t)
	low, high := Limits{9, 9, 10}, Limits{9, 9, 20}
	runs(t, l, another("a", 10), low, 10)
	mustBe(t, l.Reserve(ctx, another("b", 10), low), match.ErrCeiling)
	must(t, l.Reserve(ctx, another("b", 10), high))
	must(t, l.Release(ctx, another("b", 10).Ref))
	mustBe(t, l.Reserve(ctx, another("c", 10), low), match.ErrCeiling)
	mustBe(t, l.Reserve(ctx, another("d", 10), Limits{1, 9, 20}), ErrHour)
	must(t, l.Reserve(ctx, another("d", 10), Limits{2, 9, 20}))
}

// TestLeft: what a process left is settled by the next, once.
func TestLeft(t *testing.T) {
	c := newClocks()
	path := filepath.Join(t.TempDir(), File)
	l := mustOpen(t, c.config(path))
	must(t, l.Reserve(ctx, another("begun", 30), plenty))
	must(t, l.Reserve(ctx, another("never", 40), plenty))
	must(t, l.Reserve(ctx, own("mine", 50), plenty))
	must(t, l.Begin(ctx, another("begun", 30).Ref))
	must(t, l.Begin(ctx, own("mine", 50).Ref))
	l.crash(t)
	c.pass(25 * time.Hour)

	reader, err := OpenReader(ctx, c.config(path))
	must(t, err)
	b, err := reader.Balance(ctx, "work", plenty)
	must(t, err)
	if want := (Balance{Limit: MaxMoney, Reserved: 70}); b != want {
		t.Errorf("a reader finds %+v", b)
	}
	must(t, reader.Close())

	var log bytes.Buffer
	config := c.config(path)
	config.Logger = slog.New(slog.NewTextHandler(&log, nil))
	l = mustOpen(t, config)
	for range 2 {
		b, err := l.Balance(ctx, "work", plenty)
		must(t, err)
		if want := (Balance{Limit: MaxMoney, Used: 30, Reset: c.wall.Add(24 * time.Hour)}); b != want {
			t.Errorf("%+v, want %+v", b, want)
		}
		taken, err := l.Taken(ctx)
		must(t, err)
		if taken != (Taken{}) {
			t.Errorf("%+v", taken)
		}
		rows, err := l.Spent(ctx, time.Time{})
		must(t, err)
		today := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
		want := []Row{
			{Day: today, Backend: "work", Owner: "alice", Own: true, Jobs: 1, Amount: 50, Estimated: 50},
			{Day: today, Backend: "work", Owner: "bob", Jobs: 1, Amount: 30, Estimated: 30},
		}
		if !reflect.DeepEqual(rows, want) {
			t.Errorf("%+v", rows)
		}
		must(t, l.Close())
		l = mustOpen(t, config)
	}
	if n := strings.Count(log.String(), "settled jobs that an earlier process left"); n != 1 || !strings.Contains(log.String(), `begun=2 "never begun"=1`) {
		t.Errorf("the log has %d: %s", n, log.String())
	}
	for _, text := range []string{"begun", "never", "bob"} {
		if strings.Contains(log.String(), "job of "+text) {
			t.Error("the log names a job")
		}
	}
	mustBe(t, l.Settle(ctx, another("never", 40).Ref, Settlement{Amount: 1}), ErrLease)
	must(t, l.Settle(ctx, another("begun", 30).Ref, Settlement{Amount: 1})) // the first counts
}

// TestSpent: days are those of the wall in UTC.
func TestSpent(t *testing.T) {
	l, c := newLedger(t)
	c.pass(14*time.Hour - time.Millisecond) // a millisecond before midnight
	must(t, l.Reserve(ctx, another("late", 9), plenty))
	c.pass(0)
	runs(t, l, another("a", 9), plenty, 3)
	c.pass(time.Millisecond)
	must(t, l.Begin(ctx, another("late", 9).Ref))
	must(t, l.Settle(ctx, another("late", 9).Ref, Settlement{Prompt: 1, Completion: 2, Amount: 4}))
	runs(t, l, own("mine", 9), plenty, 5)
	runs(t, l, free("f"), plenty, 5)
	must(t, l.Reserve(ctx, free("back"), plenty))
	must(t, l.Release(ctx, free("back").Ref))
	first := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	second := first.AddDate(0, 0, 1)
	want := []Row{
		{Day: second, Backend: "home", Owner: "bob", Jobs: 1, Prompt: 10, Completion: 5},
		{Day: second, Backend: "work", Owner: "alice", Own: true, Jobs: 1, Prompt: 10, Completion: 5, Amount: 5},
		{Day: second, Backend: "work", Owner: "bob", Jobs: 1, Prompt: 1, Completion: 2, Amount: 4, Estimated: 4},
		{Day: first, Backend: "work", Owner: "bob", Jobs: 1, Prompt: 10, Completion: 5, Amount: 3},
	}
	for n, since := range map[int]time.Time{4: first, 3: second, 0: second.Add(time.Millisecond)} {
		got, err := l.Spent(ctx, since)
		must(t, err)
		if len(got) != n || !reflect.DeepEqual(got, append([]Row(nil), want[:n]...)) {
			t.Errorf("since %v: %+v", since, got)
		}
	}
}

// TestSpentIsBounded: a server that names ever new people fills no screen.
func TestSpentIsBounded(t *testing.T) {
	l, _ := newLedger(t)
	must(t, l.db.Write(ctx, func(tx *database.Tx) error {
		const numbers = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) `
		_, err := tx.ExecContext(ctx, numbers+`INSERT INTO jobs (id, lease, job, server, owner, own, backend, model, cost, hold)
			SELECT i, CAST(i AS BLOB), 'j', 's', 'owner ' || i, 0, 'b', 'm', 'free', 0 FROM n`)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, numbers+`INSERT INTO entries (at, wall, what, job, prompt, completion, amount, estimated, open, waiting, begun, begins)
			SELECT i, 86400000 * i, 'settled', i, 0, 0, 0, 0, 0, 0, i, 1 FROM n`)
		return err
	}))
	rows, err := l.Spent(ctx, time.Time{})
	must(t, err)
	if len(rows) != MaxRows || rows[0].Owner != "owner 5000" {
		t.Errorf("%d rows from %v on", len(rows), rows[0])
	}
}

// TestAppendOnly: not even who opens the file by hand changes a row by mistake.
func TestAppendOnly(t *testing.T) {
	c := newClocks()
	path := filepath.Join(t.TempDir(), File)
	l := mustOpen(t, c.config(path))
	runs(t, l, another("a", 9), plenty, 3)
	must(t, l.Close())
	db, err := sql.Open("sqlite3", "file:"+path)
	must(t, err)
	defer db.Close()
	for _, statement := range []string{
		`UPDATE jobs SET own = 1`, `UPDATE entries SET amount = 0 WHERE what = 'settled'`, `DELETE FROM entries`, `DELETE FROM jobs`,
		`INSERT OR REPLACE INTO jobs SELECT * FROM jobs`,
		`INSERT OR REPLACE INTO jobs SELECT id + 1, lease, job, server, owner, own, backend, model, cost, 0 FROM jobs`,
		`INSERT OR REPLACE INTO entries SELECT * FROM entries`,
		`INSERT OR REPLACE INTO entries SELECT * FROM entries WHERE what = 'reserved'`,
		`INSERT OR REPLACE INTO entries SELECT seq + 100, at, wall, what, job, prompt, completion, 0, estimated, open, waiting,
			begun, begins, metered, reserved, spent FROM entries WHERE what = 'settled'`,
		`INSERT OR REPLACE INTO entries SELECT seq + 100, at, wall, what, job, prompt, completion, 0, estimated, open, waiting,
			begun, begins, metered, reserved, spent FROM entries WHERE what = 'begun'`,
	} {
		if _, err := db.Exec(statement); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v", statement, err)
		}
	}
	l = mustOpen(t, c.config(path))
	b, err := l.Balance(ctx, "work", plenty)
	must(t, err)
	if b.Used != 3 {
		t.Errorf("%+v", b)
	}
}

// TestBadFiles: a file that cannot be trusted is named and stays as it is.
func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	good := func(name string) string {
		c := newClocks()
		path := filepath.Join(dir, name)
		l := mustOpen(t, c.config(path))
		for i := range 50 {
			runs(t, l, another(fmt.Sprint(i), 9), plenty, 3)
		}
		must(t, l.Close())
		return path
	}
	for _, c := range []struct {
		what  string
		spoil func(t *testing.T, path string)
		want  *refusal.Kind
	}{
		{"no database", func(t *testing.T, path string) {
			must(t, os.WriteFile(path, bytes.Repeat([]byte("spent nothing\n"), 1000), 0o600))
		}, database.ErrFormat},
		{"cut off", func(t *testing.T, path string) { must(t, os.Truncate(path, 5000)) }, database.ErrDamaged},
		{"pages overwritten", func(t *testing.T, path string) {
			data, err := os.ReadFile(path)
			must(t, err)
			copy(data[4096:], bytes.Repeat([]byte{0x5a}, len(data)-4096))
			must(t, os.WriteFile(path, data, 0o600))
		}, database.ErrDamaged},
		{"of a newer version", func(t *testing.T, path string) {
			db, err := sql.Open("sqlite3", "file:"+path)
			must(t, err)
			_, err = db.Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (2, 1)`)
			must(t, errors.Join(err, db.Close()))
		}, database.ErrNewer},
		{"of another party", func(t *testing.T, path string) {
			must(t, os.Remove(path))
			db, err := database.Open(ctx, database.Config{
				URL: "sqlite:" + path, Name: "site", Clock: time.Now,
				Migrations: fstest.MapFS{"001_a.sql": {Data: []byte("-- +goose Up\nCREATE TABLE a (b) ;")}},
			})
			must(t, err)
			must(t, db.Close())
		}, database.ErrParty},
	} {
		t.Run(c.what, func(t *testing.T) {
			path := good(strings.ReplaceAll(c.what, " ", "-"))
			c.spoil(t, path)
			before, err := os.ReadFile(path)
			must(t, err)
			for range 2 {
				clocks := newClocks()
				l, err := Open(ctx, clocks.config(path))
				if err == nil {
					_ = l.Close()
				}
				mustBe(t, err, c.want)
				r, err := OpenReader(ctx, clocks.config(path))
				if err == nil {
					_ = r.Close()
				}
				mustBe(t, err, c.want)
			}
			after, err := os.ReadFile(path)
			must(t, err)
			if !bytes.Equal(before, after) {
				t.Error("the file was written over")
			}
		})
	}
}

// TestDamageInUse: damage that is met only when a job asks refuses the job.
func TestDamageInUse(t *testing.T) {
	c := newClocks()
	path := filepath.Join(t.TempDir(), File)
	l := mustOpen(t, c.config(path))
	runs(t, l, another("a", 9), plenty, 3)
	must(t, l.Close())
	db, err := sql.Open("sqlite3", "file:"+path)
	must(t, err)
	var page int64
	must(t, db.QueryRow(`SELECT rootpage FROM sqlite_schema WHERE name = 'entries_money'`).Scan(&page))
	must(t, db.Close())
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt(bytes.Repeat([]byte{0x5a}, 4096), (page-1)*4096)
	must(t, errors.Join(err, f.Close()))
	l = mustOpen(t, c.config(path))
	mustBe(t, l.Reserve(ctx, another("b", 9), plenty), database.ErrDamaged)
	mustBe(t, l.Room(ctx, another("b", 9), plenty), database.ErrDamaged)
	_, err = l.Balance(ctx, "work", plenty)
	mustBe(t, err, database.ErrDamaged)
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenReader(ctx, Config{Path: filepath.Join(dir, File)}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a reader of nothing: %v", err)
	}
	_, err := Open(ctx, Config{Path: filepath.Join(dir, "absent", File)})
	mustBe(t, err, database.ErrFolder)
	path := filepath.Join(dir, File)
	l := mustOpen(t, Config{Path: path})
	runs(t, l, another("a", 9), plenty, 3)
	if runtime.GOOS != "windows" {
		for _, name := range []string{path, path + "-wal", path + "-shm"} {
			info, err := os.Stat(name)
			must(t, err)
			if info.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %v", filepath.Base(name), info.Mode())
			}
		}
	}
	// Beside the process that writes.
	r, err := OpenReader(ctx, Config{Path: path})
	must(t, err)
	runs(t, l, another("b", 9), plenty, 4)
	b, err := r.Balance(ctx, "work", plenty)
	must(t, err)
	if b.Used != 7 {
		t.Errorf("%+v", b)
	}
	must(t, r.Close())
	must(t, l.Close())
	mustBe(t, l.Reserve(ctx, another("c", 9), plenty), database.ErrClosed)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	l = mustOpen(t, Config{Path: path})
	mustBe(t, l.Reserve(ended, another("c", 9), plenty), database.ErrCancelled)
	mustBe(t, l.Begin(ctx, another("c", 9).Ref), ErrLease)
}
