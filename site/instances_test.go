package site_test

import (
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/instance"
)

// program is one running program that uses a peer's keys.
type program struct {
	*peer
	header string
}

func newProgram(p *peer) program {
	p.h.t.Helper()
	id, err := instance.New(rand.Reader)
	if err != nil {
		p.h.t.Fatal(err)
	}
	return program{p, id.String()}
}

// says names the program in a request.
func (p program) says(r *http.Request) { r.Header.Set(instance.Header, p.header) }

func (p program) heartbeat(change ...func(*http.Request)) *httptest.ResponseRecorder {
	return p.send(ai.EndpointHeartbeat, p.beatBody(), append(change, p.says)...)
}

// served and stopped check what a heartbeat is answered.
func (p program) served(what string) {
	p.h.t.Helper()
	if w := p.heartbeat(); w.Code != http.StatusOK || w.Header().Get(instance.Conflict) != "" {
		p.h.t.Fatalf("%s: %d %s", what, w.Code, w.Body)
	}
}

func (p program) stopped(what string) {
	p.h.t.Helper()
	p.refused(what, p.heartbeat())
	p.refused(what+", by a claim", p.send(ai.EndpointClaim, p.claimBody(1), p.says))
}

func (p program) refused(what string, w *httptest.ResponseRecorder) {
	p.h.t.Helper()
	wantCode(p.h.t, what, w, "forbidden")
	if got := w.Header().Get(instance.Conflict); got != instance.TwoAgents {
		p.h.t.Errorf("%s: the header says %q", what, got)
	}
}

// TestTwoAgents: two programs with one key that take turns are both refused, and
// only they are.
func TestTwoAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		p, other := paired(h, "alice"), newProgram(paired(h, "alice"))
		a, b := newProgram(p), newProgram(p)
		a.served("the first")
		time.Sleep(time.Second)
		b.served("the second, which may be a restart")
		time.Sleep(time.Second)
		b.served("the second goes on")
		time.Sleep(time.Second)
		a.stopped("the first again")
		b.stopped("the second then")
		newProgram(p).stopped("a third, as one that was started again")
		time.Sleep(5 * time.Minute)
		a.stopped("the first, minutes later")
		other.served("another device")
		p.beat() // and a program that does not say who it is
		if w := p.heartbeatOf("not an id"); w.Code != http.StatusOK {
			t.Errorf("a header that is none: %d %s", w.Code, w.Body)
		}

		// The owner pairs one of them anew.
		started := p.start()
		if _, err := h.site.Devices.Approve(t.Context(), started.UserCode, "alice"); err != nil {
			t.Fatal(err)
		}
		before := p.runner
		anew := &peer{h: h, keys: p.keys, caps: p.caps}
		anew.runner = p.poll(started.DeviceCode).Approved.RunnerID
		a = program{anew, a.header}
		if anew.runner == before {
			t.Fatal("the new pairing has the old id")
		}
		time.Sleep(time.Second)
		a.served("the one that was paired anew")
		if w := b.heartbeat(); w.Code == http.StatusOK {
			t.Error("the other is served")
		}
		time.Sleep(time.Second)
		a.served("the one that was paired anew, after the other asked")
	})
}

func (p *peer) heartbeatOf(header string) *httptest.ResponseRecorder {
	return program{p, header}.heartbeat()
}

