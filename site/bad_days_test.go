package site_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// TestHostileBodies sends each endpoint, rightly signed, what no honest device
// sends. Each is refused as bad input by a wire error that repeats nothing of it,
// and afterwards everything is as it was.
func TestHostileBodies(t *testing.T) {
	h := newHouse(t)
	p := paired(h, "alice")
	held := h.enqueue(site.Question{Payload: ai.Generate{Prompt: "held"}})
	_, g := p.one()
	waiting := h.enqueue(site.Question{Payload: ai.Generate{Prompt: "waiting"}})

	const canary = "canary-3f0c"
	good := map[ai.Endpoint][]byte{
		ai.EndpointClaim: p.claimBody(1), ai.EndpointFetch: p.fetchBody(g), ai.EndpointHeartbeat: p.beatBody(g),
		ai.EndpointResult:  p.resultBody(g, h.keys[0].Identity(), ai.Answer{Text: "a"}),
		ai.EndpointRelease: write(t, codec.ReleaseRequest, ai.ReleaseRequest{RunnerID: p.runner, Leases: []ai.Grant{g}, Reason: ai.ReleaseRefused}),
		ai.EndpointPair: write(t, codec.PairRequest, ai.PairRequest{Start: &ai.PairStartRequest{
			Daemon: ai.Daemon{Version: "1", Label: "l", Platform: ai.PlatformLinux}, Device: ai.PublicIdentityOf(p.keys.Identity()), Capabilities: p.caps,
		}}),
	}
	if len(good) != len(ai.Endpoints()) {
		t.Fatal("an endpoint is left out")
	}
	with := func(v string) string { return `{"protocolVersion":"0","` + canary + `":` + v + `}` }
	bodies := map[string]string{
		"nothing": "", "white space": " \n ", "a word": canary, "half an object": `{"protocolVersion":"0"`, "a list": `["` + canary + `"]`,
		"null": `null`, "a number": `1e400`, "a text": `"` + canary + `"`, "two objects": `{"protocolVersion":"0"}{}`,
		"the version alone": `{"protocolVersion":"0"}`, "the version twice": `{"protocolVersion":"0","protocolVersion":"0"}`,
		"an unknown member": with(`1`), "a byte that is no UTF-8": with("\"\xff\""), "half a surrogate": with(`"\ud800"`), "a BOM": "\ufeff" + with(`1`),
		"10,000 deep": with(strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)), "100,000 deep and open": with(strings.Repeat(`{"a":`, 40_000)),
		"100,000 values": with("[" + strings.Repeat("0,", 100_000) + "0]"), "a long name": `{"protocolVersion":"0","` + strings.Repeat("n", 200_000) + `":1}`,
		"1 MiB": with(`"` + strings.Repeat("x", 1<<20) + `"`), "40 MiB": with(`"` + strings.Repeat("x", 40<<20) + `"`),
		"a NUL": "{\"protocolVersion\":\"0\",\"a\x00\":1}", "comments": `{"protocolVersion":"0" /* c */}`,
	}
	for endpoint, body := range good {
		var whole map[string]json.RawMessage
		if err := json.Unmarshal(body, &whole); err != nil {
			t.Fatal(err)
		}
		for name := range whole { // each member of another type, empty, or gone
			if name == "protocolVersion" || name == "action" {
				continue
			}
			for what, v := range map[string]string{
				"null": `null`, "a text": `"` + canary + `"`, "a number": `-1`, "a large number": `1e308`, "a list": `["` + canary + `"]`,
				"an object": `{"` + canary + `":1}`, "true": `true`, "empty": `""`,
			} {
				changed := map[string]json.RawMessage{}
				for k, w := range whole {
					changed[k] = w
				}
				changed[name] = json.RawMessage(v)
				text, err := json.Marshal(changed)
				if err != nil {
					t.Fatal(err)
				}
				// Ids are any text, so another text is another's id and no hostile body.
				if what == "a text" && (strings.HasSuffix(name, "Id") || name == "daemonVersion") || what == "true" && name == "paused" {
					continue
				}
				bodies[fmt.Sprintf("%s: %s as %s", endpoint, name, what)] = string(text)
			}
			gone := map[string]json.RawMessage{}
			for k, w := range whole {
				if k != name {
					gone[k] = w
				}
			}
			text, err := json.Marshal(gone)
			if err != nil {
				t.Fatal(err)
			}
			bodies[fmt.Sprintf("%s without %s", endpoint, name)] = string(text)
		}
	}
	before := h.statesOf(held.ID, waiting.ID)
	for what, body := range bodies {
		for endpoint := range good {
			if of, _, ok := strings.Cut(what, ":"); ok && of != string(endpoint) && strings.Contains(what, " as ") {
				continue
			}
			if of, _, ok := strings.Cut(what, " without "); ok && of != string(endpoint) {
				continue
			}
			w := p.send(endpoint, []byte(body))
			if w.Code < 400 || w.Code >= 500 {
				t.Errorf("%s to %s: %d %s", what, endpoint, w.Code, w.Body)
				continue
			}
			if e := refusal(t, w); strings.Contains(w.Body.String(), canary) || e.Code != "bad-request" && e.Code != "unsupported-protocol-version" && e.Code != "forbidden" {
				t.Errorf("%s to %s: %s", what, endpoint, w.Body)
			}
		}
	}
	if after := h.statesOf(held.ID, waiting.ID); after != before {
		t.Errorf("the jobs were %s and are %s", before, after)
	}
	// And the site is well.
	if r := p.result(g, ai.Answer{Text: "a"}); !r.Accepted {
		t.Errorf("the held job's result: %+v", r)
	}
}

