package sqlite_test

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
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

// TestPlans holds that the questions asked at every claim, heartbeat and sweep
// are answered from an index, whatever waits: none of them may scan a table or
// sort.
func TestPlans(t *testing.T) {
	dir := t.TempDir()
	store, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(dir, "site.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, query := range []string{
		`SELECT claimable_at, seq FROM queue WHERE kind = 'k' AND reach = 'r' AND name = 'n' AND claimable_at <= 1
			AND NOT EXISTS (SELECT 1 FROM refusals r WHERE r.runner_id = 'r' AND r.seq = queue.seq) ORDER BY claimable_at, seq LIMIT 4`,
		`SELECT * FROM jobs WHERE lease_id IS NOT NULL AND lease_expires_at <= 1 ORDER BY lease_expires_at LIMIT 64`,
		`SELECT * FROM jobs WHERE state = 'queued' AND deadline_at IS NOT NULL AND deadline_at <= 1 ORDER BY deadline_at LIMIT 64`,
		`SELECT * FROM jobs WHERE state = 'queued' AND claimable_at IS NOT NULL AND claimable_at + ttl_ms <= 1 ORDER BY claimable_at + ttl_ms LIMIT 64`,
		`SELECT count(*) FROM claims WHERE runner_id = 'r' AND request = x'00'`,
		`SELECT id, lease_id FROM jobs WHERE lease_runner = 'r' AND lease_id IS NOT NULL AND cancel_requested = 1`,
		`SELECT d.seq FROM dependencies d JOIN jobs j ON j.seq = d.seq WHERE d.on_id = 'x' AND j.state = 'queued' AND j.claimable_at IS NULL`,
		`SELECT seq FROM jobs WHERE done_at IS NOT NULL AND has_content = 1 AND done_at < 1 ORDER BY done_at LIMIT 256`,
		`DELETE FROM queue WHERE seq = 1`,
	} {
		rows, err := db.Query(`EXPLAIN QUERY PLAN ` + query)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(detail, "SCAN") || strings.Contains(detail, "TEMP B-TREE") {
				t.Errorf("%s\nin %s", detail, query)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		rows.Close()
	}
}

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
		if err != nil || (len(got) == 4) != fits {
			b.Fatalf("claimed %d, %v", len(got), err)
		}
		r := site.Release{RunnerID: runner, Now: storetest.T0}
		for _, j := range got {
			r.Grants = append(r.Grants, ai.Grant{JobID: j.ID, LeaseID: j.Lease.ID})
		}
		if _, err := store.Jobs().Release(ctx, r); err != nil {
			b.Fatal(err)
		}
	}
}
