package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/admin"
	"github.com/allodhq/allod/wire/zone/cluster"
	"github.com/allodhq/allod/wire/zone/machine"
	"github.com/allodhq/allod/wire/zone/methods"
	"github.com/allodhq/allod/wire/zone/nodes"
	"github.com/allodhq/allod/wire/zone/rpc"
	"github.com/allodhq/allod/wire/zone/spark"
)

// view is a read of an operator, with the codec of its answer.
type view struct {
	members func(e estate) string
	reasons func(answer []byte, path string) []string
}

// views are all of them.
var views = map[string]view{
	"getIdentity":                 {func(estate) string { return `` }, admin.GetIdentityAnswerCodec.Reasons},
	"getOrganizations":            {func(estate) string { return `"cursor":null` }, admin.GetOrganizationsAnswerCodec.Reasons},
	"getOperators":                {owned(`,"cursor":null`), admin.GetOperatorsAnswerCodec.Reasons},
	"getAudit":                    {owned(`,"cursor":null,"limit":256`), admin.GetAuditAnswerCodec.Reasons},
	"getClusters":                 {owned(`,"cursor":null`), cluster.PageCodec.Reasons},
	"getServices":                 {owned(`,"cursor":null`), cluster.ServicePageCodec.Reasons},
	"getClusterRuntime":           {ofCluster(""), cluster.RuntimeAnswerCodec.Reasons},
	"getNodes":                    {ofCluster(`,"cursor":null`), nodes.PageCodec.Reasons},
	"getNode":                     {ofNode, nodes.AnswerCodec.Reasons},
	"explainNode":                 {ofNode, nodes.ExplanationCodec.Reasons},
	"getServiceMachineCredential": {func(e estate) string { return owned("")(e) + `,"serviceId":"` + string(e.service) + `"` }, machine.GetAnswerCodec.Reasons},
}

func owned(more string) func(estate) string {
	return func(e estate) string { return `"organizationId":"` + string(e.organization) + `"` + more }
}

func ofCluster(more string) func(estate) string {
	return func(e estate) string { return `"clusterId":"` + string(e.cluster) + `"` + more }
}

func ofNode(e estate) string { return `"nodeId":"` + string(e.node.id) + `"` }

// full is an estate of which every view has something to tell.
func (w *world) full(name string) estate {
	w.t.Helper()
	e := w.estate(name)
	if status, body := w.post(spark.Path, heartbeat(w.t, e.node.spark, report())); status != 200 {
		w.t.Fatal(body)
	}
	return e
}

// TestF77EveryAnswerPassesItsValidator reads everything that an operator can, over
// every carrier, and holds each answer to its exact shape.
func TestF77EveryAnswerPassesItsValidator(t *testing.T) {
	w := newWorld(t)
	e := w.full("a")
	w.full("b")
	for m := range methods.Controller.All() {
		if _, ok := views[m.Name]; !ok && requests[m.Name] != "" && !m.Changes && !m.Opens && m.Sensitivity != rpc.Sensitive {
			t.Errorf("%s reads, and no test looks at its answer", m.Name)
		}
	}
	session := w.session(e.jwt)
	for method, v := range views {
		over := map[string]string{
			"HTTP":     content(t, w.done(method, v.members(e), e.jwt)),
			"a socket": content(t, session(method, v.members(e))),
		}
		_, text := w.post(adminPath+"/typedrequest", ask(method, identified(v.members(e), zone.Secret{})))
		over["the admin socket"] = content(t, text)
		for where, answer := range over {
			// Beside an answer travels the offer, where there is no session.
			answer = strings.Replace(strings.Replace(answer, `,"protocol":`+goodOffer, "", 1), `"protocol":`+goodOffer, "", 1)
			if reasons := v.reasons([]byte(answer), "answer"); len(reasons) > 0 {
				t.Errorf("%s over %s: %v in %s", method, where, reasons, answer)
			}
			if reasons := v.reasons([]byte(strings.TrimSuffix(answer, "}")+`,"_id":"x"}`), "answer"); len(reasons) == 0 {
				t.Errorf("%s: its validator takes a member of a database", method)
			}
		}
	}
}

// TestF77AServerManagedMemberIsNoRequest: whatever the controller keeps of a thing by
// itself cannot be written by who writes the thing.
func TestF77AServerManagedMemberIsNoRequest(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	before := w.everything(e)
	managed := []string{
		`"id":"x"`, `"_id":"x"`, `"organizationId":"org-a"`, `"owner":"op-a"`, `"revision":9`, `"createdAt":1`, `"createdBy":"op-a"`, `"generation":9`, `"disabled":false`,
		`"phase":"swarm"`, `"state":"active"`, `"memberships":[]`, `"data":{}`, `"relay":{"origin":"https://r.example.org"}`, `"nodes":[]`, `"hash":"` + hash + `"`,
	}
	for method, r := range map[string]struct{ members, within string }{
		"createCluster":      {`"organizationId":"org-a","cluster":{"name":"n"},"mutationId":"m"`, `"cluster":{`},
		"updateCluster":      {ofCluster(`,"expectedRevision":1,"cluster":{"name":"n"},"mutationId":"m"`)(e), `"cluster":{`},
		"createService":      {`"organizationId":"org-a","service":{"name":"n","clusterId":null},"mutationId":"m"`, `"service":{`},
		"updateService":      {`"serviceId":"` + string(e.service) + `","expectedRevision":1,"service":{"name":"n","clusterId":null},"mutationId":"m"`, `"service":{`},
		"createOrganization": {`"organizationId":"new","name":"n","mutationId":"m"`, ""},
		"createOperator":     {`"operatorId":"new","name":"n","installation":false,"mutationId":"m"`, ""},
		"setMember":          {`"organizationId":"org-a","operatorId":"op-a","role":"viewer","mutationId":"m"`, ""},
		"removeNode":         {ofNode(e) + `,"palletOnly":true,"mutationId":"m"`, ""},
		"mutateServiceMachineCredential": {`"operation":"rotate","organizationId":"org-a","serviceId":"` + string(e.service) +
			`","expectedGeneration":1,"grant":"platform:session","mutationId":"m"`, ""},
	} {
		for _, member := range managed {
			name, _, _ := strings.Cut(member, ":")
			if r.within != "" {
				members := strings.Replace(r.members, r.within, r.within+member+",", 1)
				w.refuses("with "+member, method, members, e.jwt, "request-schema-invalid")
			}
			if strings.Contains(r.members, name+":") {
				continue // it is a member of the request, and there twice is another refusal
			}
			if cost := w.refuses("beside "+member, method, r.members+","+member, e.jwt, "request-schema-invalid"); cost.Transactions > 0 {
				t.Errorf("%s with %s cost %+v", method, member, cost)
			}
		}
	}
	if after := w.everything(e); after != before {
		t.Errorf("%s, before %s", after, before)
	}
}

