package daemon

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/allodhq/allod/internal/node/bundle"
	"github.com/allodhq/allod/internal/node/host"
	"github.com/allodhq/allod/wire/zone"
	wire "github.com/allodhq/allod/wire/zone/spark"
)

// unknown stands in a report for a text that the machine does not tell. Of sizes, the
// least that a report can have stands for it, and of loads none.
const unknown = "unknown"

// reporter makes reports.
type reporter struct {
	sampler *host.Sampler
	clock   func() time.Time
	bundle  wire.Bundle
	first   time.Time // of the first look
}

// newReporter takes the first look at the machine and reads this program. It returns
// what host.New and bundle.Own do.
func newReporter(c Config) (*reporter, error) {
	sampler, err := host.New(host.Options{Data: c.Data})
	if err != nil {
		return nil, err
	}
	own, err := bundle.Own(c.Stamp)
	if err != nil {
		return nil, err
	}
	r := &reporter{sampler: sampler, clock: c.Clock, first: c.Clock(), bundle: wire.Bundle{
		Version: own.Version, SourceCommit: own.Commit, ManifestDigest: own.Digest,
	}}
	if r.bundle.Version == "" {
		r.bundle.Version = unknown
	}
	if r.bundle.SourceCommit == "" {
		r.bundle.SourceCommit = strings.Repeat("0", 40) // as the contract has it
	}
	sampler.Sample(r.first)
	return r, nil
}

// report looks at the machine. The first time it waits until the load of the
// processors is known.
func (r *reporter) report(ctx context.Context) wire.Report {
	f := r.sampler.Sample(r.clock())
	for _, p := range f.Problems {
		if p.Fact == host.CPULoad && errors.Is(p.Refusal, host.ErrEarly) {
			t := time.NewTimer(host.MinSpan)
			defer t.Stop()
			select {
			case <-ctx.Done():
			case <-t.C:
				f = r.sampler.Sample(r.clock())
			}
			break
		}
	}
	return reportOf(f, r.bundle)
}

// reportOf is what a report can say of the facts.
func reportOf(f host.Facts, b wire.Bundle) wire.Report {
	load := func(f host.Fraction) wire.Fraction {
		v, _ := f.Value()
		return wire.FractionOf(v, 1)
	}
	text := func(s string) string {
		if s == "" {
			return unknown
		}
		return s
	}
	return wire.Report{
		ObservedAt: zone.At(f.At),
		Load:       wire.Load{CPU: load(f.CPULoad), Memory: load(f.MemoryLoad), Disk: load(f.DiskLoad)},
		Host: wire.Host{
			Hostname: text(f.Hostname), Kernel: text(f.Kernel), OS: text(strings.TrimSpace(f.OSName + " " + f.OSVersion)),
			Architecture: text(f.Architecture), BootID: text(f.BootID),
			UptimeSeconds: int64(f.Uptime / time.Second), CPUs: max(int64(f.CPUs), 1),
			MemoryBytes: max(f.MemoryBytes, 1), DiskBytes: max(f.DiskBytes, 1),
		},
		Bundle: b,
	}
}
