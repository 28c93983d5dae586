package program

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/wire/ai"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// tool is what one program does in its own way.
type tool struct {
	// name is the program's, without what Windows adds.
	name string
	// oldest is the first version that may run.
	oldest version
	// args are the arguments of a run. Nothing of a job is among them.
	args func(model string) []string
	// env are variables beside those that every program gets.
	env []string
	// guard changes a prompt that the program would take for a command.
	guard func(prompt string) string
	// read is the answer of a run that ended. Its usage counts with an error too.
	read func(ended) (answer, error)
	// needs are paths below the home: settings, and what holds the login.
	settings, login []string
}

// tools has each backend of the class process. The arguments, variables and
// forms of output are those of the versions named as the oldest, against which
// they were tried with a stand-in for the service behind them.
var tools = map[wirebackend.ID]tool{
	"claude-cli": {
		name: "claude", oldest: version{2, 1, 197},
		args: func(model string) []string {
			return []string{
				"--print", "--output-format", "json",
				"--tools", "", "--strict-mcp-config", "--mcp-config", `{"mcpServers":{}}`,
				// The owner's notes, hooks, plugins and commands stay out of a job.
				"--safe-mode", "--disable-slash-commands",
				"--no-session-persistence", "--model", model,
			}
		},
		// Else the program reads the files that a prompt names with an @, whatever
		// tools it may use.
		env:      []string{"CLAUDE_CODE_DISABLE_ATTACHMENTS=1"},
		guard:    guardSlash,
		read:     readClaude,
		settings: []string{".claude", ".claude.json"},
		login:    []string{".claude/.credentials.json"},
	},
	wirebackend.CodexCLI: {
		name: "codex", oldest: version{0, 171, 0},
		args: func(model string) []string {
			args := []string{
				"exec", "--json", "--color", "never", "--sandbox", "read-only", "--skip-git-repo-check",
				"--ephemeral", "--ignore-user-config", "--ignore-rules",
			}
			// The sandbox lets a command read every file of the owner's.
			for _, feature := range []string{
				"shell_tool", "unified_exec", "shell_snapshot", "apps", "plugins", "hooks", "goals", "multi_agent", "tool_suggest", "skill_search",
				"image_generation", "view_image", "browser_use", "computer_use", "code_mode_host",
			} {
				args = append(args, "-c", "features."+feature+"=false")
			}
			return append(args, "-c", `web_search="disabled"`, "-c", "skills.include_instructions=false", "--model", model, "-")
		},
		guard: func(prompt string) string { return prompt },
		read:  readCodex,
		// The program does not start where it cannot write to its folder.
		login: []string{".codex"},
	},
}

// guardSlash keeps a prompt from being a command. One with anything in front of
// the slash is none.
func guardSlash(prompt string) string {
	if strings.HasPrefix(prompt, "/") {
		return "\n" + prompt
	}
	return prompt
}

// version is the three numbers of one.
type version [3]int

func (v version) less(w version) bool {
	for i := range v {
		if v[i] != w[i] {
			return v[i] < w[i]
		}
	}
	return false
}

var versionForm = regexp.MustCompile(`(?:^|[ \n])([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})\b`)

// readVersion finds the version in what a program says of itself. The text is
// numbers and points only.
func readVersion(out []byte) (v version, text string, ok bool) {
	m := versionForm.FindSubmatch(out)
	if m == nil {
		return version{}, "", false
	}
	for i, part := range m[1:] {
		for _, digit := range part {
			v[i] = v[i]*10 + int(digit-'0')
		}
	}
	return v, fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]), true
}

// tolerant reads broken characters, as replaced, and repeated names.
var tolerant = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// claudeResult is what claude says at the end of a run, the fields that count.
type claudeResult struct {
	Type    string  `json:"type"`
	Subtype string  `json:"subtype"`
	IsError *bool   `json:"is_error"`
	Status  *int    `json:"api_error_status"`
	Result  string  `json:"result"`
	Stop    *string `json:"stop_reason"`
	Usage   *struct {
		Input   int64 `json:"input_tokens"`
		Created int64 `json:"cache_creation_input_tokens"`
		Read    int64 `json:"cache_read_input_tokens"`
		Output  int64 `json:"output_tokens"`
	} `json:"usage"`
}

