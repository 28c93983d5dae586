package lane_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// bench drives one machine by hand.
type bench struct {
	t    *testing.T
	m    *lane.Machine
	now  time.Time
	site key.Site
	id   ai.KeyID
	wake time.Time
	log  []lane.Action
}

func newSite(t testing.TB) key.Site {
	t.Helper()
	k, err := key.NewKeys[key.SiteRole](rand.Reader, start)
	if err != nil {
		t.Fatal(err)
	}
	return k.Identity()
}

var offers = []lane.Offer{
	{Capability: ai.Capability{Kind: ai.KindGenerate, Service: "mine", BackendID: "ollama", BackendClass: backend.HTTP, Model: "m", OfferScope: ai.OfferSelf}, Cost: backend.Free},
}

func newBench(t *testing.T, change ...func(*lane.Config)) *bench {
	b := &bench{t: t, now: start, site: newSite(t)}
	b.id = ai.KeyID(b.site.Fingerprint().String())
	c := lane.Config{Runner: "r1", Owner: "alice", Sites: map[ai.KeyID]key.Site{b.id: b.site}, Concurrency: 2}
	for _, f := range change {
		f(&c)
	}
	b.m = lane.New(c, mathrand.New(mathrand.NewPCG(1, 2)), b.now)
	return b
}

// step tells an event and returns the actions but Wake.
func (b *bench) step(e lane.Event) []lane.Action {
	b.t.Helper()
	var out []lane.Action
	for _, a := range b.m.Step(b.now, e) {
		if w, ok := a.(lane.Wake); ok {
			if w.At.Before(b.now) && !w.At.IsZero() {
				b.t.Fatalf("wakes in the past, %v before now", b.now.Sub(w.At))
			}
			b.wake = w.At
			continue
		}
		if _, ok := a.(lane.Ended); ok {
			b.wake = b.now.Add(1000 * time.Hour)
		}
		out = append(out, a)
	}
	b.log = append(b.log, out...)
	return out
}

// wait lets time pass, ticking when the machine asked to.
func (b *bench) wait(d time.Duration) (out []lane.Action) {
	b.t.Helper()
	end := b.now.Add(d)
	for range 10_000 {
		if b.wake.After(end) {
			b.now = end
			return append(out, b.step(lane.Tick{})...)
		}
		if b.wake.After(b.now) {
			b.now = b.wake
		}
		out = append(out, b.step(lane.Tick{})...)
		if !b.wake.After(b.now) {
			b.t.Fatal("the machine wants to be woken at once, again and again")
		}
	}
	b.t.Fatal("the machine never rests")
	return nil
}

func of[A lane.Action](actions []lane.Action) (found []A) {
	for _, a := range actions {
		if x, ok := a.(A); ok {
			found = append(found, x)
		}
	}
	return found
}

func one[A lane.Action](b *bench, actions []lane.Action) A {
	b.t.Helper()
	found := of[A](actions)
	if len(found) != 1 {
		var none A
		b.t.Fatalf("%d of %T in %s", len(found), none, names(actions))
	}
	return found[0]
}

func names(actions []lane.Action) string {
	var s []string
	for _, a := range actions {
		if n, ok := a.(lane.Note); ok {
			s = append(s, "note "+string(n.What))
			continue
		}
		s = append(s, strings.TrimPrefix(fmt.Sprintf("%T", a), "lane."))
	}
	return strings.Join(s, ", ")
}

func (b *bench) expect(actions []lane.Action, want string) {
	b.t.Helper()
	if got := names(actions); got != want {
		b.t.Fatalf("%s; want %s", got, want)
	}
}

func (b *bench) sites() map[ai.KeyID]ai.PublicIdentity {
	return map[ai.KeyID]ai.PublicIdentity{b.id: ai.PublicIdentityOf(b.site)}
}

func (b *bench) beatDone(seq int, change ...func(*ai.HeartbeatResponse)) []lane.Action {
	b.t.Helper()
	r := ai.HeartbeatResponse{Sites: b.sites(), ServerTime: ai.MillisOf(b.now)}
	for _, f := range change {
		f(&r)
	}
	return b.step(lane.BeatDone{Seq: seq, Answer: r})
}

// ready brings the machine to where it has a claim under way, and returns that.
func (b *bench) ready() lane.Claim {
	b.t.Helper()
	beat := one[lane.Beat](b, b.step(lane.Offered{Offers: offers}))
	return one[lane.Claim](b, b.beatDone(beat.Seq))
}

func (b *bench) stub(n int, change ...func(*ai.ClaimedStub)) ai.ClaimedStub {
	s := ai.ClaimedStub{
		Stub:  ai.Stub{ID: ai.JobID(fmt.Sprint("job", n)), Kind: ai.KindGenerate, Owner: "alice", Site: b.id, Audience: ai.AudienceSelf, SizeClass: ai.SizeSmall, DeadlineAt: ai.MillisOf(b.now.Add(time.Hour))},
		Lease: ai.Lease{ID: ai.LeaseID(fmt.Sprint("lease", n)), RunnerID: "r1", ExpiresAt: ai.MillisOf(b.now.Add(time.Minute))},
	}
	for _, f := range change {
		f(&s)
	}
	return s
}

