package database

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allodhq/allod/refusal"
)

func TestConcurrentWriters(t *testing.T) {
	const writers, each = 64, 20
	db := mustOpen(t, tempConfig(t))
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				// Read, then write: a lost update would show in the sum.
				err := db.Write(ctx, func(tx *Tx) error {
					var n int
					err := tx.QueryRowContext(ctx, "SELECT coalesce(max(value), 0) FROM counters WHERE name = 'n'").Scan(&n)
					if err != nil {
						return err
					}
					_, err = tx.ExecContext(ctx, "INSERT OR REPLACE INTO counters VALUES ('n', ?)", n+1)
					if err != nil {
						return err
					}
					return insert(tx, fmt.Sprint(w, "-", i))
				})
				if err != nil {
					t.Error(explain(err))
				}
				if n := one[int](t, db, "SELECT count(*) FROM items WHERE name = ?", fmt.Sprint(w, "-", i)); n != 1 {
					t.Errorf("%d-%d was acknowledged and cannot be read", w, i)
				}
			}
		})
	}
	wg.Wait()
	if n := one[int](t, db, "SELECT value FROM counters"); n != writers*each {
		t.Errorf("counter is %d", n)
	}
	s := db.Stats()
	var groups uint64
	for _, n := range s.Groups {
		groups += n
	}
	if s.Functions != writers*each || s.Failed+s.Lost+s.Refused != 0 || groups != s.Commits || s.Queued != 0 {
		t.Errorf("stats: %+v", s)
	}
	if s.Commits >= s.Functions {
		t.Errorf("%d commits for %d functions: nothing was grouped", s.Commits, s.Functions)
	}
}

// TestGroup puts functions of every kind into one group.
func TestGroup(t *testing.T) {
	own := errors.New("own error")
	ended, end := context.WithCancel(ctx)
	end()
	tests := []struct {
		name  string
		fn    func(tx *Tx) error
		want  error // nil: acknowledged
		wrote []string
	}{
		{"writes", func(tx *Tx) error { return insert(tx, "a") }, nil, []string{"a"}},
		{"fails after writing", func(tx *Tx) error {
			return errors.Join(insert(tx, "b"), own)
		}, own, nil},
		{"sees its neighbour", func(tx *Tx) error {
			seen, err := column[string](tx, "SELECT name FROM items")
			if err == nil && !slices.Equal(seen, []string{"a"}) {
				err = fmt.Errorf("sees %v", seen)
			}
			return err
		}, nil, nil},
		{"panics after writing", func(tx *Tx) error {
			_ = insert(tx, "c")
			panic("secret")
		}, ErrPanic, nil},
		{"panics in the runtime", func(tx *Tx) error {
			_ = insert(tx, "c")
			var none []int
			return fmt.Errorf("%d", none[len(none)])
		}, ErrPanic, nil},
		{"breaks a rule", func(tx *Tx) error {
			return errors.Join(insert(tx, "d"), insert(tx, "a"))
		}, ErrConstraint, nil},
		{"breaks a rule and handles it", func(tx *Tx) error {
			if err := insert(tx, "a"); !IsUnique(err) {
				return fmt.Errorf("not unique: %w", err)
			}
			return insert(tx, "e")
		}, nil, []string{"e"}},
		{"breaks a rule that is checked at the commit", func(tx *Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO parts(item) VALUES (12345)")
			return err
		}, ErrConstraint, nil},
		{"leaves rows open", func(tx *Tx) error {
			rows, err := tx.QueryContext(ctx, "SELECT name FROM items")
			if err != nil || !rows.Next() {
				return fmt.Errorf("no row: %w", err)
			}
			tx.QueryRowContext(ctx, "SELECT name FROM items")
			return insert(tx, "f")
		}, nil, []string{"f"}},
		{"asks the same within itself", func(tx *Tx) error {
			const query = "SELECT name FROM items ORDER BY name"
			outer, err := tx.QueryContext(ctx, query)
			if err != nil {
				return err
			}
			defer outer.Close()
			var n int
			for outer.Next() {
				inner, err := column[string](tx, query)
				if err != nil || len(inner) != 3 {
					return fmt.Errorf("inner gives %v: %w", inner, err)
				}
				n++
			}
			if n != 3 {
				return fmt.Errorf("outer gives %d rows", n)
			}
			return outer.Err()
		}, nil, nil},
		{"its context has ended", func(tx *Tx) error {
			if err := tx.QueryRowContext(ended, "SELECT 1").Scan(new(int)); err == nil {
				return errors.New("a row after the end")
			}
			if _, err := tx.QueryContext(ended, "SELECT 1"); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("rows after the end: %w", err)
			}
			_, err := tx.ExecContext(ended, "INSERT INTO items(name) VALUES ('g')")
			return err
		}, context.Canceled, nil},
		{"wrong statement", func(tx *Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO nowhere VALUES (1)")
			return err
		}, refusal.Internal, nil},
		{"writes last", func(tx *Tx) error { return insert(tx, "z") }, nil, []string{"z"}},
	}
	c := tempConfig(t)
	c.Clock = frozen
	db := mustOpen(t, c)
	h := hold(t, db)
	var answers []<-chan error
	var want []string
	failed := uint64(0)
	for _, test := range tests {
		answers = append(answers, h.queue(ctx, test.fn))
		want = append(want, test.wrote...)
		if test.want != nil {
			failed++
		}
	}
	if err := h.let(); err != nil {
		t.Fatal(explain(err))
	}
	for i, test := range tests {
		err := <-answers[i]
		if test.want == nil && err != nil || !errors.Is(err, test.want) {
			t.Errorf("%s: %s", test.name, explain(err))
		}
		if err != nil && strings.Contains(explain(err), "secret") {
			t.Errorf("%s: the panic's text is in %s", test.name, explain(err))
		}
	}
	if got := names(t, db); !slices.Equal(got, want) {
		t.Errorf("items are %v, want %v", got, want)
	}
	s := db.Stats()
	if s.Commits != 1 || s.Groups[4] != 1 || s.Failed != failed || s.Functions != uint64(len(tests))+1-failed {
		t.Errorf("not one group: %+v", s)
	}
}

