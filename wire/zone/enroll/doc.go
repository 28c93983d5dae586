// Package enroll is how a machine becomes a node, and how a node's two
// credentials are known and renewed (families F08, F09, F10).
//
// A node has two programs with a credential each. Spark reports on the host,
// Pallet runs containers. Each makes its own [Bearer] and shows nobody but the
// controller more than its [CredentialHash]. Whoever installs them makes a
// [Proposal] of the two hashes, and the controller admits both or none. What it
// says then is an [Acknowledgement], which binds to the [Digest] of exactly that
// proposal:
//
//	Spark, Pallet   prepare          -> two hashes
//	installer       enrollNode       -> proposal beside a [Proof], acknowledgement
//	Pallet          bind, activate   -> confirmations, over the local control socket
//	Spark           activates by itself and begins to report
//
// A proof is the Jump code of a join line, or the bearer that Spark had before,
// as long as there is no receipt. Afterwards it is the bearer that Spark prepared,
// and the answer is the first one again: so an answer that was lost can be fetched
// by whoever could have used it, and by nobody else. A proof is no part of the
// proposal, so the digest stays.
//
// Messages are values without pointers or slices. To copy one is to keep it, and
// to read one by its codec is the contract's snapshot. The binders check that two
// messages belong together, and compute what they need from what they were given.
//
// The package refuses to authenticate, to store and to grant. An acknowledgement
// is evidence that an enrollment was committed once; it is no current authority,
// and says nothing about whether the node works.
package enroll
