package carrier_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/rpc"
	"github.com/allodhq/allod/wire/zone/rpc/rpctest"
)

func echo(_ context.Context, call *rpc.Call, n rpctest.Note) (rpctest.Note, error) {
	return rpctest.Note{Text: string(call.Principal.Caller) + " told " + n.Text}, nil
}

func everyone(rpc.Principal) bool { return true }

func TestSocketCarriesBothDirections(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		k := w.dial(echo)
		_, err := call(t.Context(), k, observe, "x", carrier.Proof{})
		wants(t, "before a session", err, rpc.ErrNoSession)
		if n := len(w.server.Sockets(everyone)); n != 0 {
			t.Errorf("%d sockets have a session", n)
		}

		got, err := call(t.Context(), k, register, "x", carrier.Proof{Bearer: bearerOf("node-a")})
		if got != "said x" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
		if got, err = call(t.Context(), k, observe, "hé", carrier.Proof{}); got != "said hé" || err != nil {
			t.Errorf("%q, %v", got, err)
		}

		synctest.Wait() // for the server to know that it is out
		there := w.server.Sockets(func(p rpc.Principal) bool { return p.Subject == "node-a" })
		if len(there) != 1 || len(w.server.Sockets(func(p rpc.Principal) bool { return p.Subject == "node-b" })) != 0 {
			t.Fatalf("%d sockets of node-a", len(there))
		}
		if got, err = call(t.Context(), there[0], apply, "it", carrier.Proof{}); got != "controller told it" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if there[0].Peer() != "192.0.2.1" {
			t.Errorf("the peer is %q", there[0].Peer())
		}
		k.Close()
		synctest.Wait()
		if len(w.server.Sockets(everyone)) != 0 {
			t.Error("a closed socket stays")
		}
		_, err = call(t.Context(), there[0], apply, "it", carrier.Proof{})
		wants(t, "after the end", err, carrier.ErrUnreachable)
		_, err = call(t.Context(), k, observe, "x", carrier.Proof{})
		wants(t, "at the other end", err, carrier.ErrUnreachable)
	})
}

// TestSocketFirstCallOfTheServer: it may come right behind the answer that opens
// the session.
func TestSocketFirstCallOfTheServer(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		for range 20 {
			told := make(chan string, 1)
			k := w.dial(func(_ context.Context, _ *rpc.Call, n rpctest.Note) (rpctest.Note, error) {
				told <- n.Text
				return n, nil
			})
			go func() {
				for len(w.server.Sockets(everyone)) == 0 {
					time.Sleep(time.Microsecond)
				}
				_, err := call(t.Context(), w.server.Sockets(everyone)[0], apply, "at once", carrier.Proof{})
				wants(t, "the first call", err, nil)
			}()
			if _, err := call(t.Context(), k, register, "x", carrier.Proof{Bearer: bearerOf("node-a")}); err != nil {
				t.Fatal(err)
			}
			<-told
			synctest.Wait()
			k.Close()
			synctest.Wait()
		}
	})
}

func TestSocketWithoutAnswersRefusesTheServersCalls(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		defer w.node("node-a", nil).Close()
		synctest.Wait()
		_, err := call(t.Context(), w.server.Sockets(everyone)[0], apply, "x", carrier.Proof{})
		wants(t, "a node without methods", err, rpc.ErrMethod)
	})
}

func TestMethodsStayOnTheirCarriers(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		k := w.node("node-a", nil)
		defer k.Close()
		_, err := call(t.Context(), k, enroll, "x", carrier.Proof{})
		wants(t, "our own client", err, rpc.ErrCarrier)
		c := w.raw()
		for _, m := range []string{"enroll", "say"} {
			if got := w.exchange(c, ask(m, "i", `"text":"x",`+goodOffer)); !strings.Contains(got, "method-not-on-carrier") {
				t.Errorf("%s on a socket: %s", m, got)
			}
		}
		_ = c.CloseNow()
	})
}

// exchange writes one message and reads one.
func (w *world) exchange(c *websocket.Conn, body string) string {
	w.t.Helper()
	if err := c.Write(w.t.Context(), websocket.MessageText, []byte(body)); err != nil {
		w.t.Fatal(err)
	}
	_, got, err := c.Read(w.t.Context())
	if err != nil {
		return err.Error()
	}
	return string(got)
}