// TestGroupEnds uses a clock that only the functions move.
func TestGroupEnds(t *testing.T) {
	tests := []struct {
		name   string
		group  int
		time   time.Duration
		groups [9]uint64 // of seven functions that take 10 ms each, the first of which holds
	}{
		{"by number", 3, time.Hour, [9]uint64{0: 1, 2: 2}},
		{"by time", 100, 20 * time.Millisecond, [9]uint64{1: 2, 2: 1}},
		{"one at a time", 1, time.Hour, [9]uint64{0: 7}},
		{"all", 100, time.Hour, [9]uint64{3: 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var mu sync.Mutex
			now := frozen()
			c := tempConfig(t)
			c.Group, c.GroupTime = test.group, test.time
			c.Clock = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
			work := func(*Tx) error {
				mu.Lock()
				defer mu.Unlock()
				now = now.Add(10 * time.Millisecond)
				return nil
			}
			db := mustOpen(t, c)
			h := hold(t, db)
			var answers []<-chan error
			for range 6 {
				answers = append(answers, h.queue(ctx, work))
			}
			_ = h.let()
			for _, a := range answers {
				if err := <-a; err != nil {
					t.Error(explain(err))
				}
			}
			if got := db.Stats().Groups; got != test.groups {
				t.Errorf("groups %v, want %v", got, test.groups)
			}
		})
	}
}

func TestCancelledWhileQueued(t *testing.T) {
	db := mustOpen(t, tempConfig(t))
	h := hold(t, db)
	ended, end := context.WithCancel(ctx)
	ran := false
	gone := h.queue(ended, func(*Tx) error { ran = true; return nil })
	end()
	mustBe(t, <-gone, ErrCancelled) // while the writer still stands
	h.queued--
	stays := h.queue(ctx, func(tx *Tx) error { return insert(tx, "stays") })
	if err := h.let(); err != nil {
		t.Fatal(explain(err))
	}
	if err := <-stays; err != nil {
		t.Fatal(explain(err))
	}
	if ran {
		t.Error("the function ran after its caller had gone")
	}
	for range 100 {
		mustBe(t, db.Write(ended, func(*Tx) error { ran = true; return nil }), ErrCancelled)
	}
	mustBe(t, db.Write(ended, nil), context.Canceled)
	if ran {
		t.Error("the function ran although its context had ended before")
	}
}

