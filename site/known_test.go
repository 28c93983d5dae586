package site

import (
	"strconv"
	"testing"

	"github.com/allodhq/allod/wire/ai"
)

// TestKnown holds that devices are remembered by what never changes, and not
// without end.
func TestKnown(t *testing.T) {
	var k known
	if _, ok := k.get("a"); ok {
		t.Error("nobody was remembered")
	}
	k.put(Runner{ID: "a", Owner: "alice", Paused: true, RevokedAt: 1, Protocol: "0"})
	if r, ok := k.get("a"); !ok || r.Owner != "alice" || r.Paused || r.Revoked() || r.Protocol != "" {
		t.Errorf("remembered %+v, %v", r, ok)
	}
	for i := range 3 * maxKnown {
		k.put(Runner{ID: ai.RunnerID(strconv.Itoa(i))})
		if _, ok := k.get("a"); !ok {
			t.Fatalf("one that is asked for was forgotten after %d others", i)
		}
		if n := len(k.by) + len(k.old); n > maxKnown {
			t.Fatalf("%d are remembered", n)
		}
	}
	if _, ok := k.get("0"); ok {
		t.Error("one that nobody asked for is still remembered")
	}
}
