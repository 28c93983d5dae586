package ledger

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/binary"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

//go:embed migrations/*.sql
var files embed.FS

// Names of the file and of its schema.
const (
	File = "ledger.db"
	Name = "ledger"
)

// Bounds.
const (
	// MaxTokens bounds what a backend's count is believed.
	MaxTokens = 1 << 40
	// maxText bounds each text of a claim, in bytes.
	maxText = 4096
)

// The windows.
const (
	hour = time.Hour
	day  = 24 * time.Hour
)

// mostLost is how much ledger time a crash can cost while the wall clock is behind.
const mostLost = 10 * time.Minute

// Config says which file to open.
type Config struct {
	// Path is the file. Its folder must exist; the file is made if it is absent,
	// for this user only.
	Path string
	// Clock tells the time, with Go's measured reading in it where the wall clock may
	// be set; nil means time.Now.
	Clock func() time.Time
	// Logger hears of migrations, failures and what was settled; nil means nobody.
	Logger *slog.Logger

	// measured is what only this package's tests change.
	measured func(from, to time.Time) time.Duration
}

// Reader reads the ledger. It may be used by several goroutines.
type Reader struct {
	db    *database.DB
	clock clock
}

// Ledger is the ledger of the process that has the agent's folder. It may be used
// by several goroutines.
type Ledger struct {
	*Reader
	log *slog.Logger
	// kept is the ledger time of the last entry.
	kept atomic.Int64
}

// Open opens the ledger or makes the file. The caller holds the agent's folder,
// so that no other process writes. What an earlier process left is settled: a job
// that never began at nothing, and one that began at its whole reservation, as an
// estimate. It returns the refusals of package database.
func Open(ctx context.Context, c Config) (*Ledger, error) {
	r, err := open(ctx, c)
	if err != nil {
		return nil, err
	}
	l := &Ledger{Reader: r, log: c.Logger}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if err := l.settleLeft(ctx); err != nil {
		_ = r.Close()
		return nil, err
	}
	return l, nil
}

// OpenReader opens the ledger to be read, perhaps while another process writes,
// and settles nothing. It returns fs.ErrNotExist where there is no file yet, and
// the refusals of package database.
func OpenReader(ctx context.Context, c Config) (*Reader, error) {
	if _, err := os.Stat(c.Path); errors.Is(err, fs.ErrNotExist) {
		return nil, fs.ErrNotExist
	}
	return open(ctx, c)
}

func open(ctx context.Context, c Config) (*Reader, error) {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.measured == nil {
		c.measured = measured
	}
	migrations, err := fs.Sub(files, "migrations")
	if err != nil {
		return nil, err
	}
	db, err := database.Open(ctx, database.Config{
		URL: "sqlite:" + c.Path, Name: Name, Migrations: migrations, Clock: c.Clock, Logger: c.Logger, Readers: 1,
	})
	if err != nil {
		return nil, err
	}
	r := &Reader{db: db, clock: clock{read: c.Clock, measured: c.measured}}
	err = db.Read(ctx, func(q database.Queryer) error {
		last, err := lastEntry(ctx, q)
		r.clock.start(last.at)
		return err
	})
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return r, nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.db.Close() }

// Close keeps the time and closes the file. Jobs that have not ended are settled
// when it is next opened.
func (l *Ledger) Close() error {
	err := l.keepTime(context.Background())
	if errors.Is(err, database.ErrClosed) {
		err = nil // a second call does nothing
	}
	return cmp.Or(err, l.Reader.Close())
}

// Ref names one grant. Leases are each server's own.
type Ref struct {
	Server string
	Lease  ai.LeaseID
}

// digest is how a grant is found, in few bytes whatever a server calls it.
func (r Ref) digest() []byte {
	h := sha256.New()
	_ = binary.Write(h, binary.BigEndian, uint64(len(r.Server)))
	h.Write([]byte(r.Server))
	h.Write([]byte(r.Lease))
	return h.Sum(nil)[:16]
}

