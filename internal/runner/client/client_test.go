package client_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/protocol"
	"github.com/allodhq/allod/wire/ai/signing"
)

var codec = protocol.Latest()

var t0 = time.UnixMilli(1785499200123)

func keysOf(t testing.TB) key.DeviceKeys {
	t.Helper()
	k, err := key.NewKeys[key.DeviceRole](rand.Reader, t0)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func serverAt(t testing.TB, text string) client.Server {
	t.Helper()
	s, err := client.ParseServer(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// at is a device that speaks to a server.
func at(t testing.TB, text string, transport http.RoundTripper) *client.Device {
	t.Helper()
	c := client.New(client.Config{Server: serverAt(t, text), Version: "1.2.3", Clock: func() time.Time { return t0 }, Transport: transport})
	t.Cleanup(c.Close)
	return c.As("runner_1", keysOf(t).Signer())
}

// by is a device whose server is a handler on loopback.
func by(t testing.TB, h http.HandlerFunc) *client.Device {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return at(t, s.URL, nil)
}

func write[T any](t testing.TB, m ai.Message[T], v T) []byte {
	t.Helper()
	body, err := m.Write(v)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// answers answers with a status and a body.
func answers(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

const claimed = `{"jobs":[],"leaseMs":60000}`

func claim(ctx context.Context, d *client.Device) error {
	_, err := d.Claim(ctx, 0, ai.ClaimRequest{Max: 1})
	return err
}

func mustBe(t *testing.T, what string, err error, kind *refusal.Kind) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: %v, want %s", what, err, kind.Name())
	}
}

var (
	grant    = ai.Grant{JobID: "job", LeaseID: "lease"}
	envelope = ai.SealedEnvelope{Ciphertext: "c", RecipientKeyID: "r", SenderKeyID: "s", Direction: ai.DirectionResult, DeadlineAt: 1}
	offers   = []ai.Capability{{Kind: ai.KindChat, Service: "mine", BackendID: "ollama", BackendClass: "http", Model: "m", OfferScope: ai.OfferSelf}}
)

// TestRequests: each request goes to its own path, and the signature is the
// device's over exactly the bytes that arrive.
func TestRequests(t *testing.T) {
	keys := keysOf(t)
	var got struct {
		request *http.Request
		body    []byte
		answer  []byte
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got.request, got.body = r, body
		_, _ = w.Write(got.answer)
	}))
	t.Cleanup(s.Close)
	c := client.New(client.Config{Server: serverAt(t, s.URL+"/mounted/below/"), Version: "1.2.3", Clock: func() time.Time { return t0 }})
	t.Cleanup(c.Close)
	d := c.As("runner_1", keys.Signer())
	if d.RunnerID() != "runner_1" || c.Server().String() != s.URL+"/mounted/below" {
		t.Errorf("%s at %s", d.RunnerID(), c.Server())
	}
	ctx := t.Context()
	start := ai.PairStartRequest{
		Daemon: ai.Daemon{Version: "1.2.3", Label: "box", Platform: ai.PlatformLinux}, Device: ai.PublicIdentityOf(keys.Identity()), Capabilities: offers,
	}
	code := ai.DeviceCode(strings.Repeat("d", 43))
	for _, c := range []struct {
		endpoint ai.Endpoint
		signed   bool
		want     []byte // the body
		answer   []byte
		read     any
		do       func() (any, error)
	}{
		{ai.EndpointPair, false, write(t, codec.PairRequest, ai.PairRequest{Start: &start}),
			[]byte(`{"deviceCode":"` + strings.Repeat("d", 43) + `","userCode":"ABCD-EFGH","verificationUrl":"https://app.example/pair","expiresAt":2,"pollIntervalMs":2000}`),
			ai.PairStartResponse{DeviceCode: code, UserCode: "ABCD-EFGH", VerificationURL: "https://app.example/pair", ExpiresAt: 2, PollIntervalMs: 2000},
			func() (any, error) { return d.PairStart(ctx, start) }},
		{ai.EndpointPair, false, write(t, codec.PairRequest, ai.PairRequest{Poll: &ai.PairPollRequest{DeviceCode: code}}),
			[]byte(`{"status":"pending"}`), ai.PairPollResponse{Status: ai.PairPending},
			func() (any, error) { return d.PairPoll(ctx, ai.PairPollRequest{DeviceCode: code}) }},
		{ai.EndpointClaim, true, write(t, codec.ClaimRequest, ai.ClaimRequest{RunnerID: "runner_1", Capabilities: offers, Max: 3}),
			[]byte(claimed), ai.ClaimResponse{Jobs: []ai.ClaimedStub{}, LeaseMs: 60000},
			func() (any, error) {
				return d.Claim(ctx, 0, ai.ClaimRequest{RunnerID: "another", Capabilities: offers, Max: 3})
			}},
		{ai.EndpointFetch, true, write(t, codec.FetchRequest, ai.FetchRequest{RunnerID: "runner_1", Grant: grant}),
			write(t, codec.FetchResponse, ai.FetchResponse{Envelope: envelope}), ai.FetchResponse{Envelope: envelope},
			func() (any, error) { return d.Fetch(ctx, grant) }},
		{ai.EndpointHeartbeat, true, write(t, codec.HeartbeatRequest, ai.HeartbeatRequest{RunnerID: "runner_1", DaemonVersion: "1.2.3", Capabilities: offers, ActiveLeases: []ai.Grant{grant}}),
			[]byte(`{"sites":{},"cancel":[],"lost":[],"serverTime":5,"awaitingConsent":[]}`),
			ai.HeartbeatResponse{Sites: map[ai.KeyID]ai.PublicIdentity{}, Cancel: []ai.Grant{}, Lost: []ai.Grant{}, ServerTime: 5, AwaitingConsent: []ai.KeyID{}},
			func() (any, error) {
				return d.Heartbeat(ctx, 0, ai.HeartbeatRequest{RunnerID: "another", DaemonVersion: "0", Capabilities: offers, ActiveLeases: []ai.Grant{grant}})
			}},
		{ai.EndpointResult, true, write(t, codec.ResultRequest, ai.ResultRequest{RunnerID: "runner_1", Grant: grant, Envelope: envelope, Disposition: ai.DispositionOK}),
			[]byte(`{"accepted":true,"state":"ok"}`), ai.ResultResponse{Accepted: true, State: "ok"},
			func() (any, error) {
				return d.Result(ctx, ai.ResultRequest{RunnerID: "another", Grant: grant, Envelope: envelope, Disposition: ai.DispositionOK})
			}},
		{ai.EndpointRelease, true, write(t, codec.ReleaseRequest, ai.ReleaseRequest{RunnerID: "runner_1", Leases: []ai.Grant{grant}, Reason: ai.ReleasePause}),
			[]byte(`{"released":["job"]}`), ai.ReleaseResponse{Released: []ai.JobID{"job"}},
			func() (any, error) { return d.Release(ctx, ai.ReleasePause, []ai.Grant{grant}) }},
	} {
		got.answer = c.answer
		read, err := c.do()
		if err != nil || !reflect.DeepEqual(read, c.read) {
			t.Errorf("%s: %+v, %v", c.endpoint, read, err)
			continue
		}
		r := got.request
		if r.Method != http.MethodPost || r.RequestURI != "/mounted/below/byollm/"+string(c.endpoint) {
			t.Errorf("%s: %s %s", c.endpoint, r.Method, r.RequestURI)
		}
		if !bytes.Equal(got.body, c.want) || r.ContentLength != int64(len(c.want)) {
			t.Errorf("%s sends %s\nwant %s", c.endpoint, got.body, c.want)
		}
		for name, want := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "allod/1.2.3", "Prefer": "", "Accept-Encoding": "", "Authorization": "", "Cookie": "",
		} {
			if r.Header.Get(name) != want {
				t.Errorf("%s: the header %s is %q", c.endpoint, name, r.Header.Get(name))
			}
		}
		signature, err := signing.ReadHeaders(signing.DaemonPlane, r.Header.Get)
		if !c.signed {
			if err == nil {
				t.Errorf("%s is signed", c.endpoint)
			}
			continue
		}
		if err != nil || signature.Caller != "runner_1" || signature.IssuedAt != ai.MillisOf(t0) {
			t.Errorf("%s: %+v, %v", c.endpoint, signature, err)
		}
		if err := signing.Verify(keys.Identity().Signing(), signing.Request{Plane: signing.DaemonPlane, Endpoint: c.endpoint, Body: got.body}, signature, ai.MillisOf(t0), signing.Window); err != nil {
			t.Errorf("%s: %v", c.endpoint, err)
		}
	}
}

