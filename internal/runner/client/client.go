package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/instance"
	"github.com/allodhq/allod/wire/ai/protocol"
	"github.com/allodhq/allod/wire/ai/signing"
	"github.com/allodhq/allod/wire/ai/weburl"
)

// What this package refuses besides what a server does.
var (
	ErrServerURL = refusal.NewKind("server-url", 400,
		"This is not where a site can be: it must be an http or https address without user name, query or fragment.",
		"Copy the address that the app shows, as in https://app.example.")
	ErrPlain = refusal.NewKind("server-plain-http", 400,
		"Plain HTTP is spoken to this machine and its private network only; on any other way a stranger could see and hold back requests.",
		"Use the https address of the site.")
	ErrUnreachable = refusal.NewKind("server-unreachable", 503,
		"The site cannot be reached: it is down, or the network between is.",
		"Check the address and the connection; what is under way is kept and sent again.")
	ErrAnswer = refusal.NewKind("server-answer", 502,
		"The answer is not one that a site gives.",
		"Check that the address is the site's own and that nothing between, as a sign-in page, answers in its place.")
	ErrTwoAgents = refusal.NewKind("two-agents", 409,
		"Another live agent uses the keys of this machine, as a copy of its folder does, so the site serves neither of them.",
		"Stop all but one, and on the machine that should go on pair anew: allod connect URL. If you made no copy, see docs/security.md.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Speaking to a site", Kinds: []*refusal.Kind{
	ErrServerURL, ErrPlain, ErrUnreachable, ErrAnswer, ErrTwoAgents,
}}

// Timeout bounds one request, beyond the time the server was asked to hold it and
// the time that sealed material takes on a slow line.
const Timeout = 30 * time.Second

// slowest is the slowest line on which sealed material is waited for, in bytes a
// second.
const slowest = 32 << 10

// onTheWay is how long a message of that many bytes may take.
func onTheWay(bytes int) time.Duration {
	return time.Duration(max(0, bytes-ai.MaxBody)/slowest) * time.Second
}

// Server is where a site serves its devices. The zero value is nowhere. Values
// compare with ==.
type Server struct {
	base string // normal form, without a slash at the end
	host string
	tls  bool
}

// ParseServer reads a server's address. A path is kept, for sites that are
// mounted below one; a slash at its end is not. It returns [ErrServerURL], and
// [ErrPlain] for plain HTTP to an address that is written out and not private.
func ParseServer(text string) (Server, error) {
	u, err := weburl.ParseWeb(weburl.Trim(text))
	if err != nil {
		return Server{}, ErrServerURL
	}
	// The normal form of package weburl is one that net/url reads alike.
	parts, err := url.Parse(u.String())
	if err != nil || !sameHost(u, parts) || parts.User != nil || strings.ContainsAny(u.String(), "?#") {
		return Server{}, ErrServerURL
	}
	s := Server{base: strings.TrimRight(u.String(), "/"), host: u.Host(), tls: u.Scheme() == "https"}
	if ip, err := netip.ParseAddr(strings.Trim(s.host, "[]")); err == nil && !s.tls && !private(ip) {
		return Server{}, ErrPlain
	}
	return s, nil
}

// String is the address in its normal form.
func (s Server) String() string { return s.base }

// Origin is the address without its path: what must be the same for two pages
// to belong to one site.
func (s Server) Origin() string {
	if i := strings.Index(s.base, "://"); i >= 0 {
		if j := strings.IndexByte(s.base[i+3:], '/'); j >= 0 {
			return s.base[:i+3+j]
		}
	}
	return s.base
}

// Plain reports whether requests go in plain HTTP beyond this machine, which
// deserves a warning.
func (s Server) Plain() bool {
	if s.tls {
		return false
	}
	ip, err := netip.ParseAddr(strings.Trim(s.host, "[]"))
	local := s.host == "localhost" || strings.HasSuffix(s.host, ".localhost")
	return !(err == nil && ip.IsLoopback() || local)
}

// sameHost reports whether both parsers found the same host in a URL.
func sameHost(u weburl.URL, parts *url.URL) bool {
	return parts.Hostname() == strings.Trim(u.Host(), "[]")
}

// private counts IPv4 addresses in their IPv6 form as what they are.
func private(ip netip.Addr) bool { return ip.IsLoopback() || ip.IsPrivate() }

// Config says who speaks to whom. Server is required.
type Config struct {
	// Server is the site's address.
	Server Server
	// Version is this program's own version, for the site's log.
	Version string
	// Instance is what this program calls itself while it runs; zero means that it
	// does not say, and cannot be told from another with the same keys.
	Instance instance.ID
	// Clock is time.Now where it is nil.
	Clock func() time.Time
	// Transport carries requests instead of the network, for tests.
	Transport http.RoundTripper
	// Spoken is what is remembered of the server; zero means that it was not
	// asked yet.
	Spoken Spoken
	// Agreed is told when that changes. It may be nil.
	Agreed func(Spoken)
}

// Spoken is the version of the protocol that a server and this program agreed
// on: the newest that both know.
type Spoken struct {
	// Version is what requests declare; empty means none yet.
	Version string
	// At is when the server was last asked for the newest that this program
	// knows.
	At ai.Millis
}

// askAgain is how long an older version is spoken before the server is asked for
// a newer one, which it may have learned since.
const askAgain = 24 * time.Hour

// Client sends requests to one server. It may be used by several goroutines.
type Client struct {
	config Config
	http   *http.Client

	mu     sync.Mutex
	codec  ai.Codec
	spoken Spoken
}

// New makes a client. Nothing is sent.
func New(c Config) *Client {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Transport == nil {
		c.Transport = Transport(c.Server)
	}
	codec, ok := protocol.Find(c.Spoken.Version)
	if !ok {
		codec, c.Spoken = protocol.Latest(), Spoken{}
	}
	return &Client{config: c, codec: codec, spoken: c.Spoken, http: &http.Client{
		Transport:     c.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Codec is of the version that is spoken with the server now.
func (c *Client) Codec() ai.Codec {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.codec
}

// Spoken is what was agreed with the server. Its version is empty until the
// server has answered a request.
func (c *Client) Spoken() Spoken {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spoken
}

// begin is the codec to try first: the one that was agreed on, or the newest
// where the server has not been asked for it in a day.
func (c *Client) begin() ai.Codec {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spoken.Version != "" && c.codec.Version != protocol.Latest().Version && c.config.Clock().Sub(c.spoken.At.Time()).Abs() >= askAgain {
		return protocol.Latest()
	}
	return c.codec
}

// agreed records that the server took a request in a version, in the place of
// another that it refused or not. An older version than the one that is spoken
// counts only where it took a refused one's place: a request that was under way
// when a newer one was agreed on says nothing.
func (c *Client) agreed(codec ai.Codec, instead bool) {
	c.mu.Lock()
	newest := codec.Version == protocol.Latest().Version && c.spoken.Version != codec.Version
	news := instead || newest || c.spoken.Version == ""
	if news {
		c.codec, c.spoken = codec, Spoken{Version: codec.Version, At: ai.MillisOf(c.config.Clock())}
	}
	spoken := c.spoken
	c.mu.Unlock()
	if news && c.config.Agreed != nil {
		c.config.Agreed(spoken)
	}
}

// other is the codec to try after a refusal of the one that was tried.
func other(tried ai.Codec, err error) (ai.Codec, bool) {
	var e *ai.Error
	if !errors.As(err, &e) || !errors.Is(e, ai.ErrUnsupportedVersion) {
		return ai.Codec{}, false
	}
	next, ok := protocol.Best(e.Supported)
	return next, ok && next.Version != tried.Version
}

// Transport is the network as a client uses it, with connections of its own. It
// dials only where the server may be.
func Transport(s Server) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	if !s.tls {
		dialer.ControlContext = judge
	}
	t := &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 8, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: 32 << 10,
		DisableCompression: true,
		// A connection that died in silence, as when a laptop slept, would hold all
		// requests until the system gives it up.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
	}
	if s.tls {
		// A proxy sees where to, and nothing of what is said.
		t.Proxy = http.ProxyFromEnvironment
	}
	return t
}

// judge looks at the address that is about to be connected to in plain HTTP.
func judge(_ context.Context, _, address string, _ syscall.RawConn) error {
	if at, err := netip.ParseAddrPort(address); err != nil || !private(at.Addr()) {
		return ErrPlain
	}
	return nil
}

// Close lets go of idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Server is where the client sends to.
func (c *Client) Server() Server { return c.config.Server }

// PairStart asks for a code.
func (c *Client) PairStart(ctx context.Context, q ai.PairStartRequest) (ai.PairStartResponse, error) {
	return send(ctx, c, nil, ai.EndpointPair, 0, func(v ai.Codec) ([]byte, error) {
		start := q
		start.Capabilities = v.Sayable(q.Capabilities)
		return v.PairRequest.Write(ai.PairRequest{Start: &start})
	},
		func(v ai.Codec) ai.Message[ai.PairStartResponse] { return v.PairStartResponse })
}

// PairPoll asks whether a person has decided. An approval under a name that no
// request could carry in its headers is [ErrAnswer].
func (c *Client) PairPoll(ctx context.Context, q ai.PairPollRequest) (ai.PairPollResponse, error) {
	a, err := send(ctx, c, nil, ai.EndpointPair, 0, func(v ai.Codec) ([]byte, error) { return v.PairRequest.Write(ai.PairRequest{Poll: &q}) },
		func(v ai.Codec) ai.Message[ai.PairPollResponse] { return v.PairPollResponse })
	if err == nil && a.Approved != nil && !sendable(string(a.Approved.RunnerID)) {
		return ai.PairPollResponse{}, ErrAnswer.With("It names the machine in a way that no request can carry.").Because(errName)
	}
	return a, err
}

// errName is the cause of an odd answer that is the site's own and that no other
// follows.
var errName = errors.New("a runner id that cannot be sent")

// maxRunnerID bounds the name of a device at its server, in bytes.
const maxRunnerID = 1024

// sendable reports whether a text arrives in a header as it was sent.
func sendable(text string) bool {
	bad := func(r rune) bool { return r < ' ' || r > '~' }
	return len(text) <= maxRunnerID && strings.TrimSpace(text) == text && !strings.ContainsFunc(text, bad)
}

// Device signs requests as one paired device.
type Device struct {
	*Client
	signer key.Signer
	runner ai.RunnerID
}

// As returns the client's view for a device that the server knows as runner.
func (c *Client) As(runner ai.RunnerID, signer key.Signer) *Device { return &Device{c, signer, runner} }

// RunnerID is the name under which the server knows the device.
func (d *Device) RunnerID() ai.RunnerID { return d.runner }

// Claim asks for work. The server is asked to hold the request up to wait, in
// whole seconds, until there is some; servers that do not know that answer at
// once.
func (d *Device) Claim(ctx context.Context, wait time.Duration, q ai.ClaimRequest) (ai.ClaimResponse, error) {
	q.RunnerID = d.runner
	return send(ctx, d.Client, d, ai.EndpointClaim, wait, func(v ai.Codec) ([]byte, error) {
		said := q
		said.Capabilities = v.Sayable(q.Capabilities)
		return v.ClaimRequest.Write(said)
	},
		func(v ai.Codec) ai.Message[ai.ClaimResponse] { return v.ClaimResponse })
}

// Fetch asks for the sealed payload of a grant.
func (d *Device) Fetch(ctx context.Context, g ai.Grant) (ai.FetchResponse, error) {
	q := ai.FetchRequest{RunnerID: d.runner, Grant: g}
	return send(ctx, d.Client, d, ai.EndpointFetch, 0, func(v ai.Codec) ([]byte, error) { return v.FetchRequest.Write(q) },
		func(v ai.Codec) ai.Message[ai.FetchResponse] { return v.FetchResponse })
}

// Heartbeat says that the device is there and renews what it holds. The server
// is asked to hold the answer up to wait, until there is news.
func (d *Device) Heartbeat(ctx context.Context, wait time.Duration, q ai.HeartbeatRequest) (ai.HeartbeatResponse, error) {
	q.RunnerID, q.DaemonVersion = d.runner, d.config.Version
	return send(ctx, d.Client, d, ai.EndpointHeartbeat, wait, func(v ai.Codec) ([]byte, error) {
		said := q
		said.Capabilities = v.Sayable(q.Capabilities)
		return v.HeartbeatRequest.Write(said)
	},
		func(v ai.Codec) ai.Message[ai.HeartbeatResponse] { return v.HeartbeatResponse })
}

// Result returns a finished run.
func (d *Device) Result(ctx context.Context, q ai.ResultRequest) (ai.ResultResponse, error) {
	q.RunnerID = d.runner
	return send(ctx, d.Client, d, ai.EndpointResult, 0, func(v ai.Codec) ([]byte, error) { return v.ResultRequest.Write(q) },
		func(v ai.Codec) ai.Message[ai.ResultResponse] { return v.ResultResponse })
}

// Release gives grants back.
func (d *Device) Release(ctx context.Context, reason ai.ReleaseReason, leases []ai.Grant) (ai.ReleaseResponse, error) {
	q := ai.ReleaseRequest{RunnerID: d.runner, Leases: leases, Reason: reason}
	return send(ctx, d.Client, d, ai.EndpointRelease, 0, func(v ai.Codec) ([]byte, error) { return v.ReleaseRequest.Write(q) },
		func(v ai.Codec) ai.Message[ai.ReleaseResponse] { return v.ReleaseResponse })
}

// send sends one request in the newest version of the protocol that both sides
// know: a server that does not know ours says which it does, and is asked once
// more (MUST VERSION_HANDSHAKE_REQUIRED).
func send[A any](ctx context.Context, c *Client, d *Device, e ai.Endpoint, wait time.Duration, write func(ai.Codec) ([]byte, error), read func(ai.Codec) ai.Message[A]) (A, error) {
	tried := c.begin()
	a, err := exchange(ctx, c, d, e, wait, tried, write, read)
	codec, ok := other(tried, err)
	if ok {
		a, err = exchange(ctx, c, d, e, wait, codec, write, read)
	} else {
		codec = tried
	}
	if err == nil {
		c.agreed(codec, codec.Version != tried.Version)
	}
	return a, err
}

// exchange writes one request, sends it and reads the answer. The bytes that are
// signed are the bytes that are sent (MUST REQUESTS_SIGNED_NOT_BEARER).
func exchange[A any](ctx context.Context, c *Client, d *Device, e ai.Endpoint, wait time.Duration, v ai.Codec, write func(ai.Codec) ([]byte, error), readAs func(ai.Codec) ai.Message[A]) (A, error) {
	var none A
	read := readAs(v)
	body, err := write(v)
	if err != nil {
		return none, err
	}
	wait = max(wait, 0)
	ctx, cancel := context.WithTimeout(ctx, Timeout+wait+onTheWay(len(body))+onTheWay(read.Limit()))
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.config.Server.base+ai.PathPrefix+"/"+string(e), bytes.NewReader(body))
	if err != nil {
		return none, ErrServerURL
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "allod/"+c.config.Version)
	if seconds := int(wait / time.Second); seconds > 0 {
		r.Header.Set("Prefer", "wait="+strconv.Itoa(seconds))
	}
	if d != nil {
		request := signing.Request{Plane: signing.DaemonPlane, Endpoint: e, Body: body}
		signed, err := signing.Sign(d.signer, request, string(d.runner), ai.MillisOf(c.config.Clock()))
		if err != nil {
			return none, err
		}
		for _, h := range signed.Headers(signing.DaemonPlane) {
			r.Header.Set(h[0], h[1])
		}
		if !c.config.Instance.IsZero() {
			r.Header.Set(instance.Header, c.config.Instance.String())
		}
	}
	answer, head, status, err := c.roundTrip(r, read.Limit())
	switch {
	case err != nil:
		return none, err
	case !good(status):
		err := c.refused(answer, status)
		if r.Header.Get(instance.Header) != "" && head.Get(instance.Conflict) == instance.TwoAgents && errors.Is(err, ai.ErrForbidden) {
			return none, ErrTwoAgents
		}
		return none, err
	}
	a, err := read.Read(answer)
	if err != nil {
		return none, ErrAnswer.Because(err)
	}
	return a, nil
}

func good(status int) bool { return status >= 200 && status <= 299 }

// maxAhead is how much room is made for an answer before it is there, in bytes.
const maxAhead = 16 << 10

// roundTrip sends a request and reads the answer: at most limit bytes of a good
// one. Of another only the status counts where it is larger than any refusal.
func (c *Client) roundTrip(r *http.Request, limit int) (body []byte, head http.Header, status int, err error) {
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, nil, 0, failed(r, err)
	}
	defer resp.Body.Close()
	if !good(resp.StatusCode) {
		limit = protocol.Latest().Error.Limit()
	}
	large := resp.ContentLength > int64(limit)
	if !large {
		var b bytes.Buffer
		// What is announced is made room for, but not on a stranger's word alone.
		b.Grow(int(min(max(resp.ContentLength, 0), maxAhead)) + bytes.MinRead)
		if _, err := b.ReadFrom(io.LimitReader(resp.Body, int64(limit)+1)); err != nil {
			return nil, nil, 0, failed(r, err)
		}
		body = b.Bytes()
		large = len(body) > limit
	}
	switch {
	case large && good(resp.StatusCode):
		return nil, nil, 0, ErrAnswer.With("It is larger than any such answer.")
	case large:
		body = nil
	}
	return body, resp.Header, resp.StatusCode, nil
}

