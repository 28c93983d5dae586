package ledger

import (
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/database"
)

// TestPlans holds that what is asked for each job is answered from an index,
// however long the ledger is.
func TestPlans(t *testing.T) {
	l, _ := newLedger(t)
	for query, may := range map[string]string{
		lastQuery: "SCAN entries", moneyQuery: "", jobsQuery + byLease: "", begunBeforeQuery: "", begunAtQuery: "",
		spentBeforeQuery: "", spentAtQuery: "",
		// From the newest on, no further than it must.
		jobsQuery + notEnded: "SCAN jobs",
		spentQuery:           "USE TEMP B-TREE FOR GROUP BY, USE TEMP B-TREE FOR ORDER BY",
	} {
		must(t, l.db.Read(ctx, func(q database.Queryer) error {
			rows, err := q.QueryContext(ctx, `EXPLAIN QUERY PLAN `+query, make([]any, strings.Count(query, "?"))...)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var id, parent, unused int
				var detail string
				if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
					return err
				}
				if (strings.HasPrefix(detail, "SCAN") && detail != "SCAN CONSTANT ROW" || strings.Contains(detail, "TEMP B-TREE")) &&
					!strings.Contains(may, detail) {
					t.Errorf("%s\nin %s", detail, query)
				}
			}
			return rows.Err()
		}))
	}
}
