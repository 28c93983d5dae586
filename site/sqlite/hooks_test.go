package sqlite

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/storetest"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

// TestAnEndIsToldOnce holds that a later change of a job's end tells nothing.
func TestAnEndIsToldOnce(t *testing.T) {
	ctx := t.Context()
	store, err := Open(ctx, Config{Path: filepath.Join(t.TempDir(), "site.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Hooks().Use(ctx, []site.Hook{{ID: "h"}}, storetest.T0); err != nil {
		t.Fatal(err)
	}
	if _, _, err := store.Jobs().Enqueue(ctx, storetest.Job("a", "alice", storetest.T0)); err != nil {
		t.Fatal(err)
	}
	waits := func(what, update string, want int) {
		t.Helper()
		if err := store.db.Write(ctx, func(tx *database.Tx) error {
			_, err := tx.ExecContext(ctx, update)
			return err
		}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if n, err := store.Hooks().Waiting(ctx); err != nil || n != want {
			t.Errorf("%s: %d events wait, %v", what, n, err)
		}
	}
	waits("no end", `UPDATE jobs SET done_at = NULL`, 0)
	waits("an end", `UPDATE jobs SET done_at = 1, state = 'ok'`, 1)
	waits("the end at another time", `UPDATE jobs SET done_at = 2`, 1)
}

// BenchmarkEnd asks, claims and completes, without what webhooks need and with it:
// with no hook in use, and with one or sixteen that ask for every end. Compare the
// numbers with each other; what stands there twice shows the noise.
func BenchmarkEnd(b *testing.B) {
	for i, hooks := range []int{without, 0, 1, 16, 0, without} {
		b.Run(fmt.Sprintf("%d/hooks=%d", i, hooks), func(b *testing.B) { benchmarkEnd(b, hooks) })
	}
}

const without = -1

func benchmarkEnd(b *testing.B, hooks int) {
	ctx := context.Background()
	store, err := Open(ctx, Config{Path: filepath.Join(b.TempDir(), "site.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	if hooks == without {
		if err := store.db.Write(ctx, func(tx *database.Tx) error {
			_, err := tx.ExecContext(ctx, `DROP TRIGGER jobs_told`)
			return err
		}); err != nil {
			b.Fatal(err)
		}
	}
	var list []site.Hook
	for i := range hooks {
		list = append(list, site.Hook{ID: site.HookID(strconv.Itoa(i))})
	}
	if err := store.Hooks().Use(ctx, list, storetest.T0); err != nil {
		b.Fatal(err)
	}
	runner := storetest.Pair(b, store, "alice", 1, storetest.T0)
	offers := []site.KindOffer{{Kind: ai.KindGenerate, Offer: match.Offer{Scope: ai.OfferSelf, Cost: backend.Free}}}
	n := 0
	for b.Loop() {
		n++
		id := ai.JobID(strconv.Itoa(n))
		if _, _, err := store.Jobs().Enqueue(ctx, storetest.Job(id, "alice", storetest.T0)); err != nil {
			b.Fatal(err)
		}
		got, err := store.Jobs().Claim(ctx, site.Claim{
			RunnerID: runner, Offers: offers, Max: 1, Lease: time.Minute, Now: storetest.T0, Request: [32]byte{byte(n), byte(n >> 8), byte(n >> 16)},
			NewLease: func() ai.LeaseID { return ai.LeaseID(strconv.Itoa(n)) },
		})
		if err != nil || len(got.Jobs) != 1 {
			b.Fatal(got, err)
		}
		done, err := store.Jobs().Complete(ctx, site.Completion{
			Grant: ai.Grant{JobID: id, LeaseID: got.Jobs[0].Lease.ID}, RunnerID: runner,
			Envelope: storetest.Envelope(id, ai.DirectionResult), Disposition: ai.DispositionOK, Now: storetest.T0,
		})
		if err != nil || !done.Accepted {
			b.Fatal(done, err)
		}
	}
}
