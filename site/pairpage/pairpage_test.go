package pairpage_test

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/pairpage"
	"github.com/allodhq/allod/site/sqlite"
	"github.com/allodhq/allod/site/storetest"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
)

// desk is a site with its page.
type desk struct {
	t     *testing.T
	store site.Store
	site  *site.Site
	page  http.Handler
	log   *bytes.Buffer
	seed  byte
}

func newDesk(t *testing.T, owner ai.Owner, change ...func(*site.Config)) *desk {
	t.Helper()
	d := &desk{t: t, log: new(bytes.Buffer)}
	log := slog.New(slog.NewTextHandler(d.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "site.db"), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := key.NewKeys[key.SiteRole](rand.Reader, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	config := site.Config{
		Store: store, Keys: []key.SiteKeys{keys}, VerificationURL: "https://app.example/pair", Logger: log, NoLimits: true,
	}
	for _, c := range change {
		c(&config)
	}
	s, err := site.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(); _ = store.Close() })
	d.store, d.site, d.page = store, s, pairpage.NewHandler(s, pairpage.Config{Owner: owner, Logger: log})
	return d
}

var (
	prompts = ai.Capability{Kind: ai.KindGenerate, BackendID: "ollama", BackendClass: backend.HTTP, Model: "llama-one", OfferScope: ai.OfferSelf}
	chats   = ai.Capability{Kind: ai.KindChat, BackendID: "ollama", BackendClass: backend.HTTP, Model: "llama-two", OfferScope: ai.OfferPublic}
)

// wait lets a device wait, and returns its pairing.
func (d *desk) wait(change ...func(*site.NewPairing)) site.NewPairing {
	d.t.Helper()
	d.seed++
	now := ai.MillisOf(time.Now())
	p := site.NewPairing{
		DeviceCode: sha256.Sum256([]byte{d.seed}), UserCode: fmt.Sprintf("CODE-%04d", d.seed), Device: storetest.Identity[key.DeviceRole](d.seed),
		Daemon:       ai.Daemon{Version: "1.2.3", Label: "my laptop", Platform: ai.PlatformLinux},
		Capabilities: []ai.Capability{prompts, chats}, Address: "192.0.2.1", ExpiresAt: now + 10*storetest.Minute, Now: now,
	}
	for _, c := range change {
		c(&p)
	}
	if err := d.store.Devices().StartPairing(d.t.Context(), p); err != nil {
		d.t.Fatal(err)
	}
	return p
}

// link makes a link and returns its path.
func (d *desk) link(owner ai.Owner, code string) string {
	d.t.Helper()
	l, err := d.site.Devices.Link(d.t.Context(), site.LinkRequest{Owner: owner, UserCode: code})
	if err != nil {
		d.t.Fatal(err)
	}
	path, ok := strings.CutPrefix(l.URL, "https://app.example")
	if !ok || !regexp.MustCompile(`^/pair/l/[A-Za-z0-9_-]{43}$`).MatchString(path) {
		d.t.Fatal("the link is of another form")
	}
	return path
}

func (d *desk) serve(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	d.page.ServeHTTP(w, r)
	return w
}

