// Package cluster is the controller's clusters and services: making, changing and
// listing them, and saying what blocks a cluster (families F40, F68, F77).
//
// A change is decided, kept, receipted and written into the audit log in one
// transaction. Who asks may touch a thing only where they may touch its
// organization, which the store says and never the caller. What is absent and what
// is somebody else's are refused with the same bytes after the same reads.
//
// The record of who owns a cluster's workloads lies beside the cluster. This package
// makes it together with the cluster, in phase pallet and generation 1 (decision
// O56), and has no way to change it.
//
// What blocks a cluster is never stored. [Judgement] computes it from facts each
// time it is asked for, and every other question of that kind is to ask it too.
//
// The package refuses to know carriers, and to place or run anything.
package cluster
