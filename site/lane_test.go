package site_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/sqlite"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
	"github.com/allodhq/allod/wire/ai/protocol"
	"github.com/allodhq/allod/wire/ai/signing"
	"github.com/allodhq/allod/wire/ai/succession"
)

// TestLane carries one question from the app to the device and its answer back,
// and looks for both in everything that is stored.
func TestLane(t *testing.T) {
	const question, answer = "canary question 8d1f", "canary answer 53b0"
	h := newHouse(t)
	p := paired(h, "alice")
	job := h.enqueue(site.Question{Owner: "alice", Payload: ai.Generate{Prompt: question}})
	if kept, err := h.store.Jobs().Job(t.Context(), job.ID, true); err != nil || kept.Payload.Ciphertext == "" || strings.Contains(kept.Payload.Ciphertext, question) {
		t.Errorf("what is stored is not sealed: %+v, %v", kept.Payload, err)
	}
	stub, g := p.one()
	if stub.ID != job.ID || stub.Owner != "alice" || stub.Audience != ai.AudienceSelf || stub.SizeClass != ai.SizeSmall || stub.Streaming ||
		stub.Site != ai.KeyID(h.site.KeyID().String()) || stub.DeadlineAt != job.ClaimableAt+ai.Millis((15*time.Minute).Milliseconds()) {
		t.Errorf("stub %+v", stub)
	}
	if got := p.question(stub, g, h.keys[0].Identity()); got != question {
		t.Errorf("the device reads %q", got)
	}
	if beat := p.beat(g); len(beat.Lost)+len(beat.Cancel) > 0 || len(beat.Sites) != 1 || beat.Successions != nil {
		t.Errorf("heartbeat %+v", beat)
	}
	if r := p.result(g, ai.Answer{Text: answer}); !r.Accepted || r.State != "ok" {
		t.Errorf("result %+v", r)
	}
	if r := p.result(g, ai.Answer{Text: "another"}); r.Accepted || !r.Duplicate || r.State != "ok" {
		t.Errorf("result again %+v", r)
	}
	got, err := h.site.Jobs.Wait(t.Context(), job.ID, site.Wait{})
	if err != nil || got.Text() != answer || got.Fallback {
		t.Fatalf("answer %+v, %v", got, err)
	}
	want := ai.Provenance{Audience: ai.AudienceSelf, RunnerID: p.runner, RunnerOwner: "alice", BackendClass: backend.HTTP, Model: "m"}
	if *got.Provenance != want {
		t.Errorf("provenance %+v, want %+v", *got.Provenance, want)
	}
	if err := errors.Join(h.site.Close(), h.store.Close()); err != nil {
		t.Fatal(err)
	}
	defer h.open() // for the clean-up
	// The search must find what is planted, or it proves nothing.
	planted := filepath.Join(h.dir, "planted")
	if err := os.WriteFile(planted, []byte("..."+question+"..."), 0o600); err != nil {
		t.Fatal(err)
	}
	if where := grep(t, h.dir, question); len(where) != 1 || where[0] != planted {
		t.Errorf("the question stands in %v", where)
	}
	if where := grep(t, h.dir, answer); len(where) > 0 {
		t.Errorf("the answer stands in %v", where)
	}
}

func grep(t *testing.T, dir, text string) (where []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(content, []byte(text)) {
			where = append(where, path)
		}
	}
	return where
}

