package runner

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/internal/runner/ledger"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/internal/runner/sharing"
	"github.com/allodhq/allod/wire/ai"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

func anOthersJob(lease ai.LeaseID) lane.Work {
	return lane.Work{
		Stub:  ai.ClaimedStub{Stub: ai.Stub{ID: "job", Owner: "bob", SizeClass: ai.SizeSmall}, Lease: ai.Lease{ID: lease}},
		Offer: lane.Offer{Capability: ai.Capability{Service: "mine", Model: "m"}, Cost: wirebackend.Free},
	}
}

// TestFirstJobEndsEarly: the ledger is made for the first job that needs it, and
// outlives the end of that one.
func TestFirstJobEndsEarly(t *testing.T) {
	p := newPurse(t.Context(), t.TempDir(), settings.CommunityDefaults(), time.Now, slog.New(slog.DiscardHandler))
	defer p.close()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.reserve(ended, "s", false, anOthersJob("one"), sharing.Terms{}); err == nil {
		t.Error("room was taken for a job that had ended")
	}
	if _, err := p.reserve(t.Context(), "s", false, anOthersJob("two"), sharing.Terms{}); err != nil {
		t.Errorf("the next job: %v", err)
	}
}

// TestLedgerThatComesBack: one that cannot be opened takes no job, and is tried
// again.
func TestLedgerThatComesBack(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	path := filepath.Join(dir, ledger.File)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	p := newPurse(t.Context(), dir, settings.CommunityDefaults(), c.now, slog.New(slog.DiscardHandler))
	defer p.close()
	room := func() error { return p.room(t.Context(), "mine", wirebackend.Free, sharing.Terms{}) }
	if _, err := p.reserve(t.Context(), "s", false, anOthersJob("one"), sharing.Terms{}); err == nil || room() == nil {
		t.Errorf("a job was taken that nobody counts: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if c.pass(tryEvery - time.Second); room() == nil {
		t.Error("it is tried again at once")
	}
	if c.pass(time.Second); room() != nil {
		t.Errorf("it is not tried again: %v", room())
	}
	if _, err := p.reserve(t.Context(), "s", false, anOthersJob("two"), sharing.Terms{}); err != nil {
		t.Error(err)
	}
}
