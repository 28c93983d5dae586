package backend

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

const canary = "sk-canary-0123456789"

// open opens a backend at a server of the test's, with the canary as its key.
func open(t *testing.T, id wirebackend.ID, handler http.HandlerFunc) *HTTP {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return openAt(t, Config{ID: id, BaseURL: s.URL + "/v1", Key: NewKey(canary)})
}

func openAt(t *testing.T, c Config) *HTTP {
	t.Helper()
	b, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// raw opens a backend at a server that writes one text to whoever asks.
func raw(t *testing.T, text string) *HTTP {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serveRaw(c, text)
		}
	}()
	return openAt(t, Config{ID: "ollama", BaseURL: "http://" + l.Addr().String() + "/v1", Key: NewKey(canary)})
}

func ask(b *HTTP) Result {
	return b.Run(context.Background(), Request{Model: "m", Payload: ai.Generate{Prompt: "p"}, MaxTime: 20 * time.Second, MaxOutput: 10_000})
}

func failure(k *refusal.Kind, code string, retryable bool) ai.Outcome {
	return ai.Failure{Code: code, Message: k.Meaning(), Retryable: retryable}
}

func TestRunSends(t *testing.T) {
	generate := ai.Generate{Prompt: "question \"1\"\n", System: "be brief"}
	chat := ai.Chat{System: "s", Messages: []ai.ChatMessage{
		{Role: ai.RoleUser, Content: "a"}, {Role: ai.RoleAssistant, Content: ""}, {Role: ai.RoleSystem, Content: "in between"}, {Role: ai.RoleUser, Content: "b"},
	}}
	for _, c := range []struct {
		id      wirebackend.ID
		request Request
		want    string
	}{
		{"ollama", Request{Model: "m", Payload: generate},
			`{"model":"m","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"question \"1\"\n"}],"stream":false}`},
		{"ollama", Request{Model: "m", Payload: ai.Generate{Prompt: "q", System: " \n"}},
			`{"model":"m","messages":[{"role":"user","content":"q"}],"stream":false}`},
		{"llamacpp", Request{Model: "a/b", Payload: chat, MaxTokens: 7},
			`{"model":"a/b","messages":[{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"assistant","content":""},` +
				`{"role":"system","content":"in between"},{"role":"user","content":"b"}],"stream":false,"max_tokens":7}`},
		{"openai", Request{Model: "m", Payload: ai.Chat{Messages: chat.Messages[:1]}, MaxTokens: 7},
			`{"model":"m","messages":[{"role":"user","content":"a"}],"stream":false,"max_completion_tokens":7}`},
		{"openai", Request{Model: "m", Payload: ai.Generate{Prompt: "q"}, MaxTokens: -1},
			`{"model":"m","messages":[{"role":"user","content":"q"}],"stream":false}`},
		{"anthropic", Request{Model: "m", Payload: ai.Generate{Prompt: "q\xff"}},
			`{"model":"m","messages":[{"role":"user","content":"q` + "\ufffd" + `"}],"stream":false}`},
	} {
		var got *http.Request
		var body []byte
		b := open(t, c.id, func(w http.ResponseWriter, r *http.Request) {
			got, body = r, must(io.ReadAll(r.Body))
			_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"ok"}}]}`)
		})
		if r := b.Run(t.Context(), c.request); r.Outcome != (ai.Answer{Text: "ok"}) || r.Took < 0 {
			t.Errorf("%s: %+v", c.want, r)
		}
		if string(body) != c.want {
			t.Errorf("%s was sent\n%s, want\n%s", c.id, body, c.want)
		}
		want := http.Header{
			"Accept": {"application/json"}, "Accept-Encoding": {"identity"}, "Content-Type": {"application/json"}, "User-Agent": {"allod"},
			"Authorization": {"Bearer " + canary}, "Connection": {"close"}, "Content-Length": {fmt.Sprint(len(c.want))},
		}
		if got.Method != "POST" || got.URL.Path != "/v1/chat/completions" || fmt.Sprint(got.Header) != fmt.Sprint(want) {
			t.Errorf("%s: %s %s %v", c.id, got.Method, got.URL, got.Header)
		}
	}
	// A payload of no known kind reaches no server.
	if got := openAt(t, Config{ID: "ollama"}).Run(t.Context(), Request{Model: "m"}).Outcome; got != failure(ErrBackend, CodeBackend, false) {
		t.Errorf("no payload: %+v", got)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestStatuses holds what each status means, from a server that repeats the key
// wherever it can.
func TestStatuses(t *testing.T) {
	for status, want := range map[int]struct {
		kind      *refusal.Kind
		code      string
		retryable bool
	}{
		400: {ErrBackend, CodeBackend, false}, 401: {ErrUnauthorized, CodeUnauthorized, false}, 402: {ErrBackend, CodeBackend, false},
		403: {ErrUnauthorized, CodeUnauthorized, false}, 404: {ErrNoModel, CodeNoModel, false}, 409: {ErrBackend, CodeBackend, false},
		413: {ErrBackend, CodeBackend, false}, 422: {ErrBackend, CodeBackend, false}, 429: {ErrFailing, CodeBackend, true},
		500: {ErrFailing, CodeBackend, true}, 502: {ErrFailing, CodeBackend, true}, 503: {ErrFailing, CodeBackend, true}, 599: {ErrFailing, CodeBackend, true},
		600: {ErrFailing, CodeBackend, true}, 999: {ErrFailing, CodeBackend, true},
		300: {ErrBackend, CodeBackend, false}, 301: {ErrBackend, CodeBackend, false}, 302: {ErrBackend, CodeBackend, false}, 304: {ErrBackend, CodeBackend, false},
		307: {ErrBackend, CodeBackend, false}, 308: {ErrBackend, CodeBackend, false}, 204: {ErrBackend, CodeBackend, false}, // no text
	} {
		asked := 0
		b := open(t, "ollama", func(w http.ResponseWriter, r *http.Request) {
			asked++
			w.Header().Set("Location", "/elsewhere")
			w.Header().Set("X-Echo", r.Header.Get("Authorization"))
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"x"}}],"data":[{"id":"m"}],"error":{"message":"`+r.Header.Get("Authorization")+`"}}`)
		})
		if got := ask(b).Outcome; got != failure(want.kind, want.code, want.retryable) {
			t.Errorf("%d: %+v", status, got)
		}
		models, err := b.Models(t.Context())
		proof := b.Probe(t.Context(), "m")
		if kindOf(err) != want.kind || kindOf(proof) != want.kind || models != nil {
			t.Errorf("%d: %v, %v", status, err, proof)
		}
		if redirected := strings.Contains(refusal.From(err).Detail(), "redirects"); redirected != (status/100 == 3) {
			t.Errorf("%d: %v", status, err)
		}
		if asked != 3 {
			t.Errorf("%d: asked %d times", status, asked)
		}
		silent(t, err, proof)
	}
}

