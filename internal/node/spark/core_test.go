package spark_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/node/keep"
	"github.com/allodhq/allod/internal/node/pallet"
	"github.com/allodhq/allod/internal/node/spark"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/handshake"
	wire "github.com/allodhq/allod/wire/zone/spark"
)

// host is a Spark with its disk, and a clock that only the test moves.
type host struct {
	t    *testing.T
	disk []byte
	full bool
	core *spark.Core
	now  time.Time
	rand io.Reader
}

func newHost(t *testing.T) *host {
	h := &host{t: t, now: time.UnixMilli(1_700_000_000_000), rand: rand.NewChaCha8([32]byte{9})}
	h.restart()
	return h
}

func (h *host) save(s spark.State) error {
	if h.full {
		return datadir.ErrWrite
	}
	text, err := spark.Shape.Bytes(s)
	if err == nil {
		h.disk = text
	}
	return err
}

// restart begins a new life with what is on the disk.
func (h *host) restart() {
	h.t.Helper()
	var s spark.State
	if h.disk != nil {
		var err error
		if s, err = spark.Shape.Read(h.disk, keep.Limits); err != nil {
			h.t.Fatal(err)
		}
	}
	h.core = spark.New(s, h.save, h.rand)
}

// next is the next step, after waiting for it.
func (h *host) next() spark.Step {
	h.t.Helper()
	for range 10 {
		step := h.core.Next(h.now)
		w, wait := step.(spark.Wait)
		if !wait {
			return step
		}
		if w.Until.IsZero() || !w.Until.After(h.now) || w.Until.Sub(h.now) > handshake.RetryInterval {
			h.t.Fatalf("it waits until %s at %s", w.Until, h.now)
		}
		h.now = w.Until
	}
	h.t.Fatal("it waits for ever")
	return nil
}

// take is the next step, which must be of one kind.
func take[S spark.Step](h *host) S {
	h.t.Helper()
	step := h.next()
	s, ok := step.(S)
	if !ok {
		h.t.Fatalf("the next step is %T, want %T", step, s)
	}
	return s
}

func (h *host) fail(step spark.Step, err error) bool { return h.core.Failed(h.now, step, err) }

