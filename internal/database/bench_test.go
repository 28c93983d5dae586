package database

import (
	"fmt"
	"sync"
	"testing"
)

// BenchmarkWrite inserts rows of 512 bytes. The disk decides: compare the
// numbers with each other, not with those of another day.
func BenchmarkWrite(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			db := mustOpen(b, tempConfig(b))
			body := make([]byte, 512)
			jobs := make(chan int)
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for i := range jobs {
						err := db.Write(ctx, func(tx *Tx) error {
							_, err := tx.ExecContext(ctx, "INSERT INTO items VALUES (NULL, ?, ?)", fmt.Sprint(i), body)
							return err
						})
						if err != nil {
							b.Error(explain(err))
						}
					}
				})
			}
			before := db.Stats()
			b.ResetTimer()
			for i := range b.N {
				jobs <- i
			}
			close(jobs)
			wg.Wait()
			b.StopTimer()
			after := db.Stats()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
			b.ReportMetric(float64(b.N)/float64(after.Commits-before.Commits), "ops/commit")
		})
	}
}

func BenchmarkRead(b *testing.B) {
	db := mustOpen(b, tempConfig(b))
	if err := add(db, "a"); err != nil {
		b.Fatal(explain(err))
	}
	for b.Loop() {
		err := db.Read(ctx, func(q Queryer) error {
			return q.QueryRowContext(ctx, "SELECT id FROM items WHERE name = 'a'").Scan(new(int))
		})
		if err != nil {
			b.Fatal(explain(err))
		}
	}
}
