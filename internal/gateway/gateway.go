package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/appapi"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/match"
)

// Auto is the label that every site has: the user's own machines, whatever model
// they run.
const Auto = "auto"

// Label is what a model's name stands for.
type Label struct {
	// Kind narrows the label to one of the two endpoints; empty means both.
	Kind ai.Kind
	// Audience says whose devices may run the job.
	Audience ai.Audience
}

// Authenticator says what the key of a request may do. Its errors are answered as
// they are, so they are refusals. [appapi.Keys] is one.
type Authenticator interface {
	Authenticate(r *http.Request) (appapi.Access, error)
}

// Config says how a gateway works. Site and Keys are required.
type Config struct {
	Site *site.Site
	Keys Authenticator
	// Labels are the models that clients can name besides [Auto]. Names are
	// [Labelable].
	Labels map[string]Label
	// Drop are members of requests that are dropped instead of refused. They are
	// [Droppable].
	Drop []string
	// Wait is how long an answer is waited for; zero means nine minutes, which is
	// less than OpenAI's clients wait. A request may ask for less.
	Wait time.Duration
	// Grace is how long it must stay true that no device can run the job before
	// the wait is given up; zero means ten seconds. It is less than Wait.
	Grace time.Duration
	// MaxWaiting is how many requests of one owner may be under way with one key;
	// zero means 64.
	MaxWaiting int
	// MaxKeyWaiting is how many requests of one key may be; zero means 1024.
	MaxKeyWaiting int
	// Stopping ends when the site begins to stop. Requests that wait for an answer
	// are told so at once, and their jobs go on. Nil means never.
	Stopping context.Context

	// Clock, Rand and Logger are time.Now, crypto/rand and nobody where unset.
	Clock  func() time.Time
	Rand   io.Reader
	Logger *slog.Logger
}

// What a configuration means where it says nothing.
const (
	defaultWait          = 9 * time.Minute
	defaultGrace         = 10 * time.Second
	defaultMaxWaiting    = 64
	defaultMaxKeyWaiting = 1024
)

// MaxWait is the longest wait that can be configured.
const MaxWait = time.Hour

type gateway struct {
	Config
	large *turns

	mu sync.Mutex
	// under counts the requests under way.
	under map[place]int
	// waiters counts the requests that wait for a job.
	waiters map[ai.JobID]int
}

// place is what requests are counted by: a key, or one owner with that key.
type place struct {
	key   string
	owner ai.Owner // empty for all of the key's
}

// served are the endpoints by path, and the method that each takes.
var served = []struct {
	path, method string
	scope        site.Scope
	serve        func(g *gateway, c *call) error
}{
	{"/v1/chat/completions", http.MethodPost, site.ScopeEnqueue, func(g *gateway, c *call) error { return g.complete(c, ai.KindChat) }},
	{"/v1/completions", http.MethodPost, site.ScopeEnqueue, func(g *gateway, c *call) error { return g.complete(c, ai.KindGenerate) }},
	{"/v1/models", http.MethodGet, site.ScopeRead, (*gateway).models},
	{"/v1/models/{model...}", http.MethodGet, site.ScopeRead, (*gateway).model},
}

// elsewhere are other parts of OpenAI's API, which clients try. They are refused
// in OpenAI's shape, so that a client says why.
var elsewhere = []string{
	"/v1/assistants", "/v1/audio/", "/v1/batches", "/v1/chat/completions/", "/v1/embeddings", "/v1/files", "/v1/images/",
	"/v1/moderations", "/v1/responses", "/v1/threads",
}

// Paths are the patterns at which a mux gives requests to the handler.
func Paths() []string {
	paths := slices.Clone(elsewhere)
	for _, e := range served {
		paths = append(paths, e.path)
	}
	return paths
}

// NewHandler serves OpenAI's clients at [Paths].
func NewHandler(c Config) http.Handler { return newGateway(c).handler() }

