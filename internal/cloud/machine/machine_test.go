package machine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/internal/cloud/act"
	logic "github.com/allodhq/allod/internal/cloud/machine"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/store/memory"
	"github.com/allodhq/allod/internal/cloud/store/storecount"
	"github.com/allodhq/allod/internal/cloud/token"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/machine"
)

// Who asks. Anna administers ours and Vera sees it; Tom administers theirs.
var (
	anna = who.Principal{Kind: who.Operator, Operator: "anna"}
	vera = who.Principal{Kind: who.Operator, Operator: "vera"}
	tom  = who.Principal{Kind: who.Operator, Operator: "tom"}
)

type cloud struct {
	*storecount.Store
	*logic.Credentials
	keys *token.Keys
	now  time.Time
	ids  int
}

// start makes a controller with two organizations and one service of ours.
func start(t *testing.T) *cloud {
	t.Helper()
	return with(t, newKeys(t))
}

func newKeys(t *testing.T) *token.Keys {
	t.Helper()
	k, err := token.Open(t.TempDir(), rand.NewChaCha8([32]byte{2}), time.UnixMilli(0))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

type failer interface {
	Helper()
	Fatal(...any)
}

func with(t failer, k *token.Keys) *cloud {
	t.Helper()
	c := &cloud{Store: storecount.Wrap(memory.New()), keys: k, now: time.UnixMilli(1_000_000_000_500)}
	c.Credentials = logic.New(logic.Config{Store: c.Store, Clock: func() time.Time { return c.now }, Rand: &random{from: rand.NewChaCha8([32]byte{1})}, Tokens: k})
	c.write(t, func(tx store.Tx) error {
		return errors.Join(
			tx.PutOrganization(store.Organization{ID: "ours", Name: "Ours"}),
			tx.PutOrganization(store.Organization{ID: "theirs", Name: "Theirs"}),
			tx.PutMember(store.Member{Organization: "ours", Operator: "anna", Role: who.Administrator}),
			tx.PutMember(store.Member{Organization: "ours", Operator: "vera", Role: who.Viewer}),
			tx.PutMember(store.Member{Organization: "theirs", Operator: "tom", Role: who.Administrator}),
			tx.PutService(store.Service{ID: "s1", Organization: "ours", Name: "shop", Revision: 1}),
		)
	})
	return c
}

type random struct {
	mu   sync.Mutex
	from *rand.ChaCha8
}

func (r *random) Read(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.from.Read(b)
}

func (c *cloud) write(t failer, fn func(tx store.Tx) error) {
	t.Helper()
	if err := c.Write(context.Background(), fn); err != nil {
		t.Fatal(err)
	}
}

// move gives the service to another organization.
func (c *cloud) move(t failer, o zone.OrganizationID) {
	t.Helper()
	c.write(t, func(tx store.Tx) error {
		return tx.PutService(store.Service{ID: "s1", Organization: o, Name: "shop", Revision: 1})
	})
}

// request is a change of the service by its organization's administrator, under a
// new mutation id.
func (c *cloud) request(o machine.Operation, expected int64) machine.Mutate {
	c.ids++
	return machine.Mutate{
		Operation: o, Organization: "ours", Service: "s1", Expected: expected, Grant: machine.PlatformSession, Mutation: zone.MutationID(fmt.Sprintf("m%d", c.ids)),
	}
}

func (c *cloud) mutate(t failer, r machine.Mutate) machine.MutateAnswer {
	t.Helper()
	a, err := c.Mutate(context.Background(), anna, r)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (c *cloud) exchange(t failer, bearer zone.Secret) zone.Secret {
	t.Helper()
	a, err := c.Exchange(context.Background(), machine.Exchange{Bearer: bearer})
	if err != nil {
		t.Fatal(err)
	}
	return a.JWT
}

// use is a request that comes with a token.
func (c *cloud) use(jwt zone.Secret) error {
	claims, err := c.keys.Read(jwt, c.now)
	if err != nil {
		return err
	}
	return c.Read(context.Background(), func(tx store.Tx) error { return logic.Check(tx, claims, c.now) })
}

func refused(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func metadata(generation int64, s machine.State, at int64) machine.Metadata {
	return machine.Metadata{Service: "s1", Organization: "ours", Generation: generation, Grant: "platform:session", State: s, ChangedAt: zone.Millis(at)}
}

func TestF14EnsureIsOnlyForWhereNothingCounts(t *testing.T) {
	c := start(t)
	get := func(want machine.Metadata) {
		t.Helper()
		a, err := c.Get(context.Background(), anna, machine.Get{Organization: "ours", Service: "s1"})
		if err != nil || a.Credential != want {
			t.Errorf("%+v, %v", a, err)
		}
	}
	get(machine.Metadata{})
	for _, o := range []machine.Operation{machine.Rotate, machine.Revoke} {
		_, err := c.Mutate(context.Background(), anna, c.request(o, 1))
		refused(t, string(o)+" of nothing", err, act.ErrRevision)
	}
	first := c.mutate(t, c.request(machine.Ensure, 0))
	if first.Credential != metadata(1, "active", 1_000_000_000_500) || first.Replayed || first.Bearer.IsZero() {
		t.Errorf("%+v", first)
	}
	get(first.Credential)
	_, err := c.Mutate(context.Background(), anna, c.request(machine.Ensure, 0))
	refused(t, "a second ensure", err, logic.ErrExists)
	if err := c.use(c.exchange(t, first.Bearer)); err != nil {
		t.Errorf("the first bearer after a second ensure: %v", err)
	}
	c.now = c.now.Add(time.Millisecond)
	revoked := c.mutate(t, c.request(machine.Revoke, 1))
	if revoked.Credential != metadata(1, "revoked", 1_000_000_000_501) || !revoked.Bearer.IsZero() {
		t.Errorf("%+v", revoked)
	}
	get(revoked.Credential)
	for _, o := range []machine.Operation{machine.Rotate, machine.Revoke} {
		_, err := c.Mutate(context.Background(), anna, c.request(o, 1))
		refused(t, string(o)+" of what is revoked", err, act.ErrRevision)
	}
	again := c.mutate(t, c.request(machine.Ensure, 0))
	if again.Credential != metadata(2, "active", 1_000_000_000_501) || again.Bearer.IsZero() || again.Bearer.Equal(first.Bearer) {
		t.Errorf("%+v", again)
	}
	// What cannot be sent cannot be done, whoever calls.
	for _, r := range []machine.Mutate{c.request(machine.Ensure, 2), c.request(machine.Rotate, 0), c.request("renew", 2), {}} {
		if a, err := c.Mutate(context.Background(), anna, r); err == nil {
			t.Errorf("%+v gives %+v", r, a)
		}
	}
	wider := c.request(machine.Rotate, 2)
	wider.Grant = "platform:deploy"
	if a, err := c.Mutate(context.Background(), anna, wider); err == nil {
		t.Errorf("another grant gives %+v", a)
	}
	get(again.Credential)
}

func TestF14ATokenEndsWithItsGeneration(t *testing.T) {
	c := start(t)
	first := c.mutate(t, c.request(machine.Ensure, 0))
	one := c.exchange(t, first.Bearer)
	if err := c.use(one); err != nil {
		t.Fatal(err)
	}
	_, err := c.Mutate(context.Background(), anna, c.request(machine.Rotate, 2))
	refused(t, "a rotate of a generation to come", err, act.ErrRevision)
	second := c.mutate(t, c.request(machine.Rotate, 1))
	if second.Credential != metadata(2, "active", 1_000_000_000_500) || second.Bearer.IsZero() || second.Bearer.Equal(first.Bearer) {
		t.Errorf("%+v", second)
	}
	refused(t, "the token of generation 1 after rotation", c.use(one), logic.ErrToken)
	_, err = c.Exchange(context.Background(), machine.Exchange{Bearer: first.Bearer})
	refused(t, "the bearer of generation 1", err, logic.ErrBearer)
	for _, o := range []machine.Operation{machine.Rotate, machine.Revoke} {
		_, err = c.Mutate(context.Background(), anna, c.request(o, 1))
		refused(t, string(o)+" of a stale generation", err, act.ErrRevision)
	}
	two := c.exchange(t, second.Bearer)
	if err := c.use(two); err != nil {
		t.Fatal(err)
	}
	c.mutate(t, c.request(machine.Revoke, 2))
	refused(t, "the token of generation 2 after revocation", c.use(two), logic.ErrToken)
	_, err = c.Exchange(context.Background(), machine.Exchange{Bearer: second.Bearer})
	refused(t, "the bearer of generation 2", err, logic.ErrBearer)
	third := c.mutate(t, c.request(machine.Ensure, 0))
	for name, jwt := range map[string]zone.Secret{"1": one, "2": two} {
		refused(t, "the token of generation "+name+" beside one of 3", c.use(jwt), logic.ErrToken)
	}
	if err := c.use(c.exchange(t, third.Bearer)); err != nil {
		t.Error(err)
	}
}

func TestF14TokensLastAnHourAtMost(t *testing.T) {
	c := start(t)
	a, err := c.Exchange(context.Background(), machine.Exchange{Bearer: c.mutate(t, c.request(machine.Ensure, 0)).Bearer})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := machine.ExchangeAnswerCodec.Append(nil, a); err != nil {
		t.Errorf("the answer cannot be sent: %v", err)
	}
	if age := a.ExpiresAt.Time().Sub(c.now); age > machine.MaxTokenAge || age < machine.MaxTokenAge-time.Second {
		t.Errorf("it lasts %v", age)
	}
	claims, err := c.keys.Read(a.JWT, c.now)
	if want := (token.Claims{Service: "s1", Organization: "ours", Generation: 1, IssuedAt: 1_000_000_000_000, ExpiresAt: a.ExpiresAt}); err != nil || claims != want {
		t.Fatalf("%+v, %v", claims, err)
	}
	check := func(cl token.Claims, now time.Time) (err error) {
		_ = c.Read(context.Background(), func(tx store.Tx) error { err = logic.Check(tx, cl, now); return nil })
		return err
	}
	if err := check(claims, a.ExpiresAt.Time().Add(-time.Millisecond)); err != nil {
		t.Errorf("a millisecond before its end: %v", err)
	}
	refused(t, "at its end", check(claims, a.ExpiresAt.Time()), logic.ErrToken)
	for name, change := range map[string]func(*token.Claims){
		"another service":      func(c *token.Claims) { c.Service = "s2" },
		"another organization": func(c *token.Claims) { c.Organization = "theirs" },
		"no organization":      func(c *token.Claims) { c.Organization = "" },
		"the generation to be": func(c *token.Claims) { c.Generation = 2 },
		"no generation":        func(c *token.Claims) { c.Generation = 0 },
		"a person":             func(c *token.Claims) { *c = token.Claims{Operator: "anna", ExpiresAt: c.ExpiresAt} },
	} {
		changed := claims
		change(&changed)
		refused(t, name, check(changed, c.now), logic.ErrToken)
	}
}

// TestF14ReplayTellsHistoryAndRevivesNothing also is F07's check of replays: after
// success, after later writes, and after revocation.
func TestF14ReplayTellsHistoryAndRevivesNothing(t *testing.T) {
	c := start(t)
	ensure, rotate, revoke := c.request(machine.Ensure, 0), c.request(machine.Rotate, 1), c.request(machine.Revoke, 2)
	requests := []machine.Mutate{ensure, rotate, revoke}
	var answers []machine.MutateAnswer
	var tokens []zone.Secret
	replay := func(when string) {
		t.Helper()
		c.now = c.now.Add(time.Second)
		var before, after store.Machine
		c.write(t, func(tx store.Tx) (err error) { before, _, err = tx.Machine("s1"); return err })
		for i, want := range answers {
			var got machine.MutateAnswer
			var err error
			cost := c.Cost(func() { got, err = c.Mutate(context.Background(), anna, requests[i]) })
			if err != nil || got.Credential != want.Credential || !got.Replayed || !got.Bearer.IsZero() || len(cost.Writes) != 0 {
				t.Errorf("%s, the %s: %+v, %v, wrote %q", when, requests[i].Operation, got, err, cost.Writes)
			}
			if _, err := machine.MutateAnswerCodec.Append(nil, got); err != nil {
				t.Errorf("%s: the answer cannot be sent: %v", when, err)
			}
			other := requests[i]
			other.Operation, other.Expected = machine.Rotate, 9
			_, err = c.Mutate(context.Background(), anna, other)
			refused(t, when+", another request under its id", err, act.ErrMutation)
		}
		c.write(t, func(tx store.Tx) (err error) { after, _, err = tx.Machine("s1"); return err })
		if before != after {
			t.Errorf("%s: the credential became %+v", when, after)
		}
		for i, jwt := range tokens {
			if counts := i == len(answers)-1 && answers[i].Credential.State == machine.Active; (c.use(jwt) == nil) != counts {
				t.Errorf("%s: the token of generation %d: %v", when, i+1, c.use(jwt))
			}
		}
	}
	for i, r := range requests {
		a := c.mutate(t, r)
		if a.Replayed || a.Bearer.IsZero() != (r.Operation == machine.Revoke) {
			t.Errorf("the %s: %+v", r.Operation, a)
		}
		answers = append(answers, a)
		if !a.Bearer.IsZero() {
			tokens = append(tokens, c.exchange(t, a.Bearer))
		}
		replay("after the " + string(requests[i].Operation))
	}
	answers = append(answers, c.mutate(t, c.request(machine.Ensure, 0)))
	requests = append(requests, machine.Mutate{})
	requests[3] = c.request(machine.Ensure, 0)
	requests[3].Mutation = zone.MutationID(fmt.Sprintf("m%d", c.ids-1))
	tokens = append(tokens, c.exchange(t, answers[3].Bearer))
	if tokens = slices.Insert(tokens, 2, zone.Secret{}); c.use(tokens[2]) == nil {
		t.Error("no token counts")
	}
	replay("after another ensure")
}

func TestF14AServiceThatMovesLosesItsToken(t *testing.T) {
	c := start(t)
	ours := c.mutate(t, c.request(machine.Ensure, 0))
	jwt := c.exchange(t, ours.Bearer)
	c.move(t, "theirs")
	refused(t, "the token", c.use(jwt), logic.ErrToken)
	_, err := c.Exchange(context.Background(), machine.Exchange{Bearer: ours.Bearer})
	refused(t, "the bearer", err, logic.ErrBearer)
	_, err = c.Get(context.Background(), anna, machine.Get{Organization: "ours", Service: "s1"})
	refused(t, "whoever had it", err, who.ErrAbsent)
	for _, o := range []zone.OrganizationID{"theirs", "ours"} {
		r := c.request(machine.Rotate, 1)
		r.Organization = o
		_, err = c.Mutate(context.Background(), anna, r)
		refused(t, "a rotate by whoever had it", err, who.ErrAbsent)
	}
	// Whoever has it now sees nothing of what was before, and cannot take it over.
	a, err := c.Get(context.Background(), tom, machine.Get{Organization: "theirs", Service: "s1"})
	if err != nil || a != (machine.GetAnswer{}) {
		t.Errorf("%+v, %v", a, err)
	}
	for _, r := range []machine.Mutate{c.request(machine.Rotate, 1), c.request(machine.Revoke, 1)} {
		r.Organization = "theirs"
		_, err = c.Mutate(context.Background(), tom, r)
		refused(t, string(r.Operation)+" of another's", err, act.ErrRevision)
	}
	r := c.request(machine.Ensure, 0)
	r.Organization = "theirs"
	theirs, err := c.Mutate(context.Background(), tom, r)
	if err != nil || theirs.Credential.Generation != 2 || theirs.Credential.Organization != "theirs" {
		t.Fatalf("%+v, %v", theirs, err)
	}
	if err := c.use(c.exchange(t, theirs.Bearer)); err != nil {
		t.Error(err)
	}
	c.move(t, "ours")
	refused(t, "the token of the first generation, back again", c.use(jwt), logic.ErrToken)
	_, err = c.Exchange(context.Background(), machine.Exchange{Bearer: theirs.Bearer})
	refused(t, "the bearer of those who had it", err, logic.ErrBearer)
	// A service that is gone has no machines.
	c2 := start(t)
	c2.write(t, func(tx store.Tx) error {
		return tx.PutMachine(store.Machine{Service: "gone", Organization: "ours", Hash: zone.Conceal("x").Sum(), Generation: 1, Grant: "platform:session", State: "active"})
	})
	_, err = c2.Exchange(context.Background(), machine.Exchange{Bearer: zone.Conceal("x")})
	refused(t, "the bearer of a service that is gone", err, logic.ErrBearer)
}

func TestF14OfTwoChangesExactlyOneWins(t *testing.T) {
	c := start(t)
	c.mutate(t, c.request(machine.Ensure, 0))
	const callers = 16
	run := func(r func(i int) machine.Mutate) (answers []machine.MutateAnswer, errs []error) {
		answers, errs = make([]machine.MutateAnswer, callers), make([]error, callers)
		var group sync.WaitGroup
		for i := range callers {
			request := r(i)
			group.Go(func() { answers[i], errs[i] = c.Mutate(context.Background(), anna, request) })
		}
		group.Wait()
		return answers, errs
	}
	answers, errs := run(func(i int) machine.Mutate {
		return c.request([]machine.Operation{machine.Rotate, machine.Revoke}[i%2], 1)
	})
	won := 0
	for i, err := range errs {
		if err == nil {
			won++
		} else if refused(t, "one that lost", err, act.ErrRevision); answers[i].Credential != (machine.Metadata{}) || !answers[i].Bearer.IsZero() {
			t.Errorf("one that lost got %+v", answers[i])
		}
	}
	if won != 1 {
		t.Errorf("%d won", won)
	}
	// The same request from everywhere is one change, and one of them gets the bearer.
	c = start(t)
	same := c.request(machine.Ensure, 0)
	answers, errs = run(func(int) machine.Mutate { return same })
	bearers := 0
	for i, a := range answers {
		if errs[i] != nil || a.Credential != metadata(1, "active", 1_000_000_000_500) || a.Replayed == !a.Bearer.IsZero() {
			t.Errorf("%+v, %v", a, errs[i])
		}
		if !a.Bearer.IsZero() {
			bearers++
		}
	}
	if bearers != 1 {
		t.Errorf("%d got a bearer", bearers)
	}
}

func TestF14AbsentAndForeignAreTheSame(t *testing.T) {
	c := start(t)
	c.write(t, func(tx store.Tx) error {
		return tx.PutService(store.Service{ID: "s2", Organization: "theirs", Name: "theirs", Revision: 1})
	})
	r := c.request(machine.Ensure, 0)
	r.Organization, r.Service = "theirs", "s2"
	if _, err := c.Mutate(context.Background(), tom, r); err != nil {
		t.Fatal(err)
	}
	entries := func() (n int) {
		c.write(t, func(tx store.Tx) error {
			list, err := tx.Audit("", 0, store.MaxList)
			n = len(list)
			return err
		})
		return n
	}
	before := entries()
	get := func(p who.Principal, o zone.OrganizationID, id zone.ServiceID) error {
		a, err := c.Get(context.Background(), p, machine.Get{Organization: o, Service: id})
		if a != (machine.GetAnswer{}) {
			t.Errorf("%+v", a)
		}
		return err
	}
	mutate := func(op machine.Operation, expected int64) func(p who.Principal, o zone.OrganizationID, id zone.ServiceID) error {
		return func(p who.Principal, o zone.OrganizationID, id zone.ServiceID) error {
			r := c.request(op, expected)
			r.Organization, r.Service = o, id
			a, err := c.Mutate(context.Background(), p, r)
			if !a.Bearer.IsZero() || a.Credential != (machine.Metadata{}) {
				t.Errorf("%+v", a)
			}
			return err
		}
	}
	for name, do := range map[string]func(p who.Principal, o zone.OrganizationID, id zone.ServiceID) error{
		"get": get, "ensure": mutate(machine.Ensure, 0), "rotate": mutate(machine.Rotate, 1), "revoke": mutate(machine.Revoke, 1),
	} {
		for _, p := range []who.Principal{anna, vera, {Kind: who.Machine, Service: "s2", Organization: "theirs"}, {Kind: who.Node, Node: "n1"}, {}} {
			var costs []storecount.Cost
			var errs []string
			for _, at := range []struct {
				o  zone.OrganizationID
				id zone.ServiceID
			}{{"theirs", "nothing"}, {"theirs", "s2"}, {"ours", "s2"}, {"ours", "nothing"}, {"nobody", "s2"}, {"theirs", "s1"}} {
				costs = append(costs, c.Cost(func() {
					err := do(p, at.o, at.id)
					refused(t, fmt.Sprintf("%s by %s of %s in %s", name, p.Actor(), at.id, at.o), err, who.ErrAbsent)
					errs = append(errs, fmt.Sprint(err))
				}))
			}
			for i := range costs {
				if !costs[i].Equal(costs[0]) || errs[i] != errs[0] || len(costs[i].Reads) == 0 || len(costs[i].Writes) != 0 {
					t.Errorf("%s by %s: %q after %+v, and %q after %+v", name, p.Actor(), errs[0], costs[0], errs[i], costs[i])
				}
			}
		}
		refused(t, name+" by a viewer", do(vera, "ours", "s1"), who.ErrRole)
	}
	if n := entries(); n != before {
		t.Errorf("%d audit entries of what was refused", n-before)
	}
}

// TestF14RefusalsDoNotTellApart holds that a bearer or a token that is refused says
// nothing about why.
func TestF14RefusalsDoNotTellApart(t *testing.T) {
	c := start(t)
	first := c.mutate(t, c.request(machine.Ensure, 0))
	one, err := c.keys.Read(c.exchange(t, first.Bearer), c.now)
	if err != nil {
		t.Fatal(err)
	}
	rotated := c.mutate(t, c.request(machine.Rotate, 1))
	two, err := c.keys.Read(c.exchange(t, rotated.Bearer), c.now)
	if err != nil {
		t.Fatal(err)
	}
	unknown, _ := machine.NewBearer(bytes.NewReader(make([]byte, 32)))
	var costs []storecount.Cost
	bearer := func(what string, b zone.Secret) {
		costs = append(costs, c.Cost(func() {
			a, err := c.Exchange(context.Background(), machine.Exchange{Bearer: b})
			if refused(t, what, err, logic.ErrBearer); fmt.Sprint(err) != logic.ErrBearer.Error() || !a.JWT.IsZero() {
				t.Errorf("%s: %v", what, err)
			}
		}))
	}
	bearer("unknown", unknown)
	bearer("none", zone.Secret{})
	bearer("rotated", first.Bearer)
	c.move(t, "theirs")
	bearer("moved", rotated.Bearer)
	c.move(t, "ours")
	c.mutate(t, c.request(machine.Revoke, 2))
	bearer("revoked", rotated.Bearer)
	for _, cost := range costs {
		if !cost.Equal(costs[0]) {
			t.Errorf("bearers: %+v and %+v", costs[0], cost)
		}
	}
	costs = nil
	stranger := two
	stranger.Service = "nothing"
	for _, claims := range []token.Claims{one, two, stranger, {}} {
		costs = append(costs, c.Cost(func() {
			_ = c.Read(context.Background(), func(tx store.Tx) error {
				if err := logic.Check(tx, claims, c.now); fmt.Sprint(err) != logic.ErrToken.Error() {
					t.Errorf("%+v: %v", claims, err)
				}
				return nil
			})
		}))
	}
	for _, cost := range costs {
		if !cost.Equal(costs[0]) {
			t.Errorf("tokens: %+v and %+v", costs[0], cost)
		}
	}
}

// TestF06TheStoreHasNoBearer looks for bearers in everything that is kept of a
// service's machine. One is planted, so that the search is known to see.
func TestF06TheStoreHasNoBearer(t *testing.T) {
	c := start(t)
	bearers := []string{c.mutate(t, c.request(machine.Ensure, 0)).Bearer.Reveal(), c.mutate(t, c.request(machine.Rotate, 1)).Bearer.Reveal()}
	found := func() (n int) {
		c.write(t, func(tx store.Tx) error {
			m, _, err := tx.Machine("s1")
			kept := fmt.Sprintf("%+v %s", m, m.Hash[:])
			for i := range c.ids {
				r, there, err := tx.Receipt("ours", zone.MutationID(fmt.Sprintf("m%d", i+1)))
				if err != nil || !there {
					t.Errorf("receipt %d: %v", i+1, err)
				}
				kept += string(r.Answer) + string(r.Input[:])
			}
			entries, err2 := tx.Audit("", 0, store.MaxList)
			for _, e := range entries {
				kept += fmt.Sprintf("%+v", e)
			}
			for _, b := range bearers {
				n += strings.Count(kept, b)
			}
			if len(entries) < 2 || !strings.Contains(kept, `"operation":"rotate"`) {
				t.Errorf("the search does not see what is kept: %s", kept)
			}
			return errors.Join(err, err2)
		})
		return n
	}
	if n := found(); n != 0 {
		t.Errorf("%d bearers are in the store", n)
	}
	c.write(t, func(tx store.Tx) error { return tx.AppendAudit(store.AuditEntry{Detail: bearers[1]}) })
	if found() != 1 {
		t.Error("the search is blind")
	}
}

func TestF07AChangeIsAuditedOnce(t *testing.T) {
	c := start(t)
	r := c.request(machine.Ensure, 0)
	c.mutate(t, r)
	c.mutate(t, r)
	_, err := c.Mutate(context.Background(), anna, c.request(machine.Ensure, 0))
	refused(t, "a second ensure", err, logic.ErrExists)
	c.write(t, func(tx store.Tx) error {
		list, err := tx.Audit("ours", 0, 10)
		want := store.AuditEntry{
			Seq: 1, At: 1_000_000_000_500, Actor: "anna", Organization: "ours", Action: "mutateServiceMachineCredential", Subject: "service/s1",
			Detail: `{"operation":"ensure","organizationId":"ours","serviceId":"s1","expectedGeneration":null,"grant":"platform:session","mutationId":"m1"}`,
		}
		if !slices.Equal(list, []store.AuditEntry{want}) {
			t.Errorf("%+v", list)
		}
		return err
	})
}

func TestNoRandomnessNoBearer(t *testing.T) {
	c := start(t)
	broken := logic.New(logic.Config{Store: c.Store, Clock: func() time.Time { return c.now }, Rand: bytes.NewReader(make([]byte, 31)), Tokens: c.keys})
	if a, err := broken.Mutate(context.Background(), anna, c.request(machine.Ensure, 0)); err == nil || !a.Bearer.IsZero() {
		t.Errorf("%+v, %v", a, err)
	}
	a, err := c.Get(context.Background(), anna, machine.Get{Organization: "ours", Service: "s1"})
	if err != nil || a != (machine.GetAnswer{}) {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestF14Model runs changes in any order beside a model of three lines, and holds
// after each one which of all bearers and tokens there ever were count.
func TestF14Model(t *testing.T) {
	k := newKeys(t)
	rapid.Check(t, func(t *rapid.T) {
		c := with(t, k)
		type issued struct {
			generation  int64
			owner       zone.OrganizationID
			bearer, jwt zone.Secret
		}
		var all []issued
		var generation int64                 // the newest
		var active zone.OrganizationID       // whose it is, "" for nobody's
		owner := zone.OrganizationID("ours") // of the service
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			step := rapid.SampledFrom([]string{"ensure", "rotate", "revoke", "move"}).Draw(t, "step")
			if step == "move" {
				owner = rapid.SampledFrom([]zone.OrganizationID{"ours", "theirs"}).Draw(t, "to")
				c.move(t, owner)
			} else {
				expected := int64(0)
				if step != "ensure" {
					expected = rapid.Int64Range(max(1, generation-1), generation+1).Draw(t, "expected")
				}
				r := c.request(machine.Operation(step), expected)
				p := map[zone.OrganizationID]who.Principal{"ours": anna, "theirs": tom}[owner]
				r.Organization = owner
				a, err := c.Mutate(context.Background(), p, r)
				counts := active == owner
				if ok := step == "ensure" && !counts || step != "ensure" && counts && expected == generation; ok != (err == nil) {
					t.Fatalf("%s of %d by %s where %d is %s's: %v", step, expected, owner, generation, active, err)
				}
				if err == nil && step == "revoke" {
					active = ""
				} else if err == nil {
					generation++
					active = owner
					all = append(all, issued{generation, owner, a.Bearer, c.exchange(t, a.Bearer)})
				}
			}
			for _, i := range all {
				counts := i.generation == generation && i.owner == active && active == owner
				if err := c.use(i.jwt); (err == nil) != counts {
					t.Fatalf("after %s: the token of %d: %v", step, i.generation, err)
				}
				if _, err := c.Exchange(context.Background(), machine.Exchange{Bearer: i.bearer}); (err == nil) != counts {
					t.Fatalf("after %s: the bearer of %d: %v", step, i.generation, err)
				}
			}
		}
	})
}
