//go:build unix

package datadir

import (
	"io/fs"
	"os"
	"syscall"
)

// reached reports whether a user other than this one and root can get into the
// folder: by its mode, or as its owner, who can always change the mode.
func reached(info fs.FileInfo) bool {
	if info.Mode().Perm()&0o077 != 0 {
		return true
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid()
}
