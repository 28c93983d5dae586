package frame_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/frame"
)

// value is a JSON string of so many bytes.
func value(size int) string { return `"` + strings.Repeat("a", size-2) + `"` }

// TestF10Frames: the bytes are written out here by hand.
func TestF10Frames(t *testing.T) {
	late := errors.New("the time is over")
	for what, c := range map[string]struct {
		bytes string
		after error // what the reader says after the bytes; nil is the end
		limit int
		want  error
		value string
	}{
		"a frame":                  {"\x00\x00\x00\x02{}", nil, frame.MaxRequest, nil, "{}"},
		"white space around it":    {"\x00\x00\x00\x04 {}\n", nil, frame.MaxRequest, nil, " {}\n"},
		"32768 bytes":              {"\x00\x00\x80\x00" + value(32768), nil, frame.MaxRequest, nil, value(32768)},
		"16384 bytes":              {"\x00\x00\x40\x00" + value(16384), nil, frame.MaxResponse, nil, value(16384)},
		"length 0":                 {"\x00\x00\x00\x00", nil, frame.MaxRequest, frame.ErrEmpty, ""},
		"length 0 and a value":     {"\x00\x00\x00\x00{}", nil, frame.MaxRequest, frame.ErrEmpty, ""},
		"length 32769":             {"\x00\x00\x80\x01" + value(32769), nil, frame.MaxRequest, frame.ErrTooLarge, ""},
		"length 16385":             {"\x00\x00\x40\x01" + value(16385), nil, frame.MaxResponse, frame.ErrTooLarge, ""},
		"the largest length":       {"\xff\xff\xff\xff{}", nil, frame.MaxRequest, frame.ErrTooLarge, ""},
		"little-endian":            {"\x02\x00\x00\x00{}", nil, frame.MaxRequest, frame.ErrTooLarge, ""},
		"nothing":                  {"", nil, frame.MaxRequest, frame.ErrCut, ""},
		"a cut length":             {"\x00\x00\x00", nil, frame.MaxRequest, frame.ErrCut, ""},
		"a length alone":           {"\x00\x00\x00\x02", nil, frame.MaxRequest, frame.ErrCut, ""},
		"a cut value":              {"\x00\x00\x00\x03{}", nil, frame.MaxRequest, frame.ErrCut, ""},
		"a slow length":            {"\x00", late, frame.MaxRequest, frame.ErrCut, ""},
		"a slow value":             {"\x00\x00\x00\x02{", late, frame.MaxRequest, frame.ErrCut, ""},
		"one trailing byte":        {"\x00\x00\x00\x02{} ", nil, frame.MaxRequest, frame.ErrTrailing, ""},
		"a trailing byte, open":    {"\x00\x00\x00\x02{}\n", late, frame.MaxRequest, frame.ErrTrailing, ""},
		"a second frame":           {"\x00\x00\x00\x02{}\x00\x00\x00\x02{}", nil, frame.MaxRequest, frame.ErrTrailing, ""},
		"no half-close":            {"\x00\x00\x00\x02{}", late, frame.MaxRequest, frame.ErrOpen, ""},
		"no half-close, no text":   {"\x00\x00\x00\x01{", late, frame.MaxRequest, frame.ErrOpen, ""},
		"not UTF-8":                {"\x00\x00\x00\x03\"\xff\"", nil, frame.MaxRequest, frame.ErrText, ""},
		"an overlong slash":        {"\x00\x00\x00\x04\"\xc0\xaf\"", nil, frame.MaxRequest, frame.ErrText, ""},
		"half a pair":              {"\x00\x00\x00\x08\"\\ud800\"", nil, frame.MaxRequest, frame.ErrText, ""},
		"a byte order mark":        {"\x00\x00\x00\x05\xef\xbb\xbf{}", nil, frame.MaxRequest, frame.ErrText, ""},
		"no JSON":                  {"\x00\x00\x00\x02no", nil, frame.MaxRequest, frame.ErrText, ""},
		"half a value":             {"\x00\x00\x00\x01{", nil, frame.MaxRequest, frame.ErrText, ""},
		"two values":               {"\x00\x00\x00\x04{}{}", nil, frame.MaxRequest, frame.ErrText, ""},
		"spaces":                   {"\x00\x00\x00\x02  ", nil, frame.MaxRequest, frame.ErrText, ""},
		"a name twice":             {"\x00\x00\x00\x0d{\"a\":1,\"a\":2}", nil, frame.MaxRequest, frame.ErrText, ""},
		"nothing is small enough":  {"\x00\x00\x00\x02{}", nil, 0, frame.ErrTooLarge, ""},
		"as small as it may be":    {"\x00\x00\x00\x02{}", nil, 2, nil, "{}"},
		"a byte more than allowed": {"\x00\x00\x00\x03{} ", nil, 2, frame.ErrTooLarge, ""},
	} {
		for how, wrap := range map[string]func(io.Reader) io.Reader{
			"at once":         func(r io.Reader) io.Reader { return r },
			"byte by byte":    iotest.OneByteReader,
			"end with a byte": iotest.DataErrReader,
		} {
			after := iotest.ErrReader(c.after)
			if c.after == nil {
				after = iotest.ErrReader(io.EOF)
			}
			got, err := frame.Read(wrap(io.MultiReader(strings.NewReader(c.bytes), after)), c.limit)
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || string(got) != c.value {
				t.Errorf("%s, %s: %d bytes, %v", what, how, len(got), err)
			}
			if slow := errors.Is(c.want, frame.ErrOpen) || c.after != nil && errors.Is(c.want, frame.ErrCut); errors.Is(err, late) != slow {
				t.Errorf("%s, %s: the cause is lost: %v", what, how, err)
			}
			if err != nil && strings.Contains(refusal.Terminal(err), late.Error()) {
				t.Errorf("%s: a reader's text is shown", what)
			}
		}
		if c.want != nil {
			continue
		}
		out, err := frame.Append([]byte("x"), []byte(c.value), c.limit)
		if err != nil || string(out) != "x"+c.bytes {
			t.Errorf("%s: %d bytes were written, %v", what, len(out), err)
		}
	}
}

