package nodes

import (
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/internal/codec"
	"github.com/allodhq/allod/wire/zone/internal/member"
	"github.com/allodhq/allod/wire/zone/spark"
)

// The methods about nodes.
const (
	MethodInvite = "inviteNode"
	MethodList   = "getNodes"
	MethodGet    = "getNode"
	MethodRotate = "requestNodeRotation"
	MethodRemove = "removeNode"
	MethodWhy    = "explainNode"
)

// State says when a node was last heard of.
type State string

// The states of a node.
const (
	NeverSeen State = "never-seen" // it joined and has not reported
	Online    State = "online"
	Late      State = "late" // some reports are missing
	Lost      State = "lost" // nothing was heard for a long time
	Removed   State = "removed"
)

var states = []State{NeverSeen, Online, Late, Lost, Removed}

// Liveness is a state with its age: how long ago that was which made it so, in
// milliseconds by the controller's clock. For a node that never reported it is the
// time since it joined, for a removed one since then, else since its last report.
type Liveness struct {
	State State
	Age   int64 // milliseconds, at least 0
}

// Seen is a node's last report, and when the controller took it.
type Seen struct {
	AcceptedAt zone.Millis
	Report     spark.Report
}

// Node is a machine as the controller shows it (IClusterNode).
type Node struct {
	ID           zone.NodeID
	Cluster      zone.ClusterID
	Organization zone.OrganizationID
	// Hostname is as the machine said when it joined.
	Hostname  string
	JoinedAt  zone.Millis
	RemovedAt zone.Millis // 0, and null in messages, while it is one
	Liveness  Liveness
	// Seen is nil, and null in messages, until it reports.
	Seen *Seen
	// Credentials are what it has of Spark's and Pallet's, in this order.
	Credentials []enroll.Metadata
}

// Invite asks for a join line for one machine.
type Invite struct{ Cluster zone.ClusterID }

// Invitation is the answer. The line is a secret until it is used or has expired,
// so there is no receipt: whoever lost the answer asks for another line.
type Invitation struct {
	Line      zone.Secret
	ExpiresAt zone.Millis
}

// List asks for the nodes of a cluster, or of all where Cluster is "".
type List struct {
	Cluster zone.ClusterID
	Cursor  zone.Cursor
}

// Page is at most [zone.MaxPage] nodes, in the order of their identifiers.
type Page struct {
	Nodes []Node
	Next  zone.Cursor
}

// Get asks for one node.
type Get struct{ Node zone.NodeID }

// Rotate asks for new credentials of both programs of a node, which they make when
// they next ask.
type Rotate struct {
	Node     zone.NodeID
	Mutation zone.MutationID
}

// Remove ends a node's authority, at once and for good.
type Remove struct {
	Node zone.NodeID
	// PalletOnly keeps Spark's authority, so that the node can adopt a new Pallet.
	PalletOnly bool
	Mutation   zone.MutationID
}

// Answer is a node as it is after a change, or now.
type Answer struct{ Node Node }

// Finding is one thing that makes a node what it is.
type Finding struct {
	Name     string // as in report-late, unique among findings
	Sentence string // for people: what it means, and the way out
}

// Explanation is the answer of explainNode: the node, and what was found about it.
// Nothing found means that all is well.
type Explanation struct {
	Node     Node
	Findings []Finding
}

// MaxFindings is how many findings an explanation has at most.
const MaxFindings = 32

