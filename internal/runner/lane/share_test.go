package lane_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

// shared is the offer of the tests, as it is shared.
func shared(scope ai.OfferScope, change ...func(*lane.Offer)) lane.Offered {
	o := offers[0]
	o.Capability.OfferScope = scope
	for _, f := range change {
		f(&o)
	}
	return lane.Offered{Offers: []lane.Offer{o}}
}

// sharing brings a machine that shares its offer to where it has a claim under way.
func (b *bench) sharing(e lane.Offered, owners ...ai.Owner) lane.Claim {
	b.t.Helper()
	beat := one[lane.Beat](b, append(b.step(e), b.step(lane.Allowed{Owners: owners})...))
	return one[lane.Claim](b, b.beatDone(beat.Seq))
}

func others(owner ai.Owner, audience ai.Audience) func(*ai.ClaimedStub) {
	return func(s *ai.ClaimedStub) { s.Owner, s.Audience = owner, audience }
}

func roomy(c *lane.Config) { c.OthersUnits = 100_000 }

func scopesOf(capabilities []ai.Capability) string {
	var words []string
	for _, c := range capabilities {
		words = append(words, string(c.OfferScope))
	}
	return strings.Join(words, " ")
}

// TestOthersAreAdmittedByBothSides has what the asker wished against what the
// owner wished, written out (MUST AUDIENCE_BOTH_SIDES). Nobody is on the list but
// bob, whatever a server says (MUST NAMED_LOCAL_ALLOWLIST).
func TestOthersAreAdmittedByBothSides(t *testing.T) {
	metered := func(o *lane.Offer) { o.Cost = backend.Metered }
	paid := func(o *lane.Offer) { o.Cost, o.Spend = backend.Metered, match.Spend{Acknowledged: true} }
	subscription := func(o *lane.Offer) { o.Cost, o.Spend = backend.Subscription, match.Spend{Acknowledged: true} }
	for name, c := range map[string]struct {
		offer lane.Offered
		stub  func(*ai.ClaimedStub)
		want  error
	}{
		"listed, named, offered to named":       {shared(ai.OfferNamed), others("bob", ai.AudienceNamed), nil},
		"listed, public, offered to named":      {shared(ai.OfferNamed), others("bob", ai.AudiencePublic), nil},
		"listed, self, offered to named":        {shared(ai.OfferNamed), others("bob", ai.AudienceSelf), match.ErrOtherOwner},
		"listed, named, offered to self":        {shared(ai.OfferSelf), others("bob", ai.AudienceNamed), match.ErrScope},
		"listed, public, offered to self":       {shared(ai.OfferSelf), others("bob", ai.AudiencePublic), match.ErrScope},
		"unlisted, named, offered to named":     {shared(ai.OfferNamed), others("carol", ai.AudienceNamed), match.ErrNotLocallyAllowed},
		"unlisted, public, offered to named":    {shared(ai.OfferNamed), others("carol", ai.AudiencePublic), match.ErrNotLocallyAllowed},
		"almost listed":                         {shared(ai.OfferNamed), others("Bob", ai.AudienceNamed), match.ErrNotLocallyAllowed},
		"unlisted, named, offered to public":    {shared(ai.OfferPublic), others("carol", ai.AudienceNamed), nil},
		"unlisted, public, offered to public":   {shared(ai.OfferPublic), others("carol", ai.AudiencePublic), nil},
		"unlisted, self, offered to public":     {shared(ai.OfferPublic), others("carol", ai.AudienceSelf), match.ErrOtherOwner},
		"own, self":                             {shared(ai.OfferSelf), others("alice", ai.AudienceSelf), nil},
		"own, public":                           {shared(ai.OfferSelf), others("alice", ai.AudiencePublic), nil},
		"metered without consent":               {shared(ai.OfferPublic, metered), others("bob", ai.AudiencePublic), match.ErrNoConsent},
		"metered with consent":                  {shared(ai.OfferNamed, paid), others("bob", ai.AudienceNamed), nil},
		"metered with consent, unlisted":        {shared(ai.OfferNamed, paid), others("carol", ai.AudienceNamed), match.ErrNotLocallyAllowed},
		"metered, own":                          {shared(ai.OfferSelf, metered), others("alice", ai.AudienceSelf), nil},
		"subscription, whatever is wished":      {shared(ai.OfferPublic, subscription), others("bob", ai.AudiencePublic), match.ErrSubscription},
		"subscription, own":                     {shared(ai.OfferSelf, subscription), others("alice", ai.AudienceNamed), nil},
		"a medium question":                     {shared(ai.OfferPublic), func(s *ai.ClaimedStub) { s.Owner, s.Audience, s.SizeClass = "bob", ai.AudiencePublic, ai.SizeMedium }, nil},
		"a large question that may fit":         {shared(ai.OfferPublic), func(s *ai.ClaimedStub) { s.Owner, s.Audience, s.SizeClass = "bob", ai.AudiencePublic, ai.SizeLarge }, nil},
		"an owner's own, of the list's own kin": {shared(ai.OfferNamed), others("", ai.AudienceNamed), match.ErrNotLocallyAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, roomy)
			claim := b.sharing(c.offer, "bob")
			s := b.stub(1, c.stub)
			got := b.grant(claim.Seq, s)
			if _, err := b.m.Admit(s); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("Admit says %v, want %v", err, c.want)
			}
			if worked := len(of[lane.Work](got)) == 1; worked != (c.want == nil) {
				t.Errorf("worked on: %v, %s", worked, names(got))
			}
		})
	}
}

