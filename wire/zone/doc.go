// Package zone is the vocabulary of the zone contract: a small cloud on machines
// that their operator owns.
//
// Four parties speak it. A controller decides: it knows organizations, operators,
// clusters, nodes and services, and admits machines. A node is a machine of an
// operator with two programs: Spark reports on the host, Pallet runs containers.
// A relay and an ingress, still to come, carry.
//
// Work looks alike everywhere. A reference travels in the clear and says only
// what a router must know; material is sealed to whoever uses it; a fence says
// which grant is meant (a generation, an epoch, a revision); a receipt ends it,
// once.
//
// Allod is a platform of its own with the families, names and rules of the
// serve.zone contract at release [Release]. Where that contract's document does
// not show a member's name, the name is ours. Nothing here claims to work with
// programs that it was never run against.
//
// The sub-packages hold one group of families each. All of them are pure: no
// clock, no randomness, no sockets. None authenticates, stores or grants
// anything; a value of theirs is well formed and means no more than that (F04).
package zone
