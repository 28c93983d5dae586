package runner

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/wire/ai"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// modelServer is a model server that counts what it is asked.
type modelServer struct {
	*httptest.Server
	mu                  sync.Mutex
	models              string // the list, as JSON
	lists, proofs, jobs int
	// list, proof and job answer in its place, where they are set.
	list, proof, job http.HandlerFunc
}

const anAnswer = `{"choices":[{"message":{"content":"an answer"}}]}`

func newModelServer(t *testing.T, models string) *modelServer {
	t.Helper()
	m := &modelServer{models: models}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		m.mu.Lock()
		answer, text := m.job, anAnswer
		switch {
		case r.Method == http.MethodGet:
			m.lists++
			answer, text = m.list, `{"data":[{"id":"`+m.models+`"}]}`
		case bytes.Contains(body, []byte(`"max_tokens"`)), bytes.Contains(body, []byte(`"max_completion_tokens"`)):
			m.proofs++
			answer = m.proof
		default:
			m.jobs++
		}
		m.mu.Unlock()
		if answer != nil {
			answer(w, r)
			return
		}
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(m.Close)
	return m
}

// set changes a server that is at work.
func (m *modelServer) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// asked is how many lists, proofs and jobs were asked for.
func (m *modelServer) asked() (lists, proofs, jobs int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lists, m.proofs, m.jobs
}

func (m *modelServer) generic() settings.Backend {
	return settings.Backend{ID: wirebackend.Generic, BaseURL: m.URL + "/v1"}
}

// metered is the server as one that costs money by the contract's table.
func (m *modelServer) metered() settings.Backend {
	return settings.Backend{ID: "openai", BaseURL: m.URL + "/v1"}
}

// status answers with that status.
func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// says answers with that body.
func says(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

// hang answers nothing while it is asked.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// clock is set by hand.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func shelfOf(backends map[string]settings.Backend, c *clock, change ...func(*settings.Settings)) *shelf {
	s := settings.Defaults()
	s.Backends = backends
	for _, f := range change {
		f(&s)
	}
	return newShelf(s, "", c.now)
}

// offersOf are a shelf's offers, as kind@backend/model.
func offersOf(sh *shelf) []string {
	list := []string{}
	for _, o := range sh.current() {
		list = append(list, string(o.Capability.Kind)+"@"+o.Capability.Service+"/"+o.Capability.Model)
	}
	return list
}

func mustOffer(t *testing.T, when string, sh *shelf, want ...string) {
	t.Helper()
	if got := offersOf(sh); !slices.Equal(got, want) {
		t.Errorf("%s: offers %v, want %v", when, got, want)
	}
}

