package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver"

	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/wire/zone"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// spoil changes a closed file behind the store's back.
func spoil(t *testing.T, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%v in %s", err, s)
		}
	}
}

// put writes one record of each kind for each of three names.
func put(tx store.Tx) error {
	for i, n := range []string{"a", "b", "c"} {
		h := store.Hash{byte(i + 1)}
		for _, err := range []error{
			tx.PutOrganization(store.Organization{ID: zone.OrganizationID(n)}),
			tx.PutOperator(store.Operator{ID: zone.OperatorID(n)}),
			tx.PutMember(store.Member{Organization: "o", Operator: zone.OperatorID(n), Role: "r"}),
			tx.PutLoginLink(store.LoginLink{Code: h, Operator: "o"}),
			tx.PutCluster(store.Cluster{ID: zone.ClusterID(n), Organization: "o"}),
			tx.PutRuntime(store.Runtime{Cluster: zone.ClusterID(n)}),
			tx.PutNode(store.Node{ID: zone.NodeID(n), Cluster: "c", Organization: "o"}),
			tx.PutReport(store.Report{Node: zone.NodeID(n), Report: []byte("{}")}),
			tx.PutCredential(store.Credential{Node: zone.NodeID(n), Purpose: "spark", Hash: h}),
			tx.PutInvitation(store.Invitation{Code: h, Cluster: "c"}),
			tx.PutEnrollment(store.Enrollment{ID: n, Node: "n", Digest: h}),
			tx.PutService(store.Service{ID: zone.ServiceID(n), Organization: "o"}),
			tx.PutMachine(store.Machine{Service: zone.ServiceID(n), Organization: "o", Hash: h}),
			tx.PutReceipt(store.Receipt{Scope: "o", ID: zone.MutationID(n), Input: h}),
			tx.AppendAudit(store.AuditEntry{Actor: n}),
		} {
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// get finds the record of each kind that has a name, and says what came of it.
func get(tx store.Tx, n string, h store.Hash) map[string]error {
	found := map[string]error{}
	say := func(what string, ok bool, err error) {
		if err == nil && !ok {
			err = sql.ErrNoRows
		}
		found[what] = err
	}
	_, ok, err := tx.Organization(zone.OrganizationID(n))
	say("organization", ok, err)
	_, ok, err = tx.Operator(zone.OperatorID(n))
	say("operator", ok, err)
	_, ok, err = tx.Member("o", zone.OperatorID(n))
	say("member", ok, err)
	_, ok, err = tx.LoginLink(h)
	say("login link", ok, err)
	_, ok, err = tx.Cluster(zone.ClusterID(n))
	say("cluster", ok, err)
	_, ok, err = tx.Runtime(zone.ClusterID(n))
	say("runtime", ok, err)
	_, ok, err = tx.Node(zone.NodeID(n))
	say("node", ok, err)
	_, ok, err = tx.Report(zone.NodeID(n))
	say("report", ok, err)
	_, ok, err = tx.Credential(zone.NodeID(n), "spark")
	say("credential", ok, err)
	_, ok, err = tx.Invitation(h)
	say("invitation", ok, err)
	_, ok, err = tx.Enrollment(n)
	say("enrollment", ok, err)
	_, ok, err = tx.Service(zone.ServiceID(n))
	say("service", ok, err)
	_, ok, err = tx.Machine(zone.ServiceID(n))
	say("machine", ok, err)
	_, ok, err = tx.Receipt("o", zone.MutationID(n))
	say("receipt", ok, err)
	return found
}

// TestDamagedIsSetAside spoils one row of each kind: whoever asks for it is
// refused, it is missing from lists and named, and its neighbours are as they were
// (promise 6).
func TestDamagedIsSetAside(t *testing.T) {
	loose := func(table string) []string {
		// A table that takes values of any type, as a flipped bit may make one.
		return []string{
			`PRAGMA writable_schema = ON`,
			`UPDATE sqlite_schema SET sql = replace(sql, 'STRICT, WITHOUT', 'WITHOUT') WHERE name = '` + table + `'`,
			`UPDATE sqlite_schema SET sql = replace(sql, ') STRICT', ')') WHERE name = '` + table + `'`,
		}
	}
	strict := func(table string) []string {
		return []string{
			`PRAGMA writable_schema = ON`,
			`UPDATE sqlite_schema SET sql = replace(sql, ') WITHOUT', ') STRICT, WITHOUT') WHERE name = '` + table + `'`,
		}
	}
	long := `printf('%.*c', 5000, 'x')`
	for i, c := range []struct {
		what, table, id, key string
		set                  string
		typed                bool // only a value of another type spoils it
	}{
		{"organization", "organizations", "b", "id = 'b'", "name = " + long, false},
		{"operator", "operators", "b", "id = 'b'", "disabled = 2", false},
		{"member", "members", "o/b", "operator = 'b'", "role = " + long, false},
		{"login link", "login_links", "0200000000000000" + "0000000000000000", "code = x'02" + strings.Repeat("00", 31) + "'", "operator = ''", false},
		{"cluster", "clusters", "b", "id = 'b'", "revision = 'one'", true},
		{"runtime", "runtimes", "b", "cluster = 'b'", "phase = " + long, false},
		{"node", "nodes", "b", "id = 'b'", "organization = ''", false},
		{"report", "reports", "b", "node = 'b'", "report = zeroblob(70000)", false},
		{"report", "reports", "b", "node = 'b'", "report = 'text'", true},
		{"credential", "credentials", "b/spark", "node = 'b'", "request = x'01'", false},
		{"credential", "credentials", "b/spark", "node = 'b'", "generation = 1.5", true},
		{"invitation", "invitations", "0200000000000000" + "0000000000000000", "code = x'02" + strings.Repeat("00", 31) + "'", "cluster = ''", false},
		{"enrollment", "enrollments", "b", "id = 'b'", "digest = x''", false},
		{"service", "services", "b", "id = 'b'", "name = " + long, false},
		{"machine", "machines", "b", "service = 'b'", "hash = x'" + strings.Repeat("00", 33) + "'", false},
		{"receipt", "receipts", "o/b", "id = 'b'", "input = x'00'", false},
		{"audit entry", "audit", "2", "seq = 2", "action = " + long, false},
	} {
		name := c.table
		if c.typed {
			name += " of another type"
		}
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "zone.db")
			var log bytes.Buffer
			config := Config{Path: path, Logger: slog.New(slog.NewTextHandler(&log, nil)), Clock: func() time.Time { return time.UnixMilli(77) }}
			open := func() *Store {
				t.Helper()
				s, err := Open(t.Context(), config)
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			s := open()
			if err := s.Write(t.Context(), put); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if c.typed {
				spoil(t, path, loose(c.table)...)
			}
			spoil(t, path, `UPDATE `+c.table+` SET `+c.set+` WHERE `+c.key)
			if c.typed {
				spoil(t, path, strict(c.table)...)
			}
			s = open()
			defer func() { _ = s.Close() }()
			failed := errors.New("on purpose")
			// Either may be the first to meet it, and names it.
			runs := []func(context.Context, func(store.Tx) error) error{s.Read, s.Write}
			if i%2 == 1 {
				slices.Reverse(runs)
			}
			for i, run := range runs {
				err := run(t.Context(), func(tx store.Tx) error {
					for j, n := range []string{"a", "b", "c"} {
						for what, err := range get(tx, n, store.Hash{byte(j + 1)}) {
							want := error(nil)
							if n == "b" && what == c.what {
								want = store.ErrSetAside
							}
							if !errors.Is(err, want) {
								t.Errorf("%s %s: %v", what, n, err)
							}
						}
					}
					if _, _, err := tx.CredentialByHash(store.Hash{2}); (c.what == "credential") != errors.Is(err, store.ErrSetAside) {
						t.Errorf("by hash: %v", err)
					}
					lists(t, tx, c.what)
					return failed // naming does not depend on the transaction
				})
				if !errors.Is(err, failed) {
					t.Errorf("transaction %d: %v", i, err)
				}
				aside, err := s.SetAside(t.Context())
				if err != nil || len(aside) != 1 || aside[0].What != c.what || aside[0].ID != c.id || aside[0].Why == "" || aside[0].At != 77 {
					t.Errorf("set aside after transaction %d: %+v, %v", i, aside, err)
				}
			}
			if n := strings.Count(log.String(), "set aside"); n != 1 {
				t.Errorf("the log names it %d times: %s", n, log.String())
			}
			if strings.Contains(log.String(), "xxxx") {
				t.Error("the log has what is in the row")
			}
			if c.what == "enrollment" || c.what == "receipt" || c.what == "audit entry" {
				return
			}
			// Put anew, it is a record like any other.
			err := s.Write(t.Context(), func(tx store.Tx) error {
				for _, err := range []error{
					tx.PutOrganization(store.Organization{ID: "b"}), tx.PutOperator(store.Operator{ID: "b"}),
					tx.PutMember(store.Member{Organization: "o", Operator: "b", Role: "r"}),
					tx.PutLoginLink(store.LoginLink{Code: store.Hash{2}, Operator: "o"}),
					tx.PutCluster(store.Cluster{ID: "b", Organization: "o"}), tx.PutRuntime(store.Runtime{Cluster: "b"}),
					tx.PutNode(store.Node{ID: "b", Cluster: "c", Organization: "o"}), tx.PutReport(store.Report{Node: "b"}),
					tx.PutCredential(store.Credential{Node: "b", Purpose: "spark", Hash: store.Hash{2}}),
					tx.PutInvitation(store.Invitation{Code: store.Hash{2}, Cluster: "c"}),
					tx.PutService(store.Service{ID: "b", Organization: "o"}),
					tx.PutMachine(store.Machine{Service: "b", Organization: "o", Hash: store.Hash{2}}),
				} {
					if err != nil {
						return err
					}
				}
				for what, err := range get(tx, "b", store.Hash{2}) {
					if err != nil {
						t.Errorf("%s, put anew: %v", what, err)
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// lists holds that of each list only the damaged record is missing, and that a
// page beside it is as long as it may be.
func lists(t *testing.T, tx store.Tx, damaged string) {
	t.Helper()
	for what, list := range map[string]func(limit int) (any, error){
		"organization": func(n int) (any, error) { return tx.Organizations("", n) },
		"operator":     func(n int) (any, error) { return tx.Operators("", n) },
		"member":       func(n int) (any, error) { return tx.Members("o", "", n) },
		"cluster":      func(n int) (any, error) { return tx.Clusters("o", "", n) },
		"node":         func(n int) (any, error) { return tx.Nodes("c", "", n) },
		"service":      func(n int) (any, error) { return tx.Services("o", "", n) },
		"audit entry":  func(n int) (any, error) { return tx.Audit("", 0, n) },
	} {
		all, err := list(0)
		want := 3
		if what == damaged {
			want = 2
		}
		if n := reflect.ValueOf(all).Len(); n != want || err != nil {
			t.Errorf("%d of kind %s are listed, %v", n, what, err)
		}
		page, err := list(2)
		if n := reflect.ValueOf(page).Len(); n != 2 || err != nil {
			t.Errorf("a page of kind %s has %d, %v", what, n, err)
		}
	}
}