// TestOrderOfChecks sends requests in which everything after the named check is
// wrong as well: the first wrong thing decides the answer.
func TestOrderOfChecks(t *testing.T) {
	h := newHouse(t)
	p, other := paired(h, "alice"), paired(h, "alice")
	good := p.claimBody(1)
	unsigned := func(endpoint string, body []byte, change ...func(*http.Request)) *httptest.ResponseRecorder {
		return h.post(endpoint, body, change...)
	}
	get := func(r *http.Request) { r.Method = http.MethodGet }
	for _, path := range []string{"CLAIM", "claim//", "claim/x", "", "pair2", "../claim", "cl%61im"} {
		wantCode(t, "path "+path, unsigned(path, []byte("{"), get), "not-found")
	}
	w := unsigned("claim", []byte("{"), get)
	wantCode(t, "method", w, "bad-request")
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "POST" {
		t.Errorf("another method: %d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
	if w := p.send("claim", good, func(r *http.Request) { r.URL.Path += "/" }); w.Code != http.StatusOK {
		t.Errorf("one slash at the end: %d %s", w.Code, w.Body)
	}
	large := []byte(`{"protocolVersion":"9","x":"` + repeat("x", ai.MaxBody) + `"}`)
	w = unsigned("claim", large)
	wantCode(t, "size", w, "bad-request")
	if !strings.Contains(w.Body.String(), "larger") {
		t.Errorf("too large a body: %s", w.Body)
	}
	wantCode(t, "size that is not announced", unsigned("claim", large, func(r *http.Request) { r.ContentLength = -1 }), "bad-request")
	wantCode(t, "JSON", unsigned("claim", []byte(`{"protocolVersion":"9"`)), "bad-request")
	wantCode(t, "an empty body", unsigned("claim", nil), "bad-request")
	wantCode(t, "version", unsigned("claim", []byte(`{"protocolVersion":"9","x":1}`)), "unsupported-protocol-version")
	wantCode(t, "no version", unsigned("claim", []byte(`{"x":1}`)), "unsupported-protocol-version")
	bad := []byte(`{"protocolVersion":"0","x":1}`)
	wantCode(t, "signature present", unsigned("claim", bad), "unauthorized")
	for _, header := range []string{"X-Byollm-Runner", "X-Byollm-Issued-At", "X-Byollm-Signature"} {
		wantCode(t, "without "+header, p.send("claim", good, func(r *http.Request) { r.Header.Del(header) }), "unauthorized")
	}

	// Freshness before the look-up: a stale clock does not tell who exists.
	stale := func(runner string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("X-Byollm-Runner", runner)
			r.Header.Set("X-Byollm-Issued-At", "1750000000000")
			r.Header.Set("X-Byollm-Signature", "no signature")
		}
	}
	for _, runner := range []string{string(p.runner), "runner_unknown"} {
		e := refusal(t, unsigned("claim", bad, stale(runner)))
		if e.Code != "clock-skew" || e.MaxSkewMs != 120_000 || e.ServerTime == 0 {
			t.Errorf("stale: %+v", e)
		}
	}
	edge := func(by time.Duration) *httptest.ResponseRecorder {
		return p.send("claim", good, func(r *http.Request) {
			at := ai.MillisOf(h.now().Add(by))
			s, err := signing.Sign(p.keys.Signer(), signing.Request{Plane: signing.DaemonPlane, Endpoint: "claim", Body: good}, string(p.runner), at)
			if err != nil {
				t.Fatal(err)
			}
			for _, header := range s.Headers(signing.DaemonPlane) {
				r.Header.Set(header[0], header[1])
			}
		})
	}
	if w := edge(-110 * time.Second); w.Code != http.StatusOK {
		t.Errorf("within the window: %s", w.Body)
	}
	wantCode(t, "before the window", edge(-125*time.Second), "clock-skew")
	wantCode(t, "after the window", edge(125*time.Second), "clock-skew")

	// Unknown callers and bad signatures get the same bytes.
	unknown := p.send("claim", bad, func(r *http.Request) { r.Header.Set("X-Byollm-Runner", "runner_unknown") })
	forged := other.send("claim", bad, func(r *http.Request) { r.Header.Set("X-Byollm-Runner", string(p.runner)) })
	wantCode(t, "caller known", unknown, "unauthorized")
	wantCode(t, "signature", forged, "unauthorized")
	if unknown.Body.String() != forged.Body.String() || unknown.Code != forged.Code {
		t.Errorf("an unknown caller gets %s and a forged one %s", unknown.Body, forged.Body)
	}
	wantCode(t, "another endpoint's signature", h.post("claim", good, p.signed("fetch", good)), "unauthorized")
	wantCode(t, "another body's signature", h.post("claim", good, p.signed("claim", bad)), "unauthorized")

	// Schema, then the caller in the body, on every endpoint.
	for endpoint, body := range map[ai.Endpoint][]byte{
		"claim": p.claimBody(1), "fetch": p.fetchBody(ai.Grant{JobID: "j", LeaseID: "l"}), "heartbeat": p.beatBody(),
		"result":  p.resultBody(ai.Grant{JobID: "j", LeaseID: "l"}, h.keys[0].Identity(), ai.Cancellation{}),
		"release": write(t, codec.ReleaseRequest, ai.ReleaseRequest{RunnerID: p.runner, Leases: []ai.Grant{}, Reason: ai.ReleaseShutdown}),
	} {
		wantCode(t, string(endpoint)+" schema", p.send(endpoint, edit(t, edit(t, body, "canary", 1), "runnerId", string(other.runner))), "bad-request")
		wantCode(t, string(endpoint)+" caller", p.send(endpoint, edit(t, body, "runnerId", string(other.runner))), "forbidden")
	}

	// Revoked: after the signature, before the schema.
	if _, err := h.site.Devices.Revoke(t.Context(), p.runner); err != nil {
		t.Fatal(err)
	}
	for _, endpoint := range ai.Endpoints()[1:] {
		wantCode(t, string(endpoint)+" revoked", p.send(endpoint, bad), "revoked")
	}
	wantCode(t, "revoked with a bad signature", other.send("claim", bad, func(r *http.Request) { r.Header.Set("X-Byollm-Runner", string(p.runner)) }), "unauthorized")
}

// TestRevokedElsewhere revokes a device that the site has just heard of through
// another store on the same file, as another process would. Every endpoint knows
// at once, whatever else is wrong with the request (MUST REVOCATION_IMMEDIATE).
func TestRevokedElsewhere(t *testing.T) {
	h := newHouse(t)
	other, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(h.dir, "site.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, body := range []string{"good", "of another device", "bad"} {
		maker, grant := paired(h, "alice"), ai.Grant{JobID: "j", LeaseID: "l"}
		for endpoint, good := range map[ai.Endpoint][]byte{
			"claim": maker.claimBody(1), "fetch": maker.fetchBody(grant), "heartbeat": maker.beatBody(),
			"result":  maker.resultBody(grant, h.keys[0].Identity(), ai.Cancellation{}),
			"release": write(t, codec.ReleaseRequest, ai.ReleaseRequest{RunnerID: maker.runner, Leases: []ai.Grant{}, Reason: ai.ReleaseShutdown}),
		} {
			p := paired(h, "alice")
			good = edit(t, good, "runnerId", string(p.runner))
			if w := p.send("claim", p.claimBody(1)); w.Code != http.StatusOK {
				t.Fatalf("before: %d %s", w.Code, w.Body)
			}
			if _, err := other.Devices().Revoke(t.Context(), p.runner, ai.MillisOf(h.now())); err != nil {
				t.Fatal(err)
			}
			switch body {
			case "of another device":
				good = edit(t, good, "runnerId", "runner_another")
			case "bad":
				good = edit(t, good, "canary", 1)
			}
			wantCode(t, string(endpoint)+" with a body that is "+body, p.send(endpoint, good), "revoked")
		}
	}
}

func TestPairing(t *testing.T) {
	h := newHouse(t)
	p := newPeer(h)
	started := p.start()
	if len(started.DeviceCode) != 43 || len(started.UserCode) != 9 || started.UserCode[4] != '-' || started.PollIntervalMs != 2000 ||
		started.VerificationURL != "https://app.example/pair" || strings.ContainsAny(started.UserCode, "0O1IL5SUV") {
		t.Errorf("started %+v", started)
	}
	if got := p.poll(started.DeviceCode); got.Status != ai.PairPending || got.Approved != nil {
		t.Errorf("before the decision: %+v", got)
	}
	// People type codes in their own way.
	typed := strings.ToLower(strings.ReplaceAll(started.UserCode, "-", " "))
	pending, err := h.site.Devices.Pending(t.Context(), typed)
	if err != nil || pending.Device != p.keys.Identity() || pending.Daemon.Label != "laptop" {
		t.Errorf("pending %+v, %v", pending, err)
	}
	r, err := h.site.Devices.Approve(t.Context(), typed, "alice")
	if err != nil || !strings.HasPrefix(string(r.ID), "runner_") || r.Owner != "alice" {
		t.Errorf("approved %+v, %v", r, err)
	}
	for range 2 { // a lost answer costs nothing
		got := p.poll(started.DeviceCode)
		if got.Status != ai.PairApproved || got.Approved.RunnerID != r.ID || got.Approved.Owner != "alice" ||
			got.Approved.Sites[ai.KeyID(h.site.KeyID().String())] != ai.PublicIdentityOf(h.keys[0].Identity()) {
			t.Errorf("approved: %+v", got.Approved)
		}
	}
	denied := newPeer(h).start()
	if err := h.site.Devices.Deny(t.Context(), denied.UserCode); err != nil {
		t.Fatal(err)
	}
	if got := p.poll(denied.DeviceCode); got.Status != ai.PairDenied {
		t.Errorf("denied: %+v", got)
	}
	_, err = h.site.Devices.Approve(t.Context(), denied.UserCode, "alice")
	wantErr(t, "approving what is denied", err, site.ErrNoPairing)
	_, err = h.site.Devices.Approve(t.Context(), newPeer(h).start().UserCode, "a\nb")
	wantErr(t, "an owner with a line break", err, site.ErrQuestion)
	late := newPeer(h).start()
	h.skew.Store((10 * time.Minute).Milliseconds())
	if got := p.poll(late.DeviceCode); got.Status != ai.PairExpired {
		t.Errorf("late: %+v", got)
	}
	wantCode(t, "an unknown code", h.post("pair", write(t, codec.PairRequest, ai.PairRequest{Poll: &ai.PairPollRequest{DeviceCode: ai.DeviceCode(repeat("x", 43))}})), "not-found")

	// A sealing key that the identity did not sign is not paired.
	id := ai.PublicIdentityOf(p.keys.Identity())
	id.Encryption = newPeer(h).keys.Identity().Sealing().String()
	body := write(t, codec.PairRequest, ai.PairRequest{Start: &ai.PairStartRequest{
		Daemon: ai.Daemon{Version: "1", Label: "l", Platform: ai.PlatformLinux}, Device: id, Capabilities: p.caps,
	}})
	wantCode(t, "a foreign sealing key", h.post("pair", body), "bad-request")

	// Nor is more kept of a device that nobody has approved than it needs.
	model := func(name string) []ai.Capability {
		c := ollama
		c.Model = name
		return []ai.Capability{c}
	}
	for _, c := range []struct {
		what string
		caps []ai.Capability
		code ai.Code // empty where it is taken
	}{
		{"64 capabilities", slices.Repeat([]ai.Capability{ollama}, 64), ""},
		{"65 capabilities", slices.Repeat([]ai.Capability{ollama}, 65), "bad-request"},
		{"nearly 16 KiB", model(repeat("m", 16<<10-200)), ""},
		{"16 KiB", model(repeat("m", 16<<10)), "bad-request"},
		{"16 KiB in all", slices.Repeat(model(repeat("m", 1000)), 17), "bad-request"},
		{"what takes six bytes each", model(repeat("\x01", 3000)), "bad-request"},
	} {
		p := newPeer(h)
		if p.caps = c.caps; c.code == "" {
			p.start()
			continue
		}
		body := write(t, codec.PairRequest, ai.PairRequest{Start: &ai.PairStartRequest{
			Daemon: ai.Daemon{Version: "1", Label: "l", Platform: ai.PlatformLinux}, Device: ai.PublicIdentityOf(p.keys.Identity()), Capabilities: p.caps,
		}})
		wantCode(t, c.what, h.post("pair", body), c.code)
	}

	h.close()
	h.open(func(c *site.Config) { c.VerificationURL = "" })
	body = write(t, codec.PairRequest, ai.PairRequest{Start: &ai.PairStartRequest{
		Daemon: ai.Daemon{Version: "1", Label: "l", Platform: ai.PlatformLinux}, Device: ai.PublicIdentityOf(p.keys.Identity()), Capabilities: p.caps,
	}})
	wantCode(t, "a site without a page to approve on", h.post("pair", body), "forbidden")
}

func TestResults(t *testing.T) {
	h := newHouse(t)
	p, other := paired(h, "alice"), paired(h, "alice")
	to := h.keys[0].Identity()
	h.enqueue(site.Question{ID: "a"})
	_, g := p.one()
	ok := ai.Answer{Text: "t"}
	refused := func(what string, by *peer, body []byte, want ai.Code) *httptest.ResponseRecorder {
		t.Helper()
		w := by.send(ai.EndpointResult, body)
		wantCode(t, what, w, want)
		return w
	}
	refused("sealed to another site", p, p.resultBody(g, siteKeys(t).Identity(), ok), "bad-request")
	refused("another disposition than sealed", p, p.resultBody(g, to, ok, func(q *ai.ResultRequest) { q.Disposition = ai.DispositionError }), "bad-request")
	refused("sealed for another job", p, p.resultBody(ai.Grant{JobID: "b", LeaseID: g.LeaseID}, to, ok, func(q *ai.ResultRequest) { q.Grant = g }), "bad-request")
	refused("not base64", p, p.resultBody(g, to, ok, func(q *ai.ResultRequest) { q.Envelope.Ciphertext = "!" }), "bad-request")
	// Signed by another device than the one that holds the job.
	lifted := other.resultBody(g, to, ok, func(q *ai.ResultRequest) { q.RunnerID = p.runner })
	refused("sealed by another device", p, lifted, "bad-request")

	// Who does not hold the job gets the same bytes as for an unknown one, also
	// when the envelope is bad.
	unknown := ai.Grant{JobID: "unknown", LeaseID: "x"}
	same := refused("an unknown job", other, other.resultBody(unknown, to, ok), "not-found").Body.String()
	for what, body := range map[string][]byte{
		"another device that knows the grant":   other.resultBody(g, to, ok),
		"another grant":                         other.resultBody(ai.Grant{JobID: "a", LeaseID: "x"}, to, ok),
		"a bad envelope and an unknown job":     other.resultBody(unknown, siteKeys(t).Identity(), ok),
		"a bad envelope and a job that is held": other.resultBody(g, siteKeys(t).Identity(), ok),
	} {
		if got := refused(what, other, body, "not-found").Body.String(); got != same {
			t.Errorf("%s: %s, want the bytes of an unknown job", what, got)
		}
	}
	if w := other.send(ai.EndpointFetch, other.fetchBody(g)); w.Body.String() != same {
		t.Errorf("fetch by another device: %s", w.Body)
	}
	if j, err := h.site.Jobs.Get(t.Context(), "a"); err != nil || j.State != ai.StateClaimed {
		t.Errorf("after refusals: %+v, %v", j, err)
	}
	p.result(g, ai.Failure{Code: "timeout", Message: "m", Retryable: true})
	if got := refused("a finished job, by another device", other, other.resultBody(g, to, ok), "not-found").Body.String(); got != same {
		t.Errorf("a finished job: %s", got)
	}
	got, err := h.site.Jobs.Answer(t.Context(), "a")
	if err != nil || got.State != ai.StateError || got.Outcome != (ai.Failure{Code: "timeout", Message: "m", Retryable: true}) {
		t.Errorf("answer %+v, %v", got, err)
	}

	// A lapsed lease is refused before any sweep.
	h.enqueue(site.Question{ID: "late"})
	_, g = p.one()
	h.skew.Store(61_000)
	refused("a lapsed lease", p, p.resultBody(g, to, ok), "not-found")
	wantCode(t, "fetch under a lapsed lease", p.send(ai.EndpointFetch, p.fetchBody(g)), "not-found")
}

func TestCancelAndRelease(t *testing.T) {
	h := newHouse(t)
	p := paired(h, "alice")
	h.enqueue(site.Question{ID: "a"})
	_, g := p.one()
	if j, err := h.site.Jobs.Cancel(t.Context(), "a"); err != nil || !j.CancelRequested {
		t.Errorf("cancel: %+v, %v", j, err)
	}
	if beat := p.beat(g); len(beat.Cancel) != 1 || beat.Cancel[0] != g {
		t.Errorf("heartbeat %+v", beat)
	}
	p.result(g, ai.Cancellation{})
	if a, err := h.site.Jobs.Wait(t.Context(), "a", site.Wait{}); err != nil || a.State != ai.StateCanceled {
		t.Errorf("answer %+v, %v", a, err)
	}
	h.enqueue(site.Question{ID: "b"})
	_, g = p.one()
	release := write(t, codec.ReleaseRequest, ai.ReleaseRequest{RunnerID: p.runner, Leases: []ai.Grant{g, {JobID: "x", LeaseID: "x"}}, Reason: ai.ReleaseRefused})
	if got := read(t, codec.ReleaseResponse, p.send(ai.EndpointRelease, release)); len(got.Released) != 1 || got.Released[0] != "b" {
		t.Errorf("released %v", got)
	}
	if got := p.claim(); len(got) > 0 {
		t.Fatalf("a refused job is offered again: %v", got)
	}
	if _, err := h.site.Jobs.Cancel(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	_, err := h.site.Jobs.Wait(t.Context(), "b", site.Wait{})
	wantErr(t, "waiting for a canceled job", err, site.ErrEnded)
}

// TestHeld holds requests open until something happens.
func TestHeld(t *testing.T) {
	h := newHouse(t)
	p := paired(h, "alice")
	begin := func(endpoint ai.Endpoint, body []byte, change ...func(*http.Request)) chan *httptest.ResponseRecorder {
		out := make(chan *httptest.ResponseRecorder, 1)
		go func() { out <- p.send(endpoint, body, append(change, prefer(20))...) }()
		return out
	}
	answer := func(out chan *httptest.ResponseRecorder) *httptest.ResponseRecorder {
		t.Helper()
		select {
		case w := <-out:
			return w
		case <-time.After(10 * time.Second):
			t.Fatal("the request is still held")
			return nil
		}
	}
	// Whether the job comes before or after the request is held, it is granted.
	out := begin(ai.EndpointClaim, p.claimBody(1))
	h.enqueue(site.Question{ID: "a"})
	got := read(t, codec.ClaimResponse, answer(out))
	if len(got.Jobs) != 1 || got.Jobs[0].ID != "a" {
		t.Fatalf("a held claim got %v", got.Jobs)
	}
	g := ai.Grant{JobID: "a", LeaseID: got.Jobs[0].Lease.ID}
	out = begin(ai.EndpointHeartbeat, p.beatBody(g))
	if _, err := h.site.Jobs.Cancel(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if beat := read(t, codec.HeartbeatResponse, answer(out)); len(beat.Cancel) != 1 || beat.Cancel[0] != g {
		t.Errorf("a held heartbeat got %+v", beat)
	}
	p.result(g, ai.Cancellation{})

	// A pause ends a held claim with nothing, where there is a word for it.
	if codec.Version == protocol.Minimum() {
		out = begin(ai.EndpointClaim, p.claimBody(1))
		paused := write(t, codec.HeartbeatRequest, ai.HeartbeatRequest{RunnerID: p.runner, DaemonVersion: "1", Capabilities: p.caps, ActiveLeases: []ai.Grant{}, Paused: true})
		read(t, codec.HeartbeatResponse, p.send(ai.EndpointHeartbeat, paused))
		if got := read(t, codec.ClaimResponse, answer(out)); len(got.Jobs) > 0 {
			t.Errorf("paused: %v", got.Jobs)
		}
		p.beat()
	}

	// Nothing is granted to a caller that is gone.
	ctx, leave := context.WithCancel(t.Context())
	out = begin(ai.EndpointClaim, p.claimBody(1), func(r *http.Request) { *r = *r.WithContext(ctx) })
	leave()
	answer(out)
	h.enqueue(site.Question{ID: "b"})
	if j, err := h.site.Jobs.Get(t.Context(), "b"); err != nil || j.State != ai.StateQueued {
		t.Errorf("granted to nobody: %+v, %v", j, err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	p.send(ai.EndpointClaim, p.claimBody(1), func(r *http.Request) { *r = *r.WithContext(gone) })
	if j, err := h.site.Jobs.Get(t.Context(), "b"); err != nil || j.State != ai.StateQueued {
		t.Errorf("granted to a caller that was gone before: %+v, %v", j, err)
	}
	p.one()

	// Revocation ends it with that answer, and so does the end of the site.
	out = begin(ai.EndpointClaim, p.claimBody(1))
	second := paired(h, "alice")
	if _, err := h.site.Devices.Revoke(t.Context(), p.runner); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "a held claim of a revoked device", answer(out), "revoked")
	p = second
	out = begin(ai.EndpointHeartbeat, p.beatBody())
	if err := h.site.Close(); err != nil {
		t.Error(err)
	}
	if w := answer(out); w.Code != http.StatusOK {
		t.Errorf("at the end: %d %s", w.Code, w.Body)
	}
}

// TestRevocationEndsHeldRequests holds requests of a device in a clock of its own:
// the answer comes with the revocation, and not at the end of the wait.
func TestRevocationEndsHeldRequests(t *testing.T) {
	for _, endpoint := range []ai.Endpoint{ai.EndpointClaim, ai.EndpointHeartbeat} {
		t.Run(string(endpoint), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t)
				p := paired(h, "alice")
				body := p.beatBody()
				if endpoint == ai.EndpointClaim {
					body = p.claimBody(1)
				}
				out := make(chan *httptest.ResponseRecorder, 1)
				go func() { out <- p.send(endpoint, body, prefer(20)) }()
				synctest.Wait()
				select {
				case w := <-out:
					t.Fatalf("the request was not held: %d %s", w.Code, w.Body)
				default:
				}
				begin := time.Now()
				if _, err := h.site.Devices.Revoke(t.Context(), p.runner); err != nil {
					t.Fatal(err)
				}
				wantCode(t, "a held request of a revoked device", <-out, "revoked")
				if took := time.Since(begin); took > time.Second {
					t.Errorf("it was answered %s after the revocation", took)
				}
			})
		})
	}
}

