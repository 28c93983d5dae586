//go:build unix

package keyfile

import (
	"io/fs"
	"os"
	"syscall"
)

// protects reports whether mode 0600 keeps other users out.
const protects = true

// openWithoutWait keeps the opening of a pipe from waiting for a writer, should
// the name have become one.
const openWithoutWait = syscall.O_NONBLOCK

// Reached reports whether a user other than this one and root can get at a file
// or into a folder: by its mode, or as its owner. Where a mode is no access list,
// it reports false.
func Reached(info fs.FileInfo) bool { return info.Mode().Perm()&0o077 != 0 || foreign(info) }

// foreign reports whether the file belongs to a user who is neither this one
// nor root: its owner can always change the mode back and read it.
func foreign(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid()
}
