package appapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/storetest"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/envelope"
)

func TestRequests(t *testing.T) {
	a := newApp(t, func(c *site.Config) { c.Quota = 8 })
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
		{"POST", "/v1/jobs", `{"kind":"llm.generate",` + payload + `}`, 400, `"error":"app-request"`},
		{"POST", "/v1/jobs", `{"kind":"canary","owner":"alice",` + payload + `}`, 400, `"error":"app-request"`},
		{"POST", "/v1/jobs", `{"kind":"llm.generate","owner":"alice","audience":"canary",` + payload + `}`, 400, `"error":"question-invalid"`},
		{"POST", "/v1/jobs", `{"kind":"llm.generate","owner":"alice","ttlMs":9007199254740991,` + payload + `}`, 400, `"error":"question-invalid"`},
		{"POST", "/v1/jobs", `{"kind":"llm.generate","owner":"alice","deadlineAt":1,` + payload + `}`, 400, `"error":"question-invalid"`},
		{"POST", "/v1/jobs", `{"id":".","kind":"llm.generate","owner":"alice",` + payload + `}`, 400, `"error":"app-request"`},
		{"POST", "/v1/jobs", `{"id":"..","kind":"llm.generate","owner":"alice",` + payload + `}`, 400, `"error":"app-request"`},
		{"POST", "/v1/jobs", `{"id":"/","kind":"llm.generate","owner":"alice",` + payload + `}`, 400, `"error":"app-request"`},
		{"POST", "/v1/jobs", `canary`, 400, `"error":"app-request"`},
		{"POST", "/v1/jobs", ``, 400, `"error":"app-request"`},
		{"POST", "/v1/jobs?owner=alice", `{"kind":"llm.generate","owner":"alice",` + payload + `}`, 400, `"error":"app-request"`},
		{"GET", "/v1/jobs", "", 200, `"id":"a"`},
		{"GET", "/v1/jobs?limit=1&state=queued&owner=alice", "", 200, `"next":`},
		{"GET", "/v1/jobs?limit=0", "", 400, `"error":"app-request"`},
		{"GET", "/v1/jobs?limit=101", "", 400, `"error":"app-request"`},
		{"GET", "/v1/jobs?limit=canary", "", 400, `"error":"app-request"`},
		{"GET", "/v1/jobs?state=canary", "", 400, `"error":"question-invalid"`},
		{"GET", "/v1/jobs?after=canary", "", 404, `"error":"job-unknown"`},
		{"GET", "/v1/jobs?canary=1", "", 400, `"error":"app-request"`},
		{"GET", "/v1/jobs?owner=a&owner=b", "", 400, `"error":"app-request"`},
		{"GET", "/v1/jobs?owner=%zz", "", 400, `"error":"app-request"`},
		{"GET", "/v1/jobs/a", "", 200, `"noRunner":"no-runner-paired"`},
		{"GET", "/v1/jobs/a?waitMs=1", "", 200, `"state":"queued"`},
		{"GET", "/v1/jobs/a?waitMs=canary", "", 400, `"error":"app-request"`},
		{"GET", "/v1/jobs/a?waitMs=-1", "", 400, `"error":"app-request"`},
		{"GET", "/v1/jobs/a?waitMS=1", "", 400, `"error":"app-request"`},
		{"GET", "/v1/jobs/canary", "", 404, `"error":"job-unknown"`},
		{"GET", "/v1/jobs/canary%2Fcancel", "", 404, `"error":"job-unknown"`},
		{"POST", "/v1/jobs/a/cancel", `{"canary":1}`, 400, `"error":"app-request"`},
		{"POST", "/v1/jobs/a/cancel", "", 200, `"state":"canceled"`},
		{"GET", "/v1/jobs/a?waitMs=1000", "", 200, `"reason":"app"`},
		{"POST", "/v1/jobs/canary/cancel", "", 404, `"error":"job-unknown"`},
		{"GET", "/v1/availability?owner=alice", "", 200, `"available":false`},
		{"GET", "/v1/availability?owner=alice&kind=llm.chat&audience=public", "", 200, `"available":false`},
		{"GET", "/v1/availability?owner=alice&kind=canary", "", 400, `"error":"app-request"`},
		{"GET", "/v1/availability?owner=alice&audience=canary", "", 400, `"error":"app-request"`},
		{"GET", "/v1/availability", "", 400, `"error":"app-request"`},
		{"GET", "/v1/pairings/canary", "", 404, `"error":"pairing-unknown"`},
		{"POST", "/v1/pairings/canary/approve", `{"owner":"alice"}`, 404, `"error":"pairing-unknown"`},
		{"POST", "/v1/pairings/canary/approve", `{}`, 400, `"error":"app-request"`},
		{"POST", "/v1/pairings/canary/approve", `{"owner":"can\nary"}`, 400, `"error":"question-invalid"`},
		{"POST", "/v1/pairings/canary/deny", "", 404, `"error":"pairing-unknown"`},
		{"GET", "/v1/runners", "", 200, `{"runners":[]}`},
		{"GET", "/v1/runners/canary", "", 404, `"error":"runner-unknown"`},
		{"POST", "/v1/runners/canary/revoke", "", 404, `"error":"runner-unknown"`},
		{"POST", "/v1/sweep", "", 200, `{}`},
		{"DELETE", "/v1/jobs/a", "", 404, `"error":"app-path"`},
		{"GET", "/v1/canary", "", 404, `"error":"app-path"`},
	} {
		w := a.call(a.admin, c.method, c.path, c.body)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %s %s: %d %s, want %d with %s", c.method, c.path, c.body, w.Code, w.Body, c.code, c.want)
		}
		if strings.Contains(w.Body.String(), "canary") {
			t.Errorf("%s %s repeats its input: %s", c.method, c.path, w.Body)
		}
	}
	for i := range 8 {
		a.call(a.admin, "POST", "/v1/jobs", fmt.Sprintf(`{"id":"q%d","kind":"llm.generate","owner":"alice",%s}`, i, payload))
	}
	if w := a.call(a.admin, "POST", "/v1/jobs", `{"kind":"llm.generate","owner":"alice",`+payload+`}`); w.Code != http.StatusTooManyRequests {
		t.Errorf("over the quota: %d %s", w.Code, w.Body)
	}
}

