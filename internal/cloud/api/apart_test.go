package api_test

import (
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/cloud/store/storecount"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/admin"
	"github.com/allodhq/allod/wire/zone/rpc"
)

// Two organizations cannot see each other: for every method that names something,
// what is absent and what is somebody else's give the same bytes and cost the same
// calls of the store, over HTTP and over a socket.

// lookup is a method about one thing, with the members of its request.
type lookup struct {
	method  string
	members func(of estate, mutation string) string
}

// lookups are all methods by which an operator names what may be another
// organization's.
var lookups = []lookup{
	{"getOperators", func(e estate, _ string) string {
		return `"organizationId":"` + string(e.organization) + `","cursor":null`
	}},
	{"setMember", func(e estate, m string) string {
		return `"organizationId":"` + string(e.organization) + `","operatorId":"` + string(e.operator) + `","role":"viewer","mutationId":"` + m + `"`
	}},
	{"getAudit", func(e estate, _ string) string {
		return `"organizationId":"` + string(e.organization) + `","cursor":null,"limit":5`
	}},
	{"createCluster", func(e estate, m string) string {
		return `"organizationId":"` + string(e.organization) + `","cluster":{"name":"n"},"mutationId":"` + m + `"`
	}},
	{"getClusters", func(e estate, _ string) string {
		return `"organizationId":"` + string(e.organization) + `","cursor":null`
	}},
	{"updateCluster", func(e estate, m string) string {
		return `"clusterId":"` + string(e.cluster) + `","expectedRevision":1,"cluster":{"name":"n"},"mutationId":"` + m + `"`
	}},
	{"getClusterRuntime", func(e estate, _ string) string { return `"clusterId":"` + string(e.cluster) + `"` }},
	{"createService", func(e estate, m string) string {
		return `"organizationId":"` + string(e.organization) + `","service":{"name":"n","clusterId":null},"mutationId":"` + m + `"`
	}},
	{"getServices", func(e estate, _ string) string {
		return `"organizationId":"` + string(e.organization) + `","cursor":null`
	}},
	{"updateService", func(e estate, m string) string {
		return `"serviceId":"` + string(e.service) + `","expectedRevision":1,"service":{"name":"n","clusterId":null},"mutationId":"` + m + `"`
	}},
	{"getServiceMachineCredential", func(e estate, _ string) string {
		return `"organizationId":"` + string(e.organization) + `","serviceId":"` + string(e.service) + `"`
	}},
	{"mutateServiceMachineCredential", func(e estate, m string) string {
		return `"operation":"rotate","organizationId":"` + string(e.organization) + `","serviceId":"` + string(e.service) + `","expectedGeneration":1,"grant":"platform:session","mutationId":"` + m + `"`
	}},
	{"inviteNode", func(e estate, _ string) string { return `"clusterId":"` + string(e.cluster) + `"` }},
	{"getNodes", func(e estate, _ string) string { return `"clusterId":"` + string(e.cluster) + `","cursor":null` }},
	{"getNode", func(e estate, _ string) string { return `"nodeId":"` + string(e.node.id) + `"` }},
	{"requestNodeRotation", func(e estate, m string) string {
		return `"nodeId":"` + string(e.node.id) + `","mutationId":"` + m + `"`
	}},
	{"removeNode", func(e estate, m string) string {
		return `"nodeId":"` + string(e.node.id) + `","palletOnly":false,"mutationId":"` + m + `"`
	}},
	{"explainNode", func(e estate, _ string) string { return `"nodeId":"` + string(e.node.id) + `"` }},
}

// elsewhere are the methods that are not in lookups, and why.
var elsewhere = map[string]string{
	"exchangeLoginLink":                "its request is its own proof",
	"registerCloudlyClientSession":     "its request is its own proof",
	"exchangeServiceMachineCredential": "its request is its own proof",
	"enrollNode":                       "its request is its own proof",
	"getIdentity":                      "it is about the caller",
	"getOrganizations":                 "it lists the caller's own",
	"createOrganization":               "it is for who administers the installation",
	"createOperator":                   "it is for who administers the installation",
	"disableOperator":                  "it is for who administers the installation",
	"endSessions":                      "for others it is for who administers the installation",
	"createLoginLink":                  "it is for who administers the installation",
	"getNodeEnrollmentState":           "a node names nothing but itself",
	"getNodeCredential":                "a node names nothing but itself",
	"rotateNodeCredential":             "a node names nothing but itself",
}

func TestEveryMethodIsTriedForTwoOrganizations(t *testing.T) {
	known := map[string]bool{}
	for _, l := range lookups {
		known[l.method] = true
	}
	for name := range requests {
		if _, ok := elsewhere[name]; ok == known[name] {
			t.Errorf("%s: say in exactly one list whether it can name what is somebody else's", name)
		}
	}
}

// mixed are requests in one's own organization that name a thing of another.
var mixed = []lookup{
	{"createService", func(e estate, m string) string {
		return `"organizationId":"org-mine","service":{"name":"n","clusterId":"` + string(e.cluster) + `"},"mutationId":"` + m + `"`
	}},
	{"setMember", func(e estate, m string) string {
		return `"organizationId":"org-mine","operatorId":"` + string(e.operator) + `","role":"viewer","mutationId":"` + m + `"`
	}},
	{"getServiceMachineCredential", func(e estate, _ string) string {
		return `"organizationId":"org-mine","serviceId":"` + string(e.service) + `"`
	}},
	{"mutateServiceMachineCredential", func(e estate, m string) string {
		return `"operation":"rotate","organizationId":"org-mine","serviceId":"` + string(e.service) + `","expectedGeneration":1,"grant":"platform:session","mutationId":"` + m + `"`
	}},
}

