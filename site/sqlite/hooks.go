package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// hooks is the store's [site.HookStore].
type hooks struct{ *Store }

// Hooks keeps what webhooks have still to tell.
func (s *Store) Hooks() site.HookStore { return hooks{s} }

// Use makes these the hooks; see [site.HookStore].
func (s hooks) Use(ctx context.Context, list []site.Hook, now ai.Millis) error {
	return s.write(ctx, func(tx *database.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE webhooks SET left_at = ? WHERE left_at IS NULL`, now); err != nil {
			return err
		}
		for _, h := range list {
			if err := useHook(ctx, tx, h); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM webhooks WHERE left_at <= ?`, now-ai.Millis(site.HookKept.Milliseconds()))
		return err
	})
}

func useHook(ctx context.Context, tx *database.Tx, h site.Hook) error {
	if _, err := tx.ExecContext(ctx, `INSERT INTO webhooks (id, some_owners, some_states) VALUES (?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET some_owners = excluded.some_owners, some_states = excluded.some_states, left_at = NULL`,
		h.ID, h.Owners != nil, h.States != nil); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM webhook_filters WHERE webhook = ?`, h.ID); err != nil {
		return err
	}
	add := func(what, value string) error {
		_, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO webhook_filters (webhook, what, value) VALUES (?, ?, ?)`, h.ID, what, value)
		return err
	}
	for _, o := range h.Owners {
		if err := add("owner", string(o)); err != nil {
			return err
		}
	}
	for _, s := range h.States {
		if err := add("state", string(s)); err != nil {
			return err
		}
	}
	return nil
}

const nextHookQuery = `SELECT next_at FROM webhook_outbox WHERE webhook = ? ORDER BY next_at LIMIT 1`

const dueHooksQuery = `SELECT o.seq, o.attempts, j.done_at FROM webhook_outbox o CROSS JOIN jobs j ON j.seq = o.seq
	WHERE o.webhook = ? AND o.next_at <= ? ORDER BY o.next_at, o.seq LIMIT ?`

// dueHook is an event that is due, without what the job's row says.
type dueHook struct {
	seq      int64
	attempts int
	doneAt   sql.Null[ai.Millis]
}

// Take hands out events; see [site.HookStore]. It looks first, on a snapshot, so
// that asking for nothing costs no commit.
func (s hooks) Take(ctx context.Context, t site.HookTake) (events []site.HookEvent, next ai.Millis, err error) {
	err = s.read(ctx, func(q database.Queryer) (err error) {
		next, err = nextHook(ctx, q, t.Hook)
		return err
	})
	if err != nil || next == 0 || next > t.Now {
		return nil, next, err
	}
	err = s.write(ctx, func(tx *database.Tx) error {
		events = nil
		var due []dueHook
		err := each(ctx, tx, dueHooksQuery, []any{t.Hook, t.Now, t.Max}, func(r scanner) error {
			var d dueHook
			err := r.Scan(&d.seq, &d.attempts, &d.doneAt)
			due = append(due, d)
			return err
		})
		for _, d := range due {
			if err != nil {
				return err
			}
			var e *site.HookEvent
			if e, err = s.takeHook(ctx, tx, t, d); e != nil {
				events = append(events, *e)
			}
		}
		if err != nil {
			return err
		}
		next, err = nextHook(ctx, tx, t.Hook) // another may have taken all of it
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return events, next, nil
}

// takeHook holds one event and returns it, or removes it and returns nil where
// its job cannot be read.
func (s hooks) takeHook(ctx context.Context, tx *database.Tx, t site.HookTake, h dueHook) (*site.HookEvent, error) {
	j, err := jobBy(ctx, tx, jobBySeq, h.seq)
	var d *damage
	switch {
	case errors.As(err, &d):
		if err := s.setAside(ctx, tx, d); err != nil {
			return nil, err
		}
		j.setAside = true
	case err != nil:
		return nil, err
	}
	if j.setAside {
		_, err := tx.ExecContext(ctx, `DELETE FROM webhook_outbox WHERE seq = ? AND webhook = ?`, h.seq, t.Hook)
		return nil, err
	}
	_, err = tx.ExecContext(ctx, `UPDATE webhook_outbox SET next_at = ?, attempts = attempts + 1 WHERE seq = ? AND webhook = ?`,
		t.Now+ai.Millis(t.Hold.Milliseconds()), h.seq, t.Hook)
	return &site.HookEvent{
		Job: j.ID, Owner: j.Owner, Kind: j.Kind, State: j.State, Reason: j.Reason, EndedAt: h.doneAt.V, Attempts: h.attempts + 1,
	}, err
}

// nextHook is when an event of a hook will be due, zero where none waits.
func nextHook(ctx context.Context, q database.Queryer, hook site.HookID) (at ai.Millis, err error) {
	err = q.QueryRowContext(ctx, nextHookQuery, hook).Scan(&at)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return at, err
}

// Done removes an event; see [site.HookStore].
func (s hooks) Done(ctx context.Context, hook site.HookID, job ai.JobID) error {
	return s.write(ctx, func(tx *database.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM webhook_outbox
			WHERE seq = (SELECT seq FROM jobs WHERE id = ?) AND webhook = ?`, job, hook)
		return err
	})
}

// Retry puts an event off; see [site.HookStore].
func (s hooks) Retry(ctx context.Context, r site.HookRetry) error {
	return s.write(ctx, func(tx *database.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE webhook_outbox SET next_at = ?, last_error = ?
			WHERE seq = (SELECT seq FROM jobs WHERE id = ?) AND webhook = ?`, r.At, r.Why, r.Job, r.Hook)
		return err
	})
}

// Waiting counts what waits; see [site.HookStore].
func (s hooks) Waiting(ctx context.Context) (n int, err error) {
	err = s.read(ctx, func(q database.Queryer) error {
		return q.QueryRowContext(ctx, `SELECT count(*) FROM webhook_outbox`).Scan(&n)
	})
	return n, err
}