func TestWait(t *testing.T) {
	h := newHouse(t)
	quick := site.Wait{Grace: 30 * time.Millisecond}
	h.enqueue(site.Question{ID: "nobody"})
	_, err := h.site.Jobs.Wait(t.Context(), "nobody", quick)
	wantErr(t, "without a device", err, site.ErrNoRunnerAvailable)

	// The fallback is labelled, knows why, and keeps a device from answering too.
	fallback := quick
	fallback.Fallback = func(_ context.Context, why site.NoRunner) (ai.Outcome, error) {
		return ai.Answer{Text: "instead, since " + string(why)}, nil
	}
	a, err := h.site.Jobs.Wait(t.Context(), "nobody", fallback)
	if err != nil || !a.Fallback || a.Provenance != nil || a.Text() != "instead, since no-runner-paired" || a.State != ai.StateCanceled {
		t.Errorf("fallback %+v, %v", a, err)
	}
	p := paired(h, "alice")
	if got := p.claim(); len(got) > 0 {
		t.Errorf("a job that a fallback answered is granted: %v", got)
	}

	// A job that waits for others is never without a runner.
	h.enqueue(site.Question{ID: "blocked", Owner: "bob", DependsOn: []ai.JobID{"later"}})
	_, err = h.site.Jobs.Wait(t.Context(), "blocked", site.Wait{Grace: time.Millisecond, Timeout: 200 * time.Millisecond})
	wantErr(t, "a blocked job", err, site.ErrTimeout)
	_, err = h.site.Jobs.Wait(t.Context(), "unknown", quick)
	wantErr(t, "an unknown job", err, site.ErrNoJob)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = h.site.Jobs.Wait(ctx, "blocked", quick)
	if err == nil {
		t.Error("a wait whose context has ended goes on")
	}

	// Ask is all of it in one call.
	answered := make(chan error, 1)
	go func() {
		a, err := h.site.Ask(t.Context(), site.Question{Owner: "alice", Payload: ai.Generate{Prompt: "p"}})
		if err == nil && a.Text() != "yes" {
			err = context.DeadlineExceeded
		}
		answered <- err
	}()
	got := read(t, codec.ClaimResponse, p.send(ai.EndpointClaim, p.claimBody(1), prefer(20)))
	if len(got.Jobs) != 1 {
		t.Fatalf("claimed %v", got.Jobs)
	}
	p.result(ai.Grant{JobID: got.Jobs[0].ID, LeaseID: got.Jobs[0].Lease.ID}, ai.Answer{Text: "yes"})
	if err := <-answered; err != nil {
		t.Errorf("ask: %v", err)
	}
}

