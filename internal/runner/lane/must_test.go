package lane_test

import (
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
)

// TestRenewalIsOfWhatWasNamed: a heartbeat's answer renews the grants that the
// heartbeat named, and no other that came meanwhile (MUST
// LEASE_SCOPED_BY_GRANT).
func TestRenewalIsOfWhatWasNamed(t *testing.T) {
	b := newBench(t)
	claim := one[lane.Claim](b, b.grant(b.ready().Seq, b.stub(1)))
	beat := one[lane.Beat](b, b.wait(cover()))
	if !slices.Equal(beat.Request.ActiveLeases, []ai.Grant{{JobID: "job1", LeaseID: "lease1"}}) {
		t.Fatalf("the heartbeat names %v", beat.Request.ActiveLeases)
	}
	b.grant(claim.Seq, b.stub(2, func(s *ai.ClaimedStub) { s.Lease.ExpiresAt = ai.MillisOf(b.now.Add(5 * time.Second)) }))
	b.beatDone(beat.Seq)
	b.wait(4 * time.Second)
	if n := b.m.Status().Running; n != 2 {
		t.Fatalf("%d jobs run before the second lease ends", n)
	}
	b.wait(2 * time.Second)
	if n := b.m.Status().Running; n != 1 {
		t.Errorf("%d jobs run after the second lease ended", n)
	}
}

// TestHeartbeatsKeepComing: whatever a server decides about a device, it can say
// so within twelve seconds (MUST REVOCATION_IMMEDIATE).
func TestHeartbeatsKeepComing(t *testing.T) {
	for name, busy := range map[string]bool{"idle": false, "busy": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			claim := b.ready()
			if busy {
				b.grant(claim.Seq, b.stub(1))
			}
			last := b.now
			for end := b.now.Add(5 * time.Minute); b.now.Before(end); {
				for _, beat := range of[lane.Beat](b.wait(100 * time.Millisecond)) {
					last = b.now
					b.beatDone(beat.Seq)
				}
				if gap := b.now.Sub(last); gap > 12*time.Second {
					t.Fatalf("nothing is asked for %v", gap)
				}
			}
		})
	}
}

// rebound is the identity with another sealing key, which it signed as well.
func rebound(t *testing.T, k key.SiteKeys) key.Site {
	t.Helper()
	other := newSite(t).Sealing().String()
	signature, err := k.Signer().Sign([]byte("byollm/v1/encryption-key:" + other))
	if err != nil {
		t.Fatal(err)
	}
	id, err := key.ParseIdentity[key.SiteRole](k.Identity().Signing().String(), other, signature.String())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestChangedSealingKey: what was approved is the whole identity. A site whose
// name is the same and whose sealing key is another is refused, also after it
// left and came back, and whoever signed the change (MUST
// SITES_LOCALLY_APPROVED).
func TestChangedSealingKey(t *testing.T) {
	keys, err := key.NewKeys[key.SiteRole](rand.Reader, start)
	if err != nil {
		t.Fatal(err)
	}
	approved, changed := keys.Identity(), rebound(t, keys)
	if changed.Fingerprint() != approved.Fingerprint() || changed == approved {
		t.Fatal("it is no other key under the same name, so the test shows nothing")
	}
	id := ai.KeyID(approved.Fingerprint().String())
	b := newBench(t, func(c *lane.Config) { c.Sites = map[ai.KeyID]key.Site{id: approved} })
	b.site, b.id = approved, id
	beat := one[lane.Beat](b, b.step(lane.Offered{Offers: offers}))
	with := func(site key.Site) func(*ai.HeartbeatResponse) {
		return func(r *ai.HeartbeatResponse) {
			r.Sites = map[ai.KeyID]ai.PublicIdentity{id: ai.PublicIdentityOf(site)}
		}
	}
	next := func(change func(*ai.HeartbeatResponse)) []lane.Action {
		t.Helper()
		b.wait(12 * time.Second)
		beats := of[lane.Beat](b.log)
		return b.beatDone(beats[len(beats)-1].Seq, change)
	}
	got := b.beatDone(beat.Seq, with(changed))
	if n := of[lane.Note](got); len(b.m.Status().Serving) > 0 || len(n) == 0 || n[0].What != lane.NoteSiteChanged {
		t.Errorf("serves %v at first sight: %s", b.m.Status().Serving, names(got))
	}
	for _, c := range []struct {
		site   key.Site // zero means that it is left out
		served bool
	}{{approved, true}, {key.Site{}, false}, {changed, false}, {changed, false}, {approved, true}} {
		if c.site.IsZero() {
			got = next(func(r *ai.HeartbeatResponse) { r.Sites = map[ai.KeyID]ai.PublicIdentity{} })
		} else {
			got = next(with(c.site))
		}
		if served := slices.Equal(b.m.Status().Serving, []ai.KeyID{id}); served != c.served {
			t.Errorf("offered with the approved key %v: served %v: %s", c.site == approved, served, names(got))
		}
	}
}
