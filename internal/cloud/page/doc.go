// Package page reads a list of the store one page at a time.
//
// It refuses to decide who may see the list: its caller has done that, in the same
// transaction.
package page
