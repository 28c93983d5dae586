package nodecli

import "syscall"

// apart puts a program into a process group of its own, so that an interrupt at the
// terminal reaches it through this process alone, which ends both in order.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
