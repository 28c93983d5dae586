package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

// jobs is the store's [site.JobStore].
type jobs struct{ *Store }

// write runs fn in one transaction. A damaged row that fn met is set aside in a
// transaction of its own, since fn's is undone, and comes out as
// [site.ErrSetAside].
func (s *Store) write(ctx context.Context, fn func(tx *database.Tx) error) error {
	return s.aside(ctx, s.db.Write(ctx, fn))
}

func (s *Store) read(ctx context.Context, fn func(q database.Queryer) error) error {
	return s.aside(ctx, s.db.Read(ctx, fn))
}

func (s *Store) aside(ctx context.Context, err error) error {
	var d *damage
	if !errors.As(err, &d) {
		return err
	}
	if err := s.db.Write(ctx, func(tx *database.Tx) error { return s.setAside(ctx, tx, d) }); err != nil {
		return err
	}
	return site.ErrSetAside.Because(d)
}

// Enqueue stores a job; see [site.JobStore].
func (s jobs) Enqueue(ctx context.Context, n site.NewJob) (stored site.Job, created bool, err error) {
	payload, err := keep(envelopeShape, n.Payload)
	if err != nil {
		return site.Job{}, false, err
	}
	var allowed sql.Null[string]
	if n.AllowedOwners != nil {
		if allowed.V, err = keep(ownersShape, n.AllowedOwners); err != nil {
			return site.Job{}, false, err
		}
		allowed.Valid = true
	}
	err = s.write(ctx, func(tx *database.Tx) error {
		stored, created = site.Job{}, false
		j, err := known(ctx, tx, n.ID)
		switch {
		case err == nil:
			if j.Kind != n.Kind || j.Owner != n.Owner || j.Audience != n.Audience {
				return site.ErrConflict
			}
			stored = j.Job
			return nil
		case !errors.Is(err, site.ErrNoJob):
			return err
		}
		if err := takeQuota(ctx, tx, n.Owner, n.Quota); err != nil {
			return err
		}
		result, err := tx.ExecContext(ctx, `INSERT INTO jobs
			(id, kind, owner, audience, allowed_owners, size_class, state, created_at, updated_at, ttl_ms, deadline_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			n.ID, n.Kind, n.Owner, n.Audience, allowed, n.SizeClass, ai.StateQueued, n.Now, n.Now,
			n.TTL.Milliseconds(), sql.Null[ai.Millis]{V: n.DeadlineAt, Valid: n.DeadlineAt != 0})
		if err != nil {
			return err
		}
		seq, err := result.LastInsertId()
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO job_content (seq, payload) VALUES (?, ?)`, seq, payload); err != nil {
			return err
		}
		for _, on := range n.DependsOn {
			if _, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO dependencies (seq, on_id) VALUES (?, ?)`, seq, on); err != nil {
				return err
			}
		}
		if err := settle(ctx, tx, seq, n.Now); err != nil {
			return err
		}
		if j, err = known(ctx, tx, n.ID); err != nil {
			return err
		}
		stored, created = j.Job, true
		if j.State == ai.StateQueued {
			return nil
		}
		// It ended at once, and another may have named it before it existed.
		_, err = s.settleSome(ctx, tx, n.Now)
		return err
	})
	if err != nil {
		return site.Job{}, false, err
	}
	return stored, created, nil
}

// takeQuota counts one more unfinished job of the owner.
func takeQuota(ctx context.Context, tx *database.Tx, owner ai.Owner, quota int) error {
	var open int
	err := tx.QueryRowContext(ctx, `INSERT INTO owners (owner, open) VALUES (?, 1)
		ON CONFLICT (owner) DO UPDATE SET open = open + 1 RETURNING open`, owner).Scan(&open)
	if err == nil && quota > 0 && open > quota {
		return site.ErrQuota // undoes the count
	}
	return err
}

// settle looks at a queued job that waits for others: it becomes claimable once
// all of them ended ok, and ends once one of them ended otherwise.
func settle(ctx context.Context, tx *database.Tx, seq int64, now ai.Millis) error {
	var waiting, failed int
	err := tx.QueryRowContext(ctx, waitsQuery, ai.StateOK, seq).Scan(&waiting, &failed)
	if err != nil {
		return err
	}
	j, err := jobBy(ctx, tx, jobBySeq, seq)
	if err != nil {
		return err
	}
	switch {
	case j.setAside || j.State != ai.StateQueued || j.ClaimableAt != 0:
		return nil
	case failed > 0:
		return end(ctx, tx, j, ending{state: ai.StateCanceled, reason: site.ReasonDependency, now: now})
	case waiting > 0:
		return nil
	}
	return queue(ctx, tx, j, now)
}

const waitsQuery = `SELECT
		count(*) FILTER (WHERE j.done_at IS NULL),
		count(*) FILTER (WHERE j.done_at IS NOT NULL AND j.state <> ?)
	FROM dependencies d LEFT JOIN jobs j ON j.id = d.on_id WHERE d.seq = ?`

// What is to be settled because a job has ended.
const (
	// noteQuery notes it, where anything named the job.
	noteQuery = `INSERT INTO settling (on_id, after_seq) SELECT on_id, 0 FROM dependencies WHERE on_id = ? LIMIT 1`
	// settlingQuery asks for the newest note, so that what an operation ends goes
	// before what others have left.
	settlingQuery = `SELECT n, on_id, after_seq FROM settling WHERE n > 0 ORDER BY n DESC LIMIT 1`
	// dependentsQuery asks for all that named the job, also what has been settled:
	// so each look is as long as it says.
	dependentsQuery = `SELECT seq FROM dependencies WHERE on_id = ? AND seq > ? ORDER BY seq LIMIT ?`
)

// settleSome settles dependents of jobs that have ended, [site.MaxSettled] at
// most, and reports whether some are left. Those that end note their own.
func (s *Store) settleSome(ctx context.Context, tx *database.Tx, now ai.Millis) (more bool, err error) {
	for left := site.MaxSettled; ; {
		var (
			n, after int64
			on       ai.JobID
		)
		err := tx.QueryRowContext(ctx, settlingQuery).Scan(&n, &on, &after)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return false, nil
		case err != nil:
			return false, err
		case left == 0:
			return true, nil
		}
		waiting, err := seqs(ctx, tx, dependentsQuery, on, after, left+1)
		if err != nil {
			return false, err
		}
		// The note is gone or further on before others are made above it.
		if len(waiting) > left {
			waiting = waiting[:left]
			_, err = tx.ExecContext(ctx, `UPDATE settling SET after_seq = ? WHERE n = ?`, waiting[left-1], n)
		} else {
			_, err = tx.ExecContext(ctx, `DELETE FROM settling WHERE n = ?`, n)
		}
		if err != nil {
			return false, err
		}
		for _, seq := range waiting {
			err := settle(ctx, tx, seq, now)
			if d := (*damage)(nil); errors.As(err, &d) {
				err = s.setAside(ctx, tx, d)
			}
			if err != nil {
				return false, err
			}
		}
		// A note whose dependents are gone counts too, so that this ends.
		left -= max(1, len(waiting))
	}
}

// queue makes a job claimable from now on, whoever held it before.
func queue(ctx context.Context, tx *database.Tx, j jobRow, now ai.Millis) error {
	if _, err := tx.ExecContext(ctx, `UPDATE jobs SET state = ?, claimable_at = ?, updated_at = ?,
		lease_id = NULL, lease_runner = NULL, lease_expires_at = NULL, lease_request = NULL WHERE seq = ?`,
		ai.StateQueued, now, now, j.seq); err != nil {
		return err
	}
	tx.Tell(ofJob(j.ID))
	add := func(reach, name string) error {
		tx.Tell(place{j.Kind, reach, name}.topic())
		_, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO queue (kind, reach, name, claimable_at, seq) VALUES (?, ?, ?, ?, ?)`,
			j.Kind, reach, name, now, j.seq)
		return err
	}
	own, open := reachOwn, reachOpen
	if j.Audience == ai.AudiencePublic {
		own, open = reachOwnPublic, reachPublic
	}
	err := add(own, string(j.Owner))
	switch {
	case err != nil || j.Audience == ai.AudienceSelf:
		return err
	case j.Audience == ai.AudiencePublic || j.AllowedOwners == nil:
		return add(open, "")
	}
	for _, owner := range j.AllowedOwners {
		if err == nil && owner != j.Owner {
			err = add(reachListed, string(owner))
		}
	}
	return err
}

// known reads a job by its id, with what it waits for. It returns
// [site.ErrNoJob], [site.ErrSetAside] or a *damage.
func known(ctx context.Context, q database.Queryer, id ai.JobID) (jobRow, error) {
	j, err := jobBy(ctx, q, jobByID, id)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return jobRow{}, site.ErrNoJob
	case err != nil:
		return jobRow{}, err
	case j.setAside:
		return jobRow{}, site.ErrSetAside
	}
	return j, withDependencies(ctx, q, &j)
}

