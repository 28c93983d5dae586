package sqlite

import (
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/wire/zone"
)

var organizations = &table[store.Organization]{
	what: "organization",
	into: func(v *store.Organization) []any { return []any{&v.ID, &v.Name, &v.CreatedAt} },
	name: func(v *store.Organization) string { return string(v.ID) },
}

const (
	organizationColumns = `SELECT id, name, created_at FROM organizations `
	organizationGet     = organizationColumns + `WHERE id = ?`
	organizationList    = organizationColumns + `WHERE id > ? ORDER BY id`
	organizationPut     = `INSERT INTO organizations (id, name, created_at) VALUES (?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, created_at = excluded.created_at`
)

func (t *tx) Organization(id zone.OrganizationID) (store.Organization, bool, error) {
	return one(t, organizations, organizationGet, id)
}

func (t *tx) Organizations(after zone.OrganizationID, limit int) ([]store.Organization, error) {
	return list(t, organizations, limit, organizationList, after)
}

func (t *tx) PutOrganization(o store.Organization) error {
	return t.put(o.Check(), organizationPut, o.ID, o.Name, o.CreatedAt)
}

var operators = &table[store.Operator]{
	what: "operator",
	into: func(v *store.Operator) []any {
		return []any{&v.ID, &v.Name, &v.Installation, &v.Generation, &v.Disabled, &v.CreatedAt}
	},
	name: func(v *store.Operator) string { return string(v.ID) },
}

const (
	operatorColumns = `SELECT id, name, installation, generation, disabled, created_at FROM operators `
	operatorGet     = operatorColumns + `WHERE id = ?`
	operatorList    = operatorColumns + `WHERE id > ? ORDER BY id`
	operatorPut     = `INSERT INTO operators (id, name, installation, generation, disabled, created_at) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, installation = excluded.installation,
		generation = excluded.generation, disabled = excluded.disabled, created_at = excluded.created_at`
)

func (t *tx) Operator(id zone.OperatorID) (store.Operator, bool, error) {
	return one(t, operators, operatorGet, id)
}

func (t *tx) Operators(after zone.OperatorID, limit int) ([]store.Operator, error) {
	return list(t, operators, limit, operatorList, after)
}

func (t *tx) PutOperator(o store.Operator) error {
	return t.put(o.Check(), operatorPut, o.ID, o.Name, flag(o.Installation), o.Generation, flag(o.Disabled), o.CreatedAt)
}

var members = &table[store.Member]{
	what: "member",
	into: func(v *store.Member) []any { return []any{&v.Organization, &v.Operator, &v.Role} },
	name: func(v *store.Member) string { return string(v.Organization) + "/" + string(v.Operator) },
}

const (
	memberColumns  = `SELECT organization, operator, role FROM members `
	memberGet      = memberColumns + `WHERE organization = ? AND operator = ?`
	memberList     = memberColumns + `WHERE organization = ? AND operator > ? ORDER BY operator`
	membershipList = memberColumns + `WHERE operator = ? ORDER BY organization`
	memberOthers   = `SELECT count(*) FROM members WHERE operator = ? AND organization <> ?`
	memberPut      = `INSERT INTO members (organization, operator, role) VALUES (?, ?, ?)
		ON CONFLICT (organization, operator) DO UPDATE SET role = excluded.role`
	memberDelete = `DELETE FROM members WHERE organization = ? AND operator = ?`
)

func (t *tx) Member(o zone.OrganizationID, p zone.OperatorID) (store.Member, bool, error) {
	return one(t, members, memberGet, o, p)
}

func (t *tx) Members(o zone.OrganizationID, after zone.OperatorID, limit int) ([]store.Member, error) {
	return list(t, members, limit, memberList, o, after)
}

func (t *tx) Memberships(p zone.OperatorID) ([]store.Member, error) {
	return list(t, members, store.MaxMemberships, membershipList, p)
}

func (t *tx) PutMember(m store.Member) error {
	if m.Role == "" {
		return t.put(m.Check(), memberDelete, m.Organization, m.Operator)
	}
	bounds := m.Check()
	if t.w != nil && bounds == nil {
		var others int64
		if err := t.q.QueryRowContext(t.ctx, memberOthers, m.Operator, m.Organization).Scan(&others); err != nil {
			return err
		}
		if others >= store.MaxMemberships {
			bounds = store.ErrBounds
		}
	}
	return t.put(bounds, memberPut, m.Organization, m.Operator, m.Role)
}
