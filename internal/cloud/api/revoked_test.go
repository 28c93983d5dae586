package api_test

import (
	"errors"
	"testing"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/cloud/people"
	"github.com/allodhq/allod/internal/cloud/store"
)

// TestF36RevocationCountsAtTheNextRequest: a session whose owner was revoked by
// whatever way is over at its next request, though nobody dropped the socket.
func TestF36RevocationCountsAtTheNextRequest(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	persons, err := w.socket(e.jwt)
	if err != nil {
		t.Fatal(err)
	}
	machines, err := w.socket(w.machineToken(e))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.store.Write(t.Context(), func(tx store.Tx) error {
		o, _, err := tx.Operator(e.operator)
		if err != nil {
			return err
		}
		o.Generation++
		m, _, err := tx.Machine(e.service)
		if err != nil {
			return err
		}
		m.Generation++
		return errors.Join(tx.PutOperator(o), tx.PutMachine(m))
	}); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*carrier.Socket{"a person": persons, "a machine": machines} {
		if _, err := w.identity(s, carrier.Proof{}); !errors.Is(err, people.ErrEnded) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
