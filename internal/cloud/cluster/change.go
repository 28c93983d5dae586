package cluster

import (
	"context"

	"github.com/allodhq/allod/internal/cloud/act"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
)

// step is a change that its caller may make.
type step[A any] struct {
	act    act.Act
	id     zone.MutationID
	detail func() ([]byte, error) // what goes into the audit log
	decide func() (A, error)
}

// change runs one change: begin finds who may make it and what it is, and what it
// decides is kept as its answer.
func change[A any](ctx context.Context, c Config, input func() (canon.Sum, error), answers zone.Codec[A], replayed func(*A) *bool, begin func(store.Tx) (step[A], error)) (answer A, err error) {
	var none A
	sum, err := input()
	if err != nil {
		return none, err
	}
	err = c.Store.Write(ctx, func(tx store.Tx) error {
		s, err := begin(tx)
		if err != nil {
			return err
		}
		detail, err := s.detail()
		if err != nil {
			return err
		}
		s.act.Detail = string(detail)
		kept, repeat, err := act.Once(tx, s.act, s.id, sum, func() ([]byte, error) {
			decided, err := s.decide()
			if err != nil {
				return nil, err
			}
			return answers.Append(nil, decided)
		})
		if err != nil {
			return err
		}
		answer, err = answers.Read(kept)
		*replayed(&answer) = repeat
		return err
	})
	if err != nil {
		return none, err
	}
	return answer, nil
}
