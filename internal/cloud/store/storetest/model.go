package storetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/wire/zone"
)

// model is what a store holds, kept as simply as can be: lists that are searched
// from one end to the other, and copied whole to be undone. It takes only records
// within their bounds.
type model struct {
	organizations []store.Organization
	operators     []store.Operator
	members       []store.Member
	links         []store.LoginLink
	clusters      []store.Cluster
	runtimes      []store.Runtime
	nodes         []store.Node
	reports       []store.Report
	credentials   []store.Credential
	invitations   []store.Invitation
	enrollments   []store.Enrollment
	services      []store.Service
	machines      []store.Machine
	receipts      []store.Receipt
	audit         []store.AuditEntry
}

var _ store.Tx = (*model)(nil)

func (m *model) clone() *model {
	return &model{
		organizations: slices.Clone(m.organizations),
		operators:     slices.Clone(m.operators),
		members:       slices.Clone(m.members),
		links:         slices.Clone(m.links),
		clusters:      slices.Clone(m.clusters),
		runtimes:      slices.Clone(m.runtimes),
		nodes:         slices.Clone(m.nodes),
		reports:       slices.Clone(m.reports),
		credentials:   slices.Clone(m.credentials),
		invitations:   slices.Clone(m.invitations),
		enrollments:   slices.Clone(m.enrollments),
		services:      slices.Clone(m.services),
		machines:      slices.Clone(m.machines),
		receipts:      slices.Clone(m.receipts),
		audit:         slices.Clone(m.audit),
	}
}

func find[V any](list []V, is func(V) bool) (v V, ok bool, err error) {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i], true, nil
	}
	return v, false, nil
}

func replace[V any](list *[]V, v V, is func(V) bool) error {
	*list = append(slices.DeleteFunc(*list, is), v)
	return nil
}

func addNew[V any](list *[]V, v V, is func(V) bool) error {
	if slices.ContainsFunc(*list, is) {
		return store.ErrTaken
	}
	*list = append(*list, v)
	return nil
}

// listOf are those that are wanted behind a key, in order.
func listOf[V any, K ~string](list []V, key func(V) K, after K, limit int, wanted func(V) bool) (out []V, err error) {
	for _, v := range list {
		if wanted(v) && key(v) > after {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b V) int { return cmp.Compare(key(a), key(b)) })
	if limit > 0 && len(out) > limit {
		out = out[:limit]
	}
	return out, nil
}

func always[V any](V) bool { return true }

func (m *model) Organization(id zone.OrganizationID) (store.Organization, bool, error) {
	return find(m.organizations, func(v store.Organization) bool { return v.ID == id })
}

func (m *model) Organizations(after zone.OrganizationID, limit int) ([]store.Organization, error) {
	return listOf(m.organizations, func(v store.Organization) zone.OrganizationID { return v.ID }, after, limit, always)
}

func (m *model) PutOrganization(o store.Organization) error {
	return replace(&m.organizations, o, func(v store.Organization) bool { return v.ID == o.ID })
}

func (m *model) Operator(id zone.OperatorID) (store.Operator, bool, error) {
	return find(m.operators, func(v store.Operator) bool { return v.ID == id })
}

func (m *model) Operators(after zone.OperatorID, limit int) ([]store.Operator, error) {
	return listOf(m.operators, func(v store.Operator) zone.OperatorID { return v.ID }, after, limit, always)
}

func (m *model) PutOperator(o store.Operator) error {
	return replace(&m.operators, o, func(v store.Operator) bool { return v.ID == o.ID })
}

func (m *model) Member(o zone.OrganizationID, p zone.OperatorID) (store.Member, bool, error) {
	return find(m.members, func(v store.Member) bool { return v.Organization == o && v.Operator == p })
}

func (m *model) Members(o zone.OrganizationID, after zone.OperatorID, limit int) ([]store.Member, error) {
	return listOf(m.members, func(v store.Member) zone.OperatorID { return v.Operator }, after, limit, func(v store.Member) bool { return v.Organization == o })
}

func (m *model) Memberships(p zone.OperatorID) ([]store.Member, error) {
	return listOf(m.members, func(v store.Member) zone.OrganizationID { return v.Organization }, "", 0, func(v store.Member) bool { return v.Operator == p })
}

