package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// ending is how a job ends.
type ending struct {
	state  ai.State
	reason site.Reason
	lease  ai.LeaseID  // the grant under which a result came
	runner ai.RunnerID // the device that sent it
	now    ai.Millis
}

// end ends a job that is not over and notes that what waits for it is to be
// settled. Whoever ends jobs calls settleSome after.
func end(ctx context.Context, tx *database.Tx, j jobRow, e ending) error {
	tx.Tell(ofJob(j.ID), ended)
	if _, err := tx.ExecContext(ctx, `UPDATE jobs SET state = ?, reason = ?, updated_at = ?, done_at = ?, done_lease = ?, done_runner = ?,
		cancel_requested = 0, lease_id = NULL, lease_runner = NULL, lease_expires_at = NULL, lease_request = NULL WHERE seq = ?`,
		e.state, e.reason, e.now, e.now,
		sql.Null[ai.LeaseID]{V: e.lease, Valid: e.lease != ""}, sql.Null[ai.RunnerID]{V: e.runner, Valid: e.runner != ""}, j.seq); err != nil {
		return err
	}
	if j.Lease == nil { // what is held stands in no queue
		if _, err := tx.ExecContext(ctx, `DELETE FROM queue WHERE seq = ?`, j.seq); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, `UPDATE owners SET open = max(open - 1, 0) WHERE owner = ?`, j.Owner); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, noteQuery, j.ID)
	return err
}

// completedQuery asks for a job for a device that may work.
const completedQuery = `SELECT ` + jobColumns + ` FROM runners CROSS JOIN jobs
	WHERE runners.id = ? AND runners.revoked_at IS NULL AND jobs.id = ?`

// Complete ends a job with a device's result; see [site.JobStore].
func (s jobs) Complete(ctx context.Context, c site.Completion) (done site.Completed, err error) {
	envelope, err := keep(envelopeShape, c.Envelope)
	if err != nil {
		return site.Completed{}, err
	}
	err = s.write(ctx, func(tx *database.Tx) error {
		done = site.Completed{}
		// Where it finds nothing, worker says why.
		j, err := holding(tx.QueryRowContext(ctx, completedQuery, c.RunnerID, c.Grant.JobID), c.Grant, c.RunnerID, c.Now)
		if errors.Is(err, site.ErrNotHeld) && j.ID == "" {
			if _, err := worker(ctx, tx, c.RunnerID); err != nil {
				return err
			}
		}
		if errors.Is(err, site.ErrNotHeld) && j.State.Terminal() && j.doneLease == c.Grant.LeaseID && j.doneRunner == c.RunnerID {
			done = site.Completed{Duplicate: true, State: j.State}
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO job_results (seq, result, disposition, device)
			SELECT ?, ?, ?, device FROM runners WHERE id = ?
			ON CONFLICT (seq) DO UPDATE SET result = excluded.result, device = excluded.device, disposition = excluded.disposition`,
			j.seq, envelope, c.Disposition, c.RunnerID); err != nil {
			return err
		}
		done = site.Completed{Accepted: true, State: c.Disposition.State()}
		if err := end(ctx, tx, j, ending{state: done.State, lease: c.Grant.LeaseID, runner: c.RunnerID, now: c.Now}); err != nil {
			return err
		}
		_, err = s.settleSome(ctx, tx, c.Now)
		return err
	})
	if err != nil {
		return site.Completed{}, err
	}
	return done, nil
}

// Cancel ends a waiting job, or asks for it; see [site.JobStore].
func (s jobs) Cancel(ctx context.Context, c site.CancelRequest) (job site.Job, err error) {
	err = s.write(ctx, func(tx *database.Tx) error {
		job = site.Job{}
		j, err := known(ctx, tx, c.ID)
		switch {
		case err != nil:
			return err
		case j.State == ai.StateQueued:
			err = end(ctx, tx, j, ending{state: ai.StateCanceled, reason: site.ReasonApp, now: c.Now})
			if err == nil {
				_, err = s.settleSome(ctx, tx, c.Now)
			}
		case !c.Waiting && !j.State.Terminal() && !j.CancelRequested:
			tx.Tell(ofJob(c.ID))
			_, err = tx.ExecContext(ctx, `UPDATE jobs SET cancel_requested = 1, updated_at = ? WHERE seq = ?`, c.Now, j.seq)
		}
		if err != nil {
			return err
		}
		if j, err = known(ctx, tx, c.ID); err != nil {
			return err
		}
		job = j.Job
		return nil
	})
	if err != nil {
		return site.Job{}, err
	}
	return job, nil
}

// sweepBound is how many jobs one sweep looks at of each sort, so that a claim
// that sweeps first stays short.
const sweepBound = 64

// repeatWindow is how long a claim's digest is kept: longer than a signed
// request stays fresh at both ends of its window.
const repeatWindow ai.Millis = 10 * 60 * 1000

// Sweep requeues and expires; see [site.JobStore].
func (s jobs) Sweep(ctx context.Context, now ai.Millis) (swept site.Swept, err error) {
	err = s.write(ctx, func(tx *database.Tx) (err error) {
		if swept, err = s.sweep(ctx, tx, now); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM claims WHERE at < ?`, now-repeatWindow)
		return err
	})
	if err != nil {
		return site.Swept{}, err
	}
	return swept, nil
}

