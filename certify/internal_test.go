package certify

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/allodhq/allod/wire/ai/protocol"
)

// TestEncrypted judges ways to a server that other tests do not have.
func TestEncrypted(t *testing.T) {
	start := func(min uint16) (string, *x509.CertPool) {
		s := httptest.NewUnstartedServer(http.NotFoundHandler())
		s.TLS = &tls.Config{MinVersion: min}
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.StartTLS()
		t.Cleanup(s.Close)
		roots := x509.NewCertPool()
		roots.AddCert(s.Certificate())
		return s.URL, roots
	}
	good, roots := start(tls.VersionTLS12)
	old, oldRoots := start(tls.VersionTLS10)
	for name, c := range map[string]struct {
		base  string
		roots *x509.CertPool
		want  Outcome
	}{
		"TLS":                          {good, roots, Passed},
		"TLS of an unknown authority":  {good, x509.NewCertPool(), Failed},
		"TLS 1.0":                      {old, oldRoots, Failed},
		"plain HTTP on this machine":   {"http://127.0.0.1:1", nil, Passed},
		"plain HTTP on this machine 6": {"http://[::1]:1", nil, Passed},
		"plain HTTP by name":           {"http://localhost", nil, Passed},
		"plain HTTP elsewhere":         {"http://192.0.2.1", nil, Failed},
		"plain HTTP by another name":   {"http://localhost.app.example", nil, Failed},
		"nobody":                       {"https://127.0.0.1:1", roots, NotProved},
	} {
		k := &kit{base: c.base, client: newClient(), maxWait: DefaultMaxWait, roots: c.roots}
		r := (&trial{ctx: t.Context(), kit: k, codec: protocol.Latest(), check: check{id: "B12", run: encrypted}}).judge()
		if r.Outcome != c.want || len(r.Evidence) == 0 {
			t.Errorf("%s: %s: %s %v", name, r.Outcome, r.Why, r.Evidence)
		}
	}
}

func TestShown(t *testing.T) {
	for id, want := range map[string]string{
		"runner_1-a.b:C": "runner_1-a.b:C", "": "(an id that is not plain)", "a b": "(an id that is not plain)", "\x1b[2J": "(an id that is not plain)",
		"a\u202eb": "(an id that is not plain)", strings.Repeat("x", 65): "(an id that is not plain)",
	} {
		if got := shown(id); got != want {
			t.Errorf("%q is shown as %q", id, got)
		}
	}
}
