//go:build unix

package acme_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	pebble "github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"

	"github.com/allodhq/allod/internal/ca"
	"github.com/allodhq/allod/internal/ca/acme"
	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/httpd"
	"github.com/allodhq/allod/refusal"
)

const (
	public  = "cloud.example.org"
	missing = "missing.example.org" // the DNS does not know it
	own     = "controller.test"
)

// lines is a log that a test can wait on.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func newLines() *lines { return &lines{more: make(chan struct{}, 1)} }

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// wait returns once one line holds all of the words.
func (l *lines) wait(t *testing.T, words ...string) {
	t.Helper()
	for {
		for line := range strings.Lines(l.String()) {
			all := true
			for _, w := range words {
				all = all && strings.Contains(line, w)
			}
			if all {
				return
			}
		}
		select {
		case <-l.more:
		case <-time.After(time.Minute):
			t.Fatalf("no line of the log holds %q:\n%s", words, l)
		}
	}
}

// authority is a public certificate authority, Let's Encrypt's own test server,
// which asks for the names at a port of this machine.
type authority struct {
	directory string
	server    *x509.CertPool // vouches for the authority's server
	roots     *x509.CertPool // vouches for what it issues
	close     func()
}

func newAuthority(t *testing.T, port int) authority {
	t.Helper()
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")
	t.Setenv("PEBBLE_WFE_NONCEREJECT", "0")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	names := &dns.Server{Listener: l, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		a := new(dns.Msg).SetReply(q)
		switch {
		case strings.TrimSuffix(q.Question[0].Name, ".") != public:
			a.Rcode = dns.RcodeNameError
		case q.Question[0].Qtype == dns.TypeA:
			a.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.IPv4(127, 0, 0, 1)}}
		}
		_ = w.WriteMsg(a)
	})}
	go func() { _ = names.ActivateAndServe() }()
	t.Cleanup(func() { _ = l.Close() })
	quiet := log.New(io.Discard, "", 0)
	store := db.NewMemoryStore()
	issuer := pebble.New(quiet, store, "", "ecdsa", 0, 1, map[string]pebble.Profile{"default": {ValidityPeriod: 90 * 24 * 3600}})
	front := wfe.New(quiet, store, va.New(quiet, 1, port, true, l.Addr().String(), store), issuer, nil, true, false, 0, 0)
	s := httptest.NewTLSServer(front.Handler())
	s.Config.ErrorLog = quiet
	closing := sync.OnceFunc(s.Close)
	t.Cleanup(closing)
	a := authority{directory: s.URL + wfe.DirectoryPath, server: x509.NewCertPool(), roots: x509.NewCertPool(), close: closing}
	a.server.AddCert(s.Certificate())
	root, err := x509.ParseCertificate(issuer.GetRootCert(0).DER)
	if err != nil {
		t.Fatal(err)
	}
	a.roots.AddCert(root)
	return a
}

// controller is a listener that is served with names.
type controller struct {
	address string
	pin     ca.Pin
	own     *ca.Server
	log     *lines
	swap    func(*tls.Config)
}

