package host

import (
	"time"

	"github.com/allodhq/allod/refusal"
)

// What this package refuses. All but [ErrSystem] come in [Facts.Problems].
var (
	ErrSystem = refusal.NewKind("host-system", 501,
		"Facts about this machine are read on Linux only.",
		"Run the node on Linux.")
	ErrMissing = refusal.NewKind("host-fact-missing", 500,
		"A fact about this machine could not be read.",
		"Check that /proc is mounted and that this user may read it; the detail names the fact.")
	ErrOdd = refusal.NewKind("host-fact-odd", 500,
		"A fact about this machine reads as something that cannot be true, so it is left out.",
		"Look at the fact on the machine itself; the detail names it.")
	ErrEarly = refusal.NewKind("host-too-early", 503,
		"The load of the processors is not known yet: it takes two looks, at least a second apart.",
		"Wait for the next heartbeat.")
	ErrConfined = refusal.NewKind("host-confined", 409,
		"The node may use less than the machine has, and the facts are those of the machine.",
		"Run the node outside of a container and without limits on its service, if it is to look after the whole machine.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Facts about a node's machine", Kinds: []*refusal.Kind{
	ErrSystem, ErrMissing, ErrOdd, ErrEarly, ErrConfined,
}}

// The bounds of the facts. What is beyond them cannot be true. Texts are as
// [spark.ValidLabel] has them, so that a report can carry them.
const (
	// MaxCPUs is the most processors that a Linux kernel can be built for.
	MaxCPUs = 8192
	// MaxBytes is the largest size: 2^53-1, which every reader of JSON holds exactly.
	MaxBytes = 1<<53 - 1
	// MaxUptime is the longest time since the start.
	MaxUptime = 100 * 366 * 24 * time.Hour
	// MinSpan is the shortest time over which the load of the processors is told.
	// The kernel counts in hundredths of a second, so that a shorter one would be
	// coarse.
	MinSpan = time.Second
)

// Fact is the name of a fact, as problems have it.
type Fact string

// The facts that a problem can be about. Confinement is no fact of its own: it
// says that all of them are about more than the node may use.
const (
	Hostname     Fact = "hostname"
	Kernel       Fact = "kernel"
	OSName       Fact = "osName"
	OSVersion    Fact = "osVersion"
	Architecture Fact = "architecture"
	BootID       Fact = "bootId"
	Uptime       Fact = "uptime"
	CPUs         Fact = "cpus"
	MemoryBytes  Fact = "memoryBytes"
	DiskBytes    Fact = "diskBytes"
	CPULoad      Fact = "cpuLoad"
	MemoryLoad   Fact = "memoryLoad"
	DiskLoad     Fact = "diskLoad"
	Confinement  Fact = "confinement"
)

// Fraction is a load from 0 to 1, or unknown. The zero value is unknown.
type Fraction struct {
	value float64
	known bool
}

// Value returns the load, from 0 to 1, and whether it is known.
func (f Fraction) Value() (load float64, known bool) { return f.value, f.known }

// Problem is a fact that is not told, and why.
type Problem struct {
	Fact    Fact
	Refusal *refusal.Refusal
}

// Facts is one look at the machine. A fact that is not known has its zero value
// and an entry in Problems.
type Facts struct {
	// At is when the look was taken, as the caller said.
	At time.Time
	// Hostname is the machine's name as the kernel has it, if [enroll.ValidHostname]
	// takes it.
	Hostname string
	// Kernel is the kernel's release, as uname -r prints it.
	Kernel string
	// OSName is NAME of os-release, and Linux where that has none.
	OSName string
	// OSVersion is VERSION_ID of os-release. It is empty, without a problem, for a
	// system that has no versions.
	OSVersion string
	// Architecture is the processor's in the words of Go and of OCI images: amd64,
	// arm64.
	Architecture string
	// BootID is a UUID that is new at each start of the machine, in lower case.
	BootID string
	// Uptime is the time since the start, with the time asleep, in steps of 10 ms.
	Uptime time.Duration
	// CPUs is the number of processors that are switched on.
	CPUs int
	// MemoryBytes is the memory that the kernel has for itself and for programs.
	MemoryBytes int64
	// DiskBytes is the size of the file system of the node's data folder.
	DiskBytes int64
	// CPULoad is the part of the processors' time that was not idle, over the time
	// between two looks. Waiting for a disk counts as idle; what another guest of the
	// same physical machine took away counts as busy, since it could not be used.
	CPULoad Fraction
	// MemoryLoad is the part of the memory that a new program could not have without
	// swapping.
	MemoryLoad Fraction
	// DiskLoad is the part of that file system that is used, of what users other than
	// root can use, as df prints it.
	DiskLoad Fraction
	// Problems are in the order of the facts above.
	Problems []Problem
}

// Options say where to look.
type Options struct {
	// Data is the node's data folder, whose file system is told.
	Data string
	// Root is a folder that has proc, etc and sys; "" means the machine's own, "/".
	Root string
}
