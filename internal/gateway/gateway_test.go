package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allodhq/allod/internal/gateway"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// inBubble runs a test in a clock of its own.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// TestChat holds what goes to the device and, byte for byte, what comes back.
func TestChat(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t)
		d := h.pair("alice")
		out := h.start(chat(`{"model":"auto","messages":[{"role":"developer","content":"Be brief."},` +
			`{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]},` +
			`{"role":"assistant","content":"yes?","refusal":null,"annotations":[]},{"role":"system","content":""}],` +
			`"n":1,"store":false,"stop":null,"tools":[],"response_format":{ "type": "text" },"user":"alice","temperature":0.2}`))
		synctest.Wait()
		g, asked := d.take()
		want := ai.Chat{Messages: []ai.ChatMessage{
			{Role: "system", Content: "Be brief."}, {Role: "user", Content: "one\ntwo"}, {Role: "assistant", Content: "yes?"}, {Role: "system"},
		}}
		if !reflect.DeepEqual(asked, want) {
			t.Errorf("the device was asked %+v, want %+v", asked, want)
		}
		d.finish(g, ai.Answer{Text: "a \"text\"\n"})
		w := <-out
		// The clock of a bubble begins with the year 2000.
		body := `{"id":"chatcmpl-` + string(g.JobID) + `","object":"chat.completion","created":946684800,"model":"auto",` +
			`"choices":[{"index":0,"message":{"role":"assistant","content":"a \"text\"\n","refusal":null},"logprobs":null,"finish_reason":"stop"}]}`
		if w.Code != http.StatusOK || w.Body.String() != body {
			t.Errorf("%d\n%s, want\n%s", w.Code, w.Body, body)
		}
		for name, want := range map[string]string{
			"X-Allod-Instead": "", "X-Allod-Job": string(g.JobID), "X-Allod-Machine": "own", "X-Allod-Untrusted": "false", "X-Allod-Dropped": "temperature",
			"Content-Type": "application/json", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	})
}

// TestCompletion is the older endpoint.
func TestCompletion(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t)
		d := h.pair("alice")
		for _, prompt := range []string{`"once"`, `["once"]`} {
			out := h.start(visit{method: "POST", path: "/v1/completions", key: "everyone",
				body: `{"model":"write-only","user":"alice","best_of":1,"echo":false,"prompt":` + prompt + `}`})
			synctest.Wait()
			g, asked := d.take()
			if asked != (ai.Generate{Prompt: "once"}) {
				t.Errorf("the device was asked %+v", asked)
			}
			d.finish(g, ai.Answer{Text: "upon"}, func(m *ai.RunMetadata) { m.Stop = ai.Stop{Reason: ai.StopEnd, Reported: true} })
			w := <-out
			body := `{"id":"cmpl-` + string(g.JobID) + `","object":"text_completion","created":946684800,"model":"write-only",` +
				`"choices":[{"index":0,"text":"upon","logprobs":null,"finish_reason":"stop"}]}`
			if w.Code != http.StatusOK || w.Body.String() != body {
				t.Errorf("%s: %d\n%s, want\n%s", prompt, w.Code, w.Body, body)
			}
			if w.Header().Values("X-Allod-Dropped") != nil {
				t.Errorf("dropped %v", w.Header())
			}
		}
	})
}

// TestShared holds that an answer of another person's machine is said to be one.
func TestShared(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t)
		d := h.pair("bob", capability(ai.KindChat, ai.OfferNamed))
		v := hello("")
		v.body = strings.Replace(v.body, "auto", "friends", 1)
		out := h.start(v)
		synctest.Wait()
		g, _ := d.take()
		d.instead = &ai.Instead{Model: "first-secret-model-name", Why: "backend-unreachable"}
		d.finish(g, ai.Answer{Text: "x"})
		w := <-out
		if w.Code != 200 || w.Header().Get("X-Allod-Machine") != "shared" || w.Header().Get("X-Allod-Untrusted") != "true" ||
			w.Header().Get("X-Allod-Instead") != "backend-unreachable" {
			t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
		}
		if strings.Contains(w.Body.String(), "secret-model-name") || strings.Contains(fmt.Sprint(w.Header()), "secret-model-name") {
			t.Error("the answer names the owner's model")
		}
		// Its streamed form says it at the end.
		v.body = strings.TrimSuffix(v.body, "}") + `,"stream":true}`
		out = h.start(v)
		synctest.Wait()
		g, _ = d.take()
		d.finish(g, ai.Answer{Text: "x"})
		if w := <-out; !strings.Contains(w.Body.String(), `"allod":{"job":"`+string(g.JobID)+`","machine":"shared","untrusted":true,"instead":"backend-unreachable"}`) {
			t.Errorf("%s", w.Body)
		}
	})
}

// written is an answer with the time of each of its parts.
type written struct {
	*httptest.ResponseRecorder
	begin   time.Time
	parts   []string
	flushed int
}

func (w *written) Write(b []byte) (int, error) {
	if len(b) > 0 {
		w.parts = append(w.parts, fmt.Sprintf("%s %s", time.Since(w.begin), b))
	}
	return w.ResponseRecorder.Write(b)
}

func (w *written) FlushError() error { w.flushed = len(w.parts); return nil }

// TestStream holds each event and when it comes, and that each is sent at once.
func TestStream(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t)
		d := h.pair("alice")
		v := hello(`,"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false}`)
		r := httptest.NewRequest(v.method, v.path, strings.NewReader(v.body))
		r.Header.Set("Authorization", "Bearer alice")
		w := &written{ResponseRecorder: httptest.NewRecorder(), begin: time.Now()}
		done := make(chan bool)
		go func() { h.gateway.ServeHTTP(w, r); close(done) }()
		synctest.Wait()
		if w.Header().Get("Content-Type") != "text/event-stream" || w.Header().Get("X-Allod-Job") == "" || w.Code != 200 {
			t.Errorf("the answer does not begin at once: %v", w.Header())
		}
		g, _ := d.take()
		time.Sleep(24 * time.Second)
		d.beat(g)
		synctest.Wait()
		if w.flushed != len(w.parts) || len(w.parts) != 3 {
			t.Errorf("%d of %d parts are sent, want 3 of 3", w.flushed, len(w.parts))
		}
		d.finish(g, ai.Answer{Text: "te\nxt"})
		<-done
		head := `data: {"id":"chatcmpl-` + string(g.JobID) + `","object":"chat.completion.chunk","created":946684800,"model":"auto","choices":`
		want := []string{
			"1s : keep-alive\n\n", "11s : keep-alive\n\n", "21s : keep-alive\n\n",
			"24.001s " + head + `[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}` + "\n\n",
			"24.001s " + head + `[{"index":0,"delta":{"content":"te\nxt"},"logprobs":null,"finish_reason":null}]}` + "\n\n",
			"24.001s " + head + `[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"allod":{"job":"` + string(g.JobID) + `","machine":"own","untrusted":false}}` + "\n\n",
			"24.001s data: [DONE]\n\n",
		}
		if !reflect.DeepEqual(w.parts, want) {
			t.Errorf("wrote\n%s\nwant\n%s", strings.Join(w.parts, ""), strings.Join(want, ""))
		}
		if w.flushed != len(w.parts) {
			t.Errorf("%d of %d parts were sent", w.flushed, len(w.parts))
		}
	})
}

func TestStreamedCompletion(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t)
		d := h.pair("alice")
		out := h.start(visit{method: "POST", path: "/v1/completions", key: "alice", body: `{"model":"auto","prompt":"once","stream":true}`})
		synctest.Wait()
		g, _ := d.take()
		d.finish(g, ai.Answer{Text: "upon"})
		head := `data: {"id":"cmpl-` + string(g.JobID) + `","object":"text_completion","created":946684800,"model":"auto","choices":`
		want := head + `[{"index":0,"text":"upon","logprobs":null,"finish_reason":null}]}` + "\n\n" +
			head + `[{"index":0,"text":"","logprobs":null,"finish_reason":"stop"}],"allod":{"job":"` + string(g.JobID) + `","machine":"own","untrusted":false}}` + "\n\n" +
			"data: [DONE]\n\n"
		if w := <-out; w.Body.String() != want {
			t.Errorf("wrote\n%s\nwant\n%s", w.Body, want)
		}
	})
}

