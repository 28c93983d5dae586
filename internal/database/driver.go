package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/ncruces/go-sqlite3"
	sqlitedriver "github.com/ncruces/go-sqlite3/driver"
)

// maxStatements is how many prepared statements a connection keeps. A party
// has a few dozen.
const maxStatements = 128

// pool opens up to limit connections with the given address.
func pool(dsn string, limit int) (*sql.DB, error) {
	inner, err := (&sqlitedriver.SQLite{}).OpenConnector(dsn)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector{inner})
	db.SetMaxOpenConns(limit)
	db.SetMaxIdleConns(limit)
	return db, nil
}

type connector struct{ driver.Connector }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	engine := inner.(sqlitedriver.Conn)
	// A plan that was made with a look at a bound value ends with that value, so
	// that the statement would be planned again at every use.
	if _, err := engine.Raw().Config(sqlite3.DBCONFIG_ENABLE_QPSG, true); err != nil {
		_ = engine.Close()
		return nil, err
	}
	return &conn{Conn: engine, idle: map[string]*stmt{}}, nil
}

// conn is a connection that keeps its prepared statements. It sits below
// database/sql, which keeps the pools, and which the statements of functions do
// not pass through: that would take as long as most of them do. A query that is
// begun while the rows of the same query are still being read gets a second
// statement.
type conn struct {
	sqlitedriver.Conn
	idle map[string]*stmt
}

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return c.prepare(ctx, query)
}

// prepare returns a statement that nobody uses.
func (c *conn) prepare(ctx context.Context, query string) (*stmt, error) {
	if s := c.idle[query]; s != nil {
		delete(c.idle, query)
		return s, nil
	}
	e := c.Raw()
	defer e.SetInterrupt(e.SetInterrupt(ctx))
	prepared, rest, err := e.Prepare(query)
	if err != nil {
		return nil, err
	}
	if prepared == nil || strings.TrimSpace(rest) != "" {
		_ = prepared.Close()
		return nil, errors.New("database: not one statement")
	}
	return &stmt{Stmt: prepared, home: c, query: query, inputs: prepared.BindCount()}, nil
}

func (c *conn) Close() error {
	for _, s := range c.idle {
		_ = s.Stmt.Close()
	}
	c.idle = nil
	return c.Conn.Close()
}

// below is the connection below one that was taken from a pool. Until that is
// given back, nobody but its taker uses it.
func below(c *sql.Conn) (b *conn, err error) {
	err = c.Raw(func(c any) error { b = c.(*conn); return nil })
	return b, err
}

// stmt is a statement of the engine. The engine's own driver asks it for the name
// and the declared type of each column at each use, and that takes longer than
// most of our queries do; here a value has the type in which it is stored.
type stmt struct {
	*sqlite3.Stmt
	home    *conn
	query   string
	inputs  int
	columns []string
}

// Close keeps the statement for the next use.
func (s *stmt) Close() error {
	idle := s.home.idle
	if idle == nil || idle[s.query] != nil {
		return s.Stmt.Close()
	}
	if len(idle) >= maxStatements {
		for query, victim := range idle {
			delete(idle, query)
			_ = victim.Stmt.Close()
			break
		}
	}
	idle[s.query] = s
	return nil
}

func (s *stmt) NumInput() int { return s.inputs }

// errNoContext is a mistake of database/sql, which calls what takes a context.
var errNoContext = errors.New("database: a statement was used without a context")

func (s *stmt) Exec([]driver.Value) (driver.Result, error) { return nil, errNoContext }
func (s *stmt) Query([]driver.Value) (driver.Rows, error)  { return nil, errNoContext }

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.bind(args); err != nil {
		return nil, err
	}
	return s.exec(ctx)
}

// exec runs a statement to its end.
func (s *stmt) exec(ctx context.Context) (result, error) {
	e := s.Conn()
	defer e.SetInterrupt(e.SetInterrupt(ctx))
	e.SetLastInsertRowID(0)
	if err := errors.Join(s.Stmt.Exec(), s.ClearBindings()); err != nil {
		return result{}, err
	}
	return result{e.LastInsertRowID(), e.Changes()}, nil
}

type result struct{ id, changes int64 }

func (r result) LastInsertId() (int64, error) { return r.id, nil }
func (r result) RowsAffected() (int64, error) { return r.changes, nil }

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.bind(args); err != nil {
		return nil, err
	}
	if s.columns == nil {
		s.columns = make([]string, s.ColumnCount())
		for i := range s.columns {
			s.columns[i] = s.ColumnName(i)
		}
	}
	return &rows{s, ctx}, nil
}

// bind sets the parameters, which have the types that database/sql leaves.
func (s *stmt) bind(args []driver.NamedValue) (err error) {
	for _, a := range args {
		if err = s.bindOne(a.Ordinal, a.Value); err == nil && a.Name != "" {
			err = errors.New("database: parameters have no names")
		}
		if err != nil {
			return errors.Join(err, s.ClearBindings())
		}
	}
	return nil
}

func (s *stmt) bindOne(at int, value driver.Value) error {
	switch v := value.(type) {
	case nil:
		return s.BindNull(at)
	case int64:
		return s.BindInt64(at, v)
	case string:
		return s.BindText(at, v)
	case []byte:
		return s.BindBlob(at, v)
	case bool:
		return s.BindBool(at, v)
	case float64:
		return s.BindFloat(at, v)
	}
	return fmt.Errorf("database: a parameter is a %T", value)
}

// rows are what a query gives to database/sql.
type rows struct {
	*stmt
	ctx context.Context
}

func (r *rows) Columns() []string              { return r.columns }
func (r *rows) Close() error                   { return errors.Join(r.Reset(), r.ClearBindings()) }
func (r *rows) Next(into []driver.Value) error { return r.next(r.ctx, into) }

// engineOf runs fn on the engine's own connection.
func engineOf(c *sql.Conn, fn func(*sqlite3.Conn) error) error {
	return c.Raw(func(c any) error { return fn(c.(*conn).Raw()) })
}

// discard closes a connection instead of giving it back to its pool.
func discard(c *sql.Conn) {
	_ = c.Raw(func(any) error { return driver.ErrBadConn })
	_ = c.Close()
}

// nested is a connection that is inside of a transaction already. What begins
// a transaction on it gets a savepoint, so that all of it can be undone at once.
// It also takes several statements at a time, as migrations may hold, and
// otherwise is the engine's own driver, as the migrations' runner expects.
type nested struct{ *conn }

func (n nested) Connect(context.Context) (driver.Conn, error) { return n, nil }
func (n nested) Driver() driver.Driver                        { return &sqlitedriver.SQLite{} }
func (n nested) Close() error                                 { return nil }

func (n nested) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return n.Conn.PrepareContext(ctx, query)
}

func (n nested) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return n.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (n nested) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	return savepoint{n.Raw()}, n.Raw().Exec("SAVEPOINT nested")
}

type savepoint struct{ c *sqlite3.Conn }

func (s savepoint) Commit() error { return s.c.Exec("RELEASE nested") }
func (s savepoint) Rollback() error {
	if s.c.GetAutocommit() {
		return nil // the engine has undone all of it already
	}
	return s.c.Exec("ROLLBACK TO nested; RELEASE nested")
}
