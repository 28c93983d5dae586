package webhook

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// loopback is what tests send to.
var loopback = prefixes("127.0.0.0/8", "::1/128")

func TestJudge(t *testing.T) {
	for _, test := range []struct {
		address                string
		https, private, listed bool // taken by https; with 10.0.0.0/8 and fd00::/8 listed; and then by http
	}{
		{"93.184.216.34", true, true, false},
		{"::ffff:93.184.216.34", true, true, false},
		{"2606:2800:220:1:248:1893:25c8:1946", true, true, false},
		{"10.0.0.1", false, true, true},
		{"::ffff:10.0.0.1", false, true, true},
		{"fd00::1", false, true, true},
		{"fd00::1%eth0", false, true, true},
		{"fd00:ec2::254", false, true, true}, // listed is listed
		{"11.0.0.1", true, true, false},
		{"9.255.255.255", true, true, false},

		{"127.0.0.1", false, false, false},
		{"127.255.255.254", false, false, false},
		{"::1", false, false, false},
		{"::ffff:127.0.0.1", false, false, false},
		{"0.0.0.0", false, false, false},
		{"0.1.2.3", false, false, false},
		{"::", false, false, false},
		{"172.16.0.1", false, false, false},
		{"172.31.255.255", false, false, false},
		{"172.32.0.1", true, true, false},
		{"192.168.1.1", false, false, false},
		{"169.254.169.254", false, false, false},
		{"169.254.0.1", false, false, false},
		{"fe80::1", false, false, false},
		{"fe80::1%eth0", false, false, false},
		{"fec0::1", false, false, false},
		{"100.64.0.1", false, false, false},
		{"100.100.100.200", false, false, false},
		{"100.127.255.255", false, false, false},
		{"100.128.0.1", true, true, false},
		{"168.63.129.16", false, false, false},
		{"::ffff:168.63.129.16", false, false, false},
		{"224.0.0.1", false, false, false},
		{"ff02::1", false, false, false},
		{"255.255.255.255", false, false, false},
		{"240.0.0.1", false, false, false},
		{"192.0.2.1", false, false, false},
		{"198.18.0.1", false, false, false},
		{"2001:db8::1", false, false, false},

		// Forms that carry 10.0.0.1 or 127.0.0.1 to a translator or tunnel.
		{"64:ff9b::a00:1", false, false, false},
		{"64:ff9b::7f00:1", false, false, false},
		{"64:ff9b:1::a00:1", false, false, false},
		{"::10.0.0.1", false, false, false},
		{"::ffff:0:10.0.0.1", false, false, false},
		{"2002:a00:1::1", false, false, false},
		{"2001:0:a00:1::", false, false, false},
	} {
		addr := netip.MustParseAddr(test.address)
		listed := prefixes("10.0.0.0/8", "fd00::/8")
		for _, c := range []struct {
			name  string
			guard guard
			want  bool
		}{
			{"https", newGuard(nil, false), test.https},
			{"https, listed", newGuard(listed, false), test.private},
			{"http, listed", newGuard(listed, true), test.listed},
			{"http", newGuard(nil, true), false},
		} {
			if err := c.guard.judge(addr); (err == nil) != c.want || err != nil && !errors.Is(err, ErrAddress) {
				t.Errorf("%s by %s: %v", test.address, c.name, err)
			}
			if err := c.guard.control("tcp", netip.AddrPortFrom(addr, 443).String(), nil); (err == nil) != c.want {
				t.Errorf("connecting to %s by %s: %v", test.address, c.name, err)
			}
		}
	}
	g := newGuard(prefixes("0.0.0.0/0", "::/0"), false)
	if err := g.judge(netip.Addr{}); !errors.Is(err, ErrAddress) {
		t.Errorf("no address: %v", err)
	}
	if err := g.control("tcp", "name:80", nil); !errors.Is(err, ErrAddress) {
		t.Errorf("a name: %v", err)
	}
	if err := newGuard(prefixes("168.63.129.16/32"), false).judge(netip.MustParseAddr("168.63.129.16")); err != nil {
		t.Errorf("a listed address of Azure's: %v", err)
	}
	if err := newGuard(prefixes("64:ff9b::/96"), false).judge(netip.MustParseAddr("64:ff9b::a00:1")); err != nil {
		t.Errorf("a listed translator: %v", err)
	}
}

