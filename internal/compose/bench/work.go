package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// together runs n calls at once and returns when all have ended. The first error
// ends the context of the others and is returned.
func together(ctx context.Context, n int, call func(ctx context.Context, i int) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for i := range n {
		wg.Go(func() {
			if err := call(ctx, i); err != nil {
				once.Do(func() { first = err; stop() })
			}
		})
	}
	wg.Wait()
	return first
}

// tell is how often a phase says how far it is.
const tell = 2 * time.Second

// phase is that of package function phase.
func (b *bench) phase(what string, of int) (count, done func()) { return phase(b.Progress, what, of) }

// phase says what is done now, and how far it is every two seconds. count counts
// one more; done ends the phase.
func phase(progress func(line string), what string, of int) (count, done func()) {
	progress(fmt.Sprintf("%s, %d", what, of))
	var n atomic.Int64
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(tell)
		defer t.Stop()
		for {
			select {
			case <-ended:
				return
			case <-t.C:
				progress(fmt.Sprintf("  %d of %d", n.Load(), of))
			}
		}
	})
	return func() { n.Add(1) }, func() { close(ended); wg.Wait() }
}

// pause waits, or returns the context's error.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
