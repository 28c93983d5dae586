package memory

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/refusal"
)

// Store is a store in memory. [New] makes one.
type Store struct {
	mu     sync.RWMutex // held for writing by a Write, so that a Read sees no half of one
	closed bool
	tables tables
}

var _ store.Store = (*Store)(nil)

// New makes an empty store.
func New() *Store { return &Store{tables: newTables()} }

// Read is as in [store.Store]. Writes wait until fn has returned.
func (s *Store) Read(ctx context.Context, fn func(tx store.Tx) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	t := &tx{ctx: ctx, tables: &s.tables, readOnly: true}
	defer t.end()
	return fn(t)
}

// Write is as in [store.Store]. The cause of an ErrPanic holds what fn panicked
// with and where.
func (s *Store) Write(ctx context.Context, fn func(tx store.Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	t := &tx{ctx: ctx, tables: &s.tables}
	return t.run(fn)
}

// Close is as in [store.Store]. It waits for what runs.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

func (s *Store) usable(ctx context.Context) error {
	if s.closed {
		return database.ErrClosed
	}
	return alive(ctx)
}

func alive(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return database.ErrCancelled.Because(err)
	}
	return nil
}

// tx is one transaction. What it changes is changed at once, since nobody else
// looks, and noted so that it can be undone.
type tx struct {
	ctx context.Context
	*tables
	readOnly bool
	over     bool
	undo     []func()
}

// run undoes everything unless fn returns nil: after an error, a panic, and a
// Goexit, as t.Fatal is.
func (t *tx) run(fn func(tx store.Tx) error) (err error) {
	done := false
	defer func() {
		t.end()
		if done {
			return
		}
		for i := len(t.undo) - 1; i >= 0; i-- {
			t.undo[i]()
		}
		if p := recover(); p != nil {
			err = database.ErrPanic.Because(fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	err = fn(t)
	done = err == nil
	return err
}

func (t *tx) end() { t.over = true }

// reads is asked by each method that reads.
func (t *tx) reads() error {
	if t.over {
		return refusal.Internal.With("A transaction was used after its function had returned.")
	}
	return alive(t.ctx)
}

// writes is asked by each method that writes, with what keeps the record from
// being kept.
func (t *tx) writes(bounds error) error {
	if err := t.reads(); err != nil {
		return err
	}
	if t.readOnly {
		return store.ErrReadOnly
	}
	return bounds
}
