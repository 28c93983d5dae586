// Package settings is the agent's section of the configuration file: which
// backends the owner has, which kind of job goes to which model, and how much of
// the machine jobs may use.
//
// Everything has a default. An agent without the section uses the model servers
// that answer at their default addresses on this machine.
//
// The package refuses what is not built yet by name, so that nobody believes a
// wish in a file to be in force.
package settings

import (
	"time"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// What this package refuses.
var (
	ErrSharing = refusal.NewKind("sharing-not-built", 501,
		"Backends serve their owner only: offering them to others is not built yet, and so are spending and limits for others' jobs.",
		"Leave out spend and community, and leave offer out or set it to self.")
	ErrRoute = refusal.NewKind("route-unknown", 400,
		"A route names a backend that the section does not have.",
		"Name one of the section's backends.")
	ErrKeyEnv = refusal.NewKind("api-key-env", 400,
		"The member apiKeyEnv is the name of an environment variable, not a key: letters, digits and underscores.",
		"Put the key into an environment variable and its name here.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "An agent's settings", Kinds: []*refusal.Kind{ErrSharing, ErrRoute, ErrKeyEnv}}

// Bounds and defaults.
const (
	MaxBackends        = 64
	DefaultConcurrency = 2
	MaxConcurrency     = 32
	DefaultMaxTime     = 10 * time.Minute
	DefaultMaxOutput   = 4 << 20
	// LongestRun and LargestOutput bound what an owner can allow.
	LongestRun    = 24 * time.Hour
	LargestOutput = 16 << 20
	// Of the log, in days.
	DefaultCommunityPromptDays = 7
	MaxCommunityPromptDays     = 3650
	// maxName bounds the name that an owner gives a backend, in UTF-16 code units.
	maxName = 128
)

// Settings are an owner's wishes, with the defaults filled in.
type Settings struct {
	// Backends by the name that the owner gave them; nil means what answers on
	// this machine.
	Backends map[string]Backend
	// Routes say which model a kind of job runs on. A kind that has none goes to
	// the first free backend, by name, that has a model ready.
	Routes map[ai.Kind]Route
	// Concurrency is how many jobs run at once.
	Concurrency int
	// MaxTime and MaxOutput bound one run, in time and in bytes of answer.
	MaxTime   time.Duration
	MaxOutput int
	// KeepPrompts is whether the owner's own prompts are kept as text in the log.
	KeepPrompts bool
	// CommunityPromptDays is for how many days the log keeps the text of other
	// people's prompts, 1 to [MaxCommunityPromptDays]. Then only a hash is left.
	CommunityPromptDays int
}

// Backend is one model server.
type Backend struct {
	ID wirebackend.ID
	// BaseURL is empty for the table's default.
	BaseURL string
	// KeyEnv is the environment variable that holds the API key; empty for none.
	KeyEnv string
}

// Route is where a kind of job goes.
type Route struct {
	// Backend is the name of one of the backends.
	Backend string
	Model   string
}

// Defaults are the settings of an agent without a section.
func Defaults() Settings {
	s, _ := Section{}.Settings() // an empty section has no problem
	return s
}

// Section is the section as it stands in the file.
type Section struct {
	backends    map[string]backendRow
	routes      *routesRow
	concurrency exact.Opt[int64]
	limits      *limitsRow
	ingress     *ingressRow
}

type backendRow struct {
	Backend
	offer ai.OfferScope
	spend *struct{}
}

var anything = exact.Shape[struct{}]{Unknown: exact.Drop, Fields: func(*exact.Object, *struct{}) {}}

var backendShape = exact.Shape[backendRow]{Fields: func(o *exact.Object, b *backendRow) {
	exact.Word(o, "backend", &b.ID, wirebackend.IDs())
	exact.OptText(o, "baseUrl", &b.BaseURL, 1, 2048)
	exact.OptText(o, "apiKeyEnv", &b.KeyEnv, 1, 128)
	exact.OptWord(o, "offer", &b.offer, ai.OfferScopes())
	exact.OptSub(o, "spend", &b.spend, anything)
	if o.Writing() || o.Failed() {
		return
	}
	row, _ := wirebackend.Find(b.ID)
	switch {
	case row.Class == wirebackend.Process:
		o.Fail(backend.ErrProcessClass, "a backend that is a model server")
	case b.spend != nil || b.offer != "" && b.offer != ai.OfferSelf:
		o.Fail(ErrSharing, "offered to self only")
	case !isName(b.KeyEnv):
		o.Fail(ErrKeyEnv, "the name of an environment variable in apiKeyEnv")
	}
}}

// isName reports whether s can name an environment variable, or is empty.
func isName(s string) bool {
	for i, r := range s {
		if !(r == '_' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || i > 0 && r >= '0' && r <= '9') {
			return false
		}
	}
	return true
}

var routeShape = exact.Shape[Route]{Fields: func(o *exact.Object, r *Route) {
	exact.Text(o, "backend", &r.Backend, 1, maxName)
	exact.Text(o, "model", &r.Model, 1, 256)
}}

type routesRow struct{ generate, chat *Route }

var routesShape = exact.Shape[routesRow]{Fields: func(o *exact.Object, r *routesRow) {
	exact.OptSub(o, string(ai.KindGenerate), &r.generate, routeShape)
	exact.OptSub(o, string(ai.KindChat), &r.chat, routeShape)
}}

type limitsRow struct{ maxTime, maxOutput exact.Opt[int64] }

var limitsShape = exact.Shape[limitsRow]{Fields: func(o *exact.Object, l *limitsRow) {
	exact.OptWhole(o, "maxWallClockMs", &l.maxTime, 1, LongestRun.Milliseconds())
	exact.OptWhole(o, "maxOutputBytes", &l.maxOutput, 1, LargestOutput)
}}

type ingressRow struct {
	keep bool
	days exact.Opt[int64]
}

var ingressShape = exact.Shape[ingressRow]{Fields: func(o *exact.Object, r *ingressRow) {
	if o.Writing() {
		exact.Bool(o, "keepSelfPrompts", &r.keep)
	} else {
		r.keep = true
		exact.OptBool(o, "keepSelfPrompts", &r.keep)
	}
	exact.OptWhole(o, "communityPromptDays", &r.days, 1, MaxCommunityPromptDays)
}}

// Shape reads the section.
var Shape = exact.Shape[Section]{Fields: func(o *exact.Object, s *Section) {
	var community *struct{}
	exact.OptMap(o, "backends", &s.backends, backendShape)
	exact.OptSub(o, "routes", &s.routes, routesShape)
	exact.OptWhole(o, "concurrency", &s.concurrency, 1, MaxConcurrency)
	exact.OptSub(o, "limits", &s.limits, limitsShape)
	exact.OptSub(o, "ingress", &s.ingress, ingressShape)
	exact.OptSub(o, "community", &community, anything)
	switch {
	case o.Failed():
	case community != nil:
		o.Fail(ErrSharing, "without the member community")
	case len(s.backends) > MaxBackends:
		o.Fail(exact.ErrRange, "a section of at most 64 backends")
	}
	for name := range s.backends {
		if exact.Units(name) > maxName {
			o.Fail(exact.ErrRange, "a section whose backends have names of at most 128 UTF-16 code units")
		}
	}
}}

// Settings fills the defaults in. It returns [ErrRoute].
func (s Section) Settings() (Settings, error) {
	out := Settings{
		Routes: map[ai.Kind]Route{}, Concurrency: DefaultConcurrency,
		MaxTime: DefaultMaxTime, MaxOutput: DefaultMaxOutput, KeepPrompts: s.ingress == nil || s.ingress.keep,
	}
	out.CommunityPromptDays = DefaultCommunityPromptDays
	if s.ingress != nil && s.ingress.days.Set {
		out.CommunityPromptDays = int(s.ingress.days.V)
	}
	if s.backends != nil {
		out.Backends = map[string]Backend{}
		for name, b := range s.backends {
			out.Backends[name] = b.Backend
		}
	}
	var routes routesRow
	if s.routes != nil {
		routes = *s.routes
	}
	for _, r := range []struct {
		kind ai.Kind
		to   *Route
	}{{ai.KindGenerate, routes.generate}, {ai.KindChat, routes.chat}} {
		if r.to == nil {
			continue
		}
		if _, ok := s.backends[r.to.Backend]; !ok {
			return Settings{}, ErrRoute.With("The route is " + string(r.kind) + ".")
		}
		out.Routes[r.kind] = *r.to
	}
	if s.concurrency.Set {
		out.Concurrency = int(s.concurrency.V)
	}
	if s.limits != nil && s.limits.maxTime.Set {
		out.MaxTime = time.Duration(s.limits.maxTime.V) * time.Millisecond
	}
	if s.limits != nil && s.limits.maxOutput.Set {
		out.MaxOutput = int(s.limits.maxOutput.V)
	}
	return out, nil
}
