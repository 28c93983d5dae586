package enroll_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
)

func TestF08Acknowledge(t *testing.T) {
	for name, c := range map[string]struct {
		p    enroll.Proposal
		node zone.NodeID
		want string
	}{
		"fresh":    {fresh(), "node-b", freshAckJSON}, // generation 1 for both owners
		"adoption": {adoption(), "node-a", adoptionAckJSON},
	} {
		a := must(enroll.Acknowledge(c.p, c.node))(t)
		if got := must(enroll.AcknowledgementCodec.Append(nil, a))(t); string(got) != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
		if err := enroll.BindAcknowledgement(c.p, a); err != nil {
			t.Errorf("%s does not bind: %v", name, err)
		}
	}
	for what, node := range map[string]zone.NodeID{"another node": "node-b", "no node": "", "no identifier": "Node-A"} {
		if a, err := enroll.Acknowledge(adoption(), node); !errors.Is(err, enroll.ErrReceipt) || a != (enroll.Acknowledgement{}) {
			t.Errorf("an adoption by %s is acknowledged: %v, %v", what, a, err)
		}
	}
	if _, err := enroll.Acknowledge(fresh(), ""); !errors.Is(err, enroll.ErrReceipt) {
		t.Errorf("no node is acknowledged: %v", err)
	}
	a := must(enroll.Acknowledge(adoption(), "node-a"))(t)
	if got, want := a.Identity(enroll.Spark), (enroll.Identity{NodeID: "node-a", Purpose: enroll.Spark, Generation: 4, SessionEpoch: 8}); got != want {
		t.Errorf("Spark is %v, want %v", got, want)
	}
	if got, want := a.Identity(enroll.Pallet), (enroll.Identity{NodeID: "node-a", Purpose: enroll.Pallet, Generation: 1, SessionEpoch: 1}); got != want {
		t.Errorf("Pallet is %v, want %v", got, want)
	}
}

// changes are all single fields of an acknowledgement.
var changes = []struct {
	name   string
	detail string // "" where any will do
	change func(t *rapid.T, a *enroll.Acknowledgement)
}{
	{"digest", "It is for another enrollment.", func(t *rapid.T, a *enroll.Acknowledgement) {
		a.EnrollmentDigest[rapid.IntRange(0, 31).Draw(t, "byte")] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
	}},
	{"spark generation", "It is for another credential of Spark.", func(t *rapid.T, a *enroll.Acknowledgement) {
		a.Spark.Generation += enroll.Generation(other(t))
	}},
	{"spark epoch", "It is for another credential of Spark.", func(t *rapid.T, a *enroll.Acknowledgement) {
		a.Spark.SessionEpoch += enroll.Epoch(other(t))
	}},
	{"pallet generation", "It is for another credential of Pallet.", func(t *rapid.T, a *enroll.Acknowledgement) {
		a.Pallet.Generation += enroll.Generation(other(t))
	}},
	{"pallet epoch", "It is for another credential of Pallet.", func(t *rapid.T, a *enroll.Acknowledgement) {
		a.Pallet.SessionEpoch += enroll.Epoch(other(t))
	}},
	{"no node", "It names no node.", func(_ *rapid.T, a *enroll.Acknowledgement) { a.NodeID = "" }},
}

func other(t *rapid.T) int64 {
	return rapid.SampledFrom([]int64{-2, -1, 1, 2, 1 << 20, -enroll.MaxCounter, enroll.MaxCounter}).Draw(t, "by")
}

// The binder accepts exactly what the controller says of this proposal: whichever
// single field is another one, it refuses, and names the field.
func TestF08BinderAcceptsExactlyTheAcknowledgement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := proposals().Draw(t, "proposal")
		node := p.NodeID
		if p.Fresh() {
			node = "node-z"
		}
		a, err := enroll.Acknowledge(p, node)
		if err != nil {
			t.Fatal(err)
		}
		if err := enroll.BindAcknowledgement(p, a); err != nil {
			t.Fatal(err)
		}
		c := changes[rapid.IntRange(0, len(changes)-1).Draw(t, "which")]
		changed := a
		c.change(t, &changed)
		if err := enroll.BindAcknowledgement(p, changed); !errors.Is(err, enroll.ErrReceipt) || refusal.From(err).Detail() != c.detail {
			t.Fatalf("another %s: %v", c.name, err)
		}
		changed = a
		changed.NodeID += "x"
		err = enroll.BindAcknowledgement(p, changed)
		if p.Fresh() && err != nil {
			t.Fatalf("a fresh node may get any ID: %v", err)
		}
		if !p.Fresh() && (!errors.Is(err, enroll.ErrReceipt) || refusal.From(err).Detail() != "It is for another node.") {
			t.Fatalf("an adoption gets another node: %v", err)
		}
		q := proposals().Draw(t, "another proposal")
		if q == p {
			t.Skip("it is the same")
		}
		if err := enroll.BindAcknowledgement(q, a); !errors.Is(err, enroll.ErrReceipt) {
			t.Fatalf("it binds to another proposal: %v", err)
		}
	})
}

// The same once more as a table, which is the same each time.
func TestF08BinderRefusesEachField(t *testing.T) {
	for what, change := range map[string]func(a *enroll.Acknowledgement){
		"digest":                    func(a *enroll.Acknowledgement) { a.EnrollmentDigest[31] ^= 1 },
		"node":                      func(a *enroll.Acknowledgement) { a.NodeID = "node-b" },
		"same spark generation":     func(a *enroll.Acknowledgement) { a.Spark.Generation-- },
		"far spark generation":      func(a *enroll.Acknowledgement) { a.Spark.Generation++ },
		"same spark epoch":          func(a *enroll.Acknowledgement) { a.Spark.SessionEpoch-- },
		"far spark epoch":           func(a *enroll.Acknowledgement) { a.Spark.SessionEpoch++ },
		"same pallet generation":    func(a *enroll.Acknowledgement) { a.Pallet.Generation-- },
		"far pallet generation":     func(a *enroll.Acknowledgement) { a.Pallet.Generation++ },
		"same pallet epoch":         func(a *enroll.Acknowledgement) { a.Pallet.SessionEpoch-- },
		"far pallet epoch":          func(a *enroll.Acknowledgement) { a.Pallet.SessionEpoch++ },
		"owners exchanged":          func(a *enroll.Acknowledgement) { a.Spark, a.Pallet = a.Pallet, a.Spark },
		"of the same, but fresh":    func(a *enroll.Acknowledgement) { *a, _ = enroll.Acknowledge(fresh(), "node-a") },
		"no acknowledgement at all": func(a *enroll.Acknowledgement) { *a = enroll.Acknowledgement{} },
	} {
		a := must(enroll.Acknowledge(adoption(), "node-a"))(t)
		change(&a)
		if err := enroll.BindAcknowledgement(adoption(), a); !errors.Is(err, enroll.ErrReceipt) {
			t.Errorf("%s binds: %v", what, err)
		}
	}
}
