//go:build unix

package gateway

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/allodhq/allod/test/programs"
)

// refusal is what the package makes of one.
type refusal struct {
	Class    string
	Status   int
	Code     string
	Param    string
	Type     string
	Requests int
}

// TestNodeClient is the package openai with our agent behind the site.
func TestNodeClient(t *testing.T) {
	node := programs.Node(t, ".")
	t.Parallel()
	l := newLane(t)
	m := newModel(t)
	l.agent(m)
	m.Hold("held")
	cmd := exec.CommandContext(t.Context(), node, "sdk.mjs")
	cmd.Env = append(os.Environ(), "OPENAI_BASE_URL="+l.URL+"/v1", "OPENAI_API_KEY="+l.alice, "EVERYONE="+l.Key)
	said := &programs.Transcript{}
	cmd.Stderr = said
	out, err := cmd.Output()
	var got struct {
		Models  []string
		Model   string
		First   object
		Headers map[string]string
		Second  struct{ Text, Finish string }
		Chunks  []struct {
			Object  string
			Choices []struct {
				Delta  struct{ Role, Content string }
				Finish string `json:"finish_reason"`
			}
			Usage *struct {
				Total int `json:"total_tokens"`
			}
		}
		Helped, Text string
		Pieces       []string
		Refused      map[string]refusal
	}
	if err := errors.Join(err, json.Unmarshal(out, &got)); err != nil {
		t.Fatalf("%v\n%s\n%s\n%s", err, out, said, l.Said)
	}
	if !slices.Equal(got.Models, []string{"auto", "chatty", "friends"}) || got.Model != "chatty" {
		t.Errorf("models %v and %s", got.Models, got.Model)
	}
	job := got.Headers["x-allod-job"]
	want := object{
		"id": "chatcmpl-" + job, "object": "chat.completion", "created": got.First["created"], "model": "auto",
		"choices": []any{object{"index": 0.0, "logprobs": nil, "finish_reason": "stop",
			"message": object{"role": "assistant", "content": "no model, but: one", "refusal": nil}}},
		"usage": object{"prompt_tokens": 7.0, "completion_tokens": 3.0, "total_tokens": 10.0},
	}
	if !reflect.DeepEqual(got.First, want) {
		t.Errorf("the first answer is %v", got.First)
	}
	if got.Headers["x-allod-machine"] != "own" || got.Headers["x-allod-untrusted"] != "false" || got.Headers["x-allod-dropped"] != "temperature" {
		t.Errorf("headers %v", got.Headers)
	}
	if got.Second.Text != "no model, but: long" || got.Second.Finish != "length" {
		t.Errorf("the second answer is %+v", got.Second)
	}
	if !slices.Contains(m.Questions(), "user: one\nassistant: no model, but: one\nuser: long") {
		t.Errorf("the model was asked %q", m.Questions())
	}
	var streamed, finish string
	for _, c := range got.Chunks {
		for _, choice := range c.Choices {
			streamed += choice.Delta.Role + choice.Delta.Content + "|"
			finish += choice.Finish
		}
	}
	if last := got.Chunks[len(got.Chunks)-1]; streamed != "assistant|no model, but: streamed||" || finish != "stop" || last.Usage == nil || last.Usage.Total != 10 {
		t.Errorf("streamed: %+v", got.Chunks)
	}
	if got.Helped != "no model, but: helped" || got.Text != "no model, but: once" || strings.Join(got.Pieces, "|") != "no model, but: once|" {
		t.Errorf("%q, %q, %q", got.Helped, got.Text, got.Pieces)
	}
	for name, want := range map[string]refusal{
		"maxTokens":  {"BadRequestError", 400, "unsupported_parameter", "max_tokens", "invalid_request_error", 1},
		"image":      {"BadRequestError", 400, "unsupported_value", "messages[0].content[0].type", "invalid_request_error", 1},
		"model":      {"NotFoundError", 404, "model_not_found", "model", "invalid_request_error", 1},
		"key":        {"AuthenticationError", 401, "invalid_api_key", "", "invalid_request_error", 1},
		"responses":  {"NotFoundError", 404, "unknown_url", "", "invalid_request_error", 1},
		"embeddings": {"NotFoundError", 404, "unknown_url", "", "invalid_request_error", 1},
		"nobody":     {"InternalServerError", 503, "no_runner", "", "server_error", 1},
		"stream":     {"APIError", 0, "no_runner", "", "server_error", 1},
		"pending":    {"InternalServerError", 504, "job_pending", "", "server_error", 1},
	} {
		if got.Refused[name] != want {
			t.Errorf("%s: %+v, want %+v", name, got.Refused[name], want)
		}
	}
}

var declared = regexp.MustCompile(`(?m)^    ([a-z_]+)\??:`)

// TestEveryMember takes the members of the two endpoints from the package's own
// declarations: each means something here, or is refused by its name. One that is
// new to us would be refused without it.
func TestEveryMember(t *testing.T) {
	programs.Node(t, ".")
	t.Parallel()
	l := newLane(t)
	carried := []string{"messages", "model", "n", "prompt", "store", "stream", "stream_options", "user"}
	for _, c := range []struct{ file, from, path, begin string }{
		{"chat/completions/completions.d.ts", "export interface ChatCompletionCreateParamsBase ", "/v1/chat/completions",
			`{"model":"auto","user":"alice","messages":[{"role":"user","content":"x"}]`},
		{"completions.d.ts", "export interface CompletionCreateParamsBase ", "/v1/completions", `{"model":"auto","user":"alice","prompt":"x"`},
	} {
		text, err := os.ReadFile(filepath.Join("node_modules", "openai", "resources", filepath.FromSlash(c.file)))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), c.from)
		body, _, _ := strings.Cut(rest, "\n}\n")
		members := declared.FindAllStringSubmatch(body, -1)
		if len(members) < 15 {
			t.Fatalf("%s declares %d members: the search is blind", c.file, len(members))
		}
		for _, m := range members {
			if name := m[1]; !slices.Contains(carried, name) {
				r, err := http.NewRequestWithContext(t.Context(), "POST", l.URL+c.path, strings.NewReader(c.begin+`,"`+name+`":{"x":[1]}}`))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Authorization", "Bearer "+l.Key)
				r.Header.Set("Prefer", "wait=0")
				answer, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				var got struct{ Error struct{ Code, Param string } }
				err = json.NewDecoder(answer.Body).Decode(&got)
				answer.Body.Close()
				want := [2]string{"unsupported_parameter", name}
				if dropped := answer.Header.Get("X-Allod-Dropped"); dropped != "" {
					want = [2]string{"no_runner", ""} // which is past all that could be refused
				}
				if err != nil || [2]string{got.Error.Code, got.Error.Param} != want {
					t.Errorf("%s: %d %+v %v", name, answer.StatusCode, got, err)
				}
			}
		}
	}
}
