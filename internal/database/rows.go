package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/ncruces/go-sqlite3"
)

// asker is who runs queries: a transaction for writing or a snapshot.
type asker interface {
	// begin is asked before each statement that ctx is for. It returns the
	// connection, and the context whose end stops the statement.
	begin(ctx context.Context) (*conn, context.Context, error)
	// named gives an error its name, where that is not left to whoever gets it.
	named(err error) error
}

// Rows is what a query gives. It belongs to the function that asked, and is read as those of database/sql are, and is
// closed when the last row has been read.
type Rows struct {
	s   *stmt // nil once it is closed
	ctx context.Context
	err error
}

// Next goes to the next row, and reports whether there is one.
func (r *Rows) Next() bool {
	if r.s == nil {
		return false
	}
	more, err := r.s.step(r.ctx)
	if !more {
		r.err = err
		if err := r.Close(); r.err == nil {
			r.err = err
		}
	}
	return more
}

// Scan copies the row's values, one into each of the places: pointers to strings,
// whole numbers, bool, []byte or any, to types made of these, or a [sql.Scanner].
// What is absent goes only into any, []byte or a Scanner. A value of another type
// than its place is an error.
func (r *Rows) Scan(into ...any) error {
	if r.s == nil {
		return errors.New("database: there is no row")
	}
	return r.s.scan(into)
}

// Err is what ended the rows too soon, if anything did.
func (r *Rows) Err() error { return r.err }

// Close ends the query. A second call does nothing.
func (r *Rows) Close() error {
	s := r.s
	if s == nil {
		return nil
	}
	r.s = nil
	return s.finish()
}

// Row is a query that is expected to give one row.
type Row struct {
	by    asker
	ctx   context.Context
	query string
	args  []any
}

// Scan runs the query and copies the values of its first row; see [Rows.Scan]. It
// returns sql.ErrNoRows if there is none.
func (r *Row) Scan(into ...any) error {
	c, ctx, err := r.by.begin(r.ctx)
	if err != nil {
		return err
	}
	return c.row(ctx, r.query, r.args, into)
}

// row runs a query and copies the values of its first row.
func (c *conn) row(ctx context.Context, query string, args, into []any) (err error) {
	s, err := c.ask(ctx, query, args)
	if err != nil {
		return err
	}
	defer func() {
		if finished := s.finish(); err == nil {
			err = finished
		}
	}()
	switch more, err := s.step(ctx); {
	case err != nil:
		return err
	case !more:
		return sql.ErrNoRows
	}
	return s.scan(into)
}

func query(ctx context.Context, by asker, query string, args []any) (*Rows, error) {
	c, use, err := by.begin(ctx)
	if err != nil {
		return nil, err
	}
	s, err := c.ask(use, query, args)
	if err != nil {
		return nil, by.named(err)
	}
	return &Rows{s: s, ctx: use}, nil
}

// ask prepares a statement and sets its parameters.
func (c *conn) ask(ctx context.Context, query string, args []any) (*stmt, error) {
	s, err := c.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	if err := s.set(args); err != nil {
		return nil, errors.Join(err, s.ClearBindings(), s.Close())
	}
	return s, nil
}

// exec runs a statement that gives no rows.
func (c *conn) exec(ctx context.Context, query string, args []any) (result, error) {
	s, err := c.ask(ctx, query, args)
	if err != nil {
		return result{}, err
	}
	done, err := s.exec(ctx)
	return done, errors.Join(err, s.Close())
}

// step goes to the next row.
func (s *stmt) step(ctx context.Context) (bool, error) {
	e := s.Conn()
	defer e.SetInterrupt(e.SetInterrupt(ctx))
	if s.Step() {
		return true, nil
	}
	return false, s.Err()
}

// finish ends a query and keeps the statement for the next use.
func (s *stmt) finish() error { return errors.Join(s.Reset(), s.ClearBindings(), s.Close()) }

