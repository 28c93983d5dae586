package carrier_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/rpc"
	"github.com/allodhq/allod/wire/zone/rpc/rpctest"
)

// The methods of these tests.
var (
	say = &rpc.Method{Name: "say", Session: handshake.CloudlyClient, Callers: []rpc.Caller{rpc.Operator},
		Carriers: rpc.HTTP | rpc.Admin, MaxRequest: 64 << 10, Sensitivity: rpc.Plain}
	enroll = &rpc.Method{Name: "enroll", Session: handshake.SparkNode, Callers: []rpc.Caller{rpc.Anyone},
		Carriers: rpc.HTTP, MaxRequest: 64 << 10, Sensitivity: rpc.Sensitive, Changes: true}
	register = &rpc.Method{Name: "register", Session: handshake.PalletRuntime, Callers: []rpc.Caller{rpc.NodePallet},
		Carriers: rpc.Socket, MaxRequest: 8 << 10, Sensitivity: rpc.Sensitive, Opens: true, Changes: true}
	observe = &rpc.Method{Name: "observe", Session: handshake.PalletRuntime, Callers: []rpc.Caller{rpc.NodePallet},
		Carriers: rpc.Socket, MaxRequest: 128 << 10, MaxResponse: 128 << 10, Sensitivity: rpc.Plain}
	secretly = &rpc.Method{Name: "secretly", Session: handshake.PalletRuntime, Callers: []rpc.Caller{rpc.NodePallet},
		Carriers: rpc.Socket, Sensitivity: rpc.Sensitive}
	serverTable = rpc.NewRegistry(say, enroll, register, observe, secretly)

	apply = &rpc.Method{Name: "apply", Session: handshake.PalletRuntime, Callers: []rpc.Caller{rpc.Controller},
		Carriers: rpc.Socket, Sensitivity: rpc.Plain}
	nodeTable = rpc.NewRegistry(apply)
)

// bearerOf is a well-formed bearer for a name.
func bearerOf(name string) zone.Secret {
	return zone.Conceal(name + strings.Repeat("-", 43-len(name)))
}

var token = zone.Conceal(rpctest.Token)

// world is a controller on an in-memory listener, in a bubble of virtual time.
type world struct {
	t        *testing.T
	listener *memory
	server   *carrier.Server
	log      *safeBuffer

	mu      sync.Mutex
	handle  func(ctx context.Context, call *rpc.Call, text string) (string, error)
	revoked map[string]bool
	calls   int
	most    int // handlers at once
	inside  int
	ends    time.Duration
	epoch   int64
}

// bubble runs a test in virtual time with a world.
func bubble(t *testing.T, limits carrier.Limits, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, listener: newMemory(), log: &safeBuffer{}, revoked: map[string]bool{}, ends: time.Hour}
		w.handle = func(_ context.Context, call *rpc.Call, text string) (string, error) { return "said " + text, nil }
		log := slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		notes := func(m *rpc.Method) rpc.Binding { return rpc.Bind(m, rpctest.Notes, rpctest.Notes, w.serve) }
		w.server = carrier.NewServer(carrier.Config{
			Answers: rpc.NewServer(rpc.Config{Registry: serverTable, Authenticator: w, Panicked: carrier.LogPanics(log),
				Bindings: []rpc.Binding{notes(say), notes(enroll), notes(register), notes(observe), notes(secretly)}}),
			Clock: time.Now, Rand: rand.Reader, Log: log, Limits: limits, Origins: []string{"https://console.example.org"},
		})
		mux := http.NewServeMux()
		mux.Handle(carrier.Path, w.server)
		mux.Handle("/admin"+carrier.Path, w.server.Admin())
		srv := &http.Server{Handler: mux, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
		done := make(chan struct{})
		go func() { _ = srv.Serve(w.listener); close(done) }()
		defer func() {
			w.server.Close()
			_ = srv.Close()
			<-done
			time.Sleep(time.Second) // net/http lingers on a connection that it cuts
		}()
		f(t, w)
	})
}

func (w *world) serve(ctx context.Context, call *rpc.Call, n rpctest.Note) (rpctest.Note, error) {
	w.mu.Lock()
	w.calls++
	w.inside++
	w.most = max(w.most, w.inside)
	handle, ends := w.handle, w.ends
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.inside--
		w.mu.Unlock()
	}()
	text, err := handle(ctx, call, n.Text)
	if err == nil && call.Method.Opens {
		call.Open(rpc.Session{Principal: call.Principal, Ends: call.Now.Add(ends)})
	}
	return rpctest.Note{Text: text}, err
}

// Authenticate knows nodes by the name in their bearers, and one operator.
func (w *world) Authenticate(_ context.Context, c rpc.Credential) (rpc.Principal, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case c.Carrier == rpc.Admin:
		return rpc.Principal{Caller: rpc.Operator, Subject: "local"}, nil
	case c.Session != nil:
		if w.revoked[c.Session.Principal.Subject] {
			return rpc.Principal{}, rpc.ErrCredential
		}
		return c.Session.Principal, nil
	case !c.Bearer.IsZero():
		name := strings.TrimRight(c.Bearer.Reveal(), "-")
		if w.revoked[name] {
			return rpc.Principal{}, rpc.ErrCredential
		}
		return rpc.Principal{Caller: rpc.NodePallet, Subject: name, Epoch: w.epoch}, nil
	}
	return rpc.Principal{Caller: rpc.Operator, Subject: "ann"}, nil
}

