package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai/weburl"
)

func TestParseServer(t *testing.T) {
	long := strings.Repeat("a", 2048)
	for text, want := range map[string]string{
		"https://app.example":                "https://app.example",
		"https://app.example/":               "https://app.example",
		"https://app.example:443":            "https://app.example",
		"https://app.example:8443/":          "https://app.example:8443",
		"https://app.example:80":             "https://app.example:80",
		" \thttps://app.example\n":           "https://app.example",
		"\ufeffhttps://app.example\u2028":    "https://app.example",
		"https://app.example\x00":            "https://app.example", // as browsers do
		"HTTPS://APP.Example/Sub/":           "https://app.example/Sub",
		"https://app.example/a/b":            "https://app.example/a/b",
		"https://app.example/a/../b/./":      "https://app.example/b",
		"https://app.example/..":             "https://app.example",
		"https://app.example/a%2fb":          "https://app.example/a%2fb",
		"https://app.example/ä b":            "https://app.example/%C3%A4%20b",
		`https:\\app.example\a`:              "https://app.example/a",
		"https:app.example":                  "https://app.example",
		"https://app.example.":               "https://app.example.",
		"https://bücher.example":             "https://xn--bcher-kva.example",
		"https://BÜCHER.example":             "https://xn--bcher-kva.example",
		"https://xn--bcher-kva.example":      "https://xn--bcher-kva.example",
		"https://ａｐｐ.example":                "https://app.example",
		"https://@app.example":               "https://app.example",
		"https://8.8.8.8":                    "https://8.8.8.8",
		"https://[2001:db8::1]:8443/x":       "https://[2001:db8::1]:8443/x",
		"https://[2001:DB8:0:0::1]":          "https://[2001:db8::1]",
		"https://169.254.1.1":                "https://169.254.1.1",
		"http://app.example":                 "http://app.example", // judged when it is connected to
		"http://localhost:8080":              "http://localhost:8080",
		"http://127.0.0.1:8080/byollm-mount": "http://127.0.0.1:8080/byollm-mount",
		"http://127.1":                       "http://127.0.0.1",
		"http://0x7f000001":                  "http://127.0.0.1",
		"http://10.0.0.1":                    "http://10.0.0.1",
		"http://172.31.255.255":              "http://172.31.255.255",
		"http://192.168.1.2:80":              "http://192.168.1.2",
		"http://[::1]:3000":                  "http://[::1]:3000",
		"http://[fd00::1]":                   "http://[fd00::1]",
		"http://[::ffff:127.0.0.1]":          "http://[::ffff:7f00:1]",
		"http://[::ffff:10.1.2.3]":           "http://[::ffff:a01:203]",

		"": "-", "app.example": "-", "//app.example": "-", "/": "-", "https://": "-", "https:///": "-", "https://:443": "-",
		"ftp://app.example": "-", "file:///etc/passwd": "-", "javascript:alert(1)": "-", "ws://app.example": "-", "wss://app.example": "-", "httpss://app.example": "-",
		"https://user@app.example": "-", "https://user:canarybird@app.example": "-", "https://:canarybird@app.example": "-", "https://app.example@evil.example": "-",
		"https://app.example?": "-", "https://app.example/?a=canarybird": "-", "https://app.example#": "-", "https://app.example/#canarybird": "-", "https://app.example/a?#": "-",
		"https://app.example:0x50": "-", "https://app.example:65536": "-", "https://app.example:-1": "-", "https://app example": "-", "https://app\x00.example": "-",
		"https://[::1": "-", "https://[::1]x": "-", "https://[fe80::1%25eth0]": "-", "https://1.2.3.4.5": "-", "https://256.1.1.1": "-", "https://a..b%zz": "-", "https://%": "-",
		"https://app.example/" + long: "-", long: "-",

		"http://8.8.8.8": "plain", "http://192.0.2.1": "plain", "http://203.0.113.1:8080/x": "plain", "http://172.32.0.1": "plain", "http://11.0.0.1": "plain",
		"http://169.254.169.254": "plain", "http://100.64.0.1": "plain", "http://0.0.0.0": "plain", "http://255.255.255.255": "plain", "http://0x08080808": "plain", "http://134744072": "plain",
		"http://[2001:db8::1]": "plain", "http://[::]": "plain", "http://[fe80::1]": "plain", "http://[::ffff:8.8.8.8]": "plain", "http://[64:ff9b::a00:1]": "plain",
	} {
		s, err := ParseServer(text)
		kind := map[string]*refusal.Kind{"-": ErrServerURL, "plain": ErrPlain}[want]
		switch {
		case kind != nil && (!errors.Is(err, kind) || s != Server{}):
			t.Errorf("%.80q: %v, %v, want %s", text, s, err, kind.Name())
		case kind != nil && strings.Contains(refusal.Terminal(err), "canary"):
			t.Errorf("%.80q: the refusal repeats it: %v", text, err)
		case kind == nil && (err != nil || s.String() != want):
			t.Errorf("%.80q: %v, %v, want %s", text, s, err, want)
		case kind == nil:
			if again, err := ParseServer(s.String()); err != nil || again != s {
				t.Errorf("%s is read again as %v, %v", s, again, err)
			}
		}
	}
	if got := (Server{}); got.String() != "" || got.Origin() != "" {
		t.Errorf("nowhere is %q", got)
	}
}

