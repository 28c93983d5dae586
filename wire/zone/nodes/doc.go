// Package nodes is what operators ask about machines: to invite one, to see them,
// to have a credential renewed, to let one go, and why one is as it is (families
// F09 and F77, as far as they are about nodes).
//
// A [Node] is what the controller shows, never what it keeps: no bearer, no hash
// of one, no address of a peer. How a machine joins is in package enroll.
//
// The package refuses to judge: states and findings are the controller's.
package nodes
