package cli

import (
	"bytes"
	"context"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestHidesCallers: whoever puts a proxy before a site and trusts none is told at
// the start that the limits count all callers as one.
func TestHidesCallers(t *testing.T) {
	const warning = "count all callers as one"
	for _, c := range []struct {
		name   string
		config siteConfig
		want   bool
	}{
		{"no origin", siteConfig{}, false},
		{"an origin here", siteConfig{Origin: "http://127.0.0.1:8080"}, false},
		{"an origin by this machine's name", siteConfig{Origin: "http://localhost:8080"}, false},
		{"an origin elsewhere", siteConfig{Origin: "https://app.example"}, true},
		{"by IPv6", siteConfig{Origin: "https://app.example", Listen: "[::1]:8080"}, true},
		{"by a name", siteConfig{Origin: "https://app.example", Listen: "localhost:8080"}, true},
		{"reached from elsewhere", siteConfig{Origin: "https://app.example", Listen: "192.0.2.1:8080"}, false},
		{"reached from everywhere", siteConfig{Origin: "https://app.example", Listen: ":8080"}, false},
		{"a trusted proxy", siteConfig{Origin: "https://app.example", TrustedProxies: []string{"127.0.0.1/32"}}, false},
		{"no limits", siteConfig{Origin: "https://app.example", Limits: "off"}, false},
	} {
		c.config.Data = "d"
		s, problems := c.config.setup(inFile())
		if got := s.hidesCallers(); got != c.want || len(problems) > 0 {
			t.Errorf("%s: %v, %+v", c.name, got, problems)
		}
	}
	if runtime.GOOS == "windows" {
		t.Skip("no key files here")
	}
	for origin, want := range map[string]bool{"https://app.example": true, "http://localhost": false} {
		ctx, stop := context.WithCancel(t.Context())
		var errs bytes.Buffer
		// Its first line says that it serves.
		env := Env{Out: onWrite(stop), Err: &errs, Version: "test"}
		code := Run(ctx, env, []string{"site", "serve", "--data", filepath.Join(t.TempDir(), "data"), "--listen", "127.0.0.1:0", "--origin", origin})
		stop()
		if said := strings.Contains(errs.String(), warning); code != 0 || said != want {
			t.Errorf("%s: ended with %d, and the log says\n%s", origin, code, errs.String())
		}
	}
}

// onWrite is called at each write.
type onWrite func()

func (w onWrite) Write(p []byte) (int, error) { w(); return len(p), nil }