func (b *bench) grant(seq int, stubs ...ai.ClaimedStub) []lane.Action {
	b.t.Helper()
	return b.step(lane.ClaimDone{Seq: seq, Answer: ai.ClaimResponse{Jobs: stubs, LeaseMs: 60_000}})
}

func (b *bench) kept(lease ai.LeaseID) []lane.Action {
	b.t.Helper()
	return b.step(lane.WorkDone{Lease: lease, End: lane.WorkKept, Until: ai.MillisOf(b.now.Add(24 * time.Hour))})
}

func grantOf(s ai.ClaimedStub) ai.Grant { return ai.Grant{JobID: s.ID, LeaseID: s.Lease.ID} }

func TestOneJob(t *testing.T) {
	b := newBench(t)
	beat := one[lane.Beat](b, b.step(lane.Offered{Offers: offers}))
	if q := beat.Request; beat.Wait != 0 || q.RunnerID != "r1" || len(q.Capabilities) != 1 || !reflect.DeepEqual(q.Capabilities[0], offers[0].Capability) || len(q.ActiveLeases) != 0 || q.Paused {
		t.Errorf("first heartbeat %+v", beat)
	}
	claim := one[lane.Claim](b, b.beatDone(beat.Seq))
	if q := claim.Request; q.Max != 2 || q.RunnerID != "r1" || !reflect.DeepEqual(q.Capabilities, beat.Request.Capabilities) || claim.Wait != 20*time.Second {
		t.Errorf("claim %+v", claim)
	}
	s := b.stub(1)
	got := b.grant(claim.Seq, s)
	b.expect(got, "note granted, Work, Claim")
	if w := one[lane.Work](b, got); w.Stub != s || !w.Offer.Equal(offers[0]) {
		t.Errorf("work %+v", w)
	}
	if c := one[lane.Claim](b, got); c.Request.Max != 1 {
		t.Errorf("second claim %+v", c)
	}
	// A heartbeat covers the grant within a moment, and is held, for news.
	got = b.wait(300 * time.Millisecond)
	beat = one[lane.Beat](b, got)
	if !slices.Equal(beat.Request.ActiveLeases, []ai.Grant{grantOf(s)}) || beat.Wait != 20*time.Second {
		t.Errorf("heartbeat %+v", beat)
	}
	got = b.kept(s.Lease.ID)
	if g := one[lane.Send](b, got).Grant; g != grantOf(s) {
		t.Errorf("sends %+v", g)
	}
	got = b.step(lane.SendDone{Lease: s.Lease.ID, Answer: ai.ResultResponse{Accepted: true, State: "ok"}})
	b.expect(got, "note answered, Drop")
	if st := b.m.Status(); st.Kept != 0 || st.Running != 0 || !st.Reachable || !slices.Equal(st.Serving, []ai.KeyID{b.id}) {
		t.Errorf("status %+v", st)
	}
}

// TestAdmission has a stub for each reason to refuse one. A refused job is given
// back as refused before anything of it is fetched.
func TestAdmission(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*ai.ClaimedStub)
		want   error
	}{
		"another site":        {func(s *ai.ClaimedStub) { s.Site = "BYOLLM-0000-0000-0000-0000-0000-0000" }, lane.ErrSite},
		"another kind":        {func(s *ai.ClaimedStub) { s.Kind = ai.KindChat }, match.ErrNoCapability},
		"a kind of no table":  {func(s *ai.ClaimedStub) { s.Kind = "shell.run" }, match.ErrNoCapability},
		"another owner":       {func(s *ai.ClaimedStub) { s.Owner = "bob" }, match.ErrOtherOwner},
		"a named job":         {func(s *ai.ClaimedStub) { s.Owner, s.Audience = "bob", ai.AudienceNamed }, match.ErrScope},
		"a public job":        {func(s *ai.ClaimedStub) { s.Owner, s.Audience = "bob", ai.AudiencePublic }, match.ErrScope},
		"an unknown audience": {func(s *ai.ClaimedStub) { s.Owner, s.Audience = "bob", "everyone" }, match.ErrOtherOwner},
		"another device":      {func(s *ai.ClaimedStub) { s.Lease.RunnerID = "r2" }, lane.ErrGrant},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			claim := b.ready()
			s := b.stub(1, c.change)
			got := b.grant(claim.Seq, s)
			if len(of[lane.Work](got)) > 0 {
				t.Fatal("it is worked on")
			}
			if r := one[lane.Release](b, got); r.Reason != ai.ReleaseRefused || !slices.Equal(r.Grants, []ai.Grant{grantOf(s)}) {
				t.Errorf("release %+v", r)
			}
			if n := of[lane.Note](got)[0]; n.What != lane.NoteRefused || !errors.Is(n.Err, c.want) || n.Stub.ID != s.ID {
				t.Errorf("note %+v, want %v", n, c.want)
			}
			if _, err := b.m.Admit(s); !errors.Is(err, c.want) {
				t.Errorf("Admit says %v", err)
			}
		})
	}
}

