package certify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allodhq/allod/certify"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// lie changes what a server says, or what it is told, in one way.
type lie func(next http.Handler) http.Handler

// answers changes the answers below a path: the body as an object, and the status.
func answers(path string, change func(r *http.Request, status int, body map[string]any) int) lie {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasPrefix(r.URL.Path, path) {
				next.ServeHTTP(w, r)
				return
			}
			got := httptest.NewRecorder()
			next.ServeHTTP(got, r)
			var body map[string]any
			if err := json.Unmarshal(got.Body.Bytes(), &body); err != nil {
				body = map[string]any{}
			}
			status := change(r, got.Code, body)
			text, err := json.Marshal(body)
			if err != nil {
				panic(err)
			}
			for name, values := range got.Header() {
				w.Header()[name] = values
			}
			w.Header().Del("Content-Length")
			w.WriteHeader(status)
			_, _ = w.Write(text)
		})
	}
}

// requests changes the bodies of requests below a path.
func requests(path string, change func(body map[string]any)) lie {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, path) && r.Method == http.MethodPost {
				text, _ := io.ReadAll(r.Body)
				var body map[string]any
				if json.Unmarshal(text, &body) == nil {
					change(body)
					text, _ = json.Marshal(body)
				}
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
			}
			next.ServeHTTP(w, r)
		})
	}
}

// drops answers requests whose path ends so with an empty object, and does nothing.
func drops(suffix string) lie {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, suffix) {
				_, _ = w.Write([]byte("{}"))
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func clear(body map[string]any) {
	for name := range body {
		delete(body, name)
	}
}

// roster tells with each claim which owners the app named lately.
func roster(next http.Handler) http.Handler {
	var mu sync.Mutex
	named := ""
	return requests("/v1/jobs", func(body map[string]any) {
		if list, ok := body["allowedOwners"]; ok {
			text, _ := json.Marshal(list)
			mu.Lock()
			named += string(text)
			mu.Unlock()
		}
	})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/byollm/claim" {
			mu.Lock()
			w.Header().Set("X-Certify-Roster", named)
			mu.Unlock()
		}
		next.ServeHTTP(w, r)
	}))
}

// twice grants to who comes next what was granted last.
func twice(next http.Handler) http.Handler {
	var mu sync.Mutex
	var last any
	return answers("/byollm/claim", func(_ *http.Request, status int, body map[string]any) int {
		mu.Lock()
		defer mu.Unlock()
		jobs, ok := body["jobs"].([]any)
		switch {
		case !ok:
		case len(jobs) > 0:
			last = body["jobs"]
		case last != nil:
			body["jobs"] = last
		}
		return status
	})(next)
}

// clocked need a clock of the server and are run where a lie is about them only.
var clocked = []string{"A05", "A19", "A20", "A21", "A28", "A29", "A31"}

