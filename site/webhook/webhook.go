package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allodhq/allod/internal/killpoint"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// Bounds of a configuration.
const (
	MaxEndpoints = 16
	MaxOwners    = 256 // that one endpoint can be narrowed to
	MaxPrivate   = 64  // ranges of addresses
)

// How a deliverer works.
const (
	// maxAtOnce is how many messages one endpoint is sent at once.
	maxAtOnce = 8
	// hold is longer than an attempt takes with its record, so that an event that
	// is taken by another was left by a process that died.
	hold = 30 * time.Second
	// idle is how long a worker waits at most before it looks again.
	idle = time.Minute
	// pause is how long it waits after an error of the store.
	pause = 5 * time.Second
	// grace is how long attempts may go on after Close.
	grace = 3 * time.Second
	// recordTime is how long the record of an attempt may take.
	recordTime = 10 * time.Second
)

// Endpoint is a server that is told of ended jobs.
type Endpoint struct {
	// URL is where it is: an absolute https URL, or http to an address that is
	// listed as private; without a user name and a fragment.
	URL string
	// Secrets sign its messages, each of them: one, or two while one takes the
	// other's place.
	Secrets []Secret
	// Owners narrows to jobs of these people; nil means everybody's. At most
	// [MaxOwners].
	Owners []ai.Owner
	// States narrows to jobs that ended so; nil means all. Only states that end a
	// job.
	States []ai.State
}

// Config says who is told, and by which means. Store is required.
type Config struct {
	// Store is the site's. Several processes may deliver from one store; they are
	// to have the same endpoints.
	Store site.Store
	// Endpoints are at most [MaxEndpoints], each with a URL of its own. With none
	// nothing is told, and jobs that end store no events.
	Endpoints []Endpoint
	// Private are ranges of addresses that may be sent to although they are
	// private or have a special purpose. At most [MaxPrivate], none of them in the
	// IPv4-mapped form.
	Private []netip.Prefix

	// Clock and Logger are time.Now and nobody where unset. The clock is the
	// site's: the times of its jobs are compared with it.
	Clock  func() time.Time
	Logger *slog.Logger
}

// Check judges a configuration as [Open] does and touches nothing. Store and the
// endpoints' secrets are not looked at. It returns [ErrConfig], [ErrURL] or
// [ErrAddress] for each endpoint, in their order, nil for one that would be taken,
// and the first reason why the whole would not.
func (c Config) Check() (each []error, whole error) {
	_, each, whole = c.targets()
	return each, whole
}

// targets turns endpoints into targets. Those with an error are nil.
func (c Config) targets() (list []*target, each []error, whole error) {
	bad := func(what string) error { return ErrConfig.With(what) }
	if len(c.Endpoints) > MaxEndpoints {
		return nil, nil, bad(fmt.Sprintf("There are more than %d endpoints.", MaxEndpoints))
	}
	if len(c.Private) > MaxPrivate {
		return nil, nil, bad(fmt.Sprintf("There are more than %d ranges of private addresses.", MaxPrivate))
	}
	for _, p := range c.Private {
		// Addresses are compared in their IPv4 form, so the other form would match
		// none.
		if !p.IsValid() || p.Addr().Is4In6() {
			return nil, nil, bad("A range of private addresses is not one.")
		}
	}
	seen := map[site.HookID]bool{}
	for _, e := range c.Endpoints {
		t, err := newTarget(e, c.Private)
		switch {
		case err != nil:
		case seen[t.id]:
			err = bad("Two endpoints have the same URL.")
		case len(e.Owners) > MaxOwners || e.Owners != nil && len(e.Owners) == 0 || slices.Contains(e.Owners, ""):
			err = bad(fmt.Sprintf("An endpoint is narrowed to no owner, or to more than %d.", MaxOwners))
		case e.States != nil && len(e.States) == 0 || slices.ContainsFunc(e.States, func(s ai.State) bool { return !s.Terminal() }):
			err = bad("An endpoint is narrowed to no state, or to one that ends no job.")
		}
		if err != nil {
			t = nil
		} else {
			seen[t.id] = true
		}
		list, each = append(list, t), append(each, err)
	}
	return list, each, nil
}

