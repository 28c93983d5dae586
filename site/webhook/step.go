package webhook

import (
	"math/bits"
	"strconv"
	"time"

	"github.com/allodhq/allod/site"
)

// How long an event is tried.
const (
	// firstWait and longestWait bound the wait after a failed attempt. The wait is
	// a random part of its bound, which doubles with each attempt.
	firstWait   = 5 * time.Second
	longestWait = time.Hour
	// tryFor is how long after the end of its job an event is tried. There is one
	// attempt at least, however late.
	tryFor = 72 * time.Hour
	// firstPause and longestPause bound in the same way how long an endpoint that
	// fails is sent nothing at all.
	firstPause   = time.Second
	longestPause = time.Minute
)

// answer is what came of one attempt.
type answer struct {
	// status is the answer's, or 0 where none came.
	status int
	// after is how long the receiver asks to wait; zero where it does not.
	after time.Duration
	// why says in a word why no answer came.
	why string
}

// verdict is what to do with an event after an attempt.
type verdict int

const (
	delivered verdict = iota // forget it
	again                    // try it again at a time
	givenUp                  // forget it, and say so
	gone                     // as again, and send nothing to this endpoint until the next start
)

// next is what follows from an attempt.
type next struct {
	do verdict
	// at is when to try again.
	at time.Time
	// why says in a word why it was not delivered.
	why string
}

// step decides what follows from the answer to an event at an instant. jitter
// returns a random number from 0 to n-1.
func step(e site.HookEvent, now time.Time, jitter func(n int64) int64, a answer) next {
	switch {
	case a.status >= 200 && a.status < 300:
		return next{do: delivered}
	case a.status != 0:
		a.why = "http-" + strconv.Itoa(a.status)
	}
	if a.status == 410 {
		return next{do: gone, at: now, why: a.why}
	}
	wait := max(1+time.Duration(jitter(int64(bound(firstWait, longestWait, e.Attempts)))), min(a.after, longestWait))
	at := now.Add(wait)
	if at.After(e.EndedAt.Time().Add(tryFor)) {
		return next{do: givenUp, why: a.why}
	}
	return next{do: again, at: at, why: a.why}
}

// bound is what a wait is a random part of after so many failures: first, doubled
// with each failure after the first one, up to longest.
func bound(first, longest time.Duration, failures int) time.Duration {
	doublings := max(failures-1, 0)
	if doublings >= bits.Len64(uint64(longest/first)) {
		return longest
	}
	return min(first<<doublings, longest)
}
