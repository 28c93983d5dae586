package sqlite_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/store/sqlite"
	"github.com/allodhq/allod/internal/cloud/store/storetest"
)

var update = flag.String("fixture", "", "keep a file of the newest schema under this name, as in 1")

// TestReleased opens a file of each release, as that release left it, and finds in
// it everything that was put in. Fields that came later are not looked at.
//
// A release keeps its fixture by: go test -run TestReleased -fixture N. One that is
// there is never made anew; until the first release, remove it where the schema
// changes, and make it again.
func TestReleased(t *testing.T) {
	if *update != "" {
		keep(t, filepath.Join("testdata", "zone-"+*update))
	}
	kept, err := filepath.Glob(filepath.Join("testdata", "zone-*.db.gz"))
	if err != nil || len(kept) == 0 {
		t.Fatalf("there are no fixtures: %v", err)
	}
	for _, file := range kept {
		t.Run(filepath.Base(file), func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "zone.db"), unpack(t, file), 0o600); err != nil {
				t.Fatal(err)
			}
			golden, err := os.ReadFile(strings.TrimSuffix(file, ".db.gz") + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			s, err := engine.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			got := describe(t, s)
			want := strings.Split(strings.TrimSpace(string(golden)), "\n")
			if len(want) < 150 {
				t.Errorf("the fixture has only %d fields", len(want))
			}
			for _, line := range want {
				if !slices.Contains(got, line) {
					t.Errorf("is not there any more: %s", line)
				}
			}
			aside, err := s.(*sqlite.Store).SetAside(t.Context())
			if err != nil || len(aside) != 0 {
				t.Errorf("set aside: %+v, %v", aside, err)
			}
			// It goes on as a file of today.
			err = s.Write(t.Context(), func(tx store.Tx) error { return tx.AppendAudit(store.AuditEntry{Action: "opened"}) })
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func describe(t *testing.T, s store.Store) (lines []string) {
	t.Helper()
	err := s.Read(t.Context(), func(tx store.Tx) (err error) {
		lines, err = storetest.Describe(tx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func unpack(t *testing.T, file string) []byte {
	t.Helper()
	packed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(io.LimitReader(r, 16<<20))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// keep makes the fixture of this release.
func keep(t *testing.T, name string) {
	t.Helper()
	if _, err := os.Stat(name + ".db.gz"); err == nil {
		t.Fatal("that fixture is there, and a release never changes")
	}
	path := filepath.Join(t.TempDir(), "zone.db")
	clock := func() time.Time { return time.UnixMilli(1_800_000_000_000) }
	s, err := sqlite.Open(context.Background(), sqlite.Config{Path: path, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(t.Context(), storetest.Fill); err != nil {
		t.Fatal(err)
	}
	lines := describe(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{".db.gz": packed.Bytes(), ".txt": []byte(strings.Join(lines, "\n") + "\n")} {
		if err := os.WriteFile(name+file, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
