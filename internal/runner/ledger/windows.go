package ledger

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai/match"
)

// moment is one moment in ledger time and by the clock on the wall.
type moment struct{ at, wall int64 }

// start is the ledger time after which a window begins.
func (m moment) start(window time.Duration) int64 { return m.at - window.Milliseconds() }

// wait is how long it takes until what stood at a ledger time leaves a window.
func (m moment) wait(at int64, window time.Duration) time.Duration {
	return time.Duration(max(at-m.start(window), 0)) * time.Millisecond
}

// later is when a wait is over, by the clock on the wall and to the minute.
func (m moment) later(wait time.Duration) time.Time {
	t := time.UnixMilli(m.wall).Add(wait).UTC()
	if whole := t.Truncate(time.Minute); !whole.Equal(t) {
		return whole.Add(time.Minute)
	}
	return t
}

// judge refuses another person's job for which there is no room.
func judge(ctx context.Context, q database.Queryer, now moment, l last, c Claim, limits Limits) error {
	if err := judgeJobs(ctx, q, now, l, ErrHour, limits.JobsPerHour, hour, "an hour"); err != nil {
		return err
	}
	if err := judgeJobs(ctx, q, now, l, ErrDay, limits.JobsPerDay, day, "24 hours"); err != nil {
		return err
	}
	if !c.costs() {
		return nil
	}
	return judgeMoney(ctx, q, now, c.Backend, c.Hold, limits.Ceiling)
}

// How many of others' jobs had ever begun when a window began, and when within a
// window it came to be at least so many.
const (
	begunBeforeQuery = `SELECT begun FROM entries WHERE begins = 1 AND at <= ? ORDER BY at DESC, seq DESC LIMIT 1`
	begunAtQuery     = `SELECT at FROM entries WHERE begins = 1 AND at > ? AND begun >= ? ORDER BY at, seq LIMIT 1`
)

// The same of what others had ever spent on a backend.
const (
	spentBeforeQuery = `SELECT spent FROM entries WHERE metered = ? AND at <= ? ORDER BY at DESC, seq DESC LIMIT 1`
	spentAtQuery     = `SELECT at FROM entries WHERE metered = ? AND at > ? AND spent >= ? ORDER BY at, seq LIMIT 1`
)

// before runs one of the queries for when a window began.
func before(ctx context.Context, q database.Queryer, query string, args ...any) (n int64, err error) {
	err = q.QueryRowContext(ctx, query, args...).Scan(&n)
	return n, orNone(err)
}

func judgeJobs(ctx context.Context, q database.Queryer, now moment, l last, kind *refusal.Kind, most int, window time.Duration, words string) error {
	started, err := before(ctx, q, begunBeforeQuery, now.start(window))
	if err != nil {
		return err
	}
	limit, used := int64(max(most, 0)), l.begun-started
	if used+l.waiting < limit {
		return nil
	}
	detail := fmt.Sprintf("The limit is %s within %s; %d used and %d reserved.", count(limit), words, used, l.waiting)
	switch {
	case limit == 0:
		return kind.With(detail + " It does not reset.")
	case l.waiting >= limit:
		return kind.With(detail + " It resets when a reserved job is given back.")
	}
	var at int64 // when that began which must leave the window
	err = q.QueryRowContext(ctx, begunAtQuery, now.start(window), started+used+l.waiting-limit+1).Scan(&at)
	if err != nil {
		return err
	}
	return resets(kind, detail, now, now.wait(at, window))
}

func count(jobs int64) string {
	if jobs == 1 {
		return "1 job"
	}
	return fmt.Sprintf("%d jobs", jobs)
}

func resets(kind *refusal.Kind, detail string, now moment, wait time.Duration) error {
	return kind.With(fmt.Sprintf("%s It resets at %s UTC.", detail, now.later(wait).Format("2006-01-02 15:04"))).After(wait)
}

