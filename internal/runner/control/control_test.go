package control_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/allodhq/allod/internal/configfile"
	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/httpd"
	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/allowlist"
	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/control"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/runner/ingress"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/internal/runner/outbox"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/internal/runner/sharing"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/match"
)

// holdEnv makes the test binary hold a folder until its input ends.
const holdEnv = "ALLOD_TEST_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdEnv); dir != "" {
		if _, err := datadir.Lock(dir); err != nil {
			os.Exit(1)
		}
		fmt.Println("held")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// folder is an agent's folder with a path that is short enough for a socket.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "allod")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// hold has another process hold a folder until the test ends.
func hold(t *testing.T, dir string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), holdEnv+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	if said, err := bufio.NewReader(out).ReadString('\n'); err != nil || said != "held\n" {
		t.Fatalf("the other process said %q, %v", said, err)
	}
}

func configOf(dir string) runner.Config {
	return runner.Config{Home: dir, Version: "1.2.3", Settings: settings.Defaults()}
}

// fake is an agent that writes down what it is asked.
type fake struct {
	mu       sync.Mutex
	asked    []any
	err      error
	status   runner.Status
	people   []allowlist.Entry
	sites    []runner.SiteStatus
	activity runner.Activity
	// arrived, if there is one, is told of each request, which is answered only
	// when its caller is gone.
	arrived chan struct{}
}

// refuse sets what every request is answered with.
func (f *fake) refuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fake) note(ctx context.Context, what ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, what)
	if f.arrived != nil {
		close(f.arrived)
		<-ctx.Done()
	}
	return f.err
}

func (f *fake) Status(ctx context.Context) (runner.Status, error) {
	return f.status, f.note(ctx, "status")
}
func (f *fake) Activity(ctx context.Context) (runner.Activity, error) {
	return f.activity, f.note(ctx, "activity")
}
func (f *fake) Look(ctx context.Context) error                  { return f.note(ctx, "look") }
func (f *fake) Pause(ctx context.Context, release bool) error   { return f.note(ctx, "pause", release) }
func (f *fake) Resume(ctx context.Context) error                { return f.note(ctx, "resume") }
func (f *fake) SetName(ctx context.Context, name string) error  { return f.note(ctx, "name", name) }
func (f *fake) Adopt(ctx context.Context, p home.Pairing) error { return f.note(ctx, "adopt", p) }
func (f *fake) Forget(ctx context.Context, server string) error { return f.note(ctx, "forget", server) }
func (f *fake) Prove(ctx context.Context) error                 { return f.note(ctx, "prove") }
func (f *fake) Sites(ctx context.Context) ([]runner.SiteStatus, error) {
	return f.sites, f.note(ctx, "sites")
}
func (f *fake) Approve(ctx context.Context, s runner.SiteStatus) error {
	return f.note(ctx, "approve", s.Server, s.Identity)
}

func (f *fake) Allow(ctx context.Context, server string, owner ai.Owner, note string) error {
	return f.note(ctx, "allow", server, owner, note)
}
func (f *fake) Disallow(ctx context.Context, server string, owner ai.Owner) error {
	return f.note(ctx, "disallow", server, owner)
}
func (f *fake) Allowed(ctx context.Context) ([]allowlist.Entry, error) {
	return f.people, f.note(ctx, "allowed")
}
func (f *fake) SetTerms(ctx context.Context, name string, terms sharing.Terms) error {
	return f.note(ctx, "terms", name, terms)
}

// took returns what was asked since it was last looked at.
func (f *fake) took() []any {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	return asked
}