func (m *model) PutMember(n store.Member) error {
	is := func(v store.Member) bool { return v.Organization == n.Organization && v.Operator == n.Operator }
	if n.Role == "" {
		m.members = slices.DeleteFunc(m.members, is)
		return nil
	}
	return replace(&m.members, n, is)
}

func (m *model) Cluster(id zone.ClusterID) (store.Cluster, bool, error) {
	return find(m.clusters, func(v store.Cluster) bool { return v.ID == id })
}

func (m *model) Clusters(o zone.OrganizationID, after zone.ClusterID, limit int) ([]store.Cluster, error) {
	return listOf(m.clusters, func(v store.Cluster) zone.ClusterID { return v.ID }, after, limit, func(v store.Cluster) bool { return o == "" || v.Organization == o })
}

func (m *model) PutCluster(c store.Cluster) error {
	return replace(&m.clusters, c, func(v store.Cluster) bool { return v.ID == c.ID })
}

func (m *model) Runtime(id zone.ClusterID) (store.Runtime, bool, error) {
	return find(m.runtimes, func(v store.Runtime) bool { return v.Cluster == id })
}

func (m *model) PutRuntime(r store.Runtime) error {
	return replace(&m.runtimes, r, func(v store.Runtime) bool { return v.Cluster == r.Cluster })
}

func (m *model) Node(id zone.NodeID) (store.Node, bool, error) {
	return find(m.nodes, func(v store.Node) bool { return v.ID == id })
}

func (m *model) Nodes(c zone.ClusterID, after zone.NodeID, limit int) ([]store.Node, error) {
	return listOf(m.nodes, func(v store.Node) zone.NodeID { return v.ID }, after, limit, func(v store.Node) bool { return c == "" || v.Cluster == c })
}

func (m *model) PutNode(n store.Node) error {
	return replace(&m.nodes, n, func(v store.Node) bool { return v.ID == n.ID })
}

func (m *model) Report(id zone.NodeID) (store.Report, bool, error) {
	return find(m.reports, func(v store.Report) bool { return v.Node == id })
}

func (m *model) PutReport(r store.Report) error {
	return replace(&m.reports, r, func(v store.Report) bool { return v.Node == r.Node })
}

func (m *model) Credential(id zone.NodeID, purpose string) (store.Credential, bool, error) {
	return find(m.credentials, func(v store.Credential) bool { return v.Node == id && v.Purpose == purpose })
}

func (m *model) CredentialByHash(hash store.Hash) (store.Credential, bool, error) {
	return find(m.credentials, func(v store.Credential) bool { return v.Hash == hash && hash != store.Hash{} })
}

func (m *model) PutCredential(c store.Credential) error {
	is := func(v store.Credential) bool { return v.Node == c.Node && v.Purpose == c.Purpose }
	if v, held, _ := m.CredentialByHash(c.Hash); held && !is(v) {
		return store.ErrTaken
	}
	return replace(&m.credentials, c, is)
}

func (m *model) DeleteCredential(id zone.NodeID, purpose string) error {
	m.credentials = slices.DeleteFunc(m.credentials, func(v store.Credential) bool { return v.Node == id && v.Purpose == purpose })
	return nil
}

func (m *model) Invitation(code store.Hash) (store.Invitation, bool, error) {
	return find(m.invitations, func(v store.Invitation) bool { return v.Code == code })
}

func (m *model) PutInvitation(i store.Invitation) error {
	return replace(&m.invitations, i, func(v store.Invitation) bool { return v.Code == i.Code })
}

func (m *model) Enrollment(id string) (store.Enrollment, bool, error) {
	return find(m.enrollments, func(v store.Enrollment) bool { return v.ID == id })
}

func (m *model) PutEnrollment(e store.Enrollment) error {
	return addNew(&m.enrollments, e, func(v store.Enrollment) bool { return v.ID == e.ID })
}

func (m *model) Service(id zone.ServiceID) (store.Service, bool, error) {
	return find(m.services, func(v store.Service) bool { return v.ID == id })
}

func (m *model) Services(o zone.OrganizationID, after zone.ServiceID, limit int) ([]store.Service, error) {
	return listOf(m.services, func(v store.Service) zone.ServiceID { return v.ID }, after, limit, func(v store.Service) bool { return v.Organization == o })
}

func (m *model) PutService(s store.Service) error {
	return replace(&m.services, s, func(v store.Service) bool { return v.ID == s.ID })
}

