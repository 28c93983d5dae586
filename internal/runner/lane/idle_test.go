package lane_test

import (
	"errors"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/wire/ai"
)

// TestIdle: a server that does not hold requests is asked often after it had work,
// and less and less often afterwards.
func TestIdle(t *testing.T) {
	b := newBench(t)
	claim := b.ready()
	// wait answers a claim with nothing at once, and returns the time to the next.
	wait := func() time.Duration {
		t.Helper()
		answered := b.now
		actions := b.grant(claim.Seq)
		for range 1000 {
			for _, beat := range of[lane.Beat](actions) {
				b.beatDone(beat.Seq)
			}
			if next := of[lane.Claim](actions); len(next) > 0 {
				claim = next[0]
				return b.now.Sub(answered)
			}
			actions = b.wait(100 * time.Millisecond)
		}
		t.Fatal("it claims no more")
		return 0
	}
	if got := wait(); got < 8*time.Second || got > 12*time.Second {
		t.Errorf("before there was any work it waits %v", got)
	}
	s := b.stub(1)
	claim = one[lane.Claim](b, b.grant(claim.Seq, s))
	b.kept(s.Lease.ID)
	b.step(lane.SendDone{Lease: s.Lease.ID, Answer: ai.ResultResponse{Accepted: true, State: "ok"}})
	worked := b.now
	for last := time.Duration(0); last < 8*time.Second; {
		since := b.now.Sub(worked)
		got := wait()
		least, most := max(since/4, time.Second), max(since/4, time.Second)+200*time.Millisecond
		if since > 30*time.Second {
			least, most = min(least, 8*time.Second), 12*time.Second
		}
		if got < least || got > most {
			t.Errorf("%v after there was work it waits %v, want %v to %v", since, got, least, most)
		}
		if last = got; since > 3*time.Minute {
			t.Fatal("it never goes back to once a heartbeat")
		}
	}
}

// TestFailuresThatDiffer: the owner hears of each reason once, and again when it
// comes back.
func TestFailuresThatDiffer(t *testing.T) {
	b := newBench(t)
	beat := one[lane.Beat](b, b.step(lane.Offered{Offers: offers}))
	for i, c := range []struct {
		err  error
		told bool
	}{
		{client.ErrUnreachable, true}, {client.ErrUnreachable, false}, {client.ErrUnreachable.Because(errors.New("other words")), false},
		{ai.ErrorOf(ai.ErrUnauthorized), true}, {ai.ErrorOf(ai.ErrUnauthorized), false}, {client.ErrUnreachable, true},
	} {
		actions := b.step(lane.BeatDone{Seq: beat.Seq, Err: c.err})
		if notes := of[lane.Note](actions); len(notes) > 0 != c.told || c.told && (notes[0].What != lane.NoteUnreachable || notes[0].Err != c.err) {
			t.Errorf("failure %d: %v", i, notes)
		}
		beat = one[lane.Beat](b, b.wait(2*time.Minute))
	}
}
