package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	logic "github.com/allodhq/allod/internal/cloud/nodes"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/store/memory"
	"github.com/allodhq/allod/internal/cloud/store/storecount"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/nodes"
	"github.com/allodhq/allod/wire/zone/spark"
)

func TestF08FreshEnrollmentIsGenerationOneOfBoth(t *testing.T) {
	both(t, func(t *testing.T, c *cloud) {
		m := c.joined(t)
		one := enroll.Granted{Generation: 1, SessionEpoch: 1}
		if m.ack.Spark != one || m.ack.Pallet != one || enroll.BindAcknowledgement(m.proposal, m.ack) != nil {
			t.Errorf("%+v", m.ack)
		}
		for u, b := range map[enroll.Purpose]enroll.Bearer{enroll.Spark: m.spark, enroll.Pallet: m.pallet} {
			id, got, err := c.Credential(ctx, b)
			if want := (enroll.Metadata{Purpose: u, State: enroll.Active, Generation: 1, SessionEpoch: 1}); err != nil || id != m.id || got != want {
				t.Errorf("%s: %s %+v %v", u, id, got, err)
			}
		}
		a, err := c.Get(ctx, vera, nodes.Get{Node: m.id})
		if err != nil || a.Node.Organization != "ours" || a.Node.Cluster != "c1" || a.Node.Hostname != "host" || len(a.Node.Credentials) != 2 {
			t.Errorf("%+v %v", a, err)
		}
		same(t, "audit", c.audited(t), []string{"node/" + string(m.id) + " enrollNode node/" + string(m.id), "anna inviteNode cluster/c1"})
	})
}

// TestF08NothingIsCommittedByHalf breaks every change at every call that it makes
// to the store, and at its commit. Nothing is changed then, and the same request
// goes well later.
func TestF08NothingIsCommittedByHalf(t *testing.T) {
	changes := map[string]func(t *testing.T, c *cloud) func() error{
		"fresh": func(t *testing.T, c *cloud) func() error {
			m := c.invited(t)
			return func() error { _, err := c.Enroll(ctx, m.proposal, m.bootstrap); return err }
		},
		"adoption": func(t *testing.T, c *cloud) func() error {
			m := c.joined(t)
			c.part(t, m)
			a := c.adopts(t, m)
			return func() error { _, err := c.Enroll(ctx, a.proposal, a.bootstrap); return err }
		},
		"rotation": func(t *testing.T, c *cloud) func() error {
			m := c.joined(t)
			_, r := c.rotation(t, enroll.Pallet, 1)
			return func() error { _, err := c.Rotate(ctx, m.pallet, r); return err }
		},
		"report": func(t *testing.T, c *cloud) func() error {
			m := c.joined(t)
			return func() error { _, _, err := c.Report(ctx, m.spark, report()); return err }
		},
		"invite": func(t *testing.T, c *cloud) func() error {
			return func() error { _, err := c.Invite(ctx, anna, nodes.Invite{Cluster: "c1"}); return err }
		},
		"ask": func(t *testing.T, c *cloud) func() error {
			r := nodes.Rotate{Node: c.joined(t).id, Mutation: c.mutation()}
			return func() error { _, err := c.AskRotation(ctx, anna, r); return err }
		},
		"remove": func(t *testing.T, c *cloud) func() error {
			r := nodes.Remove{Node: c.joined(t).id, Mutation: c.mutation()}
			return func() error { _, err := c.Remove(ctx, anna, r); return err }
		},
	}
	least := map[string]int{"fresh": 9, "adoption": 9, "rotation": 4, "report": 2, "invite": 4, "ask": 8, "remove": 8}
	both(t, func(t *testing.T, c *cloud) {
		for name, prepare := range changes {
			do := prepare(t, c)
			before := c.held(t)
			n := 1
			for ; ; n++ {
				c.faults.arm(n)
				err := do()
				calls := c.faults.calls
				c.faults.arm(0)
				if err == nil {
					if n != calls+1 {
						t.Errorf("%s went well with a fault at call %d of %d", name, n, calls)
					}
					break
				}
				if !errors.Is(err, errFault) {
					t.Fatalf("%s at %d: %v", name, n, err)
				}
				if now := c.held(t); now != before {
					t.Fatalf("%s with a fault at call %d changed\n%s\nto\n%s", name, n, before, now)
				}
				if n > 100 {
					t.Fatal("it never ends")
				}
			}
			if c.held(t) == before {
				t.Errorf("%s changed nothing", name)
			}
			if n-2 < least[name] { // one is the commit, and one is behind it
				t.Errorf("%s was broken at %d calls", name, n-2)
			}
		}
	})
}

