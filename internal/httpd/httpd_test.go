package httpd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

func TestServer(t *testing.T) {
	var logged bytes.Buffer
	log := slog.New(LogHandler(slog.NewTextHandler(&logged, nil)))
	inside, leave := make(chan struct{}), make(chan struct{})
	s, err := New("127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		log.With("k", "v").InfoContext(r.Context(), "served")
		close(inside)
		<-leave
		_, _ = io.WriteString(w, "answer")
	}), log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	type answer struct {
		text, id string
		err      error
	}
	got := make(chan answer, 1)
	go func() {
		r, err := http.Get("http://" + s.Address().String())
		if err != nil {
			got <- answer{err: err}
			return
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		got <- answer{string(text), r.Header.Get("X-Request-Id"), err}
	}()
	<-inside
	// The end is asked for while a request is served: the request is finished.
	stop()
	close(leave)
	a := <-got
	if a.err != nil || a.text != "answer" || len(a.id) != 16 {
		t.Errorf("answer %+v", a)
	}
	if err := <-ran; err != nil {
		t.Errorf("run: %v", err)
	}
	if !strings.Contains(logged.String(), "request="+a.id) {
		t.Errorf("the log line does not name the request: %s", logged.String())
	}
	if _, err := http.Get("http://" + s.Address().String()); err == nil {
		t.Error("it still listens")
	}
}

// A panic's value may hold what was being worked on.
func TestAPanicIsLoggedWithoutItsValue(t *testing.T) {
	var logged bytes.Buffer
	log := slog.New(LogHandler(slog.NewTextHandler(&logged, nil)))
	s, err := New("127.0.0.1:0", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/abort" {
			panic(http.ErrAbortHandler)
		}
		panic("canary-79")
	}), log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	for _, path := range []string{"/", "/abort"} {
		if r, err := http.Get("http://" + s.Address().String() + path); err == nil {
			_ = r.Body.Close()
			t.Errorf("%s: there is an answer: %s", path, r.Status)
		}
	}
	stop()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if text := logged.String(); strings.Contains(text, "canary") || strings.Count(text, "panicked") != 1 || !strings.Contains(text, "httpd_test.go") || !strings.Contains(text, "request=") {
		t.Errorf("the log: %s", text)
	}
}

func TestTakenAddress(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	s, err := New("127.0.0.1:0", http.NotFoundHandler(), log)
	if err != nil {
		t.Fatal(err)
	}
	defer s.listener.Close()
	if _, err := New(s.Address().String(), http.NotFoundHandler(), log); !errors.Is(err, ErrListen) {
		t.Errorf("got %v", err)
	}
}
