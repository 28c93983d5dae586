package codec

import (
	"errors"
	"strings"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone"
)

// Limits bound a message before it is read.
var Limits = exact.Limits{Bytes: zone.MaxBytes, Depth: zone.MaxDepth, Values: zone.MaxValues}

// Of makes a codec of what Fields of a shape says. The shape refuses unknown
// members.
func Of[T any](fields func(o *exact.Object, v *T)) zone.Codec[T] {
	return codec[T]{exact.Shape[T]{Fields: fields}}
}

// Shape is the shape of a codec. It panics for one that this package did not make;
// all codecs below wire/zone are made here, before a program starts.
func Shape[T any](c zone.Codec[T]) exact.Shape[T] { return c.(codec[T]).shape }

type codec[T any] struct{ shape exact.Shape[T] }

func (c codec[T]) Read(src []byte) (T, error) { return c.shape.Read(src, Limits) }

// Append asks of the whole text what Read does: a shape bounds each member, but not
// how many bytes and values they make together.
func (c codec[T]) Append(dst []byte, v T) ([]byte, error) {
	out, err := c.shape.Append(dst, v)
	if err != nil {
		return nil, err
	}
	if _, err := exact.Parse(out[len(dst):], Limits); err != nil {
		return nil, err
	}
	return out, nil
}

func (c codec[T]) Reasons(src []byte, path string) []string {
	v, err := exact.Parse(src, Limits)
	if err != nil {
		return Unreadable(err, path)
	}
	return Reasons(c.shape.Problems(v), path)
}

// Unreadable is the reason of a text that could not be parsed.
func Unreadable(err error, path string) []string {
	var p *exact.Problem
	if !errors.As(err, &p) {
		return []string{named(path) + " " + exactSchema}
	}
	return []string{named(path) + " must be one JSON text (" + p.Rule.Name() + ")"}
}

// Reasons says everything that is wrong with a value, one reason for each
// violation, each as "<path> <words>" (decision O08). The path begins with what
// the value is called, or with "value" where path is empty. An object that has a
// member too many or too few has one reason, in the contract's own words: it must
// use its exact schema (F03, F04). There are no reasons for no problems.
func Reasons(problems []*exact.Problem, path string) []string {
	path = named(path)
	var reasons []string
	seen := map[string]bool{}
	for _, p := range problems {
		at, words := p.Path, "must be "+p.Need
		switch {
		case p.Rule == exact.ErrMissing && at != "":
			at, words = at[:max(strings.LastIndexByte(at, '.'), 0)], exactSchema
		case p.Rule == exact.ErrUnknown, p.Rule == exact.ErrMissing:
			words = exactSchema
		case p.Need == "" && p.Rule == exact.ErrMember:
			words = "must be one of the contract's words"
		case p.Need == "":
			words = exactSchema
		}
		reason := join(path, at) + " " + words
		if !seen[reason] {
			seen[reason] = true
			reasons = append(reasons, reason)
		}
	}
	return reasons
}

const exactSchema = "must use its exact schema"

func join(path, at string) string {
	if at == "" || at[0] == '[' {
		return path + at
	}
	return path + "." + at
}

func named(path string) string {
	if path == "" {
		return "value"
	}
	return path
}
