package runner

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// What the shelf refuses.
var (
	ErrNoModel = refusal.NewKind("no-model", 503,
		"No model server answers on this machine, so there is nothing to offer.",
		"Start one, as Ollama or LM Studio, and load a model; or name yours in the configuration.")
	ErrKeyUnset = refusal.NewKind("api-key-unset", 400,
		"The environment variable that should hold the backend's API key is not set.",
		"Set it where the agent is started.")
	ErrModelGone = refusal.NewKind("model-withdrawn", 409,
		"The model that the job was taken on for is no longer offered.",
		"See allod agent backends for what is offered now.")
)

// How often the shelf looks after its models. Proofs have times of their own.
const (
	tendEvery   = 2 * time.Second
	detectEvery = 30 * time.Second
	listEvery   = time.Minute
)

// shelf holds the models the agent can use, and what is known of each.
type shelf struct {
	settings settings.Settings
	clock    func() time.Time
	// slots has one token for each run that may go on at once.
	slots chan struct{}

	mu       sync.Mutex
	stands   []*stand
	detected time.Time
	offers   []lane.Offer
	changed  func([]lane.Offer)
}

// stand is one backend.
type stand struct {
	name   string
	id     wirebackend.ID
	http   *backend.HTTP // nil where err says why
	err    error
	locked bool
	models []string
	listed time.Time
	busy   int
	// proofs by model.
	proofs map[string]*backend.Prober
}

func newShelf(s settings.Settings, clock func() time.Time) *shelf {
	sh := &shelf{settings: s, clock: clock, slots: make(chan struct{}, s.Concurrency)}
	for _, name := range slices.Sorted(maps.Keys(s.Backends)) {
		b := s.Backends[name]
		st := &stand{name: name, id: b.ID, proofs: map[string]*backend.Prober{}}
		c := backend.Config{ID: b.ID, BaseURL: b.BaseURL}
		if b.KeyEnv != "" {
			text := os.Getenv(b.KeyEnv)
			if text == "" {
				st.err = ErrKeyUnset
			}
			c.Key = backend.NewKey(text)
		}
		if st.err == nil {
			st.http, st.err = backend.Open(c)
		}
		sh.stands = append(sh.stands, st)
	}
	return sh
}

// tend keeps the models proved and the offers true until ctx ends.
func (sh *shelf) tend(ctx context.Context) {
	for {
		sh.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(tendEvery):
		}
	}
}

// look does once what tend does all the time.
func (sh *shelf) look(ctx context.Context) {
	sh.detect(ctx)
	sh.list(ctx)
	for _, r := range sh.routes() {
		sh.prove(ctx, r, false)
	}
	sh.mu.Lock()
	offers := sh.offered()
	same := slices.Equal(offers, sh.offers)
	sh.offers = offers
	tell := sh.changed
	sh.mu.Unlock()
	if !same && tell != nil && ctx.Err() == nil {
		tell(offers)
	}
}

// detect looks for model servers where the owner named none. What was found
// stays, and its proofs say whether it is still there.
func (sh *shelf) detect(ctx context.Context) {
	now := sh.clock()
	sh.mu.Lock()
	due := sh.settings.Backends == nil && (sh.detected.IsZero() || now.Sub(sh.detected) >= detectEvery && len(sh.offers) == 0)
	if due {
		sh.detected = now
	}
	sh.mu.Unlock()
	if !due {
		return
	}
	found := backend.Detect(ctx)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, f := range found {
		i := slices.IndexFunc(sh.stands, func(st *stand) bool { return st.http != nil && st.http.BaseURL() == f.BaseURL })
		if i >= 0 && sh.stands[i].id == f.ID {
			sh.stands[i].models, sh.stands[i].listed, sh.stands[i].locked = f.Models, now, f.Locked
			continue
		}
		st := &stand{name: string(f.ID), id: f.ID, locked: f.Locked, models: f.Models, listed: now, proofs: map[string]*backend.Prober{}}
		if st.http, st.err = backend.Open(backend.Config{ID: f.ID, BaseURL: f.BaseURL}); i >= 0 {
			sh.stands[i] = st // another program listens there now
		} else {
			sh.stands = append(sh.stands, st)
		}
	}
}

