package shapes

import (
	"errors"
	"slices"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/ai"
)

// Codec returns the codec of a dialect, which must not change afterwards.
func (d *Dialect) Codec() ai.Codec {
	return ai.Codec{
		Version: d.Version, Audiences: slices.Clone(d.Audiences.Values),
		Offers: slices.Clone(d.Offers.Values), Backends: slices.Clone(d.Backends),

		PairRequest:       message(d.pairRequest(), ai.MaxBody),
		PairStartResponse: message(pairStartResponse, ai.MaxBody),
		PairPollResponse:  message(d.pairPollResponse(), ai.MaxBody),
		ClaimRequest:      message(d.claimRequest(), ai.MaxBody),
		ClaimResponse:     message(d.claimResponse(), ai.MaxBody),
		FetchRequest:      message(d.fetchRequest(), ai.MaxBody),
		FetchResponse:     message(fetchResponse, ai.MaxSealedBody),
		HeartbeatRequest:  message(d.heartbeatRequest(), ai.MaxBody),
		HeartbeatResponse: message(d.heartbeatResponse(), ai.MaxBody),
		ResultRequest:     message(d.resultRequest(), ai.MaxSealedBody),
		ResultResponse:    message(resultResponse, ai.MaxBody),
		ReleaseRequest:    message(d.releaseRequest(), ai.MaxBody),
		ReleaseResponse:   message(releaseResponse, ai.MaxBody),
		Error:             message(d.wireError(), ai.MaxBody),

		Generate: message(generate, ai.MaxSealedBody),
		Chat:     message(d.chat(), ai.MaxSealedBody),
		Outcome:  message(d.sealedOutcome(), ai.MaxSealedBody),
		Stub:     message(d.stub(), ai.MaxBody),
		Kinded:   message(d.kinded(), ai.MaxSealedBody),
		Job:      message(d.claimedJob(), ai.MaxSealedBody),
		Result:   message(d.deliveredResult(), ai.MaxSealedBody),
	}
}

// maxDepth is deeper than any message: the answer to a heartbeat holds, by site,
// a list of keys that were, each with an identity.
const maxDepth = 8

// maxValues bounds the values of one message. No legal one needs more than a list
// of short texts that is as long as a body may be.
const maxValues = 1 << 16

type codec[T any] struct {
	shape exact.Shape[T]
	limit int
}

func message[T any](s exact.Shape[T], limit int) ai.Message[T] { return codec[T]{s, limit} }

func (c codec[T]) Limit() int { return c.limit }

func (c codec[T]) Read(body []byte) (T, error) {
	v, err := c.shape.Read(body, exact.Limits{Bytes: c.limit, Depth: maxDepth, Values: maxValues})
	return v, badRequest(err)
}

func (c codec[T]) Write(v T) ([]byte, error) {
	body, err := c.shape.Bytes(v)
	if err == nil && len(body) > c.limit {
		body, err = nil, &exact.Problem{Rule: exact.ErrTooLarge}
	}
	return body, badRequest(err)
}

func badRequest(err error) error {
	var p *exact.Problem
	if !errors.As(err, &p) {
		return err
	}
	return ai.BadRequest(p.Sentence())
}