func TestClaimsOnlyWhatItCanRun(t *testing.T) {
	b := newBench(t)
	beat := one[lane.Beat](b, b.step(lane.Tick{}))
	if len(beat.Request.Capabilities) != 0 || beat.Request.Capabilities == nil {
		t.Errorf("offers %+v", beat.Request.Capabilities)
	}
	b.expect(b.beatDone(beat.Seq), "") // nothing to offer, no claim
	got := b.step(lane.Offered{Offers: offers})
	b.expect(got, "Beat, Claim")
	claim := one[lane.Claim](b, got)
	b.beatDone(one[lane.Beat](b, got).Seq)
	// More than was asked for goes back.
	got = b.grant(claim.Seq, b.stub(1), b.stub(2), b.stub(3))
	if len(of[lane.Work](got)) != 2 {
		t.Errorf("%s", names(got))
	}
	if r := one[lane.Release](b, got); r.Reason != ai.ReleaseShutdown || r.Grants[0].JobID != "job3" {
		t.Errorf("release %+v", r)
	}
	if len(of[lane.Claim](got)) > 0 {
		t.Error("claims beyond its concurrency")
	}
	// The same grant again is not worked on twice.
	b.step(lane.WorkDone{Lease: "lease1", End: lane.WorkGone})
	claim = of[lane.Claim](b.log)[len(of[lane.Claim](b.log))-1]
	if got := b.grant(claim.Seq, b.stub(2)); len(of[lane.Work](got)) > 0 {
		t.Error("one grant is worked on twice")
	}
	// What is taken back is claimed no more.
	got = b.step(lane.Offered{})
	if len(of[lane.Claim](got)) > 0 || len(one[lane.Beat](b, got).Request.Capabilities) > 0 {
		t.Errorf("%s", names(got))
	}
}

// TestNoClaimBeforeTheServerIsHeard: what is served is known from a heartbeat.
func TestNoClaimBeforeTheServerIsHeard(t *testing.T) {
	b := newBench(t)
	beat := one[lane.Beat](b, b.step(lane.Offered{Offers: offers}))
	got := b.step(lane.BeatDone{Seq: beat.Seq, Err: client.ErrUnreachable})
	b.expect(got, "note unreachable")
	for range 5 {
		got = b.wait(time.Minute)
		if len(of[lane.Claim](got)) > 0 {
			t.Fatal("claims from a server that was not heard")
		}
		beats := of[lane.Beat](got)
		got = b.step(lane.BeatDone{Seq: beats[len(beats)-1].Seq, Err: client.ErrUnreachable})
		b.expect(got, "") // told once
	}
	beats := of[lane.Beat](b.wait(time.Minute))
	got = b.beatDone(beats[len(beats)-1].Seq)
	if notes := of[lane.Note](got); len(notes) != 1 || notes[0].What != lane.NoteReachable || len(of[lane.Claim](got)) != 1 {
		t.Errorf("%s", names(got))
	}
}

// TestLeaseRunsOut: a lease that could not be renewed stops its work, reports
// nothing, and a result that comes after all is thrown away (MUST
// LEASE_HONORED).
func TestLeaseRunsOut(t *testing.T) {
	b := newBench(t)
	claim := b.ready()
	s := b.stub(1)
	b.grant(claim.Seq, s)
	began := b.now
	for range 100 {
		got := b.wait(time.Second)
		for _, beat := range of[lane.Beat](got) {
			b.step(lane.BeatDone{Seq: beat.Seq, Err: client.ErrUnreachable})
		}
		if aborts := of[lane.Abort](got); len(aborts) > 0 {
			if at := b.now.Sub(began); at < 59*time.Second || at > 61*time.Second || aborts[0] != (lane.Abort{Lease: s.Lease.ID}) {
				t.Errorf("after %v: %+v", at, aborts)
			}
			got = b.kept(s.Lease.ID)
			if len(of[lane.Send](got)) > 0 || one[lane.Drop](b, got).Grant.LeaseID != s.Lease.ID {
				t.Errorf("%s", names(got))
			}
			return
		}
	}
	t.Error("the work goes on")
}

// TestLeaseCountsFromTheAsking: a renewal counts from when it was sent, not from
// when it was answered.
func TestLeaseCountsFromTheAsking(t *testing.T) {
	b := newBench(t)
	claim := b.ready()
	b.grant(claim.Seq, b.stub(1))
	beat := one[lane.Beat](b, b.wait(cover()))
	sent := b.now
	b.now = b.now.Add(50 * time.Second) // answered late
	b.beatDone(beat.Seq)
	for range 100 {
		for _, a := range b.wait(time.Second) {
			if beat, ok := a.(lane.Beat); ok {
				b.step(lane.BeatDone{Seq: beat.Seq, Err: client.ErrUnreachable})
			}
		}
		if b.m.Status().Running == 0 {
			if at := b.now.Sub(sent); at < 59*time.Second || at > 61*time.Second {
				t.Errorf("stopped %v after the heartbeat was sent", at)
			}
			return
		}
	}
	t.Error("the work goes on")
}

func cover() time.Duration { return 250 * time.Millisecond }

