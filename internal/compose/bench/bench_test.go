package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestMain lets this binary stand for a site that does not come up.
func TestMain(m *testing.M) {
	if os.Args[0] == "allod" {
		fmt.Fprintln(os.Stderr, "words of the site")
		switch os.Getenv("BENCH_SITE") {
		case "silent":
			time.Sleep(time.Hour) // until it is told to end
		case "babbles":
			fmt.Println("Good morning.")
		case "endless":
			fmt.Print(strings.Repeat("x", 2*maxLine))
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i)
	}
	for _, c := range []struct {
		times []time.Duration
		part  float64
		want  time.Duration
	}{
		{nil, 0.5, 0},
		{[]time.Duration{7}, 0, 7},
		{[]time.Duration{7}, 1, 7},
		{[]time.Duration{3, 1, 2}, 0.5, 2},
		{[]time.Duration{4, 3, 2, 1}, 0.5, 2},
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
		{hundred, 0.991, 100},
		{hundred, 2, 100},
	} {
		if got := percentile(c.times, c.part); got != c.want {
			t.Errorf("percentile(%v, %v) = %d, want %d", c.times, c.part, got, c.want)
		}
	}
	if hundred[0] != 100 {
		t.Error("the times were sorted in place")
	}
}

// TestLimit computes the limit from the words of its definition: 4.25
// signatures, 5.25 verifications, 5 multiplications and 2 new keys a job, on all
// processors.
func TestLimit(t *testing.T) {
	c := Costs{Signature: 100 * time.Microsecond}
	if got := c.perJob(); got != 425*time.Microsecond {
		t.Errorf("signatures: %v", got)
	}
	c = Costs{Verification: 100 * time.Microsecond}
	if got := c.perJob(); got != 525*time.Microsecond {
		t.Errorf("verifications: %v", got)
	}
	c = Costs{Multiplication: 100 * time.Microsecond}
	if got := c.perJob(); got != 500*time.Microsecond {
		t.Errorf("multiplications: %v", got)
	}
	c = Costs{Generation: 100 * time.Microsecond}
	if got := c.perJob(); got != 200*time.Microsecond {
		t.Errorf("new keys: %v", got)
	}
	c = Costs{Signature: 40e3, Verification: 80e3, Multiplication: 60e3, Generation: 20e3} // 930 µs a job
	for cores, want := range map[int]float64{1: 1 / 930e-6, 2: 2 / 930e-6, 16: 16 / 930e-6} {
		if got := c.limit(cores); math.Abs(got-want) > 1e-6 {
			t.Errorf("%d processors: %v, want %v", cores, got, want)
		}
	}
	if got, want := c.mean(Costs{Signature: 60e3, Verification: 100e3, Multiplication: 80e3, Generation: 40e3}),
		(Costs{Signature: 50e3, Verification: 90e3, Multiplication: 70e3, Generation: 30e3}); got != want {
		t.Errorf("mean %+v, want %+v", got, want)
	}
}

func TestRate(t *testing.T) {
	if got := rate(30, 1500*time.Millisecond); got != 20 {
		t.Errorf("rate %v", got)
	}
	if got := ms(1500 * time.Microsecond); got != 1.5 {
		t.Errorf("ms %v", got)
	}
}

