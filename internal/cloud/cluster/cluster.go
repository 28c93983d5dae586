package cluster

import (
	"context"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/allodhq/allod/internal/cloud/act"
	"github.com/allodhq/allod/internal/cloud/page"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/cluster"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/spark"
)

// ErrRuntime refuses to answer for a cluster without a runtime record.
var ErrRuntime = refusal.NewKind("zone-cluster-runtime-missing", 500,
	"The controller's store has this cluster without the record of who owns its workloads. They are made together, so the store was damaged or changed by something else.",
	"Restore the controller's data from a backup.")

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Zone: clusters and services", Kinds: []*refusal.Kind{ErrRuntime}}

// Config is what clusters and services work with. All of it is needed.
type Config struct {
	Store store.Store
	// Clock is the controller's.
	Clock func() time.Time
	// Rand is where identifiers come from.
	Rand io.Reader
}

// Clusters answers what is asked about clusters. It is safe for concurrent use
// where Rand is.
type Clusters struct{ Config }

// NewClusters makes one.
func NewClusters(c Config) *Clusters { return &Clusters{c} }

// Create makes a cluster of an organization, in phase pallet, or returns the answer
// of a repeat.
func (s *Clusters) Create(ctx context.Context, p who.Principal, r cluster.Create) (cluster.Answer, error) {
	return change(ctx, s.Config, r.Input, cluster.AnswerCodec, replayed, func(tx store.Tx) (step[cluster.Answer], error) {
		if err := owner(tx, r.Organization, p.Change); err != nil {
			return step[cluster.Answer]{}, err
		}
		id, err := newID[zone.ClusterID](s.Rand)
		if err != nil {
			return step[cluster.Answer]{}, err
		}
		now := zone.At(s.Clock())
		return step[cluster.Answer]{
			act: act.Act{By: p, Organization: r.Organization, Action: cluster.MethodCreate, Subject: "cluster/" + string(id), At: now},
			id:  r.Mutation,
			detail: func() ([]byte, error) {
				return cluster.WritableCodec.Append(nil, r.Cluster)
			},
			decide: func() (cluster.Answer, error) {
				if _, taken, err := tx.Cluster(id); err != nil || taken {
					return cluster.Answer{}, first(err, store.ErrTaken)
				}
				c := store.Cluster{ID: id, Organization: r.Organization, Name: r.Cluster.Name, Revision: 1, CreatedAt: now}
				if err := tx.PutCluster(c); err != nil {
					return cluster.Answer{}, err
				}
				return cluster.Answer{Cluster: public(c)}, tx.PutRuntime(store.Runtime{
					Cluster: id, Phase: string(cluster.Pallet), Generation: 1, ChangedAt: now, ChangedBy: p.Actor(),
				})
			},
		}, nil
	})
}

// Update replaces the writable data of a cluster, or returns the answer of a
// repeat. It returns [act.ErrRevision] where the cluster is not at the revision that
// the caller names.
func (s *Clusters) Update(ctx context.Context, p who.Principal, r cluster.Update) (cluster.Answer, error) {
	return change(ctx, s.Config, r.Input, cluster.AnswerCodec, replayed, func(tx store.Tx) (step[cluster.Answer], error) {
		c, _, err := tx.Cluster(r.Cluster)
		if err := first(err, p.Change(tx, c.Organization)); err != nil {
			return step[cluster.Answer]{}, err
		}
		return step[cluster.Answer]{
			act: act.Act{By: p, Organization: c.Organization, Action: cluster.MethodUpdate, Subject: "cluster/" + string(c.ID), At: zone.At(s.Clock())},
			id:  r.Mutation,
			detail: func() ([]byte, error) {
				return cluster.WritableCodec.Append(nil, r.Data)
			},
			decide: func() (cluster.Answer, error) {
				if c.Revision != r.Expected {
					return cluster.Answer{}, act.ErrRevision
				}
				c.Name, c.Revision = r.Data.Name, c.Revision+1
				return cluster.Answer{Cluster: public(c)}, tx.PutCluster(c)
			},
		}, nil
	})
}

// List returns a page of the clusters of an organization.
func (s *Clusters) List(ctx context.Context, p who.Principal, r cluster.List) (cluster.Page, error) {
	answer := cluster.Page{Clusters: []cluster.Cluster{}}
	err := s.Store.Read(ctx, func(tx store.Tx) error {
		if err := owner(tx, r.Organization, p.See); err != nil {
			return err
		}
		list, next, err := page.Read(r.Cursor, 0, func(after zone.ClusterID, limit int) ([]store.Cluster, error) {
			return tx.Clusters(r.Organization, after, limit)
		}, func(c store.Cluster) zone.ClusterID { return c.ID })
		for _, c := range list {
			answer.Clusters = append(answer.Clusters, public(c))
		}
		answer.Next = next
		return err
	})
	if err != nil {
		return cluster.Page{}, err
	}
	return answer, nil
}

