package ledger

import (
	"context"
	"time"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/wire/ai"
)

// MaxRows is how many rows [Reader.Spent] returns at most.
const MaxRows = 4096

// Row is what one person's jobs used on one backend on one day.
type Row struct {
	// Day is midnight in UTC, by the clock on the wall when the jobs were settled.
	Day     time.Time
	Backend string
	Owner   ai.Owner
	// Own is whether these were the agent's own owner's jobs.
	Own bool
	// Jobs are those that began, whether they ended well or not.
	Jobs int64
	// Prompt and Completion are tokens.
	Prompt, Completion int64
	// Amount is what they cost, of which Estimated was not counted by the backend.
	Amount, Estimated Money
}

const spentQuery = `SELECT wall / 86400000 AS day, backend, owner, own, count(*),
	sum(prompt), sum(completion), sum(amount), sum(CASE WHEN estimated = 1 THEN amount ELSE 0 END)
	FROM entries JOIN jobs ON jobs.id = entries.job
	WHERE what = 'settled' AND wall >= ?
	GROUP BY day, backend, owner, own ORDER BY day DESC, backend, owner, own LIMIT ?`

// Spent tells what was used by day, backend and owner since a moment, by the
// clock on the wall. The latest days come first, and no more than [MaxRows] rows.
// It returns the refusals of package database.
func (r *Reader) Spent(ctx context.Context, since time.Time) (list []Row, err error) {
	err = r.db.Read(ctx, func(q database.Queryer) error {
		rows, err := q.QueryContext(ctx, spentQuery, since.UnixMilli(), MaxRows)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var row Row
			var n int64
			err := rows.Scan(&n, &row.Backend, &row.Owner, &row.Own, &row.Jobs, &row.Prompt, &row.Completion, &row.Amount, &row.Estimated)
			if err != nil {
				return err
			}
			row.Day = time.UnixMilli(n * day.Milliseconds()).UTC()
			list = append(list, row)
		}
		return rows.Err()
	})
	return list, err
}
