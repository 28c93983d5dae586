package doctor

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/protocol"
	"github.com/allodhq/allod/wire/ai/signing"
)

// site is a site that is tried.
type site struct {
	server client.Server
	// device signs for this machine; nil where it is not paired with the site.
	device key.Signer
	runner ai.RunnerID
	spoken client.Spoken
	// odd is why an address of the list cannot be used.
	odd error
	at  string
}

// sites are those that this machine is paired with, and the one that was given.
func (e exam) sites() []site {
	keys, err := home.LoadKeys(e.Home)
	paired := err == nil
	pairings, _ := home.LoadPairings(e.Home) // the folder's probes say what is wrong
	var list []site
	for _, p := range pairings {
		s := site{at: p.Server, runner: p.RunnerID, spoken: client.Spoken{Version: p.Protocol.Version, At: p.Protocol.At}}
		if s.server, s.odd = client.ParseServer(p.Server); s.odd == nil && paired {
			s.device = keys.Signer()
		}
		list = append(list, s)
	}
	given := e.Site != client.Server{}
	if given && !slices.ContainsFunc(list, func(s site) bool { return s.server == e.Site }) {
		list = append(list, site{at: e.Site.String(), server: e.Site})
	}
	return list
}

// Bounds of what a site is asked.
const (
	// answerTime is how long an answer may take that nobody holds.
	answerTime = client.Timeout
	// slowAnswer is how long it may take before jobs feel it.
	slowAnswer = 3 * time.Second
	// large is a body that is larger than what proxies take by default. Results
	// are larger.
	large = 1<<20 + 64<<10
	// someSkew is a difference of clocks that deserves a look.
	someSkew = 30 * time.Second
	// shorter is how much earlier than asked a held request may end.
	shorter = time.Second
)

// longAgo is when a request was signed that no site may take for fresh, so that
// it changes nothing: 2001-09-09.
const longAgo ai.Millis = 1_000_000_000_000

// site tries the way to a site, step by step. What comes behind a step that fails
// is not tried.
func (e exam) site(ctx context.Context, s site) []Probe {
	about := "site " + s.at
	if s.odd != nil {
		return []Probe{*of(about, "address", "Read its address.").refused(Failed, s.odd)}
	}
	t := client.Transport(s.server)
	defer t.CloseIdleConnections()
	r := requests{exam: e, site: s, about: about, http: &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, codec: protocol.Latest()}
	way, first := r.way(ctx)
	probes := []Probe{way}
	if way.State == Failed {
		return probes
	}
	contract := r.contract(first)
	probes = append(probes, contract)
	if contract.State == Failed {
		return probes
	}
	stale := r.stale(ctx)
	probes = append(probes, r.headers(stale), r.clock(first, stale), r.size(ctx))
	return append(probes, r.held(ctx, stale))
}

// requests speaks to one site.
type requests struct {
	exam
	site
	about string
	http  *http.Client
	codec ai.Codec
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	// refused is the site's refusal in the contract's words; nil where it was none.
	refused *ai.Error
	// sent and got are the clock's readings around the request.
	sent, got time.Time
	err       error // of the network
}

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 64 << 10

// post sends a body to an endpoint, with the headers of a signature or without.
func (r *requests) post(ctx context.Context, e ai.Endpoint, body []byte, signed *signing.Signature) (a answer) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, r.server.String()+ai.PathPrefix+"/"+string(e), bytes.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Accept", "application/json")
	q.Header.Set("User-Agent", "allod/"+r.Version)
	if signed != nil {
		for _, h := range signed.Headers(signing.DaemonPlane) {
			q.Header.Set(h[0], h[1])
		}
	}
	a.sent = r.Clock()
	resp, err := r.http.Do(q)
	if err != nil {
		a.err, a.got = err, r.Clock()
		return a
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	a.status, a.header, a.err, a.got = resp.StatusCode, resp.Header, err, r.Clock()
	if said, err := protocol.Latest().Error.Read(text); err == nil && said.Code.Status() == resp.StatusCode {
		a.refused = &said
	}
	return a
}

// claim is a request for work that no site may grant.
func (r *requests) claim() []byte {
	runner := r.runner
	if runner == "" {
		runner = "allod-doctor"
	}
	body, err := r.codec.ClaimRequest.Write(ai.ClaimRequest{RunnerID: runner, Capabilities: []ai.Capability{}, Max: 1})
	if err != nil {
		return []byte("{}") // which is answered as well
	}
	return body
}

// steps are how far a request came.
type steps struct {
	mu                   sync.Mutex
	addresses            int
	resolved, connected  bool
	secured, handshaking bool
}

