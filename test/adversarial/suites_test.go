package adversarial

import (
	"testing"

	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// suites has the suite of every backend.
var suites = map[wirebackend.ID]func(*testing.T, wirebackend.ID){
	"ollama":             serverSuite,
	"mlx":                serverSuite,
	"llamacpp":           serverSuite,
	"vllm":               serverSuite,
	"lmstudio":           serverSuite,
	"jan":                serverSuite,
	"localai":            serverSuite,
	"anthropic":          serverSuite,
	"openai":             serverSuite,
	"gemini":             serverSuite,
	"grok":               serverSuite,
	"groq":               serverSuite,
	"openrouter":         serverSuite,
	"together":           serverSuite,
	"deepseek":           serverSuite,
	"mistral":            serverSuite,
	wirebackend.Generic:  serverSuite,
	"claude-cli":         programSuite,
	wirebackend.CodexCLI: programSuite,
}

// TestEveryBackendHasItsSuite runs them. A backend without one fails, and so
// does a suite without a backend.
func TestEveryBackendHasItsSuite(t *testing.T) {
	for _, id := range wirebackend.IDs() {
		if suites[id] == nil {
			t.Errorf("%s has no adversarial suite", id)
			continue
		}
		t.Run(string(id), func(t *testing.T) {
			t.Parallel()
			suites[id](t, id)
		})
	}
	for id := range suites {
		if _, ok := wirebackend.Find(id); !ok {
			t.Errorf("%s is no backend", id)
		}
	}
}
