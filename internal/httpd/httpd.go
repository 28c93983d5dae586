package httpd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/allodhq/allod/refusal"
)

// ErrListen refuses an address that cannot be listened on.
var ErrListen = refusal.NewKind("listen", 500,
	"The address cannot be listened on: it is taken, or this user may not use it.",
	"Choose another address or port; port 0 takes a free one.")

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Serving HTTP", Kinds: []*refusal.Kind{ErrListen, ErrAdmin}}

// Bounds of one connection. Bodies are bounded by who reads them.
const (
	maxHeaderBytes    = 32 << 10
	readHeaderTimeout = 10 * time.Second
	// readTimeout is for a whole request; the largest takes a while on a slow
	// line.
	readTimeout = 5 * time.Minute
	idleTimeout = 2 * time.Minute
	// writeTimeout is longer than any request is held.
	writeTimeout = 10 * time.Minute
	// grace is how long requests may go on after the end was asked for.
	grace = 10 * time.Second
	// maxStreams is how many requests one connection of HTTP/2 has at a time.
	maxStreams = 100
)

// Server is one listener in use.
type Server struct {
	listener net.Listener
	server   *http.Server // with a TLSConfig where TLS is served
	log      *slog.Logger
}

// New listens on a TCP address, as in 127.0.0.1:0, for a handler. It returns
// [ErrListen].
func New(address string, handler http.Handler, log *slog.Logger) (*Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, ErrListen.Because(err)
	}
	return newServer(l, handler, log), nil
}

func newServer(l net.Listener, handler http.Handler, log *slog.Logger) *Server {
	return &Server{listener: l, log: log, server: &http.Server{
		Handler:        named(silent(handler, log)),
		MaxHeaderBytes: maxHeaderBytes, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout,
		WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}}
}

// Late is a handler that is set before the first request is served, for handlers
// that need to know the address.
type Late struct{ http.Handler }

// Address is where the server listens.
func (s *Server) Address() net.Addr { return s.listener.Addr() }

// Through puts a listener in front of the server's own, such as one that bounds
// connections, below TLS. It must be called before Run.
func (s *Server) Through(wrap func(net.Listener) net.Listener) { s.listener = wrap(s.listener) }

// Close gives the address up. It is for a server that is not to run after all.
func (s *Server) Close() { _ = s.listener.Close() }

// Run serves until ctx ends, lets requests finish for ten seconds, and returns.
// It returns an error only when serving failed before that.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	go func() {
		if s.server.TLSConfig != nil {
			failed <- s.server.ServeTLS(s.listener, "", "")
		} else {
			failed <- s.server.Serve(s.listener)
		}
	}()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := s.server.Shutdown(ending); err != nil {
		s.log.WarnContext(ctx, "some requests were cut at the end", "error", err.Error())
		_ = s.server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// requestKey is where a request's name is kept in its context.
type requestKey struct{}

// named gives each request a name that its answer and its log lines carry.
func named(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		name := hex.EncodeToString(b[:])
		w.Header().Set("X-Request-Id", name)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, name)))
	})
}

// silent logs the stack of a handler that panics, and cuts the connection. The
// library would log what it panicked with too, which may hold anything.
func silent(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v != http.ErrAbortHandler {
				log.ErrorContext(r.Context(), "a handler panicked", "with", fmt.Sprintf("a %T", v), "stack", string(debug.Stack()))
			}
			panic(http.ErrAbortHandler)
		}()
		next.ServeHTTP(w, r)
	})
}

// LogHandler adds the request's name to every line that is logged while the
// request is served.
func LogHandler(next slog.Handler) slog.Handler { return logHandler{next} }

type logHandler struct{ slog.Handler }

// Handle adds the name and passes the line on.
func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	if name, ok := ctx.Value(requestKey{}).(string); ok {
		r = r.Clone()
		r.AddAttrs(slog.String("request", name))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs keeps the handler around what it makes.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup keeps the handler around what it makes.
func (h logHandler) WithGroup(name string) slog.Handler { return logHandler{h.Handler.WithGroup(name)} }