// serve serves an agent on the admin socket of a folder.
func serve(t *testing.T, dir string, a control.Agent) {
	t.Helper()
	s, err := httpd.NewAdmin(dir, func(context.Context) error { return nil }, prometheus.NewRegistry(), slog.New(slog.DiscardHandler), control.Serve(a))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// reached is a fake that is reached through the socket, as commands do.
func reached(t *testing.T) (control.Agent, *fake, string) {
	t.Helper()
	dir, f := folder(t), &fake{}
	hold(t, dir)
	serve(t, dir, f)
	a, own, done, err := control.Open(t.Context(), configOf(dir))
	if err != nil || own != nil {
		t.Fatalf("%v, %v", own, err)
	}
	t.Cleanup(done)
	return a, f, dir
}

func pairingOf(t *testing.T) home.Pairing {
	t.Helper()
	k, err := key.NewKeys[key.SiteRole](rand.Reader, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	id := k.Identity()
	return home.Pairing{
		Server: "https://app.example", RunnerID: "runner_1", Owner: "al\nice\u2028", OwnerLabel: "Alice",
		Sites: map[ai.KeyID]home.Site{ai.KeyID(id.Fingerprint().String()): {Identity: id, SignsReach: true}}, PairedAt: 1785499200123,
	}
}

// TestOrders: each order arrives as it was given.
func TestOrders(t *testing.T) {
	a, f, _ := reached(t)
	p := pairingOf(t)
	ctx := t.Context()
	site := runner.SiteStatus{Server: "https://app.example", Identity: runner.SiteIdentity{Identity: "i", Encryption: "e", EncryptionSig: "s"}}
	for what, c := range map[string]struct {
		do   func() error
		want []any // nil for nothing
	}{
		"pause":               {func() error { return a.Pause(ctx, false) }, []any{"pause", false}},
		"pause and release":   {func() error { return a.Pause(ctx, true) }, []any{"pause", true}},
		"resume":              {func() error { return a.Resume(ctx) }, []any{"resume"}},
		"name":                {func() error { return a.SetName(ctx, "gpu \"box\"\n\u2028😀") }, []any{"name", "gpu \"box\"\n\u2028😀"}},
		"no name":             {func() error { return a.SetName(ctx, "") }, []any{"name", ""}},
		"a name of no text":   {func() error { return a.SetName(ctx, "a\xffb") }, []any{"name", "a\ufffdb"}},
		"forget":              {func() error { return a.Forget(ctx, "https://app.example") }, []any{"forget", "https://app.example"}},
		"forget nothing":      {func() error { return a.Forget(ctx, "") }, []any{"forget", ""}},
		"forget what no text": {func() error { return a.Forget(ctx, "\xff") }, []any{"forget", "\ufffd"}},
		"allow":               {func() error { return a.Allow(ctx, "https://app.example", "kim", "a note") }, []any{"allow", "https://app.example", ai.Owner("kim"), "a note"}},
		"allow no text":       {func() error { return a.Allow(ctx, "\xff", "\xff", "\xff") }, []any{"allow", "\ufffd", ai.Owner("\ufffd"), "\ufffd"}},
		"allow nobody":        {func() error { return a.Allow(ctx, "", "", "") }, []any{"allow", "", ai.Owner(""), ""}},
		"disallow":            {func() error { return a.Disallow(ctx, "https://app.example", "kim") }, []any{"disallow", "https://app.example", ai.Owner("kim")}},
		"terms": {func() error {
			return a.SetTerms(ctx, "b", sharing.Terms{Scope: ai.OfferNamed, Acknowledged: true, Ceiling: 5, Price: 7})
		},
			[]any{"terms", "b", sharing.Terms{Scope: ai.OfferNamed, Acknowledged: true, Ceiling: 5, Price: 7}}},
		"no terms":        {func() error { return a.SetTerms(ctx, "b", sharing.Terms{Scope: ai.OfferSelf}) }, []any{"terms", "b", sharing.Terms{Scope: ai.OfferSelf}}},
		"prove":           {func() error { return a.Prove(ctx) }, []any{"prove"}},
		"adopt":           {func() error { return a.Adopt(ctx, p) }, []any{"adopt", p}},
		"look":            {func() error { return a.Look(ctx) }, nil}, // a running agent does so all the time
		"approve":         {func() error { return a.Approve(ctx, site) }, []any{"approve", "https://app.example", site.Identity}},
		"approve nothing": {func() error { return a.Approve(ctx, runner.SiteStatus{}) }, []any{"approve", "", runner.SiteIdentity{}}},
	} {
		if err := c.do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		var want []any
		if c.want != nil {
			want = []any{c.want}
		}
		if got := f.took(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	// A pairing that is none is not sent.
	if err := a.Adopt(ctx, home.Pairing{}); !errors.Is(err, home.ErrPairings) || f.took() != nil {
		t.Errorf("nothing to adopt: %v", err)
	}
}

func TestStatus(t *testing.T) {
	a, f, _ := reached(t)
	seconds := int64(7)
	f.status = runner.Status{
		Version: "1.2.3", Fingerprint: "BYOLLM-1", Name: "box\u2028", Running: true, Paused: true, Root: true,
		Servers: []runner.ServerStatus{
			{Server: "https://a.example", Owner: "alice", OwnerLabel: "Alice", Sites: []string{"BYOLLM-2"}, State: "unreachable", Refusal: "server-unreachable", Protocol: "0", AnsweredSeconds: &seconds, JobsRunning: 1, ResultsKept: 2},
			{Server: "https://b.example", Owner: "bob", Sites: []string{}, State: "serving"},
		},
		Backends: []runner.BackendStatus{}, Problems: []string{"One.", "Two."},
	}
	got, err := a.Status(t.Context())
	if err != nil || !reflect.DeepEqual(got, f.status) {
		t.Errorf("%+v, %v\nwant %+v", got, err, f.status)
	}
}

func TestAllowed(t *testing.T) {
	a, f, _ := reached(t)
	f.people = []allowlist.Entry{{Server: "https://a.example", Owner: "al\u2028", Note: "n", AddedAt: 1785499200123}, {Server: "https://b.example", Owner: "bob", AddedAt: 1}}
	if got, err := a.Allowed(t.Context()); err != nil || !reflect.DeepEqual(got, f.people) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestSites(t *testing.T) {
	a, f, _ := reached(t)
	f.sites = []runner.SiteStatus{
		{Server: "https://a.example", Fingerprint: "BYOLLM-1", State: runner.SitePending, Identity: runner.SiteIdentity{Identity: "i", Encryption: "e", EncryptionSig: "s"}, SeenAt: 1785499200123},
		{Server: "https://a.example", Fingerprint: "BYOLLM-2", State: runner.SiteRetiring, ApprovedBy: home.BySuccession, ApprovedAt: 2, Succeeds: "BYOLLM-3", SucceededBy: "BYOLLM-4", CountsUntil: 5, ChangedAt: 6},
	}
	if got, err := a.Sites(t.Context()); err != nil || !reflect.DeepEqual(got, f.sites) {
		t.Errorf("%+v, %v", got, err)
	}
	f.refuse(home.ErrPairings)
	if _, err := a.Sites(t.Context()); !errors.Is(err, home.ErrPairings) {
		t.Errorf("%v", err)
	}
}

func TestActivity(t *testing.T) {
	a, f, _ := reached(t)
	at := time.Date(2026, 7, 31, 12, 0, 0, 123, time.UTC)
	for _, want := range []runner.Activity{
		{Running: []runner.JobActivity{}, Ended: []runner.JobActivity{}},
		{
			Running: []runner.JobActivity{{JobID: "j\u2028", Server: "https://a.example", Site: "s", Owner: "alice", Own: true, Kind: "llm.chat", Service: "mine", Backend: "ollama", Model: "m", Since: at, State: runner.JobRuns}},
			Ended:   []runner.JobActivity{{JobID: "k", Server: "https://a.example", Since: at, State: runner.JobEnded, Outcome: "ok", Detail: "d", EndedAt: at.Add(1), DurationMs: 5, Tokens: &runner.Tokens{Completion: 7}}},
		},
	} {
		f.activity = want
		got, err := a.Activity(t.Context())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v\nwant %+v", got, err, want)
		}
	}
}

// registers are those of every package whose refusals an agent passes on.
var registers = []refusal.Registry{
	runner.Kinds, lane.Kinds, allowlist.Kinds, sharing.Kinds, match.Kinds, configfile.Kinds, home.Kinds, backend.Kinds, client.Kinds, ingress.Kinds, outbox.Kinds, control.Kinds, datadir.Kinds, keyfile.Kinds, key.Kinds, refusal.Kinds,
}

// TestRefusalsKeepTheirNames across the socket, and their details; causes stay
// where they are.
func TestRefusalsKeepTheirNames(t *testing.T) {
	a, f, _ := reached(t)
	cause := errors.New("canarybird")
	for _, r := range registers {
		for _, k := range r.Kinds {
			for _, given := range []error{k, k.With("It is Tuesday."), k.Because(cause), k.With("It is Tuesday.").Because(cause), fmt.Errorf("canarybird: %w", k)} {
				f.refuse(given)
				err := a.Resume(t.Context())
				if got, want := refusal.From(err), refusal.From(given); got.Kind() != k || got.Detail() != want.Detail() || strings.Contains(fmt.Sprint(err, errors.Unwrap(got)), "canary") {
					t.Errorf("%s came out as %v", given, err)
				}
				if got, want := refusal.ExitCode(err), refusal.ExitCode(given); got != want {
					t.Errorf("%s ends with %d, want %d", given, got, want)
				}
			}
		}
	}
	for _, do := range map[string]func() error{
		"status":   func() error { _, err := a.Status(t.Context()); return err },
		"activity": func() error { _, err := a.Activity(t.Context()); return err },
		"adopt":    func() error { return a.Adopt(t.Context(), pairingOf(t)) },
		"forget":   func() error { return a.Forget(t.Context(), "s") },
		"name":     func() error { return a.SetName(t.Context(), "n") },
		"prove":    func() error { return a.Prove(t.Context()) },
		"allow":    func() error { return a.Allow(t.Context(), "s", "o", "") },
		"disallow": func() error { return a.Disallow(t.Context(), "s", "o") },
		"allowed":  func() error { _, err := a.Allowed(t.Context()); return err },
		"terms":    func() error { return a.SetTerms(t.Context(), "b", sharing.Terms{Scope: ai.OfferSelf}) },
		"pause":    func() error { return a.Pause(t.Context(), true) },
	} {
		f.refuse(home.ErrTooMany)
		if err := do(); !errors.Is(err, home.ErrTooMany) {
			t.Errorf("%v", err)
		}
	}
	f.refuse(cause)
	if err := a.Resume(t.Context()); !errors.Is(err, refusal.Internal) || strings.Contains(err.Error(), "canary") {
		t.Errorf("an error without a name came out as %v", err)
	}
}

// TestRawRequests: what is not an order changes nothing and is refused by a
// status that says so.
func TestRawRequests(t *testing.T) {
	_, f, dir := reached(t)
	h := httpd.AdminClient(dir)
	pairing, err := pairingOf(t).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "approve", `{"server":"s","identity":"i","encryption":"e","encryptionSig":"s"}`, 200}, {"GET", "sites", "", 200}, {"GET", "approve", "", 405}, {"POST", "sites", `{}`, 405}, {"POST", "approve", `{"identity":{}}`, 400},
		{"POST", "pause", `{}`, 200}, {"POST", "pause", ` {"release":true} `, 200}, {"POST", "adopt", string(pairing), 200}, {"GET", "status", "", 200}, {"HEAD", "status", "", 200},
		{"POST", "pause", ``, 400}, {"POST", "pause", `null`, 400}, {"POST", "pause", `[]`, 400}, {"POST", "pause", `{`, 400}, {"POST", "pause", `{}{}`, 400}, {"POST", "pause", `{"Release":true}`, 400},
		{"POST", "pause", `{"release":null}`, 400}, {"POST", "pause", `{"release":"true"}`, 400}, {"POST", "pause", `{"release":true,"release":false}`, 400}, {"POST", "pause", `{"canarybird":1}`, 400},
		{"POST", "pause", "{\"name\":\"\xff\"}", 400}, {"POST", "pause", `{"name":{}}`, 400}, {"POST", "forget", `{"server":["s"]}`, 400}, {"POST", "name", `{"name":""}`, 400},
		{"POST", "offer", `{"name":"b"}`, 400}, {"POST", "offer", `{"name":"b","terms":{}}`, 400}, {"POST", "offer", `{"name":"b","terms":{"offer":"all","acknowledged":true,"dailyCapCents":1,"centsPerMillionTokens":1}}`, 400},
		{"POST", "offer", `{"name":"b","terms":{"offer":"self","acknowledged":false,"dailyCapCents":-1,"centsPerMillionTokens":1}}`, 400}, {"GET", "allow", "", 405}, {"POST", "allowed", "{}", 405},
		{"POST", "adopt", ``, 400}, {"POST", "adopt", `{}`, 400}, {"POST", "adopt", string(pairing) + "x", 400}, {"POST", "adopt", strings.Replace(string(pairing), "https", "", 1)[1:], 400},
		{"POST", "pause", `{"name":"` + strings.Repeat("n", 4<<20-10) + `"}`, 400}, {"POST", "adopt", string(pairing) + strings.Repeat(" ", 4<<20+1-len(pairing)), 400}, // one byte too many
		{"GET", "pause", "", 405}, {"POST", "status", `{}`, 405}, {"DELETE", "forget", "", 405}, {"GET", "adopt", "", 405}, {"PUT", "name", `{"name":"n"}`, 405},
		{"POST", "stop", `{}`, 404}, {"POST", "Pause", `{}`, 404}, {"POST", "pause/", `{}`, 404}, {"POST", "", `{}`, 404}, {"GET", "status/x", "", 404}, {"POST", "look", `{}`, 404},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, "http://agent/agent/"+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := h.Do(r)
		if err != nil {
			t.Errorf("%s %s %.40s: %v", c.method, c.path, c.body, err)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		asked := f.took()
		if err != nil || resp.StatusCode != c.status || (asked != nil) != (c.status == 200) || bytes.Contains(body, []byte("canary")) {
			t.Errorf("%s %s %.40s: %d %s, %v, asked for %v", c.method, c.path, c.body, resp.StatusCode, body, err, asked)
		}
		if c.status == 400 && !bytes.Contains(body, []byte(`"error":"agent-request"`)) {
			t.Errorf("%s %.40s: %s", c.path, c.body, body)
		}
	}
}

// TestAnotherVersion: an agent that answers otherwise is not taken for one that
// obeyed.
func TestAnotherVersion(t *testing.T) {
	for what, c := range map[string]struct {
		status int
		body   string
		want   *refusal.Kind
	}{
		"unknown request":   {404, "404 page not found\n", control.ErrRequest},
		"unknown refusal":   {409, `{"error":"refusal-of-tomorrow","message":"m","wayOut":"w"}`, control.ErrRequest},
		"other words":       {409, `{"error":"too-many-pairings","message":"In other words."}`, home.ErrTooMany},
		"no refusal":        {500, `{}`, control.ErrRequest},
		"no JSON":           {200, `<html>`, control.ErrNoAnswer},
		"too much":          {200, `{"version":"` + strings.Repeat("v", 4<<20) + `"}`, control.ErrNoAnswer},
		"a redirect":        {302, ``, control.ErrRequest},
		"a list":            {200, `[]`, control.ErrNoAnswer},
		"more than we know": {200, `{"version":"2","mood":"good"}`, nil},
	} {
		dir := folder(t)
		hold(t, dir)
		l, err := net.Listen("unix", filepath.Join(dir, httpd.AdminSocket))
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		})}
		go func() { _ = s.Serve(l) }()
		a, _, done, err := control.Open(t.Context(), configOf(dir))
		if err != nil {
			t.Fatal(err)
		}
		got, err := a.Status(t.Context())
		if c.want == nil && (err != nil || got.Version != "2") || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
		done()
		_ = s.Close()
	}
}