func TestF03RefusedRegistrationOpensNothing(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		c := w.raw()
		defer func() { _ = c.CloseNow() }()
		got := w.exchange(c, ask("register", "r", `"bearer":7,"protocol":{"interfacesVersion":"33.1.0","minimumPeerVersion":"33.0.0"}`))
		if !strings.Contains(got, `"text":"protocol-incompatible: major-mismatch: `) || w.count() != 0 {
			t.Errorf("%s", got)
		}
		if got := w.exchange(c, ask("observe", "o", `"text":"x"`)); !strings.Contains(got, "session-required") {
			t.Errorf("%s", got)
		}
		// A refusal costs nothing: the same socket may try again.
		if got := w.exchange(c, registration("node-a")); !strings.Contains(got, `"response":{"text":"said x"`) {
			t.Errorf("%s", got)
		}
	})
}

func TestF36CallerCannotSetTheTag(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		c := w.raw()
		defer func() { _ = c.CloseNow() }()
		w.exchange(c, registration("node-a"))
		var who rpc.Principal
		w.set(func(_ context.Context, call *rpc.Call, _ string) (string, error) {
			who = call.Principal
			return "", nil
		})
		w.exchange(c, ask("observe", "o", `"text":"x"`))
		if who.Subject != "node-a" {
			t.Errorf("the principal is %v", who)
		}
		for _, more := range []string{`,"identity":{"jwt":"` + rpctest.Token + `"}`, `,"bearer":"` + bearerOf("node-b").Reveal() + `"`, `,"nodeId":"node-b"`, `,"session":{}`} {
			if got := w.exchange(c, ask("observe", "o", `"text":"x"`+more)); !strings.Contains(got, "request-schema-invalid") {
				t.Errorf("%s: %s", more, got)
			}
		}
		if got := w.exchange(c, registration("node-b")); !strings.Contains(got, "session-of-another") {
			t.Errorf("as another: %s", got)
		}
		if len(w.server.Sockets(func(p rpc.Principal) bool { return p.Subject == "node-b" })) != 0 {
			t.Error("the tag has changed")
		}
	})
}

func TestF36TagIsDroppedAtItsEnd(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		w.lives(time.Minute)
		k := w.node("node-a", nil)
		time.Sleep(time.Minute - time.Millisecond)
		_, err := call(t.Context(), k, observe, "x", carrier.Proof{})
		wants(t, "before the end", err, nil)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if len(w.server.Sockets(everyone)) != 0 {
			t.Error("the tag outlives its end")
		}
		_, err = call(t.Context(), k, observe, "x", carrier.Proof{})
		wants(t, "after the end", err, rpc.ErrNoSession)
		// A new session on the same socket, which then lives its own time.
		if _, err = call(t.Context(), k, register, "x", carrier.Proof{Bearer: bearerOf("node-a")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Second)
		_, err = call(t.Context(), k, observe, "x", carrier.Proof{})
		wants(t, "in the second session", err, nil)
		time.Sleep(30 * time.Second)
		<-k.Done() // nobody opened a third one
		wants(t, "the socket", k.Err(), rpc.ErrNoSession)
		k.Close()
	})
}

// TestSessionRenewedBeforeItsEnd lives by the new end.
func TestSessionRenewedBeforeItsEnd(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		w.lives(time.Minute)
		k := w.node("node-a", nil)
		defer k.Close()
		for range 3 {
			time.Sleep(45 * time.Second)
			if _, err := call(t.Context(), k, register, "x", carrier.Proof{Bearer: bearerOf("node-a")}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(59 * time.Second)
		_, err := call(t.Context(), k, observe, "x", carrier.Proof{})
		wants(t, "in the renewed session", err, nil)
	})
}

func TestF36RevocationCountsAtOnceAndDropEndsTheSocket(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		a, b := w.node("node-a", nil), w.node("node-b", nil)
		defer b.Close()
		w.mu.Lock()
		w.revoked["node-a"] = true
		w.mu.Unlock()
		before := w.count()
		_, err := call(t.Context(), a, observe, "x", carrier.Proof{})
		wants(t, "the next request", err, rpc.ErrCredential)
		if w.count() != before {
			t.Error("a handler was reached")
		}
		if n := w.server.Drop(func(p rpc.Principal) bool { return p.Subject == "node-a" }); n != 1 {
			t.Errorf("%d sockets were dropped", n)
		}
		<-a.Done()
		wants(t, "the dropped socket", a.Err(), rpc.ErrSessionOver)
		a.Close()
		_, err = call(t.Context(), b, observe, "x", carrier.Proof{})
		wants(t, "the other node", err, nil)
	})
}