// silent holds that the key is in no form of these errors.
func silent(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		var log bytes.Buffer
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "err", err, "refusal", slog.AnyValue(refusal.From(err)))
		_, body := refusal.HTTP(err)
		for inner := err; inner != nil; inner = errors.Unwrap(inner) {
			fmt.Fprintf(&log, "%v %+v", inner, inner)
		}
		if strings.Contains(log.String()+string(body), canary) {
			t.Errorf("the key is in %s %s", log.String(), body)
		}
	}
}

func TestHostileServers(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	packed := func() string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write(bytes.Repeat([]byte(" "), 1<<20))
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"ok"}}]}`)
		_ = w.Close()
		return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", b.Len(), b.String())
	}()
	text := func(body string) string {
		return ok + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body
	}
	unreachable, tooLarge, unread := failure(ErrUnreachable, CodeUnreachable, true), failure(ErrOutputTooLarge, CodeTooLarge, false), failure(ErrBackend, CodeBackend, false)
	for what, c := range map[string]struct {
		answer string
		want   ai.Outcome
	}{
		"nothing":                 {"", unreachable},
		"no HTTP":                 {"SSH-2.0-" + canary + "\r\n\r\n", unreachable},
		"the key as a status":     {"HTTP/1.1 Bearer " + canary + "\r\n\r\n", unreachable},
		"the key as a length":     {ok + "Content-Length: " + canary + "\r\n\r\n", unreachable},
		"the key as a coding":     {ok + "Transfer-Encoding: " + canary + "\r\n\r\n", unreachable},
		"a broken header":         {ok + canary + "\r\n\r\n", unreachable},
		"endless headers":         {ok + strings.Repeat("X-Y: "+strings.Repeat("z", 1000)+"\r\n", 100) + "\r\n", unreachable},
		"one huge header":         {ok + "X: " + strings.Repeat("z", 1<<20) + "\r\n\r\n", unreachable},
		"endless early answers":   {strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: "+strings.Repeat("z", 1000)+"\r\n\r\n", 100) + text(`{}`), unreachable},
		"a cut body":              {ok + "Content-Length: 100\r\n\r\n{", unreachable},
		"a cut chunk":             {ok + "Transfer-Encoding: chunked\r\n\r\nff\r\n{", unreachable},
		"a chunk of " + canary:    {ok + "Transfer-Encoding: chunked\r\n\r\n" + canary + "\r\n", unreachable},
		"an announced flood":      {ok + "Content-Length: 10001\r\n\r\n", tooLarge},
		"a flood":                 {ok + "\r\n" + strings.Repeat(" ", 10_001), tooLarge},
		"a flood in chunks":       {ok + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("400\r\n"+strings.Repeat(" ", 0x400)+"\r\n", 20), tooLarge},
		"a packed flood":          {ok + "Content-Encoding: gzip\r\n" + packed, unread},
		"a flood, packed quietly": {ok + packed, unread},
		"packed by name alone":    {ok + "Content-Encoding: br\r\n" + text(`{"choices":[{"message":{"content":"ok"}}]}`)[len(ok):], unread},
		"plain by name":           {ok + "Content-Encoding: Identity\r\n" + text(`{"choices":[{"message":{"content":"ok"}}]}`)[len(ok):], ai.Answer{Text: "ok"}},
		"nothing in it":           {text(""), unread},
		"no JSON":                 {text("<html>" + canary), unread},
		"an error as success":     {text(`{"error":{"message":"` + canary + `"}}`), unread},
		"a list":                  {text(`[]`), unread},
		"no choices":              {text(`{"choices":[]}`), unread},
		"choices that are none":   {text(`{"choices":{"0":{"message":{"content":"x"}}}}`), unread},
		"a null choice":           {text(`{"choices":[null]}`), unread},
		"no message":              {text(`{"choices":[{"text":"x"}]}`), unread},
		"a null text":             {text(`{"choices":[{"finish_reason":"tool_calls","message":{"content":null,"tool_calls":[{}]}}]}`), unread},
		"a refusal":               {text(`{"choices":[{"message":{"content":null,"refusal":"no"}}]}`), unread},
		"a text in pieces":        {text(`{"choices":[{"message":{"content":[{"type":"text","text":"x"}]}}]}`), unread},
		"a number as text":        {text(`{"choices":[{"message":{"content":1}}]}`), unread},
		"another case":            {text(`{"choices":[{"message":{"Content":"x"}}]}`), unread},
		"two values":              {text(`{"choices":[{"message":{"content":"x"}}]}{}`), unread},
		"a deep value":            {text(`{"x":` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + `,"choices":[{"message":{"content":"x"}}]}`), unread},
		"the deepest value":       {text(`{"x":` + strings.Repeat("[", maxDepth-1) + strings.Repeat("]", maxDepth-1) + `,"choices":[{"message":{"content":"x"}}]}`), ai.Answer{Text: "x"}},
		"brackets in a text":      {text(`{"choices":[{"message":{"content":"` + strings.Repeat(`[{\"`, 200) + `"}}]}`), ai.Answer{Text: strings.Repeat(`[{"`, 200)}},
		"no text at all":          {text(`{"choices":[{"message":{"content":""}}]}`), ai.Answer{}},
		"the key as its answer":   {text(`{"choices":[{"message":{"content":"` + canary + `"}}]}`), ai.Answer{Text: "(API key)"}},
		"the key in its answer":   {text(`{"choices":[{"message":{"content":"a ` + canary + canary + ` b ` + canary[1:] + `"}}]}`), ai.Answer{Text: "a (API key)(API key) b " + canary[1:]}},
		"the key, spelled out":    {text(`{"choices":[{"message":{"content":"\u0073` + canary[1:] + `"}}]}`), ai.Answer{Text: "(API key)"}},
		"another choice":          {text(`{"choices":[{"message":{"content":"x"}},{"message":{"content":"y"}},7,[]]}`), ai.Answer{Text: "x"}},
		"twice, then none":        {text(`{"choices":[{"message":{"content":"x"}}],"choices":null}`), unread},
		"twice":                   {text(`{"choices":[{"message":{"content":"x"}}],"choices":[{"message":{"content":"y"}}]}`), ai.Answer{Text: "y"}},
		"half a character":        {text(`{"choices":[{"message":{"content":"a\ud83d"}}]}`), ai.Answer{Text: "a\ufffd"}},
		"broken bytes":            {text(`{"choices":[{"message":{"content":"` + "a\xff" + `"}}]}`), ai.Answer{Text: "a\ufffd"}},
		"broken bytes that grow":  {text(`{"choices":[{"message":{"content":"` + strings.Repeat("\xff", 5000) + `"}}]}`), tooLarge},
		"white space first":       {text("\n\n\n {\"choices\":[{\"message\":{\"content\":\"x\"}}]}\n"), ai.Answer{Text: "x"}},
		"an old server":           {"HTTP/1.0 200 OK\r\n\r\n" + `{"choices":[{"message":{"content":"x"}}]}`, ai.Answer{Text: "x"}},
	} {
		t.Run(what, func(t *testing.T) {
			b := raw(t, c.answer)
			got := ask(b)
			if got.Outcome != c.want {
				t.Errorf("%+v, want %+v", got.Outcome, c.want)
			}
			// The owner is told the kind behind a failure, and nothing beside an answer.
			if f, ok := c.want.(ai.Failure); ok != (got.Kind != nil) || ok && got.Kind.Meaning() != f.Message {
				t.Errorf("the kind is %v", got.Kind)
			}
			_, err := b.Models(t.Context())
			silent(t, err, b.Probe(t.Context(), "m"))
		})
	}
}

