package sqlite

import (
	"context"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/wire/zone"
)

// SetAside is a row that could not be read.
type SetAside struct {
	What string // the kind of record, as in node
	ID   string // as far as it can be told; hashes by their first half
	Why  string
	At   zone.Millis // when it was first met
}

// maxNamed is how many rows one process names, so that a file full of damage does
// not fill the memory as well. The log and the table have the first ones.
const maxNamed = 1000

// SetAside lists the rows that could not be read, the latest first, at most 1,000.
// One that was put anew since stays on the list.
func (s *Store) SetAside(ctx context.Context) ([]SetAside, error) {
	var list []SetAside
	err := s.db.Read(ctx, func(q database.Queryer) error {
		rows, err := q.QueryContext(ctx, asideQuery, maxNamed)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var a SetAside
			if err := rows.Scan(&a.What, &a.ID, &a.Why, &a.At); err != nil {
				return err
			}
			list = append(list, a)
		}
		return rows.Err()
	})
	return list, err
}

const (
	asideQuery = `SELECT what, id, why, at FROM set_aside ORDER BY at DESC, what, id LIMIT ?`
	asidePut   = `INSERT INTO set_aside (what, id, why, at) VALUES (?, ?, ?, ?) ON CONFLICT (what, id) DO NOTHING`
)

// damage is a row that cannot be read, and why.
type damage struct{ what, id, why string }

func (d *damage) Error() string { return "sqlite: damaged " + d.what + " " + d.id + ": " + d.why }

// setAside names damaged rows, each once. It runs behind the transaction that met
// them, since that may have been undone. Where it fails, the log has the name.
func (s *Store) setAside(ctx context.Context, met []damage) {
	if len(met) == 0 {
		return
	}
	var fresh []damage
	s.mu.Lock()
	for _, d := range met {
		if !s.named[d] && len(s.named) < maxNamed {
			s.named[d] = true
			fresh = append(fresh, d)
		}
	}
	s.mu.Unlock()
	if len(fresh) == 0 {
		return
	}
	for _, d := range fresh {
		s.log.ErrorContext(ctx, "a stored row is damaged and was set aside", "what", d.what, "id", d.id, "why", d.why)
	}
	// The request that met them may end meanwhile.
	err := s.db.Write(context.WithoutCancel(ctx), func(tx *database.Tx) error {
		for _, d := range fresh {
			if _, err := tx.ExecContext(context.WithoutCancel(ctx), asidePut, d.what, d.id, d.why, zone.At(s.now())); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.log.ErrorContext(ctx, "damaged rows cannot be noted in the database", "cause", err)
	}
}