// Claim is a job that is about to be taken.
type Claim struct {
	Ref
	Job   ai.JobID
	Owner ai.Owner
	// Own is whether the job is of the agent's own owner.
	Own bool
	// Backend is the name that the agent's owner gave it.
	Backend string
	Model   string
	Cost    backend.Cost
	// Hold is the most that the job may cost. It counts on metered backends only,
	// where another's job must have one.
	Hold Money
}

// check refuses a claim that cannot be entered.
func (c Claim) check() error {
	for _, text := range []string{c.Server, string(c.Lease), string(c.Job), string(c.Owner), c.Backend, c.Model} {
		if text == "" || len(text) > maxText {
			return ErrClaim.With("One of its names is empty or longer than 4096 bytes.")
		}
	}
	return c.checkCost()
}

func (c Claim) checkCost() error {
	switch {
	case c.Cost != backend.Free && c.Cost != backend.Metered && c.Cost != backend.Subscription:
		return ErrClaim.With("The cost class of the backend is not known.")
	case c.Cost == backend.Subscription && !c.Own:
		return match.ErrSubscription
	case c.costs() && (c.Hold < 0 || c.Hold > MaxMoney), c.Hold == 0 && c.metered().Valid:
		return ErrClaim.With("The most that the job may cost is missing or out of bounds.")
	}
	return nil
}

// costs reports whether the job costs money at all.
func (c Claim) costs() bool { return c.Cost == backend.Metered }

// metered names the backend if others' money is moved on it.
func (c Claim) metered() sql.NullString {
	return sql.NullString{String: c.Backend, Valid: !c.Own && c.costs()}
}

// Limits are what an owner allows other people, at the moment of asking.
type Limits struct {
	// JobsPerHour and JobsPerDay are over all servers. Zero takes none.
	JobsPerHour, JobsPerDay int
	// Ceiling is what others may spend on the claim's backend within 24 hours. Zero
	// means that they may spend nothing.
	Ceiling Money
}

