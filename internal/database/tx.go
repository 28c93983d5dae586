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
	QueryContext(ctx context.Context, query string, args ...any) (*Rows, error)
	// QueryRowContext is one statement that is expected to give one row. Scan runs
	// it and returns its error, sql.ErrNoRows if there is none.
	QueryRowContext(ctx context.Context, query string, args ...any) *Row
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
	open  []*Rows // what queries may have left open
	fault error   // after which the engine may have undone the whole transaction
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
	c, use, err := tx.begin(ctx)
	if err != nil {
		return nil, err
	}
	result, err := c.exec(use, query, args)
	return result, tx.named(err)
}

// QueryContext is as in [Queryer]. Its errors are those of ExecContext.
func (tx *Tx) QueryContext(ctx context.Context, q string, args ...any) (*Rows, error) {
	rows, err := query(ctx, tx, q, args)
	if err == nil {
		tx.open = append(tx.open, rows)
	}
	return rows, err
}

// QueryRowContext is as in [Queryer]. Where ctx has ended or the transaction
// cannot be used any more, Scan runs nothing and returns an error.
func (tx *Tx) QueryRowContext(ctx context.Context, query string, args ...any) *Row {
	return &Row{by: tx, ctx: ctx, query: query, args: args}
}

// Tell names what the function changes, for those who subscribed to it. They get
// their signal once the commit is on the disk, and none if the function's writes
// are undone or there are none.
func (tx *Tx) Tell(topics ...Topic) { tx.told = append(tx.told, topics...) }

// begin is as in asker. After some errors the engine has undone the transaction,
// and what is run then would be committed by itself.
func (tx *Tx) begin(ctx context.Context) (*conn, context.Context, error) {
	switch {
	case tx.over:
		return nil, nil, errOver
	case ctx.Err() != nil:
		return nil, nil, ErrCancelled.Because(ctx.Err())
	case tx.w.below.Raw().GetAutocommit():
		return nil, nil, cmp.Or(tx.fault, error(errEnded))
	}
	return tx.w.below, context.Background(), nil
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
	for _, rows := range tx.open {
		_ = rows.Close()
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
	return db.reading(ctx, func(conn *sql.Conn, s *snapshot) error {
		if _, err := s.conn.exec(s.ctx, "BEGIN", nil); err != nil {
			return err
		}
		defer func() {
			s.end()
			if _, err := s.conn.exec(context.Background(), "ROLLBACK", nil); err != nil {
				discard(conn)
			}
		}()
		return fn(s)
	})
}

// ReadRow is one query that is expected to give one row, on a snapshot of its own,
// which takes less than [DB.Read]. Scan runs it and returns sql.ErrNoRows if there
// is none, and else Read's errors.
func (db *DB) ReadRow(ctx context.Context, query string, args ...any) *OneRow {
	return &OneRow{db: db, ctx: ctx, query: query, args: args}
}

// OneRow is what [DB.ReadRow] gives.
type OneRow struct {
	db    *DB
	ctx   context.Context
	query string
	args  []any
}

// Scan runs the query and copies the values of its first row; see [Rows.Scan].
func (r *OneRow) Scan(into ...any) error {
	// One statement outside of a transaction sees one snapshot.
	return r.db.reading(r.ctx, func(_ *sql.Conn, s *snapshot) error {
		return s.conn.row(s.ctx, r.query, r.args, into)
	})
}

// reading lends fn a connection for reading, which cannot write.
func (db *DB) reading(ctx context.Context, fn func(conn *sql.Conn, s *snapshot) error) error {
	if err := db.enter(); err != nil {
		return err
	}
	defer db.leave()
	err := db.named(db.lend(ctx, fn))
	if is(err, ErrCancelled) && db.closing.Err() != nil {
		return ErrClosed.Because(err)
	}
	return err
}

func (db *DB) lend(ctx context.Context, fn func(conn *sql.Conn, s *snapshot) error) error {
	conn, err := db.readers.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	below, err := below(conn)
	if err != nil {
		return err
	}
	return fn(conn, &snapshot{conn: below, ctx: reading{ctx, ctx, db.closing}})
}

// snapshot stops a statement when its own context or the read's ends, or when the
// database closes.
type snapshot struct {
	conn *conn
	ctx  reading
	over bool
	open []*Rows // what queries may have left open
}

func (s *snapshot) QueryContext(ctx context.Context, q string, args ...any) (*Rows, error) {
	rows, err := query(ctx, s, q, args)
	if err == nil {
		s.open = append(s.open, rows)
	}
	return rows, err
}

func (s *snapshot) QueryRowContext(ctx context.Context, query string, args ...any) *Row {
	return &Row{by: s, ctx: ctx, query: query, args: args}
}

func (s *snapshot) begin(ctx context.Context) (*conn, context.Context, error) {
	if s.over {
		return nil, nil, errOver
	}
	r := s.ctx
	r.query = ctx
	return s.conn, r, nil
}

// named leaves it to [DB.Read].
func (s *snapshot) named(err error) error { return err }

func (s *snapshot) end() {
	s.over = true
	for _, rows := range s.open {
		_ = rows.Close()
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

func look(e *sqlite3.Conn) (facts, error) {
	dangling, _, err := e.Status(sqlite3.DBSTATUS_DEFERRED_FKS, false)
	return facts{open: !e.GetAutocommit(), changes: e.TotalChanges(), dangling: dangling != 0}, err
}