// TestCancelledWhileRunning holds that a caller whose function has begun is
// told the truth, whatever its context says.
func TestCancelledWhileRunning(t *testing.T) {
	db := mustOpen(t, tempConfig(t))
	ended, end := context.WithCancel(ctx)
	err := db.Write(ended, func(tx *Tx) error {
		err := insert(tx, "a")
		end()
		return err
	})
	if err != nil {
		t.Errorf("the commit was not told: %s", explain(err))
	}
	if got := names(t, db); !slices.Equal(got, []string{"a"}) {
		t.Errorf("items are %v", got)
	}
}

func TestQueueIsBounded(t *testing.T) {
	c := tempConfig(t)
	c.Queue = 3
	db := mustOpen(t, c)
	h := hold(t, db)
	var answers []<-chan error
	for range 3 {
		answers = append(answers, h.queue(ctx, func(*Tx) error { return nil }))
	}
	err := db.Write(ctx, func(*Tx) error { return errors.New("must not run") })
	mustBe(t, err, ErrBusy)
	if refusal.From(err).RetryAfter() <= 0 {
		t.Error("says nothing about when to try again")
	}
	if db.Stats().Refused != 1 {
		t.Errorf("stats: %+v", db.Stats())
	}
	_ = h.let()
	for _, a := range answers {
		if err := <-a; err != nil {
			t.Error(explain(err))
		}
	}
}

