package database

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/ncruces/go-sqlite3"
)

// TestPreparedOnce holds that no value makes a statement be planned again: not one
// that an index with a condition could look at, nor the number of rows.
func TestPreparedOnce(t *testing.T) {
	db := mustOpen(t, tempConfig(t))
	const query = "SELECT name FROM items WHERE id >= ? AND name LIKE ? ORDER BY id LIMIT ?"
	err := db.Write(ctx, func(tx *Tx) error {
		for i := range 5 {
			if _, err := column[string](tx, query, i, "a%", i+1); err != nil {
				return err
			}
		}
		return tx.w.conn.Raw(func(c any) error {
			s := c.(*conn).idle[query]
			if s == nil {
				t.Fatal("the statement was not kept")
			}
			if n := s.Status(sqlite3.STMTSTATUS_REPREPARE, false); n != 0 {
				t.Errorf("planned %d times more", n)
			}
			if n := s.Status(sqlite3.STMTSTATUS_RUN, false); n != 5 {
				t.Errorf("run %d times, so it was not this one", n)
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(explain(err))
	}
}

// TestValues carries values of every type to the engine and back.
func TestValues(t *testing.T) {
	db := mustOpen(t, tempConfig(t))
	type named string
	for name, test := range map[string]struct{ in, want any }{
		"null":           {nil, nil},
		"whole":          {int64(-1 << 62), int64(-1 << 62)},
		"of another int": {uint8(7), int64(7)},
		"real":           {2.5, 2.5},
		"text":           {"a\x00b ü", "a\x00b ü"},
		"no text":        {"", ""},
		"named text":     {named("n"), "n"},
		"bytes":          {[]byte{0, 1, 255}, []byte{0, 1, 255}},
		"no bytes":       {[]byte{}, []byte{}},
		"truth":          {true, int64(1)},
		"optional":       {sql.Null[int64]{V: 3, Valid: true}, int64(3)},
		"absent":         {sql.Null[int64]{V: 3}, nil},
	} {
		var got any
		err := db.Read(ctx, func(q Queryer) error { return q.QueryRowContext(ctx, "SELECT ?", test.in).Scan(&got) })
		if err != nil {
			t.Errorf("%s: %s", name, explain(err))
		}
		same := got == nil && test.want == nil
		switch want := test.want.(type) {
		case []byte:
			b, ok := got.([]byte)
			same = ok && b != nil && slices.Equal(b, want)
		default:
			if _, isBytes := got.([]byte); !isBytes {
				same = got == want
			}
		}
		if !same {
			t.Errorf("%s: got %#v, want %#v", name, got, test.want)
		}
	}
	// Rows have values of their own.
	got, err := func() (all [][]byte, err error) {
		err = db.Read(ctx, func(q Queryer) (err error) {
			all, err = column[[]byte](q, "SELECT x'01' UNION ALL SELECT x'' UNION ALL SELECT x'0203'")
			return err
		})
		return all, err
	}()
	if err != nil || len(got) != 3 || !slices.Equal(got[0], []byte{1}) || len(got[1]) != 0 || !slices.Equal(got[2], []byte{2, 3}) {
		t.Errorf("rows of bytes: %v, %v", got, err)
	}
}

// TestPlaces scans values into places of every type that a store has, and into
// those that cannot take them.
func TestPlaces(t *testing.T) {
	db := mustOpen(t, tempConfig(t))
	type name string
	type number int32
	for _, test := range []struct {
		query string
		into  any
		want  any // nil where it must be refused
	}{
		{"'a'", new(string), "a"},
		{"'a'", new(name), name("a")},
		{"''", new(name), name("")},
		{"7", new(int64), int64(7)},
		{"7", new(int), 7},
		{"-7", new(number), number(-7)},
		{"2.5", new(float64), 2.5},
		{"1", new(bool), true},
		{"0", new(bool), false},
		{"'a'", new(sql.Null[name]), sql.Null[name]{V: "a", Valid: true}},
		{"7", new(sql.Null[number]), sql.Null[number]{V: 7, Valid: true}},
		{"NULL", new(sql.Null[name]), sql.Null[name]{}},
		{"NULL", new(any), any(nil)},
		{"NULL", new(string), nil},
		{"NULL", new(name), nil},
		{"NULL", new(int64), nil},
		{"NULL", new(bool), nil},
		{"7", new(string), nil},
		{"7", new(name), nil},
		{"7", new([]byte), nil},
		{"'7'", new(int64), nil},
		{"'7'", new(int), nil},
		{"2", new(bool), nil},
		{"-1", new(bool), nil},
		{"2.0", new(int64), nil},
		{"2147483648", new(number), nil},
		{"x'61'", new(string), nil},
		{"7", 7, nil},
		{"7", (*int)(nil), nil},
		{"7", nil, nil},
		{"7, 8", new(int), nil},
	} {
		err := db.Read(ctx, func(q Queryer) error { return q.QueryRowContext(ctx, "SELECT "+test.query).Scan(test.into) })
		if _, absent := test.into.(*any); test.want == nil && !absent {
			if err == nil {
				t.Errorf("%s went into a %T", test.query, test.into)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s into a %T: %s", test.query, test.into, explain(err))
		} else if got := reflect.ValueOf(test.into).Elem().Interface(); got != test.want {
			t.Errorf("%s into a %T is %v", test.query, test.into, got)
		}
	}
}

// TestRowsEnd holds that rows close themselves after the last one, that a query
// that is begun meanwhile is another one, and that nothing comes after the end.
func TestRowsEnd(t *testing.T) {
	db := mustOpen(t, tempConfig(t))
	err := db.Read(ctx, func(q Queryer) error {
		const query = "SELECT 1 UNION ALL SELECT 2"
		rows, err := q.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		var pairs []int
		for rows.Next() {
			var n, first int
			if err := errors.Join(rows.Scan(&n), q.QueryRowContext(ctx, query).Scan(&first)); err != nil {
				return err
			}
			pairs = append(pairs, n, first)
		}
		if !slices.Equal(pairs, []int{1, 1, 2, 1}) {
			t.Errorf("the rows are %v", pairs)
		}
		if rows.Next() || rows.Scan(new(int)) == nil {
			t.Error("there is a row after the last")
		}
		if err := q.QueryRowContext(ctx, "SELECT 1 WHERE 0").Scan(new(int)); !errors.Is(err, sql.ErrNoRows) {
			t.Errorf("no row is %v", err)
		}
		return errors.Join(rows.Err(), rows.Close())
	})
	if err != nil {
		t.Fatal(explain(err))
	}
}

// TestStatementsThatAreRefused holds what a statement cannot be.
func TestStatementsThatAreRefused(t *testing.T) {
	db := mustOpen(t, tempConfig(t))
	for name, test := range map[string]struct {
		query string
		args  []any
	}{
		"two at once":        {"SELECT 1; SELECT 2", nil},
		"none":               {" -- nothing", nil},
		"no SQL":             {"SELEC 1", nil},
		"too few values":     {"SELECT ?, ?", []any{1}},
		"too many values":    {"SELECT ?", []any{1, 2}},
		"a value by name":    {"SELECT :a", []any{sql.Named("a", 1)}},
		"a value of no type": {"SELECT ?", []any{struct{}{}}},
	} {
		err := db.Read(ctx, func(q Queryer) error { return q.QueryRowContext(ctx, test.query, test.args...).Scan(new(any)) })
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
		if err := db.Read(ctx, func(q Queryer) error { return q.QueryRowContext(ctx, "SELECT 1").Scan(new(int)) }); err != nil {
			t.Fatalf("after %s: %s", name, explain(err))
		}
	}
}

// TestReadLeavesNothing leaves rows and the snapshot itself in use when a read
// ends. There is one connection, so what is not given back is missed.
func TestReadLeavesNothing(t *testing.T) {
	c := tempConfig(t)
	c.Readers = 1
	db := mustOpen(t, c)
	for _, name := range []string{"a", "b"} {
		if err := add(db, name); err != nil {
			t.Fatal(explain(err))
		}
	}
	var kept Queryer
	err := db.Read(ctx, func(q Queryer) error {
		kept = q
		rows, err := q.QueryContext(ctx, "SELECT name FROM items")
		if err != nil || !rows.Next() {
			t.Error("no rows", err)
		}
		q.QueryRowContext(ctx, "SELECT name FROM items")
		return nil
	})
	if err != nil {
		t.Fatal(explain(err))
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a panic did not pass")
			}
		}()
		_ = db.Read(ctx, func(q Queryer) error {
			_, _ = q.QueryContext(ctx, "SELECT name FROM items")
			panic("in a read")
		})
	}()
	if got := names(t, db); len(got) != 2 {
		t.Errorf("items are %v", got)
	}
	if err := add(db, "c"); err != nil { // an old snapshot would not see it
		t.Fatal(explain(err))
	}
	if got := names(t, db); len(got) != 3 {
		t.Errorf("items are %v", got)
	}
	if _, err := kept.QueryContext(ctx, "SELECT 1"); err == nil {
		t.Error("a snapshot was used after its read")
	}
	if err := kept.QueryRowContext(ctx, "SELECT 1").Scan(new(int)); err == nil {
		t.Error("a snapshot was used for a row after its read")
	}
}

// TestReadEnds ends each of the contexts that a running query has.
func TestReadEnds(t *testing.T) {
	db := mustOpen(t, tempConfig(t))
	const endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n WHERE i < 0"
	for _, of := range []string{"the read", "the query"} {
		ended, end := context.WithCancel(ctx)
		whole, query := ctx, ctx
		if of == "the read" {
			whole = ended
		} else {
			query = ended
		}
		running := make(chan struct{})
		go func() { <-running; end() }()
		err := db.Read(whole, func(q Queryer) error {
			if err := q.QueryRowContext(query, "SELECT 1").Scan(new(int)); err != nil {
				return err
			}
			close(running)
			return q.QueryRowContext(query, endless).Scan(new(int))
		})
		if !errors.Is(err, ErrCancelled) {
			t.Errorf("the context of %s: %s", of, explain(err))
		}
	}
	if err := db.Read(ctx, func(q Queryer) error { return q.QueryRowContext(ctx, "SELECT 1").Scan(new(int)) }); err != nil {
		t.Error(explain(err))
	}
}

// TestReadRow: a single query is as a read of one, and its connection comes back.
func TestReadRow(t *testing.T) {
	c := tempConfig(t)
	c.Readers = 1
	db := mustOpen(t, c)
	if err := add(db, "a"); err != nil {
		t.Fatal(explain(err))
	}
	var name string
	for range 3 {
		if err := db.ReadRow(ctx, "SELECT name FROM items WHERE name = ?", "a").Scan(&name); err != nil || name != "a" {
			t.Fatalf("%q, %v", name, err)
		}
		if err := db.ReadRow(ctx, "SELECT name FROM items WHERE name = 'b'").Scan(&name); !errors.Is(err, sql.ErrNoRows) {
			t.Fatalf("there is no such row: %v", err)
		}
		if err := db.ReadRow(ctx, "DELETE FROM items RETURNING name").Scan(&name); err == nil {
			t.Fatal("it wrote")
		}
	}
	// What another connection has committed since is seen.
	if err := add(db, "b"); err != nil {
		t.Fatal(explain(err))
	}
	if err := db.ReadRow(ctx, "SELECT max(name) FROM items").Scan(&name); err != nil || name != "b" {
		t.Errorf("%q, %v", name, err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	mustBe(t, db.ReadRow(ended, "SELECT 1").Scan(new(int)), ErrCancelled)
	if err := db.Close(); err != nil {
		t.Fatal(explain(err))
	}
	mustBe(t, db.ReadRow(ctx, "SELECT 1").Scan(new(int)), ErrClosed)
}
