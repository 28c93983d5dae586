package compose

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/allodhq/allod/wire/ai"
)

// standInModel is the name that the stand-in lists.
const standInModel = "stand-in"

// maxStandIn bounds a request to the stand-in, in bytes.
const maxStandIn = 32 << 20

// standIn serves what an OpenAI-compatible server does, with no model behind it,
// and says so in every answer.
func standIn() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.MarshalWrite(w, map[string]any{"object": "list", "data": []map[string]any{{"id": standInModel, "object": "model"}}})
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, maxStandIn))
		var q struct {
			Messages []struct {
				Content string `json:"content"`
			} `json:"messages"`
		}
		if err != nil || json.Unmarshal(body, &q) != nil || len(q.Messages) == 0 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		last := q.Messages[len(q.Messages)-1].Content
		_ = json.MarshalWrite(w, map[string]any{
			"model": standInModel,
			"choices": []map[string]any{{"index": 0, "finish_reason": "stop", "message": map[string]any{
				"role": "assistant", "content": standInAnswer(last),
			}}},
		})
	})
	return mux
}

// standInAnswer says what the stand-in is, and shows that the question arrived.
func standInAnswer(question string) string {
	words := len(strings.Fields(question))
	return fmt.Sprintf("I am a stand-in and no model: I only count. Your question arrived with %d words and %d characters. "+
		"Start a model server, as Ollama or LM Studio, and ask again.", words, ai.TextUnits(question))
}