// TestDropMeetsASessionThatIsBeingOpened: between the handler's commit and the tag,
// a revocation must not get lost.
func TestDropMeetsASessionThatIsBeingOpened(t *testing.T) {
	for name, subject := range map[string]string{"its own": "node-a", "another's": "node-b"} {
		bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
			w.set(func(_ context.Context, call *rpc.Call, _ string) (string, error) {
				if call.Method == register {
					w.server.Drop(func(p rpc.Principal) bool { return p.Subject == subject })
				}
				return "", nil
			})
			k := w.dial(nil)
			_, _ = call(t.Context(), k, register, "x", carrier.Proof{Bearer: bearerOf("node-a")})
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if left := len(w.server.Sockets(everyone)); (left == 0) != (subject == "node-a") {
				t.Errorf("%s: %d sockets are left", name, left)
			}
			k.Close()
		})
	}
}

// TestRegisteringAgainMayDropTheOlderEpoch: of the same node, on the same socket.
func TestRegisteringAgainMayDropTheOlderEpoch(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		k := w.node("node-a", nil)
		defer k.Close()
		older := w.node("node-a", nil)
		defer older.Close()
		w.mu.Lock()
		w.epoch = 1
		w.mu.Unlock()
		w.set(func(_ context.Context, call *rpc.Call, _ string) (string, error) {
			if call.Method == register {
				w.server.Drop(func(p rpc.Principal) bool { return p.Subject == "node-a" && p.Epoch < 1 })
			}
			return "", nil
		})
		_, err := call(t.Context(), k, register, "x", carrier.Proof{Bearer: bearerOf("node-a")})
		wants(t, "registering again", err, nil)
		<-older.Done()
		time.Sleep(5 * time.Second)
		_, err = call(t.Context(), k, observe, "x", carrier.Proof{})
		wants(t, "in the new session", err, nil)
	})
}

func TestSocketWithoutASessionIsCut(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		k := w.dial(nil)
		began := time.Now()
		for range 9 { // asking for something else does not keep it open
			time.Sleep(time.Second)
			_, err := call(t.Context(), k, observe, "x", carrier.Proof{})
			wants(t, "without a session", err, rpc.ErrNoSession)
		}
		<-k.Done()
		if took := time.Since(began); took < 10*time.Second || took > 14*time.Second {
			t.Errorf("cut after %v", took)
		}
		wants(t, "the socket", k.Err(), rpc.ErrNoSession)
		k.Close()
	})
}

func TestSocketsAreBounded(t *testing.T) {
	bubble(t, carrier.Limits{Sockets: 3, SocketsPerAddress: 2}, func(t *testing.T, w *world) {
		from := func(at string) (*carrier.Socket, error) {
			return carrier.Dial(t.Context(), "ws://controller.test"+carrier.Path, carrier.DialConfig{
				HTTP: &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
					return w.listener.dial(at)
				}}}, Clock: time.Now,
			})
		}
		open := func(at string, want error) *carrier.Socket {
			t.Helper()
			k, err := from(at)
			wants(t, at, err, want)
			return k
		}
		a := open("[2001:db8:0:1::1]:1", nil)
		b := open("[2001:db8:0:1:ffff::2]:1", nil)
		open("[2001:db8:0:1::3]:1", carrier.ErrAddressCrowded)
		c := open("[2001:db8:0:2::1]:1", nil)
		open("192.0.2.1:1", carrier.ErrCrowded)
		a.Close()
		synctest.Wait()
		d := open("[2001:db8:0:1::3]:2", nil)
		for _, k := range []*carrier.Socket{b, c, d} {
			k.Close()
		}
	})
}

func TestSocketOriginOfBrowsers(t *testing.T) {
	for origin, status := range map[string]int{
		"": 0, "http://controller.test": 0, "https://console.example.org": 0,
		"https://evil.example.org": 403, "null": 403, "http://controller.test:8080": 403,
	} {
		bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
			h := http.Header{}
			if origin != "" {
				h.Set("Origin", origin)
			}
			c, a, err := websocket.Dial(t.Context(), "ws://controller.test"+carrier.Path, &websocket.DialOptions{HTTPClient: w.http(), HTTPHeader: h})
			if status == 0 {
				if err != nil {
					t.Errorf("%s: %v", origin, err)
				} else {
					_ = c.CloseNow()
				}
				return
			}
			if err == nil || a.StatusCode != status {
				t.Errorf("%s: %v", origin, err)
			}
		})
	}
}

