package member

import (
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
)

// Input is the digest of a method and its whole request, for a change that has a
// mutation id (F07). What travels beside the request, a proof and an offer, is no
// part of it: whoever asks again may do so with a new token, or a newer release.
func Input[T any](method string, c zone.Codec[T], request T) (canon.Sum, error) {
	src, err := c.Append([]byte(`{"method":"`+method+`","request":`), request)
	if err != nil {
		return canon.Sum{}, err
	}
	return canon.Digest(canon.Mutation, append(src, '}'))
}