// Job returns a job; see [site.JobStore].
func (s jobs) Job(ctx context.Context, id ai.JobID, content bool) (job site.Job, err error) {
	err = s.read(ctx, func(q database.Queryer) error {
		j, err := known(ctx, q, id)
		if err != nil {
			return err
		}
		if content {
			if err := withContent(ctx, q, &j); err != nil {
				return err
			}
		}
		job = j.Job
		return nil
	})
	if err != nil {
		return site.Job{}, err
	}
	return job, nil
}

// Claim grants waiting jobs; see [site.JobStore].
func (s jobs) Claim(ctx context.Context, c site.Claim) (got site.Claimed, err error) {
	if c.LookFirst {
		var worth bool
		if worth, got.Paused, err = s.look(ctx, c); err != nil || !worth {
			return got, err
		}
	}
	err = s.write(ctx, func(tx *database.Tx) error {
		got = site.Claimed{}
		r, err := worker(ctx, tx, c.RunnerID)
		if err != nil {
			return err
		}
		got.Paused = r.paused
		if _, err := s.sweep(ctx, tx, c.Now); err != nil {
			return err
		}
		repeat, err := repeated(ctx, tx, c)
		if err != nil {
			return err
		}
		if repeat {
			return each(ctx, tx, grantedQuery, []any{c.RunnerID, c.Request[:]}, func(row scanner) error {
				j, err := scanJob(row)
				if err == nil {
					got.Jobs = append(got.Jobs, j.Job)
				}
				return err
			})
		}
		if r.paused {
			return nil
		}
		heads, err := heads(ctx, tx, c, r.owner)
		if err != nil {
			return err
		}
		for _, h := range heads {
			if len(got.Jobs) >= c.Max {
				break
			}
			j, err := s.grant(ctx, tx, c, h)
			if err != nil {
				return err
			}
			if j != nil {
				got.Jobs = append(got.Jobs, *j)
			}
		}
		if len(got.Jobs) == 0 {
			return nil
		}
		tx.Tell(ofRequest(c))
		_, err = tx.ExecContext(ctx, `INSERT INTO claims (runner_id, request, at) VALUES (?, ?, ?)`, c.RunnerID, c.Request[:], c.Now)
		return err
	})
	if err != nil {
		return site.Claimed{}, err
	}
	return got, nil
}

