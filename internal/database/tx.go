package database

import (
	"cmp"
	"context"
	"database/sql"

	"github.com/ncruces/go-sqlite3"

	"github.com/allodhq/allod/refusal"
)

// Queryer is what can be asked. [Tx] and what [DB.Read] gives are Queryers, so
// one function of a store can serve both. Statements are prepared once and kept.
type Queryer interface {
	// QueryContext runs one statement. Rows that are still open when the function
	// ends are closed then.
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	// QueryRowContext runs one statement that is expected to give one row. Its
	// error, sql.ErrNoRows if there is none, comes from Scan.
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Tx is the part of a commit that belongs to one function. It must be used by
// that function alone, in one goroutine, and not after it has returned.
//
// A context that ends is noticed before a statement begins, but does not stop
// one: the engine would undo the writes of the whole group with it. For the same
// reason no statement may begin or end a transaction or say OR ROLLBACK.
type Tx struct {
	w     *writer
	told  []Topic
	over  bool
	open  []func() // closes what queries have left open
	fault error    // after which the engine may have undone the whole transaction
}

// These are mistakes in the calling code.
var (
	errOver  = refusal.Internal.With("A transaction was used after its function had returned.")
	errEnded = refusal.Internal.With("A transaction ended before its function did.")
)

// ExecContext runs one statement. It returns [ErrConstraint] (see [IsUnique]),
// [ErrFull], [ErrIO], [ErrDamaged] or [ErrCancelled]; all of them keep the
// engine's error as their cause.
func (tx *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := tx.usable(ctx); err != nil {
		return nil, err
	}
	result, err := tx.w.conn.ExecContext(context.Background(), query, args...)
	return result, tx.named(err)
}

// QueryContext is as in [Queryer]. Its errors are those of ExecContext.
func (tx *Tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := tx.usable(ctx); err != nil {
		return nil, err
	}
	rows, err := tx.w.conn.QueryContext(context.Background(), query, args...)
	if err == nil {
		tx.open = append(tx.open, func() { _ = rows.Close() })
	}
	return rows, tx.named(err)
}

// QueryRowContext is as in [Queryer]. Where ctx has ended or the transaction
// cannot be used any more, nothing is run and Scan returns an error, which
// becomes [ErrCancelled] when the function returns it.
func (tx *Tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	use := context.Background()
	if err := tx.usable(ctx); err != nil {
		ended, end := context.WithCancel(use)
		end()
		use = ended
	}
	row := tx.w.conn.QueryRowContext(use, query, args...)
	tx.open = append(tx.open, func() { _ = row.Scan() }) // the only way to close one
	return row
}

// Tell names what the function changes, for those who subscribed to it. They get
// their signal once the commit is on the disk, and none if the function's writes
// are undone or there are none.
func (tx *Tx) Tell(topics ...Topic) { tx.told = append(tx.told, topics...) }

// usable is asked before each statement. After some errors the engine has
// undone the transaction, and what is run then would be committed by itself.
func (tx *Tx) usable(ctx context.Context) error {
	switch {
	case tx.over:
		return errOver
	case ctx.Err() != nil:
		return ErrCancelled.Because(ctx.Err())
	case !inTransaction(tx.w.conn):
		return cmp.Or(tx.fault, error(errEnded))
	}
	return nil
}

// named gives an error its name and remembers the first that is serious.
func (tx *Tx) named(err error) error {
	err = tx.w.db.named(err)
	if tx.fault == nil && is(err, ErrFull, ErrIO, ErrDamaged) {
		tx.fault = err
	}
	return err
}

func (tx *Tx) end() {
	tx.over = true
	for _, closeIt := range tx.open {
		closeIt()
	}
	tx.open = nil
}

// Read runs fn on one snapshot: what fn's first query sees is what all of its
// queries see. The snapshot cannot write. At most Config.Readers are open at
// once; further callers wait for one until their context ends. A snapshot keeps
// the log from being folded into the file, so fn should be short.
//
// It returns fn's error, or [ErrCancelled] when ctx ends, [ErrClosed], [ErrIO],
// [ErrBusy] or [ErrDamaged]. A panic in fn passes through.
func (db *DB) Read(ctx context.Context, fn func(q Queryer) error) error {
	if err := db.enter(); err != nil {
		return err
	}
	defer db.leave()
	err := db.named(db.snapshot(ctx, fn))
	if is(err, ErrCancelled) && db.closing.Err() != nil {
		return ErrClosed.Because(err)
	}
	return err
}

// snapshot runs fn in a transaction for reading. The connections for it cannot
// write.
func (db *DB) snapshot(ctx context.Context, fn func(q Queryer) error) error {
	conn, err := db.readers.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	s := &snapshot{conn: conn, ctx: reading{ctx, ctx, db.closing}}
	if err := run(s.ctx, conn, "BEGIN"); err != nil {
		return err
	}
	defer func() {
		s.end()
		if run(context.Background(), conn, "ROLLBACK") != nil {
			discard(conn)
		}
	}()
	return fn(s)
}

// snapshot stops a statement when its own context or the read's ends, or when the
// database closes.
type snapshot struct {
	conn *sql.Conn
	ctx  reading
	over bool
	open []func() // closes what queries have left open
}

func (s *snapshot) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if s.over {
		return nil, errOver
	}
	rows, err := s.conn.QueryContext(s.both(ctx), query, args...)
	if err == nil {
		s.open = append(s.open, func() { _ = rows.Close() })
	}
	return rows, err
}

func (s *snapshot) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	row := s.conn.QueryRowContext(s.both(ctx), query, args...)
	s.open = append(s.open, func() { _ = row.Scan() }) // the only way to close one
	return row
}

func (s *snapshot) both(ctx context.Context) context.Context {
	r := s.ctx
	r.query = ctx
	return covered{r}
}

func (s *snapshot) end() {
	s.over = true
	for _, closeIt := range s.open {
		closeIt()
	}
}

// reading is the context of a read. The engine asks it again and again whether it
// has ended.
type reading struct {
	context.Context
	query, closing context.Context
}

func (r reading) Err() error { return cmp.Or(r.Context.Err(), r.query.Err(), r.closing.Err()) }

func (db *DB) named(err error) error { return named(db.folder, err) }

// facts is what the writer asks of the engine around each function.
type facts struct {
	open     bool  // a transaction is open
	changes  int64 // rows changed since the connection was opened
	dangling bool  // foreign keys that are checked at the commit lead nowhere
}

func look(c *sql.Conn) (f facts, err error) {
	err = engineOf(c, func(e *sqlite3.Conn) error {
		f.open, f.changes = !e.GetAutocommit(), e.TotalChanges()
		dangling, _, err := e.Status(sqlite3.DBSTATUS_DEFERRED_FKS, false)
		f.dangling = dangling != 0
		return err
	})
	return f, err
}
