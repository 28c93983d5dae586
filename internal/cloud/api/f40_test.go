package api_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/wire/zone/cluster"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/methods"
	"github.com/allodhq/allod/wire/zone/spark"
)

// runtime is what getClusterRuntime answers, in bytes.
func (w *world) runtime(e estate) string {
	w.t.Helper()
	return content(w.t, w.done("getClusterRuntime", `"clusterId":"`+string(e.cluster)+`"`, e.jwt))
}

// phase moves a cluster, which no request does yet.
func (w *world) phase(e estate, p cluster.Phase) {
	w.t.Helper()
	w.put(func(tx store.Tx) error {
		return tx.PutRuntime(store.Runtime{Cluster: e.cluster, Phase: string(p), Generation: 7, ChangedAt: 5, ChangedBy: "controller"})
	})
}

// TestF40AnUpdateOverTheCarrierCannotReachTheRuntime: with a member of the runtime
// record in it there is no request, and without one the record stays as it is.
func TestF40AnUpdateOverTheCarrierCannotReachTheRuntime(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	if r := w.runtime(e); !strings.Contains(r, `"phase":"pallet","generation":1`) || !strings.Contains(r, `"blockers":[]`) {
		t.Errorf("a new cluster: %s", r)
	}
	w.phase(e, cluster.Draining)
	before := w.runtime(e)
	update := func(revision int, beside, within string) string {
		return fmt.Sprintf(`"clusterId":%q,"expectedRevision":%d,%s"cluster":{%s"name":"renamed"},"mutationId":%q`, e.cluster, revision, beside, within, w.id())
	}
	session := w.session(e.jwt)
	for _, member := range []string{
		`"phase":"pallet",`, `"runtime":{"phase":"pallet"},`, `"runtime":null,`, `"generation":8,`, `"changedBy":"op-a",`, `"blockers":[],`, `"Phase":"pallet",`,
		`"__proto__":{"phase":"pallet"},`, `"data":{"phase":"pallet"},`, `"relay":null,`,
	} {
		for where, members := range map[string]string{"beside": update(1, member, ""), "within": update(1, "", member)} {
			if cost := w.refuses(where+" "+member, "updateCluster", members, e.jwt, "request-schema-invalid"); cost.Transactions > 0 {
				t.Errorf("%s %s cost %+v", where, member, cost)
			}
			if text := session("updateCluster", members); !strings.Contains(text, `"code":"request-schema-invalid"`) {
				t.Errorf("%s %s over a socket: %s", where, member, text)
			}
		}
	}
	if after := w.runtime(e); after != before {
		t.Errorf("%s, before %s", after, before)
	}
	if text := w.done("getClusters", `"organizationId":"org-a","cursor":null`, e.jwt); !strings.Contains(text, `"revision":1`) || strings.Contains(text, "renamed") {
		t.Errorf("what was refused changed the cluster: %s", text)
	}
	if text := w.done("updateCluster", update(1, "", ""), e.jwt); !strings.Contains(text, `"revision":2`) || !strings.Contains(text, "renamed") {
		t.Errorf("%s", text)
	}
	if after := w.runtime(e); after != before {
		t.Errorf("after an update %s, before %s", after, before)
	}
}

