package ca_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/ca"
	"github.com/allodhq/allod/refusal"
)

// dialEnv makes the test binary connect to host at an address, by its machine's
// roots and a clock, and say how that went.
const dialEnv = "ALLOD_TEST_DIAL"

func init() {
	words := strings.Fields(os.Getenv(dialEnv))
	if len(words) != 3 {
		return
	}
	now, err := time.Parse(time.RFC3339, words[2])
	if err == nil {
		err = dial(words[0], words[1], now)
	}
	if err != nil {
		fmt.Println(refusal.From(err).Kind().Name(), refusal.From(err).Detail())
	} else {
		fmt.Println("fine")
	}
	os.Exit(0)
}

func dial(host, address string, now time.Time) error {
	tr, err := ca.NewTrust(ca.Pin{}, host, at(now))
	if err != nil {
		return err
	}
	conn, err := tls.Dial("tcp", address, tr.Client())
	if err != nil {
		return tr.Explain(context.Background(), address, err)
	}
	return conn.Close()
}

// TestPublicName: without a pin the machine's own roots count, with what stands
// between them and a server. The process has roots of the test's.
func TestPublicName(t *testing.T) {
	rootKey, middleKey, key := newKey(t), newKey(t), newKey(t)
	root, middle := template(begin), template(begin)
	asRoot(root)
	root.MaxPathLenZero = false
	root.MaxPathLen = 1
	root = issue(t, root, root, rootKey, rootKey)
	asRoot(middle)
	middle.Subject.CommonName = "in the middle"
	middle = issue(t, middle, root, middleKey, rootKey)
	leaf := issue(t, template(begin), middle, key, middleKey)
	file := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	served := func(key any, chain ...*x509.Certificate) string {
		c := tls.Certificate{PrivateKey: key}
		for _, part := range chain {
			c.Certificate = append(c.Certificate, part.Raw)
		}
		return serve(t, &tls.Config{Certificates: []tls.Certificate{c}}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", begin.Format(http.TimeFormat))
		})
	}
	good, short := served(key, leaf, middle), served(key, leaf)
	own := open(t, t.TempDir(), at(begin))
	s, err := own.Server(host)
	if err != nil {
		t.Fatal(err)
	}
	ours := serve(t, s.Config(), http.NotFound)
	for name, c := range map[string]struct {
		host, address string
		now           time.Time
		want          string
	}{
		"good":             {host, good, begin, "fine"},
		"another host":     {"other.example.org", good, begin, ca.ErrHost.Name()},
		"a link missing":   {host, short, begin, ca.ErrPin.Name()},
		"our own CA":       {host, ours, begin, ca.ErrPin.Name()},
		"a clock behind":   {host, good, begin.Add(-3 * day), ca.ErrClock.Name() + " This machine's clock is 3 days behind the server's."},
		"run out":          {host, good, begin.Add(31 * day), ca.ErrClock.Name() + " This machine's clock is 30 days ahead of the server's."},
		"both out of time": {"other.example.org", good, begin.Add(-3 * day), ca.ErrHost.Name()},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+file, "SSL_CERT_DIR="+t.TempDir(), dialEnv+"="+strings.Join([]string{c.host, c.address, c.now.Format(time.RFC3339)}, " "))
		out, err := cmd.CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
}
