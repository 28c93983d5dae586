package memory

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/wire/zone"
)

// table is one kind of record by its key.
type table[K comparable, V any] struct {
	rows map[K]V
	// order compares keys; nil where nobody lists the records. keys are in this order.
	order func(a, b K) int
	keys  []K
	// moved follows each change in an index; nil where there is none. A record that is
	// not there is nil.
	moved func(k K, from, to *V)
}

// set puts a record in its place, or takes it away where v is nil.
func (t *table[K, V]) set(k K, v *V) {
	old, had := t.rows[k]
	if t.moved != nil {
		var from *V
		if had {
			from = &old
		}
		t.moved(k, from, v)
	}
	if t.order != nil && had != (v != nil) {
		at, _ := slices.BinarySearchFunc(t.keys, k, t.order)
		if had {
			t.keys = slices.Delete(t.keys, at, at+1)
		} else {
			t.keys = slices.Insert(t.keys, at, k)
		}
	}
	if v == nil {
		delete(t.rows, k)
	} else {
		t.rows[k] = *v
	}
}

// change sets a record in a transaction.
func (t *table[K, V]) change(x *tx, k K, v *V) {
	old, had := t.rows[k]
	t.set(k, v)
	x.undo = append(x.undo, func() {
		if had {
			t.set(k, &old)
		} else {
			t.set(k, nil)
		}
	})
}

// page lists up to limit records behind a key, of those that are wanted.
func (t *table[K, V]) page(after K, limit int, wanted func(V) bool) []V {
	at, found := slices.BinarySearchFunc(t.keys, after, t.order)
	if found {
		at++
	}
	limit = store.Limit(limit)
	var list []V
	for ; at < len(t.keys) && len(list) < limit; at++ {
		if v := t.rows[t.keys[at]]; wanted(v) {
			list = append(list, v)
		}
	}
	return list
}

// oldest are the keys of up to limit records that ended before t, the oldest
// first.
func (t *table[K, V]) oldest(before zone.Millis, limit int, ended func(V) zone.Millis, order func(a, b K) int) []K {
	type row struct {
		at  zone.Millis
		key K
	}
	var rows []row
	for k, v := range t.rows {
		if at := ended(v); at < before {
			rows = append(rows, row{at, k})
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(cmp.Compare(a.at, b.at), order(a.key, b.key)) })
	var keys []K
	for _, r := range rows[:min(len(rows), store.Limit(limit))] {
		keys = append(keys, r.key)
	}
	return keys
}

// pair is a key of two parts.
type pair[A, B ~string] struct {
	a A
	b B
}

func (p pair[A, B]) compare(q pair[A, B]) int {
	return cmp.Or(strings.Compare(string(p.a), string(q.a)), strings.Compare(string(p.b), string(q.b)))
}

type (
	membership = pair[zone.OrganizationID, zone.OperatorID]
	authority  = pair[zone.NodeID, string]
	mutation   = pair[string, zone.MutationID]
)

// tables are all that a store holds.
type tables struct {
	organizations table[zone.OrganizationID, store.Organization]
	operators     table[zone.OperatorID, store.Operator]
	members       table[membership, store.Member]
	memberships   map[zone.OperatorID][]zone.OrganizationID // in their order
	clusters      table[zone.ClusterID, store.Cluster]
	runtimes      table[zone.ClusterID, store.Runtime]
	nodes         table[zone.NodeID, store.Node]
	reports       table[zone.NodeID, store.Report]
	credentials   table[authority, store.Credential]
	bearers       map[store.Hash]authority
	invitations   table[store.Hash, store.Invitation]
	enrollments   table[string, store.Enrollment]
	services      table[zone.ServiceID, store.Service]
	machines      table[zone.ServiceID, store.Machine]
	programs      map[store.Hash]zone.ServiceID
	links         table[store.Hash, store.LoginLink]
	receipts      table[mutation, store.Receipt]
	audit         []store.AuditEntry // Seq is the index and one
}

func newTables() tables {
	t := tables{
		organizations: listed[zone.OrganizationID, store.Organization](),
		operators:     listed[zone.OperatorID, store.Operator](),
		members:       table[membership, store.Member]{rows: map[membership]store.Member{}, order: membership.compare},
		memberships:   map[zone.OperatorID][]zone.OrganizationID{},
		clusters:      listed[zone.ClusterID, store.Cluster](),
		runtimes:      table[zone.ClusterID, store.Runtime]{rows: map[zone.ClusterID]store.Runtime{}},
		nodes:         listed[zone.NodeID, store.Node](),
		reports:       table[zone.NodeID, store.Report]{rows: map[zone.NodeID]store.Report{}},
		credentials:   table[authority, store.Credential]{rows: map[authority]store.Credential{}},
		bearers:       map[store.Hash]authority{},
		invitations:   table[store.Hash, store.Invitation]{rows: map[store.Hash]store.Invitation{}},
		enrollments:   table[string, store.Enrollment]{rows: map[string]store.Enrollment{}},
		services:      listed[zone.ServiceID, store.Service](),
		machines:      table[zone.ServiceID, store.Machine]{rows: map[zone.ServiceID]store.Machine{}},
		programs:      map[store.Hash]zone.ServiceID{},
		links:         table[store.Hash, store.LoginLink]{rows: map[store.Hash]store.LoginLink{}},
		receipts:      table[mutation, store.Receipt]{rows: map[mutation]store.Receipt{}},
	}
	memberships, bearers, programs := t.memberships, t.bearers, t.programs
	t.members.moved = func(k membership, from, to *store.Member) {
		list := memberships[k.b]
		at, _ := slices.BinarySearch(list, k.a)
		switch {
		case from == nil && to != nil:
			memberships[k.b] = slices.Insert(list, at, k.a)
		case from != nil && to == nil:
			memberships[k.b] = slices.Delete(list, at, at+1)
		}
	}
	t.credentials.moved = func(k authority, from, to *store.Credential) {
		if from != nil {
			delete(bearers, from.Hash)
		}
		if to != nil && !to.Hash.IsZero() {
			bearers[to.Hash] = k
		}
	}
	t.machines.moved = func(k zone.ServiceID, from, to *store.Machine) {
		if from != nil {
			delete(programs, from.Hash)
		}
		if to != nil && !to.Hash.IsZero() {
			programs[to.Hash] = k
		}
	}
	return t
}

func listed[K ~string, V any]() table[K, V] {
	return table[K, V]{rows: map[K]V{}, order: func(a, b K) int { return strings.Compare(string(a), string(b)) }}
}

func compareHashes(a, b store.Hash) int { return bytes.Compare(a[:], b[:]) }

// own is a copy that nobody else has. An empty document becomes nil.
func own(document []byte) []byte {
	if len(document) == 0 {
		return nil
	}
	return bytes.Clone(document)
}
