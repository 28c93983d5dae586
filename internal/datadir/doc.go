// Package datadir opens the folder in which a party keeps what is its own: a
// folder that only this user can reach, used by one process at a time.
//
// [Replace] writes a file there whole or not at all.
//
// The package refuses to open folders that other users can reach, and to repair
// their rights: whoever opened them had a reason, or has read the files by now.
package datadir
