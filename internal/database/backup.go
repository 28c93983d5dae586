package database

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// maxCopies is how many different copies from before the same migration are
// kept. Each is from a failed attempt with other rows in the file.
const maxCopies = 9

// Backup writes a consistent copy of the database to path, where nothing may be
// yet, and returns once it is on the disk. It can be called while the database
// is in use: readers and the writer go on, and the copy is of the moment when
// it began. It needs as much space as the database holds. The copy has mode
// 0600 and is opened like any other database. A crash leaves nothing at path, and
// perhaps a file named like it with .partial at the end.
//
// It returns [ErrCopyExists], [ErrFolder], [ErrUnreadable], [ErrFull], [ErrIO],
// [ErrCancelled] or [ErrClosed].
func (db *DB) Backup(ctx context.Context, path string) error {
	if err := db.enter(); err != nil {
		return err
	}
	defer db.leave()
	path, err := filepath.Abs(path)
	if err != nil {
		return ErrUnreadable.Because(err)
	}
	if _, err := os.Lstat(path); err == nil {
		return ErrCopyExists
	}
	partial, err := db.copyTo(ctx, path)
	if err != nil {
		return err
	}
	if err := publish(partial, path); err != nil {
		_ = os.Remove(partial)
		return named(filepath.Dir(path), err)
	}
	return nil
}

// copyBefore makes the copy from before a migration and returns its path. The
// caller holds the lock for writing, so no other process is here. An equal copy
// that is there already is enough: a party that is started again and again with
// a migration that fails must not fill the disk.
func (db *DB) copyBefore(ctx context.Context) (string, error) {
	first := fmt.Sprintf("%s.before-%d", db.path, db.newest)
	_ = os.Remove(first + ".db.partial") // of an attempt that was cut off
	partial, err := db.copyTo(ctx, first+".db")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(partial) }()
	for i := 1; i <= maxCopies; i++ {
		path := first + ".db"
		if i > 1 {
			path = fmt.Sprintf("%s-%d.db", first, i)
		}
		err := publish(partial, path)
		if err == nil {
			return path, nil
		} else if !errors.Is(err, ErrCopyExists) {
			return "", named(db.folder, err)
		}
		if same, err := sameContent(partial, path); err != nil {
			return "", ErrIO.Because(err)
		} else if same {
			return path, nil
		}
	}
	return "", ErrCopyExists.With("There are many copies beside the database from before this change.")
}

// copyTo copies the database to a new file that is named like path with
// .partial at the end, and returns that name once the content is on the disk.
func (db *DB) copyTo(ctx context.Context, path string) (_ string, err error) {
	folder, partial := filepath.Dir(path), path+".partial"
	if err := isFolder(folder); err != nil {
		return "", err
	}
	// The engine writes into an empty file and keeps its mode.
	f, err := os.OpenFile(partial, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
	switch {
	case errors.Is(err, fs.ErrExist):
		return "", ErrCopyExists.With("A copy that is not finished is at the same path with .partial at its end.")
	case err != nil && !isFull(err):
		return "", ErrUnreadable.Because(err)
	case err != nil:
		return "", ErrFull.Because(err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(partial)
			err = named(folder, err)
		}
	}()
	if err := f.Close(); err != nil {
		return "", err
	}
	// A connection of its own: the readers' refuse to write anything, and the
	// writer has work to do.
	source, err := pool(db.config.dsn(db.path), 1)
	if err != nil {
		return "", err
	}
	_, err = source.ExecContext(ctx, "VACUUM INTO ?", partial)
	if err = errors.Join(err, source.Close()); err != nil {
		return "", err
	}
	return partial, syncFile(partial)
}

// Check reads the whole file and returns nil if its structure and its foreign
// keys are sound. It can be called while the database is in use; on a large one
// it takes as long as reading it does. Otherwise it returns [ErrDamaged], with
// what was found as the cause for the log, [ErrIO], [ErrCancelled] or
// [ErrClosed].
func (db *DB) Check(ctx context.Context) error {
	return db.Read(ctx, func(q Queryer) error {
		const most = 20 // findings; more say nothing new
		rows, err := q.QueryContext(ctx, fmt.Sprintf("PRAGMA integrity_check(%d)", most))
		if err != nil {
			return err
		}
		defer rows.Close()
		var found []error
		for rows.Next() {
			var finding string
			if err := rows.Scan(&finding); err != nil {
				return err
			}
			if finding != "ok" {
				found = append(found, errors.New(finding))
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
		var broken int
		err = q.QueryRowContext(ctx, "SELECT count(*) FROM pragma_foreign_key_check").Scan(&broken)
		if err != nil {
			return err
		}
		if broken > 0 {
			found = append(found, fmt.Errorf("%d rows have a foreign key that leads nowhere", broken))
		}
		if len(found) > 0 {
			return ErrDamaged.Because(errors.Join(found...))
		}
		return nil
	})
}

// sameContent reports whether two files hold the same bytes.
func sameContent(a, b string) (bool, error) {
	sumA, errA := digest(a)
	sumB, errB := digest(b)
	return bytes.Equal(sumA, sumB), errors.Join(errA, errB)
}

func digest(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return h.Sum(nil), err
}
