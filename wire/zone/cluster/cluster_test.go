package cluster_test

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/allodhq/allod/test/zonetest"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/cluster"
)

func TestF04MessagesAreExact(t *testing.T) {
	const (
		one     = `{"id":"c1","organizationId":"org","revision":1,"createdAt":1000,"data":{"name":"Küche"}}`
		service = `{"id":"s1","organizationId":"org","revision":2,"createdAt":1000,"data":{"name":"shop","clusterId":"c1"}}`
		nowhere = `{"id":"s1","organizationId":"org","revision":2,"createdAt":1000,"data":{"name":"shop","clusterId":null}}`
		record  = `{"id":"c1","phase":"pallet","generation":1,"changedAt":1000,"changedBy":"anna"}`
	)
	zonetest.Exact(t, cluster.Codec, one)
	zonetest.Exact(t, cluster.CreateCodec, `{"organizationId":"org","cluster":{"name":"a"},"mutationId":"m1"}`)
	zonetest.Exact(t, cluster.UpdateCodec, `{"clusterId":"c1","expectedRevision":3,"cluster":{"name":"a"},"mutationId":"m1"}`)
	zonetest.Exact(t, cluster.AnswerCodec, `{"cluster":`+one+`,"replayed":false}`)
	zonetest.Exact(t, cluster.ListCodec, `{"organizationId":"org","cursor":"YQ"}`, `{"organizationId":"org","cursor":null}`)
	zonetest.Exact(t, cluster.PageCodec, `{"clusters":[`+one+`],"nextCursor":"YQ"}`, `{"clusters":[`+one+`],"nextCursor":null}`)
	zonetest.Exact(t, cluster.RuntimeCodec, record)
	zonetest.Exact(t, cluster.GetRuntimeCodec, `{"clusterId":"c1"}`)
	zonetest.Exact(t, cluster.RuntimeAnswerCodec, `{"runtime":`+record+`,"blockers":[{"kind":"vpn-unconfigured"},{"kind":"node-arch-unsupported","nodeId":"n1"},{"kind":"platform-binding-present","serviceId":"s1"}]}`)
	zonetest.Exact(t, cluster.ServiceCodec, service, nowhere)
	zonetest.Exact(t, cluster.CreateServiceCodec, `{"organizationId":"org","service":{"name":"a","clusterId":null},"mutationId":"m1"}`, `{"organizationId":"org","service":{"name":"a","clusterId":"c1"},"mutationId":"m1"}`)
	zonetest.Exact(t, cluster.UpdateServiceCodec, `{"serviceId":"s1","expectedRevision":3,"service":{"name":"a","clusterId":"c1"},"mutationId":"m1"}`, `{"serviceId":"s1","expectedRevision":3,"service":{"name":"a","clusterId":null},"mutationId":"m1"}`)
	zonetest.Exact(t, cluster.ServiceAnswerCodec, `{"service":`+service+`,"replayed":true}`, `{"service":`+nowhere+`,"replayed":false}`)
	zonetest.Exact(t, cluster.ListServicesCodec, `{"organizationId":"org","cursor":null}`, `{"organizationId":"org","cursor":"YQ"}`)
	zonetest.Exact(t, cluster.ServicePageCodec, `{"services":[`+service+`,`+nowhere+`],"nextCursor":null}`, `{"services":[`+service+`],"nextCursor":"YQ"}`)
}

func TestF40UnknownPhaseIsRefused(t *testing.T) {
	for _, c := range []struct {
		phase string
		taken bool
	}{
		{"swarm", true}, {"draining", true}, {"switching", true}, {"pallet", true},
		{"", false}, {"Pallet", false}, {"pallets", false}, {"drained", false},
	} {
		src := []byte(`{"id":"c1","phase":"` + c.phase + `","generation":1,"changedAt":1,"changedBy":"anna"}`)
		if _, err := cluster.RuntimeCodec.Read(src); (err == nil) != c.taken {
			t.Errorf("%q: %v", c.phase, err)
		}
		if reasons := cluster.RuntimeCodec.Reasons(src, "runtime"); c.taken != (len(reasons) == 0) || !c.taken && reasons[0] != "runtime.phase must be one of the contract's words" {
			t.Errorf("%q: %q", c.phase, reasons)
		}
	}
	if _, err := cluster.RuntimeCodec.Append(nil, cluster.Runtime{ID: "c1", Phase: "drained", Generation: 1, ChangedBy: "anna"}); err == nil {
		t.Error("an unknown phase is written")
	}
	if _, err := cluster.RuntimeCodec.Read([]byte(`{"id":"c1","phase":"pallet","generation":0,"changedAt":1,"changedBy":"anna"}`)); err == nil {
		t.Error("generation 0 is taken")
	}
}

