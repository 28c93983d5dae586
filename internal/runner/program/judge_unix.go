//go:build unix

package program

import (
	"io/fs"
	"os"
	"path/filepath"
)

// judge refuses a file that any user could put another in place of: one that all
// may write, in a folder that all may write, or below a folder in which all may
// rename. It follows links, and judges both the way of the link and of the file.
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
		case info.Mode()&0o002 != 0:
			return ErrReplaceable
		}
		for dir, last := filepath.Dir(path), path; dir != last; dir, last = filepath.Dir(dir), dir {
			info, err := os.Stat(dir)
			if err != nil {
				return ErrNotFound.Because(err)
			}
			// In a sticky folder nobody renames what is another's, but may add.
			if info.Mode()&0o002 != 0 && (last == path || info.Mode()&fs.ModeSticky == 0) {
				return ErrReplaceable
			}
		}
	}
	return nil
}
