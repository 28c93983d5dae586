package doctor

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/runner/confine"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/internal/service"
	"github.com/allodhq/allod/wire/ai"
)

func states(probes []Probe) string {
	var b strings.Builder
	for _, p := range probes {
		fmt.Fprintf(&b, "%s/%s=%s ", p.About, p.Name, p.State)
	}
	return strings.TrimSpace(b.String())
}

// TestFolder: what is wrong with it, and nothing else.
func TestFolder(t *testing.T) {
	const good = "folder/rights=ok folder/space=ok folder/write=ok folder/keys=ok folder/pairings=ok folder/files=ok"
	for name, c := range map[string]struct {
		change func(dir string) error
		was    string
		is     string
	}{
		"whole":        {func(string) error { return nil }, "", ""},
		"no pairing":   {func(dir string) error { return os.Remove(filepath.Join(dir, "pairings.json")) }, "pairings=ok", "pairings=failed"},
		"damaged":      {func(dir string) error { return os.WriteFile(filepath.Join(dir, "pairings.json"), []byte("{"), 0o600) }, "pairings=ok", "pairings=failed"},
		"no keys":      {func(dir string) error { return os.Remove(filepath.Join(dir, "keys.json")) }, "keys=ok", "keys=failed"},
		"open keys":    {func(dir string) error { return os.Chmod(filepath.Join(dir, "keys.json"), 0o644) }, "keys=ok folder/pairings=ok folder/files=ok", "keys=failed folder/pairings=ok folder/files=warning"},
		"an open file": {func(dir string) error { return os.Chmod(filepath.Join(dir, "pairings.json"), 0o640) }, "files=ok", "files=warning"},
		"environment":  {func(dir string) error { return os.WriteFile(filepath.Join(dir, "service.env"), []byte("x"), 0o600) }, "files=ok", "files=failed"},
	} {
		dir, _ := newFolder(t, "https://a.example")
		if err := c.change(dir); err != nil {
			t.Fatal(err)
		}
		probes := exam{Config{Home: dir}}.folder()
		want := strings.Replace(good, c.was, c.is, 1)
		if got := states(probes); got != strings.Replace(want, "space=ok", "space="+string(probes[1].State), 1) {
			t.Errorf("%s: %s", name, got)
		}
		for _, p := range probes {
			if (p.Do == "") != (p.State == OK || p.State == Skipped) || p.Tried == "" || p.Came == "" {
				t.Errorf("%s: %+v", name, p)
			}
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); left != nil {
			t.Errorf("%s: it left %q", name, left)
		}
	}
	if got := states(exam{Config{Home: filepath.Join(t.TempDir(), "absent")}}.folder()); got != "folder/rights=failed" {
		t.Errorf("absent: %s", got)
	}
	if runtime.GOOS == "windows" {
		return
	}
	dir, _ := newFolder(t, "")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := states(exam{Config{Home: dir}}.folder()); got != "folder/rights=failed" {
		t.Errorf("open: %s", got)
	}
}

// TestBackends: nothing generates, and each failure has its way out.
func TestBackends(t *testing.T) {
	list := `{"data":[{"id":"m1"}]}`
	var paths []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.Path)
		if r.Header.Get("Authorization") == "Bearer wrong" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(list))
	}))
	t.Cleanup(srv.Close)
	gone := httptest.NewServer(nil)
	gone.Close()
	t.Setenv("DOCTOR_KEY", "canary")
	t.Setenv("DOCTOR_WRONG", "wrong")
	t.Setenv("DOCTOR_UNSET", "")
	for name, c := range map[string]struct {
		backend settings.Backend
		model   string
		list    string
		state   State
		came    string
	}{
		"answers":         {settings.Backend{ID: "openai-http", BaseURL: srv.URL + "/v1"}, "", list, OK, "It lists 1."},
		"with a key":      {settings.Backend{ID: "openai-http", BaseURL: srv.URL + "/v1", KeyEnv: "DOCTOR_KEY"}, "", list, OK, "It lists 1."},
		"with a route":    {settings.Backend{ID: "openai-http", BaseURL: srv.URL + "/v1"}, "M1:latest", list, OK, "It lists 1."},
		"another model":   {settings.Backend{ID: "openai-http", BaseURL: srv.URL + "/v1"}, "m2", list, Failed, "not the one that the route llm.chat names"},
		"no model":        {settings.Backend{ID: "openai-http", BaseURL: srv.URL + "/v1"}, "", `{"data":[]}`, Warning, "lists no model"},
		"no key":          {settings.Backend{ID: "openai-http", BaseURL: srv.URL + "/v1", KeyEnv: "DOCTOR_UNSET"}, "", list, Failed, "It is DOCTOR_UNSET."},
		"a wrong key":     {settings.Backend{ID: "openai-http", BaseURL: srv.URL + "/v1", KeyEnv: "DOCTOR_WRONG"}, "", list, Failed, "backend-unauthorized"},
		"nobody":          {settings.Backend{ID: "openai-http", BaseURL: gone.URL + "/v1"}, "", list, Failed, "backend-unreachable"},
		"a bad address":   {settings.Backend{ID: "openai-http", BaseURL: "http://169.254.169.254/v1"}, "", list, Failed, "backend-metadata-address"},
		"what is no list": {settings.Backend{ID: "openai-http", BaseURL: srv.URL + "/v1"}, "", "<html>canary", Failed, "("},
	} {
		list = c.list
		s := settings.Settings{Backends: map[string]settings.Backend{"mine": c.backend}}
		if c.model != "" {
			s.Routes = map[ai.Kind]settings.Route{ai.KindChat: {Backend: "mine", Model: c.model}}
		}
		probes := exam{Config{Settings: s}}.backends(t.Context())
		if len(probes) != 1 || probes[0].State != c.state || !strings.Contains(probes[0].Came, c.came) || probes[0].About != "backend mine" || (probes[0].Do == "") != (c.state == OK) {
			t.Errorf("%s: %+v", name, probes)
		}
		if text := fmt.Sprintf("%+v", probes); strings.Contains(text, "canary") || strings.Contains(text, "wrong\"") {
			t.Errorf("%s: it shows %s", name, text)
		}
	}
	for _, p := range paths {
		if p != "/v1/models" {
			t.Errorf("it asked for %s", p)
		}
	}
}

