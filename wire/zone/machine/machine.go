package machine

import (
	"encoding/base64"
	"fmt"
	"io"
	"time"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/internal/codec"
	"github.com/allodhq/allod/wire/zone/internal/member"
)

// The methods about the credentials of services' machines.
const (
	MethodGet      = "getServiceMachineCredential"
	MethodMutate   = "mutateServiceMachineCredential"
	MethodExchange = "exchangeServiceMachineCredential"
)

// MaxTokenAge is how long a token counts at most (decision O25).
const MaxTokenAge = time.Hour

// Operation is a change of a service's machine credential.
type Operation string

// The operations. There are no others.
const (
	// Ensure makes a generation where none counts: the first one, or the next after one
	// that was revoked.
	Ensure Operation = "ensure"
	// Rotate makes the next generation and ends the one before.
	Rotate Operation = "rotate"
	// Revoke ends the generation and makes none.
	Revoke Operation = "revoke"
)

// Operations are all operations.
func Operations() []Operation { return []Operation{Ensure, Rotate, Revoke} }

// Grant is what a machine may use (IServiceMachineGrant).
type Grant string

// PlatformSession lets a machine open a session of the platform. It is the only
// grant, and has nothing to do with deployments, memberships or infrastructure.
const PlatformSession Grant = "platform:session"

// State is whether a generation counts.
type State string

// The states.
const (
	Active  State = "active"
	Revoked State = "revoked"
)

// Metadata describes a credential without anything that proves it.
type Metadata struct {
	Service      zone.ServiceID
	Organization zone.OrganizationID
	Generation   int64 // from 1, one more with each bearer
	Grant        Grant
	State        State
	ChangedAt    zone.Millis
}

// Get asks for the credential of a service.
type Get struct {
	Organization zone.OrganizationID
	Service      zone.ServiceID
}

// GetAnswer describes the newest generation, or says that there was none ever.
type GetAnswer struct {
	Credential Metadata // the zero value for none; null in a message
}

// Mutate asks to change the credential of a service.
type Mutate struct {
	Operation    Operation
	Organization zone.OrganizationID
	Service      zone.ServiceID
	// Expected is the generation that the caller knows, and 0 for Ensure alone, which
	// is null in a message.
	Expected int64
	Grant    Grant
	Mutation zone.MutationID
}

// MutateAnswer is what a change came to. For a repeat it tells what happened then,
// which may have ended since, and never holds a bearer.
type MutateAnswer struct {
	Credential Metadata
	// Replayed is whether this answers a repeat.
	Replayed bool
	// Bearer is the new bearer, in the one answer that issues it; null else.
	Bearer zone.Secret
}

// Exchange asks for a token. The bearer is its proof.
type Exchange struct{ Bearer zone.Secret }

// ExchangeAnswer is a token, and when it ends by itself.
type ExchangeAnswer struct {
	JWT       zone.Secret
	ExpiresAt zone.Millis
}

// MetadataCodec is the object of a credential's description.
var MetadataCodec zone.Codec[Metadata] = codec.Of(func(o *exact.Object, m *Metadata) {
	member.ID(o, "serviceId", &m.Service)
	member.ID(o, "organizationId", &m.Organization)
	exact.Whole(o, "generation", &m.Generation, 1, 0)
	grant(o, &m.Grant)
	exact.Word(o, "state", &m.State, []State{Active, Revoked})
	member.Millis(o, "changedAt", &m.ChangedAt)
})

// GetCodec is the request of getServiceMachineCredential.
var GetCodec zone.Codec[Get] = codec.Of(func(o *exact.Object, g *Get) {
	member.ID(o, "organizationId", &g.Organization)
	member.ID(o, "serviceId", &g.Service)
})

// GetAnswerCodec is the answer of getServiceMachineCredential.
var GetAnswerCodec zone.Codec[GetAnswer] = codec.Of(func(o *exact.Object, a *GetAnswer) {
	member.OrNull(o, "credential", &a.Credential, func(o *exact.Object, name string, m *Metadata) {
		exact.Sub(o, name, m, codec.Shape(MetadataCodec))
	})
})

// MutateCodec is the request of mutateServiceMachineCredential.
var MutateCodec zone.Codec[Mutate] = codec.Of(func(o *exact.Object, m *Mutate) {
	exact.Word(o, "operation", &m.Operation, Operations())
	member.ID(o, "organizationId", &m.Organization)
	member.ID(o, "serviceId", &m.Service)
	member.OrNull(o, "expectedGeneration", &m.Expected, func(o *exact.Object, name string, n *int64) { exact.Whole(o, name, n, 1, 0) })
	if !o.Failed() && (m.Operation == Ensure) != (m.Expected == 0) {
		o.Fail(exact.ErrRange, "an expectedGeneration of null for ensure, and of the current generation else")
	}
	grant(o, &m.Grant)
	member.ID(o, "mutationId", &m.Mutation)
})

// MutateAnswerCodec is the answer of mutateServiceMachineCredential.
var MutateAnswerCodec zone.Codec[MutateAnswer] = codec.Of(func(o *exact.Object, a *MutateAnswer) {
	exact.Sub(o, "credential", &a.Credential, codec.Shape(MetadataCodec))
	exact.Bool(o, "replayed", &a.Replayed)
	null := exact.Opt[zone.Secret]{Set: true, Null: a.Bearer.IsZero(), V: a.Bearer}
	exact.Nullable(o, "bearer", &null, bearer)
	a.Bearer = null.V
	if !o.Failed() && !a.Bearer.IsZero() && (a.Replayed || a.Credential.State != Active) {
		o.Fail(exact.ErrRange, "no bearer in a repeat, nor for what is revoked")
	}
})

// ExchangeCodec is the request of exchangeServiceMachineCredential.
var ExchangeCodec zone.Codec[Exchange] = codec.Of(func(o *exact.Object, e *Exchange) {
	bearer(o, "bearer", &e.Bearer)
})

// ExchangeAnswerCodec is the answer of exchangeServiceMachineCredential.
var ExchangeAnswerCodec zone.Codec[ExchangeAnswer] = codec.Of(func(o *exact.Object, a *ExchangeAnswer) {
	member.JWT(o, "jwt", &a.JWT)
	member.Millis(o, "expiresAt", &a.ExpiresAt)
})

// Input is the digest of the method and the whole request, for its mutation id.
func (m Mutate) Input() (canon.Sum, error) { return member.Input(MethodMutate, MutateCodec, m) }

// NewBearer makes a bearer of 32 bytes of rand (decision O22). It returns rand's
// error.
func NewBearer(rand io.Reader) (zone.Secret, error) {
	b := make([]byte, bearerBytes)
	if _, err := io.ReadFull(rand, b); err != nil {
		return zone.Secret{}, fmt.Errorf("machine: no randomness: %w", err)
	}
	return zone.Conceal(base64.RawURLEncoding.EncodeToString(b)), nil
}

const bearerBytes = 32

func bearer(o *exact.Object, name string, p *zone.Secret) {
	member.Secret(o, name, p, base64.RawURLEncoding.EncodedLen(bearerBytes), "a bearer of 43 base64url characters", func(s string) bool {
		b, err := base64.RawURLEncoding.Strict().DecodeString(s)
		// Strict takes line breaks, and then there are fewer bytes.
		return err == nil && len(b) == bearerBytes
	})
}

func grant(o *exact.Object, p *Grant) { exact.Word(o, "grant", p, []Grant{PlatformSession}) }