// TestStreamedProblem holds that an end without an answer is the last event.
func TestStreamedProblem(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t)
		w := h.do(hello(`,"stream":true`))
		const comment = ": keep-alive\n\n"
		text, ok := strings.CutPrefix(w.Body.String(), comment+"event: error\ndata: ")
		if !ok || w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if o := readOops(t, []byte(text)); o.Code != "no_runner" || o.Type != "server_error" || strings.Count(text, "\n") != 2 {
			t.Errorf("%+v in %q", o, text)
		}
		// What is wrong with the request shows before the stream begins.
		w = h.do(hello(`,"stream":true,"tools":[1]`))
		if o := readOops(t, w.Body.Bytes()); w.Code != 400 || o.param() != "tools" || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%d %+v %v", w.Code, o, w.Header())
		}
	})
}

// same is randomness that is always the same byte.
type same byte

func (s same) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(s)
	}
	return len(p), nil
}

// TestEnds holds how each end of a job without an answer is told.
func TestEnds(t *testing.T) {
	type stage struct {
		*house
		d *device
	}
	fails := func(f ai.Failure) func(s *stage) {
		return func(s *stage) { g, _ := s.d.take(); s.d.finish(g, f) }
	}
	cancel := func(s *stage) {
		if _, err := s.site.Jobs.Cancel(s.t.Context(), ai.JobID(strings.Repeat("ab", 16))); err != nil {
			s.t.Error(err)
		}
	}
	for _, c := range []struct {
		name   string
		alone  bool // without a device
		silent bool // it is soon heard of no more
		happen func(s *stage)
		header [2]string
		status int
		code   string
		kind   string
		after  string // Retry-After
		retry  string // X-Should-Retry
		took   time.Duration
		left   ai.State // of the job
	}{
		{name: "the device fails and may not be asked again", happen: fails(ai.Failure{Code: "model-not-found", Message: "canary"}),
			status: 502, code: "model-not-found", kind: "server_error", retry: "false", left: ai.StateError},
		{name: "the device fails for now", happen: fails(ai.Failure{Code: "timeout", Message: "canary", Retryable: true}),
			status: 502, code: "timeout", kind: "server_error", left: ai.StateError},
		{name: "the device fails for now under an idempotency key", happen: fails(ai.Failure{Code: "timeout", Message: "canary", Retryable: true}),
			header: [2]string{"Idempotency-Key", "i"}, status: 502, code: "timeout", kind: "server_error", retry: "false", left: ai.StateError},
		{name: "the device gives a code that could be one of ours", happen: fails(ai.Failure{Code: "invalid_api_key", Message: "canary"}),
			status: 502, code: "device_failed", kind: "server_error", retry: "false", left: ai.StateError},
		{name: "the device gives a long code", happen: fails(ai.Failure{Code: strings.Repeat("a", 65), Message: "canary"}),
			status: 502, code: "device_failed", kind: "server_error", retry: "false", left: ai.StateError},
		{name: "the device stops it", happen: func(s *stage) { g, _ := s.d.take(); s.d.finish(g, ai.Cancellation{}) },
			status: 409, code: "job_canceled", kind: "invalid_request_error", retry: "false", left: ai.StateCanceled},
		{name: "the app cancels it", happen: cancel,
			status: 409, code: "job_canceled", kind: "invalid_request_error", retry: "false", left: ai.StateCanceled},
		{name: "nobody is paired", alone: true, took: 10 * time.Second,
			status: 503, code: "no_runner", kind: "server_error", after: "15", left: ai.StateCanceled},
		{name: "nobody is paired, under an idempotency key", alone: true, took: 10 * time.Second, header: [2]string{"Idempotency-Key", "i"},
			status: 503, code: "no_runner", kind: "server_error", after: "15", left: ai.StateCanceled},
		{name: "the device refuses it", happen: func(s *stage) { g, _ := s.d.take(); s.d.giveBack(g, ai.ReleaseRefused) }, took: 20 * time.Second,
			status: 502, code: "job_given_back", kind: "server_error", retry: "false", left: ai.StateCanceled},
		{name: "the device refuses it late", took: 40 * time.Second,
			happen: func(s *stage) {
				time.Sleep(15 * time.Second)
				g, _ := s.d.take()
				s.d.giveBack(g, ai.ReleaseRefused)
			},
			status: 502, code: "job_given_back", kind: "server_error", retry: "false", left: ai.StateCanceled},
		{name: "the device takes it and is heard of no more", took: 3*time.Minute + 10*time.Second, silent: true,
			happen: func(s *stage) { s.d.take() },
			status: 502, code: "job_given_back", kind: "server_error", retry: "false", left: ai.StateCanceled},
		{name: "nobody is paired, and the request does not want to wait", alone: true, took: time.Second, header: [2]string{"Prefer", "wait=1"},
			status: 503, code: "no_runner", kind: "server_error", after: "15", left: ai.StateCanceled},
		{name: "the device gives it back, is heard of no more, and the wait is over", took: 15 * time.Second, silent: true, header: [2]string{"Prefer", "wait=15"},
			happen: func(s *stage) { g, _ := s.d.take(); time.Sleep(10 * time.Second); s.d.giveBack(g, ai.ReleaseShutdown) },
			status: 504, code: "job_pending", kind: "server_error", retry: "false", left: ai.StateQueued},
		{name: "nobody has time, and hanging up would cancel", happen: func(s *stage) {}, took: 9 * time.Minute,
			header: [2]string{"X-Allod-Cancel-On-Disconnect", "true"}, status: 504, code: "job_pending", kind: "server_error", retry: "false", left: ai.StateQueued},
		{name: "nobody has time", happen: func(s *stage) {}, took: 30 * time.Second, header: [2]string{"Prefer", "respond-async, wait=30"},
			status: 504, code: "job_pending", kind: "server_error", retry: "false", left: ai.StateQueued},
		{name: "nobody has time for a request that can be repeated", happen: func(s *stage) {}, took: 9 * time.Minute,
			header: [2]string{"Idempotency-Key", "i"}, status: 504, code: "job_pending", kind: "server_error", retry: "true", left: ai.StateQueued},
		{name: "the request does not want to wait", happen: func(s *stage) {}, took: time.Millisecond, header: [2]string{"Prefer", "wait=0"},
			status: 504, code: "job_pending", kind: "server_error", retry: "false", left: ai.StateQueued},
		{name: "a preference that is none", happen: func(s *stage) {}, took: 9 * time.Minute, header: [2]string{"Prefer", "wait=soon"},
			status: 504, code: "job_pending", kind: "server_error", retry: "false", left: ai.StateQueued},
		{name: "more time is wanted than there is", happen: func(s *stage) {}, took: 9 * time.Minute, header: [2]string{"Prefer", "wait=100000"},
			status: 504, code: "job_pending", kind: "server_error", retry: "false", left: ai.StateQueued},
		{name: "its time is over", happen: func(s *stage) {}, took: 5 * time.Minute, header: [2]string{"X-Test", "ttl"},
			status: 504, code: "job_expired", kind: "server_error", retry: "false", left: ai.StateExpired},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				h := newHouse(t, func(s *site.Config, g *gateway.Config) {
					s.Liveness, g.Rand = time.Hour, same(0xab)
					if c.header[0] == "X-Test" {
						s.TTL = 5 * time.Minute
					}
					if c.silent {
						s.Liveness, s.Lease = 8*time.Second, 3*time.Minute
					}
				})
				s := &stage{house: h}
				if !c.alone {
					s.d = h.pair("alice")
				}
				v := hello("")
				if c.header[0] != "" {
					v = v.with(c.header[0], c.header[1])
				}
				begin := time.Now()
				out := h.start(v)
				synctest.Wait()
				if c.happen != nil {
					c.happen(s)
				}
				w := <-out
				o := readOops(t, w.Body.Bytes())
				if w.Code != c.status || o.Code != c.code || o.Type != c.kind || o.Param != nil {
					t.Errorf("%d %+v", w.Code, o)
				}
				if strings.Contains(w.Body.String(), "canary") {
					t.Errorf("what a device says is repeated: %s", w.Body)
				}
				if got := w.Header().Get("Retry-After"); got != c.after {
					t.Errorf("Retry-After: %q, want %q", got, c.after)
				}
				if got := w.Header().Get("X-Should-Retry"); got != c.retry {
					t.Errorf("X-Should-Retry: %q, want %q", got, c.retry)
				}
				// The site's sweep comes once a second.
				if took := time.Since(begin); took < c.took || took > c.took+time.Second {
					t.Errorf("it took %s, want %s", took, c.took)
				}
				job, err := h.site.Jobs.Get(t.Context(), ai.JobID(w.Header().Get("X-Allod-Job")))
				if err != nil || job.State != c.left {
					t.Errorf("the job is left %q (%v), want %q", job.State, err, c.left)
				}
			})
		})
	}
}