// row is what the owner is shown of a backend.
func row(t *testing.T, sh *shelf, name string) BackendStatus {
	t.Helper()
	for _, r := range sh.status() {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("no row for %s", name)
	return BackendStatus{}
}

// eventually waits for something to become true.
func eventually(t *testing.T, is func() bool) {
	t.Helper()
	end := time.NewTimer(30 * time.Second)
	defer end.Stop()
	for !is() {
		select {
		case <-end.C:
			t.Fatal("it never became true")
		case <-time.After(time.Millisecond):
		}
	}
}

// TestFreeBeforePaid: a backend that costs money is asked nothing that costs
// before a route names its model, whatever its name and whatever becomes of the
// free ones.
func TestFreeBeforePaid(t *testing.T) {
	route := func(kind ai.Kind, backend, model string) func(*settings.Settings) {
		return func(s *settings.Settings) {
			s.Routes = map[ai.Kind]settings.Route{kind: {Backend: backend, Model: model}}
		}
	}
	for name, c := range map[string]struct {
		change         func(*settings.Settings)
		freeIsDown     bool
		offers         []string
		state, refusal string // of the one that costs
		kinds          []ai.Kind
		proofs         int // of it, once the owner asked for proofs
	}{
		"no route":           {func(*settings.Settings) {}, false, []string{"llm.generate@m-free/free", "llm.chat@m-free/free"}, "unused", "backend-unrouted", []ai.Kind{}, 0},
		"no route, none up":  {func(*settings.Settings) {}, true, []string{}, "unused", "backend-unrouted", []ai.Kind{}, 0},
		"a route to it":      {route(ai.KindChat, "a-paid", "big"), false, []string{"llm.generate@m-free/free", "llm.chat@a-paid/big"}, "unproven", "", []ai.Kind{ai.KindChat}, 1},
		"a route to another": {route(ai.KindChat, "m-free", "free"), false, []string{"llm.generate@m-free/free", "llm.chat@m-free/free"}, "unused", "backend-unrouted", []ai.Kind{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			free, paid, after := newModelServer(t, "free"), newModelServer(t, "costly"), newModelServer(t, "costly")
			if c.freeIsDown {
				free.proof = status(http.StatusInternalServerError)
			}
			at := newClock()
			sh := shelfOf(map[string]settings.Backend{"a-paid": paid.metered(), "m-free": free.generic(), "z-paid": after.metered()}, at, c.change)
			for range 3 {
				sh.lookOnce(t.Context())
				at.pass(time.Hour)
			}
			sh.lookOnce(t.Context())
			mustOffer(t, "after some looks", sh, c.offers...)
			if got := row(t, sh, "a-paid"); got.State != c.state || got.Refusal != c.refusal || !slices.Equal(got.Kinds, c.kinds) {
				t.Errorf("the one that costs is shown as %+v", got)
			}
			for _, m := range []*modelServer{paid, after} {
				if _, proofs, jobs := m.asked(); proofs+jobs > 0 {
					t.Errorf("what costs was asked for %d proofs and %d jobs", proofs, jobs)
				}
			}
			_ = sh.proveAll(t.Context())
			if _, proofs, jobs := paid.asked(); proofs != c.proofs || jobs > 0 {
				t.Errorf("after the owner asked for proofs: %d proofs and %d jobs", proofs, jobs)
			}
			if _, proofs, jobs := after.asked(); proofs+jobs > 0 {
				t.Errorf("the other that costs: %d proofs and %d jobs", proofs, jobs)
			}
		})
	}
	t.Run("nothing else", func(t *testing.T) {
		paid := newModelServer(t, "costly")
		sh := shelfOf(map[string]settings.Backend{"paid": paid.metered()}, newClock())
		sh.lookOnce(t.Context())
		if err := sh.proveAll(t.Context()); !errors.Is(err, ErrNoModel) {
			t.Errorf("proofs end with %v", err)
		}
		mustOffer(t, "nothing else", sh)
		if _, proofs, jobs := paid.asked(); proofs+jobs > 0 {
			t.Errorf("it was asked for %d proofs and %d jobs", proofs, jobs)
		}
	})
}

// listOf are the models of a server that lists several.
func listOf(models ...string) string { return strings.Join(models, `"},{"id":"`) }

// TestModelsThatRunElsewhere: a model that a server on this machine hands to a paid
// service is like a backend that costs money: it is not used unless a route names
// it, and then not tried unasked; and its owner is shown what it costs.
func TestModelsThatRunElsewhere(t *testing.T) {
	route := func(model string) func(*settings.Settings) {
		return func(s *settings.Settings) {
			s.Routes = map[ai.Kind]settings.Route{ai.KindChat: {Backend: "desk", Model: model}}
		}
	}
	none := func(*settings.Settings) {}
	type shown struct {
		model          string
		cost           wirebackend.Cost
		state, refusal string
		kinds          []ai.Kind
	}
	both, generate, chat := []ai.Kind{ai.KindGenerate, ai.KindChat}, []ai.Kind{ai.KindGenerate}, []ai.Kind{ai.KindChat}
	for name, c := range map[string]struct {
		models []string
		change func(*settings.Settings)
		offers []string // with what each costs
		rows   []shown
		proofs int // unasked
		asked  int // and once the owner asked for proofs
		err    error
	}{
		"the first runs here": {[]string{"m", "big:cloud"}, none, []string{"llm.generate@desk/m free", "llm.chat@desk/m free"},
			[]shown{{"m", wirebackend.Free, "ready", "", both}}, 1, 2, nil},
		"the second runs here": {[]string{"big:cloud", "m"}, none, []string{"llm.generate@desk/m free", "llm.chat@desk/m free"},
			[]shown{{"m", wirebackend.Free, "ready", "", both}}, 1, 2, nil},
		"none runs here": {[]string{"big:cloud", "m:120b-cloud"}, none, nil,
			[]shown{{"", wirebackend.Metered, "unused", "backend-unrouted", nil}}, 0, 0, ErrNoModel},
		"none that can talk runs here": {[]string{"big:cloud", "embed"}, none, nil,
			[]shown{{"", wirebackend.Metered, "unused", "backend-unrouted", nil}}, 0, 0, ErrNoModel},
		"a name that only looks like it": {[]string{"cloud"}, none, []string{"llm.generate@desk/cloud free", "llm.chat@desk/cloud free"},
			[]shown{{"cloud", wirebackend.Free, "ready", "", both}}, 1, 2, nil},
		"all is routed to another": {[]string{"m", "big:cloud"}, func(s *settings.Settings) {
			s.Routes = map[ai.Kind]settings.Route{ai.KindGenerate: {Backend: "other", Model: "m"}, ai.KindChat: {Backend: "other", Model: "m"}}
		}, nil, []shown{{"", wirebackend.Free, "unused", "", nil}}, 0, 0, ErrNoModel},
		"a route to it": {[]string{"m", "big:cloud"}, route("big:cloud"), []string{"llm.generate@desk/m free", "llm.chat@desk/big:cloud metered"},
			[]shown{{"m", wirebackend.Free, "ready", "", generate}, {"big:cloud", wirebackend.Metered, "unproven", "", chat}}, 1, 3, nil},
		"a route to it, and none runs here": {[]string{"big:cloud"}, route("big:cloud"), []string{"llm.chat@desk/big:cloud metered"},
			[]shown{{"big:cloud", wirebackend.Metered, "unproven", "", chat}}, 0, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModelServer(t, listOf(c.models...))
			at := newClock()
			sh := shelfOf(map[string]settings.Backend{"desk": m.generic()}, at, c.change)
			for range 3 {
				sh.lookOnce(t.Context())
				at.pass(time.Minute)
			}
			var offers []string
			for i, o := range sh.current() {
				offers = append(offers, offersOf(sh)[i]+" "+string(o.Cost))
			}
			if !slices.Equal(offers, c.offers) {
				t.Errorf("offers %v, want %v", offers, c.offers)
			}
			rows := sh.status()
			if len(rows) != len(c.rows) {
				t.Fatalf("shown as %+v", rows)
			}
			for i, want := range c.rows {
				if r := rows[i]; r.Model != want.model || r.Cost != want.cost || r.State != want.state || r.Refusal != want.refusal || !slices.Equal(r.Kinds, want.kinds) {
					t.Errorf("shown as %+v, want %+v", r, want)
				}
			}
			if _, proofs, jobs := m.asked(); proofs != c.proofs || jobs > 0 {
				t.Errorf("unasked: %d proofs and %d jobs, want %d and none", proofs, jobs, c.proofs)
			}
			if err := sh.proveAll(t.Context()); !errors.Is(err, c.err) {
				t.Errorf("proofs end with %v", err)
			}
			if _, proofs, _ := m.asked(); proofs != c.asked {
				t.Errorf("after the owner asked for proofs: %d, want %d", proofs, c.asked)
			}
		})
	}
}

