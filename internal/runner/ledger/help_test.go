package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
)

var ctx = context.Background()

// clocks are the two clocks of a machine. Go's times cannot say that one was set
// and the other was not, so the measured time is told apart from them.
type clocks struct {
	wall     time.Time
	measured time.Duration
	base     time.Duration // measured when the ledger was opened
}

func newClocks() *clocks {
	return &clocks{wall: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC), measured: time.Hour}
}

// pass lets time pass, and set sets the clock on the wall.
func (c *clocks) pass(d time.Duration) { c.wall, c.measured = c.wall.Add(d), c.measured+d }
func (c *clocks) set(d time.Duration)  { c.wall = c.wall.Add(d) }

// config has clocks that a new process reads: what it measures begins anew.
func (c *clocks) config(path string) Config {
	c.base = c.measured
	return Config{
		Path: path, Clock: func() time.Time { return c.wall },
		measured: func(_, _ time.Time) time.Duration { return c.measured - c.base },
	}
}

func mustOpen(t testing.TB, c Config) *Ledger {
	t.Helper()
	l, err := Open(ctx, c)
	if err != nil {
		t.Fatal(explain(err))
	}
	t.Cleanup(func() { _ = l.Reader.Close() })
	return l
}

func newLedger(t testing.TB) (*Ledger, *clocks) {
	t.Helper()
	c := newClocks()
	return mustOpen(t, c.config(filepath.Join(t.TempDir(), File))), c
}

// crash ends the use of the file as the end of a process does.
func (l *Ledger) crash(t testing.TB) {
	t.Helper()
	must(t, l.Reader.Close())
}

func explain(err error) string {
	if err == nil {
		return "no error"
	}
	return fmt.Sprint(err, " because: ", refusal.From(err).Unwrap())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(explain(err))
	}
}

func mustBe(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || (err == nil) != (want == nil) {
		t.Fatalf("got %s\nwant %v", explain(err), want)
	}
}

// another is a job of another person on a metered backend.
func another(lease string, hold Money) Claim {
	return Claim{
		Ref: Ref{"https://site.example", ai.LeaseID(lease)}, Job: ai.JobID("job of " + lease), Owner: "bob",
		Backend: "work", Model: "m", Cost: backend.Metered, Hold: hold,
	}
}

func own(lease string, hold Money) Claim {
	c := another(lease, hold)
	c.Own, c.Owner = true, "alice"
	return c
}

func free(lease string) Claim {
	c := another(lease, 0)
	c.Cost, c.Backend = backend.Free, "home"
	return c
}

var plenty = Limits{JobsPerHour: 1000, JobsPerDay: 1000, Ceiling: MaxMoney}

// runs makes a job reserve, begin and settle.
func runs(t testing.TB, l *Ledger, c Claim, limits Limits, amount Money) {
	t.Helper()
	must(t, l.Reserve(ctx, c, limits))
	must(t, l.Begin(ctx, c.Ref))
	must(t, l.Settle(ctx, c.Ref, Settlement{Prompt: 10, Completion: 5, Counted: true, Amount: amount}))
}

// memoryDir is a folder in memory where the system has one, for tests that sync
// tens of thousands of times.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "allod-ledger-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