func newController(t *testing.T) controller {
	t.Helper()
	a, err := ca.Open(t.TempDir(), rand.Reader, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	c := controller{pin: a.Pin(), log: newLines()}
	if c.own, err = a.Server(own); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	now := c.own.Config()
	c.swap = func(config *tls.Config) { mu.Lock(); now = config; mu.Unlock() }
	config := c.own.Config()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { mu.Lock(); defer mu.Unlock(); return now, nil }
	s, err := httpd.NewTLS("127.0.0.1:0", http.NotFoundHandler(), config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	run(t, s.Run)
	c.address = s.Address().String()
	return c
}

// run runs something until the test or the returned function ends it.
func run(t *testing.T, what func(context.Context) error) (end func()) {
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- what(ctx) }()
	end = sync.OnceFunc(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	return end
}

func (c controller) port(t *testing.T) (address *net.TCPAddr) {
	t.Helper()
	address, err := net.ResolveTCPAddr("tcp", c.address)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// serves reports what a handshake for a name comes to, with these roots.
func (c controller) serves(name string, roots *x509.CertPool, protocols ...string) (tls.ConnectionState, error) {
	conn, err := tls.Dial("tcp", c.address, &tls.Config{ServerName: name, RootCAs: roots, NextProtos: protocols})
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer conn.Close()
	return conn.ConnectionState(), nil
}

// servesOwn fails unless the controller's own authority serves its name.
func (c controller) servesOwn(t *testing.T, when string) {
	t.Helper()
	trust, err := ca.NewTrust(c.pin, own, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", c.address, trust.Client())
	if err != nil {
		t.Errorf("%s: %v", when, err)
		return
	}
	_ = conn.Close()
}

func (c controller) settings(t *testing.T, a authority, names ...string) acme.Settings {
	return acme.Settings{
		Names: names, Email: "operator@example.org", Agreed: true,
		Dir: filepath.Join(t.TempDir(), "acme"), Directory: a.directory, Roots: a.server,
		Own: c.own.GetCertificate, Clock: time.Now, Log: slog.New(slog.NewTextHandler(c.log, nil)),
	}
}

func (c controller) names(t *testing.T, s acme.Settings) *acme.Names {
	t.Helper()
	n, err := acme.New(s)
	if err != nil {
		t.Fatal(err)
	}
	c.swap(n.Config())
	return n
}

// TestCertificate gets one from a real server of RFC 8555, which asks back on the
// same listener, while another name gets none and the own authority serves on.
func TestCertificate(t *testing.T) {
	c := newController(t)
	a := newAuthority(t, c.port(t).Port)
	s := c.settings(t, a, public, "Cloud.Example.org", missing)
	n := c.names(t, s)
	if _, err := c.serves(public, a.roots); err == nil {
		t.Error("the public name is served before there is a certificate")
	}
	c.log.wait(t, "not served", "name="+public, acme.ErrNone.Name())
	c.servesOwn(t, "before")
	end := run(t, func(ctx context.Context) error { return n.Run(ctx, c.port(t)) })
	c.log.wait(t, "new public certificate", public)
	var state tls.ConnectionState
	var err error
	for end := time.Now().Add(time.Minute); ; { // it is loaded a moment after it was got
		if state, err = c.serves(public, a.roots, "h2", "http/1.1"); err == nil || time.Now().After(end) {
			break
		}
	}
	if err != nil || state.NegotiatedProtocol != "h2" || state.Version != tls.VersionTLS13 || len(state.VerifiedChains) == 0 {
		t.Fatalf("%v, %q by %x", err, state.NegotiatedProtocol, state.Version)
	}
	if names := state.PeerCertificates[0].DNSNames; len(names) != 1 || names[0] != public {
		t.Errorf("the certificate is for %q", names)
	}
	if _, err := c.serves("CLOUD.example.org", a.roots); err != nil {
		t.Errorf("in other letters: %v", err)
	}

	// The other name has none. It is refused, by name, and so is its challenge.
	c.log.wait(t, "could not get certificate", missing)
	for _, protocols := range [][]string{{"h2"}, {"acme-tls/1"}} {
		if _, err := c.serves(missing, a.roots, protocols...); err == nil {
			t.Errorf("the missing name is served for %q", protocols)
		}
	}
	c.log.wait(t, "not served", "name="+missing, acme.ErrNone.Name())
	if got := strings.Count(c.log.String(), "name="+missing); got != 1 {
		t.Errorf("its refusal was logged %d times in a minute", got)
	}
	c.servesOwn(t, "after")

	// After a restart it is served from the folder, without the authority.
	end()
	if _, err := c.serves(public, a.roots); err == nil {
		t.Error("the public name is served after the end")
	}
	a.close()
	again := c.names(t, s)
	end = run(t, func(ctx context.Context) error { return again.Run(ctx, c.port(t)) })
	for end := time.Now().Add(time.Minute); ; {
		if _, err = c.serves(public, a.roots); err == nil || time.Now().After(end) {
			break
		}
	}
	if err != nil {
		t.Errorf("after a restart: %v", err)
	}
	end()
	files := 0
	if err := filepath.WalkDir(s.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return nil // a lock that is gone by now
		}
		if info.Mode().Perm()&0o077 != 0 && filepath.Ext(path) != ".lock" { // which holds no secret
			t.Errorf("%s has the mode %o", path, info.Mode().Perm())
		}
		if strings.HasSuffix(path, ".key") {
			files++
		}
		if filepath.Ext(path) == ".crt" {
			return os.WriteFile(path, []byte("damaged"), 0o600)
		}
		return nil
	}); err != nil || files == 0 {
		t.Errorf("%d key files, %v", files, err)
	}

	// A damaged certificate is no reason to serve another one.
	log := newLines()
	s.Log = slog.New(slog.NewTextHandler(log, nil))
	damaged := c.names(t, s)
	run(t, func(ctx context.Context) error { return damaged.Run(ctx, c.port(t)) })
	log.wait(t, "caching certificate", public)
	if _, err := c.serves(public, nil); err == nil {
		t.Error("the public name is served with a damaged certificate")
	}
	log.wait(t, "not served", "name="+public, acme.ErrNone.Name())
	c.servesOwn(t, "beside a damaged one")
}

// TestForeignChallenge: an authority that asks somewhere else gets no answer, so
// no certificate is given. This is the proof that the test server checks at all.
func TestForeignChallenge(t *testing.T) {
	c, other := newController(t), newController(t)
	a := newAuthority(t, other.port(t).Port)
	n := c.names(t, c.settings(t, a, public))
	run(t, func(ctx context.Context) error { return n.Run(ctx, c.port(t)) })
	c.log.wait(t, "could not get certificate", public)
	if _, err := c.serves(public, a.roots); err == nil {
		t.Error("there is a certificate for a name that leads elsewhere")
	}
	c.servesOwn(t, "all the while")
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o755); err != nil { // whatever the umask is
		t.Fatal(err)
	}
	good := acme.Settings{Names: []string{public}, Email: "operator@example.org", Agreed: true, Dir: filepath.Join(dir, "acme")}
	if _, err := acme.New(good); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*acme.Settings)
		want   *refusal.Kind
	}{
		"nobody agreed":      {func(s *acme.Settings) { s.Agreed = false }, acme.ErrTerms},
		"no names":           {func(s *acme.Settings) { s.Names = nil }, acme.ErrName},
		"too many names":     {func(s *acme.Settings) { s.Names = make([]string, ca.MaxHosts+1) }, acme.ErrName},
		"an address":         {func(s *acme.Settings) { s.Names = []string{"192.0.2.1"} }, acme.ErrName},
		"a wildcard":         {func(s *acme.Settings) { s.Names = []string{"*.example.org"} }, acme.ErrName},
		"one label":          {func(s *acme.Settings) { s.Names = []string{"cloud"} }, acme.ErrName},
		"a name at home":     {func(s *acme.Settings) { s.Names = []string{public, "nas.local"} }, acme.ErrName},
		"no mail address":    {func(s *acme.Settings) { s.Email = "" }, acme.ErrEmail},
		"a name with it":     {func(s *acme.Settings) { s.Email = "A <a@example.org>" }, acme.ErrEmail},
		"a long address":     {func(s *acme.Settings) { s.Email = strings.Repeat("a", 250) + "@example.org" }, acme.ErrEmail},
		"plain HTTP":         {func(s *acme.Settings) { s.Directory = "http://127.0.0.1/dir" }, acme.ErrDirectory},
		"no URL":             {func(s *acme.Settings) { s.Directory = "https://" }, acme.ErrDirectory},
		"a folder for all":   {func(s *acme.Settings) { s.Dir = open }, datadir.ErrData},
		"a folder in a file": {func(s *acme.Settings) { s.Dir = "/dev/null/acme" }, datadir.ErrData},
	} {
		s := good
		c.change(&s)
		if n, err := acme.New(s); !errors.Is(err, c.want) || n != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
