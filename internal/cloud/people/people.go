package people

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
	"github.com/allodhq/allod/wire/zone/admin"
	"github.com/allodhq/allod/wire/zone/canon"
)

// What this package refuses.
var (
	ErrLink = refusal.NewKind("zone-login-link", 403,
		"The login link is none, was used, or is over.",
		"Ask an administrator of the installation for a new one, or make one on the controller's machine.")
	ErrDisabled = refusal.NewKind("zone-operator-disabled", 409,
		"The operator is disabled and cannot log in.",
		"Enable the operator first.")
	ErrLast = refusal.NewKind("zone-last-administrator", 409,
		"This is the last operator who administers the installation, so they cannot be disabled.",
		"Make another administrator of the installation first.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Zone: people", Kinds: []*refusal.Kind{ErrLink, ErrDisabled, ErrLast}}

// LinkLife is how long a login link works.
const LinkLife = time.Hour

// What the first start makes.
const (
	FirstOrganization zone.OrganizationID = "main"
	FirstOperator     zone.OperatorID     = "admin"
)

// Config is what [New] needs; all of it.
type Config struct {
	Store store.Store
	Keys  *token.Keys
	Clock func() time.Time
	Rand  io.Reader // safe for concurrent use
}

// People is the logic of this package. It is safe for concurrent use.
type People struct{ c Config }

// New makes it.
func New(c Config) *People { return &People{c} }

// controller is who acts where nobody asked.
var controller = who.Principal{Kind: "controller"}

// Bootstrap makes what an empty store needs so that somebody can log in, and
// returns the code of the first login link. With any organization or operator in
// the store it does nothing and returns no code. A first link that was lost is
// replaced by whoever has the data folder, by CreateLoginLink.
func (p *People) Bootstrap(ctx context.Context) (code zone.Secret, err error) {
	now := zone.At(p.c.Clock())
	err = p.c.Store.Write(ctx, func(tx store.Tx) error {
		organizations, err := tx.Organizations("", 1)
		if err != nil {
			return err
		}
		operators, err := tx.Operators("", 1)
		if err != nil || len(organizations)+len(operators) > 0 {
			return err
		}
		o := store.Operator{ID: FirstOperator, Name: "Administrator", Installation: true, Generation: 1, CreatedAt: now}
		if err := tx.PutOrganization(store.Organization{ID: FirstOrganization, Name: "Main", CreatedAt: now}); err != nil {
			return err
		}
		if err := tx.PutOperator(o); err != nil {
			return err
		}
		if err := tx.PutMember(store.Member{Organization: FirstOrganization, Operator: FirstOperator, Role: who.Administrator}); err != nil {
			return err
		}
		if code, _, err = p.link(tx, controller, o, now); err != nil {
			return err
		}
		return act.Record(tx, act.Act{By: controller, Action: "bootstrap", Subject: subject(o.ID), At: now})
	})
	if err != nil {
		return zone.Secret{}, err
	}
	return code, nil
}

// link makes a login link on behalf of somebody.
func (p *People) link(tx store.Tx, by who.Principal, o store.Operator, now zone.Millis) (zone.Secret, store.LoginLink, error) {
	code, err := admin.NewLoginCode(p.c.Rand)
	if err != nil {
		return zone.Secret{}, store.LoginLink{}, refusal.Internal.Because(err)
	}
	l := store.LoginLink{
		Code: code.Sum(), Operator: o.ID, Generation: o.Generation, By: by.Operator, ByGeneration: by.Generation,
		CreatedAt: now, ExpiresAt: now + zone.Millis(LinkLife.Milliseconds()),
	}
	return code, l, tx.PutLoginLink(l)
}

func subject(id zone.OperatorID) string { return "operator/" + string(id) }

// CreateLoginLink makes a link by which an operator logs in. It returns
// who.ErrInstallation, who.ErrAbsent and ErrDisabled. The answer holds a secret, so
// it is not kept, and a repeat makes another link.
func (p *People) CreateLoginLink(ctx context.Context, by who.Principal, r admin.CreateLoginLink) (admin.CreateLoginLinkAnswer, error) {
	if err := by.Install(); err != nil {
		return admin.CreateLoginLinkAnswer{}, err
	}
	now := zone.At(p.c.Clock())
	var answer admin.CreateLoginLinkAnswer
	err := p.c.Store.Write(ctx, func(tx store.Tx) error {
		o, err := operator(tx, r.OperatorID)
		if err != nil {
			return err
		}
		if o.Disabled {
			return ErrDisabled
		}
		code, l, err := p.link(tx, by, o, now)
		if err != nil {
			return err
		}
		answer = admin.CreateLoginLinkAnswer{Code: code, ExpiresAt: l.ExpiresAt}
		return act.Record(tx, act.Act{By: by, Action: admin.MethodCreateLoginLink, Subject: subject(o.ID), At: now})
	})
	if err != nil {
		return admin.CreateLoginLinkAnswer{}, err
	}
	return answer, nil
}

// operator finds an operator, or returns who.ErrAbsent.
func operator(tx store.Tx, id zone.OperatorID) (store.Operator, error) {
	o, found, err := tx.Operator(id)
	if err == nil && !found {
		err = who.ErrAbsent
	}
	return o, err
}

// change is one change that somebody asks for.
type change[R, A any] struct {
	act      act.Act // without detail and time
	request  R
	requests zone.Codec[R]
	input    func() (canon.Sum, error) // the request's
	id       zone.MutationID
	answers  zone.Codec[A]
	replayed func(*A) *bool
	// may finds whether the caller may make it; nil where they were judged without the
	// store.
	may func(store.Tx) error
	// decide makes it.
	decide func(tx store.Tx, now zone.Millis) (A, error)
}

// run makes the change, once. It returns act.ErrMutation, and what may and decide do.
func (c change[R, A]) run(ctx context.Context, p *People) (answer A, err error) {
	var none A
	sum, err := c.input()
	if err != nil {
		return none, err
	}
	detail, err := c.requests.Append(nil, c.request)
	if err != nil {
		return none, err
	}
	c.act.Detail, c.act.At = string(detail), zone.At(p.c.Clock())
	err = p.c.Store.Write(ctx, func(tx store.Tx) error {
		if c.may != nil {
			if err := c.may(tx); err != nil {
				return err
			}
		}
		kept, repeat, err := act.Once(tx, c.act, c.id, sum, func() ([]byte, error) {
			decided, err := c.decide(tx, c.act.At)
			if err != nil {
				return nil, err
			}
			return c.answers.Append(nil, decided)
		})
		if err != nil {
			return err
		}
		answer, err = c.answers.Read(kept)
		*c.replayed(&answer) = repeat
		return err
	})
	if err != nil {
		return none, err
	}
	return answer, nil
}
