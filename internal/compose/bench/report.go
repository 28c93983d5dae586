package bench

import (
	"math"
	"slices"
	"time"
)

// Report is what was measured. Its JSON form is the output of allod bench direct
// --json; what stands in no JSON explains the numbers to people.
type Report struct {
	Enqueue       Enqueue       `json:"enqueue"`
	ClaimToResult ClaimToResult `json:"claimToResult"`
	Idle          Idle          `json:"idle"`
	Backlog       Backlog       `json:"backlog"`
	// PeakMemoryMB is the most memory that the site's process had in use until
	// all results were in, in millions of bytes; 0 where the system does not tell.
	PeakMemoryMB float64 `json:"peakMemoryMB"`
	Setup        Setup   `json:"-"`
}

// Setup is what was asked for and on what it ran.
type Setup struct {
	Jobs, Runners, Samples, Cores int
	// Share is the part of all processors' time that the cryptography got while it
	// alone was measured; 0 where the system does not tell. Where it is far from 1
	// the machine had other work. Then the site and the devices, which are two
	// processes, may get more of the machine than the cryptography, which is one,
	// and the ratio of the two is too good.
	Share float64
}

// Busy reports whether the machine had so much other work that the numbers do
// not count.
func (s Setup) Busy() bool { return s.Share > 0 && s.Share < enoughShare }

// enoughShare leaves something to what every system does beside.
const enoughShare = 0.9

// Enqueue is asking through the app interface, from eight callers at once.
type Enqueue struct {
	JobsPerSecond float64 `json:"jobsPerSecond"`
}

// ClaimToResult is the devices' part, from the first claim to the last result
// that was accepted.
type ClaimToResult struct {
	JobsPerSecond float64 `json:"jobsPerSecond"`
	// CryptoLimit is how many jobs a second all processors could carry if there
	// were only the cryptography of both ends.
	CryptoLimit float64 `json:"cryptoLimit"`
	// OfLimit is the first as a part of the second.
	OfLimit float64 `json:"ofLimit"`
	// Costs are what the limit was computed from.
	Costs Costs `json:"-"`
}

// Idle is one job at a time while devices wait for work, from the app's call to
// the result in its hands.
type Idle struct {
	P50Ms float64 `json:"p50Ms"`
	P99Ms float64 `json:"p99Ms"`
	// CommitP50Ms is a single commit on the same disk, timed between the jobs.
	CommitP50Ms float64 `json:"commitP50Ms"`
}

// Backlog is how much longer a claim takes where many jobs wait than where few
// do.
type Backlog struct {
	Slowdown float64 `json:"slowdown"`
	// Few and Many are how many jobs wait, and FewMs and ManyMs the medians of a
	// signed claim among them.
	Few    int     `json:"-"`
	Many   int     `json:"-"`
	FewMs  float64 `json:"-"`
	ManyMs float64 `json:"-"`
}

// Bar is what a number is held against.
type Bar struct {
	// Name is the number's name in the JSON form of a [Report].
	Name  string
	Value float64
	Limit float64
	// AtLeast is true where more is better.
	AtLeast bool
}

// Met reports whether the bar is met. A number that is none meets nothing.
func (b Bar) Met() bool {
	if b.AtLeast {
		return b.Value >= b.Limit
	}
	return b.Value <= b.Limit
}

// The bars. What an idle site may take is so long beside three commits of the
// disk at hand: the job, its grant and its result.
const (
	barOfLimit   = 0.5
	barIdleMs    = 8
	IdleCommits  = 3
	barIdleP99Ms = 60
	barSlowdown  = 1.5
)

// Bars are the bars of a report, in its order.
func (r Report) Bars() []Bar {
	return []Bar{
		{Name: "ofLimit", Value: r.ClaimToResult.OfLimit, Limit: barOfLimit, AtLeast: true},
		{Name: "p50Ms", Value: r.Idle.P50Ms, Limit: barIdleMs + IdleCommits*r.Idle.CommitP50Ms},
		{Name: "p99Ms", Value: r.Idle.P99Ms, Limit: barIdleP99Ms},
		{Name: "slowdown", Value: r.Backlog.Slowdown, Limit: barSlowdown},
	}
}

// Judge returns [ErrBars] unless every bar is met.
func (r Report) Judge() error {
	if slices.ContainsFunc(r.Bars(), func(b Bar) bool { return !b.Met() }) {
		return ErrBars
	}
	return nil
}

// percentile is the smallest of the times that at least the given part of all do
// not exceed (the nearest rank). It is 0 of none.
func percentile(times []time.Duration, part float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	rank := int(math.Ceil(part * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// rate is n in that time as a number a second.
func rate(n int, took time.Duration) float64 { return float64(n) / took.Seconds() }