// TestPrefer: a server is asked to hold only what can wait, in whole seconds.
func TestPrefer(t *testing.T) {
	var prefer string
	d := by(t, func(w http.ResponseWriter, r *http.Request) {
		prefer = r.Header.Get("Prefer")
		if strings.HasSuffix(r.URL.Path, "/claim") {
			_, _ = io.WriteString(w, claimed)
			return
		}
		_, _ = io.WriteString(w, `{"sites":{},"cancel":[],"lost":[],"serverTime":5,"awaitingConsent":[]}`)
	})
	for wait, want := range map[time.Duration]string{
		0: "", -time.Hour: "", time.Millisecond: "", 999 * time.Millisecond: "", time.Second: "wait=1", 1999 * time.Millisecond: "wait=1", 25 * time.Second: "wait=25",
	} {
		if _, err := d.Claim(t.Context(), wait, ai.ClaimRequest{Max: 1}); err != nil || prefer != want {
			t.Errorf("claim, %v: %q, %v", wait, prefer, err)
		}
		if _, err := d.Heartbeat(t.Context(), wait, ai.HeartbeatRequest{}); err != nil || prefer != want {
			t.Errorf("heartbeat, %v: %q, %v", wait, prefer, err)
		}
	}
}

// TestRedirects are not followed: a signed request is for one server.
func TestRedirects(t *testing.T) {
	var hits atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		hits.Add(1)
		_, _ = io.WriteString(w, claimed)
	}))
	t.Cleanup(other.Close)
	for _, status := range []int{300, 301, 302, 303, 304, 307, 308} {
		d := by(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", other.URL+"/byollm/claim")
			w.WriteHeader(status)
		})
		err := claim(t.Context(), d)
		mustBe(t, strconv.Itoa(status), err, client.ErrAnswer)
		if got := refusal.From(err).Detail(); !strings.Contains(got, "another address") {
			t.Errorf("%d: %q", status, got)
		}
	}
	if hits.Load() != 0 {
		t.Errorf("%d were followed", hits.Load())
	}
}

