package daemon

import (
	"context"
	"time"

	"github.com/allodhq/allod/internal/killpoint"
	"github.com/allodhq/allod/internal/node/control"
	"github.com/allodhq/allod/internal/node/link"
	"github.com/allodhq/allod/internal/node/pallet"
	"github.com/allodhq/allod/wire/zone/enroll"
)

// palletd is Pallet's process.
type palletd struct {
	c     Config
	core  *pallet.Core
	owner *owner
	board *board
	way   way
}

// Pallet runs Pallet until ctx ends. It returns the refusals of datadir, keep and
// control, and then nothing was changed.
func Pallet(ctx context.Context, c Config) error {
	release, err := lock(c.Data, palletFolder)
	if err != nil {
		return err
	}
	defer release()
	file := PalletFile(c.Data)
	state, err := file.Load()
	if err != nil {
		return err
	}
	p := &palletd{c: c, owner: newOwner(c.Clock), board: &board{log: c.Log, clock: c.Clock}, way: way{c: c}}
	defer p.way.close()
	p.core = pallet.New(state, file.Save, c.Rand)
	p.core.Every(killpoint.Interval(pallet.Poll))
	p.board.show(OfPallet(state))
	end, err := serve(ctx, c.Socket, c.Log, p.methods())
	if err != nil {
		return err
	}
	defer end()
	c.Log.Info("pallet runs", "phase", string(OfPallet(state).Phase))
	p.owner.run(ctx, p.next)
	return nil
}

func (p *palletd) next(now time.Time) (work, time.Time) {
	step := p.core.Next(now)
	p.board.show(OfPallet(p.core.State()))
	switch step := step.(type) {
	case pallet.Wait:
		return nil, step.Until
	case pallet.Ask:
		return p.call(stepAsk, step, func(ctx context.Context, l *link.Link) (func(time.Time) error, error) {
			r, err := l.Credential(ctx, step.Bearer)
			return func(now time.Time) error { return p.core.Told(now, r) }, err
		}), time.Time{}
	case pallet.Rotate:
		killpoint.At(killpoint.PalletRenewed)
		return p.call(stepRotate, step, func(ctx context.Context, l *link.Link) (func(time.Time) error, error) {
			r, err := l.Rotate(ctx, step.Bearer, step.Rotation)
			if err == nil {
				killpoint.At(killpoint.PalletRotated)
			}
			return func(now time.Time) error { return p.core.Rotated(now, r) }, err
		}), time.Time{}
	}
	panic("daemon: a step of Pallet that nobody takes")
}

// call asks the controller and feeds what came of it.
func (p *palletd) call(name string, step pallet.Step, do func(context.Context, *link.Link) (func(time.Time) error, error)) work {
	return func(ctx context.Context) func() {
		p.board.begin(name)
		var apply func(time.Time) error
		l, err := p.link()
		if err == nil {
			apply, err = do(ctx, l)
		}
		interrupted := ctx.Err() != nil
		return func() {
			now := p.c.Clock()
			if err == nil {
				err = apply(now)
			} else {
				p.core.Failed(now, step, err)
			}
			if err != nil && interrupted {
				p.board.begin("")
			} else {
				p.board.ended(name, err, false)
			}
			p.board.show(OfPallet(p.core.State()))
		}
	}
}

// link is the way to where Spark says that the controller is.
func (p *palletd) link() (*link.Link, error) {
	to, err := ControllerFile(p.c.Data).Load()
	switch {
	case err != nil:
		return nil, err
	case to.Origin.IsZero():
		return nil, ErrController
	}
	return p.way.to(to)
}

func (p *palletd) methods() control.Methods {
	return control.Methods{
		enroll.MethodPalletPrepare: answer(enroll.PrepareRequestCodec, enroll.PrepareResponseCodec, func(ctx context.Context, _ enroll.PrepareRequest) (r enroll.PrepareResponse, err error) {
			err = p.change(ctx, func() (err error) { r, err = p.core.Prepare(); return err })
			killpoint.At(killpoint.PalletPrepared)
			return r, err
		}),
		enroll.MethodPalletBind: answer(enroll.BindRequestCodec, enroll.BindResponseCodec, func(ctx context.Context, q enroll.BindRequest) (r enroll.BindResponse, err error) {
			err = p.change(ctx, func() (err error) { r, err = p.core.Bind(q); return err })
			killpoint.At(killpoint.PalletBound)
			return r, err
		}),
		enroll.MethodPalletActivate: answer(enroll.ActivateRequestCodec, enroll.ActivateResponseCodec, func(ctx context.Context, q enroll.ActivateRequest) (r enroll.ActivateResponse, err error) {
			err = p.change(ctx, func() (err error) { r, err = p.core.Activate(q); return err })
			killpoint.At(killpoint.PalletActivated)
			return r, err
		}),
		methodStatus: answer(nothings, statuses, func(context.Context, nothing) (Status, error) { return p.board.look(), nil }),
		methodCheck: answer(nothings, statuses, func(ctx context.Context, _ nothing) (Status, error) {
			var state pallet.State
			if err := p.owner.do(ctx, func() error { state = p.core.State(); return nil }); err != nil {
				return Status{}, err
			}
			to, err := ControllerFile(p.c.Data).Load()
			switch {
			case err != nil:
				return Status{}, err
			case state.Active == nil, to.Origin.IsZero():
				return Status{}, ErrController
			}
			return p.board.look(), check(ctx, p.c, to, state.Active.Who.NodeID, state.Active.Bearer)
		}),
	}
}

// change has a request of the installer's done at once.
func (p *palletd) change(ctx context.Context, f func() error) error {
	return p.owner.do(ctx, func() error {
		err := f()
		p.board.show(OfPallet(p.core.State()))
		return err
	})
}
