package nodes_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	logic "github.com/allodhq/allod/internal/cloud/nodes"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/store/memory"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/nodes"
	"github.com/allodhq/allod/wire/zone/spark"
)

// besieged is a controller with one organization, whose administrator is Ann, and
// one cluster. It counts the transactions that write.
type besieged struct {
	*logic.Nodes
	store.Store
	t      *testing.T
	now    time.Time
	writes int
}

func (b *besieged) Write(ctx context.Context, fn func(store.Tx) error) error {
	b.writes++
	return b.Store.Write(ctx, fn)
}

var ann = who.Principal{Kind: who.Operator, Operator: "ann"}

func newBesieged(t *testing.T) *besieged {
	b := &besieged{Store: memory.New(), t: t, now: time.UnixMilli(1_800_000_000_000)}
	at, err := enroll.ParseOrigin("https://zone.test")
	b.must(err)
	b.Nodes = logic.New(logic.Config{Store: b, Clock: func() time.Time { return b.now }, Rand: rand.Reader, Origin: at})
	b.change(func(tx store.Tx) error {
		return errors.Join(
			tx.PutOperator(store.Operator{ID: "ann", Name: "Ann", Generation: 1}),
			tx.PutMember(store.Member{Organization: "ours", Operator: "ann", Role: who.Administrator}),
			tx.PutCluster(store.Cluster{ID: "c1", Organization: "ours", Name: "one", Revision: 1}))
	})
	return b
}

func (b *besieged) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *besieged) change(fn func(tx store.Tx) error) {
	b.t.Helper()
	b.must(b.Store.Write(b.t.Context(), fn))
}

func (b *besieged) secret() enroll.Bearer {
	b.t.Helper()
	s, err := enroll.NewBearer(rand.Reader)
	b.must(err)
	return s
}

// proposal asks for a fresh node, by a code.
func (b *besieged) proposal(id string, code enroll.JumpCode, bearer enroll.Bearer) enroll.Proposal {
	p := enroll.Proposal{Hostname: "host", EnrollmentID: enroll.EnrollmentID(id), BootstrapProofHash: code.Hash()}
	p.Origin, _ = enroll.ParseOrigin("https://zone.test")
	p.Spark.CredentialHash, p.Pallet.CredentialHash = bearer.Hash(), b.secret().Hash()
	return p
}

func (b *besieged) code() enroll.JumpCode {
	b.t.Helper()
	i, err := b.Invite(b.t.Context(), ann, nodes.Invite{Cluster: "c1"})
	b.must(err)
	l, err := enroll.ParseJoinLine(i.Line.Reveal())
	b.must(err)
	return l.Code
}

// joined is a node's Spark.
func (b *besieged) joined() (enroll.Bearer, zone.NodeID) {
	b.t.Helper()
	code, bearer := b.code(), b.secret()
	a, err := b.Enroll(b.t.Context(), b.proposal("e-"+fmt.Sprint(b.writes), code, bearer), enroll.BootstrapByCode(code))
	b.must(err)
	return bearer, a.NodeID
}

func said() spark.Report {
	return spark.Report{
		ObservedAt: 1_800_000_000_000,
		Host:       spark.Host{Hostname: "host", Kernel: "6.1", OS: "Linux", Architecture: "amd64", BootID: "b", CPUs: 1, MemoryBytes: 1, DiskBytes: 1},
		Bundle:     spark.Bundle{Version: "1", SourceCommit: strings.Repeat("0", 40), ManifestDigest: canon.Sum{1}},
	}
}

