// Package v0 reads and writes the messages of protocol version "0" into the
// values of package ai.
//
// Every object refuses unknown members, except where the contract drops them:
// chat messages, leases, the pairs in activeLeases and in a release, the daemon
// of a pair request, and the wrapper that holds a payload beside its kind. No
// member may be added to this version.
//
// Where this package is stricter than the recorded behaviour, the file
// wire/ai/testdata/stricter.json lists the case and the reason.
package v0
