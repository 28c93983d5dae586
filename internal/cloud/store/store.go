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
	ErrBounds = refusal.NewKind("zone-store-bounds", 413,
		"What was to be kept is larger than the controller keeps.",
		"Ask for less, or remove what is not needed any more.")
	ErrSetAside = refusal.NewKind("zone-store-set-aside", 500,
		"The controller's record of this cannot be read and was set aside. Everything else goes on.",
		"Look in the controller's log for the record, and put it right from a backup or make it anew.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Zone: the controller's store", Kinds: []*refusal.Kind{ErrReadOnly, ErrTaken, ErrBounds, ErrSetAside}}

// Store keeps what a controller must not forget. It is safe for concurrent use.
// What goes wrong with a store as a whole has the names of package
// internal/database, whatever the engine: ErrCancelled where ctx ended, ErrClosed,
// ErrBusy, ErrFull, ErrIO.
type Store interface {
	// Read runs fn on one snapshot and returns its error; a panic passes through.
	// Methods of tx that write return ErrReadOnly. fn must be short, and may not use
	// the store.
	Read(ctx context.Context, fn func(tx Tx) error) error
	// Write runs fn alone and commits what it wrote where it returns nil, and nothing
	// where it returns an error, which Write returns, or panics, which is database's
	// ErrPanic. It returns once the commit is durable. Where ctx ends first, fn never
	// runs; where it ends during fn, tx refuses to go on. fn must be short, and may
	// not use the store.
	Write(ctx context.Context, fn func(tx Tx) error) error
	// Close ends the store. Later calls fail.
	Close() error
}

// Tx is one transaction. It is used by its function alone, in one goroutine, and
// not after that has returned. Each get reports whether there is such a record.
// Lists are in the order of their identifiers, begin behind after ("" for the
// first), and hold at most limit ([Limit] says what an odd one means).
//
// A put keeps a whole record in the place of what was there. It returns ErrBounds
// for a record whose Check does. A put that returns ErrTaken or ErrBounds has
// changed nothing, and the transaction can go on. Empty documents come back as nil.
//
// A record that cannot be read is missing from lists, and a get returns ErrSetAside
// for it, so that nobody takes it for one that is not there.
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
	// PutMember keeps a membership; one without a role is removed. One more than
	// MaxMemberships is ErrBounds.
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
	// CredentialByHash finds a newest generation by its bearer's hash. The zero hash is
	// nobody's.
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
	// MachineByHash finds a machine by its bearer's hash. The zero hash is nobody's.
	MachineByHash(hash Hash) (Machine, bool, error)
	// PutMachine replaces the service's machine. A hash that another one has is ErrTaken.
	PutMachine(Machine) error
}

// Records are what happened.
type Records interface {
	// LoginLink finds a link by the hash of its code.
	LoginLink(code Hash) (LoginLink, bool, error)
	PutLoginLink(LoginLink) error
	// Receipt finds what was answered to a mutation of one scope.
	Receipt(scope string, id zone.MutationID) (Receipt, bool, error)
	// PutReceipt keeps a receipt until it is pruned. One of the same scope and id that
	// is there is ErrTaken.
	PutReceipt(Receipt) error
	// AppendAudit keeps an entry for ever and gives it the next Seq, from 1.
	AppendAudit(AuditEntry) error
	// Audit lists entries, newest first, below the Seq before (0 for the newest), of
	// one organization, or of all where o is "".
	Audit(o zone.OrganizationID, before int64, limit int) ([]AuditEntry, error)
	// Prune removes links and invitations that expired before t, used or not, and
	// receipts from before t: the oldest first, at most limit of each.
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
