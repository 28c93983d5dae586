package carrier_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/wire/zone/rpc"
	"github.com/allodhq/allod/wire/zone/rpc/rpctest"
)

// TestOverTLSWithHTTP2 uses real sockets: requests go by HTTP/2 where both sides
// have it, and WebSockets, which need HTTP/1.1, work by the same client.
func TestOverTLSWithHTTP2(t *testing.T) {
	w := &world{t: t, revoked: map[string]bool{}, ends: time.Hour}
	w.handle = func(_ context.Context, _ *rpc.Call, text string) (string, error) { return "said " + text, nil }
	notes := func(m *rpc.Method) rpc.Binding { return rpc.Bind(m, rpctest.Notes, rpctest.Notes, w.serve) }
	log := slog.New(slog.DiscardHandler)
	server := carrier.NewServer(carrier.Config{
		Answers: rpc.NewServer(rpc.Config{Registry: serverTable, Authenticator: w, Bindings: []rpc.Binding{notes(say), notes(register), notes(observe)}}),
		Clock:   time.Now, Rand: rand.Reader, Log: log,
	})
	web := httptest.NewUnstartedServer(server)
	web.EnableHTTP2 = true
	web.StartTLS()
	defer web.Close()
	defer server.Close()

	c := carrier.NewClient(web.URL+carrier.Path, web.Client(), rand.Reader)
	if got, err := call(t.Context(), c, say, "x", carrier.Proof{Token: token}); got != "said x" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	k, err := carrier.Dial(t.Context(), "wss"+strings.TrimPrefix(web.URL, "https")+carrier.Path, carrier.DialConfig{
		HTTP: web.Client(), Clock: time.Now, Rand: rand.Reader, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if _, err := call(t.Context(), k, register, "x", carrier.Proof{Bearer: bearerOf("node-a")}); err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("é", 60<<10)
	if got, err := call(t.Context(), k, observe, large, carrier.Proof{}); got != "said "+large || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
