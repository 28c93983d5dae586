package store

import (
	"context"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
)

// What every store refuses.
var (
	ErrReadOnly = refusal.NewKind("zone-store-read-only", 500,
		"Something tried to change the controller's store while it only reads.",
		"Report this with the log line; nothing was changed.")
	ErrTaken = refusal.NewKind("zone-store-taken", 409,
		"What was to be made exists already.",
		"Choose another name, or look at what is there.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Zone: the controller's store", Kinds: []*refusal.Kind{ErrReadOnly, ErrTaken}}

// Store keeps what a controller must not forget. It is safe for concurrent use.
type Store interface {
	// Read runs fn on one snapshot. Methods of tx that write return ErrReadOnly.
	Read(ctx context.Context, fn func(tx Tx) error) error
	// Write runs fn alone and commits what it wrote where it returns nil, and nothing
	// where it does not. It returns once that is durable. fn must be short, and may not
	// use the store.
	Write(ctx context.Context, fn func(tx Tx) error) error
	// Close ends the store. Later calls fail.
	Close() error
}

// Tx is one transaction. It is used by its function alone, in one goroutine. Each
// get reports whether there is such a record. Lists are in the order of their
// identifiers, begin behind after ("" for the first), and hold at most limit.
type Tx interface {
	People
	Clusters
	Nodes
	Credentials
	Services
	Records
}

// People are organizations, operators and who belongs where.
type People interface {
	Organization(id zone.OrganizationID) (Organization, bool, error)
	Organizations(after zone.OrganizationID, limit int) ([]Organization, error)
	PutOrganization(Organization) error
	Operator(id zone.OperatorID) (Operator, bool, error)
	Operators(after zone.OperatorID, limit int) ([]Operator, error)
	PutOperator(Operator) error
	Member(zone.OrganizationID, zone.OperatorID) (Member, bool, error)
	// Members lists those of one organization.
	Members(o zone.OrganizationID, after zone.OperatorID, limit int) ([]Member, error)
	// Memberships lists those of one operator, at most MaxMemberships.
	Memberships(zone.OperatorID) ([]Member, error)
	// PutMember keeps a membership; one without a role is removed.
	PutMember(Member) error
}

// Clusters are clusters with what is kept beside them.
type Clusters interface {
	Cluster(id zone.ClusterID) (Cluster, bool, error)
	// Clusters lists those of one organization, or all where o is "".
	Clusters(o zone.OrganizationID, after zone.ClusterID, limit int) ([]Cluster, error)
	PutCluster(Cluster) error
	Runtime(id zone.ClusterID) (Runtime, bool, error)
	PutRuntime(Runtime) error
}

// Nodes are machines, and what they last said.
type Nodes interface {
	Node(id zone.NodeID) (Node, bool, error)
	// Nodes lists those of one cluster, or all where c is "". Removed ones are among them.
	Nodes(c zone.ClusterID, after zone.NodeID, limit int) ([]Node, error)
	PutNode(Node) error
	Report(id zone.NodeID) (Report, bool, error)
	PutReport(Report) error
}

// Credentials are the authorities of nodes, and how they come to be.
type Credentials interface {
	// Credential is the newest generation of one purpose.
	Credential(id zone.NodeID, purpose string) (Credential, bool, error)
	// CredentialByHash finds a newest generation by its bearer's hash.
	CredentialByHash(hash Hash) (Credential, bool, error)
	// PutCredential replaces the purpose's credential. A hash that another credential
	// has is ErrTaken.
	PutCredential(Credential) error
	DeleteCredential(id zone.NodeID, purpose string) error
	Invitation(code Hash) (Invitation, bool, error)
	PutInvitation(Invitation) error
	Enrollment(id string) (Enrollment, bool, error)
	// PutEnrollment keeps an enrollment for ever. An id that is there is ErrTaken.
	PutEnrollment(Enrollment) error
}

// Services are services and the machines that act for them.
type Services interface {
	Service(id zone.ServiceID) (Service, bool, error)
	// Services lists those of one organization.
	Services(o zone.OrganizationID, after zone.ServiceID, limit int) ([]Service, error)
	PutService(Service) error
	Machine(id zone.ServiceID) (Machine, bool, error)
	MachineByHash(hash Hash) (Machine, bool, error)
	PutMachine(Machine) error
}

// Records are what happened.
type Records interface {
	// LoginLink finds a link by the hash of its code.
	LoginLink(code Hash) (LoginLink, bool, error)
	PutLoginLink(LoginLink) error
	// Receipt finds what was answered to a mutation of one scope.
	Receipt(scope string, id zone.MutationID) (Receipt, bool, error)
	PutReceipt(Receipt) error
	// AppendAudit keeps an entry for ever and gives it the next Seq.
	AppendAudit(AuditEntry) error
	// Audit lists entries, newest first, below the Seq before (0 for the newest), of
	// one organization, or of all where o is "".
	Audit(o zone.OrganizationID, before int64, limit int) ([]AuditEntry, error)
	// Prune removes links, invitations and receipts that ended before t, at most limit
	// of each.
	Prune(t zone.Millis, limit int) error
}

// Bounds.
const (
	// MaxList is the longest list that one call returns.
	MaxList = 1000
	// MaxMemberships is in how many organizations an operator can be.
	MaxMemberships = 64
	// MaxDocument is the longest document in a record, in bytes.
	MaxDocument = 64 << 10
)
