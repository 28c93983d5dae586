package certify

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/protocol"
)

// AuditConfig says what is audited.
type AuditConfig struct {
	// Server is the server's origin, an http or https URL.
	Server string
	// Pair lets the audit start one pairing, which the server stores until its code
	// ends, to see what that tells a stranger and where it sends people.
	Pair bool
}

// Audit looks at a server as a stranger who has nothing but its URL. It writes
// nothing, but for the pairing of [AuditConfig.Pair], and sends one request after
// the other, some two hundred in all. What is not proved does not pass an audit: see
// [Report.Err] with strict. It returns [ErrConfig], [ErrUnreachable],
// [ErrNoContract] and the context's error.
func Audit(ctx context.Context, c AuditConfig) (Report, error) {
	base, err := parseServer(c.Server)
	if err != nil {
		return Report{}, err
	}
	k := &kit{base: base.String(), client: newClient(), maxWait: DefaultMaxWait}
	defer k.client.CloseIdleConnections()
	report := Report{Server: c.Server}
	if report.Versions, report.Untested, err = k.hears(ctx); err != nil {
		return Report{}, firstOf(ctx, err)
	}
	codec, _ := protocol.Best(report.Versions)
	for _, one := range auditChecks(c.Pair) {
		if ctx.Err() != nil {
			return Report{}, ctx.Err()
		}
		r := (&trial{ctx: ctx, kit: k, codec: codec, check: one, tag: newTag()}).judge()
		r.Version = ""
		report.Results = append(report.Results, r)
	}
	report.count()
	return report, firstOf(ctx, nil)
}

// AuditChecks are those of [Audit] with a pairing, in their order.
func AuditChecks() []Check { return listed(auditChecks(true)) }

func auditChecks(pair bool) []check {
	list := []check{
		{"B01", "A stranger without a signature gets nothing from any endpoint", nil, strangerUnsigned},
		{"B02", "A stranger with a signature of its own gets nothing from any endpoint", nil, strangerSigned},
		{"B03", "An unknown version is refused by name on every endpoint", nil, strangerVersion},
		{"B04", "Endpoints take POST only", nil, otherMethods},
		{"B05", "A path that is dressed up leads to no endpoint", nil, dressedPaths},
		{"B06", "There is nothing else below the endpoints' path", nil, unknownPaths},
		{"B07", "The app interface does nothing without a key", nil, appWithoutKey},
		{"B08", "Metrics, profiles and files of the operator are not served", nil, operatorsPaths},
		{"B09", "No refusal repeats what was sent or tells of the server's insides", nil, refusalsTellNothing},
		{"B10", "Refusals are JSON that no cache keeps and no browser guesses at", nil, refusalHeaders},
		{"B11", "No endpoint redirects", nil, redirects},
		{"B12", "The way to the server is encrypted, or stays on this machine", nil, encrypted},
		{"B13", "A body that is announced as too large is refused before it is sent", nil, announcedSize},
		{"B14", "Other web pages may not read answers", nil, foreignPages},
	}
	if pair {
		list = append(list, check{"B15", "A pairing tells a stranger nothing of the site before it is approved", nil, pairingTellsNothing})
	}
	return append(list, check{"B16", "The page on which people approve devices cannot be framed, kept or scripted by others", nil, func(t *trial) { approvalPage(t, pair) }})
}

// request sends any request and records what came back.
func (t *trial) request(what, method, address string, body string, header http.Header) answer {
	u, err := url.Parse(t.kit.base)
	if err != nil {
		t.unproved("the address cannot be read")
	}
	path, query, _ := strings.Cut(address, "?")
	u.Path += path
	if plain, err := url.PathUnescape(path); err == nil && plain != path {
		u.RawPath = u.Path
		u.Path = strings.TrimSuffix(u.Path, path) + plain
	}
	u.RawQuery = query
	for waits := new(patience); ; {
		r, err := http.NewRequestWithContext(t.ctx, method, u.String(), strings.NewReader(body))
		if err != nil {
			t.unproved("this program cannot make the request")
		}
		// As it is, and not as it would be cleaned.
		r.URL = u
		for name, values := range header {
			r.Header[name] = values
		}
		a, err := do(t.kit.client, r)
		if err != nil {
			if t.ctx.Err() != nil {
				t.unproved("the run was stopped")
			}
			t.step(what, "no answer")
			t.unproved("%s was not answered", what)
		}
		if a.status == http.StatusTooManyRequests && waits.wait(t.ctx, a.header.Get("Retry-After")) {
			continue
		}
		t.step(what, "%s", a)
		return a
	}
}

