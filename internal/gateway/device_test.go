package gateway_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/gateway"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/appapi"
	"github.com/allodhq/allod/site/sqlite"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/envelope"
	"github.com/allodhq/allod/wire/ai/signing"
	v0 "github.com/allodhq/allod/wire/ai/v0"
)

// The device speaks the first version of the contract, which changes no more.
var codec = v0.Codec()

// house is a site with a gateway in front of it.
type house struct {
	t       *testing.T
	keys    key.SiteKeys
	site    *site.Site
	gateway http.Handler
}

// keyring knows keys by their text.
type keyring map[string]appapi.Access

func (k keyring) Authenticate(r *http.Request) (appapi.Access, error) {
	text, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if a, ok := k[text]; ok {
		return a, nil
	}
	return appapi.Access{}, appapi.ErrAppKey
}

// The keys of every house: one for alice, one for everybody, and two with less
// than the rights that asking and looking need.
var ring = keyring{
	"alice":    {KeyID: "k1", Scopes: []appapi.Scope{appapi.ScopeEnqueue, appapi.ScopeRead}, Owner: "alice"},
	"everyone": {KeyID: "k2", Scopes: []appapi.Scope{appapi.ScopeEnqueue, appapi.ScopeRead}},
	"reads":    {KeyID: "k3", Scopes: []appapi.Scope{appapi.ScopeRead}, Owner: "alice"},
	"asks":     {KeyID: "k4", Scopes: []appapi.Scope{appapi.ScopeEnqueue}, Owner: "alice"},
}