func judgeMoney(ctx context.Context, q database.Queryer, now moment, backend string, hold, ceiling Money) error {
	limit := int64(ceiling.bounded())
	m, err := moneyOf(ctx, q, backend)
	if err != nil {
		return err
	}
	started, err := before(ctx, q, spentBeforeQuery, backend, now.start(day))
	if err != nil {
		return err
	}
	used := m.spent - started
	// Compared by what is left, since the sum of all might overflow.
	left := limit - used
	if left >= 0 && m.reserved <= left && int64(hold) <= left-m.reserved {
		return nil
	}
	kind := match.ErrCeiling
	detail := fmt.Sprintf("The limit is %v within 24 hours; %v used and %v reserved, and this job may cost %v.",
		Money(limit), Money(used), Money(m.reserved), hold)
	switch {
	case limit == 0:
		return kind.With(detail + " It does not reset.")
	case int64(hold) > limit:
		return kind.With(detail + " It does not reset for a job that may cost so much.")
	case m.reserved > limit-int64(hold):
		return kind.With(detail + " It resets when jobs that run have ended.")
	}
	var at int64 // when that was spent which must leave the window
	err = q.QueryRowContext(ctx, spentAtQuery, backend, now.start(day), started+used-(limit-int64(hold)-m.reserved)).Scan(&at)
	if err != nil {
		return err
	}
	return resets(kind, detail, now, now.wait(at, day))
}

// Room tells, without taking any, whether another person's job would have room
// now: nil, or the refusal that [Ledger.Reserve] would return. Of the claim it
// looks at Backend, Cost and Hold, and not at whose it is. It also returns the
// refusals of package database.
func (r *Reader) Room(ctx context.Context, c Claim, limits Limits) error {
	c.Own = false
	if err := c.checkCost(); err != nil {
		return err
	}
	return r.db.Read(ctx, func(q database.Queryer) error {
		l, err := lastEntry(ctx, q)
		if err != nil {
			return err
		}
		at, wall := r.clock.now()
		return judge(ctx, q, moment{at, wall}, l, c, limits)
	})
}

// Room is as in [Reader]. It also writes down ledger time of which a crash would
// cost more than ten minutes, since an agent may ask for nothing else while there
// is no room.
func (l *Ledger) Room(ctx context.Context, c Claim, limits Limits) error {
	return cmp.Or(l.Reader.Room(ctx, c, limits), l.tick(ctx))
}

// Balance is others' money on one backend.
type Balance struct {
	Limit, Used, Reserved Money
	// Reset is when the oldest of Used leaves the 24 hours, by the clock on the
	// wall; zero if nothing is used.
	Reset time.Time
}

// Balance tells others' money on one backend. It returns the refusals of package
// database.
func (r *Reader) Balance(ctx context.Context, backend string, limits Limits) (b Balance, err error) {
	err = r.db.Read(ctx, func(q database.Queryer) error {
		m, err := moneyOf(ctx, q, backend)
		if err != nil {
			return err
		}
		at, wall := r.clock.now()
		now := moment{at, wall}
		started, err := before(ctx, q, spentBeforeQuery, backend, now.start(day))
		if err != nil {
			return err
		}
		b = Balance{Limit: limits.Ceiling.bounded(), Used: Money(m.spent - started), Reserved: Money(m.reserved)}
		if b.Used == 0 {
			return nil
		}
		var first int64
		err = q.QueryRowContext(ctx, spentAtQuery, backend, now.start(day), started+1).Scan(&first)
		b.Reset = now.later(now.wait(first, day))
		return err
	})
	return b, err
}

// Taken is how many of others' jobs were taken, over all servers.
type Taken struct {
	// Hour and Day are those that began within the last hour and the last 24 hours.
	Hour, Day int64
	// Waiting are those that are reserved and have not begun.
	Waiting int64
}

// Taken tells how many of others' jobs were taken. It returns the refusals of
// package database.
func (r *Reader) Taken(ctx context.Context) (t Taken, err error) {
	err = r.db.Read(ctx, func(q database.Queryer) error {
		l, err := lastEntry(ctx, q)
		if err != nil {
			return err
		}
		at, wall := r.clock.now()
		now := moment{at, wall}
		inHour, err := before(ctx, q, begunBeforeQuery, now.start(hour))
		if err != nil {
			return err
		}
		inDay, err := before(ctx, q, begunBeforeQuery, now.start(day))
		t = Taken{Hour: l.begun - inHour, Day: l.begun - inDay, Waiting: l.waiting}
		return err
	})
	return t, err
}