// TestCanceled: a person who does not want to wait is not told that the agent
// does not answer.
func TestCanceled(t *testing.T) {
	a, f, _ := reached(t)
	f.arrived = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-f.arrived; cancel() }()
	for _, what := range []string{"while it works", "before it is asked"} {
		if err := a.Prove(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, control.ErrNoAnswer) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestOpenOwn: where no agent runs, the command is the agent for a moment.
func TestOpenOwn(t *testing.T) {
	dir := folder(t)
	a, own, done, err := control.Open(t.Context(), configOf(dir))
	if err != nil || own == nil {
		t.Fatalf("%v, %v", own, err)
	}
	if err := errors.Join(a.SetName(t.Context(), "box"), a.Pause(t.Context(), true)); err != nil {
		t.Error(err)
	}
	p := pairingOf(t)
	if err := a.Adopt(t.Context(), p); err != nil {
		t.Error(err)
	}
	s, err := a.Status(t.Context())
	if err != nil || s.Name != "box" || !s.Paused || s.Running || len(s.Servers) != 1 || s.Servers[0].Server != p.Server || s.Version != "1.2.3" {
		t.Errorf("%+v, %v", s, err)
	}
	// Another command meanwhile meets a folder that is in use.
	other, second, closeOther, err := control.Open(t.Context(), configOf(dir))
	if err != nil || second != nil {
		t.Fatalf("%v, %v", second, err)
	}
	serve(t, dir, &fake{}) // or the other would wait for somebody to listen
	if err := other.Resume(t.Context()); err != nil {
		t.Errorf("%v", err)
	}
	closeOther()
	done()
	// And afterwards it is free, with all that was said.
	a, own, done, err = control.Open(t.Context(), configOf(dir))
	if err != nil || own == nil {
		t.Fatalf("%v, %v", own, err)
	}
	defer done()
	if err := errors.Join(a.Forget(t.Context(), p.Server), a.Resume(t.Context())); err != nil {
		t.Error(err)
	}
	if err := a.Forget(t.Context(), p.Server); !errors.Is(err, home.ErrNotPaired) {
		t.Errorf("%v", err)
	}
	if s, err := control.Local(own).Status(t.Context()); err != nil || s.Paused || len(s.Servers) != 0 || s.Name != "box" {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestOpenFails with what is wrong with the folder.
func TestOpenFails(t *testing.T) {
	file := filepath.Join(folder(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a, own, done, err := control.Open(t.Context(), configOf(file))
	if !errors.Is(err, datadir.ErrData) || a != nil || own != nil || done != nil {
		t.Errorf("%v, %v, %v", a, own, err)
	}
	dir := folder(t)
	if err := os.WriteFile(filepath.Join(dir, home.KeyFile), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := control.Open(t.Context(), configOf(dir)); !errors.Is(err, key.ErrFile) {
		t.Errorf("damaged keys: %v", err)
	}
	// Nothing is held after that.
	if release, err := datadir.Lock(dir); err != nil {
		t.Errorf("the folder is still held: %v", err)
	} else {
		release()
	}
}