func (h *host) ok(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

const origin = "https://zone.test"

func line(t testing.TB, fill byte) enroll.JoinLine {
	t.Helper()
	code, err := enroll.NewJumpCode(rand.NewChaCha8([32]byte{fill}))
	if err != nil {
		t.Fatal(err)
	}
	at, err := enroll.ParseOrigin(origin)
	if err != nil {
		t.Fatal(err)
	}
	return enroll.JoinLine{Origin: at, Code: code, Pin: enroll.PinOf([]byte("ca"))}
}

func palletHash(t testing.TB, fill byte) enroll.PrepareResponse {
	t.Helper()
	b, err := enroll.NewBearer(rand.NewChaCha8([32]byte{fill, 1}))
	if err != nil {
		t.Fatal(err)
	}
	return enroll.PrepareResponse{CredentialHash: b.Hash()}
}

// proposes goes until the controller is to be asked.
func (h *host) proposes() spark.Enroll {
	h.t.Helper()
	take[spark.Prepare](h)
	h.ok(h.core.Prepared(h.now, palletHash(h.t, 1)))
	h.binds()
	return take[spark.Enroll](h)
}

func (h *host) binds() {
	h.t.Helper()
	b := take[spark.Bind](h)
	r, err := enroll.Bound(b.Request)
	h.ok(err)
	h.ok(h.core.Bound(h.now, r))
}

func (h *host) acknowledge(e spark.Enroll) {
	h.t.Helper()
	id := e.Proposal.NodeID
	if id == "" {
		id = "node-1"
	}
	a, err := enroll.Acknowledge(e.Proposal, id)
	h.ok(err)
	h.ok(h.core.Enrolled(h.now, a))
}

func (h *host) activates() {
	h.t.Helper()
	a := take[spark.Activate](h)
	r, err := enroll.ActivePallet(a.Request)
	h.ok(err)
	h.ok(h.core.Activated(h.now, r))
}

// joins makes the machine a node.
func (h *host) joins() {
	h.t.Helper()
	h.ok(h.core.Join(line(h.t, 1), "host"))
	h.acknowledge(h.proposes())
	h.activates()
}

func (h *host) report() wire.Report {
	return wire.Report{
		ObservedAt: zone.At(h.now), Host: wire.Host{Hostname: "host", Kernel: "6.1", OS: "Linux", Architecture: "amd64", BootID: "b1", CPUs: 1, MemoryBytes: 1, DiskBytes: 1},
		Bundle: wire.Bundle{Version: "0.1.0", SourceCommit: strings.Repeat("0", 40), ManifestDigest: canon.Sum{1}},
	}
}

// reported answers a report.
func (h *host) reported(rotate bool) {
	h.t.Helper()
	take[spark.Report](h)
	r := h.report()
	digest, err := wire.Digest(r)
	h.ok(err)
	who := h.core.State().Active.Who
	h.ok(h.core.Reported(h.now, r, wire.Response{RotationRequired: rotate, Receipt: wire.Receipt{
		NodeID: who.NodeID, CredentialGeneration: who.Generation, SessionEpoch: who.SessionEpoch, AcceptedAt: zone.At(h.now), ReportDigest: digest,
	}}))
}

func receiptOf(who enroll.Identity, r enroll.Rotation) enroll.RotationReceipt {
	return enroll.RotationReceipt{RotationID: r.RotationID, NodeID: who.NodeID, Purpose: who.Purpose, Generation: who.Generation + 1, SessionEpoch: who.SessionEpoch + 1, RotatedAt: 1}
}

var errAway = errors.New("the controller is away")

// TestF08EveryStepIsOnTheDiskBeforeItIsSent crashes before and after every step of
// an enrollment, and goes on with what is on the disk.
func TestF08EveryStepIsOnTheDiskBeforeItIsSent(t *testing.T) {
	h := newHost(t)
	h.ok(h.core.Join(line(t, 1), "host"))
	h.restart()
	first := h.proposes()
	bearer := h.core.State().Pending.Bearer
	if !strings.Contains(string(h.disk), bearer.Reveal()) || !first.Proposal.Spark.CredentialHash.Equal(bearer.Hash()) {
		t.Error("the bearer that was proposed is not on the disk")
	}
	h.restart() // the answer is lost with the process
	h.binds()
	again := take[spark.Enroll](h)
	if again.Proposal != first.Proposal || again.Proof.Kind() != enroll.Bootstrap {
		t.Errorf("%+v", again)
	}
	h.acknowledge(again)
	h.restart()
	if s := h.core.State(); s.Active == nil || s.Active.Who != (enroll.Identity{NodeID: "node-1", Purpose: enroll.Spark, Generation: 1, SessionEpoch: 1}) || s.Evidence == nil {
		t.Errorf("%+v", s)
	}
	h.activates()
	h.restart()
	if s := h.core.State(); s.Pending != nil || s.Active == nil || !s.Active.Bearer.Equal(bearer) || s.Controller.Origin.String() != origin || s.Controller.Pin.IsZero() {
		t.Errorf("%+v", s)
	}
	h.reported(false)
}

// TestF08LostAnswerIsAskedForByTheOtherProof: the proof changes once, at once, and
// two controllers' refusals in turn are no reason to hurry.
func TestF08LostAnswerIsAskedForByTheOtherProof(t *testing.T) {
	h := newHost(t)
	h.ok(h.core.Join(line(t, 1), "host"))
	e := h.proposes()
	h.fail(e, errAway)
	e = take[spark.Enroll](h)
	at := h.now
	if h.fail(e, enroll.ErrProofMode) {
		t.Error("it gives up")
	}
	e = take[spark.Enroll](h)
	if e.Proof.Kind() != enroll.PendingSpark || !e.Proof.Hash().Equal(e.Proposal.Spark.CredentialHash) || h.now != at {
		t.Errorf("%s after %s", e.Proof.Kind(), h.now.Sub(at))
	}
	// A controller that refuses both is asked no faster than one that is away.
	asked := 0
	for h.now.Sub(at) < 10*time.Minute {
		if h.fail(e, enroll.ErrProofMode) {
			t.Fatal("it gives up")
		}
		e = take[spark.Enroll](h)
		asked++
	}
	if asked > 60 {
		t.Errorf("it asked %d times in 10 minutes", asked)
	}
	h.acknowledge(e)
	if h.core.State().Active == nil {
		t.Error("it is nobody")
	}
}

// TestF08RefusedForGoodIsGivenUp, and nothing else is.
func TestF08RefusedForGoodIsGivenUp(t *testing.T) {
	final := []error{enroll.ErrInvitation, enroll.ErrElsewhere, enroll.ErrConflict, enroll.ErrProof, enroll.ErrCredential, enroll.ErrExpired}
	for _, kind := range enroll.Kinds.Kinds {
		h := newHost(t)
		h.ok(h.core.Join(line(t, 1), "host"))
		e := h.proposes()
		want := false
		for _, f := range final {
			want = want || errors.Is(kind, f)
		}
		if gave := h.fail(e, kind); gave != want || (h.core.State().Pending == nil) != want {
			t.Errorf("%s: gave up %v", kind.Name(), gave)
		}
		if want {
			if w, ok := h.core.Next(h.now).(spark.Wait); !ok || !w.Until.IsZero() {
				t.Errorf("%s: it goes on", kind.Name())
			}
			h.restart()
			h.ok(h.core.Join(line(t, 2), "host")) // and another line counts
			take[spark.Prepare](h)
		}
	}
	// Once the controller may have a receipt, it is asked until it answers.
	h := newHost(t)
	h.ok(h.core.Join(line(t, 1), "host"))
	e := h.proposes()
	h.fail(e, enroll.ErrProofMode)
	e = take[spark.Enroll](h)
	for _, f := range final {
		if h.fail(e, f) {
			t.Errorf("%v: a recorded enrollment is given up", f)
		}
		e = take[spark.Enroll](h)
	}
}

func TestF03OnlyAProtocolRefusalWaitsForFiveMinutes(t *testing.T) {
	old, err := handshake.Make("31.0.0", "31.0.0")
	if err != nil {
		t.Fatal(err)
	}
	refused := handshake.Negotiate(handshake.Ours(handshake.SparkNode), old)
	h := newHost(t)
	h.ok(h.core.Join(line(t, 1), "host"))
	e := h.proposes()
	for _, c := range []struct {
		err error
		min time.Duration
		max time.Duration
	}{{errAway, time.Second, 30 * time.Second}, {refused, 300 * time.Second, 300 * time.Second}, {handshake.ErrOffer, time.Second, 30 * time.Second}, {refused, 300 * time.Second, 300 * time.Second}} {
		at := h.now
		h.fail(e, c.err)
		e = take[spark.Enroll](h)
		if d := h.now.Sub(at); d < c.min || d > c.max {
			t.Errorf("after %v it waits for %s", c.err, d)
		}
	}
	h.acknowledge(e)
	h.activates()
	h.reported(false)
	for _, c := range []struct {
		err  error
		want time.Duration
	}{{errAway, wire.Interval}, {refused, 300 * time.Second}, {enroll.ErrCredential, wire.Interval}, {refused, 300 * time.Second}} {
		r := take[spark.Report](h)
		at := h.now
		h.fail(r, c.err)
		take[spark.Report](h)
		if d := h.now.Sub(at); d != c.want {
			t.Errorf("a report after %v waits for %s", c.err, d)
		}
	}
}

// TestF09LostRotationIsFoundInThreeSlots: the rotation was recorded and its answer
// lost. The report that follows is refused, and that shows which bearer counts.
func TestF09LostRotationIsFoundInThreeSlots(t *testing.T) {
	h := newHost(t)
	h.joins()
	h.reported(true)
	asked := h.now
	r := take[spark.Rotate](h)
	if d := h.now.Sub(asked); d >= wire.Interval {
		t.Errorf("a rotation that was asked for waits for %s", d)
	}
	before := h.core.State().Active.Who
	current, next := r.Bearer, func() enroll.Bearer { b, _ := h.core.State().Active.Ask(true); return b }()
	if !strings.Contains(string(h.disk), next.Reveal()) {
		t.Error("the next bearer is not on the disk")
	}
	lost := h.now
	h.fail(r, errAway)
	h.restart() // the process is gone as well
	r = take[spark.Rotate](h)
	if !r.Bearer.Equal(current) {
		t.Error("it forgot what it had sent")
	}
	h.fail(r, errAway)
	rep := take[spark.Report](h)
	h.fail(rep, enroll.ErrCredential)
	r = take[spark.Rotate](h)
	if !r.Bearer.Equal(next) {
		t.Error("it does not try the next bearer")
	}
	if d := h.now.Sub(lost); d > 4*wire.Interval {
		t.Errorf("it took %s", d)
	}
	h.ok(h.core.Rotated(h.now, receiptOf(before, r.Rotation)))
	if s := h.core.State(); s.Active.Renewing() || !s.Active.Bearer.Equal(next) || s.Active.Who.Generation != 2 {
		t.Errorf("%+v", s.Active.Who)
	}
	h.restart()
	if !h.core.State().Active.Bearer.Equal(next) {
		t.Error("the receipt was not kept")
	}
	h.reported(false)
}

// TestF09RotationAndReportsTakeTurns: while a rotation fails, reports go on.
func TestF09RotationAndReportsTakeTurns(t *testing.T) {
	h := newHost(t)
	h.joins()
	h.reported(true)
	var kinds []string
	begin := h.now
	for range 8 {
		step := h.next()
		kinds = append(kinds, fmt.Sprintf("%T", step))
		if _, rotate := step.(spark.Rotate); rotate {
			h.fail(step, errAway)
			continue
		}
		r := h.report()
		digest, _ := wire.Digest(r)
		who := h.core.State().Active.Who
		h.ok(h.core.Reported(h.now, r, wire.Response{RotationRequired: true, Receipt: wire.Receipt{NodeID: who.NodeID, CredentialGeneration: who.Generation, SessionEpoch: who.SessionEpoch, AcceptedAt: 1, ReportDigest: digest}}))
	}
	for i, k := range kinds {
		if want := []string{"spark.Rotate", "spark.Report"}[i%2]; k != want {
			t.Fatal(kinds)
		}
	}
	if d := h.now.Sub(begin); d < 6*wire.Interval {
		t.Errorf("8 requests within %s", d)
	}
}

// TestAFullDiskKeepsReportsGoing: a new bearer that is not on the disk is not sent,
// and the reports come as often as ever.
func TestAFullDiskKeepsReportsGoing(t *testing.T) {
	h := newHost(t)
	h.joins()
	h.full = true
	begin := h.now
	for range 20 {
		h.reported(true)
	}
	if d := h.now.Sub(begin); d < 17*wire.Interval || d > 21*wire.Interval {
		t.Errorf("20 reports took %s", d)
	}
	if h.core.State().Active.Renewing() {
		t.Error("a bearer was made that is not on the disk")
	}
	h.full = false
	r := take[spark.Rotate](h)
	// A receipt that cannot be kept counts all the same: the disk has both bearers.
	h.full = true
	h.ok(h.core.Rotated(h.now, receiptOf(h.core.State().Active.Who, r.Rotation)))
	h.reported(false)
	next := h.core.State().Active.Bearer
	h.restart()
	if s := h.core.State(); !s.Active.Renewing() || s.Active.Bearer.Equal(next) {
		t.Error("the disk has what was not saved")
	}
	r = take[spark.Rotate](h)
	h.fail(r, enroll.ErrCredential)
	h.fail(take[spark.Report](h), enroll.ErrCredential)
	if r = take[spark.Rotate](h); !r.Bearer.Equal(next) {
		t.Error("the next bearer is lost")
	}
	h.full = false
	h.ok(h.core.Rotated(h.now, receiptOf(h.core.State().Active.Who, r.Rotation)))
	h.restart()
	if !h.core.State().Active.Bearer.Equal(next) {
		t.Error("the receipt was not kept")
	}
	// What could not be saved is saved later, without a request.
	h.full = true
	h.ok(h.core.Rotated(h.now, func() enroll.RotationReceipt {
		h.full = false
		h.reported(true)
		q := take[spark.Rotate](h)
		h.full = true
		return receiptOf(h.core.State().Active.Who, q.Rotation)
	}()))
	h.full = false
	h.core.Next(h.now)
	h.restart()
	if h.core.State().Active.Who.Generation != 3 {
		t.Error("the state was not saved when there was room again")
	}
}

// TestAFullDiskBeginsNothing: neither a line nor a proposal goes out that is not on
// the disk.
func TestAFullDiskBeginsNothing(t *testing.T) {
	h := newHost(t)
	h.full = true
	if err := h.core.Join(line(t, 1), "host"); !errors.Is(err, datadir.ErrWrite) || h.core.State().Pending != nil {
		t.Errorf("%v", err)
	}
	h.full = false
	h.ok(h.core.Join(line(t, 1), "host"))
	take[spark.Prepare](h)
	h.full = true
	if err := h.core.Prepared(h.now, palletHash(t, 1)); !errors.Is(err, datadir.ErrWrite) || h.core.State().Pending.Proposal != nil {
		t.Errorf("%v", err)
	}
	if take[spark.Prepare](h); h.core.State().Pending.Proposal != nil {
		t.Error("a proposal that is not on the disk")
	}
	if err := h.core.Move(spark.Controller{}); !errors.Is(err, datadir.ErrWrite) {
		t.Error(err)
	}
}

func TestF11ReceiptsOfOthersAreRefused(t *testing.T) {
	h := newHost(t)
	h.joins()
	for what, change := range map[string]func(r *wire.Receipt){
		"node": func(r *wire.Receipt) { r.NodeID = "n9" }, "generation": func(r *wire.Receipt) { r.CredentialGeneration = 2 },
		"epoch": func(r *wire.Receipt) { r.SessionEpoch = 2 }, "report": func(r *wire.Receipt) { r.ReportDigest = canon.Sum{1} },
	} {
		take[spark.Report](h)
		r := h.report()
		digest, _ := wire.Digest(r)
		receipt := wire.Receipt{NodeID: "node-1", CredentialGeneration: 1, SessionEpoch: 1, AcceptedAt: 1, ReportDigest: digest}
		change(&receipt)
		before := string(h.disk)
		if err := h.core.Reported(h.now, r, wire.Response{Receipt: receipt, RotationRequired: true}); !errors.Is(err, wire.ErrReceipt) || string(h.disk) != before {
			t.Errorf("another %s: %v", what, err)
		}
	}
	if take[spark.Report](h); h.core.State().Active.Renewing() {
		t.Error("a foreign answer made it rotate")
	}
}

// TestF08SparkIsActiveApartFromPallet: the acknowledgement makes Spark a node
// whatever becomes of Pallet, which is told until it confirms.
func TestF08SparkIsActiveApartFromPallet(t *testing.T) {
	h := newHost(t)
	h.ok(h.core.Join(line(t, 1), "host"))
	h.acknowledge(h.proposes())
	activates, reports := 0, 0
	begin := h.now
	for h.now.Sub(begin) < 5*time.Minute {
		switch step := h.next().(type) {
		case spark.Activate:
			activates++
			h.fail(step, pallet.ErrNotBound)
			h.now = h.now.Add(time.Millisecond)
		case spark.Report:
			reports++
			r := h.report()
			digest, _ := wire.Digest(r)
			h.ok(h.core.Reported(h.now, r, wire.Response{Receipt: wire.Receipt{NodeID: "node-1", CredentialGeneration: 1, SessionEpoch: 1, AcceptedAt: 1, ReportDigest: digest}}))
		default:
			t.Fatalf("%T", step)
		}
	}
	if reports < 28 || reports > 32 || activates < 9 || activates > 16 {
		t.Errorf("%d reports and %d activations in 5 minutes", reports, activates)
	}
	if err := h.core.Join(line(t, 1), "host"); err != nil {
		t.Errorf("the same line again: %v", err)
	}
	if err := h.core.Join(line(t, 2), "host"); !errors.Is(err, spark.ErrJoined) {
		t.Errorf("another line: %v", err)
	}
	h.restart()
	if h.core.State().Pending == nil {
		t.Error("what Pallet has to confirm is forgotten")
	}
	// Pallet says that it is active and has renewed its credential since.
	a := take[spark.Activate](h)
	h.fail(a, pallet.ErrActive)
	if h.core.State().Pending != nil || h.core.State().Active == nil {
		t.Errorf("%+v", h.core.State())
	}
	h.reported(false)
}

// TestF08APalletThatLostItsCredential: the proposal is asked about by a proof that
// makes the controller record nothing, and then given up or gone on with.
func TestF08APalletThatLostItsCredential(t *testing.T) {
	for _, recorded := range []bool{false, true} {
		h := newHost(t)
		h.ok(h.core.Join(line(t, 1), "host"))
		e := h.proposes()
		h.fail(e, errAway)
		h.restart()
		b := take[spark.Bind](h)
		h.fail(b, pallet.ErrNotPrepared)
		e = take[spark.Enroll](h)
		if e.Proof.Kind() != enroll.PendingSpark {
			t.Fatal("a proof that could commit")
		}
		if recorded {
			h.acknowledge(e)
			h.fail(take[spark.Activate](h), pallet.ErrNotBound)
			h.reported(false)
			h.ok(h.core.Adopt("host")) // takes the place of what Pallet will never confirm
			take[spark.Look](h)
			continue
		}
		h.full = true
		h.fail(e, enroll.ErrProofMode)
		if e := take[spark.Enroll](h); e.Proof.Kind() != enroll.PendingSpark {
			t.Error("it begins again with what is not on the disk")
		}
		h.full = false
		before := *h.core.State().Pending
		if h.fail(e, enroll.ErrProofMode) {
			t.Error("it gives up")
		}
		// The line was not used, and nothing of what was sent is sent again.
		take[spark.Prepare](h)
		if p := h.core.State().Pending; p.ID == before.ID || p.Bearer.Equal(before.Bearer) || !p.Code.Hash().Equal(before.Code.Hash()) {
			t.Error("it begins with the same enrollment")
		}
		h.restart()
		h.acknowledge(h.proposes())
	}
}

func (h *host) state(absent bool) enroll.StateResponse {
	who := h.core.State().Active.Who
	return enroll.StateResponse{NodeID: who.NodeID, PalletAbsent: absent, Spark: enroll.Metadata{Purpose: who.Purpose, State: enroll.Active, Generation: who.Generation, SessionEpoch: who.SessionEpoch}}
}

func TestF08Adoption(t *testing.T) {
	h := newHost(t)
	if err := h.core.Adopt("host"); !errors.Is(err, spark.ErrNotJoined) {
		t.Error(err)
	}
	h.joins()
	before := h.core.State().Active.Bearer
	h.ok(h.core.Adopt("host"))
	look := take[spark.Look](h)
	if !look.Bearer.Equal(before) {
		t.Error("another bearer")
	}
	foreign := h.state(true)
	foreign.NodeID = "n9"
	if err := h.core.Looked(h.now, foreign); !errors.Is(err, enroll.ErrCredential) {
		t.Error(err)
	}
	h.reported(false) // while it waits
	h.fail(take[spark.Look](h), errAway)
	take[spark.Look](h)
	if err := h.core.Looked(h.now, h.state(false)); !errors.Is(err, enroll.ErrConflict) || h.core.State().Pending != nil {
		t.Errorf("with a Pallet: %v", err)
	}
	h.ok(h.core.Adopt("host"))
	take[spark.Look](h)
	h.ok(h.core.Looked(h.now, h.state(true)))
	e := h.proposes()
	if e.Proposal.NodeID != "node-1" || e.Proposal.Spark.ExpectedGeneration != 1 || e.Proposal.Spark.ExpectedSessionEpoch != 1 ||
		!e.Proposal.BootstrapProofHash.Equal(before.Hash()) || !e.Proof.Hash().Equal(before.Hash()) {
		t.Errorf("%+v", e.Proposal)
	}
	// Reports go on between the tries, and no rotation does.
	h.fail(e, errAway)
	for range 40 {
		switch step := h.next().(type) {
		case spark.Enroll:
			h.fail(step, errAway)
			e = step
		case spark.Report:
			r := h.report()
			digest, _ := wire.Digest(r)
			h.ok(h.core.Reported(h.now, r, wire.Response{RotationRequired: true, Receipt: wire.Receipt{NodeID: "node-1", CredentialGeneration: 1, SessionEpoch: 1, AcceptedAt: 1, ReportDigest: digest}}))
		default:
			t.Fatalf("%T", step)
		}
		h.now = h.now.Add(time.Millisecond)
	}
	h.fail(e, enroll.ErrProofMode)
	h.restart() // before it could ask by the other proof
	h.binds()
	e = take[spark.Enroll](h)
	h.fail(e, enroll.ErrProofMode)
	e = take[spark.Enroll](h)
	if e.Proof.Kind() != enroll.PendingSpark {
		t.Error("the other proof is not tried")
	}
	h.acknowledge(e)
	if s := h.core.State(); s.Active.Who.Generation != 2 || s.Active.Bearer.Equal(before) || s.Active.Who.NodeID != "node-1" {
		t.Errorf("%+v", s.Active.Who)
	}
	h.activates()
	h.reported(false)
}

// TestAdoptionWaitsForARotation: which of the two bearers counts is found out
// before one of them is the proof.
func TestAdoptionWaitsForARotation(t *testing.T) {
	h := newHost(t)
	h.joins()
	h.reported(true)
	r := take[spark.Rotate](h)
	h.ok(h.core.Adopt("host"))
	h.fail(r, errAway)
	h.fail(take[spark.Report](h), enroll.ErrCredential)
	r = take[spark.Rotate](h)
	h.ok(h.core.Rotated(h.now, receiptOf(h.core.State().Active.Who, r.Rotation)))
	if look := take[spark.Look](h); !look.Bearer.Equal(h.core.State().Active.Bearer) || h.core.State().Active.Who.Generation != 2 {
		t.Error("the adoption uses a bearer that counts no more")
	}
}

// TestAnswersToWhatWasReplaced: another line while a step is on its way. Nothing
// that comes late touches the new enrollment.
func TestAnswersToWhatWasReplaced(t *testing.T) {
	begin := func() (*host, spark.Enroll) {
		h := newHost(t)
		h.ok(h.core.Join(line(t, 1), "host"))
		return h, h.proposes()
	}
	h, old := begin()
	ack, err := enroll.Acknowledge(old.Proposal, "node-1")
	h.ok(err)
	bound, err := enroll.Bound(enroll.BindRequest{Enrollment: old.Proposal})
	h.ok(err)
	h.ok(h.core.Join(line(t, 2), "host"))
	id := h.core.State().Pending.ID
	check := func(what string, err error) {
		t.Helper()
		if s := h.core.State(); err == nil || s.Pending == nil || s.Pending.ID != id || s.Active != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for range 2 { // before it has a proposal, and then
		check("bound", h.core.Bound(h.now, bound))
		check("enrolled", h.core.Enrolled(h.now, ack))
		check("activated", h.core.Activated(h.now, enroll.ActivateResponse{}))
		for _, err := range []error{enroll.ErrInvitation, enroll.ErrProofMode, enroll.ErrProof} {
			if h.fail(old, err) {
				t.Error("the new enrollment is given up")
			}
			check("refused", err)
		}
		if h.core.State().Pending.Proposal == nil {
			h.proposes()
		}
	}
	h.ok(h.core.Prepared(h.now, palletHash(t, 3)))
	h.binds() // a confirmation that did not fit is asked for again
	if e := take[spark.Enroll](h); e.Proof.Kind() != enroll.Bootstrap || e.Proposal.Pallet.CredentialHash != palletHash(t, 1).CredentialHash {
		t.Error("a late preparation changed the proposal")
	}
}

// TestAnOldCopyIsRefusedAndStays: a state that was put back is never forgotten by
// itself, and asks at its own pace.
func TestAnOldCopyIsRefusedAndStays(t *testing.T) {
	h := newHost(t)
	h.joins()
	h.reported(true)
	old := append([]byte(nil), h.disk...)
	r := take[spark.Rotate](h)
	h.ok(h.core.Rotated(h.now, receiptOf(h.core.State().Active.Who, r.Rotation)))
	h.disk = old
	h.restart()
	begin := h.now
	for range 30 {
		h.fail(take[spark.Report](h), enroll.ErrCredential)
	}
	if d := h.now.Sub(begin); d < 29*wire.Interval || d > 30*wire.Interval {
		t.Errorf("30 refused reports took %s", d)
	}
	if string(h.disk) != string(old) || h.core.State().Active == nil {
		t.Error("the state was changed")
	}
}

func TestAClockThatIsSetBackKeepsNoEnrollmentWaiting(t *testing.T) {
	h := newHost(t)
	h.ok(h.core.Join(line(t, 1), "host"))
	e := h.proposes()
	h.fail(e, errAway)
	h.now = h.now.Add(-24 * time.Hour)
	if w, ok := h.core.Next(h.now).(spark.Wait); !ok || w.Until.Sub(h.now) > 30*time.Second {
		t.Errorf("it waits until %s", w.Until)
	}
}

// TestShapeRefusesWhatDoesNotGoTogether: a file that somebody changed is damaged.
func TestShapeRefusesWhatDoesNotGoTogether(t *testing.T) {
	h := newHost(t)
	h.ok(h.core.Join(line(t, 1), "host"))
	e := h.proposes()
	pending := string(h.disk)
	h.acknowledge(e)
	acknowledged := string(h.disk)
	h.activates()
	active := string(h.disk)
	for _, c := range []struct{ text, old, new string }{
		{pending, `"origin":"https://zone.test",`, ``}, {pending, `"enrollmentId":"`, `"enrollmentId":"X`}, {pending, `"hostname":"host"`, `"hostname":"-"`},
		{pending, h.core.State().Active.Bearer.Reveal(), strings.Repeat("A", 43)}, {pending, `"code":"`, `"code":"=`}, {pending, `"code":"`, `"kode":"`},
		{acknowledged, `\"nodeId\":\"node-1\",\"credentials\":[{\"purpose\":\"spark\",\"generation\":1`, `\"nodeId\":\"node-1\",\"credentials\":[{\"purpose\":\"spark\",\"generation\":2`},
		{active, `"purpose":"spark"`, `"purpose":"pallet"`}, {active, `"pin":"`, `"pin":"=`}, {active, `"origin":"https:`, `"origin":"http:`},
	} {
		bad := strings.Replace(c.text, c.old, c.new, 1)
		if bad == c.text {
			t.Errorf("%s is not there", c.old)
		}
		if _, err := spark.Shape.Read([]byte(bad), keep.Limits); err == nil {
			t.Errorf("%s instead of %s is taken", c.new, c.old)
		}
	}
	for _, text := range []string{pending, acknowledged, active} {
		s, err := spark.Shape.Read([]byte(text), keep.Limits)
		h.ok(err)
		again, err := spark.Shape.Bytes(s)
		if err != nil || string(again) != text {
			t.Errorf("%s became %s", text, again)
		}
	}
}
