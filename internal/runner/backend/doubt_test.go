package backend

import (
	"context"
	"testing"

	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// TestDoubt: a route in doubt stays what it is and is to prove itself, beside no
// job, until a proof or an answer has ended the doubt. What costs money is not
// proved unasked in doubt either.
func TestDoubt(t *testing.T) {
	r := newRoute(t, wirebackend.Free)
	r.Probed(r.now, nil)
	r.Doubt()
	r.is(Ready, "", 0, 0, true, true)
	r.Started(r.now)
	r.is(Ready, "", 0, 0, false, true)
	r.Ended(r.now)
	r.Probing()
	r.is(Ready, "", 0, 0, false, true)
	r.Probed(r.now, context.Canceled) // it says nothing, so the doubt stays
	r.is(Ready, "", 0, 0, true, true)
	r.Probing()
	r.Probed(r.now, nil)
	r.is(Ready, "", 0, 15*m, false, true)
	r.Doubt()
	r.Succeeded(r.now)
	r.is(Ready, "", 0, 15*m, false, true)
	r.Doubt()
	r.Probing()
	r.Probed(r.now, ErrFailing)
	r.is(Failed, "backend-failing", 0, 10*s, false, false)
	r.Doubt() // by a job that was under way: the wait after the failure counts
	r.is(Failed, "backend-failing", 0, 10*s, false, false)
	paid := newRoute(t, wirebackend.Metered)
	paid.Succeeded(paid.now)
	paid.Doubt()
	paid.is(Ready, "", 0, -1, false, true)
}
