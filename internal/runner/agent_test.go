package runner_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/runner/ingress"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/envelope"
	"github.com/allodhq/allod/wire/ai/protocol"
	"github.com/allodhq/allod/wire/ai/signing"
)

var codec = protocol.Latest()

const (
	patience = time.Minute // bounds a wait; it measures nothing
	server   = "http://127.0.0.1:9"
)

// model is a model server that writes down what it is asked.
type model struct {
	*httptest.Server
	mu    sync.Mutex
	asked []json.RawMessage
	// all are the questions with those that ask for a few tokens.
	all []json.RawMessage
	// says is the answer to each question.
	says string
	// ask is called for each question that is no proof.
	ask func(body []byte)
}

func newModel(t *testing.T) *model {
	t.Helper()
	m := &model{says: `{"choices":[{"message":{"role":"assistant","content":"an answer"}}]}`}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"data":[{"id":"m1"}]}`) })
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m.mu.Lock()
		m.all = append(m.all, body)
		m.mu.Unlock()
		if !bytes.Contains(body, []byte(`"max_tokens"`)) { // a proof asks for a few tokens
			m.mu.Lock()
			m.asked = append(m.asked, body)
			ask := m.ask
			m.mu.Unlock()
			if ask != nil {
				ask(body)
			}
		}
		m.mu.Lock()
		says := m.says
		m.mu.Unlock()
		_, _ = io.WriteString(w, says)
	})
	m.Server = httptest.NewServer(mux)
	t.Cleanup(m.Server.Close)
	return m
}

func (m *model) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.asked)
}

// liar is a server that says whatever a test wants. It is reached without a
// network.
type liar struct {
	t      *testing.T
	device key.Device
	sites  map[ai.KeyID]key.SiteKeys

	mu sync.Mutex
	// speaks are the versions of the protocol that it knows; nil means all of ours.
	speaks []string
	// refused counts the requests that came in another version.
	refused  int
	waiting  []ai.ClaimedStub
	arrived  chan struct{} // closed when a job arrives
	sealed   map[ai.JobID]ai.SealedEnvelope
	released map[ai.JobID]ai.ReleaseReason
	results  map[ai.JobID]ai.SealedOutcome
	usage    map[ai.JobID]*ai.Usage
	offered  []ai.Capability
	paused   bool // as the last heartbeat says in so many words
	beats    int
	// shown is offered in the place of the sites, where it is set, and said of them.
	shown map[ai.KeyID]ai.PublicIdentity
	said  map[ai.KeyID]ai.SiteSuccession
	// beat is called before a heartbeat is answered.
	beat func()
}

func newSiteKeys(t *testing.T) key.SiteKeys {
	t.Helper()
	k, err := key.NewKeys[key.SiteRole](rand.Reader, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func idOf(k key.SiteKeys) ai.KeyID { return ai.KeyID(k.Identity().Fingerprint().String()) }

func newLiar(t *testing.T, sites ...key.SiteKeys) *liar {
	l := &liar{
		t: t, sites: map[ai.KeyID]key.SiteKeys{}, sealed: map[ai.JobID]ai.SealedEnvelope{},
		released: map[ai.JobID]ai.ReleaseReason{}, results: map[ai.JobID]ai.SealedOutcome{}, usage: map[ai.JobID]*ai.Usage{},
		arrived: make(chan struct{}),
	}
	for _, s := range sites {
		l.sites[idOf(s)] = s
	}
	return l
}

// RoundTrip answers a request.
func (l *liar) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	endpoint := ai.Endpoint(strings.TrimPrefix(r.URL.Path, ai.PathPrefix+"/"))
	sig, err := signing.ReadHeaders(signing.DaemonPlane, r.Header.Get)
	if err != nil {
		l.t.Errorf("%s is not signed", endpoint)
	}
	request := signing.Request{Plane: signing.DaemonPlane, Endpoint: endpoint, Body: body}
	if err := signing.Verify(l.device.Signing(), request, sig, ai.MillisOf(time.Now()), signing.Window); err != nil {
		l.t.Errorf("%s: %v", endpoint, err)
	}
	codec, err := protocol.Choose(body, ai.MaxSealedBody, "")
	if err != nil {
		l.t.Errorf("%s: %v", endpoint, err)
	}
	status := http.StatusOK
	answer, err := l.refuse(codec)
	if answer != nil {
		status = http.StatusBadRequest
	} else if err == nil {
		if endpoint == ai.EndpointClaim && r.Header.Get("Prefer") != "" {
			l.hold(r.Context())
		}
		answer, err = l.answer(codec, endpoint, body)
	}
	if err != nil {
		l.t.Errorf("%s: %v", endpoint, err)
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(answer)), ContentLength: int64(len(answer)), Request: r,
	}, nil
}

// hold waits until there is a job, or the caller has gone.
func (l *liar) hold(ctx context.Context) {
	for {
		l.mu.Lock()
		n, arrived := len(l.waiting), l.arrived
		l.mu.Unlock()
		if n > 0 {
			return
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return
		}
	}
}

// refuse is the answer to a request in a version that the server does not know.
func (l *liar) refuse(codec ai.Codec) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.speaks == nil || slices.Contains(l.speaks, codec.Version) {
		return nil, nil
	}
	l.refused++
	e := ai.ErrorOf(ai.ErrUnsupportedVersion)
	e.Supported, e.Minimum = l.speaks, l.speaks[0]
	return codec.Error.Write(*e)
}

func (l *liar) answer(codec ai.Codec, endpoint ai.Endpoint, body []byte) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch endpoint {
	case ai.EndpointHeartbeat:
		q, err := codec.HeartbeatRequest.Read(body)
		if err != nil {
			return nil, err
		}
		l.offered, l.paused = q.Capabilities, q.Paused
		l.beats++
		sites := map[ai.KeyID]ai.PublicIdentity{}
		for id, k := range l.sites {
			sites[id] = ai.PublicIdentityOf(k.Identity())
		}
		if l.shown != nil {
			sites = l.shown
		}
		if l.beat != nil {
			l.beat()
		}
		return codec.HeartbeatResponse.Write(ai.HeartbeatResponse{
			Sites: sites, Successions: l.said, Cancel: []ai.Grant{}, Lost: []ai.Grant{}, ServerTime: ai.MillisOf(time.Now()), AwaitingConsent: []ai.KeyID{},
		})
	case ai.EndpointClaim:
		q, err := codec.ClaimRequest.Read(body)
		if err != nil {
			return nil, err
		}
		n := min(int(q.Max), len(l.waiting))
		jobs := slices.Clone(l.waiting[:n])
		l.waiting = l.waiting[n:]
		if jobs == nil {
			jobs = []ai.ClaimedStub{}
		}
		return codec.ClaimResponse.Write(ai.ClaimResponse{Jobs: jobs, LeaseMs: 60_000})
	case ai.EndpointFetch:
		q, err := codec.FetchRequest.Read(body)
		if err != nil {
			return nil, err
		}
		return codec.FetchResponse.Write(ai.FetchResponse{Envelope: l.sealed[q.Grant.JobID]})
	case ai.EndpointResult:
		q, err := codec.ResultRequest.Read(body)
		if err != nil {
			return nil, err
		}
		k := l.sites[q.Envelope.RecipientKeyID]
		opened, err := envelope.Open(k.Opener(), l.device.Signing(), q.Envelope, envelope.Context{
			JobID: q.Grant.JobID, Sender: l.device.Fingerprint(), Recipient: k.Identity().Fingerprint(), Direction: ai.DirectionResult,
		})
		if err != nil {
			return nil, err
		}
		l.usage[q.Grant.JobID] = opened.Usage
		if l.results[q.Grant.JobID], err = codec.Outcome.Read([]byte(opened.Plaintext)); err != nil {
			return nil, err
		}
		return codec.ResultResponse.Write(ai.ResultResponse{Accepted: true, State: "ok"})
	case ai.EndpointRelease:
		q, err := codec.ReleaseRequest.Read(body)
		if err != nil {
			return nil, err
		}
		out := ai.ReleaseResponse{Released: []ai.JobID{}}
		for _, g := range q.Leases {
			l.released[g.JobID] = q.Reason
			out.Released = append(out.Released, g.JobID)
		}
		return codec.ReleaseResponse.Write(out)
	}
	return nil, errors.New("an endpoint of no contract")
}

// offer puts a job in the queue.
func (l *liar) offer(s ai.ClaimedStub, sealed ai.SealedEnvelope) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sealed[s.ID] = sealed
	l.waiting = append(l.waiting, s)
	close(l.arrived)
	l.arrived = make(chan struct{})
}

func (l *liar) ended(id ai.JobID) (released ai.ReleaseReason, outcome ai.Outcome, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	reason, given := l.released[id]
	result, done := l.results[id]
	return reason, result.Outcome, given || done
}

// farm is an agent with a liar for a server.
type farm struct {
	t     *testing.T
	model *model
	liar  *liar
	home  string
	agent *runner.Agent
	stop  func()
}

func newFarm(t *testing.T, sites ...key.SiteKeys) *farm {
	t.Helper()
	return newFarmOf(t, nil, sites...)
}

// newFarmOf is a farm whose server speaks these versions of the protocol only.
func newFarmOf(t *testing.T, speaks []string, sites ...key.SiteKeys) *farm {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("key files are refused on Windows")
	}
	f := &farm{t: t, model: newModel(t), liar: newLiar(t, sites...), home: filepath.Join(t.TempDir(), "home")}
	f.liar.speaks = speaks
	f.open()
	pinned := map[ai.KeyID]home.Site{}
	for _, s := range sites {
		pinned[idOf(s)] = home.Site{Identity: s.Identity()}
	}
	err := f.agent.Adopt(home.Pairing{Server: server, RunnerID: "r1", Owner: "alice", Sites: pinned, PairedAt: ai.MillisOf(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	f.run()
	return f
}

func (f *farm) open() {
	f.t.Helper()
	s := settings.Defaults()
	s.Backends = map[string]settings.Backend{"mine": {ID: backend.Generic, BaseURL: f.model.URL + "/v1"}}
	var err error
	f.agent, err = runner.Open(runner.Config{Home: f.home, Version: "test", Settings: s, Transport: f.liar})
	if err != nil {
		f.t.Fatal(err)
	}
	f.liar.device = f.agent.Keys().Identity()
}

func (f *farm) run() {
	f.t.Helper()
	ended := make(chan error, 1)
	ctx, cancel := contextOf(f.t)
	agent := f.agent
	go func() { ended <- agent.Run(ctx) }()
	var once sync.Once
	f.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				f.t.Errorf("the agent ended with %v", err)
			}
			_ = agent.Close()
		})
	}
	f.t.Cleanup(f.stop)
}

// stub is an honest stub of a job of that site.
func (f *farm) stub(id string, s key.SiteKeys) ai.ClaimedStub {
	now := time.Now()
	return ai.ClaimedStub{
		Stub: ai.Stub{
			ID: ai.JobID(id), Kind: ai.KindGenerate, Owner: "alice", Site: idOf(s), Audience: ai.AudienceSelf,
			SizeClass: ai.SizeSmall, DeadlineAt: ai.MillisOf(now.Add(time.Hour)),
		},
		Lease: ai.Lease{ID: ai.LeaseID("lease-" + id), RunnerID: "r1", ExpiresAt: ai.MillisOf(now.Add(time.Minute))},
	}
}

// letter is an honest letter for a stub.
func letter(s ai.ClaimedStub) envelope.Letter {
	reach := envelope.ReachOf(s.Stub)
	return envelope.Letter{
		JobID: s.ID, Direction: ai.DirectionPayload, DeadlineAt: ai.MillisOf(time.Now().Add(time.Hour)),
		Plaintext: `{"prompt":"hello"}`, Reach: &reach,
	}
}

func seal[R key.Role](t *testing.T, from key.Signer, to key.Identity[R], l envelope.Letter) ai.SealedEnvelope {
	t.Helper()
	e, err := envelope.Seal(rand.Reader, from, to, l)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// end waits for a job's end.
func (f *farm) end(id ai.JobID) (ai.ReleaseReason, ai.Outcome) {
	f.t.Helper()
	until(f.t, func() bool { _, _, ended := f.liar.ended(id); return ended })
	reason, outcome, _ := f.liar.ended(id)
	return reason, outcome
}

// lines is what the owner's log says of a job.
func (f *farm) lines(id ai.JobID) []ingress.Line {
	f.t.Helper()
	lines, err := runner.Why(f.home, id)
	if err != nil {
		f.t.Fatal(err)
	}
	return lines
}

// TestLies has a job for each way in which a server or a site can lie. None
// runs; each is given back as refused and stands in the owner's log by the name
// of its refusal.
func TestLies(t *testing.T) {
	site, other := newSiteKeys(t), newSiteKeys(t)
	stranger, err := key.NewKeys[key.DeviceRole](rand.Reader, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	f := newFarm(t, site, other)
	device := f.agent.Keys().Identity()
	past := ai.MillisOf(time.Now().Add(-time.Hour))
	honest := func(change func(s *ai.ClaimedStub, l *envelope.Letter)) func(s ai.ClaimedStub) (ai.ClaimedStub, ai.SealedEnvelope) {
		return func(s ai.ClaimedStub) (ai.ClaimedStub, ai.SealedEnvelope) {
			l := letter(s)
			change(&s, &l)
			return s, seal(t, site.Signer(), device, l)
		}
	}
	for name, c := range map[string]struct {
		make func(s ai.ClaimedStub) (ai.ClaimedStub, ai.SealedEnvelope)
		want *refusal.Kind
	}{
		"the site signed another owner":    {honest(func(s *ai.ClaimedStub, l *envelope.Letter) { l.Reach.Owner = "bob" }), envelope.ErrReach},
		"the site signed another audience": {honest(func(s *ai.ClaimedStub, l *envelope.Letter) { l.Reach.Audience = ai.AudiencePublic }), envelope.ErrReach},
		"the site signed another kind":     {honest(func(s *ai.ClaimedStub, l *envelope.Letter) { l.Reach.Kind = ai.KindChat }), envelope.ErrReach},
		"the site signed another site":     {honest(func(s *ai.ClaimedStub, l *envelope.Letter) { l.Reach.Site = idOf(other) }), envelope.ErrReach},
		"another job's letter":             {honest(func(s *ai.ClaimedStub, l *envelope.Letter) { l.JobID = "another" }), envelope.ErrContext},
		"a result for a payload":           {honest(func(s *ai.ClaimedStub, l *envelope.Letter) { l.Direction, l.Reach = ai.DirectionResult, nil }), envelope.ErrNotForUs},
		"both deadlines are past":          {honest(func(s *ai.ClaimedStub, l *envelope.Letter) { s.DeadlineAt, l.DeadlineAt = past, past }), runner.ErrPast},
		"a payload of no kind":             {honest(func(s *ai.ClaimedStub, l *envelope.Letter) { l.Plaintext = `{"nothing":1}` }), ai.ErrBadRequest},
		"a payload that is no JSON":        {honest(func(s *ai.ClaimedStub, l *envelope.Letter) { l.Plaintext = `rm -rf /` }), ai.ErrBadRequest},
		"a payload that names a model":     {honest(func(s *ai.ClaimedStub, l *envelope.Letter) { l.Plaintext = `{"prompt":"x","model":"evil"}` }), ai.ErrBadRequest},
		"a payload that names an address":  {honest(func(s *ai.ClaimedStub, l *envelope.Letter) { l.Plaintext = `{"prompt":"x","baseUrl":"http://evil"}` }), ai.ErrBadRequest},
		"a payload of the other kind":      {honest(func(s *ai.ClaimedStub, l *envelope.Letter) { l.Plaintext = `{"messages":[]}` }), ai.ErrBadRequest},
		"another pinned site signed it": {func(s ai.ClaimedStub) (ai.ClaimedStub, ai.SealedEnvelope) {
			return s, seal(t, other.Signer(), device, letter(s))
		}, envelope.ErrNotForUs},
		"another pinned site signed it and forged the label": {func(s ai.ClaimedStub) (ai.ClaimedStub, ai.SealedEnvelope) {
			e := seal(t, other.Signer(), device, letter(s))
			e.SenderKeyID = idOf(site)
			return s, e
		}, envelope.ErrSignature},
		"it is sealed to another device": {func(s ai.ClaimedStub) (ai.ClaimedStub, ai.SealedEnvelope) {
			return s, seal(t, site.Signer(), stranger.Identity(), letter(s))
		}, envelope.ErrNotForUs},
		"it is sealed to another device and says ours": {func(s ai.ClaimedStub) (ai.ClaimedStub, ai.SealedEnvelope) {
			e := seal(t, site.Signer(), stranger.Identity(), letter(s))
			e.RecipientKeyID = ai.KeyID(device.Fingerprint().String())
			return s, e
		}, envelope.ErrUnopenable},
		"the stub is another owner's": {func(s ai.ClaimedStub) (ai.ClaimedStub, ai.SealedEnvelope) {
			s.Owner = "bob"
			return s, seal(t, site.Signer(), device, letter(s))
		}, nil},
		"the stub names a site that is not pinned": {func(s ai.ClaimedStub) (ai.ClaimedStub, ai.SealedEnvelope) {
			s.Site = "BYOLLM-0000-0000-0000-0000-0000-0000"
			return s, seal(t, site.Signer(), device, letter(s))
		}, lane.ErrSite},
	} {
		t.Run(name, func(t *testing.T) {
			id := ai.JobID(strings.ReplaceAll(name, " ", "-"))
			s, e := c.make(f.stub(string(id), site))
			f.liar.offer(s, e)
			reason, outcome := f.end(id)
			if reason != ai.ReleaseRefused || outcome != nil {
				t.Errorf("it ended as %q, %v", reason, outcome)
			}
			lines := f.lines(id)
			if len(lines) != 1 || lines[0].Type != ingress.TypeOutcome || lines[0].Outcome != "refused" || c.want != nil && lines[0].Detail != c.want.Name() {
				t.Errorf("the log says %+v", lines)
			}
			if c.want != nil && runner.Explain(lines[0].Detail) != c.want {
				t.Errorf("%s is explained as %v", lines[0].Detail, runner.Explain(lines[0].Detail))
			}
		})
	}
	if n := f.model.count(); n > 0 {
		t.Errorf("the model was asked %d times: %s", n, f.model.asked)
	}
}

// TestSignedReachStays: a site that was seen to sign what a job may reach must go
// on doing so, also after a restart.
func TestSignedReachStays(t *testing.T) {
	site, plain := newSiteKeys(t), newSiteKeys(t)
	f := newFarm(t, site, plain)
	device := f.agent.Keys().Identity()
	without := func(id string, k key.SiteKeys) {
		s := f.stub(id, k)
		l := letter(s)
		l.Reach = nil
		f.liar.offer(s, seal(t, k.Signer(), device, l))
	}
	// A stock site signs none, and is served.
	without("stock-1", site)
	if _, outcome := f.end("stock-1"); outcome != (ai.Answer{Text: "an answer"}) {
		t.Fatalf("a stock site's job ended as %v", outcome)
	}
	s := f.stub("signed", site)
	f.liar.offer(s, seal(t, site.Signer(), device, letter(s)))
	if _, outcome := f.end("signed"); outcome != (ai.Answer{Text: "an answer"}) {
		t.Fatalf("a signed job ended as %v", outcome)
	}
	without("unsigned", site)
	if reason, _ := f.end("unsigned"); reason != ai.ReleaseRefused || f.lines("unsigned")[0].Detail != runner.ErrUnsignedReach.Name() {
		t.Errorf("an unsigned job after a signed one: %q, %+v", reason, f.lines("unsigned"))
	}
	without("stock-2", plain) // the other site's own habit stays
	if _, outcome := f.end("stock-2"); outcome != (ai.Answer{Text: "an answer"}) {
		t.Errorf("another stock site's job ended as %v", outcome)
	}
	f.stop()
	f.open()
	f.run()
	without("after-restart", site)
	if reason, _ := f.end("after-restart"); reason != ai.ReleaseRefused {
		t.Errorf("after a restart: %q", reason)
	}
}

// TestWhatRuns: roles travel as roles, the model is the owner's, the log has the
// prompt before the model does (MUST INGRESS_LOGGED_BEFORE_EXECUTION), and the
// sealed result says what really ran.
func TestWhatRuns(t *testing.T) {
	site := newSiteKeys(t)
	f := newFarm(t, site)
	device := f.agent.Keys().Identity()
	logged := make(chan string, 1)
	f.model.ask = func([]byte) {
		text, err := os.ReadFile(filepath.Join(f.home, ingress.FileName))
		if err != nil {
			t.Error(err)
		}
		logged <- string(text)
	}
	s := f.stub("chat", site)
	s.Kind = ai.KindChat
	l := letter(s)
	l.Plaintext = `{"messages":[{"role":"user","content":"canary turn"},{"role":"assistant","content":"a"},{"role":"user","content":"b"}],"system":"be brief"}`
	f.liar.offer(s, seal(t, site.Signer(), device, l))
	if _, outcome := f.end("chat"); outcome != (ai.Answer{Text: "an answer"}) {
		t.Fatalf("ended as %v", outcome)
	}
	if text := <-logged; !strings.Contains(text, "canary turn") {
		t.Errorf("when the model was asked, the log was %q", text)
	}
	var asked struct {
		Model    string
		Stream   bool
		Messages []struct{ Role, Content string }
	}
	if err := json.Unmarshal(f.model.asked[0], &asked); err != nil {
		t.Fatal(err)
	}
	want := []struct{ Role, Content string }{{"system", "be brief"}, {"user", "canary turn"}, {"assistant", "a"}, {"user", "b"}}
	if asked.Model != "m1" || asked.Stream || !slices.Equal(asked.Messages, want) {
		t.Errorf("the model was asked %+v", asked)
	}
	ran := f.liar.results["chat"].Ran
	if ran.Model != "m1" || ran.BackendClass != backend.HTTP {
		t.Errorf("ran %+v", ran)
	}
	lines := f.lines("chat")
	if len(lines) != 2 || lines[0].Type != ingress.TypePrompt || lines[1].Outcome != "ok" || lines[0].Owner != "alice" || lines[0].Model != "m1" ||
		lines[0].PromptUnits != ai.TextUnits("be briefcanary turnab") || lines[1].DurationMs != ran.DurationMs {
		t.Errorf("log %+v", lines)
	}
}

// TestOffersFollowTheModel: what is offered is what is configured and works at
// this moment (MUST CAPABILITY_IS_DETECTED), and says nothing else of the
// configuration (MUST EFFECTIVE_OFFER_ONLY).
func TestOffersFollowTheModel(t *testing.T) {
	site := newSiteKeys(t)
	f := newFarm(t, site)
	offered := func() []ai.Capability {
		f.liar.mu.Lock()
		defer f.liar.mu.Unlock()
		return f.liar.offered
	}
	until(t, func() bool { return len(offered()) == 2 })
	want := ai.Capability{Kind: ai.KindGenerate, Service: "mine", BackendID: backend.Generic, BackendClass: backend.HTTP, Model: "m1", OfferScope: ai.OfferSelf}
	if got := offered(); !reflect.DeepEqual(got[0], want) || got[1].Kind != ai.KindChat {
		t.Errorf("offers %+v", got)
	}
	f.model.Close()
	s := f.stub("down", site)
	f.liar.offer(s, seal(t, site.Signer(), f.agent.Keys().Identity(), letter(s)))
	if reason, _ := f.end("down"); reason != ai.ReleaseBackendDown {
		t.Errorf("a job without a model was released as %q", reason)
	}
	until(t, func() bool { return len(offered()) == 0 })
	st, err := f.agent.Status()
	if err != nil || len(st.Backends) != 1 || st.Backends[0].State != "failed" || len(st.Problems) == 0 {
		t.Errorf("status %+v %v", st, err)
	}
}

// TestActivityOfAgent: what the lane does stands on the board while it does it, and
// the log says whose it was.
func TestActivityOfAgent(t *testing.T) {
	site := newSiteKeys(t)
	f := newFarm(t, site)
	f.model.mu.Lock()
	f.model.says = `{"choices":[{"message":{"role":"assistant","content":"an answer"}}],"usage":{"prompt_tokens":11,"completion_tokens":22}}`
	shown := make(chan runner.Activity, 1)
	f.model.ask = func([]byte) { shown <- f.agent.Activity() }
	f.model.mu.Unlock()
	changed, stop := f.agent.Watch()
	defer stop()
	s := f.stub("named", site)
	s.Audience = ai.AudienceNamed // and ours all the same
	f.liar.offer(s, seal(t, site.Signer(), f.agent.Keys().Identity(), letter(s)))
	var during runner.Activity
	select {
	case during = <-shown:
	case <-time.After(patience):
		t.Fatalf("the model was not asked: %+v", f.agent.Activity())
	}
	if len(during.Running) != 1 || len(during.Ended) != 0 {
		t.Fatalf("while it runs: %+v", during)
	}
	j := during.Running[0]
	if j.JobID != "named" || j.State != runner.JobRuns || !j.Own || j.Owner != "alice" || j.Server != server || j.Site != idOf(site) || j.Service != "mine" || j.Model != "m1" || j.Since.IsZero() {
		t.Errorf("while it runs: %+v", j)
	}
	until(t, func() bool { return len(f.agent.Activity().Ended) == 1 })
	after := f.agent.Activity()
	if j := after.Ended[0]; len(after.Running) != 0 || j.Outcome != "ok" || j.Tokens == nil || *j.Tokens != (runner.Tokens{Prompt: 11, Completion: 22}) {
		t.Errorf("after it ran: %+v", after)
	}
	select {
	case <-changed:
	case <-time.After(patience):
		t.Error("who watches heard nothing")
	}
	// A stranger's job is refused, and shown as that.
	s = f.stub("strange", site)
	s.Owner, s.Audience = "bob", ai.AudienceNamed
	f.liar.offer(s, seal(t, site.Signer(), f.agent.Keys().Identity(), letter(s)))
	until(t, func() bool { return len(f.agent.Activity().Ended) == 2 })
	if j := f.agent.Activity().Ended[0]; j.JobID != "strange" || j.Outcome != "refused" || j.Own || j.Owner != "bob" || j.Detail == "" || j.Model != "" {
		t.Errorf("a stranger's job: %+v", j)
	}
	for id, own := range map[ai.JobID]bool{"named": true, "strange": false} {
		until(t, func() bool { return len(f.lines(id)) > 0 })
		for _, l := range f.lines(id) {
			if l.Own != own || l.IsOwn() != own {
				t.Errorf("the log says %+v", l)
			}
		}
	}
}