func endpointPath(e ai.Endpoint) string { return ai.PathPrefix + "/" + string(e) }

// strangersDevice is a device that nobody paired, under a name that nobody has.
func (t *trial) strangersDevice() *device {
	d := t.device("stranger")
	d.runner = ai.RunnerID("runner_" + strings.ReplaceAll(t.tag, "-", "_"))
	return d
}

func strangerUnsigned(t *trial) {
	d := t.strangersDevice()
	for _, endpoint := range signedEndpoints() {
		body := d.bodies()[endpoint]
		t.refused("an unsigned "+string(endpoint), d.note(string(endpoint)+" unsigned", d.post(endpoint, body, nil)), unauthorized)
		bearer := http.Header{"Authorization": {"Bearer " + t.tag}, "X-Byollm-Runner": {string(d.runner)}}
		t.refused(string(endpoint)+" with a bearer", d.note(string(endpoint)+" with a bearer", d.post(endpoint, body, bearer)), unauthorized)
	}
}

func strangerSigned(t *trial) {
	d := t.strangersDevice()
	for _, endpoint := range signedEndpoints() {
		t.refused(string(endpoint)+" of a stranger", d.note(string(endpoint)+" signed", d.send(endpoint, d.bodies()[endpoint])), unauthorized)
	}
}

func strangerVersion(t *trial) {
	d := t.strangersDevice()
	for _, endpoint := range ai.Endpoints() {
		a := d.note(string(endpoint)+" with an unknown version", d.post(endpoint, []byte(`{"protocolVersion":"certify"}`), nil))
		e := t.refused(string(endpoint)+" with an unknown version", a, unsupported)
		if len(e.Supported) == 0 && e.Minimum == "" {
			t.fail("%s is refused without saying what is spoken", endpoint)
		}
	}
}

func otherMethods(t *trial) {
	for _, endpoint := range ai.Endpoints() {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			a := t.request(method+" "+string(endpoint), method, endpointPath(endpoint), "", nil)
			if a.status < 400 || a.status >= 500 {
				t.fail("%s to %s was answered with status %d", method, endpoint, a.status)
			}
		}
	}
}

func dressedPaths(t *trial) {
	body := `{"protocolVersion":"` + t.codec.Version + `"}`
	for _, path := range []string{
		// None of them is the same URL by the rules of RFC 3986, section 6.
		"/" + ai.PathPrefix + "/claim", ai.PathPrefix + "//claim", ai.PathPrefix + "%2fclaim", ai.PathPrefix + "/claim%2f",
		ai.PathPrefix + "/claim%00", ai.PathPrefix + "/claim%20", ai.PathPrefix + "/claim;x", ai.PathPrefix + "/claim.json",
		ai.PathPrefix + "/claim/x", ai.PathPrefix + "/Claim", strings.ToUpper(ai.PathPrefix) + "/CLAIM",
	} {
		a := t.request("POST "+path, http.MethodPost, path, body, nil)
		// A redirect to the plain path is no answer of the endpoint, and neither is the
		// page that some apps have for every path.
		page := strings.HasPrefix(a.header.Get("Content-Type"), "text/html")
		if e, ok := a.refusal(); a.status/100 == 2 && !page || ok && e.Code != notFound && e.Code != badRequest {
			t.fail("%s is answered as claim is", path)
		}
	}
}

func unknownPaths(t *trial) {
	for _, path := range []string{"", "/", "/certify", "/debug", "/metrics", "/health", "/jobs", "/runners", "/admin"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			a := t.request(method+" "+ai.PathPrefix+path, method, ai.PathPrefix+path, "", nil)
			if a.status/100 == 2 || a.status >= 500 {
				t.fail("%s%s is answered with status %d", ai.PathPrefix, path, a.status)
			}
		}
	}
}

func appWithoutKey(t *trial) {
	for _, request := range []string{
		"GET /v1/jobs", "POST /v1/jobs", "GET /v1/jobs/certify", "POST /v1/jobs/certify/cancel", "GET /v1/availability?owner=certify",
		"GET /v1/pairings/certify", "POST /v1/pairings/certify/approve", "POST /v1/pairings/certify/deny", "GET /v1/runners",
		"POST /v1/runners/certify/revoke", "GET /v1/models", "GET /v1/certify",
	} {
		method, path, _ := strings.Cut(request, " ")
		for what, header := range map[string]http.Header{
			"without a key": nil, "with a key that is none": {"Authorization": {"Bearer " + t.tag}}, "with an empty key": {"Authorization": {"Bearer "}},
		} {
			// The body is none that could be carried out.
			a := t.request(request+" "+what, method, path, "{", header)
			switch a.status {
			case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
			default:
				t.fail("%s %s is answered with status %d", request, what, a.status)
			}
		}
	}
}