// everything is what an operator sees of an estate, in bytes, without the audit log.
func (w *world) everything(e estate) string {
	w.t.Helper()
	var all strings.Builder
	for _, method := range []string{"getOrganizations", "getOperators", "getClusters", "getServices", "getClusterRuntime", "getNodes", "getNode", "getServiceMachineCredential"} {
		fmt.Fprintf(&all, "%s\n", content(w.t, w.done(method, views[method].members(e), e.jwt)))
	}
	return all.String()
}

// TestF77AnUpdateChangesTheDocumentAlone: an update of a cluster, and one of a
// service, change that document and nothing that lies beside it.
func TestF77AnUpdateChangesTheDocumentAlone(t *testing.T) {
	w := newWorld(t)
	e := w.full("a")
	w.put(func(tx store.Tx) error {
		return tx.PutRuntime(store.Runtime{Cluster: e.cluster, Phase: "draining", Generation: 7, ChangedAt: 5, ChangedBy: "controller"})
	})
	before := w.everything(e)
	w.done("updateCluster", ofCluster(`,"expectedRevision":1,"cluster":{"name":"renamed"},"mutationId":"m1"`)(e), e.jwt)
	w.done("updateService", `"serviceId":"`+string(e.service)+`","expectedRevision":1,"service":{"name":"renamed","clusterId":"`+string(e.cluster)+`"},"mutationId":"m2"`, e.jwt)
	want := before
	for _, id := range []string{string(e.cluster), string(e.service)} {
		old := `{"id":"` + id + `","organizationId":"org-a","revision":1,`
		if strings.Count(want, old) != 1 {
			t.Fatalf("%s is not once in %s", old, want)
		}
		want = strings.Replace(want, old, strings.Replace(old, `"revision":1`, `"revision":2`, 1), 1)
	}
	want = strings.ReplaceAll(want, `"data":{"name":"a"`, `"data":{"name":"renamed"`)
	if after := w.everything(e); after != want {
		t.Errorf("%s, want %s", after, want)
	}
}

// TestF77ListsOverEveryCarrierShowTheCallersOwn: no list has anything of an
// organization in which the caller has no part, and the local user sees both.
func TestF77ListsOverEveryCarrierShowTheCallersOwn(t *testing.T) {
	w := newWorld(t)
	a, b := w.full("a"), w.full("b")
	alone := w.operator("op-alone", "", "")
	viewer := w.operator("op-viewer", a.organization, admin.Viewer)
	marks := func(e estate) []string {
		return []string{string(e.organization), string(e.operator), string(e.cluster), string(e.service), string(e.node.id)}
	}
	clean := func(who, text string, strangers ...estate) {
		t.Helper()
		for _, e := range strangers {
			for _, mark := range marks(e) {
				if strings.Contains(text, `"`+mark+`"`) || strings.Contains(text, `/`+mark+`"`) {
					t.Errorf("%s sees %s in %s", who, mark, text)
				}
			}
		}
	}
	for who, jwt := range map[string]zone.Secret{"a's administrator": a.jwt, "a's viewer": viewer} {
		session := w.session(jwt)
		for method, v := range views {
			text := w.say(method, v.members(a), jwt)
			if over := session(method, v.members(a)); !strings.Contains(text, `"response":{`) && who != "a's viewer" || strings.Contains(text, `"response":{`) != strings.Contains(over, `"response":{`) {
				t.Errorf("%s, %s: %s over HTTP, %s over a socket", who, method, text, over)
			} else {
				clean(who, text+over, b)
			}
		}
	}
	for _, every := range []string{`"cursor":null`} {
		text := w.done("getOrganizations", every, alone)
		clean("an operator of none", text, a, b)
		_, all := w.post(adminPath+"/typedrequest", ask("getOrganizations", identified(every, zone.Secret{})))
		if !strings.Contains(all, `"org-a"`) || !strings.Contains(all, `"org-b"`) {
			t.Errorf("the local user sees %s", all)
		}
	}
	// The list of all nodes is no way around it.
	for who, jwt := range map[string]zone.Secret{"a's administrator": a.jwt, "an operator of none": alone} {
		strangers := []estate{b}
		if who != "a's administrator" {
			strangers = append(strangers, a)
		}
		clean(who, w.say("getNodes", `"clusterId":null,"cursor":null`, jwt), strangers...)
	}
}
