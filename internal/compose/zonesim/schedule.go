package zonesim

import (
	"math/rand/v2"
	"time"

	"github.com/allodhq/allod/internal/node/pace"
	"github.com/allodhq/allod/wire/zone/spark"
)

// Load is how many requests came within each 100 ms of a stretch of time.
type Load struct {
	Requests int
	Mean     float64 // per 100 ms
	Peak     int     // the most in any 100 ms
}

// window is what a peak is counted in.
const window = 100 * time.Millisecond

// Schedule runs the pace of many nodes in virtual time. They have started at random
// moments of the minute before; then the controller is away for a time, in which
// every request fails, and then it is back. Before and After are the load of the
// minute before it went and of the minute after it came back, which begins with the
// moment of its return.
//
// slow is how long a request takes that fails: 0 where the port is closed, and up to
// a client's patience where packets vanish. rand decides how long within that.
func Schedule(nodes int, seed uint64, away, slow time.Duration) (before, after Load) {
	r := rand.New(rand.NewPCG(seed, 43))
	source := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 43})
	start := time.UnixMilli(1_700_000_000_000)
	gone := start.Add(2 * time.Minute)
	back := gone.Add(away)
	end := back.Add(time.Minute)
	first, second := make([]int, time.Minute/window), make([]int, time.Minute/window)
	count := func(at time.Time) {
		if d := at.Sub(gone.Add(-time.Minute)); d >= 0 && d < time.Minute {
			first[d/window]++
		}
		if d := at.Sub(back); d >= 0 && d < time.Minute {
			second[d/window]++
		}
	}
	for range nodes {
		p := pace.New(spark.Interval)
		now := start.Add(time.Duration(r.Int64N(int64(time.Minute))))
		for now.Before(end) {
			if until, wait := p.Wait(now, source); wait {
				now = until
				continue
			}
			count(now)
			if now.Before(gone) || !now.Before(back) {
				now = now.Add(time.Duration(r.Int64N(int64(50 * time.Millisecond))))
				p.Done(now)
				continue
			}
			if slow > 0 {
				now = now.Add(time.Duration(r.Int64N(int64(slow))))
			}
			p.Failed(now, errDown)
		}
	}
	return loadOf(first), loadOf(second)
}

func loadOf(windows []int) (l Load) {
	for _, n := range windows {
		l.Requests += n
		l.Peak = max(l.Peak, n)
	}
	l.Mean = float64(l.Requests) / float64(len(windows))
	return l
}
