package api

import (
	"context"

	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/internal/killpoint"
	"github.com/allodhq/allod/wire/zone/admin"
	"github.com/allodhq/allod/wire/zone/cluster"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/machine"
	"github.com/allodhq/allod/wire/zone/methods"
	"github.com/allodhq/allod/wire/zone/nodes"
	"github.com/allodhq/allod/wire/zone/rpc"
)

// bindings are all of them.
func (a *API) bindings() []rpc.Binding {
	p, c, s, n := a.c.People, a.c.Clusters, a.c.Services, a.c.Nodes
	return []rpc.Binding{
		bindProven(a, methods.ExchangeLoginLink, admin.ExchangeLoginLinkCodec, admin.ExchangeLoginLinkAnswerCodec, a.login),
		rpc.Bind(methods.GetIdentity, admin.GetIdentityCodec, admin.GetIdentityAnswerCodec, a.identity),
		rpc.Bind(methods.RegisterSession, admin.RegisterCloudlyClientSessionCodec, admin.RegisterCloudlyClientSessionAnswerCodec, a.register),
		bind(a, methods.CreateOrganization, admin.CreateOrganizationCodec, admin.CreateOrganizationAnswerCodec, p.CreateOrganization),
		bind(a, methods.GetOrganizations, admin.GetOrganizationsCodec, admin.GetOrganizationsAnswerCodec, p.GetOrganizations),
		bind(a, methods.CreateOperator, admin.CreateOperatorCodec, admin.CreateOperatorAnswerCodec, p.CreateOperator),
		bind(a, methods.GetOperators, admin.GetOperatorsCodec, admin.GetOperatorsAnswerCodec, p.GetOperators),
		bind(a, methods.SetMember, admin.SetMemberCodec, admin.SetMemberAnswerCodec, p.SetMember),
		bind(a, methods.DisableOperator, admin.DisableOperatorCodec, admin.DisableOperatorAnswerCodec, a.disable),
		bind(a, methods.EndSessions, admin.EndSessionsCodec, admin.EndSessionsAnswerCodec, a.endSessions),
		bind(a, methods.GetAudit, admin.GetAuditCodec, admin.GetAuditAnswerCodec, p.GetAudit),
		bind(a, methods.CreateLoginLink, admin.CreateLoginLinkCodec, admin.CreateLoginLinkAnswerCodec, p.CreateLoginLink),

		bind(a, methods.CreateCluster, cluster.CreateCodec, cluster.AnswerCodec, c.Create),
		bind(a, methods.GetClusters, cluster.ListCodec, cluster.PageCodec, c.List),
		bind(a, methods.UpdateCluster, cluster.UpdateCodec, cluster.AnswerCodec, c.Update),
		bind(a, methods.GetClusterRuntime, cluster.GetRuntimeCodec, cluster.RuntimeAnswerCodec, c.Runtime),
		bind(a, methods.CreateService, cluster.CreateServiceCodec, cluster.ServiceAnswerCodec, s.Create),
		bind(a, methods.GetServices, cluster.ListServicesCodec, cluster.ServicePageCodec, s.List),
		bind(a, methods.UpdateService, cluster.UpdateServiceCodec, cluster.ServiceAnswerCodec, s.Update),

		bind(a, methods.GetMachine, machine.GetCodec, machine.GetAnswerCodec, a.c.Machines.Get),
		bind(a, methods.MutateMachine, machine.MutateCodec, machine.MutateAnswerCodec, a.mutateMachine),
		bindProven(a, methods.ExchangeMachine, machine.ExchangeCodec, machine.ExchangeAnswerCodec, a.c.Machines.Exchange),

		bind(a, methods.InviteNode, nodes.InviteCodec, nodes.InvitationCodec, a.invite),
		bind(a, methods.GetNodes, nodes.ListCodec, nodes.PageCodec, n.List),
		bind(a, methods.GetNode, nodes.GetCodec, nodes.AnswerCodec, n.Get),
		bind(a, methods.RotateNode, nodes.RotateCodec, nodes.AnswerCodec, n.AskRotation),
		bind(a, methods.RemoveNode, nodes.RemoveCodec, nodes.AnswerCodec, n.Remove),
		bind(a, methods.ExplainNode, nodes.GetCodec, nodes.ExplanationCodec, n.Why),

		bindProven(a, methods.EnrollNode, enroll.RequestCodec, enroll.ResponseCodec, a.enroll),
		bindProven(a, methods.EnrollmentState, enroll.StateRequestCodec, enroll.StateResponseCodec, a.enrollmentState),
		bindProven(a, methods.GetCredential, enroll.CredentialRequestCodec, enroll.CredentialResponseCodec, a.credential),
		bindProven(a, methods.RotateCredential, enroll.RotateRequestCodec, enroll.RotateResponseCodec, a.rotate),
	}
}