// Codec is the object of a node.
var Codec zone.Codec[Node] = codec.Of(func(o *exact.Object, n *Node) {
	member.ID(o, "id", &n.ID)
	member.ID(o, "clusterId", &n.Cluster)
	member.ID(o, "organizationId", &n.Organization)
	exact.Spelled(o, "hostname", &n.Hostname, enroll.MaxHostname, "a host name of letters, digits and . - _ between them", enroll.ValidHostname)
	member.Millis(o, "joinedAt", &n.JoinedAt)
	member.OrNull(o, "removedAt", &n.RemovedAt, member.Millis)
	exact.Sub(o, "liveness", &n.Liveness, exact.Shape[Liveness]{Fields: func(o *exact.Object, l *Liveness) {
		exact.Word(o, "state", &l.State, states)
		member.Counter(o, "ageMs", &l.Age)
	}})
	member.OrNull(o, "seen", &n.Seen, func(o *exact.Object, name string, p **Seen) {
		if *p == nil {
			*p = new(Seen)
		}
		exact.Sub(o, name, *p, exact.Shape[Seen]{Fields: func(o *exact.Object, s *Seen) {
			member.Millis(o, "acceptedAt", &s.AcceptedAt)
			exact.Sub(o, "report", &s.Report, codec.Shape(spark.ReportCodec))
		}})
	})
	exact.List(o, "credentials", &n.Credentials, 0, 2, codec.Shape(enroll.MetadataCodec))
})

// InviteCodec is the request of inviteNode.
var InviteCodec zone.Codec[Invite] = codec.Of(func(o *exact.Object, i *Invite) { member.ID(o, "clusterId", &i.Cluster) })

// InvitationCodec is the answer of inviteNode.
var InvitationCodec zone.Codec[Invitation] = codec.Of(func(o *exact.Object, i *Invitation) {
	member.Secret(o, "line", &i.Line, enroll.MaxJoinLine, "a join line", func(s string) bool {
		_, err := enroll.ParseJoinLine(s)
		return err == nil
	})
	member.Millis(o, "expiresAt", &i.ExpiresAt)
})

// ListCodec is the request of getNodes.
var ListCodec zone.Codec[List] = codec.Of(func(o *exact.Object, l *List) {
	member.OrNull(o, "clusterId", &l.Cluster, member.ID)
	member.Cursor(o, "cursor", &l.Cursor)
})

// PageCodec is the answer of getNodes.
var PageCodec zone.Codec[Page] = codec.Of(func(o *exact.Object, p *Page) {
	exact.List(o, "nodes", &p.Nodes, 0, zone.MaxPage, codec.Shape(Codec))
	member.Cursor(o, "nextCursor", &p.Next)
})

// GetCodec is the request of getNode and of explainNode.
var GetCodec zone.Codec[Get] = codec.Of(func(o *exact.Object, g *Get) { member.ID(o, "nodeId", &g.Node) })

// RotateCodec is the request of requestNodeRotation.
var RotateCodec zone.Codec[Rotate] = codec.Of(func(o *exact.Object, r *Rotate) {
	member.ID(o, "nodeId", &r.Node)
	member.ID(o, "mutationId", &r.Mutation)
})

// RemoveCodec is the request of removeNode.
var RemoveCodec zone.Codec[Remove] = codec.Of(func(o *exact.Object, r *Remove) {
	member.ID(o, "nodeId", &r.Node)
	exact.Bool(o, "palletOnly", &r.PalletOnly)
	member.ID(o, "mutationId", &r.Mutation)
})

// AnswerCodec is the answer of getNode, requestNodeRotation and removeNode.
var AnswerCodec zone.Codec[Answer] = codec.Of(func(o *exact.Object, a *Answer) {
	exact.Sub(o, "node", &a.Node, codec.Shape(Codec))
})

// ExplanationCodec is the answer of explainNode.
var ExplanationCodec zone.Codec[Explanation] = codec.Of(func(o *exact.Object, e *Explanation) {
	exact.Sub(o, "node", &e.Node, codec.Shape(Codec))
	exact.List(o, "findings", &e.Findings, 0, MaxFindings, exact.Shape[Finding]{Fields: func(o *exact.Object, f *Finding) {
		member.ID(o, "name", &f.Name)
		member.Text(o, "sentence", &f.Sentence)
	}})
})

// Input is the digest of the method and the whole request, for its mutation id.
func (r Rotate) Input() (canon.Sum, error) { return member.Input(MethodRotate, RotateCodec, r) }

// Input is the digest of the method and the whole request, for its mutation id.
func (r Remove) Input() (canon.Sum, error) { return member.Input(MethodRemove, RemoveCodec, r) }
