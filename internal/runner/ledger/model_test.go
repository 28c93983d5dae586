package ledger

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

// model is the ledger as a list of what happened. It adds everything up anew
// whenever it is asked.
type model struct {
	*clocks
	// at and kept are ledger time, and how much of it is on the disk.
	at, kept time.Time
	jobs     []*modelJob
	past     []*modelJob // ended so long ago that no window has them
}

type modelJob struct {
	Claim
	begun, ended bool
	released     bool
	begunAt, end time.Time // ledger time
	day          time.Time
	used         Settlement
}

// tell moves ledger time on by what was measured, and up to the wall.
func (m *model) tell(passed time.Duration) {
	m.at = m.at.Add(passed)
	if m.wall.After(m.at) {
		m.at = m.wall
	}
}

func (m *model) tick() {
	if m.at.Sub(m.wall) >= time.Second && m.at.Sub(m.kept) > mostLost {
		m.kept = m.at
	}
}

func (m *model) find(r Ref) *modelJob {
	for _, j := range m.jobs {
		if j.Ref == r {
			return j
		}
	}
	return nil
}

func (m *model) taken(at time.Time) (t Taken) {
	for _, j := range m.jobs {
		switch {
		case j.Own:
		case !j.begun && !j.ended:
			t.Waiting++
		case j.begun:
			if at.Sub(j.begunAt) < time.Hour {
				t.Hour++
			}
			if at.Sub(j.begunAt) < 24*time.Hour {
				t.Day++
			}
		}
	}
	return t
}

func (m *model) money(name string, at time.Time) (used, reserved Money, oldest time.Time) {
	for _, j := range m.jobs {
		switch {
		case j.Own || j.Cost != backend.Metered || j.Backend != name:
		case !j.ended:
			reserved += j.Hold
		case at.Sub(j.end) < 24*time.Hour:
			used += j.used.Amount
			if j.used.Amount > 0 && (oldest.IsZero() || j.end.Before(oldest)) {
				oldest = j.end
			}
		}
	}
	return used, reserved, oldest
}

// rules are asked in this order.
var rules = []struct {
	kind   *refusal.Kind
	passes func(m *model, c Claim, l Limits, at time.Time) bool
}{
	{ErrHour, func(m *model, _ Claim, l Limits, at time.Time) bool {
		t := m.taken(at)
		return t.Hour+t.Waiting < int64(l.JobsPerHour)
	}},
	{ErrDay, func(m *model, _ Claim, l Limits, at time.Time) bool {
		t := m.taken(at)
		return t.Day+t.Waiting < int64(l.JobsPerDay)
	}},
	{match.ErrCeiling, func(m *model, c Claim, l Limits, at time.Time) bool {
		used, reserved, _ := m.money(c.Backend, at)
		return c.Cost != backend.Metered || used+reserved+c.Hold <= l.Ceiling
	}},
}

// decide is which rule refuses another's job, and how long that rule will if
// nothing happens; zero means for ever.
func (m *model) decide(c Claim, l Limits) (*refusal.Kind, time.Duration) {
	for _, rule := range rules {
		if rule.passes(m, c, l, m.at) {
			continue
		}
		var resets []time.Time
		for _, j := range m.jobs {
			resets = append(resets, j.begunAt.Add(time.Hour), j.begunAt.Add(24*time.Hour), j.end.Add(24*time.Hour))
		}
		slices.SortFunc(resets, time.Time.Compare)
		for _, at := range resets {
			if at.After(m.at) && rule.passes(m, c, l, at) {
				return rule.kind, at.Sub(m.at)
			}
		}
		return rule.kind, 0
	}
	return nil, 0
}

func (m *model) open() {
	m.at = m.kept
	m.tell(0)
	for _, j := range m.jobs {
		if j.ended {
			continue
		}
		if j.begun {
			m.settle(j, Settlement{Amount: j.Hold})
		} else {
			j.ended, j.released = true, true
		}
		m.kept = m.at
	}
}

func (m *model) settle(j *modelJob, s Settlement) {
	if !j.begun {
		j.begun, j.begunAt = true, m.at
	}
	if j.Cost != backend.Metered {
		s.Amount = 0
	}
	j.ended, j.end, j.used, j.day = true, m.at, s, m.wall.Truncate(24*time.Hour)
	m.kept = m.at
}

