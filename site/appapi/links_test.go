package appapi_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/appapi"
)

// TestPairingLinks holds what a link can be asked for, by whom, and what is
// answered.
func TestPairingLinks(t *testing.T) {
	a := newApp(t, func(c *site.Config) { c.VerificationURL = "https://app.example/pair" })
	a.start(1)
	const path = "/v1/pairing-links"
	form := regexp.MustCompile(`^\{"url":"https://app\.example/pair/l/[A-Za-z0-9_-]{43}","expiresAt":\d{13}\}$`)
	pair, alice, read := a.key("pairs", "", appapi.ScopePair), a.key("alice's", "alice", appapi.ScopePair), a.key("reads", "", appapi.ScopeRead, appapi.ScopeEnqueue)
	for _, c := range []struct {
		auth, body string
		code       int
		want       string // a refusal's name, or empty
	}{
		{pair, `{"owner":"alice"}`, 201, ""},
		{pair, `{"owner":"alice","code":"code 0001","ttlMs":1000}`, 201, ""},
		{pair, `{"owner":"alice","ttlMs":3600000}`, 201, ""},
		{alice, `{}`, 201, ""},
		{alice, `{"owner":"alice"}`, 201, ""},
		{alice, `{"owner":"bob"}`, 403, "app-owner"},
		{read, `{"owner":"alice"}`, 403, "app-scope"},
		{pair, `{}`, 400, "app-request"},
		{pair, ``, 400, "app-request"},
		{pair, `{"owner":""}`, 400, "app-request"},
		{pair, `{"owner":"alice","canary":1}`, 400, "app-request"},
		{pair, `{"owner":"alice","ttlMs":999}`, 400, "app-request"},
		{pair, `{"owner":"alice","ttlMs":3600001}`, 400, "app-request"},
		{pair, `{"owner":"alice","ttlMs":"canary"}`, 400, "app-request"},
		{pair, `{"owner":"can\nary"}`, 400, "pairing-link-invalid"},
		{pair, `{"owner":"alice","code":"canary"}`, 404, "pairing-unknown"},
		{pair, `{"owner":"alice","code":""}`, 400, "app-request"},
	} {
		w := a.call(c.auth, "POST", path, c.body)
		switch {
		case w.Code != c.code, c.want != "" && !strings.Contains(w.Body.String(), `"error":"`+c.want+`"`), c.want == "" && !form.MatchString(w.Body.String()):
			t.Errorf("%s: %d %s, want %d %s", c.body, w.Code, w.Body, c.code, c.want)
		case strings.Contains(w.Body.String(), "canary"):
			t.Errorf("%s: it repeats its input", c.body)
		}
	}

	// The link is for whom it was asked.
	for owner, answer := range map[string]map[string]any{
		"bob":   a.must(201, "POST", path, `{"owner":"bob","code":"CODE-0001"}`),
		"carol": a.must(201, "POST", path, `{"owner":"carol","ttlMs":60000}`),
	} {
		url := answer["url"].(string)
		l, err := a.site.Devices.FindLink(t.Context(), url[strings.LastIndexByte(url, '/')+1:])
		if err != nil || string(l.Owner) != owner || float64(l.ExpiresAt) != answer["expiresAt"] || (l.UserCode == "CODE-0001") != (owner == "bob") {
			t.Errorf("%s's link %+v, %v", owner, l, err)
		}
		if owner == "carol" && l.ExpiresAt-l.CreatedAt != 60_000 {
			t.Errorf("it lasts %d ms", l.ExpiresAt-l.CreatedAt)
		}
	}

	// Without a page there are no links.
	if w := newApp(t).call(a.admin, "POST", path, `{"owner":"alice"}`); w.Code != http.StatusUnauthorized {
		t.Errorf("another site's key: %d", w.Code)
	}
	none := newApp(t)
	if w := none.call(none.admin, "POST", path, `{"owner":"alice"}`); w.Code != 400 || !strings.Contains(w.Body.String(), "no page of its own") {
		t.Errorf("a site without a page: %d %s", w.Code, w.Body)
	}
}