// look reports whether a claim would find anything to do, on a snapshot and
// without writing.
func (s jobs) look(ctx context.Context, c site.Claim) (worth, paused bool, err error) {
	err = s.read(ctx, func(q database.Queryer) error {
		r, err := worker(ctx, q, c.RunnerID)
		if err != nil {
			return err
		}
		paused = r.paused
		var due bool
		if err := q.QueryRowContext(ctx, lookQuery, c.RunnerID, c.Request[:], c.Now).Scan(&worth, &due); err != nil || worth || paused {
			return err
		}
		one := c
		one.Max = 1
		heads, err := heads(ctx, q, one, r.owner)
		worth = due || len(heads) > 0
		return err
	})
	return worth, paused, err
}

// lookQuery asks whether the request is a repeat, and whether a lease has lapsed
// or a dependent is to be settled that no sweep has come to.
const lookQuery = `SELECT EXISTS (SELECT 1 FROM claims WHERE runner_id = ? AND request = ?),
	EXISTS (SELECT 1 FROM jobs WHERE lease_id IS NOT NULL AND lease_expires_at <= ?)
	OR EXISTS (SELECT 1 FROM settling WHERE n > 0)`

// grantedQuery asks what is left of a request's grants, in the order of arrival.
const grantedQuery = `SELECT ` + jobColumns + ` FROM jobs
	WHERE lease_runner = ? AND lease_request = ? AND lease_id IS NOT NULL ORDER BY seq`

const repeatedQuery = `SELECT count(*) FROM claims WHERE runner_id = ? AND request = ?`

func repeated(ctx context.Context, q database.Queryer, c site.Claim) (bool, error) {
	var n int
	err := q.QueryRowContext(ctx, repeatedQuery, c.RunnerID, c.Request[:]).Scan(&n)
	return n > 0, err
}