// TestLongAnswers: no more is read than a message can have.
func TestLongAnswers(t *testing.T) {
	limit := codec.ClaimResponse.Limit()
	padded := func(n int) string { return claimed + strings.Repeat(" ", n-len(claimed)) }
	var sent atomic.Int64
	endless := func(status int, declared int64) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if declared > 0 {
				w.Header().Set("Content-Length", strconv.FormatInt(declared, 10))
			}
			w.WriteHeader(status)
			sent.Store(0)
			for page := bytes.Repeat([]byte(" "), 64<<10); sent.Load() < 1<<30; sent.Add(int64(len(page))) {
				if _, err := w.Write(page); err != nil {
					return
				}
			}
		}
	}
	for what, c := range map[string]struct {
		h    http.HandlerFunc
		want *refusal.Kind
	}{
		"the longest": {answers(200, "application/json", padded(limit)), nil},
		"the longest, declared": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(limit))
			_, _ = io.WriteString(w, padded(limit))
		}, nil},
		"one byte more": {answers(200, "application/json", padded(limit+1)), client.ErrAnswer},
		"endless":       {endless(200, 0), client.ErrAnswer},
		"declared":      {endless(200, int64(limit)+1), client.ErrAnswer},
		"a terabyte":    {endless(200, 1<<40), client.ErrAnswer},
		// Of what is no answer, only the status counts.
		"an endless 503":  {endless(503, 0), client.ErrUnreachable},
		"a terabyte, 502": {endless(502, 1<<40), client.ErrUnreachable},
		"an endless 429":  {endless(429, 0), ai.ErrRateLimited},
		"an endless 404":  {endless(404, 0), client.ErrAnswer},
	} {
		err := claim(t.Context(), by(t, c.h))
		if c.want == nil {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		mustBe(t, what, err, c.want)
		if got := refusal.From(err).Detail(); strings.Contains(got, "larger") != (what == "one byte more" || what == "endless" || what == "declared" || what == "a terabyte") {
			t.Errorf("%s: %s", what, got)
		}
		if n := sent.Load(); n > 64<<20 {
			t.Errorf("%s: %d bytes were taken", what, n)
		}
	}
}