// TestAnotherBackend: of two free backends the first that works is used, the
// other meanwhile, and the first again when it is back.
func TestAnotherBackend(t *testing.T) {
	first, second := newModelServer(t, "m1"), newModelServer(t, "m2")
	first.proof = status(http.StatusInternalServerError)
	at := newClock()
	sh := shelfOf(map[string]settings.Backend{"a": first.generic(), "b": second.generic()}, at)
	on := func(name, model string) []string {
		return []string{"llm.generate@" + name + "/" + model, "llm.chat@" + name + "/" + model}
	}
	sh.lookOnce(t.Context())
	mustOffer(t, "the first fails", sh, on("b", "m2")...)
	if a, b := row(t, sh, "a"), row(t, sh, "b"); a.State != "failed" || len(a.Kinds) != 0 || b.State != "ready" || len(b.Kinds) != 2 {
		t.Errorf("shown as %+v and %+v", a, b)
	}
	first.set(func() { first.proof = nil })
	at.pass(10 * time.Second)
	sh.lookOnce(t.Context())
	mustOffer(t, "the first is back", sh, on("a", "m1")...)
	if a, b := row(t, sh, "a"), row(t, sh, "b"); a.State != "ready" || len(a.Kinds) != 2 || b.State != "ready" || len(b.Kinds) != 0 {
		t.Errorf("shown as %+v and %+v", a, b)
	}
	first.set(func() { first.job = status(http.StatusBadGateway) })
	if _, err := sh.run(t.Context(), sh.current()[0], true, ai.Generate{Prompt: "p"}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	mustOffer(t, "the first failed with a job", sh, on("b", "m2")...)
}

// TestWhoseFailure: what may be a job's own fault leaves its model on offer and
// has it prove itself; what is the server's takes it off.
func TestWhoseFailure(t *testing.T) {
	short := func(s *settings.Settings) { s.MaxTime = 20 * time.Millisecond }
	small := func(s *settings.Settings) { s.MaxOutput = 100 }
	for name, c := range map[string]struct {
		job    http.HandlerFunc
		change func(*settings.Settings)
		code   string
		stays  bool
		proofs int // that follow
	}{
		"400":                    {status(400), nil, backend.CodeBackend, true, 1},
		"413":                    {status(413), nil, backend.CodeBackend, true, 1},
		"422":                    {status(422), nil, backend.CodeBackend, true, 1},
		"no text":                {says(`{"choices":[{"message":{"refusal":"no"}}]}`), nil, backend.CodeBackend, true, 1},
		"no JSON":                {says("hello"), nil, backend.CodeBackend, true, 1},
		"it takes too long":      {hang, short, backend.CodeTimeout, true, 1},
		"it says too much":       {says(`{"choices":[{"message":{"content":"` + strings.Repeat("x", 200) + `"}}]}`), small, backend.CodeTooLarge, true, 0},
		"an answer":              {nil, nil, "", true, 0},
		"401":                    {status(401), nil, backend.CodeUnauthorized, false, 0},
		"403":                    {status(403), nil, backend.CodeUnauthorized, false, 0},
		"404":                    {status(404), nil, backend.CodeNoModel, false, 0},
		"429":                    {status(429), nil, backend.CodeBackend, false, 0},
		"500":                    {status(500), nil, backend.CodeBackend, false, 0},
		"503":                    {status(503), nil, backend.CodeBackend, false, 0},
		"the connection is shut": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil, backend.CodeUnreachable, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModelServer(t, "m")
			m.job = c.job
			if c.change == nil {
				c.change = func(*settings.Settings) {}
			}
			sh := shelfOf(map[string]settings.Backend{"m": m.generic()}, newClock(), c.change)
			sh.lookOnce(t.Context())
			offers := []string{"llm.generate@m/m", "llm.chat@m/m"}
			mustOffer(t, "at first", sh, offers...)
			_, before, _ := m.asked()
			result, err := sh.run(t.Context(), sh.current()[0], true, ai.Generate{Prompt: "p"}, func() error { return nil })
			if f, _ := result.Outcome.(ai.Failure); err != nil || f.Code != c.code {
				t.Fatalf("ended as %+v, %v", result.Outcome, err)
			}
			if !c.stays {
				offers = nil
			}
			mustOffer(t, "after the job", sh, offers...)
			for range 2 { // one proof is enough
				sh.lookOnce(t.Context())
			}
			mustOffer(t, "after a look", sh, offers...)
			if _, proofs, _ := m.asked(); proofs-before != c.proofs {
				t.Errorf("%d proofs followed", proofs-before)
			}
			if c.proofs == 0 {
				return
			}
			// Where the server was at fault all the same, its proof says so.
			m.set(func() { m.proof = status(400) })
			if _, err := sh.run(t.Context(), sh.current()[0], true, ai.Generate{Prompt: "p"}, func() error { return nil }); err != nil {
				t.Fatal(err)
			}
			sh.lookOnce(t.Context())
			mustOffer(t, "after a proof that failed", sh)
		})
	}
}

