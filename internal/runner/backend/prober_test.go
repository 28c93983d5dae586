package backend

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

var day = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// route is a prober on a clock that the test moves.
type route struct {
	*Prober
	t   *testing.T
	now time.Time
}

func newRoute(t *testing.T, cost wirebackend.Cost) *route {
	return &route{NewProber(cost, day), t, day}
}

// after moves the clock.
func (r *route) after(d time.Duration) *route { r.now = r.now.Add(d); return r }

// is holds what the prober says: state, refusal, age of the state, time to the
// next try (-1 without one), and whether the route is due and offered.
func (r *route) is(state State, refusal string, age, next time.Duration, due, offered bool) {
	r.t.Helper()
	s := r.State(r.now)
	left := time.Duration(-1)
	if !s.Next.IsZero() {
		left = s.Next.Sub(r.now)
	}
	got := fmt.Sprint(s.State, " ", s.Refusal, r.now.Sub(s.At), left, r.Due(r.now), r.Offered(r.now))
	if want := fmt.Sprint(state, " ", refusal, age, next, due, offered); got != want {
		r.t.Errorf("%s, want %s", got, want)
	}
}

const s, m = time.Second, time.Minute

func TestProberAtStart(t *testing.T) {
	r := newRoute(t, wirebackend.Free)
	r.is(Unknown, "", 0, 0, true, false)
	r.after(3*s).is(Unknown, "", 3*s, -3*s, true, false)
	r.Probing()
	r.is(Unknown, "", 3*s, -3*s, false, false)
	r.Probed(r.after(2*s).now, nil)
	r.is(Ready, "", 0, 15*m, false, true)
}

func TestProberWhenIdle(t *testing.T) {
	r := newRoute(t, wirebackend.Free)
	r.Probed(r.now, nil)
	r.after(15*m-1).is(Ready, "", 15*m-1, 1, false, true)
	r.after(1).is(Ready, "", 15*m, 0, true, true)
	// A job of another model at the backend is a sign of life, and never has a
	// proof beside it.
	r.Started(r.now)
	r.is(Ready, "", 15*m, 15*m, false, true)
	r.after(20*m).is(Ready, "", 35*m, -5*m, false, true)
	r.Started(r.now)
	r.Ended(r.now)
	r.after(40*m).is(Ready, "", 75*m, -25*m, false, true)
	r.Ended(r.now)
	r.is(Ready, "", 75*m, 15*m, false, true)
	r.after(15*m).is(Ready, "", 90*m, 0, true, true)
	// A job of this one proves it.
	r.Succeeded(r.now)
	r.is(Ready, "", 0, 15*m, false, true)
	// One end too many does not hide the next job.
	r.Ended(r.now)
	r.Ended(r.now)
	r.Started(r.now)
	if r.Due(r.now.Add(time.Hour)) {
		t.Error("due beside a job")
	}
}

func TestProberBacksOff(t *testing.T) {
	r := newRoute(t, wirebackend.Free)
	for i, wait := range []time.Duration{10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 300 * s, 300 * s} {
		r.Probing()
		r.Probed(r.now, ErrUnreachable.With("Nothing listens at the address."))
		r.is(Failed, "backend-unreachable", 0, wait, false, false)
		r.after(wait-1).is(Failed, "backend-unreachable", wait-1, 1, false, false)
		r.after(1).is(Failed, "backend-unreachable", wait, 0, true, false)
		if i == 3 { // a job holds a due proof off, and its failure counts
			r.Started(r.now)
			r.is(Failed, "backend-unreachable", wait, 0, false, false)
			r.Ended(r.now)
		}
	}
	for range 100 { // and for ever
		r.Probed(r.now, ErrFailing)
		r.is(Failed, "backend-failing", 0, 5*m, false, false)
		r.after(5 * m)
	}
	r.Probed(r.now, nil)
	r.is(Ready, "", 0, 15*m, false, true)
	r.Failed(r.now, KindOf(CodeTimeout))
	r.is(Failed, "backend-timeout", 0, 10*s, false, false)
	// Jobs that were under way fail with it.
	for range 5 {
		r.Failed(r.after(1*s).now, KindOf(CodeBackend))
	}
	r.is(Failed, "backend-timeout", 5*s, 5*s, false, false)
	r.Failed(r.after(5*s).now, KindOf(CodeBackend))
	r.is(Failed, "backend-error", 0, 20*s, false, false)
	// A proof that the owner asked for counts at any time.
	r.Probed(r.after(1*s).now, ErrNoModel)
	r.is(Failed, "backend-model-not-found", 0, 40*s, false, false)
	r.Probed(r.after(1*s).now, nil)
	r.is(Ready, "", 0, 15*m, false, true)
}

