package enroll_test

import (
	"errors"
	"testing"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/enroll"
)

func rotation() enroll.Rotation {
	return enroll.Rotation{Purpose: enroll.Spark, NextCredentialHash: hashOf(sparkText), ExpectedGeneration: 3, RotationID: "rot-1"}
}

func active() enroll.Identity {
	return enroll.Identity{NodeID: "node-a", Purpose: enroll.Spark, Generation: 3, SessionEpoch: 7}
}

func receipt(t *testing.T) enroll.RotationReceipt {
	return must(enroll.RotationReceiptCodec.Read([]byte(receiptJSON)))(t)
}

// The digest is of the rotation alone, so that it is the same by either bearer.
func TestF09RotationDigestIsTheSameByEitherBearer(t *testing.T) {
	for _, by := range []string{oldText, sparkText} {
		src := `{"protocol":` + protocolJSON + `,"bearer":"` + by + `",` + rotationMembers + `}`
		r := must(enroll.RotateRequestCodec.Read([]byte(src)))(t)
		if got := must(enroll.RotationDigest(r.Rotation))(t); got.String() != rotationDigest || r.Rotation != rotation() {
			t.Errorf("the digest is %s, want %s", got, rotationDigest)
		}
	}
	for what, change := range map[string]func(r *enroll.Rotation){
		"purpose":    func(r *enroll.Rotation) { r.Purpose = enroll.Pallet },
		"hash":       func(r *enroll.Rotation) { r.NextCredentialHash = hashOf("x") },
		"generation": func(r *enroll.Rotation) { r.ExpectedGeneration++ },
		"rotation":   func(r *enroll.Rotation) { r.RotationID = "rot-2" },
	} {
		r := rotation()
		change(&r)
		if got := must(enroll.RotationDigest(r))(t); got.String() == rotationDigest {
			t.Errorf("another %s has the same digest", what)
		}
	}
	if _, err := enroll.RotationDigest(enroll.Rotation{}); err == nil {
		t.Error("no rotation has a digest")
	}
}

// The bearer before counts until there is a receipt, and from then on the next one
// alone.
func TestF09RotationProof(t *testing.T) {
	current := hashOf(oldText)
	for _, c := range []struct {
		name    string
		bearer  enroll.Bearer
		receipt bool
		ok      bool
	}{
		{"the current one", bearer(oldText), false, true},
		{"the next one too early", bearer(sparkText), false, false},
		{"another one", bearer(palletText), false, false},
		{"none", enroll.Bearer{}, false, false},
		{"the next one", bearer(sparkText), true, true},
		{"the previous one too late", bearer(oldText), true, false},
		{"another one too late", bearer(palletText), true, false},
		{"none too late", enroll.Bearer{}, true, false},
	} {
		err := enroll.VerifyRotationProof(rotation(), current, c.receipt, c.bearer)
		if c.ok && err != nil || !c.ok && !errors.Is(err, enroll.ErrRotationProof) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	same := rotation()
	same.NextCredentialHash = current
	if err := enroll.VerifyRotationProof(same, current, false, bearer(oldText)); !errors.Is(err, enroll.ErrRotationProof) {
		t.Errorf("the credential is its own successor: %v", err)
	}
	for _, has := range []bool{false, true} {
		if err := enroll.VerifyRotationProof(enroll.Rotation{}, enroll.CredentialHash{}, has, enroll.Bearer{}); !errors.Is(err, enroll.ErrRotationProof) {
			t.Errorf("nothing proves nothing: %v", err)
		}
	}
}

func TestF09BindRotation(t *testing.T) {
	got := must(enroll.BindRotation(active(), rotation(), receipt(t)))(t)
	if want := (enroll.Identity{NodeID: "node-a", Purpose: enroll.Spark, Generation: 4, SessionEpoch: 9}); got != want {
		t.Errorf("the node is %v, want %v", got, want)
	}
	for what, c := range map[string]struct {
		change func(a *enroll.Identity, r *enroll.Rotation, p *enroll.RotationReceipt)
		detail string
	}{
		"another rotation":        {func(_ *enroll.Identity, _ *enroll.Rotation, p *enroll.RotationReceipt) { p.RotationID = "rot-2" }, "It is for another rotation."},
		"another node":            {func(_ *enroll.Identity, _ *enroll.Rotation, p *enroll.RotationReceipt) { p.NodeID = "node-b" }, "It is for another node."},
		"another purpose":         {func(_ *enroll.Identity, _ *enroll.Rotation, p *enroll.RotationReceipt) { p.Purpose = enroll.Pallet }, "It is for another purpose."},
		"the same generation":     {func(_ *enroll.Identity, _ *enroll.Rotation, p *enroll.RotationReceipt) { p.Generation-- }, "Its generation is not the next one."},
		"a generation too far":    {func(_ *enroll.Identity, _ *enroll.Rotation, p *enroll.RotationReceipt) { p.Generation++ }, "Its generation is not the next one."},
		"the same epoch":          {func(_ *enroll.Identity, _ *enroll.Rotation, p *enroll.RotationReceipt) { p.SessionEpoch = 7 }, "Its session epoch has not advanced."},
		"an older epoch":          {func(_ *enroll.Identity, _ *enroll.Rotation, p *enroll.RotationReceipt) { p.SessionEpoch = 6 }, "Its session epoch has not advanced."},
		"of another generation":   {func(a *enroll.Identity, _ *enroll.Rotation, _ *enroll.RotationReceipt) { a.Generation = 2 }, "The rotation was made for another credential."},
		"of the other credential": {func(a *enroll.Identity, _ *enroll.Rotation, _ *enroll.RotationReceipt) { a.Purpose = enroll.Pallet }, "The rotation was made for another credential."},
		"of both others": {func(a *enroll.Identity, _ *enroll.Rotation, p *enroll.RotationReceipt) {
			a.Purpose, p.Purpose = enroll.Pallet, enroll.Pallet
		}, "The rotation was made for another credential."},
	} {
		a, r, p := active(), rotation(), receipt(t)
		c.change(&a, &r, &p)
		if got, err := enroll.BindRotation(a, r, p); !errors.Is(err, enroll.ErrRotation) || refusal.From(err).Detail() != c.detail || got != (enroll.Identity{}) {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	next := receipt(t)
	next.SessionEpoch = 8
	if _, err := enroll.BindRotation(active(), rotation(), next); err != nil {
		t.Errorf("the next epoch: %v", err)
	}
}