// TestF40BlockersOverTheCarrier provokes and clears every blocker that something in
// this release can cause: by requests where there are such, and by the phase.
func TestF40BlockersOverTheCarrier(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	as := carrier.Proof{Token: e.jwt}
	blocked := func(when, want string) {
		t.Helper()
		if got := w.runtime(e); !strings.HasSuffix(got, `"blockers":[`+want+`]}`) && !strings.Contains(got, `"blockers":[`+want+`],`) {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	whole := `{"kind":"relay-not-enabled"},{"kind":"address-plan-missing"},{"kind":"vpn-unconfigured"}`
	for _, p := range []cluster.Phase{cluster.Swarm, cluster.Draining, cluster.Switching} {
		w.phase(e, p)
		blocked(string(p), whole)
	}
	w.phase(e, cluster.Pallet)
	blocked("pallet", "")

	node := string(e.node.id)
	tell := func(b enroll.Bearer, architecture string) {
		t.Helper()
		r := report()
		r.Host.Architecture = architecture
		if status, body := w.post(spark.Path, heartbeat(t, b, r)); status != http.StatusOK {
			t.Fatal(body)
		}
	}
	tell(e.node.spark, "riscv64")
	blocked("a machine that Pallet is not built for", `{"kind":"node-arch-unsupported","nodeId":"`+node+`"}`)
	tell(e.node.spark, "arm64")
	blocked("arm64", "")

	w.done("removeNode", `"nodeId":"`+node+`","palletOnly":true,"mutationId":"`+w.id()+`"`, e.jwt)
	blocked("a node without Pallet", `{"kind":"node-without-pallet-credential","nodeId":"`+node+`"}`)
	n := w.adopt(e.node)
	blocked("adopted", "")
	tell(n.spark, "riscv64")
	w.done("removeNode", `"nodeId":"`+node+`","palletOnly":false,"mutationId":"`+w.id()+`"`, e.jwt)
	blocked("a removed node", "")

	update := func(revision int, in string) {
		t.Helper()
		w.done("updateService", fmt.Sprintf(`"serviceId":%q,"expectedRevision":%d,"service":{"name":"n","clusterId":%s},"mutationId":%q`, e.service, revision, in, w.id()), e.jwt)
	}
	update(1, "null")
	blocked("a service of no cluster, beside one", "")
	other := must(w, w.client(), methods.CreateCluster, cluster.CreateCodec, cluster.AnswerCodec,
		cluster.Create{Organization: e.organization, Cluster: cluster.Writable{Name: "other"}, Mutation: w.mutation()}, as).Cluster.ID
	blocked("beside two", `{"kind":"service-multi-cluster-scope","serviceId":"`+string(e.service)+`"}`)
	update(2, `"`+string(other)+`"`)
	blocked("in the other one", "")
}

// adopt enrolls a node once more whose Pallet was taken away, over HTTP.
func (w *world) adopt(n node) node {
	w.t.Helper()
	p, next := w.adoption(n)
	next.id = must(w, w.client(), methods.EnrollNode, enroll.RequestCodec, enroll.ResponseCodec,
		enroll.Request{Protocol: ours, Proposal: p, Proof: enroll.BootstrapByBearer(n.spark)}, carrier.Proof{}).Acknowledgement.NodeID
	return next
}

// adoption is the proposal of a node that is there.
func (w *world) adoption(n node) (enroll.Proposal, node) {
	w.t.Helper()
	state := must(w, w.client(), methods.EnrollmentState, enroll.StateRequestCodec, enroll.StateResponseCodec, enroll.StateRequest{Protocol: ours, Bearer: n.spark}, carrier.Proof{})
	origin, err := enroll.ParseOrigin("https://controller.example.org")
	if err != nil {
		w.t.Fatal(err)
	}
	p, next := w.proposal(enroll.JoinLine{Origin: origin})
	p.BootstrapProofHash, p.NodeID = n.spark.Hash(), n.id
	p.Spark.ExpectedGeneration, p.Spark.ExpectedSessionEpoch = state.Spark.Generation, state.Spark.SessionEpoch
	return p, next
}

// TestF40ARuntimeThatIsNoneIsRefusedByTheClient: an unknown phase, and a blocker
// without its subject or with another one, are no answer to whoever asked, whoever
// sent it.
func TestF40ARuntimeThatIsNoneIsRefusedByTheClient(t *testing.T) {
	answer := ""
	hostile := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		id := strings.SplitN(strings.SplitN(string(body), `"id":"`, 2)[1], `"`, 2)[0]
		rw.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(rw, `{"method":"getClusterRuntime","request":null,"response":`+answer+`,"correlation":{"id":"`+id+`","phase":"response"}}`)
	}))
	defer hostile.Close()
	w := newWorld(t)
	e := w.estate("a")
	try := func(runtime string, phase, blocker string) error {
		answer = strings.NewReplacer(`"phase":"pallet"`, `"phase":`+phase, `"blockers":[]`, `"blockers":[`+blocker+`]`).Replace(runtime)
		_, err := call(w, carrier.NewClient(hostile.URL, http.DefaultClient, w.rand), methods.GetClusterRuntime, cluster.GetRuntimeCodec, cluster.RuntimeAnswerCodec,
			cluster.GetRuntime{Cluster: e.cluster}, carrier.Proof{Token: e.jwt})
		return err
	}
	good := w.runtime(e)
	for _, b := range []string{"", `{"kind":"relay-not-registered"}`, `{"kind":"node-arch-unsupported","nodeId":"n1"}`, `{"kind":"platform-binding-present","serviceId":"s1"}`} {
		if err := try(good, `"pallet"`, b); err != nil {
			t.Errorf("%s: %v", b, err)
		}
	}
	for _, phase := range []string{`"docker"`, `"Pallet"`, `""`, `null`, `1`} {
		if err := try(good, phase, ""); err == nil {
			t.Errorf("phase %s is taken", phase)
		}
	}
	for _, kind := range cluster.BlockerKinds() {
		right := map[cluster.Subject]string{cluster.WholeCluster: "", cluster.OneNode: `,"nodeId":"n1"`, cluster.OneService: `,"serviceId":"s1"`}
		for subject, member := range right {
			if err := try(good, `"pallet"`, `{"kind":"`+string(kind)+`"`+member+`}`); (err == nil) != (subject == kind.Subject()) {
				t.Errorf("%s with the subject %q: %v", kind, subject, err)
			}
		}
		if err := try(good, `"pallet"`, `{"kind":"`+string(kind)+`","nodeId":"n1","serviceId":"s1"}`); err == nil {
			t.Errorf("%s with both subjects is taken", kind)
		}
	}
	// What the store has and no phase is, is passed on to nobody.
	w.put(func(tx store.Tx) error {
		return tx.PutRuntime(store.Runtime{Cluster: e.cluster, Phase: "docker", Generation: 1, ChangedBy: "controller"})
	})
	if text := w.say("getClusterRuntime", `"clusterId":"`+string(e.cluster)+`"`, e.jwt); !strings.Contains(text, `"code":"internal`) || strings.Contains(text, "docker") {
		t.Errorf("%s", text)
	}
}
