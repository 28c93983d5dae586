package client_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
)

// TestRetryLooksAtTheOutside: whether a request is sent again is decided by what
// the answer was, and not by what stands in the cause of that: what answered in
// the site's place said nothing about the request.
func TestRetryLooksAtTheOutside(t *testing.T) {
	later := []*refusal.Kind{ai.ErrNotReady, ai.ErrRateLimited, ai.ErrServer, ai.ErrClockSkew}
	for _, kind := range ai.Refusals.Kinds {
		seconds := int64(7)
		wire := ai.ErrorOf(kind)
		wire.RetryAfter = &seconds
		again, wait := slices.Contains(later, kind), time.Duration(0)
		if again {
			wait = 7 * time.Second
		}
		for name, c := range map[string]struct {
			err   error
			again bool
			after time.Duration
		}{
			"as it is":            {wire, again, wait},
			"with words before":   {fmt.Errorf("fetching: %w", wire), again, wait},
			"as an odd answer":    {client.ErrAnswer.Because(wire), true, 0},
			"as no answer":        {client.ErrUnreachable.Because(wire), true, 0},
			"words and odd":       {fmt.Errorf("fetching: %w", client.ErrAnswer.With("It is odd.").Because(wire)), true, 0},
			"odd, twice":          {client.ErrAnswer.Because(client.ErrAnswer.Because(wire)), true, 0},
			"as a plain site":     {client.ErrPlain.Because(wire), false, 0},
			"as no address":       {client.ErrServerURL.Because(wire), false, 0},
			"as a disk's refusal": {datadir.ErrWrite.Because(wire), false, 0},
			"a refusal of a disk": {client.ErrAnswer.Because(datadir.ErrWrite.Because(wire)), true, 0},
		} {
			if again, after := client.Retry(c.err); again != c.again || after != c.after {
				t.Errorf("%s %s: %v after %v, want %v after %v", kind.Name(), name, again, after, c.again, c.after)
			}
		}
	}
	for _, kind := range client.Kinds.Kinds {
		again, _ := client.Retry(kind)
		if want := kind == client.ErrAnswer || kind == client.ErrUnreachable; again != want {
			t.Errorf("%s: %v", kind.Name(), again)
		}
	}
}

// TestSignInPages: a good status with a body that no site writes, as of a hotel's
// sign-in page, is an odd answer to each request, and each is sent again later.
func TestSignInPages(t *testing.T) {
	for _, body := range []string{"", "<html>Please sign in", "{}", "null", "[]", `{"error":"not-found","message":"m"}`, `{"protocolVersion":"9"}`} {
		for _, r := range requests {
			err := r.do(context.Background(), at(t, "http://localhost", static(http.StatusOK, body)))
			mustBe(t, r.name+" answered "+body, err, client.ErrAnswer)
			if again, after := client.Retry(err); !again || after != 0 {
				t.Errorf("%s answered %q: %v after %v", r.name, body, again, after)
			}
		}
	}
}