func (h *house) statesOf(ids ...ai.JobID) (s string) {
	h.t.Helper()
	for _, id := range ids {
		j, err := h.site.Jobs.Get(h.t.Context(), id)
		if err != nil {
			h.t.Fatal(err)
		}
		s += fmt.Sprintf("%s %s %v %d; ", id, j.State, j.Lease != nil, j.Attempts)
	}
	return s
}

// TestBodyThatEndsTooSoon: what was announced and did not come is no body.
func TestBodyThatEndsTooSoon(t *testing.T) {
	h := newHouse(t)
	p := paired(h, "alice")
	body := p.claimBody(1)
	w := p.send(ai.EndpointClaim, body, func(r *http.Request) {
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader(string(body[:9])), broken{}))
	})
	wantCode(t, "a body that breaks off", w, "bad-request")
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestClockJumps: the site's clock goes two hours forward and back. Nothing is
// lost, nothing is granted twice at a time, and what was refused for its time is
// taken when the clocks agree again.
func TestClockJumps(t *testing.T) {
	const jump = 2 * time.Hour
	h := newHouse(t, func(c *site.Config) { c.TTL = 12 * time.Hour })
	p := paired(h, "alice")
	held, waiting := h.enqueue(site.Question{}), h.enqueue(site.Question{})
	stubs := p.claim()
	if len(stubs) != 2 {
		t.Fatal("two jobs are there")
	}
	g := ai.Grant{JobID: held.ID, LeaseID: stubs[0].Lease.ID}
	body := p.beatBody(g)
	sign := p.signed(ai.EndpointHeartbeat, body)
	h.skew.Store(jump.Milliseconds())
	if err := h.site.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A device whose clock did not jump is told so, with the site's time.
	w := h.post("heartbeat", body, func(r *http.Request) { h.skew.Store(0); sign(r); h.skew.Store(jump.Milliseconds()) })
	wantCode(t, "a clock two hours behind", w, "clock-skew")
	// Both leases have lapsed by the site's clock: the jobs are there again.
	again := p.claim()
	if len(again) != 2 {
		t.Fatalf("after the jump %d jobs are there", len(again))
	}
	if beat := p.beat(g); len(beat.Lost) != 1 {
		t.Errorf("the old grant: %+v", beat)
	}
	h.skew.Store(0) // and back
	if err := h.site.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if jobs := p.claim(); len(jobs) != 0 {
		t.Errorf("%d jobs are granted a second time", len(jobs))
	}
	for _, s := range again {
		if r := p.result(ai.Grant{JobID: s.ID, LeaseID: s.Lease.ID}, ai.Answer{Text: "once"}); !r.Accepted {
			t.Errorf("%s: %+v", s.ID, r)
		}
	}
	for _, id := range []ai.JobID{held.ID, waiting.ID} {
		if j, err := h.site.Jobs.Get(t.Context(), id); err != nil || j.State != ai.StateOK {
			t.Errorf("%s is %s, %v", id, j.State, err)
		}
	}
	// Paired at a time that is now in the future, a device is still heard.
	if beat := p.beat(); len(beat.Sites) == 0 {
		t.Error("the device is not heard")
	}
}

// TestTwoPollsAtOnce: an approval that two polls collect at once is one device.
func TestTwoPollsAtOnce(t *testing.T) {
	h := newHouse(t, func(c *site.Config) { c.NoLimits = true })
	p := newPeer(h)
	started := p.start()
	if _, err := h.site.Devices.Approve(t.Context(), started.UserCode, "alice"); err != nil {
		t.Fatal(err)
	}
	const polls = 8
	got := make([]ai.PairPollResponse, polls)
	var all sync.WaitGroup
	for i := range polls {
		all.Go(func() { got[i] = p.poll(started.DeviceCode) })
	}
	all.Wait()
	for _, g := range got {
		if g.Approved == nil || g.Approved.RunnerID != got[0].Approved.RunnerID {
			t.Errorf("a poll got %+v", g)
		}
	}
	if list, err := h.site.Devices.List(t.Context(), "alice"); err != nil || len(list) != 1 {
		t.Errorf("alice has %d devices, %v", len(list), err)
	}
}
