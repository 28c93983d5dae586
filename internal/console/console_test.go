package console_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/console"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
)

const (
	code  = "c2VjcmV0LW1hcmtlci0xMQ"
	token = "e30.e30.dG9rZW4tbWFya2VyLTIy"
)

var now = time.Date(2026, 12, 1, 15, 0, 0, 0, time.UTC)

var (
	errUsed  = refusal.NewKind("test-used", 403, "The login link was used already.", "Ask for a new one, please.")
	errEnded = refusal.NewKind("test-ended", 401, "The session was ended by somebody.", "Log in again, please.")
)

// controller is one that knows one link and one token.
type controller struct {
	mu     sync.Mutex
	logins int
	nodes  []console.NodeLine
	err    error
}

func (c *controller) Login(_ context.Context, got zone.Secret) (zone.Secret, time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.logins++; c.logins > 1 || got.Reveal() != code {
		return zone.Secret{}, time.Time{}, errUsed
	}
	return zone.Conceal(token), now.Add(12 * time.Hour), nil
}

func (c *controller) Nodes(_ context.Context, jwt zone.Secret) ([]console.NodeLine, error) {
	if jwt.Reveal() != token {
		return nil, errEnded
	}
	return c.nodes, c.err
}

func clock() time.Time { return now }

// ask sends one request as a browser's own page does, changed by edit.
func ask(t *testing.T, h http.Handler, method, path string, edit func(r *http.Request)) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, "https://allod.test"+path, nil)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if edit != nil {
		edit(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func with(value string) func(r *http.Request) {
	return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: console.Cookie, Value: value}) }
}

func TestLookingAtALinkUsesNothingUp(t *testing.T) {
	c := &controller{}
	h := console.New(console.Config{Controller: c, Clock: clock})
	for _, method := range []string{"GET", "HEAD", "GET"} {
		r := ask(t, h, method, "/login/"+code, nil)
		if body := text(t, r); r.StatusCode != 200 || len(r.Cookies()) > 0 || strings.Contains(body, code) || method == "GET" && !strings.Contains(body, `<form method="post"><button>`) {
			t.Errorf("%s: %d %s", method, r.StatusCode, body)
		}
	}
	if c.logins != 0 {
		t.Fatal("looking used the link up")
	}
	r := ask(t, h, "POST", "/login/"+code, nil)
	if r.StatusCode != 303 || r.Header.Get("Location") != "/" || len(r.Cookies()) != 1 {
		t.Fatalf("%d, %v", r.StatusCode, r.Header)
	}
	if got := r.Header.Get("Set-Cookie"); got != "__Host-allod="+token+"; Path=/; Max-Age=43200; HttpOnly; Secure; SameSite=Strict" {
		t.Errorf("the cookie is %s", got)
	}
	r = ask(t, h, "POST", "/login/"+code, nil)
	if body := text(t, r); r.StatusCode != 403 || len(r.Cookies()) > 0 || !strings.Contains(body, "used already") {
		t.Errorf("a second time: %d %s", r.StatusCode, body)
	}
}

func TestHostileRequests(t *testing.T) {
	c := &controller{}
	h := console.New(console.Config{Controller: c, Clock: clock})
	origin := func(site, origin string) func(r *http.Request) {
		return func(r *http.Request) {
			r.Header.Del("Sec-Fetch-Site")
			for name, v := range map[string]string{"Sec-Fetch-Site": site, "Origin": origin} {
				if v != "" {
					r.Header.Set(name, v)
				}
			}
		}
	}
	for what, v := range map[string]struct {
		edit func(r *http.Request)
		good bool
	}{
		"own page":                 {origin("same-origin", "https://allod.test"), true},
		"own page, no referrer":    {origin("same-origin", "null"), true},
		"own page, browser of old": {origin("", "https://allod.test"), true},
		"other page":               {origin("cross-site", "https://evil.test"), false},
		"other page of the site":   {origin("same-site", "https://www.allod.test"), false},
		"other, browser of old":    {origin("", "https://evil.test"), false},
		"hidden, browser of old":   {origin("", "null"), false},
		"other port":               {origin("", "https://allod.test:8443"), false},
		"says nothing":             {origin("", ""), false},
	} {
		for _, path := range []string{"/login/" + code, "/logout"} {
			c.logins = 0
			r := ask(t, h, "POST", path, v.edit)
			if (r.StatusCode == 303) != v.good || (len(r.Cookies()) == 1) != v.good || !v.good && (r.StatusCode != 403 || c.logins > 0) {
				t.Errorf("%s, %s: %d, %d logins", what, path, r.StatusCode, c.logins)
			}
		}
	}
	c.logins = 0
	for path, want := range map[string]int{
		"/login/": 404, "/login": 404, "/login/x": 404, "/login/" + code[1:]: 404, "/login/" + code + "/x": 404,
		"/login/" + code[:21] + "%0a": 404, "/login/..%2f..%2f": 404, "/x": 404,
	} {
		for _, method := range []string{"GET", "POST"} {
			if r := ask(t, h, method, path, nil); r.StatusCode != want && r.StatusCode != 405 {
				t.Errorf("%s %s: %d", method, path, r.StatusCode)
			}
		}
	}
	if c.logins != 0 {
		t.Error("what is no code was tried")
	}
	if r := ask(t, h, "GET", "/logout", with(token)); r.StatusCode != 405 || len(r.Cookies()) > 0 {
		t.Errorf("logging out by a link: %d", r.StatusCode)
	}
	for _, bad := range []string{"", "x", strings.Repeat("a", zone.MaxToken+1)} {
		if r := ask(t, h, "GET", "/", with(bad)); r.StatusCode != 401 {
			t.Errorf("a cookie of %d bytes: %d", len(bad), r.StatusCode)
		}
	}
}