// TestAudienceNames holds that apps may say private and team, and are answered in
// the protocol's words.
func TestAudienceNames(t *testing.T) {
	a := newApp(t)
	for name, want := range map[string]string{"private": "self", "team": "named", "self": "self", "named": "named", "public": "public"} {
		j := a.must(201, "POST", "/v1/jobs", `{"kind":"llm.generate","owner":"alice","audience":"`+name+`",`+payload+`}`)
		if j["audience"] != want {
			t.Errorf("%s becomes %v, want %s", name, j["audience"], want)
		}
		a.must(200, "GET", "/v1/availability?owner=alice&audience="+name, "")
	}
	a.must(201, "POST", "/v1/jobs", `{"kind":"llm.generate","owner":"alice","audience":"team","allowedOwners":["bob"],`+payload+`}`)
}

// TestAnyID holds that a path can name each job that can be asked.
func TestAnyID(t *testing.T) {
	a := newApp(t)
	for _, id := range []string{"a/b", "a//b", "../b", "a b", "é", "a%2Fb", "?", "cancel", "...", "//", "%"} {
		a.ask(ai.JobID(id), "alice")
		path := "/v1/jobs/" + url.PathEscape(id)
		if got := a.must(200, "GET", path, ""); got["id"] != id {
			t.Errorf("%s: %v", path, got)
		}
		if got := a.must(200, "POST", path+"/cancel", ""); got["id"] != id || got["state"] != "canceled" {
			t.Errorf("%s: %v", path, got)
		}
		a.must(200, "GET", "/v1/jobs?after="+url.QueryEscape(id), "")
	}
}

// TestNoRunnerIsForJobsThatCouldRun holds that a job that waits for others is not
// said to lack a device.
func TestNoRunnerIsForJobsThatCouldRun(t *testing.T) {
	a := newApp(t)
	const ask = `"kind":"llm.generate","owner":"alice","payload":{"prompt":"p"}}`
	for body, want := range map[string]bool{
		`{"id":"waits",` + ask:                     true,
		`{"id":"blocked","dependsOn":["x"],` + ask: false,
	} {
		if got := a.must(201, "POST", "/v1/jobs", body); (got["noRunner"] != nil) != want {
			t.Errorf("%s: %v", body, got)
		}
	}
}

// answered is how a device ends a job with an answer that says all there is.
func answered(runner string) (ai.RunnerID, byte, ai.RunMetadata, *ai.Usage, ai.Outcome) {
	ran := ai.RunMetadata{Model: "m", BackendClass: backend.HTTP, DurationMs: 7, Stop: ai.Stop{Reason: ai.StopLength, Reported: true}}
	return ai.RunnerID(runner), 1, ran, &ai.Usage{Prompt: 3, Completion: 0}, ai.Answer{Text: "t", ArtifactURL: "https://a.example/x"}
}

// instead has a device say that another model than its first choice ran.
func instead(l *envelope.Letter) {
	l.Instead = &ai.Instead{Model: "m0", Why: "backend-unreachable"}
}

