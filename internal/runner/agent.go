package runner

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/runner/ingress"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/internal/runner/outbox"
	"github.com/allodhq/allod/internal/runner/program"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/instance"
)

// ErrNoPairings refuses to run for nobody.
var ErrNoPairings = refusal.NewKind("no-pairings", 409,
	"This machine is paired with no site, so there is nothing to run for.",
	"Pair it first: allod connect URL.")

// Config says how an agent works. Home is required.
type Config struct {
	// Home is the agent's folder.
	Home string
	// Version is this program's own version, at least one character.
	Version string
	// Settings are the owner's wishes; see [settings.Defaults].
	Settings settings.Settings
	// Save keeps backends with new terms for one, so that they hold after a restart.
	// Where it is nil they hold until the agent ends.
	Save func(backends map[string]settings.Backend, name string) error
	// Clock is time.Now where it is nil.
	Clock func() time.Time
	// Logger is nobody where it is nil.
	Logger *slog.Logger
	// Transport carries requests to servers instead of the network, for tests.
	Transport http.RoundTripper
}

// Agent is a model agent in use by this process.
type Agent struct {
	config  Config
	log     *slog.Logger
	home    *home.Home
	keys    key.DeviceKeys
	shelf   *shelf
	purse   *purse
	ingress *ingress.Log
	board   *board
	// instance is what this process calls itself before servers.
	instance instance.ID

	// change is held over adopting and forgetting, which end a lane and wait, and
	// while Run begins.
	change sync.Mutex

	mu    sync.Mutex
	lanes map[string]*running // by server
	// paused is whether the owner paused the agent since it was opened, which may
	// not have been recorded.
	paused bool
	// run starts a lane; nil while the agent does not run.
	run func(p home.Pairing) error
}

// running is a lane at work.
type running struct {
	driver *driver
	stop   context.CancelFunc
	ended  chan struct{}
}

// Open takes an agent's folder for this process and makes its keys the first
// time. Nothing runs before [Agent.Run]. It returns the refusals of packages
// home, datadir, keyfile and ingress.
func Open(c Config) (*Agent, error) {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	h, err := home.Open(c.Home)
	if err != nil {
		return nil, err
	}
	program.Orphans(h.Scratch()) // the folder is this process's alone
	a := &Agent{config: c, log: logger(c.Logger), home: h, shelf: newShelf(c.Settings, h.Scratch(), c.Clock), board: newBoard(c.Clock), lanes: map[string]*running{}}
	if a.instance, err = instance.New(rand.Reader); err == nil {
		a.keys, err = h.Keys(c.Clock())
	}
	if err == nil {
		a.ingress, err = ingress.Open(c.Home)
	}
	if err != nil {
		h.Close()
		return nil, err
	}
	a.purse = newPurse(context.Background(), c.Home, c.Settings.Community, c.Clock, a.log)
	a.shelf.room = a.purse.room
	return a, nil
}

// Close lets go of the folder. The agent must not be running.
func (a *Agent) Close() error {
	a.purse.close()
	err := a.ingress.Close()
	a.home.Close()
	return err
}

// Fingerprint is what the owner compares when the machine is paired.
func (a *Agent) Fingerprint() key.Fingerprint { return a.keys.Identity().Fingerprint() }

// Keys are the device's, for pairing.
func (a *Agent) Keys() key.DeviceKeys { return a.keys }

// Run works for all paired servers until ctx ends, then gives back what is under
// way. It returns [ErrNoPairings], and errors of the folder. A server that
// revokes the device is left, and the others go on.
func (a *Agent) Run(ctx context.Context) error {
	var lanes, tending sync.WaitGroup
	// Before the lanes begin, so that they miss no change.
	a.shelf.mu.Lock()
	a.shelf.changed = func(offers []lane.Offer) {
		a.log.Info("offers changed", "offers", len(offers))
		for _, r := range a.all() {
			r.driver.offersChanged()
		}
	}
	a.shelf.mu.Unlock()
	if err := a.begin(ctx, &lanes); err != nil {
		return err
	}
	tending.Go(func() { a.shelf.tend(ctx) })
	tending.Go(func() { a.retain(ctx) })
	<-ctx.Done()
	tending.Wait()
	a.mu.Lock()
	a.run = nil
	a.mu.Unlock()
	lanes.Wait()
	return nil
}

