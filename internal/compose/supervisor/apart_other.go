//go:build !linux

package supervisor

import "syscall"

// apart does nothing special: what a part is a process for runs on Linux.
func apart() *syscall.SysProcAttr { return nil }
