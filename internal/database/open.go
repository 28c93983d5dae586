package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// Bounds and defaults of [Config].
const (
	// MaxReaders is the most connections for reading. Each can hold a few MiB.
	MaxReaders = 64
	// MaxQueue is the most functions that can wait for the writer.
	MaxQueue = 1 << 16
	// MaxGroup is the most functions that one commit can hold.
	MaxGroup = 256

	defaultReaders   = 8 // or GOMAXPROCS, if that is less
	defaultQueue     = 1024
	defaultGroup     = 128
	defaultGroupTime = 20 * time.Millisecond

	// busyTimeout is how long the writer waits while another process writes.
	busyTimeout = 5 * time.Second
)

// Config says which database to open and for whom. The first four fields are
// required.
type Config struct {
	// URL is sqlite: and the path of the file, as in sqlite:/var/lib/allod/site.db.
	// A relative path is taken from the working directory.
	URL string
	// Name is the name of the party's schema, as in "site": up to 32 lower-case letters
	// and hyphens. It is kept in the file, and a file with another name is refused.
	Name string
	// Migrations holds goose migrations named like 001_jobs.sql at its top, each
	// with a part "-- +goose Up". All that are missing run in one transaction with
	// foreign keys checked at the end, so NO TRANSACTION has no effect.
	Migrations fs.FS
	// Clock tells the time, for the date in the file, statistics and GroupTime.
	Clock func() time.Time

	// Logger hears of migrations and failures. Nil means that nobody does.
	Logger *slog.Logger
	// Readers is how many snapshots can be open at once, 1 to [MaxReaders]. Zero means
	// GOMAXPROCS, but at most 8: more would take the processors from the writer.
	Readers int
	// Queue is how many functions can wait for the writer, 1 to [MaxQueue]. Zero means 1024.
	Queue int
	// Group is how many functions one commit holds at most, 1 to [MaxGroup]. Zero means 128.
	Group int
	// GroupTime is how long the functions of one group may run before no further
	// one is added to it. Zero means 20 ms.
	GroupTime time.Duration

	// engine is what only this package's tests change.
	engine engine
}

// engine holds what tests change: the disk below the database, how hard it is
// asked to write, how often the log is folded into the file, how long to wait.
type engine struct {
	vfs         string
	synchronous string
	checkpoint  int
	busy        time.Duration
}

