package storetest

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/wire/zone"
)

// kind is one kind of record.
type kind struct {
	name string
	zero any // of its type
	// keys are the fields that find a record or say what it belongs to, found those of
	// them that find it, and documents those that may be long.
	keys, found, documents []string
	put                    func(tx store.Tx, v any) error
	get                    func(tx store.Tx, v any) (any, bool, error)
}

func kindOf[V any](keys, found, documents string, put func(store.Tx, V) error, get func(store.Tx, V) (V, bool, error)) kind {
	var zero V
	return kind{
		name: reflect.TypeFor[V]().Name(), zero: zero,
		keys: strings.Fields(keys), found: strings.Fields(found), documents: strings.Fields(documents),
		put: func(tx store.Tx, v any) error { return put(tx, v.(V)) },
		get: func(tx store.Tx, v any) (any, bool, error) { return get(tx, v.(V)) },
	}
}

// kinds are all kinds but the audit log's.
var kinds = []kind{
	kindOf("ID", "ID", "", store.Tx.PutOrganization,
		func(tx store.Tx, v store.Organization) (store.Organization, bool, error) {
			return tx.Organization(v.ID)
		}),
	kindOf("ID", "ID", "", store.Tx.PutOperator,
		func(tx store.Tx, v store.Operator) (store.Operator, bool, error) { return tx.Operator(v.ID) }),
	kindOf("Organization Operator", "Organization Operator", "", store.Tx.PutMember,
		func(tx store.Tx, v store.Member) (store.Member, bool, error) {
			return tx.Member(v.Organization, v.Operator)
		}),
	kindOf("Operator", "Code", "", store.Tx.PutLoginLink,
		func(tx store.Tx, v store.LoginLink) (store.LoginLink, bool, error) { return tx.LoginLink(v.Code) }),
	kindOf("ID Organization", "ID", "", store.Tx.PutCluster,
		func(tx store.Tx, v store.Cluster) (store.Cluster, bool, error) { return tx.Cluster(v.ID) }),
	kindOf("Cluster", "Cluster", "", store.Tx.PutRuntime,
		func(tx store.Tx, v store.Runtime) (store.Runtime, bool, error) { return tx.Runtime(v.Cluster) }),
	kindOf("ID Cluster Organization", "ID", "", store.Tx.PutNode,
		func(tx store.Tx, v store.Node) (store.Node, bool, error) { return tx.Node(v.ID) }),
	kindOf("Node", "Node", "Report Receipt", store.Tx.PutReport,
		func(tx store.Tx, v store.Report) (store.Report, bool, error) { return tx.Report(v.Node) }),
	kindOf("Node Purpose", "Node Purpose", "Receipt", store.Tx.PutCredential,
		func(tx store.Tx, v store.Credential) (store.Credential, bool, error) {
			return tx.Credential(v.Node, v.Purpose)
		}),
	kindOf("Cluster", "Code", "", store.Tx.PutInvitation,
		func(tx store.Tx, v store.Invitation) (store.Invitation, bool, error) { return tx.Invitation(v.Code) }),
	kindOf("ID Node", "ID", "Proposal Answer", store.Tx.PutEnrollment,
		func(tx store.Tx, v store.Enrollment) (store.Enrollment, bool, error) { return tx.Enrollment(v.ID) }),
	kindOf("ID Organization", "ID", "", store.Tx.PutService,
		func(tx store.Tx, v store.Service) (store.Service, bool, error) { return tx.Service(v.ID) }),
	kindOf("Service Organization", "Service", "", store.Tx.PutMachine,
		func(tx store.Tx, v store.Machine) (store.Machine, bool, error) { return tx.Machine(v.Service) }),
	kindOf("Scope ID", "Scope ID", "Answer", store.Tx.PutReceipt,
		func(tx store.Tx, v store.Receipt) (store.Receipt, bool, error) { return tx.Receipt(v.Scope, v.ID) }),
}

// once are the kinds of which a second one is refused.
func (k kind) once() bool { return k.name == "Enrollment" || k.name == "Receipt" }

