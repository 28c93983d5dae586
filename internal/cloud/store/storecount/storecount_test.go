package storecount_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/store/storecount"
	"github.com/allodhq/allod/wire/zone"
)

var errLast = errors.New("last")

// one is a store of one member that fails what it is asked to write.
type one struct{ store.Tx }

func (one) Member(o zone.OrganizationID, p zone.OperatorID) (store.Member, bool, error) {
	return store.Member{Organization: o, Operator: p, Role: "viewer"}, true, nil
}
func (one) PutMember(store.Member) error                                { return errLast }
func (o one) Read(_ context.Context, fn func(tx store.Tx) error) error  { return fn(o) }
func (o one) Write(_ context.Context, fn func(tx store.Tx) error) error { return fn(o) }
func (one) Close() error                                                { return errLast }

func TestItCountsAndPassesOn(t *testing.T) {
	s := storecount.Wrap(one{})
	look := func(tx store.Tx) error {
		m, found, err := tx.Member("main", "admin")
		if m != (store.Member{Organization: "main", Operator: "admin", Role: "viewer"}) || !found {
			t.Errorf("%v, %v", m, found)
		}
		return err
	}
	looked := s.Cost(func() {
		if err := s.Read(t.Context(), look); err != nil {
			t.Error(err)
		}
	})
	wrote := s.Cost(func() {
		err := s.Write(t.Context(), func(tx store.Tx) error {
			return errors.Join(look(tx), look(tx), tx.PutMember(store.Member{}))
		})
		if !errors.Is(err, errLast) {
			t.Error(err)
		}
	})
	if !slices.Equal(looked.Reads, []string{"Member"}) || looked.Writes != nil || looked.Transactions != 1 {
		t.Errorf("looking: %+v", looked)
	}
	if !slices.Equal(wrote.Reads, []string{"Member", "Member"}) || !slices.Equal(wrote.Writes, []string{"PutMember"}) {
		t.Errorf("writing: %+v", wrote)
	}
	again := s.Cost(func() { _ = s.Read(t.Context(), look) })
	twice := s.Cost(func() { _ = s.Read(t.Context(), look); _ = s.Read(t.Context(), func(store.Tx) error { return nil }) })
	if !looked.Equal(again) || looked.Equal(wrote) || looked.Equal(twice) {
		t.Error("Equal")
	}
	if s.Close() == nil {
		t.Error("Close is not passed on")
	}
}
