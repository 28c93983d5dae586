package ledger

import (
	"sync"
	"time"
)

// clock tells ledger time, in milliseconds.
type clock struct {
	read func() time.Time
	// measured is how much time passed between two readings by the clock that
	// nobody sets.
	measured func(from, to time.Time) time.Duration
	base     time.Time

	mu           sync.Mutex
	offset, last int64
}

// measured asks Go, which measures with the clock that nobody sets where its
// times have a reading of it.
func measured(from, to time.Time) time.Duration { return to.Sub(from) }

// start begins at what the wall says, but not before last.
func (c *clock) start(last int64) {
	c.base = c.read()
	c.offset = max(last, c.base.UnixMilli())
	c.last = c.offset
}

// now is the ledger's time and what the wall says.
func (c *clock) now() (at, wall int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.read()
	wall = t.UnixMilli()
	passed := c.measured(c.base, t).Milliseconds()
	c.offset = max(c.offset, wall-passed)
	c.last = max(c.last, passed+c.offset)
	return c.last, wall
}
