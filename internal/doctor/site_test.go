package doctor

import (
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/protocol"
	"github.com/allodhq/allod/wire/ai/signing"
)

// standIn is a site that a test holds in its hand: it refuses as sites do and
// holds heartbeats.
type standIn struct {
	device  key.SigningPublic
	knows   bool          // the device
	ahead   time.Duration // of its clock
	version string        // the only one that it speaks, if any
	early   bool          // it holds nothing

	mu    sync.Mutex
	beats []ai.HeartbeatRequest
	asked []string // endpoints whose requests it would have obeyed
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	endpoint := ai.Endpoint(strings.TrimPrefix(r.URL.Path, ai.PathPrefix+"/"))
	now := ai.MillisOf(time.Now().Add(s.ahead))
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	codec, err := protocol.Choose(body, ai.MaxSealedBody, "")
	if err == nil && s.version != "" && codec.Version != s.version {
		e := ai.ErrorOf(ai.ErrUnsupportedVersion)
		e.Supported = []string{s.version}
		refuse(w, e)
		return
	}
	if err != nil {
		refuse(w, ai.ErrorOf(err))
		return
	}
	q := signing.Request{Plane: signing.DaemonPlane, Endpoint: endpoint, Body: body}
	signed, err := signing.ReadHeaders(signing.DaemonPlane, r.Header.Get)
	switch {
	case err != nil:
		refuse(w, ai.ErrorOf(ai.ErrUnauthorized))
	case signed.Fresh(now, signing.Window) != nil:
		refuse(w, ai.ClockSkew(now, signing.Window))
	case !s.knows || signing.Verify(s.device, q, signed, now, signing.Window) != nil:
		refuse(w, ai.ErrorOf(ai.ErrUnauthorized))
	default:
		s.obey(w, r, codec, endpoint, body, now)
	}
}

func (s *standIn) obey(w http.ResponseWriter, r *http.Request, codec ai.Codec, endpoint ai.Endpoint, body []byte, now ai.Millis) {
	s.mu.Lock()
	s.asked = append(s.asked, string(endpoint))
	s.mu.Unlock()
	beat, err := codec.HeartbeatRequest.Read(body)
	if err != nil {
		refuse(w, ai.ErrorOf(err))
		return
	}
	s.mu.Lock()
	s.beats = append(s.beats, beat)
	s.mu.Unlock()
	seconds, _ := strconv.Atoi(strings.TrimPrefix(r.Header.Get("Prefer"), "wait="))
	if !s.early {
		select {
		case <-r.Context().Done():
		case <-time.After(time.Duration(seconds) * time.Second):
		}
	}
	text, err := codec.HeartbeatResponse.Write(ai.HeartbeatResponse{Sites: map[ai.KeyID]ai.PublicIdentity{}, Cancel: []ai.Grant{}, Lost: []ai.Grant{}, AwaitingConsent: []ai.KeyID{}, ServerTime: now})
	if err != nil {
		refuse(w, ai.ErrorOf(err))
		return
	}
	_, _ = w.Write(text)
}

func refuse(w http.ResponseWriter, e *ai.Error) {
	text, err := protocol.Latest().Error.Write(*e)
	if err != nil {
		text = nil
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Code.Status())
	_, _ = w.Write(text)
}

// newFolder is the folder of a machine that is paired with a server.
func newFolder(t *testing.T, server string) (string, key.DeviceKeys) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	k, err := key.NewKeys[key.DeviceRole](rand.Reader, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := keyfile.Create(filepath.Join(dir, home.KeyFile), k); err != nil {
		t.Fatal(err)
	}
	if server != "" {
		h, err := home.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		s, err := key.NewKeys[key.SiteRole](rand.Reader, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		id := s.Identity()
		err = h.Pair(home.Pairing{Server: server, RunnerID: "r1", Owner: "alice", Sites: map[ai.KeyID]home.Site{ai.KeyID(id.Fingerprint().String()): {Identity: id}}, PairedAt: 1})
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir, k
}

// strip takes away headers that a proxy does not know.
func strip(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if strings.HasPrefix(name, "X-") {
				r.Header.Del(name)
			}
		}
		next.ServeHTTP(w, r)
	})
}