// TestPrograms: a program that is not there is named, and what keeps programs in
// is told once.
func TestPrograms(t *testing.T) {
	dir, _ := newFolder(t, "")
	t.Setenv("PATH", t.TempDir())
	s := settings.Settings{Backends: map[string]settings.Backend{"a": {ID: "claude-cli"}, "b": {ID: "codex-cli"}}}
	probes := exam{Config{Home: dir, Settings: s}}.backends(t.Context())
	want := "(program-not-found)"
	if os.Geteuid() == 0 {
		want = "(program-as-root)"
	}
	if len(probes) != 3 || probes[2].Name != "isolation" {
		t.Fatalf("%+v", probes)
	}
	for _, p := range probes[:2] {
		if p.State != Failed || !strings.Contains(p.Came, want) || p.Do == "" {
			t.Errorf("%+v", p)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "doctor*")); left != nil {
		t.Errorf("it left %q", left)
	}
}

func TestIsolation(t *testing.T) {
	for _, c := range []struct {
		c    confine.Confinement
		want State
		came string
	}{
		{confine.Confinement{Enforced: true, ABI: 7}, OK, "version 7 of Landlock."},
		{confine.Confinement{Enforced: true, ABI: 1, Missing: []string{"sockets", "signals"}}, Warning, "stays open: sockets, signals."},
		{confine.Confinement{Reason: confine.ErrUnconfined.With("It is old.")}, Warning, "It is old. (programs-unconfined)"},
		{confine.Confinement{}, Warning, "(programs-unconfined)"},
	} {
		if p := isolation(c.c); p.State != c.want || !strings.Contains(p.Came, c.came) || (p.Do == "") != (c.want == OK) {
			t.Errorf("%+v: %+v", c, p)
		}
	}
}

// TestOfService: what is wrong is told from what is only so.
func TestOfService(t *testing.T) {
	for _, c := range []struct {
		state   service.State
		err     error
		program error
		want    State
	}{
		{service.NotInstalled, nil, nil, OK},
		{service.Running, nil, nil, OK},
		{service.Stopped, nil, nil, Warning},
		{service.Restarting, nil, nil, Failed},
		{service.Failed, nil, nil, Failed},
		{service.Running, nil, service.ErrWritable, Failed},
		{"", service.ErrForeign, nil, Warning},
		{"", errors.New("canary"), nil, Warning},
	} {
		p := OfService(service.Status{State: c.state}, c.err, c.program)
		if p.State != c.want || (p.Do == "") != (c.want == OK) || strings.Contains(p.Came, "canary") {
			t.Errorf("%+v: %+v", c, p)
		}
	}
}

// TestExamine: all parts, in their order.
func TestExamine(t *testing.T) {
	dir, _ := newFolder(t, "http://127.0.0.1:9")
	s := settings.Settings{Backends: map[string]settings.Backend{
		"b": {ID: "openai-http", BaseURL: "http://127.0.0.1:9/v1"}, "a": {ID: "openai-http", BaseURL: "http://127.0.0.1:9/v1"},
	}}
	got := states(Examine(t.Context(), Config{Home: dir, Version: "1", Settings: s}))
	_, got, _ = strings.Cut(got, "folder/files=ok ")
	if want := "backend a/models=failed backend b/models=failed site http://127.0.0.1:9/way=failed"; got != want {
		t.Errorf("%s", got)
	}
}
