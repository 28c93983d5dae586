package webhook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai/weburl"
)

// Bounds of one attempt.
const (
	attemptTime = 15 * time.Second // for all of it
	connectTime = 5 * time.Second
	maxAnswer   = 4 << 10 // bytes of an answer's body that are read, for the connection's sake
	maxHeader   = 16 << 10
)

// azure is an address of Azure's machines themselves, inside of a public range.
var azure = netip.MustParsePrefix("168.63.129.16/32")

// guard judges the addresses that an endpoint is sent to.
type guard struct {
	private []netip.Prefix
	// plain is set for http, which nobody but this machine's own networks may carry.
	plain  bool
	public *ssrf.Guardian
}

func newGuard(private []netip.Prefix, plain bool) guard {
	return guard{private, plain, ssrf.New(ssrf.WithDeniedV4Prefixes(azure))}
}

// judge refuses an address that is neither public nor listed. It returns
// [ErrAddress].
func (g guard) judge(addr netip.Addr) error {
	// A mapped form leads where the plain one does, and a zone would be in no range.
	addr = addr.WithZone("").Unmap()
	for _, p := range g.private {
		if p.Contains(addr) {
			return nil
		}
	}
	if g.plain || !addr.IsValid() {
		return ErrAddress
	}
	if err := g.public.SafeAddr(addr); err != nil {
		return ErrAddress.Because(err)
	}
	return nil
}

// control is called with each address that is about to be connected to, after
// names were resolved.
func (g guard) control(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return ErrAddress.Because(err)
	}
	return g.judge(at.Addr())
}

// target is where one endpoint's messages go.
type target struct {
	id      site.HookID
	url     string
	secrets []Secret
	client  *http.Client
}

// readURL judges a URL by its text and returns its normal form. It returns
// [ErrURL] or [ErrAddress].
func readURL(text string, private []netip.Prefix) (normal string, g guard, err error) {
	u, err := weburl.ParseWeb(text)
	if err != nil {
		return "", g, ErrURL.Because(err)
	}
	// net/http reads the URL with another parser. What the two would read
	// differently is not dialled.
	p, err := url.Parse(u.String())
	if err != nil || p.Hostname() == "" || p.Hostname() != strings.Trim(u.Host(), "[]") || p.User != nil || strings.Contains(u.String(), "#") {
		return "", g, ErrURL
	}
	g = newGuard(private, u.Scheme() == "http")
	if addr, err := netip.ParseAddr(strings.TrimRight(p.Hostname(), ".")); err == nil {
		if err := g.judge(addr); err != nil {
			return "", g, err
		}
	} else if g.plain && len(private) == 0 {
		return "", g, ErrURL.With("It begins with http, and no address is listed as private.")
	}
	return u.String(), g, nil
}

func newTarget(e Endpoint, private []netip.Prefix) (*target, error) {
	address, g, err := readURL(e.URL, private)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(address))
	return &target{id: site.HookID(hex.EncodeToString(sum[:16])), url: address, secrets: e.Secrets, client: g.client()}, nil
}

// client sends to judged addresses only.
func (g guard) client() *http.Client {
	d := net.Dialer{Timeout: connectTime, Control: g.control}
	return &http.Client{
		Transport: &http.Transport{
			// A proxy would connect in our place, to addresses that we never see.
			Proxy: nil, DialContext: d.DialContext, TLSHandshakeTimeout: connectTime, MaxResponseHeaderBytes: maxHeader,
			MaxConnsPerHost: maxAtOnce, MaxIdleConnsPerHost: maxAtOnce, IdleConnTimeout: 30 * time.Second, DisableCompression: true,
		},
		// A redirect is an answer like any other that is no success.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// send makes one attempt.
func (t *target) send(ctx context.Context, id string, now time.Time, body []byte) answer {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(body))
	if err != nil {
		return answer{why: "url"}
	}
	seconds := now.Unix()
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "Allod-Webhooks")
	r.Header.Set("Webhook-Id", id)
	r.Header.Set("Webhook-Timestamp", strconv.FormatInt(seconds, 10))
	r.Header.Set("Webhook-Signature", sign(t.secrets, id, seconds, body))
	got, err := t.client.Do(r)
	if err != nil {
		return answer{why: word(err)}
	}
	defer got.Body.Close()
	// The status is the answer, whatever becomes of the rest.
	_, _ = io.CopyN(io.Discard, got.Body, maxAnswer)
	return answer{status: got.StatusCode, after: retryAfter(got.Header.Get("Retry-After"), now)}
}

// retryAfter reads a header of RFC 9110, section 10.2.3. What it cannot read, or
// what is past, is zero; what is far ahead is shortened by [step].
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// word is why no answer came. The error itself may quote the URL.
func word(err error) string {
	var (
		name    *net.DNSError
		network net.Error
		cert    *tls.CertificateVerificationError
		record  tls.RecordHeaderError
		alert   tls.AlertError
		host    x509.HostnameError
	)
	switch {
	case errors.Is(err, ErrAddress):
		return "address"
	case errors.As(err, &name):
		return "name"
	case errors.As(err, &cert), errors.As(err, &record), errors.As(err, &alert), errors.As(err, &host),
		errors.Is(err, http.ErrSchemeMismatch):
		return "tls"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "timeout"
	}
	return "unreachable"
}