// TestOthersQuestionsAreBounded: a class of sizes none of which is taken is
// refused before anything is fetched, and the owner's own are not bounded by it.
func TestOthersQuestionsAreBounded(t *testing.T) {
	for most, refused := range map[int][]ai.SizeClass{
		100_000: nil, 64_001: nil, 64_000: {ai.SizeLarge}, 4_001: {ai.SizeLarge}, 4_000: {ai.SizeMedium, ai.SizeLarge}, 1: {ai.SizeMedium, ai.SizeLarge},
	} {
		b := newBench(t, func(c *lane.Config) { c.OthersUnits = most })
		b.sharing(shared(ai.OfferPublic))
		for _, class := range []ai.SizeClass{ai.SizeSmall, ai.SizeMedium, ai.SizeLarge} {
			s := b.stub(1, others("bob", ai.AudiencePublic))
			s.SizeClass = class
			if _, err := b.m.Admit(s); errors.Is(err, lane.ErrPayload) != slices.Contains(refused, class) {
				t.Errorf("%s of at most %d: %v", class, most, err)
			}
			s.Owner = "alice"
			if _, err := b.m.Admit(s); err != nil {
				t.Errorf("the owner's own, %s of at most %d: %v", class, most, err)
			}
		}
	}
}

// TestOwnerKeepsAPlace: others never have all places where there are two or more.
// While they have theirs the machine asks for its owner's jobs only, and at once
// for others' again when one of theirs ended, also where a claim is held.
func TestOwnerKeepsAPlace(t *testing.T) {
	b := newBench(t, roomy, func(c *lane.Config) { c.Concurrency = 3 })
	claim := b.sharing(shared(ai.OfferPublic))
	if got := scopesOf(claim.Request.Capabilities); got != "public" || claim.Request.Max != 3 {
		t.Fatalf("%q, %d", got, claim.Request.Max)
	}
	// A server that grants more is not obeyed.
	got := b.grant(claim.Seq, b.stub(1, others("bob", ai.AudiencePublic)), b.stub(2, others("carol", ai.AudiencePublic)), b.stub(3, others("dave", ai.AudiencePublic)))
	if len(of[lane.Work](got)) != 2 {
		t.Fatal(names(got))
	}
	if r := one[lane.Release](b, got); r.Reason != ai.ReleaseShutdown || len(r.Grants) != 1 || r.Grants[0].JobID != "job3" {
		t.Errorf("%+v", r)
	}
	claim = one[lane.Claim](b, got)
	if got := scopesOf(claim.Request.Capabilities); got != "self" || claim.Request.Max != 1 {
		t.Fatalf("%q, %d", got, claim.Request.Max)
	}
	// Heartbeats go on saying what is offered.
	if beat := one[lane.Beat](b, b.wait(300*time.Millisecond)); scopesOf(beat.Request.Capabilities) != "public" {
		t.Errorf("a heartbeat says %q", scopesOf(beat.Request.Capabilities))
	}
	got = b.step(lane.WorkDone{Lease: "lease1", End: lane.WorkGone})
	if again := one[lane.Claim](b, got); scopesOf(again.Request.Capabilities) != "public" || again.Request.Max != 2 || len(of[lane.Quit](got)) != 1 {
		t.Errorf("%s %+v", names(got), again)
	}

	// Of one place it can be had by anybody.
	b = newBench(t, roomy, func(c *lane.Config) { c.Concurrency = 1 })
	claim = b.sharing(shared(ai.OfferPublic))
	if got := b.grant(claim.Seq, b.stub(1, others("bob", ai.AudiencePublic))); len(of[lane.Work](got)) != 1 {
		t.Error(names(got))
	}
}

