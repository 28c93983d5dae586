package database

import (
	"math/bits"
	"sync"
	"time"
)

// Stats is what has happened since the database was opened, for metrics.
type Stats struct {
	// Commits is how many groups were committed.
	Commits uint64
	// Functions is how many functions were acknowledged.
	Functions uint64
	// Failed is how many functions were undone for an error or panic of their own.
	Failed uint64
	// Lost is how many functions got an error because their group was not committed.
	Lost uint64
	// Refused is how many were turned away because the queue was full.
	Refused uint64
	// Groups counts the committed groups by size: Groups[i] had at most 1<<i
	// functions, and more than those counted before it.
	Groups [9]uint64
	// Queued is how many functions wait now.
	Queued int
	// LastCommit is how long the last commit took, with its sync.
	LastCommit time.Duration
}

// Stats returns the numbers of this moment. Commits of other processes are not
// among them.
func (db *DB) Stats() Stats {
	w := db.writer
	w.mu.Lock()
	s := w.stats
	w.mu.Unlock()
	w.queue.mu.Lock()
	s.Queued, s.Refused = len(w.queue.jobs), w.queue.full
	w.queue.mu.Unlock()
	return s
}

// count takes note of a group, which is not empty.
func (w *writer) count(group []*job, lost error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if lost != nil {
		w.stats.Lost += uint64(len(group))
		return
	}
	w.stats.Commits++
	w.stats.Groups[bits.Len(uint(len(group)-1))]++
	for _, j := range group {
		if j.err != nil {
			w.stats.Failed++
		} else {
			w.stats.Functions++
		}
	}
}

// Topic is something that changes, named by the store whose rows it is. It means
// nothing to this package.
type Topic string

// signals wakes subscribers.
type signals struct {
	mu   sync.Mutex
	subs map[chan struct{}]struct{}           // all of them
	any  map[chan struct{}]struct{}           // those to whom everything matters
	by   map[Topic]map[chan struct{}]struct{} // the others, by what matters to them
}

// Subscribe returns a channel that gets a signal after every commit of this
// process that changed a row, before those who wrote get their answer. Where
// topics are given, it is only the commits of functions that named one of them
// with [Tx.Tell]. Signals that nobody has taken yet count as one, so the writer
// never waits. Whoever waits for a change subscribes first, then reads, then
// waits; the signal says only that it is worth reading again.
//
// What other processes commit is noticed when this one next begins to write,
// even if that changes nothing. Then every subscriber gets a signal, since nobody
// can tell what it was.
//
// The channel is never closed, but gets a last signal when the database closes.
// The caller must call cancel when done and bounds how many it subscribes.
func (db *DB) Subscribe(topics ...Topic) (ch <-chan struct{}, cancel func()) {
	s := &db.signals
	sub := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subs == nil {
		s.subs, s.any = map[chan struct{}]struct{}{}, map[chan struct{}]struct{}{}
		s.by = map[Topic]map[chan struct{}]struct{}{}
	}
	s.subs[sub] = struct{}{}
	if len(topics) == 0 {
		s.any[sub] = struct{}{}
	}
	for _, t := range topics {
		if s.by[t] == nil {
			s.by[t] = map[chan struct{}]struct{}{}
		}
		s.by[t][sub] = struct{}{}
	}
	return sub, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subs, sub)
		delete(s.any, sub)
		for _, t := range topics {
			if delete(s.by[t], sub); len(s.by[t]) == 0 {
				delete(s.by, t)
			}
		}
	}
}

// changed signals a commit of functions that named these topics.
func (s *signals) changed(topics []Topic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wake(s.any)
	for _, t := range topics {
		wake(s.by[t])
	}
}

// all signals everybody.
func (s *signals) all() {
	s.mu.Lock()
	defer s.mu.Unlock()
	wake(s.subs)
}

func wake(subs map[chan struct{}]struct{}) {
	for sub := range subs {
		select {
		case sub <- struct{}{}:
		default:
		}
	}
}
