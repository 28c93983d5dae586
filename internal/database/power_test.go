package database

import (
	"bytes"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	powerItems = 48
	sector     = 512
)

// TestPowerCut writes through a disk that keeps a log, cuts the power at many
// places of it, and looks at what the disk may then hold: all that was synced,
// and of the rest nothing, any of the writes, or any of their sectors. The two
// weaker settings are controls: they must lose something, or this test is blind.
func TestPowerCut(t *testing.T) {
	for _, test := range []struct {
		synchronous   string
		images        int // to look at; each takes some milliseconds
		loses, breaks bool
	}{
		{"FULL", 240, false, false},
		{"NORMAL", 90, true, false},
		{"OFF", 90, true, true},
	} {
		t.Run(test.synchronous, func(t *testing.T) {
			log := powerLog(t, test.synchronous)
			lost, broken := 0, 0
			rnd := rand.New(rand.NewPCG(1, 2))
			stride := max(1, len(log)*3/test.images)
			platter := platter{map[string][]byte{}, map[string][]op{}}
			acked := map[int64]bool{}
			for i, o := range log {
				if o.kind == 'a' {
					acked[o.item] = true
				}
				platter.add(o)
				if i%stride != 0 && i != len(log)-1 {
					continue
				}
				for mode := range 3 {
					files := platter.afterCut(rnd, mode)
					if err := powerCheck(t, files, acked); err != nil {
						if strings.HasPrefix(err.Error(), "lost") {
							lost++
						} else {
							broken++
						}
						if !test.loses {
							t.Errorf("cut after %d of %d, mode %d: %v", i+1, len(log), mode, err)
						}
					}
				}
			}
			t.Logf("%d entries, lost %d, broken %d", len(log), lost, broken)
			if test.loses && lost == 0 {
				t.Error("this setting should have lost acknowledged items")
			}
			if (broken > 0) != test.breaks {
				t.Errorf("%d images are broken", broken)
			}
		})
	}
}

func powerBody(item int64) []byte { return bytes.Repeat([]byte{byte(item)}, 200+int(item*37%3000)) }

// powerLog runs a party's life, from the first start to a clean stop, and
// returns what it asked of its disk. Item 0 stands for the database itself.
func powerLog(t *testing.T, synchronous string) []op {
	c := tempConfig(t)
	c.engine.synchronous, c.engine.checkpoint = synchronous, 20
	d := insertDisk(t, &c)
	d.keep = true
	db := mustOpen(t, c)
	_ = d.add(op{kind: 'a'})
	var wg sync.WaitGroup
	for worker := range int64(4) {
		wg.Go(func() {
			for item := worker + 1; item <= powerItems; item += 4 {
				err := db.Write(ctx, func(tx *Tx) error {
					_, err := tx.ExecContext(ctx, "INSERT INTO items VALUES (?, ?, ?)", item, fmt.Sprint(item), powerBody(item))
					if err == nil {
						_, err = tx.ExecContext(ctx, "INSERT INTO counters VALUES ('n', 1) ON CONFLICT DO UPDATE SET value = value + 1")
					}
					return err
				})
				if err != nil {
					t.Error(explain(err))
				}
				_ = d.add(op{kind: 'a', item: item})
			}
		})
	}
	wg.Wait()
	if err := db.Close(); err != nil {
		t.Fatal(explain(err))
	}
	if len(d.log) < 3*powerItems {
		t.Fatalf("the log has only %d entries", len(d.log))
	}
	return d.log
}

// platter is what a disk holds: synced for good, and what came afterwards.
type platter struct {
	synced  map[string][]byte
	pending map[string][]op
}

func (p platter) add(o op) {
	switch o.kind {
	case 'w', 't':
		p.pending[o.file] = append(p.pending[o.file], o)
	case 's':
		for _, late := range p.pending[o.file] {
			p.synced[o.file] = change(p.synced[o.file], late)
		}
		delete(p.pending, o.file)
	case 'd':
		delete(p.synced, o.file)
		delete(p.pending, o.file)
	}
}

// afterCut returns what the files may hold when the power is back.
func (p platter) afterCut(rnd *rand.Rand, mode int) map[string][]byte {
	files := map[string][]byte{}
	for name, content := range p.synced {
		files[name] = slices.Clone(content)
	}
	for _, name := range slices.Sorted(maps.Keys(p.pending)) {
		for _, o := range p.pending[name] {
			switch {
			case mode == 0: // nothing of it
			case mode == 1 || o.kind == 't': // any of the writes
				if rnd.IntN(2) == 0 {
					files[name] = change(files[name], o)
				}
			default: // any of the sectors
				for at := 0; at < len(o.data); at += sector {
					if rnd.IntN(2) == 0 {
						end := min(at+sector, len(o.data))
						files[name] = change(files[name], op{kind: 'w', off: o.off + int64(at), data: o.data[at:end]})
					}
				}
			}
		}
	}
	return files
}

func change(content []byte, o op) []byte {
	end := o.off + int64(len(o.data))
	if grow := end - int64(len(content)); grow > 0 {
		content = append(content, make([]byte, grow)...)
	}
	if o.kind == 't' {
		return content[:o.off]
	}
	copy(content[o.off:], o.data)
	return content
}

// powerCheck opens what a disk holds. Its error begins with "lost" if the
// database is sound but an acknowledged item is missing.
func powerCheck(t *testing.T, files map[string][]byte, acked map[int64]bool) error {
	dir, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(dir, "site.db")+"?_pragma=synchronous(OFF)")
	if err != nil {
		return err
	}
	defer db.Close()
	var verdict string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		return fmt.Errorf("integrity: %s %w", verdict, err)
	}
	if len(acked) == 0 {
		return nil // nothing was promised yet
	}
	rows, err := db.Query("SELECT id, body FROM items")
	if err != nil {
		return fmt.Errorf("lost the schema: %w", err)
	}
	defer rows.Close()
	found := map[int64]bool{0: true}
	for rows.Next() {
		var id int64
		var body []byte
		if err := rows.Scan(&id, &body); err != nil {
			return err
		}
		if !bytes.Equal(body, powerBody(id)) {
			return fmt.Errorf("item %d has another body", id)
		}
		found[id] = true
	}
	if err := rows.Err(); err != nil {
		return err
	}
	var n int
	if err := db.QueryRow("SELECT coalesce(max(value), 0) FROM counters").Scan(&n); err != nil || n != len(found)-1 {
		return fmt.Errorf("half a function: counted %d of %d items: %w", n, len(found)-1, err)
	}
	for item := range acked {
		if !found[item] {
			return fmt.Errorf("lost item %d", item)
		}
	}
	return nil
}
