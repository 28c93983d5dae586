package admin

import (
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/internal/codec"
	"github.com/allodhq/allod/wire/zone/internal/member"
)

// The methods.
const (
	MethodCreateOrganization = "createOrganization"
	MethodGetOrganizations   = "getOrganizations"
	MethodCreateOperator     = "createOperator"
	MethodGetOperators       = "getOperators"
	MethodSetMember          = "setMember"
	MethodDisableOperator    = "disableOperator"
	MethodEndSessions        = "endSessions"
	MethodGetAudit           = "getAudit"
)

// Organization owns clusters and services.
type Organization struct {
	OrganizationID zone.OrganizationID
	Name           string // for people, 1 to MaxName bytes
	CreatedAt      zone.Millis
	// Role is the caller's in it, "" for none and null in the message.
	Role Role
}

// CreateOrganization makes an organization without members.
type CreateOrganization struct {
	OrganizationID zone.OrganizationID
	Name           string // for people, 1 to MaxName bytes
	MutationID     zone.MutationID
}

// CreateOrganizationAnswer is what was made.
type CreateOrganizationAnswer struct {
	Organization Organization
	Replayed     bool // whether it was done before, by the same request (F07)
}

// GetOrganizations lists the organizations that the caller may see.
type GetOrganizations struct{ Cursor zone.Cursor }

// GetOrganizationsAnswer is one page of them, in the order of their ids.
type GetOrganizationsAnswer struct {
	Organizations []Organization
	NextCursor    zone.Cursor
}

// Operator is a person who may ask the controller for something.
type Operator struct {
	OperatorID   zone.OperatorID
	Name         string // for people, 1 to MaxName bytes
	Installation bool   // administers the whole installation
	Disabled     bool   // may not come in
	CreatedAt    zone.Millis
	// Role is the operator's in the organization that was asked for, "" for none and
	// null in the message.
	Role Role
}

// CreateOperator makes an operator, who is in no organization and has no token.
type CreateOperator struct {
	OperatorID   zone.OperatorID
	Name         string // for people, 1 to MaxName bytes
	Installation bool   // whether they administer the whole installation
	MutationID   zone.MutationID
}

// CreateOperatorAnswer is who was made.
type CreateOperatorAnswer struct {
	Operator Operator
	Replayed bool // whether it was done before, by the same request (F07)
}

// GetOperators lists the operators of one organization, or all where OrganizationID
// is "", which is null in the message.
type GetOperators struct {
	OrganizationID zone.OrganizationID
	Cursor         zone.Cursor
}

// GetOperatorsAnswer is one page of them, in the order of their ids.
type GetOperatorsAnswer struct {
	Operators  []Operator
	NextCursor zone.Cursor
}

// SetMember gives an operator a role in an organization, or takes it away where
// Role is "", which is null in the message.
type SetMember struct {
	OrganizationID zone.OrganizationID
	OperatorID     zone.OperatorID
	Role           Role
	MutationID     zone.MutationID
}

// SetMemberAnswer is the operator's place since then.
type SetMemberAnswer struct {
	OrganizationID zone.OrganizationID
	OperatorID     zone.OperatorID
	Role           Role
	Replayed       bool // whether it was done before, by the same request (F07)
}

// DisableOperator ends everything that an operator may do, from their next request
// on, or lets them in again by a new login link where Disabled is false.
type DisableOperator struct {
	OperatorID zone.OperatorID
	Disabled   bool // false lets them in again
	MutationID zone.MutationID
}

// DisableOperatorAnswer is the operator since then.
type DisableOperatorAnswer struct {
	Operator Operator
	Replayed bool // whether it was done before, by the same request (F07)
}

// EndSessions ends all tokens and login links of an operator.
type EndSessions struct {
	OperatorID zone.OperatorID
	MutationID zone.MutationID
}

// EndSessionsAnswer says that it was done.
type EndSessionsAnswer struct {
	OperatorID zone.OperatorID
	Replayed   bool // whether it was done before, by the same request (F07)
}