// refusedFields are all members of OpenAI's two endpoints that mean nothing here,
// as its clients' declarations list them.
var refusedFields = strings.Fields(`audio best_of echo frequency_penalty function_call functions logit_bias logprobs
	max_completion_tokens max_tokens metadata modalities moderation parallel_tool_calls prediction presence_penalty
	prompt_cache_key prompt_cache_options prompt_cache_retention reasoning_effort response_format safety_identifier seed
	service_tier stop suffix tool_choice tools top_logprobs top_p verbosity web_search_options`)

// TestRefusedFields holds that each is refused by its name at both endpoints, is
// nothing where it is null, and is dropped where the site says so.
func TestRefusedFields(t *testing.T) {
	h := newHouse(t)
	all := newHouse(t, func(_ *site.Config, g *gateway.Config) { g.Drop = refusedFields })
	h.pair("alice")
	all.pair("alice")
	for _, name := range refusedFields {
		if !gateway.Droppable(name) {
			t.Errorf("%s cannot be dropped", name)
		}
		for _, v := range []visit{hello(""), {method: "POST", path: "/v1/completions", key: "alice", body: `{"model":"auto","prompt":"p"}`}} {
			v = v.with("Prefer", "wait=0")
			begin := strings.TrimSuffix(v.body, "}") + `,"` + name + `":`
			v.body = begin + `["canary",{"a":[1.5]}]}`
			w := h.do(v)
			if o := readOops(t, w.Body.Bytes()); w.Code != 400 || o.param() != name || o.Code != "unsupported_parameter" || o.Type != "invalid_request_error" {
				t.Errorf("%s: %d %+v", name, w.Code, o)
			}
			if strings.Contains(w.Body.String(), "canary") {
				t.Errorf("the input is repeated: %s", w.Body)
			}
			w = all.do(v)
			if o := readOops(t, w.Body.Bytes()); o.Code != "job_pending" || w.Header().Get("X-Allod-Dropped") != name {
				t.Errorf("%s dropped: %d %+v %v", name, w.Code, o, w.Header())
			}
			v.body = begin + `null}`
			w = h.do(v)
			if o := readOops(t, w.Body.Bytes()); o.Code != "job_pending" || w.Header().Values("X-Allod-Dropped") != nil {
				t.Errorf("%s null: %d %+v", name, w.Code, o)
			}
		}
	}
}

