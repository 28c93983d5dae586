package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/allodhq/allod/internal/httpd"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/appapi"
	"github.com/allodhq/allod/site/sqlite"
)

// keyFolder is a site's folder with its store, in a path that is short enough for
// a socket.
func keyFolder(t *testing.T) (dir string, store *sqlite.Store) {
	t.Helper()
	dir, err := os.MkdirTemp("", "allod")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if store, err = sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, siteDatabase)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return dir, store
}

// TestKeysEitherWay holds that the keys of a site that runs are changed as those of
// one that does not: by the same rules, with the same words.
func TestKeysEitherWay(t *testing.T) {
	said := map[string]string{}
	for _, way := range []string{"opened", "running"} {
		dir, store := keyFolder(t)
		var keys appKeys = appapi.NewKeys(store.AppKeys(), nil)
		var log bytes.Buffer
		if way == "running" {
			admin, err := httpd.NewAdmin(dir, func(context.Context) error { return nil }, prometheus.NewRegistry(),
				slog.New(slog.DiscardHandler), serveAppKeys(keys, slog.New(slog.NewTextHandler(&log, nil))))
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- admin.Run(ctx) }()
			defer func() { stop(); <-ended }()
			keys = running(dir)
		}
		var text strings.Builder
		add := func(r appapi.KeyRequest) {
			k, err := keys.Add(t.Context(), r)
			k.CreatedAt = 0
			fmt.Fprintf(&text, "add %+v %v\n", k, err)
		}
		one := appapi.KeyRequest{Hash: [32]byte{1}, Name: "one", Scopes: []site.Scope{"read", "enqueue"}, Owner: "alice"}
		add(one)
		add(one)
		add(appapi.KeyRequest{Hash: [32]byte{2}, Name: "two", Scopes: []site.Scope{"admin"}})
		for name, r := range map[string]appapi.KeyRequest{
			"name": {Name: "canary\n"}, "bytes": {Name: "canary\xff"}, "owner": {Name: "n", Owner: "canary\xff", Scopes: []site.Scope{"read"}},
			"scope": {Name: "n", Scopes: []site.Scope{"canary\xff"}}, "none": {Name: "n"},
		} {
			if _, err := keys.Add(t.Context(), r); !errors.Is(err, site.ErrBadAppKey) || strings.Contains(err.Error(), "canary") {
				t.Errorf("%s, %s: %v", way, name, err)
			}
		}
		for _, name := range []string{"one", "one", "canary\xff", ""} {
			k, err := keys.Remove(t.Context(), name)
			k.CreatedAt, k.RemovedAt = 0, 0
			fmt.Fprintf(&text, "remove %+v %v\n", k, err)
		}
		list, err := keys.List(t.Context())
		for _, k := range list {
			k.CreatedAt = min(k.CreatedAt, 1)
			fmt.Fprintf(&text, "list %+v %v\n", k, err)
		}
		said[way] = text.String()
		if way == "running" && (strings.Count(log.String(), "app key") != 3 || strings.Contains(log.String(), "alice")) {
			t.Errorf("the log says\n%s", &log)
		}
	}
	if said["opened"] != said["running"] {
		t.Errorf("opened:\n%s\nrunning:\n%s", said["opened"], said["running"])
	}
	for _, want := range []string{"add {ID:key_0100000000000000 Name:one Scopes:[enqueue read] Owner:alice ", "app-key-taken", "app-key-unknown",
		"list {ID:key_0200000000000000 Name:two Scopes:[admin] Owner: CreatedAt:1 RemovedAt:0} <nil>\n"} {
		if !strings.Contains(said["opened"], want) {
			t.Errorf("%q is not in\n%s", want, said["opened"])
		}
	}
}

// TestKeyRequestsAreStrict holds that the admin socket takes the listed members
// only, and a hash that is one.
func TestKeyRequestsAreStrict(t *testing.T) {
	_, store := keyFolder(t)
	mux := http.NewServeMux()
	serveAppKeys(appapi.NewKeys(store.AppKeys(), nil), slog.New(slog.DiscardHandler))(mux)
	hash := strings.Repeat("ab", 32)
	for body, want := range map[string]string{
		`{"hash":"` + hash + `","name":"n","scopes":["read"]}`:                `"id":"key_abababababababab"`,
		`{"hash":"` + hash + `","name":"m","scopes":["read"],"canary":1}`:     "site-request",
		`{"hash":"` + hash[2:] + `","name":"m","scopes":["read"]}`:            "site-request",
		`{"hash":"` + hash + `ab","name":"m","scopes":["read"]}`:              "site-request",
		`{"hash":"canary","name":"m","scopes":["read"]}`:                      "site-request",
		`{"name":"m","scopes":["read"]}`:                                      "site-request",
		`canary`:                                                              "site-request",
		`{"hash":"` + hash + `","name":"` + strings.Repeat("a", 70<<10) + `"`: "site-request",
	} {
		w := serveOnce(mux, "POST", keysPath, body)
		if !strings.Contains(w, want) || strings.Contains(w, "canary") {
			t.Errorf("%.60s: %s", body, w)
		}
	}
}

