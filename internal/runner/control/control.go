// Package control lets an owner's commands reach the agent, whether it runs or
// not: through the admin socket in its folder, or by opening the folder.
//
// The socket belongs to the user who runs the agent, and nobody else can reach
// it, so its requests carry no credential.
package control

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/allodhq/allod/internal/configfile"
	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/httpd"
	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/allowlist"
	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/runner/ingress"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/internal/runner/outbox"
	"github.com/allodhq/allod/internal/runner/sharing"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/match"
)

// What this package refuses.
var (
	ErrNoAnswer = refusal.NewKind("agent-no-answer", 503,
		"An agent holds the folder and does not answer on its admin socket.",
		"Wait a moment if it is just starting or stopping; else look in its log.")
	ErrRequest = refusal.NewKind("agent-request", 400,
		"The running agent does not know this request.",
		"Use the command of the same version as the agent, or start the agent again.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Speaking to a running agent", Kinds: []*refusal.Kind{ErrNoAnswer, ErrRequest}}

// Agent is what an owner can ask of an agent.
type Agent interface {
	Status(ctx context.Context) (runner.Status, error)
	// Activity is what the agent does now; an agent that does not run does nothing.
	Activity(ctx context.Context) (runner.Activity, error)
	// Look finds models and has them prove themselves, unless the agent runs and
	// does so all the time.
	Look(ctx context.Context) error
	Pause(ctx context.Context, release bool) error
	Resume(ctx context.Context) error
	SetName(ctx context.Context, name string) error
	Adopt(ctx context.Context, p home.Pairing) error
	Forget(ctx context.Context, server string) error
	// Allow and Disallow change whose jobs are taken, and Allowed lists them.
	Allow(ctx context.Context, server string, owner ai.Owner, note string) error
	Disallow(ctx context.Context, server string, owner ai.Owner) error
	Allowed(ctx context.Context) ([]allowlist.Entry, error)
	// SetTerms decides how far a backend is offered.
	SetTerms(ctx context.Context, backend string, terms sharing.Terms) error
	// Sites lists the sites that were approved or wait for it.
	Sites(ctx context.Context) ([]runner.SiteStatus, error)
	// Approve lets a site of the list be served, under the key that is in it.
	Approve(ctx context.Context, site runner.SiteStatus) error
	// Prove has every model in use generate a little now.
	Prove(ctx context.Context) error
}

// Open reaches the agent of a folder: the one that runs, or one that is opened
// for this command, which own then is. close lets go of it.
func Open(ctx context.Context, c runner.Config) (agent Agent, own *runner.Agent, close func(), err error) {
	a, err := OpenOwn(ctx, c)
	switch {
	case errors.Is(err, datadir.ErrRunning):
		return remote{httpd.AdminClient(c.Home), httpd.StartTime}, nil, func() {}, nil
	case err != nil:
		return nil, nil, nil, err
	}
	return local{a}, a, func() { _ = a.Close() }, nil
}

// OpenOwn opens the agent of a folder in this process. Another command that holds
// the folder for a moment is waited for; an agent that runs is not, and neither is
// anybody who holds it for long: then it returns datadir.ErrRunning.
func OpenOwn(ctx context.Context, c runner.Config) (a *runner.Agent, err error) {
	err = httpd.TakeFolder(ctx, c.Home, func() (err error) {
		a, err = runner.Open(c)
		return err
	})
	return a, err
}

// local is an agent in this process.
type local struct{ a *runner.Agent }

// Local is an agent of this process.
func Local(a *runner.Agent) Agent { return local{a} }

func (l local) Status(context.Context) (runner.Status, error) { return l.a.Status() }
func (l local) Activity(context.Context) (runner.Activity, error) {
	return l.a.Activity(), nil
}
func (l local) Look(ctx context.Context) error                { l.a.LookOnce(ctx); return nil }
func (l local) Pause(_ context.Context, release bool) error   { return l.a.Pause(release) }
func (l local) Resume(context.Context) error                  { return l.a.Resume() }
func (l local) SetName(_ context.Context, name string) error  { return l.a.SetName(name) }
func (l local) Adopt(_ context.Context, p home.Pairing) error { return l.a.Adopt(p) }
func (l local) Forget(_ context.Context, server string) error { return l.a.Forget(server) }
func (l local) Prove(ctx context.Context) error               { return l.a.Prove(ctx) }
func (l local) Allow(_ context.Context, server string, owner ai.Owner, note string) error {
	return l.a.Allow(server, owner, note)
}
func (l local) Disallow(_ context.Context, server string, owner ai.Owner) error {
	return l.a.Disallow(server, owner)
}
func (l local) Allowed(context.Context) ([]allowlist.Entry, error) { return l.a.Allowed() }
func (l local) SetTerms(_ context.Context, backend string, terms sharing.Terms) error {
	return l.a.SetTerms(backend, terms)
}
func (l local) Sites(context.Context) ([]runner.SiteStatus, error) { return l.a.Sites() }
func (l local) Approve(_ context.Context, s runner.SiteStatus) error {
	shown, err := s.Identity.Site()
	if err != nil {
		return err
	}
	return l.a.Approve(s.Server, shown)
}

const maxBody = httpd.MaxAdminBody

// order is the body of a request that has one.
type order struct {
	release      bool
	name, server string
	owner        ai.Owner
	note         string
	terms        *sharing.Terms
	// shown is the key of a site that is approved.
	shown runner.SiteIdentity
}

var orderShape = exact.Shape[order]{Fields: func(o *exact.Object, v *order) {
	exact.OptBool(o, "release", &v.release)
	exact.OptText(o, "name", &v.name, 1, 0)
	exact.OptText(o, "server", &v.server, 1, 0)
	exact.OptText(o, "owner", &v.owner, 1, 0)
	exact.OptText(o, "note", &v.note, 1, 0)
	exact.OptSub(o, "terms", &v.terms, termsShape)
	exact.OptText(o, "identity", &v.shown.Identity, 1, 0)
	exact.OptText(o, "encryption", &v.shown.Encryption, 1, 0)
	exact.OptText(o, "encryptionSig", &v.shown.EncryptionSig, 1, 0)
}}

var termsShape = exact.Shape[sharing.Terms]{Fields: func(o *exact.Object, t *sharing.Terms) {
	exact.Word(o, "offer", &t.Scope, ai.OfferScopes())
	exact.Bool(o, "acknowledged", &t.Acknowledged)
	exact.Whole(o, "dailyCapCents", &t.Ceiling, 0, sharing.MaxCeiling)
	exact.Whole(o, "centsPerMillionTokens", &t.Price, 0, sharing.MaxPrice)
}}

var orderLimits = exact.Limits{Bytes: maxBody, Depth: 2, Values: 16}

// Serve adds the agent's requests to its admin socket.
func Serve(a Agent) func(*http.ServeMux) {
	return func(mux *http.ServeMux) {
		mux.HandleFunc("GET /agent/status", func(w http.ResponseWriter, r *http.Request) {
			s, err := a.Status(r.Context())
			httpd.Reply(w, s, err)
		})
		mux.HandleFunc("GET /agent/allowed", func(w http.ResponseWriter, r *http.Request) {
			list, err := a.Allowed(r.Context())
			httpd.Reply(w, list, err)
		})
		mux.HandleFunc("GET /agent/sites", func(w http.ResponseWriter, r *http.Request) {
			list, err := a.Sites(r.Context())
			httpd.Reply(w, list, err)
		})
		mux.HandleFunc("GET /agent/activity", func(w http.ResponseWriter, r *http.Request) {
			s, err := a.Activity(r.Context())
			httpd.Reply(w, s, err)
		})
		for name, do := range map[string]func(ctx context.Context, o order) error{
			"pause":    func(ctx context.Context, o order) error { return a.Pause(ctx, o.release) },
			"resume":   func(ctx context.Context, _ order) error { return a.Resume(ctx) },
			"name":     func(ctx context.Context, o order) error { return a.SetName(ctx, o.name) },
			"forget":   func(ctx context.Context, o order) error { return a.Forget(ctx, o.server) },
			"allow":    func(ctx context.Context, o order) error { return a.Allow(ctx, o.server, o.owner, o.note) },
			"disallow": func(ctx context.Context, o order) error { return a.Disallow(ctx, o.server, o.owner) },
			"offer": func(ctx context.Context, o order) error {
				if o.terms == nil {
					return ErrRequest
				}
				return a.SetTerms(ctx, o.name, *o.terms)
			},
			"prove": func(ctx context.Context, _ order) error { return a.Prove(ctx) },
			"approve": func(ctx context.Context, o order) error {
				return a.Approve(ctx, runner.SiteStatus{Server: o.server, Identity: o.shown})
			},
		} {
			mux.HandleFunc("POST /agent/"+name, func(w http.ResponseWriter, r *http.Request) {
				body, err := read(r.Body)
				if err == nil {
					err = obey(r.Context(), body, do)
				}
				httpd.Reply(w, struct{}{}, err)
			})
		}
		mux.HandleFunc("POST /agent/adopt", func(w http.ResponseWriter, r *http.Request) {
			body, err := read(r.Body)
			if err == nil {
				err = adopt(r.Context(), body, a)
			}
			httpd.Reply(w, struct{}{}, err)
		})
	}
}

func obey(ctx context.Context, body []byte, do func(context.Context, order) error) error {
	o, err := orderShape.Read(body, orderLimits)
	if err != nil {
		return ErrRequest.Because(err)
	}
	return do(ctx, o)
}

func adopt(ctx context.Context, body []byte, a Agent) error {
	p, err := home.ParsePairing(body)
	if err != nil {
		return ErrRequest.Because(err) // not the list on the disk is damaged
	}
	return a.Adopt(ctx, p)
}

func read(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, maxBody+1)) // whose readers take maxBody
	if err != nil {
		return nil, ErrRequest.Because(err)
	}
	return body, nil
}