// operators are paths that are for operators, and what shows that they are served.
// Some servers answer every path with a page of their own.
var operators = []struct {
	path, is string
	shows    *regexp.Regexp
}{
	{"/metrics", "metrics", regexp.MustCompile(`(?m)^# (HELP|TYPE) `)},
	{"/debug/pprof/", "profiles", regexp.MustCompile(`(?s)goroutine.*heap|heap.*goroutine`)},
	{"/debug/pprof/cmdline", "the command line", regexp.MustCompile(`^[^<]*\x00`)},
	{"/debug/vars", "variables of the process", regexp.MustCompile(`"memstats"`)},
	{"/.env", "an environment file", regexp.MustCompile(`(?m)^[A-Z][A-Z0-9_]*=`)},
	{"/.git/HEAD", "a repository", regexp.MustCompile(`^ref: refs/`)},
	{"/.git/config", "a repository", regexp.MustCompile(`\[core\]`)},
	{"/app-key", "an app key", regexp.MustCompile(`allod-app-`)},
	{"/site-keys.json", "key files", regexp.MustCompile(`"identityPrivate"`)},
	{"/site.db", "a database", regexp.MustCompile(`^SQLite format 3`)},
	{"/server-status", "the state of the web server", regexp.MustCompile(`Apache Server Status`)},
}

func operatorsPaths(t *trial) {
	for _, o := range operators {
		for _, prefix := range []string{"", ai.PathPrefix} {
			a := t.request("GET "+prefix+o.path, http.MethodGet, prefix+o.path, "", nil)
			if a.status/100 == 2 && o.shows.Match(a.body) {
				t.fail("%s%s serves %s", prefix, o.path, o.is)
			}
		}
	}
}

// insides is what only the inside of a program says.
var insides = regexp.MustCompile(`goroutine \d+ \[|\.(go|js|ts|mjs|py|rb|php|java):\d+|panic:|Traceback \(most|node_modules|SQLITE_|sqlite3?:|\bsql: |\bpq: |\bORA-\d|Exception\b|/(usr|home|root|var|opt|srv)/[a-z]`)

var versioned = regexp.MustCompile(`/\d`)

func refusalsTellNothing(t *trial) {
	canary := "canary" + strings.ReplaceAll(t.tag, "-", "")
	quoted := fmt.Sprintf("%q", canary)
	header := http.Header{
		"X-Byollm-Runner": {canary}, "X-Byollm-Issued-At": {canary}, "X-Byollm-Signature": {canary}, "Authorization": {"Bearer " + canary},
		"X-Request-Id": {canary}, "User-Agent": {canary}, "Origin": {"https://" + canary + ".invalid"},
	}
	version := `{"protocolVersion":"` + t.codec.Version + `",`
	for _, c := range []struct{ method, path, body string }{
		{"POST", ai.PathPrefix + "/" + canary, "{}"},
		{"GET", ai.PathPrefix + "/claim?protocolVersion=" + canary, ""},
		{"POST", ai.PathPrefix + "/claim?protocolVersion=" + canary, "{}"},
		{"POST", ai.PathPrefix + "/claim", `{"protocolVersion":` + quoted + `}`},
		{"POST", ai.PathPrefix + "/claim", `{` + quoted + `:1`},
		{"POST", ai.PathPrefix + "/claim", version + quoted + `:` + quoted + `}`},
		{"POST", ai.PathPrefix + "/pair", version + `"deviceCode":` + quoted + `}`},
		{"POST", ai.PathPrefix + "/pair", version + quoted + `:1}`},
		{"POST", ai.PathPrefix + "/result", canary},
		{"POST", ai.PathPrefix + "/result", strings.Repeat("[", 1000) + quoted},
		{"GET", "/v1/" + canary, ""},
		{"POST", "/v1/jobs", `{` + quoted + `:1}`},
	} {
		a := t.request(c.method+" with a word that stands nowhere else", c.method, c.path, c.body, header)
		if a.status >= 500 {
			t.fail("a request that is no good is answered with status %d", a.status)
		}
		t.silent("a refusal", a.body, canary, "what was sent")
		for name, values := range a.header {
			t.silent("a header of a refusal", []byte(name+": "+strings.Join(values, ", ")), canary, "what was sent")
			if name == "X-Powered-By" || name == "Server" && versioned.MatchString(strings.Join(values, " ")) {
				t.fail("the header %s tells what the server is made of", name)
			}
		}
		if insides.Match(a.body) {
			t.fail("a refusal tells of the server's insides")
		}
	}
}

