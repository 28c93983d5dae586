package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"regexp"

	"github.com/ncruces/go-sqlite3"
	"github.com/pressly/goose/v3"
)

// aboutTable says whose database a file is. It has one row. It is made with
// the first migrations and in the same transaction, so a file has both or none.
const aboutTable = `CREATE TABLE allod_database(
	id         INTEGER PRIMARY KEY CHECK (id = 1),
	party      TEXT    NOT NULL,
	created_at INTEGER NOT NULL -- milliseconds since 1970
) STRICT`

// partyForm is how parties are named.
var partyForm = regexp.MustCompile(`^[a-z][a-z-]{0,31}$`)

// about is what a file says about itself.
type about struct {
	empty   bool
	party   string // empty if the file is not Allod's
	version int64  // of the newest migration that was applied
}

// pooled is a pool of database/sql, or one of its connections.
type pooled interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// inspect reads what a file says about itself and changes nothing.
func inspect(ctx context.Context, q pooled) (a about, err error) {
	var tables, ours, versions int
	err = q.QueryRowContext(ctx, `SELECT count(*),
		count(*) FILTER (WHERE name = 'allod_database'),
		count(*) FILTER (WHERE name = 'goose_db_version')
		FROM sqlite_schema WHERE type = 'table'`).Scan(&tables, &ours, &versions)
	a.empty = tables == 0
	if err == nil && ours > 0 {
		err = q.QueryRowContext(ctx, `SELECT party FROM allod_database WHERE id = 1`).Scan(&a.party)
	}
	if err == nil && versions > 0 {
		err = q.QueryRowContext(ctx, `SELECT coalesce(max(version_id), 0) FROM goose_db_version`).Scan(&a.version)
	}
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrDamaged.With("It does not say whose it is.")
	}
	return a, err
}

// judge refuses a file that this party's binary must not touch.
func (a about) judge(party string, newest int64) error {
	switch {
	case a.empty:
		return nil
	case a.party == "":
		return ErrParty.With("It is a database, but not one of Allod's.")
	case !partyForm.MatchString(a.party):
		return ErrParty // a stranger's words are not repeated
	case a.party != party:
		return ErrParty.With(fmt.Sprintf("It belongs to the %s, and this is the %s.", a.party, party))
	case a.version > newest:
		return ErrNewer.With(fmt.Sprintf("The file is at %d, and this version goes up to %d.", a.version, newest))
	}
	return nil
}

// newestMigration is the highest number among the migrations' file names.
func newestMigration(migrations fs.FS) (newest int64, err error) {
	names, err := fs.Glob(migrations, "*.sql")
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		n, err := goose.NumericComponent(name)
		if err != nil {
			return 0, err
		}
		newest = max(newest, n)
	}
	if newest == 0 {
		return 0, goose.ErrNoMigrations
	}
	return newest, nil
}

// migrate brings the file to the newest migration. All of it is one
// transaction: after a failure or a crash the file is at the version where it
// was, and of several processes that start together one migrates while the
// others wait.
func (db *DB) migrate(ctx context.Context, c *sql.Conn) (err error) {
	// A table can be rebuilt only while its foreign keys are not enforced, and
	// that cannot be changed inside of a transaction. They are checked below.
	if err := db.exec(ctx, c, "PRAGMA foreign_keys = OFF"); err != nil {
		return err
	}
	if err := db.exec(ctx, c, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	done := false
	defer func() {
		// The request may have ended; these must happen all the same.
		ctx := context.WithoutCancel(ctx)
		if !done && inTransaction(c) {
			err = errors.Join(err, db.exec(ctx, c, "ROLLBACK"))
		}
		err = errors.Join(err, db.exec(ctx, c, "PRAGMA foreign_keys = ON"))
	}()
	// Asked again: another process may have been here since the file was opened.
	was, err := inspect(ctx, c)
	if err != nil {
		return named(db.folder, err)
	}
	if err := was.judge(db.config.Name, db.newest); err != nil || was.version == db.newest {
		return err
	}
	failed := ErrMigration.With("")
	if was.empty {
		err = db.exec(ctx, c, aboutTable)
		if err == nil {
			_, err = c.ExecContext(ctx, `INSERT INTO allod_database VALUES (1, ?, ?)`,
				db.config.Name, db.config.Clock().UnixMilli())
		}
		if err != nil {
			return named(db.folder, err)
		}
	} else {
		path, err := db.copyBefore(ctx)
		if err != nil {
			return err
		}
		db.log.Info("copied the database before changing its schema", "copy", path, "from", was.version, "to", db.newest)
		failed = ErrMigration.With("A copy from before is at " + path + ".")
	}
	killpoint("before-migration")
	if err := db.apply(ctx, c); err != nil {
		db.log.Error("migration failed", "from", was.version, "to", db.newest, "cause", err)
		if err = named(db.folder, err); is(err, ErrFull, ErrIO, ErrCancelled, ErrDamaged) {
			return err
		}
		return failed.Because(err)
	}
	killpoint("before-migration-commit")
	if err := db.exec(ctx, c, "COMMIT"); err != nil {
		return err
	}
	done = true
	return named(db.folder, syncFolder(db.folder))
}

// apply runs the migrations that are missing, inside of the open transaction.
func (db *DB) apply(ctx context.Context, c *sql.Conn) error {
	err := c.Raw(func(c any) error {
		inner := sql.OpenDB(nested{c.(*conn)})
		inner.SetMaxOpenConns(1)
		provider, err := goose.NewProvider(goose.DialectSQLite3, inner, db.config.Migrations,
			goose.WithDisableGlobalRegistry(true))
		if err == nil {
			_, err = provider.Up(ctx)
		}
		return errors.Join(err, inner.Close())
	})
	if err != nil {
		return err
	}
	if !inTransaction(c) {
		return errors.New("a migration ended the transaction that it ran in")
	}
	var broken int
	err = c.QueryRowContext(ctx, "SELECT count(*) FROM pragma_foreign_key_check").Scan(&broken)
	if err == nil && broken > 0 {
		err = fmt.Errorf("a migration left %d rows with a foreign key that leads nowhere", broken)
	}
	return err
}

// exec runs one statement and gives its error a name.
func (db *DB) exec(ctx context.Context, c *sql.Conn, query string) error {
	_, err := c.ExecContext(ctx, query)
	return named(db.folder, err)
}

// inTransaction reports whether a transaction is open. The engine ends one by
// itself after some errors.
func inTransaction(c *sql.Conn) (open bool) {
	_ = engineOf(c, func(e *sqlite3.Conn) error {
		open = !e.GetAutocommit()
		return nil
	})
	return open
}
