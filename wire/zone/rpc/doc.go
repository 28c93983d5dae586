// Package rpc is the typed requests of the zone contract: one envelope, named
// errors, a table of methods, and the one order in which every server judges a
// request (F03, F04, F06, decisions O06, O07).
//
// A [Method] says who may call it, over which carriers, how large its request and
// its answer may be, whether both are sensitive, and whether it opens a session.
// [Bind] joins it with its messages and its handler. A [Server] takes the bytes of
// a request and gives the bytes of the answer, in this order on every carrier:
//
//  1. the size of the body
//  2. the envelope
//  3. the method, its carrier and its own size; on a socket, an open session
//  4. the offer of the peer, and whether the releases go together
//  5. the exact schema, with every reason
//  6. the credential
//  7. whether that caller may call the method
//  8. the handler, the first one to see or change any state
//
// What is refused at one step has not reached a later one.
//
// Three members belong to the way a request travels and not to its content, and a
// method's codec need not name them: protocol, the offer, over HTTP and in what
// opens a session; bearer, the credential of a node; identity, the signed token of
// a person or a service. The server reads, checks and adds them. Where a codec
// names one itself, the server leaves it to the codec, and still judges by it.
//
// The package refuses to know any method of a party, to decide who a credential
// belongs to, and to keep a session: an [Authenticator] and the carrier do that. It
// reads no clock and opens no socket.
package rpc
