package runner

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/allodhq/allod/internal/killpoint"
	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/runner/ingress"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/internal/runner/outbox"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
)

// driver carries out what a lane decides for one paired server.
type driver struct {
	server      string
	home        string
	device      *client.Device
	keys        key.DeviceKeys
	shelf       *shelf
	purse       *purse
	ingress     *ingress.Log
	board       *board
	box         *outbox.Box
	clock       func() time.Time
	keepPrompts bool
	log         *slog.Logger
	// remember changes what is kept of the pairing.
	remember func(change func(*home.Pairing)) error

	events chan lane.Event
	// offers has a token when the shelf offers something else than before.
	offers chan struct{}
	ended  chan struct{}
	tasks  sync.WaitGroup

	mu      sync.Mutex
	pairing home.Pairing
	downs   map[ai.JobID]bool
	status  laneStatus

	// Of the goroutine that steps.
	machine   *lane.Machine
	steady    steady
	working   map[ai.LeaseID]context.CancelCauseFunc
	quitBeat  context.CancelFunc
	quitClaim context.CancelFunc
	timer     *time.Timer
}

// laneStatus is what is shown of a lane.
type laneStatus struct {
	lane.Status
	// ahead is how far the lane's clock is ahead of the agent's.
	ahead   time.Duration
	last    lane.Note // the last that says something about the server
	revoked bool
	// twoAgents is whether another agent uses the machine's keys.
	twoAgents bool
}

// run steps the lane until it ends, and says how: some time after ctx does, or
// when the server revokes the device or knows of another with its keys.
func (d *driver) run(ctx context.Context) lane.Ended {
	// What is under way outlives ctx, so that it can be ended in order.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		end()
		d.tasks.Wait()
	}()
	defer close(d.ended)
	d.timer = time.NewTimer(0)
	defer d.timer.Stop()
	kept, err := d.box.All()
	if err != nil {
		d.log.Error("a kept result was lost", "error", refusal.From(err))
	}
	var restored lane.Restored
	for _, q := range kept {
		restored.Results = append(restored.Results, lane.Kept{Grant: q.Grant, Site: q.Envelope.RecipientKeyID, Until: q.Envelope.DeadlineAt})
	}
	d.step(life, restored)
	stop := ctx.Done()
	for {
		var e lane.Event
		select {
		case e = <-d.events:
		case <-d.offers:
			e = lane.Offered{Offers: d.shelf.current()}
		case <-d.timer.C:
			e = lane.Tick{}
		case <-stop:
			e, stop = lane.Stop{}, nil
		}
		if ended := d.step(life, e); ended != nil {
			return *ended
		}
	}
}

// tell hands an event to the lane, unless that has ended.
func (d *driver) tell(e lane.Event) {
	select {
	case d.events <- e:
	case <-d.ended:
	}
}

// offersChanged has the lane told what is offered now.
func (d *driver) offersChanged() {
	select {
	case d.offers <- struct{}{}:
	default: // it will be told anyway
	}
}

// step takes one event in. It returns how the lane ended, or nil.
func (d *driver) step(life context.Context, e lane.Event) (ended *lane.Ended) {
	if w, ok := e.(lane.WorkDone); ok {
		delete(d.working, w.Lease)
	}
	read := d.clock()
	now := d.steady.now(read)
	var kept []lane.Event
	for _, a := range d.machine.Step(now, e) {
		switch a := a.(type) {
		case lane.Ended:
			ended = &a
		case lane.Succeed:
			if d.keepSucceeded(a) {
				kept = append(kept, lane.Succeeded(a))
			}
		case lane.Seen:
			if !d.keepSeen(a) {
				kept = append(kept, lane.Unkept{})
			}
		}
		d.do(life, a)
	}
	d.mu.Lock()
	d.status.Status, d.status.ahead = d.machine.Status(), now.Sub(read)
	if ended != nil {
		d.status.revoked, d.status.twoAgents = ended.Revoked, ended.TwoAgents
	}
	d.mu.Unlock()
	for _, e := range kept {
		if ended != nil {
			break
		}
		ended = d.step(life, e)
	}
	return ended
}

