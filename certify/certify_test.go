package certify_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allodhq/allod/certify"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/appapi"
	"github.com/allodhq/allod/site/pairpage"
	"github.com/allodhq/allod/site/sqlite"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/must"
	"github.com/allodhq/allod/wire/ai/protocol"
)

// served is a site with short clocks behind real HTTP.
type served struct {
	url string
	app certify.App
	key string
	// site is for looking at what is left.
	site *site.Site
}

// serve starts a site. The handler that is served is what wrap makes of it, or the
// site's own.
func serve(t *testing.T, wrap func(http.Handler) http.Handler, change ...func(*site.Config)) served {
	t.Helper()
	store, err := sqlite.Open(context.Background(), sqlite.Config{Path: filepath.Join(t.TempDir(), "site.db")})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := key.NewKeys[key.SiteRole](rand.Reader, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	config := site.Config{
		Store: store, Keys: []key.SiteKeys{keys}, NoLimits: true,
		Lease: 4 * time.Second, PairTTL: 4 * time.Second, Liveness: 4 * time.Second,
	}
	for _, c := range change {
		c(&config)
	}
	server := httptest.NewUnstartedServer(nil)
	origin := "http://" + server.Listener.Addr().String()
	config.VerificationURL = origin + pairpage.Path
	s, err := site.Open(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(); _ = store.Close() })
	k, err := appapi.NewKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	appKeys := appapi.NewKeys(store.AppKeys(), nil)
	if err := appKeys.AddFirst(context.Background(), k.Hash()); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(ai.PathPrefix+"/", s.Handler())
	mux.Handle("/v1/", appapi.NewHandler(s, appKeys))
	mux.Handle(pairpage.Path, pairpage.NewHandler(s, pairpage.Config{}))
	var h http.Handler = mux
	if wrap != nil {
		h = wrap(h)
	}
	server.Config.Handler = h
	server.Start()
	t.Cleanup(server.Close)
	app, err := certify.AllodApp(server.URL, k.Text())
	if err != nil {
		t.Fatal(err)
	}
	return served{server.URL, app, k.Text(), s}
}

// run runs the kit against a site and returns its results by version and id.
func run(t *testing.T, s served, c certify.Config) certify.Report {
	t.Helper()
	c.Server, c.App = s.url, s.app
	r, err := certify.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestCertify: our own site passes each check in every version. The subtests are
// what test/mutations-certify.md turns red.
func TestCertify(t *testing.T) {
	s := serve(t, nil)
	for _, c := range certify.Checks() {
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			r := run(t, s, certify.Config{Only: []string{c.ID}, MaxWait: 10 * time.Second})
			if len(r.Results) != len(protocol.Supported()) {
				t.Errorf("%d results", len(r.Results))
			}
			for _, one := range r.Results {
				if one.Outcome != certify.Passed || one.Why != "" || len(one.Evidence) == 0 {
					t.Errorf("in version %s: %s: %s\n%v", one.Version, one.Outcome, one.Why, one.Evidence)
				}
			}
		})
	}
}