func TestRequests(t *testing.T) {
	h := newHouse(t)
	h.pair("alice")
	const ask = `{"model":"auto","messages":[{"role":"user","content":"hello"}]`
	turn := func(members string) string {
		return `{"model":"auto","messages":[{"role":"user","content":"a"},{` + members + `}]}`
	}
	long := strings.Repeat("a", ai.MaxTextUnits+1)
	for name, c := range map[string]struct {
		body   string
		status int
		code   string
		param  string
	}{
		"nothing":                        {"", 400, "invalid_json", ""},
		"no JSON":                        {"canary", 400, "invalid_json", ""},
		"a list":                         {"[]", 400, "invalid_json", ""},
		"a name twice":                   {ask + `,"n":1,"n":1}`, 400, "invalid_json", ""},
		"a name twice below":             {turn(`"role":"user","content":"a","content":"b"`), 400, "invalid_json", ""},
		"no UTF-8":                       {turn("\"role\":\"user\",\"content\":\"\xff\""), 400, "invalid_json", ""},
		"too deep":                       {ask + `,"temperature":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`, 400, "invalid_json", ""},
		"no model":                       {`{"messages":[{"role":"user","content":"hello"}]}`, 400, "missing_required_parameter", "model"},
		"a null model":                   {`{"model":null,"messages":[{"role":"user","content":"hello"}]}`, 400, "missing_required_parameter", "model"},
		"a model that is no text":        {`{"model":1,"messages":[{"role":"user","content":"hello"}]}`, 400, "invalid_value", "model"},
		"a model of the owner's":         {`{"model":"canary","messages":[{"role":"user","content":"hello"}]}`, 404, "model_not_found", "model"},
		"a label of the other endpoint":  {`{"model":"write-only","messages":[{"role":"user","content":"hello"}]}`, 404, "model_not_found", "model"},
		"no messages":                    {`{"model":"auto"}`, 400, "missing_required_parameter", "messages"},
		"null messages":                  {`{"model":"auto","messages":null}`, 400, "missing_required_parameter", "messages"},
		"empty messages":                 {`{"model":"auto","messages":[]}`, 400, "invalid_value", "messages"},
		"messages that are no list":      {`{"model":"auto","messages":{}}`, 400, "invalid_value", "messages"},
		"too many messages":              {`{"model":"auto","messages":[` + strings.Repeat("0,", 256) + `0]}`, 400, "array_above_max_length", "messages"},
		"a message that is no object":    {`{"model":"auto","messages":["canary"]}`, 400, "invalid_value", "messages[0]"},
		"no role":                        {turn(`"content":"a"`), 400, "missing_required_parameter", "messages[1].role"},
		"a tool's turn":                  {turn(`"role":"tool","tool_call_id":"x","content":"a"`), 400, "unsupported_value", "messages[1].role"},
		"another role":                   {turn(`"role":"canary","content":"a"`), 400, "unsupported_value", "messages[1].role"},
		"no content":                     {turn(`"role":"user"`), 400, "missing_required_parameter", "messages[1].content"},
		"null content of the user's":     {turn(`"role":"user","content":null`), 400, "missing_required_parameter", "messages[1].content"},
		"no content of an assistant":     {turn(`"role":"assistant"`), 400, "missing_required_parameter", "messages[1].content"},
		"null content":                   {turn(`"role":"assistant","content":null,"reasoning_content":null,"name":null,"refusal":null,"audio":null,"tool_calls":null`), 504, "job_pending", ""},
		"null content beside a call":     {turn(`"role":"assistant","content":null,"tool_calls":[{}]`), 400, "unsupported_parameter", "messages[1].tool_calls"},
		"null content beside a refusal":  {turn(`"role":"assistant","content":null,"refusal":"canary"`), 400, "unsupported_parameter", "messages[1].refusal"},
		"null content beside more":       {turn(`"role":"assistant","content":null,"plain":1`), 400, "unknown_parameter", "messages[1].plain"},
		"null in a part":                 {turn(`"role":"user","content":[{"type":"text","text":"a","annotations":null}]`), 504, "job_pending", ""},
		"null in the options":            {ask + `,"stream":true,"stream_options":{"include_usage":null,"include_obfuscation":null,"plain":null,"include_usages":1}}`, 400, "unknown_parameter", "stream_options.include_usages"},
		"penalties that are none":        {ask + `,"frequency_penalty":0,"presence_penalty":0.0,"tool_choice":"none","n":1.0}`, 504, "job_pending", ""},
		"penalties in other forms":       {ask + `,"frequency_penalty":-0.0,"presence_penalty":0e9,"n":10e-1}`, 504, "job_pending", ""},
		"a penalty":                      {ask + `,"presence_penalty":0.1}`, 400, "unsupported_parameter", "presence_penalty"},
		"a penalty that is a text":       {ask + `,"presence_penalty":"0"}`, 400, "unsupported_parameter", "presence_penalty"},
		"a choice of tools":              {ask + `,"tool_choice":"auto"}`, 400, "unsupported_parameter", "tool_choice"},
		"a choice that is a number":      {ask + `,"tool_choice":0}`, 400, "unsupported_parameter", "tool_choice"},
		"one choice and more":            {ask + `,"n":1.5}`, 400, "unsupported_value", "n"},
		"a number for content":           {turn(`"role":"user","content":1`), 400, "invalid_value", "messages[1].content"},
		"no parts":                       {turn(`"role":"user","content":[]`), 400, "invalid_value", "messages[1].content"},
		"a part that is no object":       {turn(`"role":"user","content":["canary"]`), 400, "invalid_value", "messages[1].content[0]"},
		"an image":                       {turn(`"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"canary"}}]`), 400, "unsupported_value", "messages[1].content[1].type"},
		"a part without text":            {turn(`"role":"user","content":[{"type":"text"}]`), 400, "missing_required_parameter", "messages[1].content[0].text"},
		"a part with more":               {turn(`"role":"user","content":[{"type":"text","text":"a","cache_control":1}]`), 400, "unknown_parameter", "messages[1].content[0].cache_control"},
		"a part with a sentence":         {turn(`"role":"user","content":[{"type":"text","text":"a","can ary":1}]`), 400, "unknown_parameter", "messages[1].content[0]"},
		"a turn with a name":             {turn(`"role":"user","content":"a","name":"canary"`), 400, "unsupported_parameter", "messages[1].name"},
		"a turn with calls of tools":     {turn(`"role":"assistant","content":"a","tool_calls":[{}]`), 400, "unsupported_parameter", "messages[1].tool_calls"},
		"a turn with a refusal":          {turn(`"role":"assistant","content":"a","refusal":"canary"`), 400, "unsupported_parameter", "messages[1].refusal"},
		"a turn with more":               {turn(`"role":"user","content":"a","weight_2":1`), 400, "unknown_parameter", "messages[1].weight_2"},
		"a turn with a sentence":         {turn(`"role":"user","content":"a","canary.x":1`), 400, "unknown_parameter", "messages[1]"},
		"a text that is too long":        {turn(`"role":"user","content":"` + long + `"`), 400, "string_above_max_length", "messages[1].content"},
		"texts that are too long":        {`{"model":"auto","messages":[` + strings.Repeat(`{"role":"user","content":"`+long[1:]+`"},`, 4) + `{"role":"user","content":"a"}]}`, 400, "string_above_max_length", ""},
		"an unknown member":              {ask + `,"minP":1,"canary ":1}`, 400, "unknown_parameter", "minP"},
		"a sentence for a member":        {ask + `,"canary-":1}`, 400, "unknown_parameter", ""},
		"an empty name":                  {ask + `,"":1}`, 400, "unknown_parameter", ""},
		"the longest name":               {ask + `,"` + strings.Repeat("a", 64) + `":1}`, 400, "unknown_parameter", strings.Repeat("a", 64)},
		"a longer name":                  {ask + `,"` + strings.Repeat("a", 65) + `":1}`, 400, "unknown_parameter", ""},
		"a known one before it":          {ask + `,"canary":1,"top_p":1}`, 400, "unsupported_parameter", "top_p"},
		"an unknown member that is null": {ask + `,"canary":null}`, 504, "job_pending", ""},
		"one that the site drops":        {ask + `,"top_k":1}`, 504, "job_pending", ""},
		"the other endpoint's text":      {ask + `,"prompt":"a"}`, 400, "unknown_parameter", "prompt"},
		"two choices":                    {ask + `,"n":2}`, 400, "unsupported_value", "n"},
		"to be stored":                   {ask + `,"store":true}`, 400, "unsupported_value", "store"},
		"stream is no bool":              {ask + `,"stream":"canary"}`, 400, "invalid_value", "stream"},
		"stream is null":                 {ask + `,"stream":null}`, 504, "job_pending", ""},
		"options without a stream":       {ask + `,"stream_options":{"include_usage":true}}`, 400, "invalid_value", "stream_options"},
		"options that are no object":     {ask + `,"stream":true,"stream_options":1}`, 400, "invalid_value", "stream_options"},
		"an option that is no bool":      {ask + `,"stream":true,"stream_options":{"include_usage":1}}`, 400, "invalid_value", "stream_options.include_usage"},
		"padding":                        {ask + `,"stream":true,"stream_options":{"include_obfuscation":true}}`, 400, "unsupported_parameter", "stream_options.include_obfuscation"},
		"an unknown option":              {ask + `,"stream":true,"stream_options":{"can/ary":1}}`, 400, "unknown_parameter", "stream_options"},
		"tools that are none":            {ask + `,"tools":[ ],"modalities":["text"],"logprobs":false}`, 504, "job_pending", ""},
		"another format":                 {ask + `,"response_format":{"type":"json_object"}}`, 400, "unsupported_parameter", "response_format"},
		"the key's owner":                {ask + `,"user":"alice"}`, 504, "job_pending", ""},
		"another user":                   {ask + `,"user":"bob"}`, 403, "app_owner", "user"},
		"an empty user":                  {ask + `,"user":""}`, 400, "invalid_value", "user"},
		"a user that is no text":         {ask + `,"user":1}`, 400, "invalid_value", "user"},
		"a user with a control":          {ask + `,"user":"a\u0007"}`, 400, "invalid_value", "user"},
		"a user that is too long":        {ask + `,"user":"` + strings.Repeat("a", 257) + `"}`, 400, "invalid_value", "user"},
		"the most that a turn can say":   {turn(`"role":"user","content":"` + long[1:] + `"`), 504, "job_pending", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := h.do(chat(c.body).with("Prefer", "wait=0"))
			o := readOops(t, w.Body.Bytes())
			if w.Code != c.status || o.Code != c.code || o.param() != c.param {
				t.Errorf("%d %+v with %q, want %d %s with %q", w.Code, o, o.param(), c.status, c.code, c.param)
			}
			if strings.Contains(w.Body.String(), "canary") || len(w.Body.String()) > 1000 {
				t.Errorf("the input is repeated: %s", w.Body)
			}
		})
	}
	for name, c := range map[string]struct{ body, code, param string }{
		"no prompt":                     {`{"model":"auto"}`, "missing_required_parameter", "prompt"},
		"an empty prompt":               {`{"model":"auto","prompt":""}`, "invalid_value", "prompt"},
		"no prompts":                    {`{"model":"auto","prompt":[]}`, "invalid_value", "prompt"},
		"two prompts":                   {`{"model":"auto","prompt":["a","b"]}`, "unsupported_value", "prompt"},
		"tokens":                        {`{"model":"auto","prompt":[1]}`, "unsupported_value", "prompt"},
		"lists of tokens":               {`{"model":"auto","prompt":[[1]]}`, "unsupported_value", "prompt"},
		"a prompt that is too long":     {`{"model":"auto","prompt":"` + long + `"}`, "string_above_max_length", "prompt"},
		"messages":                      {`{"model":"auto","prompt":"a","messages":[]}`, "unknown_parameter", "messages"},
		"a label of the other endpoint": {`{"model":"chat-only","prompt":"a"}`, "model_not_found", "model"},
		"an echo":                       {`{"model":"auto","prompt":"a","echo":true}`, "unsupported_parameter", "echo"},
		"the best of two":               {`{"model":"auto","prompt":"a","best_of":2}`, "unsupported_parameter", "best_of"},
	} {
		t.Run("completions: "+name, func(t *testing.T) {
			w := h.do(visit{method: "POST", path: "/v1/completions", key: "alice", body: c.body})
			if o := readOops(t, w.Body.Bytes()); o.Code != c.code || o.param() != c.param {
				t.Errorf("%d %+v with %q, want %s with %q", w.Code, o, o.param(), c.code, c.param)
			}
		})
	}
}

// TestCanBeDropped holds that a refusal speaks of dropping only where a site could.
func TestCanBeDropped(t *testing.T) {
	h := newHouse(t)
	for more, want := range map[string]bool{
		`,"top_p":1`: true, `,"min_p":1`: true, `,"minP":1`: false, `,"prompt":"a"`: false, `,"a b":1`: false,
		`,"stream":true,"stream_options":{"x":1}`:                      false,
		`,"stream":true,"stream_options":{"include_obfuscation":true}`: false,
		`,"messages_":[]`: true,
	} {
		if o := readOops(t, h.do(hello(more)).Body.Bytes()); strings.Contains(o.Message, "drop") != want {
			t.Errorf("%s: %s", more, o.Message)
		}
	}
	for _, turn := range []string{`"name":"x"`, `"x":1`} {
		v := chat(`{"model":"auto","messages":[{"role":"user","content":"a",` + turn + `}]}`)
		if o := readOops(t, h.do(v).Body.Bytes()); strings.Contains(o.Message, "drop") || o.Code != "unsupported_parameter" && o.Code != "unknown_parameter" {
			t.Errorf("%s: %+v", turn, o)
		}
	}
}

