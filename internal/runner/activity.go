package runner

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/internal/runner/ingress"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// Activity is what an agent does now, and what it did last. It is in memory only;
// the log has all.
type Activity struct {
	// Running are the jobs in hand, the oldest first.
	Running []JobActivity `json:"running"`
	// Ended are the last jobs that ended, at most 64, the newest first.
	Ended []JobActivity `json:"ended"`
}

// The states of a job in hand.
const (
	JobWaits = "waiting" // its text is fetched, or it waits for its turn
	JobRuns  = "running" // a model has it
	JobEnded = "ended"
)

// JobActivity is one job on this machine. Its texts are from outside. They are cut
// at 256 bytes, and then end in an ellipsis.
type JobActivity struct {
	JobID ai.JobID `json:"jobId"`
	// Server is where it came from, and Site the key that it was asked with.
	Server string   `json:"server"`
	Site   ai.KeyID `json:"site"`
	Owner  ai.Owner `json:"owner"`
	// Own is whether its owner is the person whom this machine works for.
	Own  bool    `json:"own"`
	Kind ai.Kind `json:"kind"`
	// Service is the backend by the name that this machine's owner gave it. It is
	// empty, like the two below, where none was chosen.
	Service string         `json:"service,omitzero"`
	Backend wirebackend.ID `json:"backend,omitzero"`
	Model   string         `json:"model,omitzero"`
	// Since is when it came, by this machine's clock.
	Since time.Time `json:"since"`
	State string    `json:"state"`

	// Outcome is how it ended: ok, error, canceled, refused, given-back, or lost where
	// its server took it back.
	Outcome string `json:"outcome,omitzero"`
	// Detail is a code or the name of a refusal.
	Detail string `json:"detail,omitzero"`
	// EndedAt is when it ended.
	EndedAt time.Time `json:"endedAt,omitzero"`
	// DurationMs is how long the model took; zero where none had it.
	DurationMs int64 `json:"durationMs,omitzero"`
	// Tokens is what it used as its backend counts, or nil where that is not known.
	Tokens *Tokens `json:"tokens,omitzero"`
}

// Tokens are what a job used.
type Tokens struct {
	Prompt     int64 `json:"prompt"`
	Completion int64 `json:"completion"`
}

// Bounds of a board, in jobs.
const (
	maxShown = 256
	maxEnded = 64
)

// board keeps an agent's activity. It may be used by several goroutines, and none
// waits for another that looks.
type board struct {
	clock func() time.Time

	mu       sync.Mutex
	running  map[jobKey]JobActivity
	ended    []JobActivity // the oldest first
	watchers map[chan struct{}]bool
}

// jobKey tells jobs apart. Two servers may give leases of one name.
type jobKey struct {
	server string
	lease  ai.LeaseID
}

func newBoard(clock func() time.Time) *board {
	return &board{clock: clock, running: map[jobKey]JobActivity{}, watchers: map[chan struct{}]bool{}}
}

// change changes the board and tells those who watch it.
func (b *board) change(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	do()
	for w := range b.watchers {
		select {
		case w <- struct{}{}:
		default: // it has not looked since the last time
		}
	}
}

// began shows a job that was taken on.
func (b *board) began(s ai.ClaimedStub, line ingress.Line, service string) {
	b.change(func() {
		if len(b.running) >= maxShown {
			return
		}
		j := b.job(line)
		j.Service, j.Backend, j.Model, j.State = cut(service), line.Backend, strings.ToValidUTF8(cut(line.Model), "\ufffd"), JobWaits
		b.running[jobKey{line.Server, s.Lease.ID}] = j
	})
}

// runs shows that a model has a job now.
func (b *board) runs(server string, lease ai.LeaseID) {
	b.change(func() {
		k := jobKey{server, lease}
		if j, ok := b.running[k]; ok {
			j.State = JobRuns
			b.running[k] = j
		}
	})
}

