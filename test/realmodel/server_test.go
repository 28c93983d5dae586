package realmodel_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"
)

const (
	// variable says whether a server is run, and which: 1 builds the pinned one,
	// an absolute path is a program that is there.
	variable = "ALLOD_REAL_SERVER"

	// serverModule is the module that pins the server, and program the package in it.
	serverModule = "server"
	program      = "github.com/ollama/ollama"

	startLimit = 2 * time.Minute
	callLimit  = 2 * time.Minute
	stopLimit  = 20 * time.Second
	keptLog    = 64 << 10 // bytes
)

// serverPath returns the path of the server program, or skips the test.
func serverPath(t *testing.T) string {
	t.Helper()
	choice := os.Getenv(variable)
	switch {
	case choice == "":
		t.Skipf("no real model was run: set %s=1 to build the server, which takes minutes, or to the path of an Ollama program", variable)
	case filepath.IsAbs(choice):
		return choice
	case choice != "1":
		t.Fatalf("%s must be 1 or an absolute path", variable)
	}
	path := filepath.Join(t.TempDir(), "ollama")
	// The build cache keeps the objects, so that only the first build takes minutes.
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", path, program)
	build.Dir = serverModule
	// Without debug data and with little optimizing, C++ compiles in half the time.
	build.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=1", "CGO_CFLAGS=-O1", "CGO_CXXFLAGS=-O1")
	start := time.Now()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the server was not built (it needs a C and a C++ compiler): %v\n%s", err, out)
	}
	t.Logf("the server was built in %v", time.Since(start).Round(time.Second))
	return path
}

// start runs the server on a port that the system gives, with a home of its own,
// and returns its address as http://127.0.0.1:port. It is stopped with the test.
func start(t *testing.T) string {
	t.Helper()
	path := serverPath(t)
	home := t.TempDir()
	out := &output{address: make(chan string, 1)}
	server := exec.CommandContext(t.Context(), path, "serve")
	// Nothing of the caller's settings, keys or proxies gets in.
	server.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home,
		"OLLAMA_HOST=127.0.0.1:0", "OLLAMA_MODELS=" + filepath.Join(home, "models"),
		"OLLAMA_NUM_PARALLEL=1", "OLLAMA_CONTEXT_LENGTH=256",
	}
	server.Dir = home
	server.Stdout, server.Stderr = out, out
	// Interrupted, the server stops the process that holds the model before it ends.
	server.Cancel = func() error { return server.Process.Signal(os.Interrupt) }
	server.WaitDelay = stopLimit
	if err := server.Start(); err != nil {
		t.Fatalf("the server did not start: %v", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Wait() // an interrupted program says so, which is no news
	}()
	t.Cleanup(func() { // the test's context is done by now
		<-ended
		if t.Failed() {
			t.Logf("the end of the server's log:\n%s", out.text())
		}
	})
	select {
	case address := <-out.address:
		return "http://" + address
	case <-ended:
		t.Fatal("the server ended before it listened")
	case <-time.After(startLimit):
		t.Fatalf("the server did not listen within %v", startLimit)
	}
	return ""
}

// create gives the server a model. What it says is cut after limit tokens, or
// after ten times its context for -1, so that no answer is endless.
func create(t *testing.T, address, name string, model []byte, limit int) {
	t.Helper()
	sum := sha256.Sum256(model)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	post := func(path string, body []byte) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), callLimit)
		defer cancel()
		status, answer, err := call(ctx, http.MethodPost, address+path, body)
		if err != nil || status/100 != 2 {
			t.Fatalf("the server did not take the model at %s: status %d, %v\n%s", path, status, err, answer)
		}
	}
	post("/api/blobs/"+digest, model)
	order, err := json.Marshal(map[string]any{
		"model": name, "files": map[string]string{"tiny.gguf": digest}, "stream": false,
		// Threads that wait for each other are slow on a busy machine.
		"parameters": map[string]any{"num_predict": limit, "seed": 1, "num_thread": 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	post("/api/create", order)
}

// listening is what the server logs once its port is open.
var listening = regexp.MustCompile(`Listening on (127\.0\.0\.1:[0-9]+) `)

// output keeps the end of what the server writes, and finds its address in it.
type output struct {
	address chan string // gets one

	mu    sync.Mutex
	kept  []byte
	found bool
}

// Write is called by one goroutine, that of exec.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept = append(o.kept, p...)
	if m := listening.FindSubmatch(o.kept); m != nil && !o.found {
		o.found = true
		o.address <- string(m[1])
	}
	if over := len(o.kept) - keptLog; over > 0 {
		o.kept = bytes.Clone(o.kept[over:])
	}
	return len(p), nil
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.kept)
}
