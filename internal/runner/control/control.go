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

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/httpd"
	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/runner/ingress"
	"github.com/allodhq/allod/internal/runner/outbox"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
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

const maxBody = httpd.MaxAdminBody

// order is the body of a request that has one.
type order struct {
	release      bool
	name, server string
}

var orderShape = exact.Shape[order]{Fields: func(o *exact.Object, v *order) {
	exact.OptBool(o, "release", &v.release)
	exact.OptText(o, "name", &v.name, 1, 0)
	exact.OptText(o, "server", &v.server, 1, 0)
}}

var orderLimits = exact.Limits{Bytes: maxBody, Depth: 1, Values: 4}

// Serve adds the agent's requests to its admin socket.
func Serve(a Agent) func(*http.ServeMux) {
	return func(mux *http.ServeMux) {
		mux.HandleFunc("GET /agent/status", func(w http.ResponseWriter, r *http.Request) {
			s, err := a.Status(r.Context())
			httpd.Reply(w, s, err)
		})
		mux.HandleFunc("GET /agent/activity", func(w http.ResponseWriter, r *http.Request) {
			s, err := a.Activity(r.Context())
			httpd.Reply(w, s, err)
		})
		for name, do := range map[string]func(ctx context.Context, o order) error{
			"pause":  func(ctx context.Context, o order) error { return a.Pause(ctx, o.release) },
			"resume": func(ctx context.Context, _ order) error { return a.Resume(ctx) },
			"name":   func(ctx context.Context, o order) error { return a.SetName(ctx, o.name) },
			"forget": func(ctx context.Context, o order) error { return a.Forget(ctx, o.server) },
			"prove":  func(ctx context.Context, _ order) error { return a.Prove(ctx) },
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
	o.name, o.server = strings.ToValidUTF8(o.name, "\ufffd"), strings.ToValidUTF8(o.server, "\ufffd")
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
	runner.Kinds, home.Kinds, backend.Kinds, client.Kinds, ingress.Kinds, outbox.Kinds, Kinds,
	datadir.Kinds, keyfile.Kinds, key.Kinds, refusal.Kinds,
}
