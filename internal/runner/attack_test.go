package runner_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/runner/outbox"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
)

// gate stands before a server. What before answers does not reach it.
type gate struct {
	to     http.RoundTripper
	before func(e ai.Endpoint, r *http.Request) *http.Response
}

func (g gate) RoundTrip(r *http.Request) (*http.Response, error) {
	if a := g.before(ai.Endpoint(strings.TrimPrefix(r.URL.Path, ai.PathPrefix+"/")), r); a != nil {
		a.Request = r
		return a, nil
	}
	return g.to.RoundTrip(r)
}

// saying is an answer.
func saying(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}
}

// newGated is a farm whose server stands behind a gate and a tap, and does not
// run. change may be nil.
func newGated(t *testing.T, before func(e ai.Endpoint, r *http.Request) *http.Response, sites ...key.SiteKeys) (*farm, *tap) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("key files are refused on Windows")
	}
	f := &farm{t: t, model: newModel(t), liar: newLiar(t, sites...), home: filepath.Join(t.TempDir(), "home")}
	if before == nil {
		before = func(ai.Endpoint, *http.Request) *http.Response { return nil }
	}
	p := &tap{to: gate{f.liar, before}, under: map[string]int{}}
	s := settings.Defaults()
	s.Backends = map[string]settings.Backend{"mine": {ID: backend.Generic, BaseURL: f.model.URL + "/v1"}}
	var err error
	if f.agent, err = runner.Open(runner.Config{Home: f.home, Version: "test", Settings: s, Transport: p}); err != nil {
		t.Fatal(err)
	}
	f.liar.device = f.agent.Keys().Identity()
	return f, p
}

// pairing is one with the farm's server.
func (f *farm) pairing(owner ai.Owner, id ai.RunnerID, sites ...key.SiteKeys) home.Pairing {
	pinned := map[ai.KeyID]home.Site{}
	for _, s := range sites {
		pinned[idOf(s)] = home.Site{Identity: s.Identity()}
	}
	return home.Pairing{Server: server, RunnerID: id, Owner: owner, Sites: pinned, PairedAt: ai.MillisOf(time.Now())}
}

// ask has an honest job wait for a device.
func (f *farm) ask(id string, runner ai.RunnerID, site key.SiteKeys) {
	s := f.stub(id, site)
	s.Lease.RunnerID = runner
	f.liar.offer(s, seal(f.t, site.Signer(), f.agent.Keys().Identity(), letter(s)))
}

// status is what the owner is shown of the agent, and of its one server.
func (f *farm) status() (runner.Status, runner.ServerStatus) {
	f.t.Helper()
	s, err := f.agent.Status()
	if err != nil {
		f.t.Fatal(err)
	}
	if len(s.Servers) != 1 {
		return s, runner.ServerStatus{}
	}
	return s, s.Servers[0]
}

