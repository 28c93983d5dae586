package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/wire/zone"
)

// everything is what a small store holds: all that can be listed, and what the
// first records of each kind find.
func everything(tx store.Tx) (all []any, err error) {
	add := func(v any, e error) {
		if e != nil {
			err = e
		}
		all = append(all, v)
	}
	organizations, e := tx.Organizations("", 0)
	for _, o := range organizations {
		add(o, e)
		members, e := tx.Members(o.ID, "", 0)
		for _, m := range members {
			add(m, e)
		}
	}
	operators, e := tx.Operators("", 0)
	for _, o := range operators {
		add(o, e)
	}
	clusters, e := tx.Clusters("", "", 0)
	for _, c := range clusters {
		add(c, e)
	}
	nodes, e := tx.Nodes("", "", 0)
	for _, n := range nodes {
		add(n, e)
	}
	entries, e := tx.Audit("", 0, 0)
	for _, a := range entries {
		add(a, e)
	}
	for _, k := range kinds {
		for seed := range byte(4) {
			v, ok, e := k.get(tx, k.filled(seed))
			if ok || e != nil {
				add(v, e)
			}
		}
	}
	return all, err
}

// pages asks for a whole list in pages and holds that each is as long as it says.
func pages[V any, K ~string](t *testing.T, what string, limit int, key func(V) K, page func(after K, limit int) ([]V, error)) []K {
	t.Helper()
	var keys []K
	after := K("")
	for {
		list, err := page(after, limit)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if len(list) > limit {
			t.Fatalf("%s: a page of %d has %d", what, limit, len(list))
		}
		for _, v := range list {
			keys = append(keys, key(v))
		}
		if len(list) < limit {
			return keys
		}
		last := key(list[len(list)-1])
		if last <= after {
			t.Fatalf("%s: the page behind %q ends with %q", what, after, last)
		}
		after = last
	}
}

// awkward are identifiers in their order: by bytes, and none before the one that
// it begins with.
func awkward[K ~string]() []K {
	return []K{"0", "1", "10", "2", "a", "a-", "a.", "a.b", "a0", "a_", "aa", "b", "ä"}
}

