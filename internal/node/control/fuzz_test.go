package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/frame"
)

// FuzzMessages: whatever either side reads, it reads the same again after writing
// it, and what it refuses has a name.
func FuzzMessages(f *testing.F) {
	for _, seed := range []string{
		`{"method":"m","request":{"a":[1, 2]}}`, `{"request":null,"method":"\u006d"}`, `{"response":[ ]}`,
		`{"error":{"text":"a-b: c","data":{"code":"a-b","x":1}}}`, `{"error":{"text":"t"}}`, `{}`, `{"response":1,"error":{"text":"t"}}`,
	} {
		f.Add([]byte(seed))
	}
	unframed := func(t *testing.T, b []byte, err error, limit int) []byte {
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		body, err := frame.Read(bytes.NewReader(b), limit)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		return body
	}
	compact := func(t *testing.T, v []byte) []byte {
		var b bytes.Buffer
		if err := json.Compact(&b, v); err != nil {
			t.Fatalf("%s: %v", v, err)
		}
		return b.Bytes()
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		if len(src) > 1000 { // what is written can be a little longer than what was read
			return
		}
		a, err := readAsk(src)
		switch {
		case err != nil:
			if !errors.Is(err, ErrMessage) || there(a.request) {
				t.Fatalf("an ask: %v", err)
			}
		default:
			request := a.request.Append(nil)
			if a.method == "" || len(a.method) > 4*MaxMethod || !bytes.Contains(compact(t, src), request) {
				t.Fatalf("an ask: %s, %s", a.method, request)
			}
			out, err := appendAsk(a.method, request)
			again, err2 := readAsk(unframed(t, out, err, frame.MaxRequest))
			if err2 != nil || again.method != a.method || !bytes.Equal(again.request.Append(nil), request) {
				t.Fatalf("an ask: %s, %s, then %v", a.method, request, err2)
			}
		}
		response, err := readAnswer(src)
		var e *Error
		switch {
		case err == nil:
			if !bytes.Contains(compact(t, src), response) {
				t.Fatalf("an answer: %s", response)
			}
			out, err := appendAnswer(response, nil)
			again, err2 := readAnswer(unframed(t, out, err, frame.MaxResponse))
			if err2 != nil || !bytes.Equal(again, response) {
				t.Fatalf("an answer: %s, then %s, %v", response, again, err2)
			}
		case errors.As(err, &e):
			if !errors.Is(err, ErrRefused) || response != nil || e.Text == "" {
				t.Fatalf("a refusal: %+v, %v", e, err)
			}
			out, err := appendAnswer(nil, e)
			_, err = readAnswer(unframed(t, out, err, frame.MaxResponse))
			var again *Error
			if !errors.As(err, &again) || again.Text != e.Text || again.Code != e.Code || !bytes.Equal(again.Data, e.Data) {
				t.Fatalf("a refusal: %+v, then %+v", e, again)
			}
		default:
			if !errors.Is(err, ErrMessage) || refusal.From(err).Detail() != "" {
				t.Fatalf("an answer: %v", err)
			}
		}
	})
}
