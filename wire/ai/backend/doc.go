// Package backend is the contract's table of backends: the programs and
// services that hold models, how they are reached, and what a run costs their
// owner.
//
// The cost class decides who may use a backend. Where the table gives one,
// configuration cannot change it (MUST COST_NOT_CONFIGURABLE); for the generic
// backend the address decides, and an address that is not plainly local costs
// money (MUST REMOTE_IS_NEVER_FREE).
//
// The package refuses to look names up or to connect: an address is judged by
// its text here, and again by whoever connects.
package backend
