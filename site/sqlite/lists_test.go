package sqlite

import (
	"crypto/sha256"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

func openTest(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "site.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (s *Store) mustExec(t *testing.T, query string, args ...any) {
	t.Helper()
	if err := s.db.Write(t.Context(), func(tx *database.Tx) error {
		_, err := tx.ExecContext(t.Context(), query, args...)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestPageLooksSoFar holds that a page that asks for what is rare looks at so many
// jobs and no more, and that its cursor leads on.
func TestPageLooksSoFar(t *testing.T) {
	s := openTest(t)
	s.mustExec(t, `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO jobs (id, kind, owner, audience, size_class, state, created_at, updated_at, ttl_ms, done_at)
		SELECT 'j' || i, 'llm.generate', 'alice', 'self', 'small', CASE i WHEN 2 THEN 'expired' ELSE 'ok' END, 1, 1, 1, 1 FROM n`, 2*listLook+5)
	for _, owner := range []ai.Owner{"", "alice"} {
		var nexts []ai.JobID
		q := site.JobQuery{Owner: owner, State: ai.StateExpired, Limit: 3}
		for range 3 {
			page, err := s.ListJobs(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			nexts, q.After = append(nexts, page.Next), page.Next
			if last := page.Next == ""; (len(page.Jobs) == 1) != last || last && page.Jobs[0].ID != "j2" {
				t.Errorf("owner %q: a page of %d jobs that leads to %q", owner, len(page.Jobs), page.Next)
			}
			if page.Next == "" {
				break
			}
		}
		// 10005 jobs: j10005 to j5006, j5005 to j6, and the rest.
		if want := [3]ai.JobID{"j5006", "j6", ""}; len(nexts) != 3 || [3]ai.JobID(nexts) != want {
			t.Errorf("owner %q: cursors %v, want %v", owner, nexts, want)
		}
	}
}

// TestOwnersPagePlan holds that one owner's list is read from that owner's jobs.
func TestOwnersPagePlan(t *testing.T) {
	s := openTest(t)
	for _, query := range []string{ownerFloorQuery, ownerPageQuery} {
		var plan string
		err := s.db.Read(t.Context(), func(q database.Queryer) error {
			return each(t.Context(), q, `EXPLAIN QUERY PLAN `+query, make([]any, strings.Count(query, "?")), func(r scanner) error {
				var id, parent, unused int
				var detail string
				err := r.Scan(&id, &parent, &unused, &detail)
				plan += detail
				return err
			})
		})
		if err != nil || !strings.Contains(plan, "jobs_owner (owner=? AND rowid") {
			t.Errorf("%s, %v\nin %s", plan, err, query)
		}
	}
}

// TestDamagedAppKeys holds that a key whose row makes no sense has no rights, and
// that the others have theirs.
func TestDamagedAppKeys(t *testing.T) {
	s := openTest(t)
	keys := s.AppKeys()
	hash := func(name string) [32]byte { return sha256.Sum256([]byte(name)) }
	for _, name := range []string{"good", "scopes", "owner"} {
		if _, err := keys.Add(t.Context(), site.NewAppKey{
			ID: name, Hash: hash(name), Name: name, Scopes: []site.Scope{site.ScopeRead}, Owner: "alice", Now: 1,
		}); err != nil {
			t.Fatal(err)
		}
	}
	s.mustExec(t, `UPDATE app_keys SET scopes = 'read everything' WHERE id = 'scopes'`)
	s.mustExec(t, `UPDATE app_keys SET owner = '' WHERE id = 'owner'`)
	for _, name := range []string{"scopes", "owner"} {
		if k, err := keys.Find(t.Context(), hash(name)); !errors.Is(err, site.ErrSetAside) || k.ID != "" {
			t.Errorf("%s: %+v, %v", name, k, err)
		}
	}
	if list, err := keys.List(t.Context()); err != nil || len(list) != 1 || list[0].ID != "good" {
		t.Errorf("listed %+v, %v", list, err)
	}
	if aside, err := s.SetAside(t.Context()); err != nil || len(aside) != 2 || aside[0].What != "app key" {
		t.Errorf("set aside %+v, %v", aside, err)
	}
	// They still count as having been there.
	if _, err := keys.Add(t.Context(), site.NewAppKey{ID: "x", Hash: hash("x"), Name: "x", Scopes: []site.Scope{site.ScopeAdmin}, First: true, Now: 1}); !errors.Is(err, site.ErrAppKeyTaken) {
		t.Errorf("a first key: %v", err)
	}
}
