package v0

import (
	"errors"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/ai"
)

// Version is what messages of this version declare as their protocolVersion.
const Version = "0"

// Codec returns the codec of this version.
func Codec() ai.Codec {
	return ai.Codec{
		Version: Version,

		PairRequest:       message(pairRequest, ai.MaxBody),
		PairStartResponse: message(pairStartResponse, ai.MaxBody),
		PairPollResponse:  message(pairPollResponse, ai.MaxBody),
		ClaimRequest:      message(claimRequest, ai.MaxBody),
		ClaimResponse:     message(claimResponse, ai.MaxBody),
		FetchRequest:      message(fetchRequest, ai.MaxBody),
		FetchResponse:     message(fetchResponse, ai.MaxSealedBody),
		HeartbeatRequest:  message(heartbeatRequest, ai.MaxBody),
		HeartbeatResponse: message(heartbeatResponse, ai.MaxBody),
		ResultRequest:     message(resultRequest, ai.MaxSealedBody),
		ResultResponse:    message(resultResponse, ai.MaxBody),
		ReleaseRequest:    message(releaseRequest, ai.MaxBody),
		ReleaseResponse:   message(releaseResponse, ai.MaxBody),
		Error:             message(wireError, ai.MaxBody),

		Generate: message(generate, ai.MaxSealedBody),
		Chat:     message(chat, ai.MaxSealedBody),
		Outcome:  message(sealedOutcome, ai.MaxSealedBody),
		Stub:     message(stub, ai.MaxBody),
		Kinded:   message(kinded, ai.MaxSealedBody),
		Job:      message(claimedJob, ai.MaxSealedBody),
		Result:   message(deliveredResult, ai.MaxSealedBody),
	}
}

// maxDepth is deeper than any message: a claimed job holds a payload that holds
// a list of messages.
const maxDepth = 8

// maxValues bounds the values of one message. The most a legal one needs is a
// claim of many capabilities, each of six values.
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
	body, err := c.shape.Append(nil, v)
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
