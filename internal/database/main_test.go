package database

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/allodhq/allod/refusal"
)

// The test binary starts itself as another process. These say what it is to do.
const (
	envChild = "ALLOD_TEST_CHILD" // name of one of children
	envURL   = "ALLOD_TEST_URL"
	envKill  = "ALLOD_KILL" // name of the kill point where the process ends
)

var children = map[string]func() error{
	"count":   childCount,
	"append":  childAppend,
	"migrate": childMigrate,
}

func TestMain(m *testing.M) {
	if at := os.Getenv(envKill); at != "" {
		killpoint = func(name string) {
			if name == at {
				killSelf()
			}
		}
	}
	if child := os.Getenv(envChild); child != "" {
		if err := children[child](); err != nil {
			fmt.Fprintln(os.Stderr, child, "failed:", err, refusal.From(err).Unwrap())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// killSelf ends the process as kill -9 does.
func killSelf() {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		panic(err)
	}
	select {} // until the signal is there
}

var ctx = context.Background()

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

//go:embed testdata
var testdata embed.FS

// migrations returns the migrations of a folder in testdata.
func migrations(name string) fs.FS {
	sub, err := fs.Sub(testdata, "testdata/"+name)
	if err != nil {
		panic(err)
	}
	return sub
}

// configAt is the configuration that tests begin with.
func configAt(path string) Config {
	return Config{URL: "sqlite:" + path, Name: "site", Migrations: migrations("v1"), Clock: time.Now}
}

// tempConfig is configAt for a new file.
func tempConfig(t testing.TB) Config {
	return configAt(filepath.Join(t.TempDir(), "site.db"))
}

func (c Config) file() string { return c.URL[len("sqlite:"):] }

func mustOpen(t testing.TB, c Config) *DB {
	t.Helper()
	db, err := Open(ctx, c)
	if err != nil {
		t.Fatal(explain(err))
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(explain(err))
		}
	})
	return db
}

// explain shows the cause, which a refusal hides.
func explain(err error) string {
	return fmt.Sprint(err, " because: ", refusal.From(err).Unwrap())
}

func mustBe(t testing.TB, err error, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %s\nwant %v", explain(err), want)
	}
}

// add writes one item.
func add(db *DB, name string) error {
	return db.Write(ctx, func(tx *Tx) error { return insert(tx, name) })
}

func insert(tx *Tx, name string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO items(name) VALUES (?)", name)
	return err
}

// names reads all items in the order of their names.
func names(t testing.TB, db *DB) []string {
	t.Helper()
	var all []string
	err := db.Read(ctx, func(q Queryer) (err error) {
		all, err = column[string](q, "SELECT name FROM items ORDER BY name")
		return err
	})
	if err != nil {
		t.Fatal(explain(err))
	}
	return all
}

// column reads the one column of a query.
func column[T any](q Queryer, query string, args ...any) (all []T, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var v T
		if err := rows.Scan(&v); err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

func one[T any](t testing.TB, db *DB, query string, args ...any) (v T) {
	t.Helper()
	err := db.Read(ctx, func(q Queryer) error { return q.QueryRowContext(ctx, query, args...).Scan(&v) })
	if err != nil {
		t.Fatal(explain(err))
	}
	return v
}

// until waits for something that another goroutine is about to do.
func until(done func() bool) {
	for !done() {
		runtime.Gosched()
	}
}

// held is a writer that stands still within a function, so that a test
// decides what queues up behind it.
type held struct {
	db      *DB
	release chan struct{}
	held    chan error
	queued  int
}

// hold stops the writer. The function itself counts as one in its group.
func hold(t testing.TB, db *DB) *held {
	t.Helper()
	h := &held{db: db, release: make(chan struct{}), held: make(chan error, 1)}
	running := make(chan struct{})
	go func() {
		h.held <- db.Write(ctx, func(*Tx) error {
			close(running)
			<-h.release
			return nil
		})
	}()
	<-running
	return h
}

// queue adds a function behind the one that holds, and returns when it waits.
func (h *held) queue(ctx context.Context, fn func(*Tx) error) <-chan error {
	answer := make(chan error, 1)
	go func() { answer <- h.db.Write(ctx, fn) }()
	h.queued++
	until(func() bool { return h.db.Stats().Queued == h.queued })
	return answer
}

func (h *held) let() error {
	close(h.release)
	return <-h.held
}

// frozen is a clock that stands still, so that no group ends for its time.
func frozen() time.Time { return time.UnixMilli(1_700_000_000_000) }

// raw opens the file without this package.
func raw(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func (q *queue) isClosed() bool { q.mu.Lock(); defer q.mu.Unlock(); return q.closed }
