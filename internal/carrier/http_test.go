package carrier_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/rpc"
	"github.com/allodhq/allod/wire/zone/rpc/rpctest"
)

func TestHTTPCarriesSuccessAndRefusals(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		got, err := call(t.Context(), w.client(), say, "hé", carrier.Proof{Token: token})
		if got != "said hé" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		w.set(func(context.Context, *rpc.Call, string) (string, error) {
			return "", rpc.ErrSessionOther.With("It is so.").After(3 * time.Second)
		})
		_, err = call(t.Context(), w.client(), say, "x", carrier.Proof{Token: token})
		if r := refusal.From(err); r.Kind() != rpc.ErrSessionOther || r.Detail() != "It is so." || r.RetryAfter() != 3*time.Second {
			t.Errorf("%v", err)
		}
		admin := carrier.NewAdminClient("/admin"+carrier.Path, w.http(), rand.Reader)
		w.set(func(_ context.Context, c *rpc.Call, _ string) (string, error) { return c.Principal.Subject, nil })
		if got, err := call(t.Context(), admin, say, "x", carrier.Proof{}); got != "local" || err != nil {
			t.Errorf("on the admin socket: %q, %v", got, err)
		}
	})
}

// post sends a body as it is.
func (w *world) post(change func(r *http.Request), body io.Reader) (int, string, http.Header) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://controller.test"+carrier.Path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(r)
	}
	c := w.http()
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	a, err := c.Do(r)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer func() { _ = a.Body.Close() }()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return a.StatusCode, string(text), a.Header
}

func TestHTTPStatuses(t *testing.T) {
	good := ask("say", "i", `"text":"x","identity":{"jwt":"`+rpctest.Token+`"},`+goodOffer)
	header := func(name, value string) func(r *http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for name, c := range map[string]struct {
		change func(r *http.Request)
		status int
		want   string
	}{
		"good":            {nil, 200, `"response":{"text":"said x"`},
		"charset":         {header("Content-Type", `application/json; charset=UTF-8`), 200, `"response"`},
		"no type":         {func(r *http.Request) { r.Header.Del("Content-Type") }, 415, "carrier-media-type"},
		"form":            {header("Content-Type", "text/plain"), 415, "carrier-media-type"},
		"other charset":   {header("Content-Type", "application/json; charset=latin1"), 415, "carrier-media-type"},
		"compressed":      {header("Content-Encoding", "gzip"), 415, "carrier-media-type"},
		"put":             {func(r *http.Request) { r.Method = "PUT" }, 405, "carrier-verb"},
		"get":             {func(r *http.Request) { r.Method = "GET" }, 405, "carrier-verb"},
		"own page":        {header("Origin", "http://controller.test"), 200, `"response"`},
		"own page, other": {header("Origin", "https://controller.test"), 403, "carrier-origin"},
		"own port, other": {header("Origin", "http://controller.test:81"), 403, "carrier-origin"},
		"allowed page":    {header("Origin", "https://console.example.org"), 200, `"response"`},
		"foreign page":    {header("Origin", "https://evil.example.org"), 403, "carrier-origin"},
		"no page":         {header("Origin", "null"), 403, "carrier-origin"},
		"empty":           {header("Origin", ""), 403, "carrier-origin"},
		"suffix":          {header("Origin", "http://controller.test.evil.example"), 403, "carrier-origin"},
		"userinfo":        {header("Origin", "http://controller.test@evil.example"), 403, "carrier-origin"},
		"two pages": {func(r *http.Request) {
			r.Header["Origin"] = []string{"http://controller.test", "https://evil.example"}
		}, 403, "carrier-origin"},
		"broken upgrade": {func(r *http.Request) {
			r.Method = "GET"
			r.Header.Set("Upgrade", "websocket")
			r.Header.Set("Connection", "canary-5d")
		}, 400, "carrier-upgrade"},
	} {
		bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
			status, body, h := w.post(c.change, strings.NewReader(good))
			if status != c.status || !strings.Contains(body, c.want) || strings.Contains(body, "canary") {
				t.Errorf("%s: %d %s", name, status, body)
			}
			if h.Get("Content-Type") != "application/json" || h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: headers %v", name, h)
			}
			if c.status != 200 && w.count() != 0 {
				t.Errorf("%s: a handler was reached", name)
			}
		})
	}
}