// remote is a running agent, or one that is starting for so long at most.
type remote struct {
	http  *http.Client
	start time.Duration
}

func (r remote) Status(ctx context.Context) (s runner.Status, err error) {
	body, err := r.call(ctx, http.MethodGet, "status", nil)
	if err == nil && json.Unmarshal(body, &s) != nil {
		err = ErrNoAnswer
	}
	return s, err
}

func (r remote) Sites(ctx context.Context) (list []runner.SiteStatus, err error) {
	body, err := r.call(ctx, http.MethodGet, "sites", nil)
	if err == nil && json.Unmarshal(body, &list) != nil {
		err = ErrNoAnswer
	}
	return list, err
}

func (r remote) Approve(ctx context.Context, s runner.SiteStatus) error {
	return r.order(ctx, "approve", order{server: s.Server, shown: s.Identity})
}

func (r remote) Activity(ctx context.Context) (s runner.Activity, err error) {
	body, err := r.call(ctx, http.MethodGet, "activity", nil)
	if err == nil && json.Unmarshal(body, &s) != nil {
		err = ErrNoAnswer
	}
	return s, err
}

func (r remote) Look(context.Context) error { return nil }
func (r remote) Pause(ctx context.Context, release bool) error {
	return r.order(ctx, "pause", order{release: release})
}
func (r remote) Resume(ctx context.Context) error { return r.order(ctx, "resume", order{}) }
func (r remote) SetName(ctx context.Context, name string) error {
	return r.order(ctx, "name", order{name: name})
}
func (r remote) Forget(ctx context.Context, server string) error {
	return r.order(ctx, "forget", order{server: server})
}
func (r remote) Prove(ctx context.Context) error { return r.order(ctx, "prove", order{}) }