func TestReadURL(t *testing.T) {
	for _, test := range []struct {
		text    string
		private string
		want    string // the normal form
		err     error
	}{
		{"https://Hooks.Example:443/a?b=c", "", "https://hooks.example/a?b=c", nil},
		{"https://93.184.216.34/", "", "https://93.184.216.34/", nil},
		{"https://10.0.0.1/", "10.0.0.0/8", "https://10.0.0.1/", nil},
		{"http://10.0.0.1/", "10.0.0.0/8", "http://10.0.0.1/", nil},
		{"http://[fd00::1]:80/x", "fd00::/8", "http://[fd00::1]/x", nil},
		{"http://hooks.lan/", "10.0.0.0/8", "http://hooks.lan/", nil}, // judged when it is connected to

		{"", "", "", ErrURL},
		{"canary", "", "", ErrURL},
		{"/canary", "", "", ErrURL},
		{"ftp://canary.example/", "", "", ErrURL},
		{"javascript:canary", "", "", ErrURL},
		{"https://canary@a.example/", "", "", ErrURL},
		{"https://canary:p@a.example/", "", "", ErrURL},
		{"https://a.example/#canary", "", "", ErrURL},
		{"http://canary.example/", "", "", ErrURL},
		{"http://93.184.216.34/canary", "10.0.0.0/8", "", ErrAddress},
		{"http://10.0.0.1/canary", "", "", ErrAddress},
		{"https://10.0.0.1/canary", "", "", ErrAddress},
		{"https://10.0.0.1/canary", "10.0.0.2/32", "", ErrAddress},
		{"https://0x7f.1/canary", "", "", ErrAddress},
		{"https://127.1/canary", "", "", ErrAddress},
		{"https://2130706433/canary", "", "", ErrAddress},
		{"https://[::ffff:127.0.0.1]/canary", "", "", ErrAddress},
		{"https://[::1]/canary", "", "", ErrAddress},
	} {
		var private []netip.Prefix
		if test.private != "" {
			private = prefixes(test.private)
		}
		got, _, err := readURL(test.text, private)
		if got != test.want || !errors.Is(err, test.err) || err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%q is %q, %v; want %q, %v", test.text, got, err, test.want, test.err)
		}
	}
}

// targetOf is a target on a server of this test, with the given ranges listed.
func targetOf(t *testing.T, address string, private []netip.Prefix) *target {
	t.Helper()
	tg, err := newTarget(Endpoint{URL: address, Secrets: []Secret{secret(t, short), secret(t, long)}}, private)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tg.client.CloseIdleConnections)
	return tg
}