func TestHTTPHostileBodies(t *testing.T) {
	inside := `"request":{"text":"x","identity":{"jwt":"` + rpctest.Token + `"},` + goodOffer + `},"correlation":{"id":"i","phase":"request"}`
	for name, c := range map[string]struct{ body, want string }{
		"empty":     {``, "request-envelope-invalid"},
		"truncated": {`{"method":"say",` + inside, "request-envelope-invalid"},
		"deep":      {strings.Repeat(`[`, 60000), "request-envelope-invalid"},
		"duplicate": {`{"method":"say","method":"say",` + inside + `}`, "request-envelope-invalid"},
		"duplicate inside": {`{"method":"say","request":{"text":"x","text":"y"},"correlation":{"id":"i","phase":"request"}}`,
			"request-envelope-invalid"},
		"huge":        {`{"method":"say",` + inside + `}` + strings.Repeat(" ", 1<<20), "typed-request-too-large"},
		"huge text":   {strings.Repeat("x", 4<<20), "typed-request-too-large"},
		"socket only": {ask("observe", "i", `"text":"x"`), "method-not-on-carrier"},
		"registration": {registration("node-a"),
			"method-not-on-carrier"},
	} {
		bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
			status, body, _ := w.post(nil, strings.NewReader(c.body))
			if status == 0 && strings.HasPrefix(name, "huge") {
				return // cut while it was sending is as good
			}
			if status != 200 || !strings.Contains(body, `"code":"`+c.want+`"`) {
				t.Errorf("%s: %d %s", name, status, body)
			}
			if w.count() != 0 {
				t.Errorf("%s: a handler was reached", name)
			}
		})
	}
}

// TestHTTPHugeBodyIsNotRead: of an endless body, no more than the bound is taken.
func TestHTTPHugeBodyIsNotRead(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		endless := &counting{}
		status, body, _ := w.post(nil, endless)
		if status != 0 && !strings.Contains(body, "typed-request-too-large") {
			t.Errorf("%d %s", status, body)
		}
		if n := endless.n.Load(); n > 1<<20 {
			t.Errorf("%d bytes were taken", n)
		}
	})
}

type counting struct{ n atomic.Int64 }

func (c *counting) Read(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// TestHTTPSlowBodyIsCut: a body that does not arrive in its time is refused.
func TestHTTPSlowBodyIsCut(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		began := time.Now()
		r, out := io.Pipe()
		defer func() { _ = out.Close() }()
		go func() { _, _ = out.Write([]byte(`{"method":`)) }()
		status, body, _ := w.post(nil, r)
		if took := time.Since(began); took < 30*time.Second || took > 40*time.Second {
			t.Errorf("cut after %v", took)
		}
		if status != 0 && !strings.Contains(body, "carrier-body") {
			t.Errorf("%d %s", status, body)
		}
	})
}

func TestHTTPWorkTimeBoundsAHandler(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		w.set(func(ctx context.Context, _ *rpc.Call, _ string) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
		began := time.Now()
		_, err := call(t.Context(), w.client(), say, "x", carrier.Proof{Token: token})
		wants(t, "a handler without an end", err, rpc.ErrDeadline)
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("after %v", took)
		}
	})
}