func (a *API) login(ctx context.Context, r admin.ExchangeLoginLink) (admin.ExchangeLoginLinkAnswer, error) {
	answer, err := a.c.People.ExchangeLoginLink(ctx, r)
	return reached(killpoint.ControllerLoggedIn, answer, err)
}

// reached is the answer to what has just become durable, and the place to die before
// it is sent.
func reached[Res any](p killpoint.Point, answer Res, err error) (Res, error) {
	if err == nil {
		killpoint.At(p)
	}
	return answer, err
}

func (a *API) identity(ctx context.Context, call *rpc.Call, r admin.GetIdentity) (admin.GetIdentityAnswer, error) {
	a.handled.Add(1)
	return a.c.People.GetIdentity(ctx, session(call.Principal), r)
}

// register opens a client's session on a socket (F36).
func (a *API) register(ctx context.Context, call *rpc.Call, r admin.RegisterCloudlyClientSession) (admin.RegisterCloudlyClientSessionAnswer, error) {
	a.handled.Add(1)
	s, answer, err := a.c.People.RegisterSession(ctx, r)
	if err != nil {
		return answer, err
	}
	call.Open(rpc.Session{Principal: principal(s), Ends: s.Ends.Time()})
	return answer, nil
}

func (a *API) disable(ctx context.Context, by who.Principal, r admin.DisableOperator) (admin.DisableOperatorAnswer, error) {
	answer, err := a.c.People.DisableOperator(ctx, by, r)
	if err == nil && r.Disabled {
		a.drop(who.Operator, string(r.OperatorID))
	}
	return answer, err
}

func (a *API) endSessions(ctx context.Context, by who.Principal, r admin.EndSessions) (admin.EndSessionsAnswer, error) {
	answer, err := a.c.People.EndSessions(ctx, by, r)
	if err == nil {
		a.drop(who.Operator, string(r.OperatorID))
	}
	return answer, err
}

func (a *API) mutateMachine(ctx context.Context, by who.Principal, r machine.Mutate) (machine.MutateAnswer, error) {
	answer, err := a.c.Machines.Mutate(ctx, by, r)
	if err == nil {
		a.drop(who.Machine, string(r.Service))
	}
	return answer, err
}

func (a *API) invite(ctx context.Context, by who.Principal, r nodes.Invite) (nodes.Invitation, error) {
	answer, err := a.c.Nodes.Invite(ctx, by, r)
	return reached(killpoint.ControllerInvited, answer, err)
}

// ours is this build's offer to a node. The messages of nodes hold it themselves.
func ours() handshake.Offer { return handshake.Ours(handshake.SparkNode) }

func (a *API) enroll(ctx context.Context, r enroll.Request) (enroll.Response, error) {
	acknowledgement, err := a.c.Nodes.Enroll(ctx, r.Proposal, r.Proof)
	return reached(killpoint.ControllerEnrolled, enroll.Response{Acknowledgement: acknowledgement, Protocol: ours()}, err)
}

func (a *API) enrollmentState(ctx context.Context, r enroll.StateRequest) (enroll.StateResponse, error) {
	id, spark, absent, err := a.c.Nodes.State(ctx, r.Bearer)
	return enroll.StateResponse{NodeID: id, Spark: spark, PalletAbsent: absent, Protocol: ours()}, err
}

func (a *API) credential(ctx context.Context, r enroll.CredentialRequest) (enroll.CredentialResponse, error) {
	id, m, err := a.c.Nodes.Credential(ctx, r.Bearer)
	return enroll.CredentialResponse{NodeID: id, Credential: m, Protocol: ours()}, err
}

func (a *API) rotate(ctx context.Context, r enroll.RotateRequest) (enroll.RotateResponse, error) {
	receipt, err := a.c.Nodes.Rotate(ctx, r.Bearer, r.Rotation)
	return reached(killpoint.ControllerRotated, enroll.RotateResponse{Receipt: receipt, Protocol: ours()}, err)
}
