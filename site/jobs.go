package site

import (
	"context"
	"errors"
	"time"

	"github.com/allodhq/allod/internal/killpoint"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/envelope"
	"github.com/allodhq/allod/wire/ai/protocol"
)

// What asking can be refused with, besides the store's refusals.
var (
	ErrQuestion = refusal.NewKind("question-invalid", 400,
		"The question is not one that a job can carry.",
		"Keep to the bounds of the payload; give an owner and an id without line breaks, at most 256 characters long.")
	ErrNoRunnerAvailable = refusal.NewKind("no-runner", 503,
		"No device that may run this job is there.",
		"Ask the owner to pair a device or to start it, or answer without one by a fallback.")
	ErrTimeout = refusal.NewKind("wait-timeout", 503,
		"The job did not end in the time that was waited for it.",
		"Wait again with the job's id, or cancel it.")
	ErrEnded = refusal.NewKind("job-ended", 409,
		"The job ended without an answer.",
		"See its state and reason. A canceled or expired job can be asked again under a new id.")
	ErrContentGone = refusal.NewKind("content-removed", 404,
		"The job's content was removed when its retention ended.",
		"Read answers sooner, or keep content longer.")
)

// Refusals are the refusals of asking and of the site's configuration.
var Refusals = refusal.Registry{Title: "A site", Kinds: []*refusal.Kind{
	ErrConfig, ErrQuestion, ErrNoRunnerAvailable, ErrTimeout, ErrEnded, ErrContentGone, ErrSealed, ErrLink,
}}

// Bounds of a question, in UTF-16 code units and entries.
const (
	MaxIDUnits     = 256
	MaxDependsOn   = 64
	MaxAllowed     = 1024
	MaxJobDeadline = 30 * 24 * time.Hour
)

// Question is what an app asks.
type Question struct {
	// ID is the job's id; empty means a new one. Asking again with an id returns
	// the job that is there.
	ID ai.JobID
	// Owner is the app's own id of the user who asks. At most [MaxIDUnits].
	Owner ai.Owner
	// Payload is an ai.Generate or an ai.Chat.
	Payload ai.Payload
	// Audience says whose devices may run it; empty means the owner's only.
	Audience ai.Audience
	// AllowedOwners narrows [ai.AudienceNamed] to devices of these owners; nil
	// means all who named the owner. It never leaves the site. At most
	// [MaxAllowed].
	AllowedOwners []ai.Owner
	// DependsOn are jobs that must end ok first, at most [MaxDependsOn]. An
	// unknown one is waited for.
	DependsOn []ai.JobID
	// TTL is how long the job may wait once it is claimable; zero means the
	// site's.
	TTL time.Duration
	// Deadline is when the answer becomes pointless; zero means never. At most
	// [MaxJobDeadline] ahead.
	Deadline time.Time
}

// Jobs asks and waits.
type Jobs struct{ c *core }

// Enqueue checks a question, seals it to the site's own key and stores it. Once
// it returns, the job is durable. It returns [ErrQuestion], [ErrQuota],
// [ErrConflict] or the store's errors.
func (j *Jobs) Enqueue(ctx context.Context, q Question) (Job, error) {
	n, err := j.c.check(q)
	if err != nil {
		return Job{}, err
	}
	// The envelope's deadline bounds nothing here: what rests with the site is
	// opened by the site alone.
	if n.Payload, err = j.c.vault.rest(n.ID, q.Payload, n.Now+ai.Millis(envelope.MaxAge.Milliseconds())); err != nil {
		return Job{}, ErrQuestion.With("The payload is too large once it is sealed.").Because(err)
	}
	// A legal text of control characters can grow twelve times on its way. What
	// no message could carry to a device is refused here, not at each fetch.
	if len(n.Payload.Ciphertext) > ai.MaxSealedBody-sealedSlack {
		return Job{}, ErrQuestion.With("The payload is too large once it is sealed.")
	}
	stored, created, err := j.c.jobs.Enqueue(ctx, n)
	if err == nil {
		killpoint.At(killpoint.SiteJobStored)
		j.c.Logger.InfoContext(ctx, "job enqueued", "job", stored.ID, "kind", stored.Kind, "audience", stored.Audience, "new", created)
	}
	return stored, err
}

// sealedSlack is more than the envelope to a device is longer than the one at
// rest: it signs the job's owner too, and stands in a message.
const sealedSlack = 8 << 10