// TestHeaders are headers that mean something here and are wrong.
func TestHeaders(t *testing.T) {
	h := newHouse(t)
	for name, v := range map[string]visit{
		"cancel maybe":        hello("").with("X-Allod-Cancel-On-Disconnect", "maybe"),
		"cancel twice":        hello("").with("X-Allod-Cancel-On-Disconnect", "true").with("X-Allod-Cancel-On-Disconnect", "true"),
		"an empty key":        hello("").with("Idempotency-Key", ""),
		"a key that is long":  hello("").with("Idempotency-Key", strings.Repeat("a", 256)),
		"two idempotent keys": hello("").with("Idempotency-Key", "a").with("Idempotency-Key", "b"),
	} {
		w := h.do(v)
		if o := readOops(t, w.Body.Bytes()); w.Code != 400 || o.Code != "invalid_value" {
			t.Errorf("%s: %d %+v", name, w.Code, o)
		}
	}
}

// TestKeyFirst holds that nothing is told without a key, and what each key may.
func TestKeyFirst(t *testing.T) {
	h := newHouse(t)
	ask := hello("").with("Prefer", "wait=0")
	get := func(path string) visit { return visit{method: "GET", path: path, key: "alice"} }
	post := func(path string) visit { return visit{method: "POST", path: path, key: "alice"} }
	for _, v := range []visit{ask, get("/v1/models"), get("/v1/models/auto"), get("/v1/chat/completions"), post("/v1/embeddings"), get("/v1/canary")} {
		for _, key := range []string{"", "canary"} {
			w := h.do(v.as(key))
			if o := readOops(t, w.Body.Bytes()); w.Code != 401 || o.Code != "invalid_api_key" || o.Type != "invalid_request_error" {
				t.Errorf("%s with the key %q: %d %+v", v.path, key, w.Code, o)
			}
		}
	}
	for name, c := range map[string]struct {
		v      visit
		status int
		code   string
		param  string
	}{
		"a key that only reads asks":         {ask.as("reads"), 403, "app_scope", ""},
		"a key that only asks looks":         {get("/v1/models").as("asks"), 403, "app_scope", ""},
		"a key that only asks looks at one":  {get("/v1/models/auto").as("asks"), 403, "app_scope", ""},
		"a key that only asks asks":          {ask.as("asks"), 503, "no_runner", ""},
		"a key for everybody names nobody":   {ask.as("everyone"), 400, "missing_required_parameter", "user"},
		"a key for everybody looks":          {get("/v1/models").as("everyone"), 400, "missing_required_parameter", "user"},
		"a key for everybody looks for one":  {get("/v1/models?user=alice").as("everyone"), 200, "", ""},
		"a key for one looks for another":    {get("/v1/models?user=bob"), 403, "app_owner", "user"},
		"a key for one looks for nobody":     {get("/v1/models?user="), 400, "invalid_value", "user"},
		"the wrong method":                   {get("/v1/chat/completions"), 405, "method_not_allowed", ""},
		"the wrong method at the older":      {get("/v1/completions"), 405, "method_not_allowed", ""},
		"the wrong method at models":         {post("/v1/models"), 405, "method_not_allowed", ""},
		"a part of OpenAI's API not here":    {post("/v1/responses"), 404, "unknown_url", ""},
		"a stored completion":                {get("/v1/chat/completions/canary"), 404, "unknown_url", ""},
		"a model that nobody online can run": {get("/v1/models/auto"), 404, "model_not_found", "model"},
		"a model that is none":               {get("/v1/models/canary"), 404, "model_not_found", "model"},
	} {
		w := h.do(c.v)
		if c.status == 200 {
			if w.Code != 200 {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
			continue
		}
		if o := readOops(t, w.Body.Bytes()); w.Code != c.status || o.Code != c.code || o.param() != c.param {
			t.Errorf("%s: %d %+v with %q", name, w.Code, o, o.param())
		}
		if c.status == 405 && w.Header().Get("Allow") == "" {
			t.Errorf("%s: no Allow", name)
		}
	}
	// A mux that is given the paths hands every one of them to the handler.
	mux := http.NewServeMux()
	for _, p := range gateway.Paths() {
		mux.Handle(p, h.gateway)
	}
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/models", "/v1/models/a/b", "/v1/embeddings", "/v1/audio/speech", "/v1/responses"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != 401 {
			t.Errorf("%s is not the gateway's: %d", path, w.Code)
		}
	}
}

// TestModels holds which labels are listed: those that somebody online could
// serve for this owner.
func TestModels(t *testing.T) {
	model := func(id string) string { return `{"id":"` + id + `","object":"model","created":0,"owned_by":"allod"}` }
	listed := func(ids ...string) string {
		for i, id := range ids {
			ids[i] = model(id)
		}
		return `{"object":"list","data":[` + strings.Join(ids, ",") + `]}`
	}
	for name, c := range map[string]struct {
		owner ai.Owner
		caps  []ai.Capability
		want  string
	}{
		"nobody":                 {want: listed()},
		"her own, for all":       {"alice", nil, listed("auto", "chat-only", "friends", "write-only")},
		"her own, for chats":     {"alice", []ai.Capability{capability(ai.KindChat, ai.OfferSelf)}, listed("auto", "chat-only", "friends")},
		"another's for himself":  {"bob", nil, listed()},
		"another's for a friend": {"bob", []ai.Capability{capability(ai.KindGenerate, ai.OfferNamed)}, listed("friends")},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			if c.owner != "" {
				h.pair(c.owner, c.caps...)
			}
			w := h.do(visit{method: "GET", path: "/v1/models", key: "alice"})
			if w.Code != 200 || w.Body.String() != c.want {
				t.Errorf("%d %s, want %s", w.Code, w.Body, c.want)
			}
			for _, id := range []string{"auto", "chat-only", "friends", "write-only"} {
				w := h.do(visit{method: "GET", path: "/v1/models/" + id, key: "alice"})
				if here := strings.Contains(c.want, `"`+id+`"`); here != (w.Code == 200) || here && w.Body.String() != model(id) {
					t.Errorf("%s: %d %s", id, w.Code, w.Body)
				}
			}
		})
	}
}

// TestIdempotency holds that a repeat of a request finds its job, and that nothing
// else does.
func TestIdempotency(t *testing.T) {
	h := newHouse(t)
	h.pair("alice")
	job := func(v visit) string {
		w := h.do(v.with("Prefer", "wait=0"))
		if o := readOops(t, w.Body.Bytes()); o.Code != "job_pending" {
			t.Fatalf("%d %+v", w.Code, o)
		}
		return w.Header().Get("X-Allod-Job")
	}
	first := hello("").with("Idempotency-Key", "i")
	id := job(first)
	if again := job(first); again != id || len(id) != 32 {
		t.Errorf("a repeat is job %q, the first was %q", again, id)
	}
	seen := map[string]string{id: "the first"}
	for name, v := range map[string]visit{
		"no key": hello(""), "no key either": hello(""), "another key": hello("").with("Idempotency-Key", "j"),
		"another app key": first.as("asks"), "other words": hello(`,"user":"alice"`).with("Idempotency-Key", "i"),
		"the other endpoint": {method: "POST", path: "/v1/completions", key: "alice", body: `{"model":"auto","prompt":"p"}`, header: first.header},
	} {
		id := job(v)
		if other, there := seen[id]; there {
			t.Errorf("%s is the job of %s", name, other)
		}
		seen[id] = name
	}
}

// TestAskedAnew holds that a job which no device ever had does not spoil its
// idempotency key, and that one which a device had keeps its end.
func TestAskedAnew(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, func(s *site.Config, _ *gateway.Config) { s.Liveness = time.Hour })
		v := hello("").with("Idempotency-Key", "i")
		first := h.do(v)
		if o := readOops(t, first.Body.Bytes()); o.Code != "no_runner" {
			t.Fatalf("%+v", o)
		}
		d := h.pair("alice")
		out := h.start(v)
		synctest.Wait()
		g, _ := d.take()
		if string(g.JobID) == first.Header().Get("X-Allod-Job") {
			t.Error("a canceled job was claimed")
		}
		d.finish(g, ai.Failure{Code: "timeout", Message: "m", Retryable: true})
		if o := readOops(t, (<-out).Body.Bytes()); o.Code != "timeout" {
			t.Errorf("%+v", o)
		}
		w := h.do(v)
		if o := readOops(t, w.Body.Bytes()); o.Code != "timeout" || w.Header().Get("X-Allod-Job") != string(g.JobID) {
			t.Errorf("the repeat is job %s: %+v", w.Header().Get("X-Allod-Job"), o)
		}
		v = hello("").with("Idempotency-Key", "j")
		out = h.start(v)
		synctest.Wait()
		g, _ = d.take()
		d.finish(g, ai.Cancellation{})
		<-out
		w = h.do(v)
		if o := readOops(t, w.Body.Bytes()); o.Code != "job_canceled" || w.Header().Get("X-Allod-Job") != string(g.JobID) {
			t.Errorf("the repeat of what a device stopped is job %s: %+v", w.Header().Get("X-Allod-Job"), o)
		}
	})
}