func TestPlain(t *testing.T) {
	for text, want := range map[string]bool{
		"https://app.example": false, "https://192.168.1.2": false, "https://nas": false,
		"http://localhost": false, "http://a.localhost:1": false, "http://127.0.0.1": false, "http://127.9.9.9": false, "http://[::1]:1": false, "http://[::ffff:127.0.0.1]": false,
		"http://192.168.1.2": true, "http://[fd00::1]": true, "http://nas": true, "http://localhost.example": true, "http://notlocalhost": true,
	} {
		s, err := ParseServer(text)
		if err != nil || s.Plain() != want {
			t.Errorf("%s: %v, %v", text, s.Plain(), err)
		}
	}
}

// TestOrigin: a server and its own pages have one origin, and no others do.
func TestOrigin(t *testing.T) {
	for text, want := range map[string]struct {
		origin string
		pages  []string
	}{
		"https://app.example":         {"https://app.example", []string{"https://app.example", "https://app.example/pair?code=A#x", "https://app.example:443/", "HTTPS://APP.EXAMPLE/x"}},
		"https://app.example/sub/dir": {"https://app.example", []string{"https://app.example/pair"}},
		"http://127.0.0.1:8080/x":     {"http://127.0.0.1:8080", []string{"http://127.0.0.1:8080/pair", "http://127.1:8080"}},
		"https://[2001:db8::1]:8443":  {"https://[2001:db8::1]:8443", []string{"https://[2001:db8:0::1]:8443/pair"}},
		"https://bücher.example/":     {"https://xn--bcher-kva.example", []string{"https://xn--bcher-kva.example/pair", "https://bücher.example/pair"}},
	} {
		s, err := ParseServer(text)
		if err != nil || s.Origin() != want.origin {
			t.Errorf("%s: %s, %v", text, s.Origin(), err)
		}
		for _, page := range want.pages {
			if got, err := ParsePage(page); err != nil || got.Origin != want.origin || !got.SameSite(s) {
				t.Errorf("%s: %+v, %v, want %s", page, got, err, want.origin)
			}
		}
	}
	for page, want := range map[string]string{
		"http://app.example/": "http://app.example", "https://app.example:8443/": "https://app.example:8443", "https://app.example.evil.example/": "https://app.example.evil.example",
		"https://evil.example/https://app.example": "https://evil.example", "https://evil.example\\@app.example/": "https://evil.example", "https://app.example./": "https://app.example.",
		"https://evil.example#@app.example": "https://evil.example", "https://evil.example?@app.example": "https://evil.example", "http://8.8.8.8/": "http://8.8.8.8",
		"https://user@app.example/": "", "https://app.example:x@evil.example/": "", "javascript:alert(1)//https://app.example": "", "data:text/html,x": "",
		"/pair": "", "": "", "app.example": "", "https://": "", "https://app.example:99999/": "", "https://" + strings.Repeat("a", 3000): "",
	} {
		got, err := ParsePage(page)
		if got.Origin != want || (want == "") != errors.Is(err, ErrServerURL) {
			t.Errorf("%.80s: %q, %v, want %q", page, got, err, want)
		}
	}
}

// TestSameSite: this machine under its several names is one site at one port;
// nothing else is.
func TestSameSite(t *testing.T) {
	for _, c := range []struct {
		server, page string
		want         bool
	}{
		{"http://localhost:8080", "http://127.0.0.1:8080/pair", true}, {"http://127.0.0.1:8080", "http://[::1]:8080/pair", true},
		{"http://127.0.0.1:8080", "http://localhost:8081/pair", false}, {"http://127.0.0.1:8080", "https://localhost:8080/pair", false},
		{"http://192.168.1.2:8080", "http://localhost:8080/pair", false}, {"http://localhost:8080", "http://localhost.evil.example:8080/", false},
		{"https://app.example", "https://app.example/x", true}, {"https://app.example", "https://www.app.example/x", false},
	} {
		s, err := ParseServer(c.server)
		if err != nil {
			t.Fatal(err)
		}
		page, err := ParsePage(c.page)
		if err != nil || page.SameSite(s) != c.want {
			t.Errorf("%s and %s: %v, %v", c.server, c.page, !c.want, err)
		}
	}
	page, err := ParsePage("https://app.example/pair\n\nIt must be this one:\n\x1b[31m")
	if err == nil && strings.ContainsFunc(page.URL, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		t.Errorf("a page's address is shown as %q", page.URL)
	}
}

