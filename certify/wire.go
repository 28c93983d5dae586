package certify

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/protocol"
)

// parseServer reads the origin of a server, without a slash at its end. It returns
// [ErrConfig].
func parseServer(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.RawPath != "" {
		return nil, ErrConfig.With("The address is not an http or https URL without user name, query and fragment.")
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}

// loopback reports whether a host is this machine itself.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// timeout bounds one request.
const timeout = 30 * time.Second

// newClient follows no redirect: a signature, a key or a verdict is for the server
// that was named.
func newClient() *http.Client {
	return &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second,
			MaxIdleConnsPerHost: parallel + atomicClaimers,
			IdleConnTimeout:     timeout,
			DisableCompression:  true,
		},
	}
}

// answer is what came back for one request.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = ai.MaxBody + 1

// post sends a body to an endpoint as it is.
func post(ctx context.Context, client *http.Client, address string, body []byte, header http.Header) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	for name, values := range header {
		r.Header[name] = values
	}
	return do(client, r)
}

func do(client *http.Client, r *http.Request) (answer, error) {
	got, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(io.LimitReader(got.Body, maxAnswer))
	return answer{got.StatusCode, got.Header, text}, err
}

// refusal reads an answer as a refusal of the contract, in whichever version.
func (a answer) refusal() (ai.Error, bool) {
	for _, version := range protocol.Supported() {
		codec, _ := protocol.Find(version)
		if e, err := codec.Error.Read(a.body); err == nil && a.status/100 != 2 {
			return e, true
		}
	}
	return ai.Error{}, false
}

// String says what came back, and nothing that the server chose freely.
func (a answer) String() string {
	e, ok := a.refusal()
	switch {
	case ok && e.Code.Status() != 0:
		return fmt.Sprintf("%d %s", a.status, e.Code)
	case a.status/100 == 2:
		return fmt.Sprintf("%d, %d bytes", a.status, len(a.body))
	}
	return fmt.Sprintf("%d, no refusal of the contract", a.status)
}

// patience is how long a server that limits requests is waited for.
type patience struct{ spent time.Duration }

// maxPatience bounds the waits of one request. A run makes more devices than a
// server with limits pairs in a minute.
const maxPatience = 4 * time.Minute

// wait waits as long as the server says, and reports whether to ask again.
func (p *patience) wait(ctx context.Context, retryAfter string) bool {
	seconds, err := strconv.Atoi(retryAfter)
	d := time.Duration(max(seconds, 1)) * time.Second
	if err != nil || p.spent+d > maxPatience {
		return false
	}
	p.spent += d
	return pause(ctx, d) == nil
}

// pause waits, or returns the context's error.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// shown is an id or a code of the server as it may stand in a report.
func shown[T ~string](id T) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:", r)
	}
	if len(id) == 0 || len(id) > 64 || strings.ContainsFunc(string(id), func(r rune) bool { return !plain(r) }) {
		return "(an id that is not plain)"
	}
	return string(id)
}

// hears asks a server which versions it speaks and what its clock says. Where it
// does not name its versions, those count that it does not refuse as a version.
func (k *kit) hears(ctx context.Context) (spoken, others []string, err error) {
	a, err := k.post(ctx, ai.EndpointClaim, []byte(`{"protocolVersion":"certify"}`), nil)
	if bad := new(tls.CertificateVerificationError); errors.As(err, &bad) {
		return nil, nil, ErrUnreachable.With("Its certificate is not one that this machine trusts for this name.").Because(err)
	}
	if err != nil {
		return nil, nil, ErrUnreachable.Because(err)
	}
	e, ok := a.refusal()
	if !ok {
		return nil, nil, ErrNoContract
	}
	for _, version := range protocol.Supported() {
		if slices.Contains(e.Supported, version) {
			spoken = append(spoken, version)
		} else if len(e.Supported) == 0 {
			a, err := k.post(ctx, ai.EndpointClaim, fmt.Appendf(nil, `{"protocolVersion":%q}`, version), nil)
			if err != nil {
				return nil, nil, ErrUnreachable.Because(err)
			}
			if e, ok := a.refusal(); ok && e.Code == unsupported {
				continue
			}
			spoken = append(spoken, version)
		}
	}
	for _, version := range e.Supported {
		if _, ok := protocol.Find(version); !ok {
			others = append(others, shown(version))
		}
	}
	if len(spoken) == 0 {
		return nil, others, ErrNoContract
	}
	// A time long past is answered with the server's own.
	a, err = k.post(ctx, ai.EndpointClaim, fmt.Appendf(nil, `{"protocolVersion":%q}`, spoken[0]), http.Header{
		"X-Byollm-Runner": {"certify"}, "X-Byollm-Issued-At": {"1000000000000"}, "X-Byollm-Signature": {strings.Repeat("A", 86)},
	})
	if err != nil {
		return nil, nil, ErrUnreachable.Because(err)
	}
	if e, ok := a.refusal(); ok && e.ServerTime != 0 {
		k.ahead = time.Until(e.ServerTime.Time())
	}
	return spoken, others, nil
}

func (k *kit) post(ctx context.Context, endpoint ai.Endpoint, body []byte, header http.Header) (answer, error) {
	for waits := new(patience); ; {
		a, err := post(ctx, k.client, k.base+ai.PathPrefix+"/"+string(endpoint), body, header)
		if err == nil && a.status == http.StatusTooManyRequests && waits.wait(ctx, a.header.Get("Retry-After")) {
			continue
		}
		return a, err
	}
}