// testLists lists each kind in pages of every size, put in another order than that
// of the list, beside records that belong elsewhere.
func testLists(t *testing.T, e Engine) {
	f := open(t, e)
	ids := awkward[string]()
	f.write(func(tx store.Tx) error {
		for i := range ids {
			id := ids[(i*5+3)%len(ids)]
			owners := []string{"here", "hera", "herf", "her", "here-"}
			if err := tx.PutOrganization(store.Organization{ID: zone.OrganizationID(id), Name: "n" + id}); err != nil {
				return err
			}
			if err := tx.PutOperator(store.Operator{ID: zone.OperatorID(id), Name: "n" + id}); err != nil {
				return err
			}
			for j, o := range owners {
				other := id
				if j > 0 {
					other = id + "x"
				}
				o, c := zone.OrganizationID(o), zone.ClusterID(o)
				for _, err := range []error{
					tx.PutMember(store.Member{Organization: o, Operator: zone.OperatorID(id), Role: string(o)}),
					tx.PutCluster(store.Cluster{ID: zone.ClusterID(other + string(o)[3:]), Organization: o, Name: id}),
					tx.PutNode(store.Node{ID: zone.NodeID(other + string(o)[3:]), Cluster: c, Organization: "o", RemovedAt: zone.Millis(i % 2)}),
					tx.PutService(store.Service{ID: zone.ServiceID(other + string(o)[3:]), Organization: o}),
				} {
					if err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
	// Those of "here" are id+"e".
	own := make([]string, len(ids))
	for i, id := range ids {
		own[i] = id + "e"
	}
	slices.Sort(own)
	f.read(func(tx store.Tx) error {
		for _, limit := range []int{1, 2, 3, len(ids) - 1, len(ids), len(ids) + 1, store.MaxList} {
			what := fmt.Sprintf("in pages of %d", limit)
			equal(t, "organizations "+what, pages(t, what, limit, func(v store.Organization) zone.OrganizationID { return v.ID }, tx.Organizations), awkward[zone.OrganizationID]())
			equal(t, "operators "+what, pages(t, what, limit, func(v store.Operator) zone.OperatorID { return v.ID }, tx.Operators), awkward[zone.OperatorID]())
			equal(t, "members "+what, pages(t, what, limit, func(v store.Member) zone.OperatorID {
				if v.Organization != "here" || v.Role != "here" {
					t.Errorf("a member of %q", v.Organization)
				}
				return v.Operator
			}, func(after zone.OperatorID, limit int) ([]store.Member, error) {
				return tx.Members("here", after, limit)
			}), awkward[zone.OperatorID]())
			equal(t, "clusters "+what, pages(t, what, limit, func(v store.Cluster) string { return string(v.ID) },
				func(after string, limit int) ([]store.Cluster, error) {
					return tx.Clusters("here", zone.ClusterID(after), limit)
				}), own)
			equal(t, "nodes "+what, pages(t, what, limit, func(v store.Node) string { return string(v.ID) },
				func(after string, limit int) ([]store.Node, error) {
					return tx.Nodes("here", zone.NodeID(after), limit)
				}), own)
			equal(t, "services "+what, pages(t, what, limit, func(v store.Service) string { return string(v.ID) },
				func(after string, limit int) ([]store.Service, error) {
					return tx.Services("here", zone.ServiceID(after), limit)
				}), own)
			for what, got := range map[string][]string{
				"all clusters": pages(t, what, limit, func(v store.Cluster) string { return string(v.ID) },
					func(after string, limit int) ([]store.Cluster, error) {
						return tx.Clusters("", zone.ClusterID(after), limit)
					}),
				"all nodes": pages(t, what, limit, func(v store.Node) string { return string(v.ID) },
					func(after string, limit int) ([]store.Node, error) { return tx.Nodes("", zone.NodeID(after), limit) }),
			} {
				if len(got) != 5*len(ids) || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
					t.Errorf("%s in pages of %d: %q", what, limit, got)
				}
			}
		}
		// Behind what is not there, and behind the last.
		list, err := tx.Nodes("here", "a1", 2)
		if err != nil || len(list) != 2 || list[0].ID != "a_e" || list[1].ID != "aae" {
			t.Errorf("behind what is not there: %+v, %v", list, err)
		}
		list, err = tx.Nodes("here", "äe", 2)
		if err != nil || len(list) != 0 {
			t.Errorf("behind the last: %+v, %v", list, err)
		}
		return nil
	})
}

// testLongestList holds that no list is longer than MaxList, whatever is asked for.
func testLongestList(t *testing.T, e Engine) {
	f := open(t, e)
	f.write(func(tx store.Tx) error {
		for i := range store.MaxList + 1 {
			n := fmt.Sprintf("%05d", i)
			for _, err := range []error{
				tx.PutOrganization(store.Organization{ID: zone.OrganizationID(n)}),
				tx.PutOperator(store.Operator{ID: zone.OperatorID(n)}),
				tx.PutMember(store.Member{Organization: "o", Operator: zone.OperatorID(n), Role: "r"}),
				tx.PutCluster(store.Cluster{ID: zone.ClusterID(n), Organization: "o"}),
				tx.PutNode(store.Node{ID: zone.NodeID(n), Cluster: "c", Organization: "o"}),
				tx.PutService(store.Service{ID: zone.ServiceID(n), Organization: "o"}),
				tx.AppendAudit(store.AuditEntry{Organization: "o"}),
			} {
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	f.read(func(tx store.Tx) error {
		for _, limit := range []int{0, -1, store.MaxList, store.MaxList + 1, 1 << 62} {
			organizations, _ := tx.Organizations("", limit)
			operators, _ := tx.Operators("", limit)
			members, _ := tx.Members("o", "", limit)
			clusters, _ := tx.Clusters("o", "", limit)
			allClusters, _ := tx.Clusters("", "", limit)
			nodes, _ := tx.Nodes("c", "", limit)
			allNodes, _ := tx.Nodes("", "", limit)
			services, _ := tx.Services("o", "", limit)
			audit, _ := tx.Audit("o", 0, limit)
			allAudit, _ := tx.Audit("", 0, limit)
			for i, n := range []int{len(organizations), len(operators), len(members), len(clusters), len(allClusters), len(nodes), len(allNodes), len(services), len(audit), len(allAudit)} {
				if n != store.MaxList {
					t.Errorf("list %d with a limit of %d has %d", i, limit, n)
				}
			}
		}
		return nil
	})
}

// testMoves lists what has changed what it belongs to.
func testMoves(t *testing.T, e Engine) {
	f := open(t, e)
	for _, to := range []string{"a", "b", "a"} {
		f.write(func(tx store.Tx) error {
			for _, err := range []error{
				tx.PutCluster(store.Cluster{ID: "x", Organization: zone.OrganizationID(to)}),
				tx.PutNode(store.Node{ID: "x", Cluster: zone.ClusterID(to), Organization: "o"}),
				tx.PutService(store.Service{ID: "x", Organization: zone.OrganizationID(to)}),
			} {
				if err != nil {
					return err
				}
			}
			return nil
		})
		f.read(func(tx store.Tx) error {
			for _, at := range []string{"a", "b"} {
				clusters, _ := tx.Clusters(zone.OrganizationID(at), "", 0)
				nodes, _ := tx.Nodes(zone.ClusterID(at), "", 0)
				services, err := tx.Services(zone.OrganizationID(at), "", 0)
				want := 0
				if at == to {
					want = 1
				}
				if err != nil || len(clusters) != want || len(nodes) != want || len(services) != want {
					t.Errorf("moved to %s; at %s are %d clusters, %d nodes, %d services, %v", to, at, len(clusters), len(nodes), len(services), err)
				}
			}
			return nil
		})
	}
}

// testMembers holds the roles, their removal, and the bound of an operator.
func testMembers(t *testing.T, e Engine) {
	f := open(t, e)
	organization := func(i int) zone.OrganizationID {
		return zone.OrganizationID(fmt.Sprintf("o%02d", (i*7+5)%store.MaxMemberships))
	}
	f.write(func(tx store.Tx) error {
		for i := range store.MaxMemberships {
			for _, p := range []zone.OperatorID{"many", "o", "zero"} {
				if p == "many" || i == 3 {
					if err := tx.PutMember(store.Member{Organization: organization(i), Operator: p, Role: "viewer"}); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
	count := func(what string, want int) {
		t.Helper()
		f.read(func(tx store.Tx) error {
			list, err := tx.Memberships("many")
			if len(list) != want {
				t.Errorf("%s: %d memberships", what, len(list))
			}
			for i, m := range list {
				if m.Operator != "many" || m.Role == "" || i > 0 && list[i-1].Organization >= m.Organization {
					t.Errorf("%s: membership %d is %+v", what, i, m)
				}
			}
			return err
		})
	}
	count("all", store.MaxMemberships)
	put := func(m store.Member) (err error) {
		f.write(func(tx store.Tx) error {
			err = tx.PutMember(m)
			return nil
		})
		return err
	}
	wantErr(t, "one too many", put(store.Member{Organization: "one-more", Operator: "many", Role: "viewer"}), store.ErrBounds)
	count("after one too many", store.MaxMemberships)
	for _, m := range []store.Member{
		{Organization: "one-more", Operator: "other", Role: "viewer"},
		{Organization: "o03", Operator: "many", Role: "owner"},
		{Organization: "nowhere", Operator: "many"},
		{Organization: "o04", Operator: "many"},
	} {
		if err := put(m); err != nil {
			t.Errorf("%+v: %v", m, err)
		}
	}
	count("after a removal", store.MaxMemberships-1)
	f.read(func(tx store.Tx) error {
		m, ok, err := tx.Member("o03", "many")
		if !ok || m.Role != "owner" {
			t.Errorf("a changed role: %+v, %v", m, ok)
		}
		_, ok, _ = tx.Member("o04", "many")
		list, _ := tx.Members("o04", "", 0)
		if ok || len(list) != 0 {
			t.Errorf("a removed member: %v, %+v", ok, list)
		}
		return err
	})
	if err := put(store.Member{Organization: "one-more", Operator: "many", Role: "viewer"}); err != nil {
		t.Errorf("in the place of a removed one: %v", err)
	}
	count("again", store.MaxMemberships)
}

// testAudit numbers entries from 1 and lists them from the newest.
func testAudit(t *testing.T, e Engine) {
	f := open(t, e)
	organization := func(seq int64) zone.OrganizationID { return []zone.OrganizationID{"", "a", "b"}[seq%3] }
	entry := func(seq int64) store.AuditEntry {
		return store.AuditEntry{
			Seq: seq, At: zone.Millis(100 - seq), Actor: "someone", Organization: organization(seq),
			Action: "act", Subject: fmt.Sprintf("node/%d", seq), Detail: `{"a":1}`,
		}
	}
	failed := fmt.Errorf("on purpose")
	for seq := int64(1); seq <= 30; seq++ {
		f.write(func(tx store.Tx) error {
			e := entry(seq)
			e.Seq = 77 // the store's to say
			return tx.AppendAudit(e)
		})
		err := f.store.Write(t.Context(), func(tx store.Tx) error {
			if err := tx.AppendAudit(store.AuditEntry{Action: "undone"}); err != nil {
				return err
			}
			return failed
		})
		wantErr(t, "undone", err, failed)
	}
	f.read(func(tx store.Tx) error {
		for _, o := range []zone.OrganizationID{"", "a", "b", "none"} {
			var want []store.AuditEntry
			for seq := int64(30); seq > 0; seq-- {
				if o == "" || organization(seq) == o {
					want = append(want, entry(seq))
				}
			}
			for _, limit := range []int{1, 4, 10, 30, 100} {
				var got []store.AuditEntry
				for before := int64(0); ; {
					page, err := tx.Audit(o, before, limit)
					if err != nil || len(page) > limit {
						t.Fatalf("a page of %d: %d, %v", limit, len(page), err)
					}
					got = append(got, page...)
					if len(page) < limit || page[len(page)-1].Seq == 1 {
						break
					}
					before = page[len(page)-1].Seq
				}
				equal(t, fmt.Sprintf("%q in pages of %d", o, limit), got, want)
			}
		}
		for before, want := range map[int64]int{1: 0, 2: 1, 30: 29, 31: 30, 1 << 62: 30, -1: 30} {
			if list, err := tx.Audit("", before, 0); len(list) != want {
				t.Errorf("before %d: %d entries, %v", before, len(list), err)
			}
		}
		return nil
	})
}

// testPrune removes what ended, the oldest first, and nothing else.
func testPrune(t *testing.T, e Engine) {
	f := open(t, e)
	const n = 9
	f.write(func(tx store.Tx) error {
		for i := range n {
			at, h := zone.Millis(100+(i*4)%n), store.Hash{byte(i + 1)}
			for _, err := range []error{
				// Neither when they were made nor whether they were used says anything.
				tx.PutLoginLink(store.LoginLink{Code: h, Operator: "o", CreatedAt: 1000 - at, ExpiresAt: at, UsedAt: zone.Millis(i % 2)}),
				tx.PutInvitation(store.Invitation{Code: h, Cluster: "c", CreatedAt: 1000 - at, ExpiresAt: at, Enrollment: []string{"", "e"}[i%2]}),
				tx.PutReceipt(store.Receipt{Scope: "o", ID: zone.MutationID(fmt.Sprint(i)), At: at}),
				tx.PutEnrollment(store.Enrollment{ID: fmt.Sprint(i), Node: "n", CommittedAt: at}),
				tx.AppendAudit(store.AuditEntry{At: at}),
			} {
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	left := func(what string, from zone.Millis) {
		t.Helper()
		f.read(func(tx store.Tx) error {
			for i := range n {
				at, h := zone.Millis(100+(i*4)%n), store.Hash{byte(i + 1)}
				_, link, _ := tx.LoginLink(h)
				_, invitation, _ := tx.Invitation(h)
				_, receipt, _ := tx.Receipt("o", zone.MutationID(fmt.Sprint(i)))
				_, enrollment, err := tx.Enrollment(fmt.Sprint(i))
				if want := at >= from; link != want || invitation != want || receipt != want || !enrollment || err != nil {
					t.Errorf("%s, of %d: link %v, invitation %v, receipt %v, enrollment %v", what, at, link, invitation, receipt, enrollment)
				}
			}
			list, err := tx.Audit("", 0, 0)
			if len(list) != n {
				t.Errorf("%s: %d audit entries", what, len(list))
			}
			return err
		})
	}
	prune := func(t zone.Millis, limit int) {
		f.Helper()
		f.write(func(tx store.Tx) error { return tx.Prune(t, limit) })
	}
	prune(100, 100)
	left("at the first one's end", 100)
	prune(105, 2)
	left("two of five", 102)
	prune(105, 2)
	left("four of five", 104)
	failed := fmt.Errorf("on purpose")
	wantErr(t, "undone", f.store.Write(t.Context(), func(tx store.Tx) error {
		if err := tx.Prune(1000, 100); err != nil {
			return err
		}
		return failed
	}), failed)
	left("undone", 104)
	prune(105, 2)
	left("five", 105)
	prune(1000, 0)
	left("all", 1000)
}
