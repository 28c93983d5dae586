package cluster

import (
	"context"

	"github.com/allodhq/allod/internal/cloud/act"
	"github.com/allodhq/allod/internal/cloud/page"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/cluster"
)

// Services answers what is asked about services. It is safe for concurrent use
// where Rand is.
type Services struct{ Config }

// NewServices makes one.
func NewServices(c Config) *Services { return &Services{c} }

// Create makes a service that an organization owns, or returns the answer of a
// repeat. A cluster that the service names has to be the organization's, else it is
// [who.ErrAbsent].
func (s *Services) Create(ctx context.Context, p who.Principal, r cluster.CreateService) (cluster.ServiceAnswer, error) {
	return change(ctx, s.Config, r.Input, cluster.ServiceAnswerCodec, replayedService, func(tx store.Tx) (step[cluster.ServiceAnswer], error) {
		if err := owner(tx, r.Organization, p.Change); err != nil {
			return step[cluster.ServiceAnswer]{}, err
		}
		id, err := newID[zone.ServiceID](s.Rand)
		if err != nil {
			return step[cluster.ServiceAnswer]{}, err
		}
		now := zone.At(s.Clock())
		return step[cluster.ServiceAnswer]{
			act: act.Act{By: p, Organization: r.Organization, Action: cluster.MethodCreateService, Subject: "service/" + string(id), At: now},
			id:  r.Mutation,
			detail: func() ([]byte, error) {
				return cluster.WritableServiceCodec.Append(nil, r.Service)
			},
			decide: func() (cluster.ServiceAnswer, error) {
				if _, taken, err := tx.Service(id); err != nil || taken {
					return cluster.ServiceAnswer{}, first(err, store.ErrTaken)
				}
				v := store.Service{ID: id, Organization: r.Organization, Cluster: r.Service.Cluster, Name: r.Service.Name, Revision: 1, CreatedAt: now}
				if err := home(tx, v); err != nil {
					return cluster.ServiceAnswer{}, err
				}
				return cluster.ServiceAnswer{Service: publicService(v)}, tx.PutService(v)
			},
		}, nil
	})
}

// Update replaces the writable data of a service, or returns the answer of a
// repeat. It returns [act.ErrRevision] where the service is not at the revision that
// the caller names, and for a cluster what Create does.
func (s *Services) Update(ctx context.Context, p who.Principal, r cluster.UpdateService) (cluster.ServiceAnswer, error) {
	return change(ctx, s.Config, r.Input, cluster.ServiceAnswerCodec, replayedService, func(tx store.Tx) (step[cluster.ServiceAnswer], error) {
		v, _, err := tx.Service(r.Service)
		if err := first(err, p.Change(tx, v.Organization)); err != nil {
			return step[cluster.ServiceAnswer]{}, err
		}
		return step[cluster.ServiceAnswer]{
			act: act.Act{By: p, Organization: v.Organization, Action: cluster.MethodUpdateService, Subject: "service/" + string(v.ID), At: zone.At(s.Clock())},
			id:  r.Mutation,
			detail: func() ([]byte, error) {
				return cluster.WritableServiceCodec.Append(nil, r.Data)
			},
			decide: func() (cluster.ServiceAnswer, error) {
				if v.Revision != r.Expected {
					return cluster.ServiceAnswer{}, act.ErrRevision
				}
				v.Cluster, v.Name, v.Revision = r.Data.Cluster, r.Data.Name, v.Revision+1
				if err := home(tx, v); err != nil {
					return cluster.ServiceAnswer{}, err
				}
				return cluster.ServiceAnswer{Service: publicService(v)}, tx.PutService(v)
			},
		}, nil
	})
}

// List returns a page of the services of an organization.
func (s *Services) List(ctx context.Context, p who.Principal, r cluster.ListServices) (cluster.ServicePage, error) {
	answer := cluster.ServicePage{Services: []cluster.Service{}}
	err := s.Store.Read(ctx, func(tx store.Tx) error {
		if err := owner(tx, r.Organization, p.See); err != nil {
			return err
		}
		list, next, err := page.Read(r.Cursor, 0, func(after zone.ServiceID, limit int) ([]store.Service, error) {
			return tx.Services(r.Organization, after, limit)
		}, func(v store.Service) zone.ServiceID { return v.ID })
		for _, v := range list {
			answer.Services = append(answer.Services, publicService(v))
		}
		answer.Next = next
		return err
	})
	if err != nil {
		return cluster.ServicePage{}, err
	}
	return answer, nil
}

// home finds whether the cluster that a service names is one of its organization.
func home(tx store.Tx, v store.Service) error {
	if v.Cluster == "" {
		return nil
	}
	c, found, err := tx.Cluster(v.Cluster)
	if err != nil {
		return err
	}
	if !found || c.Organization != v.Organization {
		return who.ErrAbsent
	}
	return nil
}

func replayedService(a *cluster.ServiceAnswer) *bool { return &a.Replayed }

func publicService(v store.Service) cluster.Service {
	return cluster.Service{
		ID: v.ID, Organization: v.Organization, Revision: v.Revision, CreatedAt: v.CreatedAt,
		Data: cluster.WritableService{Name: v.Name, Cluster: v.Cluster},
	}
}