// TestOneAgent: what looks like two programs and is none.
func TestOneAgent(t *testing.T) {
	for name, run := range map[string]func(h *house, p *peer){
		"restarts": func(h *house, p *peer) {
			for range 20 {
				a := newProgram(p)
				a.served("a restart")
				a.served("a restart goes on")
				time.Sleep(time.Second)
			}
		},
		"a request that was long on its way": func(h *house, p *peer) {
			a, b := newProgram(p), newProgram(p)
			a.served("the first")
			body := a.claimBody(1)
			late := a.signed(ai.EndpointClaim, body)
			time.Sleep(time.Second)
			b.served("the second")
			time.Sleep(time.Second)
			if w := p.h.post("claim", body, late, a.says); w.Code != http.StatusOK {
				h.t.Errorf("the late request: %d %s", w.Code, w.Body)
			}
			b.served("the second goes on")
		},
		"a request that was held": func(h *house, p *peer) {
			a, b := newProgram(p), newProgram(p)
			body := a.claimBody(1)
			out := make(chan *httptest.ResponseRecorder, 1)
			go func() { out <- p.send(ai.EndpointClaim, body, a.says, prefer(20)) }()
			synctest.Wait()
			time.Sleep(time.Second)
			b.served("the second")
			if w := <-out; w.Code != http.StatusOK {
				h.t.Errorf("the held request: %d %s", w.Code, w.Body)
			}
			b.served("the second goes on")
		},
		"one that took over for a while": func(h *house, p *peer) {
			a, b := newProgram(p), newProgram(p)
			a.served("the first")
			time.Sleep(time.Second)
			b.served("the second")
			time.Sleep(36 * time.Second)
			a.served("the first, long after the second ended")
			a.served("the first goes on")
		},
		"a program that does not say who it is": func(h *house, p *peer) {
			a := newProgram(p)
			for range 5 {
				a.served("one that says it")
				p.beat()
				time.Sleep(time.Second)
			}
		},
		"an id under a bad signature": func(h *house, p *peer) {
			a, b := newProgram(p), newProgram(p)
			a.served("the one")
			stranger := newPeer(h)
			stranger.runner = p.runner
			time.Sleep(time.Second)
			wantCode(h.t, "a stranger", program{stranger, b.header}.heartbeat(), "unauthorized")
			time.Sleep(time.Second)
			a.served("the one goes on")
			a.served("and on")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t)
				run(h, paired(h, "alice"))
			})
		})
	}
}

// TestManyAgents: three and more copies in turns are told as well, and so is one
// that slept.
func TestManyAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		p := paired(h, "alice")
		a, b, c := newProgram(p), newProgram(p), newProgram(p)
		for _, x := range []program{a, b, c} {
			x.served("the first time")
			time.Sleep(time.Second)
		}
		for _, x := range []program{a, b, c} {
			x.stopped("the second time")
		}

		p = paired(h, "alice")
		a, b = newProgram(p), newProgram(p)
		a.served("the one that will sleep")
		time.Sleep(2 * time.Minute)
		b.served("the one beside it")
		time.Sleep(time.Second)
		a.served("the one that slept, which may be new")
		time.Sleep(time.Second)
		b.stopped("the one beside it")
		a.stopped("the one that slept")
	})
}

// TestTwoAgentsEndHeldClaim: a claim that was held when the two were told apart is
// granted nothing.
func TestTwoAgentsEndHeldClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		p := paired(h, "alice")
		a, b := newProgram(p), newProgram(p)
		a.served("the first")
		time.Sleep(time.Second)
		body := b.claimBody(1)
		out := make(chan *httptest.ResponseRecorder, 1)
		go func() { out <- p.send(ai.EndpointClaim, body, b.says, prefer(20)) }()
		synctest.Wait()
		time.Sleep(time.Second)
		a.stopped("the first again")
		job := h.enqueue(site.Question{Owner: "alice", Payload: ai.Generate{Prompt: "for one of two"}})
		b.refused("the held claim", <-out)
		if got, err := h.site.Jobs.Get(t.Context(), job.ID); err != nil || got.Attempts != 0 {
			t.Errorf("job %+v, %v", got, err)
		}
	})
}

// TestTwoAgentsResult: what was done before is still taken.
func TestTwoAgentsResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		p := paired(h, "alice")
		h.enqueue(site.Question{Owner: "alice", Payload: ai.Generate{Prompt: "q"}})
		_, g := p.one()
		a, b := newProgram(p), newProgram(p)
		for _, x := range []program{a, b} {
			x.served("the first time")
			time.Sleep(time.Second)
		}
		a.stopped("the first again")
		if r := p.result(g, ai.Answer{Text: "done"}); !r.Accepted {
			t.Errorf("result %+v", r)
		}
	})
}