// complete checks the fields and fills in the defaults.
func (c *Config) complete() error {
	if !partyForm.MatchString(c.Name) || c.Migrations == nil || c.Clock == nil {
		return errors.New("database: Config needs Name, Migrations and Clock")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	for _, n := range []struct {
		value        *int
		initial, top int
	}{
		{&c.Readers, min(runtime.GOMAXPROCS(0), defaultReaders), MaxReaders},
		{&c.Queue, defaultQueue, MaxQueue},
		{&c.Group, defaultGroup, MaxGroup},
	} {
		if *n.value == 0 {
			*n.value = n.initial
		}
		if *n.value < 1 || *n.value > n.top {
			return fmt.Errorf("database: Config has a number outside 1 to %d", n.top)
		}
	}
	if c.GroupTime == 0 {
		c.GroupTime = defaultGroupTime
	}
	if c.engine.synchronous == "" {
		c.engine.synchronous = "FULL"
	}
	if c.engine.busy == 0 {
		c.engine.busy = busyTimeout
	}
	return nil
}

// dsn is the engine's address of the file, with settings in the order in which
// they are made. The time to wait comes first, since the others may have to.
func (c *Config) dsn(path string, pragmas ...string) string {
	query := url.Values{
		"_pragma": append([]string{fmt.Sprintf("busy_timeout(%d)", c.engine.busy.Milliseconds())}, pragmas...),
		"modeof":  {path}, // the log gets the mode of the file
	}
	if c.engine.vfs != "" {
		query.Set("vfs", c.engine.vfs)
	}
	// The engine takes a plus sign in an address for a plus sign.
	return "file:" + (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath() + "?" +
		strings.ReplaceAll(query.Encode(), "+", "%20")
}

func (c *Config) writerDSN(path string) string {
	pragmas := []string{
		"journal_mode(WAL)",
		"synchronous(" + c.engine.synchronous + ")",
		"fullfsync(1)", // without it a sync on macOS does not reach the disk
		"foreign_keys(1)",
		// A reader that stays long makes the log grow; this gives the space back.
		fmt.Sprintf("journal_size_limit(%d)", 64<<20),
	}
	if c.engine.checkpoint > 0 {
		pragmas = append(pragmas, fmt.Sprintf("wal_autocheckpoint(%d)", c.engine.checkpoint))
	}
	return c.dsn(path, pragmas...)
}

// DB is one party's open database. Its methods can be called from any
// goroutine, except from within a function given to [DB.Write]: the writer would
// wait for itself.
type DB struct {
	config Config
	path   string
	folder string
	newest int64 // number of the newest migration
	log    *slog.Logger

	readers *sql.DB
	writers *sql.DB // one connection
	writer  *writer
	signals signals

	mu      sync.Mutex
	closed  bool
	reads   sync.WaitGroup
	closing context.Context // ends when reads must
	stop    context.CancelFunc

	once     sync.Once
	closeErr error
}

// Open opens the database, creates it if the file is absent or empty, and
// brings it to the newest migration. Before a schema changes, a copy of the file
// is put beside it, named like the file with ".before-N.db" after it, where N is
// the number of the newest migration. The file gets mode 0600.
//
// It returns [ErrURL], [ErrEngine], [ErrFolder], [ErrUnreadable], [ErrFormat],
// [ErrParty], [ErrNewer], [ErrMigration], [ErrCopyExists], [ErrBusy] if another
// process holds the file for more than five seconds, [ErrFull], [ErrIO],
// [ErrDamaged] or [ErrCancelled]. A file that is refused keeps its content.
func Open(ctx context.Context, config Config) (_ *DB, err error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	newest, err := newestMigration(config.Migrations)
	if err != nil {
		return nil, err
	}
	path, err := filePath(config.URL)
	if err != nil {
		return nil, err
	}
	size, err := openable(path)
	if err != nil {
		return nil, err
	}
	db := &DB{
		config: config, path: path, folder: filepath.Dir(path), newest: newest,
		log: config.Logger.With("database", config.Name),
	}
	db.closing, db.stop = context.WithCancel(context.Background())
	if size > 0 {
		if err := db.probe(ctx); err != nil {
			return nil, err
		}
	}
	if err := private(path); err != nil {
		if isFull(err) {
			return nil, ErrFull.Because(err)
		}
		return nil, ErrUnreadable.Because(err)
	}
	if db.writers, err = pool(config.writerDSN(path), 1); err != nil {
		return nil, named(db.folder, err)
	}
	defer func() {
		if err != nil {
			_ = db.writers.Close()
		}
	}()
	c, err := db.connect(ctx)
	if err != nil {
		return nil, named(db.folder, err)
	}
	defer c.Close()
	if err := db.logged(ctx, c); err != nil {
		return nil, err
	}
	if err := db.migrate(ctx, c); err != nil {
		return nil, err
	}
	if db.readers, err = pool(config.dsn(path, "query_only(1)"), config.Readers); err != nil {
		return nil, named(db.folder, err)
	}
	db.writer = newWriter(db)
	return db, nil
}

// probe looks at an existing file without changing it. The settings that the
// writer makes would turn a stranger's database into one with a log.
func (db *DB) probe(ctx context.Context) error {
	p, err := pool(db.config.dsn(db.path, "query_only(1)"), 1)
	if err != nil {
		return named(db.folder, err)
	}
	defer p.Close()
	a, err := inspect(ctx, p)
	if errors.Is(err, sqlite3.NOTADB) {
		return ErrFormat.Because(err)
	} else if err != nil {
		return named(db.folder, err)
	}
	return a.judge(db.config.Name, db.newest)
}

// connect opens the writer's connection. The engine does not wait for its lock
// when it gives a file its log, since two who wait for each other would wait for
// ever. So when several processes start on a new file, all but one try again.
func (db *DB) connect(ctx context.Context) (*sql.Conn, error) {
	for waited, pause := time.Duration(0), time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		c, err := db.writers.Conn(ctx)
		if !errors.Is(err, sqlite3.BUSY) || waited >= db.config.engine.busy {
			return c, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause + rand.N(pause)): // else they would meet again
			waited += pause
		}
	}
}

// logged makes sure that the write-ahead log is in use. On some network
// folders the engine goes on without it and says so only when asked.
func (db *DB) logged(ctx context.Context, c *sql.Conn) error {
	var mode string
	if err := c.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return named(db.folder, err)
	}
	if mode != "wal" {
		return ErrIO.With("This file system cannot hold a write-ahead log. Keep the file on a local disk.")
	}
	return nil
}

// Close refuses further work with [ErrClosed], lets the writer finish what had
// queued up, ends reads that still run, folds the log into the file and closes
// it. It waits as long as that takes. Subscribers get a last signal. A second
// call does nothing and returns the same.
func (db *DB) Close() error {
	db.once.Do(func() {
		db.writer.finish()
		db.mu.Lock()
		db.closed = true
		db.mu.Unlock()
		db.stop()
		db.reads.Wait()
		err := errors.Join(db.readers.Close(), db.fold(), db.writers.Close())
		db.closeErr = named(db.folder, err)
		db.signals.all()
	})
	return db.closeErr
}

// fold moves the log into the file, so that the file alone is the database.
func (db *DB) fold() error {
	ctx := context.Background()
	c, err := db.writers.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	err = engineOf(c, func(e *sqlite3.Conn) error {
		_, _, err := e.WALCheckpoint("main", sqlite3.CHECKPOINT_TRUNCATE)
		return err
	})
	if errors.Is(err, sqlite3.BUSY) {
		return nil // another process uses the file and will do it
	}
	return err
}

// enter admits a read; leave ends it. Close waits for those that are inside.
func (db *DB) enter() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return ErrClosed
	}
	db.reads.Add(1)
	return nil
}

func (db *DB) leave() { db.reads.Done() }