// check turns a question into a job to be stored, but for its payload.
func (c *core) check(q Question) (NewJob, error) {
	now := c.Clock()
	n := NewJob{
		ID: q.ID, Owner: q.Owner, Audience: q.Audience, AllowedOwners: q.AllowedOwners, DependsOn: q.DependsOn,
		TTL: q.TTL, Quota: c.Quota, Now: ai.MillisOf(now),
	}
	if n.Audience == "" {
		n.Audience = ai.AudienceSelf
	}
	if n.TTL == 0 {
		n.TTL = c.TTL
	}
	if n.ID == "" {
		id, err := newID(c.Rand, "")
		if err != nil {
			return NewJob{}, err
		}
		n.ID = ai.JobID(id)
	}
	bad := func(what string) (NewJob, error) { return NewJob{}, ErrQuestion.With(what) }
	switch {
	case !plain(string(n.ID)):
		return bad("The id is not 1 to 256 characters without control characters.")
	case !plain(string(n.Owner)):
		return bad("The owner is not 1 to 256 characters without control characters.")
	case len(n.DependsOn) > MaxDependsOn:
		return bad("It depends on more than 64 jobs.")
	case len(n.AllowedOwners) > MaxAllowed:
		return bad("It allows more than 1024 owners.")
	case n.AllowedOwners != nil && n.Audience != ai.AudienceNamed:
		return bad("Only the audience named can be narrowed to owners.")
	case n.TTL < time.Millisecond || n.TTL > MaxJobDeadline:
		return bad("The time to live is not a millisecond to 30 days.")
	case q.Payload == nil:
		return bad("There is no payload.")
	}
	if !validAudience(n.Audience) {
		return bad("The audience is none of self, named and public.")
	}
	for _, id := range n.DependsOn {
		if id == n.ID {
			return bad("It depends on itself.")
		}
		if !plain(string(id)) {
			return bad("An id it depends on is not 1 to 256 characters without control characters.")
		}
	}
	for _, o := range n.AllowedOwners {
		if !plain(string(o)) {
			return bad("An owner it allows is not 1 to 256 characters without control characters.")
		}
	}
	if !q.Deadline.IsZero() {
		if ahead := q.Deadline.Sub(now); ahead <= 0 || ahead > MaxJobDeadline {
			return bad("The deadline is not within the next 30 days.")
		}
		n.DeadlineAt = ai.MillisOf(q.Deadline)
	}
	if _, err := protocol.Latest().WritePayload(q.Payload); err != nil {
		return NewJob{}, ErrQuestion.With("The payload is outside its bounds.").Because(err)
	}
	n.Kind, n.SizeClass = q.Payload.Kind(), ai.SizeClassOf(q.Payload.TextUnits())
	return n, nil
}

// Get returns a job as it stands, without content.
func (j *Jobs) Get(ctx context.Context, id ai.JobID) (Job, error) {
	return j.c.jobs.Job(ctx, id, false)
}

// Cancel stops a job: at once while it waits, else as soon as its device hears
// of it. Cancelling what is over changes nothing.
func (j *Jobs) Cancel(ctx context.Context, id ai.JobID) (Job, error) {
	return j.cancel(ctx, CancelRequest{ID: id, Now: j.c.now()})
}

// CancelWaiting stops a job unless a device holds it or it is over, and returns it
// as it stands then: only a job that is canceled was stopped.
func (j *Jobs) CancelWaiting(ctx context.Context, id ai.JobID) (Job, error) {
	return j.cancel(ctx, CancelRequest{ID: id, Waiting: true, Now: j.c.now()})
}

func (j *Jobs) cancel(ctx context.Context, c CancelRequest) (Job, error) {
	job, err := j.c.jobs.Cancel(ctx, c)
	if err == nil {
		j.c.Logger.InfoContext(ctx, "job cancel", "job", c.ID, "state", job.State)
	}
	return job, err
}

// Answer is how a job ended, as an app sees it.
type Answer struct {
	JobID ai.JobID
	State ai.State
	// Outcome is an ai.Answer, an ai.Failure or an ai.Cancellation; with a
	// fallback it is what the fallback gave.
	Outcome ai.Outcome
	// Provenance says whose device ran it; nil for a fallback.
	Provenance *ai.Provenance
	// Usage is how many tokens the run took; nil where the device did not count,
	// and for a fallback. It is the device's word.
	Usage *ai.Usage
	// Instead is the model that would have run by the device's choice, and why it did
	// not; nil where it did, where the device does not say, and for a fallback. It is
	// the device's word.
	Instead *ai.Instead
	// Fallback is true when the app's own fallback answered and no device of the
	// owner did (MUST FALLBACK_LABELED).
	Fallback bool
}

// Text is the answer's text, or "" if it is none.
func (a Answer) Text() string {
	if ok, is := a.Outcome.(ai.Answer); is {
		return ok.Text
	}
	return ""
}

// Answer reads how a job ended. It returns [ErrEnded] for one that is over
// without an outcome, [ErrContentGone], [ErrSealed], or nil and a zero Answer
// for one that is not over.
func (j *Jobs) Answer(ctx context.Context, id ai.JobID) (Answer, error) {
	job, err := j.c.jobs.Job(ctx, id, true)
	if err != nil {
		return Answer{}, err
	}
	return j.c.answer(job)
}

