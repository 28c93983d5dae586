package supervisor

import (
	"context"
	"sync"
	"time"
)

// The pauses before a part is started again.
const (
	// Again is the first one. It doubles up to Rarely, and is Again after a part that
	// was there for as long as Lived.
	Again  = 250 * time.Millisecond
	Rarely = 30 * time.Second
	Lived  = time.Minute
)

// Part is one part.
type Part struct {
	Name string
	// Run is the part until ctx ends. It calls up once it does its work, and again
	// where the words change that say where it is or who. Whatever it returns before
	// ctx ends means that it died.
	Run func(ctx context.Context, up func(where string)) error
}

// State is what a part is in.
type State string

// The states of a part.
const (
	Starting State = "starting"
	Up       State = "up"
	// Died is when it ended by itself; it is started again.
	Died State = "died"
	// Ended is when it was told to end and has.
	Ended State = "ended"
)

// Change is what a part has come to be.
type Change struct {
	Part  string
	State State
	// Where is what a part that is up says of itself.
	Where string
	// Starts is how often it has been started, from 1.
	Starts int
	// Err is what it died of, nil where it just ended, and Pause how long it is until
	// it is started again.
	Err   error
	Pause time.Duration
}

// Run keeps parts up until ctx ends, and returns when all have ended. tell hears of
// every change, one at a time.
func Run(ctx context.Context, parts []Part, tell func(Change)) {
	var one sync.Mutex
	said := func(c Change) {
		one.Lock()
		defer one.Unlock()
		tell(c)
	}
	var all sync.WaitGroup
	for _, p := range parts {
		all.Go(func() { keep(ctx, p, said) })
	}
	all.Wait()
}

// keep keeps one part up.
func keep(ctx context.Context, p Part, tell func(Change)) {
	pause := Again
	starts := 0
	for ctx.Err() == nil {
		starts++
		tell(Change{Part: p.Name, State: Starting, Starts: starts})
		began := time.Now()
		err := p.Run(ctx, func(where string) {
			tell(Change{Part: p.Name, State: Up, Where: where, Starts: starts})
		})
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) >= Lived {
			pause = Again
		}
		tell(Change{Part: p.Name, State: Died, Starts: starts, Err: err, Pause: pause})
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
		pause = min(2*pause, Rarely)
	}
	tell(Change{Part: p.Name, State: Ended, Starts: starts})
}
