package carrier

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/rpc"
)

// Path is where a party takes typed requests.
const Path = "/typedrequest"

// Config is what a [Server] is made of.
type Config struct {
	// Answers judges and answers the requests.
	Answers *rpc.Server
	// Clock says what time it is, for sessions.
	Clock func() time.Time
	// Rand makes the ids of calls to clients.
	Rand io.Reader
	Log  *slog.Logger
	// Origins are the origins of pages, besides this party's own, whose scripts may
	// open sockets here, as in https://console.example.org. They may not POST: a
	// browser asks first whether JSON may come from elsewhere, and nobody answers.
	Origins []string
	Limits  Limits
}

// Server carries requests to an rpc.Server. It is safe for concurrent use.
type Server struct {
	shared
	origins  []string
	sockets  *door
	requests *door
	admins   *door // apart, so that strangers cannot keep the administrator out

	mu     sync.Mutex
	open   map[*Socket]struct{}
	closed bool
	wg     sync.WaitGroup
}

// shared is what both sides of a connection are made of.
type shared struct {
	answers *rpc.Server
	clock   func() time.Time
	rand    io.Reader
	log     *slog.Logger
	limits  Limits
}

// NewServer makes a server. [Server.Close] ends it.
func NewServer(c Config) *Server {
	limits := c.Limits.filled()
	return &Server{
		shared:   shared{c.Answers, c.Clock, c.Rand, c.Log, limits},
		origins:  c.Origins,
		sockets:  newDoor(limits.Sockets, limits.SocketsPerAddress),
		requests: newDoor(limits.Requests, limits.RequestsPerAddress),
		admins:   newDoor(limits.RequestsPerAddress, limits.RequestsPerAddress),
		open:     map[*Socket]struct{}{},
	}
}

// LogPanics is the rpc.Config.Panicked that logs a handler's stack, and nothing of
// what it panicked with.
func LogPanics(log *slog.Logger) func(m *rpc.Method) {
	return func(m *rpc.Method) {
		log.Error("a handler panicked", "method", m.Name, "stack", string(debug.Stack()))
	}
}

// ServeHTTP takes one typed request by POST, or a WebSocket, from the network.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost:
		s.post(w, r, rpc.HTTP)
	case r.Method == http.MethodGet && strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
		s.socket(w, r)
	default:
		w.Header().Set("Allow", "POST, GET")
		refuse(w, ErrVerb)
	}
}

// Admin takes one typed request by POST from whoever can reach the admin socket.
// It must never stand on a listener for the network.
func (s *Server) Admin() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", "POST")
			refuse(w, ErrVerb)
			return
		}
		s.post(w, r, rpc.Admin)
	})
}

// refuse answers what is no typed request yet.
func refuse(w http.ResponseWriter, err error) {
	status, body := refusal.HTTP(err)
	reply(w, status, body)
}

func reply(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the peer is gone
}

func (s *Server) post(w http.ResponseWriter, r *http.Request, over rpc.Carrier) {
	began := s.clock()
	door := s.requests
	if over == rpc.Admin {
		door = s.admins
	}
	s.take(w, r, door, s.answers.MaxBody(over, nil), func(ctx context.Context, body []byte) (int, []byte) {
		a := s.answers.Serve(ctx, body, rpc.Incoming{Carrier: over, Peer: host(r.RemoteAddr), Now: s.clock()})
		s.record(ctx, a, host(r.RemoteAddr), began)
		return http.StatusOK, a.Body
	})
}

// take reads the body of a POST of plain JSON and answers it. A body that is larger
// than max has one byte more.
func (s *Server) take(w http.ResponseWriter, r *http.Request, door *door, max int, answer func(ctx context.Context, body []byte) (int, []byte)) {
	if err := s.welcome(r); err != nil {
		refuse(w, err)
		return
	}
	if !plainJSON(r.Header) {
		refuse(w, ErrMediaType)
		return
	}
	leave, err := door.enter(r.RemoteAddr)
	if err != nil {
		refuse(w, err)
		return
	}
	defer leave()
	body, err := s.body(w, r, max)
	if err != nil {
		refuse(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.limits.WorkTime)
	defer cancel()
	status, content := answer(ctx, body)
	reply(w, status, content)
}

// Route takes the body of a POST of plain JSON, of at most max bytes, and answers
// with what answer makes of it, for the routes of the contract that are no typed
// requests. Who comes, how many, how large and how slow is judged as for those, and
// answer has as long as their handlers. peer is the address of the other end.
func (s *Server) Route(max int, answer func(ctx context.Context, peer string, body []byte) (status int, content []byte)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", "POST")
			refuse(w, ErrVerb)
			return
		}
		s.take(w, r, s.requests, max, func(ctx context.Context, body []byte) (int, []byte) {
			if len(body) > max {
				return refusal.HTTP(rpc.ErrTooLarge)
			}
			return answer(ctx, host(r.RemoteAddr), body)
		})
	})
}

