package ai

import (
	"slices"

	"github.com/allodhq/allod/wire/ai/backend"
)

// Message reads and writes one kind of message in one version of the protocol.
type Message[T any] interface {
	// Read reads a message. The error is an [*Error] with [ErrBadRequest] that
	// names the member and the rule, never the input, and then the value is the
	// zero value.
	Read(body []byte) (T, error)
	// Write writes a message. It returns an error for a value that Read would
	// refuse, and then no bytes.
	Write(value T) ([]byte, error)
	// Limit is the largest body in bytes that Read looks at. Whoever receives
	// one reads no more than that.
	Limit() int
}

// Limits of bodies in bytes.
const (
	// MaxBody bounds every message but those that carry sealed material.
	MaxBody = 256 << 10
	// MaxSealedBody bounds messages that carry sealed material: a payload of
	// [MaxPayloadUnits] seals to over 20 MiB.
	MaxSealedBody = 32 << 20
)

// Codec reads and writes the messages of one version of the protocol.
type Codec struct {
	// Version is what messages declare as their protocolVersion.
	Version string
	// Audiences are those that the version has a word for. A job of another is
	// not offered to a device that speaks it.
	Audiences []Audience
	// Offers and Backends are what the version has words for of capabilities.
	Offers   []OfferScope
	Backends []backend.ID

	PairRequest       Message[PairRequest]
	PairStartResponse Message[PairStartResponse]
	PairPollResponse  Message[PairPollResponse]
	ClaimRequest      Message[ClaimRequest]
	ClaimResponse     Message[ClaimResponse]
	FetchRequest      Message[FetchRequest]
	FetchResponse     Message[FetchResponse]
	HeartbeatRequest  Message[HeartbeatRequest]
	HeartbeatResponse Message[HeartbeatResponse]
	ResultRequest     Message[ResultRequest]
	ResultResponse    Message[ResultResponse]
	ReleaseRequest    Message[ReleaseRequest]
	ReleaseResponse   Message[ReleaseResponse]
	Error             Message[Error]

	// Generate and Chat are sealed as payloads, Outcome as a result.
	Generate Message[Generate]
	Chat     Message[Chat]
	Outcome  Message[SealedOutcome]

	// Stub is a job's reference as sites hand it to routers.
	Stub Message[Stub]

	// Kinded is a payload beside its kind, as apps hand it over.
	Kinded Message[Payload]
	// Job and Result are how a job looks to a device that opened it and to an
	// app that asked.
	Job    Message[ClaimedJob]
	Result Message[DeliveredResult]
}

// Sayable is what the version can say of capabilities: those on a backend that it
// does not know are left out, and an offer that it has no word for is told as the
// widest narrower one. What is left is offered by no more than the whole.
func (c Codec) Sayable(list []Capability) []Capability {
	said := make([]Capability, 0, len(list))
	for _, one := range list {
		if !slices.Contains(c.Backends, one.BackendID) {
			continue
		}
		scopes := OfferScopes()
		for at := slices.Index(scopes, one.OfferScope); at > 0 && !slices.Contains(c.Offers, one.OfferScope); {
			at--
			one.OfferScope = scopes[at]
		}
		said = append(said, one)
	}
	return said
}

// ReadPayload reads the sealed text of a payload of that kind. The error is as
// for [Message.Read].
func (c Codec) ReadPayload(kind Kind, text []byte) (Payload, error) {
	switch kind {
	case KindGenerate:
		return payload(c.Generate.Read(text))
	case KindChat:
		return payload(c.Chat.Read(text))
	}
	return nil, BadRequest("The kind is none that this contract defines.")
}

func payload[P Payload](p P, err error) (Payload, error) {
	if err != nil {
		return nil, err
	}
	return p, nil
}

// WritePayload writes the text of a payload that is then sealed.
func (c Codec) WritePayload(p Payload) ([]byte, error) {
	switch p := p.(type) {
	case Generate:
		return c.Generate.Write(p)
	case Chat:
		return c.Chat.Write(p)
	}
	return nil, BadRequest("There is no payload.")
}
