package zonesim

import (
	"container/heap"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"time"

	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/nodes"
)

// Options say what to run. The zero value of each is its default.
type Options struct {
	// Nodes is how many machines there are: 20.
	Nodes int
	// Storm and Calm are how long there is trouble, and how long there is none after
	// that: 70 seconds and 150 seconds.
	Storm, Calm time.Duration
	// Log, if set, gets every event.
	Log io.Writer
}

// Seen counts what happened, so that a test can tell a run in which nothing did.
type Seen struct {
	Events, Enrolled, Adopted, Rotated, Reported, Replayed            int
	Lost, Unheard, Doubled, Late, Broken, Crashed, Full, Jumped, Away int
	Asked, Removed, Parted, Invited, GaveUp, Wiped, Foreign           int
}

// Run runs one seed, and returns the hash of everything that happened. Its error is
// the first thing that was wrong.
func Run(seed uint64, o Options) (trace string, seen Seen, err error) {
	if o.Nodes == 0 {
		o.Nodes = 20
	}
	if o.Storm == 0 {
		o.Storm = 70 * time.Second
	}
	if o.Calm == 0 {
		o.Calm = 150 * time.Second
	}
	w := &world{
		rand: rand.New(rand.NewPCG(seed, 41)), now: time.UnixMilli(1_700_000_000_000), trace: sha256.New(), log: o.Log,
		storm: true, secrets: map[enroll.CredentialHash]enroll.Bearer{},
	}
	if w.controller, err = newController(w); err != nil {
		return "", w.seen, err
	}
	w.start = w.now
	for i := range o.Nodes {
		m := newMachine(w, i)
		w.machines = append(w.machines, m)
		w.after(time.Duration(w.rand.IntN(40_000))*time.Millisecond, func() { w.join(m) })
	}
	w.after(time.Second, w.trouble)
	if err := w.until(o.Storm); err != nil {
		return "", w.seen, err
	}
	w.calm()
	for range 4 {
		w.tend()
		if err := w.until(o.Calm / 8); err != nil {
			return "", w.seen, err
		}
	}
	w.controller.nodes = w.controller.settled
	if err := w.until(o.Calm / 2); err != nil {
		return "", w.seen, err
	}
	return hex.EncodeToString(w.trace.Sum(nil)[:8]), w.seen, w.end()
}

// world is one run.
type world struct {
	rand       *rand.Rand
	start, now time.Time
	queue      queue
	order      int
	storm      bool
	away       bool // the controller cannot be reached
	controller *controller
	machines   []*machine
	secrets    map[enroll.CredentialHash]enroll.Bearer
	bearers    []enroll.Bearer // every one that was ever sent
	mutations  int
	seen       Seen
	compared   int // how many commits were compared
	failed     error
	trace      hash.Hash
	log        io.Writer
}

// random is randomness from the seed, for whoever reads bytes.
func (w *world) random() io.Reader {
	return rand.NewChaCha8([32]byte{byte(w.rand.Uint32()), byte(w.rand.Uint32()), byte(w.rand.Uint32()), byte(w.rand.Uint32())})
}

// wrong keeps the first thing that was.
func (w *world) wrong(err error) {
	if err != nil && w.failed == nil {
		w.failed = fmt.Errorf("%s into the run: %w", w.now.Sub(w.start), err)
	}
}

func (w *world) note(format string, args ...any) {
	line := fmt.Sprintf("%d "+format+"\n", append([]any{w.now.Sub(w.start).Milliseconds()}, args...)...)
	_, _ = io.WriteString(w.trace, line)
	if w.log != nil {
		_, _ = io.WriteString(w.log, line)
	}
}

// chance is true once in n times while there is trouble.
func (w *world) chance(n int) bool { return w.storm && w.rand.IntN(n) == 0 }

type due struct {
	at    time.Time
	order int
	do    func()
}

type queue []due

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at.Before(q[j].at) || q[i].at.Equal(q[j].at) && q[i].order < q[j].order
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(due)) }
func (q *queue) Pop() any {
	last := len(*q) - 1
	d := (*q)[last]
	*q = (*q)[:last]
	return d
}

// after has something done later.
func (w *world) after(d time.Duration, do func()) {
	w.order++
	heap.Push(&w.queue, due{w.now.Add(max(d, 0)), w.order, do})
}

// until lets time pass, and looks after each event whether everything is right.
func (w *world) until(d time.Duration) error {
	end := w.now.Add(d)
	for len(w.queue) > 0 && !w.queue[0].at.After(end) {
		e := heap.Pop(&w.queue).(due)
		w.now = e.at
		e.do()
		w.seen.Events++
		if w.seen.Events > 200_000 {
			w.wrong(errors.New("somebody asks without a pause"))
		}
		if w.failed != nil {
			return w.failed
		}
	}
	w.now = end
	return nil
}