// Reserve takes room for a job, and returns once that is on the disk. Another
// person's job is refused with [ErrHour], [ErrDay] or match.ErrCeiling, judged in
// this order, with a detail that states limit, used, reserved and reset; the
// refusal's RetryAfter is zero where no time helps. An own job is never refused
// for a limit. The same claim again, before it begins, changes nothing; any
// other use of its lease is [ErrLease]. It also returns [ErrClaim],
// match.ErrSubscription and the refusals of package database.
func (l *Ledger) Reserve(ctx context.Context, c Claim, limits Limits) error {
	if !c.costs() {
		c.Hold = 0
	}
	if err := c.check(); err != nil {
		return err
	}
	err := l.db.Write(ctx, func(tx *database.Tx) error {
		switch j, err := findJob(ctx, tx, c.Ref); {
		case err == nil && j.Claim == c && !j.begun && !j.ended:
			return nil
		case err == nil:
			return ErrLease
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		last, err := lastEntry(ctx, tx)
		if err != nil {
			return err
		}
		at, wall := l.clock.now()
		if !c.Own {
			if err := judge(ctx, tx, moment{at, wall}, last, c, limits); err != nil {
				return err
			}
		}
		result, err := tx.ExecContext(ctx, `INSERT INTO jobs (lease, job, server, owner, own, backend, model, cost, hold)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			c.digest(), string(c.Job), c.Server, string(c.Owner), c.Own, c.Backend, c.Model, string(c.Cost), int64(c.Hold))
		if err != nil {
			return err
		}
		id, err := result.LastInsertId()
		if err != nil {
			return err
		}
		e := entry{at: at, wall: wall, what: "reserved", job: id, balances: last.balances, metered: c.metered(), hold: c.Hold}
		e.open++
		if !c.Own {
			e.waiting++
		}
		return l.append(ctx, tx, e)
	})
	if err != nil {
		_ = l.tick(ctx)
	}
	return err
}

// Begin records that the call of the backend is about to start, and returns once
// that is on the disk. Again, it changes nothing. It returns [ErrLease] for what is
// not reserved or has ended, and the refusals of package database; the call must
// not start then.
func (l *Ledger) Begin(ctx context.Context, r Ref) error {
	return l.change(ctx, r, func(j job, e *entry) error {
		switch {
		case j.ended:
			return ErrLease.With("The job has ended.")
		case j.begun:
			return errNothing
		}
		e.what = "begun"
		e.begin(j)
		return nil
	})
}

// Settlement is what a run used.
type Settlement struct {
	// Prompt and Completion are tokens.
	Prompt, Completion int64
	// Counted is whether the backend counted them; otherwise all is an estimate.
	Counted bool
	// Amount counts on metered backends only.
	Amount Money
}

// Settle records what a job used, whether it ended well or not, and gives back
// what was reserved beyond it. The first settlement counts, and a further one
// changes nothing. A job that was not seen to begin counts as begun then. It
// should be given a context that outlives the job. It returns [ErrLease] for what
// is not reserved or was released, and the refusals of package database; the
// reservation stays then.
func (l *Ledger) Settle(ctx context.Context, r Ref, s Settlement) error {
	return l.change(ctx, r, func(j job, e *entry) error {
		switch {
		case j.released:
			return ErrLease.With("The job was given back.")
		case j.ended:
			return errNothing
		case !j.begun:
			e.begin(j)
		}
		e.settle(j, s)
		return nil
	})
}

// Release records that a job was given back and did not run, which costs nothing.
// Again, it changes nothing. It returns [ErrLease] for what is not reserved or has
// begun, and the refusals of package database; the reservation stays then.
func (l *Ledger) Release(ctx context.Context, r Ref) error {
	return l.change(ctx, r, func(j job, e *entry) error {
		switch {
		case j.released:
			return errNothing
		case j.begun || j.ended:
			return ErrLease.With("The job has begun.")
		}
		e.release(j)
		return nil
	})
}

// errNothing ends a change that is there already.
var errNothing = errors.New("ledger: nothing to change")

// change appends what fn makes of an entry for a job.
func (l *Ledger) change(ctx context.Context, r Ref, fn func(job, *entry) error) error {
	err := l.db.Write(ctx, func(tx *database.Tx) error {
		j, err := findJob(ctx, tx, r)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrLease.With("Nothing is reserved under it.")
		} else if err != nil {
			return err
		}
		last, err := lastEntry(ctx, tx)
		if err != nil {
			return err
		}
		e := entry{job: j.id, balances: last.balances}
		e.at, e.wall = l.clock.now()
		if err := fn(j, &e); err != nil {
			return err
		}
		return l.append(ctx, tx, e)
	})
	if errors.Is(err, errNothing) {
		return nil
	}
	return err
}

// settleLeft ends what an earlier process left.
func (l *Ledger) settleLeft(ctx context.Context) error {
	var begun, never int
	err := l.db.Write(ctx, func(tx *database.Tx) error {
		last, err := lastEntry(ctx, tx)
		if err != nil {
			return err
		}
		l.kept.Store(last.at)
		left, err := jobs(ctx, tx, notEnded, last.open)
		if err != nil {
			return err
		}
		for _, j := range left {
			e := entry{job: j.id, balances: last.balances}
			e.at, e.wall = l.clock.now()
			if j.begun {
				begun++
				e.settle(j, Settlement{Amount: j.Hold})
			} else {
				never++
				e.release(j)
			}
			if err := l.append(ctx, tx, e); err != nil {
				return err
			}
			last.balances = e.balances
		}
		return nil
	})
	if err == nil && begun+never > 0 {
		l.log.WarnContext(ctx, "settled jobs that an earlier process left in the ledger", "begun", begun, "never begun", never)
	}
	return err
}

// tick keeps the time where the wall clock is behind, so that nothing else would
// tell the next process, and a crash would cost more than ten minutes of it.
func (l *Ledger) tick(ctx context.Context) error {
	at, wall := l.clock.now()
	if at-wall < time.Second.Milliseconds() || at-l.kept.Load() <= mostLost.Milliseconds() {
		return nil
	}
	return l.keepTime(ctx)
}

// keepTime writes down ledger time.
func (l *Ledger) keepTime(ctx context.Context) error {
	return l.db.Write(ctx, func(tx *database.Tx) error {
		last, err := lastEntry(ctx, tx)
		if err != nil {
			return err
		}
		e := entry{what: "time", balances: last.balances}
		e.at, e.wall = l.clock.now()
		return l.append(ctx, tx, e)
	})
}
