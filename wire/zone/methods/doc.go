// Package methods is the table of the zone contract's methods: for each one who
// may call it, over which carriers, how large it may be and whether it is
// sensitive. Both ends read it, so that neither has an opinion of its own.
//
// A method of the contract that Allod does not have yet is in the table too, and
// is refused by name.
//
// The package refuses to hold messages: they are in the packages of their families.
package methods