// TestLargeFetch: the bound is the message's own.
func TestLargeFetch(t *testing.T) {
	e := envelope
	e.Ciphertext = strings.Repeat("c", 2<<20)
	d := by(t, answers(200, "application/json", string(write(t, codec.FetchResponse, ai.FetchResponse{Envelope: e}))))
	if got, err := d.Fetch(t.Context(), grant); err != nil || got.Envelope != e {
		t.Errorf("%d characters, %v", len(got.Envelope.Ciphertext), err)
	}
	// The refusal of a fetch is no larger than any refusal.
	d = by(t, answers(403, "application/json", `{"error":"revoked","message":"`+strings.Repeat("m", 1<<20)+`"}`))
	_, err := d.Fetch(t.Context(), grant)
	mustBe(t, "a large refusal", err, client.ErrAnswer)
	read := 0
	d = at(t, "http://localhost", roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 503, ContentLength: -1, Body: io.NopCloser(counter{&read})}, nil
	}))
	_, err = d.Fetch(t.Context(), grant)
	mustBe(t, "an endless refusal", err, client.ErrUnreachable)
	if read > ai.MaxBody+1 {
		t.Errorf("%d bytes of it were read", read)
	}
}

// counter is endless white space and counts what was read of it.
type counter struct{ read *int }

func (c counter) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	*c.read += len(p)
	return len(p), nil
}

// TestRefusals: a refusal of the contract comes with its status, or it is none.
func TestRefusals(t *testing.T) {
	members := map[ai.Code]string{
		"unsupported-protocol-version": `,"supported":["1"],"minimum":"1"`, "clock-skew": `,"serverTime":1785499200000,"maxSkewMs":120000`, "rate-limited": `,"retryAfter":7`,
		"daemon-below-floor": `,"floor":"9.0.0"`,
	}
	for _, kind := range ai.Refusals.Kinds {
		code := ai.Code(kind.Name())
		body := fmt.Sprintf(`{"error":%q,"message":"canarybird"%s}`, code, members[code])
		for status := 400; status < 600; status++ {
			err := claim(t.Context(), at(t, "http://localhost", static(status, body)))
			switch {
			case status == kind.Status():
				var wire *ai.Error
				if !errors.As(err, &wire) || wire.Code != code || !errors.Is(err, kind) {
					t.Errorf("%s with %d: %v", code, status, err)
				}
				if wire != nil && (wire.RetryAfter != nil) != (code == "rate-limited") || wire != nil && (wire.ServerTime == 1785499200000) != (code == "clock-skew") {
					t.Errorf("%s lost what it says: %+v", code, wire)
				}
				// What people are shown is ours.
				if strings.Contains(refusal.Terminal(err), "canary") {
					t.Errorf("%s shows the server's text", code)
				}
			case status == 405 && code == "bad-request":
				mustBe(t, "405", err, ai.ErrBadRequest)
			case status == 429:
				mustBe(t, string(code)+" with 429", err, ai.ErrRateLimited)
			case status >= 500:
				mustBe(t, fmt.Sprint(code, " with ", status), err, client.ErrUnreachable)
			default:
				mustBe(t, fmt.Sprint(code, " with ", status), err, client.ErrAnswer)
			}
		}
	}
}

// roundTrip is a transport without a network.
type roundTrip func(r *http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// static answers every request in the same way.
func static(status int, body string) roundTrip {
	return func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1, Request: r}, nil
	}
}

