package database

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// TestFullDisk fills a small file system and then makes room again.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skip("this machine does not let us mount a file system: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	c := configAt(filepath.Join(dir, "site.db"))
	db := mustOpen(t, c)
	ballast := filepath.Join(dir, "ballast")
	fill := func() {
		t.Helper()
		f, err := os.OpenFile(ballast, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for page := make([]byte, 4096); ; {
			if _, err := f.Write(page); err != nil {
				if !errors.Is(err, syscall.ENOSPC) {
					t.Fatal(err)
				}
				return
			}
		}
	}
	var want []string
	write := func(name string) error {
		err := db.Write(ctx, func(tx *Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO items(name, body) VALUES (?, zeroblob(20000))", name)
			return err
		})
		if err == nil {
			want = append(want, name)
		}
		return err
	}
	for round := range 3 {
		if err := write(fmt.Sprint(round, " before")); err != nil {
			t.Fatal(explain(err))
		}
		fill()
		var err error
		for i := 0; i < 1000 && err == nil; i++ {
			err = write(fmt.Sprint(round, " ", i))
		}
		mustBe(t, err, ErrFull)
		mustBe(t, write("again"), ErrFull)
		if got := names(t, db); len(got) != len(want) {
			t.Errorf("%d items can be read, want %d", len(got), len(want))
		}
		if round == 0 {
			mustBe(t, db.Backup(ctx, filepath.Join(dir, "copy.db")), ErrFull)
			_, err := Open(ctx, configAt(filepath.Join(dir, "new.db")))
			mustBe(t, err, ErrFull)
			newer := c
			newer.Migrations = migrations("v2")
			_, err = Open(ctx, newer)
			mustBe(t, err, ErrFull)
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		if err := write(fmt.Sprint(round, " after")); err != nil {
			t.Fatal(explain(err))
		}
	}
	if err := db.Check(ctx); err != nil {
		t.Error(explain(err))
	}
	// What is on the disk is what was acknowledged.
	db.Close()
	got := names(t, mustOpen(t, c))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("items are %v\nwant %v", got, want)
	}
}
