package certify_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/allodhq/allod/certify"
	"github.com/allodhq/allod/wire/ai"
)

func audit(t *testing.T, s served, pair bool) certify.Report {
	t.Helper()
	r, err := certify.Audit(t.Context(), certify.AuditConfig{Server: s.url, Pair: pair})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAudit: our own site passes, and an audit that may not pair is granted nothing.
func TestAudit(t *testing.T) {
	var mu sync.Mutex
	requests, granted := 0, 0
	s := serve(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := &counted{ResponseWriter: w}
			next.ServeHTTP(c, r)
			mu.Lock()
			defer mu.Unlock()
			requests++
			if c.status/100 == 2 && r.Method != http.MethodGet {
				granted++
			}
		})
	})
	for _, pair := range []bool{false, true} {
		r := audit(t, s, pair)
		for _, one := range r.Results {
			if one.Outcome != certify.Passed || one.Why != "" || len(one.Evidence) == 0 || one.Version != "" {
				t.Errorf("%s: %s: %s\n%v", one.ID, one.Outcome, one.Why, one.Evidence)
			}
		}
		if want := len(certify.AuditChecks()); r.Err(true) != nil || pair && len(r.Results) != want || !pair && len(r.Results) != want-1 || len(r.Unprovable) > 0 {
			t.Errorf("%d results, %v", len(r.Results), r.Err(true))
		}
		if !pair && granted > 0 {
			t.Errorf("an audit was granted %d requests", granted)
		}
		if requests > 260*map[bool]int{false: 1, true: 2}[pair] {
			t.Errorf("%d requests were sent", requests)
		}
	}
}

type counted struct {
	http.ResponseWriter
	status int
}

func (c *counted) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

func (c *counted) Write(b []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	return c.ResponseWriter.Write(b)
}

// before serves what take takes, and leaves the rest to the server.
func before(take func(w http.ResponseWriter, r *http.Request) bool) lie {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !take(w, r) {
				next.ServeHTTP(w, r)
			}
		})
	}
}

// headers changes the headers of every answer.
func headers(change func(r *http.Request, h http.Header)) lie {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(&changed{w, func() { change(r, w.Header()) }}, r)
		})
	}
}

type changed struct {
	http.ResponseWriter
	change func()
}

func (c *changed) WriteHeader(status int) {
	c.change()
	c.ResponseWriter.WriteHeader(status)
}

func says(w http.ResponseWriter, text string) bool {
	_, _ = w.Write([]byte(text))
	return true
}

