package database

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"
)

// op is one thing that the database asked of a file, or a commit that was
// acknowledged in between.
type op struct {
	kind byte // 'w' write, 't' truncate, 's' sync, 'd' delete, 'a' acknowledged
	file string
	off  int64
	data []byte
	item int64
}

// disk lies below a database, keeps a log of what it asks, and can fail.
type disk struct {
	vfs.VFS
	mu   sync.Mutex
	keep bool
	log  []op
	fail error // of every write and sync, if not nil
}

// insertDisk puts a disk below the database of a configuration.
func insertDisk(t *testing.T, c *Config) *disk {
	d := &disk{VFS: vfs.Find("")}
	c.engine.vfs = strings.ReplaceAll(t.Name(), "/", "-")
	vfs.Register(c.engine.vfs, d)
	t.Cleanup(func() { vfs.Unregister(c.engine.vfs) })
	return d
}

func (d *disk) add(o op) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return d.fail
	}
	if d.keep {
		o.data = slices.Clone(o.data)
		d.log = append(d.log, o)
	}
	return nil
}

func (d *disk) setFail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = err
}

func (d *disk) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, got, err := vfsutil.WrapOpenFilename(d.VFS, name, flags)
	if err != nil || flags&(vfs.OPEN_MAIN_DB|vfs.OPEN_WAL|vfs.OPEN_MAIN_JOURNAL) == 0 {
		return f, got, err
	}
	file := &diskFile{File: f, name: filepath.Base(name.String()), disk: d}
	if flags&vfs.OPEN_MAIN_DB != 0 {
		file.shm = vfsutil.WrapSharedMemory(f)
	}
	return file, got, nil
}

func (d *disk) Delete(name string, sync bool) error {
	if err := d.add(op{kind: 'd', file: filepath.Base(name)}); err != nil {
		return err
	}
	return d.VFS.Delete(name, sync)
}

type diskFile struct {
	vfs.File
	name string
	disk *disk
	shm  vfs.SharedMemory
}

func (f *diskFile) Unwrap() vfs.File               { return f.File }
func (f *diskFile) SharedMemory() vfs.SharedMemory { return f.shm }

func (f *diskFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.disk.add(op{kind: 'w', file: f.name, off: off, data: p}); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *diskFile) Truncate(size int64) error {
	if err := f.disk.add(op{kind: 't', file: f.name, off: size}); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *diskFile) Sync(flags vfs.SyncFlag) error {
	if err := f.File.Sync(flags); err != nil {
		return err
	}
	return f.disk.add(op{kind: 's', file: f.name})
}

// TestDiskFails fails the disk while a group is written, and then mends it.
func TestDiskFails(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault error
		want  error
	}{
		{"full", vfs.SystemError(syscall.ENOSPC, sqlite3.FULL), ErrFull},
		{"broken", syscall.EIO, ErrIO},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := tempConfig(t)
			c.Clock = frozen
			d := insertDisk(t, &c)
			db := mustOpen(t, c)
			if err := add(db, "before"); err != nil {
				t.Fatal(explain(err))
			}
			sub, cancel := db.Subscribe()
			defer cancel()
			group := func(last func(tx *Tx) error) {
				t.Helper()
				h := hold(t, db)
				answers := []<-chan error{
					h.queue(ctx, func(tx *Tx) error { return insert(tx, "lost") }),
					// It fails for what a neighbour wrote, which is then lost: its caller
					// must not take the row for being there.
					h.queue(ctx, func(tx *Tx) error { return insert(tx, "lost") }),
					h.queue(ctx, last),
				}
				d.setFail(test.fault)
				mustBe(t, h.let(), test.want)
				for _, a := range answers {
					err := <-a
					mustBe(t, err, test.want)
					if IsUnique(err) {
						t.Error("a caller was told of a row that is not there")
					}
				}
				d.setFail(nil)
			}
			// The commit fails.
			group(func(tx *Tx) error { return nil })
			// The pages no longer fit into memory, so a function meets the error and
			// ignores it. The engine has undone the neighbours' writes too.
			refused := false
			group(func(tx *Tx) error {
				for i := range 10 {
					_, _ = tx.ExecContext(ctx, "INSERT INTO items(name, body) VALUES (?, zeroblob(1000000))", fmt.Sprint("big", i))
				}
				refused = insert(tx, "alone") != nil
				return nil
			})
			if !refused {
				t.Error("a statement was run after its transaction was undone")
			}
			if got := names(t, db); !slices.Equal(got, []string{"before"}) {
				t.Errorf("items are %v", got)
			}
			select {
			case <-sub:
				t.Error("a signal for what was not committed")
			default:
			}
			if err := errors.Join(add(db, "after"), db.Check(ctx)); err != nil {
				t.Fatal(explain(err))
			}
			if got := names(t, db); !slices.Equal(got, []string{"after", "before"}) {
				t.Errorf("items are %v", got)
			}
			if s := db.Stats(); s.Lost != 8 || s.Commits != 2 {
				t.Errorf("stats: %+v", s)
			}
		})
	}
}
