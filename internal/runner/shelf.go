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
	"github.com/allodhq/allod/internal/runner/program"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/internal/runner/sharing"
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
	ErrUnrouted = refusal.NewKind("backend-unrouted", 400,
		"A backend that costs money is used only where a route names its model, and no route does.",
		"Add it under routes in the configuration, with the model that jobs may use.")
	// ErrUnproven is why a first choice did not run that was only just found.
	ErrUnproven = refusal.NewKind("model-unproven", 503,
		"The model was not seen to work yet.",
		"Wait a moment; see allod agent backends for what became of it.")
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

// maxProofs bounds how many models of one backend are remembered.
const maxProofs = 64

// shelf holds the models the agent can use, and what is known of each.
type shelf struct {
	settings settings.Settings
	clock    func() time.Time
	slots    *slots
	// scratch is the folder in which programs run, in the agent's own.
	scratch string
	// room is asked whether others have room on a backend; nil where they always do.
	room func(ctx context.Context, service string, cost wirebackend.Cost, t sharing.Terms) error

	mu       sync.Mutex
	stands   []*stand
	detected time.Time
	offers   []lane.Offer
	changed  func([]lane.Offer)
}

// stand is one backend.
type stand struct {
	name string
	id   wirebackend.ID
	// engine is nil where err says why, or where a program was not looked for yet.
	engine engine
	// One of the two is the engine.
	http    *backend.HTTP
	program *program.Program
	err     error
	terms   sharing.Terms
	locked  bool
	models  []string
	listed  time.Time
	busy    int
	// attended is set while one goroutine lists and proves.
	attended bool
	// proofs by model.
	proofs map[string]*backend.Prober
}

func newShelf(s settings.Settings, scratch string, clock func() time.Time) *shelf {
	sh := &shelf{settings: s, clock: clock, scratch: scratch, slots: newSlots(s.Concurrency)}
	for _, name := range slices.Sorted(maps.Keys(s.Backends)) {
		b := s.Backends[name]
		st := &stand{name: name, id: b.ID, terms: b.Terms, proofs: map[string]*backend.Prober{}}
		c := backend.Config{ID: b.ID, BaseURL: b.BaseURL}
		if b.KeyEnv != "" {
			text := os.Getenv(b.KeyEnv)
			if text == "" {
				st.err = ErrKeyUnset
			}
			c.Key = backend.NewKey(text)
		}
		if st.err == nil && !st.isProgram() {
			st.serve(c)
		}
		sh.stands = append(sh.stands, st)
	}
	return sh
}

// tend keeps the models proved and the offers true until ctx ends.
func (sh *shelf) tend(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		sh.look(ctx, &all)
		select {
		case <-ctx.Done():
			return
		case <-time.After(tendEvery):
		}
	}
}

// lookOnce looks for models once, and waits for those that prove themselves.
func (sh *shelf) lookOnce(ctx context.Context) {
	var all sync.WaitGroup
	sh.look(ctx, &all)
	all.Wait()
}

// look finds backends and attends to each by itself, so that one that hangs
// keeps no other waiting.
func (sh *shelf) look(ctx context.Context, all *sync.WaitGroup) {
	sh.detect(ctx)
	sh.mu.Lock()
	stands := slices.Clone(sh.stands)
	sh.mu.Unlock()
	for _, st := range stands {
		sh.mu.Lock()
		begin := (st.engine != nil || st.isProgram()) && !st.attended
		st.attended = st.attended || begin
		sh.mu.Unlock()
		if begin {
			all.Go(func() { sh.attend(ctx, st) })
		}
	}
	sh.refresh()
}

// attend lists a backend's models if that is due, and has its routes prove
// themselves that are.
func (sh *shelf) attend(ctx context.Context, st *stand) {
	defer func() {
		sh.mu.Lock()
		st.attended = false
		sh.mu.Unlock()
		sh.refresh()
	}()
	if st.isProgram() {
		sh.check(ctx, st)
	} else {
		sh.list(ctx, st)
	}
	sh.refresh()
	for _, r := range sh.candidates() {
		if r.stand == st {
			_ = sh.prove(ctx, r, false) // its state says how it went
		}
	}
}