// spent is what [Reader.Spent] is to tell, in no order.
func (m *model) spent() map[string]Row {
	all := map[string]Row{}
	for _, j := range m.past {
		if !j.begun {
			continue
		}
		r := Row{Day: j.day, Backend: j.Backend, Owner: j.Owner, Own: j.Own}
		id := fmt.Sprint(r)
		r = all[id]
		r.Day, r.Backend, r.Owner, r.Own = j.day, j.Backend, j.Owner, j.Own
		r.Jobs++
		r.Prompt += j.used.Prompt
		r.Completion += j.used.Completion
		r.Amount += j.used.Amount
		if !j.used.Counted {
			r.Estimated += j.used.Amount
		}
		all[id] = r
	}
	return all
}

func pick[T any](t *rapid.T, what string, of ...T) T { return rapid.SampledFrom(of).Draw(t, what) }

func drawClaim(t *rapid.T, n int) Claim {
	c := Claim{
		Ref: Ref{pick(t, "server", "x", "y"), ai.LeaseID(fmt.Sprint(n, "-", rapid.IntRange(0, 9).Draw(t, "lease")))},
		Job: pick[ai.JobID](t, "job", "j", "j", "j", "k"), Model: "m", Cost: backend.Metered,
		Hold: Money(rapid.IntRange(1, 12).Draw(t, "hold")), Owner: pick[ai.Owner](t, "owner", "bob", "carol"),
		Backend: pick(t, "backend", "a", "a", "b", "free"),
	}
	if c.Backend == "free" {
		c.Cost, c.Hold = backend.Free, 0
	}
	if pick(t, "own", false, false, false, true) {
		c.Own, c.Owner = true, "alice"
	}
	return c
}

func drawLimits(t *rapid.T) Limits {
	return Limits{
		JobsPerHour: pick(t, "an hour", 0, 1, 2, 3, 4, 4, 9, 9), JobsPerDay: pick(t, "a day", 0, 2, 4, 5, 9, 9),
		Ceiling: pick[Money](t, "ceiling", 0, 5, 10, 20, 20, 40, 40),
	}
}

// casesPerCheck makes 10,000 cases of the 100 checks that rapid does.
const casesPerCheck = 100

