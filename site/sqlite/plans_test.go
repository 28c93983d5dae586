package sqlite

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/database"
)

// TestPlans holds that the questions asked at every claim, heartbeat and sweep
// are answered from an index, whatever waits: none of them may scan a table or
// sort. The store's own connections are asked, since their settings count too.
func TestPlans(t *testing.T) {
	s, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "site.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	sorts := map[string]bool{grantedQuery: true} // the few grants of one request
	for _, query := range []string{
		workerQuery, runnerQuery, jobByID, jobBySeq, heldQuery, completedQuery, headsQuery, lookQuery, repeatedQuery, grantedQuery, canceledQuery, noteQuery, settlingQuery, dependentsQuery, waitsQuery,
		lapsedQuery, deadlineQuery, ttlQuery, contentsQuery, rowsQuery,
		fullQuery, uncollectedQuery, findKeyQuery, ownerFloorQuery, ownerPageQuery,
		nextHookQuery, dueHooksQuery, `DELETE FROM webhook_outbox WHERE seq = ?`,
		`DELETE FROM queue WHERE seq = ?`,
	} {
		// Plans never look at the values, so any will do.
		args := make([]any, strings.Count(query, "?"))
		err := s.db.Read(t.Context(), func(q database.Queryer) error {
			return each(t.Context(), q, `EXPLAIN QUERY PLAN `+query, args, func(r scanner) error {
				var id, parent, unused int
				var detail string
				if err := r.Scan(&id, &parent, &unused, &detail); err != nil {
					return err
				}
				if strings.HasPrefix(detail, "SCAN") && detail != "SCAN CONSTANT ROW" || strings.Contains(detail, "TEMP B-TREE") && !sorts[query] {
					t.Errorf("%s\nin %s", detail, query)
				}
				return nil
			})
		})
		if err != nil {
			t.Fatalf("%v\nin %s", err, query)
		}
	}
}
