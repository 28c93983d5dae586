package daemon

import (
	"context"
	"time"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/killpoint"
	"github.com/allodhq/allod/internal/node/control"
	"github.com/allodhq/allod/internal/node/link"
	"github.com/allodhq/allod/internal/node/spark"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
	wire "github.com/allodhq/allod/wire/zone/spark"
)

// The steps, as a [Status] has them.
const (
	stepLook     = "look"
	stepPrepare  = "prepare"
	stepBind     = "bind"
	stepEnroll   = "enroll"
	stepActivate = "activate"
	stepReport   = "report"
	stepRotate   = "rotate"
	stepAsk      = "ask"
)

// sparkd is Spark's process.
type sparkd struct {
	c       Config
	core    *spark.Core
	owner   *owner
	board   *board
	way     way
	reports *reporter
	told    spark.Controller // what is in the controller's file
	known   bool             // whether told is known

}

// Spark runs Spark until ctx ends. It returns the refusals of datadir, keep, host,
// bundle and control, and then nothing was changed.
func Spark(ctx context.Context, c Config) error {
	release, err := lock(c.Data, sparkFolder)
	if err != nil {
		return err
	}
	defer release()
	file := SparkFile(c.Data)
	state, err := file.Load()
	if err != nil {
		return err
	}
	reports, err := newReporter(c)
	if err != nil {
		return err
	}
	s := &sparkd{c: c, owner: newOwner(c.Clock), board: &board{log: c.Log, clock: c.Clock}, way: way{c: c}, reports: reports}
	defer s.way.close()
	s.core = spark.New(state, file.Save, c.Rand)
	s.core.Every(killpoint.Interval(wire.Interval))
	s.board.show(OfSpark(state))
	end, err := serve(ctx, SparkSocket(c.Socket), c.Log, s.methods())
	if err != nil {
		return err
	}
	defer end()
	c.Log.Info("spark runs", "phase", string(OfSpark(state).Phase))
	s.owner.run(ctx, s.next)
	return nil
}

// next is what to do now.
func (s *sparkd) next(now time.Time) (work, time.Time) {
	step := s.core.Next(now)
	s.publish()
	switch step := step.(type) {
	case spark.Wait:
		return nil, step.Until
	case spark.Look:
		return s.call(stepLook, step, func(ctx context.Context, l *link.Link) (func(time.Time) error, error) {
			r, err := l.EnrollmentState(ctx, step.Bearer)
			return func(now time.Time) error { return s.core.Looked(now, r) }, err
		}), time.Time{}
	case spark.Prepare:
		return s.work(stepPrepare, step, func(ctx context.Context) (func(time.Time) error, error) {
			r, err := ask(ctx, s.c.Socket, enroll.MethodPalletPrepare, enroll.PrepareRequestCodec, enroll.PrepareResponseCodec, enroll.PrepareRequest{})
			killpoint.At(killpoint.SparkPrepared)
			return func(now time.Time) error { return s.core.Prepared(now, r) }, err
		}), time.Time{}
	case spark.Bind:
		return s.work(stepBind, step, func(ctx context.Context) (func(time.Time) error, error) {
			r, err := ask(ctx, s.c.Socket, enroll.MethodPalletBind, enroll.BindRequestCodec, enroll.BindResponseCodec, step.Request)
			killpoint.At(killpoint.SparkBound)
			return func(now time.Time) error { return s.core.Bound(now, r) }, err
		}), time.Time{}
	case spark.Enroll:
		return s.call(stepEnroll, step, func(ctx context.Context, l *link.Link) (func(time.Time) error, error) {
			a, err := l.Enroll(ctx, step.Proposal, step.Proof)
			if err == nil {
				killpoint.At(killpoint.SparkEnrolled)
			}
			return func(now time.Time) error { return s.core.Enrolled(now, a) }, err
		}), time.Time{}
	case spark.Activate:
		killpoint.At(killpoint.SparkAcknowledged)
		return s.work(stepActivate, step, func(ctx context.Context) (func(time.Time) error, error) {
			r, err := ask(ctx, s.c.Socket, enroll.MethodPalletActivate, enroll.ActivateRequestCodec, enroll.ActivateResponseCodec, step.Request)
			killpoint.At(killpoint.SparkActivated)
			return func(now time.Time) error { return s.core.Activated(now, r) }, err
		}), time.Time{}
	case spark.Report:
		return s.call(stepReport, step, func(ctx context.Context, l *link.Link) (func(time.Time) error, error) {
			report := s.reports.report(ctx)
			r, err := l.Report(ctx, step.Bearer, report)
			killpoint.At(killpoint.SparkReported)
			return func(now time.Time) error { return s.core.Reported(now, report, r) }, err
		}), time.Time{}
	case spark.Rotate:
		killpoint.At(killpoint.SparkRenewed)
		return s.call(stepRotate, step, func(ctx context.Context, l *link.Link) (func(time.Time) error, error) {
			r, err := l.Rotate(ctx, step.Bearer, step.Rotation)
			if err == nil {
				killpoint.At(killpoint.SparkRotated)
			}
			return func(now time.Time) error { return s.core.Rotated(now, r) }, err
		}), time.Time{}
	}
	panic("daemon: a step of Spark that nobody takes")
}

// work takes a step and feeds what came of it.
func (s *sparkd) work(name string, step spark.Step, do func(context.Context) (func(time.Time) error, error)) work {
	return func(ctx context.Context) func() {
		s.board.begin(name)
		apply, err := do(ctx)
		interrupted := ctx.Err() != nil
		return func() {
			now, pending := s.c.Clock(), s.core.State().Pending != nil
			if err == nil {
				err = apply(now)
			} else {
				s.core.Failed(now, step, err)
			}
			gaveUp := err != nil && pending && s.core.State().Pending == nil
			if err != nil && interrupted {
				s.board.begin("") // it was broken off by us, which is nobody's problem
			} else {
				s.board.ended(name, err, gaveUp)
			}
			s.publish()
		}
	}
}