func (s *steps) trace() *httptrace.ClientTrace {
	note := func(do func()) { s.mu.Lock(); defer s.mu.Unlock(); do() }
	return &httptrace.ClientTrace{
		DNSDone: func(i httptrace.DNSDoneInfo) {
			note(func() { s.resolved, s.addresses = i.Err == nil, len(i.Addrs) })
		},
		ConnectDone: func(_, _ string, err error) {
			if err == nil {
				note(func() { s.connected = true })
			}
		},
		TLSHandshakeStart: func() { note(func() { s.handshaking = true }) },
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) {
			note(func() { s.secured = err == nil })
		},
	}
}

// way tries to reach the site: its name, a connection, TLS, an answer.
func (r *requests) way(ctx context.Context) (Probe, answer) {
	p := of(r.about, "way", "Tried to find its address, to connect%s, and to ask for work without a signature.", r.through())
	var s steps
	a := r.post(httptrace.WithClientTrace(ctx, s.trace()), ai.EndpointClaim, r.claim(), nil)
	p.Millis = a.got.Sub(a.sent).Milliseconds()
	if a.err != nil {
		return *s.failed(p, a.err), a
	}
	if a.refused != nil && errors.Is(a.refused, ai.ErrUnsupportedVersion) {
		if c, ok := protocol.Best(a.refused.Supported); ok {
			r.codec = c
			a = r.post(ctx, ai.EndpointClaim, r.claim(), nil)
			if a.err != nil {
				return *s.failed(p, a.err), a
			}
		}
	}
	took := a.got.Sub(a.sent)
	if took > slowAnswer {
		return *p.is(Warning, "An answer came after "+took.Round(100*time.Millisecond).String()+".", "Find out what is slow: the line, or what stands before the site."), a
	}
	return *p.is(OK, "An answer came.", ""), a
}

// through names a proxy without its password.
func (r *requests) through() string {
	u, err := url.Parse(r.server.String())
	if err != nil || u.Scheme != "https" {
		return ""
	}
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u})
	if err != nil || proxy == nil {
		return ""
	}
	return " through the proxy of HTTPS_PROXY at " + proxy.Host
}

// failed says at which step a request ended.
func (s *steps) failed(p *Probe, err error) *Probe {
	s.mu.Lock()
	defer s.mu.Unlock()
	var named *refusal.Kind
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, context.Canceled):
		return p.is(Skipped, "It was interrupted.", "")
	case errors.As(err, &named):
		return p.refused(Failed, named)
	case errors.As(err, &dns) && dns.IsNotFound:
		return p.is(Failed, "Nobody knows the site's name.", "Check the address for mistakes, and that this machine reaches its name server.")
	case errors.As(err, &dns):
		return p.is(Failed, "The name server did not answer.", "Check this machine's network and its name server.")
	case errors.As(err, &certificate):
		return p.is(Failed, "The certificate is not good for this address.", "If a firewall of yours opens TLS, give its authority in SSL_CERT_FILE; else tell whoever runs the site.")
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return p.is(Failed, "What answers there speaks no TLS.", "Check whether the address begins with http, and not https, and whether the port is right.")
	case s.handshaking && !s.secured:
		return p.is(Failed, "A connection was made, and TLS did not come about.", "Look for a firewall between that ends it, and at the site's TLS settings.")
	case !s.connected && isTimeout(err):
		return p.is(Failed, "No connection was made in time: what is sent there is lost.", "Look for a firewall between, and check that the site is up.")
	case !s.connected:
		return p.is(Failed, "No connection was made: nobody listens there, or a firewall says so.", "Check that the site is up, and the port of its address.")
	case isTimeout(err):
		return p.is(Failed, "A connection was made, and no answer came within "+answerTime.String()+".", "Look at the site, or at the proxy before it.")
	}
	return p.is(Failed, "A connection was made, and ended before an answer.", "Look at the site, or at the proxy before it.")
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err) || errors.As(err, &t) && t.Timeout()
}

