package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"time"

	"github.com/allodhq/allod/internal/runner/client"
)

// Bounds of a [Config], and what a run does unless it is told otherwise.
const (
	MaxJobs    = 1_000_000
	MaxRunners = 64
	MaxSamples = 100_000
	MaxBacklog = 1_000_000
	// MinBacklog leaves the smaller of the two sites a few claims' worth of jobs.
	MinBacklog = 1_000

	DefaultJobs    = 2_000
	DefaultRunners = 8
	DefaultSamples = 200
	DefaultBacklog = 100_000
)

// callers is how many requests the app has under way at once.
const callers = 8

// Config says what to measure, and on what. Program is required.
type Config struct {
	// Program is the file of the command that serves sites, this one's as a rule.
	Program string
	// Data is the folder to work in. It must be absent or empty and on a disk; it
	// is empty again at the end. Empty means a temporary folder.
	Data string
	// Jobs is how many jobs go from the app to the devices and back, 1 to
	// [MaxJobs]; zero means [DefaultJobs].
	Jobs int
	// Runners is how many devices there are, 1 to [MaxRunners]; zero means
	// [DefaultRunners].
	Runners int
	// Samples is how many single jobs, commits and claims are timed, 1 to
	// [MaxSamples]; zero means [DefaultSamples]. The rarest percentile needs 100.
	Samples int
	// Backlog is how many jobs wait at the fuller of two sites, [MinBacklog] to
	// [MaxBacklog]; zero means [DefaultBacklog]. A hundredth waits at the other.
	Backlog int
	// Clock and Rand are time.Now and crypto/rand where unset. Both are used from
	// several goroutines.
	Clock func() time.Time
	Rand  io.Reader
	// Progress hears what is being done, a line at a time; nil means nobody.
	Progress func(line string)
}

func (c *Config) complete() error {
	for _, n := range []struct {
		value              *int
		initial, low, high int
		name               string
	}{
		{&c.Jobs, DefaultJobs, 1, MaxJobs, "jobs"},
		{&c.Runners, DefaultRunners, 1, MaxRunners, "runners"},
		{&c.Samples, DefaultSamples, 1, MaxSamples, "samples"},
		{&c.Backlog, DefaultBacklog, MinBacklog, MaxBacklog, "backlog"},
	} {
		if *n.value == 0 {
			*n.value = n.initial
		}
		if *n.value < n.low || *n.value > n.high {
			return ErrConfig.With(fmt.Sprintf("The number of %s is not %d to %d.", n.name, n.low, n.high))
		}
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	return nil
}

// bench is one run.
type bench struct {
	Config
	folder string
	report Report
}

// Direct measures the direct lane: a site that serves its devices itself. It
// returns [ErrConfig], [ErrFolder], [ErrMemoryDisk], [ErrSite], [ErrAnswer],
// [ErrStopped] when the context ends, and the refusals of what it calls.
func Direct(ctx context.Context, c Config) (Report, error) {
	if err := c.complete(); err != nil {
		return Report{}, err
	}
	folder, remove, err := workFolder(c.Data)
	if err != nil {
		return Report{}, err
	}
	defer remove()
	b := &bench{Config: c, folder: folder}
	b.report.Setup = Setup{Jobs: c.Jobs, Runners: c.Runners, Samples: c.Samples, Cores: runtime.GOMAXPROCS(0)}
	if err = b.lane(ctx); err == nil {
		err = b.backlog(ctx)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return Report{}, ErrStopped.Because(err)
	case err != nil:
		return Report{}, err
	}
	return b.report, nil
}

// lane measures what one site does: asking, the devices' part at full speed, and
// the time of a single job when there is nothing else to do.
func (b *bench) lane(ctx context.Context) error {
	s, err := b.start(ctx, "direct")
	if err != nil {
		return err
	}
	defer s.stop()
	runners, err := b.pair(ctx, s, b.Runners)
	if err != nil {
		return err
	}
	defer closeAll(runners)
	if err := b.enqueue(ctx, s); err != nil {
		return err
	}
	// The machine may be busy with something else for a while. Measured on both
	// sides of the phase, the limit has its share of that too.
	before, err := b.crypto(ctx)
	if err != nil {
		return err
	}
	if err := b.drain(ctx, runners); err != nil {
		return err
	}
	peak, running := peakOfRunning(s.pid())
	after, err := b.crypto(ctx)
	if err != nil {
		return err
	}
	d := &b.report.ClaimToResult
	d.Costs = before.mean(after)
	b.report.Setup.Share = d.Costs.share
	d.CryptoLimit = d.Costs.limit(b.report.Setup.Cores)
	d.OfLimit = d.JobsPerSecond / d.CryptoLimit
	if err := b.idle(ctx, s, runners); err != nil {
		return err
	}
	closeAll(runners)
	s.stop()
	if !running {
		peak = peakOfEnded(s.state())
	}
	b.report.PeakMemoryMB = float64(peak) / 1e6
	return nil
}

// enqueue asks for all jobs.
func (b *bench) enqueue(ctx context.Context, s *process) error {
	count, done := b.phase("asking", b.Jobs)
	defer done()
	begun := b.Clock()
	err := together(ctx, callers, func(ctx context.Context, caller int) error {
		for i := caller; i < b.Jobs; i += callers {
			if _, err := s.app.ask(ctx); err != nil {
				return err
			}
			count()
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.report.Enqueue.JobsPerSecond = rate(b.Jobs, b.Clock().Sub(begun))
	return nil
}

// server is the address at which a site's devices find it.
func (s *process) server() (client.Server, error) { return client.ParseServer(s.url) }

func (b *bench) path(name string) string { return filepath.Join(b.folder, name) }