func TestHTTPRequestsAreBounded(t *testing.T) {
	bubble(t, carrier.Limits{Requests: 3, RequestsPerAddress: 2}, func(t *testing.T, w *world) {
		hold := make(chan struct{})
		w.set(func(context.Context, *rpc.Call, string) (string, error) { <-hold; return "late", nil })
		from := func(at string) *carrier.Client {
			return carrier.NewClient("http://controller.test"+carrier.Path, &http.Client{Transport: &http.Transport{
				DialContext:       func(context.Context, string, string) (net.Conn, error) { return w.listener.dial(at) },
				DisableKeepAlives: true,
			}}, rand.Reader)
		}
		done := make(chan error, 3)
		for _, at := range []string{"192.0.2.7:1", "192.0.2.7:2", "[2001:db8::1]:1"} {
			go func() { _, err := call(t.Context(), from(at), say, "x", carrier.Proof{Token: token}); done <- err }()
			synctest.Wait()
			if at == "192.0.2.7:2" {
				_, err := call(t.Context(), from("192.0.2.7:3"), say, "x", carrier.Proof{Token: token})
				wants(t, "the third of one address", err, carrier.ErrAddressCrowded)
				if refusal.From(err).RetryAfter() != 5*time.Second {
					t.Errorf("waits %v", refusal.From(err).RetryAfter())
				}
			}
		}
		_, err := call(t.Context(), from("198.51.100.1:1"), say, "x", carrier.Proof{Token: token})
		wants(t, "the fourth", err, carrier.ErrCrowded)
		close(hold)
		for range 3 {
			wants(t, "one of the three", <-done, nil)
		}
		_, err = call(t.Context(), from("192.0.2.7:4"), say, "x", carrier.Proof{Token: token})
		wants(t, "after the others", err, nil)
	})
}

// Strangers who take every place must not keep the administrator from the machine
// that they attack.
func TestHTTPACrowdLeavesTheAdminSocketOpen(t *testing.T) {
	bubble(t, carrier.Limits{Requests: 2, RequestsPerAddress: 2}, func(t *testing.T, w *world) {
		var slow []*io.PipeWriter
		for range 2 {
			r, held := io.Pipe()
			slow = append(slow, held)
			q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://controller.test"+carrier.Path, r)
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("Content-Type", "application/json")
			go func() {
				if a, err := w.http().Do(q); err == nil {
					_ = a.Body.Close()
				}
			}()
		}
		synctest.Wait()
		_, err := call(t.Context(), w.client(), say, "x", carrier.Proof{Token: token})
		wants(t, "a third", err, carrier.ErrCrowded)
		admin := func() error {
			_, err := call(t.Context(), carrier.NewAdminClient("/admin"+carrier.Path, w.http(), rand.Reader), say, "x", carrier.Proof{})
			return err
		}
		if err := admin(); err != nil {
			t.Errorf("the administrator: %v", err)
		}
		// They are bounded too, among themselves.
		hold := make(chan struct{})
		w.set(func(context.Context, *rpc.Call, string) (string, error) { <-hold; return "late", nil })
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- admin() }()
		}
		synctest.Wait()
		if err := admin(); !errors.Is(err, carrier.ErrAddressCrowded) && !errors.Is(err, carrier.ErrCrowded) {
			t.Errorf("a third administrator: %v", err)
		}
		close(hold)
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		for _, held := range slow {
			_ = held.Close()
		}
	})
}

// answering is a client whose other side answers with that.
func answering(status int, header http.Header, body string) *carrier.Client {
	return carrier.NewClient("http://controller.test"+carrier.Path, &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		if _, err := io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		if header == nil {
			header = http.Header{}
		}
		return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	})}, rand.Reader)
}