func has(list []string, name string) bool {
	for _, s := range list {
		if s == name {
			return true
		}
	}
	return false
}

// filled is a record whose every field differs from every other one's, and from
// those of another seed.
func (k kind) filled(seed byte) any {
	v := reflect.New(reflect.TypeOf(k.zero)).Elem()
	fill(v, seed)
	return v.Interface()
}

func fill(v reflect.Value, seed byte) {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString(fmt.Sprintf("%s-%d", strings.ToLower(v.Type().Field(i).Name), seed))
		case reflect.Int64:
			f.SetInt(int64(seed)<<40 + int64(i) + 1)
		case reflect.Bool:
			f.SetBool(seed%2 == 1)
		case reflect.Slice:
			f.SetBytes(fmt.Appendf(nil, `{"a\u0000":%d,"b":"ö %d"}`, seed, i))
		case reflect.Array:
			f.Index(0).SetUint(uint64(seed))
			f.Index(31).SetUint(uint64(i) + 1)
		default:
			panic("storetest: a field of an unknown kind: " + f.Type().String())
		}
	}
}

// with is a record with one field set.
func with(v any, field string, to any) any {
	c := reflect.New(reflect.TypeOf(v)).Elem()
	c.Set(reflect.ValueOf(v))
	f := c.FieldByName(field)
	f.Set(reflect.ValueOf(to).Convert(f.Type()))
	return c.Interface()
}

// only is a record with nothing but what it must have.
func (k kind) only(v any) any {
	c := reflect.New(reflect.TypeOf(v)).Elem()
	for _, name := range append(append([]string{}, k.keys...), k.found...) {
		c.FieldByName(name).Set(reflect.ValueOf(v).FieldByName(name))
	}
	return c.Interface()
}

// Fill puts two records of each kind, the same ones each time.
func Fill(tx store.Tx) error {
	for seed := range byte(2) {
		for _, k := range kinds {
			if err := k.put(tx, k.filled(seed+1)); err != nil {
				return err
			}
		}
		e := store.AuditEntry{}
		fill(reflect.ValueOf(&e).Elem(), seed+1)
		if err := tx.AppendAudit(e); err != nil {
			return err
		}
	}
	return nil
}

// Describe tells each field of what [Fill] put, a line each.
func Describe(tx store.Tx) ([]string, error) {
	var lines []string
	describe := func(name string, v any) {
		for f, i := reflect.ValueOf(v), 0; i < f.NumField(); i++ {
			format := "%s.%s = %v"
			if k := f.Field(i).Kind(); k == reflect.Slice || k == reflect.String {
				format = "%s.%s = %q"
			}
			lines = append(lines, fmt.Sprintf(format, name, f.Type().Field(i).Name, f.Field(i).Interface()))
		}
	}
	for seed := range byte(2) {
		for _, k := range kinds {
			v, ok, err := k.get(tx, k.filled(seed+1))
			if err != nil || !ok {
				return nil, fmt.Errorf("storetest: %s %d: %v, %w", k.name, seed+1, ok, err)
			}
			describe(fmt.Sprintf("%s %d", k.name, seed+1), v)
		}
	}
	entries, err := tx.Audit("", 0, 0)
	for _, e := range entries {
		describe("AuditEntry", e)
	}
	return lines, err
}

