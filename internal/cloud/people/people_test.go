package people_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/cloud/act"
	"github.com/allodhq/allod/internal/cloud/machine"
	"github.com/allodhq/allod/internal/cloud/page"
	"github.com/allodhq/allod/internal/cloud/people"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/store/memory"
	"github.com/allodhq/allod/internal/cloud/store/sqlite"
	"github.com/allodhq/allod/internal/cloud/store/storecount"
	"github.com/allodhq/allod/internal/cloud/token"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/admin"
)

var start = time.Date(2026, 12, 1, 15, 0, 0, 0, time.UTC)

var local = who.Principal{Kind: who.Local}

// source is randomness that several may read.
type source struct {
	mu sync.Mutex
	r  *rand.ChaCha8
}

func (s *source) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.r.Read(b)
}

// controller is a controller whose clock the test sets.
type controller struct {
	*people.People
	t     *testing.T
	store *storecount.Store
	keys  *token.Keys
	mu    sync.Mutex
	now   time.Time
	first zone.Secret
	next  int
}

func newController(t *testing.T, wrap func(store.Store) store.Store) *controller {
	t.Helper()
	r := &source{r: rand.NewChaCha8([32]byte{1})}
	keys, err := token.Open(t.TempDir(), r, start)
	if errors.Is(err, keyfile.ErrPlatform) {
		t.Skip("no key is kept on this system")
	}
	if err != nil {
		t.Fatal(err)
	}
	var s store.Store = memory.New()
	if wrap != nil {
		s = wrap(s)
	}
	c := &controller{t: t, store: storecount.Wrap(s), keys: keys, now: start}
	c.People = people.New(people.Config{Store: c.store, Keys: keys, Clock: c.clock, Rand: r})
	if c.first, err = c.Bootstrap(t.Context()); err != nil || c.first.IsZero() {
		t.Fatalf("the first start: %v", err)
	}
	return c
}