// done shows how a job ended. It takes pointers so that it can be deferred.
func (b *board) done(server string, end *lane.WorkDone, result *backend.Result, err *error) {
	b.change(func() {
		k := jobKey{server, end.Lease}
		j, ok := b.running[k]
		if !ok {
			return
		}
		delete(b.running, k)
		j.DurationMs = result.Took.Milliseconds()
		if u := result.Usage; u.Counted {
			j.Tokens = &Tokens{u.Prompt, u.Completion}
		}
		if f, ok := result.Outcome.(ai.Failure); ok {
			j.Detail = detailOf(f, result.Kind)
		}
		switch end.End {
		case lane.WorkKept:
			j.Outcome = string(result.Outcome.Disposition())
		case lane.WorkRefused:
			j.Outcome = "refused"
		case lane.WorkDown:
			j.Outcome = "given-back"
		case lane.WorkGone:
			j.Outcome = "lost"
		}
		if *err != nil && (end.End == lane.WorkRefused || end.End == lane.WorkDown) {
			j.Detail = refusal.From(*err).Kind().Name()
		}
		b.end(j)
	})
}

// refused shows a job that was not taken on.
func (b *board) refused(line ingress.Line) {
	b.change(func() {
		j := b.job(line)
		j.Outcome, j.Detail = line.Outcome, line.Detail
		b.end(j)
	})
}

// job is the job of a line of the log.
func (b *board) job(line ingress.Line) JobActivity {
	return JobActivity{
		JobID: ai.JobID(cut(string(line.JobID))), Server: line.Server, Site: ai.KeyID(cut(string(line.Site))),
		Owner: ai.Owner(cut(string(line.Owner))), Own: line.IsOwn(), Kind: line.Kind, Since: b.clock(),
	}
}

// end remembers the end of a job. The caller holds the lock.
func (b *board) end(j JobActivity) {
	j.State, j.EndedAt = JobEnded, b.clock()
	if len(b.ended) >= maxEnded {
		b.ended = slices.Delete(b.ended, 0, 1)
	}
	b.ended = append(b.ended, j)
}

func (b *board) now() Activity {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := Activity{Running: []JobActivity{}, Ended: slices.Clone(b.ended)}
	for _, j := range b.running {
		a.Running = append(a.Running, j)
	}
	slices.SortFunc(a.Running, func(x, y JobActivity) int {
		return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.Server, y.Server), cmp.Compare(x.JobID, y.JobID))
	})
	slices.Reverse(a.Ended)
	if a.Ended == nil {
		a.Ended = []JobActivity{}
	}
	return a
}

// Activity is what the agent does now.
func (a *Agent) Activity() Activity { return a.board.now() }

// Watch returns a channel that has a token when [Agent.Activity] changed since the
// last token was taken. The caller calls stop when it has seen enough.
func (a *Agent) Watch() (changed <-chan struct{}, stop func()) {
	w := make(chan struct{}, 1)
	a.board.mu.Lock()
	defer a.board.mu.Unlock()
	a.board.watchers[w] = true
	return w, func() {
		a.board.mu.Lock()
		defer a.board.mu.Unlock()
		delete(a.board.watchers, w)
	}
}

// own reports whether an owner is the person whom the machine works for at this
// server.
func (d *driver) own(o ai.Owner) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return o == d.pairing.Owner
}

// How often the log is looked through for prompts that are too old.
const (
	retainEvery = 24 * time.Hour
	// retainLook is short since a machine that sleeps does not wait.
	retainLook = time.Hour
)

// retain takes other people's prompts out of the log when they are too old, now and
// once a day, until ctx ends. What failed is tried again in an hour.
func (a *Agent) retain(ctx context.Context) {
	keep := time.Duration(a.config.Settings.CommunityPromptDays) * 24 * time.Hour
	var next time.Time
	for ok := true; ok; ok = pause(ctx, retainLook) {
		now := a.config.Clock().Round(0) // by the wall clock
		if now.Before(next) && next.Sub(now) <= retainEvery {
			continue // a clock that was set back does not put it off
		}
		n, err := a.ingress.Reduce(now.Add(-keep))
		if n > 0 {
			a.log.Info("old prompts of other people were reduced to their hash", "prompts", n)
		}
		if err != nil {
			a.log.Error("old prompts of other people are still in the log", "error", refusal.From(err))
			continue
		}
		next = now.Add(retainEvery)
	}
}
