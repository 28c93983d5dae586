package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"math"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// leftOut are the damaged rows that a list goes without.
type leftOut []*damage

// unless keeps an error that is a damaged row, and returns any other.
func (l *leftOut) unless(err error) error {
	var d *damage
	if errors.As(err, &d) {
		*l = append(*l, d)
		return nil
	}
	return err
}

// lenient runs fn in one transaction for reading, and sets aside the damaged rows
// that fn left out.
func (s *Store) lenient(ctx context.Context, fn func(q database.Queryer, left *leftOut) error) error {
	var left leftOut
	err := s.db.Read(ctx, func(q database.Queryer) error {
		left = nil
		return fn(q, &left)
	})
	for _, d := range left {
		if err == nil {
			err = s.db.Write(ctx, func(tx *database.Tx) error { return s.setAside(ctx, tx, d) })
		}
	}
	return err
}

// every reads all rows of a query but the damaged ones, which are set aside.
func every[T any](ctx context.Context, s *Store, query string, args []any, scan func(scanner) (T, error)) (list []T, err error) {
	err = s.lenient(ctx, func(q database.Queryer, left *leftOut) error {
		list = []T{}
		return each(ctx, q, query, args, func(row scanner) error {
			v, err := scan(row)
			if err == nil {
				list = append(list, v)
			}
			return left.unless(err)
		})
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// listLook is how many jobs a page looks at. One that asks for a rare state must
// not read all there is.
const listLook = 5000

// A page reads from the job before the cursor down to the last one it looks at.
const (
	allFloorQuery   = `SELECT seq, id FROM jobs WHERE seq < ? ORDER BY seq DESC LIMIT 1 OFFSET ?`
	ownerFloorQuery = `SELECT seq, id FROM jobs WHERE owner = ? AND seq < ? ORDER BY seq DESC LIMIT 1 OFFSET ?`
	allPageQuery    = `SELECT ` + jobColumns + ` FROM jobs
		WHERE seq < ? AND seq >= ? AND state = coalesce(?, state) ORDER BY seq DESC LIMIT ?`
	ownerPageQuery = `SELECT ` + jobColumns + ` FROM jobs
		WHERE owner = ? AND seq < ? AND seq >= ? AND state = coalesce(?, state) ORDER BY seq DESC LIMIT ?`
)

// ListJobs lists jobs; see [site.Store]. Damaged ones are set aside and left out.
func (s *Store) ListJobs(ctx context.Context, query site.JobQuery) (page site.JobPage, err error) {
	err = s.lenient(ctx, func(q database.Queryer, left *leftOut) error {
		page = site.JobPage{Jobs: []site.Job{}}
		before := int64(math.MaxInt64)
		if query.After != "" {
			err := q.QueryRowContext(ctx, `SELECT seq FROM jobs WHERE id = ?1 AND (?2 = '' OR owner = ?2)`, query.After, query.Owner).Scan(&before)
			if errors.Is(err, sql.ErrNoRows) {
				return site.ErrNoJob
			}
			if err != nil {
				return err
			}
		}
		floorQuery, pageQuery, args := allFloorQuery, allPageQuery, []any{before}
		if query.Owner != "" {
			floorQuery, pageQuery, args = ownerFloorQuery, ownerPageQuery, []any{query.Owner, before}
		}
		floor := int64(0)
		err := q.QueryRowContext(ctx, floorQuery, append(args, listLook-1)...).Scan(&floor, &page.Next)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		args = append(args, floor, sql.Null[ai.State]{V: query.State, Valid: query.State != ""}, query.Limit+1)
		var (
			rows []jobRow
			seen int
			last ai.JobID
		)
		err = each(ctx, q, pageQuery, args, func(row scanner) error {
			if seen++; seen > query.Limit {
				page.Next = last
				return nil
			}
			j, err := scanJob(row)
			var d *damage
			switch {
			case errors.As(err, &d):
				last = ai.JobID(d.id)
			case err == nil:
				last = j.ID
				if !j.setAside {
					rows = append(rows, j)
				}
			}
			return left.unless(err)
		})
		for _, j := range rows {
			if err == nil {
				err = withDependencies(ctx, q, &j)
			}
			page.Jobs = append(page.Jobs, j.Job)
		}
		return err
	})
	if err != nil {
		return site.JobPage{}, err
	}
	return page, nil
}