func TestClose(t *testing.T) {
	c := tempConfig(t)
	db := mustOpen(t, c)
	h := hold(t, db)
	waits := h.queue(ctx, func(tx *Tx) error { return insert(tx, "waits") })
	sub, cancel := db.Subscribe()
	defer cancel()
	reading, reads := make(chan struct{}), make(chan error)
	go func() {
		reads <- db.Read(ctx, func(q Queryer) error { // a read without end
			if err := q.QueryRowContext(ctx, "SELECT 1").Scan(new(int)); err != nil {
				return err
			}
			close(reading)
			_, err := column[int](q, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n")
			return err
		})
	}()
	<-reading
	closed := make(chan error)
	go func() { closed <- db.Close() }()
	until(func() bool { return db.writer.queue.isClosed() })
	_ = h.let()
	if err := <-waits; err != nil {
		t.Errorf("what waited was not finished: %s", explain(err))
	}
	mustBe(t, <-reads, ErrClosed)
	if err := <-closed; err != nil {
		t.Fatal(explain(err))
	}
	<-sub
	mustBe(t, add(db, "late"), ErrClosed)
	mustBe(t, db.Read(ctx, func(Queryer) error { return nil }), ErrClosed)
	mustBe(t, db.Backup(ctx, c.file()+".copy"), ErrClosed)
	mustBe(t, db.Check(ctx), ErrClosed)
	if err := db.Close(); err != nil {
		t.Error(explain(err))
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		if exists(c.file() + suffix) {
			t.Errorf("%s is still there", suffix)
		}
	}
	db = mustOpen(t, c)
	if got := names(t, db); !slices.Contains(got, "waits") {
		t.Errorf("items are %v", got)
	}
}

// TestCloseFolds closes while another process has the file open.
func TestCloseFolds(t *testing.T) {
	c := tempConfig(t)
	db := mustOpen(t, c)
	other := raw(t, c.file())
	if err := errors.Join(add(db, "a"), other.QueryRow("SELECT 1 FROM items").Scan(new(int)), db.Close()); err != nil {
		t.Fatal(explain(err))
	}
	if log, err := os.Stat(c.file() + "-wal"); err != nil || log.Size() != 0 {
		t.Errorf("the log was not folded into the file: %v", err)
	}
}

func TestSubscribe(t *testing.T) {
	db := mustOpen(t, tempConfig(t))
	sub, cancel := db.Subscribe()
	other, cancelOther := db.Subscribe()
	cancelOther()
	signalled := func(ch <-chan struct{}) bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	for _, test := range []struct {
		name string
		fn   func(tx *Tx) error
		want bool
	}{
		{"a change", func(tx *Tx) error { return insert(tx, "a") }, true},
		{"no change", func(tx *Tx) error { return nil }, false},
		{"a change that is undone", func(tx *Tx) error { return errors.Join(insert(tx, "b"), errors.New("no")) }, false},
		{"no row found", func(tx *Tx) error { _, err := tx.ExecContext(ctx, "DELETE FROM items WHERE id = 77"); return err }, false},
	} {
		_ = db.Write(ctx, test.fn)
		if signalled(sub) != test.want {
			t.Errorf("%s: signal is not %v", test.name, test.want)
		}
	}
	// Nobody takes these, and the writer goes on.
	for i := range 5 {
		if err := add(db, fmt.Sprint("more", i)); err != nil {
			t.Fatal(explain(err))
		}
	}
	if !signalled(sub) || signalled(sub) {
		t.Error("several changes are not one signal")
	}
	cancel()
	_ = add(db, "last")
	if signalled(sub) || signalled(other) {
		t.Error("a signal after cancel")
	}
}

// TestTopics subscribes to some of what changes.
func TestTopics(t *testing.T) {
	c := tempConfig(t)
	db := mustOpen(t, c)
	if err := add(db, "begun"); err != nil { // the first group signals everybody
		t.Fatal(explain(err))
	}
	a, cancelA := db.Subscribe("a", "b")
	all, cancelAll := db.Subscribe()
	defer cancelA()
	defer cancelAll()
	tell := func(topics ...Topic) func(*Tx) error {
		return func(tx *Tx) error { tx.Tell(topics...); return insert(tx, rand.Text()) }
	}
	signalled := func(ch <-chan struct{}) bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	for _, test := range []struct {
		name   string
		fn     func(tx *Tx) error
		a, all bool
	}{
		{"one of two", tell("b"), true, true},
		{"among others", tell("c", "a", "d"), true, true},
		{"another", tell("c"), false, true},
		{"none", tell(), false, true},
		{"told and undone", func(tx *Tx) error { return errors.Join(tell("a")(tx), errors.New("no")) }, false, false},
		{"told and not changed", func(tx *Tx) error { tx.Tell("a"); return nil }, false, false},
	} {
		_ = db.Write(ctx, test.fn)
		if gotA, gotAll := signalled(a), signalled(all); gotA != test.a || gotAll != test.all {
			t.Errorf("%s: signals %v and %v, want %v and %v", test.name, gotA, gotAll, test.a, test.all)
		}
	}
	// In a group, each function tells its own.
	h := hold(t, db)
	refused := h.queue(ctx, func(tx *Tx) error { tx.Tell("a"); return errors.New("no") })
	done := h.queue(ctx, tell("c"))
	if err := errors.Join(h.let(), <-done); err != nil || <-refused == nil {
		t.Fatal(explain(err))
	}
	if signalled(a) || !signalled(all) {
		t.Error("a function that was undone told something")
	}
	// Ended twice, and the topics are free again.
	_, cancel := db.Subscribe("a")
	cancel()
	cancel()
	if n := len(db.signals.by["a"]); n != 1 {
		t.Errorf("%d are subscribed", n)
	}
	cancelA()
	if len(db.signals.by) != 0 || len(db.signals.subs) != 1 {
		t.Errorf("left over: %v", db.signals.by)
	}
	last, cancelLast := db.Subscribe("a")
	defer cancelLast()
	if err := db.Close(); err != nil {
		t.Fatal(explain(err))
	}
	if !signalled(last) {
		t.Error("no signal when the database closed")
	}
}

// TestOthersCommits hears of what another process commits, with the next group
// and only once.
func TestOthersCommits(t *testing.T) {
	c := tempConfig(t)
	db, other := mustOpen(t, c), mustOpen(t, c)
	look := func() error { return db.Write(ctx, func(*Tx) error { return nil }) }
	if err := errors.Join(look(), add(other, "begun"), look()); err != nil {
		t.Fatal(explain(err))
	}
	sub, cancel := db.Subscribe("a")
	defer cancel()
	signalled := func() bool {
		select {
		case <-sub:
			return true
		default:
			return false
		}
	}
	for _, test := range []struct {
		name string
		do   func() error
		want bool
	}{
		{"nothing", look, false},
		{"the other's commit", func() error { return errors.Join(add(other, "1"), look()) }, true},
		{"nothing more", look, false},
		{"an own commit", func() error { return errors.Join(add(db, "2"), look()) }, false},
		{"the other's reading", func() error { names(t, other); return look() }, false},
		{"two commits of the other", func() error { return errors.Join(add(other, "3"), add(other, "4"), look()) }, true},
		{"both at once", func() error { return errors.Join(add(other, "5"), add(db, "6")) }, true},
		{"a new connection", func() error {
			return db.Write(ctx, func(tx *Tx) error { tx.w.db.writer.version = -1; return nil })
		}, false},
	} {
		if err := test.do(); err != nil {
			t.Fatal(explain(err))
		}
		if got := signalled(); got != test.want {
			t.Errorf("%s: signal is %v", test.name, got)
		}
	}
	// What a connection that was lost would have noticed is taken for changed.
	if err := look(); err != nil || !signalled() {
		t.Errorf("after a new connection: no signal, %v", err)
	}
}

// TestGoexit ends the writer's goroutine from within, as t.Fatal would.
func TestGoexit(t *testing.T) {
	db := mustOpen(t, tempConfig(t))
	err := db.Write(ctx, func(tx *Tx) error {
		_ = insert(tx, "half")
		runtime.Goexit()
		return nil
	})
	mustBe(t, err, ErrPanic)
	if err := add(db, "after"); err != nil {
		t.Fatal(explain(err))
	}
	if got := names(t, db); !slices.Equal(got, []string{"after"}) {
		t.Errorf("items are %v", got)
	}
}

func TestTxAfterItsEnd(t *testing.T) {
	db := mustOpen(t, tempConfig(t))
	var kept *Tx
	_ = db.Write(ctx, func(tx *Tx) error { kept = tx; return nil })
	mustBe(t, insert(kept, "late"), refusal.Internal)
}

// TestFunctionEndsTransaction holds that a COMMIT of a function's own does not
// let the rest of it through piece by piece.
func TestFunctionEndsTransaction(t *testing.T) {
	db := mustOpen(t, tempConfig(t))
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		err := db.Write(ctx, func(tx *Tx) error {
			_, _ = tx.ExecContext(ctx, end)
			return insert(tx, "alone")
		})
		mustBe(t, err, refusal.Internal)
		if got := names(t, db); len(got) != 0 {
			t.Errorf("items are %v", got)
		}
	}
	if err := add(db, "after"); err != nil {
		t.Fatal(explain(err))
	}
}