// TestLeaseEndsByTheServersClock: a grant that took long on its way ends when the
// server says.
func TestLeaseEndsByTheServersClock(t *testing.T) {
	b := newBench(t)
	beat := one[lane.Beat](b, b.step(lane.Offered{Offers: offers}))
	ahead := 2 * time.Hour // the server's clock
	claim := one[lane.Claim](b, b.beatDone(beat.Seq, func(r *ai.HeartbeatResponse) { r.ServerTime = ai.MillisOf(b.now.Add(ahead)) }))
	b.grant(claim.Seq, b.stub(1, func(s *ai.ClaimedStub) { s.Lease.ExpiresAt = ai.MillisOf(b.now.Add(ahead + 5*time.Second)) }))
	for _, beat := range of[lane.Beat](b.wait(4 * time.Second)) {
		b.step(lane.BeatDone{Seq: beat.Seq, Err: client.ErrUnreachable})
	}
	if b.m.Status().Running != 1 {
		t.Error("stopped too soon")
	}
	b.wait(2 * time.Second)
	if b.m.Status().Running != 0 {
		t.Error("the work goes on after the lease's end")
	}
}

func TestLostAndCanceled(t *testing.T) {
	b := newBench(t)
	claim := b.ready()
	lost, canceled := b.stub(1), b.stub(2)
	b.grant(claim.Seq, lost, canceled)
	beat := one[lane.Beat](b, b.wait(cover()))
	got := b.beatDone(beat.Seq, func(r *ai.HeartbeatResponse) {
		// The right lease of another job and the wrong lease of ours name nothing.
		r.Lost = []ai.Grant{{JobID: "job9", LeaseID: canceled.Lease.ID}, {JobID: canceled.ID, LeaseID: "lease9"}, grantOf(lost)}
		r.Cancel = []ai.Grant{grantOf(canceled), {JobID: "job9", LeaseID: canceled.Lease.ID}}
	})
	aborts := of[lane.Abort](got)
	if !slices.Equal(aborts, []lane.Abort{{Lease: lost.Lease.ID}, {Lease: canceled.Lease.ID, Canceled: true}}) {
		t.Errorf("aborts %+v", aborts)
	}
	// The canceled run is reported, the lost one is not.
	if got := b.kept(lost.Lease.ID); len(of[lane.Send](got)) > 0 {
		t.Error("a lost lease is reported under")
	}
	if got := b.kept(canceled.Lease.ID); len(of[lane.Send](got)) != 1 {
		t.Errorf("%s", names(got))
	}
	// Told again, it is not aborted again: it has been.
	beats := of[lane.Beat](b.log)
	got = b.beatDone(beats[len(beats)-1].Seq, func(r *ai.HeartbeatResponse) { r.Cancel = []ai.Grant{grantOf(canceled)} })
	if len(of[lane.Abort](got)) > 0 {
		t.Errorf("%s", names(got))
	}
}

// TestRestored: what was kept by an earlier run is sent only once a heartbeat
// has said that its lease is still held.
func TestRestored(t *testing.T) {
	b := newBench(t)
	held, gone := ai.Grant{JobID: "job1", LeaseID: "lease1"}, ai.Grant{JobID: "job2", LeaseID: "lease2"}
	until := ai.MillisOf(b.now.Add(24 * time.Hour))
	got := b.step(lane.Restored{Results: []lane.Kept{{Grant: held, Site: b.id, Until: until}, {Grant: gone, Site: b.id, Until: until}}})
	if len(of[lane.Send](got)) > 0 {
		t.Fatal("sent without asking")
	}
	// All are in the first heartbeat: a short lease leaves no time for a second.
	beat := one[lane.Beat](b, got)
	if !slices.Equal(beat.Request.ActiveLeases, []ai.Grant{held, gone}) {
		t.Errorf("the first heartbeat asks for %v", beat.Request.ActiveLeases)
	}
	got = b.beatDone(beat.Seq, func(r *ai.HeartbeatResponse) { r.Lost = []ai.Grant{gone} })
	var sent []ai.Grant
	for _, s := range of[lane.Send](got) {
		sent = append(sent, s.Grant)
	}
	if !slices.Equal(sent, []ai.Grant{held}) {
		t.Errorf("sent %v", sent)
	}
	if d := one[lane.Drop](b, got); d.Grant != gone {
		t.Errorf("dropped %v", d)
	}
}

func TestResultAnswers(t *testing.T) {
	wire := func(k *refusal.Kind) error { return ai.ErrorOf(refusal.From(k)) }
	for name, c := range map[string]struct {
		done lane.SendDone
		drop bool // else it is sent again
	}{
		"accepted":     {lane.SendDone{Answer: ai.ResultResponse{Accepted: true}}, true},
		"not accepted": {lane.SendDone{Answer: ai.ResultResponse{Duplicate: true}}, true},
		"not found":    {lane.SendDone{Err: wire(ai.ErrNotFound)}, true},
		"too late":     {lane.SendDone{Err: wire(ai.ErrTooLate)}, true},
		"bad":          {lane.SendDone{Err: wire(ai.ErrBadRequest)}, true},
		"forbidden":    {lane.SendDone{Err: wire(ai.ErrForbidden)}, true},
		"unreachable":  {lane.SendDone{Err: client.ErrUnreachable}, false},
		"server error": {lane.SendDone{Err: wire(ai.ErrServer)}, false},
		"rate limited": {lane.SendDone{Err: wire(ai.ErrRateLimited)}, false},
		"not ready":    {lane.SendDone{Err: wire(ai.ErrNotReady)}, false},
		"clock skew":   {lane.SendDone{Err: wire(ai.ErrClockSkew)}, false},
		"unauthorized": {lane.SendDone{Err: wire(ai.ErrUnauthorized)}, false},
		"a page":       {lane.SendDone{Err: client.ErrAnswer}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			claim := b.ready()
			s := b.stub(1)
			b.grant(claim.Seq, s)
			b.kept(s.Lease.ID)
			c.done.Lease = s.Lease.ID
			got := b.step(c.done)
			if drop := len(of[lane.Drop](got)) == 1; drop != c.drop || len(of[lane.Send](got)) > 0 {
				t.Fatalf("%s", names(got))
			}
			again := of[lane.Send](b.wait(30 * time.Second))
			if c.drop == (len(again) > 0) {
				t.Errorf("sent again %d times", len(again))
			}
		})
	}
}