// sweep first requeues lapsed leases and then expires what waits too long, so
// that a held job whose deadline has passed does both in one sweep. Then it goes
// on with what is to be settled.
func (s *Store) sweep(ctx context.Context, tx *database.Tx, now ai.Millis) (swept site.Swept, err error) {
	lapsed, err := s.due(ctx, tx, lapsedQuery, now)
	if err != nil {
		return swept, err
	}
	for _, j := range lapsed {
		if err := queue(ctx, tx, j, now); err != nil {
			return swept, err
		}
	}
	expire := func(query string, reason site.Reason) (int, error) {
		late, err := s.due(ctx, tx, query, now)
		for _, j := range late {
			if err == nil {
				err = end(ctx, tx, j, ending{state: ai.StateExpired, reason: reason, now: now})
			}
		}
		return len(late), err
	}
	deadlines, err := expire(deadlineQuery, site.ReasonDeadline)
	if err != nil {
		return swept, err
	}
	ttls, err := expire(ttlQuery, site.ReasonTTL)
	if err != nil {
		return swept, err
	}
	unsettled, err := s.settleSome(ctx, tx, now)
	return site.Swept{
		Requeued: len(lapsed), Expired: deadlines + ttls,
		More: unsettled || max(len(lapsed), deadlines, ttls) == sweepBound,
	}, err
}

// What is due at an instant, the longest due first.
const (
	lapsedQuery = `SELECT ` + jobColumns + ` FROM jobs
		WHERE lease_id IS NOT NULL AND lease_expires_at <= ? ORDER BY lease_expires_at LIMIT ?`
	deadlineQuery = `SELECT ` + jobColumns + ` FROM jobs
		WHERE state = 'queued' AND deadline_at IS NOT NULL AND deadline_at <= ? ORDER BY deadline_at LIMIT ?`
	ttlQuery = `SELECT ` + jobColumns + ` FROM jobs
		WHERE state = 'queued' AND claimable_at IS NOT NULL AND claimable_at + ttl_ms <= ? ORDER BY claimable_at + ttl_ms LIMIT ?`
)

// due reads the first jobs of a sort that are due. Damaged ones are set aside.
func (s *Store) due(ctx context.Context, tx *database.Tx, query string, now ai.Millis) ([]jobRow, error) {
	var list []jobRow
	var damaged []*damage
	err := each(ctx, tx, query, []any{now, sweepBound}, func(r scanner) error {
		j, err := scanJob(r)
		var d *damage
		switch {
		case errors.As(err, &d):
			damaged = append(damaged, d)
			return nil
		case err == nil && !j.setAside:
			list = append(list, j)
		}
		return err
	})
	for _, d := range damaged {
		if err == nil {
			err = s.setAside(ctx, tx, d)
		}
	}
	return list, err
}

// purgeBound is how many jobs one purge removes of each sort.
const purgeBound = 256

// What may be removed, the oldest first.
const (
	contentsQuery = `SELECT seq FROM jobs
		WHERE done_at IS NOT NULL AND has_content = 1 AND done_at < ? ORDER BY done_at LIMIT ?`
	rowsQuery = `SELECT seq FROM jobs WHERE done_at IS NOT NULL AND done_at < ?
		AND NOT EXISTS (SELECT 1 FROM dependencies d JOIN jobs w ON w.seq = d.seq WHERE d.on_id = jobs.id AND w.done_at IS NULL)
		ORDER BY done_at LIMIT ?`
	// idleQuery removes owners who have no unfinished job.
	idleQuery = `DELETE FROM owners WHERE owner IN (SELECT owner FROM owners WHERE open <= 0 LIMIT ?)`
)

// Purge removes what retention allows; see [site.JobStore].
func (s jobs) Purge(ctx context.Context, p site.Purge) (purged site.Purged, err error) {
	err = s.write(ctx, func(tx *database.Tx) error {
		purged = site.Purged{}
		contents, err := seqs(ctx, tx, contentsQuery, p.ContentBefore, purgeBound)
		if err != nil {
			return err
		}
		for _, seq := range contents {
			if _, err := tx.ExecContext(ctx, `DELETE FROM job_content WHERE seq = ?`, seq); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, `DELETE FROM job_results WHERE seq = ?`, seq); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, `UPDATE jobs SET has_content = 0 WHERE seq = ?`, seq); err != nil {
				return err
			}
		}
		rows, err := seqs(ctx, tx, rowsQuery, p.RowsBefore, purgeBound)
		if err != nil {
			return err
		}
		for _, seq := range rows {
			if _, err := tx.ExecContext(ctx, `DELETE FROM jobs WHERE seq = ?`, seq); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, idleQuery, purgeBound); err != nil {
			return err
		}
		purged = site.Purged{Contents: len(contents), Rows: len(rows), More: max(len(contents), len(rows)) == purgeBound}
		return nil
	})
	if err != nil {
		return site.Purged{}, err
	}
	return purged, nil
}

func seqs(ctx context.Context, q database.Queryer, query string, args ...any) ([]int64, error) {
	var list []int64
	err := each(ctx, q, query, args, func(r scanner) error {
		var seq int64
		err := r.Scan(&seq)
		list = append(list, seq)
		return err
	})
	return list, err
}
