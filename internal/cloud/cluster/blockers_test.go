package cluster_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	logic "github.com/allodhq/allod/internal/cloud/cluster"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/cluster"
)

// world is all that a judgement is told.
type world struct {
	logic.Facts
	nodes    []logic.NodeFacts
	services []logic.ServiceFacts
}

func (w world) judged() []cluster.Blocker {
	j := logic.Judge(w.Facts)
	for _, n := range w.nodes {
		j.Node(n)
	}
	for _, s := range w.services {
		j.Service(s)
	}
	return j.Blockers()
}

// whole is a cluster that has everything.
func whole(p cluster.Phase) world {
	return world{
		Facts: logic.Facts{
			Phase: p, Relayed: true, Registered: true, AddressPlan: true, VPN: true,
			Supported: []logic.Authority{logic.Network, logic.Secrets, logic.Storage},
		},
		nodes: []logic.NodeFacts{{ID: "n1", Pallet: true, Architecture: "amd64"}, {ID: "n2", Pallet: true, Architecture: "arm64"}},
		services: []logic.ServiceFacts{
			{ID: "s1", Clusters: 1, Needs: []logic.Authority{logic.Network, logic.Secrets, logic.Storage}}, {ID: "s2", Clusters: 1},
		},
	}
}

func TestF40EachBlockerIsProvokedAndCleared(t *testing.T) {
	everywhere := cluster.Phases()
	before := []cluster.Phase{cluster.Swarm, cluster.Draining, cluster.Switching}
	for _, c := range []struct {
		want    cluster.Blocker
		phases  []cluster.Phase // where it stands
		provoke func(w *world)
	}{
		{cluster.Blocker{Kind: "relay-not-enabled"}, before, func(w *world) { w.Relayed, w.Registered = false, false }},
		{cluster.Blocker{Kind: "relay-not-registered"}, everywhere, func(w *world) { w.Registered = false }},
		{cluster.Blocker{Kind: "address-plan-missing"}, everywhere, func(w *world) { w.AddressPlan = false }},
		{cluster.Blocker{Kind: "vpn-unconfigured"}, everywhere, func(w *world) { w.VPN = false }},
		{cluster.Blocker{Kind: "address-plan-missing"}, before, func(w *world) { w.AddressPlan, w.services[0].Needs = false, w.services[0].Needs[1:] }},
		{cluster.Blocker{Kind: "vpn-unconfigured"}, before, func(w *world) { w.VPN, w.services[0].Needs = false, w.services[0].Needs[1:] }},
		{cluster.Blocker{Kind: "node-without-pallet-credential", Node: "n2"}, everywhere, func(w *world) { w.nodes[1].Pallet = false }},
		{cluster.Blocker{Kind: "node-arch-unsupported", Node: "n1"}, everywhere, func(w *world) { w.nodes[0].Architecture = "riscv64" }},
		{cluster.Blocker{Kind: "service-multi-cluster-scope", Service: "s2"}, everywhere, func(w *world) { w.services[1].Clusters = 2 }},
		{cluster.Blocker{Kind: "service-authority-unsupported", Service: "s1"}, everywhere, func(w *world) { w.Supported = w.Supported[:2] }},
		{cluster.Blocker{Kind: "platform-binding-present", Service: "s1"}, everywhere, func(w *world) { w.services[0].Bound = true }},
	} {
		for _, p := range everywhere {
			if got := whole(p).judged(); got == nil || len(got) != 0 {
				t.Fatalf("%s: a whole cluster is blocked by %v", p, got)
			}
			w := whole(p)
			c.provoke(&w)
			want := []cluster.Blocker{}
			if slices.Contains(c.phases, p) {
				want = append(want, c.want)
			}
			if got := w.judged(); !slices.Equal(got, want) {
				t.Errorf("%s in phase %s: %v, want %v", c.want.Kind, p, got, want)
			}
		}
	}
	w := whole(cluster.Pallet)
	if w.nodes[0].Architecture = ""; len(w.judged()) != 0 {
		t.Error("a node of an architecture that nobody knows is blocked by it")
	}
}

