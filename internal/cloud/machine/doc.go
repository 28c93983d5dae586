// Package machine is the controller's authority over programs that act for a
// service (family F14, decision O25).
//
// Each service has at most one generation that counts, in the organization that
// owns the service and in no other:
//
//	none, revoked  --ensure-->  active, next generation
//	active         --rotate-->  active, next generation
//	active         --revoke-->  revoked, same generation
//
// Rotate and revoke name the generation that they mean. The store has the hash of
// the newest bearer and nothing that a bearer could be made of, so whoever loses the
// answer that holds one rotates: a repeat tells what happened then, without a bearer,
// and brings nothing back.
//
// A bearer is exchanged for a token. [Check] runs in the transaction of every request
// that comes with one, so what was rotated, revoked or moved to another organization
// ends with the next request, however long its token would last.
//
// A service that comes back to an organization finds the authority that it left
// there, unless another one was made meanwhile. Whoever moves services has to revoke
// it; nothing moves them yet.
//
// The package refuses to sign tokens, to read them, and to know carriers.
package machine
