package lane_test

import (
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/wire/ai"
)

// TestWakes: a machine that slept, or whose clock was set forward, or that was cut
// off, for a moment or for days, comes back with one heartbeat and one claim at a
// time and no burst. Work under leases that ran out is stopped, and a kept result
// is sent only after a heartbeat has asked for its lease.
func TestWakes(t *testing.T) {
	for _, slept := range []time.Duration{2 * time.Minute, 8 * time.Hour, 20 * 24 * time.Hour} {
		t.Run(slept.String(), func(t *testing.T) {
			b := newBench(t, func(c *lane.Config) { c.Concurrency = 3 })
			claim := b.ready()
			b.grant(claim.Seq, b.stub(1), b.stub(2))
			b.step(lane.WorkDone{Lease: "lease1", End: lane.WorkKept, Until: ai.MillisOf(b.now.Add(100 * 24 * time.Hour))})
			b.step(lane.SendDone{Lease: "lease1", Err: client.ErrUnreachable})
			before := len(b.log)

			b.now = b.now.Add(slept)
			got := b.step(lane.Tick{})
			if abort := one[lane.Abort](b, got); abort.Lease != "lease2" || abort.Canceled {
				t.Errorf("%+v", abort)
			}
			// The connections died with the sleep, and the network is not back yet: each
			// request that is under way fails, five times over.
			last := func() (beat, claim int) {
				for _, a := range b.log {
					switch a := a.(type) {
					case lane.Beat:
						beat = a.Seq
					case lane.Claim:
						claim = a.Seq
					}
				}
				return beat, claim
			}
			for range 5 {
				beat, claim := last()
				b.step(lane.BeatDone{Seq: beat, Err: client.ErrUnreachable})
				b.step(lane.ClaimDone{Seq: claim, Err: client.ErrUnreachable})
				b.wait(15 * time.Second)
			}
			after := b.log[before:]
			if beats, claims := len(of[lane.Beat](after)), len(of[lane.Claim](after)); beats < 5 || beats > 6 || claims > 1 {
				t.Errorf("%d heartbeats and %d claims for five failures: %s", beats, claims, names(after))
			}
			if sends := of[lane.Send](after); len(sends) > 0 {
				t.Errorf("a result is sent before its lease was asked for: %s", names(after))
			}

			// The network is back.
			beat, _ := last()
			got = b.beatDone(beat)
			if send := one[lane.Send](b, got); send.Grant.LeaseID != "lease1" {
				t.Errorf("%+v", send)
			}
			if len(of[lane.Claim](got)) > 1 || len(of[lane.Beat](got)) > 0 {
				t.Errorf("a burst: %s", names(got))
			}
			beats := of[lane.Beat](after)
			if asked := beats[len(beats)-1].Request.ActiveLeases; len(asked) != 1 || asked[0].LeaseID != "lease1" {
				t.Errorf("the heartbeat asks for %v", asked)
			}
		})
	}
}