func TestNodesAreShown(t *testing.T) {
	c := &controller{nodes: []console.NodeLine{
		{ID: "a7", Hostname: "cellar", Cluster: "home", State: "online", Seen: true, Age: 3 * time.Second},
		{ID: "b1", Hostname: "<script>alert(1)</script>\u202egpj\x00", Cluster: "home", State: "never seen"},
		{ID: "b2", Hostname: strings.Repeat("x", 500), State: "lost", Seen: true, Age: 49 * time.Hour},
		{ID: "b3", State: "late", Seen: true, Age: -time.Second}, {ID: "b4", Seen: true, Age: time.Second},
		{ID: "b5", Seen: true, Age: 2 * time.Minute}, {ID: "b6", Seen: true, Age: 3 * time.Hour},
	}}
	h := console.New(console.Config{Controller: c, Clock: clock})
	r := ask(t, h, "GET", "/", with(token))
	body := text(t, r)
	if r.StatusCode != 200 {
		t.Fatalf("%d %s", r.StatusCode, body)
	}
	for _, want := range []string{
		"<bdi>cellar</bdi>", "online", ">3 seconds ago<", "&lt;script&gt;alert(1)&lt;/script&gt;\ufffdgpj\ufffd", ">never<",
		strings.Repeat("x", 120) + "…", ">2 days ago<", ">0 seconds ago<", ">1 second ago<", ">2 minutes ago<", ">3 hours ago<",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
	if strings.Contains(body, "<script") || strings.Contains(body, strings.Repeat("x", 121)) {
		t.Error("a machine's own text is not held back")
	}
	c.nodes = nil
	if body := text(t, ask(t, h, "GET", "/", with(token))); !strings.Contains(body, "allod node invite") {
		t.Errorf("no node: %s", body)
	}
	c.nodes = slices.Repeat([]console.NodeLine{{ID: "x"}}, console.MaxNodes+3)
	if body := text(t, ask(t, h, "GET", "/", with(token))); strings.Count(body, "<li>") != console.MaxNodes || !strings.Contains(body, "There are 3 more") {
		t.Errorf("%d nodes are shown", strings.Count(body, "<li>"))
	}
}

func TestSessionsEnd(t *testing.T) {
	h := console.New(console.Config{Controller: &controller{}, Clock: clock})
	const gone = "__Host-allod=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Strict"
	r := ask(t, h, "GET", "/", nil)
	if body := text(t, r); r.StatusCode != 401 || !strings.Contains(body, `href="/"`) || len(r.Cookies()) > 0 {
		t.Errorf("without a cookie: %d %s", r.StatusCode, body)
	}
	r = ask(t, h, "GET", "/", with("other"))
	if body := text(t, r); r.StatusCode != 401 || !strings.Contains(body, "was ended") || r.Header.Get("Set-Cookie") != gone {
		t.Errorf("ended: %d %v", r.StatusCode, r.Header)
	}
	r = ask(t, h, "POST", "/logout", with(token))
	if r.StatusCode != 303 || r.Header.Get("Set-Cookie") != gone {
		t.Errorf("logged out: %d %v", r.StatusCode, r.Header)
	}
}

func TestF06PagesRepeatNoSecret(t *testing.T) {
	var log bytes.Buffer
	c := &controller{err: errors.New("broken")}
	h := console.New(console.Config{Controller: c, Clock: clock, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for _, v := range []struct{ method, path, cookie string }{
		{"GET", "/login/" + code, ""}, {"POST", "/login/" + code, ""}, {"POST", "/login/" + code, ""}, {"GET", "/", "e30.e30.dG9rZW4tbWFya2VyLTIz"},
		{"GET", "/", token}, {"POST", "/logout", token}, {"GET", "/login/" + code + "x", ""},
	} {
		r := ask(t, h, v.method, v.path, with(v.cookie))
		body := text(t, r)
		if strings.Contains(body, code) || strings.Contains(body, "dG9rZW4") || strings.Contains(r.Header.Get("Location"), code) {
			t.Errorf("%s %s repeats a secret: %s", v.method, v.path, body)
		}
		for name, want := range map[string]string{
			"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Content-Type": "text/html; charset=utf-8",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s %s: %s is %q", v.method, v.path, name, got)
			}
		}
		if csp := r.Header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; style-src 'sha256-") || strings.Contains(csp, "unsafe") ||
			!strings.HasSuffix(csp, "; form-action 'self'; frame-ancestors 'none'; base-uri 'none'") {
			t.Errorf("the policy is %s", csp)
		}
		want := "same-origin"
		if strings.HasPrefix(v.path, "/login/") {
			want = "no-referrer"
		}
		if got := r.Header.Get("Referrer-Policy"); got != want {
			t.Errorf("%s %s: Referrer-Policy is %q", v.method, v.path, got)
		}
	}
	if !strings.Contains(log.String(), "a page of the console failed") || strings.Contains(log.String(), code) || strings.Contains(log.String(), "dG9rZW4") {
		t.Errorf("the log says %s", log.String())
	}
}

func ExampleNew() {
	h := console.New(console.Config{Controller: &controller{}, Clock: clock})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	fmt.Println(w.Code)
	// Output: 401
}