// TestOwnerIsAskedForFirst: where there is one place, the owner's own jobs are
// asked for after each job of others, before the next of those.
func TestOwnerIsAskedForFirst(t *testing.T) {
	b := newBench(t, roomy, func(c *lane.Config) { c.Concurrency = 1 })
	claim := b.sharing(shared(ai.OfferPublic))
	if got := scopesOf(claim.Request.Capabilities); got != "public" || claim.Wait == 0 {
		t.Fatalf("%q, %v", got, claim.Wait)
	}
	b.grant(claim.Seq, b.stub(1, others("bob", ai.AudiencePublic)))
	for i := 2; i < 5; i++ { // however many wait
		claim = one[lane.Claim](b, b.step(lane.WorkDone{Lease: ai.LeaseID(fmt.Sprint("lease", i-1)), End: lane.WorkGone}))
		if got := scopesOf(claim.Request.Capabilities); got != "self" || claim.Wait != 0 {
			t.Fatalf("%q, %v", got, claim.Wait)
		}
		claim = one[lane.Claim](b, b.grant(claim.Seq))
		if got := scopesOf(claim.Request.Capabilities); got != "public" || claim.Wait == 0 {
			t.Fatalf("%q, %v", got, claim.Wait)
		}
		b.grant(claim.Seq, b.stub(i, others("bob", ai.AudiencePublic)))
	}
	// An own one that waits runs next, and after it anybody's may.
	claim = one[lane.Claim](b, b.step(lane.WorkDone{Lease: "lease4", End: lane.WorkGone}))
	one[lane.Work](b, b.grant(claim.Seq, b.stub(5)))
	claim = one[lane.Claim](b, b.step(lane.WorkDone{Lease: "lease5", End: lane.WorkGone}))
	if got := scopesOf(claim.Request.Capabilities); got != "public" || claim.Wait == 0 {
		t.Errorf("%q, %v", got, claim.Wait)
	}
}

// TestFull: while nothing more may be spent on others the offer is its owner's
// alone, what runs goes on, and what a server grants all the same is for the
// ledger to judge.
func TestFull(t *testing.T) {
	b := newBench(t, roomy, func(c *lane.Config) { c.Concurrency = 4 })
	claim := b.sharing(shared(ai.OfferPublic))
	got := b.grant(claim.Seq, b.stub(1, others("bob", ai.AudiencePublic)))
	one[lane.Work](b, got)
	got = b.step(shared(ai.OfferPublic, func(o *lane.Offer) { o.Full = true }))
	if len(of[lane.Abort](got)) > 0 {
		t.Fatal("work was stopped: " + names(got))
	}
	if again := one[lane.Claim](b, got); scopesOf(again.Request.Capabilities) != "self" {
		t.Errorf("claims %q", scopesOf(again.Request.Capabilities))
	}
	if _, err := b.m.Admit(b.stub(2, others("bob", ai.AudiencePublic))); err != nil {
		t.Error(err)
	}
	got = b.step(shared(ai.OfferPublic))
	if again := one[lane.Claim](b, got); scopesOf(again.Request.Capabilities) != "public" {
		t.Errorf("claims %q", scopesOf(again.Request.Capabilities))
	}
}

// TestWishesReachWhatRuns: who is taken off the list, or an offer that is taken
// back, ends what others have running, and nothing of the owner's.
func TestWishesReachWhatRuns(t *testing.T) {
	for name, c := range map[string]struct {
		event lane.Event
		ends  string
	}{
		"nobody is on the list":         {lane.Allowed{}, "job1 job2"},
		"one is on the list":            {lane.Allowed{Owners: []ai.Owner{"carol"}}, "job1"},
		"offered to the owner":          {shared(ai.OfferSelf), "job1 job2"},
		"offered to everybody":          {shared(ai.OfferPublic), ""},
		"consent is withdrawn":          {shared(ai.OfferNamed, func(o *lane.Offer) { o.Cost = backend.Metered }), "job1 job2"},
		"the model is away":             {lane.Offered{}, ""},
		"another model took its place":  {shared(ai.OfferSelf, func(o *lane.Offer) { o.Capability.Model = "n" }), ""},
		"the same list":                 {lane.Allowed{Owners: []ai.Owner{"bob", "carol"}}, ""},
		"another backend, to the owner": {shared(ai.OfferSelf, func(o *lane.Offer) { o.Capability.Service = "other" }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, roomy, func(c *lane.Config) { c.Concurrency = 4 })
			claim := b.sharing(shared(ai.OfferNamed), "bob", "carol")
			b.grant(claim.Seq, b.stub(1, others("bob", ai.AudienceNamed)), b.stub(2, others("carol", ai.AudienceNamed)), b.stub(3))
			got := b.step(c.event)
			var ended []string
			for _, r := range of[lane.Release](got) {
				if r.Reason != ai.ReleaseRefused {
					t.Errorf("released as %s", r.Reason)
				}
				for _, g := range r.Grants {
					ended = append(ended, string(g.JobID))
				}
			}
			if strings.Join(ended, " ") != c.ends || len(of[lane.Abort](got)) != len(ended) {
				t.Errorf("%q ended, %s", ended, names(got))
			}
			if left := b.m.Status().Running; left != 3-len(ended) {
				t.Errorf("%d run", left)
			}
		})
	}
}

