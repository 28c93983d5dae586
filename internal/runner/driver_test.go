package runner

import (
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/internal/runner/outbox"
	"github.com/allodhq/allod/internal/runner/program"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/envelope"
	"github.com/allodhq/allod/wire/ai/protocol"
)

const aServer = "http://127.0.0.1:9"

// answering answers requests without a network.
type answering func(e ai.Endpoint, body []byte) (status int, answer string)

func (f answering) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	status, answer := f(ai.Endpoint(strings.TrimPrefix(r.URL.Path, ai.PathPrefix+"/")), body)
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(answer)), ContentLength: int64(len(answer)), Request: r}, nil
}

// refused is a refusal as a server writes it.
func refused(kind *refusal.Kind) (int, string) {
	return kind.Status(), `{"error":"` + kind.Name() + `","message":"m"}`
}

// testDriver is a driver that steps nothing, of an agent that does not run.
type testDriver struct {
	*driver
	t     *testing.T
	home  string
	site  key.SiteKeys
	agent *Agent
}

func newTestDriver(t *testing.T, backends map[string]settings.Backend, answer answering) *testDriver {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("key files are refused on Windows")
	}
	s := settings.Defaults()
	s.Backends, s.MaxOutput = backends, settings.LargestOutput
	dir := filepath.Join(t.TempDir(), "home")
	a, err := Open(Config{Home: dir, Version: "test", Settings: s, Transport: answer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	site, err := key.NewKeys[key.SiteRole](rand.Reader, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	at, err := client.ParseServer(aServer)
	if err != nil {
		t.Fatal(err)
	}
	p := home.Pairing{Server: aServer, RunnerID: "r1", Owner: "alice", Sites: map[ai.KeyID]home.Site{idOfSite(site): {Identity: site.Identity()}}, PairedAt: 1}
	box, err := outbox.Open(a.home.Outbox(), p.Server, p.RunnerID)
	if err == nil {
		err = a.home.Pair(p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &testDriver{newDriver(a, p, at, box), t, dir, site, a}
}

func idOfSite(k key.SiteKeys) ai.KeyID { return ai.KeyID(k.Identity().Fingerprint().String()) }

func (d *testDriver) granted() lane.Work {
	return lane.Work{Offer: lane.Offer{Capability: ai.Capability{Kind: ai.KindGenerate, BackendID: "ollama", BackendClass: wirebackend.HTTP, Model: "m"}}, Stub: ai.ClaimedStub{
		Stub: ai.Stub{
			ID: "job", Kind: ai.KindGenerate, Owner: "alice", Site: idOfSite(d.site), Audience: ai.AudienceSelf, SizeClass: ai.SizeSmall,
			DeadlineAt: ai.MillisOf(time.Now().Add(time.Hour)),
		},
		Lease: ai.Lease{ID: "lease", RunnerID: "r1", ExpiresAt: ai.MillisOf(time.Now().Add(time.Minute))},
	}}
}

// TestFetchEnds: a payload that does not come is asked for half a minute at most.
// What ends then, or at once, is given back and stands in the log, unless the
// server says that the job is not ours.
func TestFetchEnds(t *testing.T) {
	page := func() (int, string) { return http.StatusOK, "<html>Please sign in" }
	with := func(kind *refusal.Kind) func() (int, string) { return func() (int, string) { return refused(kind) } }
	for name, c := range map[string]struct {
		answer func() (int, string)
		end    lane.WorkEnd
		detail *refusal.Kind // in the log, where it is given back
		lasts  bool          // it is asked again and again
	}{
		"a sign-in page":    {page, lane.WorkDown, client.ErrAnswer, true},
		"a part of it":      {func() (int, string) { return http.StatusOK, `{"envelope":"no"}` }, lane.WorkDown, client.ErrAnswer, true},
		"a proxy's page":    {func() (int, string) { return http.StatusBadGateway, "<html>" }, lane.WorkDown, client.ErrUnreachable, true},
		"not ready":         {with(ai.ErrNotReady), lane.WorkDown, ai.ErrNotReady, true},
		"a failure":         {with(ai.ErrServer), lane.WorkDown, ai.ErrServer, true},
		"too many requests": {with(ai.ErrRateLimited), lane.WorkDown, ai.ErrRateLimited, true},
		"come in an hour":   {func() (int, string) { return 429, `{"error":"rate-limited","message":"m","retryAfter":3600}` }, lane.WorkDown, ai.ErrRateLimited, false},
		"a bad request":     {with(ai.ErrBadRequest), lane.WorkDown, client.ErrAnswer, false},
		"unauthorized":      {with(ai.ErrUnauthorized), lane.WorkDown, client.ErrAnswer, false},
		"another version": {func() (int, string) {
			return 400, `{"error":"unsupported-protocol-version","message":"m","supported":["1"],"minimum":"1"}`
		}, lane.WorkDown, client.ErrAnswer, false},
		"not ours":           {with(ai.ErrNotFound), lane.WorkGone, nil, false},
		"ours no more":       {with(ai.ErrTooLate), lane.WorkGone, nil, false},
		"forbidden":          {with(ai.ErrForbidden), lane.WorkGone, nil, false},
		"the device is gone": {with(ai.ErrRevoked), lane.WorkGone, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			d := newTestDriver(t, map[string]settings.Backend{}, func(e ai.Endpoint, _ []byte) (int, string) {
				if e != ai.EndpointFetch {
					t.Errorf("asked for %s", e)
				}
				asked++
				return c.answer()
			})
			synctest.Test(t, func(t *testing.T) {
				before := time.Now()
				got := d.work(t.Context(), d.granted())
				if got.End != c.end || got.Lease != "lease" || got.Err != nil {
					t.Errorf("ended as %+v", got)
				}
				took := time.Since(before)
				switch {
				case c.lasts && (took < 25*time.Second || took > 31*time.Second || asked < 25 || asked > 1000):
					t.Errorf("asked %d times in %v", asked, took)
				case !c.lasts && (took > 0 || asked != 1):
					t.Errorf("asked %d times in %v", asked, took)
				}
			})
			lines, err := Why(d.home, "job")
			if err != nil {
				t.Fatal(err)
			}
			if c.detail == nil {
				if len(lines) > 0 {
					t.Errorf("the log says %+v", lines)
				}
				return
			}
			if len(lines) != 1 || lines[0].Outcome != "given-back" || Explain(lines[0].Detail) != c.detail || lines[0].Owner != "alice" || lines[0].Server != aServer {
				t.Errorf("the log says %+v", lines)
			}
		})
	}
}

// TestVersionIsKept: what a server and a device agree on is kept with the pairing
// and begun with at the next start. A day later the server is asked for the newest,
// and what it learned since is kept in turn.
func TestVersionIsKept(t *testing.T) {
	latest, oldest := protocol.Latest().Version, protocol.Minimum()
	speaks := []string{oldest}
	var declared []string
	d := newTestDriver(t, map[string]settings.Backend{}, func(_ ai.Endpoint, body []byte) (int, string) {
		v, err := protocol.Choose(body, ai.MaxBody, "")
		if err != nil {
			t.Error(err)
			return refused(ai.ErrServer)
		}
		declared = append(declared, v.Version)
		if !slices.Contains(speaks, v.Version) {
			return 400, `{"error":"unsupported-protocol-version","message":"m","supported":["` + strings.Join(speaks, `","`) + `"],"minimum":"` + speaks[0] + `"}`
		}
		return http.StatusOK, `{"released":[]}`
	})
	synctest.Test(t, func(t *testing.T) {
		ask := func(d *driver, want ...string) {
			t.Helper()
			declared = nil
			if _, err := d.device.Release(t.Context(), ai.ReleaseShutdown, []ai.Grant{}); err != nil || !slices.Equal(declared, want) {
				t.Errorf("it declared %q, want %q; %v", declared, want, err)
			}
		}
		kept := func(version string, at time.Time) home.Pairing {
			t.Helper()
			list, err := d.agent.home.Pairings()
			if err != nil || len(list) != 1 || list[0].Protocol != (home.Protocol{Version: version, At: ai.MillisOf(at)}) {
				t.Fatalf("kept %+v, %v", list, err)
			}
			return list[0]
		}
		first := time.Now()
		ask(d.driver, latest, oldest)
		ask(d.driver, oldest)
		p := kept(oldest, first)
		restarted := newDriver(d.agent, p, d.device.Server(), d.box)
		defer restarted.device.Close()
		ask(restarted, oldest)
		speaks = []string{oldest, latest}
		time.Sleep(24*time.Hour - time.Millisecond)
		ask(restarted, oldest)
		kept(oldest, first)
		time.Sleep(time.Millisecond)
		ask(restarted, latest)
		kept(latest, time.Now())
		learned := time.Now()
		speaks = []string{latest} // and forgot the older one
		ask(d.driver, latest)
		time.Sleep(48 * time.Hour)
		ask(restarted, latest)
		// What is kept of another pairing with the server is not touched.
		p = kept(latest, learned)
		p.RunnerID, p.Protocol = "r2", home.Protocol{Version: oldest, At: 1}
		if err := d.agent.home.Pair(p); err != nil {
			t.Fatal(err)
		}
		speaks = []string{oldest}
		ask(restarted, latest, oldest)
		kept(oldest, time.UnixMilli(1))
	})
}

// TestUnkeptResult: a job whose result cannot be kept is given back, and the log
// says so after it says that the job ran.
func TestUnkeptResult(t *testing.T) {
	m := newModelServer(t, "m")
	var sealed ai.SealedEnvelope
	d := newTestDriver(t, map[string]settings.Backend{"m": m.generic()}, func(ai.Endpoint, []byte) (int, string) {
		text, err := protocol.Latest().FetchResponse.Write(ai.FetchResponse{Envelope: sealed})
		if err != nil {
			t.Error(err)
		}
		return http.StatusOK, string(text)
	})
	d.shelf.lookOnce(t.Context())
	w := d.granted()
	w.Offer = d.shelf.current()[0]
	reach := envelope.ReachOf(w.Stub.Stub)
	sealed = sealTo(t, d.site.Signer(), d.keys.Identity(), envelope.Letter{
		JobID: "job", Direction: ai.DirectionPayload, DeadlineAt: ai.MillisOf(time.Now().Add(time.Hour)), Plaintext: `{"prompt":"p"}`, Reach: &reach,
	})
	m.set(func() {
		m.job = func(w http.ResponseWriter, _ *http.Request) {
			d.mu.Lock()
			defer d.mu.Unlock()
			clear(d.pairing.Sites)
			_, _ = io.WriteString(w, anAnswer)
		}
	})
	if got := d.work(t.Context(), w); got.End != lane.WorkDown {
		t.Errorf("ended as %+v", got)
	}
	lines, err := Why(d.home, "job")
	if err != nil || len(lines) != 3 || lines[1].Outcome != "ok" || lines[2].Outcome != "given-back" || lines[2].Detail != lane.ErrSite.Name() {
		t.Errorf("the log says %+v, %v", lines, err)
	}
}

func sealTo[R key.Role](t *testing.T, from key.Signer, to key.Identity[R], l envelope.Letter) ai.SealedEnvelope {
	t.Helper()
	e, err := envelope.Seal(rand.Reader, from, to, l)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// kept keeps a result of that text for the job, and returns where.
func (d *testDriver) kept(text string) (ai.Grant, string) {
	d.t.Helper()
	if _, err := d.keep(d.granted(), backend.Result{Outcome: ai.Answer{Text: text}}); err != nil {
		d.t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(d.home, "outbox", "*", "*.result"))
	if err != nil || len(paths) != 1 {
		d.t.Fatalf("kept in %v, %v", paths, err)
	}
	return ai.Grant{JobID: "job", LeaseID: "lease"}, paths[0]
}

// acceptedResult is the answer of a server that took a result.
func acceptedResult(t *testing.T) string {
	t.Helper()
	text, err := protocol.Latest().ResultResponse.Write(ai.ResultResponse{Accepted: true, State: "ok"})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestUnreadableForAMoment: a kept result that cannot be read for a moment stays,
// and is handed in later. One that is gone or damaged is not waited for.
func TestUnreadableForAMoment(t *testing.T) {
	sent := 0
	d := newTestDriver(t, map[string]settings.Backend{}, func(ai.Endpoint, []byte) (int, string) {
		sent++
		return http.StatusOK, acceptedResult(t)
	})
	send := func() lane.SendDone {
		return d.send(t.Context(), ai.Grant{JobID: "job", LeaseID: "lease"}).(lane.SendDone)
	}
	_, path := d.kept("an answer")
	// A folder in the file's place is read by nobody, on every system.
	if err := errors.Join(os.Rename(path, path+".away"), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		got := send()
		if again, _ := client.Retry(got.Err); !again || got.Lease != "lease" {
			t.Errorf("ended as %+v", got)
		}
	}
	all, err := d.box.All()
	if err == nil || len(all) > 0 {
		t.Errorf("kept %+v, %v", all, err)
	}
	if err := errors.Join(os.Remove(path), os.Rename(path+".away", path)); err != nil {
		t.Fatal(err) // it was moved or removed
	}
	if got := send(); got.Err != nil || !got.Answer.Accepted || sent != 1 {
		t.Errorf("ended as %+v and was sent %d times", got, sent)
	}
	for what, spoil := range map[string]func() error{
		"damaged": func() error { return os.WriteFile(path, []byte("{"), 0o600) },
		"gone":    func() error { return os.Remove(path) },
	} {
		d.kept("an answer")
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		got := send()
		if again, _ := client.Retry(got.Err); again || !errors.Is(got.Err, outbox.ErrDamaged) {
			t.Errorf("%s: ended as %+v", what, got)
		}
	}
	if sent != 1 {
		t.Errorf("%d were sent", sent)
	}
}

// TestServerTakesLess: servers of others take messages of 8 MiB. A result that
// is refused as one that is longer is replaced by a failure that says so.
func TestServerTakesLess(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		always  bool // whatever is sent is refused
		want    error
		failure bool // what is kept in the end
		sent    int
	}{
		"long":  {strings.Repeat("a", 5<<20), false, nil, true, 2},
		"short": {"an answer", true, ai.ErrBadRequest, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			sent := 0
			d := newTestDriver(t, map[string]settings.Backend{}, func(e ai.Endpoint, body []byte) (int, string) {
				if sent++; e != ai.EndpointResult {
					t.Errorf("sends to %s", e)
				}
				if len(body) > 8<<20 || c.always {
					return refused(ai.ErrBadRequest)
				}
				return http.StatusOK, acceptedResult(t)
			})
			g, _ := d.kept(c.text)
			got := d.send(t.Context(), g).(lane.SendDone)
			if !errors.Is(got.Err, c.want) || (c.want == nil) != got.Answer.Accepted || got.Lease != g.LeaseID || sent != c.sent {
				t.Errorf("ended as %v after %d requests", got, sent)
			}
			q, err := d.box.Get(g.LeaseID)
			if err != nil {
				t.Fatal(err)
			}
			if left := time.Until(q.Envelope.DeadlineAt.Time()); q.Grant != g || left < envelope.MaxAge-time.Minute || left > envelope.MaxAge {
				t.Errorf("kept %v for %v", q.Grant, left)
			}
			opened, err := envelope.Open(d.site.Opener(), d.keys.Identity().Signing(), q.Envelope, envelope.Context{
				JobID: g.JobID, Sender: d.keys.Identity().Fingerprint(), Recipient: d.site.Identity().Fingerprint(), Direction: ai.DirectionResult,
			})
			if err != nil {
				t.Fatal(err)
			}
			outcome, err := protocol.Latest().Outcome.Read([]byte(opened.Plaintext))
			if err != nil {
				t.Fatal(err)
			}
			f, failed := outcome.Outcome.(ai.Failure)
			if failed != c.failure || failed && (f.Code != backend.CodeTooLarge || f.Retryable) || q.Disposition != outcome.Outcome.Disposition() {
				t.Errorf("the site gets %.100v as %s", outcome.Outcome, q.Disposition)
			}
		})
	}
}

// TestTakesLess: only a long answer that the server itself refused is replaced.
func TestTakesLess(t *testing.T) {
	bad := ai.ErrorOf(ai.ErrBadRequest)
	long := strings.Repeat("a", stockSealed+1)
	for name, c := range map[string]struct {
		ciphertext  string
		disposition ai.Disposition
		err         error
		want        bool
	}{
		"long":            {long, ai.DispositionOK, bad, true},
		"short":           {long[1:], ai.DispositionOK, bad, false},
		"a long failure":  {long, ai.DispositionError, bad, false},
		"accepted":        {long, ai.DispositionOK, nil, false},
		"a page":          {long, ai.DispositionOK, client.ErrAnswer.Because(bad), false},
		"no answer":       {long, ai.DispositionOK, client.ErrUnreachable.Because(bad), false},
		"too late":        {long, ai.DispositionOK, ai.ErrorOf(ai.ErrTooLate), false},
		"another version": {long, ai.DispositionOK, ai.ErrorOf(ai.ErrUnsupportedVersion), false},
	} {
		q := ai.ResultRequest{Envelope: ai.SealedEnvelope{Ciphertext: c.ciphertext}, Disposition: c.disposition}
		if got := takesLess(q, c.err); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestAnsweredAge: how long ago a server answered is told by the lane's clock,
// which goes on while the machine sleeps.
func TestAnsweredAge(t *testing.T) {
	d := newTestDriver(t, map[string]settings.Backend{}, func(ai.Endpoint, []byte) (int, string) { return 500, "" })
	at := time.Now()
	a := &Agent{config: Config{Clock: func() time.Time { return at }}, lanes: map[string]*running{aServer: {driver: d.driver}}}
	for _, c := range []struct {
		what            string
		ahead, answered time.Duration
		want            int64
	}{
		{"no sleep", 0, -5 * time.Second, 5},
		{"answered after a sleep", time.Hour, time.Hour - 5*time.Second, 5},
		{"answered before a sleep", time.Hour, -5 * time.Second, 3605},
	} {
		d.status.ahead, d.status.Answered = c.ahead, at.Add(c.answered)
		if got := a.serverStatus(d.pairing).AnsweredSeconds; got == nil || *got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

// TestExplain: each name that the log may hold is explained by the kind that put
// it there, and no other name is explained.
func TestExplain(t *testing.T) {
	for _, name := range []string{"", "no-such", "internal", "error", "Unauthorized", "unauthorized ", "un\nauthorized", "ok", "given-back", "timeouts", "backend-error-2"} {
		if got := Explain(name); got != nil {
			t.Errorf("%q is explained by %s", name, got.Name())
		}
	}
	want := map[string]*refusal.Kind{
		backend.CodeUnreachable: backend.ErrUnreachable, backend.CodeUnauthorized: backend.ErrUnauthorized, backend.CodeNoModel: backend.ErrNoModel,
		backend.CodeBackend: backend.ErrBackend, backend.CodeTimeout: backend.ErrTimeout, backend.CodeTooLarge: backend.ErrOutputTooLarge,
	}
	for _, kinds := range []refusal.Registry{Kinds, lane.Kinds, backend.Kinds, program.Kinds, client.Kinds, envelope.Kinds, ai.Refusals, home.Kinds, outbox.Kinds, key.Kinds} {
		for _, k := range kinds.Kinds {
			if want[k.Name()] == nil {
				want[k.Name()] = k
			}
		}
	}
	for name, kind := range want {
		if got := Explain(name); got != kind {
			t.Errorf("%q is explained by %v", name, got)
		}
	}
}
