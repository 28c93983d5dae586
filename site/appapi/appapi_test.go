package appapi_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/appapi"
	"github.com/allodhq/allod/site/sqlite"
)

func newAPI(t *testing.T) (http.Handler, appapi.Key) {
	t.Helper()
	store, err := sqlite.Open(context.Background(), sqlite.Config{Path: filepath.Join(t.TempDir(), "site.db")})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := key.NewKeys[key.SiteRole](rand.Reader, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s, err := site.Open(context.Background(), site.Config{Store: store, Keys: []key.SiteKeys{keys}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(); _ = store.Close() })
	k, err := appapi.NewKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return appapi.NewHandler(s, k), k
}

func call(h http.Handler, authorization, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestKeyFirst holds that nothing is told without the key, not even which paths
// exist.
func TestKeyFirst(t *testing.T) {
	h, k := newAPI(t)
	for _, path := range []string{"/v1/jobs", "/v1/jobs/x", "/v1/runners", "/v1/nonsense", "/"} {
		for name, authorization := range map[string]string{
			"no key": "", "another scheme": "Basic " + k.Text(), "a bare key": k.Text(), "a key too long": "Bearer " + k.Text() + "x",
			"another key": "Bearer " + "allod-app-" + strings.Repeat("A", 43), "an empty key": "Bearer ",
		} {
			w := call(h, authorization, "GET", path, "")
			if w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), `"error":"app-key"`) {
				t.Errorf("%s with %s: %d %s", path, name, w.Code, w.Body)
			}
		}
		if w := call(h, "Bearer "+k.Text(), "GET", path, ""); w.Code == http.StatusUnauthorized {
			t.Errorf("%s with the key: %d %s", path, w.Code, w.Body)
		}
	}
	if text := fmt.Sprintf("%v %+v %#v %s", k, k, k, k); strings.Contains(text, k.Text()) {
		t.Error("a key prints itself")
	}
}

func TestRequests(t *testing.T) {
	h, k := newAPI(t)
	auth := "Bearer " + k.Text()
	const payload = `"payload":{"prompt":"p"}`
	for _, c := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"POST", "/v1/jobs", `{"id":"a","kind":"llm.generate","owner":"alice",` + payload + `}`, 201, `"state":"queued"`},
		{"POST", "/v1/jobs", `{"id":"a","kind":"llm.generate","owner":"alice",` + payload + `}`, 201, `"id":"a"`},
		{"POST", "/v1/jobs", `{"id":"a","kind":"llm.generate","owner":"mallory",` + payload + `}`, 409, `"error":"job-id-taken"`},
		{"POST", "/v1/jobs", `{"kind":"llm.chat","owner":"alice","audience":"named","allowedOwners":["bob"],"dependsOn":["x"],"ttlMs":1000,` +
			`"payload":{"messages":[{"role":"user","content":"c"}],"system":"s"}}`, 201, `"blocked":true`},
		{"POST", "/v1/jobs", `{"kind":"llm.generate","owner":"alice",` + payload + `,"canary":1}`, 400, `json-unknown-name`},
		{"POST", "/v1/jobs", `{"kind":"llm.generate","owner":"alice","payload":{"prompt":"p","canary":1}}`, 400, `json-unknown-name`},
		{"POST", "/v1/jobs", `{"kind":"llm.generate","owner":"alice","payload":{"messages":[]}}`, 400, `payload.prompt`},
		{"POST", "/v1/jobs", `{"kind":"canary","owner":"alice",` + payload + `}`, 400, `"error":"app-request"`},
		{"POST", "/v1/jobs", `{"kind":"llm.generate","owner":"alice","audience":"canary",` + payload + `}`, 400, `"error":"question-invalid"`},
		{"POST", "/v1/jobs", `{"kind":"llm.generate","owner":"alice","ttlMs":9007199254740991,` + payload + `}`, 400, `"error":"question-invalid"`},
		{"POST", "/v1/jobs", `{"kind":"llm.generate","owner":"alice","deadlineAt":1,` + payload + `}`, 400, `"error":"question-invalid"`},
		{"POST", "/v1/jobs", `canary`, 400, `"error":"app-request"`},
		{"POST", "/v1/jobs", ``, 400, `"error":"app-request"`},
		{"GET", "/v1/jobs/a", "", 200, `"noRunner":"no-runner-paired"`},
		{"GET", "/v1/jobs/a?waitMs=1", "", 200, `"state":"queued"`},
		{"GET", "/v1/jobs/a?waitMs=canary", "", 400, `"error":"app-request"`},
		{"GET", "/v1/jobs/a?waitMs=-1", "", 400, `"error":"app-request"`},
		{"GET", "/v1/jobs/canary", "", 404, `"error":"job-unknown"`},
		{"POST", "/v1/jobs/a/cancel", "", 200, `"state":"canceled"`},
		{"GET", "/v1/jobs/a?waitMs=1000", "", 200, `"reason":"app"`},
		{"POST", "/v1/jobs/canary/cancel", "", 404, `"error":"job-unknown"`},
		{"GET", "/v1/availability?owner=alice", "", 200, `"available":false`},
		{"GET", "/v1/availability", "", 400, `"error":"app-request"`},
		{"GET", "/v1/pairings/canary", "", 404, `"error":"pairing-unknown"`},
		{"POST", "/v1/pairings/canary/approve", `{"owner":"alice"}`, 404, `"error":"pairing-unknown"`},
		{"POST", "/v1/pairings/canary/approve", `{}`, 400, `"error":"app-request"`},
		{"POST", "/v1/pairings/canary/deny", "", 404, `"error":"pairing-unknown"`},
		{"GET", "/v1/runners", "", 200, `{"runners":[]}`},
		{"POST", "/v1/runners/canary/revoke", "", 404, `"error":"runner-unknown"`},
		{"POST", "/v1/sweep", "", 200, `{}`},
		{"DELETE", "/v1/jobs/a", "", 404, `"error":"app-path"`},
		{"GET", "/v1/canary", "", 404, `"error":"app-path"`},
	} {
		w := call(h, auth, c.method, c.path, c.body)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %s %s: %d %s, want %d with %s", c.method, c.path, c.body, w.Code, w.Body, c.code, c.want)
		}
		if strings.Contains(w.Body.String(), "canary") {
			t.Errorf("%s %s repeats its input: %s", c.method, c.path, w.Body)
		}
		if w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s: headers %v", c.method, c.path, w.Header())
		}
	}
}

// TestNoRunnerIsForJobsThatCouldRun holds that a job that waits for others is not
// said to lack a device.
func TestNoRunnerIsForJobsThatCouldRun(t *testing.T) {
	h, k := newAPI(t)
	const ask = `"kind":"llm.generate","owner":"alice","payload":{"prompt":"p"}}`
	for body, want := range map[string]bool{
		`{"id":"waits",` + ask:                     true,
		`{"id":"blocked","dependsOn":["x"],` + ask: false,
	} {
		w := call(h, "Bearer "+k.Text(), "POST", "/v1/jobs", body)
		if w.Code != http.StatusCreated || strings.Contains(w.Body.String(), `"noRunner"`) != want {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
}
