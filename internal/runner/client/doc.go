// Package client speaks the daemon plane of the AI contract to one server: it
// signs, sends and reads the six requests.
//
// A server is reached by TLS, or in plain HTTP on this machine and its private
// network only; the address is judged where the connection is made, so a name
// that resolves elsewhere does not help. Redirects are refused, and answers are
// read within the bounds of their message.
//
// Errors are [*ai.Error] where the server refused by a name of the contract, and
// this package's refusals otherwise. [Retry] says whether and when the same
// request is worth sending again.
//
// The package refuses to retry, to keep state, and to read clocks of its own.
package client