// refresh works out what is offered now, and tells of a change.
func (sh *shelf) refresh() {
	sh.mu.Lock()
	offers := sh.offered()
	same := slices.EqualFunc(offers, sh.offers, lane.Offer.Equal)
	sh.offers = offers
	tell := sh.changed
	sh.mu.Unlock()
	if !same && tell != nil {
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
		if st.serve(backend.Config{ID: f.ID, BaseURL: f.BaseURL}); i >= 0 {
			sh.stands[i] = st // another program listens there now
		} else {
			sh.stands = append(sh.stands, st)
		}
	}
}

// list asks a backend for its models where that is due: at first, and again
// while none of its models is ready, since they may have been exchanged.
func (sh *shelf) list(ctx context.Context, st *stand) {
	sh.mu.Lock()
	now := sh.clock()
	ready := false
	for _, p := range st.proofs {
		ready = ready || p.Offered(now)
	}
	due := st.listed.IsZero() || !ready && now.Sub(st.listed) >= listEvery
	if due {
		st.listed = now
	}
	sh.mu.Unlock()
	if !due {
		return
	}
	if models, err := st.http.Models(ctx); err == nil {
		sh.mu.Lock()
		st.models = models
		sh.mu.Unlock()
	}
}

// route is one kind of job on one model.
type route struct {
	kind  ai.Kind
	stand *stand
	model string
	proof *backend.Prober
	// instead is the first candidate, where this is not it.
	instead lane.Instead
}

// candidates are all routes that could be taken. The caller does not hold the
// lock.
func (sh *shelf) candidates() []route {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.candidatesLocked()
}

// candidatesLocked are, for each kind, the route that the owner named; else one
// for each free backend that has a model, in order. What costs money is used
// only where a route names its model.
func (sh *shelf) candidatesLocked() (routes []route) {
	for _, kind := range ai.Kinds() {
		wish, wished := sh.settings.Routes[kind]
		for _, st := range sh.stands {
			switch {
			case st.engine == nil || wished && st.name != wish.Backend:
			case wished:
				routes = append(routes, route{kind: kind, stand: st, model: wish.Model, proof: st.proof(wish.Model, sh.clock())})
			case st.engine.Cost() == wirebackend.Free && st.model() != "":
				routes = append(routes, route{kind: kind, stand: st, model: st.model(), proof: st.proof(st.model(), sh.clock())})
			}
		}
	}
	return routes
}

// routesLocked are where each kind of job goes: the first candidate that is
// offered, else the first. All candidates of a kind are free and the owner's, or
// there is but one, so no other cost class and no other owner is ever put in.
func (sh *shelf) routesLocked() (routes []route) {
	for _, r := range sh.candidatesLocked() {
		i := slices.IndexFunc(routes, func(have route) bool { return have.kind == r.kind })
		switch {
		case i < 0:
			routes = append(routes, r)
		case !routes[i].proof.Offered(sh.clock()) && r.proof.Offered(sh.clock()):
			r.instead = sh.insteadOf(routes[i])
			routes[i] = r
		}
	}
	return routes
}

// insteadOf describes a first candidate that is not offered.
func (sh *shelf) insteadOf(first route) lane.Instead {
	why := first.proof.State(sh.clock()).Refusal
	return lane.Instead{
		Service: first.stand.name, Model: first.model, Why: cmp.Or(why, ErrUnproven.Name()),
		Offer: first.stand.terms.On(first.stand.engine.CostOf(first.model)).Scope,
	}
}

// model is the model that is used where the owner named none: the first that is
// listed, can talk, and costs no more than its backend does.
func (st *stand) model() string {
	for _, m := range st.models {
		if !strings.Contains(strings.ToLower(m), "embed") && st.engine.CostOf(m) == st.engine.Cost() {
			return m
		}
	}
	return ""
}