// testRecords puts each kind of record and gets the same back, field by field.
func testRecords(t *testing.T, e Engine) {
	f := open(t, e)
	for _, k := range kinds {
		get := func(what string, v, want any) {
			t.Helper()
			f.read(func(tx store.Tx) error {
				got, ok, err := k.get(tx, v)
				if err != nil || !ok {
					t.Errorf("%s, %s: %v, %v", k.name, what, ok, err)
				}
				equal(t, k.name+", "+what, got, want)
				return nil
			})
		}
		one, two := k.filled(1), k.filled(2)
		f.write(func(tx store.Tx) error {
			if err := k.put(tx, one); err != nil {
				return err
			}
			got, ok, err := k.get(tx, one)
			if err != nil || !ok {
				t.Errorf("%s, within: %v, %v", k.name, ok, err)
			}
			equal(t, k.name+", within", got, one)
			return k.put(tx, two)
		})
		get("first", one, one)
		get("second", two, two)
		if k.once() {
			continue
		}
		// Another one takes its place, whole.
		other := k.filled(3)
		for _, name := range k.found {
			other = with(other, name, reflect.ValueOf(one).FieldByName(name).Interface())
		}
		f.write(func(tx store.Tx) error { return k.put(tx, other) })
		get("replaced", one, other)
		if bare := k.only(one); k.name != "Member" {
			f.write(func(tx store.Tx) error { return k.put(tx, bare) })
			get("bare", one, bare)
		}
		get("its neighbour", two, two)
	}
	// Numbers of every size, and times before 1970.
	for _, n := range []int64{math.MinInt64, -1, 0, math.MaxInt64} {
		c := store.Cluster{ID: "numbers", Organization: "o", Revision: n, CreatedAt: zone.Millis(n)}
		f.write(func(tx store.Tx) error { return tx.PutCluster(c) })
		f.read(func(tx store.Tx) error {
			got, _, err := tx.Cluster("numbers")
			equal(t, "numbers", got, c)
			return err
		})
	}
}

// testAbsent asks a store for what it has not, and for what differs in one part of
// the key from what it has.
func testAbsent(t *testing.T, e Engine) {
	f := open(t, e)
	f.read(func(tx store.Tx) error {
		all, err := everything(tx)
		equal(t, "an empty store", len(all), 0)
		return err
	})
	f.write(func(tx store.Tx) error {
		for _, k := range kinds {
			one, two := k.filled(1), k.filled(2)
			for _, v := range []any{k.zero, one} {
				if got, ok, err := k.get(tx, v); ok || err != nil || !reflect.DeepEqual(got, k.zero) {
					t.Errorf("%s that is not there: %+v, %v, %v", k.name, got, ok, err)
				}
			}
			if err := k.put(tx, one); err != nil {
				return err
			}
			for _, name := range k.found {
				near := with(one, name, reflect.ValueOf(two).FieldByName(name).Interface())
				if got, ok, err := k.get(tx, near); ok || err != nil || !reflect.DeepEqual(got, k.zero) {
					t.Errorf("%s with another %s: %+v, %v, %v", k.name, name, got, ok, err)
				}
			}
		}
		return nil
	})
}

// testBounds puts each field at its bound and one byte behind it.
func testBounds(t *testing.T, e Engine) {
	f := open(t, e)
	put := func(k kind, v any) (err error) {
		f.write(func(tx store.Tx) error {
			err = k.put(tx, v)
			return nil
		})
		return err
	}
	audit := kindOf("", "", "Detail", store.Tx.AppendAudit, func(store.Tx, store.AuditEntry) (v store.AuditEntry, ok bool, err error) { return v, ok, err })
	for n, k := range append([]kind{audit}, kinds...) {
		v := k.filled(byte(n))
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			field := typ.Field(i)
			if field.Type.Kind() != reflect.String && field.Type.Kind() != reflect.Slice {
				continue
			}
			most, key := zone.MaxText, false
			switch {
			case has(k.keys, field.Name):
				most, key = zone.MaxID, true
			case has(k.documents, field.Name):
				most = store.MaxDocument
			}
			before := f.state()
			wantErr(t, k.name+"."+field.Name+", too long", put(k, with(v, field.Name, strings.Repeat("x", most+1))), store.ErrBounds)
			if key {
				wantErr(t, k.name+"."+field.Name+", empty", put(k, with(v, field.Name, "")), store.ErrBounds)
			}
			equal(t, k.name+"."+field.Name+": the store after refusals", f.state(), before)
			long := with(v, field.Name, strings.Repeat("x", most))
			if k.once() {
				long = with(long, "ID", strings.Repeat("x", zone.MaxID-i))
				if field.Name == "ID" {
					long = with(long, "ID", strings.Repeat("x", zone.MaxID))
				}
			}
			if k.name == "Credential" || k.name == "Machine" {
				long = with(long, "Hash", store.Hash{})
			}
			if err := put(k, long); err != nil {
				t.Errorf("%s.%s, as long as it may be: %v", k.name, field.Name, err)
			}
			f.read(func(tx store.Tx) error {
				if k.name == "AuditEntry" {
					list, err := tx.Audit("", 0, 1)
					equal(t, field.Name, with(list[0], "Seq", int64(0)), with(long, "Seq", int64(0)))
					return err
				}
				got, ok, err := k.get(tx, long)
				if !ok || err != nil || !reflect.DeepEqual(got, long) {
					t.Errorf("%s.%s, as long as it may be, is not there: %v, %v", k.name, field.Name, ok, err)
				}
				return nil
			})
		}
	}
}

