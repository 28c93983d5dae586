package certify

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/allodhq/allod/wire/ai"
)

// trial is one check in one version, as it runs. It ends where [trial.fail] or
// [trial.unproved] is called, as a test does.
type trial struct {
	ctx   context.Context
	kit   *kit
	codec ai.Codec
	check check
	// tag begins every name that the trial makes.
	tag string

	mu    sync.Mutex
	steps []Step
	undo  []func(ctx context.Context)
	// jobs are the trial's own.
	jobs map[ai.JobID]bool
}

// newTag is new each time: no check meets what another one, or another run, left.
func newTag() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return "certify-" + hex.EncodeToString(b[:])
}

// verdict ends a trial.
type verdict struct {
	outcome Outcome
	why     string
}

func (t *trial) fail(format string, args ...any) {
	panic(verdict{Failed, fmt.Sprintf(format, args...)})
}

func (t *trial) unproved(format string, args ...any) {
	panic(verdict{NotProved, fmt.Sprintf(format, args...)})
}

// judge runs the check and cleans up behind it.
func (t *trial) judge() (r Result) {
	begin := time.Now()
	r = Result{ID: t.check.id, Title: t.check.title, Musts: t.check.musts, Version: t.codec.Version, Outcome: Passed}
	defer func() {
		if end := recover(); end != nil {
			v, ok := end.(verdict)
			if !ok {
				panic(end)
			}
			r.Outcome, r.Why = v.outcome, v.why
		}
		t.cleanUp()
		r.Evidence, r.Millis = t.steps, time.Since(begin).Milliseconds()
	}()
	t.check.run(t)
	return r
}

// cleanUp revokes the devices and cancels the jobs of the trial, the last first. It
// is done also where the run was stopped, and its failures change no verdict.
func (t *trial) cleanUp() {
	ctx, stop := context.WithTimeout(context.WithoutCancel(t.ctx), timeout)
	defer stop()
	for _, undo := range slices.Backward(t.undo) {
		undo(ctx)
	}
}

// maxSteps bounds what is told of one trial.
const maxSteps = 200

// step records what was sent and what came back.
func (t *trial) step(sent, format string, args ...any) {
	got := fmt.Sprintf(format, args...)
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.steps); n > 0 && t.steps[n-1].Sent == sent && t.steps[n-1].Got == got {
		t.steps[n-1].Times++
	} else if n < maxSteps {
		t.steps = append(t.steps, Step{sent, got, 1})
	}
}

func (t *trial) owner(name string) ai.Owner { return ai.Owner(t.tag + "-" + name) }

// canary is a text that stands nowhere else.
func (t *trial) canary(name string) string { return "canary-" + t.tag + "-" + name }

// asked is what an app does, and what it was told.
func (t *trial) asked(what string, err error, format string, args ...any) {
	switch {
	case isUnsupported(err):
		t.unproved("the app's half has no such thing: %s", what)
	case err != nil && t.ctx.Err() != nil:
		t.unproved("the run was stopped")
	case err != nil:
		t.step("app: "+what, "refused")
		t.fail("the app is refused: %s", what)
	}
	t.step("app: "+what, format, args...)
}

func isUnsupported(err error) bool { return errors.Is(err, errors.ErrUnsupported) }

// ask enqueues a job, which is canceled at the end.
func (t *trial) ask(a Ask) Job {
	if a.Payload == nil {
		a.Payload = ai.Generate{Prompt: "Say yes."}
	}
	if a.Audience == "" {
		a.Audience = ai.AudienceSelf
	}
	j, err := t.kit.app.Enqueue(t.ctx, a)
	what := fmt.Sprintf("ask, %s for %s, audience %s", a.Payload.Kind(), a.Owner, a.Audience)
	if len(a.DependsOn) > 0 {
		what += fmt.Sprintf(", after %d jobs", len(a.DependsOn))
	}
	if a.TTL > 0 {
		what += fmt.Sprintf(", for %s", a.TTL)
	}
	if a.AllowedOwners != nil {
		what += fmt.Sprintf(", to %d owners", len(a.AllowedOwners))
	}
	t.asked(what, err, "job %s is %s", shown(j.JobID), shown(j.State))
	if j.JobID == "" {
		t.fail("the app was told no id of its job")
	}
	t.mu.Lock()
	if t.jobs == nil {
		t.jobs = map[ai.JobID]bool{}
	}
	t.jobs[j.JobID] = true
	t.mu.Unlock()
	t.undo = append(t.undo, func(ctx context.Context) { _, _ = t.kit.app.Cancel(ctx, j.JobID) })
	return j
}