func TestAvailability(t *testing.T) {
	h := newHouse(t)
	check := func(what string, kind ai.Kind, job match.Job, want site.Availability) {
		t.Helper()
		got, err := h.site.Jobs.Availability(t.Context(), kind, job)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", what, got, err, want)
		}
	}
	audience, scope := widest()
	alices, bobs := match.Job{Owner: "alice", Audience: ai.AudienceSelf}, match.Job{Owner: "bob", Audience: audience}
	check("nobody paired", ai.KindGenerate, alices, site.Availability{Why: site.NonePaired})
	p := paired(h, "alice")
	check("own", ai.KindGenerate, alices, site.Availability{Available: true, Candidates: 1})
	check("another kind", ai.KindChat, alices, site.Availability{Why: site.NoneCapable})
	check("another owner, offered to self", ai.KindGenerate, bobs, site.Availability{Why: site.NoneAdmitted})
	p.caps = []ai.Capability{{Kind: ai.KindGenerate, Service: "mine", BackendID: "ollama", BackendClass: backend.HTTP, Model: "m", OfferScope: scope}}
	p.beat()
	check("another owner, offered to all", ai.KindGenerate, bobs, site.Availability{Available: true, Candidates: 1})
	// What the table says of a backend counts, not what the device says.
	p.caps = []ai.Capability{{Kind: ai.KindGenerate, Service: "mine", BackendID: "claude-cli", BackendClass: backend.Process, Model: "m", OfferScope: scope}}
	p.beat()
	check("another owner, subscription", ai.KindGenerate, bobs, site.Availability{Why: site.NoneAdmitted})
	h.skew.Store(36_000)
	check("silent", ai.KindGenerate, alices, site.Availability{Why: site.NoneOnline})
	p.beat()
	check("heard of again", ai.KindGenerate, alices, site.Availability{Available: true, Candidates: 1})
	if _, err := h.site.Devices.Revoke(t.Context(), p.runner); err != nil {
		t.Fatal(err)
	}
	check("revoked", ai.KindGenerate, alices, site.Availability{Why: site.NonePaired})
}

