//go:build unix

package database

import (
	"errors"

	"golang.org/x/sys/unix"
)

// isFull reports whether the system says that there is no space.
func isFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// noSpace reports whether the folder's file system has no room for a few pages.
func noSpace(folder string) bool {
	var s unix.Statfs_t
	return unix.Statfs(folder, &s) == nil && uint64(s.Bavail)*uint64(s.Bsize) < littleSpace
}