func (r remote) Allow(ctx context.Context, server string, owner ai.Owner, note string) error {
	return r.order(ctx, "allow", order{server: server, owner: owner, note: note})
}
func (r remote) Disallow(ctx context.Context, server string, owner ai.Owner) error {
	return r.order(ctx, "disallow", order{server: server, owner: owner})
}
func (r remote) Allowed(ctx context.Context) (list []allowlist.Entry, err error) {
	body, err := r.call(ctx, http.MethodGet, "allowed", nil)
	if err == nil && json.Unmarshal(body, &list) != nil {
		err = ErrNoAnswer
	}
	return list, err
}
func (r remote) SetTerms(ctx context.Context, backend string, terms sharing.Terms) error {
	return r.order(ctx, "offer", order{name: backend, terms: &terms})
}

func (r remote) Adopt(ctx context.Context, p home.Pairing) error {
	body, err := p.Marshal()
	if err != nil {
		return err
	}
	_, err = r.call(ctx, http.MethodPost, "adopt", body)
	return err
}

func (r remote) order(ctx context.Context, name string, o order) error {
	// A word of the command line can be no text at all. The agent refuses what is
	// left of it as it would the word.
	for _, text := range []*string{&o.name, &o.server, (*string)(&o.owner), &o.note} {
		*text = strings.ToValidUTF8(*text, "\ufffd")
	}
	body, err := orderShape.Append(nil, o)
	if err != nil {
		return ErrRequest.Because(err)
	}
	_, err = r.call(ctx, http.MethodPost, name, body)
	return err
}

// timeout is longer than proving a model takes.
const timeout = 5 * time.Minute

// call sends a request. It returns the agent's refusal, [ErrNoAnswer], and
// context.Canceled where the caller ended it.
func (r remote) call(ctx context.Context, method, name string, body []byte) ([]byte, error) {
	return httpd.Asker{
		Client: r.http, Start: r.start, Timeout: timeout, Registers: registers, Silent: ErrNoAnswer, Strange: ErrRequest,
	}.Ask(ctx, method, "/agent/"+name, body)
}

// registers have every refusal that an agent answers with.
var registers = []refusal.Registry{
	runner.Kinds, lane.Kinds, allowlist.Kinds, sharing.Kinds, match.Kinds, configfile.Kinds, home.Kinds, backend.Kinds, client.Kinds, ingress.Kinds, outbox.Kinds, Kinds,
	datadir.Kinds, keyfile.Kinds, key.Kinds, refusal.Kinds,
}
