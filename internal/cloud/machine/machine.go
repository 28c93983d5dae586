package machine

import (
	"context"
	"io"
	"time"

	"github.com/allodhq/allod/internal/cloud/act"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/token"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/machine"
)

// What this package refuses.
var (
	ErrExists = refusal.NewKind("service-machine-exists", 409,
		"The service has a machine credential already.",
		"Rotate it, or revoke it first. Name the generation that getServiceMachineCredential shows.")
	ErrBearer = refusal.NewKind("service-machine-bearer", 401,
		"The bearer is none that counts now.",
		"Ask an administrator of the organization for a new one: by rotate, or by ensure where it was revoked.")
	ErrToken = refusal.NewKind("service-machine-token", 401,
		"The token has ended, or its service's credential was rotated, revoked or moved since.",
		"Exchange the service's current bearer for a new token.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Zone: machines of services", Kinds: []*refusal.Kind{ErrExists, ErrBearer, ErrToken}}

// Issuer signs tokens, as [token.Keys] does: with a key that is not the one for
// people's tokens, and for at most [machine.MaxTokenAge].
type Issuer interface {
	Machine(id zone.ServiceID, o zone.OrganizationID, generation int64, now time.Time) (zone.Secret, token.Claims, error)
}

// Config is what credentials work with. All of it is needed.
type Config struct {
	Store store.Store
	// Clock is the controller's.
	Clock func() time.Time
	// Rand is where bearers come from.
	Rand   io.Reader
	Tokens Issuer
}

// Credentials answers what is asked about the credentials of services' machines. It
// is safe for concurrent use where Rand and Tokens are.
type Credentials struct{ c Config }

// New makes one.
func New(c Config) *Credentials { return &Credentials{c} }

// Get describes the newest generation of a service, for an administrator of its
// organization.
func (s *Credentials) Get(ctx context.Context, p who.Principal, r machine.Get) (answer machine.GetAnswer, err error) {
	err = s.c.Store.Read(ctx, func(tx store.Tx) error {
		m, err := authority(tx, p, r.Organization, r.Service)
		if err == nil && m.Organization == r.Organization {
			answer.Credential = public(m)
		}
		return err
	})
	return answer, err
}

// Mutate changes the credential of a service, or tells what a repeat came to when
// it was first asked for. It returns [ErrExists] for an ensure where a generation
// counts, and [act.ErrRevision] for a rotate or a revoke of another generation than
// the one that counts.
func (s *Credentials) Mutate(ctx context.Context, p who.Principal, r machine.Mutate) (machine.MutateAnswer, error) {
	input, err := r.Input()
	if err != nil {
		return machine.MutateAnswer{}, err
	}
	detail, err := machine.MutateCodec.Append(nil, r)
	if err != nil {
		return machine.MutateAnswer{}, err
	}
	var answer machine.MutateAnswer
	err = s.c.Store.Write(ctx, func(tx store.Tx) error {
		m, err := authority(tx, p, r.Organization, r.Service)
		if err != nil {
			return err
		}
		now := zone.At(s.c.Clock())
		var bearer zone.Secret
		kept, replayed, err := act.Once(tx, act.Act{
			By: p, Organization: r.Organization, Action: machine.MethodMutate, Subject: "service/" + string(r.Service), Detail: string(detail), At: now,
		}, r.Mutation, input, func() ([]byte, error) {
			var next store.Machine
			if next, bearer, err = s.next(m, r, now); err != nil {
				return nil, err
			}
			if err := tx.PutMachine(next); err != nil {
				return nil, err
			}
			// What is kept is what a repeat is told.
			return machine.MutateAnswerCodec.Append(nil, machine.MutateAnswer{Credential: public(next), Replayed: true})
		})
		if err != nil {
			return err
		}
		if answer, err = machine.MutateAnswerCodec.Read(kept); err != nil {
			return err
		}
		answer.Replayed, answer.Bearer = replayed, bearer
		return nil
	})
	if err != nil {
		return machine.MutateAnswer{}, err
	}
	return answer, nil
}

// next is the credential after a change, and the new bearer where there is one.
func (s *Credentials) next(m store.Machine, r machine.Mutate, now zone.Millis) (store.Machine, zone.Secret, error) {
	// What another organization gave the service when it was theirs counts no more, but
	// its generation is never given twice.
	counts := m.Organization == r.Organization && machine.State(m.State) == machine.Active
	switch {
	case r.Operation == machine.Ensure && counts:
		return store.Machine{}, zone.Secret{}, ErrExists
	case r.Operation != machine.Ensure && (!counts || m.Generation != r.Expected):
		return store.Machine{}, zone.Secret{}, act.ErrRevision
	case r.Operation == machine.Revoke:
		m.Hash, m.State, m.ChangedAt = store.Hash{}, string(machine.Revoked), now
		return m, zone.Secret{}, nil
	}
	bearer, err := machine.NewBearer(s.c.Rand)
	if err != nil {
		return store.Machine{}, zone.Secret{}, err
	}
	return store.Machine{
		Service: r.Service, Organization: r.Organization, Hash: bearer.Sum(),
		Generation: m.Generation + 1, Grant: string(r.Grant), State: string(machine.Active), ChangedAt: now,
	}, bearer, nil
}

// Exchange returns a token for a bearer. It returns [ErrBearer] for one that is
// unknown, or counts no more.
func (s *Credentials) Exchange(ctx context.Context, r machine.Exchange) (machine.ExchangeAnswer, error) {
	var m store.Machine
	err := s.c.Store.Read(ctx, func(tx store.Tx) error {
		found, known, err := tx.MachineByHash(r.Bearer.Sum())
		if err != nil {
			return err
		}
		m = found
		return counts(tx, m, known, ErrBearer)
	})
	if err != nil {
		return machine.ExchangeAnswer{}, err
	}
	jwt, claims, err := s.c.Tokens.Machine(m.Service, m.Organization, m.Generation, s.c.Clock())
	if err != nil {
		return machine.ExchangeAnswer{}, err
	}
	return machine.ExchangeAnswer{JWT: jwt, ExpiresAt: claims.ExpiresAt}, nil
}

// Check returns nil where what a token says still counts: it has not ended, its
// generation is the one that counts, and its service exists in exactly its
// organization. Else it returns [ErrToken], whatever the reason, after the same
// reads. It is asked in the transaction of each request.
func Check(tx store.Services, c token.Claims, now time.Time) error {
	m, found, err := tx.Machine(c.Service)
	if err != nil {
		return err
	}
	if err := counts(tx, m, found, ErrToken); err != nil {
		return err
	}
	if m.Organization != c.Organization || m.Generation != c.Generation || zone.At(now) >= c.ExpiresAt {
		return ErrToken
	}
	return nil
}

// counts returns nil where a credential counts now, and else a refusal. It reads the
// service, whatever the answer.
func counts(tx store.Services, m store.Machine, found bool, no *refusal.Kind) error {
	v, exists, err := tx.Service(m.Service)
	if err != nil {
		return err
	}
	if !found || !exists || machine.State(m.State) != machine.Active || v.Organization != m.Organization {
		return no
	}
	return nil
}

// authority finds the credential of a service, the zero value where there was none
// ever, for somebody who may change it. A service that is absent, foreign or in
// another organization than the caller says is [who.ErrAbsent] after the same reads.
func authority(tx store.Tx, p who.Principal, o zone.OrganizationID, id zone.ServiceID) (store.Machine, error) {
	v, _, err := tx.Service(id)
	if v.Organization != o {
		v.Organization = ""
	}
	if denied := p.Change(tx, v.Organization); err == nil {
		err = denied
	}
	if err != nil {
		return store.Machine{}, err
	}
	m, _, err := tx.Machine(id)
	return m, err
}

func public(m store.Machine) machine.Metadata {
	return machine.Metadata{
		Service: m.Service, Organization: m.Organization, Generation: m.Generation,
		Grant: machine.Grant(m.Grant), State: machine.State(m.State), ChangedAt: m.ChangedAt,
	}
}
