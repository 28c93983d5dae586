package site_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// tokenOf is the last part of a link.
func tokenOf(l site.MadeLink) string { return l.URL[strings.LastIndexByte(l.URL, '/')+1:] }

// TestLinks goes from the app's wish to what the device hears.
func TestLinks(t *testing.T) {
	h := newHouse(t)
	p := newPeer(h)
	started := p.start()
	link := func(q site.LinkRequest) site.MadeLink {
		t.Helper()
		l, err := h.site.Devices.Link(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	one, two := link(site.LinkRequest{Owner: "alice"}), link(site.LinkRequest{Owner: "alice"})
	form := regexp.MustCompile(`^https://app\.example/pair/l/[A-Za-z0-9_-]{43}$`)
	if !form.MatchString(one.URL) || !form.MatchString(two.URL) || one.URL == two.URL {
		t.Errorf("the links are not ours, or alike")
	}
	token := tokenOf(one)
	got, err := h.site.Devices.FindLink(t.Context(), token)
	if err != nil || got.Owner != "alice" || got.UserCode != "" || got.ExpiresAt != one.ExpiresAt || got.ExpiresAt-got.CreatedAt != 600_000 {
		t.Errorf("link %+v, %v", got, err)
	}
	typed := strings.ToLower(strings.ReplaceAll(started.UserCode, "-", " "))
	if got, err := h.site.Devices.PendingByLink(t.Context(), token, typed); err != nil || got.Device != p.keys.Identity() {
		t.Errorf("pending %+v, %v", got, err)
	}
	r, err := h.site.Devices.ApproveByLink(t.Context(), token, typed)
	if err != nil || !strings.HasPrefix(string(r.ID), "runner_") || r.Owner != "alice" {
		t.Errorf("approved %+v, %v", r, err)
	}
	if got := p.poll(started.DeviceCode); got.Status != ai.PairApproved || got.Approved.RunnerID != r.ID || got.Approved.Owner != "alice" {
		t.Errorf("the device hears %+v", got)
	}
	_, err = h.site.Devices.FindLink(t.Context(), token)
	wantErr(t, "a used link", err, site.ErrNoLink)

	other := newPeer(h).start()
	own := link(site.LinkRequest{Owner: "bob", UserCode: strings.ToLower(other.UserCode), TTL: time.Hour})
	if got, err := h.site.Devices.FindLink(t.Context(), tokenOf(own)); err != nil || got.UserCode != other.UserCode || got.ExpiresAt-got.CreatedAt != 3_600_000 {
		t.Errorf("a link for one code %+v, %v", got, err)
	}
	if err := h.site.Devices.DenyByLink(t.Context(), tokenOf(own), ""); err != nil {
		t.Error(err)
	}
	if got := p.poll(other.DeviceCode); got.Status != ai.PairDenied {
		t.Errorf("the device hears %+v", got)
	}

	// Tokens are not stored, used or not. What is planted is found, see TestLane.
	if err := errors.Join(h.site.Close(), h.store.Close()); err != nil {
		t.Fatal(err)
	}
	defer h.open()
	for _, l := range []site.MadeLink{one, two, own} {
		if where := grep(t, h.dir, tokenOf(l)); len(where) > 0 {
			t.Errorf("a token stands in %v", where)
		}
	}
	if where := grep(t, h.dir, "alice"); len(where) == 0 {
		t.Error("the search finds nothing at all")
	}
}

// TestLinkRequests holds what a link can be asked for.
func TestLinkRequests(t *testing.T) {
	h := newHouse(t)
	code := newPeer(h).start().UserCode
	ask := func(what string, q site.LinkRequest, want error) {
		t.Helper()
		l, err := h.site.Devices.Link(t.Context(), q)
		if !errors.Is(err, want) || (err == nil) != (l.URL != "") {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	for owner, want := range map[ai.Owner]error{
		"": site.ErrLink, "a\nb": site.ErrLink, "a\xff": site.ErrLink, ai.Owner(repeat("é", 257)): site.ErrLink, ai.Owner(repeat("é", 256)): nil,
	} {
		ask("an owner", site.LinkRequest{Owner: owner}, want)
	}
	for ttl, want := range map[time.Duration]error{
		-1: site.ErrLink, time.Second - 1: site.ErrLink, time.Second: nil, time.Hour: nil, time.Hour + 1: site.ErrLink, 1<<63 - 1: site.ErrLink,
	} {
		ask("the time "+ttl.String(), site.LinkRequest{Owner: "a", TTL: ttl}, want)
	}
	for code, want := range map[string]error{code: nil, " " + code: nil, "-": site.ErrNoPairing, "ABCD-2346": site.ErrNoPairing, "x": site.ErrNoPairing} {
		ask("a code", site.LinkRequest{Owner: "a", UserCode: code}, want)
	}
	for url, want := range map[string]string{
		"": "", "https://app.example/pair?x=1": "", "https://app.example/pair#x": "",
		"https://app.example/pair": "https://app.example/pair/l/", "https://app.example/a/b/": "https://app.example/a/b/l/",
	} {
		h.close()
		h.open(func(c *site.Config) { c.VerificationURL = url })
		l, err := h.site.Devices.Link(t.Context(), site.LinkRequest{Owner: "a"})
		if want == "" && !errors.Is(err, site.ErrLink) || want != "" && (err != nil || strings.TrimSuffix(l.URL, tokenOf(l)) != want) {
			t.Errorf("with the page %q: %v", url, err)
		}
	}
}

// TestLinksAreSwept holds that ended links do not pile up.
func TestLinksAreSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		l, err := h.site.Devices.Link(t.Context(), site.LinkRequest{Owner: "alice", TTL: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		h.skew.Store(-(2 * time.Minute).Milliseconds()) // a clock that was set back would find it
		_, err = h.site.Devices.FindLink(t.Context(), tokenOf(l))
		wantErr(t, "a link that was swept", err, site.ErrNoLink)
	})
}

// TestTypedCodesAreLimited: by address, as the site's other limits, and through a
// proxy that is trusted by what it says.
func TestTypedCodesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(c *site.Config) { c.NoLimits = false })
		typed := func(from string) error {
			r := httptest.NewRequest(http.MethodPost, "/pair", nil)
			r.RemoteAddr = from
			return h.site.Devices.Typed(r)
		}
		for i := range 30 {
			if err := typed("192.0.2.1:1"); err != nil {
				t.Errorf("code %d: %v", i, err)
			}
		}
		wantErr(t, "one more", typed("192.0.2.1:2"), ai.ErrRateLimited)
		if err := typed("192.0.2.2:1"); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		if err := typed("192.0.2.1:1"); err != nil {
			t.Errorf("two seconds later: %v", err)
		}
		wantErr(t, "and one more", typed("192.0.2.1:1"), ai.ErrRateLimited)
	})
}