// contract judges the first answer: a site refuses what is not signed, in the
// contract's words.
func (r *requests) contract(a answer) Probe {
	p := of(r.about, "contract", "Looked whether the answer is one that a site gives to a request without a signature.")
	switch {
	case a.refused != nil && (a.status == http.StatusUnauthorized || a.status == http.StatusBadRequest && !errors.Is(a.refused, ai.ErrUnsupportedVersion)):
		p.is(OK, fmt.Sprintf("It is: %d, %s.", a.status, a.refused.Code), "")
	case a.refused != nil && errors.Is(a.refused, ai.ErrUnsupportedVersion):
		p.refused(Failed, ai.ErrUnsupportedVersion)
	case a.refused != nil && errors.Is(a.refused, ai.ErrRateLimited):
		p.is(Warning, "The site says that too many requests came from here.", "Wait a while and run the command again.")
	case a.refused != nil && errors.Is(a.refused, ai.ErrNotFound), a.refused == nil && a.status == http.StatusNotFound:
		p.is(Failed, fmt.Sprintf("It is not: %d. There is no site below this address.", a.status), "Check the address, with its path: it is the one that the app shows.")
	case a.status >= 300 && a.status < 400:
		p.is(Failed, fmt.Sprintf("It is not: %d, which sends on to another address and is not followed.", a.status), "Use the address that it sends on to, if it is the site's; a sign-in page of this network does so as well.")
	case a.status == http.StatusRequestEntityTooLarge || a.status >= 500:
		p.is(Failed, fmt.Sprintf("It is not: %d, from what stands before the site.", a.status), "Look at that proxy: it is up, and the site behind it does not answer it.")
	case a.status >= 200 && a.status < 300:
		p.is(Failed, fmt.Sprintf("It is not: %d. A site never takes such a request.", a.status), "Something answers in the site's place, as the sign-in page of a network. Sign in there, or check the address.")
	default:
		p.is(Failed, fmt.Sprintf("It is not: %d, and not in the contract's words.", a.status), "Check the address, and what stands before the site.")
	}
	return *p
}

// stale asks with a signature that is out of date: by this machine's key where it
// is paired, else by one that nobody knows.
func (r *requests) stale(ctx context.Context) answer {
	return r.post(ctx, ai.EndpointClaim, r.claim(), r.outOfDate(ai.EndpointClaim, r.claim()))
}

func (r *requests) outOfDate(e ai.Endpoint, body []byte) *signing.Signature {
	signer, runner := r.device, r.runner
	if signer == nil {
		keys, err := key.NewKeys[key.DeviceRole](rand.Reader, r.Clock())
		if err != nil {
			return nil
		}
		signer, runner = keys.Signer(), "allod-doctor"
	}
	s, err := signing.Sign(signer, signing.Request{Plane: signing.DaemonPlane, Endpoint: e, Body: body}, string(runner), longAgo)
	if err != nil {
		return nil
	}
	return &s
}

// headers judges whether a signature arrives.
func (r *requests) headers(a answer) Probe {
	p := of(r.about, "signature", "Asked again with a signature that is out of date, by %s key.", r.whose())
	p.Millis = a.got.Sub(a.sent).Milliseconds()
	switch {
	case a.err != nil:
		p.is(Failed, "No answer came, although one came before.", "Look at the line, or at the proxy before the site: it may drop requests with headers that it does not know.")
	case a.refused == nil:
		p.is(Failed, fmt.Sprintf("Something between answered with %d.", a.status), "Look at the proxy before the site: it must let the headers X-Byollm-* through.")
	case errors.Is(a.refused, ai.ErrClockSkew):
		p.is(OK, "The site read it, and found it out of date.", "")
	case errors.Is(a.refused, ai.ErrRevoked):
		p.refused(Failed, ai.ErrRevoked)
	case r.device != nil && errors.Is(a.refused, ai.ErrUnauthorized):
		p.is(Failed, "The site does not know who asks: it has forgotten this machine, or something between takes the headers X-Byollm-* away.", "Look at the proxy before the site; if there is none, pair again: allod connect URL.")
	case errors.Is(a.refused, ai.ErrUnauthorized):
		p.is(Skipped, "The site does not say whether it read one of a stranger's.", "Pair this machine with it, and run the command again.")
	default:
		p.is(Skipped, fmt.Sprintf("The site answered with %s, which does not tell.", a.refused.Code), "")
	}
	return *p
}

func (r *requests) whose() string {
	if r.device == nil {
		return "a stranger's"
	}
	return "this machine's"
}

// clock compares the clocks, by what the site says or else by the date of its
// answer, which is to the second.
func (r *requests) clock(first, stale answer) Probe {
	p := of(r.about, "clock", "Compared this machine's clock with the site's.")
	theirs, a := time.Time{}, stale
	if stale.refused != nil && stale.refused.ServerTime > 0 {
		theirs = stale.refused.ServerTime.Time()
	} else if date, err := http.ParseTime(first.header.Get("Date")); err == nil {
		theirs, a = date.Add(time.Second/2), first
	}
	if theirs.IsZero() {
		return *p.is(Skipped, "The site does not say what its clock reads.", "")
	}
	ours := a.sent.Add(a.got.Sub(a.sent) / 2)
	skew := ours.Sub(theirs)
	side := "ahead"
	if skew < 0 {
		side = "behind"
	}
	came := fmt.Sprintf("This machine is %s %s.", skew.Abs().Round(100*time.Millisecond), side)
	const mend = "Have this machine set its clock by the network. If it is right, tell whoever runs the site."
	switch {
	case skew.Abs() > signing.Window:
		return *p.is(Failed, came+" The site takes its requests for old ones, or for forged ones.", mend)
	case skew.Abs() > someSkew:
		return *p.is(Warning, came, mend)
	}
	if skew.Abs() < time.Second {
		came = "They agree to the second."
	}
	return *p.is(OK, came, "")
}