// TestF40BlockersOfAllFacts compares with the rules, written down once more one by
// one, and holds that every blocker can be sent.
func TestF40BlockersOfAllFacts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
		authorities := rapid.SliceOfNDistinct(rapid.SampledFrom([]logic.Authority{logic.Network, logic.Secrets, logic.Storage}), 0, 3, rapid.ID)
		w := world{Facts: logic.Facts{
			Phase: rapid.SampledFrom(cluster.Phases()).Draw(t, "phase"), Relayed: flag("relayed"), Registered: flag("registered"),
			AddressPlan: flag("plan"), VPN: flag("vpn"), Supported: authorities.Draw(t, "supported"),
		}}
		for i := range rapid.IntRange(0, 3).Draw(t, "nodes") {
			w.nodes = append(w.nodes, logic.NodeFacts{
				ID: zone.NodeID(fmt.Sprintf("n%d", i)), Pallet: flag("pallet"), Architecture: rapid.SampledFrom([]string{"", "amd64", "arm64", "386"}).Draw(t, "arch"),
			})
		}
		networked := false
		for i := range rapid.IntRange(0, 3).Draw(t, "services") {
			s := logic.ServiceFacts{
				ID: zone.ServiceID(fmt.Sprintf("s%d", i)), Clusters: rapid.IntRange(1, 3).Draw(t, "clusters"), Needs: authorities.Draw(t, "needs"), Bound: flag("bound"),
			}
			networked = networked || slices.Contains(s.Needs, logic.Network)
			w.services = append(w.services, s)
		}
		var want []string
		add := func(stands bool, text string) {
			if stands {
				want = append(want, text)
			}
		}
		pallet := w.Phase == "pallet"
		add(!w.Relayed && !pallet, `{"kind":"relay-not-enabled"}`)
		add(w.Relayed && !w.Registered, `{"kind":"relay-not-registered"}`)
		add(!w.AddressPlan && (!pallet || networked), `{"kind":"address-plan-missing"}`)
		add(!w.VPN && (!pallet || networked), `{"kind":"vpn-unconfigured"}`)
		for _, n := range w.nodes {
			add(!n.Pallet, `{"kind":"node-without-pallet-credential","nodeId":"`+string(n.ID)+`"}`)
		}
		for _, n := range w.nodes {
			add(n.Architecture == "386", `{"kind":"node-arch-unsupported","nodeId":"`+string(n.ID)+`"}`)
		}
		for _, s := range w.services {
			add(s.Clusters > 1, `{"kind":"service-multi-cluster-scope","serviceId":"`+string(s.ID)+`"}`)
		}
		for _, s := range w.services {
			lacks := false
			for _, need := range s.Needs {
				lacks = lacks || !slices.Contains(w.Supported, need)
			}
			add(lacks, `{"kind":"service-authority-unsupported","serviceId":"`+string(s.ID)+`"}`)
		}
		for _, s := range w.services {
			add(s.Bound, `{"kind":"platform-binding-present","serviceId":"`+string(s.ID)+`"}`)
		}
		var got []string
		for _, b := range w.judged() {
			text, err := cluster.BlockerCodec.Append(nil, b)
			if err != nil {
				t.Fatalf("%+v cannot be sent: %v", b, err)
			}
			got = append(got, string(text))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v:\n got %q\nwant %q", w, got, want)
		}
	})
}

func TestF40AnAnswerHasAsManyBlockersAsItMay(t *testing.T) {
	j := logic.Judge(logic.Facts{Phase: cluster.Pallet})
	for i := range cluster.MaxBlockers + 10 {
		j.Node(logic.NodeFacts{ID: zone.NodeID(fmt.Sprintf("n%05d", i)), Architecture: "386"})
	}
	j.Service(logic.ServiceFacts{ID: "s1", Bound: true})
	got := j.Blockers()
	if len(got) != cluster.MaxBlockers || got[0].Node != "n00000" || got[len(got)-1] != (cluster.Blocker{Kind: cluster.NodeWithoutPalletCredential, Node: "n04095"}) {
		t.Errorf("%d blockers, the last is %v", len(got), got[len(got)-1])
	}
}