// testTaken holds what may not be made twice, and that the transaction goes on.
func testTaken(t *testing.T, e Engine) {
	f := open(t, e)
	f.write(func(tx store.Tx) error {
		for _, k := range kinds {
			if err := k.put(tx, k.filled(1)); err != nil {
				return err
			}
		}
		return nil
	})
	before := f.state()
	f.write(func(tx store.Tx) error {
		for _, k := range kinds {
			one, two := k.filled(1), k.filled(2)
			switch {
			case k.once():
				for _, name := range k.found {
					two = with(two, name, reflect.ValueOf(one).FieldByName(name).Interface())
				}
				wantErr(t, k.name+", another of that id", k.put(tx, two), store.ErrTaken)
				wantErr(t, k.name+", the same again", k.put(tx, one), store.ErrTaken)
			case k.name == "Credential" || k.name == "Machine":
				wantErr(t, k.name+" with another's hash", k.put(tx, with(two, "Hash", reflect.ValueOf(one).FieldByName("Hash").Interface())), store.ErrTaken)
				if err := k.put(tx, one); err != nil {
					t.Errorf("%s with its own hash: %v", k.name, err)
				}
			}
		}
		return nil
	})
	equal(t, "after refusals", f.state(), before)
	f.write(func(tx store.Tx) error {
		c := store.Credential{Node: "n", Purpose: "spark", Hash: store.Hash{9}}
		if err := tx.PutCredential(c); err != nil {
			return err
		}
		c.Purpose = "pallet"
		wantErr(t, "the other program's hash", tx.PutCredential(c), store.ErrTaken)
		return tx.PutOrganization(store.Organization{ID: "after-a-refusal"})
	})
	f.read(func(tx store.Tx) error {
		_, ok, err := tx.Organization("after-a-refusal")
		_, kept, _ := tx.Credential("n", "spark")
		if !ok || !kept {
			t.Error("what was written beside a refusal is not there")
		}
		return err
	})
}

