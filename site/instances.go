package site

import (
	"sync"
	"time"

	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/instance"
)

// maxInstances is how many programs are remembered of one device. Two are enough
// to tell that they are two; with more, several copies that take turns are told
// as well.
const maxInstances = 4

// instances tells apart the programs that use the keys of one device. A device
// whose keys are used by two at once serves neither, until its owner pairs one
// of them anew, under another id: one of the two may be a thief's, and the site
// cannot know which. It is remembered as long as the site runs; the agents
// remember it for good.
type instances struct {
	window time.Duration // how long after its last request one counts as there

	mu  sync.Mutex
	of  map[ai.RunnerID][]seen // in the order in which they were first seen
	two map[ai.RunnerID]bool
}

// seen is one program of a device.
type seen struct {
	id instance.ID
	// first is when its first request was issued, by its own clock, and last when
	// its last came, by the site's.
	first, last ai.Millis
}

func newInstances(window time.Duration) *instances {
	return &instances{window: window, of: map[ai.RunnerID][]seen{}, two: map[ai.RunnerID]bool{}}
}

// saw takes in a request with a good signature as it comes, and reports whether
// it is the one by which two programs were told apart.
//
// One that ended as another began is a restart. So there are two only when the
// first comes again after the second was seen, and while that is there; and with
// a request that it issued after the second had begun, since one from before may
// have been long on its way.
func (t *instances) saw(runner ai.RunnerID, id instance.ID, issued, now ai.Millis) (found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.two[runner] {
		return false
	}
	list := t.alive(t.of[runner], now)
	at := -1
	for i := range list {
		if list[i].id == id {
			at = i
		}
	}
	if at < 0 {
		if len(list) == maxInstances {
			list = list[1:]
		}
		t.of[runner] = append(list, seen{id: id, first: issued, last: now})
		return false
	}
	list[at].last = now
	t.of[runner] = list
	for _, later := range list[at+1:] {
		if issued > later.first {
			t.two[runner] = true
			delete(t.of, runner)
			return true
		}
	}
	return false
}

// alive are those of a list that were seen lately.
func (t *instances) alive(list []seen, now ai.Millis) (there []seen) {
	for _, s := range list {
		if now.Time().Sub(s.last.Time()) <= t.window {
			there = append(there, s)
		}
	}
	return there
}

// conflict reports whether a device's keys were seen in use by two programs.
func (t *instances) conflict(runner ai.RunnerID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.two[runner]
}

// sweep forgets who was not seen lately.
func (t *instances) sweep(now ai.Millis) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for runner, list := range t.of {
		if list = t.alive(list, now); len(list) == 0 {
			delete(t.of, runner)
		} else {
			t.of[runner] = list
		}
	}
}