// TestWhole runs everything at once on a site that others use, with clocks too long
// to wait for: nothing is failed, what was not seen is said so, and nothing is left.
func TestWhole(t *testing.T) {
	s := serve(t, nil, func(c *site.Config) { c.Lease, c.PairTTL, c.Liveness = 0, 0, 0 })
	others, err := s.site.Jobs.Enqueue(t.Context(), site.Question{Owner: "somebody", Audience: ai.AudienceNamed, Payload: ai.Generate{Prompt: "p"}})
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, s, certify.Config{MaxWait: 500 * time.Millisecond})
	long := map[string]bool{"A05": true, "A19": true, "A20": true, "A21": true, "A31": true}
	for _, one := range r.Results {
		want := certify.Passed
		if long[one.ID] {
			want = certify.NotProved
		}
		if one.Outcome != want || (one.Why == "") != (want == certify.Passed) || len(one.Evidence) == 0 {
			t.Errorf("%s in version %s: %s: %s", one.ID, one.Version, one.Outcome, one.Why)
		}
	}
	if all := len(certify.Checks()) * len(protocol.Supported()); len(r.Results) != all || r.Passed+r.NotProved != all || r.NotProved != 2*len(long) {
		t.Errorf("of %d checks %d passed and %d are not proved", len(r.Results), r.Passed, r.NotProved)
	}
	if err := r.Err(false); err != nil {
		t.Errorf("the verdict is %v", err)
	}
	if err := r.Err(true); !errors.Is(err, certify.ErrNotProved) {
		t.Errorf("the strict verdict is %v", err)
	}
	if j, err := s.site.Jobs.Get(t.Context(), others.ID); err != nil || j.State != ai.StateQueued {
		t.Errorf("somebody else's job is %s, %v", j.State, err)
	}
	devices, err := s.site.Devices.List(t.Context(), "")
	if err != nil || len(devices) < len(r.Results) {
		t.Errorf("%d devices were made, %v", len(devices), err)
	}
	for _, d := range devices {
		if !d.Revoked() || !strings.HasPrefix(string(d.Owner), "certify-") {
			t.Errorf("a device of %s is left", d.Owner)
		}
	}
	left, err := s.site.Jobs.List(t.Context(), site.JobQuery{State: ai.StateQueued, Limit: site.MaxPage})
	if err != nil || len(left.Jobs) != 1 {
		t.Errorf("%d jobs wait, %v", len(left.Jobs), err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{s.key, "canary", "Say yes.", "BYOLLM-", "deviceCode"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("the report holds %s", secret)
		}
	}
}

// TestChecks holds that every MUST is in a check or has a reason for having none.
func TestChecks(t *testing.T) {
	about := map[string]bool{}
	for i, c := range certify.Checks() {
		if want := fmt.Sprintf("A%02d", i+1); c.ID != want || c.Title == "" || strings.HasSuffix(c.Title, ".") || len(c.Musts) == 0 {
			t.Errorf("%+v, want the id %s", c, want)
		}
		for _, id := range c.Musts {
			about[id] = true
		}
	}
	s := serve(t, nil)
	for _, u := range run(t, s, certify.Config{Only: []string{"A01"}}).Unprovable {
		if about[u.Must] || !strings.HasSuffix(u.Why, ".") {
			t.Errorf("%s is called unprovable, and a check is about it, or no sentence says why", u.Must)
		}
		about[u.Must] = true
	}
	for _, m := range must.All() {
		if !about[m.ID] {
			t.Errorf("no check is about %s, and nothing says why", m.ID)
		}
		delete(about, m.ID)
	}
	if len(about) > 0 {
		t.Errorf("there are no such MUSTs: %v", about)
	}
	for i, c := range certify.AuditChecks() {
		if want := fmt.Sprintf("B%02d", i+1); c.ID != want || c.Title == "" || strings.HasSuffix(c.Title, ".") {
			t.Errorf("%+v, want the id %s", c, want)
		}
	}
}

