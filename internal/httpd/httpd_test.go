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