func TestSend(t *testing.T) {
	var hits atomic.Int32
	done := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/status", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", r.URL.Query().Get("after"))
		w.WriteHeader(503)
	})
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/hit", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/hit", func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/header", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X", strings.Repeat("x", 2*maxHeader))
	})
	mux.HandleFunc("/silent", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-done:
		}
	})
	plain := httptest.NewServer(mux)
	defer plain.Close()
	defer close(done)
	port := plain.Listener.Addr().(*net.TCPAddr).Port
	secure := httptest.NewUnstartedServer(mux)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	// A port where nothing listens any more.
	closed := httptest.NewServer(nil)
	closed.Close()

	now := time.Unix(1750000000, 999)
	send := func(tg *target) answer { return tg.send(t.Context(), "msg_1", now, []byte("{}")) }
	for _, test := range []struct {
		name, url string
		private   []netip.Prefix
		want      answer
	}{
		{"taken", plain.URL + "/hit", loopback, answer{status: 200}},
		{"to wait", plain.URL + "/status?after=7", loopback, answer{status: 503, after: 7 * time.Second}},
		{"a redirect", plain.URL + "/away", loopback, answer{status: 307}},
		{"an answer without end", plain.URL + "/endless", loopback, answer{status: 200}},
		{"a long header", plain.URL + "/header", loopback, answer{why: "unreachable"}},
		{"a name that leads to a private address", strings.Replace(secure.URL, "127.0.0.1", "localhost", 1) + "/hit", nil, answer{why: "address"}},
		{"plain http to what is not listed", "http://" + net.JoinHostPort("localhost", itoa(port)) + "/hit", prefixes("10.0.0.0/8"), answer{why: "address"}},
		{"a stranger's certificate", secure.URL + "/hit", loopback, answer{why: "tls"}},
		{"http where https is", "http://" + secure.Listener.Addr().String() + "/hit", loopback, answer{status: 400}},
		{"https where http is", "https://" + plain.Listener.Addr().String() + "/hit", loopback, answer{why: "tls"}},
		{"nobody there", closed.URL, loopback, answer{why: "unreachable"}},
	} {
		before, start := hits.Load(), time.Now()
		got := send(targetOf(t, test.url, test.private))
		if took := time.Since(start); took > attemptTime/2 {
			t.Errorf("%s: it took %v", test.name, took)
		}
		if got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
		if hit := hits.Load() != before; hit != (test.name == "taken") {
			t.Errorf("%s: hit %v", test.name, hit)
		}
	}

	tg := targetOf(t, plain.URL+"/silent", loopback)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if got := tg.send(ctx, "msg_1", now, nil); got != (answer{why: "timeout"}) {
		t.Errorf("no answer: %+v", got)
	}
	if tg.client.Transport.(*http.Transport).Proxy != nil {
		t.Error("a proxy would judge no address")
	}

	for err, want := range map[error]string{
		&net.DNSError{Err: "no such host", IsNotFound: true}: "name",
		&net.DNSError{Err: "i/o timeout", IsTimeout: true}:   "name",
		os.ErrDeadlineExceeded:                               "timeout",
		io.ErrUnexpectedEOF:                                  "unreachable",
	} {
		if got := word(&url.Error{Op: "Post", URL: "https://canary.example", Err: err}); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}

	// By a certificate that is trusted.
	tg = targetOf(t, secure.URL+"/hit", loopback)
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	config := secure.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.RootCAs = roots
	tg.client.Transport.(*http.Transport).TLSClientConfig = config
	if got := send(tg); got != (answer{status: 200}) {
		t.Errorf("by https: %+v", got)
	}
}

// TestSentForm holds what a receiver gets, and that the reference library takes it
// with either secret.
func TestSentForm(t *testing.T) {
	type sent struct {
		header http.Header
		text   string
	}
	came := make(chan sent, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		came <- sent{r.Header.Clone(), r.Method + " " + r.RequestURI + " " + string(text)}
	}))
	defer server.Close()
	now := time.Unix(1750000000, 999_999_999)
	if a := targetOf(t, server.URL+"/in?x=y", loopback).send(t.Context(), "msg_1", now, []byte(`{"a":1}`)); a.status != 200 {
		t.Fatal(a)
	}
	r := <-came
	got := r.header
	for name, want := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "Allod-Webhooks", "Webhook-Id": "msg_1", "Webhook-Timestamp": "1750000000",
		"Content-Length": "7", "Accept-Encoding": "",
	} {
		if got.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got.Get(name), want)
		}
	}
	if r.text != `POST /in?x=y {"a":1}` {
		t.Error(r.text)
	}
	for _, text := range []string{short, long} {
		w, err := standardwebhooks.NewWebhook(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.VerifyIgnoringTimestamp([]byte(`{"a":1}`), got); err != nil {
			t.Error(err)
		}
		if w.VerifyIgnoringTimestamp([]byte(`{"a":2}`), got) == nil {
			t.Error("the library takes another body")
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "120": 2 * time.Minute, "2147483647": 2147483647 * time.Second, "4294967296": 0, "-1": 0, "1.5": 0, "soon": 0,
		"Sun, 01 Mar 2026 12:01:00 GMT": time.Minute, "Sun, 01 Mar 2026 11:59:00 GMT": 0, "Sun, 01 Mar 9999 12:00:00 GMT": 1<<63 - 1,
	} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
