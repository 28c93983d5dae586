package cluster

import (
	"slices"

	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/cluster"
)

// Authority is something of a node that a workload cannot run without
// (runtimeWorkloadAuthorities).
type Authority string

// The authorities.
const (
	Network Authority = "network"
	Secrets Authority = "secrets"
	Storage Authority = "storage"
)

// Facts are what is known of a cluster as a whole.
type Facts struct {
	Phase cluster.Phase
	// Relayed is whether the cluster has a relay block. Without one its nodes dial the
	// controller (F44). Registered is whether its relay is connected.
	Relayed, Registered bool
	// AddressPlan and VPN are whether there is one.
	AddressPlan, VPN bool
	// Supported are the authorities that nodes of this release can have.
	Supported []Authority
}

// NodeFacts are what is known of one node that was not removed.
type NodeFacts struct {
	ID zone.NodeID
	// Pallet is whether the node's Pallet has a credential that counts.
	Pallet bool
	// Architecture is the one that Spark reports, in Go's words, and "" before it has.
	Architecture string
}

// ServiceFacts are what is known of one service that the cluster may run.
type ServiceFacts struct {
	ID zone.ServiceID
	// Clusters is in how many clusters the service may run.
	Clusters int
	// Needs are the authorities that it cannot run without.
	Needs []Authority
	// Bound is whether something of the platform is bound to it in a way that only
	// Swarm serves.
	Bound bool
}

// Architectures are those that Pallet is built for, in Go's words.
func Architectures() []string { return []string{"amd64", "arm64"} }

// Judgement finds what keeps Pallet from running all that one cluster has (F40). It
// is fed nodes and services, each kind in the order of their identifiers, and then
// asked once. It is a function of what it was told and looks at nothing else.
//
// Before the cutover, in every phase but pallet, a blocker stands for whatever a
// cluster under Pallet can have and this one lacks. In phase pallet it stands for
// what is in use and does not work: an absent relay is a choice then and no
// blocker, and only a service that needs the network misses an address plan or a
// VPN (decision O81). A node whose architecture nobody knows yet is not blocked by
// it.
type Judgement struct {
	facts     Facts
	networked bool // a service needs the network
	found     map[cluster.BlockerKind][]cluster.Blocker
}

// Judge begins the judgement of a cluster.
func Judge(f Facts) *Judgement {
	return &Judgement{facts: f, found: map[cluster.BlockerKind][]cluster.Blocker{}}
}

// Node adds a node.
func (j *Judgement) Node(n NodeFacts) {
	j.block(!n.Pallet, cluster.Blocker{Kind: cluster.NodeWithoutPalletCredential, Node: n.ID})
	j.block(n.Architecture != "" && !slices.Contains(Architectures(), n.Architecture), cluster.Blocker{Kind: cluster.NodeArchUnsupported, Node: n.ID})
}

// Service adds a service.
func (j *Judgement) Service(s ServiceFacts) {
	lacks := func(a Authority) bool { return !slices.Contains(j.facts.Supported, a) }
	j.networked = j.networked || slices.Contains(s.Needs, Network)
	j.block(s.Clusters > 1, cluster.Blocker{Kind: cluster.ServiceMultiClusterScope, Service: s.ID})
	j.block(slices.ContainsFunc(s.Needs, lacks), cluster.Blocker{Kind: cluster.ServiceAuthorityUnsupported, Service: s.ID})
	j.block(s.Bound, cluster.Blocker{Kind: cluster.PlatformBindingPresent, Service: s.ID})
}

// Blockers are what blocks the cluster, in the contract's order of kinds and then
// in the order of the subjects, and at most [cluster.MaxBlockers]. The list is never
// nil.
func (j *Judgement) Blockers() []cluster.Blocker {
	f := j.facts
	before := f.Phase != cluster.Pallet
	j.block(before && !f.Relayed, cluster.Blocker{Kind: cluster.RelayNotEnabled})
	j.block(f.Relayed && !f.Registered, cluster.Blocker{Kind: cluster.RelayNotRegistered})
	j.block((before || j.networked) && !f.AddressPlan, cluster.Blocker{Kind: cluster.AddressPlanMissing})
	j.block((before || j.networked) && !f.VPN, cluster.Blocker{Kind: cluster.VPNUnconfigured})
	all := []cluster.Blocker{}
	for _, kind := range cluster.BlockerKinds() {
		all = append(all, j.found[kind]...)
	}
	return all[:min(len(all), cluster.MaxBlockers)]
}

// block keeps a blocker where it stands. More than an answer can name are not kept.
func (j *Judgement) block(stands bool, b cluster.Blocker) {
	if list := j.found[b.Kind]; stands && len(list) < cluster.MaxBlockers {
		j.found[b.Kind] = append(list, b)
	}
}
