package storetest

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"sync"
	"testing"

	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/database"
)

// writers are all methods that write, each with something to do.
func writers() map[string]func(tx store.Tx) error {
	all := map[string]func(tx store.Tx) error{
		"AppendAudit":      func(tx store.Tx) error { return tx.AppendAudit(store.AuditEntry{Action: "new"}) },
		"DeleteCredential": func(tx store.Tx) error { return tx.DeleteCredential("node-1", "purpose-1") },
		"Prune":            func(tx store.Tx) error { return tx.Prune(1<<62, 100) },
		"PutMember of none": func(tx store.Tx) error {
			return tx.PutMember(store.Member{Organization: "organization-1", Operator: "operator-1"})
		},
	}
	for _, k := range kinds {
		all["Put"+k.name] = func(tx store.Tx) error { return k.put(tx, k.filled(2)) }
		if !k.once() {
			all["Put"+k.name+" in a place"] = func(tx store.Tx) error {
				v := k.filled(3)
				for _, name := range k.found {
					v = with(v, name, reflect.ValueOf(k.filled(1)).FieldByName(name).Interface())
				}
				return k.put(tx, v)
			}
		}
	}
	return all
}

// seeded is a store with one record of each kind.
func seeded(t *testing.T, e Engine) *fixture {
	f := open(t, e)
	f.write(func(tx store.Tx) error {
		for _, k := range kinds {
			if err := k.put(tx, k.filled(1)); err != nil {
				return err
			}
		}
		return tx.AppendAudit(store.AuditEntry{Action: "old"})
	})
	return f
}

