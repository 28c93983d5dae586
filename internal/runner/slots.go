package runner

import (
	"context"
	"slices"
	"sync"
)

// slots are the runs that may go on at once over all servers. The owner's own
// jobs are let in before anybody else's.
type slots struct {
	mu   sync.Mutex
	free int
	// own and others are who waits, the longest first. A closed channel is a slot.
	own, others []chan struct{}
}

func newSlots(n int) *slots { return &slots{free: n} }

// take waits for a slot. It returns the context's cause where that ends first.
func (s *slots) take(ctx context.Context, own bool) error {
	s.mu.Lock()
	if s.free > 0 {
		s.free--
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
		s.give() // it was handed over at the same moment
	}
	return context.Cause(ctx)
}

// give hands a slot to the next.
func (s *slots) give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, queue := range []*[]chan struct{}{&s.own, &s.others} {
		if len(*queue) > 0 {
			close((*queue)[0])
			*queue = slices.Delete(*queue, 0, 1)
			return
		}
	}
	s.free++
}