// TestAvailabilityForOneself: whoever asks for their own devices hears of those
// alone, whatever other people have.
func TestAvailabilityForOneself(t *testing.T) {
	h := newHouse(t)
	check := func(what string, job match.Job, want site.Availability) {
		t.Helper()
		got, err := h.site.Jobs.Availability(t.Context(), ai.KindGenerate, job)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", what, got, err, want)
		}
	}
	audience, scope := widest()
	offer := func(kind ai.Kind) []ai.Capability {
		return []ai.Capability{{Kind: kind, Service: "mine", BackendID: "ollama", BackendClass: backend.HTTP, Model: "m", OfferScope: scope}}
	}
	var yes = site.Availability{Available: true, Candidates: 1}
	p := paired(h, "alice")
	p.caps = offer(ai.KindGenerate)
	p.beat()
	self, unsaid, wide := match.Job{Owner: "bob", Audience: ai.AudienceSelf}, match.Job{Owner: "bob"}, match.Job{Owner: "bob", Audience: audience}
	check("none of one's own", self, site.Availability{Why: site.NonePaired})
	check("none of one's own, no audience", unsaid, site.Availability{Why: site.NonePaired})
	check("nobody's", match.Job{Audience: ai.AudienceSelf}, site.Availability{Why: site.NonePaired})
	check("another's", wide, yes)

	q := paired(h, "bob")
	h.skew.Store(36_000)
	p.beat()
	check("one's own is silent", self, site.Availability{Why: site.NoneOnline})
	check("one's own is silent, another's is not", wide, yes)
	q.caps = offer(ai.KindChat)
	q.beat()
	check("one's own offers another kind", self, site.Availability{Why: site.NoneCapable})
	check("one's own offers another kind, another's does not", wide, yes)
	q.caps = offer(ai.KindGenerate)
	q.beat()
	check("one's own", self, yes)
	check("one's own, no audience", unsaid, yes)
	if _, err := h.site.Devices.Revoke(t.Context(), q.runner); err != nil {
		t.Fatal(err)
	}
	check("one's own is revoked", self, site.Availability{Why: site.NonePaired})
}

