// Package people lets persons and machines in, and keeps who they are: operators,
// organizations, memberships and login links (F77, F36, decisions O13, O25).
//
// The first start makes one organization, one operator who administers the
// installation, and one login link. A link works once, for an hour, and the store
// keeps only the SHA-256 of its code. A code has 128 random bits: whoever guesses a
// thousand million times a second for that hour finds a given link with a chance of
// one in 10^26, and each guess costs one read of the store. Keeping guesses rare is
// for the carrier to do, for the sake of that read.
//
// A token says who somebody was when it was made. Each request asks the store
// whether they still are: not disabled, and of the same generation. So whatever is
// taken away from somebody is gone with their next request, and with a change that
// they asked for and that was not made by then.
//
// Two organizations cannot see each other. Only the installation's administrators
// bring an operator into an organization, since whoever may add any operator by
// their id finds out who else there is; its own administrators change and remove
// those who are in it.
//
// The package refuses to know how a request travels, to keep passwords, and to
// leave the installation without an administrator.
package people