func refusalHeaders(t *trial) {
	d := t.strangersDevice()
	for _, endpoint := range ai.Endpoints() {
		a := d.note(string(endpoint)+" with an unknown version", d.post(endpoint, []byte(`{"protocolVersion":"certify"}`), nil))
		kind, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
		switch {
		case err != nil || kind != "application/json":
			t.fail("a refusal of %s is not of type application/json", endpoint)
		case !strings.Contains(a.header.Get("Cache-Control"), "no-store"):
			t.fail("a refusal of %s may be kept by caches", endpoint)
		case !strings.EqualFold(a.header.Get("X-Content-Type-Options"), "nosniff"):
			t.fail("a refusal of %s may be taken for another type", endpoint)
		case len(a.header.Values("Set-Cookie")) > 0:
			t.fail("a refusal of %s sets a cookie", endpoint)
		}
	}
}

func redirects(t *trial) {
	for _, endpoint := range ai.Endpoints() {
		a := t.request("POST "+string(endpoint), http.MethodPost, endpointPath(endpoint), `{"protocolVersion":"certify"}`, nil)
		if a.status/100 == 3 {
			t.fail("%s redirects, and a client that follows would send its request elsewhere", endpoint)
		}
	}
}

// minLife is how long a certificate has to last.
const minLife = 14 * 24 * time.Hour

func encrypted(t *trial) {
	u, err := url.Parse(t.kit.base)
	if err != nil {
		t.unproved("the address cannot be read")
	}
	if u.Scheme == "http" {
		if !loopback(u.Hostname()) {
			t.step("look at the address", "plain HTTP beyond this machine")
			t.fail("the server is reached in plain HTTP beyond this machine")
		}
		t.step("look at the address", "plain HTTP on this machine only")
		return
	}
	address := net.JoinHostPort(u.Hostname(), portOf(u))
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second}, Config: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: t.kit.roots}}
	c, err := dialer.DialContext(t.ctx, "tcp", address)
	if err != nil {
		t.step("TLS 1.2 or later", "no connection")
		var bad *tls.CertificateVerificationError
		if errors.As(err, &bad) {
			t.fail("the server's certificate is not one that this machine trusts for this name")
		}
		t.unproved("no TLS connection was made")
	}
	state := c.(*tls.Conn).ConnectionState()
	_ = c.Close()
	left := time.Until(state.PeerCertificates[0].NotAfter)
	t.step("TLS 1.2 or later", "%s, the certificate lasts %d days", tls.VersionName(state.Version), int(left.Hours()/24))
	if left < minLife {
		t.fail("the certificate ends in less than 14 days")
	}
	old := &tls.Dialer{NetDialer: dialer.NetDialer, Config: &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11, RootCAs: t.kit.roots}}
	if c, err := old.DialContext(t.ctx, "tcp", address); err == nil {
		_ = c.Close()
		t.step("TLS 1.1 or older", "connected")
		t.fail("the server takes versions of TLS that are no longer safe")
	}
	t.step("TLS 1.1 or older", "no connection")
	if portOf(u) != "443" {
		return
	}
	plain := &url.URL{Scheme: "http", Host: u.Hostname(), Path: u.Path + endpointPath(ai.EndpointClaim)}
	a, err := post(t.ctx, t.kit.client, plain.String(), []byte(`{"protocolVersion":"certify"}`), nil)
	if err != nil {
		t.step("plain HTTP", "no answer")
		return
	}
	t.step("plain HTTP", "%s", a)
	if _, ok := a.refusal(); ok || a.status/100 == 2 {
		t.fail("the endpoints are served in plain HTTP too")
	}
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// announced is a size that no endpoint takes, in bytes.
const announced = 1 << 34

// sizePatience is how long an endpoint has to refuse it.
const sizePatience = 2 * time.Second

