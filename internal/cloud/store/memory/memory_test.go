package memory_test

import (
	"testing"

	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/store/memory"
	"github.com/allodhq/allod/internal/cloud/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Engine{Open: func(string) (store.Store, error) { return memory.New(), nil }})
}

// BenchmarkHeartbeat is what a simulation does most.
func BenchmarkHeartbeat(b *testing.B) {
	s, hash := memory.New(), store.Hash{1}
	err := s.Write(b.Context(), func(tx store.Tx) error {
		return tx.PutCredential(store.Credential{Node: "n", Purpose: "spark", Hash: hash})
	})
	if err != nil {
		b.Fatal(err)
	}
	report := make([]byte, 1500)
	b.ReportAllocs()
	for b.Loop() {
		err := s.Write(b.Context(), func(tx store.Tx) error {
			c, _, err := tx.CredentialByHash(hash)
			if err != nil {
				return err
			}
			return tx.PutReport(store.Report{Node: c.Node, Report: report})
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