func (d *desk) get(path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	return d.send(httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8080"+path, nil), change)
}

func (d *desk) post(path string, form string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8080"+path, strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return d.send(r, change)
}

func (d *desk) send(r *http.Request, change []func(*http.Request)) *httptest.ResponseRecorder {
	for _, c := range change {
		c(r)
	}
	return d.serve(r)
}

// wants holds an answer to its status and to texts that it has and has not.
func wants(t *testing.T, what string, w *httptest.ResponseRecorder, status int, has []string, hasNot ...string) {
	t.Helper()
	if w.Code != status {
		t.Errorf("%s: status %d, want %d", what, w.Code, status)
	}
	for _, text := range has {
		if !strings.Contains(w.Body.String(), text) {
			t.Errorf("%s: there is no %q in\n%s", what, text, body(w))
		}
	}
	for _, text := range hasNot {
		if strings.Contains(w.Body.String(), text) {
			t.Errorf("%s: there is %q in\n%s", what, text, body(w))
		}
	}
}

// body is what stands between main and main.
func body(w *httptest.ResponseRecorder) string {
	_, text, _ := strings.Cut(w.Body.String(), "<main>")
	return text
}

var tags = regexp.MustCompile(`<[^>]*>`)

// text is what a person reads.
func text(w *httptest.ResponseRecorder) string { return tags.ReplaceAllString(body(w), "") }

func (d *desk) status(p site.NewPairing, want ai.PairStatus, owner ai.Owner) {
	d.t.Helper()
	got, err := d.store.Devices().Poll(d.t.Context(), p.DeviceCode, ai.MillisOf(time.Now()))
	if err != nil || got.Status != want || got.Runner.Owner != owner {
		d.t.Errorf("the device hears %s for %q, %v, want %s for %q", got.Status, got.Runner.Owner, err, want, owner)
	}
}

const (
	asksCode = `name="code" value=""`
	pairs    = `value="approve"`
	refuses  = `value="deny"`
	noLink   = "This link no longer works"
)

// TestLink goes from a link to a paired device.
func TestLink(t *testing.T) {
	d := newDesk(t, "")
	p := d.wait()
	path := d.link("alice", "")
	wants(t, "a link", d.get(path), 200, []string{asksCode, "alice", "This link lasts", "9 minutes, and works once"}, pairs, refuses, "my laptop")
	d.status(p, ai.PairPending, "")

	// People type codes in their own way.
	w := d.post(path, "do=look&code=code+0001")
	wants(t, "the device", w, 200, []string{pairs, refuses, `name="code" value="CODE-0001"`, "alice", "my laptop", "Linux", "1.2.3", "9 minutes",
		"<li><bdi>llama-one</bdi>: answers prompts, for you only</li>", "<li><bdi>llama-two</bdi>: chats, for anyone</li>"})
	if !strings.Contains(text(w), p.Device.String()) {
		t.Errorf("the fingerprint %s cannot be read in one piece in\n%s", p.Device.String(), text(w))
	}
	d.status(p, ai.PairPending, "")

	wants(t, "approved", d.post(path, "do=approve&code=CODE-0001"), 200, []string{"Paired", "my laptop", "alice"}, pairs)
	d.status(p, ai.PairApproved, "alice")

	other := d.wait()
	for _, w := range []*httptest.ResponseRecorder{
		d.get(path), d.post(path, "do=look&code=CODE-0002"), d.post(path, "do=approve&code=CODE-0002"), d.post(path, "do=deny&code=CODE-0002"),
	} {
		wants(t, "a used link", w, 404, []string{noLink}, "CODE-0002", pairs)
	}
	d.status(other, ai.PairPending, "")

	no := d.link("alice", "")
	wants(t, "denied", d.post(no, "do=deny&code=CODE-0002"), 200, []string{"Refused"}, pairs)
	d.status(other, ai.PairDenied, "")
	wants(t, "a link that denied", d.get(no), 404, []string{noLink})
}

// TestLinkOfOneDevice: a link that the app made for a code needs no typing, and
// is for no other device.
func TestLinkOfOneDevice(t *testing.T) {
	d := newDesk(t, "")
	p, other := d.wait(), d.wait()
	path := d.link("bob", "code 0001")
	wants(t, "the device at once", d.get(path), 200, []string{pairs, "bob", "CODE-0001"}, asksCode, `name="code"`)
	wants(t, "another code", d.post(path, "do=approve&code=CODE-0002"), 400, []string{pairpage.ErrForm.WayOut()})
	wants(t, "its own code", d.post(path, "do=approve&code=CODE-0001"), 400, []string{pairpage.ErrForm.WayOut()})
	d.status(p, ai.PairPending, "")
	wants(t, "approved", d.post(path, "do=approve"), 200, []string{"Paired", "bob"})
	d.status(p, ai.PairApproved, "bob")
	d.status(other, ai.PairPending, "")

	late := d.link("bob", "CODE-0002")
	if err := d.site.Devices.Deny(t.Context(), "CODE-0002"); err != nil {
		t.Fatal(err)
	}
	for _, w := range []*httptest.ResponseRecorder{d.get(late), d.post(late, "do=approve"), d.post(late, "do=look")} {
		wants(t, "its device was decided meanwhile", w, 404, []string{"no longer waits"}, pairs, asksCode)
	}
}

// TestOverIsOnePage: whoever tries links learns nothing from the answers.
func TestOverIsOnePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, "")
		d.wait()
		used, guessed, ended := d.link("alice", ""), d.link("alice", ""), d.link("alice", "")
		if w := d.post(used, "do=approve&code=CODE-0001"); w.Code != 200 {
			t.Fatal(w.Code)
		}
		for range site.MaxLinkMisses {
			d.post(guessed, "do=look&code=NONE-0000")
		}
		time.Sleep(site.DefaultLinkTTL - time.Second)
		if w := d.get(ended); w.Code != 200 {
			t.Errorf("a link in its last second: %d", w.Code)
		}
		time.Sleep(time.Second)
		unknown := d.get("/pair/l/" + strings.Repeat("A", 43))
		wants(t, "an unknown link", unknown, 404, []string{noLink, "Ask the app for a new one"})
		for what, w := range map[string]*httptest.ResponseRecorder{
			"used": d.get(used), "guessed": d.get(guessed), "ended": d.get(ended), "of another form": d.get("/pair/l/x"), "long": d.get("/pair/l/" + strings.Repeat("x", 20_000)),
			"unknown, decided": d.post("/pair/l/x", "do=approve&code=CODE-0001"), "ended, decided": d.post(ended, "do=approve"), "unknown, another form": d.post("/pair/l/x", "canary"),
		} {
			if w.Code != unknown.Code || !bytes.Equal(w.Body.Bytes(), unknown.Body.Bytes()) || fmt.Sprint(w.Header()) != fmt.Sprint(unknown.Header()) {
				t.Errorf("%s: %d\n%s", what, w.Code, body(w))
			}
		}
	})
}