// call is work that asks the controller.
func (s *sparkd) call(name string, step spark.Step, do func(context.Context, *link.Link) (func(time.Time) error, error)) work {
	controller := s.core.State().Controller
	return s.work(name, step, func(ctx context.Context) (func(time.Time) error, error) {
		l, err := s.way.to(controller)
		if err != nil {
			return nil, err
		}
		return do(ctx, l)
	})
}

// publish shows the state, and writes down for Pallet where the controller is.
func (s *sparkd) publish() {
	state := s.core.State()
	s.board.show(OfSpark(state))
	if state.Controller.Origin.IsZero() || s.known && s.told == state.Controller {
		return
	}
	// Where the disk is full, the next step tries again.
	if err := ControllerFile(s.c.Data).Save(state.Controller); err == nil {
		s.told, s.known = state.Controller, true
	}
}

// The methods of Spark's socket. They are this program's own and none of the contract.
const (
	methodJoin  = "joinNode"
	methodAdopt = "adoptPallet"
	methodMove  = "moveNode"
	methodCheck = "checkNodeCredential"
)

// joinRequest holds a secret: the line's code.
type joinRequest struct {
	Line     zone.Secret
	Hostname string
}

var joins = shaped[joinRequest]{exact.Shape[joinRequest]{Fields: func(o *exact.Object, r *joinRequest) {
	line := r.Line.Reveal()
	exact.Text(o, "line", &line, 1, enroll.MaxJoinLine)
	if !o.Writing() {
		r.Line = zone.Conceal(line)
	}
	exact.Spelled(o, "hostname", &r.Hostname, enroll.MaxHostname, "a host name", enroll.ValidHostname)
}}}

type adoptRequest struct{ Hostname string }

var adopts = shaped[adoptRequest]{exact.Shape[adoptRequest]{Fields: func(o *exact.Object, r *adoptRequest) {
	exact.Spelled(o, "hostname", &r.Hostname, enroll.MaxHostname, "a host name", enroll.ValidHostname)
}}}

type moveRequest struct{ Origin string }

var moves = shaped[moveRequest]{exact.Shape[moveRequest]{Fields: func(o *exact.Object, r *moveRequest) {
	exact.Text(o, "origin", &r.Origin, 1, enroll.MaxOrigin)
}}}

func (s *sparkd) methods() control.Methods {
	return control.Methods{
		methodStatus: answer(nothings, statuses, func(context.Context, nothing) (Status, error) { return s.board.look(), nil }),
		methodJoin: answer(joins, nothings, func(ctx context.Context, r joinRequest) (nothing, error) {
			line, err := enroll.ParseJoinLine(r.Line.Reveal())
			if err != nil {
				return nothing{}, err
			}
			return nothing{}, s.change(ctx, func() error { return s.core.Join(line, r.Hostname) })
		}),
		methodAdopt: answer(adopts, nothings, func(ctx context.Context, r adoptRequest) (nothing, error) {
			return nothing{}, s.change(ctx, func() error { return s.core.Adopt(r.Hostname) })
		}),
		methodMove: answer(moves, nothings, func(ctx context.Context, r moveRequest) (nothing, error) {
			return nothing{}, s.move(ctx, r.Origin)
		}),
		methodCheck: answer(nothings, statuses, func(ctx context.Context, _ nothing) (Status, error) {
			var state spark.State
			if err := s.owner.do(ctx, func() error { state = s.core.State(); return nil }); err != nil {
				return Status{}, err
			}
			if state.Active == nil {
				return Status{}, spark.ErrNotJoined
			}
			return s.board.look(), check(ctx, s.c, state.Controller, state.Active.Who.NodeID, state.Active.Bearer)
		}),
	}
}

// change has somebody's wish done at once.
func (s *sparkd) change(ctx context.Context, f func() error) error {
	return s.owner.do(ctx, func() error {
		err := f()
		if err == nil {
			s.board.forget()
		}
		s.publish()
		return err
	})
}

// move keeps another address of the controller, once the node has found itself there.
func (s *sparkd) move(ctx context.Context, text string) error {
	origin, err := enroll.ParseOrigin(text)
	if err != nil {
		return err
	}
	var state spark.State
	if err := s.owner.do(ctx, func() error { state = s.core.State(); return nil }); err != nil {
		return err
	}
	if state.Active == nil {
		return spark.ErrNotJoined
	}
	to := spark.Controller{Origin: origin, Pin: state.Controller.Pin}
	if err := check(ctx, s.c, to, state.Active.Who.NodeID, state.Active.Bearer); err != nil {
		return err
	}
	return s.change(ctx, func() error { return s.core.Move(to) })
}

// checkTime is how long asking a controller may take for whoever waits at a control
// socket, whose own deadline comes later.
const checkTime = control.Deadline * 3 / 4

// check asks a controller whether a bearer counts, over a connection of its own.
func check(ctx context.Context, c Config, to spark.Controller, node zone.NodeID, b enroll.Bearer) error {
	l, err := link.New(to, c.Clock, c.Rand)
	if err != nil {
		return err
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	r, err := l.Credential(ctx, b)
	switch {
	case err != nil:
		told := refusal.From(err)
		return told.Kind().With(told.Detail()) // its cause may quote an answer
	case r.NodeID != node:
		return ErrMoved
	}
	return nil
}
