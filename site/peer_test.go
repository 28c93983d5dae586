package site_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/sqlite"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/envelope"
	"github.com/allodhq/allod/wire/ai/signing"
)

// house is a site with its store and keys.
type house struct {
	t     *testing.T
	dir   string
	keys  []key.SiteKeys
	store site.Store
	site  *site.Site
	// skew is added to the time of the site, in milliseconds.
	skew atomic.Int64
}

func newHouse(t *testing.T, change ...func(*site.Config)) *house {
	t.Helper()
	h := &house{t: t, dir: t.TempDir(), keys: []key.SiteKeys{siteKeys(t)}}
	h.open(change...)
	t.Cleanup(h.close)
	return h
}

func siteKeys(t *testing.T) key.SiteKeys {
	t.Helper()
	k, err := key.NewKeys[key.SiteRole](rand.Reader, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (h *house) open(change ...func(*site.Config)) {
	h.t.Helper()
	store, err := sqlite.Open(context.Background(), sqlite.Config{Path: filepath.Join(h.dir, "site.db")})
	if err != nil {
		h.t.Fatal(err)
	}
	config := site.Config{Store: store, Keys: h.keys, VerificationURL: "https://app.example/pair", NoLimits: true, Clock: h.now}
	for _, c := range change {
		c(&config)
	}
	s, err := site.Open(context.Background(), config)
	if err != nil {
		h.t.Fatal(err)
	}
	h.store, h.site = store, s
}

func (h *house) close() {
	if err := errors.Join(h.site.Close(), h.store.Close()); err != nil {
		h.t.Error(err)
	}
}

func (h *house) now() time.Time {
	return time.Now().Add(time.Duration(h.skew.Load()) * time.Millisecond)
}

// post sends a body to an endpoint and returns the answer.
func (h *house) post(endpoint string, body []byte, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "https://app.example/byollm/"+endpoint, bytes.NewReader(body))
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	h.site.Handler().ServeHTTP(w, r)
	return w
}

// peer is a device as the contract describes it, written for these tests.
type peer struct {
	h      *house
	keys   key.DeviceKeys
	runner ai.RunnerID
	caps   []ai.Capability
	// issued is when the latest request was signed. No two are of one
	// millisecond, so that each heartbeat is newer than the one before.
	issued atomic.Int64
}

var ollama = ai.Capability{Kind: ai.KindGenerate, Service: "mine", BackendID: "ollama", BackendClass: backend.HTTP, Model: "m", OfferScope: ai.OfferSelf}

func newPeer(h *house) *peer {
	h.t.Helper()
	k, err := key.NewKeys[key.DeviceRole](rand.Reader, time.Now())
	if err != nil {
		h.t.Fatal(err)
	}
	return &peer{h: h, keys: k, caps: []ai.Capability{ollama}}
}

// paired is a device that an owner has approved and that was heard of.
func paired(h *house, owner ai.Owner) *peer {
	h.t.Helper()
	p := newPeer(h)
	started := p.start()
	if _, err := h.site.Devices.Approve(h.t.Context(), started.UserCode, owner); err != nil {
		h.t.Fatal(err)
	}
	p.runner = p.poll(started.DeviceCode).Approved.RunnerID
	p.beat()
	return p
}

func write[T any](t *testing.T, m ai.Message[T], v T) []byte {
	t.Helper()
	body, err := m.Write(v)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// read reads a 200 answer.
func read[T any](t *testing.T, m ai.Message[T], w *httptest.ResponseRecorder) T {
	t.Helper()
	if w.Code != http.StatusOK {
		t.Fatalf("answer %d %s", w.Code, w.Body)
	}
	v, err := m.Read(w.Body.Bytes())
	if err != nil {
		t.Fatalf("answer %s: %v", w.Body, err)
	}
	return v
}

func (p *peer) start() ai.PairStartResponse {
	p.h.t.Helper()
	body := write(p.h.t, codec.PairRequest, ai.PairRequest{Start: &ai.PairStartRequest{
		Daemon: ai.Daemon{Version: "1", Label: "laptop", Platform: ai.PlatformLinux},
		Device: ai.PublicIdentityOf(p.keys.Identity()), Capabilities: p.caps,
	}})
	return read(p.h.t, codec.PairStartResponse, p.h.post("pair", body))
}

func (p *peer) poll(code ai.DeviceCode) ai.PairPollResponse {
	p.h.t.Helper()
	return read(p.h.t, codec.PairPollResponse, p.h.post("pair", write(p.h.t, codec.PairRequest, ai.PairRequest{Poll: &ai.PairPollRequest{DeviceCode: code}})))
}

func (p *peer) issue() ai.Millis {
	for {
		last := p.issued.Load()
		next := max(int64(ai.MillisOf(p.h.now())), last+1)
		if p.h.now().UnixMilli() < last-1000 {
			next = p.h.now().UnixMilli() // a test turned the clock back
		}
		if p.issued.CompareAndSwap(last, next) {
			return ai.Millis(next)
		}
	}
}

// signed signs a request as the device.
func (p *peer) signed(endpoint ai.Endpoint, body []byte) func(*http.Request) {
	at := p.issue()
	return func(r *http.Request) {
		s, err := signing.Sign(p.keys.Signer(), signing.Request{Plane: signing.DaemonPlane, Endpoint: endpoint, Body: body},
			string(p.runner), at)
		if err != nil {
			p.h.t.Fatal(err)
		}
		for _, header := range s.Headers(signing.DaemonPlane) {
			r.Header.Set(header[0], header[1])
		}
	}
}

func (p *peer) send(endpoint ai.Endpoint, body []byte, change ...func(*http.Request)) *httptest.ResponseRecorder {
	return p.h.post(string(endpoint), body, append([]func(*http.Request){p.signed(endpoint, body)}, change...)...)
}

func prefer(seconds int) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Prefer", "wait="+strconv.Itoa(seconds)) }
}

func (p *peer) beatBody(grants ...ai.Grant) []byte {
	return write(p.h.t, codec.HeartbeatRequest, ai.HeartbeatRequest{
		RunnerID: p.runner, DaemonVersion: "1", Capabilities: p.caps, ActiveLeases: grants,
	})
}

func (p *peer) beat(grants ...ai.Grant) ai.HeartbeatResponse {
	p.h.t.Helper()
	return read(p.h.t, codec.HeartbeatResponse, p.send(ai.EndpointHeartbeat, p.beatBody(grants...)))
}

func (p *peer) claimBody(max int64) []byte {
	return write(p.h.t, codec.ClaimRequest, ai.ClaimRequest{RunnerID: p.runner, Capabilities: p.caps, Max: max})
}

func (p *peer) claim() []ai.ClaimedStub {
	p.h.t.Helper()
	return read(p.h.t, codec.ClaimResponse, p.send(ai.EndpointClaim, p.claimBody(8))).Jobs
}

// one claims exactly one job.
func (p *peer) one() (ai.ClaimedStub, ai.Grant) {
	p.h.t.Helper()
	jobs := p.claim()
	if len(jobs) != 1 {
		p.h.t.Fatalf("claimed %d jobs, want one", len(jobs))
	}
	return jobs[0], ai.Grant{JobID: jobs[0].ID, LeaseID: jobs[0].Lease.ID}
}

func (p *peer) fetchBody(g ai.Grant) []byte {
	return write(p.h.t, codec.FetchRequest, ai.FetchRequest{RunnerID: p.runner, Grant: g})
}

// question fetches a job's payload and opens it as a device must.
func (p *peer) question(stub ai.ClaimedStub, g ai.Grant, from key.Site) string {
	p.h.t.Helper()
	got := read(p.h.t, codec.FetchResponse, p.send(ai.EndpointFetch, p.fetchBody(g)))
	opened, err := envelope.Open(p.keys.Opener(), from.Signing(), got.Envelope, envelope.Context{
		JobID: stub.ID, Sender: from.Fingerprint(), Recipient: p.keys.Identity().Fingerprint(), Direction: ai.DirectionPayload,
	})
	if err != nil {
		p.h.t.Fatal(err)
	}
	if opened.Reach == nil {
		p.h.t.Fatal("the site signed no reach")
	}
	if err := opened.Reach.Check(stub.Stub); err != nil {
		p.h.t.Fatal(err)
	}
	payload, err := codec.ReadPayload(stub.Kind, []byte(opened.Plaintext))
	if err != nil {
		p.h.t.Fatal(err)
	}
	return payload.(ai.Generate).Prompt
}

// resultBody seals an outcome to the site.
func (p *peer) resultBody(g ai.Grant, to key.Site, out ai.Outcome, change ...func(*ai.ResultRequest)) []byte {
	p.h.t.Helper()
	text := write(p.h.t, codec.Outcome, ai.SealedOutcome{Outcome: out, Ran: ai.RunMetadata{Model: "m", BackendClass: backend.HTTP, DurationMs: 7}})
	return p.sealedBody(g, to, out.Disposition(), string(text), nil, change...)
}

// sealedBody seals any text to the site.
func (p *peer) sealedBody(g ai.Grant, to key.Site, d ai.Disposition, text string, used *ai.Usage, change ...func(*ai.ResultRequest)) []byte {
	p.h.t.Helper()
	sealed, err := envelope.Seal(rand.Reader, p.keys.Signer(), to, envelope.Letter{
		JobID: g.JobID, Direction: ai.DirectionResult, DeadlineAt: ai.MillisOf(p.h.now().Add(envelope.MaxAge)), Plaintext: text, Usage: used,
	})
	if err != nil {
		p.h.t.Fatal(err)
	}
	q := ai.ResultRequest{RunnerID: p.runner, Grant: g, Envelope: sealed, Disposition: d}
	for _, c := range change {
		c(&q)
	}
	return write(p.h.t, codec.ResultRequest, q)
}

func (p *peer) result(g ai.Grant, out ai.Outcome) ai.ResultResponse {
	p.h.t.Helper()
	return read(p.h.t, codec.ResultResponse, p.send(ai.EndpointResult, p.resultBody(g, p.h.keys[0].Identity(), out)))
}

// refusal reads an error answer.
func refusal(t *testing.T, w *httptest.ResponseRecorder) ai.Error {
	t.Helper()
	e, err := codec.Error.Read(w.Body.Bytes())
	if err != nil {
		t.Fatalf("answer %d %s is no wire error: %v", w.Code, w.Body, err)
	}
	if w.Code != e.Code.Status() && w.Code != http.StatusMethodNotAllowed {
		t.Errorf("%s came with status %d", e.Code, w.Code)
	}
	for name, want := range map[string]string{"Content-Type": "application/json", "Cache-Control": "no-store"} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	return e
}

func wantCode(t *testing.T, what string, w *httptest.ResponseRecorder, want ai.Code) {
	t.Helper()
	if w.Code == http.StatusOK {
		t.Errorf("%s: accepted with %s, want %s", what, w.Body, want)
		return
	}
	if e := refusal(t, w); e.Code != want {
		t.Errorf("%s: %s (%s), want %s", what, e.Code, e.Message, want)
	}
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func (h *house) enqueue(q site.Question) site.Job {
	h.t.Helper()
	if q.Owner == "" {
		q.Owner = "alice"
	}
	if q.Payload == nil {
		q.Payload = ai.Generate{Prompt: "p"}
	}
	j, err := h.site.Jobs.Enqueue(h.t.Context(), q)
	if err != nil {
		h.t.Fatal(err)
	}
	return j
}

// edit changes one member of a JSON object.
func edit(t *testing.T, body []byte, name string, value any) []byte {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatal(err)
	}
	if value == nil {
		delete(m, name)
	} else {
		m[name] = value
	}
	out, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func repeat(s string, n int) string { return strings.Repeat(s, n) }