func (st *stand) proof(model string, now time.Time) *backend.Prober {
	if st.proofs[model] == nil {
		if len(st.proofs) >= maxProofs {
			clear(st.proofs)
		}
		st.proofs[model] = backend.NewProber(st.engine.CostOf(model), now)
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
	err := r.stand.engine.Probe(ctx, r.model)
	sh.mu.Lock()
	r.proof.Probed(sh.clock(), err)
	sh.mu.Unlock()
	sh.refresh()
	return err
}

// offered is what the device offers now: what its owner configured and what was
// found to work, both at once (MUST CAPABILITY_IS_DETECTED).
func (sh *shelf) offered() (offers []lane.Offer) {
	for _, r := range sh.routesLocked() {
		if !r.proof.Offered(sh.clock()) {
			continue
		}
		cost := r.stand.engine.CostOf(r.model)
		terms := r.stand.terms.On(cost)
		offers = append(offers, lane.Offer{
			Capability: ai.Capability{
				Kind: r.kind, Service: r.stand.name, BackendID: r.stand.id, BackendClass: classOf(r.stand.id), Model: r.model, OfferScope: terms.Scope,
			},
			Cost: cost, Spend: terms.Spend, Full: terms.Scope != ai.OfferSelf && sh.full(r.stand, cost),
			Instead: r.instead,
		})
	}
	return offers
}

// full reports whether others have had what they may have of a backend.
func (sh *shelf) full(st *stand, cost wirebackend.Cost) bool {
	return sh.room != nil && sh.room(context.Background(), st.name, cost, st.terms) != nil
}

// terms are who else may use a backend, and what they may cost.
func (sh *shelf) terms(name string) sharing.Terms {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, st := range sh.stands {
		if st.name == name {
			return st.terms
		}
	}
	return sharing.Terms{}
}

// metered are the terms of the backends that cost money, by name.
func (sh *shelf) metered() map[string]sharing.Terms {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	found := map[string]sharing.Terms{}
	for _, st := range sh.stands {
		if sh.costliest(st) == wirebackend.Metered {
			found[st.name] = st.terms
		}
	}
	return found
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
func (sh *shelf) run(ctx context.Context, o lane.Offer, own bool, p ai.Payload, log func() error) (backend.Result, error) {
	if err := sh.slots.take(ctx, own); err != nil {
		return backend.Result{}, err
	}
	defer sh.slots.give(own)
	sh.mu.Lock()
	i := slices.IndexFunc(sh.stands, func(st *stand) bool { return st.name == o.Capability.Service && st.engine != nil })
	if i < 0 || sh.stands[i].proofs[o.Capability.Model] == nil {
		sh.mu.Unlock()
		return backend.Result{}, ErrModelGone
	}
	st := sh.stands[i]
	proof := st.proofs[o.Capability.Model]
	engine := st.engine
	st.busy++
	for _, p := range st.proofs {
		p.Started(sh.clock())
	}
	sh.mu.Unlock()
	var result backend.Result
	err := log()
	if err == nil {
		result = engine.Run(ctx, sh.request(o, own, p))
	}
	sh.mu.Lock()
	st.busy--
	for _, p := range st.proofs {
		p.Ended(sh.clock())
	}
	switch end := result.Outcome.(type) {
	case ai.Answer:
		proof.Succeeded(sh.clock())
	case ai.Failure:
		// A job that a server does not take, as one that is too long, or that takes too
		// long, says little about the next. Then a proof is asked.
		switch {
		case end.Code == backend.CodeUnreachable, end.Code == backend.CodeUnauthorized, end.Code == backend.CodeNoModel,
			end.Code == backend.CodeBackend && end.Retryable:
			proof.Failed(sh.clock(), cmp.Or(result.Kind, backend.KindOf(end.Code)))
		case end.Code != backend.CodeTooLarge:
			proof.Doubt()
		}
	}
	sh.mu.Unlock()
	sh.refresh()
	return result, err
}

// othersTokens is how many tokens an answer to others has at most where each costs
// money. The reservation of what a job may cost counts on it, and reckons the
// owner's own answers at as much.
const othersTokens = 4096

// request is a job with the bounds that it runs under.
func (sh *shelf) request(o lane.Offer, own bool, p ai.Payload) backend.Request {
	s := sh.settings
	r := backend.Request{Model: o.Capability.Model, Payload: p, MaxTime: s.MaxTime, MaxOutput: s.MaxOutput}
	if !own {
		r.MaxTime, r.MaxOutput = min(r.MaxTime, s.Community.MaxTime), min(r.MaxOutput, s.Community.MaxOutput)
		if o.Cost != wirebackend.Free {
			r.MaxTokens = othersTokens
		}
	}
	return r
}

// BackendStatus is what the owner is shown of one backend.
type BackendStatus struct {
	// Name is the owner's, or the table's where the backend was found.
	Name    string         `json:"name"`
	ID      wirebackend.ID `json:"backend"`
	BaseURL string         `json:"baseUrl,omitzero"`
	// Program is the file of a backend that is a program, once it was found.
	Program string           `json:"program,omitzero"`
	Cost    wirebackend.Cost `json:"cost,omitzero"`
	// Offer is how far it is offered, once its cost is considered.
	Offer ai.OfferScope `json:"offer,omitzero"`
	// CapCents is what others may cost in 24 hours; left out where nothing was set.
	CapCents int64 `json:"dailyCapCents,omitzero"`
	// PriceCents is what a million tokens cost; left out where nothing was set.
	PriceCents int64 `json:"centsPerMillionTokens,omitzero"`
	// Model is the one that is used, empty while none is known.
	Model string    `json:"model,omitzero"`
	Kinds []ai.Kind `json:"kinds"`
	// Instead names the backend that would be used for these kinds, had it not failed
	// for the reason that InsteadWhy names. Both are empty where this one is the first
	// choice, or is not used.
	Instead    string `json:"instead,omitzero"`
	InsteadWhy string `json:"insteadWhy,omitzero"`
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

// uses says that a row's model is where a kind of job goes.
func (b *BackendStatus) uses(r route) {
	b.Kinds = append(b.Kinds, r.kind)
	if r.instead.Why != "" {
		b.Instead, b.InsteadWhy = r.instead.Service, r.instead.Why
	}
}

// status describes the shelf, a row for each backend and model in use.
func (sh *shelf) status() []BackendStatus {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := sh.clock()
	rows := []BackendStatus{}
	used := sh.routesLocked()
	routes := sh.candidatesLocked()
	for _, st := range sh.stands {
		row := BackendStatus{Name: st.name, ID: st.id, Kinds: []ai.Kind{}, State: "unusable", Untested: !backend.Tested(st.id)}
		switch {
		case st.http != nil:
			row.BaseURL = st.http.BaseURL()
		case st.program != nil:
			row.Program = st.program.Path()
		}
		if st.engine == nil {
			if row.State = "unknown"; st.err != nil { // a program that was not looked for yet
				row.State, row.Refusal = "unusable", refusal.From(st.err).Kind().Name()
			}
			rows = append(rows, row)
			continue
		}
		row.Cost = st.engine.Cost()
		row.Offer, row.CapCents, row.PriceCents = st.terms.On(row.Cost).Scope, st.terms.Ceiling, st.terms.Price
		byModel := map[string]int{}
		for _, r := range routes {
			if r.stand != st {
				continue
			}
			use := slices.IndexFunc(used, func(u route) bool { return u.kind == r.kind && u.stand == st && u.model == r.model })
			inUse := use >= 0
			if i, ok := byModel[r.model]; ok {
				if inUse {
					rows[i].uses(used[use])
				}
				continue
			}
			one := row
			ready := r.proof.State(now)
			one.Model = r.model
			if inUse {
				one.uses(used[use])
			}
			one.Cost = st.engine.CostOf(r.model)
			one.Offer = st.terms.On(one.Cost).Scope
			one.State, one.Refusal = string(ready.State), ready.Refusal
			one.AgeSeconds = int64(now.Sub(ready.At) / time.Second)
			byModel[r.model] = len(rows)
			rows = append(rows, one)
		}
		if len(byModel) == 0 {
			row.State = "unused"
			switch {
			case row.Cost != wirebackend.Free:
				row.Refusal = ErrUnrouted.Name()
			case st.model() == "" && slices.ContainsFunc(st.models, wirebackend.RunsElsewhere):
				row.Cost, row.Refusal = wirebackend.Metered, ErrUnrouted.Name()
			case len(st.models) == 0:
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
	done := map[*backend.Prober]bool{}
	var all sync.WaitGroup
	var mu sync.Mutex
	var first error
	for _, r := range sh.candidates() {
		if done[r.proof] {
			continue
		}
		done[r.proof] = true
		all.Go(func() {
			err := sh.prove(ctx, r, true)
			mu.Lock()
			defer mu.Unlock()
			first = cmp.Or(first, err)
		})
	}
	all.Wait()
	if len(done) == 0 {
		return ErrNoModel
	}
	return first
}

var errCanceled = errors.New("the app canceled the job")
