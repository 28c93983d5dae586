//go:build unix

package tty

import (
	"os"

	"golang.org/x/sys/unix"
)

// sizeOf is the size of a terminal, or false for what is none.
func sizeOf(f *os.File) (columns, rows int, ok bool) {
	c, err := f.SyscallConn()
	if err != nil {
		return 0, 0, false
	}
	_ = c.Control(func(fd uintptr) {
		if size, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ); err == nil {
			columns, rows, ok = int(size.Col), int(size.Row), true
		}
	})
	return columns, rows, ok
}

// prepare has nothing to do: these terminals are told what they do by what is
// written to them.
func prepare(*os.File) (restore func(), ok bool) { return func() {}, true }
