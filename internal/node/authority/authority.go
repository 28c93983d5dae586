package authority

import (
	"encoding/base32"
	"io"
	"strings"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/node/keep"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
)

// ErrRenewal refuses a receipt that nobody asked for.
var ErrRenewal = refusal.NewKind("rotation-not-asked", 500,
	"There is a receipt for a new credential, and none was asked for.",
	"Report this with the log line; the credential is as it was.")

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "A node's authority", Kinds: []*refusal.Kind{ErrRenewal}}

// Authority is who a program of a node is, and what it proves that by. It holds
// bearers, which do not print. The zero value is nobody.
type Authority struct {
	// Who it is, as the controller last said.
	Who    enroll.Identity
	Bearer enroll.Bearer

	next     enroll.Bearer
	rotation enroll.Rotation
}

// New is the authority of a program that was admitted.
func New(who enroll.Identity, b enroll.Bearer) Authority { return Authority{Who: who, Bearer: b} }

// Renewing reports whether a next credential was made and no receipt came yet.
func (a Authority) Renewing() bool { return !a.next.IsZero() }

// Renew makes the next credential, unless there is one already. It returns rand's
// error.
func (a Authority) Renew(rand io.Reader) (Authority, error) {
	if a.Renewing() {
		return a, nil
	}
	next, err := enroll.NewBearer(rand)
	if err != nil {
		return a, err
	}
	id, err := NewID(rand, "rotation")
	if err != nil {
		return a, err
	}
	a.next = next
	a.rotation = enroll.Rotation{
		Purpose: a.Who.Purpose, NextCredentialHash: next.Hash(), ExpectedGeneration: a.Who.Generation, RotationID: enroll.RotationID(id),
	}
	return a, nil
}

// Ask is the request for the next credential. late is whether the current one
// counts no more, so that the next one has to prove it.
func (a Authority) Ask(late bool) (enroll.Bearer, enroll.Rotation) {
	if late {
		return a.next, a.rotation
	}
	return a.Bearer, a.rotation
}

// Renewed takes the receipt of a rotation. It returns ErrRenewal and what
// enroll.BindRotation does, and then the authority is as it was.
func (a Authority) Renewed(r enroll.RotationReceipt) (Authority, error) {
	if !a.Renewing() {
		return a, ErrRenewal
	}
	who, err := enroll.BindRotation(a.Who, a.rotation, r)
	if err != nil {
		return a, err
	}
	return New(who, a.next), nil
}

// GiveUp forgets the next credential. It is for a rotation that the controller
// refused for good: nobody has recorded it.
func (a Authority) GiveUp() Authority { return New(a.Who, a.Bearer) }

// NewID is a name that nobody has used: kind and 80 random bits.
func NewID(rand io.Reader, kind string) (string, error) {
	var b [10]byte
	if _, err := io.ReadFull(rand, b[:]); err != nil {
		return "", err
	}
	return kind + "-" + strings.ToLower(base32.StdEncoding.EncodeToString(b[:])), nil
}

// Shape is an authority in its owner's file. It holds both bearers in the clear.
var Shape = exact.Shape[Authority]{Fields: func(o *exact.Object, a *Authority) {
	exact.Spelled(o, "nodeId", &a.Who.NodeID, zone.MaxID, "an identifier", zone.ValidID)
	exact.Word(o, "purpose", &a.Who.Purpose, []enroll.Purpose{enroll.Spark, enroll.Pallet})
	exact.Whole(o, "generation", &a.Who.Generation, 1, 0)
	exact.Whole(o, "sessionEpoch", &a.Who.SessionEpoch, 1, 0)
	keep.Bearer(o, "bearer", &a.Bearer)
	var rotation *enroll.Rotation
	if a.Renewing() {
		rotation = &a.rotation
	}
	keep.Document(o, "rotation", enroll.RotationCodec, &rotation)
	keep.Bearer(o, "next", &a.next)
	if o.Writing() || o.Failed() {
		return
	}
	if rotation != nil {
		a.rotation = *rotation
	}
	if a.Bearer.IsZero() || (rotation != nil) != a.Renewing() ||
		rotation != nil && (a.rotation.Purpose != a.Who.Purpose || a.rotation.ExpectedGeneration != a.Who.Generation || !a.rotation.NextCredentialHash.Equal(a.next.Hash())) {
		o.Fail(exact.ErrRange, "an authority with its bearer, and a rotation of it or none")
	}
}}
