package storetest

import (
	"testing"
	"time"

	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// scene is a store with a device of alice's, which runs others' jobs too, and a
// job of hers.
type scene struct {
	*fixture
	dev   ai.RunnerID
	claim site.Claim // a claim of the device
	grant ai.Grant   // of the job, once it is held
}

func newScene(t *testing.T, e Engine) *scene {
	t.Helper()
	s := &scene{fixture: newFixture(t, e)}
	s.dev = s.device("alice", 1)
	s.claim = s.order(s.dev, 4)
	s.enqueue("a", "alice")
	return s
}

// hold lets the device hold the job.
func hold(s *scene) { _, s.grant = s.claimOne(s.dev) }

// What a watcher waits for.
func theJob(*scene) site.Watch      { return site.Watch{Jobs: []ai.JobID{"x", "a"}} }
func theEnds(*scene) site.Watch     { return site.Watch{Ended: true} }
func theDevice(s *scene) site.Watch { return site.Watch{Runner: s.dev} }
func theClaim(s *scene) site.Watch {
	return site.Watch{Runner: s.dev, Claim: &s.claim, Owner: "alice"}
}

// unspoken are the audiences of versions that have no word for public.
var unspoken = []ai.Audience{ai.AudienceSelf, ai.AudienceNamed}

// told is a claim of a device that can be told of these audiences.
func told(audiences []ai.Audience) func(*scene) site.Watch {
	return func(s *scene) site.Watch {
		s.claim.Audiences = audiences
		return theClaim(s)
	}
}

// What happens.
func lapse(s *scene) error { s.now += 2 * Minute; s.sweep(); return nil }

func giveBack(s *scene) error { s.release(s.dev, false, s.grant); return nil }

func finish(s *scene) error {
	_, err := s.complete(s.dev, s.grant, ai.DispositionOK)
	return err
}

func cancel(s *scene) error {
	_, err := s.jobs.Cancel(s.ctx(), site.CancelRequest{ID: "a", Now: s.now})
	return err
}

func pause(s *scene) error {
	_, err := s.jobs.Renew(s.ctx(), site.Renewal{RunnerID: s.dev, Lease: leaseFor, IssuedAt: s.now, Version: "1", Paused: true, Now: s.now})
	return err
}

func revoke(s *scene) error {
	_, err := s.devs.Revoke(s.ctx(), s.dev, s.now)
	return err
}

func ask(id ai.JobID, owner ai.Owner, change ...func(*site.NewJob)) func(*scene) error {
	return func(s *scene) error { s.enqueue(id, owner, change...); return nil }
}

// testWatch holds that every change that a watcher waits for gives it a signal.
func testWatch(t *testing.T, e Engine) {
	for _, test := range []struct {
		name   string
		before func(s *scene)
		watch  func(s *scene) site.Watch
		do     func(s *scene) error
	}{
		{"anything", nil, func(*scene) site.Watch { return site.Watch{} }, ask("b", "bob")},

		{"a job is granted", nil, theJob, func(s *scene) error { hold(s); return nil }},
		{"a job ends", hold, theJob, finish},
		{"a held job is to be canceled", hold, theJob, cancel},
		{"a waiting job is canceled", nil, theJob, cancel},
		{"a job is given back", hold, theJob, giveBack},
		{"a job's lease lapses", hold, theJob, lapse},
		{"a job expires", nil, theJob, func(s *scene) error { s.now += ai.Millis(2 * ttl.Milliseconds()); s.sweep(); return nil }},
		{"a job that it waits for fails", func(s *scene) { s.enqueue("b", "alice", after("a")) },
			func(*scene) site.Watch { return site.Watch{Jobs: []ai.JobID{"b"}} }, cancel},

		{"any job ends", hold, theEnds, finish},
		{"any job is canceled", nil, theEnds, cancel},

		{"a device is revoked", nil, theDevice, revoke},
		{"a device is paused", nil, theDevice, pause},
		{"a device is superseded", nil, theDevice, func(s *scene) error {
			p := pairing(1, s.now)
			p.UserCode, p.DeviceCode = "CODE-NEXT", [32]byte{7}
			if err := s.devs.StartPairing(s.ctx(), p); err != nil {
				return err
			}
			_, err := s.devs.Approve(s.ctx(), site.Approval{UserCode: p.UserCode, Owner: "alice", RunnerID: "next", Now: s.now})
			return err
		}},

		{"work: a job of the owner", nil, theClaim, ask("b", "alice")},
		{"work: a public job", nil, theClaim, ask("b", "bob", audience(ai.AudiencePublic))},
		{"work: a public job, for one that can be told of it", nil, told(ai.Audiences()), ask("b", "bob", audience(ai.AudiencePublic))},
		{"work: a public job of the owner", nil, theClaim, ask("b", "alice", audience(ai.AudiencePublic))},
		{"work: a public job of the owner, by a device for its owner", func(s *scene) { s.claim.Offers = []site.KindOffer{offer(ai.KindGenerate, ai.OfferSelf)} },
			theClaim, ask("b", "alice", audience(ai.AudiencePublic))},
		{"work: a job of the owner, for one that cannot be told of all", nil, told(unspoken), ask("b", "alice")},
		{"work: another's job, for one that cannot be told of all", nil, told(unspoken), ask("b", "bob", audience(ai.AudienceNamed))},
		{"work: a job for all who named its owner", nil, theClaim, ask("b", "bob", audience(ai.AudienceNamed))},
		{"work: a job that names the owner", nil, theClaim, ask("b", "bob", audience(ai.AudienceNamed, "carol", "alice"))},
		{"work: a job is given back", hold, theClaim, giveBack},
		{"work: a lease lapses", hold, theClaim, lapse},
		{"work: what a job waits for is done", func(s *scene) { hold(s); s.enqueue("b", "alice", after("a")) }, theClaim, finish},
		{"work: the same request is granted something", nil, theClaim, func(s *scene) error {
			got, err := s.jobs.Claim(s.ctx(), s.claim)
			if len(got.Jobs) != 1 {
				t.Errorf("granted %v", ids(got.Jobs))
			}
			return err
		}},
		{"work: the device is paused", nil, theClaim, pause},
		{"work: the device is revoked", nil, theClaim, revoke},

		{"another process asks", nil, theClaim, func(s *scene) error {
			other, err := e.Open(s.dir)
			if err != nil {
				return err
			}
			defer other.Close()
			_, _, err = other.Jobs().Enqueue(s.ctx(), Job("b", "alice", s.now))
			s.sweep() // by which this one hears of it
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newScene(t, e)
			if test.before != nil {
				test.before(s)
			}
			changed, stop := s.store.Watch(test.watch(s))
			defer stop()
			select { // what was before
			case <-changed:
			default:
			}
			if err := test.do(s); err != nil {
				t.Fatal(err)
			}
			select {
			case <-changed:
			case <-time.After(10 * time.Second):
				t.Error("no signal")
			}
			stop()
			stop() // twice is safe
			s.enqueue("last", "alice")
		})
	}
}