// TestSpent holds that an idempotency key under which nobody ran anything says so
// for ever, and why.
func TestSpent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t)
		v := hello("").with("Idempotency-Key", "i")
		jobs := map[string]bool{}
		ask := func() (o oops, retry string) {
			w := h.do(v)
			jobs[w.Header().Get("X-Allod-Job")] = true
			if o = readOops(t, w.Body.Bytes()); w.Code != 503 || o.Code != "no_runner" {
				t.Errorf("%d %+v", w.Code, o)
			}
			return o, w.Header().Get("X-Should-Retry")
		}
		for range 8 {
			if o, retry := ask(); retry != "" || !strings.Contains(o.Message, "No device is paired") || strings.Contains(o.Message, "8") {
				t.Errorf("%q %+v", retry, o)
			}
		}
		if len(jobs) != 8 {
			t.Errorf("%d jobs", len(jobs))
		}
		if o, retry := ask(); retry != "false" || !strings.Contains(o.Message, "No device is paired") || !strings.Contains(o.Message, "8 jobs under this Idempotency-Key") {
			t.Errorf("%q %+v", retry, o)
		}
		h.pair("alice")
		if o, retry := ask(); retry != "false" || strings.Contains(o.Message, "paired with this site") {
			t.Errorf("%q %+v", retry, o)
		}
	})
}

// TestConflict holds that a conflict which stays one is not tried again.
func TestConflict(t *testing.T) {
	h := newHouse(t, func(_ *site.Config, g *gateway.Config) { g.Rand = same(0xab) })
	h.pair("bob")
	if o := readOops(t, h.do(hello(`,"user":"bob"`).as("everyone").with("Prefer", "wait=0")).Body.Bytes()); o.Code != "job_pending" {
		t.Fatalf("%+v", o)
	}
	w := h.do(hello(""))
	if o := readOops(t, w.Body.Bytes()); w.Code != 409 || o.Code != "job_id_taken" || w.Header().Get("X-Should-Retry") != "false" {
		t.Errorf("%d %+v %v", w.Code, o, w.Header())
	}
}

// TestDisconnect holds what becomes of a job whose client is gone.
func TestDisconnect(t *testing.T) {
	for _, stream := range []string{"", `,"stream":true`} {
		for header, want := range map[string]ai.State{"": ai.StateQueued, "false": ai.StateQueued, "true": ai.StateCanceled} {
			inBubble(t, func(t *testing.T) {
				h := newHouse(t, func(s *site.Config, g *gateway.Config) { s.Liveness, g.Rand = time.Hour, same(0xab) })
				h.pair("alice")
				v := hello(stream)
				if header != "" {
					v = v.with("X-Allod-Cancel-On-Disconnect", header)
				}
				ctx, leave := context.WithCancel(t.Context())
				v.ctx = ctx
				out := h.start(v)
				synctest.Wait()
				leave()
				w := <-out
				if w.Body.Len() > 0 {
					t.Errorf("nobody is told %s", w.Body)
				}
				job, err := h.site.Jobs.Get(t.Context(), ai.JobID(strings.Repeat("ab", 16)))
				if err != nil || job.State != want {
					t.Errorf("stream %q, header %q: %q %v, want %q", stream, header, job.State, err, want)
				}
			})
		}
	}
}

// TestTakenOver holds that a job is canceled only when the last is gone who waits
// for it.
func TestTakenOver(t *testing.T) {
	for name, c := range map[string]struct {
		header string // of the one who leaves last
		want   ai.State
	}{
		"the last wants it canceled": {"true", ai.StateCanceled},
		"the last does not":          {"false", ai.StateQueued},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				h := newHouse(t, func(s *site.Config, _ *gateway.Config) { s.Liveness = time.Hour })
				h.pair("alice")
				visit := func(header string) (out <-chan *httptest.ResponseRecorder, leave func()) {
					v := hello("").with("Idempotency-Key", "i").with("X-Allod-Cancel-On-Disconnect", header)
					v.ctx, leave = context.WithCancel(t.Context())
					out = h.start(v)
					synctest.Wait()
					return out, leave
				}
				first, leaveFirst := visit("true")
				second, leaveSecond := visit(c.header)
				leaveFirst()
				<-first
				jobs, err := h.site.Jobs.List(t.Context(), site.JobQuery{Owner: "alice", Limit: 10})
				if err != nil || len(jobs.Jobs) != 1 || jobs.Jobs[0].State != ai.StateQueued {
					t.Fatalf("after the first: %+v %v", jobs, err)
				}
				leaveSecond()
				<-second
				if job, err := h.site.Jobs.Get(t.Context(), jobs.Jobs[0].ID); err != nil || job.State != c.want {
					t.Errorf("after the last: %q %v, want %q", job.State, err, c.want)
				}
				// Nothing of them is left: another one is the only one, and has it canceled.
				if job, _ := h.site.Jobs.Get(t.Context(), jobs.Jobs[0].ID); job.State == ai.StateQueued {
					third, leave := visit("true")
					leave()
					<-third
					if job, err := h.site.Jobs.Get(t.Context(), job.ID); err != nil || job.State != ai.StateCanceled {
						t.Errorf("after another: %q %v", job.State, err)
					}
				}
			})
		})
	}
}

// TestStopping holds that a site which stops ends the waits at once and cancels
// nothing, and takes nothing new.
func TestStopping(t *testing.T) {
	for name, c := range map[string]struct {
		more  string
		key   string
		retry string
	}{
		"whole":               {"", "", "false"},
		"repeatable":          {"", "i", "true"},
		"a stream":            {`,"stream":true`, "", ""},
		"a repeatable stream": {`,"stream":true`, "i", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				h := newHouse(t, func(s *site.Config, g *gateway.Config) { s.Liveness, g.Stopping = time.Hour, ctx })
				h.pair("alice")
				v := hello(c.more).with("X-Allod-Cancel-On-Disconnect", "true")
				if c.key != "" {
					v = v.with("Idempotency-Key", c.key)
				}
				var leave func()
				v.ctx, leave = context.WithCancel(t.Context())
				out := h.start(v)
				synctest.Wait()
				begin := time.Now()
				stop()
				w := <-out
				if time.Since(begin) > 0 {
					t.Errorf("it took %s", time.Since(begin))
				}
				text := w.Body.String()
				if c.more == "" && (w.Code != 503 || w.Header().Get("Retry-After") != "5") {
					t.Errorf("%d %v", w.Code, w.Header())
				}
				if c.more != "" {
					var is bool
					if text, is = strings.CutPrefix(text, "event: error\ndata: "); !is || w.Code != 200 {
						t.Errorf("%d %s", w.Code, w.Body)
					}
				}
				if o := readOops(t, []byte(text)); o.Code != "site_stopping" || o.Type != "server_error" || w.Header().Get("X-Should-Retry") != c.retry {
					t.Errorf("%+v %v", o, w.Header())
				}
				id := ai.JobID(w.Header().Get("X-Allod-Job"))
				if job, err := h.site.Jobs.Get(t.Context(), id); err != nil || job.State != ai.StateQueued {
					t.Errorf("the job is left %q: %v", job.State, err)
				}
				w = h.do(v)
				if o := readOops(t, w.Body.Bytes()); w.Code != 503 || o.Code != "site_stopping" || w.Header().Get("X-Allod-Job") != "" || w.Header().Get("X-Should-Retry") != "" {
					t.Errorf("afterwards: %d %+v %v", w.Code, o, w.Header())
				}
				leave()
			})
		})
	}
	// Who waits for a turn waits no more either.
	inBubble(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		h := newHouse(t, func(_ *site.Config, g *gateway.Config) { g.Stopping = ctx })
		free := h.fill("alice")
		out := h.start(chat(strings.Repeat(" ", 2<<20)))
		synctest.Wait()
		begin := time.Now()
		stop()
		w := <-out
		if o := readOops(t, w.Body.Bytes()); w.Code != 503 || o.Code != "site_stopping" || time.Since(begin) > 0 {
			t.Errorf("%d %+v after %s", w.Code, o, time.Since(begin))
		}
		free()
	})
	// The server closes the connections that are left, which is nobody's hanging up.
	inBubble(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		h := newHouse(t, func(s *site.Config, g *gateway.Config) { s.Liveness, g.Stopping, g.Rand = time.Hour, ctx, same(0xab) })
		h.pair("alice")
		v := hello("").with("X-Allod-Cancel-On-Disconnect", "true")
		var leave func()
		v.ctx, leave = context.WithCancel(t.Context())
		out := h.start(v)
		synctest.Wait()
		stop()
		leave()
		<-out
		if job, err := h.site.Jobs.Get(t.Context(), ai.JobID(strings.Repeat("ab", 16))); err != nil || job.State != ai.StateQueued {
			t.Errorf("the job is left %q: %v", job.State, err)
		}
	})
}

