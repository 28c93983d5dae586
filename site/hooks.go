package site

import (
	"context"
	"time"

	"github.com/allodhq/allod/wire/ai"
)

// HookStore keeps the ends of jobs that webhooks have still to tell. What ends a
// job also stores an event for each hook that asks for it, in the same
// transaction, whatever ended it.
type HookStore interface {
	// Use makes these the hooks that are told of jobs that end from now on. What
	// waits for a hook that is not among them stays for [HookKept], in case it was
	// left out by mistake; a later Use drops it.
	Use(ctx context.Context, hooks []Hook, now ai.Millis) error
	// Take hands out events that are due, the longest due first, and puts each off
	// for as long as it is held, so that nobody else gets it meanwhile and it comes
	// back if its taker dies. Where none is due, next is when one will be, zero
	// where none waits.
	Take(ctx context.Context, t HookTake) (events []HookEvent, next ai.Millis, err error)
	// Done removes an event that was delivered or given up. One that is gone is no
	// error.
	Done(ctx context.Context, hook HookID, job ai.JobID) error
	// Retry puts an event off to another time. One that is gone is no error.
	Retry(ctx context.Context, r HookRetry) error
	// Waiting is how many events wait, for all hooks together.
	Waiting(ctx context.Context) (int, error)
}

// HookKept is how long events wait for a hook that is no longer in use.
const HookKept = 24 * time.Hour

// HookID names a hook: a digest of where it leads, since a URL may hold secrets.
type HookID string

// Hook asks for the ends of jobs.
type Hook struct {
	ID HookID
	// Owners narrows to these people's jobs; nil means everybody's.
	Owners []ai.Owner
	// States narrows to jobs that ended so; nil means all.
	States []ai.State
}

// HookTake asks for events of one hook.
type HookTake struct {
	Hook HookID
	// Max is how many to take at most.
	Max int
	// Hold is how long they are held. The taker must be done with them by then.
	Hold time.Duration
	Now  ai.Millis
}

// HookEvent is the end of a job, as one hook is to be told of it. It lives as
// long as the job's row at most.
type HookEvent struct {
	Job    ai.JobID
	Owner  ai.Owner
	Kind   ai.Kind
	State  ai.State
	Reason Reason
	// EndedAt is when the job ended.
	EndedAt ai.Millis
	// Attempts is how often the event was taken, this time included.
	Attempts int
}

// HookRetry puts an event off.
type HookRetry struct {
	Hook HookID
	Job  ai.JobID
	At   ai.Millis
	// Why says in a word what went wrong, never what the other side said.
	Why string
}
