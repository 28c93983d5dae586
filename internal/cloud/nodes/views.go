package nodes

import (
	"context"
	"errors"

	"github.com/allodhq/allod/internal/cloud/act"
	"github.com/allodhq/allod/internal/cloud/page"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/nodes"
	"github.com/allodhq/allod/wire/zone/spark"
)

// view is a node as the controller shows it, and what was found about it.
func (n *Nodes) view(tx store.Tx, node store.Node, now zone.Millis) (nodes.Node, []nodes.Finding, error) {
	v := nodes.Node{
		ID: node.ID, Cluster: node.Cluster, Organization: node.Organization, Hostname: node.Hostname,
		JoinedAt: node.JoinedAt, RemovedAt: node.RemovedAt, Credentials: []enroll.Metadata{},
	}
	f := facts{node: node}
	kept, found, err := tx.Report(node.ID)
	if err != nil && !errors.Is(err, store.ErrSetAside) {
		return nodes.Node{}, nil, err
	}
	f.damaged = err != nil
	if found {
		r, err := spark.ReportCodec.Read(kept.Report)
		if f.damaged = err != nil; !f.damaged {
			v.Seen = &nodes.Seen{AcceptedAt: kept.AcceptedAt, Report: r}
			f.seen = v.Seen
		}
	}
	for _, p := range []struct {
		purpose enroll.Purpose
		into    **store.Credential
	}{{enroll.Spark, &f.spark}, {enroll.Pallet, &f.pallet}} {
		c, found, err := tx.Credential(node.ID, string(p.purpose))
		switch {
		case errors.Is(err, store.ErrSetAside): // one record keeps no list from being shown
			f.aside = append(f.aside, p.purpose)
		case err != nil:
			return nodes.Node{}, nil, err
		case found:
			*p.into = &c
			v.Credentials = append(v.Credentials, n.metadata(c, now))
		}
	}
	var findings []nodes.Finding
	v.Liveness, findings = judge(f, n.times, now)
	return v, findings, nil
}

// List answers with the nodes of one cluster, or, for who administers the
// installation, of all (getNodes). It returns who's refusals and page.ErrCursor.
func (n *Nodes) List(ctx context.Context, by who.Principal, r nodes.List) (nodes.Page, error) {
	now := n.now()
	var p nodes.Page
	err := n.store.Read(ctx, func(tx store.Tx) error {
		if r.Cluster == "" {
			if err := by.Install(); err != nil {
				return err
			}
		} else {
			c, _, err := tx.Cluster(r.Cluster)
			if err != nil {
				return err
			}
			if err := by.See(tx, c.Organization); err != nil {
				return err
			}
		}
		list, next, err := page.Read(r.Cursor, 0, func(after zone.NodeID, limit int) ([]store.Node, error) {
			return tx.Nodes(r.Cluster, after, limit)
		}, func(node store.Node) zone.NodeID { return node.ID })
		if err != nil {
			return err
		}
		p = nodes.Page{Nodes: make([]nodes.Node, 0, len(list)), Next: next}
		for _, node := range list {
			v, _, err := n.view(tx, node, now)
			if err != nil {
				return err
			}
			p.Nodes = append(p.Nodes, v)
		}
		return nil
	})
	if err != nil {
		return nodes.Page{}, err
	}
	return p, nil
}

// Get answers with one node (getNode). It returns who.ErrAbsent.
func (n *Nodes) Get(ctx context.Context, by who.Principal, r nodes.Get) (nodes.Answer, error) {
	e, err := n.Why(ctx, by, r)
	return nodes.Answer{Node: e.Node}, err
}

// Why answers with one node and what was found about it (explainNode). It returns
// who.ErrAbsent.
func (n *Nodes) Why(ctx context.Context, by who.Principal, r nodes.Get) (nodes.Explanation, error) {
	now := n.now()
	e := nodes.Explanation{Findings: []nodes.Finding{}}
	err := n.store.Read(ctx, func(tx store.Tx) error {
		node, _, err := tx.Node(r.Node)
		if err != nil {
			return err
		}
		if err := by.See(tx, node.Organization); err != nil {
			return err
		}
		view, found, err := n.view(tx, node, now)
		e.Node, e.Findings = view, append(e.Findings, found...)
		return err
	})
	if err != nil {
		return nodes.Explanation{}, err
	}
	return e, nil
}

// AskRotation asks both programs of a node for new credentials
// (requestNodeRotation). It returns who's and act's refusals, and ErrRemoved.
func (n *Nodes) AskRotation(ctx context.Context, by who.Principal, r nodes.Rotate) (nodes.Answer, error) {
	input, err := r.Input()
	if err != nil {
		return nodes.Answer{}, err
	}
	return n.change(ctx, by, r.Node, nodes.MethodRotate, r.Mutation, input, func(tx store.Tx, node *store.Node, _ zone.Millis) error {
		for _, purpose := range []enroll.Purpose{enroll.Spark, enroll.Pallet} {
			c, found, err := tx.Credential(node.ID, string(purpose))
			if err != nil {
				return err
			}
			if !found {
				continue
			}
			c.Rotate = true
			if err := tx.PutCredential(c); err != nil {
				return err
			}
		}
		return nil
	})
}

// Remove ends the authority of a node or of its Pallet (removeNode). It returns
// who's and act's refusals, and ErrRemoved.
func (n *Nodes) Remove(ctx context.Context, by who.Principal, r nodes.Remove) (nodes.Answer, error) {
	input, err := r.Input()
	if err != nil {
		return nodes.Answer{}, err
	}
	return n.change(ctx, by, r.Node, nodes.MethodRemove, r.Mutation, input, func(tx store.Tx, node *store.Node, now zone.Millis) error {
		purposes := []enroll.Purpose{enroll.Spark, enroll.Pallet}
		if r.PalletOnly {
			purposes = purposes[1:]
		} else {
			node.RemovedAt = now
		}
		for _, purpose := range purposes {
			if err := tx.DeleteCredential(node.ID, string(purpose)); err != nil {
				return err
			}
		}
		return tx.PutNode(*node)
	})
}

// change runs one change of a node, once.
func (n *Nodes) change(ctx context.Context, by who.Principal, id zone.NodeID, method string, mutation zone.MutationID, input canon.Sum,
	decide func(tx store.Tx, node *store.Node, now zone.Millis) error) (nodes.Answer, error) {
	now := n.now()
	var a nodes.Answer
	err := n.store.Write(ctx, func(tx store.Tx) error {
		node, _, err := tx.Node(id)
		if err != nil {
			return err
		}
		if err := by.Change(tx, node.Organization); err != nil {
			return err
		}
		answer, _, err := act.Once(tx, act.Act{By: by, Organization: node.Organization, Action: method, Subject: "node/" + string(id), At: now}, mutation, input,
			func() ([]byte, error) {
				if node.RemovedAt != 0 {
					return nil, ErrRemoved
				}
				if err := decide(tx, &node, now); err != nil {
					return nil, err
				}
				v, _, err := n.view(tx, node, now)
				if err != nil {
					return nil, err
				}
				return nodes.AnswerCodec.Append(nil, nodes.Answer{Node: v})
			})
		if err != nil {
			return err
		}
		a, err = nodes.AnswerCodec.Read(answer)
		return err
	})
	if err != nil {
		return nodes.Answer{}, err
	}
	return a, nil
}
