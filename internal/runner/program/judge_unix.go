//go:build unix

package program

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// judge refuses a file that another user could put another in place of: one that
// all may write, in a folder that all may write, below a folder in which all may
// rename, or one that belongs, as a folder above it may, to a user who is neither
// this one nor root. A group is its members' business. It follows links, and judges
// both the way of the link and of the file.
func (c command) judge() error {
	real, err := filepath.EvalSymlinks(c.path)
	if err != nil {
		return ErrNotFound.Because(err)
	}
	for _, path := range []string{c.path, real} {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return ErrNotFound.Because(err)
		case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
			return ErrNotFound
		case info.Mode()&0o002 != 0 || foreign(info):
			return ErrReplaceable
		}
		for dir, last := filepath.Dir(path), path; dir != last; dir, last = filepath.Dir(dir), dir {
			info, err := os.Stat(dir)
			if err != nil {
				return ErrNotFound.Because(err)
			}
			// In a sticky folder nobody renames what is another's, but may add.
			if foreign(info) || info.Mode()&0o002 != 0 && (last == path || info.Mode()&fs.ModeSticky == 0) {
				return ErrReplaceable
			}
		}
	}
	return nil
}

// foreign reports whether a file belongs to a user who is neither this one nor
// root. Its owner writes it, whatever its mode says.
func foreign(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return !ok || stat.Uid != 0 && int(stat.Uid) != os.Geteuid()
}

// openToOthers reports whether every user may make files in a folder, or another
// one owns it.
func openToOthers(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && (info.Mode()&0o002 != 0 || foreign(info))
}