// TestRetriesBackOff: tries spread out, and never come sooner than the server
// asks.
func TestRetriesBackOff(t *testing.T) {
	b := newBench(t)
	beat := one[lane.Beat](b, b.step(lane.Offered{Offers: offers}))
	after := int64(40)
	wire := ai.ErrorOf(refusal.From(ai.ErrRateLimited))
	wire.RetryAfter = &after
	at := b.now
	b.step(lane.BeatDone{Seq: beat.Seq, Err: wire})
	for len(of[lane.Beat](b.log)) == 1 {
		b.wait(time.Second)
	}
	if d := b.now.Sub(at); d < 40*time.Second || d > 101*time.Second {
		t.Errorf("asked again after %v", d)
	}
	count := 0
	for end := b.now.Add(time.Hour); b.now.Before(end); {
		beats := of[lane.Beat](b.log)
		b.step(lane.BeatDone{Seq: beats[len(beats)-1].Seq, Err: client.ErrUnreachable})
		b.wait(time.Second)
		count = len(of[lane.Beat](b.log))
	}
	if count < 60 || count > 400 {
		t.Errorf("%d heartbeats in an hour of no answer", count)
	}
}

func TestPause(t *testing.T) {
	b := newBench(t)
	claim := b.ready()
	s := b.stub(1)
	claim = one[lane.Claim](b, b.grant(claim.Seq, s))
	got := b.step(lane.Paused{On: true})
	if q := one[lane.Quit](b, got); !q.Claim || q.Beat {
		t.Errorf("quits %+v", q)
	}
	// Not every version of the protocol has a word for it, but each has offers.
	if q := one[lane.Beat](b, got).Request; !q.Paused || q.Capabilities == nil || len(q.Capabilities) > 0 {
		t.Errorf("the server is told %+v", q)
	}
	more := append(slices.Clone(offers), lane.Offer{Capability: ai.Capability{Kind: ai.KindChat, Service: "mine", BackendID: "ollama", BackendClass: backend.HTTP, Model: "m", OfferScope: ai.OfferSelf}, Cost: backend.Free})
	for _, beat := range of[lane.Beat](b.step(lane.Offered{Offers: more})) {
		if len(beat.Request.Capabilities) > 0 {
			t.Errorf("offers while paused: %+v", beat.Request)
		}
	}
	// What the given-up claim was granted all the same goes back.
	got = b.grant(claim.Seq, b.stub(2))
	if r := one[lane.Release](b, got); r.Grants[0].JobID != "job2" || len(of[lane.Work](got)) > 0 {
		t.Errorf("%s", names(got))
	}
	if b.m.Status().Running != 1 {
		t.Error("work in flight is not finished")
	}
	b.step(lane.ReleaseDone{})
	if got := b.wait(5 * time.Second); len(of[lane.Claim](got)) > 0 {
		t.Error("claims while paused")
	}
	got = b.step(lane.Paused{On: true, Release: true})
	if r := one[lane.Release](b, got); r.Reason != ai.ReleasePause || r.Grants[0] != grantOf(s) || one[lane.Abort](b, got).Lease != s.Lease.ID {
		t.Errorf("%s", names(got))
	}
	beats := of[lane.Beat](b.log)
	b.beatDone(beats[len(beats)-1].Seq)
	got = b.step(lane.Paused{})
	if q := one[lane.Beat](b, got).Request; q.Paused || len(q.Capabilities) != 2 || len(of[lane.Claim](got)) != 1 {
		t.Errorf("%s, %+v", names(got), q)
	}
	paused := newBench(t, func(c *lane.Config) { c.Paused = true })
	beat := one[lane.Beat](paused, paused.step(lane.Offered{Offers: offers}))
	if got := paused.beatDone(beat.Seq); !beat.Request.Paused || len(beat.Request.Capabilities) > 0 || len(of[lane.Claim](got)) > 0 {
		t.Error("begins paused, and claims or offers")
	}
}

