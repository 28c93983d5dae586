package daemon

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/node/authority"
	"github.com/allodhq/allod/internal/node/pallet"
	"github.com/allodhq/allod/internal/node/spark"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
)

// Phase is where a program of a node is in its life.
type Phase string

// The phases.
const (
	// New is a machine that nobody has joined.
	New Phase = "new"
	// Joining is one whose enrollment has begun.
	Joining Phase = "joining"
	// Active is a node.
	Active Phase = "active"
)

// Problem is why the last step failed: the name of a refusal and its detail, which may
// be "".
type Problem struct {
	Name, Detail string
	At           zone.Millis
}

// Status is what may be told of a program of a node. It holds no secret.
type Status struct {
	Phase Phase
	// Node, Generation and Epoch are who the program is, and zero while it is nobody.
	Node       zone.NodeID
	Generation enroll.Generation
	Epoch      enroll.Epoch
	// Rotating says that a next credential was made and no receipt has come yet.
	Rotating bool
	// Origin and Pin are the controller's, or "": of Spark only.
	Origin, Pin string
	// Step is what the program does at the moment, or "" while it waits.
	Step string
	// GaveUp says that the controller refused an enrollment for good, with Problem. A
	// machine that is a node in spite of it tells that for GaveUpTold.
	GaveUp bool
	// AcceptedAt is when, by its clock, the controller took the last report that is
	// known; 0 means none. Reports is how many it took since the process began.
	AcceptedAt zone.Millis
	Reports    int64
	// Problem is nil where the last step went well.
	Problem *Problem
}

var problemShape = exact.Shape[Problem]{Fields: func(o *exact.Object, p *Problem) {
	exact.Text(o, "name", &p.Name, 1, 128)
	exact.Text(o, "detail", &p.Detail, 0, zone.MaxText)
	exact.Whole(o, "at", &p.At, 0, 0)
}}

var statusShape = exact.Shape[Status]{Fields: func(o *exact.Object, s *Status) {
	exact.Word(o, "phase", &s.Phase, []Phase{New, Joining, Active})
	exact.OptText(o, "nodeId", &s.Node, 1, zone.MaxID)
	exact.Whole(o, "generation", &s.Generation, 0, 0)
	exact.Whole(o, "sessionEpoch", &s.Epoch, 0, 0)
	exact.Bool(o, "rotating", &s.Rotating)
	exact.OptText(o, "origin", &s.Origin, 1, enroll.MaxOrigin)
	exact.OptText(o, "pin", &s.Pin, 1, 64)
	exact.OptText(o, "step", &s.Step, 1, 64)
	exact.Bool(o, "gaveUp", &s.GaveUp)
	exact.Whole(o, "acceptedAt", &s.AcceptedAt, 0, 0)
	exact.Whole(o, "reports", &s.Reports, 0, 0)
	exact.OptSub(o, "problem", &s.Problem, problemShape)
}}

// is tells who an authority is.
func (s *Status) is(a *authority.Authority) {
	if a == nil {
		return
	}
	s.Phase, s.Node, s.Generation, s.Epoch, s.Rotating = Active, a.Who.NodeID, a.Who.Generation, a.Who.SessionEpoch, a.Renewing()
}

// OfSpark is what Spark's state alone tells.
func OfSpark(state spark.State) Status {
	s := Status{Phase: New, Origin: state.Controller.Origin.String(), Pin: state.Controller.Pin.String()}
	if state.Last != nil {
		s.AcceptedAt = state.Last.AcceptedAt
	}
	s.is(state.Active)
	if state.Pending != nil {
		s.Phase = Joining
	}
	return s
}

// OfPallet is what Pallet's state alone tells.
func OfPallet(state pallet.State) Status {
	s := Status{Phase: New}
	if !state.Prepared.IsZero() {
		s.Phase = Joining
	}
	s.is(state.Active)
	return s
}

// GaveUpTold is for how long a node tells of an adoption that the controller refused:
// whoever asked for it has read it by then, and other problems count again.
const GaveUpTold = time.Minute

// board is where a program shows its status.
type board struct {
	log   *slog.Logger
	clock func() time.Time

	mu      sync.Mutex
	status  Status
	step    string
	problem *Problem
	gaveUp  *refused // an enrollment that was given up
	reports int64
}

// refused is an enrollment that was given up: with what, and when by the clock, which may
// be set.
type refused struct {
	problem *Problem
	at      time.Time
}

// show replaces what the state tells.
func (b *board) show(s Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status = s
}

// begin says what is done now, "" for nothing.
func (b *board) begin(step string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.step = step
}

// ended says how a step went.
func (b *board) ended(step string, err error, gaveUp bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.step = ""
	if err == nil {
		if b.problem != nil {
			b.log.Info("went well again", "step", step)
		}
		if step == stepReport {
			b.reports++
		}
		b.problem = nil
		return
	}
	r := refusal.From(err)
	before := b.problem
	b.problem = &Problem{r.Kind().Name(), r.Detail(), zone.At(b.clock())}
	if gaveUp {
		b.gaveUp = &refused{b.problem, b.clock()}
	}
	level := slog.LevelWarn
	if before != nil && before.Name == b.problem.Name && before.Detail == b.problem.Detail {
		level = slog.LevelDebug // it was said
	}
	attrs := []any{"step", step, "refusal", r.Kind().Name()}
	if r.Detail() != "" {
		attrs = append(attrs, "detail", r.Detail())
	}
	// A cause may quote an answer. The system's words for a number cannot.
	var number syscall.Errno
	if errors.As(err, &number) {
		attrs = append(attrs, "system", number.Error())
	}
	if gaveUp {
		attrs = append(attrs, "gaveUp", true)
	}
	b.log.Log(context.Background(), level, "a step failed", attrs...)
}

// forget drops every problem: somebody began anew.
func (b *board) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problem, b.gaveUp = nil, nil
}

// look is what is to be told now.
func (b *board) look() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.status
	if b.gaveUp != nil && s.Phase == Active && b.clock().Sub(b.gaveUp.at).Abs() >= GaveUpTold {
		b.gaveUp = nil
	}
	s.Step, s.GaveUp, s.Reports = b.step, b.gaveUp != nil, b.reports
	said := b.problem
	if s.GaveUp {
		said = b.gaveUp.problem
	}
	if said != nil {
		p := *said
		s.Problem = &p
	}
	return s
}
