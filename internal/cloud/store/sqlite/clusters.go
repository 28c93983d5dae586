package sqlite

import (
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/wire/zone"
)

var clusters = &table[store.Cluster]{
	what: "cluster",
	into: func(v *store.Cluster) []any {
		return []any{&v.ID, &v.Organization, &v.Name, &v.Revision, &v.CreatedAt}
	},
	name: func(v *store.Cluster) string { return string(v.ID) },
}

const (
	clusterColumns = `SELECT id, organization, name, revision, created_at FROM clusters `
	clusterGet     = clusterColumns + `WHERE id = ?`
	clusterAll     = clusterColumns + `WHERE id > ? ORDER BY id`
	clusterList    = clusterColumns + `WHERE organization = ? AND id > ? ORDER BY id`
	clusterPut     = `INSERT INTO clusters (id, organization, name, revision, created_at) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET organization = excluded.organization, name = excluded.name,
		revision = excluded.revision, created_at = excluded.created_at`
)

func (t *tx) Cluster(id zone.ClusterID) (store.Cluster, bool, error) {
	return one(t, clusters, clusterGet, id)
}

func (t *tx) Clusters(o zone.OrganizationID, after zone.ClusterID, limit int) ([]store.Cluster, error) {
	if o == "" {
		return list(t, clusters, limit, clusterAll, after)
	}
	return list(t, clusters, limit, clusterList, o, after)
}

func (t *tx) PutCluster(c store.Cluster) error {
	return t.put(c.Check(), clusterPut, c.ID, c.Organization, c.Name, c.Revision, c.CreatedAt)
}

var runtimes = &table[store.Runtime]{
	what: "runtime",
	into: func(v *store.Runtime) []any {
		return []any{&v.Cluster, &v.Phase, &v.Generation, &v.ChangedAt, &v.ChangedBy}
	},
	name: func(v *store.Runtime) string { return string(v.Cluster) },
}

const (
	runtimeGet = `SELECT cluster, phase, generation, changed_at, changed_by FROM runtimes WHERE cluster = ?`
	runtimePut = `INSERT INTO runtimes (cluster, phase, generation, changed_at, changed_by) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (cluster) DO UPDATE SET phase = excluded.phase, generation = excluded.generation,
		changed_at = excluded.changed_at, changed_by = excluded.changed_by`
)

func (t *tx) Runtime(id zone.ClusterID) (store.Runtime, bool, error) {
	return one(t, runtimes, runtimeGet, id)
}

func (t *tx) PutRuntime(r store.Runtime) error {
	return t.put(r.Check(), runtimePut, r.Cluster, r.Phase, r.Generation, r.ChangedAt, r.ChangedBy)
}
