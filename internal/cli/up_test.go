package cli

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/compose/supervisor"
	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/httpd"
)

// newTestUp is an up on a folder of its own, before anything is opened.
func newTestUp(t *testing.T, out *bytes.Buffer) *up {
	t.Helper()
	u := &up{upFlags: upFlags{data: filepath.Join(t.TempDir(), "all"), listen: "127.0.0.1:0"}, env: Env{Out: out, Err: out}, log: slog.New(slog.DiscardHandler)}
	if err := datadir.Prepare(u.data); err != nil {
		t.Fatal(err)
	}
	u.setup = mustSetup(t, u)
	return u
}

func mustSetup(t *testing.T, u *up) controllerSetup {
	t.Helper()
	s, err := controllerFlags{Roles: []string{"zone"}, Data: u.folder(upController), Listen: u.listen}.setup()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestUpPartsStartAgain: a part that ended is opened anew, at the same address, and
// while the site is away its paths say so.
func TestUpPartsStartAgain(t *testing.T) {
	var out bytes.Buffer
	u := newTestUp(t, &out)
	first, err := u.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(first.Login, first.URL) || first.URL != u.setup.reached() {
		t.Errorf("%+v, reached at %s", first, u.setup.reached())
	}
	// once runs a part until it is up, does something, and ends it.
	once := func(run func(context.Context, func(string)) error, while func(where string)) {
		t.Helper()
		ctx, end := context.WithCancel(t.Context())
		defer end()
		said := make(chan string, 1)
		ended := make(chan error, 1)
		go func() { ended <- run(ctx, func(where string) { said <- where }) }()
		select {
		case where := <-said:
			while(where)
		case err := <-ended:
			t.Fatalf("it died: %v", err)
		}
		end()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("told to end: %v", err)
		}
	}
	answers := func(path string) int {
		w := httptest.NewRecorder()
		u.mux(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Code
	}
	for range 2 {
		once(u.controller, func(where string) {
			if where != first.URL {
				t.Errorf("the controller is at %s, want %s", where, first.URL)
			}
		})
		if got := answers("/v1/models"); got != http.StatusServiceUnavailable {
			t.Errorf("no site: %d", got)
		}
		once(u.served, func(string) {
			if got := answers("/v1/models"); got != http.StatusUnauthorized {
				t.Errorf("the site: %d", got)
			}
			if got := answers("/elsewhere"); got != http.StatusNotFound {
				t.Errorf("the controller's path: %d", got)
			}
		})
	}
	// The next process takes the address of this one.
	again := newTestUp(t, &out)
	again.data = u.data
	if err := again.remember(); err != nil || "https://"+again.listen != first.URL {
		t.Errorf("it listens on %s, before %s: %v", again.listen, first.URL, err)
	}
	again.listen = "0.0.0.0:0" // another host has nothing to do with it
	if err := again.remember(); err != nil || again.listen != "0.0.0.0:0" {
		t.Errorf("%s %v", again.listen, err)
	}
	again.listen = "127.0.0.1:8443" // what was said counts
	if err := again.remember(); err != nil || again.listen != "127.0.0.1:8443" {
		t.Errorf("%s %v", again.listen, err)
	}
}

// TestUpRefusesWhatCannotWork: a taken address is refused at once, and lets go of
// everything, so that the next try can work.
func TestUpRefusesWhatCannotWork(t *testing.T) {
	var out bytes.Buffer
	other, err := httpd.New("127.0.0.1:0", http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	u := newTestUp(t, &out)
	u.listen = other.Address().String()
	u.setup = mustSetup(t, u)
	if _, err := u.open(t.Context()); !errors.Is(err, httpd.ErrListen) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(u.folder(upAddress)); err == nil {
		t.Error("an address that could not be used is remembered")
	}
	u.listen = "127.0.0.1:0"
	u.setup = mustSetup(t, u)
	if _, err := u.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, s := <-u.controllers, <-u.sites
	s.server.Close()
	s.close()
	c.l.server.Close()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	// The login link was not lost with the failed start.
	if c.first.Login == "" {
		t.Error("there is no login link")
	}
}

func TestUpSays(t *testing.T) {
	var out bytes.Buffer
	u := &up{upFlags: upFlags{data: "/srv/all"}, env: Env{Out: &out}}
	says := func(what, want string) {
		t.Helper()
		if out.String() != want {
			t.Errorf("%s:\n%q, want\n%q", what, out.String(), want)
		}
		out.Reset()
	}
	if err := u.announce(upStarted{URL: "https://a", Operator: "admin", Login: "https://a/login/b", Local: "http://127.0.0.1:1", AppKeyFile: "/srv/all/site/app-key", NoNode: "Why."}); err != nil {
		t.Fatal(err)
	}
	says("the first start", "Log in as admin by this link. It works once, for an hour:\n\n  https://a/login/b\n\n"+
		"Apps and agents on this machine reach the site at http://127.0.0.1:1 as well.\nThe app's first key is in /srv/all/site/app-key\nThis machine is no node. Why.\n\n")
	if err := u.announce(upStarted{URL: "https://a", Local: "http://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	says("another start", "Everything is at\n\n  https://a\n\nA new login link: allod controller login-link --data /srv/all/controller\n\n"+
		"Apps and agents on this machine reach the site at http://127.0.0.1:1 as well.\n\n")
	died := supervisor.Change{Part: "node", State: supervisor.Died, Starts: 1, Err: ErrUpNode, Pause: 250 * time.Millisecond}
	u.tell(died)
	says("a part that died", "node        died      "+ErrUpNode.Error()+" (up-node); it is started again in 250ms\n")
	u.tell(supervisor.Change{Part: "site", State: supervisor.Up, Where: "http://x\x1b[2J", Starts: 2})
	says("a part that is up", "site        up        http://x\ufffd[2J\n")
	u.tell(supervisor.Change{Part: "site", State: supervisor.Ended, Starts: 2})
	says("a part that has ended", "site        ended\n")
	u.asJSON = true
	u.tell(died)
	says("as JSON", `{"part":"node","state":"died","starts":1,"error":"up-node","againMs":250}`+"\n")
}
