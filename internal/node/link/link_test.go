package link_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/ca"
	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/node/link"
	"github.com/allodhq/allod/internal/node/spark"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/handshake"
	wire "github.com/allodhq/allod/wire/zone/spark"
)

// server answers as a test says, by TLS of an authority of its own.
type server struct {
	to          spark.Controller
	connections atomic.Int64
	requests    atomic.Int64
}

func serve(t *testing.T, clock func() time.Time, answer http.HandlerFunc) *server {
	t.Helper()
	authority, err := ca.Open(t.TempDir(), rand.Reader, clock)
	if err != nil {
		t.Fatal(err)
	}
	tls, err := authority.Server("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{}
	h := &http.Server{
		TLSConfig: tls.Config(), ReadHeaderTimeout: time.Minute, ErrorLog: nil,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				s.requests.Add(1)
			}
			answer(w, r)
		}),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				s.connections.Add(1)
			}
		},
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = h.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = h.Close(); _ = l.Close(); <-done })
	if s.to.Origin, err = enroll.ParseOrigin("https://" + l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if s.to.Pin, err = enroll.ParsePin(authority.Pin().String()); err != nil {
		t.Fatal(err)
	}
	return s
}

func dial(t *testing.T, to spark.Controller) *link.Link {
	t.Helper()
	l, err := link.New(to, time.Now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

var report = wire.Report{
	ObservedAt: 1, Host: wire.Host{
		Hostname: "one", Kernel: "6.1", OS: "Linux", Architecture: "amd64", BootID: "b1", CPUs: 1, MemoryBytes: 1, DiskBytes: 1,
	},
	Bundle: wire.Bundle{Version: "v1", SourceCommit: strings.Repeat("0", 40), ManifestDigest: canon.Sum{1}},
}

func bearer(t *testing.T) enroll.Bearer {
	t.Helper()
	b, err := enroll.NewBearer(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func response(t *testing.T, o handshake.Offer) []byte {
	t.Helper()
	text, err := wire.ResponseCodec.Append(nil, wire.Response{
		Receipt:  wire.Receipt{NodeID: "n1", CredentialGeneration: 1, SessionEpoch: 1, AcceptedAt: 5, ReportDigest: canon.Sum{2}},
		Protocol: o,
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestF11ReportsGoByOneRoute: a report is a POST to the route, of one content type, and
// many of them use one connection.
func TestF11ReportsGoByOneRoute(t *testing.T) {
	good := response(t, handshake.Ours(wire.Session))
	var bad atomic.Value
	s := serve(t, time.Now, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != wire.Path || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" || r.ContentLength > wire.MaxRequest {
			bad.Store(fmt.Sprint(r.Method, r.URL, r.Header, r.ContentLength))
		}
		_, _ = w.Write(good)
	})
	l := dial(t, s.to)
	for range 5 {
		if r, err := l.Report(t.Context(), bearer(t), report); err != nil || r.Receipt.NodeID != "n1" {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if bad.Load() != nil {
		t.Error(bad.Load())
	}
	if n := s.connections.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestF11OnlyAReceiptIsAnAnswer: of what can come instead of a receipt, each has its name,
// and nothing is an incompatible release but a refusal of the handshake as it is written.
func TestF11OnlyAReceiptIsAnAnswer(t *testing.T) {
	ours := handshake.Ours(wire.Session)
	later, err := handshake.Make("99.0.0", "99.0.0")
	if err != nil {
		t.Fatal(err)
	}
	var refused *handshake.Refusal
	if !errors.As(handshake.Negotiate(later, ours), &refused) {
		t.Fatal("the releases go together")
	}
	incompatible, err := handshake.RefusalCodec.Append(nil, *refused)
	if err != nil {
		t.Fatal(err)
	}
	good := response(t, ours)
	for what, c := range map[string]struct {
		status int
		body   []byte
		want   error
	}{
		"a receipt":                     {200, good, nil},
		"the receipt of a late release": {200, response(t, later), handshake.ErrIncompatible},
		"more than a receipt":           {200, append([]byte(`{"a":1,`), good[1:]...), link.ErrReport},
		"half a receipt":                {200, good[:len(good)/2], link.ErrReport},
		"a page":                        {200, []byte("<html>hello</html>"), link.ErrReport},
		"too much":                      {200, bytes.Repeat([]byte(" "), wire.MaxResponse+1), link.ErrReport},
		"a receipt and too much":        {200, append(bytes.Clone(good), bytes.Repeat([]byte(" "), wire.MaxResponse)...), link.ErrReport},
		"a refusal of the handshake":    {handshake.Status, incompatible, handshake.ErrIncompatible},
		"another conflict":              {409, []byte(`{"error":"protocol-incompatible"}`), carrier.ErrNotTyped},
		"a refusal by name":             {401, []byte(`{"error":"node-credential","message":"x","wayOut":"y"}`), enroll.ErrCredential},
		"a name that nobody has":        {500, []byte(`{"error":"canary"}`), carrier.ErrNotTyped},
		"a receipt that is an error":    {500, good, carrier.ErrNotTyped},
		"an empty answer":               {204, nil, carrier.ErrNotTyped},
	} {
		t.Run(what, func(t *testing.T) {
			s := serve(t, time.Now, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				_, _ = w.Write(c.body)
			})
			_, err := dial(t, s.to).Report(t.Context(), bearer(t), report)
			if (err == nil) != (c.want == nil) || !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if errors.Is(err, handshake.ErrIncompatible) != errors.Is(c.want, handshake.ErrIncompatible) {
				t.Errorf("%v counts as an incompatible release", err)
			}
			if err != nil && strings.Contains(err.Error(), "canary") {
				t.Errorf("what came is repeated: %v", err)
			}
		})
	}
}

// TestNoRedirectIsFollowed: a bearer goes to the controller and nowhere else.
func TestNoRedirectIsFollowed(t *testing.T) {
	elsewhere := serve(t, time.Now, func(http.ResponseWriter, *http.Request) {})
	s := serve(t, time.Now, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.to.Origin.String()+wire.Path, http.StatusTemporaryRedirect)
	})
	l := dial(t, s.to)
	if _, err := l.Report(t.Context(), bearer(t), report); !errors.Is(err, carrier.ErrNotTyped) {
		t.Error(err)
	}
	if _, err := l.Credential(t.Context(), bearer(t)); !errors.Is(err, carrier.ErrNotTyped) {
		t.Error(err)
	}
	if elsewhere.connections.Load() != 0 {
		t.Error("it was followed")
	}
}

// TestF08NothingIsSentToAnother: before the server has proved the pinned authority and
// its host, no byte of a request is sent.
func TestF08NothingIsSentToAnother(t *testing.T) {
	s := serve(t, time.Now, func(http.ResponseWriter, *http.Request) {})
	other := serve(t, time.Now, func(http.ResponseWriter, *http.Request) {})
	wrong := spark.Controller{Origin: s.to.Origin, Pin: other.to.Pin}
	public := spark.Controller{Origin: s.to.Origin}
	for _, to := range []spark.Controller{wrong, public} {
		l := dial(t, to)
		if _, err := l.Credential(t.Context(), bearer(t)); !errors.Is(err, ca.ErrPin) {
			t.Errorf("asked: %v", err)
		}
		if _, err := l.Report(t.Context(), bearer(t), report); !errors.Is(err, ca.ErrPin) {
			t.Errorf("reported: %v", err)
		}
	}
	if n := s.requests.Load(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// TestF08ClocksAreTold: a certificate that is not valid yet by this machine's clock is
// refused with the difference of the clocks, and nothing is sent.
func TestF08ClocksAreTold(t *testing.T) {
	const ahead = 50 * time.Hour
	clock := func() time.Time { return time.Now().Add(ahead) }
	s := serve(t, clock, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", clock().UTC().Format(http.TimeFormat))
	})
	l := dial(t, s.to)
	for what, ask := range map[string]func() error{
		"credential": func() error { _, err := l.Credential(t.Context(), bearer(t)); return err },
		"report":     func() error { _, err := l.Report(t.Context(), bearer(t), report); return err },
	} {
		var e *ca.ClockError
		if err := ask(); !errors.As(err, &e) || !errors.Is(err, ca.ErrClock) || !e.Known || (e.Ahead+ahead).Abs() > 5*time.Second {
			t.Errorf("%s: %v, %+v", what, err, e)
		}
	}
	if n := s.requests.Load(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	if r, err := l.Clocks(t.Context()); err != nil || (r.Ahead()+ahead).Abs() > 5*time.Second {
		t.Errorf("%v, %v", r.Ahead(), err)
	}
}

// TestSilence: who does not answer is not waited for longer than the caller does.
func TestSilence(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, time.Now, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	l := dial(t, s.to)
	if _, err := l.Report(ctx, bearer(t), report); !errors.Is(err, carrier.ErrNoAnswer) {
		t.Error(err)
	}
	gone := spark.Controller{Origin: s.to.Origin, Pin: s.to.Pin}
	gone.Origin, _ = enroll.ParseOrigin("https://127.0.0.1:1")
	if _, err := dial(t, gone).Report(t.Context(), bearer(t), report); !errors.Is(err, carrier.ErrUnreachable) {
		t.Error(err)
	}
}
