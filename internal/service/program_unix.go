//go:build unix

package service

import (
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

func runs(info fs.FileInfo) bool { return info.Mode()&0o111 != 0 }

// othersWrite reports whether a user other than this one and root can change a
// file, or put another in its place: by a right to write it or a folder above it,
// or as the owner of one. What cannot be looked at counts.
func othersWrite(path string) bool {
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		info, err := os.Lstat(at)
		if err != nil || othersChange(info) {
			return true
		}
		if at == filepath.Dir(at) {
			return false
		}
	}
}

// othersChange looks at one file or folder. In a folder with the sticky bit only
// an owner takes away what is there. The mode of a link means nothing.
func othersChange(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return true
	}
	mode := info.Mode()
	if mode&fs.ModeSymlink != 0 || mode.IsDir() && mode&fs.ModeSticky != 0 {
		return false
	}
	return mode&0o002 != 0 || mode&0o020 != 0 && !harmless(int(stat.Gid))
}

// harmless reports whether a group has nobody in it who could not do everything
// anyway: root's, that of macOS's administrators, and the one that many systems
// make for each user, which has the user's name.
func harmless(gid int) bool {
	const admin = 80
	if gid == 0 || runtime.GOOS == "darwin" && gid == admin {
		return true
	}
	g, err := user.LookupGroupId(strconv.Itoa(gid))
	if err != nil {
		return false
	}
	u, err := user.Current()
	return err == nil && gid == os.Getegid() && g.Name == u.Username
}