// TestF08ALineEndsWithItsMaker is an administrator who keeps lines for later.
func TestF08ALineEndsWithItsMaker(t *testing.T) {
	for what, end := range map[string]func(tx store.Tx) error{
		"disabled": func(tx store.Tx) error {
			return tx.PutOperator(store.Operator{ID: "ann", Name: "Ann", Generation: 2, Disabled: true})
		},
		"a viewer by now": func(tx store.Tx) error {
			return tx.PutMember(store.Member{Organization: "ours", Operator: "ann", Role: who.Viewer})
		},
		"no member any more": func(tx store.Tx) error { return tx.PutMember(store.Member{Organization: "ours", Operator: "ann"}) },
	} {
		t.Run(what, func(t *testing.T) {
			b := newBesieged(t)
			b.joined() // a line works
			code := b.code()
			b.change(end)
			_, err := b.Enroll(t.Context(), b.proposal("late", code, b.secret()), enroll.BootstrapByCode(code))
			if !errors.Is(err, enroll.ErrInvitation) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestF08StrangersDoNotWrite is about whoever has nothing: what they send costs reads,
// and keeps nobody from writing.
func TestF08StrangersDoNotWrite(t *testing.T) {
	b := newBesieged(t)
	_, id := b.joined()
	used := b.code()
	first := b.secret()
	p := b.proposal("used", used, first)
	_, err := b.Enroll(t.Context(), p, enroll.BootstrapByCode(used))
	b.must(err)
	unknown, err := enroll.NewJumpCode(rand.Reader)
	b.must(err)
	adopt := b.proposal("a", unknown, b.secret())
	stranger := b.secret()
	adopt.NodeID, adopt.BootstrapProofHash = id, stranger.Hash()
	adopt.Spark.ExpectedGeneration, adopt.Spark.ExpectedSessionEpoch = 1, 1

	before := b.writes
	for what, do := range map[string]func() error{
		"an unknown code": func() error {
			_, err := b.Enroll(t.Context(), b.proposal("x", unknown, b.secret()), enroll.BootstrapByCode(unknown))
			return err
		},
		"a used code": func() error {
			_, err := b.Enroll(t.Context(), b.proposal("y", used, b.secret()), enroll.BootstrapByCode(used))
			return err
		},
		"a proof of something else": func() error {
			_, err := b.Enroll(t.Context(), p, enroll.PendingSparkProof(stranger))
			return err
		},
		"a bearer of nobody's, to adopt": func() error {
			_, err := b.Enroll(t.Context(), adopt, enroll.BootstrapByBearer(stranger))
			return err
		},
		"a report of nobody's": func() error {
			_, _, err := b.Report(t.Context(), stranger, said())
			return err
		},
	} {
		if err := do(); err == nil {
			t.Errorf("%s: accepted", what)
		}
		if b.writes != before {
			t.Errorf("%s: takes the place of who writes", what)
			before = b.writes
		}
	}
	again, err := b.Enroll(t.Context(), p, enroll.PendingSparkProof(first))
	if err != nil || again.NodeID == "" {
		t.Errorf("the lost answer: %v", err)
	}
}

// TestF09RotationsOfOneNodeAreBounded is a stolen bearer, or a node that has gone wild:
// each rotation is in the audit log for ever.
func TestF09RotationsOfOneNodeAreBounded(t *testing.T) {
	b := newBesieged(t)
	bearer, id := b.joined()
	n := 0
	rotate := func() error {
		n++
		next := b.secret()
		_, err := b.Rotate(t.Context(), bearer, enroll.Rotation{
			Purpose: enroll.Spark, NextCredentialHash: next.Hash(), ExpectedGeneration: enroll.Generation(n), RotationID: enroll.RotationID(fmt.Sprint("r", n)),
		})
		if err != nil {
			n--
			return err
		}
		bearer = next
		return nil
	}
	var err error
	for range 1000 {
		if err = rotate(); err != nil {
			break
		}
	}
	if !errors.Is(err, enroll.ErrRotationPace) || n < 16 || n > 100 {
		t.Fatalf("after %d rotations: %v", n, err)
	}
	if _, _, err := b.Report(t.Context(), bearer, said()); err != nil {
		t.Errorf("what it has counts no more: %v", err)
	}
	if _, err := b.AskRotation(t.Context(), ann, nodes.Rotate{Node: id, Mutation: "m"}); err != nil {
		t.Fatal(err)
	}
	if err := rotate(); err != nil {
		t.Errorf("one that was asked for: %v", err)
	}
	if err := rotate(); !errors.Is(err, enroll.ErrRotationPace) {
		t.Errorf("one more: %v", err)
	}
	b.now = b.now.Add(2 * time.Hour)
	if err := rotate(); err != nil {
		t.Errorf("later: %v", err)
	}
	b.now = b.now.Add(31 * 24 * time.Hour)
	if err := rotate(); err != nil {
		t.Errorf("one that is due: %v", err)
	}
}

// TestF77AClockFarAwayIsTold is a node that says it is the year 287396.
func TestF77AClockFarAwayIsTold(t *testing.T) {
	b := newBesieged(t)
	bearer, id := b.joined()
	r := said()
	r.ObservedAt = 1<<53 - 1
	_, _, err := b.Report(t.Context(), bearer, r)
	b.must(err)
	e, err := b.Why(t.Context(), ann, nodes.Get{Node: id})
	b.must(err)
	for _, f := range e.Findings {
		// As far as a time.Duration goes.
		if f.Name == "clock-differs" && !strings.Contains(f.Sentence, " 2562047h47m16") {
			t.Error(f.Sentence)
		}
	}
	if len(e.Findings) == 0 || e.Findings[0].Name != "clock-differs" {
		t.Errorf("%+v", e.Findings)
	}
}