// TestRefusals: what cannot be tested is refused by name, and not by red checks.
func TestRefusals(t *testing.T) {
	s := serve(t, nil)
	nobody := httptest.NewServer(http.NotFoundHandler())
	nobody.Close()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("<html>Welcome</html>"))
	}))
	defer elsewhere.Close()
	redirect := httptest.NewServer(http.RedirectHandler(s.url+"/byollm/claim", http.StatusTemporaryRedirect))
	defer redirect.Close()
	wrong, err := certify.AllodApp(s.url, "allod-app-wrong")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		config certify.Config
		want   error
	}{
		"no address":            {certify.Config{App: s.app}, certify.ErrConfig},
		"no web address":        {certify.Config{Server: "ftp://app.example", App: s.app}, certify.ErrConfig},
		"a user name":           {certify.Config{Server: "http://canary@app.example", App: s.app}, certify.ErrConfig},
		"a query":               {certify.Config{Server: s.url + "?canary", App: s.app}, certify.ErrConfig},
		"no app":                {certify.Config{Server: s.url}, certify.ErrConfig},
		"a negative wait":       {certify.Config{Server: s.url, App: s.app, MaxWait: -1}, certify.ErrConfig},
		"no such check":         {certify.Config{Server: s.url, App: s.app, Only: []string{"A01", "canary"}}, certify.ErrConfig},
		"no such version":       {certify.Config{Server: s.url, App: s.app, Versions: []string{"canary"}}, certify.ErrConfig},
		"nobody":                {certify.Config{Server: nobody.URL, App: s.app}, certify.ErrUnreachable},
		"another server":        {certify.Config{Server: elsewhere.URL, App: s.app}, certify.ErrNoContract},
		"a server that directs": {certify.Config{Server: redirect.URL, App: s.app}, certify.ErrNoContract},
		"a wrong key":           {certify.Config{Server: s.url, App: wrong}, certify.ErrApp},
	} {
		_, err := certify.Run(t.Context(), c.config)
		if !errors.Is(err, c.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for name, c := range map[string]struct{ server, key string }{
		"no address": {"", s.key}, "no key": {s.url, ""}, "a key of two lines": {s.url, "a\nb"}, "in the clear to another machine": {"http://app.example", s.key},
	} {
		if _, err := certify.AllodApp(c.server, c.key); !errors.Is(err, certify.ErrConfig) {
			t.Errorf("an app by %s: %v", name, err)
		}
	}
	for name, want := range map[string]error{"ftp://app.example": certify.ErrConfig, nobody.URL: certify.ErrUnreachable, elsewhere.URL: certify.ErrNoContract} {
		if _, err := certify.Audit(t.Context(), certify.AuditConfig{Server: name}); !errors.Is(err, want) {
			t.Errorf("an audit of %s: %v, want %v", name, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := certify.Run(ctx, certify.Config{Server: s.url, App: s.app}); !errors.Is(err, context.Canceled) {
		t.Errorf("a run that was stopped: %v", err)
	}
	if _, err := certify.Audit(ctx, certify.AuditConfig{Server: s.url}); !errors.Is(err, context.Canceled) {
		t.Errorf("an audit that was stopped: %v", err)
	}
}

// halfApp has nothing for two of the things that checks need.
type halfApp struct{ certify.App }

func (halfApp) Deny(context.Context, string) error { return errors.ErrUnsupported }

func (halfApp) Available(context.Context, ai.Owner, ai.Kind, ai.Audience) (bool, error) {
	return false, errors.ErrUnsupported
}

// TestHalfApp: what the app's half has nothing for is not proved, and not failed.
func TestHalfApp(t *testing.T) {
	s := serve(t, nil)
	s.app = halfApp{s.app}
	r := run(t, s, certify.Config{Only: []string{"A03", "A04", "A30", "A31"}})
	for _, one := range r.Results {
		if want := one.ID == "A03"; (one.Outcome == certify.Passed) != want || one.Outcome == certify.Failed {
			t.Errorf("%s: %s: %s", one.ID, one.Outcome, one.Why)
		}
	}
	if r.Err(false) != nil {
		t.Errorf("the verdict is %v", r.Err(false))
	}
}

// TestLimits: a server that limits requests is waited for, and what it does not say
// is no verdict.
func TestLimits(t *testing.T) {
	var starts atomic.Int64
	s := serve(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/byollm/pair" && starts.Add(1)%2 == 1 {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
				_, _ = w.Write([]byte(`{"error":"rate-limited","message":"Slowly.","retryAfter":1}`))
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	r := run(t, s, certify.Config{Only: []string{"A03"}, Versions: []string{"2"}})
	if r.Passed != 1 {
		t.Errorf("%+v", r.Results)
	}
}

// TestDocument holds that docs/certify.md lists every check as it is.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "certify.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| A") || strings.HasPrefix(line, "| B") {
			rows++
		}
	}
	for _, c := range certify.Checks() {
		if !strings.Contains(string(text), fmt.Sprintf("\n| %s | %s | %s |\n", c.ID, c.Title, strings.Join(c.Musts, ", "))) {
			t.Errorf("%s is not listed as it is", c.ID)
		}
	}
	for _, c := range certify.AuditChecks() {
		if !strings.Contains(string(text), fmt.Sprintf("\n| %s | %s |\n", c.ID, c.Title)) {
			t.Errorf("%s is not listed as it is", c.ID)
		}
	}
	if want := len(certify.Checks()) + len(certify.AuditChecks()); rows != want {
		t.Errorf("%d checks are listed, want %d", rows, want)
	}
}
