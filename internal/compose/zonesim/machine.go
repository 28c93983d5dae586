package zonesim

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/node/keep"
	"github.com/allodhq/allod/internal/node/pallet"
	"github.com/allodhq/allod/internal/node/spark"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/methods"
	"github.com/allodhq/allod/wire/zone/rpc"
	wire "github.com/allodhq/allod/wire/zone/spark"
)

// patience is how long a program waits for an answer.
const patience = 5 * time.Second

// What a program gets where the simulation took something.
var (
	errLost = errors.New("zonesim: no answer")
	errDown = errors.New("zonesim: nobody listens")
)

// crashed is what a process panics with that dies in the middle of a step.
type crashed struct{}

// machine is one machine with its two programs.
type machine struct {
	w        *world
	name     string
	clock    time.Duration // by how much it differs
	full     bool          // its disk
	spark    *process[spark.State, *spark.Core]
	pallet   *process[pallet.State, *pallet.Core]
	reported time.Time // when its last report was confirmed
}

func newMachine(w *world, i int) *machine {
	m := &machine{w: w, name: fmt.Sprintf("host%d", i)}
	m.spark = &process[spark.State, *spark.Core]{m: m, name: "spark", shape: spark.Shape, make: spark.New, step: m.stepSpark}
	m.pallet = &process[pallet.State, *pallet.Core]{m: m, name: "pallet", shape: pallet.Shape, make: pallet.New, step: m.stepPallet}
	m.spark.begin()
	m.pallet.begin()
	return m
}

func (m *machine) now() time.Time { return m.w.now.Add(m.clock) }

// node is who the machine is, as far as Spark knows.
func (m *machine) node() zone.NodeID {
	if m.spark.alive() && m.spark.core.State().Active != nil {
		return m.spark.core.State().Active.Who.NodeID
	}
	return ""
}

// process is one program over all its lives, with its disk.
type process[S, C any] struct {
	m     *machine
	name  string
	shape exact.Shape[S]
	make  func(S, func(S) error, io.Reader) C
	step  func()

	disk  []byte
	core  C
	life  int
	down  bool
	busy  bool // it waits for something
	timer int
}

func (p *process[S, C]) alive() bool { return !p.down }

// begin starts a process with what is on its disk.
func (p *process[S, C]) begin() {
	var s S
	if p.disk != nil {
		var err error
		if s, err = p.shape.Read(p.disk, keep.Limits); err != nil {
			p.m.w.wrong(fmt.Errorf("%s cannot read what it wrote: %w", p.m.name, err))
			return
		}
	}
	p.life++
	p.down, p.busy = false, false
	p.core = p.make(s, p.save, p.m.w.random())
	p.wake()
}

// save is the disk: full, or not there any more in the middle of it.
func (p *process[S, C]) save(s S) error {
	w := p.m.w
	if p.m.full {
		return datadir.ErrWrite
	}
	text, err := p.shape.Bytes(s)
	if err != nil {
		w.wrong(fmt.Errorf("%s %s cannot write its state: %w", p.m.name, p.name, err))
		return err
	}
	if w.chance(25) {
		p.crash("before it saved")
		panic(crashed{})
	}
	p.disk = text
	if w.chance(25) {
		p.crash("after it saved")
		panic(crashed{})
	}
	return nil
}

// crash ends a process, which starts again soon.
func (p *process[S, C]) crash(when string) {
	if p.down {
		return
	}
	w := p.m.w
	w.seen.Crashed++
	w.note("%s %s crashes %s", p.m.name, p.name, when)
	p.down = true
	p.life++
	life := p.life
	w.after(time.Duration(100+w.rand.IntN(5000))*time.Millisecond, func() {
		if p.life == life {
			p.begin()
		}
	})
}

// wipe takes a process its disk, as a new installation does.
func (p *process[S, C]) wipe() {
	p.m.w.seen.Wiped++
	p.m.w.note("%s %s is new", p.m.name, p.name)
	p.disk = nil
	p.begin()
}

// leave makes the machine one that was never joined.
func (m *machine) leave() {
	m.spark.wipe()
	m.pallet.wipe()
}

// in runs something in a process, which may die of it.
func (p *process[S, C]) in(do func()) {
	if p.down {
		return
	}
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(crashed); !ok {
				panic(r)
			}
		}
	}()
	do()
}

// wake has a process look what to do, unless it waits for an answer.
func (p *process[S, C]) wake() { p.sleep(0) }

func (p *process[S, C]) sleep(d time.Duration) {
	p.timer++
	life, timer := p.life, p.timer
	p.m.w.after(d, func() {
		if p.life == life && p.timer == timer && !p.busy {
			p.in(p.step)
		}
	})
}

// wait sleeps until the core has something to do.
func (p *process[S, C]) wait(until time.Time) {
	if !until.IsZero() {
		p.sleep(max(until.Sub(p.m.now()), time.Millisecond))
	}
}

