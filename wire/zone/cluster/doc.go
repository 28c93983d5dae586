// Package cluster is what operators and a controller say about clusters and about
// the services that organizations run on them (families F40, F68, F77).
//
// A caller writes a cluster's or a service's writable data, whole, and names the
// revision it read. Everything else is the controller's: identifiers, ownership,
// revisions, times, and who owns the workloads of a cluster. That last thing is the
// cluster's [Runtime]. It has a message of its own and no place in any message that
// a caller writes, so that no update can move it.
//
// Ownership of a service is a member of the request beside the service's data. That
// an identifier is well formed ([ValidateOrganizationID]) says nothing about whether
// the caller may use it; the controller decides that apart, before it keeps anything.
//
// Messages are contents only. The offer of the handshake and the identity of the
// caller travel beside them, as the carrier has it.
//
// The package refuses to decide: it computes no blockers and grants nothing.
package cluster