// TestCollect holds that an answer which came after the wait is there for the
// repeat.
func TestCollect(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t)
		d := h.pair("alice")
		v := hello("").with("Idempotency-Key", "i")
		if o := readOops(t, h.do(v.with("Prefer", "wait=1")).Body.Bytes()); o.Code != "job_pending" {
			t.Fatalf("%+v", o)
		}
		g, _ := d.take()
		d.finish(g, ai.Answer{Text: "late"})
		var got struct {
			Choices []struct{ Message struct{ Content string } }
		}
		if w := h.do(v); json.Unmarshal(w.Body.Bytes(), &got) != nil || len(got.Choices) != 1 || got.Choices[0].Message.Content != "late" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// TestBusy holds that an owner has so many requests under way with a key and no
// more, that a key has, and that others are not held up by it.
func TestBusy(t *testing.T) {
	full := func(t *testing.T, w *httptest.ResponseRecorder, detail string) {
		t.Helper()
		if o := readOops(t, w.Body.Bytes()); w.Code != 429 || o.Code != "rate_limit_exceeded" || !strings.Contains(o.Message, detail) {
			t.Errorf("%d %+v", w.Code, o)
		}
	}
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, func(_ *site.Config, g *gateway.Config) { g.MaxWaiting, g.MaxKeyWaiting = 2, 3 })
		of := func(user string) visit { return hello(`,"user":"` + user + `"`).as("everyone") }
		held := []<-chan *httptest.ResponseRecorder{h.start(of("alice")), h.start(of("alice"))}
		synctest.Wait()
		full(t, h.do(of("alice")), "At most 2 of one owner")
		held = append(held, h.start(of("bob")))
		synctest.Wait()
		full(t, h.do(of("bob")), "At most 3 of one key")
		held = append(held, h.start(hello(""))) // the same owner, with another key
		for _, out := range held {
			if o := readOops(t, (<-out).Body.Bytes()); o.Code != "no_runner" {
				t.Errorf("%+v", o)
			}
		}
		if o := readOops(t, h.do(of("alice")).Body.Bytes()); o.Code != "no_runner" {
			t.Errorf("afterwards: %+v", o)
		}
	})
	inBubble(t, func(t *testing.T) {
		// A key of one owner is counted before the body is read.
		h := newHouse(t, func(_ *site.Config, g *gateway.Config) { g.MaxWaiting = 1 })
		out := h.start(hello(""))
		synctest.Wait()
		full(t, h.do(chat("no JSON")), "At most 1 of one owner")
		<-out
	})
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, func(_ *site.Config, g *gateway.Config) { g.MaxWaiting = 2 })
		first, second := h.start(hello("")), h.start(hello(""))
		synctest.Wait()
		w := h.do(hello(""))
		if o := readOops(t, w.Body.Bytes()); w.Code != 429 || o.Code != "rate_limit_exceeded" || o.Type != "rate_limit_error" || w.Header().Get("Retry-After") != "1" {
			t.Errorf("%d %+v %v", w.Code, o, w.Header())
		}
		if o := readOops(t, h.do(hello(`,"user":"bob"`).as("everyone")).Body.Bytes()); o.Code != "no_runner" {
			t.Errorf("another key: %+v", o)
		}
		<-first
		<-second
		if o := readOops(t, h.do(hello("")).Body.Bytes()); o.Code != "no_runner" {
			t.Errorf("afterwards: %+v", o)
		}
	})
}

func TestQueueFull(t *testing.T) {
	h := newHouse(t, func(s *site.Config, _ *gateway.Config) { s.Quota = 1 })
	h.pair("alice")
	v := hello("").with("Prefer", "wait=0")
	h.do(v)
	w := h.do(v)
	o := readOops(t, w.Body.Bytes())
	if w.Code != 429 || o.Code != "queue_full" || w.Header().Get("Retry-After") != "5" || w.Header().Get("X-Should-Retry") != "" {
		t.Errorf("%d %+v %v", w.Code, o, w.Header())
	}
}

// TestTooLarge holds both ways in which a body can be too large.
func TestTooLarge(t *testing.T) {
	h := newHouse(t)
	v := chat(strings.Repeat(" ", 32<<20+1))
	if w := h.do(v); w.Code != 413 {
		t.Errorf("with its length: %d %s", w.Code, w.Body)
	}
	r := httptest.NewRequest(v.method, v.path, strings.NewReader(v.body))
	r.ContentLength = -1
	r.Header.Set("Authorization", "Bearer alice")
	var read atomic.Int64
	announced := httptest.NewRequest(v.method, v.path, slow{nil, nil, &read})
	announced.ContentLength, announced.Header = 32<<20+1, r.Header
	w := httptest.NewRecorder()
	if h.gateway.ServeHTTP(w, announced); w.Code != 413 || read.Load() != 0 {
		t.Errorf("announced: %d, and %d times read", w.Code, read.Load())
	}
	w = httptest.NewRecorder()
	h.gateway.ServeHTTP(w, r)
	if o := readOops(t, w.Body.Bytes()); w.Code != 413 || o.Code != "request_too_large" {
		t.Errorf("without its length: %d %+v", w.Code, o)
	}
}

