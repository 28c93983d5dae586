package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/ncruces/go-sqlite3"

	"github.com/allodhq/allod/refusal"
)

// What this package refuses.
var (
	ErrEngine = refusal.NewKind("database-engine", 501,
		"This version of Allod cannot use that database engine.",
		"Use sqlite: until PostgreSQL is supported.")
	ErrURL = refusal.NewKind("database-url", 400,
		"The address of the database is malformed.",
		"Write sqlite: and the path of the file, as in sqlite:/var/lib/allod/site.db. Options after the path are not taken.")
	ErrFolder = refusal.NewKind("database-folder", 404,
		"The folder that should hold the file does not exist.",
		"Create the folder first, owned by the user that runs Allod and closed to others, or correct the path.")
	ErrUnreadable = refusal.NewKind("database-unreadable", 403,
		"The database's path cannot be opened for reading and writing.",
		"Check that the path is a plain file and that it and its folder belong to the user that runs Allod.")
	ErrFormat = refusal.NewKind("database-format", 400,
		"The file is not a SQLite database.",
		"Correct the path. If this was a database once, put a backup in its place.")
	ErrParty = refusal.NewKind("database-party", 409,
		"The file holds the database of something else, and it was left as it is.",
		"Give every party a file of its own and correct the path.")
	ErrNewer = refusal.NewKind("database-newer", 409,
		"A newer version of Allod has changed this database's schema, and this one does not know it.",
		"Start the newer version again, or move the file and those named like it with -wal and -shm away and put the copy from before in its place.")
	ErrMigration = refusal.NewKind("database-migration", 500,
		"The database could not be brought to this version's schema. It is as it was, so the version before still works.",
		"Start the version before again, and look in the log for the reason.")
	ErrCopyExists = refusal.NewKind("database-copy-exists", 409,
		"There already is a file where the copy of the database should go, and a copy is never written over.",
		"Move the file away, or choose another path.")
	ErrBusy = refusal.NewKind("database-busy", 503,
		"The database has more to do than it can take on.",
		"Wait a moment and try again.")
	ErrClosed = refusal.NewKind("database-closed", 503,
		"The database is closed, because this process is stopping.",
		"Try again when it has started again.")
	ErrCancelled = refusal.NewKind("database-cancelled", 503,
		"The request ended before the database was done with it, and nothing was written.",
		"Try again, with more time if it had a time limit.")
	ErrPanic = refusal.NewKind("database-panic", 500,
		"A mistake in the program stopped a change to the database, and nothing of the change was written.",
		"Look in the log of this process for the place and report it.")
	ErrConstraint = refusal.NewKind("database-constraint", 409,
		"A rule of the database's schema forbids this change.",
		"Look at what is there already; it may have changed since the request was made.")
	ErrFull = refusal.NewKind("database-full", 507,
		"The disk of the database is full, and nothing was written.",
		"Free space on the disk. Allod goes on by itself as soon as there is some.")
	ErrIO = refusal.NewKind("database-io", 500,
		"The database's files cannot be read or written.",
		"Look in the log for the system's reason, and check the disk. Allod goes on by itself when the files can be used again.")
	ErrDamaged = refusal.NewKind("database-damaged", 500,
		"The database's file is damaged.",
		"Stop the process, move the file and those named like it with -wal and -shm away, and put the last good backup in its place.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Databases", Kinds: []*refusal.Kind{
	ErrEngine, ErrURL, ErrFolder, ErrUnreadable, ErrFormat, ErrParty, ErrNewer, ErrMigration, ErrCopyExists,
	ErrBusy, ErrClosed, ErrCancelled, ErrPanic, ErrConstraint, ErrFull, ErrIO, ErrDamaged,
}}

// IsUnique reports whether err says that a row with the same key is there
// already. It sees through the refusals of this package.
func IsUnique(err error) bool {
	return errors.Is(err, sqlite3.CONSTRAINT_UNIQUE) ||
		errors.Is(err, sqlite3.CONSTRAINT_PRIMARYKEY) ||
		errors.Is(err, sqlite3.CONSTRAINT_ROWID)
}

// named gives an error of the engine or the system a name. A refusal stays
// what it is, and so does an error that a caller's function made itself. The
// folder is where free space is looked for.
func named(folder string, err error) error {
	if err == nil {
		return nil
	}
	var r *refusal.Refusal
	var k *refusal.Kind
	switch {
	case errors.As(err, &r), errors.As(err, &k):
		return err
	case is(err, sqlite3.INTERRUPT, context.Canceled, context.DeadlineExceeded, sql.ErrTxDone):
		// The engine says INTERRUPT where a context ended.
		return ErrCancelled.Because(err)
	case is(err, sqlite3.BUSY, sqlite3.LOCKED, sqlite3.PROTOCOL):
		return ErrBusy.With("Another process holds the file.").Because(err)
	case is(err, sqlite3.CONSTRAINT):
		return ErrConstraint.Because(err)
	case is(err, sqlite3.FULL) || isFull(err):
		return ErrFull.Because(err)
	case is(err, sqlite3.IOERR, sqlite3.CANTOPEN) && noSpace(folder):
		// A full disk often comes back as a failed write, without its reason.
		return ErrFull.Because(err)
	case is(err, sqlite3.IOERR, sqlite3.CANTOPEN, sqlite3.READONLY, sqlite3.PERM, driver.ErrBadConn, sql.ErrConnDone):
		return ErrIO.Because(err)
	case is(err, sqlite3.CORRUPT, sqlite3.NOTADB):
		return ErrDamaged.Because(err)
	case ofEngine(err):
		return refusal.Internal.Because(err)
	}
	return err
}

// ofEngine reports whether the error is one of the engine's.
func ofEngine(err error) bool {
	var code sqlite3.ErrorCode
	return errors.As(err, &code)
}

func is(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
