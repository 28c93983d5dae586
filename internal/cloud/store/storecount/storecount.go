package storecount

import (
	"context"
	"slices"
	"sync"

	"github.com/allodhq/allod/internal/cloud/store"
)

// Store passes each call on to another store and keeps which ones there were.
type Store struct {
	in store.Store

	mu    sync.Mutex
	cost  Cost
	calls int
}

// Wrap makes a store that counts.
func Wrap(s store.Store) *Store { return &Store{in: s} }

// Cost runs one request and says what somebody could measure of it. One request
// runs at a time.
func (s *Store) Cost(of func()) Cost {
	s.mu.Lock()
	s.cost = Cost{}
	s.mu.Unlock()
	of()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cost
}

// Calls is how many transactions there were, and calls of their methods, since the
// start.
func (s *Store) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Cost is what a request did to the store.
type Cost struct {
	Reads, Writes []string // names of the methods of transactions, in their order
	Transactions  int
}

// Equal reports whether two requests cost the same.
func (c Cost) Equal(d Cost) bool {
	return slices.Equal(c.Reads, d.Reads) && slices.Equal(c.Writes, d.Writes) && c.Transactions == d.Transactions
}

func (s *Store) note(list *[]string, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*list = append(*list, name)
	s.calls++
}

func (s *Store) begin(t store.Tx) *tx {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cost.Transactions++
	s.calls++
	return &tx{t, s}
}

// Read passes on.
func (s *Store) Read(ctx context.Context, fn func(tx store.Tx) error) error {
	return s.in.Read(ctx, func(t store.Tx) error { return fn(s.begin(t)) })
}

// Write passes on.
func (s *Store) Write(ctx context.Context, fn func(tx store.Tx) error) error {
	return s.in.Write(ctx, func(t store.Tx) error { return fn(s.begin(t)) })
}

// Close passes on.
func (s *Store) Close() error { return s.in.Close() }
