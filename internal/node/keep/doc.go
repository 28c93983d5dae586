// Package keep keeps what one program of a node must not forget in one file, which
// is replaced whole or not at all.
//
// A file that cannot be read is never taken for one that is not there, and never
// written over: an identity may be in it.
//
// The package refuses to know what is kept.
package keep