// list asks the backends that need it for their models.
func (sh *shelf) list(ctx context.Context) {
	sh.mu.Lock()
	var ask []*stand
	for _, st := range sh.stands {
		if now := sh.clock(); st.http != nil && (st.listed.IsZero() || len(st.models) == 0 && now.Sub(st.listed) >= listEvery) {
			st.listed = now
			ask = append(ask, st)
		}
	}
	sh.mu.Unlock()
	for _, st := range ask {
		if models, err := st.http.Models(ctx); err == nil {
			sh.mu.Lock()
			st.models = models
			sh.mu.Unlock()
		}
	}
}

// route is one kind of job on one model.
type route struct {
	kind  ai.Kind
	stand *stand
	model string
	proof *backend.Prober
}

// routes are where each kind of job goes: where the owner said, else to the
// first backend that has a model.
func (sh *shelf) routes() []route {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.routesLocked()
}

func (sh *shelf) routesLocked() (routes []route) {
	for _, kind := range ai.Kinds() {
		wish, wished := sh.settings.Routes[kind]
		var pick *route
		for _, st := range sh.stands {
			model := st.model()
			if wished {
				model = wish.Model
			}
			if st.http == nil || model == "" || wished && st.name != wish.Backend {
				continue
			}
			r := route{kind, st, model, st.proof(model, sh.clock())}
			if pick == nil || !pick.proof.Offered(sh.clock()) && r.proof.Offered(sh.clock()) {
				pick = &r
			}
		}
		if pick != nil {
			routes = append(routes, *pick)
		}
	}
	return routes
}

// model is the model that is used where the owner named none: the first that is
// listed and can talk.
func (st *stand) model() string {
	for _, m := range st.models {
		if !strings.Contains(strings.ToLower(m), "embed") {
			return m
		}
	}
	return ""
}

func (st *stand) proof(model string, now time.Time) *backend.Prober {
	if st.proofs[model] == nil {
		st.proofs[model] = backend.NewProber(st.http.Cost(), now)
	}
	return st.proofs[model]
}

// prove has a route prove itself if that is due, or if the owner asks.
func (sh *shelf) prove(ctx context.Context, r route, asked bool) error {
	sh.mu.Lock()
	if !asked && (!r.proof.Due(sh.clock()) || r.stand.busy > 0) {
		sh.mu.Unlock()
		return nil
	}
	r.proof.Probing()
	sh.mu.Unlock()
	err := r.stand.http.Probe(ctx, r.model)
	sh.mu.Lock()
	r.proof.Probed(sh.clock(), err)
	sh.mu.Unlock()
	return err
}

// offered is what the device offers now: what its owner configured and what was
// found to work, both at once (MUST CAPABILITY_IS_DETECTED).
func (sh *shelf) offered() (offers []lane.Offer) {
	for _, r := range sh.routesLocked() {
		if !r.proof.Offered(sh.clock()) {
			continue
		}
		offers = append(offers, lane.Offer{
			Capability: ai.Capability{Kind: r.kind, BackendID: r.stand.id, BackendClass: wirebackend.HTTP, Model: r.model, OfferScope: ai.OfferSelf},
			Backend:    r.stand.name, Cost: r.stand.http.Cost(),
		})
	}
	return offers
}

// current is what is offered now.
func (sh *shelf) current() []lane.Offer {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return slices.Clone(sh.offers)
}