func TestStop(t *testing.T) {
	b := newBench(t)
	claim := b.ready()
	running, kept := b.stub(1), b.stub(2)
	b.grant(claim.Seq, running, kept)
	b.kept(kept.Lease.ID)
	got := b.step(lane.Stop{})
	if r := one[lane.Release](b, got); r.Reason != ai.ReleaseShutdown || !slices.Equal(r.Grants, []ai.Grant{grantOf(running)}) {
		t.Errorf("release %+v", r)
	}
	if len(of[lane.Ended](got)) > 0 {
		t.Error("ends before the result is handed in")
	}
	// A result that comes after the release is thrown away.
	if got := b.kept(running.Lease.ID); len(of[lane.Send](got)) > 0 || len(of[lane.Drop](got)) != 1 {
		t.Errorf("%s", names(got))
	}
	b.step(lane.ReleaseDone{})
	got = b.step(lane.SendDone{Lease: kept.Lease.ID, Answer: ai.ResultResponse{Accepted: true}})
	if len(of[lane.Ended](got)) != 1 || one[lane.Ended](b, got).Revoked {
		t.Errorf("%s", names(got))
	}
	if got := b.step(lane.Tick{}); got != nil {
		t.Errorf("after its end: %s", names(got))
	}
}

// TestStopGivesUp: a server that does not answer does not keep the device from
// stopping, and a kept result is not dropped then.
func TestStopGivesUp(t *testing.T) {
	b := newBench(t)
	claim := b.ready()
	s := b.stub(1)
	b.grant(claim.Seq, s)
	b.kept(s.Lease.ID)
	b.step(lane.Stop{})
	got := b.step(lane.SendDone{Lease: s.Lease.ID, Err: client.ErrUnreachable})
	for range 10 {
		if len(of[lane.Ended](got)) > 0 {
			break
		}
		got = b.wait(time.Second)
	}
	if len(of[lane.Ended](got)) != 1 || len(of[lane.Drop](b.log)) > 0 {
		t.Errorf("%s", names(b.log))
	}
}

// TestRevoked: whichever request hears it first, everything stops (MUST
// REVOCATION_HONORED).
func TestRevoked(t *testing.T) {
	revoked := ai.ErrorOf(refusal.From(ai.ErrRevoked))
	for name, e := range map[string]func(b *bench) lane.Event{
		"heartbeat": func(b *bench) lane.Event {
			return lane.BeatDone{Seq: one[lane.Beat](b, b.wait(cover())).Seq, Err: revoked}
		},
		"claim": func(b *bench) lane.Event {
			claims := of[lane.Claim](b.log)
			return lane.ClaimDone{Seq: claims[len(claims)-1].Seq, Err: revoked}
		},
		"result": func(b *bench) lane.Event {
			b.kept("lease1")
			return lane.SendDone{Lease: "lease1", Err: revoked}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(c *lane.Config) { c.Concurrency = 3 })
			claim := b.ready()
			b.grant(claim.Seq, b.stub(1), b.stub(2))
			got := b.step(e(b))
			if end := one[lane.Ended](b, got); !end.Revoked || len(of[lane.Abort](got))+len(of[lane.Drop](got)) != 2 {
				t.Errorf("%s", names(got))
			}
			if len(of[lane.Send](got)) > 0 || len(of[lane.Claim](got)) > 0 {
				t.Errorf("%s", names(got))
			}
		})
	}
}

// TestTwoAgents: whichever request hears it first, everything stops for good, and
// nothing is reported or given back.
func TestTwoAgents(t *testing.T) {
	for name, e := range map[string]func(b *bench) lane.Event{
		"heartbeat": func(b *bench) lane.Event {
			return lane.BeatDone{Seq: one[lane.Beat](b, b.wait(cover())).Seq, Err: client.ErrTwoAgents}
		},
		"claim": func(b *bench) lane.Event {
			claims := of[lane.Claim](b.log)
			return lane.ClaimDone{Seq: claims[len(claims)-1].Seq, Err: client.ErrTwoAgents}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(c *lane.Config) { c.Concurrency = 3 })
			claim := b.ready()
			b.grant(claim.Seq, b.stub(1), b.stub(2))
			b.kept("lease1")
			got := b.step(e(b))
			if end := one[lane.Ended](b, got); !end.TwoAgents || end.Revoked || len(of[lane.Abort](got)) != 1 || len(of[lane.Drop](got)) != 1 {
				t.Errorf("%s", names(got))
			}
			if note := one[lane.Note](b, got); note.What != lane.NoteTwoAgents || !errors.Is(note.Err, client.ErrTwoAgents) {
				t.Errorf("note %+v", note)
			}
			if len(of[lane.Send](got))+len(of[lane.Claim](got))+len(of[lane.Beat](got))+len(of[lane.Release](got)) > 0 {
				t.Errorf("%s", names(got))
			}
			if after := b.step(lane.WorkDone{Lease: "lease2", End: lane.WorkKept}); len(after) > 0 {
				t.Errorf("afterwards %s", names(after))
			}
		})
	}
}