// readClaude reads one result, or a list that ends in one, which the owner's
// settings can turn on. A result is an answer if it says that it is no error and
// counts what the model wrote: a text with nothing counted is the program's own,
// as where it took the prompt for a command.
func readClaude(e ended) (answer, error) {
	body := bytes.TrimSpace(e.out)
	if bytes.HasPrefix(body, []byte("[")) {
		var list []jsontext.Value
		if json.Unmarshal(body, &list, tolerant) != nil || len(list) == 0 {
			return answer{}, why(e.err)
		}
		body = list[len(list)-1]
	}
	var r claudeResult
	if json.Unmarshal(body, &r, tolerant) != nil || r.Type != "result" || r.IsError == nil {
		return answer{}, why(string(body[:min(len(body), maxErr)]) + "\n" + e.err)
	}
	a := answer{text: r.Result, stop: ai.Stop{Reason: ai.StopUnknown, Reported: true}}
	if r.Stop != nil {
		switch *r.Stop {
		case "end_turn":
			a.stop.Reason = ai.StopEnd
		case "max_tokens":
			a.stop.Reason = ai.StopLength
		case "stop_sequence":
			a.stop.Reason = ai.StopSequence
		}
	}
	if u := r.Usage; u != nil {
		a.usage = count(u.Output, u.Input, u.Created, u.Read)
	}
	switch {
	case r.Status != nil && (*r.Status == 401 || *r.Status == 403):
		return a, ErrLoggedOut
	case r.Status != nil && *r.Status == 404:
		return a, ErrNoModel
	case r.Status != nil && *r.Status == 429:
		return a, ErrLimit
	case r.Status != nil && *r.Status >= 500:
		return a, ErrService
	case *r.IsError, r.Subtype != "success":
		return a, why(r.Result)
	case strings.TrimSpace(r.Result) == "":
		return a, ErrEmpty
	case !a.usage.Counted || a.usage.Completion == 0:
		return a, why(r.Result)
	}
	return a, nil
}

// codexEvent is a line that codex writes, the fields that count.
type codexEvent struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	Item    *struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"item"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
	Usage *struct {
		Input  int64 `json:"input_tokens"`
		Output int64 `json:"output_tokens"`
	} `json:"usage"`
}

// harmless are the items of a run that touched nothing.
var harmless = map[string]bool{"agent_message": true, "reasoning": true, "error": true, "todo_list": true}

// readCodex reads events. The answer is the last message before the turn was
// completed, of a run that did nothing but think and write.
func readCodex(e ended) (answer, error) {
	var a answer
	var failed, said string
	completed, usedTool, broken := false, false, false
	for line := range bytes.Lines(e.out) {
		if !bytes.HasPrefix(line, []byte("{")) {
			continue
		}
		var v codexEvent
		if json.Unmarshal(line, &v, tolerant) != nil {
			broken = true
			continue
		}
		switch v.Type {
		case "item.started", "item.updated", "item.completed":
			if v.Item == nil {
				broken = true
				continue
			}
			usedTool = usedTool || !harmless[v.Item.Type]
			if v.Type == "item.completed" && v.Item.Type == "agent_message" {
				a.text = v.Item.Text
			}
		case "turn.completed":
			completed = true
			if v.Usage != nil {
				a.usage = count(v.Usage.Output, v.Usage.Input)
			}
		case "turn.failed":
			failed = "failed"
			if v.Error != nil {
				failed += ": " + v.Error.Message
			}
		case "error":
			said = v.Message
		}
	}
	switch {
	case usedTool:
		return a, ErrUsedTool
	case failed != "":
		return a, why(failed)
	case !completed && said != "":
		return a, why(said)
	case !completed || broken || e.code != 0:
		return a, why(e.err)
	}
	return a, nil
}

// count is a usage, counted only where every number is one.
func count(completion int64, prompt ...int64) backend.Usage {
	u := backend.Usage{Completion: completion, Counted: completion >= 0 && completion <= exact.MaxWhole}
	for _, n := range prompt {
		u.Counted = u.Counted && n >= 0 && n <= exact.MaxWhole-u.Prompt
		if !u.Counted {
			return backend.Usage{}
		}
		u.Prompt += n
	}
	if !u.Counted {
		return backend.Usage{}
	}
	return u
}

// limitForm is the text with which old and new versions say that a limit is
// reached, as if a model had said so.
var limitForm = regexp.MustCompile(`(?i)^(claude (ai )?usage limit reached|you've (hit|reached) your (usage |session |weekly )?limit|you're out of (extra )?usage)[^\n]{0,200}\n?$`)

var (
	limitWords  = regexp.MustCompile(`(?i)usage limit|session limit|weekly limit|(hit|reached) your (\w+ )?limit|out of (extra )?usage|quota exceeded|\b429\b|rate.limit`)
	logInWords  = regexp.MustCompile(`(?i)not logged in|/login|codex login|claude auth|invalid api key|\b401\b|unauthorized|oauth token|authenticat`)
	modelWords  = regexp.MustCompile(`(?i)issue with the selected model|model .{0,80}(not (found|supported|exist)|does not exist)|\b404\b`)
	serverWords = regexp.MustCompile(`(?i)overloaded|\b5[0-9][0-9]\b|stream disconnected|reconnecting|connection|timed? ?out|failed to lookup|network`)
)

// why is the refusal behind what a program wrote about its failure. Only the
// kind of it travels.
func why(text string) error {
	switch {
	case limitWords.MatchString(text):
		return ErrLimit
	case logInWords.MatchString(text):
		return ErrLoggedOut
	case modelWords.MatchString(text):
		return ErrNoModel
	case serverWords.MatchString(text):
		return ErrService
	}
	return ErrFailed
}
