package backend

import "slices"

// ID names a backend of the table.
type ID string

// Class says how a backend is reached.
type Class string

// The classes.
const (
	HTTP    Class = "http"    // an OpenAI-compatible service
	Process Class = "process" // a program that is started for each run
)

// Classes returns all classes.
func Classes() []Class { return []Class{HTTP, Process} }

// Cost says what a run costs the backend's owner.
type Cost string

// The cost classes.
const (
	Free         Cost = "free"         // nothing but electricity
	Metered      Cost = "metered"      // money for each run
	Subscription Cost = "subscription" // a personal account that must not be shared
)

// Costs returns all cost classes.
func Costs() []Cost { return []Cost{Free, Metered, Subscription} }

// Generic is the backend whose address its owner gives. It has no cost of its
// own.
const Generic ID = "openai-http"

// CodexCLI is a program that only some versions of the protocol can name.
const CodexCLI ID = "codex-cli"

// Descriptor is one row of the table.
type Descriptor struct {
	ID    ID
	Class Class
	// Cost is empty for [Generic] only.
	Cost Cost
	// DefaultBaseURL is where the backend is reached unless its owner says
	// otherwise; empty where there is no default.
	DefaultBaseURL string
}

var table = []Descriptor{
	{"ollama", HTTP, Free, "http://127.0.0.1:11434/v1"},
	{"mlx", HTTP, Free, "http://127.0.0.1:8080/v1"},
	{"llamacpp", HTTP, Free, "http://127.0.0.1:8080/v1"},
	{"vllm", HTTP, Free, "http://127.0.0.1:8000/v1"},
	{"lmstudio", HTTP, Free, "http://127.0.0.1:1234/v1"},
	{"jan", HTTP, Free, "http://127.0.0.1:1337/v1"},
	{"localai", HTTP, Free, "http://127.0.0.1:8080/v1"},
	{"anthropic", HTTP, Metered, "https://api.anthropic.com/v1"},
	{"openai", HTTP, Metered, "https://api.openai.com/v1"},
	{"gemini", HTTP, Metered, "https://generativelanguage.googleapis.com/v1beta/openai"},
	{"grok", HTTP, Metered, "https://api.x.ai/v1"},
	{"groq", HTTP, Metered, "https://api.groq.com/openai/v1"},
	{"openrouter", HTTP, Metered, "https://openrouter.ai/api/v1"},
	{"together", HTTP, Metered, "https://api.together.xyz/v1"},
	{"deepseek", HTTP, Metered, "https://api.deepseek.com/v1"},
	{"mistral", HTTP, Metered, "https://api.mistral.ai/v1"},
	{Generic, HTTP, "", ""},
	{"claude-cli", Process, Subscription, ""},
	{CodexCLI, Process, Subscription, ""},
}

// IDs returns the ids of the table in its order.
func IDs() []ID {
	ids := make([]ID, len(table))
	for i, d := range table {
		ids[i] = d.ID
	}
	return ids
}

// Find returns the row of id, and whether there is one. Ids match exactly.
func Find(id ID) (Descriptor, bool) {
	i := slices.IndexFunc(table, func(d Descriptor) bool { return d.ID == id })
	if i < 0 {
		return Descriptor{}, false
	}
	return table[i], true
}