// TestModel does what can happen in any order, with clocks that jump, processes
// that end and files that are opened again, and adds every balance up after each
// step.
func TestModel(t *testing.T) {
	n, cases := casesPerCheck, 0
	if raceEnabled {
		n = 5
	}
	dir, checks := memoryDir(t), 0
	rapid.Check(t, func(t *rapid.T) {
		checks++
		c := newClocks()
		path := filepath.Join(dir, fmt.Sprint(checks))
		m := &model{clocks: c}
		l, err := Open(ctx, c.config(path))
		if err != nil {
			t.Fatal(explain(err))
		}
		defer func() { _ = l.Reader.Close() }()
		m.open()
		for i := range n {
			cases++
			for range rapid.IntRange(1, 12).Draw(t, "steps") {
				l = m.step(t, l, path, i)
				m.compare(t, l, i)
			}
			// The next case finds empty windows and nothing open.
			for _, j := range m.jobs {
				if j.ended {
					continue
				}
				if err := l.Settle(ctx, j.Ref, Settlement{Amount: 1}); err != nil {
					t.Fatal(explain(err))
				}
				m.settle(j, Settlement{Amount: 1})
			}
			c.pass(48 * time.Hour)
			m.tell(48 * time.Hour)
			m.past, m.jobs = append(m.past, m.jobs...), nil
			m.compare(t, l, i)
		}
		got, err := l.Spent(ctx, time.Time{})
		if err != nil {
			t.Fatal(explain(err))
		}
		want := m.spent()
		for _, r := range got {
			if w := want[fmt.Sprint(Row{Day: r.Day, Backend: r.Backend, Owner: r.Owner, Own: r.Own})]; w != r {
				t.Fatalf("spent %+v, want %+v", r, w)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%d rows, want %d", len(got), len(want))
		}
	})
	if !raceEnabled && cases < 10_000 {
		t.Errorf("only %d cases", cases)
	}
}

func (m *model) step(t *rapid.T, l *Ledger, path string, n int) *Ledger {
	answer := func(what string, got error, want error) {
		if want == nil && got != nil || want != nil && !errors.Is(got, want) {
			t.Fatalf("%s: got %s\nwant %v", what, explain(got), want)
		}
	}
	switch what := pick(t, "step", "reserve", "reserve", "reserve", "begin", "settle", "release", "pass", "set", "pass", "set", "process ends"); what {
	case "reserve":
		c, limits := drawClaim(t, n), drawLimits(t)
		got := l.Reserve(ctx, c, limits)
		j := m.find(c.Ref)
		switch {
		case j != nil && (j.Claim != c || j.begun || j.ended):
			answer(what, got, ErrLease)
			m.tick()
		case j != nil:
			answer(what, got, nil)
		default:
			if kind, wait := m.decide(c, limits); kind != nil && !c.Own {
				answer(what, got, kind)
				if after := refusal.From(got).RetryAfter(); after != wait {
					t.Fatalf("%s resets after %v, want %v", explain(got), after, wait)
				}
				m.tick()
				break
			}
			answer(what, got, nil)
			m.jobs = append(m.jobs, &modelJob{Claim: c})
			m.kept = m.at
		}
	case "begin", "settle", "release":
		c := drawClaim(t, n)
		// Mostly one that is there.
		if len(m.jobs) > 0 && pick(t, "known", true, true, true, false) {
			c.Ref = m.jobs[len(m.jobs)-1-rapid.IntRange(0, min(5, len(m.jobs)-1)).Draw(t, "which")].Ref
		}
		j := m.find(c.Ref)
		switch what {
		case "begin":
			got := l.Begin(ctx, c.Ref)
			if j == nil || j.ended {
				answer(what, got, ErrLease)
				break
			}
			answer(what, got, nil)
			if !j.begun {
				j.begun, j.begunAt, m.kept = true, m.at, m.at
			}
		case "settle":
			s := Settlement{
				Prompt: rapid.Int64Range(0, 9).Draw(t, "prompt"), Completion: rapid.Int64Range(0, 9).Draw(t, "completion"),
				Counted: rapid.Bool().Draw(t, "counted"), Amount: Money(rapid.IntRange(0, 14).Draw(t, "amount")),
			}
			got := l.Settle(ctx, c.Ref, s)
			if j == nil || j.released {
				answer(what, got, ErrLease)
				break
			}
			answer(what, got, nil)
			if !j.ended {
				m.settle(j, s)
			}
		case "release":
			got := l.Release(ctx, c.Ref)
			if j == nil || j.begun {
				answer(what, got, ErrLease)
				break
			}
			answer(what, got, nil)
			if !j.ended {
				j.ended, j.released, m.kept = true, true, m.at
			}
		}
	case "pass":
		d := pick(t, "time", 0, time.Millisecond, 5*time.Minute, 11*time.Minute, time.Hour-time.Millisecond, time.Hour, 23*time.Hour, 24*time.Hour)
		m.pass(d)
		m.tell(d)
	case "set":
		d := pick(t, "by", time.Millisecond, -time.Millisecond, 999*time.Millisecond, time.Hour, 2*time.Hour, -2*time.Hour, -25*time.Hour, 25*time.Hour, 366*24*time.Hour, -366*24*time.Hour)
		m.set(d)
		m.tell(0)
	case "process ends":
		end := l.Close
		if rapid.Bool().Draw(t, "crash") {
			end = l.Reader.Close
		} else {
			m.kept = m.at
		}
		if err := end(); err != nil {
			t.Fatal(explain(err))
		}
		again, err := Open(ctx, m.config(path))
		if err != nil {
			t.Fatal(explain(err))
		}
		l = again
		m.open()
	}
	return l
}

// compare asks for every balance.
func (m *model) compare(t *rapid.T, l *Ledger, n int) {
	taken, err := l.Taken(ctx)
	if want := m.taken(m.at); err != nil || taken != want {
		t.Fatalf("%+v, want %+v: %s", taken, want, explain(err))
	}
	limits := drawLimits(t)
	for _, name := range []string{"a", pick(t, "other", "b", "b", "free", "absent")} {
		used, reserved, oldest := m.money(name, m.at)
		want := Balance{Limit: limits.Ceiling, Used: used, Reserved: reserved}
		if used > 0 {
			want.Reset = m.wall.Add(oldest.Add(24 * time.Hour).Sub(m.at)).Add(time.Minute - time.Nanosecond).Truncate(time.Minute)
		}
		got, err := l.Balance(ctx, name, limits)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: %+v, want %+v: %s", name, got, want, explain(err))
		}
	}
	c := drawClaim(t, n)
	kind, wait := m.decide(c, limits)
	err = l.Room(ctx, c, limits)
	m.tick()
	if kind == nil {
		if err != nil {
			t.Fatalf("there is room, but: %s", explain(err))
		}
		return
	}
	if !errors.Is(err, kind) || refusal.From(err).RetryAfter() != wait {
		t.Fatalf("got %s after %v\nwant %v after %v", explain(err), refusal.From(err).RetryAfter(), kind, wait)
	}
}
