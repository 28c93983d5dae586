// Package shapes holds what the messages of all versions of the protocol look
// like, and how the versions differ, in one place: a [Dialect] lists the
// differences, and everything that it does not list is the same in all versions.
//
// It refuses to know which versions there are; each has a package of its own
// beside this one that says its dialect.
package shapes
