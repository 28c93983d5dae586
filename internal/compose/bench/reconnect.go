package bench

import (
	"container/heap"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"github.com/allodhq/allod/internal/pace"
	"github.com/allodhq/allod/wire/zone/spark"
)

// How a restart is played.
const (
	// bin is the time in which requests are counted together.
	bin = 100 * time.Millisecond
	// before is how long all is well, away how long nobody answers, and after how
	// long is looked at from the moment at which the controller is back.
	before = 3 * spark.Interval
	away   = 47 * time.Second
	after  = 6 * spark.Interval
	// nodePatience is how long a request that nobody answers may take to fail.
	nodePatience = spark.Interval
)

var errAway = errors.New("bench: nobody answers")

// turn is when a node next asks.
type turn struct {
	at   time.Time
	node int
}

type turns []turn

func (t turns) Len() int           { return len(t) }
func (t turns) Less(i, j int) bool { return t[i].at.Before(t[j].at) }
func (t turns) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *turns) Push(x any)        { *t = append(*t, x.(turn)) }
func (t *turns) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

// reconnect plays the schedule that a node's Spark has, for that many nodes and
// without a clock: all start at one time, all is well, the controller is away, and
// it is back. While it is away, a request fails at once or takes any time up to a
// node's patience.
func reconnect(nodes int, rand io.Reader) Reconnect {
	return play(nodes, rand, func() schedule { p := pace.New(spark.Interval); return &p })
}

// schedule is what package pace has.
type schedule interface {
	Wait(now time.Time, rand io.Reader) (until time.Time, wait bool)
	At() time.Time
	Done(now time.Time)
	Failed(now time.Time, err error)
}

func play(nodes int, rand io.Reader, begin func() schedule) Reconnect {
	start := time.Unix(0, 0)
	gone, back := start.Add(before), start.Add(before+away)
	end := back.Add(after)
	paces := make([]schedule, nodes)
	var queue turns
	for i := range paces {
		paces[i] = begin()
		until, _ := paces[i].Wait(start, rand)
		queue = append(queue, turn{until, i})
	}
	heap.Init(&queue)
	counts := make([]int, after/bin)
	for queue[0].at.Before(end) {
		now, p := queue[0].at, paces[queue[0].node]
		switch {
		case now.Before(gone):
			p.Done(now)
		case now.Before(back):
			p.Failed(now.Add(share(rand, nodePatience)), errAway)
		default:
			counts[now.Sub(back)/bin]++
			p.Done(now)
		}
		queue[0].at = p.At()
		heap.Fix(&queue, 0)
	}
	r := Reconnect{Mean: float64(nodes) * float64(bin) / float64(spark.Interval)}
	for _, n := range counts {
		r.Peak = max(r.Peak, n)
	}
	r.PeakOverMean = float64(r.Peak) / r.Mean
	return r
}

// share is nothing, or a random part of d: each for half of the requests.
func share(rand io.Reader, d time.Duration) time.Duration {
	var b [9]byte
	if _, err := io.ReadFull(rand, b[:]); err != nil || b[8]&1 == 0 {
		return 0
	}
	return time.Duration(binary.BigEndian.Uint64(b[:8]) % uint64(d))
}