func (m *model) Machine(id zone.ServiceID) (store.Machine, bool, error) {
	return find(m.machines, func(v store.Machine) bool { return v.Service == id })
}

func (m *model) MachineByHash(hash store.Hash) (store.Machine, bool, error) {
	return find(m.machines, func(v store.Machine) bool { return v.Hash == hash && hash != store.Hash{} })
}

func (m *model) PutMachine(n store.Machine) error {
	if v, held, _ := m.MachineByHash(n.Hash); held && v.Service != n.Service {
		return store.ErrTaken
	}
	return replace(&m.machines, n, func(v store.Machine) bool { return v.Service == n.Service })
}

func (m *model) LoginLink(code store.Hash) (store.LoginLink, bool, error) {
	return find(m.links, func(v store.LoginLink) bool { return v.Code == code })
}

func (m *model) PutLoginLink(l store.LoginLink) error {
	return replace(&m.links, l, func(v store.LoginLink) bool { return v.Code == l.Code })
}

func (m *model) Receipt(scope string, id zone.MutationID) (store.Receipt, bool, error) {
	return find(m.receipts, func(v store.Receipt) bool { return v.Scope == scope && v.ID == id })
}

func (m *model) PutReceipt(r store.Receipt) error {
	return addNew(&m.receipts, r, func(v store.Receipt) bool { return v.Scope == r.Scope && v.ID == r.ID })
}

func (m *model) AppendAudit(e store.AuditEntry) error {
	e.Seq = int64(len(m.audit) + 1)
	m.audit = append(m.audit, e)
	return nil
}

func (m *model) Audit(o zone.OrganizationID, before int64, limit int) (out []store.AuditEntry, err error) {
	for _, e := range slices.Backward(m.audit) {
		if (before <= 0 || e.Seq < before) && (o == "" || e.Organization == o) && (limit <= 0 || len(out) < limit) {
			out = append(out, e)
		}
	}
	return out, nil
}

func (m *model) Prune(t zone.Millis, limit int) error {
	m.links = prune(m.links, t, limit, func(v store.LoginLink) (zone.Millis, string) { return v.ExpiresAt, string(v.Code[:]) })
	m.invitations = prune(m.invitations, t, limit, func(v store.Invitation) (zone.Millis, string) { return v.ExpiresAt, string(v.Code[:]) })
	m.receipts = prune(m.receipts, t, limit, func(v store.Receipt) (zone.Millis, string) { return v.At, v.Scope + "\x00" + string(v.ID) })
	return nil
}

func prune[V any](list []V, t zone.Millis, limit int, of func(V) (zone.Millis, string)) []V {
	slices.SortFunc(list, func(a, b V) int {
		at, ak := of(a)
		bt, bk := of(b)
		return cmp.Or(cmp.Compare(at, bt), strings.Compare(ak, bk))
	})
	n := 0
	for n < len(list) && n < limit {
		if at, _ := of(list[n]); at >= t {
			break
		}
		n++
	}
	return list[n:]
}

// call is one call of a method with its arguments.
type call struct {
	method string
	args   []reflect.Value
}

func (c call) String() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s(", c.method)
	for _, a := range c.args {
		fmt.Fprintf(&b, "%+v ", a.Interface())
	}
	return b.String() + ")"
}

// on makes the call; a failure is told as the kind that it is.
func (c call) on(tx store.Tx) (results []any) {
	for _, r := range reflect.ValueOf(tx).MethodByName(c.method).Call(c.args) {
		v := r.Interface()
		if err, ok := v.(error); ok {
			switch {
			case errors.Is(err, store.ErrTaken):
				v = store.ErrTaken
			case errors.Is(err, store.ErrReadOnly):
				v = store.ErrReadOnly
			}
		}
		results = append(results, v)
	}
	return results
}

// drawn is a call of any method with values that meet again and again.
func drawn(rt *rapid.T) call {
	methods := reflect.TypeFor[store.Tx]()
	m := methods.Method(rapid.IntRange(0, methods.NumMethod()-1).Draw(rt, "method"))
	c := call{method: m.Name}
	for i := range m.Type.NumIn() {
		v := reflect.New(m.Type.In(i)).Elem()
		name := "argument"
		if m.Type.NumIn() == 2 && m.Type.In(i) == reflect.TypeFor[string]() {
			name = "Purpose"
		}
		draw(rt, v, name, strings.HasPrefix(m.Name, "Put"))
		c.args = append(c.args, v)
	}
	return c
}

