package confine

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// auditArch is the processor that the filter is written for, or 0 where there is none.
var auditArch = map[string]uint32{
	"amd64": unix.AUDIT_ARCH_X86_64,
	"arm64": unix.AUDIT_ARCH_AARCH64,
}[runtime.GOARCH]

// Where the filter finds a call's number, processor and arguments. Both
// processors store the low half of an argument first; the kernel takes all of the
// arguments that are looked at as 32 bits.
const (
	atNumber   = 0
	atArch     = 4
	atArgument = 16
)

// x32 is set in the numbers of another way to call the same kernel on amd64.
const x32 = 0x4000_0000

// socketType is the part of a socket's type that is not a flag.
const socketType = 0xf

// socketFilter allows sockets of the internet, the kernel's list of interfaces,
// and connected pairs. It refuses io_uring, which opens sockets without a call
// that a filter sees.
func socketFilter(arch uint32) []unix.SockFilter {
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		least = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		and   = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		give  = unix.BPF_RET | unix.BPF_K
	)
	refuse := func(e unix.Errno) unix.SockFilter {
		return unix.SockFilter{Code: give, K: unix.SECCOMP_RET_ERRNO | uint32(e)}
	}
	allow := unix.SockFilter{Code: give, K: unix.SECCOMP_RET_ALLOW}
	argument := func(n uint32) unix.SockFilter { return unix.SockFilter{Code: load, K: atArgument + 8*n} }
	// is skips so many instructions where what was loaded is something else.
	is := func(k uint32, otherwise uint8) unix.SockFilter {
		return unix.SockFilter{Code: equal, K: k, Jf: otherwise}
	}
	return []unix.SockFilter{
		{Code: load, K: atArch},
		{Code: equal, K: arch, Jt: 1},
		refuse(unix.ENOSYS),
		{Code: load, K: atNumber},
		{Code: least, K: x32, Jf: 1},
		refuse(unix.ENOSYS),
		is(unix.SYS_IO_URING_SETUP, 1),
		refuse(unix.ENOSYS),
		is(unix.SYS_SOCKETPAIR, 5),
		// A pair of datagram sockets could be turned to another address.
		argument(1),
		{Code: and, K: socketType},
		is(unix.SOCK_DGRAM, 1),
		refuse(unix.EPROTONOSUPPORT),
		allow,
		{Code: equal, K: unix.SYS_SOCKET, Jt: 1},
		allow,
		argument(2),
		is(unix.IPPROTO_MPTCP, 1),
		refuse(unix.EPROTONOSUPPORT),
		argument(0),
		is(unix.AF_INET, 1),
		allow,
		is(unix.AF_INET6, 1),
		allow,
		is(unix.AF_NETLINK, 1),
		allow,
		refuse(unix.EAFNOSUPPORT),
	}
}

// filterSockets puts the filter before this thread's calls, where one is written
// for the processor.
func filterSockets() error {
	if auditArch == 0 {
		return nil
	}
	filter := socketFilter(auditArch)
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
	if e != 0 {
		return e
	}
	return nil
}
