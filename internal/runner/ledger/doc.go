// Package ledger is the agent's one record of money and of other people's jobs:
// what is reserved, what began and what it cost, on one file that only grows.
//
// # What counts
//
// [Ledger.Reserve] decides and writes in one transaction, so two jobs never get
// the same room. A reservation counts until the job ends, however long that
// takes. What began counts in the windows of the last hour and the last 24 hours
// from when it began, and what was spent from when it was settled. Own jobs are
// recorded and count in nothing. A limit is the caller's of that moment: raising
// it helps at once.
//
// # Time
//
// Ledger time is the wall clock, except that it never goes back: while the wall
// is behind it, it goes on by what the process measured. So sleep counts, during
// which some systems measure nothing, and so does the time between two processes.
// A wall clock that is set forward empties the windows once; set back, it empties
// and blocks nothing, and set forward again to where it was, it changes nothing
// either, since ledger time has been there. While the wall is behind, sleep and
// the time between processes do not count, so a window lasts up to 24 hours of
// running then. Each entry has both times, and ledger time that only this process
// has seen is kept in entries of its own.
//
// # Size
//
// Rows are never changed or removed, which triggers hold. A job takes about 400
// bytes where its names have 40 characters, and at most 22 KiB.
//
// The package refuses to run jobs, to know prices, to decide who may use a
// backend, to count a lease twice, and to go on with a file that is damaged or
// from a newer version: package database names it, and nothing is written over.
package ledger
