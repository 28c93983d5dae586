// Package settings is the agent's section of the configuration file: which
// backends the owner has, which kind of job goes to which model, and how much of
// the machine jobs may use.
//
// Everything has a default. An agent without the section uses the model servers
// that answer at their default addresses on this machine.
//
// A wish that the cost of a backend forbids is refused when the file is read, so
// that nobody believes it to be in force: see package sharing.
package settings

import (
	"time"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/runner/sharing"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// What this package refuses.
var (
	ErrRoute = refusal.NewKind("route-unknown", 400,
		"A route names a backend that the section does not have.",
		"Name one of the section's backends.")
	ErrProgram = refusal.NewKind("program-has-no-address", 400,
		"The backend is a program that is started for each run: it has no address, and it signs in by itself.",
		"Leave out baseUrl and apiKeyEnv, and sign in with the program's own command.")
	ErrKeyEnv = refusal.NewKind("api-key-env", 400,
		"The member apiKeyEnv is the name of an environment variable, not a key: letters, digits and underscores.",
		"Put the key into an environment variable and its name here.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "An agent's settings", Kinds: []*refusal.Kind{ErrRoute, ErrProgram, ErrKeyEnv}}

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
	// MostJobs bounds how many jobs of others an owner can allow.
	MostJobs = 1_000_000
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
	// Community bounds what other people's jobs may take.
	Community Community
}

// Community bounds what other people's jobs may take (MUST COMMUNITY_BUDGETS).
type Community struct {
	// JobsPerHour and JobsPerDay count over all of them, in any 60 minutes and any 24
	// hours.
	JobsPerHour, JobsPerDay int
	// MaxTime and MaxOutput bound one run, in time and in bytes of answer. The bounds
	// on the owner's own runs hold as well.
	MaxTime   time.Duration
	MaxOutput int
	// MaxPayload bounds the text of a question, in UTF-16 code units.
	MaxPayload int
}

// CommunityDefaults are the contract's.
func CommunityDefaults() Community {
	return Community{JobsPerHour: 20, JobsPerDay: 100, MaxTime: 2 * time.Minute, MaxOutput: 256 << 10, MaxPayload: 100_000}
}

// Backend is one model server.
type Backend struct {
	ID wirebackend.ID
	// BaseURL is empty for the table's default.
	BaseURL string
	// KeyEnv is the environment variable that holds the API key; empty for none.
	KeyEnv string
	// Terms are who else may use it.
	Terms sharing.Terms
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
	community   *communityRow
}

type backendRow struct {
	Backend
	spend *spendRow
}

type spendRow struct {
	acknowledged   bool
	ceiling, price exact.Opt[int64]
}

var spendShape = exact.Shape[spendRow]{Fields: func(o *exact.Object, r *spendRow) {
	exact.OptBool(o, "acknowledged", &r.acknowledged)
	exact.OptWhole(o, "dailyCapCents", &r.ceiling, 1, sharing.MaxCeiling)
	exact.OptWhole(o, "centsPerMillionTokens", &r.price, 1, sharing.MaxPrice)
}}

var backendShape = exact.Shape[backendRow]{Fields: func(o *exact.Object, b *backendRow) {
	exact.Word(o, "backend", &b.ID, wirebackend.IDs())
	exact.OptText(o, "baseUrl", &b.BaseURL, 1, 2048)
	exact.OptText(o, "apiKeyEnv", &b.KeyEnv, 1, 128)
	exact.OptWord(o, "offer", &b.Terms.Scope, ai.OfferScopes())
	exact.OptSub(o, "spend", &b.spend, spendShape)
	if o.Writing() || o.Failed() {
		return
	}
	if b.spend != nil {
		b.Terms.Acknowledged, b.Terms.Ceiling, b.Terms.Price = b.spend.acknowledged, b.spend.ceiling.V, b.spend.price.V
	}
	row, _ := wirebackend.Find(b.ID)
	cost, _ := wirebackend.CostOf(b.ID, b.BaseURL, "")
	switch {
	case row.Class == wirebackend.Process && (b.BaseURL != "" || b.KeyEnv != ""):
		o.Fail(ErrProgram, "without baseUrl and apiKeyEnv")
	case b.Terms.On(cost).Narrowed != nil:
		o.Fail(b.Terms.On(cost).Narrowed, "offered to self, or on terms that its cost allows")
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

type communityRow struct{ perHour, perDay, maxTime, maxOutput, maxPayload exact.Opt[int64] }

var communityShape = exact.Shape[communityRow]{Fields: func(o *exact.Object, r *communityRow) {
	exact.OptWhole(o, "maxJobsPerHour", &r.perHour, 1, MostJobs)
	exact.OptWhole(o, "maxJobsPerDay", &r.perDay, 1, MostJobs)
	exact.OptWhole(o, "maxWallClockMs", &r.maxTime, 1, LongestRun.Milliseconds())
	exact.OptWhole(o, "maxOutputBytes", &r.maxOutput, 1, LargestOutput)
	exact.OptWhole(o, "maxPayloadChars", &r.maxPayload, 1, ai.MaxPayloadUnits)
}}

func (r communityRow) community() Community {
	c := CommunityDefaults()
	set := func(to *int, from exact.Opt[int64]) {
		if from.Set {
			*to = int(from.V)
		}
	}
	set(&c.JobsPerHour, r.perHour)
	set(&c.JobsPerDay, r.perDay)
	set(&c.MaxOutput, r.maxOutput)
	set(&c.MaxPayload, r.maxPayload)
	if r.maxTime.Set {
		c.MaxTime = time.Duration(r.maxTime.V) * time.Millisecond
	}
	return c
}

// Shape reads the section.
var Shape = exact.Shape[Section]{Fields: func(o *exact.Object, s *Section) {
	exact.OptMap(o, "backends", &s.backends, backendShape)
	exact.OptSub(o, "routes", &s.routes, routesShape)
	exact.OptWhole(o, "concurrency", &s.concurrency, 1, MaxConcurrency)
	exact.OptSub(o, "limits", &s.limits, limitsShape)
	exact.OptSub(o, "ingress", &s.ingress, ingressShape)
	exact.OptSub(o, "community", &s.community, communityShape)
	switch {
	case o.Failed():
	case len(s.backends) > MaxBackends:
		o.Fail(exact.ErrRange, "a section of at most 64 backends")
	}
	for name := range s.backends {
		if exact.Units(name) > maxName {
			o.Fail(exact.ErrRange, "a section whose backends have names of at most 128 UTF-16 code units")
		}
	}
}}

// Settings fills the defaults in. It returns [ErrRoute], and why terms do not hold
// with a route's model (see [sharing.Terms.On]).
func (s Section) Settings() (Settings, error) {
	out := Settings{
		Routes: map[ai.Kind]Route{}, Concurrency: DefaultConcurrency,
		MaxTime: DefaultMaxTime, MaxOutput: DefaultMaxOutput, KeepPrompts: s.ingress == nil || s.ingress.keep,
		Community: CommunityDefaults(),
	}
	if s.community != nil {
		out.Community = s.community.community()
	}
	out.CommunityPromptDays = DefaultCommunityPromptDays
	if s.ingress != nil && s.ingress.days.Set {
		out.CommunityPromptDays = int(s.ingress.days.V)
	}
	if s.backends != nil {
		out.Backends = map[string]Backend{}
		for name, b := range s.backends {
			if b.Terms.Scope == ai.OfferSelf {
				b.Terms.Scope = "" // one word for one thing
			}
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
		b, ok := s.backends[r.to.Backend]
		if !ok {
			return Settings{}, ErrRoute.With("The route is " + string(r.kind) + ".")
		}
		// A model can cost more than its backend does.
		cost, _ := wirebackend.CostOf(b.ID, b.BaseURL, r.to.Model)
		if why := b.Terms.On(cost).Narrowed; why != nil {
			return Settings{}, why.With("The route is " + string(r.kind) + ", and its model is run by a paid service.")
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