type transport func(r *http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestF03ClientTakesOnlyAnExactRefusalForOne(t *testing.T) {
	const exact = `{"code":"protocol-incompatible","reason":"major-mismatch","refusing":{"interfacesVersion":"33.0.0","minimumPeerVersion":"33.0.0"},"refused":{"interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.0"}}`
	for name, c := range map[string]struct {
		status int
		body   string
		want   error
	}{
		"exact":            {409, exact, handshake.ErrIncompatible},
		"another status":   {400, exact, handshake.ErrIncompatible},
		"in an answer":     {200, `{"method":"say","error":{"text":"protocol-incompatible: x","data":` + exact + `}}`, handshake.ErrIncompatible},
		"status alone":     {409, ``, carrier.ErrNotTyped},
		"code alone":       {409, `{"error":"protocol-incompatible","message":"x","wayOut":"y"}`, carrier.ErrNotTyped},
		"almost":           {409, strings.Replace(exact, "}}", `},"more":1}`, 1), carrier.ErrNotTyped},
		"code in answer":   {200, `{"method":"say","error":{"text":"protocol-incompatible: x","data":{"code":"protocol-incompatible"}}}`, rpc.ErrForeign},
		"named":            {429, `{"error":"carrier-address-crowded","message":"x","wayOut":"y","retryAfter":7}`, carrier.ErrAddressCrowded},
		"unknown name":     {400, `{"error":"never-heard-of","message":"x","wayOut":"y"}`, carrier.ErrNotTyped},
		"another's page":   {502, `<html>Bad Gateway</html>`, carrier.ErrNotTyped},
		"page with 200":    {200, `<html>Sign in</html>`, carrier.ErrNotTyped},
		"empty with 200":   {200, ``, carrier.ErrNotTyped},
		"large with 200":   {200, `{"method":"say","response":{}}` + strings.Repeat(" ", 2<<20), carrier.ErrNotTyped},
		"redirect":         {307, ``, carrier.ErrNotTyped},
		"someone's answer": {200, `{"method":"say","response":{"text":"x"},"correlation":{"id":"other","phase":"response"}}`, rpc.ErrAnswer},
	} {
		_, err := call(t.Context(), answering(c.status, http.Header{"Location": {"http://evil.example/"}}, c.body), say, "x", carrier.Proof{Token: token})
		wants(t, name, err, c.want)
		var i *rpc.Incompatible
		if errors.As(err, &i) != (c.want == handshake.ErrIncompatible) || i != nil && i.Wait() != 300*time.Second {
			t.Errorf("%s: %v", name, err)
		}
		if name == "named" && refusal.From(err).RetryAfter() != 7*time.Second {
			t.Errorf("waits %v", refusal.From(err).RetryAfter())
		}
	}
}

func TestClientNamesBrokenConnections(t *testing.T) {
	broken := carrier.NewClient("http://controller.test/", &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
		return nil, errors.New("no route")
	})}, rand.Reader)
	_, err := call(t.Context(), broken, say, "x", carrier.Proof{Token: token})
	wants(t, "no connection", err, carrier.ErrUnreachable)

	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		w.set(func(ctx context.Context, _ *rpc.Call, _ string) (string, error) { <-ctx.Done(); return "", ctx.Err() })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := call(ctx, w.client(), say, "x", carrier.Proof{Token: token})
		wants(t, "no answer in time", err, carrier.ErrNoAnswer)
		synctest.Wait()
	})
}

func TestGuardBoundsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		g := carrier.Guard(m, 3, 2)
		got := make(chan net.Conn, 9)
		go func() {
			for {
				c, err := g.Accept()
				if err != nil {
					close(got)
					return
				}
				got <- c
			}
		}()
		knock := func(from string) {
			t.Helper()
			if _, err := m.direct(from); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		for _, from := range []string{"192.0.2.1:1", "192.0.2.1:2", "192.0.2.1:3", "[2001:db8::1]:1", "[2001:db8::ffff:2]:1", "198.51.100.1:1"} {
			knock(from)
		}
		if len(got) != 3 {
			t.Fatalf("%d are inside", len(got))
		}
		first := <-got
		_ = first.Close()
		_ = first.Close() // counts once
		knock("192.0.2.1:4")
		knock("192.0.2.1:5")
		if len(got) != 3 {
			t.Errorf("after one has left, %d came in", len(got)-2)
		}
		_ = g.Close()
		for range got {
		}
	})
}