// do carries one action out, in a goroutine where it takes time.
func (d *driver) do(life context.Context, a lane.Action) {
	start := func(f func() lane.Event) { d.tasks.Go(func() { d.tell(f()) }) }
	switch a := a.(type) {
	case lane.Beat:
		ctx := renew(life, &d.quitBeat)
		start(func() lane.Event {
			answer, err := d.device.Heartbeat(ctx, a.Wait, a.Request)
			return lane.BeatDone{Seq: a.Seq, Answer: answer, Err: err}
		})
	case lane.Claim:
		ctx := renew(life, &d.quitClaim)
		start(func() lane.Event {
			answer, err := d.device.Claim(ctx, a.Wait, a.Request)
			return lane.ClaimDone{Seq: a.Seq, Answer: answer, Err: err}
		})
	case lane.Quit:
		if a.Beat && d.quitBeat != nil {
			d.quitBeat()
		}
		if a.Claim && d.quitClaim != nil {
			d.quitClaim()
		}
	case lane.Work:
		ctx, cancel := context.WithCancelCause(life)
		d.working[a.Stub.Lease.ID] = cancel
		start(func() lane.Event {
			defer cancel(nil)
			return d.work(ctx, a)
		})
	case lane.Abort:
		if cancel := d.working[a.Lease]; cancel != nil && a.Canceled {
			cancel(errCanceled)
		} else if cancel != nil {
			cancel(nil)
		}
	case lane.Send:
		start(func() lane.Event { return d.send(life, a.Grant) })
	case lane.Drop:
		if err := d.box.Remove(a.Grant.LeaseID); err != nil {
			d.log.Error("a kept result was not removed", "lease", a.Grant.LeaseID, "error", refusal.From(err))
		}
	case lane.Release:
		start(func() lane.Event {
			_, err := d.device.Release(life, a.Reason, a.Grants)
			if err != nil {
				d.log.Warn("grants were not given back, and will lapse", "error", refusal.From(err))
			}
			return lane.ReleaseDone{Err: err}
		})
	case lane.Wake:
		d.timer.Reset(max(a.At.Sub(d.steady.now(d.clock())), time.Millisecond))
	case lane.Note:
		d.note(a)
	}
}

// renew ends what was under way and returns a context for what takes its place.
func renew(life context.Context, quit *context.CancelFunc) context.Context {
	if *quit != nil {
		(*quit)()
	}
	ctx, cancel := context.WithCancel(life)
	*quit = cancel
	return ctx
}

func (d *driver) send(life context.Context, g ai.Grant) lane.Event {
	q, err := d.box.Get(g.LeaseID)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, outbox.ErrDamaged):
		// It cannot be handed in any more, so the lane must not try again.
		d.log.Error("a kept result was lost", "job", g.JobID, "error", refusal.From(err))
		return lane.SendDone{Lease: g.LeaseID, Err: outbox.ErrDamaged}
	case err != nil:
		d.log.Error("a kept result cannot be read now", "job", g.JobID, "error", refusal.From(err))
		return lane.SendDone{Lease: g.LeaseID, Err: client.ErrUnreachable.Because(err)}
	}
	answer, err := d.device.Result(life, q)
	killpoint.At(killpoint.AgentResultSent)
	// Told that it is too long, the app can ask for less.
	if takesLess(q, err) && d.tooLarge(q) == nil {
		return d.send(life, g)
	}
	return lane.SendDone{Lease: g.LeaseID, Answer: answer, Err: err}
}

// stockSealed is a length from which a sealed result may be too long for other
// servers, in characters. Those of version "2" take envelopes of 6 MiB, older ones
// messages of 8 MiB.
const stockSealed = 6<<20 - 4<<10

// takesLess reports whether a server refused a result that may be too long for
// it. What answered in its place did not.
func takesLess(q ai.ResultRequest, err error) bool {
	return err != nil && refusal.From(err).Kind() == ai.ErrBadRequest && len(q.Envelope.Ciphertext) > stockSealed && q.Disposition == ai.DispositionOK
}

// cut shortens a server's text for the log, which it must not fill.
func cut(text string) string {
	if len(text) <= maxLogged {
		return text
	}
	return strings.ToValidUTF8(text[:maxLogged], "") + "…"
}

const maxLogged = 256

