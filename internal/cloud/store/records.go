package store

import (
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
)

// Hash is the SHA-256 of a bearer or of a code, which is all that is kept of one.
type Hash = canon.Sum

// Organization owns clusters and services.
type Organization struct {
	ID        zone.OrganizationID
	Name      string // for people
	CreatedAt zone.Millis
}

// Operator is a person who may ask the controller for something.
type Operator struct {
	ID   zone.OperatorID
	Name string // for people
	// Installation is whether the operator administers the whole controller, beyond
	// the organizations that they are a member of.
	Installation bool
	// Generation is in each of the operator's tokens; raising it ends them all.
	Generation int64
	Disabled   bool
	CreatedAt  zone.Millis
}

// Member is an operator's place in an organization.
type Member struct {
	Organization zone.OrganizationID
	Operator     zone.OperatorID
	Role         string // one of the contract's; "" is none
}

// LoginLink lets whoever holds its code log in as an operator, once.
type LoginLink struct {
	Code     Hash
	Operator zone.OperatorID
	// Generation is the operator's when the link was made; a link of an earlier one
	// is over, as its tokens are.
	Generation int64
	// By is the operator who made the link, and ByGeneration theirs at that time; ""
	// and 0 where nobody with a token did.
	By           zone.OperatorID
	ByGeneration int64
	CreatedAt    zone.Millis
	ExpiresAt    zone.Millis
	UsedAt       zone.Millis // 0 until then
}

// Cluster is nodes that work together.
type Cluster struct {
	ID           zone.ClusterID
	Organization zone.OrganizationID
	Name         string // for people
	Revision     int64  // from 1, one more with each change
	CreatedAt    zone.Millis
}

// Runtime is who owns the workloads of a cluster (F40). It lies beside the cluster,
// so that no change of a cluster reaches it.
type Runtime struct {
	Cluster    zone.ClusterID
	Phase      string // one of the contract's
	Generation int64  // from 1, one more with each change
	ChangedAt  zone.Millis
	ChangedBy  string
}

// Node is a machine that was admitted.
type Node struct {
	ID           zone.NodeID
	Cluster      zone.ClusterID
	Organization zone.OrganizationID // the cluster's when the node joined
	Hostname     string              // as the machine said when it joined
	JoinedAt     zone.Millis
	RemovedAt    zone.Millis // 0 while it is one
}

// Report is what Spark last said of a node, and the controller's receipt for it.
type Report struct {
	Node       zone.NodeID
	AcceptedAt zone.Millis // by the controller's clock
	Generation int64       // of the credential that it came with
	Report     []byte      // JSON, without the bearer
	Receipt    []byte      // JSON
}

// Credential is the newest generation of what one program of a node proves itself
// by (F09).
type Credential struct {
	Node       zone.NodeID
	Purpose    string // spark or pallet
	Hash       Hash
	Generation int64 // from 1, one more with each bearer
	Epoch      int64 // one more with each bearer and each registration
	State      string
	IssuedAt   zone.Millis
	ExpiresAt  zone.Millis
	// Rotate is whether an operator asked for a new bearer.
	Rotate bool
	// Request is the digest of the request that made this generation by rotation, and
	// Receipt the answer to it; empty for one that was enrolled.
	Request Hash
	Receipt []byte
}

// Invitation lets whoever holds its code make a machine a node, once.
type Invitation struct {
	Code       Hash
	Cluster    zone.ClusterID
	CreatedBy  string
	CreatedAt  zone.Millis
	ExpiresAt  zone.Millis
	Enrollment string // that used it, "" until then
}

// Enrollment is the evidence that a proposal was committed.
type Enrollment struct {
	ID          string
	Digest      canon.Sum
	Node        zone.NodeID
	Proposal    []byte // JSON
	Answer      []byte // the acknowledgement, JSON, byte for byte as it was sent
	CommittedAt zone.Millis
}

// Service is what an organization runs.
type Service struct {
	ID           zone.ServiceID
	Organization zone.OrganizationID
	Cluster      zone.ClusterID // "" for none yet
	Name         string         // for people
	Revision     int64
	CreatedAt    zone.Millis
}

// Machine is the authority of programs that act for a service (F14).
type Machine struct {
	Service      zone.ServiceID
	Organization zone.OrganizationID // the service's when it was made
	Hash         Hash                // of the bearer of this generation; zero once revoked
	Generation   int64
	Grant        string
	State        string
	ChangedAt    zone.Millis
}

// Receipt is what was answered to a mutation, for whoever asks again (F07).
type Receipt struct {
	Scope  string // whose mutation ids these are: an organization's, or the installation's
	ID     zone.MutationID
	Input  canon.Sum // of the method and the whole request
	Answer []byte    // JSON, without secrets
	At     zone.Millis
}

// AuditEntry is one act of an operator, or of the controller itself.
type AuditEntry struct {
	Seq          int64
	At           zone.Millis
	Actor        string              // an operator's id, "local" for whoever has the data folder, or "controller"
	Organization zone.OrganizationID // "" for the installation
	Action       string              // the method's name, or what the controller did by itself
	Subject      string              // kind and id, as in node/a7
	Detail       string              // JSON, without secrets; may be ""
}
