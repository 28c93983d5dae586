package runner

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
)

// TestOwnFirst: whoever waits, the owner's own job gets the next slot, and among
// equals the one that waited longest.
func TestOwnFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1)
		if err := s.take(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		order := make(chan string, 8)
		for _, w := range []struct {
			name string
			own  bool
		}{{"first other", false}, {"second other", false}, {"first own", true}, {"second own", true}} {
			go func() {
				if s.take(t.Context(), w.own) == nil {
					order <- w.name
					s.give(w.own)
				}
			}()
			synctest.Wait()
		}
		s.give(false)
		synctest.Wait()
		close(order)
		var got []string
		for name := range order {
			got = append(got, name)
		}
		if want := []string{"first own", "second own", "first other", "second other"}; !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	})
}

// TestSlotOfNobody: one who gave up waiting takes no slot with them, in whichever
// order the two happen.
func TestSlotOfNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1)
		for range 100 {
			if err := s.take(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				err := s.take(ctx, false)
				if err == nil {
					s.give(false)
				}
				ended <- err
			}()
			synctest.Wait()
			go cancel()
			go s.give(true)
			<-ended
			synctest.Wait()
			if s.free != 1 || s.foreign != 1 || len(s.own)+len(s.others) > 0 {
				t.Fatalf("%d free, %d and %d wait", s.free, len(s.own), len(s.others))
			}
		}
	})
}

// TestSlotForTheOwner: others of several servers together leave one slot to the
// owner, and get one again when one of them ends.
func TestSlotForTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(3)
		others, own := make(chan bool, 8), make(chan bool, 8)
		for range 3 {
			go func() { others <- s.take(t.Context(), false) == nil }()
		}
		synctest.Wait()
		if len(others) != 2 {
			t.Fatalf("others have %d of 3", len(others))
		}
		go func() { own <- s.take(t.Context(), true) == nil }()
		synctest.Wait()
		if len(own) != 1 {
			t.Fatal("the owner waits for others")
		}
		if s.give(true); len(others) != 2 {
			t.Error("others took the owner's")
		}
		s.give(false)
		synctest.Wait()
		if len(others) != 3 || s.free != 1 || s.foreign != 0 {
			t.Errorf("%d of others, %d free, %d for others", len(others), s.free, s.foreign)
		}
	})
}