// TestHeldLongerThanTheServer holds that a server's own bounds, which are for
// requests that are not held, do not end a wait.
func TestHeldLongerThanTheServer(t *testing.T) {
	h := newHouse(t)
	h.pair("alice")
	server := httptest.NewUnstartedServer(h.gateway)
	server.Config.ReadTimeout, server.Config.WriteTimeout = 300*time.Millisecond, 300*time.Millisecond // the wait is a second
	server.Start()
	defer server.Close()
	for _, body := range []string{hello("").body, hello(`,"stream":true`).body} {
		r, err := http.NewRequest("POST", server.URL+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer alice")
		r.Header.Set("Prefer", "wait=1")
		answer, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := answer.Write(&text); err != nil || !strings.Contains(text.String(), `"code":"job_pending"`) {
			t.Errorf("%v %s", err, text.String())
		}
	}
}

// TestKindOf holds that a client finds every code that it can meet.
func TestKindOf(t *testing.T) {
	for _, k := range gateway.Kinds.Kinds {
		if got := gateway.KindOf(strings.ReplaceAll(k.Name(), "-", "_")); got != k {
			t.Errorf("%s is %v", k.Name(), got)
		}
	}
	if gateway.KindOf("invalid_api_key") == nil || gateway.KindOf("canary") != nil || gateway.KindOf("") != nil {
		t.Error("codes of others")
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string][2]bool{ // droppable, labelable
		"temperature": {true, true}, "top_k": {true, true}, "model": {false, true}, "messages": {false, true}, "n": {false, true},
		"": {false, false}, "auto": {true, false}, "a b": {false, false}, "Gpt-4.1:y": {false, true}, "é": {false, false},
		"a/b": {false, false}, ".": {false, false}, "..": {false, false}, "...": {false, true},
		strings.Repeat("a", 64): {true, true}, strings.Repeat("a", 65): {false, false},
	} {
		if got := [2]bool{gateway.Droppable(name), gateway.Labelable(name)}; got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}

// slow is a body that begins and never comes whole. It notes each time that
// somebody waits for it.
type slow struct {
	begin   io.Reader
	gone    <-chan struct{}
	waiting *atomic.Int64
}

func (s slow) Read(b []byte) (int, error) {
	if s.begin != nil {
		if n, err := s.begin.Read(b); err == nil {
			return n, nil
		}
	}
	s.waiting.Add(1)
	<-s.gone
	return 0, io.ErrUnexpectedEOF
}

// TestLargeBodies holds that few large bodies are read at once, fewer of one key,
// that small ones are not held up by them, and that none waits for ever.
func TestLargeBodies(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t)
		h.pair("alice")
		var waiting atomic.Int64
		end := make(chan struct{})
		var all sync.WaitGroup
		send := func(ctx context.Context, key string, size, announced int64) <-chan *httptest.ResponseRecorder {
			r := httptest.NewRequest("POST", "/v1/completions", slow{strings.NewReader(strings.Repeat(" ", int(size))), end, &waiting}).WithContext(ctx)
			r.Header.Set("Authorization", "Bearer "+key)
			r.ContentLength = announced
			out := make(chan *httptest.ResponseRecorder, 1)
			all.Go(func() { w := httptest.NewRecorder(); h.gateway.ServeHTTP(w, r); out <- w })
			synctest.Wait()
			return out
		}
		refused := func(w *httptest.ResponseRecorder) {
			t.Helper()
			if o := readOops(t, w.Body.Bytes()); w.Code != 429 || o.Code != "rate_limit_exceeded" || w.Header().Get("Retry-After") != "1" {
				t.Errorf("%d %+v", w.Code, o)
			}
		}
		is := func(n int64) {
			t.Helper()
			if got := waiting.Load(); got != n {
				t.Errorf("%d bodies are read, want %d", got, n)
			}
		}
		const most = 1 << 20
		// What is only announced takes no turn, however much it is.
		for range 5 {
			send(t.Context(), "alice", most, 32<<20)
		}
		is(5)
		// Two of each key have one, and a third waits ten seconds for it.
		for i := range 3 {
			send(t.Context(), "alice", most+1, []int64{-1, most + 2}[i%2])
		}
		is(7)
		begin := time.Now()
		refused(h.do(chat(strings.Repeat(" ", most) + hello("").body)))
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("it took %s", took)
		}
		for range 2 {
			send(t.Context(), "everyone", most+1, -1)
		}
		is(9)
		// Four in all, so that another key waits too, and gives up with its client.
		ctx, leave := context.WithCancel(t.Context())
		gone := send(ctx, "asks", most+1, -1)
		is(9)
		begin = time.Now()
		leave()
		if w := <-gone; w.Body.Len() > 0 || time.Since(begin) > 0 {
			t.Errorf("nobody is told %s, after %s", w.Body, time.Since(begin))
		}
		if o := readOops(t, h.do(hello("").with("Prefer", "wait=0")).Body.Bytes()); o.Code != "job_pending" {
			t.Errorf("a small one: %+v", o)
		}
		r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(hello("").body))
		r.Header.Set("Authorization", "Bearer alice")
		r.Header.Set("Prefer", "wait=0")
		r.ContentLength = -1
		w := httptest.NewRecorder()
		h.gateway.ServeHTTP(w, r)
		if o := readOops(t, w.Body.Bytes()); o.Code != "job_pending" {
			t.Errorf("a small one of unknown length: %+v", o)
		}
		// One that waits is read as soon as there is a turn.
		next := h.start(chat(strings.Repeat(" ", 2<<20)+hello("").body).with("Prefer", "wait=0").as("asks"))
		synctest.Wait()
		close(end)
		if o := readOops(t, (<-next).Body.Bytes()); o.Code != "job_pending" {
			t.Errorf("a large one afterwards: %+v", o)
		}
		all.Wait()
	})
}

// line is a connection whose bytes come at a rate, as far as a body is read from
// it.
type line struct {
	*httptest.ResponseRecorder
	rate     int // bytes a second
	size     int
	text     string // at the end
	deadline time.Time
	late     bool // a deadline was set after the end
	ended    bool
	end      func() // what a server does with a request whose body is late
}

func (l *line) SetReadDeadline(t time.Time) error {
	l.deadline, l.late = t, l.late || l.ended
	return nil
}

func (l *line) Read(b []byte) (int, error) {
	if l.size == 0 {
		n := copy(b, l.text)
		l.ended = true
		return n, io.EOF
	}
	n := min(len(b), l.size, 64<<10)
	wait := time.Duration(n) * time.Second / time.Duration(l.rate)
	if left := time.Until(l.deadline); wait > left {
		time.Sleep(left)
		l.end()
		return 0, os.ErrDeadlineExceeded
	}
	time.Sleep(wait)
	l.size -= n
	for i := range b[:n] {
		b[i] = ' '
	}
	return n, nil
}

// TestSlowBody holds how slowly a body may come, and that the server's watch over
// the connection has no deadline afterwards.
func TestSlowBody(t *testing.T) {
	for name, c := range map[string]struct {
		rate, size int
		code       string
		took       time.Duration
	}{
		"fast":                       {10 << 20, 20 << 20, "job_pending", 2 * time.Second},
		"a small one in a minute":    {1 << 10, 59 << 10, "job_pending", 59 * time.Second},
		"a small one that drips":     {1 << 10, 1 << 20, "request_timeout", 60 * time.Second},
		"a large one that is slow":   {192 << 10, 30 << 20, "job_pending", 160 * time.Second},
		"a large one that is slower": {128 << 10, 30 << 20, "request_timeout", 119 * time.Second},
		"one byte more than small":   {1 << 20, 1<<20 + 1 - len(hello("").body), "job_pending", time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				h := newHouse(t, func(s *site.Config, _ *gateway.Config) { s.Liveness = time.Hour })
				h.pair("alice")
				l := &line{ResponseRecorder: httptest.NewRecorder(), rate: c.rate, size: c.size, text: hello("").body}
				ctx, end := context.WithCancel(t.Context())
				defer end()
				l.end = end
				r := httptest.NewRequest("POST", "/v1/chat/completions", l).WithContext(ctx)
				r.Header.Set("Authorization", "Bearer alice")
				r.Header.Set("Prefer", "wait=0")
				begin := time.Now()
				h.gateway.ServeHTTP(l, r)
				if o := readOops(t, l.Body.Bytes()); o.Code != c.code || l.late {
					t.Errorf("%+v, late %v", o, l.late)
				}
				if c.code == "request_timeout" && l.Code != 408 {
					t.Errorf("status %d", l.Code)
				}
				if took := time.Since(begin); took < c.took-time.Second || took > c.took+time.Second {
					t.Errorf("it took %s, want %s", took, c.took)
				}
			})
		})
	} // The time in which a large one waits for its turn is not its own.
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, func(s *site.Config, _ *gateway.Config) { s.Liveness = time.Hour })
		h.pair("alice")
		free := h.fill("alice")
		l := &line{ResponseRecorder: httptest.NewRecorder(), rate: 31300, size: 2 << 20, text: hello("").body}
		r := httptest.NewRequest("POST", "/v1/chat/completions", l)
		r.Header.Set("Authorization", "Bearer alice")
		r.Header.Set("Prefer", "wait=0")
		done := make(chan bool)
		go func() { h.gateway.ServeHTTP(l, r); close(done) }()
		time.Sleep(42 * time.Second) // after 33 the first MiB is there
		free()
		<-done
		if o := readOops(t, l.Body.Bytes()); o.Code != "job_pending" {
			t.Errorf("%+v", o)
		}
	})
}

// fill takes both turns of a key for large bodies.
func (h *house) fill(key string) (free func()) {
	var waiting atomic.Int64
	end := make(chan struct{})
	var all sync.WaitGroup
	for range 2 {
		r := httptest.NewRequest("POST", "/v1/completions", slow{strings.NewReader(strings.Repeat(" ", 1<<20+1)), end, &waiting})
		r.Header.Set("Authorization", "Bearer "+key)
		all.Go(func() { h.gateway.ServeHTTP(httptest.NewRecorder(), r) })
	}
	synctest.Wait()
	return func() { close(end); all.Wait() }
}
