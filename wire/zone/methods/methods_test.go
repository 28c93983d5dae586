package methods_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/admin"
	"github.com/allodhq/allod/wire/zone/cluster"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/machine"
	"github.com/allodhq/allod/wire/zone/methods"
	"github.com/allodhq/allod/wire/zone/nodes"
	"github.com/allodhq/allod/wire/zone/rpc"
)

// exchange is a method with the types of its request and its answer.
type exchange struct {
	method *rpc.Method
	types  []reflect.Type
}

func of[Req, Res any](m *rpc.Method) exchange {
	return exchange{m, []reflect.Type{reflect.TypeFor[Req](), reflect.TypeFor[Res]()}}
}

var exchanges = []exchange{
	of[admin.ExchangeLoginLink, admin.ExchangeLoginLinkAnswer](methods.ExchangeLoginLink),
	of[admin.GetIdentity, admin.GetIdentityAnswer](methods.GetIdentity),
	of[admin.RegisterCloudlyClientSession, admin.RegisterCloudlyClientSessionAnswer](methods.RegisterSession),
	of[admin.CreateOrganization, admin.CreateOrganizationAnswer](methods.CreateOrganization),
	of[admin.GetOrganizations, admin.GetOrganizationsAnswer](methods.GetOrganizations),
	of[admin.CreateOperator, admin.CreateOperatorAnswer](methods.CreateOperator),
	of[admin.GetOperators, admin.GetOperatorsAnswer](methods.GetOperators),
	of[admin.SetMember, admin.SetMemberAnswer](methods.SetMember),
	of[admin.DisableOperator, admin.DisableOperatorAnswer](methods.DisableOperator),
	of[admin.EndSessions, admin.EndSessionsAnswer](methods.EndSessions),
	of[admin.GetAudit, admin.GetAuditAnswer](methods.GetAudit),
	of[admin.CreateLoginLink, admin.CreateLoginLinkAnswer](methods.CreateLoginLink),
	of[cluster.Create, cluster.Answer](methods.CreateCluster),
	of[cluster.List, cluster.Page](methods.GetClusters),
	of[cluster.Update, cluster.Answer](methods.UpdateCluster),
	of[cluster.GetRuntime, cluster.RuntimeAnswer](methods.GetClusterRuntime),
	of[cluster.CreateService, cluster.ServiceAnswer](methods.CreateService),
	of[cluster.ListServices, cluster.ServicePage](methods.GetServices),
	of[cluster.UpdateService, cluster.ServiceAnswer](methods.UpdateService),
	of[machine.Get, machine.GetAnswer](methods.GetMachine),
	of[machine.Mutate, machine.MutateAnswer](methods.MutateMachine),
	of[machine.Exchange, machine.ExchangeAnswer](methods.ExchangeMachine),
	of[nodes.Invite, nodes.Invitation](methods.InviteNode),
	of[nodes.List, nodes.Page](methods.GetNodes),
	of[nodes.Get, nodes.Answer](methods.GetNode),
	of[nodes.Rotate, nodes.Answer](methods.RotateNode),
	of[nodes.Remove, nodes.Answer](methods.RemoveNode),
	of[nodes.Get, nodes.Explanation](methods.ExplainNode),
	of[enroll.Request, enroll.Response](methods.EnrollNode),
	of[enroll.StateRequest, enroll.StateResponse](methods.EnrollmentState),
	of[enroll.CredentialRequest, enroll.CredentialResponse](methods.GetCredential),
	of[enroll.RotateRequest, enroll.RotateResponse](methods.RotateCredential),
}

var secrets = []reflect.Type{reflect.TypeFor[zone.Secret](), reflect.TypeFor[enroll.Bearer](), reflect.TypeFor[enroll.JumpCode](), reflect.TypeFor[enroll.Proof](), reflect.TypeFor[enroll.JoinLine]()}

// holds walks a type and returns the paths at which it can hold a secret.
func holds(typ reflect.Type) (paths []string) {
	if slices.Contains(secrets, typ) {
		return []string{typ.String()}
	}
	switch typ.Kind() {
	case reflect.Struct:
		for i := range typ.NumField() {
			for _, path := range holds(typ.Field(i).Type) {
				paths = append(paths, typ.Field(i).Name+"."+path)
			}
		}
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return holds(typ.Elem())
	case reflect.Map:
		return append(holds(typ.Key()), holds(typ.Elem())...)
	case reflect.Interface, reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return []string{"(" + typ.String() + ", which can hold anything)"}
	}
	return paths
}

// TestF06WhatCanHoldASecretIsSensitive walks the messages of every method that is
// built, so that no list of names has to be kept in mind.
func TestF06WhatCanHoldASecretIsSensitive(t *testing.T) {
	known := map[*rpc.Method]bool{}
	found := 0
	for _, e := range exchanges {
		if known[e.method] {
			t.Errorf("%s is there twice", e.method.Name)
		}
		known[e.method] = true
		for _, typ := range e.types {
			if paths := holds(typ); len(paths) > 0 {
				found++
				if e.method.Sensitivity != rpc.Sensitive {
					t.Errorf("%s is not sensitive, and %s holds %q", e.method.Name, typ, paths)
				}
			}
		}
	}
	if found < 9 {
		t.Errorf("the walk found secrets in %d messages only", found)
	}
	for m := range methods.Controller.All() {
		if !known[m] && m.Sensitivity != rpc.Sensitive { // nobody knows yet what it holds
			t.Errorf("%s is not built, and not sensitive", m.Name)
		}
	}
}

// TestF09NodesAndPeopleAreNeverCallersOfOneMethod: a credential of a node counts in
// no organization, and a person's token not for a node.
func TestF09NodesAndPeopleAreNeverCallersOfOneMethod(t *testing.T) {
	seen := map[string]bool{}
	byNodes := map[string][]rpc.Caller{}
	for m := range methods.Controller.All() {
		if seen[m.Name] {
			t.Errorf("%s is there twice", m.Name)
		}
		seen[m.Name] = true
		for _, c := range m.Callers {
			if c == rpc.NodeSpark || c == rpc.NodePallet {
				byNodes[m.Name] = append(byNodes[m.Name], c)
			}
		}
		if n := len(byNodes[m.Name]); n > 0 && n != len(m.Callers) {
			t.Errorf("%s is for %v", m.Name, m.Callers)
		}
		if m.Carriers&rpc.Control != 0 || m.Carriers&rpc.Admin != 0 && m.Carriers == rpc.Admin {
			t.Errorf("%s is not for the network", m.Name)
		}
		if m.Session == handshake.SparkNode && (m.Carriers != rpc.HTTP || m.Sensitivity != rpc.Sensitive) {
			t.Errorf("%s is for a node: %+v", m.Name, m)
		}
	}
	want := map[string][]rpc.Caller{
		enroll.MethodState: {rpc.NodeSpark}, enroll.MethodCredential: {rpc.NodeSpark, rpc.NodePallet}, enroll.MethodRotate: {rpc.NodeSpark, rpc.NodePallet},
	}
	if !reflect.DeepEqual(byNodes, want) {
		t.Errorf("nodes may call %v", byNodes)
	}
	// F10: what Pallet is asked over its own socket is no method of a network.
	for _, name := range []string{enroll.MethodPalletPrepare, enroll.MethodPalletBind, enroll.MethodPalletActivate} {
		if methods.Controller.Find(name) != nil {
			t.Errorf("%s is a method of the controller", name)
		}
	}
}