// Deliverer sends events until it is closed.
type Deliverer struct {
	hooks  site.HookStore
	watch  func(site.Watch) (<-chan struct{}, func())
	clock  func() time.Time
	log    *slog.Logger
	jitter func(n int64) int64

	// attempts ends when attempts are cut off, a while after stop.
	attempts context.Context
	cut      context.CancelFunc
	stop     context.CancelFunc
	done     sync.WaitGroup

	delivered, retried, givenUp, gone atomic.Int64
}

// Open makes the endpoints those that are told of jobs that end from now on, and
// begins to deliver, also what was left by a run before. It returns [ErrConfig],
// [ErrURL], [ErrAddress] or the store's errors.
func Open(ctx context.Context, c Config) (*Deliverer, error) {
	d, targets, err := open(ctx, c)
	if err != nil {
		return nil, err
	}
	d.start(targets)
	return d, nil
}

func open(ctx context.Context, c Config) (*Deliverer, []*target, error) {
	if c.Store == nil {
		return nil, nil, ErrConfig.With("The store is missing.")
	}
	targets, each, err := c.targets()
	if err := errors.Join(append(each, err)...); err != nil {
		return nil, nil, refusal.From(err)
	}
	var hooks []site.Hook
	for i, e := range c.Endpoints {
		if len(e.Secrets) < 1 || len(e.Secrets) > MaxSecrets || slices.Contains(e.Secrets, Secret{}) {
			return nil, nil, ErrConfig.With("An endpoint has no secret, or more than two.")
		}
		hooks = append(hooks, site.Hook{ID: targets[i].id, Owners: e.Owners, States: e.States})
	}
	d := &Deliverer{hooks: c.Store.Hooks(), watch: c.Store.Watch, clock: c.Clock, log: c.Logger, jitter: rand.Int64N}
	if d.clock == nil {
		d.clock = time.Now
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	return d, targets, d.hooks.Use(ctx, hooks, ai.MillisOf(d.clock()))
}

func (d *Deliverer) start(targets []*target) {
	var working context.Context
	working, d.stop = context.WithCancel(context.Background())
	d.attempts, d.cut = context.WithCancel(context.Background())
	for i, t := range targets {
		d.done.Go(func() { d.work(working, t, d.log.With("webhook", fmt.Sprintf("webhooks[%d]", i))) })
	}
}

// Close stops taking events and returns when the attempts that were begun have
// ended, after three seconds at most by being cut off. Those come again after the
// next start. The store must be open until then.
func (d *Deliverer) Close() error {
	d.stop()
	late := time.AfterFunc(grace, d.cut)
	d.done.Wait()
	late.Stop()
	d.cut()
	return nil
}

// work delivers one endpoint's events until ctx ends or the endpoint is gone.
func (d *Deliverer) work(ctx context.Context, t *target, log *slog.Logger) {
	defer t.client.CloseIdleConnections()
	changed, stop := d.watch(site.Watch{Ended: true})
	defer stop()
	timer := time.NewTimer(idle)
	defer timer.Stop()
	var h health
	for ctx.Err() == nil {
		now := ai.MillisOf(d.clock())
		events, at, err := d.hooks.Take(ctx, site.HookTake{Hook: t.id, Max: maxAtOnce, Hold: hold, Now: now})
		if len(events) > 0 {
			made := d.deliver(t, log, events)
			if slices.ContainsFunc(made, func(n next) bool { return n.do == gone }) {
				d.gone.Add(1)
				log.ErrorContext(ctx, "the endpoint is gone (410) and gets nothing until the next start")
				return
			}
			if wait := d.rest(&h, log, made); wait > 0 {
				timer.Reset(wait)
				select {
				case <-ctx.Done():
				case <-timer.C:
				}
			}
			continue
		}
		wait := idle
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			log.ErrorContext(ctx, "taking events failed", "error", refusal.From(err))
			wait = pause
		case at != 0:
			wait = min(max(at.Time().Sub(now.Time()), 0), idle)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-changed:
			if err != nil { // a store in trouble is not asked at each signal
				select {
				case <-ctx.Done():
				case <-timer.C:
				}
			}
		}
	}
}

// health is how an endpoint does.
type health struct {
	failures int       // how often in a row it took nothing of what it was sent at once
	since    time.Time // when that began
}