func TestProberIgnores(t *testing.T) {
	r := newRoute(t, wirebackend.Free)
	r.Probed(r.now, nil)
	r.Failed(r.after(1*s).now, KindOf(CodeTooLarge))
	r.is(Ready, "", 1*s, 15*m-s, false, true)
	r.Probing()
	r.Probed(r.after(1*s).now, fmt.Errorf("stopped: %w", context.Canceled))
	r.is(Ready, "", 2*s, 15*m-2*s, false, true)
	r.after(15*m).is(Ready, "", 15*m+2*s, -2*s, true, true) // the canceled proof is over
	// An error without a name is a failure all the same.
	r.Probed(r.now, errors.New("x"))
	r.is(Failed, "internal", 0, 10*s, false, false)
	r.Succeeded(r.now)
	r.Failed(r.now, KindOf("a code of another program's"))
	r.is(Failed, "backend-error", 0, 10*s, false, false)
}

func TestProberOfMetered(t *testing.T) {
	for _, cost := range []wirebackend.Cost{wirebackend.Metered, wirebackend.Subscription, ""} {
		r := newRoute(t, cost)
		r.is(Unproven, "", 0, -1, false, true)
		r.after(100*time.Hour).is(Unproven, "", 100*time.Hour, -1, false, true)
		r.Succeeded(r.now)
		r.after(20*m).is(Ready, "", 20*m, -1, false, true)
		// A failure holds jobs off for a while; the next one is the proof.
		r.Failed(r.now, KindOf(CodeBackend))
		r.is(Failed, "backend-error", 0, 10*s, false, false)
		r.after(10*s).is(Unproven, "backend-error", 10*s, -1, false, true)
		r.Failed(r.now, KindOf(CodeUnreachable))
		r.is(Failed, "backend-unreachable", 0, 20*s, false, false)
		// What a job would not mend waits for the owner.
		for _, code := range []string{CodeUnauthorized, CodeNoModel} {
			r.Failed(r.after(20*s).now, KindOf(code))
			r.is(Failed, KindOf(code).Name(), 0, -1, false, false)
			r.after(100*time.Hour).is(Failed, KindOf(code).Name(), 100*time.Hour, -1, false, false)
		}
		r.Probing()
		r.Probed(r.now, nil)
		r.is(Ready, "", 0, -1, false, true)
	}
}

// TestProberHolds walks through random days.
func TestProberHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cost := rapid.SampledFrom(wirebackend.Costs()).Draw(t, "cost")
		now := day
		p := NewProber(cost, now)
		jobs, probing, proven := 0, false, false
		var lastProof, lastFailure time.Time
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(20*m)).Draw(t, "passes")))
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0:
				p.Started(now)
				jobs++
			case 1:
				p.Ended(now)
				jobs = max(jobs-1, 0)
			case 2:
				p.Succeeded(now)
				proven, lastProof = true, now
			case 3:
				code := rapid.SampledFrom([]string{CodeUnauthorized, CodeNoModel, CodeBackend, CodeUnreachable, CodeTimeout, CodeTooLarge, "?"}).Draw(t, "code")
				p.Failed(now, KindOf(code))
				if code != CodeTooLarge {
					proven, lastFailure = false, now
				}
			case 4:
				p.Probing()
				probing = true
			case 5:
				p.Probed(now, nil)
				proven, probing, lastProof = true, false, now
			case 6:
				p.Probed(now, ErrTimeout)
				proven, probing, lastFailure = false, false, now
			}
			r := p.State(now)
			due, offered := p.Due(now), p.Offered(now)
			switch {
			case due && (cost != wirebackend.Free || jobs > 0 || probing):
				t.Fatalf("due for %s beside %d jobs, probing %v", cost, jobs, probing)
			case due && proven && now.Sub(lastProof) < idleProof:
				t.Fatal("due although it was proved just now")
			case !due && cost == wirebackend.Free && jobs == 0 && !probing && !proven && now.Sub(lastFailure) >= lastRetry:
				t.Fatal("not due although it failed long ago")
			case (r.State == Ready) != proven, proven && !offered, r.State == Unknown && offered, r.State == Failed && offered, r.State == Unproven && !offered:
				t.Fatalf("%+v, proven %v, offered %v", r, proven, offered)
			case (r.Refusal == "") != (proven || lastFailure.IsZero()), r.At.After(now), due && r.Next.After(now):
				t.Fatalf("%+v", r)
			case !r.Next.IsZero() && r.Next.Sub(now) > idleProof:
				t.Fatalf("the next try is %v away", r.Next.Sub(now))
			}
		}
	})
}
