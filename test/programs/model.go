package programs

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Model is an OpenAI-compatible server that a test holds in its hand. It answers
// "no model, but: " and the last message, says of those that begin with "long" that
// their answer was cut, and counts 7 and 3 tokens. It knows no model but its own.
type Model struct {
	*httptest.Server
	ID    string // the name of its one model
	mu    sync.Mutex
	asked []string
	holds map[string]*Hold  // by prompt
	says  map[string]string // by prompt
}

// Hold keeps an answer back.
type Hold struct {
	Asked  chan struct{} // closed when the question is there
	Answer chan struct{} // closed by the test to let it be answered
	Gone   chan struct{} // closed when the caller hung up
}

// NewModel starts a server with one model.
func NewModel(t *testing.T, id string) *Model {
	t.Helper()
	m := &Model{ID: id, holds: map[string]*Hold{}, says: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{"object": "list", "data": []any{map[string]any{"id": id, "object": "model"}}})
	})
	mux.HandleFunc("POST /v1/chat/completions", m.complete)
	m.Server = httptest.NewServer(mux)
	// A held answer would keep the server from closing.
	t.Cleanup(func() { m.CloseClientConnections(); m.Close() })
	return m
}

func (m *Model) complete(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Model     string
		MaxTokens int `json:"max_tokens"`
		Messages  []struct{ Role, Content string }
	}
	body, err := io.ReadAll(r.Body) // whole, so that the end of the connection is noticed
	if err != nil || json.Unmarshal(body, &q) != nil || q.Model != m.ID || len(q.Messages) == 0 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	last, finish := q.Messages[len(q.Messages)-1].Content, "stop"
	text := "no model, but: " + last
	if q.MaxTokens == 0 { // a proof asks for a few tokens only
		var turns []string
		for _, t := range q.Messages {
			turns = append(turns, t.Role+": "+t.Content)
		}
		m.mu.Lock()
		m.asked = append(m.asked, strings.Join(turns, "\n"))
		if own, ok := m.says[last]; ok {
			text = own
		}
		h := m.holds[last]
		delete(m.holds, last)
		m.mu.Unlock()
		if h != nil {
			close(h.Asked)
			select {
			case <-h.Answer:
			case <-r.Context().Done():
				close(h.Gone)
				return
			}
		}
	}
	if strings.HasPrefix(last, "long") {
		finish = "length"
	}
	reply(w, map[string]any{
		"choices": []any{map[string]any{"index": 0, "finish_reason": finish, "message": map[string]any{"role": "assistant", "content": text}}},
		"usage":   map[string]any{"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
	})
}

func reply(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// Hold keeps the answer to a prompt back, once.
func (m *Model) Hold(prompt string) *Hold {
	h := &Hold{Asked: make(chan struct{}), Answer: make(chan struct{}), Gone: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holds[prompt] = h
	return h
}

// Say answers a prompt with a text of its own.
func (m *Model) Say(prompt, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.says[prompt] = text
}

// Questions are those that were asked so far, in order: the role and the text of
// each message, a message a line. Proofs are left out, which ask for a few tokens
// only.
func (m *Model) Questions() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.asked)
}

// Times is how often a user's prompt was the last message of a question.
func (m *Model) Times(prompt string) (n int) {
	for _, q := range m.Questions() {
		if strings.HasSuffix("\n"+q, "\nuser: "+prompt) {
			n++
		}
	}
	return n
}
