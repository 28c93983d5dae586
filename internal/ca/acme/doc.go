// Package acme gets public certificates for a controller's public names by ACME
// (RFC 8555), answers the authority's question on the controller's own listener
// (tls-alpn-01, RFC 8737), and renews them.
//
// The names that it was given are served with public certificates only. While one
// has none, its handshakes are refused, and the log says which and why; every other
// name, and every address, is served by the controller's own authority all the
// while.
//
// The package refuses to accept an authority's terms that nobody has agreed to, to
// get a certificate for a name that it was not given, and to open a second port.
package acme