func TestCallsHaveDeadlinesAndLateAnswersAreIgnored(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		k := w.node("node-a", nil)
		defer k.Close()
		w.set(func(_ context.Context, _ *rpc.Call, text string) (string, error) {
			if text == "slow" {
				time.Sleep(5 * time.Second)
			}
			return text, nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := call(ctx, k, observe, "slow", carrier.Proof{})
		wants(t, "a slow answer", err, carrier.ErrNoAnswer)
		time.Sleep(10 * time.Second) // it comes meanwhile
		if got, err := call(t.Context(), k, observe, "quick", carrier.Proof{}); got != "quick" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		// Without an end of its own, a call waits for a minute.
		w.set(func(context.Context, *rpc.Call, string) (string, error) { time.Sleep(2 * time.Minute); return "", nil })
		began := time.Now()
		_, err = call(t.Context(), k, observe, "x", carrier.Proof{})
		wants(t, "no answer at all", err, carrier.ErrNoAnswer)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("waited %v", took)
		}
		time.Sleep(2 * time.Minute)
	})
}

func TestCallsOfOurClientWaitForTheirTurn(t *testing.T) {
	bubble(t, carrier.Limits{Concurrent: 16}, func(t *testing.T, w *world) {
		k := w.node("node-a", nil)
		defer k.Close()
		w.set(func(_ context.Context, _ *rpc.Call, text string) (string, error) {
			time.Sleep(time.Second)
			return text, nil
		})
		var wg sync.WaitGroup
		busy := 0
		var mu sync.Mutex
		for i := range 100 {
			wg.Go(func() {
				text := fmt.Sprint(i)
				got, err := call(t.Context(), k, observe, text, carrier.Proof{})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case errors.Is(err, carrier.ErrBusy):
					busy++
				case err != nil || got != text:
					t.Errorf("%s: %q, %v", text, got, err)
				}
			})
		}
		wg.Wait()
		if most := w.crowd(); most > 16 {
			t.Errorf("%d handlers at once", most)
		}
		if busy == 0 || busy > 84 {
			t.Errorf("%d were refused as too many", busy)
		}
	})
}

func TestOneRequestAtATimeBeforeASession(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		w.set(func(context.Context, *rpc.Call, string) (string, error) { time.Sleep(time.Second); return "", nil })
		c := w.raw()
		defer func() { _ = c.CloseNow() }()
		go func() {
			for range 3 {
				_ = c.Write(t.Context(), websocket.MessageText, []byte(registration("node-a")))
			}
		}()
		busy := 0
		for range 3 {
			_, got, err := c.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(got), "socket-busy") {
				busy++
			}
		}
		if busy != 2 {
			t.Errorf("%d of two were refused", busy)
		}
	})
}

// upgraded is a connection after the switch of protocols, on which nothing answers
// for the peer.
func (w *world) upgraded() net.Conn {
	w.t.Helper()
	c, err := w.listener.direct("")
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET "+carrier.Path+" HTTP/1.1\r\nHost: controller.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"); err != nil {
		w.t.Fatal(err)
	}
	r := bufio.NewReader(c)
	a, err := http.ReadResponse(r, nil)
	if err != nil || a.StatusCode != 101 {
		w.t.Fatalf("%v %v", a, err)
	}
	if got := a.Header.Get("Sec-WebSocket-Extensions"); got != "" {
		w.t.Errorf("compression was agreed to: %s", got)
	}
	return c
}

