package host_test

import (
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/node/bundle"
	"github.com/allodhq/allod/internal/node/host"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/spark"
)

// TestF11ReportTakesTheFacts: a report carries what this machine tells as it is.
func TestF11ReportTakesTheFacts(t *testing.T) {
	s, err := host.New(host.Options{Data: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	s.Sample(now)
	for begin := time.Now(); time.Since(begin) < 50*time.Millisecond; {
		// The kernel's counters must have moved.
	}
	f := s.Sample(now.Add(host.MinSpan))
	for _, p := range f.Problems {
		if p.Fact != host.Confinement {
			t.Skipf("this machine does not tell %s: %v", p.Fact, p.Refusal)
		}
	}
	b, err := bundle.Own(bundle.Stamp{Version: "v1.2.3", Commit: strings.Repeat("0a", 20)})
	if err != nil {
		t.Fatal(err)
	}
	part := func(f host.Fraction) spark.Fraction {
		load, known := f.Value()
		if !known {
			t.Error("a load is unknown, and no problem says so")
		}
		return spark.FractionOf(load, 1)
	}
	report := spark.Report{
		ObservedAt: zone.At(f.At),
		Load:       spark.Load{CPU: part(f.CPULoad), Memory: part(f.MemoryLoad), Disk: part(f.DiskLoad)},
		Host: spark.Host{
			Hostname: f.Hostname, Kernel: f.Kernel, OS: strings.TrimSpace(f.OSName + " " + f.OSVersion), Architecture: f.Architecture, BootID: f.BootID,
			UptimeSeconds: int64(f.Uptime / time.Second), CPUs: int64(f.CPUs), MemoryBytes: f.MemoryBytes, DiskBytes: f.DiskBytes,
		},
		Bundle: spark.Bundle{Version: b.Version, SourceCommit: b.Commit, ManifestDigest: b.Digest},
	}
	text, err := spark.ReportCodec.Append(nil, report)
	if err != nil {
		t.Fatalf("%+v: %v", report, err)
	}
	if again, err := spark.ReportCodec.Read(text); err != nil || again != report {
		t.Errorf("%s, %v", text, err)
	}
}