// TestGuesses: a link takes few wrong codes, says so near the end, and counts
// those that are sent with a decision too.
func TestGuesses(t *testing.T) {
	d := newDesk(t, "")
	p := d.wait()
	path := d.link("alice", "")
	for i := range site.MaxLinkMisses - 1 {
		w := d.post(path, "do="+[]string{"look", "approve", "deny"}[i%3]+"&code=NONE-canary")
		wants(t, "a wrong code", w, 404, []string{asksCode, `role="alert"`, `aria-invalid="true"`, "No device waits under this code."}, "canary", pairs)
		want := map[int]string{6: "3 more codes.", 7: "2 more codes.", 8: "1 more code."}[i]
		if said := strings.Contains(text(w), "more code"); said != (want != "") || said && !strings.Contains(text(w), want) {
			t.Errorf("after %d wrong codes: %s", i+1, text(w))
		}
	}
	wants(t, "the right code at last", d.post(path, "do=look&code=CODE-0001"), 200, []string{pairs})
	wants(t, "one wrong code more", d.post(path, "do=look&code=NONE-0000"), 404, []string{noLink}, asksCode)
	wants(t, "the right code after that", d.post(path, "do=approve&code=CODE-0001"), 404, []string{noLink})
	d.status(p, ai.PairPending, "")
}

// TestNobody: without a link and an owner the page shows a device, and decides
// nothing.
func TestNobody(t *testing.T) {
	d := newDesk(t, "")
	p := d.wait()
	wants(t, "the form", d.get("/pair"), 200, []string{asksCode, "approve the device there"}, pairs, refuses)
	w := d.post("/pair", "do=look&code=CODE-0001")
	wants(t, "the device", w, 200, []string{"my laptop", "give it the code <strong class=\"whole\">CODE-0001</strong> there"}, pairs, refuses, "<form", "<button")
	if !strings.Contains(text(w), p.Device.String()) {
		t.Errorf("no fingerprint in\n%s", text(w))
	}
	for _, do := range []string{"approve", "deny"} {
		wants(t, do, d.post("/pair", "do="+do+"&code=CODE-0001"), 403, []string{pairpage.ErrNobody.WayOut()}, "my laptop")
	}
	d.status(p, ai.PairPending, "")
	wants(t, "a wrong code", d.post("/pair", "do=look&code=NONE-0000"), 404, []string{asksCode, "No device waits under this code."}, "more code")
	wants(t, "no code", d.post("/pair", "do=look"), 404, []string{asksCode})
}