// trouble is what happens to machines, and what the operator does meanwhile.
func (w *world) trouble() {
	if !w.storm {
		return
	}
	w.after(time.Duration(w.rand.IntN(2500))*time.Millisecond, w.trouble)
	m := w.machines[w.rand.IntN(len(w.machines))]
	switch w.rand.IntN(14) {
	case 0, 1:
		m.spark.crash("by chance")
	case 2:
		m.pallet.crash("by chance")
	case 3:
		m.full = !m.full
		w.seen.Full++
		w.note("%s full %v", m.name, m.full)
	case 4:
		m.clock += time.Duration(w.rand.IntN(7200)-3600) * time.Second
		w.seen.Jumped++
		w.note("%s clock %s", m.name, m.clock)
		m.spark.wake()
		m.pallet.wake()
	case 5, 6, 7:
		w.ask(m)
	case 8:
		if w.rand.IntN(3) == 0 {
			w.remove(m, false)
			m.leave()
			w.later(func() { w.join(m) })
		}
	case 9:
		w.part(m)
	case 10:
		if w.rand.IntN(3) == 0 {
			w.seen.Away++
			w.away = true
			w.note("away")
			w.after(time.Duration(w.rand.IntN(15_000))*time.Millisecond, func() { w.away = false })
		}
	case 11, 12:
		w.join(m)
	case 13:
		w.foreign(m)
	}
}

func (w *world) later(do func()) {
	w.after(time.Duration(w.rand.IntN(10_000))*time.Millisecond, do)
}

// calm ends all trouble.
func (w *world) calm() {
	w.storm, w.away = false, false
	w.note("calm")
	for _, m := range w.machines {
		m.full, m.clock = false, 0
		m.spark.wake()
		m.pallet.wake()
	}
}

// tend is what an operator does who looks at the machines: invite again who gave up
// or was removed, and adopt where Pallet is missing. It helps nobody else: who was
// admitted and is shut out stays so, and the run fails.
func (w *world) tend() {
	for _, m := range w.machines {
		if !m.spark.alive() || !m.pallet.alive() {
			continue
		}
		s := m.spark.core.State()
		switch id := m.node(); {
		case s.Active == nil && s.Pending == nil:
			m.pallet.wipe()
			w.join(m)
		case id != "" && w.controller.model.nodes[id].removed:
			m.leave()
			w.join(m)
		case id != "" && s.Pending == nil && w.controller.model.nodes[id].pallet == nil:
			m.pallet.wipe()
			m.adopt()
		case id != "" && s.Pending == nil && m.pallet.core.State().Active == nil:
			w.part(m) // its Pallet was wiped after it had been admitted
		case s.Pending != nil && s.Pending.Acknowledged != nil && m.pallet.alive() && m.pallet.core.State().Bound == nil && m.pallet.core.State().Active == nil:
			w.part(m)
		}
	}
}

// line is a new join line.
func (w *world) line() (enroll.JoinLine, bool) {
	w.controller.store.breaks = w.chance(10)
	a, err := w.controller.nodes.Invite(context.Background(), local, nodes.Invite{Cluster: "c1"})
	w.controller.store.breaks = false
	if err != nil {
		if !broke(err) {
			w.wrong(err)
		}
		return enroll.JoinLine{}, false
	}
	w.seen.Invited++
	w.controller.model.audit++
	l, err := enroll.ParseJoinLine(a.Line.Reveal())
	w.wrong(err)
	w.controller.model.invitations[l.Code.Hash()] = &invitation{expires: a.ExpiresAt}
	return l, true
}

// join has a machine joined which is no node and has nothing on its way, or, now and
// then, in spite of what it has on its way.
func (w *world) join(m *machine) {
	if !m.spark.alive() || m.spark.core.State().Active != nil || m.spark.core.State().Pending != nil {
		return
	}
	if l, ok := w.line(); ok {
		wait := time.Duration(0)
		if w.chance(12) {
			wait = 61 * time.Second // until the line has expired
		}
		w.after(wait, func() { m.join(l) })
	}
}

// foreign gives a machine a line that another one was given as well.
func (w *world) foreign(m *machine) {
	other := w.machines[w.rand.IntN(len(w.machines))]
	if !other.spark.alive() || other.spark.core.State().Pending == nil || other.spark.core.State().Pending.Code.IsZero() || m == other ||
		!m.spark.alive() || m.spark.core.State().Active != nil || m.spark.core.State().Pending != nil {
		return
	}
	at, _ := enroll.ParseOrigin(origin)
	w.seen.Foreign++
	m.join(enroll.JoinLine{Origin: at, Code: other.spark.core.State().Pending.Code})
}