// GetAudit lists acts in one organization, or everywhere where OrganizationID is
// "", which is null in the message. The newest comes first.
type GetAudit struct {
	OrganizationID zone.OrganizationID
	Cursor         zone.Cursor
	Limit          int64 // 1 to zone.MaxPage
}

// Entry is one act of an operator, or of the controller itself.
type Entry struct {
	Sequence int64 // from 1
	At       zone.Millis
	Actor    string // an operator's id, "local", "controller", or as in service/a
	// OrganizationID is "" for acts of the whole installation, and null in the message.
	OrganizationID zone.OrganizationID
	Action         string // the method, or what the controller did by itself
	Subject        string // kind and id, as in node/a7
	Detail         string // JSON without secrets, or ""
}

// GetAuditAnswer is one page of the log. It can be shorter than its limit and yet
// have a next page, where details are long.
type GetAuditAnswer struct {
	Entries    []Entry
	NextCursor zone.Cursor
}

func organization(o *exact.Object, v *Organization) {
	member.ID(o, "organizationId", &v.OrganizationID)
	name(o, &v.Name)
	member.Millis(o, "createdAt", &v.CreatedAt)
	member.OrNull(o, "role", &v.Role, role)
}

func operator(o *exact.Object, v *Operator) {
	member.ID(o, "operatorId", &v.OperatorID)
	name(o, &v.Name)
	exact.Bool(o, "installation", &v.Installation)
	exact.Bool(o, "disabled", &v.Disabled)
	member.Millis(o, "createdAt", &v.CreatedAt)
	member.OrNull(o, "role", &v.Role, role)
}

func entry(o *exact.Object, v *Entry) {
	exact.Whole(o, "sequence", &v.Sequence, 1, 0)
	member.Millis(o, "at", &v.At)
	member.Text(o, "actor", &v.Actor)
	member.OrNull(o, "organizationId", &v.OrganizationID, member.ID[zone.OrganizationID])
	member.Text(o, "action", &v.Action)
	member.MayBeEmpty(o, "subject", &v.Subject)
	exact.Spelled(o, "detail", &v.Detail, MaxDetail, "a text of at most 65536 bytes", func(string) bool { return true })
}

