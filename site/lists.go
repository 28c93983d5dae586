package site

import (
	"context"
	"slices"

	"github.com/allodhq/allod/wire/ai"
)

// JobQuery narrows a list of jobs.
type JobQuery struct {
	// Owner narrows to one person's; empty means everybody's.
	Owner ai.Owner
	// State narrows to one state; empty means all.
	State ai.State
	// After is the job after which the page begins; empty means the newest.
	After ai.JobID
	// Limit is how many jobs a page has at most, from 1 to [MaxPage].
	Limit int
}

// MaxPage bounds a page of a list.
const MaxPage = 100

// JobPage is a part of a list of jobs.
type JobPage struct {
	Jobs []Job
	// Next is what the next page begins after; empty at the end. A page may hold
	// fewer jobs than were asked for, even none, and yet have a next one: a look
	// for a rare state stops after a while.
	Next ai.JobID
}

// List lists jobs without their content, the newest first. It returns
// [ErrQuestion] for a state that is none, and [ErrNoJob] for a cursor that is no
// job of that owner, as when the job was removed since.
func (j *Jobs) List(ctx context.Context, q JobQuery) (JobPage, error) {
	if q.State != "" && !slices.Contains(ai.States(), q.State) {
		return JobPage{}, ErrQuestion.With("The state is none that a job can have.")
	}
	q.Limit = max(1, min(q.Limit, MaxPage))
	return j.c.Store.ListJobs(ctx, q)
}

// Get returns a device. It returns [ErrNoRunner] or [ErrSetAside].
func (d *Devices) Get(ctx context.Context, id ai.RunnerID) (Runner, error) {
	return d.c.devs.Runner(ctx, id)
}

// Online reports whether a device counts as there: heard of lately, and not
// revoked. One that its owner has paused is there and takes no work.
func (d *Devices) Online(r Runner) bool {
	return !r.Revoked() && r.SeenAt >= ai.MillisOf(d.c.Clock().Add(-d.c.Liveness))
}
