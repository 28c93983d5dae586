// Package keyfile keeps private keys in files: created once, readable by their
// owner only, and never written over.
//
// A key is an identity, so the package refuses to make a new one where a file
// already is, damaged or not, and refuses to read a file that others can read.
// On systems where it cannot keep others out (see [ErrPlatform]) it refuses
// both.
//
// A key beside a database protects nothing from a stolen disk; the path is the
// caller's choice.
package keyfile
