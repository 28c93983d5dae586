package bench

import (
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/allodhq/allod/wire/zone/spark"
)

func seeded(n byte) io.Reader { return rand.NewChaCha8([32]byte{n}) }

// TestReconnectIsSpread plays the schedule that nodes have, and three that are wrong
// in the ways in which schedules are.
func TestReconnectIsSpread(t *testing.T) {
	const nodes = 2000
	for seed := range byte(20) {
		got := reconnect(nodes, seeded(seed))
		if got.Mean != 20 || got.Peak < 20 || got.PeakOverMean != float64(got.Peak)/20 || got.PeakOverMean >= barReconnect {
			t.Errorf("seed %d: %+v", seed, got)
		}
	}
	for name, wrong := range map[string]func() schedule{
		"all at one time":         func() schedule { return &herd{} },
		"a second after failures": func() schedule { return &eager{herd{spread: true}} },
	} {
		if got := play(nodes, seeded(1), wrong); got.PeakOverMean < barReconnect {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// herd asks every interval, from the same moment on or from a random one.
type herd struct {
	spread bool
	next   time.Time
}

func (h *herd) Wait(now time.Time, rand io.Reader) (time.Time, bool) {
	h.next = now
	if h.spread {
		h.next = now.Add(share(rand, spark.Interval))
	}
	return h.next, true
}
func (h *herd) At() time.Time                 { return h.next }
func (h *herd) Done(now time.Time)            { h.next = now.Add(spark.Interval) }
func (h *herd) Failed(now time.Time, _ error) { h.next = now.Add(spark.Interval) }

// eager asks again on the next full second, as clocks of many machines agree on.
type eager struct{ herd }

func (e *eager) Failed(now time.Time, _ error) { e.next = now.Truncate(time.Second).Add(time.Second) }

// TestReconnectCountsEachNodeOnce: in each interval after the return each node asks
// once, so the bins of six intervals hold six requests of each.
func TestReconnectCountsEachNodeOnce(t *testing.T) {
	one := play(1, seeded(3), func() schedule { return &herd{} })
	if one.Peak != 1 || one.Mean != 0.01 || one.PeakOverMean != 100 {
		t.Errorf("one node: %+v", one)
	}
	// Where all of them are together, the fullest bin has exactly all of them.
	if all := play(500, seeded(3), func() schedule { return &steady{} }); all.Peak != 500 {
		t.Errorf("all together: %+v", all)
	}
}

// steady keeps its slot whatever happens, and all have the same.
type steady struct{ next time.Time }

func (s *steady) Wait(now time.Time, _ io.Reader) (time.Time, bool) {
	s.next = now.Add(time.Second)
	return s.next, true
}
func (s *steady) At() time.Time               { return s.next }
func (s *steady) Done(time.Time)              { s.next = s.next.Add(spark.Interval) }
func (s *steady) Failed(_ time.Time, _ error) { s.next = s.next.Add(spark.Interval) }

func TestHeartbeatsConfig(t *testing.T) {
	c := HeartbeatsConfig{}
	if err := c.complete(); err != nil || c.Nodes != 2000 || c.Duration != time.Minute || c.Clock == nil || c.Rand == nil || c.Progress == nil {
		t.Errorf("%+v %v", c, err)
	}
	for _, c := range []HeartbeatsConfig{{Nodes: -1}, {Nodes: MaxNodes + 1}, {Duration: -1}, {Duration: time.Millisecond}, {Duration: MaxDuration + 1}} {
		if err := c.complete(); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestHeartbeatsBars: a number at its bar meets it, one above does not, and one that
// the system does not tell has none.
func TestHeartbeatsBars(t *testing.T) {
	good := HeartbeatsReport{
		Controller: Load{Cores: 0.2, PeakMemoryMB: 200},
		Reconnect:  Reconnect{PeakOverMean: 3},
	}
	judge := func(r HeartbeatsReport) (names []string, err error) {
		for _, b := range r.bars() {
			r.Bars = append(r.Bars, Judged{b.Name, b.Value, b.Limit, b.Met()})
			names = append(names, b.Name)
		}
		return names, r.Judge()
	}
	if names, err := judge(good); err != nil || !slices.Equal(names, []string{"cores", "peakMemoryMB", "peakOverMean", "refused"}) {
		t.Errorf("%q %v", names, err)
	}
	for name, spoil := range map[string]func(r *HeartbeatsReport){
		"cores":   func(r *HeartbeatsReport) { r.Controller.Cores = 0.21 },
		"memory":  func(r *HeartbeatsReport) { r.Controller.PeakMemoryMB = 201 },
		"peak":    func(r *HeartbeatsReport) { r.Reconnect.PeakOverMean = 3.1 },
		"refused": func(r *HeartbeatsReport) { r.Heartbeats.Refused = 1 },
		"failed":  func(r *HeartbeatsReport) { r.Heartbeats.Failed = 1 },
	} {
		r := good
		spoil(&r)
		if _, err := judge(r); !errors.Is(err, ErrBars) {
			t.Errorf("%s: %v", name, err)
		}
	}
	unknown := good
	unknown.Controller = Load{}
	if names, err := judge(unknown); err != nil || !slices.Equal(names, []string{"peakOverMean", "refused"}) {
		t.Errorf("unknown: %q %v", names, err)
	}
}

func TestTally(t *testing.T) {
	var all tally
	all.add(tally{times: []time.Duration{time.Millisecond, 3 * time.Millisecond}, refused: 1})
	all.add(tally{times: []time.Duration{2 * time.Millisecond, 4 * time.Millisecond}, failed: 2})
	want := Heartbeats{PerSecond: 2, P50Ms: 2, P99Ms: 4, Refused: 1, Failed: 2}
	if got := all.report(2 * time.Second); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, c := range []struct {
		before, after, took time.Duration
		want                float64
	}{
		{time.Second, 3 * time.Second, 10 * time.Second, 0.2},
		{0, 3 * time.Second, 10 * time.Second, 0}, // not told at the start
		{time.Second, 0, 10 * time.Second, 0},     // nor at the end
		{time.Second, 2 * time.Second, 0, 0},
	} {
		if got := cores(c.before, c.after, c.took); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