// TestPrefilled: an address may bring a code, which stands in the form and is not
// looked for before the person asks.
func TestPrefilled(t *testing.T) {
	d := newDesk(t, "")
	d.wait()
	for code, want := range map[string]string{
		"CODE-0001": "CODE-0001", "code 0001": "code 0001", "": "", "<script>": "", "\u202eCODE": "", strings.Repeat("A", 33): "", "a\"b": "", "a\nb": "", "é": "",
	} {
		wants(t, code, d.get("/pair?code="+url.QueryEscape(code)), 200, []string{`name="code" value="` + want + `"`}, "my laptop", "<script")
	}
	path := d.link("alice", "")
	wants(t, "a link", d.get(path+"?code=CODE-0001"), 200, []string{asksCode}, "my laptop")
}

// TestLimitByAddress: codes without a link can be tried at a bounded rate, from
// each address its own.
func TestLimitByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, "", func(c *site.Config) { c.NoLimits = false })
		d.wait()
		passed := 0
		try := func(path string, from string) *httptest.ResponseRecorder {
			return d.post(path, "do=look&code=NONE-0000", func(r *http.Request) { r.RemoteAddr = from + ":1" })
		}
		for range 40 {
			if w := try("/pair", "192.0.2.1"); w.Code == 404 {
				passed++
			} else {
				wants(t, "too many", w, 429, []string{"Wait for 2 seconds"})
				if w.Header().Get("Retry-After") != "2" {
					t.Errorf("Retry-After %q", w.Header().Get("Retry-After"))
				}
			}
		}
		if passed != 30 {
			t.Errorf("%d of 40 codes passed, want 30", passed)
		}
		open, own := d.link("alice", ""), d.link("alice", "CODE-0001")
		wants(t, "through a link", try(open, "192.0.2.1"), 429, nil)
		wants(t, "from elsewhere", try("/pair", "192.0.2.2"), 404, nil)
		time.Sleep(2 * time.Second)
		wants(t, "after a while", try("/pair", "192.0.2.1"), 404, nil)
		// Who types nothing guesses nothing.
		wants(t, "a link for one device", d.post(own, "do=approve", func(r *http.Request) { r.RemoteAddr = "192.0.2.1:1" }), 200, []string{"Paired"})
	})
}

// TestOwner: with a fixed owner the page decides, for this machine alone.
func TestOwner(t *testing.T) {
	d := newDesk(t, "carol")
	p, q := d.wait(), d.wait()
	wants(t, "the form", d.get("/pair"), 200, []string{asksCode, "carol", "the operator of this site has set"}, "does not know who you are", "This link")
	wants(t, "the device", d.post("/pair", "do=look&code=CODE-0001"), 200, []string{pairs, refuses, "carol", "the operator of this site has set"})
	wants(t, "a wrong code", d.post("/pair", "do=approve&code=NONE-0000"), 404, []string{asksCode})
	wants(t, "approved", d.post("/pair", "do=approve&code=CODE-0001"), 200, []string{"Paired", "carol"})
	d.status(p, ai.PairApproved, "carol")
	wants(t, "denied", d.post("/pair", "do=deny&code=CODE-0002"), 200, []string{"Refused"})
	d.status(q, ai.PairDenied, "")
	// A link is still for its own owner.
	r := d.wait()
	wants(t, "a link", d.post(d.link("alice", ""), "do=approve&code=CODE-0003"), 200, []string{"Paired", "alice"})
	d.status(r, ai.PairApproved, "alice")
}

