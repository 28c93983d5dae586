// Package doctor looks at what an agent needs, from where the agent would: its
// folder, its models, its clock, and the way to each site.
//
// Each probe says what was tried, what came back and what to do. Nothing that is
// asked changes anything: no model generates, no work is taken, and what is signed
// for a site is out of date on purpose, but for one heartbeat of an agent that
// does not run, which offers nothing.
//
// The package refuses to show what others wrote: what came back is said in words
// of its own.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/refusal"
)

// ErrSick is how a command ends that found something.
var ErrSick = refusal.NewKind("doctor-failed", 500,
	"Something that the agent needs does not work.",
	"Do what the report says under each line that begins with FAILED, and run the command again.")

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "The doctor", Kinds: []*refusal.Kind{ErrSick}}

// State is how a probe ended.
type State string

// The states.
const (
	OK State = "ok"
	// Warning means that the agent works, and something deserves a look.
	Warning State = "warning"
	Failed  State = "failed"
	// Skipped means that it could not be tried, for a reason that is said.
	Skipped State = "skipped"
)

// Probe is one thing that was looked at.
type Probe struct {
	// About is what it is about: the agent's folder, a backend, a site.
	About string `json:"about"`
	// Name tells it from the others of the same.
	Name  string `json:"name"`
	State State  `json:"state"`
	// Tried, Came and Do are whole sentences: what was tried, what came back, and
	// what to do. Do is empty where nothing is to be done.
	Tried string `json:"tried"`
	Came  string `json:"came"`
	Do    string `json:"do,omitzero"`
	// Millis is how long it took, in milliseconds.
	Millis int64 `json:"millis"`
}

// Config says what is looked at. Home and Version are required.
type Config struct {
	// Home is the agent's folder.
	Home     string
	Settings settings.Settings
	// Version is this program's own version, for a site's log.
	Version string
	// Running is whether the agent runs.
	Running bool
	// Site is a further site to try; the zero value is none.
	Site client.Server
	// Hold is how long sites are asked to hold a request; zero means that they are
	// not.
	Hold time.Duration
	// Clock is time.Now where it is nil.
	Clock func() time.Time
}

// Hold is how long the agent has sites hold its requests.
const Hold = 20 * time.Second

// exam is one run of all probes.
type exam struct {
	Config
}

// Examine makes all probes. The order of the answer is always the same.
func Examine(ctx context.Context, c Config) []Probe {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	e := exam{c}
	todo := []func() []Probe{e.folder, func() []Probe { return e.backends(ctx) }}
	for _, s := range e.sites() {
		todo = append(todo, func() []Probe { return e.site(ctx, s) })
	}
	parts := make([][]Probe, len(todo))
	var group sync.WaitGroup
	for i, do := range todo {
		group.Go(func() { parts[i] = do() })
	}
	group.Wait()
	return slices.Concat(parts...)
}

// of begins a probe.
func of(about, name, tried string, args ...any) *Probe {
	return &Probe{About: about, Name: name, State: OK, Tried: fmt.Sprintf(tried, args...)}
}

// is ends a probe.
func (p *Probe) is(s State, came, do string) *Probe {
	p.State, p.Came, p.Do = s, came, do
	return p
}

// refused ends a probe by a refusal, which says what to do.
func (p *Probe) refused(s State, err error) *Probe {
	r := refusal.From(err)
	came := r.Kind().Meaning()
	if r.Detail() != "" {
		came += " " + r.Detail()
	}
	return p.is(s, came+" ("+r.Kind().Name()+")", r.Kind().WayOut())
}
