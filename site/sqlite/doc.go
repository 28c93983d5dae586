// Package sqlite keeps a site's store in one SQLite file.
//
// Every method is one transaction, and calls that come together share a commit
// (package internal/database). A claim reads the heads of the queues that fit
// the claimer, so its cost does not grow with what waits, and then asks package
// match, which alone decides.
//
// The package refuses to hold private keys, and to know the time: both are its
// caller's.
package sqlite
