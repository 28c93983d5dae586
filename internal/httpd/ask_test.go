package httpd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/refusal"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestAsk holds that a party's answer comes back as it was given, a refusal with
// its detail, and nothing that a party does not say.
func TestAsk(t *testing.T) {
	silent := refusal.NewKind("test-silent", 503, "Nobody answers here.", "Wait for a moment.")
	strange := refusal.NewKind("test-strange", 400, "The answer is none.", "Use another one.")
	var status int
	var body string
	a := Asker{
		Client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			if sent, err := io.ReadAll(r.Body); err != nil || string(sent) != "question" || r.URL.Path != "/party/do" || r.Method != "POST" {
				t.Errorf("asked %s %s %q, %v", r.Method, r.URL.Path, sent, err)
			}
			if status == 0 {
				return nil, io.ErrUnexpectedEOF
			}
			return &http.Response{StatusCode: status, Body: io.NopCloser(bytes.NewReader([]byte(body)))}, nil
		})},
		Registers: []refusal.Registry{datadir.Kinds}, Silent: silent, Strange: strange,
	}
	reply := func(err error) func() {
		return func() {
			w := httptest.NewRecorder()
			Reply(w, map[string]int{"n": 1}, err)
			status, body = w.Code, w.Body.String()
		}
	}
	for name, c := range map[string]struct {
		says func()
		want string // of an answer
		err  string
		kind error
	}{
		"an answer":          {reply(nil), `{"n":1}`, "", nil},
		"a refusal":          {reply(datadir.ErrRunning), "", datadir.ErrRunning.Error(), datadir.ErrRunning},
		"one with a detail":  {reply(datadir.ErrData.With("The detail.")), "", datadir.ErrData.Error() + " The detail.", datadir.ErrData},
		"an unknown refusal": {reply(silent), "", strange.Error(), strange},
		"no refusal":         {func() { status, body = 500, "canary" }, "", strange.Error(), strange},
		"nothing":            {func() { status = 0 }, "", silent.Error(), silent},
	} {
		c.says()
		got, err := a.Ask(t.Context(), "POST", "/party/do", []byte("question"))
		if string(got) != c.want || (err == nil) != (c.kind == nil) || err != nil && (err.Error() != c.err || !errors.Is(err, c.kind)) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	status = 0
	if _, err := a.Ask(ctx, "POST", "/party/do", []byte("question")); !errors.Is(err, context.Canceled) {
		t.Errorf("ended by the caller: %v", err)
	}
}

// TestTakeFolder holds that a folder which is held for a moment is waited for, and
// not for long.
func TestTakeFolder(t *testing.T) {
	other := errors.New("other")
	for name, c := range map[string]struct {
		held time.Duration
		then error
		want error
		took time.Duration
	}{
		"free":              {0, nil, nil, 0},
		"held for a moment": {120 * time.Millisecond, nil, nil, 150 * time.Millisecond},
		"held for long":     {time.Hour, nil, datadir.ErrRunning, heldTime + StartStep},
		"refused":           {0, other, other, 0},
	} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			err := TakeFolder(t.Context(), dir, func() error {
				if time.Since(begin) < c.held {
					return datadir.ErrRunning
				}
				return c.then
			})
			if took := time.Since(begin); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || took != c.took {
				t.Errorf("%s: %v after %v", name, err, took)
			}
			ended := errors.New("ended")
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(ended)
			if err := TakeFolder(ctx, dir, func() error { return datadir.ErrRunning }); !errors.Is(err, ended) {
				t.Errorf("%s, ended by the caller: %v", name, err)
			}
		})
	}
}