// TestHangingBackend: a backend that answers nothing keeps no other from being
// found, proved, and proved again.
func TestHangingBackend(t *testing.T) {
	for name, change := range map[string]func(m *modelServer){
		"its list":  func(m *modelServer) { m.list = hang },
		"its proof": func(m *modelServer) { m.proof = hang },
	} {
		t.Run(name, func(t *testing.T) {
			hanging, good := newModelServer(t, "hangs"), newModelServer(t, "good")
			change(hanging)
			at := newClock()
			sh := shelfOf(map[string]settings.Backend{"a": hanging.generic(), "b": good.generic()}, at)
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			defer func() { cancel(); all.Wait() }()
			sh.look(ctx, &all)
			eventually(t, func() bool { return slices.Equal(offersOf(sh), []string{"llm.generate@b/good", "llm.chat@b/good"}) })
			at.pass(20 * time.Minute)
			eventually(t, func() bool {
				sh.look(ctx, &all)
				_, proofs, _ := good.asked()
				return proofs > 1
			})
			if lists, proofs, _ := hanging.asked(); lists > 1 || proofs > 1 {
				t.Errorf("the one that hangs was asked for %d lists and %d proofs at once", lists, proofs)
			}
		})
	}
}

// TestHangingModel: a model that answers nothing keeps no other of its backend
// from being offered.
func TestHangingModel(t *testing.T) {
	m := newModelServer(t, "m")
	m.proof = func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); bytes.Contains(body, []byte("hangs")) {
			hang(w, r)
			return
		}
		_, _ = io.WriteString(w, anAnswer)
	}
	sh := shelfOf(map[string]settings.Backend{"b": m.generic()}, newClock(), func(s *settings.Settings) {
		s.Routes = map[ai.Kind]settings.Route{ai.KindGenerate: {Backend: "b", Model: "good"}, ai.KindChat: {Backend: "b", Model: "hangs"}}
	})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer func() { cancel(); all.Wait() }()
	sh.look(ctx, &all)
	eventually(t, func() bool { return slices.Equal(offersOf(sh), []string{"llm.generate@b/good"}) })
}

