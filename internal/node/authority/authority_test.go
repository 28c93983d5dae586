package authority_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/node/authority"
	"github.com/allodhq/allod/internal/node/keep"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
)

func seeded() io.Reader { return rand.NewChaCha8([32]byte{5}) }

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

var who = enroll.Identity{NodeID: "n1", Purpose: enroll.Spark, Generation: 3, SessionEpoch: 5}

func first(t testing.TB, r io.Reader) authority.Authority {
	return authority.New(who, must[enroll.Bearer](t)(enroll.NewBearer(r)))
}

func TestF09RenewalKeepsBothBearersUntilTheReceipt(t *testing.T) {
	r := seeded()
	a := first(t, r)
	if a.Renewing() {
		t.Error("it renews at once")
	}
	b := must[authority.Authority](t)(a.Renew(r))
	again := must[authority.Authority](t)(b.Renew(r))
	current, rotation := b.Ask(false)
	next, same := b.Ask(true)
	if _, other := again.Ask(false); other != rotation || same != rotation {
		t.Error("a renewal that is on its way is made anew")
	}
	if !current.Equal(a.Bearer) || current.Equal(next) || !rotation.NextCredentialHash.Equal(next.Hash()) ||
		rotation.ExpectedGeneration != 3 || rotation.Purpose != enroll.Spark || !zone.ValidID(string(rotation.RotationID)) || a.Renewing() {
		t.Errorf("%+v", rotation)
	}
	good := enroll.RotationReceipt{RotationID: rotation.RotationID, NodeID: "n1", Purpose: enroll.Spark, Generation: 4, SessionEpoch: 6, RotatedAt: 1}
	for what, change := range map[string]func(r *enroll.RotationReceipt){
		"rotation": func(r *enroll.RotationReceipt) { r.RotationID = "r9" }, "node": func(r *enroll.RotationReceipt) { r.NodeID = "n2" },
		"purpose": func(r *enroll.RotationReceipt) { r.Purpose = enroll.Pallet }, "generation": func(r *enroll.RotationReceipt) { r.Generation = 5 },
		"generation before": func(r *enroll.RotationReceipt) { r.Generation = 3 }, "epoch": func(r *enroll.RotationReceipt) { r.SessionEpoch = 5 },
	} {
		bad := good
		change(&bad)
		got, err := b.Renewed(bad)
		if !errors.Is(err, enroll.ErrRotation) || !got.Renewing() || !got.Bearer.Equal(a.Bearer) || got.Who != who {
			t.Errorf("another %s: %v", what, err)
		}
	}
	c := must[authority.Authority](t)(b.Renewed(good))
	if c.Renewing() || !c.Bearer.Equal(next) || c.Who != (enroll.Identity{NodeID: "n1", Purpose: enroll.Spark, Generation: 4, SessionEpoch: 6}) {
		t.Errorf("%+v", c.Who)
	}
	if _, err := c.Renewed(good); !errors.Is(err, authority.ErrRenewal) {
		t.Errorf("a receipt that nobody asked for: %v", err)
	}
	if g := b.GiveUp(); g.Renewing() || !g.Bearer.Equal(a.Bearer) || g.Who != who {
		t.Error("giving up changes more")
	}
	for n := range 42 { // the bearer and the name
		if got, err := a.Renew(bytes.NewReader(make([]byte, n))); err == nil || got.Renewing() || !got.Bearer.Equal(a.Bearer) {
			t.Errorf("with %d random bytes: %v", n, err)
		}
	}
}

func TestShapeKeepsWhatThereIs(t *testing.T) {
	r := seeded()
	plain := first(t, r)
	for _, a := range []authority.Authority{plain, must[authority.Authority](t)(plain.Renew(r))} {
		text := must[[]byte](t)(authority.Shape.Bytes(a))
		b := must[authority.Authority](t)(authority.Shape.Read(text, keep.Limits))
		for _, late := range []bool{false, true} {
			x, q := a.Ask(late)
			y, p := b.Ask(late)
			if x.Reveal() != y.Reveal() || q != p || a.Who != b.Who || a.Renewing() != b.Renewing() {
				t.Errorf("%s", text)
			}
		}
		if printed := fmt.Sprintf("%v %+v %#v", a, a, a); strings.Contains(printed, a.Bearer.Reveal()) {
			t.Error("an authority prints its bearer")
		}
		// What does not go together is no authority.
		for _, change := range [][2]string{
			{`"purpose":"spark"`, `"purpose":"pallet"`}, {`"generation":3`, `"generation":4`}, {`"generation":3`, `"generation":0`}, {`"sessionEpoch":5`, `"sessionEpoch":0`},
			{`"next":"`, `"none":"`}, {`"rotation":"`, `"none":"`}, {`"bearer":"`, `"none":"`}, {`"bearer":"` + a.Bearer.Reveal() + `",`, ""}, {`"nodeId":"n1"`, `"nodeId":"N1"`},
		} {
			if a.Renewing() == false && strings.Contains(`"purpose":"pallet" "generation":4 "next" "rotation"`, strings.TrimSuffix(change[1], `:"`)) {
				continue // of a plain one that is right, or is not there
			}
			bad := strings.Replace(string(text), change[0], change[1], 1)
			if bad == string(text) {
				continue
			}
			if _, err := authority.Shape.Read([]byte(bad), keep.Limits); err == nil {
				t.Errorf("%s instead of %s is taken", change[1], change[0])
			}
		}
	}
}

func TestNewID(t *testing.T) {
	r := seeded()
	seen := map[string]bool{}
	for range 1000 {
		id := must[string](t)(authority.NewID(r, "rotation"))
		if !zone.ValidID(id) || seen[id] || !strings.HasPrefix(id, "rotation-") {
			t.Fatal(id)
		}
		seen[id] = true
	}
}