// TestAnswers holds what an app sees of a job, from the device that takes it to
// its end.
func TestAnswers(t *testing.T) {
	a := newApp(t)
	a.start(1)
	runner := a.must(200, "POST", "/v1/pairings/CODE-0001/approve", `{"owner":"alice"}`)["id"].(string)
	_, _, ran, usage, full := answered(runner)
	bare := ai.RunMetadata{Model: "m", BackendClass: backend.Process, DurationMs: 7}
	for _, c := range []struct {
		id   ai.JobID
		ran  ai.RunMetadata
		use  *ai.Usage
		out  ai.Outcome
		want map[string]any // by their paths; nil is absent
	}{
		{"held", bare, nil, nil, map[string]any{
			"state": "claimed", "runnerId": runner, "attempts": 1.0, "noRunner": nil, "outcome": nil, "provenance": nil, "reason": nil,
		}},
		{"full", ran, usage, full, map[string]any{
			"state": "ok", "runnerId": nil, "outcome": map[string]any{"outcome": "ok", "text": "t", "artifactUrl": "https://a.example/x"},
			"provenance": map[string]any{
				"audience": "self", "runnerId": runner, "runnerOwner": "alice", "backendClass": "http", "model": "m", "untrusted": false,
				"stop": "length", "stopReported": true,
			},
			"usage": map[string]any{"promptTokens": 3.0, "completionTokens": 0.0},
		}},
		{"empty", bare, nil, ai.Answer{}, map[string]any{
			"state": "ok", "outcome": map[string]any{"outcome": "ok", "text": ""}, "usage": nil,
			"provenance.stop": nil, "provenance.stopReported": nil, "provenance.backendClass": "process",
		}},
		{"failed", bare, nil, ai.Failure{Code: "timeout", Message: "It took too long.", Retryable: false}, map[string]any{
			"state": "error", "outcome": map[string]any{"outcome": "error", "code": "timeout", "message": "It took too long.", "retryable": false},
		}},
		{"canceled", bare, nil, ai.Cancellation{}, map[string]any{
			"state": "canceled", "reason": nil, "outcome": map[string]any{"outcome": "canceled"},
		}},
	} {
		a.ask(c.id, "alice")
		a.finish(ai.RunnerID(runner), 1, c.ran, c.use, c.out)
		got := a.must(200, "GET", "/v1/jobs/"+string(c.id)+"?waitMs=10", "")
		for path, want := range c.want {
			if v := member(got, path); !reflect.DeepEqual(v, want) {
				t.Errorf("%s: %s is %v, want %v", c.id, path, v, want)
			}
		}
	}
	a.ask("another model", "alice")
	a.finish(ai.RunnerID(runner), 1, bare, nil, ai.Answer{Text: "t"}, instead)
	got := a.must(200, "GET", "/v1/jobs/another%20model", "")
	if want := map[string]any{"model": "m0", "why": "backend-unreachable"}; !reflect.DeepEqual(member(got, "instead"), want) {
		t.Errorf("instead is %v", member(got, "instead"))
	}
	if got := a.must(200, "GET", "/v1/jobs/full", ""); member(got, "instead") != nil {
		t.Errorf("the first choice ran instead of %v", member(got, "instead"))
	}
	// A list has the jobs and not what is in them.
	list := a.must(200, "GET", "/v1/jobs", "")
	if member(list, "jobs.4.id") != "full" || member(list, "jobs.4.state") != "ok" || member(list, "jobs.4.outcome") != nil {
		t.Errorf("listed %v", list)
	}
}

// TestJobMembers holds that an app is told back what it asked for.
func TestJobMembers(t *testing.T) {
	a := newApp(t)
	deadline := ai.MillisOf(time.Now().Add(time.Hour))
	got := a.must(201, "POST", "/v1/jobs", fmt.Sprintf(`{"id":"a","kind":"llm.generate","owner":"alice","audience":"team","allowedOwners":[],`+
		`"dependsOn":["y","x"],"ttlMs":5000,"deadlineAt":%d,%s}`, deadline, payload))
	for path, want := range map[string]any{
		"allowedOwners": []any{}, "dependsOn": []any{"x", "y"}, "ttlMs": 5000.0, "deadlineAt": float64(deadline),
		"claimableAt": nil, "blocked": true, "cancelRequested": false, "attempts": 0.0,
	} {
		if v := member(got, path); !reflect.DeepEqual(v, want) {
			t.Errorf("%s is %v, want %v", path, v, want)
		}
	}
	if got["createdAt"] != got["updatedAt"] || got["createdAt"].(float64) < 1 {
		t.Errorf("times %v", got)
	}
	a.ask("b", "alice")
	got = a.must(200, "GET", "/v1/jobs/b", "")
	if got["claimableAt"] != got["createdAt"] || got["allowedOwners"] != nil || got["dependsOn"] != nil || got["deadlineAt"] != nil || got["ttlMs"] != 900000.0 {
		t.Errorf("a plain job: %v", got)
	}
}