func newHouse(t *testing.T, change ...func(*site.Config, *gateway.Config)) *house {
	t.Helper()
	store, err := sqlite.Open(context.Background(), sqlite.Config{Path: filepath.Join(t.TempDir(), "site.db")})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := key.NewKeys[key.SiteRole](rand.Reader, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	config := site.Config{Store: store, Keys: []key.SiteKeys{keys}, VerificationURL: "https://app.example/pair", NoLimits: true}
	face := gateway.Config{
		Keys: ring, Drop: []string{"temperature", "top_k"},
		Labels: map[string]gateway.Label{
			"friends":    {Audience: ai.AudienceNamed},
			"chat-only":  {Kind: ai.KindChat, Audience: ai.AudienceSelf},
			"write-only": {Kind: ai.KindGenerate, Audience: ai.AudienceSelf},
		},
	}
	for _, c := range change {
		c(&config, &face)
	}
	s, err := site.Open(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	face.Site = s
	h, kept := gateway.NewCounted(face)
	t.Cleanup(func() {
		if n := kept(); n > 0 {
			t.Errorf("%d counts are left of requests that are over", n)
		}
		if err := errors.Join(s.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	return &house{t, keys, s, h}
}

// device is a machine that runs jobs, as far as these tests need one.
type device struct {
	h      *house
	keys   key.DeviceKeys
	runner ai.RunnerID
	caps   []ai.Capability
	// instead is what it says it ran instead of.
	instead *ai.Instead
}

func capability(kind ai.Kind, scope ai.OfferScope) ai.Capability {
	return ai.Capability{Kind: kind, BackendID: "ollama", BackendClass: backend.HTTP, Model: "m", OfferScope: scope}
}

// pair is a device that an owner has approved and that was heard of. Without
// capabilities it runs both kinds for its owner.
func (h *house) pair(owner ai.Owner, caps ...ai.Capability) *device {
	h.t.Helper()
	k, err := key.NewKeys[key.DeviceRole](rand.Reader, time.Now())
	if err != nil {
		h.t.Fatal(err)
	}
	if caps == nil {
		caps = []ai.Capability{capability(ai.KindGenerate, ai.OfferSelf), capability(ai.KindChat, ai.OfferSelf)}
	}
	d := &device{h: h, keys: k, caps: caps}
	started := post(d, "pair", codec.PairRequest, ai.PairRequest{Start: &ai.PairStartRequest{
		Daemon: ai.Daemon{Version: "1", Label: "laptop", Platform: ai.PlatformLinux},
		Device: ai.PublicIdentityOf(k.Identity()), Capabilities: caps,
	}}, codec.PairStartResponse)
	if _, err := h.site.Devices.Approve(context.Background(), started.UserCode, owner); err != nil {
		h.t.Fatal(err)
	}
	d.runner = post(d, "pair", codec.PairRequest, ai.PairRequest{Poll: &ai.PairPollRequest{DeviceCode: started.DeviceCode}}, codec.PairPollResponse).Approved.RunnerID
	d.beat()
	return d
}

// post sends a message of a device's and reads the answer.
func post[Q, A any](d *device, endpoint ai.Endpoint, ask ai.Message[Q], q Q, tell ai.Message[A]) A {
	d.h.t.Helper()
	body, err := ask.Write(q)
	if err != nil {
		d.h.t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "https://app.example/byollm/"+string(endpoint), bytes.NewReader(body))
	if d.runner != "" {
		s, err := signing.Sign(d.keys.Signer(), signing.Request{Plane: signing.DaemonPlane, Endpoint: endpoint, Body: body},
			string(d.runner), ai.MillisOf(time.Now()))
		if err != nil {
			d.h.t.Fatal(err)
		}
		for _, header := range s.Headers(signing.DaemonPlane) {
			r.Header.Set(header[0], header[1])
		}
	}
	w := httptest.NewRecorder()
	d.h.site.Handler().ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		d.h.t.Fatalf("%s: %d %s", endpoint, w.Code, w.Body)
	}
	a, err := tell.Read(w.Body.Bytes())
	if err != nil {
		d.h.t.Fatal(err)
	}
	return a
}

func (d *device) beat(grants ...ai.Grant) {
	d.h.t.Helper()
	post(d, ai.EndpointHeartbeat, codec.HeartbeatRequest,
		ai.HeartbeatRequest{RunnerID: d.runner, DaemonVersion: "1", Capabilities: d.caps, ActiveLeases: grants}, codec.HeartbeatResponse)
}

// take claims one job and opens what it asks.
func (d *device) take() (ai.Grant, ai.Payload) {
	d.h.t.Helper()
	time.Sleep(time.Millisecond) // in a bubble's clock; a claim of the same instant would be a repeat
	claimed := post(d, ai.EndpointClaim, codec.ClaimRequest, ai.ClaimRequest{RunnerID: d.runner, Capabilities: d.caps, Max: 1}, codec.ClaimResponse)
	if len(claimed.Jobs) != 1 {
		d.h.t.Fatalf("claimed %d jobs, want one", len(claimed.Jobs))
	}
	stub := claimed.Jobs[0]
	grant := ai.Grant{JobID: stub.ID, LeaseID: stub.Lease.ID}
	fetched := post(d, ai.EndpointFetch, codec.FetchRequest, ai.FetchRequest{RunnerID: d.runner, Grant: grant}, codec.FetchResponse)
	from := d.h.keys.Identity()
	opened, err := envelope.Open(d.keys.Opener(), from.Signing(), fetched.Envelope, envelope.Context{
		JobID: stub.ID, Sender: from.Fingerprint(), Recipient: d.keys.Identity().Fingerprint(), Direction: ai.DirectionPayload,
	})
	if err != nil {
		d.h.t.Fatal(err)
	}
	payload, err := codec.ReadPayload(stub.Kind, []byte(opened.Plaintext))
	if err != nil {
		d.h.t.Fatal(err)
	}
	return grant, payload
}

// finish hands in how a job ended.
func (d *device) finish(g ai.Grant, out ai.Outcome, change ...func(*ai.RunMetadata)) {
	d.h.t.Helper()
	ran := ai.RunMetadata{Model: "secret-model-name", BackendClass: backend.HTTP, DurationMs: 7}
	for _, c := range change {
		c(&ran)
	}
	text, err := codec.Outcome.Write(ai.SealedOutcome{Outcome: out, Ran: ran})
	if err != nil {
		d.h.t.Fatal(err)
	}
	sealed, err := envelope.Seal(rand.Reader, d.keys.Signer(), d.h.keys.Identity(), envelope.Letter{
		JobID: g.JobID, Direction: ai.DirectionResult, DeadlineAt: ai.MillisOf(time.Now().Add(envelope.MaxAge)), Plaintext: string(text), Instead: d.instead,
	})
	if err != nil {
		d.h.t.Fatal(err)
	}
	post(d, ai.EndpointResult, codec.ResultRequest,
		ai.ResultRequest{RunnerID: d.runner, Grant: g, Envelope: sealed, Disposition: out.Disposition()}, codec.ResultResponse)
}

// giveBack gives a job back for a reason.
func (d *device) giveBack(g ai.Grant, why ai.ReleaseReason) {
	d.h.t.Helper()
	post(d, ai.EndpointRelease, codec.ReleaseRequest, ai.ReleaseRequest{RunnerID: d.runner, Leases: []ai.Grant{g}, Reason: why}, codec.ReleaseResponse)
}

// visit is one request to the gateway.
type visit struct {
	method, path, key, body string
	header                  http.Header
	ctx                     context.Context
}

// chat asks a chat as alice.
func chat(body string) visit {
	return visit{method: http.MethodPost, path: "/v1/chat/completions", key: "alice", body: body}
}

// hello is a chat of one turn with more members.
func hello(more string) visit {
	return chat(`{"model":"auto","messages":[{"role":"user","content":"hello"}]` + more + `}`)
}

func (v visit) with(name, value string) visit {
	v.header = v.header.Clone()
	if v.header == nil {
		v.header = http.Header{}
	}
	v.header.Add(name, value)
	return v
}

func (v visit) as(key string) visit {
	v.key = key
	return v
}

func (h *house) do(v visit) *httptest.ResponseRecorder {
	r := httptest.NewRequest(v.method, v.path, strings.NewReader(v.body))
	if v.ctx != nil {
		r = r.WithContext(v.ctx)
	}
	for name, values := range v.header {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	if v.key != "" {
		r.Header.Set("Authorization", "Bearer "+v.key)
	}
	w := httptest.NewRecorder()
	h.gateway.ServeHTTP(w, r)
	return w
}

// start sends a request whose answer comes later.
func (h *house) start(v visit) <-chan *httptest.ResponseRecorder {
	out := make(chan *httptest.ResponseRecorder, 1)
	go func() { out <- h.do(v) }()
	return out
}

// oops is an error in OpenAI's shape.
type oops struct {
	Message string
	Type    string
	Param   *string
	Code    string
}

func readOops(t *testing.T, text []byte) oops {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	var body struct{ Error oops }
	if err := dec.Decode(&body); err != nil || body.Error.Message == "" || body.Error.Type == "" || body.Error.Code == "" {
		t.Fatalf("%s is no error of OpenAI's: %v", text, err)
	}
	return body.Error
}

func (o oops) param() string {
	if o.Param == nil {
		return ""
	}
	return *o.Param
}
