package frame

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/allodhq/allod/refusal"
)

// The bounds of family F10, in bytes and without the prefix. They differ since a
// request carries a whole enrollment, and an answer confirms one.
const (
	// PrefixSize is the size of the length in front of the value.
	PrefixSize = 4
	// MaxRequest is the largest value of a request.
	MaxRequest = 32768
	// MaxResponse is the largest value of an answer.
	MaxResponse = 16384
)

// What this package refuses.
var (
	ErrEmpty = refusal.NewKind("frame-empty", 400,
		"The frame's length is zero, and a frame holds one JSON value.",
		"Send the length of the value in front of it.")
	ErrTooLarge = refusal.NewKind("frame-too-large", 400,
		"The frame is larger than this direction allows.",
		"Send a request of at most 32768 bytes, and answer with at most 16384.")
	ErrCut = refusal.NewKind("frame-cut", 400,
		"The frame ended before its length was reached.",
		"Send as many bytes as the length says, in time, and close only then.")
	ErrTrailing = refusal.NewKind("frame-trailing", 400,
		"There are bytes after the frame, and each direction has one frame.",
		"Close the writing half right after the frame, and use a new connection for the next one.")
	ErrOpen = refusal.NewKind("frame-open", 400,
		"The frame is whole, and its writer did not close the writing half.",
		"Close the writing half right after the frame; that is how its end is known.")
	ErrText = refusal.NewKind("frame-text", 400,
		"The frame does not hold one JSON value in UTF-8.",
		"Send one JSON value without repeated names, in valid UTF-8.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Frames of the control socket", Kinds: []*refusal.Kind{
	ErrEmpty, ErrTooLarge, ErrCut, ErrTrailing, ErrOpen, ErrText,
}}

// Read reads the one frame of a direction, of at most limit bytes without the
// prefix, to its end, and returns the value. It reads at most one byte more than
// the frame has, and of a frame that it refuses by its length nothing more than
// that. It returns [ErrEmpty], [ErrTooLarge], [ErrCut], [ErrTrailing], [ErrOpen]
// and [ErrText]; ErrCut and ErrOpen have the reader's error as their cause.
func Read(r io.Reader, limit int) ([]byte, error) {
	var prefix [PrefixSize]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return nil, ErrCut.Because(err)
	}
	size := binary.BigEndian.Uint32(prefix[:])
	switch {
	case size == 0:
		return nil, ErrEmpty
	case int64(size) > int64(limit):
		return nil, ErrTooLarge
	}
	value := make([]byte, size)
	if _, err := io.ReadFull(r, value); err != nil {
		return nil, ErrCut.Because(err)
	}
	var more [1]byte
	switch _, err := io.ReadFull(r, more[:]); {
	case err == nil:
		return nil, ErrTrailing
	case !errors.Is(err, io.EOF):
		return nil, ErrOpen.Because(err)
	}
	if !jsontext.Value(value).IsValid() {
		return nil, ErrText
	}
	return value, nil
}

// Append appends the frame of a value to dst. It returns [ErrEmpty],
// [ErrTooLarge] and [ErrText] where [Read] would with the same limit, and then
// the result is nil.
func Append(dst, value []byte, limit int) ([]byte, error) {
	switch {
	case len(value) == 0:
		return nil, ErrEmpty
	case len(value) > limit:
		return nil, ErrTooLarge
	case !jsontext.Value(value).IsValid():
		return nil, ErrText
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(value)))
	return append(dst, value...), nil
}
