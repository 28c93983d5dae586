package sqlite

import (
	"context"
	"io/fs"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/storetest"
	"github.com/allodhq/allod/wire/ai"
)

// TestResultsOfAnOlderProgram: what a file of the sixth version holds of a job that
// has ended, and of one that waits, is there in this one.
func TestResultsOfAnOlderProgram(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "site.db")
	older := fstest.MapFS{}
	names, err := fs.Glob(files, "migrations/00[1-6]_*.sql")
	if err != nil || len(names) != 6 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		data, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		older[filepath.Base(name)] = &fstest.MapFile{Data: data}
	}
	old, err := database.Open(ctx, database.Config{URL: "sqlite:" + path, Name: Name, Migrations: older, Clock: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	payload, err := keep(envelopeShape, storetest.Envelope("done", ai.DirectionPayload))
	if err != nil {
		t.Fatal(err)
	}
	result, err := keep(envelopeShape, storetest.Envelope("done", ai.DirectionResult))
	if err != nil {
		t.Fatal(err)
	}
	device := storetest.Identity[key.DeviceRole](9)
	identity, err := keepIdentity(device)
	if err != nil {
		t.Fatal(err)
	}
	err = old.Write(ctx, func(tx *database.Tx) error {
		for _, s := range []struct {
			query string
			args  []any
		}{
			{`INSERT INTO jobs (seq, id, kind, owner, audience, size_class, state, created_at, updated_at, claimable_at, ttl_ms, done_at, done_lease, done_runner)
				VALUES (1, 'done', 'llm.generate', 'alice', 'self', 'small', 'ok', 1, 2, 1, 900000, 2, 'l', 'r')`, nil},
			{`INSERT INTO job_content (seq, payload, result, device, disposition) VALUES (1, ?, ?, ?, 'ok')`, []any{payload, result, identity}},
			{`INSERT INTO jobs (seq, id, kind, owner, audience, size_class, state, created_at, updated_at, claimable_at, ttl_ms)
				VALUES (2, 'waits', 'llm.generate', 'alice', 'self', 'small', 'queued', 1, 1, 1, 900000)`, nil},
			{`INSERT INTO job_content (seq, payload) VALUES (2, ?)`, []any{payload}},
			{`INSERT INTO queue (kind, reach, name, claimable_at, seq) VALUES ('llm.generate', 'own', 'alice', 1, 2)`, nil},
		} {
			if _, err := tx.ExecContext(ctx, s.query, s.args...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Open(ctx, Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	j, err := s.Jobs().Job(ctx, "done", true)
	if err != nil || j.Result == nil || j.Payload != storetest.Envelope("done", ai.DirectionPayload) {
		t.Fatalf("%+v, %v", j, err)
	}
	if r := j.Result; r.Envelope != storetest.Envelope("done", ai.DirectionResult) || r.Device != device || r.Disposition != ai.DispositionOK || r.RunnerID != "r" {
		t.Errorf("the result is %+v", r)
	}
	if j, err = s.Jobs().Job(ctx, "waits", true); err != nil || j.Result != nil || j.Payload.Ciphertext == "" {
		t.Errorf("%+v, %v", j, err)
	}
	if n := s.count(t, `SELECT count(*) FROM queue WHERE seq = 2 AND name = 'alice'`); n != 1 {
		t.Errorf("what waits stands in %d queues", n)
	}
}

func (s *Store) count(t *testing.T, query string) (n int) {
	t.Helper()
	if err := s.db.ReadRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestNothingIsLeftOfAJob: a job that is removed stands in no queue, and an owner
// without jobs is not kept.
func TestNothingIsLeftOfAJob(t *testing.T) {
	ctx := context.Background()
	s, err := Open(ctx, Config{Path: filepath.Join(t.TempDir(), "site.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, id := range []ai.JobID{"gone", "stays", "bobs"} {
		owner := ai.Owner("alice")
		if id == "bobs" {
			owner = "bob"
		}
		if _, _, err := s.Jobs().Enqueue(ctx, storetest.Job(id, owner, storetest.T0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.db.Write(ctx, func(tx *database.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM jobs WHERE id = 'gone'`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if n := s.count(t, `SELECT count(*) FROM queue`); n != 2 {
		t.Errorf("%d places are taken", n)
	}
	if _, err := s.Jobs().Cancel(ctx, site.CancelRequest{ID: "bobs", Now: storetest.T0}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Jobs().Purge(ctx, site.Purge{}); err != nil {
		t.Fatal(err)
	}
	if n := s.count(t, `SELECT count(*) FROM owners WHERE owner = 'alice'`); n != 1 {
		t.Errorf("alice is counted %d times", n)
	}
	if n := s.count(t, `SELECT count(*) FROM owners WHERE owner = 'bob'`); n != 0 {
		t.Errorf("bob is counted %d times", n)
	}
}