// request brings a body to the controller and its answer back, or not.
func (p *process[S, C]) request(beat bool, body []byte, then func(answer []byte, err error)) {
	w := p.m.w
	p.busy = true
	life, open := p.life, true
	done := func(answer []byte, err error) {
		if p.life != life || !open {
			return
		}
		open = false
		p.in(func() {
			p.busy = false
			then(answer, err)
			p.wake()
		})
	}
	if w.away {
		w.after(time.Millisecond, func() { done(nil, errDown) })
		return
	}
	w.after(patience, func() { done(nil, errLost) })
	trip := func() time.Duration {
		if w.chance(30) {
			w.seen.Late++
			return time.Duration(w.rand.IntN(12_000)) * time.Millisecond
		}
		return time.Duration(1+w.rand.IntN(200)) * time.Millisecond
	}
	arrive := func() {
		if w.away {
			return
		}
		w.controller.store.breaks = w.chance(25)
		if w.controller.store.breaks {
			w.seen.Broken++
		}
		answer, err := w.controller.handle(beat, body)
		w.controller.store.breaks = false
		w.wrong(w.checked())
		w.note("%s %s: %d %v", p.m.name, p.name, len(answer), err)
		if w.chance(12) { // the controller crashes after it committed, or the link loses it
			w.seen.Unheard++
			return
		}
		w.after(trip(), func() { done(answer, err) })
	}
	copies := 1
	if w.chance(15) {
		copies = 2
		w.seen.Doubled++
	}
	if w.chance(15) {
		copies = 0
		w.seen.Lost++
	}
	for range copies {
		w.after(trip(), arrive)
	}
}

// checked compares store and model, where something was committed since.
func (w *world) checked() error {
	commits := w.seen.Enrolled + w.seen.Adopted + w.seen.Rotated
	if commits == w.compared {
		return nil
	}
	w.compared = commits
	return w.controller.check()
}

// call makes a typed request.
func call[Req, Res, S, C any](p *process[S, C], m *rpc.Method, in zone.Codec[Req], out zone.Codec[Res], content Req, then func(Res, error)) {
	sent := rpc.Outgoing{Carrier: rpc.HTTP, ID: "1"}
	body, err := rpc.WriteRequest(m, in, content, sent)
	if err != nil {
		p.m.w.wrong(fmt.Errorf("%s cannot be asked: %w", m.Name, err))
		return
	}
	p.request(false, body, func(answer []byte, err error) {
		var res Res
		if err == nil {
			res, err = rpc.ReadAnswer(m, out, answer, sent, enroll.Kinds)
		}
		p.m.w.note("%s %s %s: %v", p.m.name, p.name, m.Name, err)
		then(res, err)
	})
}

// holds has a process show that what it sends is on its disk. It is on the way of
// every secret.
func (p *process[S, C]) holds(b enroll.Bearer) {
	w := p.m.w
	if !strings.Contains(string(p.disk), b.Reveal()) {
		w.wrong(fmt.Errorf("%s %s sends a secret that is not on its disk", p.m.name, p.name))
	}
	if _, known := w.secrets[b.Hash()]; !known {
		w.secrets[b.Hash()] = b
		w.bearers = append(w.bearers, b)
	}
}

// control is an exchange over the control socket.
func control[Req, Res any](m *machine, name string, r Req, ask func(Req) (Res, error), then func(Res, error)) {
	w, p := m.w, m.spark
	p.busy = true
	life := p.life
	done := func(res Res, err error) {
		w.after(time.Millisecond, func() {
			if p.life == life {
				p.in(func() {
					p.busy = false
					w.note("%s %s: %v", m.name, name, err)
					then(res, err)
					p.wake()
				})
			}
		})
	}
	var none Res
	if !m.pallet.alive() || w.chance(20) {
		done(none, errDown)
		return
	}
	w.after(time.Millisecond, func() {
		res, err := none, error(errDown)
		m.pallet.in(func() { res, err = ask(r) })
		m.pallet.wake()
		if !m.pallet.alive() || w.chance(20) {
			res, err = none, errLost
		}
		done(res, err)
	})
}

func (m *machine) join(l enroll.JoinLine) {
	m.spark.in(func() {
		err := m.spark.core.Join(l, m.name)
		m.w.note("%s joins: %v", m.name, err)
	})
	m.spark.wake()
}

func (m *machine) adopt() {
	m.spark.in(func() {
		err := m.spark.core.Adopt(m.name)
		m.w.note("%s adopts: %v", m.name, err)
	})
	m.spark.wake()
}

var bundle = wire.Bundle{Version: "0.1.0", SourceCommit: strings.Repeat("0", 40), ManifestDigest: canon.Sum{1}}

func (m *machine) report() wire.Report {
	return wire.Report{
		ObservedAt: zone.At(m.now()), Load: wire.Load{CPU: 1, Memory: 2, Disk: 3},
		Host: wire.Host{
			Hostname: m.name, Kernel: "6.1", OS: "Linux", Architecture: "amd64", BootID: "b1", CPUs: 1, MemoryBytes: 1, DiskBytes: 1,
		},
		Bundle: bundle,
	}
}

