package control

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allodhq/allod/internal/httpd"
	"github.com/allodhq/allod/refusal"
)

// TestNoAnswer: somebody holds the folder, and nobody answers.
func TestNoAnswer(t *testing.T) {
	dir, err := os.MkdirTemp("", "allod") // a path that is short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, httpd.AdminSocket)
	a := remote{httpd.AdminClient(dir), 0}
	mustNotAnswer := func(what string) {
		t.Helper()
		_, err := a.Status(t.Context())
		for _, err := range []error{err, a.Pause(t.Context(), false), a.Resume(t.Context()), a.SetName(t.Context(), "n"), a.Forget(t.Context(), "s"), a.Prove(t.Context())} {
			if !errors.Is(err, ErrNoAnswer) || strings.Contains(refusal.Terminal(err), dir) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	mustNotAnswer("no socket")
	// A socket that a crash left.
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	mustNotAnswer("a dead socket")
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	// One that hangs up.
	if l, err = net.Listen("unix", socket); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{")
			_ = conn.Close()
		}
	}()
	mustNotAnswer("an answer that was cut")
}

// roundTrip is a transport without a socket.
type roundTrip func(r *http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestStartingAgent: an agent that holds the folder and does not listen yet is
// waited for, with the whole order, and not for ever.
func TestStartingAgent(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: errors.New("refused")}
	for what, c := range map[string]struct {
		after time.Duration // when it listens
		fails error         // until then
		want  error
		took  time.Duration
	}{
		"listens":            {0, refused, nil, 0},
		"listens soon":       {1010 * time.Millisecond, refused, nil, 1050 * time.Millisecond},
		"never listens":      {time.Hour, refused, ErrNoAnswer, httpd.StartTime + httpd.StartStep},
		"listens and hangs":  {time.Hour, &net.OpError{Op: "read", Err: io.EOF}, ErrNoAnswer, 0},
		"listens and breaks": {time.Hour, io.ErrUnexpectedEOF, ErrNoAnswer, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			a := remote{&http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				if time.Since(begin) < c.after {
					return nil, c.fails
				}
				if body, err := io.ReadAll(r.Body); err != nil || string(body) != `{"name":"box"}` {
					t.Errorf("%s: %s, %v", what, body, err)
				}
				return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("{}"))}, nil
			})}, httpd.StartTime}
			if err := a.SetName(t.Context(), "box"); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("%s: %v", what, err)
			}
			if took := time.Since(begin); took != c.took {
				t.Errorf("%s: after %v", what, took)
			}
			// Nobody has to wait who does not want to.
			ctx, cancel := context.WithTimeout(t.Context(), 70*time.Millisecond)
			defer cancel()
			again := time.Now()
			if err := a.SetName(ctx, "box"); c.want != nil && (!errors.Is(err, ErrNoAnswer) || time.Since(again) > 70*time.Millisecond) {
				t.Errorf("%s: %v after %v", what, err, time.Since(again))
			}
		})
	}
}
