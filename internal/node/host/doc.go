// Package host reads what a node tells about its machine in each heartbeat (family
// F11): what the machine is, how large it is, and how busy.
//
// The facts are the machine's, as its kernel shows them below /proc, and not those
// of the container or service in which the node may run. Where that has less than
// the machine, a problem says so.
//
// A fact that cannot be read, or that cannot be true, is left out and named in
// [Facts.Problems]; the others are told all the same. Nothing here is guessed or
// carried over from an earlier look.
//
// The package refuses to start a program, to ask the network, and to read more than
// a bound of any file. It works on Linux only.
package host
