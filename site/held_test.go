package site_test

import (
	"context"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/sqlite"
	"github.com/allodhq/allod/wire/ai"
)

// TestHeldClaimWakes holds a claim in a clock of its own while a job becomes
// claimable in one of the ways there are. The answer comes with the job: at once,
// or with the next sweep where nothing else tells of it. The wait itself ends long
// after.
func TestHeldClaimWakes(t *testing.T) {
	const sweep = 1100 * time.Millisecond
	type stage struct {
		*house
		waits *peer // has the claim held
		works *peer // another device of the same person
		lease ai.Grant
	}
	works := func(s *stage) { _, s.lease = s.works.one() }
	for _, test := range []struct {
		name   string
		before func(s *stage)
		happen func(s *stage) error
		within time.Duration
	}{
		{"it is asked", nil, func(s *stage) error { s.enqueue(site.Question{ID: "a"}); return nil }, 0},
		{"it is given back", func(s *stage) { s.enqueue(site.Question{ID: "a"}); works(s) }, func(s *stage) error {
			body := write(s.t, codec.ReleaseRequest, ai.ReleaseRequest{RunnerID: s.works.runner, Leases: []ai.Grant{s.lease}, Reason: ai.ReleasePause})
			read(s.t, codec.ReleaseResponse, s.works.send(ai.EndpointRelease, body))
			return nil
		}, 0},
		{"its lease lapses", func(s *stage) { s.enqueue(site.Question{ID: "a"}); works(s) },
			func(*stage) error { time.Sleep(10 * time.Second); return nil }, sweep},
		{"what it waits for is done", func(s *stage) {
			s.enqueue(site.Question{ID: "first"})
			works(s)
			s.enqueue(site.Question{ID: "a", DependsOn: []ai.JobID{"first"}})
		}, func(s *stage) error { s.works.result(s.lease, ai.Answer{Text: "done"}); return nil }, 0},
		{"what it waits for is asked and done before it was known", func(s *stage) {
			s.enqueue(site.Question{ID: "a", DependsOn: []ai.JobID{"late"}})
		}, func(s *stage) error {
			// The waiting claim takes the first, so the other device has to be quicker.
			s.enqueue(site.Question{ID: "late", Owner: "bob"})
			p := paired(s.house, "bob")
			_, g := p.one()
			p.result(g, ai.Answer{Text: "done"})
			return nil
		}, 0},
		{"another process asks", nil, func(s *stage) error { return elsewhere(s.house, func(o *site.Site) error { return ask(o, "a") }) }, sweep},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t, func(c *site.Config) { c.Lease = 10 * time.Second })
				s := &stage{house: h, waits: paired(h, "alice"), works: paired(h, "alice")}
				if test.before != nil {
					test.before(s)
				}
				out := s.waits.hold(ai.EndpointClaim, s.waits.claimBody(1))
				stillHeld(t, out)
				if err := test.happen(s); err != nil {
					t.Fatal(err)
				}
				happened := time.Now()
				w := <-out
				if took := time.Since(happened); took > test.within {
					t.Errorf("the answer came %s later", took)
				}
				if got := read(t, codec.ClaimResponse, w); len(got.Jobs) != 1 || got.Jobs[0].ID != "a" {
					t.Errorf("granted %v", got.Jobs)
				}
			})
		})
	}
}

// TestHeldClaimsOnlyLook counts what is written while claims are held: one write
// for each job that is asked, whomever it wakes, and one for its claim.
func TestHeldClaimsOnlyLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		alice, bob := paired(h, "alice"), paired(h, "bob")
		writes := func() float64 { return h.store.(*sqlite.Store).Number("writes_total") }
		before := writes()
		held := []chan *httptest.ResponseRecorder{alice.hold(ai.EndpointClaim, alice.claimBody(1)), bob.hold(ai.EndpointClaim, bob.claimBody(1))}
		for _, out := range held {
			stillHeld(t, out)
		}
		if n := writes() - before; n != 0 {
			t.Errorf("%v writes for claims that wait", n)
		}
		h.enqueue(site.Question{ID: "a", Owner: "alice"})
		read(t, codec.ClaimResponse, <-held[0])
		stillHeld(t, held[1])
		if n := writes() - before; n != 2 {
			t.Errorf("%v writes for a job and its claim", n)
		}
	})
}

