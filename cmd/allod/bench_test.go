package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// TestBenchDirect measures a little with a real site and holds the form of the
// report. Times are not asserted: only that each number was taken.
func TestBenchDirect(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	cmd := exec.CommandContext(t.Context(), allodBinary(t), "bench", "direct", "--json", "--bars", "--data", data,
		"--jobs", "20", "--runners", "2", "--samples", "3", "--backlog", "1000")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if strings.Contains(errs.String(), "(bench-memory-disk)") {
		t.Skip("the folder for tests is in memory")
	}
	type report struct {
		Enqueue       struct{ JobsPerSecond float64 }
		ClaimToResult struct{ JobsPerSecond, CryptoLimit, OfLimit float64 }
		Idle          struct{ P50Ms, P99Ms, CommitP50Ms float64 }
		Backlog       struct{ Slowdown float64 }
		PeakMemoryMB  float64
	}
	var r report
	dec := json.NewDecoder(bytes.NewReader(out.Bytes()))
	dec.DisallowUnknownFields()
	if decoded := dec.Decode(&r); decoded != nil {
		t.Fatalf("%v: %v\n%s\n%s", err, decoded, &out, &errs)
	}
	// Exactly these members, in this spelling: whoever reads the output relies on it.
	var names any
	if err := json.Unmarshal(out.Bytes(), &names); err != nil {
		t.Fatal(err)
	}
	n := 1.0 // in place of every number
	want := anyJSON{
		"enqueue":       anyJSON{"jobsPerSecond": n},
		"claimToResult": anyJSON{"jobsPerSecond": n, "cryptoLimit": n, "ofLimit": n},
		"idle":          anyJSON{"p50Ms": n, "p99Ms": n, "commitP50Ms": n},
		"backlog":       anyJSON{"slowdown": n},
		"peakMemoryMB":  n,
	}
	if got := positives(t, names); !reflect.DeepEqual(got, any(want)) {
		t.Errorf("the report has other members: %s", &out)
	}
	if r.Idle.P99Ms < r.Idle.P50Ms || r.ClaimToResult.OfLimit != r.ClaimToResult.JobsPerSecond/r.ClaimToResult.CryptoLimit {
		t.Errorf("the numbers contradict each other: %+v", r)
	}
	missed := r.ClaimToResult.OfLimit < 0.5 || r.Idle.P50Ms > 8+3*r.Idle.CommitP50Ms || r.Idle.P99Ms > 60 || r.Backlog.Slowdown > 1.5
	var exit *exec.ExitError
	if missed {
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(errs.String(), `"error":"bench-bars"`) {
			t.Errorf("a bar was missed: %v\n%s", err, &errs)
		}
	} else if err != nil {
		t.Errorf("every bar was met: %v\n%s", err, &errs)
	}
	if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

// positives replaces every number by 1, if it is positive.
func positives(t *testing.T, v any) any {
	t.Helper()
	switch v := v.(type) {
	case float64:
		if v > 0 {
			return 1.0
		}
		t.Errorf("a number is %v", v)
	case anyJSON:
		for name, member := range v {
			v[name] = positives(t, member)
		}
	}
	return v
}

// TestBenchHeartbeats measures a little with a real controller and holds the form of
// the report. Times are not asserted: only that nothing was refused, and that the
// numbers agree with each other.
func TestBenchHeartbeats(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	cmd := exec.CommandContext(t.Context(), allodBinary(t), "bench", "heartbeats", "--json", "--bars", "--data", data, "--nodes", "60", "--duration", "1s")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if strings.Contains(errs.String(), "(bench-memory-disk)") {
		t.Skip("the folder for tests is in memory")
	}
	type bar struct {
		Name         string
		Value, Limit float64
		Met          bool
	}
	var r struct {
		Nodes      int
		Seconds    float64
		Controller struct{ Cores, PeakMemoryMB float64 }
		Heartbeats struct {
			PerSecond, P50Ms, P99Ms float64
			Refused, Failed         int
		}
		Reconnect struct {
			Mean, PeakOverMean float64
			Peak               int
		}
		Bars []bar
	}
	dec := json.NewDecoder(bytes.NewReader(out.Bytes()))
	dec.DisallowUnknownFields()
	if decoded := dec.Decode(&r); decoded != nil {
		t.Fatalf("%v: %v\n%s\n%s", err, decoded, &out, &errs)
	}
	h := r.Heartbeats
	if r.Nodes != 60 || r.Seconds < 1 || h.PerSecond <= 0 || h.P50Ms <= 0 || h.P99Ms < h.P50Ms || h.Refused != 0 || h.Failed != 0 {
		t.Errorf("%+v\n%s", r, &errs)
	}
	if runtime.GOOS == "linux" && r.Controller.PeakMemoryMB < 1 {
		t.Errorf("no memory was counted: %+v", r.Controller)
	}
	if r.Reconnect.Mean != 0.6 || r.Reconnect.Peak < 1 || r.Reconnect.PeakOverMean != float64(r.Reconnect.Peak)/r.Reconnect.Mean {
		t.Errorf("%+v", r.Reconnect)
	}
	// The spread of few nodes is coarse, so that bar is missed here, and said.
	missed := false
	for _, b := range r.Bars {
		missed = missed || !b.Met
		if b.Met != (b.Value <= b.Limit) {
			t.Errorf("%+v", b)
		}
	}
	if missed != (err != nil) || missed && !strings.Contains(errs.String(), `"error":"bench-bars"`) {
		t.Errorf("a bar was missed: %v, and the error is %v\n%s", missed, err, &errs)
	}
	if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}
