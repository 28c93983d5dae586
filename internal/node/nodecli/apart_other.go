//go:build !linux

package nodecli

import "syscall"

func apart() *syscall.SysProcAttr { return nil }
