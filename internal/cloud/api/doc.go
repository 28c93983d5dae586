// Package api is what a controller answers: every built method of the contract,
// bound to the package that decides it, and the route of Spark's reports (F02, F03,
// F06, F08, F09, F11, F14, F36, F40, F68, F77).
//
// [New] joins four things. The bindings, one for each method. The authenticator:
// it finds the owner of a node's bearer in the store, reads a person's or a
// machine's token and asks the store whether its owner still is who they were, takes
// whoever reaches the admin socket for the user who runs the controller, and asks
// about the owner of an open socket again at each request. The carrier, which
// serves all of that by HTTP and WebSocket. And [API.Heartbeat], the one route that
// is no typed request, with its own order:
//
//  1. the size of the body
//  2. the offer of the peer, and nothing else of it
//  3. whether the releases go together; if not, status 409 and the refusal
//  4. the exact schema, with every reason
//  5. the credential and the state, in one transaction
//
// Who loses their rights loses their open sockets too: whoever disables an
// operator, ends their sessions, or changes the credential of a service's machine
// drops them, their own with the others, before the answer is written. The answer is
// kept under the mutation id.
//
// The package refuses to decide anything but who calls, and it has no route with a
// version in its path.
package api