// The names and their subjects, written down from the contract's vocabulary.
var subjects = []struct{ kind, subject string }{
	{"relay-not-enabled", ""}, {"relay-not-registered", ""}, {"address-plan-missing", ""}, {"vpn-unconfigured", ""},
	{"node-without-pallet-credential", "nodeId"}, {"node-arch-unsupported", "nodeId"},
	{"service-multi-cluster-scope", "serviceId"}, {"service-authority-unsupported", "serviceId"}, {"platform-binding-present", "serviceId"},
}

func TestF40BlockerWithAWrongOrMissingSubjectIsRefused(t *testing.T) {
	bodies := map[string]string{ // by the only subject that they fit
		"":          ``,
		"nodeId":    `,"nodeId":"n1"`,
		"serviceId": `,"serviceId":"s1"`,
		"both":      `,"nodeId":"n1","serviceId":"s1"`,
		"null":      `,"nodeId":null`,
		"malformed": `,"serviceId":"S/1"`,
		"empty":     `,"nodeId":""`,
		"cluster":   `,"clusterId":"c1"`,
	}
	for _, k := range subjects {
		for fits, rest := range bodies {
			src := []byte(`{"kind":"` + k.kind + `"` + rest + `}`)
			b, err := cluster.BlockerCodec.Read(src)
			if taken := fits == k.subject; (err == nil) != taken || (len(cluster.BlockerCodec.Reasons(src, "")) == 0) != taken {
				t.Errorf("%s: %v", src, err)
			}
			if err != nil {
				continue
			}
			if again, err := cluster.BlockerCodec.Append(nil, b); err != nil || string(again) != string(src) {
				t.Errorf("%s is written as %s, %v", src, again, err)
			}
		}
	}
	for _, src := range []string{`{"kind":"relay-down"}`, `{}`, `{"nodeId":"n1"}`, `{"Kind":"vpn-unconfigured"}`} {
		if _, err := cluster.BlockerCodec.Read([]byte(src)); err == nil {
			t.Errorf("%s is taken", src)
		}
	}
	for _, b := range []cluster.Blocker{
		{}, {Kind: cluster.VPNUnconfigured, Node: "n1"}, {Kind: cluster.NodeArchUnsupported}, {Kind: cluster.NodeArchUnsupported, Service: "s1"},
		{Kind: cluster.NodeArchUnsupported, Node: "n1", Service: "s1"}, {Kind: cluster.PlatformBindingPresent, Node: "n1"},
	} {
		if text, err := cluster.BlockerCodec.Append(nil, b); err == nil {
			t.Errorf("%+v is written as %s", b, text)
		}
	}
	var names []string
	for _, k := range cluster.BlockerKinds() {
		names = append(names, string(k))
	}
	if !slices.EqualFunc(subjects, names, func(k struct{ kind, subject string }, name string) bool { return k.kind == name }) {
		t.Errorf("the kinds are %q", names)
	}
}

// TestF40TheLargestAnswerFits holds that an answer with as many blockers as it may
// have, each as long as it can be, is within the bounds of a message.
func TestF40TheLargestAnswerFits(t *testing.T) {
	id := zone.NodeID("n" + strings.Repeat("x", zone.MaxID-1))
	a := cluster.RuntimeAnswer{Runtime: cluster.Runtime{ID: "c1", Phase: cluster.Pallet, Generation: 1, ChangedBy: strings.Repeat("\x01", zone.MaxText)}}
	a.Blockers = slices.Repeat([]cluster.Blocker{{Kind: cluster.NodeWithoutPalletCredential, Node: id}}, cluster.MaxBlockers)
	src, err := cluster.RuntimeAnswerCodec.Append(nil, a)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.RuntimeAnswerCodec.Read(src); err != nil {
		t.Errorf("%d bytes: %v", len(src), err)
	}
	if a.Blockers = append(a.Blockers, a.Blockers[0]); true {
		if _, err := cluster.RuntimeAnswerCodec.Append(nil, a); err == nil {
			t.Error("more blockers than there may be are written")
		}
	}
}

