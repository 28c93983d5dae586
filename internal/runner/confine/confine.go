package confine

import (
	"os/exec"

	"github.com/allodhq/allod/refusal"
)

// What this package refuses.
var (
	ErrUnconfined = refusal.NewKind("programs-unconfined", 501,
		"Programs that the agent starts are not confined on this machine: they can read and write what the agent's user can.",
		"Run the agent on Linux 5.13 or newer with Landlock, or as a user that owns nothing else.")
	ErrPolicy = refusal.NewKind("confine-path", 403,
		"A path cannot be opened to a confined program, so the program was not started.",
		"Name files and folders that hold only what the program needs, as its login file.")
	ErrProgram = refusal.NewKind("confine-program", 500,
		"The program cannot be started behind walls, so it was not started.",
		"Check that the tool is still installed where it was; if it is, report this.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Confined programs", Kinds: []*refusal.Kind{ErrUnconfined, ErrPolicy, ErrProgram}}

// How the helper ends when it cannot become the program. A program can end with
// the same codes, so [MessageUnconfined] and [MessageNotRun] on its standard
// error are no proof either: they explain, and decide nothing.
const (
	// ExitUnconfined: the helper could not put up the walls. Nothing ran.
	ExitUnconfined = 125
	// ExitNotRun: the walls stood, and the program could not be executed.
	ExitNotRun = 126
)

// What the helper says on standard error as it ends so.
const (
	MessageUnconfined = "allod: the program was not started, because it could not be confined\n"
	MessageNotRun     = "allod: the confined program could not be executed\n"
)

// MaxPaths is how many paths the lists of a [Policy] may hold together.
const MaxPaths = 64

// A Policy is what a program may reach besides the system's own files. Each path
// is absolute, in its shortest form, and at most 4,095 bytes long. It is judged
// where it leads, and must be a regular file or a folder, with all that is below
// it. A path that is absent is skipped, so a file that the program has yet to
// make needs its folder.
type Policy struct {
	// Read may be read: the tool's login files and settings.
	Read []string
	// Run may be read and executed: where the tool is installed, its interpreter
	// too where that lies in the home. The program itself needs no entry.
	Run []string
	// Write may be read, written, made, moved and removed, and not executed: the
	// scratch folder, and a login file that the tool renews.
	Write []string
	// Ports are TCP ports that it may connect to besides 443 and 53, as the port
	// of a proxy.
	Ports []uint16
	// Hide must stay out of reach: the agent's folder, keys, other logins. A policy
	// that opens one of them, or a folder above it, is refused. A folder below one
	// may be opened.
	Hide []string
}

// Confinement is what this machine's kernel does for programs.
type Confinement struct {
	// Enforced says that programs are confined.
	Enforced bool
	// ABI is the version of the kernel's Landlock, from 1, and 0 where there is none.
	ABI int
	// Missing are the things that a newer kernel would close and this one leaves
	// open, as words that complete "open: ". It is empty where nothing is enforced.
	Missing []string
	// Reason is an [ErrUnconfined] that says why nothing is enforced, or nil.
	Reason *refusal.Refusal
}

// Main must be the first call of a program's main. In the helper it puts up the
// walls and becomes the confined program, or exits with [ExitUnconfined] or
// [ExitNotRun]; it does not return. Elsewhere it returns at once.
func Main() { begin() }

// State asks the kernel what it confines.
func State() Confinement { return state() }

// Apply rewrites a command that has not started, so that it starts confined. It
// is the last step: whoever changes the path, arguments or environment afterwards
// gets a program that does not start. The rest of the command stays in force, as
// do its folder, streams, user and process group. Where the kernel confines
// nothing the command stays as it is, as [State] says.
//
// It returns [ErrPolicy], and [ErrProgram] for a program without an absolute
// path, with further descriptors, or in a process whose main did not begin with
// [Main].
func (p Policy) Apply(cmd *exec.Cmd) error { return apply(p, cmd) }
