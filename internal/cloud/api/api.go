package api

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/cloud/cluster"
	"github.com/allodhq/allod/internal/cloud/machine"
	"github.com/allodhq/allod/internal/cloud/nodes"
	"github.com/allodhq/allod/internal/cloud/people"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/methods"
	"github.com/allodhq/allod/wire/zone/rpc"
)

// Config is what a controller answers with. All but Origins and Limits is needed.
type Config struct {
	People   *people.People
	Clusters *cluster.Clusters
	Services *cluster.Services
	Machines *machine.Credentials
	Nodes    *nodes.Nodes
	// Clock, Rand, Log, Origins and Limits are those of the carrier.
	Clock   func() time.Time
	Rand    io.Reader
	Log     *slog.Logger
	Origins []string
	Limits  carrier.Limits
}

// API answers. It is safe for concurrent use.
type API struct {
	c       Config
	carrier *carrier.Server

	handled, reports, refusedReports atomic.Uint64
}

// New makes one. [API.Close] ends it.
func New(c Config) *API {
	a := &API{c: c}
	a.carrier = carrier.NewServer(carrier.Config{
		Answers: a.Server(authenticator{c.People, c.Nodes}),
		Clock:   c.Clock, Rand: c.Rand, Log: c.Log, Origins: c.Origins, Limits: c.Limits,
	})
	return a
}

// Server makes a server of all methods that asks that authenticator who calls.
func (a *API) Server(auth rpc.Authenticator) *rpc.Server {
	return rpc.NewServer(rpc.Config{
		Registry: methods.Controller, Bindings: a.bindings(), Authenticator: auth, Panicked: carrier.LogPanics(a.c.Log),
	})
}

// Carrier takes typed requests, at [carrier.Path] for the network, and has another
// handler for the admin socket.
func (a *API) Carrier() *carrier.Server { return a.carrier }

// Close ends every socket.
func (a *API) Close() { a.carrier.Close() }

// Counts are what has been answered since the start.
type Counts struct {
	// Handled are typed requests that came as far as what decides them.
	Handled uint64
	// Reports are reports of hosts that were taken, Refused those that were not.
	Reports, Refused uint64
}

// Counts tells them.
func (a *API) Counts() Counts {
	return Counts{a.handled.Load(), a.reports.Load(), a.refusedReports.Load()}
}

// drop ends the sockets of one person or one machine.
func (a *API) drop(kind who.Kind, subject string) {
	a.carrier.Drop(func(p rpc.Principal) bool {
		return p.Subject == subject && owner(p).Kind == kind
	})
}

// bind joins a method with what decides it, on behalf of a person, a machine or
// the local user.
func bind[Req, Res any](a *API, m *rpc.Method, req zone.Codec[Req], res zone.Codec[Res], do func(context.Context, who.Principal, Req) (Res, error)) rpc.Binding {
	return rpc.Bind(m, req, res, func(ctx context.Context, call *rpc.Call, r Req) (Res, error) {
		a.handled.Add(1)
		return do(ctx, owner(call.Principal), r)
	})
}

// bindProven joins a method whose request is its own proof.
func bindProven[Req, Res any](a *API, m *rpc.Method, req zone.Codec[Req], res zone.Codec[Res], do func(context.Context, Req) (Res, error)) rpc.Binding {
	return rpc.Bind(m, req, res, func(ctx context.Context, _ *rpc.Call, r Req) (Res, error) {
		a.handled.Add(1)
		return do(ctx, r)
	})
}