// TestCost holds the arithmetic of a primitive's cost with a clock that goes on
// by a millisecond each time it is looked at.
func TestCost(t *testing.T) {
	var mu sync.Mutex
	var now time.Time
	b := &bench{Config: Config{Clock: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Millisecond)
		return now
	}}}
	b.report.Setup.Cores = 1
	n := 0
	cost, err := b.cost(t.Context(), 10*time.Millisecond, func() error { n++; return nil })
	// Begun at 1 ms, looked at up to 11 ms, ended at 12 ms: eleven milliseconds for
	// nine rounds of sixteen.
	if want := 11 * time.Millisecond / (9 * 16); err != nil || n != 9*16 || cost != want {
		t.Errorf("%v for %d, want %v: %v", cost, n, want, err)
	}
	b.report.Setup.Cores = 2
	var calls atomic.Int64
	before := now
	cost, err = b.cost(t.Context(), 10*time.Millisecond, func() error { calls.Add(1); return nil })
	took := now.Sub(before) - time.Millisecond
	if want := 2 * took / time.Duration(calls.Load()); err != nil || cost != want {
		t.Errorf("two processors: %v, want %v: %v", cost, want, err)
	}
	broken := errors.New("broken")
	if _, err := b.cost(t.Context(), time.Second, func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("an error: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := b.cost(ended, time.Hour, func() error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("an end: %v", err)
	}
}

func TestBars(t *testing.T) {
	good := Report{
		ClaimToResult: ClaimToResult{OfLimit: 0.5},
		Idle:          Idle{P50Ms: 14, P99Ms: 60, CommitP50Ms: 2},
		Backlog:       Backlog{Slowdown: 1.5},
	}
	if err := good.Judge(); err != nil {
		t.Errorf("at the bars: %v", err)
	}
	for name, worsen := range map[string]func(r *Report){
		"ofLimit":  func(r *Report) { r.ClaimToResult.OfLimit = 0.499 },
		"p50Ms":    func(r *Report) { r.Idle.P50Ms = 14.01 },
		"p99Ms":    func(r *Report) { r.Idle.P99Ms = 60.01 },
		"slowdown": func(r *Report) { r.Backlog.Slowdown = 1.501 },
	} {
		r := good
		worsen(&r)
		if err := r.Judge(); !errors.Is(err, ErrBars) {
			t.Errorf("%s: %v", name, err)
		}
		for _, b := range r.Bars() {
			if b.Met() != (b.Name != name) {
				t.Errorf("%s is worse: the bar %s is met: %v", name, b.Name, b.Met())
			}
		}
	}
	if (Bar{Value: math.NaN()}).Met() || (Bar{Value: math.NaN(), AtLeast: true}).Met() {
		t.Error("what is no number meets a bar")
	}
}

func TestBusy(t *testing.T) {
	for share, want := range map[float64]bool{0: false, 0.3: true, 0.89: true, 0.9: false, 1: false, 1.01: false} {
		if got := (Setup{Share: share}).Busy(); got != want {
			t.Errorf("a share of %v: %v", share, got)
		}
	}
}