// TestOutputBound holds both sides of the bound, of a body that comes whole and
// of one whose length is not said.
func TestOutputBound(t *testing.T) {
	const body = `{"choices":[{"message":{"content":"x"}}]}`
	for _, chunked := range []bool{false, true} {
		b := open(t, "ollama", func(w http.ResponseWriter, _ *http.Request) {
			if chunked {
				_ = http.NewResponseController(w).Flush()
			}
			_, _ = io.WriteString(w, body)
		})
		for bound, want := range map[int]ai.Outcome{len(body): ai.Answer{Text: "x"}, len(body) - 1: failure(ErrOutputTooLarge, CodeTooLarge, false), 0: ai.Answer{Text: "x"}, 1 << 62: ai.Answer{Text: "x"}} {
			if got := b.Run(t.Context(), Request{Model: "m", Payload: ai.Generate{Prompt: "p"}, MaxOutput: bound}).Outcome; got != want {
				t.Errorf("%d: %+v", bound, got)
			}
		}
	}
	for bound, length := range map[int]int{0: DefaultMaxOutput, 1 << 40: maxOutput} {
		for over, want := range map[int]ai.Outcome{0: failure(ErrUnreachable, CodeUnreachable, true), 1: failure(ErrOutputTooLarge, CodeTooLarge, false)} {
			b := raw(t, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", length+over))
			if got := b.Run(t.Context(), Request{Model: "m", Payload: ai.Generate{Prompt: "p"}, MaxOutput: bound}).Outcome; got != want {
				t.Errorf("%d bytes for %d: %+v", length+over, bound, got)
			}
		}
	}
}

func TestUsage(t *testing.T) {
	for usage, want := range map[string]Usage{
		`{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}`: {3, 4, true},
		`{"prompt_tokens":0,"completion_tokens":4.0}`:                {0, 4, true},
		`{"prompt_tokens":9007199254740991,"completion_tokens":1e3}`: {1<<53 - 1, 1000, true},
		`{"prompt_tokens":9007199254740992,"completion_tokens":1}`:   {},
		`{"prompt_tokens":1e400,"completion_tokens":1}`:              {},
		`{"prompt_tokens":-1,"completion_tokens":1}`:                 {},
		`{"prompt_tokens":1.5,"completion_tokens":1}`:                {},
		`{"prompt_tokens":"3","completion_tokens":1}`:                {},
		`{"prompt_tokens":3}`:                                        {},
		`{"completion_tokens":3}`:                                    {},
		`{"prompt_tokens":3,"completion_tokens":null}`:               {},
		`null`: {}, `7`: {}, `[1,2]`: {}, `"x"`: {}, `{}`: {},
	} {
		body := `{"usage":` + usage + `,"choices":[{"message":{"content":"x"}}]}`
		r := ask(open(t, "ollama", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
		if r.Usage != want || r.Outcome != (ai.Answer{Text: "x"}) {
			t.Errorf("%s: %+v", usage, r)
		}
	}
}

// TestStop: why a model stopped is told in the contract's words. The servers that
// are spoken to here say it, so a reason that is missing or has no word is unknown
// and not unsaid. Where there is no answer, nothing is said.
func TestStop(t *testing.T) {
	unknown := ai.Stop{Reason: ai.StopUnknown, Reported: true}
	for reason, want := range map[string]ai.Stop{
		`"stop"`:       {Reason: ai.StopEnd, Reported: true},
		`"length"`:     {Reason: ai.StopLength, Reported: true},
		`"tool_calls"`: unknown, `"content_filter"`: unknown, `"Stop"`: unknown, `"stop "`: unknown, `"stop-sequence"`: unknown, `"end"`: unknown,
		`""`: unknown, `null`: unknown, `1`: unknown, `true`: unknown, `["stop"]`: unknown, `{"stop":"stop"}`: unknown,
		`"` + strings.Repeat("x", 5_000) + `"`: unknown,
	} {
		body := `{"choices":[{"finish_reason":` + reason + `,"message":{"content":"x"}},{"finish_reason":"length","message":{"content":"y"}}]}`
		r := ask(open(t, "ollama", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
		if r.Stop != want || r.Outcome != (ai.Answer{Text: "x"}) {
			t.Errorf("%.50s: %+v", reason, r)
		}
	}
	r := ask(open(t, "ollama", says(`{"choices":[{"message":{"content":"x"}}]}`)))
	if r.Stop != unknown {
		t.Errorf("no reason: %+v", r)
	}
	for body, kind := range map[string]*refusal.Kind{
		`{"choices":[{"finish_reason":"length","message":{"refusal":"no"}}]}`: ErrBackend, `{"choices":[]}`: ErrBackend, `no JSON`: ErrBackend,
	} {
		r := ask(open(t, "ollama", says(body)))
		f, failed := r.Outcome.(ai.Failure)
		if !failed || f.Code != kind.Name() || r.Stop != (ai.Stop{}) {
			t.Errorf("%s: %+v", body, r)
		}
	}
}

// says answers with that body.
func says(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

// pipes is a network without sockets, so that the clock of a bubble runs.
type pipes struct{ conns chan net.Conn }

func newPipes() pipes { return pipes{make(chan net.Conn)} }

func (p pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestTimes(t *testing.T) {
	const second = time.Second
	type want struct {
		outcome ai.Outcome
		took    time.Duration
	}
	timeout := failure(ErrTimeout, CodeTimeout, true)
	for what, c := range map[string]struct {
		serve  func(net.Conn)         // nil: nobody listens
		caller func() context.Context // nil: patient
		max    time.Duration
		want   want
	}{
		"connecting":          {nil, nil, 3 * second, want{timeout, 3 * second}},
		"connecting for long": {nil, nil, 30 * second, want{failure(ErrUnreachable, CodeUnreachable, true), attemptTime}},
		"no answer":           {hold, nil, 7 * second, want{timeout, 7 * second}},
		"by default":          {hold, nil, 0, want{timeout, DefaultMaxTime}},
		"negative":            {hold, nil, -1, want{timeout, DefaultMaxTime}},
		"drip":                {drip, nil, 9 * second, want{timeout, 9 * second}},
		"caller gives up":     {drip, func() context.Context { return canceledAfter(2 * second) }, 9 * second, want{ai.Cancellation{}, 2 * second}},
		"while connecting":    {nil, func() context.Context { return canceledAfter(2 * second) }, 9 * second, want{ai.Cancellation{}, 2 * second}},
		"before it began":     {hold, func() context.Context { return canceledAfter(0) }, 9 * second, want{ai.Cancellation{}, 0}},
		"caller's deadline": {hold, func() context.Context {
			ctx, cancel := context.WithTimeout(context.Background(), 4*second)
			time.AfterFunc(time.Hour, cancel)
			return ctx
		}, 9 * second, want{timeout, 4 * second}},
		"in time": {func(c net.Conn) {
			time.Sleep(8 * second)
			serveRaw(c, "HTTP/1.1 200 OK\r\n\r\n"+`{"choices":[{"message":{"content":"x"}}]}`)
		}, nil, 9 * second, want{ai.Answer{Text: "x"}, 8 * second}},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes()
				over, server := make(chan struct{}), sync.WaitGroup{}
				if c.serve != nil {
					server.Go(func() {
						select {
						case conn := <-p.conns:
							c.serve(conn)
						case <-over:
						}
					})
				}
				b := openAt(t, Config{ID: "ollama", Dial: p.dial})
				ctx := context.Background()
				if c.caller != nil {
					ctx = c.caller()
				}
				r := b.Run(ctx, Request{Model: "m", Payload: ai.Generate{Prompt: "p"}, MaxTime: c.max})
				close(over)
				server.Wait()
				if got := (want{r.Outcome, r.Took}); got != c.want {
					t.Errorf("%+v, want %+v", got, c.want)
				}
			})
		})
	}
}

func canceledAfter(d time.Duration) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	if d == 0 {
		cancel()
	} else {
		time.AfterFunc(d, cancel)
	}
	return ctx
}

// hold reads and says nothing, until the other side is gone.
func hold(c net.Conn) {
	defer c.Close()
	_, _ = io.Copy(io.Discard, c)
}

// drip writes a byte a second for ever.
func drip(c net.Conn) {
	// An answer before the question would be one to nobody's.
	if _, err := c.Read(make([]byte, 1)); err != nil {
		_ = c.Close()
		return
	}
	go hold(c)
	_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	for err == nil {
		time.Sleep(time.Second)
		_, err = io.WriteString(c, " ")
	}
}

// TestBoundedTimes holds the times of what is not a job.
func TestBoundedTimes(t *testing.T) {
	for what, c := range map[string]struct {
		call func(*HTTP, context.Context) error
		want time.Duration
	}{
		"models": {func(b *HTTP, ctx context.Context) error { _, err := b.Models(ctx); return err }, 5 * time.Second},
		"probe":  {func(b *HTTP, ctx context.Context) error { return b.Probe(ctx, "m") }, 2 * time.Minute},
	} {
		for _, canceled := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes()
				go func() { hold(<-p.conns) }()
				ctx, wantErr, want := context.Background(), error(ErrTimeout), c.want
				if canceled {
					ctx, wantErr, want = canceledAfter(time.Second), context.Canceled, time.Second
				}
				start := time.Now()
				err := c.call(openAt(t, Config{ID: "ollama", Dial: p.dial}), ctx)
				if took := time.Since(start); !errors.Is(err, wantErr) || took != want {
					t.Errorf("%s: %v after %v", what, err, took)
				}
			})
		}
	}
}

