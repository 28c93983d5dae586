package daemon

import (
	"context"
	"time"
)

// maxWait is the longest wait without a look at the clock, which may be set.
const maxWait = time.Minute

// owner runs a state machine in one goroutine. Steps wait for sockets outside of it,
// and what came of them is applied within it.
type owner struct {
	requests chan func()
	clock    func() time.Time
}

func newOwner(clock func() time.Time) *owner {
	return &owner{requests: make(chan func()), clock: clock}
}

// work does a step and returns what applies its outcome.
type work func(ctx context.Context) (apply func())

// run takes steps until ctx ends. next returns what to do now, or nil and until when
// there is nothing to do: for ever where until is zero.
func (o *owner) run(ctx context.Context, next func(now time.Time) (do work, until time.Time)) {
	for ctx.Err() == nil {
		now := o.clock()
		do, until := next(now)
		if do == nil {
			o.wait(ctx, now, until)
			continue
		}
		o.step(ctx, do)
	}
}

func (o *owner) wait(ctx context.Context, now, until time.Time) {
	wait := maxWait
	if !until.IsZero() {
		wait = min(until.Sub(now), maxWait)
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case request := <-o.requests:
		request()
	}
}

func (o *owner) step(ctx context.Context, do work) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan func(), 1)
	go func() { done <- do(ctx) }()
	select {
	case apply := <-done:
		apply()
	case request := <-o.requests:
		cancel()
		(<-done)()
		request()
	case <-ctx.Done():
		(<-done)()
	}
}

// do has f done by the goroutine that owns the state machine, and a step that is under
// way broken off for it.
func (o *owner) do(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	select {
	case o.requests <- func() { done <- f() }:
	case <-ctx.Done():
		return ErrBusy.Because(ctx.Err())
	}
	return <-done // a request is quick, and was begun
}
