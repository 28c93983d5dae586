// Package pace says when a program of a node next asks its controller.
//
// Each program has slots of its own, one in every interval, at a random place in
// it. A request that fails is made again in the next slot and not sooner. So the
// requests of many nodes stay spread as they are, also when all of them have failed
// because the controller was away: it comes back to the load that it had.
//
// A refusal of the protocol alone is different: only an upgrade ends it, so it is
// asked again after handshake.RetryInterval (F03).
//
// It is no node's own, so that what measures a controller asks as nodes do.
//
// The package refuses to look at a clock: times are arguments.
package pace