// TestClaimIsJudgedByItsOwnOffers declares one thing in heartbeats and another in
// the claim: the claim decides, and of two offers for a kind the first.
func TestClaimIsJudgedByItsOwnOffers(t *testing.T) {
	h := newHouse(t)
	p := paired(h, "bob")
	offer := func(kind ai.Kind, id backend.ID, class backend.Class, scope ai.OfferScope) ai.Capability {
		return ai.Capability{Kind: kind, Service: "mine", BackendID: id, BackendClass: class, Model: "m", OfferScope: scope}
	}
	audience, scope := widest()
	toAll := offer(ai.KindGenerate, "ollama", backend.HTTP, scope)
	p.caps = []ai.Capability{toAll}
	p.beat()
	h.enqueue(site.Question{ID: "a", Owner: "alice", Audience: audience})
	for what, caps := range map[string][]ai.Capability{
		"nothing":                   {},
		"another kind":              {offer(ai.KindChat, "ollama", backend.HTTP, scope)},
		"to its owner":              {offer(ai.KindGenerate, "ollama", backend.HTTP, ai.OfferSelf)},
		"to its owner, then to all": {offer(ai.KindGenerate, "ollama", backend.HTTP, ai.OfferSelf), toAll},
		"a subscription to all":     {offer(ai.KindGenerate, "claude-cli", backend.Process, scope)},
	} {
		p.caps = caps
		if got := p.claim(); len(got) > 0 {
			t.Errorf("offering %s got %v", what, got)
		}
	}
	p.caps = []ai.Capability{toAll, offer(ai.KindGenerate, "ollama", backend.HTTP, ai.OfferSelf)}
	if stub, _ := p.one(); stub.ID != "a" {
		t.Errorf("claimed %+v", stub)
	}
}

// TestAnothersDevice has a job run on a machine of somebody else: the app is told
// whose, and the device is not told who else might have run it.
func TestAnothersDevice(t *testing.T) {
	h := newHouse(t)
	p := paired(h, "bob")
	p.caps = []ai.Capability{{Kind: ai.KindGenerate, Service: "mine", BackendID: "ollama", BackendClass: backend.HTTP, Model: "m", OfferScope: ai.OfferNamed}}
	h.enqueue(site.Question{ID: "a", Owner: "alice", Audience: ai.AudienceNamed, AllowedOwners: []ai.Owner{"canary-carol", "bob"}})
	h.enqueue(site.Question{ID: "b", Owner: "alice", Audience: ai.AudienceNamed, AllowedOwners: []ai.Owner{"canary-carol"}})

	claimed := p.send(ai.EndpointClaim, p.claimBody(8))
	jobs := read(t, codec.ClaimResponse, claimed).Jobs
	if len(jobs) != 1 || jobs[0].ID != "a" {
		t.Fatalf("claimed %+v", jobs)
	}
	g := ai.Grant{JobID: "a", LeaseID: jobs[0].Lease.ID}
	silent := func(what, text string) {
		t.Helper()
		if strings.Contains(text, "carol") {
			t.Errorf("%s names somebody of the list: %s", what, text)
		}
	}
	if text := claimed.Body.String(); !strings.Contains(text, "alice") {
		t.Errorf("the claim does not say whose the job is, so the search shows nothing: %s", text)
	}
	silent("a claim", claimed.Body.String())
	silent("a fetch", p.send(ai.EndpointFetch, p.fetchBody(g)).Body.String())
	silent("a question", p.question(jobs[0], g, h.keys[0].Identity()))
	silent("a refusal", p.send(ai.EndpointFetch, p.fetchBody(ai.Grant{JobID: "b", LeaseID: "x"})).Body.String())
	silent("a heartbeat", p.send(ai.EndpointHeartbeat, p.beatBody(g)).Body.String())
	silent("a result", p.send(ai.EndpointResult, p.resultBody(g, h.keys[0].Identity(), ai.Answer{Text: "t"})).Body.String())

	got, err := h.site.Jobs.Answer(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	want := ai.Provenance{
		Audience: ai.AudienceNamed, RunnerID: p.runner, RunnerOwner: "bob", BackendClass: backend.HTTP, Model: "m", Untrusted: true,
	}
	if *got.Provenance != want {
		t.Errorf("provenance %+v, want %+v", *got.Provenance, want)
	}
}

// TestLapsedLeaseGoesToTheNext asks for work at the instant at which another
// device's lease lapses. The clock of the sweeps stands still meanwhile.
func TestLapsedLeaseGoesToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		p, next := paired(h, "alice"), paired(h, "alice")
		h.enqueue(site.Question{ID: "a"})
		_, g := p.one()
		if got := next.claim(); len(got) > 0 {
			t.Fatalf("a held job is granted again: %v", got)
		}
		h.skew.Store(time.Minute.Milliseconds())
		if _, again := next.one(); again.JobID != "a" || again.LeaseID == g.LeaseID {
			t.Errorf("claimed %v after %v", again, g)
		}
		if beat := p.beat(g); len(beat.Lost) != 1 || beat.Lost[0] != g {
			t.Errorf("heartbeat %+v", beat)
		}
	})
}