// note logs what happened, for the owner.
func (d *driver) note(n lane.Note) {
	args := []any{}
	if n.Stub != nil {
		args = append(args, "job", cut(string(n.Stub.ID)), "lease", cut(string(n.Stub.Lease.ID)))
	}
	if n.Site != "" {
		args = append(args, "site", cut(string(n.Site)))
	}
	if n.From != "" {
		args = append(args, "succeeds", n.From)
	}
	if n.Err != nil {
		args = append(args, "error", refusal.From(n.Err))
	}
	level := slog.LevelInfo
	switch n.What {
	case lane.NoteRefused, lane.NoteLost, lane.NoteLapsed, lane.NoteNotAccepted, lane.NoteSitePending,
		lane.NoteSiteLeft, lane.NoteNoSites, lane.NoteUnreachable, lane.NoteSiteSucceeded, lane.NoteSuccessionRefused:
		level = slog.LevelWarn
	case lane.NoteSiteChanged, lane.NoteRevoked, lane.NoteTwoAgents:
		level = slog.LevelError
	}
	d.log.Log(context.Background(), level, string(n.What), args...)
	if n.What == lane.NoteRefused {
		line := ingress.Line{
			Type: ingress.TypeOutcome, At: d.clock(), Server: d.server, JobID: ai.JobID(cut(string(n.Stub.ID))), Site: ai.KeyID(cut(string(n.Stub.Site))), Kind: n.Stub.Kind,
			Audience: n.Stub.Audience, Owner: ai.Owner(cut(string(n.Stub.Owner))), Own: d.own(n.Stub.Owner), Outcome: "refused", Detail: refusal.From(n.Err).Kind().Name(), Reason: cut(refusal.From(n.Err).Detail()),
		}
		d.board.refused(line)
		if err := d.ingress.Write(line); err != nil {
			d.log.Error("a refusal was not logged", "job", n.Stub.ID, "error", refusal.From(err))
		}
	}
	if n.Stub == nil {
		d.mu.Lock()
		d.status.last = n
		d.mu.Unlock()
	}
}

// newDriver makes the driver of a pairing. The caller holds the agent's lock.
func newDriver(a *Agent, p home.Pairing, server client.Server, box *outbox.Box) *driver {
	var d *driver
	c := client.New(client.Config{Server: server, Version: a.config.Version, Instance: a.instance, Clock: a.config.Clock, Transport: a.config.Transport,
		Spoken: client.Spoken(p.Protocol), Agreed: func(s client.Spoken) { d.agreed(s) }})
	sites, pending := map[ai.KeyID]key.Site{}, map[ai.KeyID]key.Site{}
	followed, changed := map[ai.KeyID]lane.Followed{}, map[ai.KeyID]bool{}
	for id, s := range p.Sites {
		sites[id] = s.Identity
		if s.Next != "" {
			followed[id] = lane.Followed{Next: s.Next, Until: s.Until}
		}
		if s.ChangedAt != 0 {
			changed[id] = true
		}
	}
	for id, s := range p.Pending {
		pending[id] = s.Identity
	}
	seed := uint64(a.config.Clock().UnixNano())
	d = &driver{
		server: p.Server, home: a.home.Dir(), device: c.As(p.RunnerID, a.keys.Signer()), keys: a.keys, shelf: a.shelf, purse: a.purse, ingress: a.ingress, board: a.board, box: box,
		clock: a.config.Clock, keepPrompts: a.config.Settings.KeepPrompts, log: a.log.With("server", p.Server),
		events: make(chan lane.Event), offers: make(chan struct{}, 1), ended: make(chan struct{}), pairing: p, downs: map[ai.JobID]bool{},
		working: map[ai.LeaseID]context.CancelCauseFunc{},
	}
	now := d.steady.now(a.config.Clock())
	d.machine = lane.New(lane.Config{
		Runner: p.RunnerID, Owner: p.Owner, Sites: sites, Followed: followed, Changed: changed, Pending: pending,
		Concurrency: a.config.Settings.Concurrency, Paused: a.paused || a.home.Paused(),
		Allowed: d.allowed().Owners, OthersUnits: a.config.Settings.Community.MaxPayload,
	}, rand.New(rand.NewPCG(seed, seed>>1)), now)
	d.remember = func(change func(*home.Pairing)) error { return a.remember(d, change) }
	return d
}
