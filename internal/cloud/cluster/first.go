package cluster

import (
	"context"

	"github.com/allodhq/allod/internal/cloud/act"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/cluster"
)

// First is the cluster that the first start makes.
const First zone.ClusterID = "main"

// Bootstrap makes the first cluster of a new installation, in phase pallet, for an
// organization. With any cluster in the store it does nothing.
func (s *Clusters) Bootstrap(ctx context.Context, o zone.OrganizationID) error {
	now := zone.At(s.Clock())
	return s.Store.Write(ctx, func(tx store.Tx) error {
		list, err := tx.Clusters("", "", 1)
		if err != nil || len(list) > 0 {
			return err
		}
		by := who.Principal{Kind: "controller"}
		if err := tx.PutCluster(store.Cluster{ID: First, Organization: o, Name: "Main", Revision: 1, CreatedAt: now}); err != nil {
			return err
		}
		if err := tx.PutRuntime(store.Runtime{
			Cluster: First, Phase: string(cluster.Pallet), Generation: 1, ChangedAt: now, ChangedBy: by.Actor(),
		}); err != nil {
			return err
		}
		return act.Record(tx, act.Act{By: by, Organization: o, Action: "bootstrap", Subject: "cluster/" + string(First), At: now})
	})
}
