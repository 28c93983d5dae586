package rpc

import (
	"context"
	"time"

	"github.com/allodhq/allod/wire/zone"
)

// Principal is who calls, as an [Authenticator] says. Values compare with ==.
type Principal struct {
	// Caller is what the principal is.
	Caller Caller
	// Subject is its identifier: of an operator, a node, a service. It is empty for
	// Anyone and may be for those who are known by their connection.
	Subject string
	// Organization is the one it acts in, or empty.
	Organization zone.OrganizationID
	// Generation and Epoch are those of its credential, for a handler that compares
	// them once more where it writes; 0 where there are none.
	Generation, Epoch int64
	// Ends is when its credential is over by itself; 0 where that is never, or where
	// only the credential's own record says it.
	Ends zone.Millis
}

// Same reports whether two principals are one person, program or service, whatever
// its role and the generation of its credential.
func (p Principal) Same(q Principal) bool {
	return p.kind() == q.kind() && p.Subject == q.Subject && p.Organization == q.Organization
}

// kind is the caller without its role.
func (p Principal) kind() Caller {
	if p.Caller == Administrator {
		return Operator
	}
	return p.Caller
}

// Session is the tag of one socket: who is at its other end, and until when. The
// server sets it, and nothing that a caller sends changes it (F36).
type Session struct {
	Principal Principal
	// Ends is when the session ends by itself; the zero time means with the socket.
	Ends time.Time
}

// over reports whether the session has ended by then.
func (s *Session) over(now time.Time) bool { return !s.Ends.IsZero() && !now.Before(s.Ends) }

// Credential is all that says who calls.
type Credential struct {
	Method  *Method
	Carrier Carrier
	// Bearer is that of a node, Token the signed token of a person or a service.
	Bearer, Token zone.Secret
	// Session is the open session of the socket, if the request names no credential
	// of its own.
	Session *Session
	// Peer is the address of the other end, for limits and logs. It proves nothing.
	Peer string
	Now  time.Time
}

// Authenticator says who a credential belongs to. It is asked once for each
// request that reaches it, also for one on an open session: then it says whether
// the session's principal is still what it was, so that a revocation counts from
// the next request. Its error is a refusal, the same one for a credential that is
// unknown and one that belongs to somebody else. It is never asked about methods
// of Anyone.
type Authenticator interface {
	// Authenticate says who the credential belongs to, or refuses it.
	Authenticate(ctx context.Context, c Credential) (Principal, error)
}
