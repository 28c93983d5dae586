package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"

	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/wire/zone"
)

// tx is one transaction.
type tx struct {
	ctx     context.Context
	q       database.Queryer
	w       *database.Tx // nil where it only reads
	damaged []damage     // rows that it met
}

var _ store.Tx = (*tx)(nil)

// record is what every kind of record is.
type record interface{ Check() error }

// table is how one kind of record is read.
type table[V record] struct {
	what string
	// into are the places of a row's values, in the order of the columns.
	into func(v *V) []any
	// name says which record it is, in whatever state it is.
	name func(v *V) string
}

// scan reads one row. A *damage says that there is one that makes no sense.
func (t *table[V]) scan(row interface{ Scan(into ...any) error }, v *V) error {
	err := row.Scan(t.into(v)...)
	why := "a value is outside of its bounds"
	switch {
	case err == nil:
		if (*v).Check() == nil {
			return nil
		}
	case database.IsMisplaced(err):
		why = "a value is of the wrong type"
	case errors.Is(err, errDigest):
		why = "a digest has the wrong length"
	case errors.Is(err, errDocument):
		why = "a document is of the wrong type"
	default:
		return err
	}
	name := t.name(v)
	return &damage{what: t.what, id: name[:min(len(name), 2*zone.MaxID+1)], why: why}
}

// met takes note of a damaged row and reports whether err is one.
func (t *tx) met(err error) bool {
	var d *damage
	if !errors.As(err, &d) {
		return false
	}
	if len(t.damaged) < maxNamed {
		t.damaged = append(t.damaged, *d)
	}
	return true
}

// one is the record that a query finds.
func one[V record](t *tx, of *table[V], query string, args ...any) (V, bool, error) {
	var v, none V
	if err := t.ctx.Err(); err != nil {
		return none, false, database.ErrCancelled.Because(err)
	}
	switch err := of.scan(t.q.QueryRowContext(t.ctx, query, args...), &v); {
	case err == nil:
		return v, true, nil
	case errors.Is(err, sql.ErrNoRows):
		return none, false, nil
	case t.met(err):
		return none, false, store.ErrSetAside.Because(err)
	default:
		return none, false, err
	}
}

// list are the first records that a query finds. The query has no limit of its
// own: rows that are set aside do not count, else a page that has one would look
// like the last.
func list[V record](t *tx, of *table[V], limit int, query string, args ...any) ([]V, error) {
	if err := t.ctx.Err(); err != nil {
		return nil, database.ErrCancelled.Because(err)
	}
	rows, err := t.q.QueryContext(t.ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []V
	for limit = store.Limit(limit); len(list) < limit && rows.Next(); {
		var v V
		if err := of.scan(rows, &v); err == nil {
			list = append(list, v)
		} else if !t.met(err) {
			return nil, err
		}
	}
	return list, rows.Err()
}

// put runs a statement that keeps a record which passed its check. A row with the
// same key is ErrTaken where the statement does not say what else to do.
func (t *tx) put(bounds error, query string, args ...any) error {
	if t.w == nil {
		return store.ErrReadOnly
	}
	if bounds != nil {
		return bounds
	}
	_, err := t.w.ExecContext(t.ctx, query, args...)
	if database.IsUnique(err) {
		return store.ErrTaken.Because(err)
	}
	return err
}

// digest reads and writes a hash. None is NULL, which unique columns may hold many
// times.
type digest store.Hash

var errDigest = errors.New("sqlite: not a digest")

// Scan is as in sql.Scanner.
func (d *digest) Scan(value any) error {
	switch b := value.(type) {
	case nil:
		*d = digest{}
		return nil
	case []byte:
		if len(b) == len(d) {
			copy(d[:], b)
			return nil
		}
	}
	return errDigest
}

// some is a hash as a parameter.
func some(h store.Hash) any {
	if h.IsZero() {
		return nil
	}
	return h[:]
}

// brief tells a hash from others in the log.
func brief(h store.Hash) string { return hex.EncodeToString(h[:len(h)/2]) }

// document reads what is kept as it came.
type document []byte

var errDocument = errors.New("sqlite: not a document")

// Scan is as in sql.Scanner. An empty one becomes nil.
func (d *document) Scan(value any) error {
	b, ok := value.([]byte)
	if !ok {
		return errDocument
	}
	if *d = nil; len(b) > 0 {
		*d = b
	}
	return nil
}

// doc is a document as a parameter.
func doc(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// flag is a bool as a parameter.
func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
