// Package memory keeps a controller's records in memory, for simulations and for
// tests of the packages beside it.
//
// It keeps the contract of package store as engines on files do, except that
// nothing is left once the process has ended. So it is not for serving, and it
// refuses to be made durable: whoever serves uses an engine on a file.
package memory