func TestSites(t *testing.T) {
	other, stranger := newSite(t), newSite(t)
	otherID := ai.KeyID(other.Fingerprint().String())
	b := newBench(t, func(c *lane.Config) { c.Sites[otherID] = other })
	with := func(sites map[ai.KeyID]ai.PublicIdentity) func(*ai.HeartbeatResponse) {
		return func(r *ai.HeartbeatResponse) { r.Sites = sites }
	}
	next := func(sites map[ai.KeyID]ai.PublicIdentity) []lane.Action {
		t.Helper()
		b.wait(12 * time.Second)
		beats := of[lane.Beat](b.log)
		return b.beatDone(beats[len(beats)-1].Seq, with(sites))
	}
	notes := func(actions []lane.Action) (s []string) {
		for _, n := range of[lane.Note](actions) {
			s = append(s, string(n.What))
		}
		return s
	}
	mine, theirs := ai.PublicIdentityOf(b.site), ai.PublicIdentityOf(other)
	beat := one[lane.Beat](b, b.step(lane.Offered{Offers: offers}))
	got := b.beatDone(beat.Seq, with(map[ai.KeyID]ai.PublicIdentity{b.id: mine, otherID: theirs, "X": theirs, ai.KeyID(stranger.Fingerprint().String()): ai.PublicIdentityOf(stranger)}))
	if n := notes(got); !slices.Equal(n, []string{"site-pending", "site-key-changed"}) {
		t.Errorf("notes %v", n)
	}
	if s := b.m.Status().Serving; len(s) != 2 || slices.Contains(s, "X") {
		t.Errorf("serves %v", s)
	}
	claim := one[lane.Claim](b, got)
	j1, j2 := b.stub(1), b.stub(2, func(s *ai.ClaimedStub) { s.Site = otherID })
	b.grant(claim.Seq, j1, j2)
	// Another key under an approved name: served on under the approved key.
	got = next(map[ai.KeyID]ai.PublicIdentity{b.id: theirs, otherID: theirs})
	if n := notes(got); !slices.Equal(n, []string{"site-key-changed"}) || len(b.m.Status().Serving) != 2 {
		t.Errorf("notes %v, serves %v", n, b.m.Status().Serving)
	}
	// A site that leaves: its work stops and goes back.
	got = next(map[ai.KeyID]ai.PublicIdentity{b.id: mine})
	if r := one[lane.Release](b, got); r.Reason != ai.ReleaseRevoked || !slices.Equal(r.Grants, []ai.Grant{grantOf(j2)}) || one[lane.Abort](b, got).Lease != j2.Lease.ID {
		t.Errorf("%s", names(got))
	}
	// A changed key after it left and came back is refused all the same.
	got = next(map[ai.KeyID]ai.PublicIdentity{b.id: mine, otherID: mine})
	if s := b.m.Status().Serving; !slices.Equal(s, []ai.KeyID{b.id}) {
		t.Errorf("serves %v: %s", s, names(got))
	}
	got = next(map[ai.KeyID]ai.PublicIdentity{})
	if n := notes(got); !slices.Contains(n, "serving-nothing") || len(b.m.Status().Serving) > 0 {
		t.Errorf("notes %v", n)
	}
	if got := b.wait(time.Minute); len(of[lane.Claim](got)) > 0 {
		t.Error("claims and serves nothing")
	}
}

// TestWorkEnds: how work that brought no result ends.
func TestWorkEnds(t *testing.T) {
	for end, reason := range map[lane.WorkEnd]ai.ReleaseReason{
		lane.WorkRefused: ai.ReleaseRefused, lane.WorkDown: ai.ReleaseBackendDown, lane.WorkGone: "",
	} {
		b := newBench(t)
		claim := b.ready()
		b.grant(claim.Seq, b.stub(1))
		got := b.step(lane.WorkDone{Lease: "lease1", End: end, Err: match.ErrScope})
		releases := of[lane.Release](got)
		if reason == "" && len(releases) > 0 || reason != "" && (len(releases) != 1 || releases[0].Reason != reason) {
			t.Errorf("%d: %+v", end, releases)
		}
		if b.m.Status().Running != 0 || len(of[lane.Send](got)) > 0 {
			t.Errorf("%d: %s", end, names(got))
		}
	}
}

// TestDownDoesNotSpin: a job that met no model is not asked for again at once,
// also not by a claim that was held when it was given back.
func TestDownDoesNotSpin(t *testing.T) {
	b := newBench(t)
	claim := b.ready()
	got := b.grant(claim.Seq, b.stub(1))
	held := one[lane.Claim](b, got)
	got = b.step(lane.WorkDone{Lease: "lease1", End: lane.WorkDown})
	if q := one[lane.Quit](b, got); !q.Claim || q.Beat || len(of[lane.Claim](got)) > 0 {
		t.Errorf("%s", names(got))
	}
	b.step(lane.ReleaseDone{})
	if got := b.grant(held.Seq, b.stub(2)); len(of[lane.Work](got)) > 0 || one[lane.Release](b, got).Reason != ai.ReleaseShutdown {
		t.Errorf("a claim that was given up: %s", names(got))
	}
	if got := b.wait(8 * time.Second); len(of[lane.Claim](got)) > 0 {
		t.Error("asks again at once")
	}
	if got := b.wait(4 * time.Second); len(of[lane.Claim](got)) != 1 {
		t.Errorf("does not ask again: %s", names(got))
	}
}