func draw(rt *rapid.T, v reflect.Value, name string, whole bool) {
	words := []string{"", "a", "b", "b-", "c"}
	if whole && v.Kind() == reflect.String && name != "Role" && name != "Enrollment" {
		words = words[1:]
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(rapid.SampledFrom(words).Draw(rt, name))
	case reflect.Int, reflect.Int64:
		n := rapid.IntRange(1, 6).Draw(rt, name)
		v.SetInt(int64(n))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(rt, name))
	case reflect.Slice:
		if n := rapid.IntRange(0, 3).Draw(rt, name); n > 0 {
			v.SetBytes(bytes.Repeat([]byte{byte(n)}, n))
		}
	case reflect.Array:
		v.Index(7).SetUint(rapid.Uint64Range(0, 3).Draw(rt, name))
	case reflect.Struct:
		for i := range v.NumField() {
			draw(rt, v.Field(i), v.Type().Field(i).Name, whole)
		}
	}
}

// writes is whether the method changes something.
func (c call) writes() bool {
	for _, prefix := range []string{"Put", "Append", "Delete", "Prune"} {
		if strings.HasPrefix(c.method, prefix) {
			return true
		}
	}
	return false
}

// compare makes a call on both and says how their answers differ.
func (c call) compare(tx, m store.Tx) string {
	want := c.on(m)
	if got := c.on(tx); !reflect.DeepEqual(got, want) {
		return fmt.Sprintf("%v: got %+v, want %+v", c, got, want)
	}
	return ""
}

// testModel makes random transactions on the store and on the model, and compares
// every answer. Transactions end in all the ways there are.
func testModel(t *testing.T, e Engine) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			rt.Fatal(err)
		}
		s, err := e.Open(dir)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		known := &model{}
		for range rapid.IntRange(1, 12).Draw(rt, "transactions") {
			calls := make([]call, rapid.IntRange(1, 12).Draw(rt, "calls"))
			for i := range calls {
				calls[i] = drawn(rt)
			}
			switch how := rapid.SampledFrom([]string{"well", "well", "well", "error", "panic", "context", "read", "reopen"}).Draw(rt, "end"); how {
			case "reopen":
				if !e.Durable {
					continue
				}
				if err := s.Close(); err != nil {
					rt.Fatal(err)
				}
				if s, err = e.Open(dir); err != nil {
					rt.Fatal(err)
				}
			case "read":
				if differ := readBoth(s, known, calls); differ != "" {
					rt.Fatal(differ)
				}
			default:
				next := known.clone()
				if differ := writeBoth(s, next, calls, how); differ != "" {
					rt.Fatal(differ)
				}
				if how == "well" {
					known = next
				}
			}
		}
	})
}

var errOnPurpose = errors.New("on purpose")

func readBoth(s store.Store, known *model, calls []call) (differ string) {
	err := s.Read(background, func(tx store.Tx) error {
		for _, c := range calls {
			if !c.writes() {
				differ += c.compare(tx, known)
			} else if got := c.on(tx); !reflect.DeepEqual(got, []any{store.ErrReadOnly}) {
				differ += fmt.Sprintf("%v in a read: %v", c, got)
			}
		}
		return errOnPurpose
	})
	if !errors.Is(err, errOnPurpose) {
		differ += fmt.Sprintf("a read: %v", err)
	}
	return differ
}

func writeBoth(s store.Store, next *model, calls []call, how string) (differ string) {
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	err := s.Write(ctx, func(tx store.Tx) error {
		for _, c := range calls {
			differ += c.compare(tx, next)
		}
		switch how {
		case "error":
			return errOnPurpose
		case "panic":
			panic("on purpose")
		case "context":
			cancel()
			return tx.PutNode(store.Node{ID: "a", Cluster: "a", Organization: "a"})
		}
		return nil
	})
	want := map[string]error{"error": errOnPurpose, "panic": database.ErrPanic, "context": database.ErrCancelled}[how]
	if !errors.Is(err, want) {
		differ += fmt.Sprintf("a write that ends with %q: %v", how, err)
	}
	return differ
}