// failed names an error of the network. The caller's own end stays what it is,
// whatever cause the caller gave it.
func failed(r *http.Request, err error) error {
	if errors.Is(r.Context().Err(), context.Canceled) {
		return context.Canceled
	}
	var named *refusal.Kind
	if errors.As(err, &named) {
		return named
	}
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		return ErrAnswer.With("Its certificate is not good for this address.").Because(err)
	}
	var record tls.RecordHeaderError
	if errors.As(err, &record) || errors.Is(err, http.ErrSchemeMismatch) {
		return ErrUnreachable.With("What answers there speaks no TLS: perhaps the address begins with http, and not https.").Because(err)
	}
	return ErrUnreachable.Because(err)
}

// refused reads a refusal. What is no refusal of the contract counts by its
// status: a proxy's error page is a reason to wait, not to give up.
func (c *Client) refused(body []byte, status int) error {
	e, err := protocol.Latest().Error.Read(body)
	switch {
	case err == nil && e.Code.Status() == status:
		return &e
	case err == nil && status == http.StatusMethodNotAllowed && errors.Is(&e, ai.ErrBadRequest): // as servers say it
		return &e
	case status == http.StatusTooManyRequests:
		return ai.ErrorOf(ai.ErrRateLimited)
	case status >= 500:
		return ErrUnreachable.With("Something before it answered in its place.")
	case status >= 300 && status < 400:
		return ErrAnswer.With("It sends on to another address, which is not followed.")
	}
	return ErrAnswer
}

