package memory

import (
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/wire/zone"
)

// get is the record of a key.
func get[K comparable, V any](x *tx, t *table[K, V], k K) (V, bool, error) {
	if err := x.reads(); err != nil {
		var none V
		return none, false, err
	}
	v, ok := t.rows[k]
	return v, ok, nil
}

// put keeps a record that passed its own check.
func put[K comparable, V interface{ Check() error }](x *tx, t *table[K, V], k K, v V) error {
	if err := x.writes(v.Check()); err != nil {
		return err
	}
	t.change(x, k, &v)
	return nil
}

func list[K comparable, V any](x *tx, t *table[K, V], after K, limit int, wanted func(V) bool) ([]V, error) {
	if err := x.reads(); err != nil {
		return nil, err
	}
	return t.page(after, limit, wanted), nil
}

func all[V any](V) bool { return true }

func (t *tx) Organization(id zone.OrganizationID) (store.Organization, bool, error) {
	return get(t, &t.organizations, id)
}

func (t *tx) Organizations(after zone.OrganizationID, limit int) ([]store.Organization, error) {
	return list(t, &t.organizations, after, limit, all)
}

func (t *tx) PutOrganization(o store.Organization) error { return put(t, &t.organizations, o.ID, o) }

func (t *tx) Operator(id zone.OperatorID) (store.Operator, bool, error) {
	return get(t, &t.operators, id)
}

func (t *tx) Operators(after zone.OperatorID, limit int) ([]store.Operator, error) {
	return list(t, &t.operators, after, limit, all)
}

func (t *tx) PutOperator(o store.Operator) error { return put(t, &t.operators, o.ID, o) }

func (t *tx) Member(o zone.OrganizationID, p zone.OperatorID) (store.Member, bool, error) {
	return get(t, &t.members, membership{o, p})
}

func (t *tx) Members(o zone.OrganizationID, after zone.OperatorID, limit int) ([]store.Member, error) {
	return list(t, &t.members, membership{o, after}, limit, func(m store.Member) bool { return m.Organization == o })
}

func (t *tx) Memberships(p zone.OperatorID) ([]store.Member, error) {
	if err := t.reads(); err != nil {
		return nil, err
	}
	var list []store.Member
	for _, o := range t.memberships[p] {
		list = append(list, t.members.rows[membership{o, p}])
	}
	return list, nil
}

func (t *tx) PutMember(m store.Member) error {
	if err := t.writes(m.Check()); err != nil {
		return err
	}
	k := membership{m.Organization, m.Operator}
	_, had := t.members.rows[k]
	switch {
	case m.Role == "" && had:
		t.members.change(t, k, nil)
	case m.Role == "":
	case !had && len(t.memberships[m.Operator]) >= store.MaxMemberships:
		return store.ErrBounds
	default:
		t.members.change(t, k, &m)
	}
	return nil
}

func (t *tx) Cluster(id zone.ClusterID) (store.Cluster, bool, error) { return get(t, &t.clusters, id) }

func (t *tx) Clusters(o zone.OrganizationID, after zone.ClusterID, limit int) ([]store.Cluster, error) {
	return list(t, &t.clusters, after, limit, func(c store.Cluster) bool { return o == "" || c.Organization == o })
}

func (t *tx) PutCluster(c store.Cluster) error { return put(t, &t.clusters, c.ID, c) }

func (t *tx) Runtime(id zone.ClusterID) (store.Runtime, bool, error) { return get(t, &t.runtimes, id) }

func (t *tx) PutRuntime(r store.Runtime) error { return put(t, &t.runtimes, r.Cluster, r) }

func (t *tx) Node(id zone.NodeID) (store.Node, bool, error) { return get(t, &t.nodes, id) }

func (t *tx) Nodes(c zone.ClusterID, after zone.NodeID, limit int) ([]store.Node, error) {
	return list(t, &t.nodes, after, limit, func(n store.Node) bool { return c == "" || n.Cluster == c })
}

func (t *tx) PutNode(n store.Node) error { return put(t, &t.nodes, n.ID, n) }

func (t *tx) Report(id zone.NodeID) (store.Report, bool, error) {
	r, ok, err := get(t, &t.reports, id)
	r.Report, r.Receipt = own(r.Report), own(r.Receipt)
	return r, ok, err
}

func (t *tx) PutReport(r store.Report) error {
	r.Report, r.Receipt = own(r.Report), own(r.Receipt)
	return put(t, &t.reports, r.Node, r)
}

func (t *tx) Credential(id zone.NodeID, purpose string) (store.Credential, bool, error) {
	c, ok, err := get(t, &t.credentials, authority{id, purpose})
	c.Receipt = own(c.Receipt)
	return c, ok, err
}

func (t *tx) CredentialByHash(hash store.Hash) (store.Credential, bool, error) {
	k, ok := t.bearers[hash]
	if !ok {
		return store.Credential{}, false, t.reads()
	}
	return t.Credential(k.a, k.b)
}

