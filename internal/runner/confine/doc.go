// Package confine keeps a program that the agent starts away from what its owner
// did not hand to it. Such a program works on text of other people, and does it
// with the owner's user id.
//
// On Linux the program does not start directly. The agent starts itself again as
// a helper ([Main]), the helper takes rights away from itself with Landlock and
// with a seccomp filter, which nobody can take back, and then becomes the
// program. Whatever the program starts inherits the walls. On macOS and Windows,
// and on a kernel without Landlock, programs start as they are, and [State] says
// so with the reason.
//
// # What is closed
//
//   - Files: reading, listing folders, executing, writing, making, moving and
//     removing. Open are the system's own programs, libraries and settings (the
//     table in system_linux.go says which and why), the program itself, and what
//     the [Policy] names. The agent's folder, ~/.ssh and the rest of the home are
//     closed because nothing opens them; what [Policy.Hide] names cannot be
//     opened by mistake either. /tmp is closed: give the program a folder of its
//     own and name it in TMPDIR.
//   - In what it may write a program can neither execute a file nor make a
//     symbolic link or a named pipe. A link would lead the next one who opens the
//     name, which is the owner or the next run, to a file of the program's choice.
//   - TCP: it connects to the ports 443 and 53 only, since a program asks its
//     maker over HTTPS and the names of machines from a DNS server. So it reaches
//     no database, model server or web page that listens on this machine. It
//     accepts no connections.
//   - Sockets: those of the internet and the kernel's list of interfaces. All
//     others are refused, most of all those with a name in the file system, which
//     Landlock leaves open before ABI 9: through them a program would reach the
//     agent's admin socket, and the user's service manager, which starts
//     programs outside. A pair of connected sockets is allowed. Multipath TCP,
//     which Landlock does not see, and io_uring, which the filter does not see,
//     are refused.
//   - Other processes: it signals, traces and reads the memory and environment of
//     none but those that it started itself.
//   - Privileges: no_new_privs is set, so a setuid program gains nothing.
//
// An older kernel closes less. Everything that it can close is closed, and
// [Confinement.Missing] names the rest. Before ABI 10 UDP is open; on Linux 6.18,
// which is ABI 7, nothing else is missing.
//
// # What stays open
//
// The tool's own login files are readable for it, and where the caller says so
// writable: that is its work. Whoever speaks through the program to its maker can
// therefore send what the login is worth. Landlock sees neither a file's size,
// owner and times nor its mode: a program can ask whether a name exists, watch a
// folder for changes, and change the mode and times of its user's files. It shares
// System V memory with others. In /proc it sees which processes run, and with
// which arguments.
//
// Give single files to write, never a folder with settings: a tool that can write
// its own settings chooses what its owner's next, unconfined start of it executes.
//
// # How the policy travels
//
// In the helper's arguments, which are gone when it becomes the program. The
// program's environment goes through the helper with every name changed, so that
// neither the dynamic linker nor Go's runtime in the helper obeys a word of it,
// and the program gets it back unchanged. Descriptors beyond 0, 1 and 2 close as
// the program starts. The helper opens what it grants without following links, so
// nothing can move between the judgement and the grant.
//
// The package refuses to start a program with fewer walls than the kernel has, to
// grant what is hidden or what is no file or folder, and to hand on a descriptor.
package confine