func announcedSize(t *trial) {
	for _, endpoint := range ai.Endpoints() {
		ctx, stop := context.WithTimeout(t.ctx, sizePatience)
		body, end := io.Pipe()
		// The client waits for the body before it gives up.
		context.AfterFunc(ctx, func() { _ = end.CloseWithError(context.DeadlineExceeded) })
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, t.kit.base+endpointPath(endpoint), body)
		if err != nil {
			t.unproved("this program cannot make the request")
		}
		r.ContentLength = announced
		a, err := do(t.kit.client, r)
		stop()
		what := string(endpoint) + " with 16 GiB announced and nothing sent"
		if err != nil {
			t.step(what, "no answer")
			t.unproved("%s gives no answer in %s, so it is not known whether it would read so much", endpoint, sizePatience)
		}
		t.step(what, "%s", a)
		if a.status < 400 || a.status >= 500 {
			t.fail("%s takes a body of 16 GiB with status %d", endpoint, a.status)
		}
	}
}

func foreignPages(t *trial) {
	origin := http.Header{"Origin": {"https://certify.invalid"}, "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {"authorization,content-type"}}
	for _, path := range []string{endpointPath(ai.EndpointClaim), endpointPath(ai.EndpointPair), "/v1/jobs"} {
		for _, method := range []string{http.MethodOptions, http.MethodPost} {
			a := t.request(method+" "+path+" from another web page", method, path, "{", origin)
			allowed := a.header.Get("Access-Control-Allow-Origin")
			if allowed == "*" || allowed == origin.Get("Origin") {
				t.fail("%s lets every web page read its answers", path)
			}
		}
	}
}

func pairingTellsNothing(t *trial) {
	d := t.device("stranger")
	started, raw := d.startRaw()
	t.onlyMembers("the answer to a start", raw.body, "protocolVersion", "deviceCode", "userCode", "verificationUrl", "expiresAt", "pollIntervalMs")
	raw = d.pollRaw(started.DeviceCode)
	t.onlyMembers("the answer to a poll before the approval", raw.body, "protocolVersion", "status")
	if p := read(d, "pair, poll", t.codec.PairPollResponse, raw); p.Status != ai.PairPending {
		t.fail("a pairing that nobody decided is polled as %s", shown(p.Status))
	}
	t.step(d.name+": pair, poll", "200, pending")
	d.runner = ai.RunnerID(started.UserCode)
	t.refused("a claim of a device that nobody approved", d.note("claim", d.send(ai.EndpointClaim, d.claimBody(1))), unauthorized)
}

// pagePath is where an Allod site has its page.
const pagePath = "/pair"

func approvalPage(t *trial, pair bool) {
	path, where := pagePath, "there is no page at "+pagePath+"; with --pair the server says where its page is"
	if pair {
		where = "the page that people are sent to is not there"
		started := t.device("stranger").start()
		page, err := url.Parse(started.VerificationURL)
		base, err2 := url.Parse(t.kit.base)
		switch {
		case err != nil || err2 != nil:
			t.fail("the address of the page cannot be read")
		case page.Scheme != "https" && !loopback(page.Hostname()):
			t.fail("people are sent to a page in plain HTTP beyond this machine")
		case page.Host != base.Host:
			t.unproved("people are sent to another host, which is not this server to audit")
		}
		path = strings.TrimPrefix(page.EscapedPath(), base.Path)
	}
	a := t.request("GET "+path, http.MethodGet, path, "", nil)
	kind, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	if kind != "text/html" || a.status != http.StatusOK && a.status != http.StatusForbidden {
		t.unproved("%s", where)
	}
	policy := map[string][]string{}
	for directive := range strings.SplitSeq(a.header.Get("Content-Security-Policy"), ";") {
		if words := strings.Fields(directive); len(words) > 0 {
			policy[strings.ToLower(words[0])] = words[1:]
		}
	}
	scripts, ok := policy["script-src"]
	if !ok {
		scripts, ok = policy["default-src"]
	}
	switch {
	case !ok, slices.Contains(scripts, "*"), slices.Contains(scripts, "'unsafe-inline'"), slices.Contains(scripts, "'unsafe-eval'"), slices.Contains(scripts, "https:"):
		t.fail("the page's policy does not keep foreign scripts out")
	case !slices.Equal(policy["frame-ancestors"], []string{"'none'"}) && !strings.EqualFold(a.header.Get("X-Frame-Options"), "DENY"):
		t.fail("other pages may put the page into a frame")
	case !strings.Contains(a.header.Get("Cache-Control"), "no-store"):
		t.fail("caches may keep the page")
	case !strings.EqualFold(a.header.Get("X-Content-Type-Options"), "nosniff"):
		t.fail("the page may be taken for another type")
	case a.header.Get("Referrer-Policy") == "":
		t.fail("the page does not say whom its address is told to")
	}
}