// welcome refuses pages of other sites, and everybody once the end has begun.
func (s *Server) welcome(r *http.Request) error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return ErrShutdown
	}
	// A browser names the page that asks. Other clients have no reason to.
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return nil
	}
	if len(origins) > 1 {
		return ErrOrigin
	}
	if slices.Contains(s.origins, origins[0]) {
		return nil
	}
	u, err := url.Parse(origins[0])
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	if err != nil || u.Scheme != scheme || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
		return ErrOrigin
	}
	return nil
}

func plainJSON(h http.Header) bool {
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || kind != "application/json" || len(h.Values("Content-Type")) != 1 {
		return false
	}
	for name, value := range params {
		if name != "charset" || !strings.EqualFold(value, "utf-8") {
			return false
		}
	}
	return len(h.Values("Content-Encoding")) == 0
}

// body reads a body of which one byte more than max is enough to refuse it.
func (s *Server) body(w http.ResponseWriter, r *http.Request, max int) ([]byte, error) {
	control := http.NewResponseController(w)
	// Not every writer has deadlines; then the listener's own limit holds.
	if err := control.SetReadDeadline(time.Now().Add(s.limits.BodyTime)); err == nil {
		defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, int64(max)+1))
	if err != nil {
		return nil, ErrBody.Because(err)
	}
	if len(body) > max {
		w.Header().Set("Connection", "close") // rather than to read the rest
	}
	return body, nil
}

// record logs an answer. Nothing of a body gets here but what an error of a plain
// method has as its cause.
func (s *shared) record(ctx context.Context, a rpc.Answer, peer string, began time.Time) {
	attrs := []slog.Attr{slog.String("peer", peer), slog.Duration("took", s.clock().Sub(began))}
	plain := false
	if a.Method != nil {
		attrs = append(attrs, slog.String("method", a.Method.Name))
		plain = a.Method.Sensitivity == rpc.Plain
	}
	if a.Err == nil {
		s.log.LogAttrs(ctx, slog.LevelDebug, "answered", attrs...)
		return
	}
	level, what := slog.LevelDebug, "refused"
	if errors.Is(a.Err, refusal.Internal) {
		level, what = slog.LevelError, "failed"
	}
	if plain {
		attrs = append(attrs, slog.Any("why", refusal.From(a.Err)))
	} else {
		attrs = append(attrs, slog.String("why", nameOf(a.Err)))
	}
	s.log.LogAttrs(ctx, level, what, attrs...)
}

func (s *Server) socket(w http.ResponseWriter, r *http.Request) {
	if err := s.welcome(r); err != nil {
		refuse(w, err)
		return
	}
	leave, err := s.sockets.enter(r.RemoteAddr)
	if err != nil {
		refuse(w, err)
		return
	}
	defer leave()
	kept := &keeper{ResponseWriter: w}
	conn, err := websocket.Accept(kept, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // welcome has judged the origin
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		if kept.conn == nil {
			refuse(w, ErrUpgrade)
		}
		return
	}
	k := newSocket(s.shared, conn, kept.conn, host(r.RemoteAddr), s)
	if !s.add(k) {
		k.end(ErrShutdown)
		k.wait()
		return
	}
	defer s.remove(k)
	k.start()
	k.wait()
}

// keeper keeps the connection below a WebSocket, which has no other way to be cut
// off, and keeps back what the library writes when it refuses, since that quotes
// the request.
type keeper struct {
	http.ResponseWriter
	conn    net.Conn
	refused bool
}

// WriteHeader lets the switch of protocols pass, and nothing else.
func (k *keeper) WriteHeader(status int) {
	if k.refused = status != http.StatusSwitchingProtocols; !k.refused {
		k.ResponseWriter.WriteHeader(status)
	}
}

// Write drops what goes with a refusal.
func (k *keeper) Write(b []byte) (int, error) {
	if k.refused {
		return len(b), nil
	}
	return k.ResponseWriter.Write(b)
}

// Hijack hands the connection over and keeps it.
func (k *keeper) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(k.ResponseWriter).Hijack()
	k.conn = conn
	return conn, buffered, err
}

func (s *Server) add(k *Socket) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.open[k] = struct{}{}
	s.wg.Add(1)
	return true
}

func (s *Server) remove(k *Socket) {
	s.mu.Lock()
	delete(s.open, k)
	s.mu.Unlock()
	s.wg.Done()
}

func (s *Server) all() []*Socket {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*Socket, 0, len(s.open))
	for k := range s.open {
		list = append(list, k)
	}
	return list
}

// Sockets are the open sockets whose session's principal is a match and who know
// that they have one, at this moment. They can be called.
func (s *Server) Sockets(match func(rpc.Principal) bool) []*Socket {
	return slices.DeleteFunc(s.all(), func(k *Socket) bool { return !k.takesCalls(match) })
}

// Drop ends every socket whose session's principal is a match, for a credential
// that was revoked or replaced, and returns how many. A session that is just being
// opened counts too, once it is. match must be quick.
func (s *Server) Drop(match func(rpc.Principal) bool) int {
	n := 0
	for _, k := range s.all() {
		if k.drop(match) {
			n++
		}
	}
	return n
}

// Close refuses what is new, ends every socket and returns when all are gone.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for _, k := range s.all() {
		k.end(ErrShutdown)
	}
	s.wg.Wait()
}
