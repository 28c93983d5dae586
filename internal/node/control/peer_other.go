//go:build !linux

package control

import "net"

const supported = false

func peer(*net.UnixConn) (user uint32, err error) { return 0, ErrSystem }
