package sqlite

import (
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/wire/zone"
)

var services = &table[store.Service]{
	what: "service",
	into: func(v *store.Service) []any {
		return []any{&v.ID, &v.Organization, &v.Cluster, &v.Name, &v.Revision, &v.CreatedAt}
	},
	name: func(v *store.Service) string { return string(v.ID) },
}

const (
	serviceColumns = `SELECT id, organization, cluster, name, revision, created_at FROM services `
	serviceGet     = serviceColumns + `WHERE id = ?`
	serviceList    = serviceColumns + `WHERE organization = ? AND id > ? ORDER BY id`
	servicePut     = `INSERT INTO services (id, organization, cluster, name, revision, created_at) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET organization = excluded.organization, cluster = excluded.cluster,
		name = excluded.name, revision = excluded.revision, created_at = excluded.created_at`
)

func (t *tx) Service(id zone.ServiceID) (store.Service, bool, error) {
	return one(t, services, serviceGet, id)
}

func (t *tx) Services(o zone.OrganizationID, after zone.ServiceID, limit int) ([]store.Service, error) {
	return list(t, services, limit, serviceList, o, after)
}

func (t *tx) PutService(s store.Service) error {
	return t.put(s.Check(), servicePut, s.ID, s.Organization, s.Cluster, s.Name, s.Revision, s.CreatedAt)
}

var machines = &table[store.Machine]{
	what: "machine",
	into: func(v *store.Machine) []any {
		return []any{&v.Service, &v.Organization, (*digest)(&v.Hash), &v.Generation, &v.Grant, &v.State, &v.ChangedAt}
	},
	name: func(v *store.Machine) string { return string(v.Service) },
}

const (
	machineColumns = `SELECT service, organization, hash, generation, authority, state, changed_at FROM machines `
	machineGet     = machineColumns + `WHERE service = ?`
	machineByHash  = machineColumns + `WHERE hash = ?`
	machinePut     = `INSERT INTO machines (service, organization, hash, generation, authority, state, changed_at) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (service) DO UPDATE SET organization = excluded.organization, hash = excluded.hash,
		generation = excluded.generation, authority = excluded.authority, state = excluded.state, changed_at = excluded.changed_at`
)

func (t *tx) Machine(id zone.ServiceID) (store.Machine, bool, error) {
	return one(t, machines, machineGet, id)
}

func (t *tx) MachineByHash(hash store.Hash) (store.Machine, bool, error) {
	return one(t, machines, machineByHash, some(hash)) // nothing equals NULL
}

func (t *tx) PutMachine(m store.Machine) error {
	return t.put(m.Check(), machinePut, m.Service, m.Organization, some(m.Hash), m.Generation, m.Grant, m.State, m.ChangedAt)
}
