package database

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/allodhq/allod/refusal"
)

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, content string) string {
		if err := os.WriteFile(at(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return at(name)
	}
	// A whole database, and one that breaks off in the middle of its first page.
	whole := configAt(at("whole.db"))
	if err := mustOpen(t, whole).Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(whole.file())
	if err != nil {
		t.Fatal(err)
	}
	stranger := raw(t, at("stranger.db"))
	if _, err := stranger.Exec("CREATE TABLE bookmarks(url TEXT)"); err != nil {
		t.Fatal(err)
	}
	stranger.Close()
	if err := os.Mkdir(at("folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	nobody := raw(t, at("nobody.db"))
	if _, err := nobody.Exec(aboutTable); err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	rude := raw(t, at("rude.db"))
	if _, err := rude.Exec(aboutTable + "; INSERT INTO allod_database VALUES (1, 'secret', 0), (2, 'x', 0)"); err == nil {
		t.Error("a file can belong to two")
	}
	if _, err := rude.Exec("INSERT INTO allod_database VALUES (1, char(27) || 'secret', 0)"); err != nil {
		t.Fatal(err)
	}
	rude.Close()

	tests := []struct {
		name   string
		url    string
		change func(c *Config)
		want   error
	}{
		{"nothing", "", nil, ErrURL},
		{"no engine", at("x.db"), nil, ErrURL},
		{"unknown engine", "mysql:" + at("x.db"), nil, ErrURL},
		{"PostgreSQL", "postgres://user:secret@host/db", nil, ErrEngine},
		{"PostgreSQL by its other name", "postgresql:db", nil, ErrEngine},
		{"no path", "sqlite:", nil, ErrURL},
		{"a host", "sqlite://host/x.db", nil, ErrURL},
		{"options", "sqlite:" + at("x.db") + "?mode=ro", nil, ErrURL},
		{"memory", "sqlite::memory:", nil, ErrURL},
		{"no folder", "sqlite:" + at("none/x.db"), nil, ErrFolder},
		{"a file for a folder", "sqlite:" + write("plain", "") + "/x.db", nil, ErrFolder},
		{"a folder for a file", "sqlite:" + at("folder"), nil, ErrUnreadable},
		{"text", "sqlite:" + write("text.db", strings.Repeat("no database\n", 1000)), nil, ErrFormat},
		{"short text", "sqlite:" + write("short.db", "x"), nil, ErrFormat},
		{"breaks off", "sqlite:" + write("cut.db", string(content[:5000])), nil, ErrDamaged},
		{"a stranger's", "sqlite:" + at("stranger.db"), nil, ErrParty},
		{"another party's", whole.URL, func(c *Config) { c.Name = "relay" }, ErrParty},
		{"a rude stranger's", "sqlite:" + at("rude.db"), nil, ErrParty},
		{"does not say whose", "sqlite:" + at("nobody.db"), nil, ErrDamaged},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := configAt(at("x.db"))
			c.URL = test.url
			if test.change != nil {
				test.change(&c)
			}
			var before []byte
			if strings.HasPrefix(c.URL, "sqlite:"+dir) {
				before, _ = os.ReadFile(c.file())
			}
			_, err := Open(ctx, c)
			mustBe(t, err, test.want)
			if shown := string(refusal.JSON(err)); strings.Contains(shown, "secret") || strings.Contains(shown, "sqlite3:") {
				t.Errorf("shows %s", shown)
			}
			if before != nil {
				if after, _ := os.ReadFile(c.file()); !bytes.Equal(before, after) {
					t.Error("the refused file has changed")
				}
			}
		})
	}
	for _, litter := range []string{"text.db-shm", "stranger.db-shm", "stranger.db-wal"} {
		if exists(at(litter)) {
			t.Errorf("%s was left behind", litter)
		}
	}
}

// TestOpenWithoutPermission needs a user whom modes keep out.
func TestOpenWithoutPermission(t *testing.T) {
	if runtime.GOOS == "windows" || os.Geteuid() == 0 {
		t.Skip("modes keep nobody out: this is root or Windows")
	}
	c := tempConfig(t)
	if err := os.WriteFile(c.file(), nil, 0o400); err != nil {
		t.Fatal(err)
	}
	_, err := Open(ctx, c)
	mustBe(t, err, ErrUnreadable)
}

func TestConfigIsChecked(t *testing.T) {
	for name, change := range map[string]func(c *Config){
		"no name":       func(c *Config) { c.Name = "" },
		"bad name":      func(c *Config) { c.Name = "Site 1" },
		"no clock":      func(c *Config) { c.Clock = nil },
		"no migrations": func(c *Config) { c.Migrations = nil },
		"empty":         func(c *Config) { c.Migrations = fstest.MapFS{} },
		"unnumbered":    func(c *Config) { c.Migrations = fstest.MapFS{"first.sql": {}} },
		"readers":       func(c *Config) { c.Readers = MaxReaders + 1 },
		"queue":         func(c *Config) { c.Queue = -1 },
		"group":         func(c *Config) { c.Group = MaxGroup + 1 },
	} {
		c := tempConfig(t)
		change(&c)
		if _, err := Open(ctx, c); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if exists(c.file()) {
			t.Errorf("%s: a file was made", name)
		}
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	ended, end := context.WithCancel(ctx)
	end()
	_, err := Open(ended, tempConfig(t))
	mustBe(t, err, ErrCancelled)
}

// TestPaths opens names that mean something in an address, and a link.
func TestPaths(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"with space.db", "50%.db", "a+b&c=d.db", "ümlaut.db", "semi;colon.db"} {
		c := configAt(filepath.Join(dir, name))
		db := mustOpen(t, c)
		if err := add(db, "a"); err != nil {
			t.Errorf("%s: %s", name, explain(err))
		}
		if !exists(c.file()) || !exists(c.file()+"-wal") {
			t.Errorf("%s: the files have other names", name)
		}
		if err := db.Backup(ctx, c.file()+".copy"); err != nil || !exists(c.file()+".copy") {
			t.Errorf("%s: %s", name, explain(err))
		}
	}
	t.Chdir(dir)
	db := mustOpen(t, configAt("relative.db"))
	if err := add(db, "a"); err != nil || !exists(filepath.Join(dir, "relative.db")) {
		t.Error("relative path:", err)
	}
	if err := os.Symlink(filepath.Join(dir, "relative.db"), "link.db"); err != nil {
		t.Skip("links cannot be made here")
	}
	linked := mustOpen(t, configAt("link.db"))
	if got := names(t, linked); !slices.Equal(got, []string{"a"}) || exists("link.db-wal") || exists("link.db-shm") {
		t.Errorf("through a link: %v", got)
	}
}

func TestFilesAreClosedToOthers(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a mode is no access list there")
	}
	c := tempConfig(t)
	check := func(when string) {
		t.Helper()
		paths, _ := filepath.Glob(c.file() + "*")
		if len(paths) < 3 {
			t.Errorf("%s: only %v", when, paths)
		}
		for _, path := range paths {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != fileMode {
				t.Errorf("%s: %s has mode %v", when, path, info.Mode())
			}
		}
	}
	db := mustOpen(t, c)
	if err := errors.Join(add(db, "a"), db.Backup(ctx, c.file()+".copy")); err != nil {
		t.Fatal(explain(err))
	}
	check("new")
	db.Close()
	if err := os.Chmod(c.file(), 0o644); err != nil {
		t.Fatal(err)
	}
	db = mustOpen(t, c)
	if err := add(db, "b"); err != nil {
		t.Fatal(explain(err))
	}
	check("restored")
}