// frame is one masked frame with an all-zero mask, with that first byte.
func frame(first byte, payload string) []byte {
	b := []byte{first}
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = append(b, 0x80|126, byte(n>>8), byte(n))
	default:
		b = append(b, 0x80|127, 0, 0, 0, 0, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	return append(append(b, 0, 0, 0, 0), payload...)
}

// gone waits until the other side has closed a connection, and returns what it
// still said.
func gone(c net.Conn) string {
	all, _ := io.ReadAll(c)
	return string(all)
}

func TestSilentPeerIsCutByPings(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		c := w.upgraded()
		go func() { _, _ = c.Write(frame(0x81, registration("node-a"))) }()
		began := time.Now()
		gone(c) // reads, and never sends a pong
		if took := time.Since(began); took < 30*time.Second || took > 35*time.Second {
			t.Errorf("cut after %v", took)
		}
		synctest.Wait()
		if len(w.server.Sockets(everyone)) != 0 {
			t.Error("the socket stays")
		}
	})
	// And the other way round: a server that has fallen silent.
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		silent := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			c, err := websocket.Accept(rw, r, nil)
			if err != nil {
				return
			}
			<-r.Context().Done()
			_ = c.CloseNow()
		})
		l := newMemory()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		srv := &http.Server{Handler: silent, BaseContext: func(net.Listener) context.Context { return ctx }}
		go func() { _ = srv.Serve(l) }()
		defer func() { _ = srv.Close() }()
		k, err := carrier.Dial(t.Context(), "ws://silent.test/", carrier.DialConfig{Clock: time.Now, HTTP: &http.Client{Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) { return l.dial("") },
		}}})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		<-k.Done()
		if took := time.Since(began); took < 24*time.Second || took > 35*time.Second { // the ping itself has to get out
			t.Errorf("given up after %v", took)
		}
		wants(t, "the socket", k.Err(), carrier.ErrUnreachable)
		k.Close()
		cancel()
	})
}

func TestPingsKeepALivingSocketOpen(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		k := w.node("node-a", nil)
		defer k.Close()
		time.Sleep(50 * time.Minute)
		_, err := call(t.Context(), k, observe, "x", carrier.Proof{})
		wants(t, "after a long silence", err, nil)
	})
}

// TestSlowReaderIsCut: a peer that asks and never reads holds a bounded number of
// answers, and is cut off.
func TestSlowReaderIsCut(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		c := w.upgraded()
		began := time.Now()
		go func() { _, _ = c.Write(frame(0x81, registration("node-a"))) }()
		answer := make([]byte, 512) // the registration's answer fits
		if _, err := c.Read(answer); err != nil {
			t.Fatal(err)
		}
		w.set(func(context.Context, *rpc.Call, string) (string, error) { return strings.Repeat("x", 100<<10), nil })
		sent := 0
		for {
			if _, err := c.Write(frame(0x81, ask("observe", "o", `"text":"x"`))); err != nil {
				break
			}
			sent++
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("cut after %v", took)
		}
		if most := w.crowd(); sent > 40 || most > 16 {
			t.Errorf("%d requests were taken, %d at once", sent, most)
		}
		synctest.Wait()
	})
}

func TestHostileFrames(t *testing.T) {
	registered := string(frame(0x81, registration("node-a")))
	for name, c := range map[string]struct {
		frames string
		close  string // the name or the status that the goodbye has
	}{
		"no JSON":            {string(frame(0x81, `{"method":`)), "request-envelope-invalid"},
		"no correlation":     {string(frame(0x81, `{"method":"observe","request":{}}`)), "request-envelope-invalid"},
		"deep":               {string(frame(0x81, strings.Repeat(`[`, 4000))), "request-envelope-invalid"},
		"duplicate":          {string(frame(0x81, `{"correlation":{"id":"i","phase":"request"},"correlation":{"id":"i","phase":"request"}}`)), "request-envelope-invalid"},
		"invalid UTF-8":      {string(frame(0x81, "{\"method\":\"\xff\"}")), "request-envelope-invalid"},
		"binary":             {string(frame(0x82, ask("observe", "o", ``))), "carrier-media-type"},
		"huge":               {string(frame(0x81, strings.Repeat(" ", 9<<10))), "read limited"},
		"huge in a session":  {registered + string(frame(0x81, strings.Repeat(" ", 1<<20+1))), "read limited"},
		"huge in fragments":  {string(frame(0x01, strings.Repeat(" ", 5<<10))) + string(frame(0x80, strings.Repeat(" ", 5<<10))), "read limited"},
		"compressed":         {string(frame(0xc1, "\xaa\x56\xca\x4d\x2d\xc9\xc8\x4f\x51\xb2\x52\x00\x00")), "\x03\xea"}, // 1002
		"reserved bits":      {string(frame(0xb1, `{}`)), "\x03\xea"},
		"unknown opcode":     {string(frame(0x83, `{}`)), "\x03\xea"},
		"large ping":         {string(frame(0x89, strings.Repeat("x", 126))), "\x03\xea"},
		"message in message": {string(frame(0x01, `{`)) + string(frame(0x81, `{}`)), "\x03\xea"},
		"stray continuation": {string(frame(0x80, `{}`)), ""},
		"unmasked":           {"\x81\x02{}", ""},
		"a length of 2^63":   {"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00", ""},
		"half a frame":       {"\x81\xfe\x10\x00\x00\x00\x00\x00{", ""},
	} {
		bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
			conn := w.upgraded()
			began := time.Now()
			go func() { _, _ = io.WriteString(conn, c.frames) }()
			said := gone(conn)
			if took := time.Since(began); took > 14*time.Second {
				t.Errorf("%s: cut after %v", name, took)
			}
			if !strings.Contains(said, c.close) {
				t.Errorf("%s: the other side said %q", name, said)
			}
			synctest.Wait()
			if n := w.count(); n > strings.Count(c.frames, "register") {
				t.Errorf("%s: %d handlers were reached", name, n)
			}
		})
	}
}