// The codecs of these messages.
var (
	CreateOrganizationCodec zone.Codec[CreateOrganization] = codec.Of(func(o *exact.Object, v *CreateOrganization) {
		member.ID(o, "organizationId", &v.OrganizationID)
		name(o, &v.Name)
		mutation(o, &v.MutationID)
	})
	CreateOrganizationAnswerCodec zone.Codec[CreateOrganizationAnswer] = codec.Of(func(o *exact.Object, v *CreateOrganizationAnswer) {
		exact.Sub(o, "organization", &v.Organization, exact.Shape[Organization]{Fields: organization})
		replayed(o, &v.Replayed)
	})
	GetOrganizationsCodec       zone.Codec[GetOrganizations]       = codec.Of(func(o *exact.Object, v *GetOrganizations) { cursor(o, &v.Cursor) })
	GetOrganizationsAnswerCodec zone.Codec[GetOrganizationsAnswer] = codec.Of(func(o *exact.Object, v *GetOrganizationsAnswer) {
		page(o, "organizations", &v.Organizations, organization)
		next(o, &v.NextCursor)
	})
	CreateOperatorCodec zone.Codec[CreateOperator] = codec.Of(func(o *exact.Object, v *CreateOperator) {
		member.ID(o, "operatorId", &v.OperatorID)
		name(o, &v.Name)
		exact.Bool(o, "installation", &v.Installation)
		mutation(o, &v.MutationID)
	})
	CreateOperatorAnswerCodec zone.Codec[CreateOperatorAnswer] = codec.Of(func(o *exact.Object, v *CreateOperatorAnswer) {
		exact.Sub(o, "operator", &v.Operator, exact.Shape[Operator]{Fields: operator})
		replayed(o, &v.Replayed)
	})
	GetOperatorsCodec zone.Codec[GetOperators] = codec.Of(func(o *exact.Object, v *GetOperators) {
		member.OrNull(o, "organizationId", &v.OrganizationID, member.ID[zone.OrganizationID])
		cursor(o, &v.Cursor)
	})
	GetOperatorsAnswerCodec zone.Codec[GetOperatorsAnswer] = codec.Of(func(o *exact.Object, v *GetOperatorsAnswer) {
		page(o, "operators", &v.Operators, operator)
		next(o, &v.NextCursor)
	})
	SetMemberCodec zone.Codec[SetMember] = codec.Of(func(o *exact.Object, v *SetMember) {
		member.ID(o, "organizationId", &v.OrganizationID)
		member.ID(o, "operatorId", &v.OperatorID)
		member.OrNull(o, "role", &v.Role, role)
		mutation(o, &v.MutationID)
	})
	SetMemberAnswerCodec zone.Codec[SetMemberAnswer] = codec.Of(func(o *exact.Object, v *SetMemberAnswer) {
		member.ID(o, "organizationId", &v.OrganizationID)
		member.ID(o, "operatorId", &v.OperatorID)
		member.OrNull(o, "role", &v.Role, role)
		replayed(o, &v.Replayed)
	})
	DisableOperatorCodec zone.Codec[DisableOperator] = codec.Of(func(o *exact.Object, v *DisableOperator) {
		member.ID(o, "operatorId", &v.OperatorID)
		exact.Bool(o, "disabled", &v.Disabled)
		mutation(o, &v.MutationID)
	})
	DisableOperatorAnswerCodec zone.Codec[DisableOperatorAnswer] = codec.Of(func(o *exact.Object, v *DisableOperatorAnswer) {
		exact.Sub(o, "operator", &v.Operator, exact.Shape[Operator]{Fields: operator})
		replayed(o, &v.Replayed)
	})
	EndSessionsCodec zone.Codec[EndSessions] = codec.Of(func(o *exact.Object, v *EndSessions) {
		member.ID(o, "operatorId", &v.OperatorID)
		mutation(o, &v.MutationID)
	})
	EndSessionsAnswerCodec zone.Codec[EndSessionsAnswer] = codec.Of(func(o *exact.Object, v *EndSessionsAnswer) {
		member.ID(o, "operatorId", &v.OperatorID)
		replayed(o, &v.Replayed)
	})
	GetAuditCodec zone.Codec[GetAudit] = codec.Of(func(o *exact.Object, v *GetAudit) {
		member.OrNull(o, "organizationId", &v.OrganizationID, member.ID[zone.OrganizationID])
		cursor(o, &v.Cursor)
		exact.Whole(o, "limit", &v.Limit, 1, zone.MaxPage)
	})
	GetAuditAnswerCodec zone.Codec[GetAuditAnswer] = codec.Of(func(o *exact.Object, v *GetAuditAnswer) {
		page(o, "entries", &v.Entries, entry)
		next(o, &v.NextCursor)
	})
)

// Input is the digest of the method and the whole request, for its mutation id.
func (c CreateOrganization) Input() (canon.Sum, error) {
	return member.Input(MethodCreateOrganization, CreateOrganizationCodec, c)
}

// Input is the digest of the method and the whole request, for its mutation id.
func (c CreateOperator) Input() (canon.Sum, error) {
	return member.Input(MethodCreateOperator, CreateOperatorCodec, c)
}

// Input is the digest of the method and the whole request, for its mutation id.
func (s SetMember) Input() (canon.Sum, error) {
	return member.Input(MethodSetMember, SetMemberCodec, s)
}

// Input is the digest of the method and the whole request, for its mutation id.
func (d DisableOperator) Input() (canon.Sum, error) {
	return member.Input(MethodDisableOperator, DisableOperatorCodec, d)
}

// Input is the digest of the method and the whole request, for its mutation id.
func (e EndSessions) Input() (canon.Sum, error) {
	return member.Input(MethodEndSessions, EndSessionsCodec, e)
}
