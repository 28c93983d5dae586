package ledger

import (
	"context"
	"database/sql"
	"errors"

	"github.com/allodhq/allod/internal/database"
)

// balances are what each entry says of all jobs.
type balances struct{ open, waiting, begun int64 }

// entry is one line of the ledger.
type entry struct {
	at, wall int64
	what     string
	job      int64 // zero for none
	used     Settlement
	balances
	begins bool
	// metered is the backend on which others' money is moved, hold is what is
	// reserved more there; what is spent more is in used.
	metered sql.NullString
	hold    Money
}

// begin makes the entry one with which the job begins.
func (e *entry) begin(j job) {
	if j.Own {
		return
	}
	e.waiting--
	e.begun++
	e.begins = true
}

// settle makes the entry the end of a job that began.
func (e *entry) settle(j job, s Settlement) {
	e.what = "settled"
	s.Prompt, s.Completion = min(max(s.Prompt, 0), MaxTokens), min(max(s.Completion, 0), MaxTokens)
	s.Amount = s.Amount.bounded()
	if !j.costs() {
		s.Amount = 0
	}
	e.used = s
	e.end(j)
}

// release makes the entry the end of a job that never began.
func (e *entry) release(j job) {
	e.what = "released"
	e.used.Counted = true
	if !j.Own {
		e.waiting--
	}
	e.end(j)
}

func (e *entry) end(j job) {
	e.open--
	e.metered, e.hold = j.metered(), -j.Hold
}

// append writes an entry after the last one.
func (l *Ledger) append(ctx context.Context, tx *database.Tx, e entry) error {
	var reserved, spent sql.NullInt64
	if e.metered.Valid {
		m, err := moneyOf(ctx, tx, e.metered.String)
		if err != nil {
			return err
		}
		// The schema refuses what would be negative, an overflow among it.
		reserved = sql.NullInt64{Int64: m.reserved + int64(e.hold), Valid: true}
		spent = sql.NullInt64{Int64: m.spent + int64(e.used.Amount), Valid: true}
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO entries (at, wall, what, job, prompt, completion, amount, estimated,
		open, waiting, begun, begins, metered, reserved, spent) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		e.at, e.wall, e.what, sql.NullInt64{Int64: e.job, Valid: e.job != 0},
		e.used.Prompt, e.used.Completion, int64(e.used.Amount), e.what == "settled" && !e.used.Counted,
		e.open, e.waiting, e.begun, e.begins, e.metered, reserved, spent)
	if err == nil {
		l.kept.Store(e.at)
	}
	return err
}

// last is the newest entry, or what is before the first.
type last struct {
	at int64
	balances
}

const lastQuery = `SELECT at, open, waiting, begun FROM entries ORDER BY seq DESC LIMIT 1`

func lastEntry(ctx context.Context, q database.Queryer) (l last, err error) {
	err = q.QueryRowContext(ctx, lastQuery).Scan(&l.at, &l.open, &l.waiting, &l.begun)
	return l, orNone(err)
}

// orNone takes no row for zeros.
func orNone(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

// money is others' money on one backend.
type money struct{ reserved, spent int64 }

const moneyQuery = `SELECT reserved, spent FROM entries WHERE metered = ? ORDER BY at DESC, seq DESC LIMIT 1`

func moneyOf(ctx context.Context, q database.Queryer, backend string) (m money, err error) {
	err = q.QueryRowContext(ctx, moneyQuery, backend).Scan(&m.reserved, &m.spent)
	return m, orNone(err)
}

// job is a job that was reserved.
type job struct {
	id int64
	Claim
	begun, ended, released bool
}

// What is read of a job, and which one is.
const (
	jobsQuery = `SELECT id, job, server, owner, own, backend, model, cost, hold,
		EXISTS (SELECT 1 FROM entries WHERE job = jobs.id AND what = 'begun'),
		(SELECT what FROM entries WHERE job = jobs.id AND what IN ('settled', 'released'))
		FROM jobs WHERE `
	byLease = `lease = ?`
	// Those that have not ended are among the newest.
	notEnded = `NOT EXISTS (SELECT 1 FROM entries WHERE job = jobs.id AND what IN ('settled', 'released'))
		ORDER BY id DESC LIMIT ?`
)

// findJob returns sql.ErrNoRows where nothing is reserved.
func findJob(ctx context.Context, q database.Queryer, r Ref) (job, error) {
	found, err := jobs(ctx, q, byLease, r.digest())
	if err == nil && len(found) == 0 {
		err = sql.ErrNoRows
	}
	if err != nil {
		return job{}, err
	}
	found[0].Lease = r.Lease
	return found[0], nil
}

// jobs reads jobs, without their leases, of which only digests are kept.
func jobs(ctx context.Context, q database.Queryer, where string, args ...any) (list []job, err error) {
	rows, err := q.QueryContext(ctx, jobsQuery+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var j job
		var end sql.NullString
		if err := rows.Scan(&j.id, &j.Job, &j.Server, &j.Owner, &j.Own, &j.Backend, &j.Model, &j.Cost, &j.Hold, &j.begun, &end); err != nil {
			return nil, err
		}
		j.ended, j.released = end.Valid, end.String == "released"
		list = append(list, j)
	}
	return list, rows.Err()
}
