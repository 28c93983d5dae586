package backend

import (
	"slices"
	"strings"

	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// row is what one backend of the contract's table does in its own way. The zero
// row is a plain server: models and chat/completions below the base URL, an API
// key as Authorization: Bearer, answers bounded by max_tokens.
type row struct {
	// tokens is the parameter that bounds an answer; empty means max_tokens.
	tokens string
	// prefix is cut off the ids of listed models.
	prefix string
	// listQuery is appended to the path of the list.
	listQuery string
	// listKey is the header that carries the API key when models are listed;
	// empty means Authorization: Bearer.
	listKey string
	// listHeader are further headers of the list, names and values in turn.
	listHeader []string
	// says reports whether a server says of itself that it is this one. Rows that
	// share a default address need it.
	says func(signs) bool
}

// signs are what a server says of itself beside its models.
type signs struct {
	server string // the Server header of its list
	owner  string // owned_by of its first model
	ready  bool   // GET /readyz at its root says 200
}

const maxCompletionTokens = "max_completion_tokens"

// rows has each backend of the class http. What is written here was read in the
// servers' documentation and sources; [Tested] says what was tried.
var rows = map[wirebackend.ID]row{
	"ollama": {},
	// mlx_lm.server stops after 512 tokens where none are asked for, and is
	// Python's http.server, which names itself.
	"mlx": {says: func(s signs) bool { return strings.HasPrefix(s.server, "BaseHTTP/") }},
	// llama.cpp's server answers with the one model it has loaded, whatever name
	// it is asked for, and with 503 while it loads.
	"llamacpp": {says: func(s signs) bool { return s.server == "llama.cpp" || s.owner == "llamacpp" }},
	"vllm":     {},
	"lmstudio": {},
	// Jan wants an API key in its default settings.
	"jan": {},
	// LocalAI names itself nowhere in its list, but has the paths of a service in
	// a cluster, which the others on its port do not.
	"localai": {says: func(s signs) bool { return s.ready }},
	// The list is the service's own one, beside the compatible rest: it has its
	// own key header and pages of twenty.
	"anthropic": {listQuery: "?limit=1000", listKey: "X-Api-Key", listHeader: []string{"Anthropic-Version", "2023-06-01"}},
	// Newer models refuse max_tokens.
	"openai":            {tokens: maxCompletionTokens},
	"gemini":            {prefix: "models/"},
	"grok":              {tokens: maxCompletionTokens},
	"groq":              {tokens: maxCompletionTokens},
	"openrouter":        {},
	"together":          {}, // its list is a bare array, which the reader takes from everyone
	"deepseek":          {},
	"mistral":           {},
	wirebackend.Generic: {},
}

// tested are the rows that were run against the real server, by test/realmodel. A
// row that passed against a stand-in only is not one of them.
var tested = []wirebackend.ID{"ollama"}

// Tested reports whether the behaviour of this row was proved against the real
// server or service, and not only against a stand-in in the tests.
func Tested(id wirebackend.ID) bool { return slices.Contains(tested, id) }

// HasModel reports whether a model is among the listed ones. Case does not
// count, and neither does a final ":latest", which some servers add to their
// list and take away from what they are asked for.
func HasModel(listed []string, wanted string) bool {
	wanted = withoutLatest(wanted)
	return slices.ContainsFunc(listed, func(id string) bool { return strings.EqualFold(withoutLatest(id), wanted) })
}

func withoutLatest(id string) string {
	const latest = ":latest"
	if cut := len(id) - len(latest); cut > 0 && strings.EqualFold(id[cut:], latest) {
		return id[:cut]
	}
	return id
}