// mine reports whether a job is the trial's own.
func (t *trial) mine(id ai.JobID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.jobs[id]
}

// look returns a job as it stands.
func (t *trial) look(id ai.JobID) Job { return t.wait(id, 0) }

// wait returns a job after its end, or after so long.
func (t *trial) wait(id ai.JobID, d time.Duration) Job {
	j, err := t.kit.app.Job(t.ctx, id, d)
	told := shown(j.State)
	if j.Provenance != nil {
		told += ", by " + shown(j.Provenance.RunnerID)
	}
	if j.NoRunner {
		told += ", without a runner"
	}
	t.asked("look at job "+shown(id), err, "%s", told)
	return j
}

// ends waits for a job's end and fails unless it ends so.
func (t *trial) ends(id ai.JobID, want ai.State) Job {
	j := t.wait(id, t.kit.maxWait)
	if j.State != want {
		t.fail("job %s is %s and not %s", shown(id), shown(j.State), want)
	}
	return j
}

// open fails if a job is over.
func (t *trial) open(id ai.JobID, after string) {
	if j := t.look(id); j.State.Terminal() {
		t.fail("after %s the job is %s", after, shown(j.State))
	}
}

func (t *trial) cancel(id ai.JobID) Job {
	j, err := t.kit.app.Cancel(t.ctx, id)
	t.asked("cancel job "+shown(id), err, "%s", shown(j.State))
	return j
}

func (t *trial) available(owner ai.Owner, kind ai.Kind) bool {
	yes, err := t.kit.app.Available(t.ctx, owner, kind, ai.AudienceSelf)
	t.asked(fmt.Sprintf("is there a device for %s of %s?", kind, owner), err, "%t", yes)
	return yes
}

func (t *trial) revoke(d *device) {
	t.asked("revoke "+shown(d.runner), t.kit.app.Revoke(t.ctx, d.runner), "done")
}

// until waits for an instant of the server's clock and a bit more, and ends the
// trial where that is too far.
func (t *trial) until(at ai.Millis, what, flag string) {
	d := at.Time().Sub(t.kit.now())
	if d > t.kit.maxWait {
		t.unproved("%s lasts %s; start the server with a shorter one (an Allod site: %s), or wait longer with --max-wait", what, d.Round(time.Second), flag)
	}
	t.pause(max(d, 0) + slack)
}

// slack is more than the clocks and the ways of two machines differ by.
const slack = 300 * time.Millisecond

func (t *trial) pause(d time.Duration) {
	if pause(t.ctx, d) != nil {
		t.unproved("the run was stopped")
	}
}

// eventually tries until it is so, or the longest wait is over. Servers may look at
// their clocks now and then only.
func (t *trial) eventually(so func() bool) bool {
	end := time.Now().Add(t.kit.maxWait)
	for {
		if so() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		t.pause(200 * time.Millisecond)
	}
}

// refused fails unless an answer is a refusal with one of these codes, and returns
// it.
func (t *trial) refused(what string, a answer, codes ...ai.Code) ai.Error {
	e, ok := a.refusal()
	switch {
	case a.status/100 == 2:
		t.fail("%s was accepted with status %d", what, a.status)
	case !ok:
		t.fail("%s was answered with status %d and no refusal of the contract", what, a.status)
	case !slices.Contains(codes, e.Code):
		t.fail("%s was refused as %s and not as %s", what, shown(e.Code), listOf(codes))
	case a.status != e.Code.Status():
		t.fail("%s was refused as %s with status %d and not %d", what, shown(e.Code), a.status, e.Code.Status())
	}
	return e
}

func listOf(codes []ai.Code) string {
	list := make([]string, len(codes))
	for i, c := range codes {
		list[i] = string(c)
	}
	return strings.Join(list, " or ")
}

// silent fails if an answer holds a text.
func (t *trial) silent(what string, text []byte, canary, is string) {
	if strings.Contains(string(text), canary) {
		t.fail("%s holds %s", what, is)
	}
}

// The codes that checks wait for.
const (
	unsupported  ai.Code = "unsupported-protocol-version"
	badRequest   ai.Code = "bad-request"
	unauthorized ai.Code = "unauthorized"
	clockSkew    ai.Code = "clock-skew"
	forbidden    ai.Code = "forbidden"
	revoked      ai.Code = "revoked"
	notFound     ai.Code = "not-found"
	notReady     ai.Code = "not-ready"
	tooLate      ai.Code = "too-late"
)