// TestTrickledMessageIsCut: a peer that answers pings and sends a message in tiny
// pieces does not hold its room for long.
func TestTrickledMessageIsCut(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		conn := w.registered()
		defer func() { _ = conn.Close() }()
		began := time.Now()
		trickle := frame(0x00, " ")
		for n := range 20 {
			trickle = append(trickle, frame(0x8a, fmt.Sprint(n))...) // pongs for all pings to come
		}
		_, err := conn.Write(frame(0x01, "{"))
		for err == nil && time.Since(began) < 5*time.Minute {
			time.Sleep(time.Second)
			_, err = conn.Write(trickle)
		}
		if took := time.Since(began); took < 29*time.Second || took > 34*time.Second {
			t.Errorf("cut after %v", took)
		}
	})
}

// TestTrickledMessageDoesNotHoldTheEnd: nor does one that never ends hold a socket
// that is to end.
func TestTrickledMessageDoesNotHoldTheEnd(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		conn := w.registered()
		defer func() { _ = conn.Close() }()
		head := frame(0x81, strings.Repeat(" ", 100<<10))
		_, err := conn.Write(head[:20])
		synctest.Wait()
		began := time.Now()
		over := make(chan time.Duration, 1)
		go func() { w.server.Close(); over <- time.Since(began) }()
		synctest.Wait()
		if err == nil { // enough for the reading to pause, and for the library's goodbye to begin to read instead
			_, err = conn.Write([]byte(strings.Repeat(" ", 600)))
		}
		for err == nil && time.Since(began) < 5*time.Minute {
			time.Sleep(100 * time.Millisecond)
			_, err = conn.Write([]byte(" "))
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("cut after %v", took)
		}
		_ = conn.Close()
		if took := <-over; took > 4*time.Second {
			t.Errorf("the server has ended after %v", took)
		}
	})
}

// registered is a connection with a session, whose peer only reads.
func (w *world) registered() net.Conn {
	conn := w.upgraded()
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	if _, err := conn.Write(frame(0x81, registration("node-a"))); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
	return conn
}

func TestFragmentedMessagesAreOneMessage(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		c := w.raw()
		defer func() { _ = c.CloseNow() }()
		writer, err := c.Writer(t.Context(), websocket.MessageText)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range []byte(registration("node-a")) {
			if _, err := writer.Write([]byte{b}); err != nil {
				t.Fatal(err)
			}
		}
		if err := writer.Close(); err != nil {
			t.Fatal(err)
		}
		_, got, err := c.Read(t.Context())
		if err != nil || !strings.Contains(string(got), `"response":{"text":"said x"`) {
			t.Errorf("%s, %v", got, err)
		}
	})
}

// TestUnaskedAnswersAreIgnored: nobody waits for them, and they open nothing.
func TestUnaskedAnswersAreIgnored(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		c := w.raw()
		defer func() { _ = c.CloseNow() }()
		for range 100 {
			if err := c.Write(t.Context(), websocket.MessageText, []byte(`{"method":"register","response":{"text":"x"},"correlation":{"id":"r","phase":"response"}}`)); err != nil {
				t.Fatal(err)
			}
		}
		if got := w.exchange(c, ask("observe", "o", `"text":"x"`)); !strings.Contains(got, "session-required") {
			t.Errorf("%s", got)
		}
	})
}