func (c *core) answer(job Job) (Answer, error) {
	switch {
	case !job.State.Terminal():
		return Answer{}, nil
	case job.Result == nil && (job.State == ai.StateExpired || job.Reason != ReasonNone):
		return Answer{JobID: job.ID, State: job.State}, ErrEnded
	case job.Result == nil:
		return Answer{JobID: job.ID, State: job.State}, ErrContentGone
	}
	// It was read in the device's version when it came, and the newest reads all.
	sealed, opened, err := c.vault.outcome(protocol.Latest(), job.ID, job.Result.Device, job.Result.Envelope)
	if err != nil {
		return Answer{}, ErrSealed.Because(err)
	}
	p := ai.ProvenanceOf(job.Audience, job.Result.RunnerID, job.Result.RunnerOwner, sealed.Ran)
	return Answer{JobID: job.ID, State: job.State, Outcome: sealed.Outcome, Provenance: &p, Usage: opened.Usage, Instead: opened.Instead}, nil
}

// Wait says how long to wait for a job and what to do when nobody can run it.
type Wait struct {
	// Timeout bounds the wait; zero means five minutes.
	Timeout time.Duration
	// Grace is how long it must stay true that no device can run the job before
	// the wait gives up; zero means ten seconds.
	Grace time.Duration
	// Fallback answers in place of the owner's devices. The answer is labelled,
	// and the job is canceled first, so that it cannot be answered twice. Nil
	// means that the wait gives up with [ErrNoRunnerAvailable].
	Fallback func(ctx context.Context, why NoRunner) (ai.Outcome, error)
}

// Wait waits until the job is over and returns its answer. A job that waits for
// others never counts as without a runner. It returns [ErrEnded],
// [ErrNoRunnerAvailable], [ErrTimeout], the context's error, the fallback's and
// the store's.
func (j *Jobs) Wait(ctx context.Context, id ai.JobID, w Wait) (Answer, error) {
	if w.Timeout == 0 {
		w.Timeout = 5 * time.Minute
	}
	if w.Grace == 0 {
		w.Grace = 10 * time.Second
	}
	changed, stop := j.c.Store.Watch(Watch{Jobs: []ai.JobID{id}})
	defer stop()
	timeout := time.NewTimer(w.Timeout)
	defer timeout.Stop()
	// Availability changes without a commit, when a device falls silent.
	look := time.NewTicker(min(w.Grace, time.Second))
	defer look.Stop()
	var missing time.Time // since when nobody can run it
	for {
		job, err := j.Get(ctx, id)
		if err != nil {
			return Answer{}, err
		}
		if job.State.Terminal() {
			return j.Answer(ctx, id)
		}
		why, err := j.c.missing(ctx, job)
		switch now := j.c.Clock(); {
		case err != nil:
			return Answer{}, err
		case why == "":
			missing = time.Time{}
		case missing.IsZero():
			missing = now
		case now.Sub(missing) >= w.Grace:
			return j.giveUp(ctx, job, why, w)
		}
		select {
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		case <-timeout.C:
			return Answer{}, ErrTimeout
		case <-changed:
		case <-look.C:
		}
	}
}

// giveUp ends a wait for a job that nobody can run.
func (j *Jobs) giveUp(ctx context.Context, job Job, why NoRunner, w Wait) (Answer, error) {
	if w.Fallback == nil {
		return Answer{}, ErrNoRunnerAvailable.With(why.sentence())
	}
	// Canceled first: a device that comes now must not answer as well. One that
	// came just before wins, and the wait goes on.
	job, err := j.CancelWaiting(ctx, job.ID)
	if err != nil {
		return Answer{}, err
	}
	if job.State != ai.StateCanceled {
		return j.Wait(ctx, job.ID, w)
	}
	out, err := w.Fallback(ctx, why)
	if err != nil {
		return Answer{}, err
	}
	return Answer{JobID: job.ID, State: job.State, Outcome: out, Fallback: true}, nil
}

// Ask enqueues a question and waits for its answer with the defaults of [Wait].
// A failure of the device comes as an error beside the answer that holds it.
func (s *Site) Ask(ctx context.Context, q Question) (Answer, error) {
	job, err := s.Jobs.Enqueue(ctx, q)
	if err != nil {
		return Answer{}, err
	}
	a, err := s.Jobs.Wait(ctx, job.ID, Wait{})
	if err == nil && a.State != ai.StateOK {
		return a, ErrEnded
	}
	return a, err
}

// isAny reports whether err is one of the kinds.
func isAny(err error, kinds ...*refusal.Kind) bool {
	for _, k := range kinds {
		if errors.Is(err, k) {
			return true
		}
	}
	return false
}