// rest says how long an endpoint is sent nothing, by what came of the attempts
// that were made at once. Each event waits for itself besides; but many events that
// fail fast would be many attempts all the same.
func (d *Deliverer) rest(h *health, log *slog.Logger, made []next) time.Duration {
	why := ""
	for _, n := range made {
		if n.do == delivered {
			if h.failures > 0 {
				log.InfoContext(d.attempts, "the endpoint works again", "after", d.clock().Sub(h.since))
			}
			*h = health{}
			return 0
		}
		why = max(why, n.why)
	}
	if why == "" || d.attempts.Err() != nil {
		return 0 // it was not asked, or not left the time to answer
	}
	if h.failures == 0 {
		h.since = d.clock()
		log.WarnContext(d.attempts, "the endpoint fails, and is tried less and less often until it works", "why", why)
	}
	h.failures++
	return 1 + time.Duration(d.jitter(int64(bound(firstPause, longestPause, h.failures))))
}

// deliver makes one attempt for each event, all at once.
func (d *Deliverer) deliver(t *target, log *slog.Logger, events []site.HookEvent) []next {
	var all sync.WaitGroup
	made := make([]next, len(events))
	for i, e := range events {
		all.Go(func() { made[i] = d.attempt(t, log.With("job", e.Job, "attempt", e.Attempts), e) })
	}
	all.Wait()
	return made
}

// attempt makes one attempt and records what follows. What cannot be recorded
// comes again when its hold ends.
func (d *Deliverer) attempt(t *target, log *slog.Logger, e site.HookEvent) next {
	ctx := d.attempts
	body, err := message(e)
	if err != nil {
		log.ErrorContext(ctx, "a webhook cannot be written", "error", refusal.From(err))
		return next{do: again}
	}
	a := t.send(ctx, messageID(t.id, e.Job, e.EndedAt), d.clock(), body)
	n := step(e, d.clock(), d.jitter, a)
	if a.status == 0 && ctx.Err() != nil {
		n = next{do: again, at: d.clock(), why: "stopped"}
	}
	if n.do == delivered {
		killpoint.At(killpoint.SiteWebhookSent)
	}
	// The attempt was made, so its record is not cut off with it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	switch n.do {
	case delivered, givenUp:
		err = d.hooks.Done(ctx, t.id, e.Job)
	default:
		err = d.hooks.Retry(ctx, site.HookRetry{Hook: t.id, Job: e.Job, At: ai.MillisOf(n.at), Why: n.why})
	}
	if err != nil {
		log.ErrorContext(ctx, "recording an attempt failed", "error", refusal.From(err))
		return n
	}
	switch n.do {
	case delivered:
		d.delivered.Add(1)
		log.InfoContext(ctx, "webhook delivered")
	case givenUp:
		d.givenUp.Add(1)
		log.ErrorContext(ctx, "webhook given up", "why", n.why)
	default:
		d.retried.Add(1)
		log.DebugContext(ctx, "webhook failed, and is tried again", "why", n.why, "at", n.at)
	}
	return n
}

// Numbers are the names of what [Deliverer.Number] tells, each with what it
// means.
var Numbers = map[string]string{
	"webhooks_delivered_total": "Events that an endpoint took since the start.",
	"webhooks_retried_total":   "Attempts since the start that failed and are made again.",
	"webhooks_given_up_total":  "Events given up since the start.",
	"webhooks_waiting":         "Events that wait to be delivered now.",
	"webhooks_gone":            "Endpoints that are sent nothing until the next start, since they answered 410.",
}

// Number tells one of [Numbers]; it is 0 for any other name, and -1 where the
// store cannot tell.
func (d *Deliverer) Number(name string) float64 {
	switch name {
	case "webhooks_delivered_total":
		return float64(d.delivered.Load())
	case "webhooks_retried_total":
		return float64(d.retried.Load())
	case "webhooks_given_up_total":
		return float64(d.givenUp.Load())
	case "webhooks_gone":
		return float64(d.gone.Load())
	case "webhooks_waiting":
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		n, err := d.hooks.Waiting(ctx)
		if err != nil {
			return -1
		}
		return float64(n)
	}
	return 0
}