// TestOwnerIsForThisMachine: no web page that the person visits, no name that
// leads here and no proxy decides for the fixed owner, or reads the page.
func TestOwnerIsForThisMachine(t *testing.T) {
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	both := func(a, b func(*http.Request)) func(*http.Request) { return func(r *http.Request) { a(r); b(r) } }
	proto := func(major, minor int) func(*http.Request) {
		return func(r *http.Request) { r.ProtoMajor, r.ProtoMinor = major, minor }
	}
	d := newDesk(t, "carol")
	for _, c := range []struct {
		what       string
		change     func(*http.Request)
		read, sent bool // allowed
	}{
		{"this page", header("Sec-Fetch-Site", "same-origin"), true, true},
		{"this page, an older browser", header("Origin", "http://127.0.0.1:8080"), true, true},
		{"no browser", func(*http.Request) {}, true, true},
		{"localhost", host("localhost:8080"), true, true},
		{"Localhost without a port", host("LocalHost"), true, true},
		{"another loopback address", host("127.8.9.1:80"), true, true},
		{"IPv6", host("[::1]:8080"), true, true},
		{"IPv6 without a port", host("[::1]"), true, true},
		{"another site", header("Sec-Fetch-Site", "cross-site"), true, false},
		{"another port", header("Sec-Fetch-Site", "same-site"), true, false},
		{"another site, an older browser", header("Origin", "https://evil.example"), false, false},
		{"another port, an older browser", header("Origin", "http://127.0.0.1:8081"), false, false},
		{"a page of nowhere", header("Origin", "null"), false, false},
		{"no origin", header("Origin", ""), false, false},
		{"what is no origin", header("Origin", "http://127.0.0.1:8080:x"), false, false},
		// As through nginx, which sends its target as Host and passes the rest on.
		{"the same page by another name", both(header("Sec-Fetch-Site", "same-origin"), header("Origin", "https://app.example")), false, false},
		{"the same page on another port", both(header("Sec-Fetch-Site", "same-origin"), header("Origin", "http://127.0.0.1:80")), false, false},
		{"two origins", func(r *http.Request) { r.Header["Origin"] = []string{"http://127.0.0.1:8080", "https://evil.example"} }, false, false},
		{"HTTP/1.0", proto(1, 0), false, false},
		{"HTTP/2", proto(2, 0), true, true},
		{"a name that leads here", host("evil.example:8080"), false, false},
		{"a name below localhost", host("evil.localhost:8080"), false, false},
		{"a name that begins so", host("localhost.evil.example"), false, false},
		{"a name that begins as an address", host("127.0.0.1.evil.example"), false, false},
		{"an address of the network", host("192.168.1.5:8080"), false, false},
		{"all addresses", host("0.0.0.0:8080"), false, false},
		{"no name", host(""), false, false},
		{"a proxy", header("X-Forwarded-For", "203.0.113.9"), false, false},
		{"a proxy by the standard", header("Forwarded", "for=203.0.113.9"), false, false},
		{"a proxy of another kind", header("X-Real-IP", "203.0.113.9"), false, false},
		{"a proxy that says its name", header("Via", "1.1 proxy"), false, false},
		{"a proxy that says ours", header("X-Forwarded-Host", "app.example"), false, false},
		{"a proxy that says how", header("X-Forwarded-Proto", "https"), false, false},
		{"a proxy that says what nobody expects", header("X-Forwarded-Canary", "x"), false, false},
		{"a proxy that says nothing", header("X-Forwarded-For", ""), false, false},
		{"a proxy in small letters", func(r *http.Request) { r.Header["x-forwarded-for"] = []string{"203.0.113.9"} }, false, false},
		{"a network's proxy", header("CF-Connecting-IP", "203.0.113.9"), false, false},
		{"another network's proxy", header("True-Client-IP", "203.0.113.9"), false, false},
		{"what is no proxy's", header("X-Forward", "x"), true, true},
	} {
		p := d.wait()
		wantRead, wantSent, left := 403, 403, ai.PairPending
		if c.read {
			wantRead = 200
		}
		if c.sent {
			wantSent, left = 200, ai.PairDenied
		}
		wants(t, c.what+", read", d.get("/pair", c.change), wantRead, nil)
		wants(t, c.what+", looked", d.post("/pair", "do=look&code="+p.UserCode, c.change), wantSent, nil)
		w := d.post("/pair", "do=deny&code="+p.UserCode, c.change)
		wants(t, c.what+", sent", w, wantSent, nil, "evil", "203.0.113.9")
		d.status(p, left, "")
	}
}

