package handshake

import (
	"fmt"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/internal/codec"
)

// Reason says why two offers do not go together (TProtocolIncompatibility).
type Reason string

// The reasons, in the order in which they are looked for.
const (
	// MajorMismatch: the majors differ, whatever else is wrong.
	MajorMismatch Reason = "major-mismatch"
	// PeerBelowMinimum: the refused side is older than the refusing side accepts.
	PeerBelowMinimum Reason = "peer-below-minimum"
	// SelfBelowPeerMinimum: the refusing side is older than the refused side accepts.
	SelfBelowPeerMinimum Reason = "self-below-peer-minimum"
)

// Refusal is the "no" of one side to the offer of the other (IProtocolRefusal). It
// is an error, and errors.Is finds [ErrIncompatible] in it.
type Refusal struct {
	Reason Reason
	// Refusing is the offer of the side that says no, Refused that of the other.
	Refusing, Refused Offer
}

// RefusalCodec is the object of a refusal, as it travels.
var RefusalCodec zone.Codec[Refusal] = codec.Of(func(o *exact.Object, r *Refusal) {
	exact.Literal(o, "code", ErrIncompatible.Name())
	exact.Word(o, "reason", &r.Reason, []Reason{MajorMismatch, PeerBelowMinimum, SelfBelowPeerMinimum})
	exact.Sub(o, "refusing", &r.Refusing, codec.Shape(OfferCodec))
	exact.Sub(o, "refused", &r.Refused, codec.Shape(OfferCodec))
})

// ReadRefusal returns the refusal that an error's data or an answer's body is, or
// nil. A client treats a failed request as refused only where there is one.
func ReadRefusal(src []byte) *Refusal {
	r, err := RefusalCodec.Read(src)
	if err != nil {
		return nil
	}
	return &r
}

// Error is one line for logs that begins with the code and names both sides
// (describeProtocolRefusal, decision O17).
func (r *Refusal) Error() string {
	return fmt.Sprintf("%s: %s: refusing side speaks %s and accepts from %s; refused side speaks %s and accepts from %s",
		ErrIncompatible.Name(), r.Reason, r.Refusing.speaks, r.Refusing.accepts, r.Refused.speaks, r.Refused.accepts)
}

// Unwrap is ErrIncompatible with both sides named.
func (r *Refusal) Unwrap() error {
	return ErrIncompatible.With(fmt.Sprintf("One side speaks %s and accepts from %s; the other speaks %s and accepts from %s.",
		r.Refusing.speaks, r.Refusing.accepts, r.Refused.speaks, r.Refused.accepts))
}