// Retry says whether the same request may succeed later, and how long the server
// asked to wait; zero means that it did not say.
func Retry(err error) (retry bool, after time.Duration) {
	if err == nil || errors.Is(err, errName) {
		return false, 0
	}
	// What answered in the site's place said nothing about the request, whatever
	// stands in its cause.
	switch refusal.From(err).Kind() {
	case ErrUnreachable, ErrAnswer:
		return true, 0
	}
	var e *ai.Error
	if errors.As(err, &e) {
		if e.RetryAfter != nil {
			after = time.Duration(min(*e.RetryAfter, maxRetryAfter)) * time.Second
		}
		switch refusal.From(err).Kind() {
		case ai.ErrRateLimited, ai.ErrServer, ai.ErrNotReady, ai.ErrClockSkew:
			return true, after
		}
	}
	return false, 0
}

// maxRetryAfter bounds what a server can make us wait, in seconds.
const maxRetryAfter = 3600

// Page is a page that a server sends a person to.
type Page struct {
	// URL is its address in normal form, of printable ASCII.
	URL string
	// Origin is that of [Server.Origin].
	Origin string
}

// SameSite reports whether the page belongs to a server: it has the same origin,
// or both are this machine at one port, under whatever name.
func (p Page) SameSite(s Server) bool {
	return p.Origin == s.Origin() || loopback(p.Origin) != "" && loopback(p.Origin) == loopback(s.Origin())
}

// loopback is an origin on this machine with its host's name replaced, or "".
func loopback(origin string) string {
	u, err := url.Parse(origin)
	if err != nil {
		return ""
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback()) {
		return ""
	}
	return u.Scheme + "://localhost:" + u.Port()
}

// ParsePage reads the address of a page. It returns [ErrServerURL] for a text
// that is no web address.
func ParsePage(text string) (p Page, err error) {
	u, err := weburl.ParseWeb(text)
	if err != nil {
		return Page{}, ErrServerURL
	}
	parts, err := url.Parse(u.String())
	if err != nil || parts.User != nil || !sameHost(u, parts) {
		return Page{}, ErrServerURL
	}
	return Page{URL: u.String(), Origin: u.Scheme() + "://" + parts.Host}, nil
}
