// Package nodes is the controller's side of node trust: it invites machines, admits
// them, renews and ends what they prove themselves by, and takes Spark's reports
// (families F08, F09, F11).
//
// Each change is one transaction that looks at the authority of that moment,
// decides, and writes what it decided together with its receipt. So a credential
// that was rotated or removed counts for nothing from the next request on, and an
// answer that was lost can be asked for again and is the same.
//
// A node's state and what [Nodes.Why] says about it come from one function, judge.
//
// The package refuses to believe a node about anything but itself: which node it
// is, which generation and which organization follow from its bearer alone.
package nodes
