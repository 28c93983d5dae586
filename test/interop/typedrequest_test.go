//go:build unix

package interop

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/test/programs"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/rpc"
	"github.com/allodhq/allod/wire/zone/rpc/rpctest"
)

// oneOperator is an authenticator that knows one operator by one token.
type oneOperator struct{}

// Authenticate looks at the token.
func (oneOperator) Authenticate(_ context.Context, c rpc.Credential) (rpc.Principal, error) {
	if c.Token.Reveal() != rpctest.Token {
		return rpc.Principal{}, rpc.ErrCredential
	}
	return rpc.Principal{Caller: rpc.Operator, Subject: "ann"}, nil
}

// TestTypedRequest is the published client of typed requests with our carrier: a
// success, a named refusal by each side of the credential, every reason of a wrong
// message, and a refusal of the handshake, each with its data.
func TestTypedRequest(t *testing.T) {
	node := programs.Node(t, ".")
	t.Parallel()
	say := &rpc.Method{Name: "say", Session: handshake.CloudlyClient, Callers: []rpc.Caller{rpc.Operator}, Carriers: rpc.HTTP, Sensitivity: rpc.Plain}
	full := refusal.NewKind("room-full", 409, "The room is full.", "Wait until somebody has left.")
	server := carrier.NewServer(carrier.Config{
		Answers: rpc.NewServer(rpc.Config{Registry: rpc.NewRegistry(say), Authenticator: oneOperator{}, Bindings: []rpc.Binding{
			rpc.Bind(say, rpctest.Notes, rpctest.Notes, func(_ context.Context, call *rpc.Call, n rpctest.Note) (rpctest.Note, error) {
				if n.Text == "more" {
					return rpctest.Note{}, full.With("It holds four.").After(90 * time.Second)
				}
				return rpctest.Note{Text: call.Principal.Subject + " said " + n.Text}, nil
			}),
		}}),
		Clock: time.Now, Rand: rand.Reader, Log: slog.New(slog.DiscardHandler),
	})
	defer server.Close()
	web := httptest.NewServer(server)
	defer web.Close()

	offer := object{"interfacesVersion": "32.0.0", "minimumPeerVersion": "32.0.0"}
	newer := object{"interfacesVersion": "33.1.0", "minimumPeerVersion": "33.0.0"}
	identity := object{"jwt": rpctest.Token}
	cases := []struct {
		name, method string
		request      object
		want         object
	}{
		{"success", "say", object{"text": "hé", "identity": identity, "protocol": offer},
			object{"response": object{"text": "ann said hé", "protocol": offer}}},
		{"named refusal", "say", object{"text": "more", "identity": identity, "protocol": offer},
			object{"error": object{"text": "room-full: The room is full. It holds four.",
				"data": object{"code": "room-full", "detail": "It holds four.", "retryAfterMs": 90000.0}}}},
		{"refused credential", "say", object{"text": "x", "identity": object{"jwt": "no.bo.dy"}, "protocol": offer},
			object{"error": object{"text": rpc.ErrCredential.Error(), "data": object{"code": "credential-refused"}}}},
		{"wrong message", "say", object{"text": 7, "more": nil, "identity": identity, "protocol": offer},
			object{"error": object{"text": rpc.ErrSchema.Error(), "data": object{"code": "request-schema-invalid",
				"reasons": []any{"request.text must be a string", "request must use its exact schema"}}}}},
		{"no such method", "shout", object{},
			object{"error": object{"text": rpc.ErrMethod.Error(), "data": object{"code": "method-unknown"}}}},
		{"protocol refusal", "say", object{"protocol": newer, "anything": "else"},
			object{"error": object{
				"text": "protocol-incompatible: major-mismatch: refusing side speaks 32.0.0 and accepts from 32.0.0; refused side speaks 33.1.0 and accepts from 33.0.0",
				"data": object{"code": "protocol-incompatible", "reason": "major-mismatch", "refusing": offer, "refused": newer}}}},
	}
	var requests []typedRequest
	for _, c := range cases {
		requests = append(requests, typedRequest{c.method, c.request})
	}
	for i, got := range fire(t, node, web.URL, "", requests...) {
		same(t, cases[i].name, got, cases[i].want)
	}
}

// typedRequest is what the published client is to send.
type typedRequest struct {
	Method  string `json:"method"`
	Request object `json:"request"`
}

// fire has the published client send requests to an origin, and returns what became of
// each. trust is a file with the authority of its certificate, or "".
func fire(t *testing.T, node, origin, trust string, requests ...typedRequest) (results []object) {
	t.Helper()
	arguments, err := json.Marshal(requests)
	if err != nil {
		t.Fatal(err)
	}
	client := script(t, node, "typedrequest.mjs", origin+carrier.Path, string(arguments))
	if trust != "" {
		client.Env = append(os.Environ(), "NODE_EXTRA_CA_CERTS="+trust)
	}
	out, err := client.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	if err := json.Unmarshal(lines[len(lines)-1], &results); err != nil || len(results) != len(requests) {
		t.Fatalf("%v\n%s", err, out)
	}
	return results
}

// same fails where a result is another JSON than the wanted one.
func same(t *testing.T, name string, got, want object) {
	t.Helper()
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var plain object
	if err := json.Unmarshal(text, &plain); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, plain) {
		said, _ := json.Marshal(got)
		t.Errorf("%s:\n got %s\nwant %s", name, said, text)
	}
}