// TestWait holds that a look at a job is held until its time is over or the job is.
func TestWait(t *testing.T) {
	a := newApp(t)
	a.ask("a", "alice")
	begin := time.Now()
	if got := a.must(200, "GET", "/v1/jobs/a?waitMs=150", ""); got["state"] != "queued" || time.Since(begin) < 150*time.Millisecond {
		t.Errorf("after %v: %v", time.Since(begin), got)
	}
	ended := make(chan string)
	go func() {
		ended <- a.call(a.admin, "GET", "/v1/jobs/a?waitMs=9223372036854775807", "").Body.String()
	}()
	a.must(200, "POST", "/v1/jobs/a/cancel", "")
	if got := <-ended; !strings.Contains(got, `"state":"canceled"`) {
		t.Errorf("the end of it: %s", got)
	}
}

// TestPages reads a list to its end.
func TestPages(t *testing.T) {
	a := newApp(t)
	for i := range 7 {
		a.ask(ai.JobID(fmt.Sprint("j", i)), "alice")
	}
	a.ask("other", "bob")
	var got []any
	path, pages := "/v1/jobs?owner=alice&limit=3", 0
	for after := ""; ; pages++ {
		page := a.must(200, "GET", path+after, "")
		for i := range 3 {
			if id := member(page, fmt.Sprintf("jobs.%d.id", i)); id != nil {
				got = append(got, id)
			}
		}
		next, more := page["next"].(string)
		if !more {
			break
		}
		after = "&after=" + next
	}
	if want := []any{"j6", "j5", "j4", "j3", "j2", "j1", "j0"}; !reflect.DeepEqual(got, want) || pages != 2 {
		t.Errorf("%d pages after the first: %v", pages, got)
	}
	if all := a.must(200, "GET", "/v1/jobs", ""); member(all, "jobs.0.id") != "other" || len(all["jobs"].([]any)) != 8 {
		t.Errorf("everybody's: %v", all)
	}
}

// TestDevices holds what an app sees of a device, from its code to its end.
func TestDevices(t *testing.T) {
	var late time.Duration
	a := newApp(t, func(c *site.Config) { c.Clock = func() time.Time { return time.Now().Add(late) } })
	a.start(1)
	a.start(2)
	offers := []any{map[string]any{"kind": "llm.generate", "model": "m", "offerScope": "self"}}
	waiting := a.must(200, "GET", "/v1/pairings/code0001", "")
	for path, want := range map[string]any{
		"label": "lap\u202etop <b>", "platform": "win32", "version": "1.2.3", "capabilities": offers, "code": nil,
		"fingerprint": storetest.Identity[key.DeviceRole](1).String(),
	} {
		if v := member(waiting, path); !reflect.DeepEqual(v, want) {
			t.Errorf("waiting: %s is %v, want %v", path, v, want)
		}
	}
	a.must(200, "POST", "/v1/pairings/CODE-0002/deny", "{}")
	a.must(404, "POST", "/v1/pairings/CODE-0002/approve", `{"owner":"alice"}`)
	paired := a.must(200, "POST", "/v1/pairings/CODE-0001/approve", `{"owner":"alice"}`)
	id := paired["id"].(string)
	for path, want := range map[string]any{
		"owner": "alice", "label": "lap\u202etop <b>", "platform": "win32", "version": "1.2.3", "capabilities": offers,
		"fingerprint": waiting["fingerprint"], "online": true, "paused": false, "revokedAt": nil, "seenAt": paired["createdAt"],
	} {
		if v := member(paired, path); !reflect.DeepEqual(v, want) {
			t.Errorf("paired: %s is %v, want %v", path, v, want)
		}
	}
	if got := a.must(200, "GET", "/v1/runners/"+id, ""); !reflect.DeepEqual(got, paired) {
		t.Errorf("looked at: %v, want %v", got, paired)
	}
	if got := a.must(200, "GET", "/v1/runners?owner=alice", ""); !reflect.DeepEqual(member(got, "runners.0"), any(paired)) {
		t.Errorf("listed: %v, want %v", got, paired)
	}
	if got := a.must(200, "GET", "/v1/runners?owner=bob", ""); len(got["runners"].([]any)) != 0 {
		t.Errorf("listed for another: %v", got)
	}
	late = time.Minute
	if got := a.must(200, "GET", "/v1/runners/"+id, ""); got["online"] != false {
		t.Errorf("after a silent minute: %v", got)
	}
	late = 0
	if got := a.must(200, "POST", "/v1/runners/"+id+"/revoke", "{}"); got["online"] != false || got["revokedAt"] == nil {
		t.Errorf("revoked: %v", got)
	}
}