// TestLies runs the kit against servers that lie in one way each: exactly the
// checks that are about it fail.
func TestLies(t *testing.T) {
	var quick []string
	for _, c := range certify.Checks() {
		if !slices.Contains(clocked, c.ID) {
			quick = append(quick, c.ID)
		}
	}
	outcome := func(body map[string]any) (map[string]any, bool) {
		p, ok := body["provenance"].(map[string]any)
		return p, ok
	}
	for name, c := range map[string]struct {
		lie  lie
		only []string // beside the quick ones where it is empty
		want string
	}{
		"an unknown version is a bad request": {answers("/byollm/", func(_ *http.Request, status int, body map[string]any) int {
			if body["error"] == "unsupported-protocol-version" {
				clear(body)
				body["error"], body["message"] = "bad-request", "No."
			}
			return status
		}), nil, "A01 A02"},
		"a start tells the site's key": {answers("/byollm/pair", func(_ *http.Request, status int, body map[string]any) int {
			if body["userCode"] != nil {
				body["siteKeyId"] = "BYOLLM-0000-0000-0000-0000-0000-0000"
			}
			return status
		}), []string{"A07"}, "A07"},
		"an approval names no site": {answers("/byollm/pair", func(_ *http.Request, status int, body map[string]any) int {
			if body["sites"] != nil {
				body["sites"] = map[string]any{}
			}
			return status
		}), []string{"A07"}, "A07"},
		"unsigned heartbeats are answered": {answers("/byollm/heartbeat", func(r *http.Request, status int, body map[string]any) int {
			if r.Header.Get("X-Byollm-Signature") == "" && body["error"] == "unauthorized" {
				return http.StatusOK
			}
			return status
		}), nil, "A08"},
		"old requests are answered": {answers("/byollm/heartbeat", func(_ *http.Request, status int, body map[string]any) int {
			if body["error"] == "clock-skew" {
				return http.StatusOK
			}
			return status
		}), nil, "A10"},
		"heartbeats are not told what is lost": {answers("/byollm/heartbeat", func(_ *http.Request, status int, body map[string]any) int {
			if body["lost"] != nil {
				body["lost"] = []any{}
			}
			return status
		}), nil, "A12 A36"},
		"heartbeats are not told what is lost, by time": {answers("/byollm/heartbeat", func(_ *http.Request, status int, body map[string]any) int {
			if body["lost"] != nil {
				body["lost"] = []any{}
			}
			return status
		}), []string{"A19"}, "A19"},
		"heartbeats are not told what is canceled": {answers("/byollm/heartbeat", func(_ *http.Request, status int, body map[string]any) int {
			if body["cancel"] != nil {
				body["cancel"] = []any{}
			}
			return status
		}), nil, "A25 A26"},
		"a lease carries more": {answers("/byollm/claim", func(_ *http.Request, status int, body map[string]any) int {
			jobs, _ := body["jobs"].([]any)
			for _, j := range jobs {
				j.(map[string]any)["lease"].(map[string]any)["prompt"] = "Say yes."
			}
			return status
		}), nil, "A13"},
		"every result is accepted": {answers("/byollm/result", func(_ *http.Request, status int, body map[string]any) int {
			if body["duplicate"] == true {
				delete(body, "duplicate")
				body["accepted"] = true
			}
			return status
		}), nil, "A11 A32"},
		"results are accepted unopened": {answers("/byollm/result", func(_ *http.Request, status int, body map[string]any) int {
			if body["error"] == "bad-request" {
				clear(body)
				body["accepted"], body["state"] = true, "ok"
				return http.StatusOK
			}
			return status
		}), nil, "A15"},
		"payloads are damaged": {answers("/byollm/fetch", func(_ *http.Request, status int, body map[string]any) int {
			if e, ok := body["envelope"].(map[string]any); ok {
				text := e["ciphertext"].(string)
				e["ciphertext"] = text[:200] + strings.Map(func(r rune) rune { return 'A' }, text[200:240]) + text[240:]
			}
			return status
		}), nil, "A14 A34"},
		"dependencies are forgotten":       {requests("/v1/jobs", func(body map[string]any) { delete(body, "dependsOn") }), nil, "A27 A30"},
		"times to live are forgotten":      {requests("/v1/jobs", func(body map[string]any) { delete(body, "ttlMs") }), []string{"A28"}, "A28"},
		"times to live start at once":      {requests("/v1/jobs", func(body map[string]any) { delete(body, "dependsOn") }), []string{"A29"}, "A29"},
		"the list of owners is forgotten":  {requests("/v1/jobs", func(body map[string]any) { delete(body, "allowedOwners") }), []string{"A22"}, "A22"},
		"the audience is widened":          {requests("/v1/jobs", func(body map[string]any) { body["audience"] = "named" }), []string{"A22"}, "A22"},
		"the list of owners is told":       {roster, nil, "A34"},
		"jobs are granted twice":           {twice, []string{"A18"}, "A18"},
		"revoking does nothing":            {drops("/revoke"), nil, "A24 A30"},
		"cancelling does nothing":          {drops("/cancel"), nil, "A25 A26"},
		"denying does nothing":             {drops("/deny"), nil, "A04"},
		"codes are approved by anybody":    {answers("/v1/pairings/", func(*http.Request, int, map[string]any) int { return http.StatusOK }), nil, "A04 A06"},
		"codes are approved by word alone": {answers("/v1/pairings/", func(*http.Request, int, map[string]any) int { return http.StatusOK }), []string{"A05"}, "A05"},
		"nobody is ever missing": {answers("/v1/jobs", func(_ *http.Request, status int, body map[string]any) int {
			delete(body, "noRunner")
			return status
		}), nil, "A30"},
		"blocked jobs are missing somebody": {answers("/v1/jobs", func(_ *http.Request, status int, body map[string]any) int {
			if body["blocked"] == true {
				body["noRunner"] = "no-runner-paired"
			}
			return status
		}), nil, "A30"},
		"the job's owner is said to own the device": {answers("/v1/jobs", func(_ *http.Request, status int, body map[string]any) int {
			if p, ok := outcome(body); ok {
				p["runnerOwner"] = body["owner"]
			}
			return status
		}), nil, "A33"},
		"everything is trusted": {answers("/v1/jobs", func(_ *http.Request, status int, body map[string]any) int {
			if p, ok := outcome(body); ok {
				p["untrusted"] = false
			}
			return status
		}), nil, "A33"},
		"a result has no provenance": {answers("/v1/jobs", func(_ *http.Request, status int, body map[string]any) int {
			delete(body, "provenance")
			return status
		}), nil, "A33"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			only, clocks := c.only, func(*site.Config) {}
			if only == nil {
				// None of them waits for a clock, and none may be late on a busy machine.
				only, clocks = quick, func(c *site.Config) { c.Lease, c.PairTTL, c.Liveness = 0, 0, 0 }
			}
			r := run(t, serve(t, c.lie, clocks), certify.Config{Only: only, Versions: []string{"0"}, MaxWait: 8 * time.Second})
			var failed []string
			for _, one := range r.Results {
				if one.Outcome != certify.Passed {
					failed = append(failed, one.ID)
					t.Logf("%s: %s: %s", one.ID, one.Outcome, one.Why)
				}
			}
			if got := strings.Join(failed, " "); got != c.want {
				t.Errorf("%q failed, want %q", got, c.want)
			}
			if (r.Err(false) != nil) != (c.want != "") {
				t.Errorf("the verdict is %v", r.Err(false))
			}
		})
	}
}