// TestTendingSeesAll: what the agent does all the time is what the tests above
// look at once, and it ends.
func TestTendingSeesAll(t *testing.T) {
	hanging, good := newModelServer(t, "hangs"), newModelServer(t, "good")
	hanging.proof = hang
	sh := shelfOf(map[string]settings.Backend{"a": hanging.generic(), "b": good.generic()}, newClock())
	told := make(chan int, 16)
	sh.changed = func(offers []lane.Offer) { told <- len(offers) }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); sh.tend(ctx) }()
	for n := range told {
		if n == 2 {
			break
		}
	}
	cancel()
	<-ended
}

// TestModelsExchanged: where no model of a backend is ready, its list is read
// again, once in a minute, and what the owner loaded meanwhile is offered.
func TestModelsExchanged(t *testing.T) {
	m := newModelServer(t, "old")
	at := newClock()
	sh := shelfOf(map[string]settings.Backend{"m": m.generic()}, at)
	mustList := func(when string, want int) {
		t.Helper()
		if lists, _, _ := m.asked(); lists != want {
			t.Errorf("%s: %d lists were read, want %d", when, lists, want)
		}
	}
	for range 3 {
		sh.lookOnce(t.Context())
		at.pass(10 * time.Minute)
	}
	mustOffer(t, "at first", sh, "llm.generate@m/old", "llm.chat@m/old")
	mustList("while it is ready", 1)
	// The next job finds the model gone.
	m.set(func() { m.models, m.job = "new", status(http.StatusNotFound) })
	if _, err := sh.run(t.Context(), sh.current()[0], true, ai.Generate{Prompt: "p"}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	m.set(func() { m.proof = status(http.StatusNotFound) }) // it is loading
	sh.lookOnce(t.Context())
	mustList("at once", 2)
	mustOffer(t, "while the new one loads", sh)
	at.pass(30 * time.Second)
	sh.lookOnce(t.Context())
	mustList("half a minute later", 2)
	m.set(func() { m.proof, m.job = nil, nil })
	at.pass(30 * time.Second)
	sh.lookOnce(t.Context())
	mustList("a minute later", 3)
	mustOffer(t, "when the new one is loaded", sh, "llm.generate@m/new", "llm.chat@m/new")
	if got := row(t, sh, "m"); got.State != "ready" || got.Model != "new" {
		t.Errorf("shown as %+v", got)
	}
}

// TestManyModels: a server that lists another model each time is remembered for
// some of them only.
func TestManyModels(t *testing.T) {
	m := newModelServer(t, "m")
	m.proof = status(http.StatusNotFound)
	at := newClock()
	sh := shelfOf(map[string]settings.Backend{"m": m.generic()}, at)
	for n := range 3 * maxProofs {
		m.set(func() { m.models = "m" + strings.Repeat("x", n) })
		sh.lookOnce(t.Context())
		at.pass(listEvery)
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if n := len(sh.stands[0].proofs); n > maxProofs {
		t.Errorf("%d models are remembered", n)
	}
}