func TestAThingOfAnotherOrganizationIsAbsentInOnesOwn(t *testing.T) {
	w := newWorld(t)
	mine, theirs := w.estate("mine"), w.estate("theirs")
	mixed := append(mixed, lookup{"updateService", func(e estate, m string) string {
		return `"serviceId":"` + string(mine.service) + `","expectedRevision":1,"service":{"name":"n","clusterId":"` + string(e.cluster) + `"},"mutationId":"` + m + `"`
	}})
	absent := estate{operator: "op-absent", cluster: "absent", service: "absent"}
	for _, l := range mixed {
		try := func(e estate) (text string, cost storecount.Cost) {
			members := l.members(e, w.id()) + `,"protocol":` + goodOffer + `,"identity":{"jwt":"` + mine.jwt.Reveal() + `"}`
			cost = w.store.Cost(func() { _, text = w.post(carrier.Path, ask(l.method, members)) })
			return text, cost
		}
		text1, cost1 := try(absent)
		text2, cost2 := try(theirs)
		if text1 != text2 || !strings.Contains(text1, `"code":"zone-absent"`) || !cost1.Equal(cost2) {
			t.Errorf("%s: absent gives %s for %+v, and somebody else's %s for %+v", l.method, text1, cost1, text2, cost2)
		}
	}
}

// TestMutationIDsOfOrganizationsAreApart: one that another organization has used
// says nothing and keeps nobody from theirs.
func TestMutationIDsOfOrganizationsAreApart(t *testing.T) {
	w := newWorld(t)
	for _, e := range []estate{w.estate("mine"), w.estate("theirs")} {
		_, text := w.post(carrier.Path, ask("createCluster", `"organizationId":"`+string(e.organization)+`","cluster":{"name":"n"},"mutationId":"same","protocol":`+goodOffer+`,"identity":{"jwt":"`+e.jwt.Reveal()+`"}`))
		if !strings.Contains(text, `"replayed":false`) {
			t.Errorf("%s: %s", e.organization, text)
		}
	}
}

func TestTwoOrganizationsCannotSeeEachOther(t *testing.T) {
	w := newWorld(t)
	mine, theirs := w.estate("mine"), w.estate("theirs")
	viewer := w.operator("op-viewer", mine.organization, admin.Viewer)
	nobodys := w.operator("op-alone", "", "")
	absent := estate{organization: "org-absent", operator: "op-absent", cluster: "absent", service: "absent", node: node{id: "absent"}}
	for name, jwt := range map[string]zone.Secret{"an administrator": mine.jwt, "a viewer": viewer, "nobody's operator": nobodys} {
		over := map[string]func(body string) string{
			"HTTP": func(body string) string { _, text := w.post(carrier.Path, body); return text },
		}
		socket := w.dial()
		if text := w.exchange(socket, ask("registerCloudlyClientSession", `"protocol":`+goodOffer+`,"jwt":"`+jwt.Reveal()+`"`)); !strings.Contains(text, `"expiresAt"`) {
			t.Fatal(text)
		}
		over["a socket"] = func(body string) string { return w.exchange(socket, body) }
		for _, l := range lookups {
			for carrier, send := range over {
				try := func(e estate) (string, storecount.Cost) {
					members := l.members(e, w.id())
					if carrier == "HTTP" {
						members += `,"protocol":` + goodOffer + `,"identity":{"jwt":"` + jwt.Reveal() + `"}`
					}
					var text string
					cost := w.store.Cost(func() { text = send(ask(l.method, members)) })
					return text, cost
				}
				text1, cost1 := try(absent)
				text2, cost2 := try(theirs)
				if text1 != text2 || !strings.Contains(text1, `"code":"zone-absent"`) {
					t.Errorf("%s, %s over %s: absent gives %s and somebody else's %s", name, l.method, carrier, text1, text2)
				}
				if !cost1.Equal(cost2) || cost1.Transactions == 0 {
					t.Errorf("%s, %s over %s: absent costs %+v and somebody else's %+v", name, l.method, carrier, cost1, cost2)
				}
			}
		}
	}
	// With their own, the same requests do something, or the above would prove nothing.
	for _, l := range lookups {
		if l.method == "setMember" { // it would take the administrator's own role
			continue
		}
		_, text := w.post(carrier.Path, ask(l.method, l.members(mine, w.id())+`,"protocol":`+goodOffer+`,"identity":{"jwt":"`+mine.jwt.Reveal()+`"}`))
		if !strings.Contains(text, `"response":{`) || strings.Contains(text, `"code"`) {
			t.Errorf("%s with one's own: %s", l.method, text)
		}
	}
	// A machine of a service sees nothing of either, by its caller.
	jwt := w.machineToken(theirs)
	for _, l := range lookups {
		_, text := w.post(carrier.Path, ask(l.method, l.members(theirs, w.id())+`,"protocol":`+goodOffer+`,"identity":{"jwt":"`+jwt.Reveal()+`"}`))
		if !strings.Contains(text, `"code":"`+rpc.ErrCaller.Name()+`"`) {
			t.Errorf("%s by a machine: %s", l.method, text)
		}
	}
}
