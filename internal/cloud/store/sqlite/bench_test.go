package sqlite_test

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/store/sqlite"
	"github.com/allodhq/allod/wire/zone"
)

// BenchmarkHeartbeat is what the store does for one heartbeat, with 2,000 nodes of
// which each sends one after another: who is it, is that still its credential, and
// what does it say. Heartbeats that come together share a commit, so it is told
// for as many callers as there are processors, and for 32 times as many. cpu-us/op
// is what the whole process took.
func BenchmarkHeartbeat(b *testing.B) {
	for _, callers := range []int{1, 32} {
		b.Run(fmt.Sprintf("callers=%dx", callers), func(b *testing.B) {
			const nodes = 2000
			s, err := sqlite.Open(b.Context(), sqlite.Config{Path: filepath.Join(b.TempDir(), "zone.db")})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			hash := func(n int64) (h store.Hash) {
				binary.BigEndian.PutUint64(h[:], uint64(n+1)*0x9E3779B97F4A7C15)
				return h
			}
			report, receipt := make([]byte, 1500), make([]byte, 300)
			for first := 0; first < nodes; first += 500 {
				err := s.Write(b.Context(), func(tx store.Tx) error {
					for n := first; n < first+500; n++ {
						id := zone.NodeID(fmt.Sprintf("node-%08x", uint32(n*2654435761)))
						for _, err := range []error{
							tx.PutNode(store.Node{ID: id, Cluster: "c", Organization: "o"}),
							tx.PutCredential(store.Credential{Node: id, Purpose: "spark", Hash: hash(int64(n)), State: "active", Generation: 1}),
							tx.PutReport(store.Report{Node: id, Report: report, Receipt: receipt}),
						} {
							if err != nil {
								return err
							}
						}
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			var next atomic.Int64
			b.SetParallelism(callers)
			b.ReportAllocs()
			b.ResetTimer()
			before := cpuTime()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					n := next.Add(1)
					err := s.Write(b.Context(), func(tx store.Tx) error {
						c, ok, err := tx.CredentialByHash(hash(n % nodes))
						if err != nil || !ok || c.State != "active" {
							return fmt.Errorf("no credential: %v, %w", ok, err)
						}
						return tx.PutReport(store.Report{Node: c.Node, AcceptedAt: zone.Millis(n), Generation: c.Generation, Report: report, Receipt: receipt})
					})
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64((cpuTime()-before).Microseconds())/float64(b.N), "cpu-us/op")
			b.ReportMetric(float64(s.Stats().Functions)/float64(s.Stats().Commits), "writes/commit")
		})
	}
}
