package storecount

import (
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/wire/zone"
)

// tx names every method of a transaction itself, so that a new one does not
// compile before somebody has said whether it reads.
type tx struct {
	in store.Tx
	s  *Store
}

var _ store.Tx = (*tx)(nil)

func (t *tx) read(name string)  { t.s.note(&t.s.cost.Reads, name) }
func (t *tx) wrote(name string) { t.s.note(&t.s.cost.Writes, name) }

func (t *tx) Organization(id zone.OrganizationID) (store.Organization, bool, error) {
	t.read("Organization")
	return t.in.Organization(id)
}

func (t *tx) Organizations(after zone.OrganizationID, limit int) ([]store.Organization, error) {
	t.read("Organizations")
	return t.in.Organizations(after, limit)
}

func (t *tx) PutOrganization(v store.Organization) error {
	t.wrote("PutOrganization")
	return t.in.PutOrganization(v)
}

func (t *tx) Operator(id zone.OperatorID) (store.Operator, bool, error) {
	t.read("Operator")
	return t.in.Operator(id)
}

func (t *tx) Operators(after zone.OperatorID, limit int) ([]store.Operator, error) {
	t.read("Operators")
	return t.in.Operators(after, limit)
}

func (t *tx) PutOperator(v store.Operator) error {
	t.wrote("PutOperator")
	return t.in.PutOperator(v)
}

func (t *tx) Member(o zone.OrganizationID, p zone.OperatorID) (store.Member, bool, error) {
	t.read("Member")
	return t.in.Member(o, p)
}

func (t *tx) Members(o zone.OrganizationID, after zone.OperatorID, limit int) ([]store.Member, error) {
	t.read("Members")
	return t.in.Members(o, after, limit)
}

func (t *tx) Memberships(p zone.OperatorID) ([]store.Member, error) {
	t.read("Memberships")
	return t.in.Memberships(p)
}

func (t *tx) PutMember(v store.Member) error {
	t.wrote("PutMember")
	return t.in.PutMember(v)
}

func (t *tx) Cluster(id zone.ClusterID) (store.Cluster, bool, error) {
	t.read("Cluster")
	return t.in.Cluster(id)
}

func (t *tx) Clusters(o zone.OrganizationID, after zone.ClusterID, limit int) ([]store.Cluster, error) {
	t.read("Clusters")
	return t.in.Clusters(o, after, limit)
}

func (t *tx) PutCluster(v store.Cluster) error {
	t.wrote("PutCluster")
	return t.in.PutCluster(v)
}

func (t *tx) Runtime(id zone.ClusterID) (store.Runtime, bool, error) {
	t.read("Runtime")
	return t.in.Runtime(id)
}

func (t *tx) PutRuntime(v store.Runtime) error {
	t.wrote("PutRuntime")
	return t.in.PutRuntime(v)
}

func (t *tx) Node(id zone.NodeID) (store.Node, bool, error) {
	t.read("Node")
	return t.in.Node(id)
}

func (t *tx) Nodes(c zone.ClusterID, after zone.NodeID, limit int) ([]store.Node, error) {
	t.read("Nodes")
	return t.in.Nodes(c, after, limit)
}

func (t *tx) PutNode(v store.Node) error {
	t.wrote("PutNode")
	return t.in.PutNode(v)
}

func (t *tx) Report(id zone.NodeID) (store.Report, bool, error) {
	t.read("Report")
	return t.in.Report(id)
}

func (t *tx) PutReport(v store.Report) error {
	t.wrote("PutReport")
	return t.in.PutReport(v)
}

func (t *tx) Credential(id zone.NodeID, purpose string) (store.Credential, bool, error) {
	t.read("Credential")
	return t.in.Credential(id, purpose)
}

func (t *tx) CredentialByHash(hash store.Hash) (store.Credential, bool, error) {
	t.read("CredentialByHash")
	return t.in.CredentialByHash(hash)
}

func (t *tx) PutCredential(v store.Credential) error {
	t.wrote("PutCredential")
	return t.in.PutCredential(v)
}

func (t *tx) DeleteCredential(id zone.NodeID, purpose string) error {
	t.wrote("DeleteCredential")
	return t.in.DeleteCredential(id, purpose)
}

func (t *tx) Invitation(code store.Hash) (store.Invitation, bool, error) {
	t.read("Invitation")
	return t.in.Invitation(code)
}

func (t *tx) PutInvitation(v store.Invitation) error {
	t.wrote("PutInvitation")
	return t.in.PutInvitation(v)
}

func (t *tx) Enrollment(id string) (store.Enrollment, bool, error) {
	t.read("Enrollment")
	return t.in.Enrollment(id)
}

func (t *tx) PutEnrollment(v store.Enrollment) error {
	t.wrote("PutEnrollment")
	return t.in.PutEnrollment(v)
}

func (t *tx) Service(id zone.ServiceID) (store.Service, bool, error) {
	t.read("Service")
	return t.in.Service(id)
}

func (t *tx) Services(o zone.OrganizationID, after zone.ServiceID, limit int) ([]store.Service, error) {
	t.read("Services")
	return t.in.Services(o, after, limit)
}

func (t *tx) PutService(v store.Service) error {
	t.wrote("PutService")
	return t.in.PutService(v)
}

func (t *tx) Machine(id zone.ServiceID) (store.Machine, bool, error) {
	t.read("Machine")
	return t.in.Machine(id)
}

func (t *tx) MachineByHash(hash store.Hash) (store.Machine, bool, error) {
	t.read("MachineByHash")
	return t.in.MachineByHash(hash)
}

func (t *tx) PutMachine(v store.Machine) error {
	t.wrote("PutMachine")
	return t.in.PutMachine(v)
}

func (t *tx) LoginLink(code store.Hash) (store.LoginLink, bool, error) {
	t.read("LoginLink")
	return t.in.LoginLink(code)
}

func (t *tx) PutLoginLink(v store.LoginLink) error {
	t.wrote("PutLoginLink")
	return t.in.PutLoginLink(v)
}

func (t *tx) Receipt(scope string, id zone.MutationID) (store.Receipt, bool, error) {
	t.read("Receipt")
	return t.in.Receipt(scope, id)
}

func (t *tx) PutReceipt(v store.Receipt) error {
	t.wrote("PutReceipt")
	return t.in.PutReceipt(v)
}

func (t *tx) AppendAudit(v store.AuditEntry) error {
	t.wrote("AppendAudit")
	return t.in.AppendAudit(v)
}

func (t *tx) Audit(o zone.OrganizationID, before int64, limit int) ([]store.AuditEntry, error) {
	t.read("Audit")
	return t.in.Audit(o, before, limit)
}

func (t *tx) Prune(before zone.Millis, limit int) error {
	t.wrote("Prune")
	return t.in.Prune(before, limit)
}