func serveOnce(h http.Handler, method, path, body string) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Body.String()
}

// TestFirstAppKey holds when a folder's app key file is made, registered, and left
// alone.
func TestFirstAppKey(t *testing.T) {
	other := "allod-app-" + strings.Repeat("A", 43) + "\n"
	for name, c := range map[string]struct {
		file string // what is there; empty for none
		mode os.FileMode
		had  bool // another key, which was removed
		want string
	}{
		"a new folder":              {"", 0, false, "made first"},
		"an older folder":           {other, 0o600, false, "kept first"},
		"keys and no file":          {"", 0, true, "absent"},
		"keys and a file":           {other, 0o600, true, "passed over"},
		"a file for others":         {other, 0o640, false, "app-key-file"},
		"a damaged file":            {"canary", 0o600, false, "app-key-file"},
		"keys and a damaged file":   {"canary", 0o600, true, "passed over"},
		"keys and one for others":   {other, 0o640, true, "passed over"},
		"a key with something more": {other + "canary", 0o600, false, "app-key-file"},
	} {
		dir, store := keyFolder(t)
		path := filepath.Join(dir, appKeyFile)
		keys := appapi.NewKeys(store.AppKeys(), nil)
		if c.file != "" {
			if err := errors.Join(os.WriteFile(path, []byte(c.file), 0o600), os.Chmod(path, c.mode)); err != nil {
				t.Fatal(err)
			}
		}
		if c.had {
			if _, err := keys.Add(t.Context(), appapi.KeyRequest{Name: "x", Scopes: []site.Scope{"read"}}); err != nil {
				t.Fatal(err)
			}
			if _, err := keys.Remove(t.Context(), "x"); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // a second start changes nothing
			got, err := firstAppKey(t.Context(), keys, dir)
			text, _ := os.ReadFile(path)
			list, failed := keys.List(t.Context())
			if failed != nil {
				t.Fatal(failed)
			}
			var is string
			switch {
			case err != nil:
				is = strings.SplitN(err.Error(), ":", 2)[0]
			case got == "" && text == nil:
				is = "absent"
			case got == "" && string(text) == c.file:
				is = "passed over"
			case got == path && string(text) == c.file:
				is = "kept"
			case got == path && c.file == "":
				is = "made"
			}
			if len(list) == 1 {
				is += " " + list[0].Name
				k, err := appapi.ParseKey(strings.TrimSpace(string(text)))
				if err != nil {
					t.Fatal(err)
				}
				found, err := store.AppKeys().Find(t.Context(), k.Hash())
				if err != nil || !reflect.DeepEqual(found, list[0]) || fmt.Sprint(found.Scopes) != "[admin]" || found.Owner != "" {
					t.Errorf("%s: registered %+v, %v", name, found, err)
				}
			}
			if is != c.want {
				t.Errorf("%s: %s (%v), want %s", name, is, err, c.want)
			}
		}
	}
}

// TestUnseenKey holds that a key which could not be shown is not left behind.
func TestUnseenKey(t *testing.T) {
	dir, store := keyFolder(t)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	if code := Run(t.Context(), Env{Out: broken{}, Err: &errs}, []string{"site", "key", "add", "--data", dir, "--name", "n", "--scope", "read"}); code == 0 {
		t.Error("a key that nobody saw counts as shown")
	}
	var out bytes.Buffer
	if code := Run(t.Context(), Env{Out: &out, Err: &errs}, []string{"site", "key", "ls", "--data", dir, "--json"}); code != 0 ||
		strings.Contains(out.String(), `"n"`) || !strings.Contains(out.String(), `"first"`) {
		t.Errorf("left behind: %d %s%s", code, &out, &errs)
	}
}

// broken is an output that takes nothing.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
