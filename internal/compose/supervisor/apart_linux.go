package supervisor

import "syscall"

// apart puts a program into a process group of its own, and has it end with the
// thread that started it.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
