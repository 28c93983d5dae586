package methods

import (
	"github.com/allodhq/allod/wire/zone/admin"
	"github.com/allodhq/allod/wire/zone/cluster"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/machine"
	"github.com/allodhq/allod/wire/zone/nodes"
	"github.com/allodhq/allod/wire/zone/rpc"
)

// Bounds of methods with small messages, in bytes.
const (
	// small is enough for a request that names things and holds a token.
	small = 16 << 10
	// enrollment is enough for a proposal with its proof.
	enrollment = 32 << 10
)

const anywhere = rpc.HTTP | rpc.Socket | rpc.Admin

// people is a method for operators.
func people(name string, s rpc.Sensitivity, changes bool) *rpc.Method {
	return &rpc.Method{
		Name: name, Session: handshake.CloudlyClient, Callers: []rpc.Caller{rpc.Operator, rpc.Administrator}, Carriers: anywhere,
		MaxRequest: small, Sensitivity: s, Changes: changes,
	}
}

func reads(name string) *rpc.Method   { return people(name, rpc.Plain, false) }
func changes(name string) *rpc.Method { return people(name, rpc.Plain, true) }

// secret is a method whose answer holds something that must be seen once.
func secret(name string) *rpc.Method { return people(name, rpc.Sensitive, true) }

// node is a method for programs of nodes.
func node(name string, changes bool, callers ...rpc.Caller) *rpc.Method {
	return &rpc.Method{
		Name: name, Session: handshake.SparkNode, Callers: callers, Carriers: rpc.HTTP,
		MaxRequest: enrollment, MaxResponse: small, Sensitivity: rpc.Sensitive, Changes: changes,
	}
}

// proven is a method whose request holds its own proof.
func proven(name string) *rpc.Method {
	return &rpc.Method{
		Name: name, Session: handshake.CloudlyClient, Callers: []rpc.Caller{rpc.Anyone}, Carriers: rpc.HTTP,
		MaxRequest: small, MaxResponse: small, Sensitivity: rpc.Sensitive, Changes: true,
	}
}

// The methods of operators about people (F77).
var (
	ExchangeLoginLink  = proven(admin.MethodExchangeLoginLink)
	GetIdentity        = &rpc.Method{Name: admin.MethodGetIdentity, Session: handshake.CloudlyClient, Callers: []rpc.Caller{rpc.Operator, rpc.Administrator, rpc.ServiceMachine}, Carriers: anywhere, MaxRequest: small, Sensitivity: rpc.Plain}
	RegisterSession    = &rpc.Method{Name: admin.MethodRegisterSession, Session: handshake.CloudlyClient, Callers: []rpc.Caller{rpc.Anyone}, Carriers: rpc.Socket, MaxRequest: small, MaxResponse: small, Sensitivity: rpc.Sensitive, Opens: true}
	CreateOrganization = changes(admin.MethodCreateOrganization)
	GetOrganizations   = reads(admin.MethodGetOrganizations)
	CreateOperator     = changes(admin.MethodCreateOperator)
	GetOperators       = reads(admin.MethodGetOperators)
	SetMember          = changes(admin.MethodSetMember)
	DisableOperator    = changes(admin.MethodDisableOperator)
	EndSessions        = changes(admin.MethodEndSessions)
	GetAudit           = reads(admin.MethodGetAudit)
	CreateLoginLink    = secret(admin.MethodCreateLoginLink)
)

// The methods about clusters and services (F14, F40, F68, F77).
var (
	CreateCluster     = changes(cluster.MethodCreate)
	GetClusters       = reads(cluster.MethodList)
	UpdateCluster     = changes(cluster.MethodUpdate)
	GetClusterRuntime = reads(cluster.MethodRuntime)
	CreateService     = changes(cluster.MethodCreateService)
	GetServices       = reads(cluster.MethodListServices)
	UpdateService     = changes(cluster.MethodUpdateService)
	GetMachine        = reads(machine.MethodGet)
	MutateMachine     = secret(machine.MethodMutate)
	ExchangeMachine   = proven(machine.MethodExchange)
)

// The methods of operators about nodes.
var (
	InviteNode  = secret(nodes.MethodInvite)
	GetNodes    = reads(nodes.MethodList)
	GetNode     = reads(nodes.MethodGet)
	RotateNode  = changes(nodes.MethodRotate)
	RemoveNode  = changes(nodes.MethodRemove)
	ExplainNode = reads(nodes.MethodWhy)
)

// The methods of nodes (F08, F09).
var (
	EnrollNode       = node(enroll.MethodEnroll, true, rpc.Anyone)
	EnrollmentState  = node(enroll.MethodState, false, rpc.NodeSpark)
	GetCredential    = node(enroll.MethodCredential, false, rpc.NodeSpark, rpc.NodePallet)
	RotateCredential = node(enroll.MethodRotate, true, rpc.NodeSpark, rpc.NodePallet)
)

// built are the methods that a controller has.
var built = []*rpc.Method{
	ExchangeLoginLink, GetIdentity, RegisterSession, CreateOrganization, GetOrganizations, CreateOperator, GetOperators,
	SetMember, DisableOperator, EndSessions, GetAudit, CreateLoginLink,
	CreateCluster, GetClusters, UpdateCluster, GetClusterRuntime, CreateService, GetServices, UpdateService,
	GetMachine, MutateMachine, ExchangeMachine,
	InviteNode, GetNodes, GetNode, RotateNode, RemoveNode, ExplainNode,
	EnrollNode, EnrollmentState, GetCredential, RotateCredential,
}

// unbuilt are methods that the contract names towards a controller, and that no
// build has yet.
var unbuilt = []string{
	"setRuntimeNetworkAddressPlan", "getRuntimeNetworkAddressPlan", "getRuntimeNetworkNodeReadiness", "reincarnateRuntimeNetworkRouter",
	"reportRuntimeNetworkProtection", "getRuntimeManagedVpnCredential",
	"createPrivateNetwork", "getPrivateNetworks", "updatePrivateNetwork", "retirePrivateNetwork",
	"getServicePrivateNetworkMembership", "setServicePrivateNetworkMembership", "getServicePublishedPorts", "setServicePublishedPorts",
	"registerPalletRuntimeSession", "reportRuntimeAssignmentObservation", "getRuntimeRegistryCredential", "reportRuntimeAssignmentTerminalReceipt",
	"getClusterRuntimeAssignments", "getServiceRuntimeAssignments", "setServiceRuntimeSpec", "getServiceRuntimeSpec",
	"enableClusterRelay", "disableClusterRelay", "registerClusterRelay", "getClusterRouteTable", "registerClusterIngress",
	"getSecretIngressRecipient", "beginSecretRecipientEnrollment", "completeSecretRecipientEnrollment",
	"getClusterPlatformDesiredState", "backupServiceDatabaseClosure", "restoreServiceDatabaseClosure", "createIsolatedRestore",
}

// Controller is every method that the contract has towards a controller.
var Controller = func() *rpc.Registry {
	all := append([]*rpc.Method{}, built...)
	for _, name := range unbuilt {
		all = append(all, &rpc.Method{
			Name: name, Session: handshake.CloudlyClient, Callers: []rpc.Caller{rpc.Anyone}, Carriers: rpc.HTTP | rpc.Socket,
			MaxRequest: small, MaxResponse: small, Sensitivity: rpc.Sensitive,
		})
	}
	return rpc.NewRegistry(all...)
}()