// TestKeepsHouse leaves the site alone: what is over ends by itself.
func TestKeepsHouse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.enqueue(site.Question{ID: "a", TTL: time.Minute})
		begin := time.Now()
		_, err := h.site.Jobs.Wait(t.Context(), "a", site.Wait{Grace: time.Hour})
		wantErr(t, "a job that nobody takes", err, site.ErrEnded)
		if took := time.Since(begin); took < time.Minute || took > time.Minute+5*time.Second {
			t.Errorf("it ended after %s", took)
		}
	})
}

func TestQuestions(t *testing.T) {
	h := newHouse(t)
	good := site.Question{Owner: "alice", Payload: ai.Generate{Prompt: "p"}}
	if j := h.enqueue(good); len(j.ID) != 32 || j.Audience != ai.AudienceSelf || j.TTL != 15*time.Minute {
		t.Errorf("defaults: %+v", j)
	}
	many := func(n int) (ids []ai.JobID) {
		for i := range n {
			ids = append(ids, ai.JobID(repeat("i", i+1)))
		}
		return ids
	}
	for what, change := range map[string]func(*site.Question){
		"no owner":        func(q *site.Question) { q.Owner = "" },
		"a long owner":    func(q *site.Question) { q.Owner = ai.Owner(repeat("o", 257)) },
		"a line break":    func(q *site.Question) { q.Owner = "a\nb" },
		"invalid UTF-8":   func(q *site.Question) { q.ID = "\xff" },
		"a long id":       func(q *site.Question) { q.ID = ai.JobID(repeat("i", 257)) },
		"no payload":      func(q *site.Question) { q.Payload = nil },
		"an empty prompt": func(q *site.Question) { q.Payload = ai.Generate{} },
		"a long prompt":   func(q *site.Question) { q.Payload = ai.Generate{Prompt: repeat("p", 1_000_001)} },
		"too large when sealed": func(q *site.Question) {
			q.Payload = ai.Chat{Messages: []ai.ChatMessage{
				{Role: ai.RoleUser, Content: repeat("\x01", ai.MaxTextUnits)}, {Role: ai.RoleUser, Content: repeat("\x01", ai.MaxTextUnits)},
				{Role: ai.RoleUser, Content: repeat("\x01", 696_500)},
			}}
		},
		"a prompt of no text":   func(q *site.Question) { q.Payload = ai.Generate{Prompt: "\xff"} },
		"no such audience":      func(q *site.Question) { q.Audience = "everyone" },
		"allowed, but self":     func(q *site.Question) { q.AllowedOwners = []ai.Owner{"bob"} },
		"an allowed nobody":     func(q *site.Question) { q.Audience, q.AllowedOwners = ai.AudienceNamed, []ai.Owner{""} },
		"itself":                func(q *site.Question) { q.ID, q.DependsOn = "me", []ai.JobID{"me"} },
		"too many dependencies": func(q *site.Question) { q.DependsOn = many(65) },
		"a negative life":       func(q *site.Question) { q.TTL = -1 },
		"a life too long":       func(q *site.Question) { q.TTL = 31 * 24 * time.Hour },
		"a deadline that is":    func(q *site.Question) { q.Deadline = h.now().Add(-time.Second) },
		"a deadline too far":    func(q *site.Question) { q.Deadline = h.now().Add(31 * 24 * time.Hour) },
	} {
		q := good
		change(&q)
		_, err := h.site.Jobs.Enqueue(t.Context(), q)
		wantErr(t, what, err, site.ErrQuestion)
	}
	for what, q := range map[string]site.Question{
		"a long id":         {ID: ai.JobID(repeat("i", 256))},
		"many dependencies": {DependsOn: many(64)},
		"a chat":            {Payload: ai.Chat{Messages: []ai.ChatMessage{{Role: ai.RoleUser}}}},
		"nobody allowed":    {Audience: ai.AudienceNamed, AllowedOwners: []ai.Owner{}},
		"the largest":       {Payload: ai.Generate{Prompt: repeat("日", ai.MaxTextUnits), System: repeat("\x01", ai.MaxTextUnits)}},
	} {
		q.Owner = "alice"
		if q.Payload == nil {
			q.Payload = good.Payload
		}
		if _, err := h.site.Jobs.Enqueue(t.Context(), q); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestKeyRing rotates the site's key: what was sealed to the old one still
// opens while the site has it, and is lost without it.
func TestKeyRing(t *testing.T) {
	h := newHouse(t)
	p := paired(h, "alice")
	old := h.keys[0]
	h.enqueue(site.Question{ID: "answered", Payload: ai.Generate{Prompt: "first"}})
	stub, g := p.one()
	if got := p.question(stub, g, old.Identity()); got != "first" {
		t.Errorf("read %q", got)
	}
	p.result(g, ai.Answer{Text: "old answer"})
	h.enqueue(site.Question{ID: "waiting", Payload: ai.Generate{Prompt: "second"}})

	h.close()
	h.keys = []key.SiteKeys{siteKeys(t), old}
	h.open()
	if beat := p.beat(); len(beat.Sites) != 2 {
		t.Errorf("a device is told of %d keys", len(beat.Sites))
	}
	stub, g = p.one()
	if got := p.question(stub, g, h.keys[0].Identity()); got != "second" {
		t.Errorf("read %q", got)
	}
	if a, err := h.site.Jobs.Answer(t.Context(), "answered"); err != nil || a.Text() != "old answer" {
		t.Errorf("answer %+v, %v", a, err)
	}
	p.result(g, ai.Answer{Text: "new answer"})

	h.close()
	h.keys = h.keys[:1]
	h.open()
	_, err := h.site.Jobs.Answer(t.Context(), "answered")
	wantErr(t, "without the old key", err, site.ErrSealed)
	if a, err := h.site.Jobs.Answer(t.Context(), "waiting"); err != nil || a.Text() != "new answer" {
		t.Errorf("answer %+v, %v", a, err)
	}
}

// TestSuccessions: each key names the one before it in the list, whatever it has
// twice, and of very many the oldest are left out. A version without the word is
// told of the keys alone.
func TestSuccessions(t *testing.T) {
	h := newHouse(t)
	p := paired(h, "alice")
	var keys []key.SiteKeys
	for range ai.MaxSuccessions + 3 {
		keys = append(keys, siteKeys(t))
	}
	open := func(list ...key.SiteKeys) ai.HeartbeatResponse {
		t.Helper()
		h.close()
		h.keys = list
		h.open()
		return p.beat()
	}
	a, b, c := keys[0], keys[1], keys[2]
	if beat := open(b, a); codec.Version == "0" {
		if beat.Successions != nil || len(beat.Sites) != 2 {
			t.Errorf("%+v", beat)
		}
		return
	} else if s := beat.Successions[idOf(b)]; len(beat.Successions) != 1 || s.RetiringUntil != 0 {
		t.Errorf("%+v", beat.Successions)
	}
	for name, list := range map[string][]key.SiteKeys{"three keys": {c, b, a}, "twice": {c, b, c, b, a, a}} {
		said := open(list...).Successions[idOf(c)].Succeeds
		var ids []ai.KeyID
		path, err := succession.Walk(c.Identity().Fingerprint(), said, func(f key.Fingerprint) bool {
			ids = append(ids, ai.KeyID(f.String()))
			return f == a.Identity().Fingerprint()
		})
		if err != nil || len(path) != 3 || len(said) != 2 || !slices.Equal(ids, []ai.KeyID{idOf(b), idOf(a)}) {
			t.Errorf("%s: %v, %v, %v", name, ids, path, err)
		}
	}
	beat := open(keys...)
	path, err := succession.Walk(a.Identity().Fingerprint(), beat.Successions[idOf(a)].Succeeds, func(f key.Fingerprint) bool {
		return f == keys[ai.MaxSuccessions].Identity().Fingerprint()
	})
	if err != nil || len(path) != ai.MaxSuccessions+1 || len(beat.Sites) != len(keys) {
		t.Errorf("%d of %d keys, %v", len(path), len(beat.Sites), err)
	}
}

func idOf(k key.SiteKeys) ai.KeyID { return ai.KeyID(k.Identity().Fingerprint().String()) }

func TestLimits(t *testing.T) {
	h := newHouse(t, func(c *site.Config) { c.NoLimits = false })
	starts := 0
	for range 70 {
		p := newPeer(h)
		body := write(t, codec.PairRequest, ai.PairRequest{Start: &ai.PairStartRequest{
			Daemon: ai.Daemon{Version: "1", Label: "l", Platform: ai.PlatformLinux}, Device: ai.PublicIdentityOf(p.keys.Identity()), Capabilities: p.caps,
		}})
		w := h.post("pair", body)
		if w.Code == http.StatusOK {
			starts++
			continue
		}
		if e := refusal(t, w); e.Code != "rate-limited" || e.RetryAfter == nil || w.Header().Get("Retry-After") == "" {
			t.Errorf("refused with %+v", e)
		}
	}
	if starts < 60 || starts > 62 {
		t.Errorf("%d of 70 starts passed, want a burst of 60", starts)
	}
	elsewhere := func(r *http.Request) { r.RemoteAddr = "198.51.100.7:1" }
	p := newPeer(h)
	body := write(t, codec.PairRequest, ai.PairRequest{Start: &ai.PairStartRequest{
		Daemon: ai.Daemon{Version: "1", Label: "l", Platform: ai.PlatformLinux}, Device: ai.PublicIdentityOf(p.keys.Identity()), Capabilities: p.caps,
	}})
	started := read(t, codec.PairStartResponse, h.post("pair", body, elsewhere))

	// Polls: a burst of five, and a decision is told at any time.
	poll := write(t, codec.PairRequest, ai.PairRequest{Poll: &ai.PairPollRequest{DeviceCode: started.DeviceCode}})
	for i := range 5 {
		if w := h.post("pair", poll); w.Code != http.StatusOK {
			t.Errorf("poll %d: %s", i, w.Body)
		}
	}
	wantCode(t, "a sixth poll", h.post("pair", poll), "rate-limited")
	if _, err := h.site.Devices.Approve(t.Context(), started.UserCode, "alice"); err != nil {
		t.Fatal(err)
	}
	p.runner = read(t, codec.PairPollResponse, h.post("pair", poll)).Approved.RunnerID

	// Failed signatures count by address, and never against who signs well.
	limited := false
	for range 70 {
		w := h.post("claim", []byte(`{"protocolVersion":"0"}`), func(r *http.Request) {
			p.signed("fetch", nil)(r)
		})
		limited = limited || refusal(t, w).Code == "rate-limited"
	}
	if !limited {
		t.Error("70 forged requests were not limited")
	}
	p.beat() // from the same address
}