// testBearers follows bearers' hashes through rotation, revocation and deletion.
func testBearers(t *testing.T, e Engine) {
	f := open(t, e)
	one, two, three := store.Hash{1}, store.Hash{2}, store.Hash{3}
	holders := func(what string, want map[store.Hash]string) {
		t.Helper()
		f.read(func(tx store.Tx) error {
			for _, h := range []store.Hash{{}, one, two, three} {
				c, ok, err := tx.CredentialByHash(h)
				if name := string(c.Node) + c.Purpose; err != nil || ok != (want[h] != "") || name != want[h] || ok && c.Hash != h {
					t.Errorf("%s: the credential of %v is %q, %v, %v", what, h[0], name, ok, err)
				}
				m, ok, err := tx.MachineByHash(h)
				if err != nil || ok != (want[h] != "") || ok && (string(m.Service) != want[h] || m.Hash != h) || !ok && m != (store.Machine{}) {
					t.Errorf("%s: the machine of %v is %q, %v, %v", what, h[0], m.Service, ok, err)
				}
			}
			return nil
		})
	}
	put := func(node, purpose string, h store.Hash) func(tx store.Tx) error {
		return func(tx store.Tx) error {
			if err := tx.PutMachine(store.Machine{Service: zone.ServiceID(node + purpose), Organization: "o", Hash: h}); err != nil {
				return err
			}
			return tx.PutCredential(store.Credential{Node: zone.NodeID(node), Purpose: purpose, Hash: h})
		}
	}
	f.write(put("a", "spark", one))
	f.write(put("a", "pallet", two))
	holders("two", map[store.Hash]string{one: "aspark", two: "apallet"})
	f.write(put("a", "spark", three))
	holders("rotated", map[store.Hash]string{three: "aspark", two: "apallet"})
	f.write(put("b", "spark", one))
	holders("a hash that nobody has any more", map[store.Hash]string{three: "aspark", two: "apallet", one: "bspark"})
	f.write(put("a", "pallet", store.Hash{}))
	f.write(put("b", "pallet", store.Hash{}))
	holders("revoked", map[store.Hash]string{three: "aspark", one: "bspark"})
	f.write(func(tx store.Tx) error {
		if err := put("a", "spark", store.Hash{})(tx); err != nil {
			return err
		}
		if err := tx.DeleteCredential("a", "pallet"); err != nil {
			return err
		}
		return tx.DeleteCredential("nobody", "spark")
	})
	holders("revoked too", map[store.Hash]string{one: "bspark"})
	f.read(func(tx store.Tx) error {
		_, spark, _ := tx.Credential("a", "spark")
		_, pallet, err := tx.Credential("a", "pallet")
		if !spark || pallet {
			t.Errorf("spark's is there: %v, pallet's: %v", spark, pallet)
		}
		return err
	})
	// What an undone transaction did to hashes is undone.
	failed := fmt.Errorf("on purpose")
	err := f.store.Write(t.Context(), func(tx store.Tx) error {
		for _, fn := range []func(store.Tx) error{put("b", "spark", two), put("c", "spark", one), put("a", "spark", three)} {
			if err := fn(tx); err != nil {
				return err
			}
		}
		if err := tx.DeleteCredential("c", "spark"); err != nil {
			return err
		}
		return failed
	})
	wantErr(t, "undone", err, failed)
	holders("undone", map[store.Hash]string{one: "bspark"})
}

// testCopies changes what was put and what was got, which changes nothing kept.
func testCopies(t *testing.T, e Engine) {
	f := open(t, e)
	spoil := func(v any) {
		for _, name := range []string{"Report", "Receipt", "Proposal", "Answer"} {
			if field := reflect.ValueOf(v).FieldByName(name); field.IsValid() {
				for i := range field.Bytes() {
					field.Bytes()[i] = '!'
				}
			}
		}
	}
	for _, k := range kinds {
		given := k.filled(1)
		f.write(func(tx store.Tx) error {
			err := k.put(tx, given)
			spoil(given)
			return err
		})
		for range 2 {
			f.read(func(tx store.Tx) error {
				got, _, err := k.get(tx, k.filled(1))
				equal(t, k.name, got, k.filled(1))
				spoil(got)
				return err
			})
		}
	}
	f.read(func(tx store.Tx) error {
		c, _, err := tx.CredentialByHash(kinds[8].filled(1).(store.Credential).Hash)
		if !bytes.HasPrefix(c.Receipt, []byte("{")) {
			t.Errorf("the receipt is %s", c.Receipt)
		}
		spoil(c)
		return err
	})
	f.read(func(tx store.Tx) error {
		c, _, err := tx.CredentialByHash(kinds[8].filled(1).(store.Credential).Hash)
		equal(t, "by hash", c, kinds[8].filled(1))
		return err
	})
	// An empty document and none are the same.
	f.write(func(tx store.Tx) error {
		return tx.PutReport(store.Report{Node: "empty", Report: []byte{}})
	})
	f.read(func(tx store.Tx) error {
		r, _, err := tx.Report("empty")
		equal(t, "an empty document", r, store.Report{Node: "empty"})
		return err
	})
}
