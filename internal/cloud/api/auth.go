package api

import (
	"context"

	"github.com/allodhq/allod/internal/cloud/nodes"
	"github.com/allodhq/allod/internal/cloud/people"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/rpc"
)

// authenticator says who calls.
type authenticator struct {
	people *people.People
	nodes  *nodes.Nodes
}

// Authenticate is as in [rpc.Authenticator]. It returns the refusals of packages
// people, token and wire/zone/enroll.
func (a authenticator) Authenticate(ctx context.Context, c rpc.Credential) (rpc.Principal, error) {
	switch {
	case c.Carrier == rpc.Admin:
		return local, nil
	case c.Session != nil:
		s, err := a.people.Again(ctx, session(c.Session.Principal))
		return principal(s), err
	case !c.Bearer.IsZero():
		return a.node(ctx, c.Bearer)
	}
	s, err := a.people.Authenticate(ctx, zone.Identity{JWT: c.Token})
	return principal(s), err
}

// node is the program of a node that a bearer belongs to.
func (a authenticator) node(ctx context.Context, text zone.Secret) (rpc.Principal, error) {
	b, err := enroll.ParseBearer(text.Reveal())
	if err != nil {
		return rpc.Principal{}, enroll.ErrCredential
	}
	id, m, err := a.nodes.Credential(ctx, b)
	if err != nil {
		return rpc.Principal{}, err
	}
	p := rpc.Principal{Caller: rpc.NodeSpark, Subject: string(id), Generation: int64(m.Generation), Epoch: int64(m.SessionEpoch)}
	if m.Purpose == enroll.Pallet {
		p.Caller = rpc.NodePallet
	}
	return p, nil
}

// local is whoever reaches the admin socket. It has no subject, which everybody
// else has.
var local = rpc.Principal{Caller: rpc.Administrator}

// principal is the owner of a session as the carrier knows them.
func principal(s people.Session) rpc.Principal {
	p := rpc.Principal{Generation: s.Generation, Ends: s.Ends, Organization: s.Principal.Organization}
	switch s.Principal.Kind {
	case who.Machine:
		p.Caller, p.Subject = rpc.ServiceMachine, string(s.Principal.Service)
	case who.Operator:
		p.Caller, p.Subject = rpc.Operator, string(s.Principal.Operator)
		if s.Principal.Installation {
			p.Caller = rpc.Administrator
		}
	}
	return p
}

// owner is who a principal is to the packages that decide. The zero value is
// nobody.
func owner(p rpc.Principal) who.Principal {
	switch {
	case p == local:
		return who.Principal{Kind: who.Local}
	case p.Subject == "":
		return who.Principal{}
	}
	switch p.Caller {
	case rpc.Administrator, rpc.Operator:
		return who.Principal{Kind: who.Operator, Operator: zone.OperatorID(p.Subject), Installation: p.Caller == rpc.Administrator, Generation: p.Generation}
	case rpc.ServiceMachine:
		return who.Principal{Kind: who.Machine, Service: zone.ServiceID(p.Subject), Organization: p.Organization}
	}
	return who.Principal{} // programs of nodes prove themselves once more where it counts
}

// session is the session of a principal.
func session(p rpc.Principal) people.Session {
	return people.Session{Principal: owner(p), Generation: p.Generation, Ends: p.Ends}
}