// TestClock holds that a run is measured with the clock that was given, and
// that a clock that goes back makes no negative time.
func TestClock(t *testing.T) {
	for _, step := range []time.Duration{42 * time.Second, -time.Hour} {
		now := time.Unix(1_700_000_000, 0)
		b := openAt(t, Config{ID: "ollama", Dial: func(context.Context, string, string) (net.Conn, error) {
			now = now.Add(step)
			return nil, errors.New("no")
		}, Now: func() time.Time { return now }})
		if got := ask(b).Took; got != max(step, 0) {
			t.Errorf("%v: took %v", step, got)
		}
	}
}

func TestTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"data":[{"id":"m"}]}`)
	}))
	defer s.Close()
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	b := openAt(t, Config{ID: "openai", BaseURL: s.URL + "/v1", Key: NewKey(canary)})
	_, err := b.Models(t.Context())
	if r := refusal.From(err); r.Kind() != ErrUnreachable || !strings.Contains(r.Detail(), "certificate") {
		t.Errorf("a certificate that nobody vouches for: %v", err)
	}
	// With one that somebody vouches for, it works.
	b.client.Transport.(*http.Transport).TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig
	if models, err := b.Models(t.Context()); err != nil || len(models) != 1 {
		t.Errorf("%v, %v", models, err)
	}
	plain := open(t, "ollama", func(http.ResponseWriter, *http.Request) {})
	b = openAt(t, Config{ID: "openai", BaseURL: strings.Replace(plain.BaseURL(), "http", "https", 1)})
	_, err = b.Models(t.Context())
	if r := refusal.From(err); r.Kind() != ErrUnreachable || !strings.Contains(r.Detail(), "http.") {
		t.Errorf("a server without TLS: %v", err)
	}
}

func TestNothingListens(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows names a refused connection otherwise")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	base := "http://" + l.Addr().String()
	_ = l.Close()
	_, err = openAt(t, Config{ID: "ollama", BaseURL: base}).Models(t.Context())
	if r := refusal.From(err); r.Kind() != ErrUnreachable || !strings.Contains(r.Detail(), "Nothing listens") {
		t.Errorf("%v", err)
	}
}

func TestModels(t *testing.T) {
	long := strings.Repeat("x", maxModelID)
	for _, c := range []struct {
		id   wirebackend.ID
		body string
		want []string
	}{
		{"ollama", `{"object":"list","data":[{"id":"a:latest","object":"model"},{"id":"b","owned_by":null}]}`, []string{"a:latest", "b"}},
		{"ollama", `{"data":[]}`, []string{}},
		{"together", `[{"id":"x/y"},{"id":"z"}]`, []string{"x/y", "z"}},
		{"gemini", `{"data":[{"id":"models/gemini-x"},{"id":"other"}]}`, []string{"gemini-x", "other"}},
		{"ollama", `{"data":[{"id":"models/x"}]}`, []string{"models/x"}},
		{"ollama", `{"data":[{"id":"a"},{"id":7},{"name":"b"},null,[],"c",{"id":""},{"id":"a"},{"id":"a\u0000b"},{"id":"a\u001b[2J"},{"id":"a\u202eb"},{"id":"\ud800"},{"id":"` +
			long + `"},{"id":"` + long + `x"},{"id":"d e"}]}`, []string{"a", long, "d e"}},
		{"ollama", `{}`, nil}, {"ollama", `{"data":null}`, nil}, {"ollama", `{"data":{"id":"a"}}`, nil}, {"ollama", `null`, nil}, {"ollama", `"x"`, nil}, {"ollama", ``, nil},
		{"ollama", `{"data":[{"id":"a"}`, nil}, {"ollama", `<html>`, nil}, {"ollama", `{"models":[{"id":"a"}]}`, nil},
		{"ollama", `{"data":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, nil},
	} {
		b := open(t, c.id, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != "GET" || r.URL.Path != "/v1/models" {
				t.Errorf("asked for %s %s", r.Method, r.URL)
			}
			_, _ = io.WriteString(w, c.body)
		})
		got, err := b.Models(t.Context())
		if !slices.Equal(got, c.want) || (err == nil) != (c.want != nil) || err != nil && kindOf(err) != ErrBackend {
			t.Errorf("%s: %q, %v", c.body, got, err)
		}
	}
	var many strings.Builder
	for i := range maxModels + 5 {
		fmt.Fprintf(&many, `,{"id":"m%d"}`, i)
	}
	if l, ok := readModels([]byte(`[` + many.String()[1:] + `]`)); !ok || len(l.ids) != maxModels || l.ids[maxModels-1] != fmt.Sprint("m", maxModels-1) {
		t.Errorf("of many models %d are kept", len(l.ids))
	}
	b := raw(t, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", maxList+1))
	if _, err := b.Models(t.Context()); kindOf(err) != ErrOutputTooLarge {
		t.Errorf("a huge list: %v", err)
	}
}

func TestKeyHeaders(t *testing.T) {
	for _, c := range []struct {
		id         wirebackend.ID
		list, chat http.Header
		query      string
	}{
		{"ollama", http.Header{"Authorization": {"Bearer " + canary}}, http.Header{"Authorization": {"Bearer " + canary}}, ""},
		{"anthropic", http.Header{"X-Api-Key": {canary}, "Anthropic-Version": {"2023-06-01"}}, http.Header{"Authorization": {"Bearer " + canary}}, "limit=1000"},
	} {
		for _, locked := range []bool{true, false} {
			var got []http.Header
			s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.Method == "GET" && r.URL.RawQuery != c.query {
					t.Errorf("%s: query %s", c.id, r.URL.RawQuery)
				}
				for _, name := range []string{"Accept", "Accept-Encoding", "User-Agent", "Connection", "Content-Type", "Content-Length"} {
					r.Header.Del(name)
				}
				got = append(got, r.Header)
			}))
			key := NewKey(" \n")
			if locked {
				key = NewKey("\t" + canary + "\n")
			}
			b := openAt(t, Config{ID: c.id, BaseURL: s.URL, Key: key})
			_, _ = b.Models(t.Context())
			ask(b)
			s.Close()
			want := []http.Header{c.list.Clone(), c.chat.Clone()}
			for _, h := range want {
				if !locked {
					h.Del("Authorization")
					h.Del("X-Api-Key")
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: %v, want %v", c.id, got, want)
			}
		}
	}
}

func TestProbe(t *testing.T) {
	for body, want := range map[string]*refusal.Kind{
		`{"choices":[{"message":{"content":"ready"}}]}`:                                                                         nil,
		`{"choices":[{"message":{"content":"","reasoning_content":"The user"}}]}`:                                               nil,
		`{"choices":[{"message":{"content":"","reasoning":"The user"}}]}`:                                                       nil,
		`{"choices":[{"finish_reason":"length","message":{"content":""}}],"usage":{"prompt_tokens":3,"completion_tokens":16}}`:  nil,
		`{"choices":[{"finish_reason":"length","message":{"content":""}}]}`:                                                     ErrEmpty,
		`{"choices":[{"finish_reason":"stop","message":{"content":" \n"}}],"usage":{"prompt_tokens":3,"completion_tokens":16}}`: ErrEmpty,
		`{"choices":[{"finish_reason":"length","message":{"content":""}}],"usage":{"prompt_tokens":3,"completion_tokens":0}}`:   ErrEmpty,
		`{"choices":[{"message":{"content":null,"reasoning_content":"The user"}}]}`:                                             ErrBackend,
		`{"choices":[]}`: ErrBackend,
		`{"choices":[{"message":{"content":"` + strings.Repeat("x", maxProbe) + `"}}]}`: ErrOutputTooLarge,
	} {
		var sent []byte
		b := open(t, "ollama", func(w http.ResponseWriter, r *http.Request) {
			sent = must(io.ReadAll(r.Body))
			_, _ = io.WriteString(w, body)
		})
		if err := b.Probe(t.Context(), "m"); kindOf(err) != want {
			t.Errorf("%.100s: %v", body, err)
		}
		if !strings.HasPrefix(string(sent), `{"model":"m",`) || !strings.HasSuffix(string(sent), `"stream":false,"max_tokens":16}`) {
			t.Errorf("the proof is %s", sent)
		}
	}
}

func TestKeyIsSilent(t *testing.T) {
	k := NewKey(canary)
	if k.IsZero() || !NewKey(" ").IsZero() || !(Key{}).IsZero() || k.text() != canary || (Key{}).text() != "" {
		t.Error("the key is not what was given")
	}
	c := Config{ID: "ollama", Key: k}
	b := openAt(t, c)
	var log bytes.Buffer
	for _, h := range []slog.Handler{slog.NewJSONHandler(&log, nil), slog.NewTextHandler(&log, nil)} {
		slog.New(h).Info("x", "key", k, "config", c, "backend", b)
	}
	for _, v := range []any{k, &k, c, &c, b, *b, []Key{k}, map[string]Key{"a": k}, struct{ k Key }{k}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			fmt.Fprintf(&log, verb, v)
		}
	}
	for _, form := range []string{canary, fmt.Sprintf("%x", canary), fmt.Sprintf("%X", canary)} {
		if strings.Contains(log.String(), form) {
			t.Errorf("the key is in %s", log.String())
		}
	}
	if k.String() != placeholder || k.GoString() != placeholder {
		t.Error("it names itself otherwise")
	}
	if text, err := json.Marshal(k); err == nil {
		t.Errorf("marshalled to %s", text)
	}
	if text, err := json.Marshal(map[string]Key{"a": k}); err == nil {
		t.Errorf("marshalled to %s", text)
	}
	if _, err := k.MarshalText(); err == nil {
		t.Error("marshalled to text")
	}
	if err := gob.NewEncoder(io.Discard).Encode(k); err == nil {
		t.Error("marshalled by gob")
	}
}

// TestSystemNetwork holds that without a network of the caller's the system's
// is used.
// TestShortKeysStay holds from which length a key is taken out of an answer, and
// that a list's ids go by the same rule.
func TestShortKeysStay(t *testing.T) {
	for key, want := range map[string]string{
		"ollama":           "an ollama key",
		"123456789012345":  "an 123456789012345 key",
		"1234567890123456": "an (API key) key",
		"":                 "an  key",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"data":[{"id":"a-`+key+`"},{"id":"m"}],"choices":[{"message":{"content":"an `+key+` key"}}]}`)
		}))
		b := openAt(t, Config{ID: "ollama", BaseURL: s.URL, Key: NewKey(key)})
		if got := ask(b).Outcome; got != (ai.Answer{Text: want}) {
			t.Errorf("%s: %+v", key, got)
		}
		models := []string{"a-" + key, "m"}
		if strings.Contains(want, "(") {
			models = models[1:]
		}
		if got, err := b.Models(t.Context()); err != nil || !slices.Equal(got, models) {
			t.Errorf("%s: %q, %v", key, got, err)
		}
		s.Close()
	}
}

