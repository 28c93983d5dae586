//go:build unix

package configfile

import "syscall"

// openWithoutWait keeps the opening of a pipe from waiting for a writer, should
// the name have become one.
const openWithoutWait = syscall.O_NONBLOCK