func newGateway(c Config) *gateway {
	if c.Wait == 0 {
		c.Wait = defaultWait
	}
	if c.Grace == 0 {
		c.Grace = defaultGrace
	}
	if c.MaxWaiting == 0 {
		c.MaxWaiting = defaultMaxWaiting
	}
	if c.MaxKeyWaiting == 0 {
		c.MaxKeyWaiting = defaultMaxKeyWaiting
	}
	if c.Stopping == nil {
		c.Stopping = context.Background()
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &gateway{Config: c, large: newTurns(), under: map[place]int{}, waiters: map[ai.JobID]int{}}
}

func (g *gateway) handler() http.Handler {
	mux := http.NewServeMux()
	for _, e := range served {
		mux.HandleFunc(e.path, func(w http.ResponseWriter, r *http.Request) {
			g.serve(w, r, func(c *call) error {
				if r.Method != e.method {
					w.Header().Set("Allow", e.method)
					return ErrMethod
				}
				if !c.access.May(e.scope) {
					return appapi.ErrScope.With("It needs the scope " + string(e.scope) + ".")
				}
				return e.serve(g, c)
			})
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		g.serve(w, r, func(*call) error { return ErrURL })
	})
	return mux
}

// call is one request whose key is known.
type call struct {
	w      http.ResponseWriter
	r      *http.Request
	access appapi.Access
	places []place // that it has taken
}

// serve looks at the key first: nothing is told without one.
func (g *gateway) serve(w http.ResponseWriter, r *http.Request, then func(c *call) error) {
	access, err := g.Keys.Authenticate(r)
	if err == nil {
		err = then(&call{w: w, r: r, access: access})
	}
	if err != nil {
		g.refuse(w, r, problemOf(err))
	}
}

// refuse answers with a problem, unless nobody is there any more. A server ends the
// request of a body that is late as well, and then somebody still is.
func (g *gateway) refuse(w http.ResponseWriter, r *http.Request, p *problem) {
	if r.Context().Err() != nil && !errors.Is(p.what, ErrSlow) {
		return
	}
	status, body := p.body()
	if status >= http.StatusInternalServerError {
		g.Logger.WarnContext(r.Context(), "gateway refused", "error", refusal.From(p.what))
	}
	h := w.Header()
	if s := refusal.From(p.what).RetrySeconds(); s > 0 {
		h.Set("Retry-After", strconv.FormatInt(s, 10))
	}
	if status == http.StatusConflict {
		p.retry = "false" // which stays one, and OpenAI's clients would try it again
	}
	if p.retry != "" {
		h.Set("X-Should-Retry", p.retry)
	}
	write(w, status, body)
}

func write(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// enter counts a request by its key and, once it is known, by its owner. What was
// counted is counted off by leave.
func (g *gateway) enter(c *call, owner ai.Owner) error {
	p, most, whose := place{c.access.KeyID, owner}, g.MaxWaiting, "one owner"
	if owner == "" {
		most, whose = g.MaxKeyWaiting, "one key"
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.under[p] >= most {
		return ErrBusy.With("At most " + strconv.Itoa(most) + " of " + whose + " may be.").After(afterBusy)
	}
	g.under[p]++
	c.places = append(c.places, p)
	return nil
}

func (g *gateway) leave(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range c.places {
		if g.under[p]--; g.under[p] == 0 {
			delete(g.under, p)
		}
	}
}

// join counts a request that waits for a job.
func (g *gateway) join(id ai.JobID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiters[id]++
}

// part counts it off, and says whether it was the last.
func (g *gateway) part(id ai.JobID) (last bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiters[id]--; g.waiters[id] > 0 {
		return false
	}
	delete(g.waiters, id)
	return true
}

// ownerOf is whom a request is for: the key's owner, or the one it names.
func ownerOf(a appapi.Access, named ai.Owner) (ai.Owner, error) {
	switch {
	case a.Owner == "" && named == "":
		return "", about("user", ErrMissing.With("The key is for no single user, so the request has to say who asks."))
	case a.Owner == "":
		return named, nil
	case named != "" && named != a.Owner:
		return "", about("user", appapi.ErrOwner)
	}
	return a.Owner, nil
}

// label is what a name stands for, and whether it is one of the site's.
func (g *gateway) label(name string) (Label, bool) {
	if name == Auto {
		return Label{Audience: ai.AudienceSelf}, true
	}
	l, known := g.Labels[name]
	return l, known
}

// servable reports whether somebody online could run a job under a label now.
func (g *gateway) servable(ctx context.Context, l Label, owner ai.Owner) (bool, error) {
	for _, kind := range ai.Kinds() {
		if l.Kind != "" && l.Kind != kind {
			continue
		}
		a, err := g.Site.Jobs.Availability(ctx, kind, match.Job{Owner: owner, Audience: l.Audience})
		if a.Available || err != nil {
			return a.Available, err
		}
	}
	return false, nil
}

// The shape of OpenAI's models. Labels have no age, so created is 0.
type (
	modelBody struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
	}
	modelsBody struct {
		Object string      `json:"object"`
		Data   []modelBody `json:"data"`
	}
)

// whoAsks is whom a request without a body is for: the query's user stands for
// the member.
func (c *call) whoAsks() (ai.Owner, error) {
	q := c.r.URL.Query()
	if q.Has("user") && !nameable(q.Get("user")) {
		return "", about("user", ErrValue.With("It must be 1 to 256 characters without control characters."))
	}
	return ownerOf(c.access, ai.Owner(q.Get("user")))
}

// list lists those of the names that are labels which somebody online could serve.
func (g *gateway) list(ctx context.Context, owner ai.Owner, names []string) ([]modelBody, error) {
	list := []modelBody{}
	for _, name := range names {
		l, known := g.label(name)
		if !known {
			continue
		}
		ok, err := g.servable(ctx, l, owner)
		if err != nil {
			return nil, err
		}
		if ok {
			list = append(list, modelBody{name, "model", 0, "allod"})
		}
	}
	return list, nil
}

func (g *gateway) models(c *call) error {
	owner, err := c.whoAsks()
	if err != nil {
		return err
	}
	names := append(slices.Collect(maps.Keys(g.Labels)), Auto)
	slices.Sort(names)
	found, err := g.list(c.r.Context(), owner, names)
	if err != nil {
		return err
	}
	return c.answer(modelsBody{"list", found})
}

func (g *gateway) model(c *call) error {
	owner, err := c.whoAsks()
	if err != nil {
		return err
	}
	found, err := g.list(c.r.Context(), owner, []string{c.r.PathValue("model")})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return about("model", ErrModel)
	}
	return c.answer(found[0])
}

// answer answers with a body.
func (c *call) answer(body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	write(c.w, http.StatusOK, text)
	return nil
}

// prefers reads how long a request is willing to wait, the preference wait of RFC
// 7240. What is not one is no preference, as that document says.
func prefers(h http.Header) (time.Duration, bool) {
	for _, line := range h.Values("Prefer") {
		for _, preference := range strings.Split(line, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(preference), "=")
			if !strings.EqualFold(name, "wait") {
				continue
			}
			n, err := strconv.ParseUint(value, 10, 31)
			return time.Duration(n) * time.Second, err == nil
		}
	}
	return 0, false
}