func TestF68OwnershipIsNoPartOfServiceData(t *testing.T) {
	for name, src := range map[string]string{
		"missing":               `{"service":{"name":"a","clusterId":null},"mutationId":"m1"}`,
		"null":                  `{"organizationId":null,"service":{"name":"a","clusterId":null},"mutationId":"m1"}`,
		"smuggled":              `{"service":{"name":"a","clusterId":null,"organizationId":"org"},"mutationId":"m1"}`,
		"smuggled beside it":    `{"organizationId":"org","service":{"name":"a","clusterId":null,"organizationId":"other"},"mutationId":"m1"}`,
		"an owner":              `{"organizationId":"org","service":{"name":"a","clusterId":null,"ownership":{"organizationId":"other"}},"mutationId":"m1"}`,
		"malformed":             `{"organizationId":"Org/1","service":{"name":"a","clusterId":null},"mutationId":"m1"}`,
		"empty":                 `{"organizationId":"","service":{"name":"a","clusterId":null},"mutationId":"m1"}`,
		"twice":                 `{"organizationId":"org","organizationId":"other","service":{"name":"a","clusterId":null},"mutationId":"m1"}`,
		"a cluster, left out":   `{"organizationId":"org","service":{"name":"a"},"mutationId":"m1"}`,
		"a cluster of no name":  `{"organizationId":"org","service":{"name":"a","clusterId":""},"mutationId":"m1"}`,
		"a revision in advance": `{"organizationId":"org","service":{"name":"a","clusterId":null,"revision":9},"mutationId":"m1"}`,
	} {
		if r, err := cluster.CreateServiceCodec.Read([]byte(src)); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestF68OrganizationIDs(t *testing.T) {
	for id, ok := range map[string]bool{
		"a": true, "org-1": true, "a.b_c": true, strings.Repeat("a", 128): true,
		"": false, "A": false, "-a": false, "a-": false, "a b": false, "a/b": false, strings.Repeat("a", 129): false, "é": false, "a\x00": false,
	} {
		reasons := cluster.ValidateOrganizationID(id, "")
		if (len(reasons) == 0) != ok || !ok && !strings.HasPrefix(reasons[0], "value must be ") {
			t.Errorf("%q: %q", id, reasons)
		}
		if id != "" && strings.Contains(strings.Join(reasons, " "), id) && len(id) > 3 {
			t.Errorf("%q is in its own reasons", id)
		}
	}
	if reasons := cluster.ValidateOrganizationID("A", "request.organizationId"); len(reasons) != 1 || !strings.HasPrefix(reasons[0], "request.organizationId must be ") {
		t.Errorf("%q", reasons)
	}
}

func TestF77ServerManagedMembersAreRefused(t *testing.T) {
	for _, extra := range []string{
		`"id":"c2"`, `"organizationId":"other"`, `"revision":9`, `"createdAt":1`, `"relay":{"origin":"https://relay.example"}`, `"relay":null`,
		`"runtime":{"id":"c1","phase":"swarm","generation":2,"changedAt":1,"changedBy":"x"}`, `"phase":"swarm"`,
	} {
		for _, src := range []string{
			`{"clusterId":"c1","expectedRevision":1,"cluster":{"name":"a",` + extra + `},"mutationId":"m1"}`,
			`{"clusterId":"c1","expectedRevision":1,"cluster":{"name":"a"},"mutationId":"m1",` + extra + `}`,
		} {
			if _, err := cluster.UpdateCodec.Read([]byte(src)); err == nil {
				t.Errorf("taken: %s", src)
			}
		}
	}
}

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "Küche im 2. Stock": true, strings.Repeat("a", 200): true, "👩‍🔧": true,
		"": false, strings.Repeat("a", 201): false, "a\\u001b[31m": false, "a\\n": false, "\\u0085": false, "a\\u2028b": false,
	} {
		_, err := cluster.WritableCodec.Read([]byte(`{"name":"` + name + `"}`))
		if (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestF07InputDigests computes the digests in another way: of canonical text that
// was written by hand.
func TestF07InputDigests(t *testing.T) {
	sum := func(text string) string {
		s := sha256.Sum256([]byte("serve.zone/mutation\x00" + text))
		return hex.EncodeToString(s[:])
	}
	for _, c := range []struct {
		input interface{ String() string }
		want  string
	}{
		{must(cluster.Create{Organization: "org", Cluster: cluster.Writable{Name: "a"}, Mutation: "m1"}.Input()),
			`{"method":"createCluster","request":{"cluster":{"name":"a"},"mutationId":"m1","organizationId":"org"}}`},
		{must(cluster.Update{Cluster: "c1", Expected: 3, Data: cluster.Writable{Name: "a"}, Mutation: "m1"}.Input()),
			`{"method":"updateCluster","request":{"cluster":{"name":"a"},"clusterId":"c1","expectedRevision":3,"mutationId":"m1"}}`},
		{must(cluster.CreateService{Organization: "org", Service: cluster.WritableService{Name: "a"}, Mutation: "m1"}.Input()),
			`{"method":"createService","request":{"mutationId":"m1","organizationId":"org","service":{"clusterId":null,"name":"a"}}}`},
		{must(cluster.UpdateService{Service: "s1", Expected: 3, Data: cluster.WritableService{Name: "a", Cluster: "c1"}, Mutation: "m1"}.Input()),
			`{"method":"updateService","request":{"expectedRevision":3,"mutationId":"m1","service":{"clusterId":"c1","name":"a"},"serviceId":"s1"}}`},
	} {
		if got := c.input.String(); got != sum(c.want) {
			t.Errorf("%s: %s", c.want, got)
		}
	}
	if _, err := (cluster.Create{Organization: "Org", Cluster: cluster.Writable{Name: "a"}, Mutation: "m1"}).Input(); err == nil {
		t.Error("a request that cannot be sent has a digest")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func FuzzRuntimeAnswer(f *testing.F) {
	f.Add([]byte(`{"runtime":{"id":"c1","phase":"pallet","generation":1,"changedAt":1000,"changedBy":"anna"},"blockers":[{"kind":"vpn-unconfigured"},{"kind":"node-arch-unsupported","nodeId":"n1"}]}`))
	f.Fuzz(func(t *testing.T, src []byte) { stable(t, cluster.RuntimeAnswerCodec, src) })
}

func FuzzCreateService(f *testing.F) {
	f.Add([]byte(`{"organizationId":"org","service":{"name":"a","clusterId":null},"mutationId":"m1"}`))
	f.Fuzz(func(t *testing.T, src []byte) { stable(t, cluster.CreateServiceCodec, src) })
}

// stable holds that what is read is written, and read again as the same.
func stable[T any](t *testing.T, c zone.Codec[T], src []byte) {
	v, err := c.Read(src)
	if (err == nil) != (len(c.Reasons(src, "")) == 0) {
		t.Fatalf("%v, and %q", err, c.Reasons(src, ""))
	}
	if err != nil {
		return
	}
	once, err := c.Append(nil, v)
	if err != nil {
		t.Fatalf("what was read is not written: %v", err)
	}
	again, err := c.Read(once)
	if err != nil {
		t.Fatal(err)
	}
	if twice, _ := c.Append(nil, again); string(twice) != string(once) {
		t.Fatalf("%s and %s", once, twice)
	}
}

// TestF06NamesDoNotReorderALine is a name of one organization that an administrator of
// the installation lists beside all others.
func TestF06NamesDoNotReorderALine(t *testing.T) {
	for _, bad := range []string{"a\u202eb", "a\u2066b", "a\u200bb", "a\u061cb", "a\ufeffb", "a\u00adb", "a\ue000b", "a\u2028b", "a\x1bb", "a\u0085b"} {
		if _, err := cluster.WritableCodec.Append(nil, cluster.Writable{Name: bad}); err == nil {
			t.Errorf("a cluster may be called %+q", bad)
		}
		if _, err := cluster.WritableServiceCodec.Append(nil, cluster.WritableService{Name: bad}); err == nil {
			t.Errorf("a service may be called %+q", bad)
		}
	}
	for _, good := range []string{"Bücherei №2", "東京", "مكتب", "a b"} {
		if _, err := cluster.WritableCodec.Append(nil, cluster.Writable{Name: good}); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}