func (w *world) mutation() zone.MutationID {
	w.mutations++
	return zone.MutationID(fmt.Sprintf("m%d", w.mutations))
}

// twice asks for a change, and sometimes once more, which must answer the same and
// change nothing.
func (w *world) twice(what string, m *machine, ask func() (nodes.Answer, error), changes func()) {
	w.controller.store.breaks = w.chance(10)
	a, err := ask()
	w.controller.store.breaks = false
	w.note("%s %s: %v", what, m.name, err)
	if err != nil {
		if !broke(err) {
			w.wrong(fmt.Errorf("%s: %w", what, err))
		}
		return
	}
	w.controller.model.audit++
	changes()
	again := func() {
		b, err := ask()
		first, _ := nodes.AnswerCodec.Append(nil, a)
		second, _ := nodes.AnswerCodec.Append(nil, b)
		if err != nil || string(first) != string(second) {
			w.wrong(fmt.Errorf("%s answered %v the second time", what, err))
		}
	}
	if w.chance(3) {
		w.later(again)
	}
}

func (w *world) living(m *machine) (zone.NodeID, bool) {
	id := m.node()
	n := w.controller.model.nodes[id]
	return id, n != nil && !n.removed
}

// ask has the operator ask for new credentials.
func (w *world) ask(m *machine) {
	id, ok := w.living(m)
	if !ok {
		return
	}
	w.seen.Asked++
	r := nodes.Rotate{Node: id, Mutation: w.mutation()}
	w.twice("rotate", m, func() (nodes.Answer, error) { return w.controller.nodes.AskRotation(context.Background(), local, r) }, func() {})
}

// remove has the operator remove a node, or its Pallet.
func (w *world) remove(m *machine, palletOnly bool) bool {
	id, ok := w.living(m)
	if !ok {
		return false
	}
	done := false
	r := nodes.Remove{Node: id, PalletOnly: palletOnly, Mutation: w.mutation()}
	w.twice("remove", m, func() (nodes.Answer, error) { return w.controller.nodes.Remove(context.Background(), local, r) }, func() {
		done = true
		n := w.controller.model.nodes[id]
		n.pallet = nil
		if !palletOnly {
			w.seen.Removed++
			n.spark, n.removed = nil, true
		}
	})
	return done
}

// part has the operator remove a Pallet, and give the machine a new one.
func (w *world) part(m *machine) {
	if !m.spark.alive() || m.spark.core.State().Active == nil || !w.remove(m, true) {
		return
	}
	w.seen.Parted++
	m.pallet.wipe()
	w.later(m.adopt)
}

// end holds that everybody who could join has, and agrees with the controller.
func (w *world) end() error {
	c := w.controller
	w.wrong(c.check())
	nodesOf := map[zone.NodeID]string{}
	for _, m := range w.machines {
		s, p := m.spark.core.State(), m.pallet.core.State()
		if s.Active == nil || s.Pending != nil || p.Active == nil {
			w.wrong(fmt.Errorf("%s has not joined: active %v, pending %+v, pallet %v", m.name, s.Active != nil, s.Pending, p.Active != nil))
			continue
		}
		id := s.Active.Who.NodeID
		if other, taken := nodesOf[id]; taken {
			w.wrong(fmt.Errorf("%s and %s are one node", m.name, other))
		}
		nodesOf[id] = m.name
		n := c.model.nodes[id]
		for _, own := range []struct {
			a    *authority
			who  enroll.Identity
			hash enroll.CredentialHash
		}{{n.spark, s.Active.Who, s.Active.Bearer.Hash()}, {n.pallet, p.Active.Who, p.Active.Bearer.Hash()}} {
			if own.a == nil || own.who.NodeID != id || own.a.generation != own.who.Generation || own.a.epoch != own.who.SessionEpoch || own.a.hash != own.hash {
				w.wrong(fmt.Errorf("%s is %+v, and the controller has %s", m.name, own.who, own.a))
			}
		}
		if w.now.Sub(m.reported) > 30*time.Second {
			w.wrong(fmt.Errorf("%s has not reported for %s", m.name, w.now.Sub(m.reported)))
		}
	}
	// Nobody else has a credential that counts, whatever was ever sent.
	for _, b := range w.bearers {
		_, _, err := c.nodes.Credential(context.Background(), b)
		if _, a := c.model.current(b.Hash()); (a != nil) != (err == nil) {
			w.wrong(fmt.Errorf("a bearer of the past: %v", err))
		}
	}
	return w.failed
}
