// Package ca is a controller's own certificate authority, and the side of a
// client that trusts it by the digest of its key.
//
// [Open] makes the authority at the first start and loads it later. Its key and
// its certificate are one file, so that a crash leaves both or none. A [Server]
// serves certificates of 30 days for the controller's names and addresses and
// renews them in memory. A [Trust] takes one server at one host: by the [Pin]
// that a join line carries, by the CA certificate that a node has kept, or by the
// machine's own roots where the name has a public certificate. A joining node
// whose clock is wrong learns by how much, from a server that has proved its key
// (see [Trust.ServerTime]).
//
// The package refuses to replace a key file, damaged or not: a new key would cut
// off every node. It refuses to issue anything but server certificates, and to
// set a clock: what a server says of its time is a hint.
package ca
