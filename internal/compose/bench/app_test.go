package bench

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/wire/ai"
)

// TestApp holds that nothing counts as a job that was not answered as it must.
func TestApp(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		ask    error
		result error
	}{
		"ok":           {201, `{"id":"a","state":"ok","more":[1]}`, nil, nil},
		"not over":     {200, `{"id":"a","state":"running"}`, nil, ErrAnswer},
		"failed":       {200, `{"id":"a","state":"error"}`, nil, ErrAnswer},
		"no id":        {201, `{"state":"ok"}`, ErrAnswer, nil},
		"refused":      {503, `{"error":"canary"}`, ErrAnswer, ErrAnswer},
		"failing":      {500, `{"id":"a","state":"ok"}`, ErrAnswer, ErrAnswer},
		"sent on":      {303, ``, ErrAnswer, ErrAnswer},
		"no JSON":      {200, `canary`, ErrAnswer, ErrAnswer},
		"without end":  {200, `{"id":"` + strings.Repeat("x", maxAppAnswer), ErrAnswer, ErrAnswer},
		"another type": {200, `{"id":1,"state":"ok"}`, ErrAnswer, ErrAnswer},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer key" {
				t.Errorf("%s: the key is missing", name)
			}
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body))
		}))
		a := newApp(server.URL, "key")
		if _, err := a.ask(t.Context()); !errors.Is(err, c.ask) || err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: ask: %v", name, err)
		}
		if err := a.result(t.Context(), "a"); !errors.Is(err, c.result) || err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: result: %v", name, err)
		}
		a.close()
		server.Close()
		if _, err := a.ask(t.Context()); !errors.Is(err, client.ErrUnreachable) {
			t.Errorf("%s: nobody there: %v", name, err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if _, err := a.ask(ended); !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnreachable) {
			t.Errorf("%s: ended: %v", name, err)
		}
	}
}

// TestStranger holds that a device does not work for a site that it has not
// pinned: nothing is sent.
func TestStranger(t *testing.T) {
	d := &device{}
	if err := d.work(t.Context(), ai.ClaimedStub{Stub: ai.Stub{Site: "BYOLLM"}}); !errors.Is(err, ErrAnswer) {
		t.Errorf("got %v", err)
	}
}