// stepSpark does what Spark's core names.
func (m *machine) stepSpark() {
	p := m.spark
	c := p.core
	step := c.Next(m.now())
	failed := func(err error) {
		if c.Failed(m.now(), step, err) {
			m.w.seen.GaveUp++
			m.w.note("%s gives up: %v", m.name, err)
		}
	}
	switch s := step.(type) {
	case spark.Wait:
		p.wait(s.Until)
	case spark.Look:
		p.holds(s.Bearer)
		call(p, methods.EnrollmentState, enroll.StateRequestCodec, enroll.StateResponseCodec, enroll.StateRequest{Protocol: ours(), Bearer: s.Bearer}, func(r enroll.StateResponse, err error) {
			if err != nil {
				failed(err)
			} else if err := c.Looked(m.now(), r); err != nil {
				m.w.note("%s looked: %v", m.name, err)
			}
		})
	case spark.Prepare:
		control(m, "prepare", enroll.PrepareRequest{}, func(enroll.PrepareRequest) (enroll.PrepareResponse, error) { return m.pallet.core.Prepare() }, func(r enroll.PrepareResponse, err error) {
			if err != nil {
				failed(err)
			} else {
				_ = c.Prepared(m.now(), r)
			}
		})
	case spark.Bind:
		control(m, "bind", s.Request, func(r enroll.BindRequest) (enroll.BindResponse, error) { return m.pallet.core.Bind(r) }, func(r enroll.BindResponse, err error) {
			if err != nil {
				failed(err)
			} else {
				_ = c.Bound(m.now(), r)
			}
		})
	case spark.Enroll:
		p.holds(c.State().Pending.Bearer)
		call(p, methods.EnrollNode, enroll.RequestCodec, enroll.ResponseCodec, enroll.Request{Protocol: ours(), Proposal: s.Proposal, Proof: s.Proof}, func(r enroll.Response, err error) {
			if err != nil {
				failed(err)
			} else {
				_ = c.Enrolled(m.now(), r.Acknowledgement)
			}
		})
	case spark.Activate:
		control(m, "activate", s.Request, func(r enroll.ActivateRequest) (enroll.ActivateResponse, error) { return m.pallet.core.Activate(r) }, func(r enroll.ActivateResponse, err error) {
			if err != nil {
				failed(err)
			} else {
				_ = c.Activated(m.now(), r)
			}
		})
	case spark.Report:
		p.holds(s.Bearer)
		report := m.report()
		body, err := wire.RequestCodec.Append(nil, wire.Request{Bearer: s.Bearer, Protocol: ours(), Report: report})
		m.w.wrong(err)
		p.request(true, body, func(answer []byte, err error) {
			var r wire.Response
			if err == nil {
				r, err = wire.ResponseCodec.Read(answer)
			}
			if err != nil {
				failed(err)
			} else if c.Reported(m.now(), report, r) == nil {
				m.reported = m.w.now
			}
		})
	case spark.Rotate:
		next, _ := c.State().Active.Ask(true)
		p.holds(next)
		p.holds(s.Bearer)
		call(p, methods.RotateCredential, enroll.RotateRequestCodec, enroll.RotateResponseCodec, enroll.RotateRequest{Protocol: ours(), Bearer: s.Bearer, Rotation: s.Rotation}, func(r enroll.RotateResponse, err error) {
			if err != nil {
				failed(err)
			} else {
				_ = c.Rotated(m.now(), r.Receipt)
			}
		})
	}
}

// stepPallet does what Pallet's core names.
func (m *machine) stepPallet() {
	p := m.pallet
	c := p.core
	step := c.Next(m.now())
	failed := func(err error) { c.Failed(m.now(), step, err) }
	switch s := step.(type) {
	case pallet.Wait:
		p.wait(s.Until)
	case pallet.Ask:
		p.holds(s.Bearer)
		call(p, methods.GetCredential, enroll.CredentialRequestCodec, enroll.CredentialResponseCodec, enroll.CredentialRequest{Protocol: ours(), Bearer: s.Bearer}, func(r enroll.CredentialResponse, err error) {
			if err != nil {
				failed(err)
			} else {
				_ = c.Told(m.now(), r)
			}
		})
	case pallet.Rotate:
		next, _ := c.State().Active.Ask(true)
		p.holds(next)
		p.holds(s.Bearer)
		call(p, methods.RotateCredential, enroll.RotateRequestCodec, enroll.RotateResponseCodec, enroll.RotateRequest{Protocol: ours(), Bearer: s.Bearer, Rotation: s.Rotation}, func(r enroll.RotateResponse, err error) {
			if err != nil {
				failed(err)
			} else {
				_ = c.Rotated(m.now(), r.Receipt)
			}
		})
	}
}