// TestForms: a form is what the page sends, or nothing.
func TestForms(t *testing.T) {
	d := newDesk(t, "carol")
	p := d.wait()
	path := d.link("alice", "")
	for _, form := range []string{
		"", "do=", "do=canary", "code=CODE-0001", "do=approve&do=deny&code=CODE-0001", "do=approve&code=CODE-0001&code=CODE-0001",
		"do=approve&code=CODE-0001&owner=mallory", "do=approve&code=%zz", "do=approve&code=CODE-0001;x", "do=approve&code=" + strings.Repeat("A", 5000), "DO=approve&code=CODE-0001",
	} {
		for _, at := range []string{"/pair", path} {
			wants(t, fmt.Sprintf("%.40s", form), d.post(at, form), 400, []string{pairpage.ErrForm.WayOut()}, "canary", "mallory")
		}
	}
	const good = "do=approve&code=CODE-0001"
	wants(t, "another type", d.post(path, good, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }), 400, nil)
	wants(t, "in the address", d.post(path+"?"+good, ""), 400, nil)
	wants(t, "an unfinished body", d.post(path, good, func(r *http.Request) { r.Body = io.NopCloser(io.MultiReader(strings.NewReader(good), broken{})) }), 400, nil)
	wants(t, "another method", d.get(path, func(r *http.Request) { r.Method = http.MethodPut }), 405, nil)
	wants(t, "another path", d.get("/pair/x"), 404, nil)
	d.status(p, ai.PairPending, "")
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestHeaders: no page runs, loads, frames, keeps or passes on anything.
func TestHeaders(t *testing.T) {
	nobody, fixed := newDesk(t, ""), newDesk(t, "carol")
	nobody.wait()
	fixed.wait()
	link, one := nobody.link("alice", ""), nobody.link("alice", "CODE-0001")
	for what, c := range map[string]struct {
		w        *httptest.ResponseRecorder
		referrer string
	}{
		"form":                    {nobody.get("/pair"), "same-origin"},
		"device":                  {nobody.post("/pair", "do=look&code=CODE-0001"), "same-origin"},
		"wrong code":              {nobody.post("/pair", "do=look&code=NONE-0001"), "same-origin"},
		"nobody":                  {nobody.post("/pair", "do=deny&code=CODE-0001"), "same-origin"},
		"fixed":                   {fixed.post("/pair", "do=look&code=CODE-0001"), "same-origin"},
		"foreign":                 {fixed.get("/pair", func(r *http.Request) { r.Host = "evil.example" }), "same-origin"},
		"link":                    {nobody.get(link), "no-referrer"},
		"link, wrong code":        {nobody.post(link, "do=look&code=NONE-0001"), "no-referrer"},
		"link of one device":      {nobody.get(one), "no-referrer"},
		"link, bad form":          {nobody.post(one, "x"), "no-referrer"},
		"link, denied":            {nobody.post(link, "do=deny&code=CODE-0001"), "no-referrer"},
		"link, used":              {nobody.get(link), "no-referrer"},
		"link, device that ended": {nobody.get(one), "no-referrer"},
	} {
		text := c.w.Body.String()
		_, style, _ := strings.Cut(text, "<style>")
		style, _, _ = strings.Cut(style, "</style>")
		digest := sha256.Sum256([]byte(style))
		for name, want := range map[string]string{
			"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store", "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff",
			"Referrer-Policy": c.referrer, "Set-Cookie": "", "Content-Length": fmt.Sprint(len(text)),
			"Content-Security-Policy": "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) +
				"'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
		} {
			if got := strings.Join(c.w.Header().Values(name), ", "); got != want {
				t.Errorf("%s: %s: %q, want %q", what, name, got, want)
			}
		}
		if len(style) < 500 || strings.Count(text, "<style") != 1 {
			t.Errorf("%s: there is no style of ours", what)
		}
		for _, never := range []string{"<script", "javascript:", " style=", " onclick", "<img", "<link", "src=", "href=", "@import", "url("} {
			if strings.Contains(strings.ToLower(text), never) {
				t.Errorf("%s has %s", what, never)
			}
		}
		if strings.Contains(text, strings.TrimPrefix(link, "/pair/l/")) || strings.Contains(text, strings.TrimPrefix(one, "/pair/l/")) {
			t.Errorf("%s repeats the token", what)
		}
		if strings.Count(text, "<h1>") != 1 || !strings.Contains(text, `<html lang="en">`) || !strings.Contains(text, "<title>") {
			t.Errorf("%s has no heading, language or title", what)
		}
	}
}

