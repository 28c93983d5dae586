package sqlite_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/sqlite"
	"github.com/allodhq/allod/site/storetest"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

// BenchmarkClaim claims and gives back with few and with many jobs waiting: jobs
// that fit the claimer, and jobs that do not.
func BenchmarkClaim(b *testing.B) {
	for _, fits := range []bool{true, false} {
		for _, waiting := range []int{1_000, 100_000} {
			b.Run(fmt.Sprintf("fits=%v/waiting=%d", fits, waiting), func(b *testing.B) { benchmarkClaim(b, fits, waiting) })
		}
	}
}

func benchmarkClaim(b *testing.B, fits bool, waiting int) {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(b.TempDir(), "site.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	owner := ai.Owner("alice")
	if !fits {
		owner = "somebody else"
	}
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			for i := w; i < waiting; i += 64 {
				j := storetest.Job(ai.JobID(strconv.Itoa(i)), owner, storetest.T0)
				j.TTL = 24 * time.Hour
				if _, _, err := store.Jobs().Enqueue(ctx, j); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	runner := storetest.Pair(b, store, "alice", 1, storetest.T0)
	offers := []site.KindOffer{
		{Kind: ai.KindGenerate, Offer: match.Offer{Scope: ai.OfferPublic, Cost: backend.Free}},
		{Kind: ai.KindChat, Offer: match.Offer{Scope: ai.OfferPublic, Cost: backend.Free}},
	}
	n := 0
	for b.Loop() {
		n++
		c := site.Claim{
			RunnerID: runner, Offers: offers, Max: 4, Lease: time.Minute, Now: storetest.T0,
			NewLease: func() ai.LeaseID { n++; return ai.LeaseID(strconv.Itoa(n)) },
		}
		binary.BigEndian.PutUint64(c.Request[:], uint64(n))
		got, err := store.Jobs().Claim(ctx, c)
		if err != nil || (len(got.Jobs) == 4) != fits {
			b.Fatalf("claimed %d, %v", len(got.Jobs), err)
		}
		r := site.Release{RunnerID: runner, Now: storetest.T0}
		for _, j := range got.Jobs {
			r.Grants = append(r.Grants, ai.Grant{JobID: j.ID, LeaseID: j.Lease.ID})
		}
		if _, err := store.Jobs().Release(ctx, r); err != nil {
			b.Fatal(err)
		}
	}
}
