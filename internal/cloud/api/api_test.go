package api_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/cloud/act"
	"github.com/allodhq/allod/internal/cloud/machine"
	"github.com/allodhq/allod/internal/cloud/nodes"
	"github.com/allodhq/allod/internal/cloud/page"
	"github.com/allodhq/allod/internal/cloud/people"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/token"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/methods"
	"github.com/allodhq/allod/wire/zone/rpc"
	"github.com/allodhq/allod/wire/zone/rpc/rpctest"
)

var registries = []refusal.Registry{act.Kinds, machine.Kinds, nodes.Kinds, page.Kinds, people.Kinds, store.Kinds, token.Kinds, who.Kinds, enroll.Kinds, carrier.Kinds, rpc.Kinds}

var ours = handshake.Ours(handshake.SparkNode)

var hash = strings.Repeat("ab", 32)

// requests is a request of each built method that its codec takes, about things
// that are not there.
var requests = map[string]string{
	"exchangeLoginLink":                `{"code":"AAAAAAAAAAAAAAAAAAAAAA"}`,
	"getIdentity":                      `{}`,
	"registerCloudlyClientSession":     `{"jwt":"` + rpctest.Token + `"}`,
	"createOrganization":               `{"organizationId":"none","name":"n","mutationId":"m"}`,
	"getOrganizations":                 `{"cursor":null}`,
	"createOperator":                   `{"operatorId":"none","name":"n","installation":false,"mutationId":"m"}`,
	"getOperators":                     `{"organizationId":"none","cursor":null}`,
	"setMember":                        `{"organizationId":"none","operatorId":"none","role":"viewer","mutationId":"m"}`,
	"disableOperator":                  `{"operatorId":"none","disabled":true,"mutationId":"m"}`,
	"endSessions":                      `{"operatorId":"none","mutationId":"m"}`,
	"getAudit":                         `{"organizationId":"none","cursor":null,"limit":5}`,
	"createLoginLink":                  `{"operatorId":"none"}`,
	"createCluster":                    `{"organizationId":"none","cluster":{"name":"n"},"mutationId":"m"}`,
	"getClusters":                      `{"organizationId":"none","cursor":null}`,
	"updateCluster":                    `{"clusterId":"none","expectedRevision":1,"cluster":{"name":"n"},"mutationId":"m"}`,
	"getClusterRuntime":                `{"clusterId":"none"}`,
	"createService":                    `{"organizationId":"none","service":{"name":"n","clusterId":null},"mutationId":"m"}`,
	"getServices":                      `{"organizationId":"none","cursor":null}`,
	"updateService":                    `{"serviceId":"none","expectedRevision":1,"service":{"name":"n","clusterId":null},"mutationId":"m"}`,
	"getServiceMachineCredential":      `{"organizationId":"none","serviceId":"none"}`,
	"mutateServiceMachineCredential":   `{"operation":"ensure","organizationId":"none","serviceId":"none","expectedGeneration":null,"grant":"platform:session","mutationId":"m"}`,
	"exchangeServiceMachineCredential": `{"bearer":"` + rpctest.Bearer + `"}`,
	"inviteNode":                       `{"clusterId":"none"}`,
	"getNodes":                         `{"clusterId":"none","cursor":null}`,
	"getNode":                          `{"nodeId":"none"}`,
	"requestNodeRotation":              `{"nodeId":"none","mutationId":"m"}`,
	"removeNode":                       `{"nodeId":"none","palletOnly":false,"mutationId":"m"}`,
	"explainNode":                      `{"nodeId":"none"}`,
	"enrollNode": `{"proposal":{"cloudlyOrigin":"https://controller.example.org","hostname":"h","enrollmentId":"e","bootstrapProofHash":"` + hash +
		`","nodeId":null,"credentials":[{"purpose":"spark","credentialHash":"` + strings.Repeat("cd", 32) + `","expectedGeneration":0,"expectedSessionEpoch":0},{"purpose":"pallet","credentialHash":"` + strings.Repeat("ef", 32) +
		`","expectedGeneration":0,"expectedSessionEpoch":0}]},"proof":{"kind":"bootstrap","value":"AAAAAAAAAAAAAAAA"}}`,
	"getNodeEnrollmentState": `{}`,
	"getNodeCredential":      `{}`,
	"rotateNodeCredential":   `{"purpose":"spark","nextCredentialHash":"` + hash + `","expectedGeneration":1,"rotationId":"r"}`,
}

// TestF03OrderOfEveryMethod judges every method of the controller by every fault.
func TestF03F06OrderOfEveryMethod(t *testing.T) {
	w := newWorld(t)
	rpctest.Order(t, rpctest.Subject{
		Registry: methods.Controller, Server: w.api.Server, Now: start,
		Request: func(m *rpc.Method) string {
			if r, ok := requests[m.Name]; ok {
				return r
			}
			return `{}`
		},
		State: func() int { return w.store.Calls() + int(w.api.Counts().Handled) },
	})
}

// TestEveryMethodIsBoundOrRefusedByName compares the table with what is there.
func TestEveryMethodIsBoundOrRefusedByName(t *testing.T) {
	w := newWorld(t)
	bound, not := 0, 0
	for m := range methods.Controller.All() {
		over := rpc.HTTP
		if m.Opens {
			over = rpc.Socket
		}
		a := w.api.Server(nobody{}).Serve(t.Context(), []byte(ask(m.Name, `"protocol":`+goodOffer)), rpc.Incoming{Carrier: over, Now: start})
		_, expected := requests[m.Name]
		if unbuilt := errors.Is(a.Err, rpc.ErrNotBuilt); unbuilt == expected {
			t.Errorf("%s: not built %v, and in the test's list %v", m.Name, unbuilt, expected)
		} else if unbuilt {
			not++
		} else {
			bound++
		}
	}
	if bound != 32 || not == 0 {
		t.Errorf("%d methods are bound and %d refused by name", bound, not)
	}
}

type nobody struct{}

func (nobody) Authenticate(context.Context, rpc.Credential) (rpc.Principal, error) {
	return rpc.Principal{}, rpc.ErrCredential
}

// TestFirstDay goes through the carrier from the first login to a report.
func TestFirstDay(t *testing.T) {
	w := newWorld(t)
	w.login(w.first)
	a, b := w.estate("a"), w.estate("b")
	if a.node.id == b.node.id || a.cluster == b.cluster {
		t.Error("two of one name")
	}
}
