package runner

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner/ingress"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/wire/ai"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// TestShelfRuns: what cannot be logged does not run (MUST
// INGRESS_LOGGED_BEFORE_EXECUTION), and a job runs on the model that it was taken
// on for or on none: nothing is put in for a model that is gone (MUST
// FALLBACK_LABELED).
func TestShelfRuns(t *testing.T) {
	var asked atomic.Int64
	m := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method == http.MethodPost && !strings.Contains(string(body), `"max_tokens"`) {
			asked.Add(1)
		}
		_, _ = io.WriteString(w, `{"data":[{"id":"m1"}],"choices":[{"message":{"content":"an answer"}}]}`)
	}))
	t.Cleanup(m.Close)
	s := settings.Defaults()
	s.Backends = map[string]settings.Backend{"mine": {ID: wirebackend.Generic, BaseURL: m.URL + "/v1"}}
	sh := newShelf(s, "", time.Now)
	sh.lookOnce(t.Context())
	offers := sh.current()
	if len(offers) != 2 {
		t.Fatalf("offers %+v", offers)
	}
	otherModel, otherBackend := offers[0], offers[0]
	otherModel.Capability.Model, otherBackend.Capability.Service = "m2", "theirs"
	for name, c := range map[string]struct {
		offer lane.Offer
		log   error
		want  error
	}{
		"logged":         {offers[0], nil, nil},
		"not logged":     {offers[0], ingress.ErrLog, ingress.ErrLog},
		"a model gone":   {otherModel, nil, ErrModelGone},
		"a backend gone": {otherBackend, nil, ErrModelGone},
	} {
		t.Run(name, func(t *testing.T) {
			before := asked.Load()
			result, err := sh.run(t.Context(), c.offer, true, ai.Generate{Prompt: "p"}, func() error { return c.log })
			if !errors.Is(err, c.want) {
				t.Errorf("%v", err)
			}
			if ran := asked.Load() - before; (ran == 1) != (c.want == nil) || (result.Outcome == ai.Answer{Text: "an answer"}) != (c.want == nil) {
				t.Errorf("the model was asked %d times: %+v", ran, result)
			}
		})
	}
}

// TestShelfOffers: what is configured is offered once it was found to work, and
// no sooner (MUST CAPABILITY_IS_DETECTED).
func TestShelfOffers(t *testing.T) {
	for name, c := range map[string]struct {
		list, answer int // statuses
		want         int
	}{
		"healthy": {200, 200, 2}, "fails to answer": {200, 500, 0}, "wants a key": {200, 401, 0}, "lists nothing": {500, 200, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				status := c.answer
				if r.Method == http.MethodGet {
					status = c.list
				}
				w.WriteHeader(status)
				_, _ = io.WriteString(w, `{"data":[{"id":"m1"}],"choices":[{"message":{"content":"an answer"}}]}`)
			}))
			t.Cleanup(m.Close)
			s := settings.Defaults()
			s.Backends = map[string]settings.Backend{"mine": {ID: wirebackend.Generic, BaseURL: m.URL + "/v1"}}
			sh := newShelf(s, "", time.Now)
			if n := len(sh.current()); n > 0 {
				t.Errorf("%d offers before anybody looked", n)
			}
			sh.lookOnce(t.Context())
			if got := sh.current(); len(got) != c.want {
				t.Errorf("offers %+v", got)
			}
		})
	}
}
