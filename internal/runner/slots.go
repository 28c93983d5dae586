package runner

import (
	"context"
	"slices"
	"sync"
)

// slots are the runs that may go on at once over all servers. The owner's own
// jobs are let in before anybody else's, and where there are two or more one is
// kept for them.
type slots struct {
	mu   sync.Mutex
	free int
	// foreign is how many more of others' may go on.
	foreign int
	// own and others are who waits, the longest first. A closed channel is a slot.
	own, others []chan struct{}
}

func newSlots(n int) *slots { return &slots{free: n, foreign: max(n-1, 1)} }

// take waits for a slot. It returns the context's cause where that ends first.
func (s *slots) take(ctx context.Context, own bool) error {
	s.mu.Lock()
	if s.free > 0 && (own || s.foreign > 0) {
		s.enter(own)
		s.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	queue := &s.others
	if own {
		queue = &s.own
	}
	*queue = append(*queue, turn)
	s.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	i := slices.Index(*queue, turn)
	if i >= 0 {
		*queue = slices.Delete(*queue, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 {
		s.give(own) // it was handed over at the same moment
	}
	return context.Cause(ctx)
}

// enter takes a slot that is free. The caller holds the lock.
func (s *slots) enter(own bool) {
	if s.free--; !own {
		s.foreign--
	}
}

// give hands the slot of such a job to the next.
func (s *slots) give(own bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free++; !own {
		s.foreign++
	}
	switch {
	case len(s.own) > 0:
		close(s.own[0])
		s.own = slices.Delete(s.own, 0, 1)
		s.enter(true)
	case len(s.others) > 0 && s.foreign > 0:
		close(s.others[0])
		s.others = slices.Delete(s.others, 0, 1)
		s.enter(false)
	}
}