// TestHeldClaimRepeated sends a claim twice, as after a lost connection that the
// site has not noticed. Both get the one grant there is.
func TestHeldClaimRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		p := paired(h, "alice")
		body := p.claimBody(1)
		sign := p.signed(ai.EndpointClaim, body)
		first := make(chan *httptest.ResponseRecorder, 2)
		for range 2 {
			go func() { first <- h.post(string(ai.EndpointClaim), body, sign, prefer(20)) }()
		}
		stillHeld(t, first)
		h.enqueue(site.Question{ID: "a"})
		begin := time.Now()
		var leases [2]ai.LeaseID
		for i := range leases {
			got := read(t, codec.ClaimResponse, <-first)
			if len(got.Jobs) != 1 {
				t.Fatalf("granted %v", got.Jobs)
			}
			leases[i] = got.Jobs[0].Lease.ID
		}
		if took := time.Since(begin); leases[0] != leases[1] || took > 0 {
			t.Errorf("leases %v, after %s", leases, took)
		}
	})
}

// TestHeldHeartbeatWakes holds a heartbeat until there is something to say of the
// job that it names.
func TestHeldHeartbeatWakes(t *testing.T) {
	for _, test := range []struct {
		name         string
		happen       func(h *house, p *peer, g ai.Grant) error
		cancel, lost int
		within       time.Duration
	}{
		{"the job is to be canceled", func(h *house, _ *peer, _ ai.Grant) error {
			_, err := h.site.Jobs.Cancel(context.Background(), "a")
			return err
		}, 1, 0, 0},
		{"the lease lapses", func(*house, *peer, ai.Grant) error { time.Sleep(10 * time.Second); return nil }, 0, 1, 1100 * time.Millisecond},
		{"the job was given back", func(_ *house, p *peer, g ai.Grant) error {
			body := write(p.h.t, codec.ReleaseRequest, ai.ReleaseRequest{RunnerID: p.runner, Leases: []ai.Grant{g}, Reason: ai.ReleasePause})
			read(p.h.t, codec.ReleaseResponse, p.send(ai.EndpointRelease, body))
			return nil
		}, 0, 1, 0},
		{"another process cancels", func(h *house, _ *peer, _ ai.Grant) error {
			return elsewhere(h, func(o *site.Site) error { _, err := o.Jobs.Cancel(context.Background(), "a"); return err })
		}, 1, 0, 1100 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t, func(c *site.Config) { c.Lease = 10 * time.Second })
				p := paired(h, "alice")
				h.enqueue(site.Question{ID: "a"})
				_, g := p.one()
				out := p.hold(ai.EndpointHeartbeat, p.beatBody(g))
				stillHeld(t, out)
				h.enqueue(site.Question{ID: "b"}) // which is no news for a heartbeat
				stillHeld(t, out)
				if err := test.happen(h, p, g); err != nil {
					t.Fatal(err)
				}
				happened := time.Now()
				got := read(t, codec.HeartbeatResponse, <-out)
				if took := time.Since(happened); took > test.within {
					t.Errorf("the answer came %s later", took)
				}
				if len(got.Cancel) != test.cancel || len(got.Lost) != test.lost {
					t.Errorf("heartbeat %+v", got)
				}
			})
		})
	}
}

// hold sends a request that may be held for 20 seconds.
func (p *peer) hold(endpoint ai.Endpoint, body []byte) chan *httptest.ResponseRecorder {
	out := make(chan *httptest.ResponseRecorder, 1)
	go func() { out <- p.send(endpoint, body, prefer(20)) }()
	return out
}

// stillHeld waits until nothing moves any more, in a bubble.
func stillHeld(t *testing.T, out chan *httptest.ResponseRecorder) {
	t.Helper()
	synctest.Wait()
	select {
	case w := <-out:
		t.Fatalf("the request was not held: %d %s", w.Code, w.Body)
	default:
	}
}

// elsewhere does something at another site on the same file, as another process
// would.
func elsewhere(h *house, do func(o *site.Site) error) error {
	store, err := sqlite.Open(context.Background(), sqlite.Config{Path: filepath.Join(h.dir, "site.db")})
	if err != nil {
		return err
	}
	o, err := site.Open(context.Background(), site.Config{Store: store, CloseStore: true, Keys: h.keys, Clock: h.now})
	if err != nil {
		return err
	}
	if err := do(o); err != nil {
		return err
	}
	return o.Close()
}

func ask(s *site.Site, id ai.JobID) error {
	_, err := s.Jobs.Enqueue(context.Background(), site.Question{ID: id, Owner: "alice", Payload: ai.Generate{Prompt: "p"}})
	return err
}