func TestSystemNetwork(t *testing.T) {
	b := open(t, wirebackend.Generic, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `[{"id":"m"}]`) })
	b = openAt(t, Config{ID: wirebackend.Generic, BaseURL: strings.Replace(b.BaseURL(), "127.0.0.1", "localhost", 1)})
	if models, err := b.Models(t.Context()); err != nil || !slices.Equal(models, []string{"m"}) || b.Cost() != wirebackend.Free {
		t.Errorf("%v, %v", models, err)
	}
}

// TestManyAtOnce is for the race detector.
func TestManyAtOnce(t *testing.T) {
	b := open(t, "ollama", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"x"}}],"data":[{"id":"m"}]}`)
	})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			models, err := b.Models(t.Context())
			if r := ask(b); r.Outcome != (ai.Answer{Text: "x"}) || err != nil || !HasModel(models, "M:latest") {
				t.Errorf("%+v, %v, %v", r, models, err)
			}
		})
	}
	group.Wait()
}

// TestKinds holds the names, statuses and order of the refusals, and that each
// code travels with one.
func TestKinds(t *testing.T) {
	want := []string{
		"process-backend-not-built 501", "backend-url-missing 400", "backend-url-invalid 400", "backend-url-scheme 400", "backend-url-credentials 400",
		"backend-metadata-address 403", "backend-link-local-address 403", "backend-wildcard-address 403", "backend-multicast-address 403", "backend-not-local 403",
		"backend-url-query 400", "backend-key-invalid 400",
		"backend-unauthorized 401", "backend-model-not-found 404", "backend-error 502", "backend-failing 503", "backend-unreachable 503", "backend-timeout 504",
		"backend-output-too-large 502", "backend-empty-answer 502",
	}
	var got []string
	for _, k := range Kinds.Kinds {
		got = append(got, fmt.Sprint(k.Name(), " ", k.Status()))
	}
	if !slices.Equal(got, want) || Kinds.Title != "Model servers" {
		t.Errorf("%q: %q", Kinds.Title, got)
	}
	for code, want := range map[string]*refusal.Kind{
		"unauthorized": ErrUnauthorized, "model-not-found": ErrNoModel, "backend-error": ErrBackend, "backend-unreachable": ErrUnreachable,
		"timeout": ErrTimeout, "output-too-large": ErrOutputTooLarge, "": ErrBackend, "else": ErrBackend,
	} {
		if got := KindOf(code); got != want {
			t.Errorf("%q: %v", code, got)
		}
	}
}

// FuzzReadCompletion reads anything as an answer.
func FuzzReadCompletion(f *testing.F) {
	for _, body := range []string{
		`{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"hi","reasoning":"x"}}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`,
		`{"choices":[{"message":{"content":"\ud83d"}},{}],"choices":null}`, `{"choices":[{"message":null}],"usage":[]}`, `[]`, `{"usage":{"prompt_tokens":1e999}}`, "",
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c, ok := readCompletion(body)
		if !ok && c != (completion{}) || c.text != "" && !c.answered {
			t.Fatalf("%+v, %v", c, ok)
		}
		if c.text != strings.ToValidUTF8(c.text, "") || len(c.text) > 3*len(body) {
			t.Fatalf("%q", c.text)
		}
		if u := c.usage; u.Prompt < 0 || u.Completion < 0 || !u.Counted && u != (Usage{}) || u.Prompt > 1<<53-1 || u.Completion > 1<<53-1 {
			t.Fatalf("%+v", u)
		}
		// What we take is JSON, whatever else may be JSON too.
		if ok && !json.Valid(body) {
			t.Fatalf("%q is no JSON", body)
		}
	})
}

// FuzzReadModels reads anything as a list of models.
func FuzzReadModels(f *testing.F) {
	for _, body := range []string{`{"data":[{"id":"a","owned_by":"b"},{"id":1},null]}`, `[{"id":"a"},{"id":"a"}]`, `{"data":null,"data":[]}`, `[[[`, ``} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		l, ok := readModels(body)
		if !ok && (l.ids != nil || l.owner != "") || len(l.ids) > maxModels || ok && !json.Valid(body) {
			t.Fatalf("%+v, %v", l, ok)
		}
		for i, id := range l.ids {
			if id == "" || len(id) > maxModelID || strings.ContainsAny(id, "\x00\n\x1b\ufffd") || slices.Contains(l.ids[:i], id) || !HasModel(l.ids, id) {
				t.Fatalf("%q", id)
			}
		}
	})
}
