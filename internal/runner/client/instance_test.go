package client_test

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/instance"
)

// TestInstance: every signed request names the program, and a refusal as one of
// two is told from any other.
func TestInstance(t *testing.T) {
	id := instance.ID{1, 2, 3}
	for name, c := range map[string]struct {
		id     instance.ID
		status int
		code   string
		header string
		want   error
	}{
		"one of two":                    {id, 403, "forbidden", "two-agents", client.ErrTwoAgents},
		"another refusal":               {id, 403, "forbidden", "", ai.ErrForbidden},
		"another word":                  {id, 403, "forbidden", "two-agents, or so", ai.ErrForbidden},
		"another code":                  {id, 403, "revoked", "two-agents", ai.ErrRevoked},
		"another status":                {id, 502, "forbidden", "two-agents", client.ErrUnreachable},
		"a program that does not say":   {instance.ID{}, 403, "forbidden", "two-agents", ai.ErrForbidden},
		"an answer that is no refusal":  {id, 403, "", "two-agents", client.ErrAnswer},
		"a redirect with the same word": {id, 302, "forbidden", "two-agents", client.ErrAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			var sent []string
			cl := client.New(client.Config{
				Server: serverAt(t, "http://localhost"), Version: "1", Clock: func() time.Time { return t0 }, Instance: c.id,
				Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					sent = append(sent, r.Header.Get(instance.Header))
					body := `{"error":"` + c.code + `","message":"m"}`
					head := http.Header{}
					head.Set(instance.Conflict, c.header)
					return &http.Response{StatusCode: c.status, Header: head, Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1, Request: r}, nil
				}),
			})
			d := cl.As("runner_1", keysOf(t).Signer())
			for _, err := range []error{
				second(d.Heartbeat(t.Context(), 0, ai.HeartbeatRequest{ActiveLeases: []ai.Grant{}})),
				second(d.Claim(t.Context(), 0, ai.ClaimRequest{Max: 1})),
			} {
				if !errors.Is(err, c.want) || errors.Is(err, client.ErrTwoAgents) != (c.want == client.ErrTwoAgents) {
					t.Errorf("%v, want %v", err, c.want)
				}
			}
			// Pairing is not signed, and says nothing.
			if err := second(cl.PairPoll(t.Context(), ai.PairPollRequest{DeviceCode: ai.DeviceCode(strings.Repeat("c", 43))})); errors.Is(err, client.ErrTwoAgents) {
				t.Errorf("a pairing: %v", err)
			}
			said := ""
			if !c.id.IsZero() {
				said = c.id.String()
			}
			if want := []string{said, said, ""}; !slices.Equal(sent, want) {
				t.Errorf("it calls itself %q, want %q", sent, want)
			}
		})
	}
	if again, _ := client.Retry(client.ErrTwoAgents); again {
		t.Error("it is asked again")
	}
}

func second[A any](_ A, err error) error { return err }