func TestConfig(t *testing.T) {
	c := Config{}
	if err := c.complete(); err != nil || c.Jobs != DefaultJobs || c.Runners != DefaultRunners ||
		c.Samples != DefaultSamples || c.Backlog != DefaultBacklog || c.Clock == nil || c.Rand == nil || c.Progress == nil {
		t.Errorf("defaults: %+v %v", c, err)
	}
	for name, c := range map[string]Config{
		"jobs": {Jobs: -1}, "more jobs": {Jobs: MaxJobs + 1}, "runners": {Runners: MaxRunners + 1},
		"samples": {Samples: MaxSamples + 1}, "backlog": {Backlog: MaxBacklog + 1}, "small backlog": {Backlog: MinBacklog - 1},
	} {
		if err := c.complete(); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The smaller site has enough for a claim.
	if MinBacklog/few < claimed {
		t.Error("the smallest backlog is too small")
	}
}

func TestTexts(t *testing.T) {
	for _, s := range []string{question, answer} {
		if len([]rune(s)) != textSize || len(s) != textSize {
			t.Errorf("%q has %d characters", s, len([]rune(s)))
		}
	}
}

func TestTogether(t *testing.T) {
	broken := errors.New("broken")
	var ended atomic.Int64
	err := together(t.Context(), 3, func(ctx context.Context, i int) error {
		if i == 1 {
			return broken
		}
		<-ctx.Done()
		ended.Add(1)
		return ctx.Err()
	})
	if !errors.Is(err, broken) || ended.Load() != 2 {
		t.Errorf("%v, %d ended", err, ended.Load())
	}
	var seen [3]atomic.Bool
	if err := together(t.Context(), 3, func(_ context.Context, i int) error { seen[i].Store(true); return nil }); err != nil {
		t.Error(err)
	}
	for i := range seen {
		if !seen[i].Load() {
			t.Errorf("%d was not called", i)
		}
	}
}

func TestWorkFolder(t *testing.T) {
	if inMemory(t.TempDir()) {
		t.Skip("the folder for tests is in memory")
	}
	write := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list := func(dir string) []string {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return []string{"absent"}
		}
		names := []string{}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	t.Run("absent", func(t *testing.T) {
		want := filepath.Join(t.TempDir(), "a", "b")
		dir, remove, err := workFolder(want)
		if err != nil || dir != want {
			t.Fatal(dir, err)
		}
		if info, err := os.Stat(dir); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o700 {
			t.Errorf("%v %v", info, err)
		}
		write(filepath.Join(dir, "left"))
		remove()
		if got := list(dir); !slices.Equal(got, []string{"absent"}) {
			t.Errorf("left %v", got)
		}
	})
	t.Run("empty", func(t *testing.T) {
		want := t.TempDir()
		dir, remove, err := workFolder(want)
		if err != nil || dir != want {
			t.Fatal(dir, err)
		}
		write(filepath.Join(dir, "left"))
		remove()
		if got := list(dir); len(got) != 0 {
			t.Errorf("left %v", got)
		}
	})
	t.Run("in use", func(t *testing.T) {
		dir := t.TempDir()
		write(filepath.Join(dir, "somebody's"))
		if _, _, err := workFolder(dir); !errors.Is(err, ErrFolder) {
			t.Error(err)
		}
		if got := list(dir); !slices.Equal(got, []string{"somebody's"}) {
			t.Errorf("left %v", got)
		}
	})
	t.Run("a file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		write(path)
		if _, _, err := workFolder(path); !errors.Is(err, ErrFolder) {
			t.Error(err)
		}
	})
	t.Run("temporary", func(t *testing.T) {
		parent := t.TempDir()
		t.Setenv("TMPDIR", parent)
		t.Setenv("TMP", parent)
		dir, remove, err := workFolder("")
		if err != nil || filepath.Dir(dir) != parent || !filepath.IsAbs(dir) {
			t.Fatal(dir, err)
		}
		remove()
		if got := list(parent); len(got) != 0 {
			t.Errorf("left %v", got)
		}
	})
}

// TestStart starts programs that are no site.
func TestStart(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, program string }{
		{"absent", filepath.Join(t.TempDir(), "absent")},
		{"ends", self},
		{"babbles", self},
		{"endless", self},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("BENCH_SITE", c.name)
			data := filepath.Join(t.TempDir(), "data")
			var said []string
			_, err := Direct(t.Context(), Config{Program: c.program, Data: data, Progress: func(s string) { said = append(said, s) }})
			if !errors.Is(err, ErrSite) {
				t.Errorf("got %v", err)
			}
			if c.program == self && !slices.Contains(said, "words of the site") {
				t.Errorf("what the site said is not shown: %q", said)
			}
			if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the folder is still there: %v", err)
			}
		})
	}
	t.Run("an end while it starts", func(t *testing.T) {
		t.Setenv("BENCH_SITE", "silent")
		ctx, end := context.WithCancel(t.Context())
		end()
		got := make(chan error, 1)
		go func() {
			_, err := Direct(ctx, Config{Program: self, Data: filepath.Join(t.TempDir(), "data")})
			got <- err
		}()
		select {
		case err := <-got:
			if !errors.Is(err, ErrStopped) {
				t.Errorf("got %v", err)
			}
		case <-time.After(startTime / 2):
			t.Error("it waits for the site instead")
			<-got
		}
	})
}