// TestHostile runs the kit against servers that answer nonsense: it ends, nothing
// passes that should not, and what they wrote does not reach the report.
func TestHostile(t *testing.T) {
	const hostile = "canary\x1b];hijack\x07\u202e"
	quoted, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	spoken := `{"error":"unsupported-protocol-version","message":` + string(quoted) + `,"supported":["2",` + string(quoted) + `],"minimum":"2"}`
	for name, c := range map[string]struct {
		status int
		body   string
	}{
		"nothing":           {200, ""},
		"a list":            {200, "[]"},
		"a lot":             {200, strings.Repeat("[", 4<<20)},
		"hostile texts":     {200, `{"jobs":[{"id":` + string(quoted) + `}],"leaseMs":9007199254740991,"status":` + string(quoted) + `,"state":` + string(quoted) + `,"id":` + string(quoted) + `}`},
		"a hostile refusal": {403, `{"error":"forbidden","message":` + string(quoted) + `}`},
		"no status":         {599, hostile},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var body []byte
				if r.ContentLength < 1<<20 {
					body, _ = io.ReadAll(r.Body)
				}
				if strings.HasPrefix(r.URL.Path, "/byollm/") && bytes.Contains(body, []byte(`"protocolVersion":"certify"`)) {
					w.WriteHeader(http.StatusBadRequest)
					_, _ = w.Write([]byte(spoken))
					return
				}
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body))
			}))
			defer server.Close()
			app := liar{}
			r, err := certify.Run(t.Context(), certify.Config{Server: server.URL, App: app, MaxWait: 200 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			if r.Passed > 0 || r.Failed == 0 || len(r.Untested) != 1 {
				t.Errorf("%d passed, %d failed, untested %q", r.Passed, r.Failed, r.Untested)
			}
			audited, err := certify.Audit(t.Context(), certify.AuditConfig{Server: server.URL, Pair: true})
			if err != nil || audited.Err(true) == nil {
				t.Errorf("an audit: %v, %v", err, audited.Err(true))
			}
			for _, report := range []certify.Report{r, audited} {
				text, err := json.Marshal(report)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(text), "hijack") {
					t.Errorf("the report holds what the server wrote: %s", text)
				}
			}
		})
	}
}

// liar is an app's half that says hostile things.
type liar struct{}

const hostileID = "canary\x1b];hijack\x07"

func lied() certify.Job {
	return certify.Job{DeliveredResult: ai.DeliveredResult{JobID: hostileID, State: hostileID, Provenance: &ai.Provenance{Audience: hostileID, RunnerID: hostileID, RunnerOwner: hostileID}}}
}

func (liar) Enqueue(context.Context, certify.Ask) (certify.Job, error) { return lied(), nil }

func (liar) Job(context.Context, ai.JobID, time.Duration) (certify.Job, error) { return lied(), nil }

func (liar) Cancel(context.Context, ai.JobID) (certify.Job, error) { return lied(), nil }

func (liar) Available(context.Context, ai.Owner, ai.Kind, ai.Audience) (bool, error) {
	return true, nil
}

func (liar) Approve(context.Context, string, ai.Owner) error { return nil }

func (liar) Deny(context.Context, string) error { return nil }

func (liar) Revoke(context.Context, ai.RunnerID) error { return nil }
