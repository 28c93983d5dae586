package control

import (
	"net"

	"golang.org/x/sys/unix"
)

const supported = true

// peer is the user of the process at the other end, as the kernel knows it: for a
// server as the client connected, for a client as the server began to listen.
func peer(conn *net.UnixConn) (user uint32, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, failed
	}
	return cred.Uid, nil
}
