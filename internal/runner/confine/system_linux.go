package confine

import (
	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// Rights to files. On a file those of folders count for nothing.
const (
	toRead landlock.AccessFSSet = ll.AccessFSReadFile | ll.AccessFSReadDir
	toRun                       = toRead | ll.AccessFSExecute
	// Links and pipes are left out: see the package's words. Devices need root.
	toWrite = toRead | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSMakeReg | ll.AccessFSMakeDir |
		ll.AccessFSMakeSock | ll.AccessFSRemoveFile | ll.AccessFSRemoveDir
	// toUse is for devices that are neither made nor removed.
	toUse landlock.AccessFSSet = ll.AccessFSReadFile | ll.AccessFSWriteFile

	// ofFiles are the rights that a file can have.
	ofFiles landlock.AccessFSSet = ll.AccessFSReadFile | ll.AccessFSWriteFile | ll.AccessFSExecute | ll.AccessFSTruncate
)

// system is open to every program. What is absent is skipped.
var system = []struct {
	access landlock.AccessFSSet
	paths  []string
}{
	// Programs, interpreters and libraries, as the distribution, Nix or an
	// administrator installed them. Nobody but root writes there.
	{toRun, []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store"}},
	// Where the dynamic linker looks for libraries.
	{toRead, []string{"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload"}},
	// Names of machines. The first is often a link into /run, and is opened where it leads.
	{toRead, []string{"/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/gai.conf", "/etc/nsswitch.conf",
		"/etc/services", "/etc/protocols"}},
	// Certificates of authorities, and the system's rules for TLS.
	{toRead, []string{"/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/crypto-policies"}},
	// Names of users, with which programs find their home.
	{toRead, []string{"/etc/passwd", "/etc/group"}},
	// The time zone, and the name of the distribution, which makers ask for.
	{toRead, []string{"/etc/localtime", "/etc/timezone", "/etc/os-release"}},
	// JavaScript engines and C libraries read their own maps, memory and processors
	// here, also in the programs that they start, so the program's own entry is not
	// enough. The memory, environment and files of processes outside stay closed.
	{toRead, []string{"/proc"}},
	// How many processors and how much memory there are.
	{toRead, []string{"/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/fs/cgroup", "/sys/kernel/mm/transparent_hugepage"}},
	{toUse, []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}},
}

// ports are the TCP ports that every program may connect to: HTTPS, and DNS for
// an answer that does not fit into a datagram.
var ports = []uint16{443, 53}

// gaps say what a kernel before that ABI leaves open.
var gaps = []struct {
	before int
	what   string
}{
	{3, "cutting short any file of the user"},
	{4, "TCP to every port"},
	{5, "controlling devices"},
	{6, "signals to other processes of the user"},
	{10, "UDP to every port"},
}
