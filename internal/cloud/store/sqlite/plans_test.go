package sqlite

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/database"
)

// asked are all statements that a transaction runs.
var asked = []string{
	organizationGet, organizationList, organizationPut, operatorGet, operatorList, operatorPut,
	memberGet, memberList, membershipList, memberOthers, memberPut, memberDelete,
	clusterGet, clusterAll, clusterList, clusterPut, runtimeGet, runtimePut,
	nodeGet, nodeAll, nodeList, nodePut, reportGet, reportPut,
	credentialGet, credentialByHash, credentialPut, credentialDelete,
	invitationGet, invitationPut, invitationPrune, enrollmentGet, enrollmentPut,
	serviceGet, serviceList, servicePut, machineGet, machineByHash, machinePut,
	linkGet, linkPut, linkPrune, receiptGet, receiptPut, receiptPrune, auditAll, auditList, auditPut,
}

// narrow are lists of what belongs to something, and how the engine must find
// them: in the order of their keys it would find them too, among everybody's.
var narrow = map[string]string{
	memberList:     "(organization=? AND operator>?)",
	membershipList: "(operator=?)",
	memberOthers:   "(operator=?",
	clusterList:    "(organization=? AND id>?)",
	nodeList:       "(cluster=? AND id>?)",
	serviceList:    "(organization=? AND id>?)",
	auditList:      "(organization=? AND seq<?)",
}

// TestPlans holds that everything is answered from an index, however much is kept:
// no statement may scan a table or sort. The store's own connections are asked,
// since their settings count too.
func TestPlans(t *testing.T) {
	s, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "zone.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, query := range asked {
		err := s.db.Read(t.Context(), func(q database.Queryer) error {
			// Plans never look at the values, so any will do.
			rows, err := q.QueryContext(t.Context(), `EXPLAIN QUERY PLAN `+query, make([]any, strings.Count(query, "?"))...)
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
				if !strings.Contains(detail, narrow[query]) {
					t.Errorf("%s\nin %s", detail, query)
				}
				if strings.HasPrefix(detail, "SCAN") || strings.Contains(detail, "TEMP B-TREE") {
					t.Errorf("%s\nin %s", detail, query)
				}
			}
			return rows.Err()
		})
		if err != nil {
			t.Fatalf("%v\nin %s", err, query)
		}
	}
}

// TestPlansAreOfEverything holds that no statement of this package is missing
// above.
func TestPlansAreOfEverything(t *testing.T) {
	statement := regexp.MustCompile(`(?m)^\s*(?:const )?(\w+)\s+= (?:\w+Columns \+ )?` + "`" + `(SELECT|WHERE|INSERT|DELETE|UPDATE)`)
	found := 0
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || file == "aside.go" {
			continue
		}
		for _, match := range statement.FindAllStringSubmatch(read(t, file), -1) {
			if !strings.HasSuffix(match[1], "Columns") {
				found++
			}
		}
	}
	if found != len(asked) {
		t.Errorf("%d statements were found, and %d are asked for their plan", found, len(asked))
	}
}