// boxes are the folders of kept results.
func (f *farm) boxes() []string {
	f.t.Helper()
	entries, err := os.ReadDir(filepath.Join(f.home, "outbox"))
	if err != nil {
		f.t.Fatal(err)
	}
	list := []string{}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// hold has the model answer no job before the test ends.
func (f *farm) hold() {
	held := make(chan struct{})
	f.t.Cleanup(func() { close(held) })
	f.model.mu.Lock()
	defer f.model.mu.Unlock()
	f.model.ask = func([]byte) { <-held }
}

// TestSignInPages: what answers in the site's place, as a hotel's sign-in page,
// costs neither a job nor its result.
func TestSignInPages(t *testing.T) {
	for _, endpoint := range []ai.Endpoint{ai.EndpointFetch, ai.EndpointResult} {
		t.Run(string(endpoint), func(t *testing.T) {
			site := newSiteKeys(t)
			var pages atomic.Int64
			var signedIn atomic.Bool
			f, _ := newGated(t, func(e ai.Endpoint, _ *http.Request) *http.Response {
				if e != endpoint || signedIn.Load() {
					return nil
				}
				pages.Add(1)
				return saying(http.StatusOK, "<html>Please sign in")
			}, site)
			f.pair("alice", "r1", site)
			f.run()
			f.ask("job", "r1", site)
			until(t, func() bool { return pages.Load() > 1 })
			if endpoint == ai.EndpointResult {
				if _, s := f.status(); s.ResultsKept != 1 || s.JobsRunning != 0 {
					t.Errorf("meanwhile: %+v", s)
				}
			}
			signedIn.Store(true)
			if reason, outcome := f.end("job"); outcome != (ai.Answer{Text: "an answer"}) {
				t.Errorf("it ended as %q, %v", reason, outcome)
			}
			until(t, func() bool { _, s := f.status(); return s.ResultsKept+s.JobsRunning == 0 })
		})
	}
}

// slow is a gate that holds releases back until it is opened. It lets a test be
// in the middle of an end.
type slow struct{ reached, open chan struct{} }

func newSlow() slow { return slow{make(chan struct{}, 64), make(chan struct{})} }

func (s slow) before(e ai.Endpoint, r *http.Request) *http.Response {
	if e == ai.EndpointRelease {
		s.reached <- struct{}{}
		select {
		case <-s.open:
		case <-r.Context().Done():
		}
	}
	return nil
}

// busy has the farm work for r1 and hold a job, so that an end takes until the
// gate is opened.
func (f *farm) busy(site key.SiteKeys) {
	f.t.Helper()
	f.hold()
	f.pair("alice", "r1", site)
	f.run()
	f.ask("held", "r1", site)
	until(f.t, func() bool { return f.model.count() > 0 })
}

// mustForget forgets the server, after which nobody speaks to it.
func (f *farm) mustForget(p *tap, ids ...string) {
	f.t.Helper()
	if err := f.agent.Forget(server); err != nil {
		f.t.Fatal(err)
	}
	for _, id := range ids {
		if n := p.underWay(id); n > 0 {
			f.t.Errorf("%d requests of %s are under way after it was forgotten", n, id)
		}
	}
	if s, _ := f.status(); len(s.Servers) > 0 {
		f.t.Errorf("it is forgotten, and listed: %+v", s.Servers)
	}
	if left := f.boxes(); len(left) > 0 {
		f.t.Errorf("it is forgotten, and %v are kept", left)
	}
}

// TestTwoPairingsAtOnce: of two pairings with one server that are adopted at once
// one is at work, and none after it was forgotten.
func TestTwoPairingsAtOnce(t *testing.T) {
	site := newSiteKeys(t)
	way := newSlow()
	f, p := newGated(t, way.before, site)
	f.busy(site)
	var done sync.WaitGroup
	adopt := func(id ai.RunnerID) {
		done.Go(func() {
			if err := f.agent.Adopt(f.pairing("alice", id, site)); err != nil {
				t.Error(err)
			}
		})
	}
	adopt("r2")
	<-way.reached
	adopt("r3")
	for range 200 { // while one that did not wait would end
		f.status()
	}
	close(way.open)
	done.Wait()
	until(t, func() bool { return p.underWay("r3 claim") == 1 })
	if n := p.underWay("r1") + p.underWay("r2"); n > 0 {
		t.Errorf("%d requests of those before are under way", n)
	}
	f.mustForget(p, "r1", "r2", "r3")
}

// TestForgetBesideAdopt: a pairing that comes while the one before is being
// forgotten stays, and is at work.
func TestForgetBesideAdopt(t *testing.T) {
	site := newSiteKeys(t)
	way := newSlow()
	f, p := newGated(t, way.before, site)
	f.busy(site)
	var done sync.WaitGroup
	done.Go(func() {
		if err := f.agent.Forget(server); err != nil {
			t.Error(err)
		}
	})
	<-way.reached
	done.Go(func() {
		if err := f.agent.Adopt(f.pairing("bob", "r2", site)); err != nil {
			t.Error(err)
		}
	})
	close(way.open)
	done.Wait()
	if _, s := f.status(); s.Owner != "bob" {
		t.Fatalf("paired with %+v", s)
	}
	until(t, func() bool { return p.underWay("r2 claim") == 1 })
	if n := p.underWay("r1"); n > 0 {
		t.Errorf("%d requests of the one before are under way", n)
	}
	f.mustForget(p, "r1", "r2")
}

// TestForgetWhileAdopting: what is forgotten while it is being adopted is not at
// work in the end.
func TestForgetWhileAdopting(t *testing.T) {
	site := newSiteKeys(t)
	way := newSlow()
	f, p := newGated(t, way.before, site)
	f.busy(site)
	var done sync.WaitGroup
	done.Go(func() {
		if err := f.agent.Adopt(f.pairing("bob", "r2", site)); err != nil {
			t.Error(err)
		}
	})
	<-way.reached
	done.Go(func() {
		if err := f.agent.Forget(server); err != nil {
			t.Error(err)
		}
	})
	for range 200 { // while one that did not wait would end
		f.status()
	}
	close(way.open)
	done.Wait()
	if s, _ := f.status(); len(s.Servers) > 0 || p.underWay("r1")+p.underWay("r2") > 0 {
		t.Errorf("paired with %+v; %d and %d requests are under way", s.Servers, p.underWay("r1"), p.underWay("r2"))
	}
	// A new one is at work, and so would be what was left over.
	f.pair("carol", "r3", site)
	until(t, func() bool { return p.underWay("r3 claim") == 1 })
	f.mustForget(p, "r1", "r2", "r3")
}

// TestChangesAtOnce has many at once. What is listed at the end is what is at
// work.
func TestChangesAtOnce(t *testing.T) {
	site := newSiteKeys(t)
	f, p := newGated(t, nil, site)
	f.pair("alice", "r0", site)
	f.run()
	until(t, func() bool { return p.underWay("r0 claim") == 1 })
	for range 20 {
		var done sync.WaitGroup
		for _, id := range []ai.RunnerID{"r1", "r2"} {
			done.Go(func() {
				if err := f.agent.Adopt(f.pairing(ai.Owner(id), id, site)); err != nil {
					t.Error(err)
				}
			})
		}
		done.Go(func() {
			if err := f.agent.Forget(server); err != nil && !errors.Is(err, home.ErrNotPaired) {
				t.Error(err)
			}
		})
		done.Wait()
		if _, s := f.status(); s.State == "stopped" {
			t.Errorf("it is listed, and not at work: %+v", s)
		}
	}
	f.pair("alice", "r3", site)
	until(t, func() bool { return p.underWay("r3 claim") == 1 })
	f.mustForget(p, "r0", "r1", "r2", "r3")
}

// TestAdoptWhileRunBegins: a pairing that comes while the agent begins to run
// takes the place of the one before as at any other time.
func TestAdoptWhileRunBegins(t *testing.T) {
	site := newSiteKeys(t)
	f, p := newGated(t, nil, site)
	id := func(n int) ai.RunnerID { return ai.RunnerID("r" + strconv.Itoa(n)) }
	f.pair("alice", id(0), site)
	for n := range 10 {
		ctx, cancel := contextOf(t)
		ended := make(chan error, 1)
		go func() { ended <- f.agent.Run(ctx) }()
		f.pair("alice", id(n+1), site)
		until(t, func() bool { return p.underWay(string(id(n+1))+" claim") == 1 })
		if under := p.underWay(string(id(n))); under > 0 {
			t.Errorf("%d requests of the pairing before are under way", under)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	_ = f.agent.Close()
}

// TestPauseThatIsNotRecorded holds all the same, also for pairings that come
// after it, and the owner is told.
func TestPauseThatIsNotRecorded(t *testing.T) {
	site := newSiteKeys(t)
	f, p := newGated(t, nil, site)
	var paused sync.Map // by runner id, whether its last heartbeat offered nothing
	p.change = func(e ai.Endpoint, asked, answered []byte) []byte {
		if e == ai.EndpointHeartbeat {
			q, err := codec.HeartbeatRequest.Read(asked)
			if err != nil {
				t.Error(err)
			}
			paused.Store(q.RunnerID, len(q.Capabilities) == 0)
		}
		return answered
	}
	says := func(id ai.RunnerID, want bool) func() bool {
		return func() bool { got, ok := paused.Load(id); return ok && got == want }
	}
	f.busy(site)
	if err := os.Rename(f.home, f.home+".away"); err != nil {
		t.Fatal(err)
	}
	err := f.agent.Pause(true)
	if back := os.Rename(f.home+".away", f.home); back != nil {
		t.Fatal(back)
	}
	if !errors.Is(err, datadir.ErrWrite) {
		t.Errorf("pausing says %v", err)
	}
	if reason, _ := f.end("held"); reason != ai.ReleasePause {
		t.Errorf("what was under way was released as %q", reason)
	}
	until(t, says("r1", true))
	f.pair("alice", "r2", site)
	until(t, says("r2", true))
	if s, _ := f.status(); !s.Paused || !slices.ContainsFunc(s.Problems, func(p string) bool { return strings.Contains(p, "paused") }) {
		t.Errorf("shown as %+v", s)
	}
	if err := f.agent.Resume(); err != nil {
		t.Fatal(err)
	}
	until(t, says("r2", false))
	until(t, func() bool { return p.underWay("r2 claim") == 1 })
	if s, _ := f.status(); s.Paused {
		t.Errorf("after it goes on: %+v", s)
	}
}

// TestPauseIsRecorded: a pause outlives the agent, and one that cannot be ended
// goes on.
func TestPauseIsRecorded(t *testing.T) {
	f, _ := newGated(t, nil)
	if err := f.agent.Pause(false); err != nil {
		t.Fatal(err)
	}
	_ = f.agent.Close()
	f.open()
	defer func() { _ = f.agent.Close() }()
	if s, _ := f.status(); !s.Paused {
		t.Error("it is forgotten")
	}
	path := filepath.Join(f.home, "paused")
	if err := errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "x"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := f.agent.Resume(); !errors.Is(err, datadir.ErrWrite) {
		t.Errorf("going on says %v", err)
	}
	if s, _ := f.status(); !s.Paused {
		t.Error("it goes on, and would be paused after a restart")
	}
}

// TestChangesThatAreNotRecorded leave what was at work at work.
func TestChangesThatAreNotRecorded(t *testing.T) {
	site := newSiteKeys(t)
	var claims atomic.Int64
	f, p := newGated(t, func(e ai.Endpoint, _ *http.Request) *http.Response {
		if e == ai.EndpointClaim {
			claims.Add(1)
		}
		return nil
	}, site)
	f.pair("alice", "r1", site)
	f.run()
	until(t, func() bool { return p.underWay("r1 claim") == 1 })
	before := claims.Load()
	mustGoOn := func(after string) {
		t.Helper()
		if p.underWay("r1 claim") != 1 || claims.Load() != before {
			t.Fatalf("%s: %d claims are under way, and %d were made", after, p.underWay("r1 claim"), claims.Load()-before)
		}
	}
	if err := f.agent.Adopt(f.pairing("", "r2", site)); !errors.Is(err, home.ErrPairings) {
		t.Errorf("a pairing that could not be read again: %v", err)
	}
	mustGoOn("after a bad pairing")
	path := filepath.Join(f.home, "pairings.json")
	if err := errors.Join(os.Rename(path, path+".away"), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := f.agent.Adopt(f.pairing("bob", "r2", site)); !errors.Is(err, datadir.ErrRead) {
		t.Errorf("a pairing without the list: %v", err)
	}
	mustGoOn("after a pairing that failed")
	if err := f.agent.Forget(server); !errors.Is(err, datadir.ErrRead) {
		t.Errorf("forgetting without the list: %v", err)
	}
	mustGoOn("after forgetting failed")
	if err := errors.Join(os.Remove(path), os.Rename(path+".away", path)); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() > 0 { // the superuser writes everywhere
		if err := os.Chmod(f.home, 0o500); err != nil {
			t.Fatal(err)
		}
		adopted, forgot := f.agent.Adopt(f.pairing("bob", "r2", site)), f.agent.Forget(server)
		if err := os.Chmod(f.home, 0o700); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(adopted, datadir.ErrWrite) || !errors.Is(forgot, datadir.ErrWrite) {
			t.Errorf("in a folder that cannot be written: %v and %v", adopted, forgot)
		}
		mustGoOn("after that")
	}
	f.ask("job", "r1", site)
	if _, outcome := f.end("job"); outcome != (ai.Answer{Text: "an answer"}) {
		t.Errorf("the next job ended as %v", outcome)
	}
}

// TestStoppedServer: a server that is not served although the agent runs is named
// among the problems, and serves again once it is adopted anew.
func TestStoppedServer(t *testing.T) {
	site := newSiteKeys(t)
	f, p := newGated(t, nil, site)
	f.pair("alice", "r1", site)
	named := func() bool {
		s, one := f.status()
		return one.State == "stopped" && slices.ContainsFunc(s.Problems, func(p string) bool { return strings.HasPrefix(p, server+" is not served") })
	}
	if named() {
		t.Error("it is a problem that the agent does not run")
	}
	box := filepath.Join(f.home, "outbox")
	if err := os.WriteFile(box, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.run()
	until(t, func() bool { s, _ := f.status(); return s.Running })
	until(t, named)
	if err := f.agent.Adopt(f.pairing("alice", "r1", site)); !errors.Is(err, datadir.ErrData) || !named() {
		t.Errorf("adopted anew: %v", err)
	}
	if err := os.Remove(box); err != nil {
		t.Fatal(err)
	}
	f.pair("alice", "r1", site)
	until(t, func() bool { return p.underWay("r1 claim") == 1 && !named() })
}

// TestBoxesOfNobody: what was kept for a pairing that is no more is removed: when
// another takes its place, when it is forgotten, and else at the next start.
func TestBoxesOfNobody(t *testing.T) {
	site := newSiteKeys(t)
	f, p := newGated(t, nil, site)
	f.pair("alice", "r1", site)
	leave := func(id ai.RunnerID) string {
		t.Helper()
		name := outbox.Name(server, id)
		dir := filepath.Join(f.home, "outbox", name)
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "x.damaged"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		return name
	}
	leave("r0")
	r1 := leave("r1")
	f.run()
	until(t, func() bool { return p.underWay("r1 claim") == 1 })
	if got := f.boxes(); !slices.Equal(got, []string{r1}) {
		t.Errorf("after a start: %v", got)
	}
	if _, err := os.Stat(filepath.Join(f.home, "outbox", r1, "x.damaged")); err != nil {
		t.Errorf("what was set aside for the pairing at work: %v", err)
	}
	f.pair("bob", "r2", site)
	r2 := leave("r2")
	if got := f.boxes(); !slices.Equal(got, []string{r2}) {
		t.Errorf("after another pairing: %v", got)
	}
	f.pair("bob", "r2", site) // the same again
	if _, err := os.Stat(filepath.Join(f.home, "outbox", r2, "x.damaged")); err != nil {
		t.Errorf("after the same pairing again: %v", err)
	}
	f.mustForget(p, "r1", "r2")
}

// TestStarting: a server that was not heard yet is starting, and one that never
// answered has no time at which it did.
func TestStarting(t *testing.T) {
	site := newSiteKeys(t)
	asked, answer := make(chan struct{}, 64), make(chan struct{})
	var healthy atomic.Bool
	f, _ := newGated(t, func(e ai.Endpoint, r *http.Request) *http.Response {
		if e != ai.EndpointHeartbeat {
			return nil
		}
		select {
		case asked <- struct{}{}:
		default:
		}
		select {
		case <-answer:
		case <-r.Context().Done():
		}
		if healthy.Load() {
			return nil
		}
		return saying(http.StatusServiceUnavailable, "<html>")
	}, site)
	f.pair("alice", "r1", site)
	f.run()
	<-asked
	if all, s := f.status(); s.State != "starting" || s.AnsweredSeconds != nil || slices.ContainsFunc(all.Problems, func(p string) bool { return strings.Contains(p, server) }) {
		t.Errorf("before the first answer: %+v, %q", s, all.Problems)
	}
	close(answer)
	until(t, func() bool { _, s := f.status(); return s.State != "starting" })
	if all, s := f.status(); s.State != "unreachable" || s.Refusal != client.ErrUnreachable.Name() || s.AnsweredSeconds != nil || len(all.Problems) == 0 {
		t.Errorf("after a page: %+v", s)
	}
	healthy.Store(true)
	until(t, func() bool { _, s := f.status(); return s.State == "serving" && s.AnsweredSeconds != nil })
}

// unpaired is what a device has before it pairs: its keys, and a server to pair with.
func unpaired(t *testing.T, server string) (key.DeviceKeys, client.Server) {
	t.Helper()
	keys, err := key.NewKeys[key.DeviceRole](bytes.NewReader(bytes.Repeat([]byte{7}, 64)), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	at, err := client.ParseServer(server)
	if err != nil {
		t.Fatal(err)
	}
	return keys, at
}

// pairingWith pairs with a server that answers a start and each poll in turn. It
// runs on a clock of its own, and says what was shown.
func pairingWith(t *testing.T, site, start string, polls ...string) (paired home.Pairing, shown []runner.Code, took time.Duration, err error) {
	t.Helper()
	keys, at := unpaired(t, site)
	synctest.Test(t, func(t *testing.T) {
		before := time.Now()
		paired, err = runner.Pair(t.Context(), runner.Pairing{
			Server: at, Keys: keys, Version: "test", Name: "box", Show: func(c runner.Code) { shown = append(shown, c) },
			Transport: gate{nil, func(_ ai.Endpoint, r *http.Request) *http.Response {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				q, err := codec.PairRequest.Read(body)
				switch {
				case err != nil:
					t.Error(err)
				case q.Start != nil:
					return saying(http.StatusOK, start)
				case len(polls) > 0:
					answer := polls[0]
					polls = polls[1:]
					return saying(http.StatusOK, answer)
				}
				return saying(http.StatusOK, `{"status":"pending"}`)
			}},
		})
		took = time.Since(before)
	})
	return paired, shown, took, err
}

// starting is the answer to a start, with some members changed.
func starting(t *testing.T, change map[string]any) string {
	t.Helper()
	members := map[string]any{
		"deviceCode": strings.Repeat("d", 43), "userCode": "ABCD-EFGH", "verificationUrl": "https://app.example/pair",
		// The clock of a test begins with the year 2000.
		"expiresAt": time.Date(2000, 1, 1, 0, 10, 0, 0, time.UTC).UnixMilli(), "pollIntervalMs": ai.MinPollIntervalMs,
	}
	for name, value := range change {
		members[name] = value
	}
	text, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// approving is the answer to a poll that approves.
func approving(t *testing.T, a ai.PairApproval) string {
	t.Helper()
	text, err := codec.PairPollResponse.Write(ai.PairPollResponse{Status: ai.PairApproved, Approved: &a})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// approval is an honest one, with as many sites.
func approval(t *testing.T, sites int) ai.PairApproval {
	t.Helper()
	a := ai.PairApproval{RunnerID: "r1", Owner: "alice", Sites: map[ai.KeyID]ai.PublicIdentity{}}
	for range sites {
		k := newSiteKeys(t)
		a.Sites[idOf(k)] = ai.PublicIdentityOf(k.Identity())
	}
	return a
}

const app = "https://app.example"

// TestPairBehindAPage: a page that answers in the site's place ends no pairing
// that has begun, and begins none.
func TestPairBehindAPage(t *testing.T) {
	page := "<html>Please sign in"
	good := approving(t, approval(t, 1))
	paired, shown, took, err := pairingWith(t, app, starting(t, nil), page, "", "{}", page, good)
	if err != nil || len(shown) != 1 || paired.Owner != "alice" || took < 2*time.Second {
		t.Errorf("paired %+v, %v after %v", paired, err, took)
	}
	if _, shown, _, err := pairingWith(t, app, page); !errors.Is(err, client.ErrAnswer) || len(shown) > 0 {
		t.Errorf("a page began: %v, and %v was shown", err, shown)
	}
}

// TestPairingScreen: nothing that a site says can write on the screen that the
// fingerprint stands on.
func TestPairingScreen(t *testing.T) {
	good := approving(t, approval(t, 1))
	for _, code := range []string{
		"A\nB\nC\nD", "ABCD\nEFGH", "ABCD\r", "ABCD\t", "AB CD", "\x1b[8mAB", "ABCD\u200b", "ABCD\u202e", "ABCD\u009b", "\u0410BCD", "ÄBCD", "AB_CD", "AB.CD", "AB:CD", "ABCD\u2028", "١٢٣٤", "ＡＢＣＤ",
	} {
		if _, shown, _, err := pairingWith(t, app, starting(t, map[string]any{"userCode": code}), good); !errors.Is(err, client.ErrAnswer) || len(shown) > 0 {
			t.Errorf("the code %q: %v, and %v was shown", code, err, shown)
		}
	}
	for _, code := range []string{"ABCD-EFGH", "abcd1234", "0000", "ABCDEFGHJKLMNPQR"} {
		if _, shown, _, err := pairingWith(t, app, starting(t, map[string]any{"userCode": code}), good); err != nil || len(shown) != 1 || shown[0].Code != code {
			t.Errorf("the code %q: %v, and %v was shown", code, err, shown)
		}
	}
	seen := 0
	for _, page := range []string{
		app + "/pair\n\nand type the code\n\n  ABCD-EFGH\n\nIt must be this one:\n\n  BYOLLM-EVIL-EVIL-EVIL-EVIL-EVIL-EVIL\n\n\x1b[8m",
		app + "/\x1b[2J", app + "/a\rb", app + "/\u202eriap", app + "/\u009b2J", app + "/pair?x=\n", app + "/#\n\x1b]0;x\a", app + "/\t\x00", app + "/a b", app + "/\u2028", " " + app + "/pair\n",
	} {
		_, shown, _, err := pairingWith(t, app, starting(t, map[string]any{"verificationUrl": page}), good)
		if err != nil {
			if len(shown) > 0 {
				t.Errorf("%q was refused, and %v was shown", page, shown)
			}
			continue
		}
		seen++
		if bad := func(r rune) bool { return r <= ' ' || r > '~' }; len(shown) != 1 || strings.ContainsFunc(shown[0].URL, bad) || !strings.HasPrefix(shown[0].URL, app+"/") {
			t.Errorf("%q is shown as %+v", page, shown)
		}
	}
	if seen == 0 {
		t.Error("every page was refused, so nothing was looked at")
	}
}

// TestPairingTime: the time that a site gives for a code does not end the wait at
// once and does not make it endless, however far off the two clocks are.
func TestPairingTime(t *testing.T) {
	good := approving(t, approval(t, 1))
	for name, c := range map[string]struct {
		expires int64
		longest time.Duration // of a wait that nobody ends
	}{
		"ten minutes": {time.Date(2000, 1, 1, 0, 10, 0, 0, time.UTC).UnixMilli(), 11 * time.Minute},
		"long ago":    {1, 2 * time.Minute},
		"in a day":    {time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC).UnixMilli(), 61 * time.Minute},
		"in the end":  {1<<53 - 1, 61 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			start := starting(t, map[string]any{"expiresAt": c.expires})
			if paired, _, _, err := pairingWith(t, app, start, `{"status":"pending"}`, good); err != nil || paired.Owner != "alice" {
				t.Errorf("approved at once: %+v, %v", paired, err)
			}
			_, _, took, err := pairingWith(t, app, start)
			if !errors.Is(err, runner.ErrCodeExpired) || took != c.longest {
				t.Errorf("approved by nobody: %v after %v", err, took)
			}
		})
	}
}

// TestLongNames: an approval that names its person or this machine at length, or
// hundreds of sites, pairs nothing: the agent would have to keep and show all.
func TestLongNames(t *testing.T) {
	const most, sites = 1024, 256
	long, wide := strings.Repeat("x", most), strings.Repeat("\U0001f600", most/2)
	for name, c := range map[string]struct {
		change func(a *ai.PairApproval)
		good   bool
	}{
		"all as long as can be": {func(a *ai.PairApproval) { a.RunnerID, a.Owner, a.OwnerLabel = ai.RunnerID(long), ai.Owner(wide), wide }, true},
		"a long owner":          {func(a *ai.PairApproval) { a.Owner = ai.Owner(long + "x") }, false},
		"a wide owner":          {func(a *ai.PairApproval) { a.Owner = ai.Owner(wide + "x") }, false},
		"a long label":          {func(a *ai.PairApproval) { a.OwnerLabel = long + "x" }, false},
		"a long runner id":      {func(a *ai.PairApproval) { a.RunnerID = ai.RunnerID(long + "x") }, false},
		"an odd runner id":      {func(a *ai.PairApproval) { a.RunnerID = "r\r\nX: y" }, false},
		"many sites":            {func(a *ai.PairApproval) { *a = approval(t, sites) }, true},
		"one more":              {func(a *ai.PairApproval) { *a = approval(t, sites+1) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := approval(t, 1)
			c.change(&a)
			paired, shown, took, err := pairingWith(t, app, starting(t, nil), approving(t, a))
			if len(shown) != 1 || took > time.Second {
				t.Errorf("%d codes were shown, and it took %v", len(shown), took)
			}
			if c.good && (err != nil || paired.Owner != a.Owner || len(paired.Sites) != len(a.Sites)) || !c.good && !errors.Is(err, client.ErrAnswer) {
				t.Errorf("paired with %d sites: %v", len(paired.Sites), err)
			}
		})
	}
}