// TestTokensAreNotLogged goes through a link with every line of the log kept.
func TestTokensAreNotLogged(t *testing.T) {
	d := newDesk(t, "")
	d.wait()
	path := d.link("alice", "")
	d.get(path)
	d.post(path, "do=look&code=NONE-0001")
	d.post(path, "canary")
	d.post(path, "do=approve&code=CODE-0001")
	d.get(path)
	log := d.log.String()
	if token := strings.TrimPrefix(path, "/pair/l/"); strings.Contains(log, token) || strings.Contains(log, token[:12]) {
		t.Errorf("the token was logged:\n%s", log)
	}
	if !strings.Contains(log, "device approved by a link") {
		t.Errorf("nothing was logged:\n%s", log)
	}
}

// TestFailure: when the store fails the page says so and no more, and the log
// says why.
func TestFailure(t *testing.T) {
	d := newDesk(t, "")
	path := d.link("alice", "")
	if err := d.store.Close(); err != nil {
		t.Fatal(err)
	}
	w := d.get(path)
	if w.Code < 500 || !strings.Contains(d.log.String(), "the pairing page failed") || strings.Contains(d.log.String(), strings.TrimPrefix(path, "/pair/l/")) {
		t.Errorf("%d, log:\n%s", w.Code, d.log)
	}
	wants(t, "a failure", w, w.Code, []string{"This did not work"}, d.t.Name(), "site.db")
}

// hostile texts try to be markup, to reorder or hide text, and to cover it.
var hostile = map[string]string{ // the text, and what is shown of it
	"plain":                            "plain",
	"<script>alert(1)</script>":        "&lt;script&gt;alert(1)&lt;/script&gt;",
	"</bdi></dd></dl><h1>Paired</h1>":  "&lt;/bdi&gt;&lt;/dd&gt;&lt;/dl&gt;&lt;h1&gt;Paired&lt;/h1&gt;",
	`" onfocus="x" autofocus="`:        "&#34; onfocus=&#34;x&#34; autofocus=&#34;",
	"{{.Owner}}":                       "{{.Owner}}",
	"a\u202eb":                         "a\ufffdb",
	"a\u2066b\u2069c":                  "a\ufffdb\ufffdc",
	"a\u200eb\u200fc\u061cd":           "a\ufffdb\ufffdc\ufffdd",
	"a\x00b\x1b[31mc\x7f":              "a\ufffdb\ufffd[31mc\ufffd",
	"a\nb\rc\td":                       "a\ufffdb\ufffdc\ufffdd",
	"a\u0085b\u2028c\u2029d":           "a\ufffdb\ufffdc\ufffdd",
	"a\u200bb\u2060c\ufeffd\u00ade":    "a\ufffdb\ufffdc\ufffdd\ufffde",
	"a\U000e0041b":                     "a\ufffdb",
	"a\ue000b":                         "a\ufffdb",
	"a\u3164b\u115fc\uffa0d\u2800e":    "a\ufffdb\ufffdc\ufffdd\ufffde",
	"a\u00a0b\u3000c\u2003d":           "a b c d",
	"e" + strings.Repeat("\u0301", 50): "e" + strings.Repeat("\u0301", 4),
	"שלום":                             "שלום",
	"نمی\u200cخواهم":                   "نمی\u200cخواهم",
	"👩\u200d💻 box":                     "👩\u200d💻 box",
	"Tiếng Việt ñ":                     "Tiếng Việt ñ",
	strings.Repeat("w", 121):           strings.Repeat("w", 120) + "…",
	strings.Repeat("w", 120):           strings.Repeat("w", 120),
	"":                                 "",
}