// cuts ends what is not answered in time with that status, or without one.
func cuts(after time.Duration, status int) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), after)
			defer cancel()
			kept := httptest.NewRecorder()
			next.ServeHTTP(kept, r.WithContext(ctx))
			switch {
			case ctx.Err() == nil:
				for name, values := range kept.Header() {
					w.Header()[name] = values
				}
				w.WriteHeader(kept.Code)
				_, _ = w.Write(kept.Body.Bytes())
			case status == 0:
				panic(http.ErrAbortHandler)
			default:
				w.WriteHeader(status)
			}
		})
	}
}

// always answers everything alike.
func always(status int, header, value, body string) func(http.Handler) http.Handler {
	return func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if header != "" {
				w.Header().Set(header, value)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
	}
}

// small refuses bodies as proxies do.
func small(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > 1<<20 {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			_, _ = io.WriteString(w, "<html>canary</html>")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// TestSite: what stands between is found, and told from what is well.
func TestSite(t *testing.T) {
	type want map[string]string // by a probe's name: its state, and words that came
	well := want{"way": "ok ", "contract": "ok 401, unauthorized", "signature": "ok found it out of date", "clock": "ok agree", "size": "ok answered it", "held": "ok as it should"}
	but := func(more want) want {
		all := want{}
		for k, v := range well {
			all[k] = v
		}
		for k, v := range more {
			all[k] = v
		}
		return all
	}
	for name, c := range map[string]struct {
		site     *standIn
		between  func(http.Handler) http.Handler
		stranger bool
		running  bool
		want     want
	}{
		"all is well":           {site: &standIn{knows: true}, want: well},
		"an older version":      {site: &standIn{knows: true, version: "0"}, want: well},
		"a stranger":            {stranger: true, want: but(want{"held": "skipped paired"})},
		"the agent runs":        {site: &standIn{knows: true}, running: true, want: but(want{"held": "skipped agent runs"})},
		"holds nothing":         {site: &standIn{knows: true, early: true}, want: but(want{"held": "ok holds no requests"})},
		"a clock a bit off":     {site: &standIn{knows: true, ahead: -45 * time.Second}, want: but(want{"clock": "warning 45s ahead"})},
		"a clock far off":       {site: &standIn{knows: true, ahead: 10 * time.Minute}, want: but(want{"clock": "failed 10m0s behind", "held": "failed clock"})},
		"forgotten":             {site: &standIn{}, want: but(want{"held": "failed does not know"})},
		"headers taken away":    {site: &standIn{knows: true}, between: strip, want: but(want{"signature": "failed takes the headers", "held": "skipped "})},
		"cut by a status":       {site: &standIn{knows: true}, between: cuts(300*time.Millisecond, 504), want: but(want{"held": "failed cut the request after"})},
		"cut in silence":        {site: &standIn{knows: true}, between: cuts(300*time.Millisecond, 0), want: but(want{"held": "failed cut the request after"})},
		"small bodies":          {site: &standIn{knows: true}, between: small, want: but(want{"size": "failed no body of that size"})},
		"a sign-in page":        {between: always(200, "Content-Type", "text/html", "<html>canary"), want: want{"way": "ok ", "contract": "failed never takes"}},
		"a redirect":            {between: always(302, "Location", "https://canary.example/", ""), want: want{"way": "ok ", "contract": "failed sends on"}},
		"nothing there":         {between: always(404, "", "", "canary"), want: want{"way": "ok ", "contract": "failed no site below"}},
		"a proxy without site":  {between: always(502, "", "", "<html>canary"), want: want{"way": "ok ", "contract": "failed stands before"}},
		"forbidden by a proxy":  {between: always(403, "", "", "<html>canary"), want: want{"way": "ok ", "contract": "failed not in the contract's words"}},
		"a refusal of another":  {between: always(401, "", "", `{"error":"canary","message":"m"}`), want: want{"way": "ok ", "contract": "failed not in the contract's words"}},
		"a status of another":   {between: always(404, "", "", `{"error":"unauthorized","message":"m"}`), want: want{"way": "ok ", "contract": "failed no site below"}},
		"hangs up":              {between: cuts(0, 0), want: want{"way": "failed ended before an answer"}},
		"an answer that is cut": {between: always(401, "Content-Length", "100", "{"), want: want{"way": "failed ended before an answer"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := c.site
			if site == nil {
				site = &standIn{}
			}
			var h http.Handler = site
			if c.between != nil {
				h = c.between(h)
			}
			srv := httptest.NewServer(h)
			t.Cleanup(srv.Close)
			server, err := client.ParseServer(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			cfg := Config{Version: "1.2.3", Running: c.running, Hold: 2 * time.Second}
			if c.stranger {
				cfg.Home, _ = newFolder(t, "")
				cfg.Site = server
			} else {
				dir, k := newFolder(t, server.String())
				cfg.Home, site.device = dir, k.Identity().Signing()
			}
			e := exam{cfg}
			e.Clock = time.Now
			got := want{}
			sites := e.sites()
			if len(sites) != 1 {
				t.Fatalf("%+v", sites)
			}
			for _, p := range e.site(t.Context(), sites[0]) {
				words, ok := c.want[p.Name]
				state, came, _ := strings.Cut(words, " ")
				if !ok || string(p.State) != state || !strings.Contains(p.Came, came) || (p.Do == "") != (p.State == OK || p.Name == "held" && p.State == Skipped && p.Do == "") {
					t.Errorf("%+v, want %q", p, words)
				}
				if strings.Contains(p.Tried+p.Came+p.Do, "canary") {
					t.Errorf("it shows what others wrote: %+v", p)
				}
				got[p.Name] = string(p.State)
			}
			if len(got) != len(c.want) {
				t.Errorf("the probes were %v", got)
			}
			// Nothing but a heartbeat that offers nothing could be obeyed.
			site.mu.Lock()
			defer site.mu.Unlock()
			for _, b := range site.beats {
				if len(b.Capabilities)+len(b.ActiveLeases) > 0 || b.RunnerID != "r1" || b.DaemonVersion != "1.2.3" {
					t.Errorf("it said %+v", b)
				}
			}
			if len(site.asked) != len(site.beats) || len(site.beats) > 1 || c.running && site.beats != nil {
				t.Errorf("it asked for %q", site.asked)
			}
		})
	}
}

// TestWay: each step that can fail has a name.
func TestWay(t *testing.T) {
	secure := httptest.NewTLSServer(&standIn{})
	t.Cleanup(secure.Close)
	plain := httptest.NewServer(&standIn{})
	t.Cleanup(plain.Close)
	gone := httptest.NewServer(&standIn{})
	gone.Close()
	for address, came := range map[string]string{
		"https://site.invalid": "Nobody knows|name server",
		secure.URL:             "certificate",
		strings.Replace(plain.URL, "http", "https", 1): "no TLS",
		gone.URL: "nobody listens there",
	} {
		server, err := client.ParseServer(address)
		if err != nil {
			t.Fatal(err)
		}
		dir, _ := newFolder(t, "")
		e := exam{Config{Home: dir, Version: "1", Site: server, Clock: time.Now}}
		probes := e.site(t.Context(), e.sites()[0])
		found := false
		for _, words := range strings.Split(came, "|") {
			found = found || strings.Contains(probes[0].Came, words)
		}
		if len(probes) != 1 || probes[0].State != Failed || !found || probes[0].Do == "" {
			t.Errorf("%s: %+v", address, probes)
		}
	}
	// One that nobody waits for.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	server, err := client.ParseServer(plain.URL)
	if err != nil {
		t.Fatal(err)
	}
	e := exam{Config{Home: t.TempDir(), Version: "1", Site: server, Clock: time.Now}}
	if probes := e.site(ctx, e.sites()[0]); probes[0].State == OK {
		t.Errorf("%+v", probes)
	}
}

// TestWhichSites: those of the list, and the one that was given, once.
func TestWhichSites(t *testing.T) {
	dir, _ := newFolder(t, "https://a.example")
	for given, want := range map[string]string{"": "https://a.example", "https://a.example/": "https://a.example", "https://b.example": "https://a.example https://b.example"} {
		c := Config{Home: dir}
		if given != "" {
			var err error
			if c.Site, err = client.ParseServer(given); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for i, s := range (exam{c}).sites() {
			got = append(got, s.at)
			if (s.device != nil) != (i == 0) {
				t.Errorf("%s: who signs for %s?", given, s.at)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q", given, got)
		}
	}
}
