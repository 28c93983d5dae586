// Package who says on whose behalf the controller is asked, and what they may do.
//
// A [Principal] comes from proof alone: a token, a bearer, or the admin socket of
// the data folder. What a caller says about themselves is never part of it
// (decision O13). Roles are read from the store in the transaction that acts, so
// a role that is taken away is gone with the next request. Whether an operator may
// still come in is asked at the door, and once more where a change of theirs is made,
// since it may have waited there (see [Principal.Stands]).
//
// The package refuses to tell what is not there from what is somebody else's: both
// are [ErrAbsent], after the same number of reads.
package who
