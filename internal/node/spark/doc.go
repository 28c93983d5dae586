// Package spark is the part of Spark that makes a machine a node, keeps it one and
// reports on it (families F08, F09, F11).
//
// [Core] enrolls: it prepares its own credential, has Pallet prepare another, binds
// both to one proposal, brings that before the controller and hands Pallet the
// acknowledgement. Then it reports, and renews its credential when it is asked to.
// Core names the next step ([Core.Next]) and takes what came of it; whoever drives
// it does what needs a clock, a socket or the host. So a simulation can drive it
// too, and a seed replays exactly.
//
// What must not be lost is on the disk before it is sent: a bearer, a proposal. What
// comes back can be asked for again, so a full disk keeps the node from nothing but
// new enrollments and new credentials.
//
// It refuses to take an acknowledgement or a receipt that does not bind, and to
// forget an identity by itself: whatever a controller says, it asks again.
package spark