func (w *world) http() *http.Client {
	tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return w.listener.dial("") }, DisableKeepAlives: true}
	return &http.Client{Transport: tr}
}

func (w *world) client() *carrier.Client {
	return carrier.NewClient("http://controller.test"+carrier.Path, w.http(), rand.Reader)
}

// dial opens a socket whose node answers apply with handle, or nothing.
func (w *world) dial(handle rpc.Handler[rpctest.Note, rpctest.Note]) *carrier.Socket {
	w.t.Helper()
	k, err := w.tryDial(handle)
	if err != nil {
		w.t.Fatal(err)
	}
	return k
}

func (w *world) tryDial(handle rpc.Handler[rpctest.Note, rpctest.Note]) (*carrier.Socket, error) {
	var answers *rpc.Server
	if handle != nil {
		answers = rpc.NewServer(rpc.Config{Registry: nodeTable, Authenticator: nodeAuth{},
			Bindings: []rpc.Binding{rpc.Bind(apply, rpctest.Notes, rpctest.Notes, handle)}})
	}
	return carrier.Dial(w.t.Context(), "ws://controller.test"+carrier.Path, carrier.DialConfig{
		HTTP: w.http(), Answers: answers, Clock: time.Now, Rand: rand.Reader, Log: slog.New(slog.DiscardHandler),
	})
}

// nodeAuth is a node that believes whoever it has dialed.
type nodeAuth struct{}

func (nodeAuth) Authenticate(_ context.Context, c rpc.Credential) (rpc.Principal, error) {
	if c.Session == nil {
		return rpc.Principal{}, rpc.ErrCredential
	}
	return c.Session.Principal, nil
}

func call(ctx context.Context, h carrier.Hop, m *rpc.Method, text string, with carrier.Proof) (string, error) {
	n, err := carrier.Call(ctx, h, m, rpctest.Notes, rpctest.Notes, rpctest.Note{Text: text}, with)
	return n.Text, err
}

// node is a socket with a session of that node.
func (w *world) node(name string, handle rpc.Handler[rpctest.Note, rpctest.Note]) *carrier.Socket {
	w.t.Helper()
	k := w.dial(handle)
	if _, err := call(w.t.Context(), k, register, "x", carrier.Proof{Bearer: bearerOf(name)}); err != nil {
		w.t.Fatal(err)
	}
	return k
}

func (w *world) set(handle func(ctx context.Context, call *rpc.Call, text string) (string, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handle = handle
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls
}

// crowd is how many handlers there were at once.
func (w *world) crowd() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.most
}

// raw is a WebSocket without our client, for what our client never does.
func (w *world) raw() *websocket.Conn {
	w.t.Helper()
	c, _, err := websocket.Dial(w.t.Context(), "ws://controller.test"+carrier.Path, &websocket.DialOptions{HTTPClient: w.http()})
	if err != nil {
		w.t.Fatal(err)
	}
	c.SetReadLimit(1 << 20)
	return c
}

const goodOffer = `"protocol":{"interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.0"}`

func ask(method, id, members string) string {
	return `{"method":"` + method + `","request":{` + members + `},"response":null,"correlation":{"id":"` + id + `","phase":"request"}}`
}

func registration(name string) string {
	return ask("register", "r", `"text":"x","bearer":"`+bearerOf(name).Reveal()+`",`+goodOffer)
}

func wants(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || (err == nil) != (want == nil) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// memory is a listener of pipes.
type memory struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newMemory() *memory { return &memory{conns: make(chan net.Conn), done: make(chan struct{})} }

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error   { m.once.Do(func() { close(m.done) }); return nil }
func (m *memory) Addr() net.Addr { return addr("memory") }

// dial connects, as from that address. The connection has some room in both
// directions, as that of a system has: without any, two ends that write at the same
// moment would wait for each other.
func (m *memory) dial(from string) (net.Conn, error) {
	here, one := net.Pipe()
	other, there := net.Pipe()
	go relay(one, other)
	go relay(other, one)
	return m.connect(here, there, from)
}

// direct connects without any room.
func (m *memory) direct(from string) (net.Conn, error) {
	here, there := net.Pipe()
	return m.connect(here, there, from)
}

func (m *memory) connect(here, there net.Conn, from string) (net.Conn, error) {
	if from == "" {
		from = "192.0.2.1:4000"
	}
	select {
	case m.conns <- fromConn{there, addr(from)}:
		return here, nil
	case <-m.done:
		_ = there.Close()
		_ = here.Close()
		return nil, fmt.Errorf("nobody listens")
	}
}

// relay carries one direction, with room for a few pieces.
func relay(from, to net.Conn) {
	pieces := make(chan []byte, 8)
	go func() {
		defer close(pieces)
		for {
			piece := make([]byte, 4096)
			n, err := from.Read(piece)
			if n > 0 {
				pieces <- piece[:n]
			}
			if err != nil {
				return
			}
		}
	}()
	for piece := range pieces {
		if _, err := to.Write(piece); err != nil {
			_ = from.Close()
			for range pieces { // until the reader has noticed
			}
			return
		}
	}
	_ = to.Close()
}

type addr string

func (addr) Network() string  { return "memory" }
func (a addr) String() string { return string(a) }

type fromConn struct {
	net.Conn
	from addr
}

func (c fromConn) RemoteAddr() net.Addr { return c.from }

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

var _ io.Writer = (*safeBuffer)(nil)

// lives sets how long sessions last.
func (w *world) lives(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends = d
}
