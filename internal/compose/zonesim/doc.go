// Package zonesim runs a whole zone in one goroutine and in virtual time: one
// controller with its real logic and its real typed requests, and machines with the
// real Spark and Pallet. Links lose, double, delay and reorder what they carry,
// processes crash before and after they save, disks are full, clocks jump, and an
// operator rotates, removes, adopts and invites again.
//
// Beside it runs a model that knows from the requests alone what a controller must
// accept. [Run] compares the two after every event. A seed replays exactly.
//
// [Schedule] is apart from that: the real pace of many nodes and nothing else.
//
// The package is for tests and measurements. It refuses to be part of a program
// that users run, since it links both sides of the contract.
package zonesim
