package database

import (
	"context"
	"database/sql"
	"database/sql/driver"

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
	return &conn{Conn: inner.(sqlitedriver.Conn), idle: map[string]*stmt{}}, nil
}

// conn is a connection that keeps its prepared statements. It sits below
// database/sql, which says exactly when a statement is free again: a query that
// is begun while the rows of the same query are still being read gets a second
// statement. database/sql holds one lock around all that happens here.
type conn struct {
	sqlitedriver.Conn
	idle map[string]*stmt
}

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if s := c.idle[query]; s != nil {
		delete(c.idle, query)
		return s, nil
	}
	s, err := c.Conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &stmt{s.(engineStmt), c, query}, nil
}

func (c *conn) Close() error {
	for _, s := range c.idle {
		_ = s.engineStmt.Close()
	}
	c.idle = nil
	return c.Conn.Close()
}

// engineStmt is all that the engine's statements can do.
type engineStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
	driver.NamedValueChecker
}

type stmt struct {
	engineStmt
	home  *conn
	query string
}

// Close keeps the statement for the next use.
func (s *stmt) Close() error {
	idle := s.home.idle
	if idle == nil || idle[s.query] != nil {
		return s.engineStmt.Close()
	}
	if len(idle) >= maxStatements {
		for query, victim := range idle {
			delete(idle, query)
			_ = victim.engineStmt.Close()
			break
		}
	}
	idle[s.query] = s
	return nil
}

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
// It also takes several statements at a time, as migrations may hold.
type nested struct{ *conn }

func (n nested) Connect(context.Context) (driver.Conn, error) { return n, nil }
func (n nested) Driver() driver.Driver                        { return &sqlitedriver.SQLite{} }
func (n nested) Close() error                                 { return nil }

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
