// Package program runs jobs on programs that the owner installed and logged in
// to, each run in a process of its own: the backends claude-cli and codex-cli.
//
// A job's text reaches the program on its standard input and nowhere else. The
// arguments are fixed but for the model's name, which is the owner's; there is
// no shell; the environment is a short list; the folder is fresh and goes with
// the run; the program gets three descriptors and a process group. What it may
// take of time and output is bounded, and the whole group is killed at the end
// of every run, also of one that ended well (MUST NO_SHELL_INTERPOLATION and
// STRIPPED_CHILD_ENV).
//
// A run is done only where the program says so in its own documented form: both
// programs are asked for JSON, since their plain text does not tell an answer
// from an error, nor say what was used. An answer is text and nothing else is
// made of it (MUST OUTPUT_INERT).
//
// # What the programs do by themselves
//
// Both are agents for work on files. claude reads a file that a prompt names
// with an @, whatever tools it is allowed, and takes a prompt that begins with a
// slash for a command; it is told not to by a variable that old versions do not
// know, by its safe mode, and by a line break in front. codex has its tools
// switched off one by one, and an answer is refused if it used one all the same.
// So versions older than the ones this was tried with are refused. codex still
// shows the model its owner's AGENTS.md and the skills that a prompt names with
// a $; no switch is known for that.
//
// # What is not held
//
// A process that leaves the group is found on Linux by the scratch folder in its
// environment, and killed too; one that also changes its environment is not
// found, and elsewhere none is looked for. Making the agent the reaper of all
// orphans would not help: it could not tell which run one belongs to. On Linux
// the program dies with the agent; what the program started does not, and is
// killed by [Orphans] when the agent starts again. On Windows a process that is
// started before the program is put into its job object escapes it. [Config.Confine] is where walls around files and sockets go up;
// without it a program reaches what the agent's user does.
//
// The package refuses to run as root, to start a program that others could have
// replaced, to use a shell or cmd.exe, to hand on API keys, to show what a
// program wrote beside its answer, and to call a run done because it ended with
// zero.
package program
