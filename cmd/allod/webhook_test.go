//go:build unix

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/allodhq/allod/site"
)

// receiver is an app's server that is told of ended jobs.
type receiver struct {
	t *testing.T
	// config is a configuration file in which it stands.
	config string
	secret string // its file
	hook   site.HookID
	got    chan delivery
}

// delivery is a message that the reference library took.
type delivery struct{ id, body string }

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	dir := t.TempDir()
	r := &receiver{t: t, config: filepath.Join(dir, "allod.json"), secret: filepath.Join(dir, "secret"), got: make(chan delivery, 64)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		text, missing := os.ReadFile(r.secret)
		verify, bad := standardwebhooks.NewWebhook(strings.TrimSpace(string(text)))
		if err := errors.Join(err, missing, bad); err != nil {
			t.Error(err)
			return
		}
		if err := verify.Verify(body, q.Header); err != nil {
			t.Error(err)
		}
		r.got <- delivery{q.Header.Get("Webhook-Id"), string(body)}
	}))
	t.Cleanup(server.Close)
	// Half of the digest of its URL.
	sum := sha256.Sum256([]byte(server.URL + "/in"))
	r.hook = site.HookID(hex.EncodeToString(sum[:16]))
	config, err := json.Marshal(anyJSON{"site": anyJSON{
		"webhooks":       []anyJSON{{"url": server.URL + "/in", "secretFile": "secret", "states": []string{"canceled"}}},
		"webhookPrivate": []string{"127.0.0.0/8"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.config, config, 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *receiver) next() delivery {
	r.t.Helper()
	select {
	case d := <-r.got:
		return d
	case <-time.After(30 * time.Second):
		r.t.Fatal("nothing was delivered")
		return delivery{}
	}
}

// metric is one of the numbers on the admin socket, empty where there is none.
func (s *served) metric(name string) string {
	s.t.Helper()
	admin := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(s.data(), "admin.sock"))
	}}}
	answer, err := admin.Get("http://admin/metrics")
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// data is the site's folder.
func (s *served) data() string {
	for i, arg := range s.cmd.Args {
		if arg == "--data" {
			return s.cmd.Args[i+1]
		}
	}
	return ""
}

// TestWebhooks runs a site that tells a server of ended jobs: the secret is made
// at the first start, and the message says which job ended and nothing of what was
// asked.
func TestWebhooks(t *testing.T) {
	r := newReceiver(t)
	s := serve(t, filepath.Join(t.TempDir(), "data"), "--config", r.config)
	info, err := os.Stat(r.secret)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the secret: %v, %v", info, err)
	}
	var job anyJSON
	s.call("POST", "/v1/jobs", `{"id":"a","kind":"llm.generate","owner":"alice","payload":{"prompt":"canary"}}`, &job)
	if code := s.call("POST", "/v1/jobs/a/cancel", "", &job); code != 200 || job["state"] != "canceled" {
		t.Errorf("cancel: %d %v", code, job)
	}
	d := r.next()
	if !strings.HasPrefix(d.body, `{"type":"job.finished","timestamp":"2`) ||
		!strings.HasSuffix(d.body, `Z","data":{"jobId":"a","owner":"alice","kind":"llm.generate","state":"canceled","reason":"app"}}`) {
		t.Error(d.body)
	}
	until(t, "it is recorded", func() bool { return s.metric("allod_site_webhooks_waiting") == "0" })
	for name, want := range map[string]string{"delivered_total": "1", "retried_total": "0", "given_up_total": "0", "gone": "0"} {
		if got := s.metric("allod_site_webhooks_" + name); got != want {
			t.Errorf("%s is %q, want %s", name, got, want)
		}
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v\n%s", err, s.errs)
	}
	if log := s.errs.String(); !strings.Contains(log, "webhook delivered") || strings.Contains(log, "canary") || strings.Contains(log, "whsec_") || strings.Contains(log, "/in") {
		t.Errorf("the log: %s", log)
	}
}
