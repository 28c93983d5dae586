//go:build unix

package programs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestPrepare holds when packages are fetched, and what counts as absent: only that
// may be skipped.
func TestPrepare(t *testing.T) {
	const fetches, fails = "#!/bin/sh\necho \"$@\" > fetched\n", "#!/bin/sh\nexit 1\n"
	now := time.Now()
	for name, c := range map[string]struct {
		node, npm  string    // programs; empty where there is none
		lock, have time.Time // when they were written; zero where they are not there
		want       error     // nil, errAbsent, or another
		fetched    bool
	}{
		"no node":           {"", fetches, now, now, errAbsent, false},
		"no npm":            {fails, "", now, now, errAbsent, false},
		"nothing there":     {fails, fetches, now, time.Time{}, nil, true},
		"older":             {fails, fetches, now, now.Add(-time.Second), nil, true},
		"newer":             {fails, fetches, now, now.Add(time.Second), nil, false},
		"as old":            {fails, fetches, now, now, nil, false},
		"npm fails":         {fails, fails, now, time.Time{}, errAbsent, false},
		"npm is not needed": {fails, fails, now, now, nil, false},
		"nothing is named":  {fails, fetches, time.Time{}, now, os.ErrNotExist, false},
	} {
		t.Run(name, func(t *testing.T) {
			bin, dir := t.TempDir(), t.TempDir()
			t.Setenv("PATH", bin)
			t.Setenv("TMPDIR", bin) // for the lock
			if err := os.Mkdir(filepath.Join(dir, "node_modules"), 0o700); err != nil {
				t.Fatal(err)
			}
			for path, text := range map[string]string{filepath.Join(bin, "node"): c.node, filepath.Join(bin, "npm"): c.npm} {
				if text == "" {
					continue
				}
				if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for path, written := range map[string]time.Time{"package-lock.json": c.lock, filepath.Join("node_modules", ".package-lock.json"): c.have} {
				path = filepath.Join(dir, path)
				if written.IsZero() {
					continue
				}
				if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, written, written)); err != nil {
					t.Fatal(err)
				}
			}
			node, err := prepare(dir)
			if !errors.Is(err, c.want) || err == nil && node != filepath.Join(bin, "node") {
				t.Errorf("%q %v", node, err)
			}
			text, err := os.ReadFile(filepath.Join(dir, "fetched"))
			if (err == nil) != c.fetched || c.fetched && string(text) != "ci --ignore-scripts --loglevel=error\n" {
				t.Errorf("npm ran as %q, %v", text, err)
			}
		})
	}
}
