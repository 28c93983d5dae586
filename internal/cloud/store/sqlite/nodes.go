package sqlite

import (
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/wire/zone"
)

var nodes = &table[store.Node]{
	what: "node",
	into: func(v *store.Node) []any {
		return []any{&v.ID, &v.Cluster, &v.Organization, &v.Hostname, &v.JoinedAt, &v.RemovedAt}
	},
	name: func(v *store.Node) string { return string(v.ID) },
}

const (
	nodeColumns = `SELECT id, cluster, organization, hostname, joined_at, removed_at FROM nodes `
	nodeGet     = nodeColumns + `WHERE id = ?`
	nodeAll     = nodeColumns + `WHERE id > ? ORDER BY id`
	nodeList    = nodeColumns + `WHERE cluster = ? AND id > ? ORDER BY id`
	nodePut     = `INSERT INTO nodes (id, cluster, organization, hostname, joined_at, removed_at) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET cluster = excluded.cluster, organization = excluded.organization,
		hostname = excluded.hostname, joined_at = excluded.joined_at, removed_at = excluded.removed_at`
)

func (t *tx) Node(id zone.NodeID) (store.Node, bool, error) { return one(t, nodes, nodeGet, id) }

func (t *tx) Nodes(c zone.ClusterID, after zone.NodeID, limit int) ([]store.Node, error) {
	if c == "" {
		return list(t, nodes, limit, nodeAll, after)
	}
	return list(t, nodes, limit, nodeList, c, after)
}

func (t *tx) PutNode(n store.Node) error {
	return t.put(n.Check(), nodePut, n.ID, n.Cluster, n.Organization, n.Hostname, n.JoinedAt, n.RemovedAt)
}

var reports = &table[store.Report]{
	what: "report",
	into: func(v *store.Report) []any {
		return []any{&v.Node, &v.AcceptedAt, &v.Generation, (*document)(&v.Report), (*document)(&v.Receipt)}
	},
	name: func(v *store.Report) string { return string(v.Node) },
}

const (
	reportGet = `SELECT node, accepted_at, generation, report, receipt FROM reports WHERE node = ?`
	reportPut = `INSERT INTO reports (node, accepted_at, generation, report, receipt) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (node) DO UPDATE SET accepted_at = excluded.accepted_at, generation = excluded.generation,
		report = excluded.report, receipt = excluded.receipt`
)

func (t *tx) Report(id zone.NodeID) (store.Report, bool, error) {
	return one(t, reports, reportGet, id)
}

func (t *tx) PutReport(r store.Report) error {
	return t.put(r.Check(), reportPut, r.Node, r.AcceptedAt, r.Generation, doc(r.Report), doc(r.Receipt))
}

var credentials = &table[store.Credential]{
	what: "credential",
	into: func(v *store.Credential) []any {
		return []any{
			&v.Node, &v.Purpose, (*digest)(&v.Hash), &v.Generation, &v.Epoch, &v.State, &v.IssuedAt, &v.ExpiresAt,
			&v.Rotate, (*digest)(&v.Request), (*document)(&v.Receipt),
		}
	},
	name: func(v *store.Credential) string { return string(v.Node) + "/" + v.Purpose },
}

const (
	credentialColumns = `SELECT node, purpose, hash, generation, epoch, state, issued_at, expires_at, rotate, request, receipt FROM credentials `
	credentialGet     = credentialColumns + `WHERE node = ? AND purpose = ?`
	credentialByHash  = credentialColumns + `WHERE hash = ?`
	credentialPut     = `INSERT INTO credentials (node, purpose, hash, generation, epoch, state, issued_at, expires_at, rotate, request, receipt)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (node, purpose) DO UPDATE SET hash = excluded.hash, generation = excluded.generation,
		epoch = excluded.epoch, state = excluded.state, issued_at = excluded.issued_at, expires_at = excluded.expires_at,
		rotate = excluded.rotate, request = excluded.request, receipt = excluded.receipt`
	credentialDelete = `DELETE FROM credentials WHERE node = ? AND purpose = ?`
)

func (t *tx) Credential(id zone.NodeID, purpose string) (store.Credential, bool, error) {
	return one(t, credentials, credentialGet, id, purpose)
}

func (t *tx) CredentialByHash(hash store.Hash) (store.Credential, bool, error) {
	return one(t, credentials, credentialByHash, some(hash)) // nothing equals NULL
}

func (t *tx) PutCredential(c store.Credential) error {
	return t.put(c.Check(), credentialPut, c.Node, c.Purpose, some(c.Hash), c.Generation, c.Epoch, c.State,
		c.IssuedAt, c.ExpiresAt, flag(c.Rotate), some(c.Request), doc(c.Receipt))
}

func (t *tx) DeleteCredential(id zone.NodeID, purpose string) error {
	return t.put(nil, credentialDelete, id, purpose)
}

var invitations = &table[store.Invitation]{
	what: "invitation",
	into: func(v *store.Invitation) []any {
		return []any{(*digest)(&v.Code), &v.Cluster, &v.CreatedBy, &v.CreatedAt, &v.ExpiresAt, &v.Enrollment}
	},
	name: func(v *store.Invitation) string { return brief(v.Code) },
}

const (
	invitationGet = `SELECT code, cluster, created_by, created_at, expires_at, enrollment FROM invitations WHERE code = ?`
	invitationPut = `INSERT INTO invitations (code, cluster, created_by, created_at, expires_at, enrollment) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (code) DO UPDATE SET cluster = excluded.cluster, created_by = excluded.created_by,
		created_at = excluded.created_at, expires_at = excluded.expires_at, enrollment = excluded.enrollment`
	invitationPrune = `DELETE FROM invitations WHERE code IN
		(SELECT code FROM invitations WHERE expires_at < ? ORDER BY expires_at, code LIMIT ?)`
)

func (t *tx) Invitation(code store.Hash) (store.Invitation, bool, error) {
	return one(t, invitations, invitationGet, code[:])
}

func (t *tx) PutInvitation(i store.Invitation) error {
	return t.put(i.Check(), invitationPut, i.Code[:], i.Cluster, i.CreatedBy, i.CreatedAt, i.ExpiresAt, i.Enrollment)
}

var enrollments = &table[store.Enrollment]{
	what: "enrollment",
	into: func(v *store.Enrollment) []any {
		return []any{&v.ID, (*digest)(&v.Digest), &v.Node, (*document)(&v.Proposal), (*document)(&v.Answer), &v.CommittedAt}
	},
	name: func(v *store.Enrollment) string { return v.ID },
}

const (
	enrollmentGet = `SELECT id, digest, node, proposal, answer, committed_at FROM enrollments WHERE id = ?`
	enrollmentPut = `INSERT INTO enrollments (id, digest, node, proposal, answer, committed_at) VALUES (?, ?, ?, ?, ?, ?)`
)

func (t *tx) Enrollment(id string) (store.Enrollment, bool, error) {
	return one(t, enrollments, enrollmentGet, id)
}

func (t *tx) PutEnrollment(e store.Enrollment) error {
	return t.put(e.Check(), enrollmentPut, e.ID, some(e.Digest), e.Node, doc(e.Proposal), doc(e.Answer), e.CommittedAt)
}
