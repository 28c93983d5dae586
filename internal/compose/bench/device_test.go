package bench

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/envelope"
	"github.com/allodhq/allod/wire/ai/protocol"
)

// scripted is a site that says what a test wants it to say, by endpoint.
type scripted struct {
	mu      sync.Mutex
	answers map[ai.Endpoint][]byte
	asked   []ai.Endpoint
}

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := ai.Endpoint(path.Base(r.URL.Path))
	s.asked = append(s.asked, e)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{}, Request: r,
		Body: io.NopCloser(bytes.NewReader(s.answers[e])),
	}, nil
}

// lane is a device that is paired with a scripted site.
type lane struct {
	t      *testing.T
	site   key.SiteKeys
	device *device
	script *scripted
	stub   ai.Stub
}

func newLane(t *testing.T) *lane {
	t.Helper()
	l := &lane{t: t, script: &scripted{answers: map[ai.Endpoint][]byte{}}}
	var err error
	if l.site, err = key.NewKeys[key.SiteRole](rand.Reader, time.Now()); err != nil {
		t.Fatal(err)
	}
	keys, err := key.NewKeys[key.DeviceRole](rand.Reader, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	at, err := client.ParseServer("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(client.Config{Server: at, Version: version, Transport: l.script})
	siteID := ai.KeyID(l.site.Identity().String())
	l.device = &device{
		Device: c.As("runner_1", keys.Signer()), keys: keys, sites: map[ai.KeyID]key.Site{siteID: l.site.Identity()},
		rand: rand.Reader, now: time.Now, codec: protocol.Latest(),
	}
	l.stub = ai.Stub{
		ID: "job-1", Kind: ai.KindGenerate, Owner: owner, Site: siteID, Audience: ai.AudienceSelf,
		SizeClass: ai.SizeSmall, DeadlineAt: ai.MillisOf(time.Now().Add(time.Hour)),
	}
	reach := envelope.ReachOf(l.stub)
	l.payload(`{"prompt":"p"}`, &reach, keys.Identity())
	say(l, ai.EndpointResult, protocol.Latest().ResultResponse, ai.ResultResponse{Accepted: true, State: "ok"})
	return l
}

// say puts an answer into the script.
func say[T any](l *lane, e ai.Endpoint, m ai.Message[T], v T) {
	l.t.Helper()
	body, err := m.Write(v)
	if err != nil {
		l.t.Fatal(err)
	}
	l.script.answers[e] = body
}

// payload puts a payload into the script.
func (l *lane) payload(plain string, reach *envelope.Reach, to key.Device) {
	l.t.Helper()
	sealed, err := envelope.Seal(rand.Reader, l.site.Signer(), to, envelope.Letter{
		JobID: l.stub.ID, Direction: ai.DirectionPayload, DeadlineAt: l.stub.DeadlineAt, Plaintext: plain, Reach: reach,
	})
	if err != nil {
		l.t.Fatal(err)
	}
	say(l, ai.EndpointFetch, protocol.Latest().FetchResponse, ai.FetchResponse{Envelope: sealed})
}

func (l *lane) claimed(n int) []ai.ClaimedStub {
	jobs := []ai.ClaimedStub{}
	for range n {
		jobs = append(jobs, ai.ClaimedStub{Stub: l.stub, Lease: ai.Lease{ID: "lease_1", RunnerID: "runner_1", ExpiresAt: l.stub.DeadlineAt}})
	}
	return jobs
}

// TestWork holds that a device does the whole work of a job, and refuses what an
// agent must refuse, so that a fault of the site is no fast result.
func TestWork(t *testing.T) {
	for name, c := range map[string]struct {
		change func(l *lane)
		want   error
		sent   bool // a result was sent
	}{
		"as it must be": {func(*lane) {}, nil, true},
		"another site":  {func(l *lane) { clear(l.device.sites) }, ErrAnswer, false},
		"no reach":      {func(l *lane) { l.payload(`{"prompt":"p"}`, nil, l.device.keys.Identity()) }, ErrAnswer, false},
		"a wider stub":  {func(l *lane) { l.stub.Audience = ai.AudiencePublic }, envelope.ErrReach, false},
		"another job":   {func(l *lane) { l.stub.ID = "job-2" }, envelope.ErrContext, false},
		"no payload": {func(l *lane) {
			reach := envelope.ReachOf(l.stub)
			l.payload(`{"canary":1}`, &reach, l.device.keys.Identity())
		}, ai.ErrBadRequest, false},
		"not accepted": {func(l *lane) {
			say(l, ai.EndpointResult, protocol.Latest().ResultResponse, ai.ResultResponse{State: "expired"})
		}, ErrAnswer, true},
	} {
		l := newLane(t)
		c.change(l)
		if err := l.device.work(t.Context(), l.claimed(1)[0]); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
		if sent := strings.Contains(join(l.script.asked), "result"); sent != c.sent {
			t.Errorf("%s: it asked %v", name, l.script.asked)
		}
	}
}

func join(list []ai.Endpoint) string {
	var b strings.Builder
	for _, e := range list {
		b.WriteString(string(e) + " ")
	}
	return b.String()
}

// TestDrainIsWhole holds that jobs which no device got are no fast run.
func TestDrainIsWhole(t *testing.T) {
	l := newLane(t)
	say(l, ai.EndpointClaim, protocol.Latest().ClaimResponse, ai.ClaimResponse{Jobs: []ai.ClaimedStub{}, LeaseMs: 1000})
	b := &bench{Config: Config{Jobs: 1}}
	if err := b.complete(); err != nil {
		t.Fatal(err)
	}
	if err := b.drain(t.Context(), []*device{l.device}); !errors.Is(err, ErrAnswer) {
		t.Errorf("got %v", err)
	}
}

// TestClaimAndRelease holds that only a full claim that was given back counts.
func TestClaimAndRelease(t *testing.T) {
	for name, c := range map[string]struct {
		claimed, released int
		want              error
	}{
		"full": {4, 4, nil}, "less": {3, 3, ErrAnswer}, "kept": {4, 3, ErrAnswer}, "none": {0, 0, ErrAnswer},
	} {
		l := newLane(t)
		say(l, ai.EndpointClaim, protocol.Latest().ClaimResponse, ai.ClaimResponse{Jobs: l.claimed(c.claimed), LeaseMs: 1000})
		released := []ai.JobID{}
		for range c.released {
			released = append(released, "job-1")
		}
		say(l, ai.EndpointRelease, protocol.Latest().ReleaseResponse, ai.ReleaseResponse{Released: released})
		b := &bench{}
		if err := b.complete(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.claimAndRelease(t.Context(), l.device); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestPairing holds that a site which does not pair an approved device is named.
func TestPairing(t *testing.T) {
	codec := protocol.Latest()
	started, err := codec.PairStartResponse.Write(ai.PairStartResponse{
		DeviceCode: ai.DeviceCode(strings.Repeat("d", 43)), UserCode: "ABCD-EFGH", VerificationURL: "http://127.0.0.1/pair",
		ExpiresAt: ai.MillisOf(time.Now().Add(time.Hour)), PollIntervalMs: 2000,
	})
	if err != nil {
		t.Fatal(err)
	}
	pending, err := codec.PairPollResponse.Write(ai.PairPollResponse{Status: ai.PairPending})
	if err != nil {
		t.Fatal(err)
	}
	approved := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch q, err := codec.PairRequest.Read(body); {
		case r.URL.Path == "/v1/pairings/ABCD-EFGH/approve":
			approved = true
			_, _ = w.Write([]byte(`{}`))
		case err == nil && q.Start != nil:
			_, _ = w.Write(started)
		default:
			_, _ = w.Write(pending)
		}
	}))
	defer server.Close()
	b := &bench{}
	if err := b.complete(); err != nil {
		t.Fatal(err)
	}
	s := &process{url: server.URL, app: newApp(server.URL, "key")}
	if _, err := b.pair(t.Context(), s, 2); !errors.Is(err, ErrAnswer) || !approved {
		t.Errorf("got %v, approved %v", err, approved)
	}
}