func (c *controller) clock() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *controller) after(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// id is a new mutation id.
func (c *controller) id() zone.MutationID {
	c.next++
	return zone.MutationID(fmt.Sprintf("m%d", c.next))
}

func (c *controller) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// operator makes an operator, in an organization where one is named.
func (c *controller) operator(id zone.OperatorID, o zone.OrganizationID, role admin.Role) who.Principal {
	c.t.Helper()
	_, err := c.CreateOperator(c.t.Context(), local, admin.CreateOperator{OperatorID: id, Name: string(id), MutationID: c.id()})
	c.must(err)
	if o != "" {
		_, err := c.SetMember(c.t.Context(), local, admin.SetMember{OrganizationID: o, OperatorID: id, Role: role, MutationID: c.id()})
		c.must(err)
	}
	return who.Principal{Kind: who.Operator, Operator: id}
}

func (c *controller) organization(id zone.OrganizationID) {
	c.t.Helper()
	_, err := c.CreateOrganization(c.t.Context(), local, admin.CreateOrganization{OrganizationID: id, Name: string(id), MutationID: c.id()})
	c.must(err)
}

// login logs an operator in by a new link.
func (c *controller) login(id zone.OperatorID) zone.Identity {
	c.t.Helper()
	l, err := c.CreateLoginLink(c.t.Context(), local, admin.CreateLoginLink{OperatorID: id})
	c.must(err)
	return c.exchange(l.Code)
}

func (c *controller) exchange(code zone.Secret) zone.Identity {
	c.t.Helper()
	a, err := c.ExchangeLoginLink(c.t.Context(), admin.ExchangeLoginLink{Code: code})
	c.must(err)
	return a.Identity
}

func (c *controller) write(fn func(tx store.Tx) error) {
	c.t.Helper()
	c.must(c.store.Write(c.t.Context(), fn))
}

func (c *controller) audit() (list []store.AuditEntry) {
	c.t.Helper()
	c.must(c.store.Read(c.t.Context(), func(tx store.Tx) (err error) {
		list, err = tx.Audit("", 0, store.MaxList)
		return err
	}))
	return list
}

func TestF77TheFirstStartLetsOnePersonIn(t *testing.T) {
	c := newController(t, nil)
	ctx := t.Context()
	for range 2 {
		if again, err := c.Bootstrap(ctx); err != nil || !again.IsZero() {
			t.Errorf("a later start gives %v, %v", again, err)
		}
	}
	a, err := c.ExchangeLoginLink(ctx, admin.ExchangeLoginLink{Code: c.first})
	if err != nil || a.OperatorID != "admin" || a.ExpiresAt != zone.At(start.Add(12*time.Hour)) {
		t.Fatalf("%+v, %v", a, err)
	}
	s, err := c.Authenticate(ctx, a.Identity)
	if err != nil || s.Principal != (who.Principal{Kind: who.Operator, Operator: "admin", Installation: true, Generation: 1}) || s.Ends != a.ExpiresAt {
		t.Fatalf("%+v, %v", s, err)
	}
	got, err := c.GetIdentity(ctx, s, admin.GetIdentity{})
	want := admin.GetIdentityAnswer{
		Kind: admin.Person, OperatorID: "admin", Installation: true, ExpiresAt: a.ExpiresAt,
		Memberships: []admin.Membership{{OrganizationID: "main", Role: admin.Administrator}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err = c.GetIdentity(ctx, people.LocalSession(), admin.GetIdentity{}); err != nil || got.Kind != admin.Local || !got.Installation || got.ExpiresAt != 0 || got.OperatorID != "" {
		t.Errorf("local: %+v, %v", got, err)
	}
	entries := c.audit()
	if len(entries) != 2 || entries[1].Actor != "controller" || entries[1].Action != "bootstrap" || entries[0].Actor != "admin" || entries[0].Action != "exchangeLoginLink" {
		t.Errorf("%+v", entries)
	}
	// A store with anything in it is not a first start.
	lost := newController(t, func(s store.Store) store.Store { return s })
	lost.write(func(tx store.Tx) error { o, _, _ := tx.Operator("admin"); o.Disabled = true; return tx.PutOperator(o) })
	if again, err := lost.Bootstrap(ctx); err != nil || !again.IsZero() {
		t.Errorf("a start where everybody is disabled gives %v, %v", again, err)
	}
}

func TestF77ALinkWorksOnceForAnHour(t *testing.T) {
	c := newController(t, nil)
	ctx := t.Context()
	link := func() zone.Secret {
		l, err := c.CreateLoginLink(ctx, local, admin.CreateLoginLink{OperatorID: "admin"})
		c.must(err)
		if l.ExpiresAt != zone.At(c.clock().Add(time.Hour)) {
			t.Errorf("it ends at %v", l.ExpiresAt.Time())
		}
		return l.Code
	}
	refused := func(what string, code zone.Secret) {
		t.Helper()
		a, err := c.ExchangeLoginLink(ctx, admin.ExchangeLoginLink{Code: code})
		if !errors.Is(err, people.ErrLink) || !a.Identity.JWT.IsZero() {
			t.Errorf("%s: %v", what, err)
		}
	}
	used := link()
	c.exchange(used)
	refused("used", used)
	over, last := link(), link()
	c.after(time.Hour - time.Millisecond)
	c.exchange(last)
	c.after(time.Millisecond)
	refused("over", over)
	refused("none", zone.Conceal("AAAAAAAAAAAAAAAAAAAAAA"))
	refused("empty", zone.Secret{})

	c.operator("ada", "", "")
	adas := func() zone.Secret {
		l, err := c.CreateLoginLink(ctx, local, admin.CreateLoginLink{OperatorID: "ada"})
		c.must(err)
		return l.Code
	}
	ended, disabled := adas(), zone.Secret{}
	_, err := c.EndSessions(ctx, local, admin.EndSessions{OperatorID: "ada", MutationID: c.id()})
	c.must(err)
	refused("from before the sessions were ended", ended)
	disabled = adas()
	_, err = c.DisableOperator(ctx, local, admin.DisableOperator{OperatorID: "ada", Disabled: true, MutationID: c.id()})
	c.must(err)
	refused("of somebody who is disabled", disabled)
	if _, err := c.CreateLoginLink(ctx, local, admin.CreateLoginLink{OperatorID: "ada"}); !errors.Is(err, people.ErrDisabled) {
		t.Errorf("a link for somebody who is disabled: %v", err)
	}
	_, err = c.DisableOperator(ctx, local, admin.DisableOperator{OperatorID: "ada", MutationID: c.id()})
	c.must(err)
	refused("of somebody who was disabled since", disabled)
	c.exchange(adas())
	if _, err := c.CreateLoginLink(ctx, local, admin.CreateLoginLink{OperatorID: "nobody"}); !errors.Is(err, who.ErrAbsent) {
		t.Errorf("a link for nobody: %v", err)
	}
}

// Whoever does not know a code learns nothing from how it is refused.
func TestF77EveryLinkIsRefusedAlike(t *testing.T) {
	c := newController(t, nil)
	l, err := c.CreateLoginLink(t.Context(), local, admin.CreateLoginLink{OperatorID: "admin"})
	c.must(err)
	c.exchange(c.first)
	c.after(time.Hour)
	var costs []storecount.Cost
	var said []string
	for _, code := range []zone.Secret{c.first, l.Code, zone.Conceal("AAAAAAAAAAAAAAAAAAAAAA")} {
		costs = append(costs, c.store.Cost(func() {
			_, err := c.ExchangeLoginLink(t.Context(), admin.ExchangeLoginLink{Code: code})
			said = append(said, string(refusal.JSON(err)))
		}))
	}
	for i := range costs {
		if !costs[i].Equal(costs[0]) || said[i] != said[0] || len(costs[i].Writes) > 0 {
			t.Errorf("%d: %+v %s\n0: %+v %s", i, costs[i], said[i], costs[0], said[0])
		}
	}
}

func TestF77OfSeveralThatUseALinkOneGetsIn(t *testing.T) {
	c := newController(t, nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	in := 0
	for range 16 {
		wg.Go(func() {
			_, err := c.ExchangeLoginLink(t.Context(), admin.ExchangeLoginLink{Code: c.first})
			if err != nil && !errors.Is(err, people.ErrLink) {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				in++
			}
		})
	}
	wg.Wait()
	if in != 1 {
		t.Errorf("%d got in", in)
	}
}

func TestF36WhatIsTakenAwayIsGoneWithTheNextRequest(t *testing.T) {
	c := newController(t, nil)
	ctx := t.Context()
	c.operator("ada", "main", admin.Administrator)
	check := func(what string, i zone.Identity, s people.Session, want error) {
		t.Helper()
		if _, err := c.Authenticate(ctx, i); !errors.Is(err, want) {
			t.Errorf("%s: a request: %v, want %v", what, err, want)
		}
		if _, err := c.Again(ctx, s); !errors.Is(err, want) {
			t.Errorf("%s: on an open socket: %v, want %v", what, err, want)
		}
	}
	in := func() (zone.Identity, people.Session) {
		t.Helper()
		i := c.login("ada")
		s, a, err := c.RegisterSession(ctx, admin.RegisterCloudlyClientSession{JWT: i.JWT})
		c.must(err)
		if a.ExpiresAt != s.Ends || s.Ends == 0 {
			t.Errorf("it ends at %v and %v", a.ExpiresAt, s.Ends)
		}
		check("at first", i, s, nil)
		return i, s
	}

	i, s := in()
	_, err := c.EndSessions(ctx, s.Principal, admin.EndSessions{OperatorID: "ada", MutationID: c.id()})
	c.must(err)
	check("sessions ended", i, s, who.ErrEnded)

	i, s = in()
	_, err = c.DisableOperator(ctx, local, admin.DisableOperator{OperatorID: "ada", Disabled: true, MutationID: c.id()})
	c.must(err)
	check("disabled", i, s, who.ErrEnded)
	_, err = c.DisableOperator(ctx, local, admin.DisableOperator{OperatorID: "ada", MutationID: c.id()})
	c.must(err)
	check("enabled again", i, s, who.ErrEnded)

	// Whoever is marked as disabled in any other way is out as well.
	i, s = in()
	mark := func(disabled bool) {
		c.write(func(tx store.Tx) error {
			o, _, _ := tx.Operator("ada")
			o.Disabled = disabled
			return tx.PutOperator(o)
		})
	}
	mark(true)
	check("marked", i, s, who.ErrEnded)
	mark(false)
	check("not marked", i, s, nil)

	i, s = in()
	c.after(12 * time.Hour)
	check("over", i, s, token.ErrExpired)

	_, s = in()
	role := func() error {
		return c.store.Read(ctx, func(tx store.Tx) error { return s.Principal.Change(tx, "main") })
	}
	c.must(role())
	for r, want := range map[admin.Role]error{admin.Viewer: who.ErrRole, "": who.ErrAbsent} {
		_, err = c.SetMember(ctx, local, admin.SetMember{OrganizationID: "main", OperatorID: "ada", Role: r, MutationID: c.id()})
		c.must(err)
		if err := role(); !errors.Is(err, want) {
			t.Errorf("with the role %q: %v", r, err)
		}
	}

	// Whoever no longer administers the installation does not on an open socket either.
	i = c.login("admin")
	s, err = c.Authenticate(ctx, i)
	c.must(err)
	c.write(func(tx store.Tx) error {
		o, _, _ := tx.Operator("admin")
		o.Installation = false
		return tx.PutOperator(o)
	})
	if s, err = c.Again(ctx, s); err != nil || s.Principal.Installation {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err = c.Again(ctx, people.LocalSession()); err != nil || s.Principal.Kind != who.Local {
		t.Errorf("local: %+v, %v", s, err)
	}
	if _, err = c.Again(ctx, people.Session{}); !errors.Is(err, who.ErrEnded) {
		t.Errorf("nobody: %v", err)
	}
}

// TestF36AChangeOnItsWayIsRefusedToo is a request that was let in, and waits for its
// turn to write while its owner is put out.
func TestF36AChangeOnItsWayIsRefusedToo(t *testing.T) {
	for name, end := range map[string]func(c *controller) error{
		"disabled": func(c *controller) error {
			_, err := c.DisableOperator(c.t.Context(), local, admin.DisableOperator{OperatorID: "eve", Disabled: true, MutationID: c.id()})
			return err
		},
		"sessions ended": func(c *controller) error {
			_, err := c.EndSessions(c.t.Context(), local, admin.EndSessions{OperatorID: "eve", MutationID: c.id()})
			return err
		},
		"no administrator any more": func(c *controller) error {
			c.write(func(tx store.Tx) error {
				o, _, _ := tx.Operator("eve")
				o.Installation = false
				return tx.PutOperator(o)
			})
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newController(t, nil)
			ctx := t.Context()
			_, err := c.CreateOperator(ctx, local, admin.CreateOperator{OperatorID: "eve", Name: "Eve", Installation: true, MutationID: c.id()})
			c.must(err)
			_, err = c.SetMember(ctx, local, admin.SetMember{OrganizationID: "main", OperatorID: "eve", Role: admin.Administrator, MutationID: c.id()})
			c.must(err)
			s, err := c.Authenticate(ctx, c.login("eve"))
			c.must(err)
			by := s.Principal
			first := admin.SetMember{OrganizationID: "main", OperatorID: "admin", Role: admin.Viewer, MutationID: "kept"}
			_, err = c.SetMember(ctx, by, first)
			c.must(err)

			c.must(end(c)) // her request is past the door by now
			_, err = c.CreateOperator(ctx, by, admin.CreateOperator{OperatorID: "mallory", Name: "M", Installation: true, MutationID: c.id()})
			if !errors.Is(err, who.ErrEnded) {
				t.Errorf("another administrator: %v", err)
			}
			if _, err = c.CreateLoginLink(ctx, by, admin.CreateLoginLink{OperatorID: "admin"}); !errors.Is(err, who.ErrEnded) {
				t.Errorf("a link of somebody else: %v", err)
			}
			if _, err = c.SetMember(ctx, by, admin.SetMember{OrganizationID: "main", OperatorID: "admin", MutationID: c.id()}); !errors.Is(err, who.ErrEnded) {
				t.Errorf("in her organization: %v", err)
			}
			if _, err = c.SetMember(ctx, by, first); !errors.Is(err, who.ErrEnded) {
				t.Errorf("what she did before: %v", err)
			}
			c.must(c.store.Read(ctx, func(tx store.Tx) error {
				if _, found, _ := tx.Operator("mallory"); found {
					t.Error("she left somebody behind")
				}
				return nil
			}))
		})
	}
}

// TestF36ALinkEndsWithItsMaker is an administrator who makes links for others while
// they still can.
func TestF36ALinkEndsWithItsMaker(t *testing.T) {
	c := newController(t, nil)
	ctx := t.Context()
	_, err := c.CreateOperator(ctx, local, admin.CreateOperator{OperatorID: "eve", Name: "Eve", Installation: true, MutationID: c.id()})
	c.must(err)
	link := func() zone.Secret {
		s, err := c.Authenticate(ctx, c.login("eve"))
		c.must(err)
		l, err := c.CreateLoginLink(ctx, s.Principal, admin.CreateLoginLink{OperatorID: "admin"})
		c.must(err)
		return l.Code
	}
	exchange := func(code zone.Secret, want error) {
		t.Helper()
		if _, err := c.ExchangeLoginLink(ctx, admin.ExchangeLoginLink{Code: code}); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	exchange(link(), nil)

	code := link()
	_, err = c.EndSessions(ctx, local, admin.EndSessions{OperatorID: "eve", MutationID: c.id()})
	c.must(err)
	exchange(code, people.ErrLink)

	code = link()
	_, err = c.DisableOperator(ctx, local, admin.DisableOperator{OperatorID: "eve", Disabled: true, MutationID: c.id()})
	c.must(err)
	exchange(code, people.ErrLink)
	_, err = c.DisableOperator(ctx, local, admin.DisableOperator{OperatorID: "eve", MutationID: c.id()})
	c.must(err)
	exchange(code, people.ErrLink)
}

func TestF36ForeignTokensAreRefusedWithoutTheStore(t *testing.T) {
	c := newController(t, nil)
	others, err := token.Open(t.TempDir(), rand.NewChaCha8([32]byte{2}), start)
	c.must(err)
	foreign, _, err := others.Operator("admin", 1, start)
	c.must(err)
	for what, jwt := range map[string]zone.Secret{
		"of another controller": foreign, "none": {}, "no token": zone.Conceal("a.b.c"),
	} {
		cost := c.store.Cost(func() {
			if s, err := c.Authenticate(t.Context(), zone.Identity{JWT: jwt}); !errors.Is(err, token.ErrToken) || s != (people.Session{}) {
				t.Errorf("%s: %v", what, err)
			}
			if s, _, err := c.RegisterSession(t.Context(), admin.RegisterCloudlyClientSession{JWT: jwt}); !errors.Is(err, token.ErrToken) || s != (people.Session{}) {
				t.Errorf("%s, on a socket: %v", what, err)
			}
		})
		if cost.Transactions != 0 {
			t.Errorf("%s: %+v", what, cost)
		}
	}
	// A token of an operator who is not there any more.
	gone, _, err := c.keys.Operator("gone", 1, start)
	c.must(err)
	if _, err := c.Authenticate(t.Context(), zone.Identity{JWT: gone}); !errors.Is(err, who.ErrEnded) {
		t.Errorf("of nobody: %v", err)
	}
}

func TestF14MachinesAreHeldToTheirCredential(t *testing.T) {
	c := newController(t, nil)
	ctx := t.Context()
	set := func(m store.Machine, s store.Service) {
		c.write(func(tx store.Tx) error { return errors.Join(tx.PutMachine(m), tx.PutService(s)) })
	}
	m := store.Machine{Service: "web", Organization: "main", Generation: 3, Grant: "platform:session", State: "active"}
	s := store.Service{ID: "web", Organization: "main", Revision: 1}
	set(m, s)
	jwt, _, err := c.keys.Machine("web", "main", 3, start)
	c.must(err)
	i := zone.Identity{JWT: jwt}
	in, err := c.Authenticate(ctx, i)
	if err != nil || in.Principal != (who.Principal{Kind: who.Machine, Service: "web", Organization: "main"}) || in.Ends != zone.At(start.Add(time.Hour)) {
		t.Fatalf("%+v, %v", in, err)
	}
	got, err := c.GetIdentity(ctx, in, admin.GetIdentity{})
	if err != nil || got.Kind != admin.Machine || got.ServiceID != "web" || got.OrganizationID != "main" || got.Installation || len(got.Memberships) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	rotated, revoked, moved, movedBoth := m, m, s, m
	rotated.Generation = 4
	revoked.State = "revoked"
	moved.Organization = "other"
	movedBoth.Organization = "other"
	var cost storecount.Cost
	for what, v := range map[string]struct {
		m store.Machine
		s store.Service
	}{
		"rotated": {rotated, s}, "revoked": {revoked, s}, "moved": {m, moved}, "moved, with its machine": {movedBoth, moved},
	} {
		set(v.m, v.s)
		got := c.store.Cost(func() {
			if _, err := c.Authenticate(ctx, i); !errors.Is(err, machine.ErrToken) {
				t.Errorf("%s: %v", what, err)
			}
		})
		if cost.Transactions != 0 && !got.Equal(cost) {
			t.Errorf("%s: %+v, and others %+v", what, got, cost)
		}
		cost = got
	}
	set(m, s)
	if _, err := c.Authenticate(ctx, i); err != nil {
		t.Errorf("the control: %v", err)
	}
	unknown, _, err := c.keys.Machine("none", "main", 3, start)
	c.must(err)
	if got := c.store.Cost(func() {
		if _, err := c.Authenticate(ctx, zone.Identity{JWT: unknown}); !errors.Is(err, machine.ErrToken) {
			t.Errorf("no service: %v", err)
		}
	}); !got.Equal(cost) {
		t.Errorf("no service: %+v, and others %+v", got, cost)
	}
	// A machine administers nothing.
	if _, err := c.CreateOperator(ctx, in.Principal, admin.CreateOperator{OperatorID: "eve", Name: "Eve", MutationID: "x"}); !errors.Is(err, who.ErrInstallation) {
		t.Errorf("a machine makes an operator: %v", err)
	}
	if a, err := c.GetOrganizations(ctx, in.Principal, admin.GetOrganizations{}); err != nil || len(a.Organizations) != 0 {
		t.Errorf("a machine lists organizations: %+v, %v", a, err)
	}
}

func TestF77TheLastAdministratorStays(t *testing.T) {
	c := newController(t, nil)
	ctx := t.Context()
	disable := func(id zone.OperatorID) error {
		_, err := c.DisableOperator(ctx, local, admin.DisableOperator{OperatorID: id, Disabled: true, MutationID: c.id()})
		return err
	}
	c.operator("ada", "main", admin.Administrator) // of the organization alone
	if err := disable("admin"); !errors.Is(err, people.ErrLast) {
		t.Errorf("the only one: %v", err)
	}
	_, err := c.CreateOperator(ctx, local, admin.CreateOperator{OperatorID: "zoe", Name: "Zoe", Installation: true, MutationID: c.id()})
	c.must(err)
	c.must(disable("zoe"))
	if err := disable("admin"); !errors.Is(err, people.ErrLast) {
		t.Errorf("beside one who is disabled: %v", err)
	}
	c.must(disable("zoe")) // a second time does nothing
	_, err = c.DisableOperator(ctx, local, admin.DisableOperator{OperatorID: "zoe", MutationID: c.id()})
	c.must(err)
	// The one who stays is on the second page of all operators.
	c.write(func(tx store.Tx) error {
		for n := range store.MaxList {
			if err := tx.PutOperator(store.Operator{ID: zone.OperatorID(fmt.Sprintf("n%04d", n)), Name: "n", Generation: 1}); err != nil {
				return err
			}
		}
		return nil
	})
	c.must(disable("admin"))
	if err := disable("zoe"); !errors.Is(err, people.ErrLast) {
		t.Errorf("after the other: %v", err)
	}
	if err := disable("nobody"); !errors.Is(err, who.ErrAbsent) {
		t.Errorf("nobody: %v", err)
	}
}

// attempt is one method as one caller would call it, by the id that it names.
type attempt struct {
	method string
	absent func(ctx context.Context, c *controller, by who.Principal) (any, error)
	other  func(ctx context.Context, c *controller, by who.Principal) (any, error)
}

func attempts() []attempt {
	organization := func(method string, call func(ctx context.Context, c *controller, by who.Principal, o zone.OrganizationID) (any, error)) attempt {
		with := func(o zone.OrganizationID) func(ctx context.Context, c *controller, by who.Principal) (any, error) {
			return func(ctx context.Context, c *controller, by who.Principal) (any, error) { return call(ctx, c, by, o) }
		}
		return attempt{method, with("absent"), with("theirs")}
	}
	operator := func(method string, call func(ctx context.Context, c *controller, by who.Principal, id zone.OperatorID) (any, error)) attempt {
		with := func(id zone.OperatorID) func(ctx context.Context, c *controller, by who.Principal) (any, error) {
			return func(ctx context.Context, c *controller, by who.Principal) (any, error) { return call(ctx, c, by, id) }
		}
		return attempt{method, with("absent"), with("theo")}
	}
	return []attempt{
		organization("GetOperators", func(ctx context.Context, c *controller, by who.Principal, o zone.OrganizationID) (any, error) {
			return c.GetOperators(ctx, by, admin.GetOperators{OrganizationID: o})
		}),
		organization("GetAudit", func(ctx context.Context, c *controller, by who.Principal, o zone.OrganizationID) (any, error) {
			return c.GetAudit(ctx, by, admin.GetAudit{OrganizationID: o, Limit: 10})
		}),
		organization("SetMember", func(ctx context.Context, c *controller, by who.Principal, o zone.OrganizationID) (any, error) {
			return c.SetMember(ctx, by, admin.SetMember{OrganizationID: o, OperatorID: "theo", Role: admin.Viewer, MutationID: "same"})
		}),
		organization("CreateOrganization", func(ctx context.Context, c *controller, by who.Principal, o zone.OrganizationID) (any, error) {
			return c.CreateOrganization(ctx, by, admin.CreateOrganization{OrganizationID: o, Name: "x", MutationID: "same"})
		}),
		operator("SetMember", func(ctx context.Context, c *controller, by who.Principal, id zone.OperatorID) (any, error) {
			return c.SetMember(ctx, by, admin.SetMember{OrganizationID: "ours", OperatorID: id, Role: admin.Viewer, MutationID: "same"})
		}),
		operator("CreateOperator", func(ctx context.Context, c *controller, by who.Principal, id zone.OperatorID) (any, error) {
			return c.CreateOperator(ctx, by, admin.CreateOperator{OperatorID: id, Name: "x", MutationID: "same"})
		}),
		operator("CreateLoginLink", func(ctx context.Context, c *controller, by who.Principal, id zone.OperatorID) (any, error) {
			return c.CreateLoginLink(ctx, by, admin.CreateLoginLink{OperatorID: id})
		}),
		operator("DisableOperator", func(ctx context.Context, c *controller, by who.Principal, id zone.OperatorID) (any, error) {
			return c.DisableOperator(ctx, by, admin.DisableOperator{OperatorID: id, Disabled: true, MutationID: "same"})
		}),
		operator("EndSessions", func(ctx context.Context, c *controller, by who.Principal, id zone.OperatorID) (any, error) {
			return c.EndSessions(ctx, by, admin.EndSessions{OperatorID: id, MutationID: "same"})
		}),
	}
}

// named are the methods that name nobody else's: what they are about is the caller.
var named = []string{"Again", "Authenticate", "Bootstrap", "ExchangeLoginLink", "GetIdentity", "GetOrganizations", "RegisterSession"}

func TestF77AbsentAndForeignAreTheSame(t *testing.T) {
	c := newController(t, nil)
	c.organization("ours")
	c.organization("theirs")
	ada := c.operator("ada", "ours", admin.Administrator)
	vic := c.operator("vic", "ours", admin.Viewer)
	c.operator("theo", "theirs", admin.Administrator)
	none := c.operator("none", "", "")

	covered := slices.Clone(named)
	for _, a := range attempts() {
		covered = append(covered, a.method)
		for _, by := range []who.Principal{ada, vic, none, {Kind: who.Machine, Service: "web", Organization: "ours"}, {Kind: who.Node, Node: "a7"}, {}} {
			before := len(c.audit())
			var said [2]string
			var costs [2]storecount.Cost
			for i, call := range []func(context.Context, *controller, who.Principal) (any, error){a.absent, a.other} {
				costs[i] = c.store.Cost(func() {
					answer, err := call(t.Context(), c, by)
					if err == nil {
						t.Errorf("%s by %s: it is answered", a.method, by.Actor())
					}
					if !reflect.ValueOf(answer).IsZero() {
						t.Errorf("%s by %s: %+v beside a refusal", a.method, by.Actor(), answer)
					}
					said[i] = string(refusal.JSON(err))
				})
			}
			if said[0] != said[1] || !costs[0].Equal(costs[1]) {
				t.Errorf("%s by %s:\nabsent  %s %+v\nforeign %s %+v", a.method, by.Actor(), said[0], costs[0], said[1], costs[1])
			}
			if len(costs[0].Writes)+len(costs[1].Writes) > 0 || len(c.audit()) != before {
				t.Errorf("%s by %s: a refusal wrote %v", a.method, by.Actor(), costs)
			}
		}
	}
	for m := range reflect.TypeFor[*people.People]().Methods() {
		if !slices.Contains(covered, m.Name) {
			t.Errorf("%s is tried with nothing foreign", m.Name)
		}
	}
}

// Who administers everything hears that there is nothing, too.
func TestF77NothingIsDoneToAnOrganizationThatIsNotThere(t *testing.T) {
	c := newController(t, nil)
	c.operator("theo", "", "")
	for _, a := range attempts()[:3] {
		cost := c.store.Cost(func() {
			if _, err := a.absent(t.Context(), c, local); !errors.Is(err, who.ErrAbsent) {
				t.Errorf("%s: %v", a.method, err)
			}
		})
		if len(cost.Writes) > 0 {
			t.Errorf("%s: it wrote %v", a.method, cost.Writes)
		}
	}
}

func TestF77ListsShowOnlyTheCallersOwn(t *testing.T) {
	c := newController(t, nil)
	ctx := t.Context()
	c.organization("ours")
	c.organization("theirs")
	ada := c.operator("ada", "ours", admin.Administrator)
	vic := c.operator("vic", "ours", admin.Viewer)
	c.operator("theo", "theirs", admin.Administrator)
	root := who.Principal{Kind: who.Operator, Operator: "admin", Installation: true}

	organizations := func(by who.Principal) (got []string) {
		a, err := c.GetOrganizations(ctx, by, admin.GetOrganizations{})
		c.must(err)
		text, err := admin.GetOrganizationsAnswerCodec.Append(nil, a)
		if c.must(err); len(admin.GetOrganizationsAnswerCodec.Reasons(text, "")) > 0 {
			t.Errorf("no exact answer: %s", text)
		}
		for _, o := range a.Organizations {
			got = append(got, string(o.OrganizationID)+" "+string(o.Role))
		}
		return got
	}
	for _, v := range []struct {
		by   who.Principal
		want []string
	}{
		{ada, []string{"ours administrator"}}, {vic, []string{"ours viewer"}}, {who.Principal{}, nil},
		{root, []string{"main administrator", "ours ", "theirs "}}, {local, []string{"main ", "ours ", "theirs "}},
	} {
		if got := organizations(v.by); !slices.Equal(got, v.want) {
			t.Errorf("%s sees %q, want %q", v.by.Actor(), got, v.want)
		}
	}
	operators := func(by who.Principal, o zone.OrganizationID) (got []string, err error) {
		a, err := c.GetOperators(ctx, by, admin.GetOperators{OrganizationID: o})
		for _, o := range a.Operators {
			got = append(got, string(o.OperatorID)+" "+string(o.Role))
		}
		if _, err := admin.GetOperatorsAnswerCodec.Append(nil, a); err != nil {
			t.Errorf("no exact answer: %v", err)
		}
		return got, err
	}
	for _, v := range []struct {
		by   who.Principal
		o    zone.OrganizationID
		want []string
		err  error
	}{
		{ada, "ours", []string{"ada administrator", "vic viewer"}, nil},
		{vic, "ours", []string{"ada administrator", "vic viewer"}, nil},
		{vic, "", nil, who.ErrInstallation},
		{root, "", []string{"ada ", "admin ", "theo ", "vic "}, nil},
		{local, "theirs", []string{"theo administrator"}, nil},
	} {
		if got, err := operators(v.by, v.o); !slices.Equal(got, v.want) || !errors.Is(err, v.err) {
			t.Errorf("%s sees in %q %q, %v", v.by.Actor(), v.o, got, err)
		}
	}
	audit := func(by who.Principal, o zone.OrganizationID) (got []string) {
		a, err := c.GetAudit(ctx, by, admin.GetAudit{OrganizationID: o, Limit: 100})
		c.must(err)
		if _, err := admin.GetAuditAnswerCodec.Append(nil, a); err != nil {
			t.Errorf("no exact answer: %v", err)
		}
		for _, e := range a.Entries {
			got = append(got, e.Actor+" "+e.Action+" "+e.Subject)
		}
		return got
	}
	if got := audit(vic, "ours"); !slices.Equal(got, []string{"local setMember operator/vic", "local setMember operator/ada"}) {
		t.Errorf("ours: %q", got)
	}
	if got := audit(root, ""); len(got) != len(c.audit()) || len(got) != 9 {
		t.Errorf("everywhere: %q", got)
	}
	if _, err := c.GetAudit(ctx, ada, admin.GetAudit{Limit: 1}); !errors.Is(err, who.ErrInstallation) {
		t.Errorf("everywhere, by an operator: %v", err)
	}
}

func TestF77PagesGoOn(t *testing.T) {
	c := newController(t, nil)
	ctx := t.Context()
	const n = 2*zone.MaxPage + 1
	c.write(func(tx store.Tx) error {
		for i := range n {
			id := fmt.Sprintf("n%04d", i)
			if err := errors.Join(
				tx.PutOrganization(store.Organization{ID: zone.OrganizationID(id), Name: "n"}),
				tx.PutOperator(store.Operator{ID: zone.OperatorID(id), Name: "n"}),
				tx.PutMember(store.Member{Organization: "main", Operator: zone.OperatorID(id), Role: "viewer"}),
				tx.AppendAudit(store.AuditEntry{Actor: "x", Action: "y", Organization: "main", Detail: strings.Repeat("d", 1000)}),
			); err != nil {
				return err
			}
		}
		return nil
	})
	all := func(what string, want int, next func(c zone.Cursor) (ids []string, n zone.Cursor, err error)) {
		t.Helper()
		seen, pages := map[string]bool{}, 0
		for at := zone.Cursor(""); ; {
			ids, n, err := next(at)
			c.must(err)
			pages++
			if len(ids) == 0 || len(ids) > zone.MaxPage {
				t.Fatalf("%s: a page of %d", what, len(ids))
			}
			for _, id := range ids {
				if seen[id] {
					t.Fatalf("%s: %s twice", what, id)
				}
				seen[id] = true
			}
			if at = n; at == "" {
				break
			}
		}
		if len(seen) != want || pages < 3 {
			t.Errorf("%s: %d on %d pages, want %d", what, len(seen), pages, want)
		}
	}
	all("organizations", n+1, func(at zone.Cursor) (ids []string, next zone.Cursor, err error) {
		a, err := c.GetOrganizations(ctx, local, admin.GetOrganizations{Cursor: at})
		for _, o := range a.Organizations {
			ids = append(ids, string(o.OrganizationID))
		}
		return ids, a.NextCursor, err
	})
	for _, o := range []zone.OrganizationID{"", "main"} {
		all("operators", n+1, func(at zone.Cursor) (ids []string, next zone.Cursor, err error) {
			a, err := c.GetOperators(ctx, local, admin.GetOperators{OrganizationID: o, Cursor: at})
			for _, o := range a.Operators {
				ids = append(ids, string(o.OperatorID))
			}
			return ids, a.NextCursor, err
		})
	}
	all("audit", n, func(at zone.Cursor) (ids []string, next zone.Cursor, err error) {
		a, err := c.GetAudit(ctx, local, admin.GetAudit{OrganizationID: "main", Cursor: at, Limit: zone.MaxPage})
		for _, e := range a.Entries {
			ids = append(ids, fmt.Sprint(e.Sequence))
		}
		if text, err := admin.GetAuditAnswerCodec.Append(nil, a); err != nil || len(text) > zone.MaxBytes/2 {
			t.Errorf("a page of %d bytes, %v", len(text), err)
		}
		return ids, a.NextCursor, err
	})
	// The longest details, one a page, fit into a message however they are written.
	c.write(func(tx store.Tx) error {
		for range 5 {
			if err := tx.AppendAudit(store.AuditEntry{Actor: "x", Action: "y", Organization: "long", Detail: strings.Repeat("\x01", store.MaxDocument)}); err != nil {
				return err
			}
		}
		return tx.PutOrganization(store.Organization{ID: "long", Name: "n"})
	})
	all("long details", 5, func(at zone.Cursor) (ids []string, next zone.Cursor, err error) {
		a, err := c.GetAudit(ctx, local, admin.GetAudit{OrganizationID: "long", Cursor: at, Limit: zone.MaxPage})
		for _, e := range a.Entries {
			ids = append(ids, fmt.Sprint(e.Sequence))
		}
		if text, err := admin.GetAuditAnswerCodec.Append(nil, a); err != nil || len(text) > zone.MaxBytes {
			t.Errorf("a page of %d bytes, %v", len(text), err)
		}
		return ids, a.NextCursor, err
	})
	for _, bad := range []zone.Cursor{"!", zone.After("x"), zone.After("0"), zone.After("-1"), zone.After("+1"), zone.After("01"), zone.After("99999999999999999999")} {
		if _, err := c.GetAudit(ctx, local, admin.GetAudit{Cursor: bad, Limit: 1}); !errors.Is(err, page.ErrCursor) {
			t.Errorf("audit from %q: %v", bad, err)
		}
	}
	if _, err := c.GetOrganizations(ctx, local, admin.GetOrganizations{Cursor: "!"}); !errors.Is(err, page.ErrCursor) {
		t.Error("a cursor that is none")
	}
	if _, err := c.GetOperators(ctx, local, admin.GetOperators{Cursor: "!"}); !errors.Is(err, page.ErrCursor) {
		t.Error("a cursor that is none")
	}
}

func TestF77OrganizationsAdministerThemselves(t *testing.T) {
	c := newController(t, nil)
	ctx := t.Context()
	c.organization("ours")
	ada := c.operator("ada", "ours", admin.Administrator)
	vic := c.operator("vic", "ours", admin.Viewer)
	c.operator("eve", "", "")
	set := func(by who.Principal, id zone.OperatorID, r admin.Role) error {
		a, err := c.SetMember(ctx, by, admin.SetMember{OrganizationID: "ours", OperatorID: id, Role: r, MutationID: c.id()})
		if err == nil && (a.OrganizationID != "ours" || a.OperatorID != id || a.Role != r || a.Replayed) {
			t.Errorf("%+v", a)
		}
		return err
	}
	for what, v := range map[string]struct{ got, want error }{
		"a viewer changes":                {set(vic, "vic", admin.Administrator), who.ErrRole},
		"an administrator brings one in":  {set(ada, "eve", admin.Viewer), who.ErrAbsent},
		"an administrator brings nobody":  {set(ada, "nobody", admin.Viewer), who.ErrAbsent},
		"the installation brings nobody":  {set(local, "nobody", admin.Viewer), who.ErrAbsent},
		"an administrator raises":         {set(ada, "vic", admin.Administrator), nil},
		"an administrator takes one out":  {set(ada, "vic", ""), nil},
		"an administrator, a second time": {set(ada, "vic", ""), who.ErrAbsent},
	} {
		if v.want == nil && v.got != nil || v.want != nil && !errors.Is(v.got, v.want) {
			t.Errorf("%s: %v, want %v", what, v.got, v.want)
		}
	}
	for n := range store.MaxMemberships - 1 {
		id := zone.OrganizationID(fmt.Sprintf("o%d", n))
		c.organization(id)
		_, err := c.SetMember(ctx, local, admin.SetMember{OrganizationID: id, OperatorID: "ada", Role: admin.Viewer, MutationID: c.id()})
		c.must(err)
	}
	c.organization("last")
	if _, err := c.SetMember(ctx, local, admin.SetMember{OrganizationID: "last", OperatorID: "ada", Role: admin.Viewer, MutationID: c.id()}); !errors.Is(err, store.ErrBounds) {
		t.Errorf("one membership too many: %v", err)
	}
	s, err := c.Authenticate(ctx, c.login("ada"))
	c.must(err)
	a, err := c.GetIdentity(ctx, s, admin.GetIdentity{})
	c.must(err)
	if _, err := admin.GetIdentityAnswerCodec.Append(nil, a); err != nil || len(a.Memberships) != admin.MaxMemberships {
		t.Errorf("%d memberships, %v", len(a.Memberships), err)
	}
}

func TestF07ChangesAreMadeOnce(t *testing.T) {
	c := newController(t, nil)
	ctx := t.Context()
	eve := c.operator("eve", "", "")
	type call func() (replayed bool, answer any, err error)
	calls := map[string]struct{ first, other call }{
		"createOrganization": {
			func() (bool, any, error) {
				a, err := c.CreateOrganization(ctx, local, admin.CreateOrganization{OrganizationID: "a", Name: "A", MutationID: "co"})
				return a.Replayed, a.Organization, err
			}, func() (bool, any, error) {
				a, err := c.CreateOrganization(ctx, local, admin.CreateOrganization{OrganizationID: "a", Name: "B", MutationID: "co"})
				return a.Replayed, a, err
			}},
		"createOperator": {
			func() (bool, any, error) {
				a, err := c.CreateOperator(ctx, local, admin.CreateOperator{OperatorID: "a", Name: "A", MutationID: "cu"})
				return a.Replayed, a.Operator, err
			}, func() (bool, any, error) {
				a, err := c.CreateOperator(ctx, local, admin.CreateOperator{OperatorID: "a", Name: "A", Installation: true, MutationID: "cu"})
				return a.Replayed, a, err
			}},
		"setMember": {
			func() (bool, any, error) {
				a, err := c.SetMember(ctx, local, admin.SetMember{OrganizationID: "main", OperatorID: "eve", Role: admin.Viewer, MutationID: "sm"})
				return a.Replayed, a.Role, err
			}, func() (bool, any, error) {
				a, err := c.SetMember(ctx, local, admin.SetMember{OrganizationID: "main", OperatorID: "eve", Role: admin.Administrator, MutationID: "sm"})
				return a.Replayed, a, err
			}},
		"endSessions": {
			func() (bool, any, error) {
				a, err := c.EndSessions(ctx, eve, admin.EndSessions{OperatorID: "eve", MutationID: "es"})
				return a.Replayed, a.OperatorID, err
			}, func() (bool, any, error) {
				a, err := c.EndSessions(ctx, local, admin.EndSessions{OperatorID: "admin", MutationID: "es"})
				return a.Replayed, a, err
			}},
		"disableOperator": {
			func() (bool, any, error) {
				a, err := c.DisableOperator(ctx, local, admin.DisableOperator{OperatorID: "eve", Disabled: true, MutationID: "do"})
				return a.Replayed, a.Operator, err
			}, func() (bool, any, error) {
				a, err := c.DisableOperator(ctx, local, admin.DisableOperator{OperatorID: "eve", MutationID: "do"})
				return a.Replayed, a, err
			}},
	}
	state := func() (o store.Operator, m store.Member) {
		c.must(c.store.Read(ctx, func(tx store.Tx) (err error) {
			o, _, err = tx.Operator("eve")
			m, _, _ = tx.Member("main", "eve")
			return err
		}))
		return o, m
	}
	for name, v := range calls {
		replayed, first, err := v.first()
		if err != nil || replayed {
			t.Fatalf("%s: %v, replayed %v", name, err, replayed)
		}
		o, m := state()
		entries := len(c.audit())
		c.after(time.Minute)
		replayed, again, err := v.first()
		if err != nil || !replayed || !reflect.DeepEqual(again, first) {
			t.Errorf("%s again: %+v, replayed %v, %v; first %+v", name, again, replayed, err, first)
		}
		if _, _, err := v.other(); !errors.Is(err, act.ErrMutation) {
			t.Errorf("%s, another request: %v", name, err)
		}
		o2, m2 := state()
		if o2 != o || m2 != m || len(c.audit()) != entries {
			t.Errorf("%s: a repeat changed something", name)
		}
	}
	for name, err := range map[string]error{
		"organization": func() error {
			_, err := c.CreateOrganization(ctx, local, admin.CreateOrganization{OrganizationID: "a", Name: "A", MutationID: "new"})
			return err
		}(),
		"operator": func() error {
			_, err := c.CreateOperator(ctx, local, admin.CreateOperator{OperatorID: "a", Name: "A", MutationID: "new2"})
			return err
		}(),
		"operator with a name of the audit log": func() error {
			_, err := c.CreateOperator(ctx, local, admin.CreateOperator{OperatorID: "local", Name: "A", MutationID: "new3"})
			return err
		}(),
		"operator like the controller": func() error {
			_, err := c.CreateOperator(ctx, local, admin.CreateOperator{OperatorID: "controller", Name: "A", MutationID: "new4"})
			return err
		}(),
	} {
		if !errors.Is(err, store.ErrTaken) {
			t.Errorf("%s, a second time: %v", name, err)
		}
	}
}

// kept is everything that was put into a store, as text.
type kept struct {
	store.Store
	mu  sync.Mutex
	all strings.Builder
}

type keeping struct {
	store.Tx
	k *kept
}

func (k *kept) Write(ctx context.Context, fn func(tx store.Tx) error) error {
	return k.Store.Write(ctx, func(tx store.Tx) error { return fn(keeping{tx, k}) })
}

func (k keeping) note(v any) {
	k.k.mu.Lock()
	defer k.k.mu.Unlock()
	fmt.Fprintf(&k.k.all, "%+v\n%s\n", v, v)
}

func (k keeping) PutLoginLink(l store.LoginLink) error { k.note(l); return k.Tx.PutLoginLink(l) }
func (k keeping) PutOperator(o store.Operator) error   { k.note(o); return k.Tx.PutOperator(o) }
func (k keeping) PutReceipt(r store.Receipt) error     { k.note(r); return k.Tx.PutReceipt(r) }
func (k keeping) AppendAudit(e store.AuditEntry) error { k.note(e); return k.Tx.AppendAudit(e) }

func TestF06CodesAndTokensAreKeptNowhere(t *testing.T) {
	k := &kept{}
	c := newController(t, func(s store.Store) store.Store { k.Store = s; return k })
	ctx := t.Context()
	c.organization("ours")
	ada := c.operator("ada", "ours", admin.Administrator)
	l, err := c.CreateLoginLink(ctx, local, admin.CreateLoginLink{OperatorID: "ada"})
	c.must(err)
	secrets := []zone.Secret{c.first, l.Code, c.exchange(c.first).JWT, c.exchange(l.Code).JWT}
	var said strings.Builder
	hear := func(v any, err error) { fmt.Fprintf(&said, "%+v %#v %v %s\n", v, v, err, refusal.JSON(err)) }
	for _, s := range secrets {
		hear(c.ExchangeLoginLink(ctx, admin.ExchangeLoginLink{Code: s}))
		hear(c.Authenticate(ctx, zone.Identity{JWT: s}))
	}
	hear(c.CreateLoginLink(ctx, ada, admin.CreateLoginLink{OperatorID: "ada"}))
	hear(c.EndSessions(ctx, ada, admin.EndSessions{OperatorID: "ada", MutationID: "x"}))
	hear(c.Authenticate(ctx, zone.Identity{JWT: secrets[3]}))
	if k.all.Len() == 0 || !strings.Contains(k.all.String(), "createLoginLink") || !strings.Contains(said.String(), "zone-session-ended") {
		t.Fatal("nothing was looked at")
	}
	for i, s := range secrets {
		text := s.Reveal()
		parts := strings.Split(text, ".")
		for where, all := range map[string]string{"the store": k.all.String(), "answers": said.String()} {
			if strings.Contains(all, text) || strings.Contains(all, parts[len(parts)-1]) || strings.Contains(all, fmt.Sprintf("%x", text)) {
				t.Errorf("secret %d is in %s", i, where)
			}
		}
	}
}

// A store that fails lets nobody in and says nothing of its own.
func TestFailuresOfTheStore(t *testing.T) {
	c := newController(t, nil)
	i := c.login("admin")
	c.must(c.store.Close())
	ctx := t.Context()
	for what, err := range map[string]error{
		"authenticate": func() error { s, err := c.Authenticate(ctx, i); return or(err, s.Principal.Operator != "") }(),
		"exchange": func() error {
			a, err := c.ExchangeLoginLink(ctx, admin.ExchangeLoginLink{Code: c.first})
			return or(err, !a.Identity.JWT.IsZero())
		}(),
		"link": func() error {
			a, err := c.CreateLoginLink(ctx, local, admin.CreateLoginLink{OperatorID: "admin"})
			return or(err, !a.Code.IsZero())
		}(),
		"bootstrap": func() error { s, err := c.Bootstrap(ctx); return or(err, !s.IsZero()) }(),
		"identity": func() error {
			_, err := c.GetIdentity(ctx, people.LocalSession(), admin.GetIdentity{})
			return err
		}(),
	} {
		if err == nil || errors.Is(err, who.ErrEnded) || errors.Is(err, people.ErrLink) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func or(err error, bad bool) error {
	if bad {
		return nil
	}
	return err
}

// What a person was told holds after a restart: in a file, with the keys beside it.
func TestF77ARestartChangesNothing(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	r := &source{r: rand.NewChaCha8([32]byte{1})}
	begin := func() (*people.People, store.Store) {
		t.Helper()
		keys, err := token.Open(dir, r, start)
		if errors.Is(err, keyfile.ErrPlatform) {
			t.Skip("no key is kept on this system")
		}
		if err != nil {
			t.Fatal(err)
		}
		s, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dir, "zone.db"), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return people.New(people.Config{Store: s, Keys: keys, Clock: func() time.Time { return start }, Rand: r}), s
	}
	p, s := begin()
	first, err := p.Bootstrap(ctx)
	if err != nil || first.IsZero() {
		t.Fatal(err)
	}
	second, err := p.CreateLoginLink(ctx, local, admin.CreateLoginLink{OperatorID: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	in, err := p.ExchangeLoginLink(ctx, admin.ExchangeLoginLink{Code: first})
	if err != nil {
		t.Fatal(err)
	}
	restart := func() {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		p, s = begin()
	}
	restart()
	if again, err := p.Bootstrap(ctx); err != nil || !again.IsZero() {
		t.Errorf("a second start gives %v, %v", again, err)
	}
	if _, err := p.ExchangeLoginLink(ctx, admin.ExchangeLoginLink{Code: first}); !errors.Is(err, people.ErrLink) {
		t.Errorf("a used link: %v", err)
	}
	if _, err := p.Authenticate(ctx, in.Identity); err != nil {
		t.Errorf("a session: %v", err)
	}
	if _, err := p.EndSessions(ctx, local, admin.EndSessions{OperatorID: "admin", MutationID: "m"}); err != nil {
		t.Fatal(err)
	}
	restart()
	if _, err := p.Authenticate(ctx, in.Identity); !errors.Is(err, who.ErrEnded) {
		t.Errorf("a session that was ended: %v", err)
	}
	if _, err := p.ExchangeLoginLink(ctx, admin.ExchangeLoginLink{Code: second.Code}); !errors.Is(err, people.ErrLink) {
		t.Errorf("a link from before that: %v", err)
	}
	if a, err := p.EndSessions(ctx, local, admin.EndSessions{OperatorID: "admin", MutationID: "m"}); err != nil || !a.Replayed {
		t.Errorf("a repeat: %+v, %v", a, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