func TestSettings(t *testing.T) {
	c := tempConfig(t)
	db := mustOpen(t, c)
	err := db.Write(ctx, func(tx *Tx) error {
		for pragma, want := range map[string]any{
			"journal_mode": "wal", "synchronous": int64(2), "fullfsync": int64(1), "foreign_keys": int64(1),
			"busy_timeout": int64(5000), "temp_store": int64(2),
		} {
			got, err := column[any](tx, "PRAGMA "+pragma)
			if err != nil || !slices.Equal(got, []any{want}) {
				t.Errorf("%s is %v %v", pragma, got, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(explain(err))
	}
	if db.readers.Stats().MaxOpenConnections != min(runtime.GOMAXPROCS(0), defaultReaders) {
		t.Error("readers:", db.readers.Stats().MaxOpenConnections)
	}
}

// TestStatements holds that a connection keeps statements, but not without end.
func TestStatements(t *testing.T) {
	db := mustOpen(t, tempConfig(t))
	kept := func() (n int) {
		_ = db.Write(ctx, func(tx *Tx) error {
			return tx.w.conn.Raw(func(c any) error { n = len(c.(*conn).idle); return nil })
		})
		return n
	}
	kept() // the first commit prepares what every commit needs
	before := kept()
	for range 50 {
		_ = db.Write(ctx, func(tx *Tx) error { _, err := column[int](tx, "SELECT 1"); return err })
	}
	if n := kept(); n != before+1 {
		t.Errorf("%d statements more", n-before)
	}
	err := db.Write(ctx, func(tx *Tx) error {
		for i := range 2 * maxStatements {
			if _, err := column[int](tx, "SELECT 1"+strings.Repeat(" ", i)); err != nil {
				return err
			}
		}
		return nil
	})
	if n := kept(); err != nil || n > maxStatements {
		t.Errorf("%d statements: %s", n, explain(err))
	}
}

func TestMigration(t *testing.T) {
	c := tempConfig(t)
	db := mustOpen(t, c)
	err := db.Write(ctx, func(tx *Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO parts(item) SELECT 1")
		return errors.Join(insert(tx, "old"), err)
	})
	if err != nil {
		t.Fatal(explain(err))
	}
	older := db // still in use when the newer version starts
	c2 := c
	c2.Migrations = migrations("v2")
	db = mustOpen(t, c2)
	if err := add(db, "new"); err != nil {
		t.Fatal(explain(err))
	}
	if got := one[string](t, db, "SELECT color FROM items WHERE name = 'old'"); got != "none" {
		t.Errorf("color is %q", got)
	}
	if got := one[int](t, db, "SELECT value FROM counters"); got != 1 {
		t.Errorf("the trigger counted %d", got)
	}
	err = db.Write(ctx, func(tx *Tx) error { _, err := tx.ExecContext(ctx, "INSERT INTO parts(item) VALUES (99)"); return err })
	mustBe(t, err, ErrConstraint) // foreign keys are enforced again
	if err := db.Check(ctx); err != nil {
		t.Error(explain(err))
	}
	older.Close()
	db.Close()

	_, err = Open(ctx, c)
	mustBe(t, err, ErrNewer)
	copied := configAt(c.file() + ".before-3.db")
	if got := names(t, mustOpen(t, copied)); !slices.Equal(got, []string{"old"}) {
		t.Errorf("the copy holds %v", got)
	}
	mustOpen(t, c2)
	if paths, _ := filepath.Glob(c.file() + ".*"); slices.ContainsFunc(paths, func(p string) bool {
		return strings.Contains(p, "partial") || strings.Contains(p, "before-3-")
	}) {
		t.Errorf("files: %v", paths)
	}
}

func TestMigrationFails(t *testing.T) {
	for _, broken := range []string{"broken", "dangling"} {
		t.Run(broken, func(t *testing.T) {
			c := tempConfig(t)
			db := mustOpen(t, c)
			if err := add(db, "a"); err != nil {
				t.Fatal(explain(err))
			}
			db.Close()
			bad := c
			bad.Migrations = migrations(broken)
			newest, err := newestMigration(bad.Migrations)
			if err != nil {
				t.Fatal(err)
			}
			first := c.file() + map[int64]string{2: ".before-2", 3: ".before-3"}[newest]
			if err := os.WriteFile(first+".db.partial", []byte("cut off"), 0o600); err != nil {
				t.Fatal(err)
			}
			fails := func(copied string) {
				t.Helper()
				_, err := Open(ctx, bad)
				mustBe(t, err, ErrMigration)
				if detail := refusal.From(err).Detail(); !strings.Contains(detail, copied) {
					t.Errorf("%q does not name the copy %s", detail, copied)
				}
			}
			// Starting again and again makes no more copies.
			for range 3 {
				fails(first + ".db")
			}
			// The version before still works, and what it writes is in the next copy.
			db = mustOpen(t, c)
			if got := names(t, db); !slices.Equal(got, []string{"a"}) {
				t.Errorf("items are %v", got)
			}
			if err := errors.Join(db.Check(ctx), add(db, "b")); err != nil {
				t.Fatal(explain(err))
			}
			db.Close()
			fails(first + "-2.db")
			if got := names(t, mustOpen(t, configAt(first+".db"))); !slices.Equal(got, []string{"a"}) {
				t.Errorf("the first copy holds %v", got)
			}
			if got := names(t, mustOpen(t, configAt(first+"-2.db"))); !slices.Equal(got, []string{"a", "b"}) {
				t.Errorf("the second copy holds %v", got)
			}
			for i := 3; i <= maxCopies; i++ {
				if err := os.WriteFile(first+"-"+string(rune('0'+i))+".db", []byte("mine"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			db = mustOpen(t, c)
			if err := add(db, "c"); err != nil {
				t.Fatal(explain(err))
			}
			db.Close()
			_, err = Open(ctx, bad)
			mustBe(t, err, ErrCopyExists)
			if exists(first + ".db.partial") {
				t.Error("an unfinished copy was left")
			}
		})
	}
}

// TestNewFileWithBrokenMigration holds that a failed first start leaves a file
// that a corrected version can use.
func TestNewFileWithBrokenMigration(t *testing.T) {
	c := tempConfig(t)
	bad := c
	bad.Migrations = migrations("broken")
	_, err := Open(ctx, bad)
	mustBe(t, err, ErrMigration)
	if err := add(mustOpen(t, c), "a"); err != nil {
		t.Error(explain(err))
	}
}

func TestBusy(t *testing.T) {
	c := tempConfig(t)
	c.engine.busy = time.Millisecond
	db := mustOpen(t, c)
	other := raw(t, c.file())
	other.SetMaxOpenConns(1)
	must := func(query string) {
		t.Helper()
		if _, err := other.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	must("PRAGMA busy_timeout = 0")
	must("BEGIN IMMEDIATE")
	mustBe(t, add(db, "a"), ErrBusy)
	_, err := Open(ctx, c)
	mustBe(t, err, ErrBusy)
	must("COMMIT")
	// The lock is there before a function reads, so that what it read still holds when it writes.
	err = db.Write(ctx, func(*Tx) error {
		_, err := other.Exec("BEGIN IMMEDIATE")
		if !errors.Is(err, sqlite3.BUSY) {
			t.Errorf("another process writes at the same time: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(explain(err))
	}
	must("BEGIN IMMEDIATE; COMMIT")
	if err := add(db, "b"); err != nil {
		t.Error(explain(err))
	}
}

// TestBusyWithoutLog opens a file that is yet to get its log while another
// process has it: the engine itself would not wait at all.
func TestBusyWithoutLog(t *testing.T) {
	c := tempConfig(t)
	copied := configAt(c.file() + ".copy")
	if err := mustOpen(t, c).Backup(ctx, copied.file()); err != nil {
		t.Fatal(explain(err))
	}
	other := raw(t, copied.file())
	other.SetMaxOpenConns(1)
	if _, err := other.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	copied.engine.busy = time.Millisecond
	_, err := Open(ctx, copied)
	mustBe(t, err, ErrBusy)
	copied.engine.busy = time.Hour
	ended, end := context.WithCancel(ctx)
	opened := make(chan error)
	go func() { _, err := Open(ended, copied); opened <- err }()
	end()
	mustBe(t, <-opened, ErrCancelled)
	go func() {
		db, err := Open(ctx, copied)
		if err == nil {
			err = errors.Join(db.Check(ctx), db.Close())
		}
		opened <- err
	}()
	if _, err := other.Exec("COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Error(explain(err))
	}
}

// TestCancelledWhileBusy lets the only caller go while the writer waits for
// another process.
func TestCancelledWhileBusy(t *testing.T) {
	c := tempConfig(t)
	c.engine.busy = time.Hour
	var asked atomic.Int32 // the clock is asked when a transaction has begun
	c.Clock = func() time.Time { asked.Add(1); return frozen() }
	db := mustOpen(t, c)
	other := raw(t, c.file())
	other.SetMaxOpenConns(1)
	if _, err := other.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	before := asked.Load()
	ended, end := context.WithCancel(ctx)
	gone := (&held{db: db}).queue(ended, func(*Tx) error { return errors.New("must not run") })
	until(func() bool { return db.writers.Stats().InUse == 1 }) // the writer is past its wait for work
	end()
	mustBe(t, <-gone, ErrCancelled)
	if _, err := other.Exec("COMMIT"); err != nil {
		t.Fatal(err)
	}
	until(func() bool { return asked.Load() > before })
	if _, err := other.Exec("BEGIN IMMEDIATE; COMMIT"); err != nil {
		t.Fatal("the writer keeps the lock although it has nothing to write: ", err)
	}
	if err := add(db, "a"); err != nil {
		t.Error(explain(err))
	}
}

func TestBackup(t *testing.T) {
	c := tempConfig(t)
	db := mustOpen(t, c)
	for _, name := range []string{"a", "b"} {
		if err := add(db, name); err != nil {
			t.Fatal(explain(err))
		}
	}
	path := filepath.Join(t.TempDir(), "copy.db")
	h := hold(t, db) // the copy does not wait for the writer
	if err := db.Backup(ctx, path); err != nil {
		t.Fatal(explain(err))
	}
	_ = h.let()
	if err := add(db, "later"); err != nil {
		t.Fatal(explain(err))
	}
	copied := mustOpen(t, configAt(path))
	if got := names(t, copied); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the copy holds %v", got)
	}
	if err := copied.Check(ctx); err != nil {
		t.Error(explain(err))
	}

	before, _ := os.ReadFile(path)
	mustBe(t, db.Backup(ctx, path), ErrCopyExists)
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("the copy was written over")
	}
	mustBe(t, db.Backup(ctx, c.file()), ErrCopyExists)
	mustBe(t, db.Backup(ctx, filepath.Join(t.TempDir(), "none", "copy.db")), ErrFolder)
	ended, end := context.WithCancel(ctx)
	end()
	mustBe(t, db.Backup(ended, path+"2"), ErrCancelled)
	if paths, _ := filepath.Glob(path + "2*"); len(paths) > 0 {
		t.Errorf("left behind: %v", paths)
	}
	if err := os.WriteFile(path+"3.partial", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mustBe(t, db.Backup(ctx, path+"3"), ErrCopyExists)
}

func TestCheckFindsDamage(t *testing.T) {
	c := tempConfig(t)
	db := mustOpen(t, c)
	err := db.Write(ctx, func(tx *Tx) error {
		for i := range 500 {
			if err := insert(tx, strings.Repeat("x", 100)+time.Unix(int64(i), 0).String()); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, db.Check(ctx), db.Close()); err != nil {
		t.Fatal(explain(err))
	}
	content, err := os.ReadFile(c.file())
	if err != nil {
		t.Fatal(err)
	}
	// The last page is one of the table's or its index's.
	for i := len(content) - 3000; i < len(content); i++ {
		content[i] = 0xff
	}
	if err := os.WriteFile(c.file(), content, 0o600); err != nil {
		t.Fatal(err)
	}
	err = mustOpen(t, c).Check(ctx)
	mustBe(t, err, ErrDamaged)
	if refusal.From(err).Unwrap() == nil {
		t.Error("the log learns nothing")
	}

	for name, damage := range map[string]string{
		"foreign key": "PRAGMA foreign_keys = OFF; INSERT INTO parts(item) VALUES (77)",
		"rule": `CREATE TABLE loose(a TEXT); INSERT INTO loose VALUES (NULL); PRAGMA writable_schema = ON;
			UPDATE sqlite_schema SET sql = 'CREATE TABLE loose(a TEXT NOT NULL)' WHERE name = 'loose'`,
	} {
		c := tempConfig(t)
		db := mustOpen(t, c)
		if _, err := raw(t, c.file()).Exec(damage); err != nil {
			t.Fatal(name, err)
		}
		mustBe(t, db.Check(ctx), ErrDamaged)
	}
}

// TestKinds holds that every refusal of this package is documented.
func TestKinds(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range Kinds.Kinds {
		if seen[k.Name()] || !strings.HasPrefix(k.Name(), "database-") {
			t.Errorf("name %s", k.Name())
		}
		seen[k.Name()] = true
	}
	if !errors.Is(named("", &fs.PathError{Err: os.ErrPermission}), os.ErrPermission) {
		t.Error("an error of a function's own was changed")
	}
}
