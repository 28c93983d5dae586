// Package cli is the allod command: flags in, one call out, one file per
// command. Streams and the environment are passed in, so that tests run it as
// users do.
//
// It refuses to decide anything: every rule lives in the package that is
// called. Errors are printed in one place, as package refusal renders them.
package cli
