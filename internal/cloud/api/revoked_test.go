package api_test

import (
	"errors"
	"testing"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/cloud/machine"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/who"
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
	for name, c := range map[string]struct {
		socket *carrier.Socket
		want   error
	}{"a person": {persons, who.ErrEnded}, "a machine": {machines, machine.ErrToken}} {
		if _, err := w.identity(c.socket, carrier.Proof{}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