// TestOtherAnswers: pages of proxies and portals count by their status, and what
// is said in them is shown to nobody.
func TestOtherAnswers(t *testing.T) {
	const html = "<html>canarybird</html>"
	for _, c := range []struct {
		status int
		body   string
		want   *refusal.Kind
	}{
		{200, html, client.ErrAnswer}, {200, "", client.ErrAnswer}, {204, "", client.ErrAnswer}, {201, claimed, nil}, {200, claimed + "x", client.ErrAnswer},
		{200, `{"jobs":[],"leaseMs":60000,"canarybird":1}`, client.ErrAnswer}, {200, `{"jobs":null,"leaseMs":1}`, client.ErrAnswer}, {200, `{"jobs":[],"leaseMs":0}`, client.ErrAnswer},
		{200, `{"error":"revoked","message":"m"}`, client.ErrAnswer}, // no refusal comes with a 200
		{400, html, client.ErrAnswer}, {401, html, client.ErrAnswer}, {403, html, client.ErrAnswer}, {404, html, client.ErrAnswer}, {404, "", client.ErrAnswer}, {404, `{"error":"not-found"}`, client.ErrAnswer},
		{405, html, client.ErrAnswer}, {407, html, client.ErrAnswer}, {409, html, client.ErrAnswer}, {413, html, client.ErrAnswer}, {451, html, client.ErrAnswer}, {499, html, client.ErrAnswer},
		{429, html, ai.ErrRateLimited}, {429, "", ai.ErrRateLimited}, {429, `{"error":"canarybird","message":"m"}`, ai.ErrRateLimited},
		{500, html, client.ErrUnreachable}, {501, html, client.ErrUnreachable}, {502, html, client.ErrUnreachable}, {503, "", client.ErrUnreachable}, {504, html, client.ErrUnreachable}, {520, html, client.ErrUnreachable}, {599, "null", client.ErrUnreachable},
		{500, `{"error":"server-error","message":""}`, client.ErrUnreachable}, {500, `{"error":"server-error","message":"m","x":1}`, client.ErrUnreachable},
		{403, `{"error":"revoked","message":"m","supported":["0"]}`, client.ErrAnswer}, {403, `{"error":"Revoked","message":"m"}`, client.ErrAnswer},
		{304, "", client.ErrAnswer}, {399, "", client.ErrAnswer}, {600, html, client.ErrUnreachable}, {999, html, client.ErrUnreachable},
	} {
		err := claim(t.Context(), at(t, "http://localhost", static(c.status, c.body)))
		if c.want == nil {
			if err != nil {
				t.Errorf("%d %s: %v", c.status, c.body, err)
			}
			continue
		}
		mustBe(t, fmt.Sprint(c.status, " ", c.body), err, c.want)
		if strings.Contains(refusal.Terminal(err)+err.Error(), "canary") {
			t.Errorf("%d: the refusal holds what came: %v", c.status, err)
		}
	}
}

// TestBrokenConnections are all of one kind.
func TestBrokenConnections(t *testing.T) {
	hijack := func(send string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, send)
			_ = conn.Close()
		}
	}
	closed := httptest.NewServer(nil)
	closed.Close()
	for what, d := range map[string]*client.Device{
		"nobody listens":      at(t, closed.URL, nil),
		"cut at once":         by(t, hijack("")),
		"no HTTP":             by(t, hijack("SSH-2.0-canarybird\r\n")),
		"cut in the head":     by(t, hijack("HTTP/1.1 200 OK\r\nContent-Le")),
		"cut in the body":     by(t, hijack("HTTP/1.1 200 OK\r\nContent-Length: 27\r\n\r\n"+claimed[:20])),
		"cut in a chunk":      by(t, hijack("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1b\r\n"+claimed[:20])),
		"cut in a refusal":    by(t, hijack("HTTP/1.1 403 Forbidden\r\nContent-Length: 100\r\n\r\n{\"error\":\"revoked\",\"message\":\"m\"}")),
		"a head of megabytes": by(t, hijack("HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 1<<20)+"\r\n\r\n"+claimed)),
	} {
		err := claim(t.Context(), d)
		mustBe(t, what, err, client.ErrUnreachable)
		if err != nil && strings.Contains(refusal.Terminal(err)+err.Error(), "canary") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestCertificate: whoever answers without the right certificate is not the
// site.
func TestCertificate(t *testing.T) {
	s := httptest.NewUnstartedServer(answers(200, "application/json", claimed))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	err := claim(t.Context(), at(t, s.URL, nil))
	mustBe(t, "a certificate of nobody", err, client.ErrAnswer)
	// And with the right one all is well.
	if err := claim(t.Context(), at(t, s.URL, s.Client().Transport)); err != nil {
		t.Error(err)
	}
}

// TestNoTLS: a site that speaks no TLS is named as such, and not as one that is
// down.
func TestNoTLS(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "SSH-2.0-canarybird\r\n")
			_, _ = conn.Read(make([]byte, 4096)) // or the system would cut what was written
			_ = conn.Close()
		}
	}()
	plain := httptest.NewUnstartedServer(answers(200, "application/json", claimed))
	plain.Config.ErrorLog = log.New(io.Discard, "", 0)
	plain.Start()
	t.Cleanup(plain.Close)
	for what, address := range map[string]string{"HTTP": plain.Listener.Addr().String(), "another protocol": l.Addr().String()} {
		err := claim(t.Context(), at(t, "https://"+address, nil))
		mustBe(t, what, err, client.ErrUnreachable)
		if text := refusal.Terminal(err); !strings.Contains(text, "speaks no TLS") || strings.Contains(text, "canary") {
			t.Errorf("%s: %s", what, text)
		}
	}
}