// Runtime returns the runtime record of a cluster, and what blocks it now. It
// returns [ErrRuntime].
func (s *Clusters) Runtime(ctx context.Context, p who.Principal, r cluster.GetRuntime) (answer cluster.RuntimeAnswer, err error) {
	err = s.Store.Read(ctx, func(tx store.Tx) error {
		c, _, err := tx.Cluster(r.Cluster)
		if err := first(err, p.See(tx, c.Organization)); err != nil {
			return err
		}
		run, found, err := tx.Runtime(c.ID)
		if err != nil {
			return err
		}
		if !found {
			return ErrRuntime
		}
		answer.Runtime = cluster.Runtime{
			ID: c.ID, Phase: cluster.Phase(run.Phase), Generation: run.Generation, ChangedAt: run.ChangedAt, ChangedBy: run.ChangedBy,
		}
		// No relay, no address plan, no VPN and no authority exists in this release. That
		// is how it is, and not a default that somebody could have changed.
		j := Judge(Facts{Phase: answer.Runtime.Phase})
		if err := s.nodes(tx, j, c); err != nil {
			return err
		}
		if err := services(tx, j, c); err != nil {
			return err
		}
		answer.Blockers = j.Blockers()
		return nil
	})
	if err != nil {
		return cluster.RuntimeAnswer{}, err
	}
	return answer, nil
}

// nodes tells a judgement about every node of a cluster.
func (s *Clusters) nodes(tx store.Tx, j *Judgement, c store.Cluster) error {
	now := zone.At(s.Clock())
	return each(func(after zone.NodeID) ([]store.Node, error) { return tx.Nodes(c.ID, after, store.MaxList) }, func(n store.Node) (zone.NodeID, error) {
		if n.RemovedAt != 0 {
			return n.ID, nil
		}
		// One record that cannot be read hides nothing else: such a credential does not
		// count, and such a report says nothing.
		credential, found, err := tx.Credential(n.ID, string(enroll.Pallet))
		if err != nil && !errors.Is(err, store.ErrSetAside) {
			return "", err
		}
		report, _, err := tx.Report(n.ID)
		if err != nil && !errors.Is(err, store.ErrSetAside) {
			return "", err
		}
		// A node that was never heard of has no report, and then no architecture.
		said, _ := spark.ReportCodec.Read(report.Report)
		j.Node(NodeFacts{
			ID:           n.ID,
			Pallet:       found && enroll.State(credential.State) != enroll.Revoked && credential.ExpiresAt > now,
			Architecture: said.Host.Architecture,
		})
		return n.ID, nil
	})
}

// services tells a judgement about every service that may run in a cluster: those
// that name it, and those of its organization that name none.
func services(tx store.Tx, j *Judgement, c store.Cluster) error {
	siblings, err := tx.Clusters(c.Organization, "", store.MaxList)
	if err != nil {
		return err
	}
	return each(func(after zone.ServiceID) ([]store.Service, error) {
		return tx.Services(c.Organization, after, store.MaxList)
	}, func(s store.Service) (zone.ServiceID, error) {
		switch s.Cluster {
		case c.ID:
			j.Service(ServiceFacts{ID: s.ID, Clusters: 1})
		case "":
			j.Service(ServiceFacts{ID: s.ID, Clusters: len(siblings)})
		}
		return s.ID, nil
	})
}

// each walks a list of the store to its end. do returns the entry's identifier.
func each[T any, ID ~string](read func(after ID) ([]T, error), do func(T) (ID, error)) error {
	var after ID
	for {
		list, err := read(after)
		if err != nil {
			return err
		}
		for _, entry := range list {
			if after, err = do(entry); err != nil {
				return err
			}
		}
		if len(list) < store.MaxList {
			return nil
		}
	}
}

func replayed(a *cluster.Answer) *bool { return &a.Replayed }

func public(c store.Cluster) cluster.Cluster {
	return cluster.Cluster{
		ID: c.ID, Organization: c.Organization, Revision: c.Revision, CreatedAt: c.CreatedAt, Data: cluster.Writable{Name: c.Name},
	}
}

// owner finds whether a principal may do something with an organization that the
// caller names. It reads the same for one that is absent and one that is foreign.
func owner(tx store.Tx, o zone.OrganizationID, may func(store.People, zone.OrganizationID) error) error {
	found, _, err := tx.Organization(o)
	return first(err, may(tx, found.ID))
}

// newID makes an identifier that is also a label of a DNS name: 26 letters and
// digits of 16 random bytes.
func newID[ID ~string](rand io.Reader) (ID, error) {
	b := make([]byte, 16)
	if _, err := io.ReadFull(rand, b); err != nil {
		return "", fmt.Errorf("cluster: no randomness: %w", err)
	}
	return ID(strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))), nil
}

// first is the first error there is.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