// testUndone holds for each method that writes that its change is gone when its
// function fails, and that the store goes on.
func testUndone(t *testing.T, e Engine) {
	f := seeded(t, e)
	before := f.state()
	failed := errors.New("on purpose")
	all := writers()
	for name, write := range all {
		for how, end := range map[string]func() error{
			"an error": func() error { return failed },
			"a panic":  func() error { panic("on purpose") },
			"a mistake": func() error {
				var list []int
				return errors.New(string(rune(list[0])))
			},
		} {
			changed := false
			err := f.store.Write(t.Context(), func(tx store.Tx) error {
				if err := write(tx); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				now, err := everything(tx)
				changed = err == nil && !reflect.DeepEqual(now, before)
				return end()
			})
			if !changed {
				t.Errorf("%s changed nothing, so that undoing it proves nothing", name)
			}
			want := error(failed)
			if how != "an error" {
				want = database.ErrPanic
			}
			wantErr(t, name+" and "+how, err, want)
			equal(t, name+" and "+how, f.state(), before)
		}
	}
	// All of them in one.
	err := f.store.Write(t.Context(), func(tx store.Tx) error {
		for name, write := range all {
			if err := write(tx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		return failed
	})
	wantErr(t, "all", err, failed)
	equal(t, "all", f.state(), before)
	// As t.Fatal does, on a goroutine that may be the caller's.
	ended := make(chan error, 1)
	go func() {
		err := errors.New("the write did not return")
		defer func() { ended <- err }()
		err = f.store.Write(t.Context(), func(tx store.Tx) error {
			_ = all["PutNode"](tx)
			runtime.Goexit()
			return nil
		})
	}()
	if err := <-ended; err == nil {
		t.Error("a function that ended its goroutine was acknowledged")
	}
	equal(t, "a goroutine's end", f.state(), before)
	f.write(func(tx store.Tx) error { return all["PutNode"](tx) })
	if reflect.DeepEqual(f.state(), before) {
		t.Error("the store does not go on")
	}
}

// testEnded holds what the end of a context does before, while and after a
// function runs.
func testEnded(t *testing.T, e Engine) {
	f := seeded(t, e)
	before := f.state()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ran := false
	fn := func(store.Tx) error { ran = true; return nil }
	wantErr(t, "writing too late", f.store.Write(ctx, fn), database.ErrCancelled)
	wantErr(t, "reading too late", f.store.Read(ctx, fn), database.ErrCancelled)
	if ran {
		t.Error("a function ran whose context had ended")
	}
	for name, write := range writers() {
		ctx, cancel := context.WithCancel(t.Context())
		err := f.store.Write(ctx, func(tx store.Tx) error {
			if err := write(tx); err != nil {
				return err
			}
			cancel()
			_, _, err := tx.Node("node-1")
			wantErr(t, name+": reading on", err, database.ErrCancelled)
			return write(tx)
		})
		wantErr(t, name+" while it ends", err, database.ErrCancelled)
		equal(t, name+" while it ends", f.state(), before)
	}
	ctx, cancel = context.WithCancel(t.Context())
	err := f.store.Read(ctx, func(tx store.Tx) error {
		cancel()
		_, _, err := tx.Node("node-1")
		return err
	})
	wantErr(t, "reading while it ends", err, database.ErrCancelled)
}

// testReadOnly holds that no method writes in a Read.
func testReadOnly(t *testing.T, e Engine) {
	f := seeded(t, e)
	before := f.state()
	for name, write := range writers() {
		err := f.store.Read(t.Context(), func(tx store.Tx) error {
			wantErr(t, name, write(tx), store.ErrReadOnly)
			now, err := everything(tx)
			equal(t, name+", within", now, before)
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		equal(t, name, f.state(), before)
	}
	failed := errors.New("on purpose")
	wantErr(t, "an error", f.store.Read(t.Context(), func(store.Tx) error { return failed }), failed)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a panic did not pass through")
			}
		}()
		_ = f.store.Read(t.Context(), func(store.Tx) error { panic("on purpose") })
	}()
	f.write(func(tx store.Tx) error { return tx.AppendAudit(store.AuditEntry{}) })
}

// testSnapshot reads again and again while others write.
func testSnapshot(t *testing.T, e Engine) {
	f := open(t, e)
	put := func(n int64) func(tx store.Tx) error {
		return func(tx store.Tx) error {
			// Two records that always agree.
			if err := tx.PutCluster(store.Cluster{ID: "c", Organization: "o", Revision: n}); err != nil {
				return err
			}
			return tx.PutRuntime(store.Runtime{Cluster: "c", Generation: n})
		}
	}
	f.write(put(1))
	written := make(chan error, 1)
	f.read(func(tx store.Tx) error {
		first, _, err := tx.Cluster("c")
		if err != nil {
			return err
		}
		go func() { written <- f.store.Write(t.Context(), put(2)) }()
		if e.Beside {
			if err := <-written; err != nil {
				return err
			}
			written <- nil
		}
		for range 100 {
			runtime.Gosched()
			c, _, err := tx.Cluster("c")
			r, _, err2 := tx.Runtime("c")
			if err := errors.Join(err, err2); err != nil || c != first || r.Generation != 1 {
				t.Fatalf("a snapshot has become %+v, %+v, %v", c, r, err)
			}
		}
		return nil
	})
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	f.read(func(tx store.Tx) error {
		c, _, err := tx.Cluster("c")
		equal(t, "the next snapshot", c.Revision, int64(2))
		return err
	})
	// Readers beside writers never see a half.
	var wg sync.WaitGroup
	const writes = 30
	for range 2 {
		wg.Go(func() {
			for last := int64(0); last < writes+2; {
				err := f.store.Read(t.Context(), func(tx store.Tx) error {
					c, _, err := tx.Cluster("c")
					r, _, err2 := tx.Runtime("c")
					if c.Revision != r.Generation || c.Revision < last {
						t.Errorf("a read sees %d and %d after %d", c.Revision, r.Generation, last)
					}
					last = c.Revision
					return errors.Join(err, err2)
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for n := range int64(writes) {
		f.write(put(n + 3))
	}
	wg.Wait()
}

// testOver holds that a transaction is of no use once its function has returned.
func testOver(t *testing.T, e Engine) {
	f := seeded(t, e)
	before := f.state()
	var kept []store.Tx
	f.write(func(tx store.Tx) error { kept = append(kept, tx); return nil })
	f.read(func(tx store.Tx) error { kept = append(kept, tx); return nil })
	for i, tx := range kept {
		for name, write := range writers() {
			if err := write(tx); err == nil {
				t.Errorf("%s goes on in transaction %d, which is over", name, i)
			}
		}
		if _, _, err := tx.Node("node-1"); err == nil {
			t.Errorf("transaction %d reads, and is over", i)
		}
		if _, err := tx.Nodes("", "", 0); err == nil {
			t.Errorf("transaction %d lists, and is over", i)
		}
	}
	equal(t, "after all", f.state(), before)
}

func testClosed(t *testing.T, e Engine) {
	f := seeded(t, e)
	for range 2 {
		if err := f.store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	fn := func(store.Tx) error { t.Error("a function runs on a closed store"); return nil }
	wantErr(t, "writing", f.store.Write(t.Context(), fn), database.ErrClosed)
	wantErr(t, "reading", f.store.Read(t.Context(), fn), database.ErrClosed)
}

// addOne reads a counter and writes one more, with an audit entry beside it.
func addOne(s store.Store) error {
	return s.Write(background, func(tx store.Tx) error {
		c, _, err := tx.Cluster("counter")
		if err != nil {
			return err
		}
		runtime.Gosched()
		if err := tx.AppendAudit(store.AuditEntry{Action: "count"}); err != nil {
			return err
		}
		return tx.PutCluster(store.Cluster{ID: "counter", Organization: "o", Revision: c.Revision + 1})
	})
}

// counted is where the counter stands; the audit log must agree.
func (f *fixture) counted() (n int64) {
	f.Helper()
	f.read(func(tx store.Tx) error {
		c, _, err := tx.Cluster("counter")
		entries, err2 := tx.Audit("", 0, 0)
		if n = c.Revision; int(n) != len(entries) || n > 0 && entries[0].Seq != n {
			f.Errorf("the counter is %d and the log has %d entries", n, len(entries))
		}
		return errors.Join(err, err2)
	})
	return n
}

// testCounter counts from many goroutines. No one is lost.
func testCounter(t *testing.T, e Engine) {
	f := open(t, e)
	const workers, each = 8, 25
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				if err := addOne(f.store); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	equal(t, "the counter", f.counted(), int64(workers*each))
}