// counting says how much was read.
type counting struct {
	r io.Reader
	n int
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

// TestF10RefusedEarly: what is refused by its length is not read, and of what
// follows a frame no more than a byte is.
func TestF10RefusedEarly(t *testing.T) {
	long := strings.Repeat("a", 1<<20)
	for bytes, want := range map[string]int{
		"\x00\x00\x80\x01" + long:   frame.PrefixSize,
		"\xff\xff\xff\xff" + long:   frame.PrefixSize,
		"\x00\x00\x00\x00" + long:   frame.PrefixSize,
		"\x00\x00\x00\x02{}" + long: frame.PrefixSize + 3,
	} {
		r := &counting{r: strings.NewReader(bytes)}
		if _, err := frame.Read(r, frame.MaxRequest); err == nil || r.n != want {
			t.Errorf("%x...: %d bytes were read, want %d: %v", bytes[:4], r.n, want, err)
		}
	}
	if n := testing.AllocsPerRun(10, func() {
		_, _ = frame.Read(strings.NewReader("\xff\xff\xff\xff"), frame.MaxRequest)
	}); n > 4 {
		t.Errorf("%v allocations for a length that is refused", n)
	}
}

// TestAppendRefuses: nothing is written that the reader refuses.
func TestAppendRefuses(t *testing.T) {
	for _, c := range []struct {
		value string
		limit int
		want  error
	}{
		{"", frame.MaxRequest, frame.ErrEmpty},
		{value(frame.MaxRequest + 1), frame.MaxRequest, frame.ErrTooLarge},
		{value(frame.MaxResponse + 1), frame.MaxResponse, frame.ErrTooLarge},
		{"{}", 1, frame.ErrTooLarge},
		{"\"\xff\"", frame.MaxRequest, frame.ErrText},
		{"{}{}", frame.MaxRequest, frame.ErrText},
		{" ", frame.MaxRequest, frame.ErrText},
	} {
		if out, err := frame.Append([]byte("x"), []byte(c.value), c.limit); !errors.Is(err, c.want) || out != nil {
			t.Errorf("%d bytes: %q, %v", len(c.value), out, err)
		}
	}
}

// FuzzRead: what is read is JSON within the limit, and has one way to be written.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"", "\x00\x00\x00\x02{}", "\x00\x00\x00\x02{}\x00", "\x00\x00\x80\x01", "\x00\x00\x00\x03\"\xff\"",
		"\x00\x00\x00\x00", "\x00\x00\x00\x0d{\"method\":1}x",
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	const limit = 64
	f.Fuzz(func(t *testing.T, src []byte, open bool) {
		end := io.EOF
		if open {
			end = os.ErrDeadlineExceeded
		}
		got, err := frame.Read(io.MultiReader(bytes.NewReader(src), iotest.ErrReader(end)), limit)
		if err != nil {
			if got != nil {
				t.Fatal("a refused frame was returned")
			}
			if r := refusal.From(err); frame.Kinds.Find(r.Kind().Name()) == nil {
				t.Fatalf("an error without a name: %v", err)
			}
			return
		}
		if open || len(got) == 0 || len(got) > limit || !json.Valid(got) {
			t.Fatalf("read %q", got)
		}
		again, err := frame.Append(nil, got, limit)
		if err != nil || !bytes.Equal(again, src) {
			t.Fatalf("read %q, wrote %q: %v", src, again, err)
		}
	})
}
