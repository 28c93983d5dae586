// Package spark is the report that a node's Spark sends about its host, and the
// receipt that it gets (family F11).
//
// A report goes by plain HTTPS POST to [Path] every [Interval], with Spark's bearer
// and offer beside it. The controller takes at most [MaxRequest] bytes, judges the
// offer before anything else, and answers a refusal of it with [handshake.Status].
//
// Everything in a report is a whole number or a text. The contract speaks of the
// host's load as fractions; here they are parts of [Whole], a million, so that the
// report has one canonical form and a digest (decision O01 has whole numbers only),
// and so that no two programs round the same report in two ways.
//
// The package refuses to carry anything about containers: what runs on a node is
// Pallet's to say. It refuses to take a receipt or a sender's clock for authority.
package spark