// head is a job at the head of a queue, and the offer under which it was found.
type head struct {
	claimableAt ai.Millis
	seq         int64
	offer       match.Offer
}

const headsQuery = `SELECT claimable_at, seq FROM queue
	WHERE kind = ? AND reach = ? AND name = ? AND claimable_at <= ?
	AND NOT EXISTS (SELECT 1 FROM refusals r WHERE r.runner_id = ? AND r.seq = queue.seq)
	ORDER BY claimable_at, seq LIMIT ?`

// heads reads the first jobs of every queue that the claim's offers reach, in
// the order in which they are to be granted. Each queue gives up to Max, so the
// oldest Max of all are among them.
func heads(ctx context.Context, q database.Queryer, c site.Claim, owner ai.Owner) ([]head, error) {
	var list []head
	for _, o := range c.Offers {
		o.Offer.Owner = owner
		for _, at := range reaches(o, owner, c.Audiences) {
			err := each(ctx, q, headsQuery, []any{at.kind, at.reach, at.name, c.Now, c.RunnerID, c.Max}, func(r scanner) error {
				h := head{offer: o.Offer}
				err := r.Scan(&h.claimableAt, &h.seq)
				list = append(list, h)
				return err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(list, func(a, b head) int {
		return cmp.Or(cmp.Compare(a.claimableAt, b.claimableAt), cmp.Compare(a.seq, b.seq))
	})
	return slices.CompactFunc(list, func(a, b head) bool { return a.seq == b.seq }), nil
}

// shared reports whether an offer can reach jobs of other owners at all. It only
// saves looking into queues; package match decides each job.
func shared(o match.Offer) bool {
	return o.Scope != ai.OfferSelf && o.Cost != backend.Subscription
}

// grant gives one job to the claimer if package match allows it, and returns it
// or nil. A damaged job is set aside and the next one has its turn.
func (s jobs) grant(ctx context.Context, tx *database.Tx, c site.Claim, h head) (*site.Job, error) {
	j, err := jobBy(ctx, tx, jobBySeq, h.seq)
	var d *damage
	if errors.As(err, &d) {
		return nil, s.setAside(ctx, tx, d)
	}
	if err != nil || j.setAside {
		return nil, err
	}
	if c.Audiences != nil && !slices.Contains(c.Audiences, j.Audience) {
		return nil, nil
	}
	// The device's own list is asked by the device; here it counts as a yes.
	if match.Audience(j.Matching(), h.offer, func(ai.Owner) bool { return true }) != nil {
		return nil, nil
	}
	lease := ai.Lease{ID: c.NewLease(), RunnerID: c.RunnerID, ExpiresAt: c.Now + ai.Millis(c.Lease.Milliseconds())}
	if _, err := tx.ExecContext(ctx, `UPDATE jobs SET state = ?, lease_id = ?, lease_runner = ?, lease_expires_at = ?,
		lease_request = ?, attempts = attempts + 1, updated_at = ? WHERE seq = ?`,
		ai.StateClaimed, lease.ID, lease.RunnerID, lease.ExpiresAt, c.Request[:], c.Now, j.seq); err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM queue WHERE seq = ?`, j.seq); err != nil {
		return nil, err
	}
	tx.Tell(ofJob(j.ID))
	j.State, j.Lease, j.UpdatedAt = ai.StateClaimed, &lease, c.Now
	j.Attempts++
	return &j.Job, nil
}

// Held returns a held job with its payload; see [site.JobStore].
func (s jobs) Held(ctx context.Context, g ai.Grant, runner ai.RunnerID, now ai.Millis) (job site.Job, err error) {
	var payload sql.Null[string]
	// All that is asked, in one query. Where it finds nothing, worker says why.
	j, err := holding(also{s.db.ReadRow(ctx, heldQuery, runner, g.LeaseID, g.JobID), &payload}, g, runner, now)
	if err == nil {
		err = keptPayload(&j, payload)
	}
	if errors.Is(err, site.ErrNotHeld) {
		err = s.db.Read(ctx, func(q database.Queryer) error {
			if _, err := worker(ctx, q, runner); err != nil {
				return err
			}
			return site.ErrNotHeld
		})
	}
	if err = s.aside(ctx, err); err != nil {
		return site.Job{}, err
	}
	return j.Job, nil
}

// heldQuery asks for a job for a device that may work, and for its payload alone
// if it has that lease.
const heldQuery = `SELECT ` + jobColumns + `, c.payload
	FROM runners CROSS JOIN jobs LEFT JOIN job_content c ON c.seq = jobs.seq AND jobs.lease_id = ?2
	WHERE runners.id = ?1 AND runners.revoked_at IS NULL AND jobs.id = ?3`

// held reads the job that the device holds under the grant. It returns
// [site.ErrNotHeld] for everything else.
func held(ctx context.Context, q database.Queryer, g ai.Grant, runner ai.RunnerID, now ai.Millis) (jobRow, error) {
	return holding(q.QueryRowContext(ctx, jobByID, g.JobID), g, runner, now)
}

// holding is held for the job's row.
func holding(row scanner, g ai.Grant, runner ai.RunnerID, now ai.Millis) (jobRow, error) {
	j, err := scanJob(row)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return jobRow{}, site.ErrNotHeld
	case err != nil:
		return jobRow{}, err
	case j.Lease == nil, j.Lease.ID != g.LeaseID, j.Lease.RunnerID != runner, j.Lease.ExpiresAt <= now:
		return j, site.ErrNotHeld
	}
	return j, nil
}

const canceledQuery = `SELECT id, lease_id FROM jobs
	WHERE lease_runner = ? AND lease_id IS NOT NULL AND cancel_requested = 1 ORDER BY id`

// Renew records a heartbeat; see [site.JobStore].
func (s jobs) Renew(ctx context.Context, r site.Renewal) (out site.Renewed, err error) {
	capabilities, err := keep(capabilitiesShape, r.Capabilities)
	if err != nil {
		return site.Renewed{}, err
	}
	err = s.write(ctx, func(tx *database.Tx) error {
		out = site.Renewed{}
		w, err := worker(ctx, tx, r.RunnerID)
		if err != nil {
			return err
		}
		if w.paused != r.Paused {
			tx.Tell(ofRunner(r.RunnerID))
		}
		if _, err := tx.ExecContext(ctx, `UPDATE runners SET seen_at = max(seen_at, ?) WHERE id = ?`, r.Now, r.RunnerID); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE runners SET issued_at = ?, version = ?, capabilities = ?, paused = ?, protocol = ?
			WHERE id = ? AND issued_at < ?`, r.IssuedAt, r.Version, capabilities, r.Paused, r.Protocol, r.RunnerID, r.IssuedAt); err != nil {
			return err
		}
		if _, err := s.sweep(ctx, tx, r.Now); err != nil {
			return err
		}
		for _, g := range r.Grants {
			// A lease that is due is lost even where the sweep has not come to it.
			result, err := tx.ExecContext(ctx, `UPDATE jobs SET state = ?, updated_at = ?, lease_expires_at = max(lease_expires_at, ?)
				WHERE id = ? AND lease_id = ? AND lease_runner = ? AND lease_expires_at > ?`,
				ai.StateRunning, r.Now, r.Now+ai.Millis(r.Lease.Milliseconds()), g.JobID, g.LeaseID, r.RunnerID, r.Now)
			if err != nil {
				return err
			}
			if n, err := result.RowsAffected(); err != nil {
				return err
			} else if n == 0 {
				out.Lost = append(out.Lost, g)
			}
		}
		return each(ctx, tx, canceledQuery, []any{r.RunnerID}, func(row scanner) error {
			var g ai.Grant
			err := row.Scan(&g.JobID, &g.LeaseID)
			out.Cancel = append(out.Cancel, g)
			return err
		})
	})
	if err != nil {
		return site.Renewed{}, err
	}
	return out, nil
}

// Release gives grants back; see [site.JobStore].
func (s jobs) Release(ctx context.Context, r site.Release) (released []ai.JobID, err error) {
	err = s.write(ctx, func(tx *database.Tx) error {
		released = []ai.JobID{}
		for _, g := range r.Grants {
			// A lease that has lapsed unseen counts as held: giving it back does
			// what the sweep would do.
			j, err := held(ctx, tx, g, r.RunnerID, 0)
			if errors.Is(err, site.ErrNotHeld) {
				continue
			}
			if err != nil {
				return err
			}
			if err := queue(ctx, tx, j, r.Now); err != nil {
				return err
			}
			if r.Refused {
				if _, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO refusals (runner_id, seq) VALUES (?, ?)`, r.RunnerID, j.seq); err != nil {
					return err
				}
			}
			released = append(released, g.JobID)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return released, nil
}
