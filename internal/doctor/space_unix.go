//go:build unix

package doctor

import "golang.org/x/sys/unix"

// freeSpace is what an ordinary user can still write on a folder's disk, in bytes.
func freeSpace(folder string) (uint64, error) {
	var s unix.Statfs_t
	err := unix.Statfs(folder, &s)
	return uint64(s.Bavail) * uint64(s.Bsize), err
}
