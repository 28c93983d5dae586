// Package authority is who one program of a node is, and how it comes to its next
// credential (family F09).
//
// An [Authority] is a value: each change makes another one, which its owner keeps
// on the disk. The order is what makes a crash and a lost answer harmless:
//
//	Renew    makes the next bearer; it is on the disk before it is sent
//	ask      with the current bearer, and if that counts no more, with the next one
//	Renewed  takes the receipt; the next bearer is the current one from then on
//
// Whoever loses an answer still has both bearers, and one of them counts.
//
// The package refuses to send and to keep anything, and to take a receipt that does
// not bind to what was asked.
package authority
