// Package daemon drives the two programs of a node. [Spark] and [Pallet] are each one
// process: with a folder and a lock of its own, one goroutine that owns the state
// machine (packages spark and pallet), and a control socket.
//
//	DATA/spark/spark.json     Spark's identity and what it has begun
//	DATA/pallet/pallet.json   Pallet's
//	DATA/controller.json      where the controller is, which is no secret: Spark
//	                          writes it, Pallet reads it
//
// Pallet's socket takes the three requests of F10 and one for its state, Spark's takes
// what allod-node asks on behalf of whoever is root ([Client]). A request that changes
// something interrupts what is under way: the state machines ask again.
//
// Logs have the names of steps and refusals, and nothing of a message.
//
// The package refuses to run a second process on a folder, to let a control socket show
// a bearer, and to end because a controller is away or says no: a node keeps its
// identity and asks again.
package daemon