// begin starts the lanes of all paired servers. What is adopted or forgotten
// meanwhile comes before or after.
func (a *Agent) begin(ctx context.Context, lanes *sync.WaitGroup) error {
	a.change.Lock()
	defer a.change.Unlock()
	pairings, err := a.home.Pairings()
	if err != nil {
		return err
	}
	if len(pairings) == 0 {
		return ErrNoPairings
	}
	var boxes []string
	for _, p := range pairings {
		boxes = append(boxes, outbox.Name(p.Server, p.RunnerID))
	}
	if err := outbox.Sweep(a.home.Outbox(), boxes); err != nil {
		a.log.Error("results of pairings that are no more were not removed", "error", refusal.From(err))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.run = func(p home.Pairing) error { return a.start(ctx, lanes, p) }
	for _, p := range pairings {
		if p.TwoAgentsAt != 0 {
			a.log.Error("a server is not served", "server", p.Server, "error", client.ErrTwoAgents)
			continue
		}
		if err := a.run(p); err != nil {
			a.log.Error("a server is not served", "server", p.Server, "error", refusal.From(err))
			continue
		}
		a.log.Info("working", "server", p.Server, "owner", p.Owner)
	}
	return nil
}

func (a *Agent) all() []*running {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []*running
	for _, r := range a.lanes {
		list = append(list, r)
	}
	return list
}

// start begins a lane. The caller holds the lock.
func (a *Agent) start(ctx context.Context, group *sync.WaitGroup, p home.Pairing) error {
	server, err := client.ParseServer(p.Server)
	if err != nil {
		return err
	}
	box, err := outbox.Open(a.home.Outbox(), p.Server, p.RunnerID)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	r := &running{newDriver(a, p, server, box), stop, make(chan struct{})}
	a.lanes[p.Server] = r
	group.Go(func() {
		defer close(r.ended)
		defer stop()
		defer r.driver.device.Close()
		switch how := r.driver.run(ctx); {
		case how.Revoked:
			// The server does not know the device any more, and what it pinned is
			// worth nothing. A new pairing is a new start.
			a.log.Error("the server revoked this machine; pair again if you want to go on", "server", p.Server)
		case how.TwoAgents:
			// It holds after a restart too, or each start would meet the other again.
			if err := r.driver.remember(func(p *home.Pairing) { p.TwoAgentsAt = ai.MillisOf(a.config.Clock()) }); err != nil {
				a.log.Error("it was not recorded that another agent uses this machine's keys", "server", p.Server, "error", refusal.From(err))
			}
		}
	})
	r.driver.offersChanged()
	return nil
}

// end stops the lane of a server and waits for it.
func (a *Agent) end(server string) {
	a.mu.Lock()
	r := a.lanes[server]
	delete(a.lanes, server)
	a.mu.Unlock()
	if r != nil {
		r.stop()
		<-r.ended
	}
}

// Adopt records a pairing and, if the agent runs, begins to work for it. It
// takes the place of an earlier pairing with the same server.
func (a *Agent) Adopt(p home.Pairing) error {
	a.change.Lock()
	defer a.change.Unlock()
	before, err := a.home.Pairings()
	if err != nil {
		return err
	}
	a.mu.Lock() // what a lane remembers of the old pairing must not come in between
	err = a.home.Pair(p)
	a.mu.Unlock()
	if err != nil {
		return err // and the old pairing works on
	}
	a.end(p.Server)
	for _, old := range before {
		if old.Server != p.Server {
			continue
		}
		if old.RunnerID != p.RunnerID {
			a.clear(old)
		}
		if old.Owner != p.Owner {
			a.forgetPeople(p.Server) // another person's account has other people
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.run == nil {
		return nil
	}
	return a.run(p)
}

// Forget ends the work for a server, gives back what is under way, and removes
// the pairing with what was kept for it. It returns home.ErrNotPaired.
func (a *Agent) Forget(server string) error {
	if s, err := client.ParseServer(server); err == nil {
		server = s.String()
	}
	a.change.Lock()
	defer a.change.Unlock()
	a.mu.Lock()
	p, err := a.home.Forget(server)
	a.mu.Unlock()
	if err != nil {
		return err // and it works on
	}
	a.end(server)
	a.clear(p)
	a.forgetPeople(server)
	return nil
}

// clear removes what was kept for a pairing that is no more. What stays is swept
// at the next start.
func (a *Agent) clear(p home.Pairing) {
	box, err := outbox.Open(a.home.Outbox(), p.Server, p.RunnerID)
	if err == nil {
		err = box.Clear()
	}
	if err != nil {
		a.log.Error("what was kept for a pairing that is no more was not removed", "server", p.Server, "error", refusal.From(err))
	}
}

// Pause takes no new work from now on, also after a restart. With release, work
// in flight is given back as well; else it finishes.
func (a *Agent) Pause(release bool) error { return a.setPaused(true, release) }

// Resume takes work again.
func (a *Agent) Resume() error { return a.setPaused(false, false) }

func (a *Agent) setPaused(on, release bool) error {
	err := a.home.SetPaused(on)
	if err != nil && !on {
		return err
	}
	// Who pauses wants that at once, also where it cannot be recorded, and for the
	// lanes that begin from now on.
	a.mu.Lock()
	a.paused = on
	a.mu.Unlock()
	for _, r := range a.all() {
		r.driver.tell(lane.Paused{On: on, Release: release})
	}
	return err
}

// Name is the machine's name. Servers learn it when they are paired.
func (a *Agent) Name() (string, error) { return a.home.Label() }

// SetName names the machine. It returns home.ErrLabel.
func (a *Agent) SetName(name string) error { return a.home.SetLabel(name) }

// LookOnce looks for models, and has those prove themselves that are due, unless
// the agent runs and does so all the time.
func (a *Agent) LookOnce(ctx context.Context) {
	a.mu.Lock()
	running := a.run != nil
	a.mu.Unlock()
	if !running {
		a.shelf.lookOnce(ctx)
	}
}

// Prove has every model in use generate a little now, metered ones as well. It
// returns the first failure, or [ErrNoModel].
func (a *Agent) Prove(ctx context.Context) error {
	err := a.shelf.proveAll(ctx)
	a.shelf.lookOnce(ctx)
	return err
}

// remember changes what is kept of a driver's pairing, unless that has ended.
func (a *Agent) remember(d *driver, change func(*home.Pairing)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	list, err := a.home.Pairings()
	if err != nil {
		return err
	}
	for _, p := range list {
		if p.Server != d.server || p.RunnerID != d.device.RunnerID() {
			continue
		}
		change(&p)
		if err := a.home.Pair(p); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.pairing)
	return nil
}
