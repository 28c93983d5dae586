package people

import (
	"context"
	"crypto/subtle"
	"errors"

	"github.com/allodhq/allod/internal/cloud/act"
	"github.com/allodhq/allod/internal/cloud/machine"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/token"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/admin"
)

// Session is somebody who came in by a token, and until when. The zero value is
// nobody.
type Session struct {
	Principal who.Principal
	// Ends is when the token is over; 0 for a session without one.
	Ends zone.Millis

	// Generation is the owner's when the token was made. Once it is raised, the
	// session is over.
	Generation int64
}

// LocalSession is that of whoever reaches the admin socket.
func LocalSession() Session { return Session{Principal: who.Principal{Kind: who.Local}} }

// Authenticate finds out who sends an identity. It returns token's refusals for
// what is no token of this controller or is over, and who.ErrEnded where its owner was
// disabled or removed, or their sessions were ended, and where a machine's
// credential or its service's organization has changed. It reads the store only for
// a token that was made here.
func (p *People) Authenticate(ctx context.Context, i zone.Identity) (Session, error) {
	claims, err := p.c.Keys.Read(i.JWT, p.c.Clock())
	if err != nil {
		return Session{}, err
	}
	s := Session{
		Principal: who.Principal{Kind: who.Operator, Operator: claims.Operator},
		Ends:      claims.ExpiresAt, Generation: claims.Generation,
	}
	if claims.Operator == "" {
		s.Principal = who.Principal{Kind: who.Machine, Service: claims.Service, Organization: claims.Organization}
	}
	return p.welcome(ctx, s)
}

// Again says whether a session still is what it was, for sockets that were opened
// by it, and returns it with what its owner may do now. It returns
// token.ErrExpired and who.ErrEnded.
func (p *People) Again(ctx context.Context, s Session) (Session, error) {
	if s.Ends != 0 && !p.c.Clock().Before(s.Ends.Time()) {
		return Session{}, token.ErrExpired
	}
	if s.Principal.Kind == who.Local {
		return s, nil
	}
	return p.welcome(ctx, s)
}

// welcome asks the store about the owner of a session.
func (p *People) welcome(ctx context.Context, s Session) (Session, error) {
	err := p.c.Store.Read(ctx, func(tx store.Tx) error {
		if s.Principal.Kind == who.Machine {
			return machine.Check(tx, token.Claims{
				Service: s.Principal.Service, Organization: s.Principal.Organization, Generation: s.Generation, ExpiresAt: s.Ends,
			}, p.c.Clock())
		}
		o, found, err := tx.Operator(s.Principal.Operator)
		if err == nil && (!found || o.Disabled || o.Generation != s.Generation) {
			err = who.ErrEnded
		}
		s.Principal.Installation, s.Principal.Generation = o.Installation, o.Generation
		return err
	})
	if err != nil {
		return Session{}, err
	}
	return s, nil
}

// RegisterSession opens a client's session on a socket (F36): the socket's tag is
// the session that it returns. It returns what Authenticate does.
func (p *People) RegisterSession(ctx context.Context, r admin.RegisterCloudlyClientSession) (Session, admin.RegisterCloudlyClientSessionAnswer, error) {
	s, err := p.Authenticate(ctx, zone.Identity{JWT: r.JWT})
	if err != nil {
		return Session{}, admin.RegisterCloudlyClientSessionAnswer{}, err
	}
	return s, admin.RegisterCloudlyClientSessionAnswer{ExpiresAt: s.Ends}, nil
}

// ExchangeLoginLink uses a login link up, in the transaction that makes its answer.
// It returns ErrLink for a link that is none, was used, is over, or was made before
// its operator was disabled or their sessions were ended, or those of whoever made it:
// who was put out shall not come back as somebody else.
func (p *People) ExchangeLoginLink(ctx context.Context, r admin.ExchangeLoginLink) (admin.ExchangeLoginLinkAnswer, error) {
	clock := p.c.Clock()
	now := zone.At(clock)
	find := func(tx store.Tx) (store.LoginLink, store.Operator, error) {
		hash := store.Hash(r.Code.Sum())
		l, found, err := tx.LoginLink(hash)
		if err != nil {
			return l, store.Operator{}, err
		}
		o, exists, err := tx.Operator(l.Operator)
		if err == nil && (!found || subtle.ConstantTimeCompare(l.Code[:], hash[:]) != 1 || l.UsedAt != 0 || now >= l.ExpiresAt ||
			!exists || o.Disabled || o.Generation != l.Generation) {
			err = ErrLink
		}
		maker := who.Principal{Kind: who.Operator, Operator: l.By, Installation: true, Generation: l.ByGeneration}
		if ended := maker.Stands(tx); err == nil && ended != nil {
			if err = ended; errors.Is(err, who.ErrEnded) {
				err = ErrLink
			}
		}
		return l, o, err
	}
	// Whoever guesses shall not keep others from writing.
	if err := p.c.Store.Read(ctx, func(tx store.Tx) error { _, _, err := find(tx); return err }); err != nil {
		return admin.ExchangeLoginLinkAnswer{}, err
	}
	var answer admin.ExchangeLoginLinkAnswer
	err := p.c.Store.Write(ctx, func(tx store.Tx) error {
		l, o, err := find(tx)
		if err != nil {
			return err
		}
		l.UsedAt = max(now, 1) // 0 says that it was not used
		if err := tx.PutLoginLink(l); err != nil {
			return err
		}
		jwt, claims, err := p.c.Keys.Operator(o.ID, o.Generation, clock)
		if err != nil {
			return err
		}
		answer = admin.ExchangeLoginLinkAnswer{Identity: zone.Identity{JWT: jwt}, OperatorID: o.ID, ExpiresAt: claims.ExpiresAt}
		return act.Record(tx, act.Act{
			By: who.Principal{Kind: who.Operator, Operator: o.ID}, Action: admin.MethodExchangeLoginLink, Subject: subject(o.ID), At: now,
		})
	})
	if err != nil {
		return admin.ExchangeLoginLinkAnswer{}, err
	}
	return answer, nil
}

// GetIdentity says who a session's owner is.
func (p *People) GetIdentity(ctx context.Context, s Session, _ admin.GetIdentity) (admin.GetIdentityAnswer, error) {
	answer := admin.GetIdentityAnswer{
		Kind: admin.Kind(s.Principal.Kind), OperatorID: s.Principal.Operator,
		ServiceID: s.Principal.Service, OrganizationID: s.Principal.Organization,
		Installation: s.Principal.Everything(), Memberships: []admin.Membership{}, ExpiresAt: s.Ends,
	}
	err := p.c.Store.Read(ctx, func(tx store.Tx) error {
		memberships, err := tx.Memberships(s.Principal.Operator)
		for _, m := range memberships {
			answer.Memberships = append(answer.Memberships, admin.Membership{OrganizationID: m.Organization, Role: admin.Role(m.Role)})
		}
		return err
	})
	if err != nil {
		return admin.GetIdentityAnswer{}, err
	}
	return answer, nil
}
