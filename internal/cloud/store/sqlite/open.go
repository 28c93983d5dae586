package sqlite

import (
	"context"
	"embed"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/database"
)

//go:embed migrations/*.sql
var files embed.FS

// Name is the name of the schema in the file, by which a controller's file is told
// from another party's.
const Name = "zone"

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

// Store is a controller's store in one file. [Open] makes one.
type Store struct {
	db  *database.DB
	log *slog.Logger
	now func() time.Time

	mu    sync.Mutex
	named map[damage]bool // what this process has named
}

var _ store.Store = (*Store)(nil)

// Open opens or makes the file and brings its schema up to date, after copying an
// older one beside it. It refuses files of other parties and of newer versions of
// this program, with the names of package internal/database.
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
	return &Store{db: db, log: c.Logger, now: c.Clock, named: map[damage]bool{}}, nil
}

// Read is as in [store.Store]. Writes go on meanwhile.
func (s *Store) Read(ctx context.Context, fn func(tx store.Tx) error) error {
	t := &tx{ctx: ctx}
	err := s.db.Read(ctx, func(q database.Queryer) error {
		t.q = q
		return fn(t)
	})
	s.setAside(ctx, t.damaged)
	return err
}

// Write is as in [store.Store].
func (s *Store) Write(ctx context.Context, fn func(tx store.Tx) error) error {
	t := &tx{ctx: ctx}
	err := s.db.Write(ctx, func(w *database.Tx) error {
		t.q, t.w = w, w
		return fn(t)
	})
	s.setAside(ctx, t.damaged)
	return err
}

// Stats tells what the database has done since it was opened.
func (s *Store) Stats() database.Stats { return s.db.Stats() }

// Backup writes a consistent copy of the store to a new file at path, while the
// store is in use.
func (s *Store) Backup(ctx context.Context, path string) error { return s.db.Backup(ctx, path) }

// Close finishes what was begun and closes the file.
func (s *Store) Close() error { return s.db.Close() }