// TestTheFaultsReachEveryCall: a method that the faults do not know would pass.
func TestTheFaultsReachEveryCall(t *testing.T) {
	c := start(t)
	m := c.joined(t)
	_, r := c.rotation(t, enroll.Spark, 1)
	fresh := c.invited(t)
	for name, do := range map[string]func() error{
		"enroll": func() error { _, err := c.Enroll(ctx, fresh.proposal, fresh.bootstrap); return err },
		"report": func() error { _, _, err := c.Report(ctx, m.spark, report()); return err },
		"rotate": func() error { _, err := c.Rotate(ctx, m.spark, r); return err },
		"invite": func() error { _, err := c.Invite(ctx, anna, nodes.Invite{Cluster: "c1"}); return err },
		"ask": func() error {
			_, err := c.AskRotation(ctx, anna, nodes.Rotate{Node: m.id, Mutation: c.mutation()})
			return err
		},
	} {
		c.faults.arm(1000)
		cost := c.Cost(func() {
			if err := do(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		if n := len(cost.Reads) + len(cost.Writes) + 1; n != c.faults.calls {
			t.Errorf("%s makes %d calls, and the faults know %d: %+v", name, n, c.faults.calls, cost)
		}
		c.faults.arm(0)
	}
}

// part removes a node's Pallet.
func (c *cloud) part(t testing.TB, m *machine) {
	t.Helper()
	if _, err := c.Remove(ctx, anna, nodes.Remove{Node: m.id, PalletOnly: true, Mutation: c.mutation()}); err != nil {
		t.Fatal(err)
	}
}

func TestF08LostAnswerIsRecoveredExactly(t *testing.T) {
	both(t, func(t *testing.T, c *cloud) {
		m := c.invited(t)
		stranger := c.bearer(t)
		pending := enroll.PendingSparkProof(m.spark)
		_, err := c.Enroll(ctx, m.proposal, pending)
		refused(t, "pending-spark before there is a receipt", err, enroll.ErrProofMode)
		_, err = c.Enroll(ctx, m.proposal, enroll.PendingSparkProof(stranger))
		refused(t, "another bearer before", err, enroll.ErrProof)
		_, err = c.Enroll(ctx, m.proposal, enroll.BootstrapByCode(c.code(t)))
		refused(t, "another code before", err, enroll.ErrProof)
		c.enroll(t, m)
		after := c.held(t)
		again := func(when string) {
			t.Helper()
			ack, err := c.Enroll(ctx, m.proposal, pending)
			first, _ := enroll.AcknowledgementCodec.Append(nil, m.ack)
			second, _ := enroll.AcknowledgementCodec.Append(nil, ack)
			if err != nil || string(first) != string(second) {
				t.Errorf("%s: %s, %v, want %s", when, second, err, first)
			}
			_, err = c.Enroll(ctx, m.proposal, m.bootstrap)
			refused(t, when+": bootstrap", err, enroll.ErrProofMode)
			_, err = c.Enroll(ctx, m.proposal, enroll.PendingSparkProof(stranger))
			refused(t, when+": another bearer", err, enroll.ErrProof)
			_, err = c.Enroll(ctx, m.proposal, enroll.PendingSparkProof(m.pallet))
			refused(t, when+": Pallet's bearer", err, enroll.ErrProof)
		}
		c.pass(2 * time.Hour) // the line has expired
		again("at once")
		same(t, "the store", c.held(t), after)
		next, r := c.rotation(t, enroll.Spark, 1)
		if _, err := c.Rotate(ctx, m.spark, r); err != nil {
			t.Fatal(err)
		}
		again("after a rotation")
		_, _, err = c.Credential(ctx, m.spark)
		refused(t, "the bearer of the receipt", err, enroll.ErrCredential)
		if _, err := c.Remove(ctx, anna, nodes.Remove{Node: m.id, Mutation: c.mutation()}); err != nil {
			t.Fatal(err)
		}
		gone := c.held(t)
		again("after the removal") // F07: the same historical answer, and nothing lives again
		for _, b := range []enroll.Bearer{m.spark, m.pallet, next} {
			_, _, err = c.Credential(ctx, b)
			refused(t, "a bearer of a removed node", err, enroll.ErrCredential)
		}
		same(t, "the store", c.held(t), gone)
	})
}

func TestF08AdoptionKeepsTheNodeAndRotatesSpark(t *testing.T) {
	both(t, func(t *testing.T, c *cloud) {
		m := c.joined(t)
		early := c.adopts(t, m)
		_, err := c.Enroll(ctx, early.proposal, early.bootstrap)
		refused(t, "adoption while there is a Pallet", err, enroll.ErrConflict)
		c.part(t, m)
		_, _, err = c.Credential(ctx, m.pallet)
		refused(t, "the Pallet that was removed", err, enroll.ErrCredential)
		if _, _, absent, err := c.State(ctx, m.spark); err != nil || !absent {
			t.Error(absent, err)
		}
		a := c.adopts(t, m)
		for what, change := range map[string]func(p *enroll.Proposal){
			"generation": func(p *enroll.Proposal) { p.Spark.ExpectedGeneration = 2 },
			"epoch":      func(p *enroll.Proposal) { p.Spark.ExpectedSessionEpoch = 2 },
		} {
			p := a.proposal
			change(&p)
			_, err := c.Enroll(ctx, p, a.bootstrap)
			refused(t, "another "+what, err, enroll.ErrConflict)
		}
		p := a.proposal
		p.NodeID = "n1"
		_, err = c.Enroll(ctx, p, a.bootstrap)
		refused(t, "another node", err, enroll.ErrCredential)
		c.enroll(t, a)
		if a.id != m.id || a.ack.Spark != (enroll.Granted{Generation: 2, SessionEpoch: 2}) || a.ack.Pallet != (enroll.Granted{Generation: 1, SessionEpoch: 1}) {
			t.Errorf("%+v", a.ack)
		}
		_, _, err = c.Report(ctx, m.spark, report())
		refused(t, "the bearer before", err, enroll.ErrCredential)
		if _, _, err := c.Report(ctx, a.spark, report()); err != nil {
			t.Error(err)
		}
		_, err = c.Enroll(ctx, a.proposal, a.bootstrap)
		refused(t, "bootstrap once more", err, enroll.ErrProofMode)
		if ack, err := c.Enroll(ctx, a.proposal, enroll.PendingSparkProof(a.spark)); err != nil || ack != a.ack {
			t.Error(ack, err)
		}
	})
}

func TestF08LinesThatDoNotCount(t *testing.T) {
	c := start(t)
	expired := c.code(t)
	c.pass(time.Hour)
	used := c.code(t) // and it has not expired
	c.enroll(t, c.machine(t, used))
	unknown, err := enroll.NewJumpCode(c.rand)
	if err != nil {
		t.Fatal(err)
	}
	orphan := c.code(t)
	c.write(t, func(tx store.Tx) error { // a line of a cluster that is not there
		i, _, err := tx.Invitation(sumOf(orphan))
		i.Cluster = "c9"
		return errors.Join(err, tx.PutInvitation(i))
	})
	before := c.held(t)
	for what, code := range map[string]enroll.JumpCode{"used": used, "expired": expired, "unknown": unknown, "of nothing": orphan} {
		m := c.machine(t, code)
		_, err := c.Enroll(ctx, m.proposal, m.bootstrap)
		if refused(t, what, err, enroll.ErrInvitation); fmt.Sprint(err) != enroll.ErrInvitation.Error() {
			t.Errorf("%s says more: %v", what, err)
		}
	}
	m := c.invited(t)
	m.proposal.Origin, _ = enroll.ParseOrigin("https://other.test")
	_, err = c.Enroll(ctx, m.proposal, m.bootstrap)
	refused(t, "a proposal to another controller", err, enroll.ErrElsewhere)
	// A name of an enrollment that is taken, by somebody who has a right and by somebody
	// who has none.
	other := c.invited(t)
	other.proposal.EnrollmentID = "e1"
	_, err = c.Enroll(ctx, other.proposal, other.bootstrap)
	refused(t, "a taken name", err, enroll.ErrConflict)
	none := c.machine(t, unknown)
	none.proposal.EnrollmentID = "e1"
	_, err = c.Enroll(ctx, none.proposal, none.bootstrap)
	refused(t, "a taken name without a right", err, enroll.ErrInvitation)
	// A credential that somebody has.
	thief := c.invited(t)
	victim := c.joined(t)
	for _, hash := range []*enroll.CredentialHash{&thief.proposal.Spark.CredentialHash, &thief.proposal.Pallet.CredentialHash} {
		kept := *hash
		*hash = victim.spark.Hash()
		_, err = c.Enroll(ctx, thief.proposal, thief.bootstrap)
		refused(t, "somebody's credential", err, enroll.ErrConflict)
		*hash = kept
	}
	c.enroll(t, thief) // and the line still counts
	if !strings.Contains(before, "node-") {
		t.Error("nothing was compared")
	}
}

func sumOf(code enroll.JumpCode) store.Hash { return store.Hash(code.Sum()) }

func TestF09TheBearerBeforeDiesAtOnce(t *testing.T) {
	both(t, func(t *testing.T, c *cloud) {
		m := c.joined(t)
		for u, b := range map[enroll.Purpose]enroll.Bearer{enroll.Spark: m.spark, enroll.Pallet: m.pallet} {
			next, r := c.rotation(t, u, 1)
			c.pass(time.Second)
			receipt, err := c.Rotate(ctx, b, r)
			want := enroll.RotationReceipt{RotationID: r.RotationID, NodeID: m.id, Purpose: u, Generation: 2, SessionEpoch: 2, RotatedAt: zone.At(c.now)}
			if err != nil || receipt != want {
				t.Errorf("%+v %v, want %+v", receipt, err, want)
			}
			line := fmt.Sprintf("%s %s node/%s", who.Principal{Kind: who.Node, Node: m.id, Purpose: string(u)}.Actor(), enroll.MethodRotate, m.id)
			if audit := c.audited(t); !slices.Contains(audit, line) {
				t.Errorf("%q is not in the log: %q", line, audit)
			}
			_, _, err = c.Credential(ctx, b)
			refused(t, "the bearer before", err, enroll.ErrCredential)
			_, err = c.Rotate(ctx, b, r)
			refused(t, "the bearer before, for the same rotation", err, enroll.ErrCredential)
			id, got, err := c.Credential(ctx, next)
			if err != nil || id != m.id || got != (enroll.Metadata{Purpose: u, State: enroll.Active, Generation: 2, SessionEpoch: 2}) {
				t.Errorf("%+v %v", got, err)
			}
			// The answer was lost: the same one, byte for byte, and nothing changes.
			held := c.held(t)
			c.pass(time.Hour)
			again, err := c.Rotate(ctx, next, r)
			first, _ := enroll.RotationReceiptCodec.Append(nil, receipt)
			second, _ := enroll.RotationReceiptCodec.Append(nil, again)
			if err != nil || string(first) != string(second) {
				t.Errorf("%s %v", second, err)
			}
			same(t, "the store", c.held(t), held)
			// Another rotation under the same name, and one from a generation that is over.
			_, other := c.rotation(t, u, 1)
			_, err = c.Rotate(ctx, next, other)
			refused(t, "a generation that is over", err, enroll.ErrRotationConflict)
			_, other = c.rotation(t, u, 2)
			other.NextCredentialHash = next.Hash()
			_, err = c.Rotate(ctx, next, other)
			refused(t, "the same bearer again", err, enroll.ErrRotationProof)
			other.NextCredentialHash = m.hashOfOther(u)
			_, err = c.Rotate(ctx, next, other)
			refused(t, "the bearer of the other purpose", err, enroll.ErrRotationConflict)
			same(t, "the store", c.held(t), held)
			if u == enroll.Spark {
				m.spark = next
			} else {
				m.pallet = next
			}
		}
	})
}

func (m *machine) hashOfOther(u enroll.Purpose) enroll.CredentialHash {
	if u == enroll.Spark {
		return m.pallet.Hash()
	}
	return m.spark.Hash()
}

func TestF09OnePurposeIsNotTheOther(t *testing.T) {
	c := start(t)
	m := c.joined(t)
	before := c.held(t)
	_, _, err := c.Report(ctx, m.pallet, report())
	refused(t, "a report by Pallet", err, enroll.ErrCredential)
	_, _, _, err = c.State(ctx, m.pallet)
	refused(t, "the state for Pallet", err, enroll.ErrCredential)
	_, r := c.rotation(t, enroll.Pallet, 1)
	_, err = c.Rotate(ctx, m.spark, r)
	refused(t, "Pallet's rotation by Spark", err, enroll.ErrCredential)
	_, r = c.rotation(t, enroll.Spark, 1)
	_, err = c.Rotate(ctx, m.pallet, r)
	refused(t, "Spark's rotation by Pallet", err, enroll.ErrCredential)
	same(t, "the store", c.held(t), before)
	c.part(t, m)
	// An adoption by what was Pallet's, and by another node's Spark.
	other := c.joined(t)
	a := c.adopts(t, m)
	for what, b := range map[string]enroll.Bearer{"Pallet that was": m.pallet, "another node": other.spark, "another node's Pallet": other.pallet} {
		p := a.proposal
		p.BootstrapProofHash = b.Hash()
		_, err := c.Enroll(ctx, p, enroll.BootstrapByBearer(b))
		refused(t, "an adoption by "+what, err, enroll.ErrCredential)
	}
	// Neither passes where people are asked for.
	for _, u := range []enroll.Purpose{enroll.Spark, enroll.Pallet} {
		p := who.Principal{Kind: who.Node, Node: m.id, Purpose: string(u), Organization: "ours"}
		for name, do := range people(c, m.id, "c1") {
			if err := do(p); !errors.Is(err, who.ErrAbsent) && !(name == "list all" && errors.Is(err, who.ErrInstallation)) {
				t.Errorf("%s by %s: %v", name, u, err)
			}
		}
	}
}

func TestF09RemovalCountsFromTheNextRequest(t *testing.T) {
	both(t, func(t *testing.T, c *cloud) {
		m := c.joined(t)
		if _, _, err := c.Report(ctx, m.spark, report()); err != nil {
			t.Fatal(err)
		}
		r := nodes.Remove{Node: m.id, Mutation: c.mutation()}
		a, err := c.Remove(ctx, anna, r)
		if err != nil || a.Node.Liveness.State != nodes.Removed || a.Node.RemovedAt != zone.At(c.now) || len(a.Node.Credentials) != 0 {
			t.Errorf("%+v %v", a, err)
		}
		held := c.held(t)
		_, _, err = c.Report(ctx, m.spark, report())
		refused(t, "a report", err, enroll.ErrCredential)
		for u, b := range map[enroll.Purpose]enroll.Bearer{enroll.Spark: m.spark, enroll.Pallet: m.pallet} {
			_, _, err = c.Credential(ctx, b)
			refused(t, "the credential", err, enroll.ErrCredential)
			_, rotation := c.rotation(t, u, 1)
			_, err = c.Rotate(ctx, b, rotation)
			refused(t, "a rotation", err, enroll.ErrCredential)
		}
		_, _, _, err = c.State(ctx, m.spark)
		refused(t, "the state", err, enroll.ErrCredential)
		// F07: a repeat has the same answer, another request under its name none.
		c.pass(time.Minute)
		again, err := c.Remove(ctx, anna, r)
		same(t, "again", again, a)
		if err != nil {
			t.Error(err)
		}
		r.PalletOnly = true
		if _, err = c.Remove(ctx, anna, r); err == nil {
			t.Error("another request under the same mutation id was taken")
		}
		_, err = c.Remove(ctx, anna, nodes.Remove{Node: m.id, Mutation: c.mutation()})
		refused(t, "twice", err, logic.ErrRemoved)
		_, err = c.AskRotation(ctx, anna, nodes.Rotate{Node: m.id, Mutation: c.mutation()})
		refused(t, "a rotation by the operator", err, logic.ErrRemoved)
		same(t, "the store", c.held(t), held)
	})
}

func TestF07OfManyWithOneLineExactlyOneWins(t *testing.T) {
	both(t, func(t *testing.T, c *cloud) {
		code := c.code(t)
		var all sync.WaitGroup
		var mu sync.Mutex
		won, lost := 0, 0
		for range 8 {
			m := c.machine(t, code)
			all.Go(func() {
				_, err := c.Enroll(ctx, m.proposal, m.bootstrap)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					won++
				case errors.Is(err, enroll.ErrInvitation):
					lost++
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		if won != 1 || lost != 7 {
			t.Errorf("%d won and %d lost", won, lost)
		}
	})
}

func TestF07OfManyRotationsExactlyOneWins(t *testing.T) {
	both(t, func(t *testing.T, c *cloud) {
		m := c.joined(t)
		var all sync.WaitGroup
		var mu sync.Mutex
		won := map[enroll.Generation]int{}
		for range 8 {
			_, r := c.rotation(t, enroll.Spark, 1)
			all.Go(func() {
				receipt, err := c.Rotate(ctx, m.spark, r)
				mu.Lock()
				defer mu.Unlock()
				if won[receipt.Generation]++; err != nil && !errors.Is(err, enroll.ErrCredential) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if won[2] != 1 || won[0] != 7 {
			t.Error(won)
		}
	})
}

// TestF11ReportsAreFenced: a credential that was rotated, has expired or was removed
// records nothing, and what is recorded has no bearer.
func TestF11ReportsAreFenced(t *testing.T) {
	both(t, func(t *testing.T, c *cloud) {
		m := c.joined(t)
		receipt, due, err := c.Report(ctx, m.spark, report())
		if err != nil || due || spark.BindReceipt(m.ack.Identity(enroll.Spark), report(), receipt) != nil || receipt.AcceptedAt != zone.At(c.now) {
			t.Errorf("%+v %v %v", receipt, due, err)
		}
		held := c.held(t)
		for _, b := range []enroll.Bearer{m.spark, m.pallet} {
			if strings.Contains(held, b.Reveal()) {
				t.Error("the store has a bearer")
			}
		}
		next, r := c.rotation(t, enroll.Spark, 1)
		if _, err := c.Rotate(ctx, m.spark, r); err != nil {
			t.Fatal(err)
		}
		c.pass(time.Minute)
		held = c.held(t)
		late := report()
		late.Host.UptimeSeconds = 77
		_, _, err = c.Report(ctx, m.spark, late)
		refused(t, "a bearer that was rotated", err, enroll.ErrCredential)
		_, _, err = c.Report(ctx, c.bearer(t), late)
		refused(t, "a bearer of nobody", err, enroll.ErrCredential)
		_, _, err = c.Report(ctx, enroll.Bearer{}, late)
		refused(t, "no bearer", err, enroll.ErrCredential)
		same(t, "the store", c.held(t), held)
		receipt, _, err = c.Report(ctx, next, late)
		if err != nil || receipt.CredentialGeneration != 2 || receipt.SessionEpoch != 2 {
			t.Errorf("%+v %v", receipt, err)
		}
	})
}

func TestF09ACredentialAges(t *testing.T) {
	c := start(t)
	m := c.joined(t)
	day := 24 * time.Hour
	due := func() bool {
		t.Helper()
		_, got, err := c.Credential(ctx, m.spark)
		_, rotate, err2 := c.Report(ctx, m.spark, report())
		if err != nil || err2 != nil || got.RotationRequired != rotate {
			t.Fatal(got, rotate, err, err2)
		}
		return rotate
	}
	c.pass(30*day - time.Millisecond)
	if due() {
		t.Error("due before 30 days")
	}
	c.pass(time.Millisecond)
	if !due() {
		t.Error("not due after 30 days")
	}
	c.pass(60*day - time.Millisecond)
	due()
	c.pass(time.Millisecond)
	_, _, err := c.Credential(ctx, m.spark)
	refused(t, "after 90 days", err, enroll.ErrExpired)
	_, _, err = c.Report(ctx, m.spark, report())
	refused(t, "a report after 90 days", err, enroll.ErrExpired)
	_, r := c.rotation(t, enroll.Spark, 1)
	_, err = c.Rotate(ctx, m.spark, r)
	refused(t, "a rotation after 90 days", err, enroll.ErrExpired)
	// An operator's wish counts at once and is over with the next generation.
	n := c.joined(t)
	if _, err := c.AskRotation(ctx, anna, nodes.Rotate{Node: n.id, Mutation: c.mutation()}); err != nil {
		t.Fatal(err)
	}
	for u, b := range map[enroll.Purpose]enroll.Bearer{enroll.Spark: n.spark, enroll.Pallet: n.pallet} {
		if _, got, err := c.Credential(ctx, b); err != nil || !got.RotationRequired {
			t.Error(u, got, err)
		}
		next, r := c.rotation(t, u, 1)
		if _, err := c.Rotate(ctx, b, r); err != nil {
			t.Fatal(err)
		}
		if _, got, err := c.Credential(ctx, next); err != nil || got.RotationRequired {
			t.Error(u, got, err)
		}
	}
}

// people are all methods for people, on one node and one cluster.
func people(c *cloud, id zone.NodeID, cluster zone.ClusterID) map[string]func(p who.Principal) error {
	return map[string]func(p who.Principal) error{
		"invite":   func(p who.Principal) error { _, err := c.Invite(ctx, p, nodes.Invite{Cluster: cluster}); return err },
		"list":     func(p who.Principal) error { _, err := c.List(ctx, p, nodes.List{Cluster: cluster}); return err },
		"list all": func(p who.Principal) error { _, err := c.List(ctx, p, nodes.List{}); return err },
		"get":      func(p who.Principal) error { _, err := c.Get(ctx, p, nodes.Get{Node: id}); return err },
		"why":      func(p who.Principal) error { _, err := c.Why(ctx, p, nodes.Get{Node: id}); return err },
		"ask": func(p who.Principal) error {
			_, err := c.AskRotation(ctx, p, nodes.Rotate{Node: id, Mutation: c.mutation()})
			return err
		},
		"remove": func(p who.Principal) error {
			_, err := c.Remove(ctx, p, nodes.Remove{Node: id, Mutation: c.mutation()})
			return err
		},
		"pallet": func(p who.Principal) error {
			_, err := c.Remove(ctx, p, nodes.Remove{Node: id, PalletOnly: true, Mutation: c.mutation()})
			return err
		},
		"same names": func(p who.Principal) error {
			_, err := c.Remove(ctx, p, nodes.Remove{Node: id, Mutation: "m-same"})
			return err
		},
	}
}

// TestF77AbsentAndForeignAreOne: what is not there and what is somebody else's have
// the same answer, at the same cost, whatever state it is in.
func TestF77AbsentAndForeignAreOne(t *testing.T) {
	c := start(t)
	m, gone := c.joined(t), c.joined(t)
	if _, _, err := c.Report(ctx, m.spark, report()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Remove(ctx, anna, nodes.Remove{Node: gone.id, Mutation: "m-same"}); err != nil {
		t.Fatal(err)
	}
	before := c.held(t)
	nobody := who.Principal{}
	for name := range people(c, "", "") {
		if name == "list all" {
			continue
		}
		for _, p := range []who.Principal{tom, nobody, {Kind: who.Machine, Service: "s1", Organization: "ours"}, {Kind: who.Node, Node: m.id}, {Kind: who.Operator, Operator: "nobody"}} {
			var costs []storecount.Cost
			var errs []string
			for _, at := range []struct {
				id      zone.NodeID
				cluster zone.ClusterID
			}{{"n9", "c9"}, {m.id, "c1"}, {gone.id, "c1"}} {
				costs = append(costs, c.Cost(func() {
					err := people(c, at.id, at.cluster)[name](p)
					refused(t, name, err, who.ErrAbsent)
					errs = append(errs, fmt.Sprint(err))
				}))
			}
			for i := range costs {
				if !costs[i].Equal(costs[0]) || errs[i] != errs[0] || len(costs[i].Reads) == 0 || len(costs[i].Writes) != 0 {
					t.Errorf("%s by %s: %q after %+v, and %q after %+v", name, p.Actor(), errs[0], costs[0], errs[i], costs[i])
				}
			}
		}
	}
	for _, name := range []string{"invite", "ask", "remove", "pallet", "same names"} {
		refused(t, name+" by a viewer", people(c, m.id, "c1")[name](vera), who.ErrRole)
	}
	for _, name := range []string{"list", "get", "why"} {
		if err := people(c, m.id, "c1")[name](vera); err != nil {
			t.Error(name, err)
		}
	}
	for _, p := range []who.Principal{anna, tom, nobody} {
		refused(t, "all nodes", people(c, "", "")["list all"](p), who.ErrInstallation)
	}
	same(t, "the store", c.held(t), before)
	// A node cannot tell bearers apart that do not count.
	var costs []storecount.Cost
	for _, b := range []enroll.Bearer{c.bearer(t), gone.spark, gone.pallet} {
		costs = append(costs, c.Cost(func() {
			_, _, err := c.Report(ctx, b, report())
			if refused(t, "a bearer", err, enroll.ErrCredential); fmt.Sprint(err) != enroll.ErrCredential.Error() {
				t.Error(err)
			}
		}))
	}
	for _, cost := range costs {
		if !cost.Equal(costs[0]) {
			t.Errorf("%+v and %+v", costs[0], cost)
		}
	}
}

func TestPagesOfNodesFit(t *testing.T) {
	c := start(t)
	var want []zone.NodeID
	c.write(t, func(tx store.Tx) error {
		r := report()
		label := strings.Repeat("\\\"", spark.MaxLabel/2)
		id := strings.Repeat("a", zone.MaxID)
		r.Host.Hostname, r.Host.Kernel, r.Host.OS, r.Host.Architecture, r.Host.BootID = strings.Repeat("h", enroll.MaxHostname), label, label, id, id
		r.Host.UptimeSeconds, r.Host.MemoryBytes, r.Host.DiskBytes, r.Bundle.Version = 1<<53-1, 1<<53-1, 1<<53-1, label
		text, err := spark.ReportCodec.Append(nil, r)
		for i := range zone.MaxPage + 1 {
			n := zone.NodeID(fmt.Sprintf("%s%04d", strings.Repeat("n", zone.MaxID-4), i))
			want = append(want, n)
			err = errors.Join(err, tx.PutNode(store.Node{ID: n, Cluster: "c1", Organization: "ours", Hostname: r.Host.Hostname, JoinedAt: 1}),
				tx.PutReport(store.Report{Node: n, AcceptedAt: zone.At(c.now), Generation: 1, Report: text}))
		}
		return err
	})
	var got []zone.NodeID
	var cursor zone.Cursor
	for {
		p, err := c.List(ctx, vera, nodes.List{Cluster: "c1", Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		text, err := nodes.PageCodec.Append(nil, p)
		if err != nil || len(text) > zone.MaxBytes-4096 {
			t.Errorf("a page has %d bytes: %v", len(text), err)
		}
		for _, n := range p.Nodes {
			got = append(got, n.ID)
		}
		if cursor = p.Next; cursor == "" {
			break
		}
	}
	same(t, "nodes", got, want)
	if _, err := c.List(ctx, local, nodes.List{Cursor: "?"}); err == nil {
		t.Error("a cursor that nobody gave out was taken")
	}
}

// aside is a store that has set the record of one credential aside.
type aside struct {
	store.Store
	id zone.NodeID
}

func (a *aside) Read(ctx context.Context, fn func(store.Tx) error) error {
	return a.Store.Read(ctx, func(tx store.Tx) error { return fn(asideTx{tx, a.id}) })
}

type asideTx struct {
	store.Tx
	id zone.NodeID
}

func (x asideTx) Credential(id zone.NodeID, u string) (store.Credential, bool, error) {
	if id == x.id && u == string(enroll.Pallet) {
		return store.Credential{}, false, store.ErrSetAside
	}
	return x.Tx.Credential(id, u)
}

// TestF77ListAndWhyAreOneJudgement: what is listed, shown and explained is the same.
// A record that cannot be read is said of its own node and of no other.
func TestF77ListAndWhyAreOneJudgement(t *testing.T) {
	a := &aside{Store: memory.New()}
	c := on(t, a)
	ms := []*machine{c.joined(t), c.joined(t), c.joined(t), c.joined(t)}
	if _, _, err := c.Report(ctx, ms[1].spark, report()); err != nil {
		t.Fatal(err)
	}
	c.part(t, ms[2])
	a.id = ms[3].id
	c.pass(2 * time.Minute)
	p, err := c.List(ctx, vera, nodes.List{Cluster: "c1"})
	if err != nil || len(p.Nodes) != len(ms) {
		t.Fatal(p, err)
	}
	want := map[zone.NodeID]string{
		ms[0].id: "never-seen never-reported", ms[1].id: "late report-late", ms[2].id: "never-seen never-reported pallet-missing",
		ms[3].id: "never-seen never-reported pallet-record-damaged",
	}
	for _, n := range p.Nodes {
		shown, err := c.Get(ctx, vera, nodes.Get{Node: n.ID})
		same(t, "shown", shown.Node, n)
		why, err2 := c.Why(ctx, vera, nodes.Get{Node: n.ID})
		same(t, "explained", why.Node, n)
		got := string(n.Liveness.State)
		for _, f := range why.Findings {
			got += " " + f.Name
		}
		if err != nil || err2 != nil || got != want[n.ID] {
			t.Errorf("%s: %q, want %q: %v %v", n.ID, got, want[n.ID], err, err2)
		}
		if _, err := nodes.ExplanationCodec.Append(nil, why); err != nil {
			t.Error(err)
		}
	}
}
