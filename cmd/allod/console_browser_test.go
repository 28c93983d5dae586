//go:build unix

package main

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/allodhq/allod/internal/console"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
)

var errConsoleTest = refusal.NewKind("console-test", 403, "The login link was used already.", "Ask for a new one, please.")

// oneLogin lets one person in, once.
type oneLogin struct {
	code, jwt string
	used      bool
}

func (o *oneLogin) Login(_ context.Context, code zone.Secret) (zone.Secret, time.Time, error) {
	if o.used || code.Reveal() != o.code {
		return zone.Secret{}, time.Time{}, errConsoleTest
	}
	o.used = true
	return zone.Conceal(o.jwt), time.Now().Add(time.Hour), nil
}

func (o *oneLogin) Nodes(_ context.Context, jwt zone.Secret) ([]console.NodeLine, error) {
	if jwt.Reveal() != o.jwt {
		return nil, errConsoleTest
	}
	return []console.NodeLine{
		{ID: "n-0a1b2c3d4e5f60718293a4b5c6d7e8f9", Hostname: "cellar.example.net", Cluster: "home", State: "online", Seen: true, Age: 4 * time.Second},
		{ID: "n-1", Hostname: "averylonghostnamethatnobodybrokeinanyplaceandthatmustnotmakethepagewide", Cluster: "home", State: "lost", Seen: true, Age: 50 * time.Hour},
		{ID: "n-2", Hostname: "attic", Cluster: "home", State: "never seen"},
	}, nil
}

// TestConsolePage logs a person in as they do it: with a browser, without script,
// by a link that works once.
func TestConsolePage(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	const code = "c2VjcmV0LW1hcmtlci0xMQ"
	server := httptest.NewServer(console.New(console.Config{Controller: &oneLogin{code: code, jwt: "e30.e30.c2ln"}, Clock: time.Now}))
	t.Cleanup(server.Close)
	press := chromedp.Click(chromedp.CSS("button"))

	b.load("console, not logged in", 401, "Log in first", chromedp.Navigate(server.URL+"/"))
	b.load("console, a cut link", 404, "This did not work", chromedp.Navigate(server.URL+"/login/"+code[1:]))
	b.load("console, the link", 200, "Log in to Allod", chromedp.Navigate(server.URL+"/login/"+code))
	b.load("console, the link again", 200, "Log in to Allod", chromedp.Navigate(server.URL+"/login/"+code))
	b.load("console, nodes", 200, "Nodes", press)
	if got := b.text("#nodes li:first-child bdi"); got != "cellar.example.net" {
		t.Errorf("the first node is %q", got)
	}
	b.load("console, logged in still", 200, "Nodes", chromedp.Navigate(server.URL+"/"))
	b.load("console, logged out", 401, "Log in first", press)
	b.load("console, the link once more", 200, "Log in to Allod", chromedp.Navigate(server.URL+"/login/"+code))
	b.load("console, used", 403, "This did not work", press)
}