func FuzzParseServer(f *testing.F) {
	for _, text := range []string{
		"https://app.example/a//", "http://127.1:80/%2e%2e/", "https://[::ffff:1.2.3.4]", "https:\\\\a\\b", "https://a/|[]^{}'", "https://ä.example/ä", "http://a b", "https://a//", "https://a/%zz", "http:a",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseServer(text)
		if err != nil {
			if s != (Server{}) || !errors.Is(err, ErrServerURL) && !errors.Is(err, ErrPlain) {
				t.Fatalf("%q: %v, %v", text, s, err)
			}
			return
		}
		again, err := ParseServer(s.String())
		if err != nil || again != s {
			t.Fatalf("%q is %s, which is read as %v, %v", text, s, again, err)
		}
		page, err := ParsePage(s.String())
		origin := page.Origin
		if err != nil || origin != s.Origin() || !page.SameSite(s) || !strings.HasPrefix(s.String(), origin) {
			t.Fatalf("%q has the origin %s, but %s as a page: %v", text, s.Origin(), origin, err)
		}
		if strings.HasSuffix(s.String(), "/") || len(s.String()) > weburl.MaxURL {
			t.Fatalf("%q is %s", text, s)
		}
		// What is sent goes to the host that was judged.
		r, err := http.NewRequest(http.MethodPost, s.base+"/byollm/pair", nil)
		if err != nil || r.URL.Hostname() != strings.Trim(s.host, "[]") || (r.URL.Scheme == "https") != s.tls || !strings.HasSuffix(r.URL.Path, "/byollm/pair") || r.URL.RawQuery != "" {
			t.Fatalf("%q is sent to %v: %v", text, r, err)
		}
	})
}

// TestJudge: the address counts that a connection is made to, whatever name
// led there.
func TestJudge(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:80": true, "127.255.0.1:1": true, "[::1]:80": true, "10.0.0.1:80": true, "172.16.0.1:80": true, "192.168.0.1:80": true, "[fd12::1]:80": true,
		"[::ffff:127.0.0.1]:80": true, "[::ffff:192.168.0.1]:80": true,
		"8.8.8.8:80": false, "203.0.113.1:80": false, "172.32.0.1:80": false, "169.254.169.254:80": false, "0.0.0.0:80": false, "100.64.0.1:80": false,
		"[2001:db8::1]:80": false, "[::]:80": false, "[fe80::1]:80": false, "[fe80::1%eth0]:80": false, "[::ffff:8.8.8.8]:80": false,
		"localhost:80": false, "127.0.0.1": false, "": false, "/run/socket": false,
	} {
		if err := judge(t.Context(), "tcp", address, nil); (err == nil) != want || err != nil && !errors.Is(err, ErrPlain) {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// TestTransportJudges: in plain HTTP the transport connects to private addresses
// only, and through no proxy.
func TestTransportJudges(t *testing.T) {
	plain, err := ParseServer("http://app.example")
	if err != nil {
		t.Fatal(err)
	}
	tr := Transport(plain)
	if tr.Proxy != nil {
		t.Error("plain HTTP may go through a proxy, which would read it")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := tr.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	// Refused before anything is sent, so that no network is needed.
	for _, address := range []string{"203.0.113.1:80", "[2001:db8::1]:80"} {
		conn, err := tr.DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		if !errors.Is(err, ErrPlain) {
			t.Errorf("%s: %v", address, err)
		}
	}
	secure, err := ParseServer("https://app.example")
	if err != nil {
		t.Fatal(err)
	}
	if Transport(secure).Proxy == nil {
		t.Error("with TLS no proxy is asked")
	}
}

// TestPlainIsNamed: the refusal at the connection comes out as itself, and is
// not worth trying again.
func TestPlainIsNamed(t *testing.T) {
	s, err := ParseServer("http://app.example")
	if err != nil {
		t.Fatal(err)
	}
	// A name that leads to a public address, without asking for one.
	tr := Transport(s)
	dial := tr.DialContext
	tr.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != "app.example:80" {
			t.Errorf("dials %s", address)
		}
		return dial(ctx, network, "203.0.113.1:80")
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.base, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _, _, err = New(Config{Server: s, Transport: tr}).roundTrip(r, 1)
	if !errors.Is(err, ErrPlain) || errors.Is(err, ErrUnreachable) {
		t.Errorf("%v", err)
	}
	if again, _ := Retry(err); again {
		t.Error("it would be tried again")
	}
}
