package lane_test

import (
	"context"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/lane"
)

// TestAnswered: only a heartbeat that was answered counts as one: no failure, and
// not the end of one whose place another took.
func TestAnswered(t *testing.T) {
	b := newBench(t)
	mustBe := func(when string, asked, reachable bool, answered time.Time) {
		t.Helper()
		if s := b.m.Status(); s.Asked != asked || s.Reachable != reachable || !s.Answered.Equal(answered) {
			t.Errorf("%s: %+v", when, s)
		}
	}
	mustBe("at first", false, false, time.Time{})
	beat := one[lane.Beat](b, b.step(lane.Offered{Offers: offers}))
	mustBe("when it was asked", false, false, time.Time{})
	b.step(lane.BeatDone{Seq: beat.Seq, Err: client.ErrUnreachable})
	mustBe("after a failure", true, false, time.Time{})
	beat = one[lane.Beat](b, b.wait(2*time.Second))
	claim := one[lane.Claim](b, b.beatDone(beat.Seq))
	answered := b.now
	mustBe("after an answer", true, true, answered)
	b.grant(claim.Seq, b.stub(1))
	held := one[lane.Beat](b, b.wait(time.Second))
	b.now = b.now.Add(3 * time.Second)
	next := one[lane.Beat](b, b.step(lane.Paused{On: true}))
	b.step(lane.BeatDone{Seq: held.Seq, Err: context.Canceled})
	mustBe("after the end of one that was replaced", true, true, answered)
	b.now = b.now.Add(time.Second)
	b.step(lane.BeatDone{Seq: next.Seq, Err: client.ErrAnswer})
	mustBe("after another failure", true, false, answered)
	beat = one[lane.Beat](b, b.wait(2*time.Second))
	b.beatDone(beat.Seq)
	mustBe("after another answer", true, true, b.now)
}