// TestHostileTexts: what a device and an app name is one piece of text on the
// page, wherever it stands.
func TestHostileTexts(t *testing.T) {
	d := newDesk(t, "")
	waits := func(text string) (site.NewPairing, *httptest.ResponseRecorder) {
		p := d.wait(func(p *site.NewPairing) {
			model := prompts
			model.Model = cmp.Or(text, "m") // no message has an empty one
			p.Daemon.Label, p.Daemon.Version, p.Capabilities = text, text, []ai.Capability{model}
		})
		return p, d.post("/pair", "do=look&code="+p.UserCode)
	}
	_, plain := waits("plain")
	for text, want := range hostile {
		p, w := waits(text)
		wants(t, text, w, 200, []string{
			`<dd id="label"><bdi>` + want + `</bdi></dd>`, `<dt>Program version</dt><dd><bdi>` + want + `</bdi></dd>`,
			`<li><bdi>` + cmp.Or(want, "m") + `</bdi>: answers prompts`,
		})
		if got, want := len(tags.FindAllString(body(w), -1)), len(tags.FindAllString(body(plain), -1)); got != want {
			t.Errorf("%.20q: %d tags, want %d", text, got, want)
		}
		harmless(t, text, w)

		l, err := d.site.Devices.Link(t.Context(), site.LinkRequest{Owner: ai.Owner(text)})
		if errors.Is(err, site.ErrLink) {
			continue // no owner is called so
		} else if err != nil {
			t.Fatal(err)
		}
		path := strings.TrimPrefix(l.URL, "https://app.example")
		for _, w := range []*httptest.ResponseRecorder{d.get(path), d.post(path, "do=look&code="+p.UserCode), d.post(path, "do=approve&code="+p.UserCode)} {
			wants(t, text, w, 200, []string{"<bdi>" + want + "</bdi>"})
			harmless(t, text, w)
		}
	}
}

// harmless holds that a page has no character that drives or reorders it.
func harmless(t *testing.T, what string, w *httptest.ResponseRecorder) {
	t.Helper()
	if i := strings.IndexFunc(w.Body.String(), func(r rune) bool {
		return r != '\n' && unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
	}); i >= 0 {
		t.Errorf("%.20q: a character drives the page: %q", what, w.Body.String()[max(0, i-20):i+4])
	}
}

// TestManyOffers: a device that offers more than fits is shown in part, and one
// that offers nothing is not hidden.
func TestManyOffers(t *testing.T) {
	d := newDesk(t, "")
	for n, want := range map[int]string{0: "It offers no model yet.", 12: "model-11", 13: "and 1 more", 5000: "and 4988 more"} {
		p := d.wait(func(p *site.NewPairing) {
			p.Capabilities = []ai.Capability{}
			for i := range n {
				c := prompts
				c.Model = fmt.Sprintf("model-%02d", i)
				p.Capabilities = append(p.Capabilities, c)
			}
		})
		w := d.post("/pair", "do=look&code="+p.UserCode)
		wants(t, fmt.Sprint(n), w, 200, []string{want}, "model-12")
		if got := strings.Count(w.Body.String(), "answers prompts"); got != min(n, 12) {
			t.Errorf("%d of %d offers are shown", got, n)
		}
	}
}

// TestTimeLeft: the shorter of link and code counts.
func TestTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, "")
		for _, c := range []struct {
			code, link time.Duration
			want       string
		}{
			{10 * time.Minute, time.Hour, "10 minutes"}, {10 * time.Minute, 3*time.Minute + 59*time.Second, "3 minutes"}, {2 * time.Minute, time.Hour, "2 minutes"},
			{119 * time.Second, time.Hour, "119 seconds"}, {time.Minute, time.Second, "1 second"},
		} {
			p := d.wait(func(p *site.NewPairing) { p.ExpiresAt = p.Now + ai.Millis(c.code.Milliseconds()) })
			l, err := d.site.Devices.Link(t.Context(), site.LinkRequest{Owner: "alice", UserCode: p.UserCode, TTL: c.link})
			if err != nil {
				t.Fatal(err)
			}
			wants(t, c.want, d.get(strings.TrimPrefix(l.URL, "https://app.example")), 200, []string{"<dt>Time left</dt><dd>" + c.want + "</dd>"})
		}
	})
}