// TestGreedyGrants: a server that grants more than was asked for, under leases
// that nobody can work under, or the same lease again, gets no work done and is
// asked less and less. One request at a time gives back.
func TestGreedyGrants(t *testing.T) {
	b := newBench(t)
	claim := b.ready()
	var many []ai.ClaimedStub
	for i := range 100 {
		many = append(many, b.stub(i))
	}
	got := b.grant(claim.Seq, many...)
	if len(of[lane.Work](got)) != 2 {
		t.Errorf("works on %d jobs", len(of[lane.Work](got)))
	}
	if r := one[lane.Release](b, got); r.Reason != ai.ReleaseShutdown || len(r.Grants) != ai.MaxClaim {
		t.Errorf("releases %d", len(r.Grants))
	}
	if got := b.wait(time.Second); len(of[lane.Release](got)) > 0 {
		t.Error("two releases are under way")
	}
	if r := one[lane.Release](b, b.step(lane.ReleaseDone{})); len(r.Grants) != 98-ai.MaxClaim {
		t.Errorf("releases %d", len(r.Grants))
	}

	for name, c := range map[string]struct {
		leaseMs int64
		stub    func(n int) ai.ClaimedStub
	}{
		"1 ms":              {1, func(n int) ai.ClaimedStub { return b.stub(n) }},
		"0 ms":              {0, func(n int) ai.ClaimedStub { return b.stub(n) }},
		"less than nothing": {-5, func(n int) ai.ClaimedStub { return b.stub(n) }},
		"another's":         {60_000, func(n int) ai.ClaimedStub { return b.stub(n, func(s *ai.ClaimedStub) { s.Owner = "bob" }) }},
		"the same again":    {60_000, func(int) ai.ClaimedStub { return b.stub(7) }},
		"a long id": {60_000, func(n int) ai.ClaimedStub {
			return b.stub(n, func(s *ai.ClaimedStub) { s.ID = ai.JobID(strings.Repeat("x", lane.MaxID+1)) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			claim := b.ready()
			b.grant(claim.Seq, b.stub(7))
			b.step(lane.WorkDone{Lease: "lease7", End: lane.WorkGone})
			claims, worked := 0, 0
			claimed := of[lane.Claim](b.log)
			next := claimed[len(claimed)-1]
			for end := b.now.Add(10 * time.Minute); b.now.Before(end); {
				claims++
				got := b.step(lane.ClaimDone{Seq: next.Seq, Answer: ai.ClaimResponse{Jobs: []ai.ClaimedStub{c.stub(1000 + claims)}, LeaseMs: c.leaseMs}})
				worked += len(of[lane.Work](got))
				for len(of[lane.Claim](got)) == 0 {
					b.step(lane.ReleaseDone{})
					got = b.wait(time.Second)
					for _, beat := range of[lane.Beat](got) {
						got = append(got, b.beatDone(beat.Seq)...)
					}
				}
				next = of[lane.Claim](got)[0]
			}
			if worked > 0 || claims > 60 {
				t.Errorf("%d claims in ten minutes, %d jobs worked on", claims, worked)
			}
		})
	}
}

// TestEndlessLease: a lease of all time is one of a day at most, and no overflow.
func TestEndlessLease(t *testing.T) {
	for _, ms := range []int64{9223372036855, 18446744073710, 1<<53 - 1} {
		b := newBench(t)
		claim := b.ready()
		s := b.stub(1, func(s *ai.ClaimedStub) { s.Lease.ExpiresAt = 1<<53 - 1 })
		got := b.step(lane.ClaimDone{Seq: claim.Seq, Answer: ai.ClaimResponse{Jobs: []ai.ClaimedStub{s}, LeaseMs: ms}})
		if len(of[lane.Work](got)) != 1 || b.m.Status().Running != 1 {
			t.Errorf("%d ms: %s", ms, names(got))
		}
		b.now = b.now.Add(25 * time.Hour)
		if got := b.step(lane.Tick{}); len(of[lane.Abort](got)) != 1 {
			t.Errorf("%d ms: works on after a day without renewal", ms)
		}
	}
}

// TestManySites: what a server says of sites is bounded, told once, and forgotten
// when it says so no more.
func TestManySites(t *testing.T) {
	b := newBench(t)
	beat := one[lane.Beat](b, b.step(lane.Tick{}))
	notes := 0
	for round := range 5 {
		sites := map[ai.KeyID]ai.PublicIdentity{}
		for i := range 3000 {
			sites[ai.KeyID(fmt.Sprint("site", round, i))] = ai.PublicIdentity{}
		}
		got := b.beatDone(beat.Seq, func(r *ai.HeartbeatResponse) { r.Sites = sites })
		notes += len(of[lane.Note](got))
		beats := of[lane.Beat](b.wait(12 * time.Second))
		beat = beats[len(beats)-1]
	}
	if notes > 5*65 {
		t.Errorf("%d notes", notes)
	}
}

// TestServerThatDoesNotHold: a server that answers at once is asked once per
// heartbeat, as stock peers are.
func TestServerThatDoesNotHold(t *testing.T) {
	b := newBench(t)
	claim := b.ready()
	count := 0
	for end := b.now.Add(10 * time.Minute); b.now.Before(end); {
		if got := b.grant(claim.Seq); len(of[lane.Claim](got)) > 0 {
			t.Fatal("asks again at once")
		}
		for {
			got := b.wait(time.Second)
			for _, beat := range of[lane.Beat](got) {
				got = append(got, b.beatDone(beat.Seq)...)
			}
			if claims := of[lane.Claim](got); len(claims) > 0 {
				claim = claims[0]
				break
			}
		}
		count++
	}
	if count < 45 || count > 80 {
		t.Errorf("%d claims in ten minutes", count)
	}
}
