package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"
)

// Bounds of a [HeartbeatsConfig], and what a run does unless it is told otherwise.
const (
	MaxNodes    = 20_000
	MaxDuration = time.Hour
	MinDuration = time.Second

	DefaultNodes    = 2_000
	DefaultDuration = time.Minute
)

// HeartbeatsConfig says what to measure, and on what. Program is required.
type HeartbeatsConfig struct {
	// Program is the file of the command that serves controllers, this one's as a rule.
	Program string
	// Data is as in [Config].
	Data string
	// Nodes is how many nodes report, 1 to [MaxNodes]; zero means [DefaultNodes].
	Nodes int
	// Duration is how long their reports are measured, [MinDuration] to
	// [MaxDuration]; zero means [DefaultDuration].
	Duration time.Duration
	// Clock, Rand and Progress are as in [Config].
	Clock    func() time.Time
	Rand     io.Reader
	Progress func(line string)
}

func (c *HeartbeatsConfig) complete() error {
	if c.Nodes == 0 {
		c.Nodes = DefaultNodes
	}
	if c.Duration == 0 {
		c.Duration = DefaultDuration
	}
	switch {
	case c.Nodes < 1 || c.Nodes > MaxNodes:
		return ErrConfig.With(fmt.Sprintf("The number of nodes is not 1 to %d.", MaxNodes))
	case c.Duration < MinDuration || c.Duration > MaxDuration:
		return ErrConfig.With(fmt.Sprintf("The duration is not %v to %v.", MinDuration, MaxDuration))
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

// HeartbeatsReport is what was measured. Its JSON form is the output of allod bench
// heartbeats --json.
type HeartbeatsReport struct {
	Nodes int `json:"nodes"`
	// Seconds is how long it was measured.
	Seconds    float64    `json:"seconds"`
	Controller Load       `json:"controller"`
	Heartbeats Heartbeats `json:"heartbeats"`
	Reconnect  Reconnect  `json:"reconnect"`
	Bars       []Judged   `json:"bars"`
	Cores      int        `json:"-"`
}

// Load is what the controller's process took, seen from outside of it.
type Load struct {
	// Cores is how many processor cores it kept busy on average; 0 where the system
	// does not tell, or it was too little to be counted.
	Cores float64 `json:"cores"`
	// PeakMemoryMB is the most memory that it had in use since its start, in
	// millions of bytes; 0 where the system does not tell.
	PeakMemoryMB float64 `json:"peakMemoryMB"`
}

// Heartbeats is what the nodes saw of their reports.
type Heartbeats struct {
	PerSecond float64 `json:"perSecond"`
	// P50Ms and P99Ms are from the first byte of a request to a receipt that was
	// checked, in milliseconds. They have the load of all nodes in them, which are
	// in one process.
	P50Ms float64 `json:"p50Ms"`
	P99Ms float64 `json:"p99Ms"`
	// Refused is how many reports had another answer than a receipt for them, and
	// Failed how many had none.
	Refused int `json:"refused"`
	Failed  int `json:"failed"`
}

// Reconnect is what a controller meets when it comes back, in virtual time: the
// nodes' own schedule, played without sockets.
type Reconnect struct {
	// Mean is the mean number of requests in 100 ms, Peak the largest one since the
	// controller is back, and PeakOverMean their ratio.
	Mean         float64 `json:"mean"`
	Peak         int     `json:"peak"`
	PeakOverMean float64 `json:"peakOverMean"`
}

// Judged is a bar and whether it is met, for the JSON form.
type Judged struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Limit float64 `json:"limit"`
	Met   bool    `json:"met"`
}

// The bars: for 2,000 nodes.
const (
	barCores     = 0.20
	barMemoryMB  = 200
	barReconnect = 3.0
)

// bars are those whose number is known here.
func (r HeartbeatsReport) bars() []Bar {
	all := []Bar{
		{Name: "cores", Value: r.Controller.Cores, Limit: barCores},
		{Name: "peakMemoryMB", Value: r.Controller.PeakMemoryMB, Limit: barMemoryMB},
		{Name: "peakOverMean", Value: r.Reconnect.PeakOverMean, Limit: barReconnect},
		{Name: "refused", Value: float64(r.Heartbeats.Refused + r.Heartbeats.Failed)},
	}
	return slices.DeleteFunc(all, func(b Bar) bool { return b.Limit > 0 && b.Value == 0 })
}

// Judge returns [ErrBars] unless every bar is met whose number is known here.
func (r HeartbeatsReport) Judge() error {
	if slices.ContainsFunc(r.Bars, func(b Judged) bool { return !b.Met }) {
		return ErrBars
	}
	return nil
}

// MeasureHeartbeats measures what nodes that report cost a controller, which is a
// process of its own, by TLS and with every commit synced. It returns [ErrConfig],
// [ErrFolder], [ErrMemoryDisk], [ErrController], [ErrAnswer], [ErrStopped] when the
// context ends, and the refusals of what it calls.
func MeasureHeartbeats(ctx context.Context, c HeartbeatsConfig) (HeartbeatsReport, error) {
	if err := c.complete(); err != nil {
		return HeartbeatsReport{}, err
	}
	folder, remove, err := workFolder(c.Data)
	if err != nil {
		return HeartbeatsReport{}, err
	}
	defer remove()
	r := HeartbeatsReport{Nodes: c.Nodes, Cores: runtime.GOMAXPROCS(0)}
	f := &fleet{HeartbeatsConfig: c, folder: folder}
	if err := f.measure(ctx, &r); err != nil {
		if ctx.Err() != nil {
			err = ErrStopped.Because(err)
		}
		return HeartbeatsReport{}, err
	}
	r.Reconnect = reconnect(c.Nodes, c.Rand)
	for _, b := range r.bars() {
		r.Bars = append(r.Bars, Judged{b.Name, b.Value, b.Limit, b.Met()})
	}
	return r, nil
}

// tally is what became of the reports that were measured.
type tally struct {
	times           []time.Duration
	refused, failed int
}

func (t *tally) add(other tally) {
	t.times = append(t.times, other.times...)
	t.refused += other.refused
	t.failed += other.failed
}

func (t *tally) report(took time.Duration) Heartbeats {
	return Heartbeats{
		PerSecond: rate(len(t.times), took),
		P50Ms:     ms(percentile(t.times, 0.5)), P99Ms: ms(percentile(t.times, 0.99)),
		Refused: t.refused, Failed: t.failed,
	}
}

// cores is how many cores a process kept busy, of its processor time at both ends.
func cores(before, after, took time.Duration) float64 {
	if before <= 0 || after < before || took <= 0 {
		return 0
	}
	return float64(after-before) / float64(took)
}