// TestRunnerIDs: a name that no header could carry would make every request
// fail, so it is refused when it is given.
func TestRunnerIDs(t *testing.T) {
	for id, good := range map[string]bool{
		"runner_5f3c": true, "r": true, "a b:c/d~!": true, strings.Repeat("r", 1024): true,
		strings.Repeat("r", 1025): false, "a\nb": false, "a\r\nX-Byollm-Site: b": false, "a\x00": false, " a": false, "a ": false, "ä": false, "a\x7f": false, "\t": false,
	} {
		body := write(t, codec.PairPollResponse, ai.PairPollResponse{Status: ai.PairApproved, Approved: &ai.PairApproval{RunnerID: ai.RunnerID(id), Owner: "o", Sites: map[ai.KeyID]ai.PublicIdentity{}}})
		d := at(t, "http://localhost", static(200, string(body)))
		got, err := d.PairPoll(t.Context(), ai.PairPollRequest{DeviceCode: ai.DeviceCode(strings.Repeat("d", 43))})
		if good && (err != nil || got.Approved.RunnerID != ai.RunnerID(id)) {
			t.Errorf("%.40q: %+v, %v", id, got, err)
		}
		if !good && (!errors.Is(err, client.ErrAnswer) || !reflect.DeepEqual(got, ai.PairPollResponse{})) {
			t.Errorf("%.40q: %+v, %v", id, got, err)
		}
		if !good {
			continue
		}
		// It does arrive.
		arrived := ""
		d = by(t, func(w http.ResponseWriter, r *http.Request) {
			arrived = r.Header.Get("X-Byollm-Runner")
			_, _ = io.WriteString(w, claimed)
		})
		d = d.As(ai.RunnerID(id), keysOf(t).Signer())
		if err := claim(t.Context(), d); err != nil || arrived != id {
			t.Errorf("%.40q arrives as %.40q: %v", id, arrived, err)
		}
	}
}

// TestUnsendable: what the contract does not allow is not sent.
func TestUnsendable(t *testing.T) {
	d := at(t, "http://localhost", roundTrip(func(*http.Request) (*http.Response, error) {
		t.Error("something was sent")
		return nil, io.EOF
	}))
	_, err := d.Claim(t.Context(), 0, ai.ClaimRequest{Max: 0})
	mustBe(t, "a claim of nothing", err, ai.ErrBadRequest)
	_, err = d.Fetch(t.Context(), ai.Grant{})
	mustBe(t, "a fetch of nothing", err, ai.ErrBadRequest)
	if again, _ := client.Retry(err); again {
		t.Error("it would be tried again")
	}
	// A signer that fails, as a key store that is away.
	away := errors.New("away")
	_, err = d.As("runner_1", failing{away}).Fetch(t.Context(), grant)
	if !errors.Is(err, away) {
		t.Errorf("%v", err)
	}
}

