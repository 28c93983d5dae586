package cluster

import (
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/internal/codec"
	"github.com/allodhq/allod/wire/zone/internal/member"
)

// Phase is who owns the workloads of a cluster (TClusterRuntimePhase).
type Phase string

// The phases. There are no others.
const (
	Swarm     Phase = "swarm"
	Draining  Phase = "draining"
	Switching Phase = "switching"
	Pallet    Phase = "pallet"
)

// Phases are all phases, in the order of a cutover.
func Phases() []Phase { return []Phase{Swarm, Draining, Switching, Pallet} }

// Runtime is the record of who owns the workloads of a cluster (IClusterRuntime).
// It lies beside the cluster: no update of a cluster reaches it.
type Runtime struct {
	ID         zone.ClusterID // the cluster's
	Phase      Phase
	Generation int64 // from 1; whoever moves the phase names the one they read
	ChangedAt  zone.Millis
	ChangedBy  string // as in the audit log
}

// RuntimeCodec is the object of a runtime record. Its Read is the contract's
// snapshotClusterRuntime.
var RuntimeCodec zone.Codec[Runtime] = codec.Of(func(o *exact.Object, r *Runtime) {
	member.ID(o, "id", &r.ID)
	exact.Word(o, "phase", &r.Phase, Phases())
	revision(o, "generation", &r.Generation)
	member.Millis(o, "changedAt", &r.ChangedAt)
	member.Text(o, "changedBy", &r.ChangedBy)
})

// BlockerKind is the name of a blocker (TClusterRuntimeBlocker).
type BlockerKind string

// The blockers of a whole cluster.
const (
	RelayNotEnabled    BlockerKind = "relay-not-enabled"
	RelayNotRegistered BlockerKind = "relay-not-registered"
	AddressPlanMissing BlockerKind = "address-plan-missing"
	VPNUnconfigured    BlockerKind = "vpn-unconfigured"
)

// The blockers of one node.
const (
	NodeWithoutPalletCredential BlockerKind = "node-without-pallet-credential"
	NodeArchUnsupported         BlockerKind = "node-arch-unsupported"
)

// The blockers of one service.
const (
	ServiceMultiClusterScope    BlockerKind = "service-multi-cluster-scope"
	ServiceAuthorityUnsupported BlockerKind = "service-authority-unsupported"
	PlatformBindingPresent      BlockerKind = "platform-binding-present"
)

// BlockerKinds are all nine, in the contract's order.
func BlockerKinds() []BlockerKind {
	return []BlockerKind{
		RelayNotEnabled, RelayNotRegistered, AddressPlanMissing, VPNUnconfigured,
		NodeWithoutPalletCredential, NodeArchUnsupported,
		ServiceMultiClusterScope, ServiceAuthorityUnsupported, PlatformBindingPresent,
	}
}

// Subject is what a blocker is about.
type Subject string

// The subjects.
const (
	WholeCluster Subject = "cluster"
	OneNode      Subject = "node"
	OneService   Subject = "service"
)

// Subject is what a blocker of this kind is about, and "" for no kind.
func (k BlockerKind) Subject() Subject {
	switch k {
	case RelayNotEnabled, RelayNotRegistered, AddressPlanMissing, VPNUnconfigured:
		return WholeCluster
	case NodeWithoutPalletCredential, NodeArchUnsupported:
		return OneNode
	case ServiceMultiClusterScope, ServiceAuthorityUnsupported, PlatformBindingPresent:
		return OneService
	}
	return ""
}

// Blocker is one thing that keeps Pallet from running all that a cluster has. It
// names the node or the service where its kind is about one, and neither else.
type Blocker struct {
	Kind    BlockerKind
	Node    zone.NodeID
	Service zone.ServiceID
}

// BlockerCodec is the object of a blocker: its kind, and exactly the subject that
// the kind has.
var BlockerCodec zone.Codec[Blocker] = codec.Of(func(o *exact.Object, b *Blocker) {
	exact.Word(o, "kind", &b.Kind, BlockerKinds())
	subject := b.Kind.Subject()
	if o.Writing() && (b.Node != "" && subject != OneNode || b.Service != "" && subject != OneService) {
		o.Fail(exact.ErrUnknown, "")
	}
	switch subject {
	case OneNode:
		member.ID(o, "nodeId", &b.Node)
	case OneService:
		member.ID(o, "serviceId", &b.Service)
	}
})

// MaxBlockers is how many blockers one answer names: the first ones, in the order
// of their kinds and then of their subjects.
const MaxBlockers = 4096

// GetRuntime asks for a cluster's runtime record and what blocks it.
type GetRuntime struct{ Cluster zone.ClusterID }

// RuntimeAnswer is the record, and the blockers as they are at this moment.
type RuntimeAnswer struct {
	Runtime  Runtime
	Blockers []Blocker // at most MaxBlockers; none means that nothing blocks
}

// GetRuntimeCodec is the request of getClusterRuntime.
var GetRuntimeCodec zone.Codec[GetRuntime] = codec.Of(func(o *exact.Object, g *GetRuntime) {
	member.ID(o, "clusterId", &g.Cluster)
})

// RuntimeAnswerCodec is the answer of getClusterRuntime.
var RuntimeAnswerCodec zone.Codec[RuntimeAnswer] = codec.Of(func(o *exact.Object, a *RuntimeAnswer) {
	exact.Sub(o, "runtime", &a.Runtime, codec.Shape(RuntimeCodec))
	exact.List(o, "blockers", &a.Blockers, 0, MaxBlockers, codec.Shape(BlockerCodec))
})
