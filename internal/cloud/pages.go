package cloud

import (
	"context"
	"time"

	"github.com/allodhq/allod/internal/cloud/people"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/admin"
	"github.com/allodhq/allod/wire/zone/cluster"
	"github.com/allodhq/allod/wire/zone/nodes"
)

// Login uses a login link up, and returns the token of its operator and when that
// ends. It returns people.ErrLink.
func (c *Controller) Login(ctx context.Context, code zone.Secret) (jwt zone.Secret, ends time.Time, err error) {
	a, err := c.people.ExchangeLoginLink(ctx, admin.ExchangeLoginLink{Code: code})
	return a.Identity.JWT, a.ExpiresAt.Time(), err
}

// NodesOf lists at most max nodes of those that the owner of a token may see, in
// the order of the organizations and clusters they belong to. It returns what
// people.Authenticate does.
func (c *Controller) NodesOf(ctx context.Context, jwt zone.Secret, max int) ([]nodes.Node, error) {
	s, err := c.people.Authenticate(ctx, zone.Identity{JWT: jwt})
	if err != nil {
		return nil, err
	}
	by := s.Principal
	if by.Everything() {
		return c.nodesIn(ctx, by, "", max)
	}
	me, err := c.people.GetIdentity(ctx, people.Session{Principal: by}, admin.GetIdentity{})
	if err != nil {
		return nil, err
	}
	var list []nodes.Node
	for _, m := range me.Memberships {
		for cursor := zone.Cursor(""); len(list) < max; {
			page, err := c.clusters.List(ctx, by, cluster.List{Organization: m.OrganizationID, Cursor: cursor})
			if err != nil {
				return nil, err
			}
			for _, one := range page.Clusters {
				more, err := c.nodesIn(ctx, by, one.ID, max-len(list))
				if err != nil {
					return nil, err
				}
				list = append(list, more...)
			}
			if cursor = page.Next; cursor == "" {
				break
			}
		}
	}
	return list, nil
}

// nodesIn lists at most max nodes of a cluster, or of all where it is "".
func (c *Controller) nodesIn(ctx context.Context, by who.Principal, id zone.ClusterID, max int) ([]nodes.Node, error) {
	var list []nodes.Node
	for cursor := zone.Cursor(""); len(list) < max; {
		page, err := c.nodes.List(ctx, by, nodes.List{Cluster: id, Cursor: cursor})
		if err != nil {
			return nil, err
		}
		list = append(list, page.Nodes...)
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	return list[:min(len(list), max)], nil
}
