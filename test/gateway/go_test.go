//go:build unix

package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/allodhq/allod/test/programs"
)

// counting counts the requests that a client makes.
type counting struct{ n atomic.Int64 }

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return http.DefaultTransport.RoundTrip(r)
}

// client is OpenAI's client for Go with the three settings that switch it.
func (l *lane) client(key string, more ...option.RequestOption) openai.Client {
	options := append([]option.RequestOption{option.WithBaseURL(l.URL + "/v1"), option.WithAPIKey(key)}, more...)
	return openai.NewClient(options...)
}

func hello(text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: "auto", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}}
}

// refusedBy reads what the client makes of a refusal.
func refusedBy(t *testing.T, err error) *openai.Error {
	t.Helper()
	var e *openai.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is no error of the API", err)
	}
	return e
}

// TestGoClient is openai-go with our agent behind the site.
func TestGoClient(t *testing.T) {
	t.Parallel()
	l := newLane(t)
	m := newModel(t)
	l.agent(m)
	ctx := t.Context()
	c := l.client(l.alice)

	t.Run("models", func(t *testing.T) {
		page, err := c.Models.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, model := range page.Data {
			names = append(names, model.ID)
		}
		// The owner's own name of the model is nobody else's business.
		if !slices.Equal(names, []string{"auto", "chatty", "friends"}) {
			t.Errorf("models %v", names)
		}
		if model, err := c.Models.Get(ctx, "chatty"); err != nil || model.ID != "chatty" {
			t.Errorf("one model: %+v %v", model, err)
		}
		_, err = c.Models.Get(ctx, "owners-model")
		if e := refusedBy(t, err); e.StatusCode != 404 || e.Code != "model_not_found" {
			t.Errorf("a model that nobody serves: %d %s", e.StatusCode, e.RawJSON())
		}
		all := l.client(l.Key)
		if page, err := all.Models.List(ctx, option.WithQuery("user", "bob")); err != nil || len(page.Data) != 0 {
			t.Errorf("nobody runs bob's jobs, and there is %v %v", page, err)
		}
	})

	t.Run("chat", func(t *testing.T) {
		var response *http.Response
		params := hello("one")
		params.Temperature = openai.Float(0.5) // which the site drops
		got, err := c.Chat.Completions.New(ctx, params, option.WithResponseInto(&response))
		if err != nil {
			t.Fatal(err)
		}
		first := got.Choices[0]
		if first.Message.Content != "no model, but: one" || first.FinishReason != "stop" || got.Model != "auto" || got.Object != "chat.completion" ||
			got.Usage.PromptTokens != 7 || got.Usage.CompletionTokens != 3 || got.Usage.TotalTokens != 10 || time.Since(time.Unix(got.Created, 0)) > time.Hour {
			t.Errorf("%s", got.RawJSON())
		}
		job := response.Header.Get("X-Allod-Job")
		for name, want := range map[string]string{"X-Allod-Machine": "own", "X-Allod-Untrusted": "false", "X-Allod-Dropped": "temperature"} {
			if response.Header.Get(name) != want {
				t.Errorf("%s is %q", name, response.Header.Get(name))
			}
		}
		if stored := l.Call("GET", "/v1/jobs/"+job, nil); stored["state"] != "ok" || stored["owner"] != "alice" || got.ID != "chatcmpl-"+job {
			t.Errorf("the job is %v", stored)
		}
		// The answer goes back as a turn, in the client's own form.
		params.Messages = append(params.Messages, first.Message.ToParam(), openai.UserMessage("two"))
		params.Model = "chatty"
		if got, err = c.Chat.Completions.New(ctx, params); err != nil || got.Choices[0].Message.Content != "no model, but: two" {
			t.Fatalf("%v %v", got, err)
		}
		if asked := m.Questions(); asked[len(asked)-1] != "user: one\nassistant: no model, but: one\nuser: two" {
			t.Errorf("the model was asked %q", asked)
		}
		if got, err = c.Chat.Completions.New(ctx, hello("long")); err != nil || got.Choices[0].FinishReason != "length" {
			t.Errorf("an answer that was cut: %v %v", got, err)
		}
	})

	t.Run("stream", func(t *testing.T) {
		params := hello("streamed")
		params.StreamOptions.IncludeUsage = openai.Bool(true)
		stream := c.Chat.Completions.NewStreaming(ctx, params)
		defer stream.Close()
		var all openai.ChatCompletionAccumulator
		var texts int
		for stream.Next() {
			chunk := stream.Current()
			if !all.AddChunk(chunk) {
				t.Errorf("the client does not take %s", chunk.RawJSON())
			}
			if len(chunk.Choices) > 0 && chunk.Choices[0].Delta.Content != "" {
				texts++
			}
		}
		if err := stream.Err(); err != nil {
			t.Fatal(err)
		}
		if len(all.Choices) != 1 || all.Choices[0].Message.Content != "no model, but: streamed" || all.Choices[0].FinishReason != "stop" ||
			all.Choices[0].Message.Role != "assistant" || all.Usage.TotalTokens != 10 || texts != 1 {
			t.Errorf("%+v in %d texts", all.ChatCompletion, texts)
		}
	})

	t.Run("completion", func(t *testing.T) {
		params := openai.CompletionNewParams{Model: "auto", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("once")}}
		got, err := c.Completions.New(ctx, params)
		if err != nil || got.Choices[0].Text != "no model, but: once" || got.Choices[0].FinishReason != "stop" {
			t.Fatalf("%v %v", got, err)
		}
		stream := c.Completions.NewStreaming(ctx, params)
		defer stream.Close()
		var said strings.Builder
		for stream.Next() {
			said.WriteString(stream.Current().Choices[0].Text)
		}
		if stream.Err() != nil || said.String() != "no model, but: once" {
			t.Errorf("streamed: %q %v", &said, stream.Err())
		}
	})

	t.Run("refused", func(t *testing.T) {
		for name, test := range map[string]struct {
			change func(p *openai.ChatCompletionNewParams)
			status int
			code   string
			param  string
		}{
			"max tokens":    {func(p *openai.ChatCompletionNewParams) { p.MaxCompletionTokens = openai.Int(5) }, 400, "unsupported_parameter", "max_completion_tokens"},
			"another model": {func(p *openai.ChatCompletionNewParams) { p.Model = "gpt-4o" }, 404, "model_not_found", "model"},
			"another user":  {func(p *openai.ChatCompletionNewParams) { p.User = openai.String("bob") }, 403, "app_owner", "user"},
			"a tool": {func(p *openai.ChatCompletionNewParams) {
				p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "f"})}
			}, 400, "unsupported_parameter", "tools"},
			"an image": {func(p *openai.ChatCompletionNewParams) {
				p.Messages = []openai.ChatCompletionMessageParamUnion{openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
					openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: "data:,"}),
				})}
			}, 400, "unsupported_value", "messages[0].content[0].type"},
		} {
			params := hello("refused")
			test.change(&params)
			_, err := c.Chat.Completions.New(ctx, params)
			if e := refusedBy(t, err); e.StatusCode != test.status || e.Code != test.code || e.Param != test.param || e.Message == "" {
				t.Errorf("%s: %d %s", name, e.StatusCode, e.RawJSON())
			}
		}
		wrong := l.client("canary")
		_, err := wrong.Chat.Completions.New(ctx, hello("refused"))
		if e := refusedBy(t, err); e.StatusCode != 401 || e.Code != "invalid_api_key" || strings.Contains(e.RawJSON(), "canary") {
			t.Errorf("a wrong key: %d %s", e.StatusCode, e.RawJSON())
		}
	})

	t.Run("a key for everybody", func(t *testing.T) {
		all := l.client(l.Key, option.WithMaxRetries(0))
		_, err := all.Chat.Completions.New(ctx, hello("whose"))
		if e := refusedBy(t, err); e.StatusCode != 400 || e.Param != "user" {
			t.Errorf("nobody asks: %d %s", e.StatusCode, e.RawJSON())
		}
		params := hello("whose")
		params.User = openai.String("alice")
		if got, err := all.Chat.Completions.New(ctx, params); err != nil || got.Choices[0].Message.Content != "no model, but: whose" {
			t.Errorf("alice asks: %v %v", got, err)
		}
		params.User = openai.String("bob") // who has no machine
		_, err = all.Chat.Completions.New(ctx, params)
		if e := refusedBy(t, err); e.StatusCode != 503 || e.Code != "no_runner" || e.Response.Header.Get("Retry-After") != "15" {
			t.Errorf("bob asks: %d %s", e.StatusCode, e.RawJSON())
		}
		stream := all.Chat.Completions.NewStreaming(ctx, params)
		for stream.Next() {
			t.Errorf("bob hears %s", stream.Current().RawJSON())
		}
		if err := stream.Err(); err == nil || !strings.Contains(err.Error(), `"code":"no_runner"`) {
			t.Errorf("bob streams: %v", err)
		}
	})

	// A client that repeats by itself what failed must not have a job run twice.
	t.Run("no repeat", func(t *testing.T) {
		m.Hold("held")
		count := &counting{}
		repeats := l.client(l.alice, option.WithHTTPClient(&http.Client{Transport: count}), option.WithHeader("Prefer", "wait=1"),
			option.WithHeader("X-Allod-Cancel-On-Disconnect", "true"))
		_, err := repeats.Chat.Completions.New(ctx, hello("held"))
		e := refusedBy(t, err)
		if e.StatusCode != 504 || e.Code != "job_pending" || count.n.Load() != 1 {
			t.Errorf("%d %s after %d requests", e.StatusCode, e.RawJSON(), count.n.Load())
		}
		job := e.Response.Header.Get("X-Allod-Job")
		if state := l.Call("GET", "/v1/jobs/"+job, nil)["state"]; state != "claimed" && state != "running" {
			t.Errorf("the job that is waited for no more is %v", state)
		}
		l.Call("POST", "/v1/jobs/"+job+"/cancel", nil)

		// With a key of its own a repeat waits for the same job.
		m.Hold("held again")
		count.n.Store(0)
		_, err = repeats.Chat.Completions.New(ctx, hello("held again"), option.WithHeader("Idempotency-Key", "k"))
		if e := refusedBy(t, err); e.Code != "job_pending" || count.n.Load() != 3 {
			t.Errorf("%s after %d requests", e.RawJSON(), count.n.Load())
		} else {
			l.Call("POST", "/v1/jobs/"+e.Response.Header.Get("X-Allod-Job")+"/cancel", nil)
		}
		if n := m.Times("held again"); n != 1 {
			t.Errorf("the model was asked %d times", n)
		}
	})

	t.Run("hanging up", func(t *testing.T) {
		held := m.Hold("hung up")
		ctx, hangUp := context.WithCancel(ctx)
		asked := make(chan error, 1)
		go func() {
			_, err := c.Chat.Completions.New(ctx, hello("hung up"), option.WithHeader("X-Allod-Cancel-On-Disconnect", "true"))
			asked <- err
		}()
		programs.Wait(t, held.Asked, "the question to the model", l.Said)
		hangUp()
		if err := <-asked; !errors.Is(err, context.Canceled) {
			t.Errorf("the client says %v", err)
		}
		programs.Wait(t, held.Gone, "the end of the model's connection", l.Said)
	})
}