// TestF03ServersOfferIsJudgedByTheNode: a registration whose answer is of a foreign
// release leaves no session behind.
func TestF03ServersOfferIsJudgedByTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newMemory()
		srv := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			c, err := websocket.Accept(rw, r, nil)
			if err != nil {
				return
			}
			_, body, err := c.Read(t.Context())
			if err != nil {
				return
			}
			id := rpc.ReadFrame(body, 1<<20).ID()
			_ = c.Write(t.Context(), websocket.MessageText, []byte(`{"method":"register","response":{"text":"x","protocol":{"interfacesVersion":"33.0.0","minimumPeerVersion":"33.0.0"}},"correlation":{"id":"`+id+`","phase":"response"}}`))
			_, _, _ = c.Read(t.Context())
			_ = c.CloseNow()
		})}
		go func() { _ = srv.Serve(l) }()
		k, err := carrier.Dial(t.Context(), "ws://newer.test/", carrier.DialConfig{Clock: time.Now, Rand: strings.NewReader(strings.Repeat("x", 64)),
			HTTP: &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return l.dial("") }}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = call(t.Context(), k, register, "x", carrier.Proof{Bearer: bearerOf("node-a")})
		var i *rpc.Incompatible
		if !errors.As(err, &i) || i.Refusal.Reason != handshake.MajorMismatch || i.Wait() != 300*time.Second {
			t.Errorf("%v", err)
		}
		<-k.Done()
		k.Close()
		_ = srv.Close()
	})
}

func TestCloseEndsEverythingAndRefusesMore(t *testing.T) {
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		a, b := w.node("node-a", nil), w.node("node-b", nil)
		w.server.Close()
		for _, k := range []*carrier.Socket{a, b} {
			<-k.Done()
			wants(t, "a socket", k.Err(), carrier.ErrShutdown)
			k.Close()
		}
		_, err := w.tryDial(nil)
		wants(t, "a new socket", err, carrier.ErrShutdown)
		_, err = call(t.Context(), w.client(), say, "x", carrier.Proof{Token: token})
		wants(t, "a new request", err, carrier.ErrShutdown)
	})
}

// TestF06LogsHoldNothingOfSensitiveMethods plants a marker in requests, answers,
// causes and panics, on both carriers. The log of a plain method must have it, or
// the search would prove nothing.
func TestF06LogsHoldNothingOfSensitiveMethods(t *testing.T) {
	const marker = "marker-4c1e"
	bubble(t, carrier.Limits{}, func(t *testing.T, w *world) {
		k := w.node("node-a", nil)
		defer k.Close()
		for _, do := range []func() (string, error){
			func() (string, error) { return marker, nil },
			func() (string, error) { return "", rpc.ErrCredential.Because(errors.New(marker)) },
			func() (string, error) { return "", errors.New(marker) },
			func() (string, error) { panic(marker) },
			func() (string, error) { panic(errors.New(marker)) },
		} {
			w.set(func(context.Context, *rpc.Call, string) (string, error) { return do() })
			for _, m := range []*rpc.Method{enroll, secretly} {
				h := carrier.Hop(k)
				if m == enroll {
					h = w.client()
				}
				if got, err := call(t.Context(), h, m, marker, carrier.Proof{}); err != nil && strings.Contains(err.Error(), marker) || err == nil && got != marker {
					t.Errorf("%s: %q, %v", m.Name, got, err)
				}
			}
			_, _ = call(t.Context(), k, register, marker, carrier.Proof{Bearer: bearerOf(marker)})
		}
		// A request that is refused must not be in the log or the answer either.
		for _, body := range []string{ask("enroll", "i", `"text":7,"`+marker+`":"`+marker+`",`+goodOffer), ask(marker[:6], "i", ``), `{"` + marker + `":1}`} {
			if _, got, _ := w.post(nil, strings.NewReader(body)); strings.Contains(got, marker) {
				t.Errorf("echoed: %s", got)
			}
		}
		if log := w.log.String(); strings.Contains(log, marker) || strings.Contains(log, rpctest.Token) {
			t.Errorf("the log has the marker: %s", log)
		}
		if log := w.log.String(); !strings.Contains(log, "method=enroll") || !strings.Contains(log, "method=secretly") || !strings.Contains(log, "stack=") {
			t.Errorf("the log lacks the methods: %s", log)
		}

		w.set(func(context.Context, *rpc.Call, string) (string, error) { return "", errors.New(marker) })
		_, err := call(t.Context(), k, observe, "x", carrier.Proof{})
		wants(t, "a plain method", err, refusal.Internal)
		if !strings.Contains(w.log.String(), marker) {
			t.Error("the log of a plain method lacks the cause, so this proves nothing")
		}
	})
}