type failing struct{ err error }

func (failing) Public() key.SigningPublic            { return key.SigningPublic{} }
func (f failing) Sign([]byte) (key.Signature, error) { return key.Signature{}, f.err }

// TestCanceled: the caller's own end is no failure of the server, whatever cause
// the caller gave, wherever the request was.
func TestCanceled(t *testing.T) {
	for _, cause := range []error{nil, errors.New("the app canceled the job")} {
		for _, inBody := range []bool{false, true} {
			arrived := make(chan struct{})
			d := by(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // or the end would not be noticed
				if inBody {
					_, _ = io.WriteString(w, claimed[:5])
					_ = http.NewResponseController(w).Flush()
				}
				close(arrived)
				<-r.Context().Done()
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() { <-arrived; cancel(cause) }()
			err := claim(ctx, d)
			if !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnreachable) {
				t.Errorf("cause %v, in the body %v: %v", cause, inBody, err)
			}
			if again, _ := client.Retry(err); again {
				t.Error("it would be tried again")
			}
			// Before it began.
			if err := claim(ctx, d); !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnreachable) {
				t.Errorf("cause %v, before: %v", cause, err)
			}
		}
	}
}

// pipes is a network in memory, for a clock that a test owns.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p pipes) transport() *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		select {
		case p <- theirs:
			return ours, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
}

// TestSlowAnswers end after their time, which is longer where the server was
// asked to wait.
func TestSlowAnswers(t *testing.T) {
	for what, h := range map[string]http.HandlerFunc{
		"no head": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"half a body": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, claimed[:5])
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
		"a byte now and then": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, " ")
				_ = http.NewResponseController(w).Flush()
				select {
				case <-time.After(time.Second):
				case <-r.Context().Done():
				}
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			network := make(pipes)
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // or the end would not be noticed
				h(w, r)
			})}
			go func() { _ = server.Serve(network) }()
			defer func() { close(network); _ = server.Close() }()
			tr := network.transport()
			defer tr.CloseIdleConnections()
			d := at(t, "http://localhost", tr)
			for wait, want := range map[time.Duration]time.Duration{0: 30 * time.Second, 25 * time.Second: 55 * time.Second} {
				begin := time.Now()
				_, err := d.Claim(t.Context(), wait, ai.ClaimRequest{Max: 1})
				mustBe(t, what, err, client.ErrUnreachable)
				if took := time.Since(begin); took != want {
					t.Errorf("%s, waiting %v: after %v", what, wait, took)
				}
				if again, _ := client.Retry(err); !again {
					t.Errorf("%s: it would not be tried again", what)
				}
			}
			// A caller's own deadline is kept too.
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			begin := time.Now()
			err := claim(ctx, d)
			mustBe(t, what+", the caller's deadline", err, client.ErrUnreachable)
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
				t.Errorf("%s: %v after %v", what, err, time.Since(begin))
			}
		})
	}
}

// TestSlowLines: what carries sealed material has the time that it takes on a
// slow line, and still an end.
func TestSlowLines(t *testing.T) {
	large := envelope
	large.Ciphertext = strings.Repeat("c", 1<<20)
	for what, c := range map[string]struct {
		do   func(ctx context.Context, d *client.Device) error
		want time.Duration
	}{
		"claim":          {claim, 30 * time.Second},
		"fetch":          {func(ctx context.Context, d *client.Device) error { _, err := d.Fetch(ctx, grant); return err }, (30 + 1016) * time.Second},
		"a small result": {func(ctx context.Context, d *client.Device) error { return hand(ctx, d, envelope) }, 30 * time.Second},
		"a large result": {func(ctx context.Context, d *client.Device) error { return hand(ctx, d, large) }, (30 + 24) * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			d := at(t, "http://localhost", roundTrip(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}))
			mustBe(t, what, c.do(t.Context(), d), client.ErrUnreachable)
			if took := time.Since(begin); took != c.want {
				t.Errorf("%s: after %v, want %v", what, took, c.want)
			}
		})
	}
}