func (t *tx) PutCredential(c store.Credential) error {
	if err := t.writes(c.Check()); err != nil {
		return err
	}
	k := authority{c.Node, c.Purpose}
	if holder, held := t.bearers[c.Hash]; held && holder != k {
		return store.ErrTaken
	}
	c.Receipt = own(c.Receipt)
	t.credentials.change(t, k, &c)
	return nil
}

func (t *tx) DeleteCredential(id zone.NodeID, purpose string) error {
	if err := t.writes(nil); err != nil {
		return err
	}
	if _, had := t.credentials.rows[authority{id, purpose}]; had {
		t.credentials.change(t, authority{id, purpose}, nil)
	}
	return nil
}

func (t *tx) Invitation(code store.Hash) (store.Invitation, bool, error) {
	return get(t, &t.invitations, code)
}

func (t *tx) PutInvitation(i store.Invitation) error { return put(t, &t.invitations, i.Code, i) }

func (t *tx) Enrollment(id string) (store.Enrollment, bool, error) {
	e, ok, err := get(t, &t.enrollments, id)
	e.Proposal, e.Answer = own(e.Proposal), own(e.Answer)
	return e, ok, err
}

func (t *tx) PutEnrollment(e store.Enrollment) error {
	e.Proposal, e.Answer = own(e.Proposal), own(e.Answer)
	return putNew(t, &t.enrollments, e.ID, e)
}

// putNew keeps a record that must be new.
func putNew[K comparable, V interface{ Check() error }](x *tx, t *table[K, V], k K, v V) error {
	if err := x.writes(v.Check()); err != nil {
		return err
	}
	if _, had := t.rows[k]; had {
		return store.ErrTaken
	}
	t.change(x, k, &v)
	return nil
}

func (t *tx) Service(id zone.ServiceID) (store.Service, bool, error) { return get(t, &t.services, id) }

func (t *tx) Services(o zone.OrganizationID, after zone.ServiceID, limit int) ([]store.Service, error) {
	return list(t, &t.services, after, limit, func(s store.Service) bool { return s.Organization == o })
}

func (t *tx) PutService(s store.Service) error { return put(t, &t.services, s.ID, s) }

func (t *tx) Machine(id zone.ServiceID) (store.Machine, bool, error) { return get(t, &t.machines, id) }

func (t *tx) MachineByHash(hash store.Hash) (store.Machine, bool, error) {
	id, ok := t.programs[hash]
	if !ok {
		return store.Machine{}, false, t.reads()
	}
	return t.Machine(id)
}

func (t *tx) PutMachine(m store.Machine) error {
	if err := t.writes(m.Check()); err != nil {
		return err
	}
	if holder, held := t.programs[m.Hash]; held && holder != m.Service {
		return store.ErrTaken
	}
	t.machines.change(t, m.Service, &m)
	return nil
}

func (t *tx) LoginLink(code store.Hash) (store.LoginLink, bool, error) { return get(t, &t.links, code) }

func (t *tx) PutLoginLink(l store.LoginLink) error { return put(t, &t.links, l.Code, l) }

func (t *tx) Receipt(scope string, id zone.MutationID) (store.Receipt, bool, error) {
	r, ok, err := get(t, &t.receipts, mutation{scope, id})
	r.Answer = own(r.Answer)
	return r, ok, err
}

func (t *tx) PutReceipt(r store.Receipt) error {
	r.Answer = own(r.Answer)
	return putNew(t, &t.receipts, mutation{r.Scope, r.ID}, r)
}

func (t *tx) AppendAudit(e store.AuditEntry) error {
	if err := t.writes(e.Check()); err != nil {
		return err
	}
	n := len(t.audit)
	e.Seq = int64(n) + 1
	t.audit = append(t.audit, e)
	t.undo = append(t.undo, func() { t.audit = t.audit[:n] })
	return nil
}

func (t *tx) Audit(o zone.OrganizationID, before int64, limit int) ([]store.AuditEntry, error) {
	if err := t.reads(); err != nil {
		return nil, err
	}
	limit = store.Limit(limit)
	at := int64(len(t.audit))
	if before > 0 {
		at = min(at, before-1)
	}
	var list []store.AuditEntry
	for ; at > 0 && len(list) < limit; at-- {
		if e := t.audit[at-1]; o == "" || e.Organization == o {
			list = append(list, e)
		}
	}
	return list, nil
}

func (t *tx) Prune(before zone.Millis, limit int) error {
	if err := t.writes(nil); err != nil {
		return err
	}
	for _, k := range t.links.oldest(before, limit, func(l store.LoginLink) zone.Millis { return l.ExpiresAt }, compareHashes) {
		t.links.change(t, k, nil)
	}
	for _, k := range t.invitations.oldest(before, limit, func(i store.Invitation) zone.Millis { return i.ExpiresAt }, compareHashes) {
		t.invitations.change(t, k, nil)
	}
	for _, k := range t.receipts.oldest(before, limit, func(r store.Receipt) zone.Millis { return r.At }, mutation.compare) {
		t.receipts.change(t, k, nil)
	}
	return nil
}
