package admin

import (
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/internal/codec"
	"github.com/allodhq/allod/wire/zone/internal/member"
)

// ExchangeLoginLink uses a login link up. Anybody may send it; the code is the
// proof. Both messages are sensitive (F06).
type ExchangeLoginLink struct{ Code zone.Secret }

// ExchangeLoginLinkAnswer holds the operator's token.
type ExchangeLoginLinkAnswer struct {
	Identity   zone.Identity
	OperatorID zone.OperatorID
	ExpiresAt  zone.Millis // of the token
}

// GetIdentity asks who the caller is to the controller.
type GetIdentity struct{}

// Membership is an operator's place in an organization.
type Membership struct {
	OrganizationID zone.OrganizationID
	Role           Role
}

// GetIdentityAnswer says who the caller is.
type GetIdentityAnswer struct {
	Kind Kind
	// OperatorID is a person's, "" for others and null in the message.
	OperatorID zone.OperatorID
	// ServiceID and OrganizationID are a machine's, "" for others and null in the
	// message.
	ServiceID      zone.ServiceID
	OrganizationID zone.OrganizationID
	// Installation is whether the caller administers the whole installation.
	Installation bool
	Memberships  []Membership // of a person, in the order of the organizations
	// ExpiresAt is when the token ends, 0 where there is none and null in the message.
	ExpiresAt zone.Millis
}

// RegisterCloudlyClientSession opens a client's session on a socket (F36). It goes
// over a socket alone, where its token stands in the message itself: what follows
// on the socket carries none. It is sensitive (F06).
type RegisterCloudlyClientSession struct{ JWT zone.Secret }

// RegisterCloudlyClientSessionAnswer says when the session ends by itself.
type RegisterCloudlyClientSessionAnswer struct{ ExpiresAt zone.Millis }

// CreateLoginLink asks for a link by which an operator logs in, once.
type CreateLoginLink struct{ OperatorID zone.OperatorID }

// CreateLoginLinkAnswer holds the code of a link. It is sensitive (F06), and so it
// is never answered again: whoever lost it asks for another.
type CreateLoginLinkAnswer struct {
	Code      zone.Secret
	ExpiresAt zone.Millis
}

// The codecs of these messages.
var (
	ExchangeLoginLinkCodec zone.Codec[ExchangeLoginLink] = codec.Of(func(o *exact.Object, v *ExchangeLoginLink) {
		code(o, "code", &v.Code)
	})
	ExchangeLoginLinkAnswerCodec zone.Codec[ExchangeLoginLinkAnswer] = codec.Of(func(o *exact.Object, v *ExchangeLoginLinkAnswer) {
		member.Identity(o, &v.Identity)
		member.ID(o, "operatorId", &v.OperatorID)
		member.Millis(o, "expiresAt", &v.ExpiresAt)
	})
	GetIdentityCodec       zone.Codec[GetIdentity]       = codec.Of(func(*exact.Object, *GetIdentity) {})
	GetIdentityAnswerCodec zone.Codec[GetIdentityAnswer] = codec.Of(func(o *exact.Object, v *GetIdentityAnswer) {
		exact.Word(o, "kind", &v.Kind, kinds)
		member.OrNull(o, "operatorId", &v.OperatorID, member.ID[zone.OperatorID])
		member.OrNull(o, "serviceId", &v.ServiceID, member.ID[zone.ServiceID])
		member.OrNull(o, "organizationId", &v.OrganizationID, member.ID[zone.OrganizationID])
		exact.Bool(o, "installation", &v.Installation)
		exact.List(o, "memberships", &v.Memberships, 0, MaxMemberships, exact.Shape[Membership]{Fields: func(o *exact.Object, m *Membership) {
			member.ID(o, "organizationId", &m.OrganizationID)
			role(o, "role", &m.Role)
		}})
		member.OrNull(o, "expiresAt", &v.ExpiresAt, member.Millis)
	})
	RegisterCloudlyClientSessionCodec zone.Codec[RegisterCloudlyClientSession] = codec.Of(func(o *exact.Object, v *RegisterCloudlyClientSession) {
		member.JWT(o, "jwt", &v.JWT)
	})
	RegisterCloudlyClientSessionAnswerCodec zone.Codec[RegisterCloudlyClientSessionAnswer] = codec.Of(func(o *exact.Object, v *RegisterCloudlyClientSessionAnswer) {
		member.Millis(o, "expiresAt", &v.ExpiresAt)
	})
	CreateLoginLinkCodec zone.Codec[CreateLoginLink] = codec.Of(func(o *exact.Object, v *CreateLoginLink) {
		member.ID(o, "operatorId", &v.OperatorID)
	})
	CreateLoginLinkAnswerCodec zone.Codec[CreateLoginLinkAnswer] = codec.Of(func(o *exact.Object, v *CreateLoginLinkAnswer) {
		code(o, "code", &v.Code)
		member.Millis(o, "expiresAt", &v.ExpiresAt)
	})
)
