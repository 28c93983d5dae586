package sqlite

import (
	"context"
	"embed"
	"io/fs"
	"log/slog"
	"time"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

//go:embed migrations/*.sql
var files embed.FS

// Name is the name of the schema in the file, by which a site's file is told
// from another party's.
const Name = "site"

// Config says which file to open.
type Config struct {
	// Path is the file. Its folder must exist; the file is made if it is absent,
	// readable by this user only.
	Path string
	// Clock tells the time for file dates and statistics; nil means time.Now.
	Clock func() time.Time
	// Logger hears of migrations, failures and rows set aside; nil means nobody.
	Logger *slog.Logger
}

// Store is a site's store in one file.
type Store struct {
	db  *database.DB
	log *slog.Logger
	now func() time.Time
}

var _ site.Store = (*Store)(nil)

// Open opens or makes the file and brings its schema up to date, after copying
// an older one beside it. It refuses files of other parties and of newer
// versions of this program, with the names of package internal/database.
func Open(ctx context.Context, c Config) (*Store, error) {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	migrations, err := fs.Sub(files, "migrations")
	if err != nil {
		return nil, err
	}
	db, err := database.Open(ctx, database.Config{
		URL: "sqlite:" + c.Path, Name: Name, Migrations: migrations, Clock: c.Clock, Logger: c.Logger,
	})
	if err != nil {
		return nil, err
	}
	return &Store{db: db, log: c.Logger, now: c.Clock}, nil
}

// Jobs keeps the jobs.
func (s *Store) Jobs() site.JobStore { return jobs{s} }

// Devices keeps the devices.
func (s *Store) Devices() site.DeviceStore { return devices{s} }

// Keys keeps the key ring.
func (s *Store) Keys() site.KeyRing { return ring{s} }

// Backup writes a consistent copy of the store to a new file at path, while the
// store is in use.
func (s *Store) Backup(ctx context.Context, path string) error { return s.db.Backup(ctx, path) }

// Close finishes what was begun and closes the file.
func (s *Store) Close() error { return s.db.Close() }

// SetAside lists the rows that could not be read, the latest first.
func (s *Store) SetAside(ctx context.Context) ([]site.SetAside, error) {
	var list []site.SetAside
	err := s.db.Read(ctx, func(q database.Queryer) error {
		return each(ctx, q, `SELECT what, id, why, at FROM set_aside ORDER BY at DESC, what, id`, nil, func(r scanner) error {
			var a site.SetAside
			err := r.Scan(&a.What, &a.ID, &a.Why, &a.At)
			list = append(list, a)
			return err
		})
	})
	return list, err
}

// damage is a row that cannot be read.
type damage struct{ what, id, column string }

func (d *damage) Error() string { return "sqlite: damaged " + d.what + ": " + d.column }

// setAside names a damaged row, and takes a job out of everything that runs.
func (s *Store) setAside(ctx context.Context, tx *database.Tx, d *damage) error {
	s.log.ErrorContext(ctx, "a stored row is damaged and was set aside", "what", d.what, "id", d.id, "column", d.column)
	if _, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO set_aside (what, id, why, at) VALUES (?, ?, ?, ?)`,
		d.what, d.id, d.column, ai.MillisOf(s.now())); err != nil || d.what != "job" {
		return err
	}
	tx.Tell(ofJob(ai.JobID(d.id)))
	if _, err := tx.ExecContext(ctx, `DELETE FROM queue WHERE seq = (SELECT seq FROM jobs WHERE id = ?)`, d.id); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `UPDATE jobs SET state = ?, lease_id = NULL WHERE id = ?`, stateSetAside, d.id)
	return err
}

// stateSetAside is the state of a job's row that could not be read.
const stateSetAside = "set-aside"
