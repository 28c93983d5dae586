package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/compose/bench"
)

// TestWriteBench holds that a person sees each number with its unit, and beside
// it whether its bar is met.
func TestWriteBench(t *testing.T) {
	r := bench.Report{
		Enqueue:       bench.Enqueue{JobsPerSecond: 1234.56},
		ClaimToResult: bench.ClaimToResult{JobsPerSecond: 600, CryptoLimit: 1000, OfLimit: 0.6, Costs: bench.Costs{Signature: 26500 * time.Nanosecond}},
		Idle:          bench.Idle{P50Ms: 14.5, P99Ms: 61, CommitP50Ms: 2},
		Backlog:       bench.Backlog{Slowdown: 1.02, Few: 1000, Many: 100_000, FewMs: 4, ManyMs: 4.08},
		PeakMemoryMB:  48.25,
		Setup:         bench.Setup{Jobs: 2000, Runners: 8, Samples: 200, Cores: 2},
	}
	var b strings.Builder
	if err := writeBench(&b, r); err != nil {
		t.Fatal(err)
	}
	lines := map[string]bool{}
	for line := range strings.Lines(b.String()) {
		lines[strings.Join(strings.Fields(line), " ")] = true
	}
	for _, want := range []string{
		"2000 jobs, 8 devices, 2 processors, 200 samples",
		"enqueue 1234.6 jobs/s",
		"claim to result 600.0 jobs/s",
		"cryptographic limit 1000.0 jobs/s",
		"part of the limit 0.60 met: at least 0.5",
		"idle, median 14.50 ms MISSED: at most 14 ms, which is 8 ms and 3 commits",
		"idle, 99th percentile 61.00 ms MISSED: at most 60 ms",
		"a commit, median 2.00 ms",
		"slowdown by a backlog 1.02 times met: at most 1.5 times",
		"peak memory of a site 48.2 MB",
		"A claim of four took 4.00 ms where 1000 jobs wait, and 4.08 ms where 100000 do.",
	} {
		if !lines[want] {
			t.Errorf("the line is missing: %s\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "other work") {
		t.Errorf("the machine was not busy:\n%s", b.String())
	}
	r.PeakMemoryMB, r.Setup.Share = 0, 0.42
	b.Reset()
	if err := writeBench(&b, r); err != nil || !strings.Contains(b.String(), "unknown") || !strings.Contains(b.String(), "got 42 % of") {
		t.Errorf("no memory told, a busy machine: %v\n%s", err, b.String())
	}
}

// TestWriteHeartbeats holds the same for what nodes cost.
func TestWriteHeartbeats(t *testing.T) {
	r := bench.HeartbeatsReport{
		Nodes: 2000, Seconds: 60.01, Cores: 2,
		Controller: bench.Load{Cores: 0.1234, PeakMemoryMB: 210},
		Heartbeats: bench.Heartbeats{PerSecond: 199.96, P50Ms: 1.5, P99Ms: 20, Refused: 1, Failed: 2},
		Reconnect:  bench.Reconnect{Mean: 20, Peak: 33, PeakOverMean: 1.65},
		Bars: []bench.Judged{
			{Name: "cores", Value: 0.1234, Limit: 0.2, Met: true}, {Name: "peakMemoryMB", Value: 210, Limit: 200},
			{Name: "peakOverMean", Value: 1.65, Limit: 3, Met: true}, {Name: "refused", Value: 3},
		},
	}
	read := func() map[string]bool {
		t.Helper()
		var b strings.Builder
		if err := writeHeartbeats(&b, r); err != nil {
			t.Fatal(err)
		}
		lines := map[string]bool{}
		for line := range strings.Lines(b.String()) {
			lines[strings.Join(strings.Fields(line), " ")] = true
		}
		return lines
	}
	lines := read()
	for _, want := range []string{
		"2000 nodes, 60 seconds, 2 processors",
		"controller 0.123 cores met: at most 0.2",
		"peak memory 210.0 MB MISSED: at most 200",
		"heartbeats 200.0 /s",
		"answer, median 1.50 ms",
		"answer, 99th percent. 20.00 ms",
		"refused or failed 3 MISSED: at most 0",
		"peak after a restart 1.65 times met: at most 3",
		"In virtual time, the fullest 100 ms after a restart had 33 requests; the mean is 20.0.",
	} {
		if !lines[want] {
			t.Errorf("the line is missing: %s\n%v", want, lines)
		}
	}
	r.Controller = bench.Load{}
	if lines := read(); !lines["controller unknown this system does not tell"] || !lines["peak memory unknown this system does not tell"] {
		t.Errorf("what is unknown: %v", lines)
	}
}