func TestReadIsASnapshot(t *testing.T) {
	c := tempConfig(t)
	c.Readers = 1
	db := mustOpen(t, c)
	own := errors.New("own")
	err := db.Read(ctx, func(q Queryer) error {
		before, err := column[string](q, "SELECT name FROM items")
		if err != nil {
			return err
		}
		if err := add(db, "meanwhile"); err != nil {
			return err
		}
		after, err := column[string](q, "SELECT name FROM items")
		if err != nil || len(before)+len(after) != 0 {
			return fmt.Errorf("%v, then %v: %w", before, after, err)
		}
		// The only reader is taken.
		ended, end := context.WithCancel(ctx)
		end()
		if err := db.Read(ended, nil); !errors.Is(err, ErrCancelled) {
			return err
		}
		return own
	})
	if !errors.Is(err, own) {
		t.Error(explain(err))
	}
	if got := names(t, db); len(got) != 1 {
		t.Errorf("items are %v", got)
	}
	err = db.Read(ctx, func(q Queryer) error {
		_, err := column[int](q, "INSERT INTO items(name) VALUES ('by a reader') RETURNING id")
		return err
	})
	mustBe(t, err, ErrIO)
	ended, end := context.WithCancel(ctx)
	err = db.Read(ended, func(q Queryer) error {
		end()
		_, err := column[int](q, "SELECT 1")
		return err
	})
	mustBe(t, err, ErrCancelled)
}