// set sets the parameters from any values that database/sql would take.
func (s *stmt) set(args []any) error {
	if len(args) != s.inputs {
		return fmt.Errorf("database: a statement has %d parameters and not %d", s.inputs, len(args))
	}
	for i, a := range args {
		if err := s.setOne(i+1, a); err != nil {
			return err
		}
	}
	return nil
}

func (s *stmt) setOne(at int, arg any) error {
	switch v := arg.(type) {
	case string:
		return s.BindText(at, v)
	case int64:
		return s.BindInt64(at, v)
	case int:
		return s.BindInt64(at, int64(v))
	case []byte:
		if v != nil {
			return s.BindBlob(at, v)
		}
	case driver.Valuer, nil:
	default:
		switch v := reflect.ValueOf(arg); v.Kind() {
		case reflect.String:
			return s.BindText(at, v.String())
		case reflect.Int64:
			return s.BindInt64(at, v.Int())
		}
	}
	v, err := driver.DefaultParameterConverter.ConvertValue(arg)
	if err != nil {
		return err
	}
	return s.bindOne(at, v)
}

// scan copies the values of the row at hand.
func (s *stmt) scan(into []any) error {
	if n := s.DataCount(); len(into) != n {
		return fmt.Errorf("database: a row has %d values and not %d", n, len(into))
	}
	for i, p := range into {
		if err := s.scanOne(i, p); err != nil {
			return fmt.Errorf("database: value %d of a row: %w", i, err)
		}
	}
	return s.Err()
}

// errPlace is a mistake in the calling code, or a row that another program wrote.
var errPlace = errors.New("it is of another type than its place")

// IsMisplaced reports whether err is that of a Scan that met a value of another type
// than its place. Where the caller's places fit the schema, the row is damaged.
func IsMisplaced(err error) bool { return errors.Is(err, errPlace) }

func (s *stmt) scanOne(at int, into any) error {
	kind := s.ColumnType(at)
	switch p := into.(type) {
	case *string:
		if kind != sqlite3.TEXT {
			return errPlace
		}
		*p = s.ColumnText(at)
		return nil
	case *int64:
		if kind != sqlite3.INTEGER {
			return errPlace
		}
		*p = s.ColumnInt64(at)
		return nil
	case *[]byte:
		switch kind {
		case sqlite3.NULL:
			*p = nil
		case sqlite3.BLOB, sqlite3.TEXT:
			*p = s.ColumnBlob(at, []byte{}) // an empty value is not an absent one
		default:
			return errPlace
		}
		return nil
	case *any:
		*p = s.value(at, kind)
		return nil
	case sql.Scanner:
		return p.Scan(s.value(at, kind))
	}
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return errPlace
	}
	switch v = v.Elem(); {
	case kind == sqlite3.TEXT && v.Kind() == reflect.String:
		v.SetString(s.ColumnText(at))
	case kind == sqlite3.FLOAT && v.CanFloat():
		v.SetFloat(s.ColumnFloat(at))
	case kind == sqlite3.INTEGER && v.Kind() == reflect.Bool && uint64(s.ColumnInt64(at)) <= 1:
		v.SetBool(s.ColumnInt64(at) == 1)
	case kind == sqlite3.INTEGER && v.CanInt() && !v.OverflowInt(s.ColumnInt64(at)):
		v.SetInt(s.ColumnInt64(at))
	default:
		return errPlace
	}
	return nil
}

// value is a value in the type in which it is stored.
func (s *stmt) value(at int, kind sqlite3.Datatype) any {
	switch kind {
	case sqlite3.INTEGER:
		return s.ColumnInt64(at)
	case sqlite3.FLOAT:
		return s.ColumnFloat(at)
	case sqlite3.TEXT:
		return s.ColumnText(at)
	case sqlite3.BLOB:
		return s.ColumnBlob(at, []byte{})
	}
	return nil
}

// next is what database/sql asks of a driver's rows.
func (s *stmt) next(ctx context.Context, into []driver.Value) error {
	more, err := s.step(ctx)
	switch {
	case err != nil:
		return err
	case !more:
		return io.EOF
	}
	for i := range into {
		into[i] = s.value(i, s.ColumnType(i))
	}
	return s.Err()
}
