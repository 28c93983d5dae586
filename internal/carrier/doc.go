// Package carrier carries the typed requests of package wire/zone/rpc over HTTP
// and over WebSockets, as a server and as a client.
//
// A [Server] has one handler for one path: POST with one request and its answer,
// and WebSockets with requests in both directions. What a request is worth is
// judged by the rpc.Server behind it, in its one order; the carrier bounds sizes,
// times and numbers, keeps the tag of each socket, and drops it at its end or when
// it is told to.
//
// A refusal by the rpc.Server is an ordinary answer with status 200, as the
// published clients of the protocol need it to see the name. Other statuses are for
// what happens before there is a request.
//
// The package refuses to send anything compressed or binary, to follow redirects
// (a credential would go along), to wait without an end, and to log anything of a
// body. It knows no method.
package carrier