// size tries whether a body passes that is larger than what proxies take by
// default.
func (r *requests) size(ctx context.Context) Probe {
	p := of(r.about, "size", "Sent %d KiB, as a result may have, with the same signature.", large>>10)
	head := `{"protocolVersion":"` + r.codec.Version + `","doctor":"`
	body := []byte(head + strings.Repeat("x", large-len(head)-2) + `"}`)
	signed := r.outOfDate(ai.EndpointResult, body)
	a := r.post(ctx, ai.EndpointResult, body, signed)
	// A site that knows enough answers and hangs up before it has read all, and then
	// its answer can be lost.
	for again := 0; again < 2 && a.err != nil && !isTimeout(a.err) && ctx.Err() == nil; again++ {
		a = r.post(ctx, ai.EndpointResult, body, signed)
	}
	p.Millis = a.got.Sub(a.sent).Milliseconds()
	switch {
	case a.refused != nil:
		p.is(OK, "The site answered it.", "")
	case a.status == http.StatusRequestEntityTooLarge:
		p.is(Failed, "What stands before the site takes no body of that size, so results would be lost.", "Raise its limit to 32 MiB: client_max_body_size of nginx, LimitRequestBody of Apache.")
	case a.err != nil && isTimeout(a.err):
		p.is(Failed, "No answer came within "+answerTime.String()+".", "Look for what is slow: the line, or a proxy that keeps bodies until they are whole.")
	case a.err != nil:
		p.is(Warning, "The connection ended before an answer, three times.", "Run the command again. If it stays, look at the proxy before the site for a limit on bodies.")
	default:
		p.is(Failed, fmt.Sprintf("Something between answered with %d.", a.status), "Look at the proxy before the site for a limit on bodies.")
	}
	return *p
}

// held tries whether a request lives that the site is asked to hold.
func (r *requests) held(ctx context.Context, stale answer) Probe {
	p := of(r.about, "held", "Said that this machine is here and offers nothing, and asked the site to hold the answer for %s.", r.Hold)
	known := stale.refused != nil && errors.Is(stale.refused, ai.ErrClockSkew)
	switch {
	case r.Hold <= 0:
		return *p.is(Skipped, "It was not asked for.", "")
	case r.device == nil || !known:
		p.Tried = "Would have asked the site to hold an answer."
		return *p.is(Skipped, "A site holds requests of machines only that are paired with it.", "Pair this machine with it, and run the command again.")
	case r.Running:
		p.Tried = "Would have asked the site to hold an answer."
		return *p.is(Skipped, "The agent runs, and a second voice in its name would confuse the site.", "See allod agent status for when the site last answered. To try it: allod agent stop, and the command again.")
	}
	c := client.New(client.Config{Server: r.server, Version: r.Version, Clock: r.Clock, Transport: r.http.Transport, Spoken: r.spoken})
	began := time.Now()
	_, err := c.As(r.runner, r.device).Heartbeat(ctx, r.Hold, ai.HeartbeatRequest{Capabilities: []ai.Capability{}, ActiveLeases: []ai.Grant{}, Paused: true})
	took := time.Since(began)
	p.Millis = took.Milliseconds()
	cut := errors.Is(err, client.ErrUnreachable) || errors.Is(err, client.ErrAnswer)
	after := took.Round(100 * time.Millisecond).String()
	switch {
	case err == nil && took < r.Hold-shorter:
		p.is(OK, "The answer came after "+after+": the site holds no requests, or had something to say. The agent then asks again and again.", "")
	case err == nil:
		p.is(OK, "The answer came after "+after+", as it should.", "")
	case errors.Is(err, context.Canceled):
		p.is(Skipped, "It was interrupted.", "")
	case cut && took < r.Hold+shorter:
		p.is(Failed, "Something between cut the request after "+after+". Work would come late, and the agent would look away now and then.", "Raise the time that the proxy before the site waits for an answer to 60s: proxy_read_timeout of nginx, ProxyTimeout of Apache. On your side, look for a firewall that ends quiet connections.")
	case cut:
		p.is(Failed, "No answer came, also not after "+after+".", "Look for a proxy that keeps answers back, or a firewall that forgets quiet connections.")
	default:
		p.refused(Failed, err)
	}
	return *p
}
