package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStopEndsWaits holds that a site which is stopped tells those who wait for an
// answer, instead of waiting with them.
func TestStopEndsWaits(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, in := io.Pipe()
	defer out.Close()
	ended := make(chan error, 1)
	go func() {
		err := serveSite(ctx, Env{Out: in, Err: io.Discard}, siteConfig{Data: filepath.Join(t.TempDir(), "data"), Listen: "127.0.0.1:0"}, inFile(), true)
		_ = in.CloseWithError(err)
		ended <- err
	}()
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var first started
	if err != nil || json.Unmarshal(line, &first) != nil {
		t.Fatalf("%q %v", line, err)
	}
	key, err := os.ReadFile(first.AppKeyFile)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+first.Listening+"/v1/chat/completions",
		strings.NewReader(`{"model":"auto","user":"alice","stream":true,"messages":[{"role":"user","content":"x"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(key)))
	var transport http.Transport
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(r) // it begins at once, and nobody is there who could end it
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	stop()
	text, err := io.ReadAll(answer.Body)
	if err != nil || !strings.Contains(string(text), `"code":"site_stopping"`) {
		t.Errorf("%d %q %v", answer.StatusCode, text, err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the site ended with %v", err)
	}
}