// TestResultsOfOthersAreHandedIn: what is computed was allowed when it ran.
func TestResultsOfOthersAreHandedIn(t *testing.T) {
	b := newBench(t, roomy)
	claim := b.sharing(shared(ai.OfferNamed), "bob")
	b.grant(claim.Seq, b.stub(1, others("bob", ai.AudienceNamed)))
	b.kept("lease1")
	if got := b.step(lane.Allowed{}); len(of[lane.Release](got)) > 0 || len(of[lane.Drop](got)) > 0 {
		t.Error(names(got))
	}
	if b.m.Status().Kept != 1 {
		t.Error(fmt.Sprint(b.m.Status()))
	}
}

// TestVainJobsDoNotSpin: a server whose jobs of others all come to nothing, each of
// which the ledger and the log keep, hands out ever fewer of them, while the owner's
// own are taken at once.
func TestVainJobsDoNotSpin(t *testing.T) {
	for name, end := range map[string]func(*bench, ai.ClaimedStub) []lane.Action{
		"refused": func(b *bench, s ai.ClaimedStub) []lane.Action {
			return b.step(lane.WorkDone{Lease: s.Lease.ID, End: lane.WorkRefused, Err: match.ErrCeiling})
		},
		"gone": func(b *bench, s ai.ClaimedStub) []lane.Action {
			return b.step(lane.WorkDone{Lease: s.Lease.ID, End: lane.WorkGone})
		},
	} {
		b := newBench(t, roomy)
		b.sharing(shared(ai.OfferNamed), "bob")
		taken := 0
		answer := func(actions []lane.Action) {
			for n := 0; n < 1000; n++ {
				var next []lane.Action
				for _, a := range actions {
					switch a := a.(type) {
					case lane.Beat:
						next = append(next, b.beatDone(a.Seq)...)
					case lane.Claim:
						next = append(next, b.grant(a.Seq, b.stub(taken+10_000*n, others("bob", ai.AudienceNamed)))...)
					case lane.Work:
						taken++
						next = append(next, end(b, a.Stub)...)
					case lane.Release:
						next = append(next, b.step(lane.ReleaseDone{})...)
					}
				}
				if actions = next; len(actions) == 0 {
					return
				}
			}
			t.Fatalf("%s: it never rests, and took %d", name, taken)
		}
		answer(b.log[len(b.log)-1:])
		for range 6000 { // ten minutes
			answer(b.wait(100 * time.Millisecond))
		}
		if taken < 10 || taken > 60 {
			t.Errorf("%s: %d were taken", name, taken)
		}
	}
}

// TestVainJobsOfOthersKeepNoOwn: while others' jobs come to nothing the owner's own
// is asked for at once, and others' again afterwards.
func TestVainJobsOfOthersKeepNoOwn(t *testing.T) {
	b := newBench(t, roomy, func(c *lane.Config) { c.Concurrency = 3 })
	claim := b.sharing(shared(ai.OfferNamed), "bob")
	for n := range 5 {
		claim = one[lane.Claim](b, b.grant(claim.Seq, b.stub(n, others("bob", ai.AudienceNamed))))
		b.step(lane.WorkDone{Lease: ai.LeaseID(fmt.Sprint("lease", n)), End: lane.WorkGone})
	}
	// Also by the claim that was held already.
	got := b.grant(claim.Seq, b.stub(10))
	if len(of[lane.Work](got)) != 1 {
		t.Fatalf("the owner's own waits: %s", names(got))
	}
	if q := one[lane.Claim](b, got); scopesOf(q.Request.Capabilities) != "self" {
		t.Errorf("asks for %s", scopesOf(q.Request.Capabilities))
	}
	if q := of[lane.Claim](b.wait(2 * time.Second)); len(q) == 0 || scopesOf(q[len(q)-1].Request.Capabilities) != "named" {
		t.Errorf("others are not asked for again: %+v", q)
	}
}
