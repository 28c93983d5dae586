package httpd

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// buffer is a log that several goroutines write and read.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// certified borrows the certificate of the standard library's test server.
func certified(t *testing.T) (server, client *tls.Config) {
	s := httptest.NewTLSServer(nil)
	t.Cleanup(s.Close)
	return &tls.Config{Certificates: s.TLS.Certificates, NextProtos: []string{"more/1", "h2"}},
		s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
}

func running(t *testing.T, s *Server) (end func() error) {
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	end = sync.OnceValue(func() error { stop(); return <-ran })
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	})
	return end
}

func TestTLS(t *testing.T) {
	server, client := certified(t)
	inside, leave := make(chan struct{}, 1), make(chan struct{})
	s, err := NewTLS("127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			inside <- struct{}{}
			<-leave
		}
		_, _ = io.WriteString(w, r.Proto)
	}), server, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	end := running(t, s)
	get := func(two bool, path string) (string, error) {
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: client.Clone(), ForceAttemptHTTP2: two, DisableKeepAlives: true}}
		r, err := c.Get("https://" + s.Address().String() + path)
		if err != nil {
			return "", err
		}
		defer r.Body.Close()
		if id := r.Header.Get("X-Request-Id"); len(id) != 16 || r.TLS.Version != tls.VersionTLS13 {
			t.Errorf("the request is called %q, by TLS %x", id, r.TLS.Version)
		}
		text, err := io.ReadAll(r.Body)
		return string(text), err
	}
	for two, want := range map[bool]string{true: "HTTP/2.0", false: "HTTP/1.1"} {
		if got, err := get(two, "/"); err != nil || got != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	// The config that was passed in is the caller's still.
	if server.MinVersion != 0 || len(server.NextProtos) != 2 {
		t.Errorf("the config became %+v", server)
	}
	for want, offered := range map[string][]string{"h2": {"more/1", "http/1.1", "h2"}, "http/1.1": {"http/1.1"}, "more/1": {"more/1"}} {
		c := client.Clone()
		c.NextProtos = offered
		conn, err := tls.Dial("tcp", s.Address().String(), c)
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.ConnectionState().NegotiatedProtocol; got != want {
			t.Errorf("of %q it took %q", offered, got)
		}
		_ = conn.Close()
	}
	old := client.Clone()
	old.MaxVersion = tls.VersionTLS12
	if conn, err := tls.Dial("tcp", s.Address().String(), old); err == nil {
		_ = conn.Close()
		t.Error("it speaks TLS 1.2")
	}
	if r, err := http.Get("http://" + s.Address().String()); err != nil || r.StatusCode != http.StatusBadRequest {
		t.Errorf("plain HTTP: %v, %v", r, err)
	} else {
		_ = r.Body.Close()
	}
	// A request that is served while the end is asked for is finished.
	got := make(chan string, 1)
	go func() {
		text, err := get(true, "/held")
		if err != nil {
			text = err.Error()
		}
		got <- text
	}()
	<-inside
	ended := make(chan error, 1)
	go func() { ended <- end() }()
	close(leave)
	if text := <-got; text != "HTTP/2.0" {
		t.Errorf("the held request: %s", text)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := NewTLS("256.0.0.1:0", nil, server, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("it listens where nobody can")
	}
}

// TestTLSLimits holds that TLS has the limits of plain HTTP.
func TestTLSLimits(t *testing.T) {
	server, client := certified(t)
	s, err := NewTLS("127.0.0.1:0", http.NotFoundHandler(), server, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	running(t, s)
	plain, err := New("127.0.0.1:0", http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.listener.Close()
	a, b := s.server, plain.server
	if a.MaxHeaderBytes != b.MaxHeaderBytes || a.ReadHeaderTimeout != b.ReadHeaderTimeout || a.ReadTimeout != b.ReadTimeout ||
		a.WriteTimeout != b.WriteTimeout || a.IdleTimeout != b.IdleTimeout || a.ReadHeaderTimeout <= 0 || a.HTTP2.MaxConcurrentStreams != maxStreams {
		t.Errorf("the limits are %+v and %+v", a, b)
	}
	for _, two := range []bool{true, false} {
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: client.Clone(), ForceAttemptHTTP2: two, DisableKeepAlives: true}}
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.Address().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("X-Long", strings.Repeat("a", 3*maxHeaderBytes))
		r, err := c.Do(q)
		if err == nil {
			_ = r.Body.Close()
		}
		if err == nil && r.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("long headers, HTTP/2 %v: %d", two, r.StatusCode)
		}
	}
}

// pipes is a listener of connections in memory, which a bubble's clock can wait for.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestSlowHandshake: who does not finish a handshake is cut after the time for the
// headers of a request.
func TestSlowHandshake(t *testing.T) {
	server, _ := certified(t)
	synctest.Test(t, func(t *testing.T) {
		s, err := NewTLS("127.0.0.1:0", http.NotFoundHandler(), server, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		_ = s.listener.Close() // a real one would stop the clock
		p := make(pipes)
		s.listener = p
		running(t, s)
		here, there := net.Pipe()
		p <- there
		begin := time.Now()
		if _, err := here.Read(make([]byte, 1)); err != io.EOF || time.Since(begin) != readHeaderTimeout {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

// TestQuietHandshakes: clients that fail in the handshake fill no log, and are not
// hidden either.
func TestQuietHandshakes(t *testing.T) {
	server, client := certified(t)
	var logged buffer
	synctest.Test(t, func(t *testing.T) {
		s, err := NewTLS("127.0.0.1:0", http.NotFoundHandler(), server, slog.New(slog.NewTextHandler(&logged, nil)))
		if err != nil {
			t.Fatal(err)
		}
		_ = s.listener.Close()
		p := make(pipes)
		s.listener = p
		running(t, s)
		fail := func(how string) {
			here, there := net.Pipe()
			p <- there
			switch how {
			case "leave":
			case "garbage":
				_ = here.SetDeadline(time.Now().Add(time.Second))
				_, _ = io.WriteString(here, "\x16\x03\x01garbage garbage")
			case "h2":
				c := client.Clone()
				c.NextProtos, c.ServerName = []string{"h2"}, "example.com" // httptest's
				conn := tls.Client(here, c)
				if err := conn.HandshakeContext(t.Context()); err != nil {
					t.Error(err)
				}
				_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nno preface\r\n")
			}
			_ = here.Close()
			synctest.Wait()
		}
		for range 500 {
			for _, how := range []string{"leave", "garbage", "h2"} {
				fail(how)
			}
		}
		if got := strings.Count(logged.String(), "\n"); got != 1 {
			t.Errorf("%d lines:\n%.2000s", got, logged.String())
		}
		time.Sleep(handshakeEvery)
		fail("leave")
		if got := logged.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "count=1500") || !strings.Contains(got, "EOF") {
			t.Errorf("a minute later:\n%.2000s", got)
		}
		// What is not a client's alone is still a line of its own.
		s.server.ErrorLog.Print("http: superfluous call")
		if got := logged.String(); strings.Count(got, "\n") != 3 || !strings.Contains(got, "superfluous") {
			t.Errorf("another line:\n%.2000s", got)
		}
	})
}