// TestAuditOfLies audits servers that are wrong in one way each.
func TestAuditOfLies(t *testing.T) {
	onDaemonPlane := func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, ai.PathPrefix+"/") }
	for name, c := range map[string]struct {
		lie  lie
		want string
	}{
		"unsigned requests are answered": {answers("/byollm/heartbeat", func(r *http.Request, status int, body map[string]any) int {
			if body["error"] == "unauthorized" && r.Header.Get("X-Byollm-Signature") == "" {
				return http.StatusOK
			}
			return status
		}), "B01"},
		"any signature will do": {answers("/byollm/heartbeat", func(r *http.Request, status int, body map[string]any) int {
			if body["error"] == "unauthorized" && r.Header.Get("X-Byollm-Signature") != "" {
				return http.StatusOK
			}
			return status
		}), "B02"},
		"an unknown version is a bad request": {answers("/byollm/release", func(_ *http.Request, status int, body map[string]any) int {
			if body["error"] == "unsupported-protocol-version" {
				clear(body)
				body["error"], body["message"] = "bad-request", "No."
			}
			return status
		}), "B03"},
		"endpoints take GET": {before(func(w http.ResponseWriter, r *http.Request) bool {
			return r.URL.Path == "/byollm/claim" && r.Method == http.MethodGet && says(w, "{}")
		}), "B04"},
		"paths are folded": {func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.URL.Path = strings.ToLower(r.URL.Path)
				next.ServeHTTP(w, r)
			})
		}, "B05"},
		"paths are decoded": {func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.URL.RawPath = ""
				next.ServeHTTP(w, r)
			})
		}, "B05"},
		"a page for debugging": {before(func(w http.ResponseWriter, r *http.Request) bool {
			return r.URL.Path == "/byollm/debug" && says(w, "<html>")
		}), "B06"},
		"jobs are listed to everybody": {before(func(w http.ResponseWriter, r *http.Request) bool {
			return r.URL.Path == "/v1/jobs" && r.Method == http.MethodGet && says(w, `{"jobs":[]}`)
		}), "B07"},
		"the body is read before the key": {before(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/v1/jobs" || r.Method != http.MethodPost || r.Header.Get("Origin") != "" {
				return false
			}
			w.WriteHeader(http.StatusBadRequest)
			return true
		}), "B07"},
		"metrics": {before(func(w http.ResponseWriter, r *http.Request) bool {
			return r.URL.Path == "/metrics" && says(w, "# HELP go_goroutines Number.\n# TYPE go_goroutines gauge\n")
		}), "B08"},
		"profiles": {before(func(w http.ResponseWriter, r *http.Request) bool {
			return r.URL.Path == "/debug/pprof/" && says(w, "<html>goroutine and heap</html>")
		}), "B08"},
		"an environment file": {before(func(w http.ResponseWriter, r *http.Request) bool {
			return r.URL.Path == "/.env" && says(w, "# comment\nDATABASE_URL=x\n")
		}), "B08"},
		"a page for every path": {before(func(w http.ResponseWriter, r *http.Request) bool {
			return !onDaemonPlane(r) && !strings.HasPrefix(r.URL.Path, "/v1/") && r.URL.Path != "/pair" && r.URL.Path != ai.PathPrefix && says(w, "<html>An app</html>")
		}), ""}, // which many apps have
		"input is repeated": {answers("/byollm/", func(r *http.Request, status int, body map[string]any) int {
			if body["error"] == "not-found" {
				body["message"] = r.URL.Path
			}
			return status
		}), "B09"},
		"a trace of the stack": {before(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasPrefix(r.URL.Path, "/v1/canary") {
				return false
			}
			w.WriteHeader(http.StatusNotFound)
			return says(w, "TypeError: x is undefined\n    at handle (app.js:12:3)")
		}), "B09"},
		"a framework's name": {headers(func(_ *http.Request, h http.Header) { h.Set("X-Powered-By", "Express") }), "B09"},
		"caches may keep refusals": {headers(func(r *http.Request, h http.Header) {
			if onDaemonPlane(r) {
				h.Del("Cache-Control")
			}
		}), "B10"},
		"types are guessed": {headers(func(r *http.Request, h http.Header) {
			if onDaemonPlane(r) {
				h.Del("X-Content-Type-Options")
			}
		}), "B10"},
		"the type is another": {headers(func(r *http.Request, h http.Header) {
			if onDaemonPlane(r) {
				h.Set("Content-Type", "text/html")
			}
		}), "B10"},
		"an endpoint redirects": {before(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/byollm/pair" || r.Method != http.MethodPost {
				return false
			}
			http.Redirect(w, r, "https://app.example/", http.StatusTemporaryRedirect)
			return true
		}), "B03 B10 B11 B13 B15 B16"},
		"any size is taken": {before(func(w http.ResponseWriter, r *http.Request) bool {
			return r.ContentLength > 1<<30 && says(w, "{}")
		}), "B13"},
		"any size is waited for": {before(func(w http.ResponseWriter, r *http.Request) bool {
			if r.ContentLength > 1<<30 {
				_, _ = io.Copy(io.Discard, r.Body)
			}
			return r.ContentLength > 1<<30
		}), "B13"},
		"every web page may read": {headers(func(_ *http.Request, h http.Header) { h.Set("Access-Control-Allow-Origin", "*") }), "B14"},
		"the web page that asks may read": {headers(func(r *http.Request, h http.Header) {
			if o := r.Header.Get("Origin"); o == "https://certify.invalid" {
				h.Set("Access-Control-Allow-Origin", o)
			}
		}), "B14"},
		"a poll tells the site": {answers("/byollm/pair", func(_ *http.Request, status int, body map[string]any) int {
			if body["status"] == "pending" {
				body["sites"] = map[string]any{}
			}
			return status
		}), "B15"},
		"the page has no policy": {headers(func(r *http.Request, h http.Header) {
			h.Del("Content-Security-Policy")
		}), "B16"},
		"the page takes scripts": {headers(func(r *http.Request, h http.Header) {
			if r.URL.Path == "/pair" {
				h.Set("Content-Security-Policy", "default-src 'self'; script-src 'unsafe-inline'; frame-ancestors 'none'")
			}
		}), "B16"},
		"the page can be framed": {headers(func(r *http.Request, h http.Header) {
			if r.URL.Path == "/pair" {
				h.Del("X-Frame-Options")
				h.Set("Content-Security-Policy", "default-src 'none'")
			}
		}), "B16"},
		"there is no page": {before(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/pair" {
				return false
			}
			http.NotFound(w, r)
			return true
		}), "B16"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := audit(t, serve(t, c.lie), true)
			var wrong []string
			for _, one := range r.Results {
				if one.Outcome != certify.Passed {
					wrong = append(wrong, one.ID)
					t.Logf("%s: %s: %s", one.ID, one.Outcome, one.Why)
				}
			}
			if got := strings.Join(wrong, " "); got != c.want || (r.Err(true) == nil) != (c.want == "") {
				t.Errorf("%q did not pass, want %q", got, c.want)
			}
		})
	}
}