// run runs a payload under the offer that its job was admitted with. It waits
// for a slot first. log is called with the slot in hand, before anything runs;
// its error is returned and nothing runs. It returns [ErrModelGone] and the
// context's cause.
func (sh *shelf) run(ctx context.Context, o lane.Offer, p ai.Payload, log func() error) (backend.Result, error) {
	select {
	case sh.slots <- struct{}{}:
		defer func() { <-sh.slots }()
	case <-ctx.Done():
		return backend.Result{}, context.Cause(ctx)
	}
	sh.mu.Lock()
	i := slices.IndexFunc(sh.stands, func(st *stand) bool { return st.name == o.Backend && st.http != nil })
	if i < 0 || sh.stands[i].proofs[o.Capability.Model] == nil {
		sh.mu.Unlock()
		return backend.Result{}, ErrModelGone
	}
	st := sh.stands[i]
	proof := st.proofs[o.Capability.Model]
	st.busy++
	for _, p := range st.proofs {
		p.Started(sh.clock())
	}
	sh.mu.Unlock()
	var result backend.Result
	err := log()
	if err == nil {
		result = st.http.Run(ctx, backend.Request{
			Model: o.Capability.Model, Payload: p, MaxTime: sh.settings.MaxTime, MaxOutput: sh.settings.MaxOutput,
		})
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	st.busy--
	for _, p := range st.proofs {
		p.Ended(sh.clock())
	}
	switch end := result.Outcome.(type) {
	case ai.Answer:
		proof.Succeeded(sh.clock())
	case ai.Failure:
		proof.Failed(sh.clock(), end.Code)
	}
	return result, err
}

// BackendStatus is what the owner is shown of one backend.
type BackendStatus struct {
	// Name is the owner's, or the table's where the backend was found.
	Name    string           `json:"name"`
	ID      wirebackend.ID   `json:"backend"`
	BaseURL string           `json:"baseUrl,omitzero"`
	Cost    wirebackend.Cost `json:"cost,omitzero"`
	// Model is the one that is used, empty while none is known.
	Model string    `json:"model,omitzero"`
	Kinds []ai.Kind `json:"kinds"`
	// State is ready, failed, unproven, unknown or unusable.
	State string `json:"state"`
	// AgeSeconds is how old the state is.
	AgeSeconds int64 `json:"ageSeconds"`
	// Refusal names what went wrong last.
	Refusal string `json:"refusal,omitzero"`
	// Untested says that this program's makers have not run this backend's real
	// server against it.
	Untested bool `json:"untested"`
}

// status describes the shelf, a row for each backend and model in use.
func (sh *shelf) status() []BackendStatus {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := sh.clock()
	rows := []BackendStatus{}
	routes := sh.routesLocked()
	for _, st := range sh.stands {
		row := BackendStatus{Name: st.name, ID: st.id, Kinds: []ai.Kind{}, State: "unusable", Untested: !backend.Tested(st.id)}
		if st.http == nil {
			row.Refusal = refusal.From(st.err).Kind().Name()
			rows = append(rows, row)
			continue
		}
		row.BaseURL, row.Cost = st.http.BaseURL(), st.http.Cost()
		byModel := map[string]int{}
		for _, r := range routes {
			if r.stand != st {
				continue
			}
			if i, ok := byModel[r.model]; ok {
				rows[i].Kinds = append(rows[i].Kinds, r.kind)
				continue
			}
			one := row
			ready := r.proof.State(now)
			one.Model, one.Kinds = r.model, []ai.Kind{r.kind}
			one.State, one.Refusal = string(ready.State), ready.Refusal
			one.AgeSeconds = int64(now.Sub(ready.At) / time.Second)
			byModel[r.model] = len(rows)
			rows = append(rows, one)
		}
		if len(byModel) == 0 {
			row.State = "unused"
			if len(st.models) == 0 {
				row.State, row.Refusal = "failed", backend.ErrUnreachable.Name()
			}
			if st.locked {
				row.Refusal = backend.ErrUnauthorized.Name()
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// proveAll has every route prove itself, as its owner asked, and returns the
// first failure.
func (sh *shelf) proveAll(ctx context.Context) error {
	var first error
	done := map[*backend.Prober]bool{}
	for _, r := range sh.routes() {
		if !done[r.proof] {
			done[r.proof] = true
			first = cmp.Or(first, sh.prove(ctx, r, true))
		}
	}
	if len(done) == 0 {
		return ErrNoModel
	}
	return first
}

var errCanceled = errors.New("the app canceled the job")