func hand(ctx context.Context, d *client.Device, e ai.SealedEnvelope) error {
	_, err := d.Result(ctx, ai.ResultRequest{Grant: grant, Envelope: e, Disposition: ai.DispositionOK})
	return err
}

// TestHeldAnswer: an answer within the time that the server was asked to wait is
// an answer.
func TestHeldAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := make(pipes)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(54 * time.Second)
			_, _ = io.WriteString(w, claimed)
		})}
		go func() { _ = server.Serve(network) }()
		defer func() { close(network); _ = server.Close() }()
		tr := network.transport()
		defer tr.CloseIdleConnections()
		if _, err := at(t, "http://localhost", tr).Claim(t.Context(), 25*time.Second, ai.ClaimRequest{Max: 1}); err != nil {
			t.Error(err)
		}
	})
}

func TestRetry(t *testing.T) {
	wire := func(kind *refusal.Kind, after ...int64) error {
		e := ai.ErrorOf(kind)
		if len(after) > 0 {
			e.RetryAfter = &after[0]
		}
		return e
	}
	for _, c := range []struct {
		err   error
		again bool
		after time.Duration
	}{
		{nil, false, 0},
		{context.Canceled, false, 0},
		{context.DeadlineExceeded, false, 0},
		{io.EOF, false, 0},
		{client.ErrUnreachable, true, 0},
		{client.ErrUnreachable.Because(context.DeadlineExceeded), true, 0},
		{client.ErrAnswer.With("It is odd."), true, 0},
		{client.ErrPlain, false, 0},
		{client.ErrServerURL, false, 0},
		{wire(ai.ErrBadRequest), false, 0}, {wire(ai.ErrBadRequest, 5), false, 0},
		{wire(ai.ErrUnsupportedVersion), false, 0}, {wire(ai.ErrUnauthorized), false, 0}, {wire(ai.ErrForbidden), false, 0}, {wire(ai.ErrRevoked), false, 0},
		{wire(ai.ErrNotFound), false, 0}, {wire(ai.ErrTooLate), false, 0}, {wire(ai.ErrTooLate, 9), false, 0},
		{wire(ai.ErrNotReady), true, 0}, {wire(ai.ErrNotReady, 2), true, 2 * time.Second}, {wire(ai.ErrClockSkew), true, 0},
		{wire(ai.ErrRateLimited), true, 0}, {wire(ai.ErrRateLimited, 0), true, 0}, {wire(ai.ErrRateLimited, 7), true, 7 * time.Second},
		{wire(ai.ErrServer), true, 0}, {wire(ai.ErrServer, 3600), true, time.Hour}, {wire(ai.ErrServer, 3601), true, time.Hour}, {wire(ai.ErrServer, 1<<53-1), true, time.Hour},
		{client.ErrAnswer.Because(wire(ai.ErrRevoked)), true, 0}, // a cause decides nothing
		{client.ErrUnreachable.Because(wire(ai.ErrRateLimited, 9)), true, 0},
		{fmt.Errorf("fetching: %w", wire(ai.ErrRateLimited, 1)), true, time.Second},
		{&ai.Error{Code: "of tomorrow", Message: "m"}, false, 0},
	} {
		if again, after := client.Retry(c.err); again != c.again || after != c.after {
			t.Errorf("%v: %v after %v, want %v after %v", c.err, again, after, c.again, c.after)
		}
	}
}

// TestNew: without a clock or a transport the machine's are used.
func TestNew(t *testing.T) {
	var issued time.Time
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sig, err := signing.ReadHeaders(signing.DaemonPlane, r.Header.Get)
		if err != nil {
			t.Error(err)
		}
		issued = sig.IssuedAt.Time()
		_, _ = io.WriteString(w, claimed)
	}))
	t.Cleanup(s.Close)
	c := client.New(client.Config{Server: serverAt(t, s.URL), Version: "1"})
	t.Cleanup(c.Close)
	before := time.Now().Truncate(time.Millisecond)
	if err := claim(t.Context(), c.As("r", keysOf(t).Signer())); err != nil || issued.Before(before) || issued.After(time.Now()) {
		t.Errorf("issued at %v, %v", issued, err)
	}
}
