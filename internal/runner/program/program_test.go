package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// as sets the user that Open believes to run as.
func as(t *testing.T, user int) {
	t.Helper()
	old := euid
	t.Cleanup(func() { euid = old })
	euid = func() int { return user }
}

// TestOpenRefuses holds the order: what is no program is told so as root too.
func TestOpenRefuses(t *testing.T) {
	empty := func(string) (string, bool) { return "", false }
	for _, user := range []int{0, 1000} {
		as(t, user)
		for _, id := range wirebackend.IDs() {
			d, _ := wirebackend.Find(id)
			_, err := Open(Config{ID: id, Env: empty})
			want := ErrServer
			switch {
			case d.Class == wirebackend.Process && user == 0:
				want = ErrRoot
			case d.Class == wirebackend.Process:
				want = ErrNotFound
			}
			if !errors.Is(err, want) {
				t.Errorf("%s for user %d: %v", id, user, err)
			}
		}
		if _, err := Open(Config{ID: "gemini-cli", Env: empty}); !errors.Is(err, wirebackend.ErrUnknown) {
			t.Errorf("user %d: %v", user, err)
		}
	}
}

// TestCost holds that a personal account stays its owner's whatever the model is
// called (MUST SUBSCRIPTION_SELF_LOCK).
func TestCost(t *testing.T) {
	for id := range tools {
		p := &Program{id: id}
		for _, model := range []string{"", "m", "m:cloud", "free", "ollama/m"} {
			if p.CostOf(model) != wirebackend.Subscription || p.Cost() != wirebackend.Subscription || p.ID() != id {
				t.Errorf("%s with %q costs %s", id, model, p.CostOf(model))
			}
		}
	}
	for _, id := range wirebackend.IDs() {
		if d, _ := wirebackend.Find(id); (d.Class == wirebackend.Process) != (tools[id].name != "") {
			t.Errorf("%s is known by the name %q", id, tools[id].name)
		}
	}
}

func TestEnvironment(t *testing.T) {
	sep := string(os.PathListSeparator)
	root := "/"
	if os.PathSeparator == '\\' {
		root = `C:\`
	}
	agent := map[string]string{"PATH": strings.Join([]string{root + "a", "", ".", "b", root + "c d"}, sep), "HOME": root + "home", "USERPROFILE": root + "profile", "LC_ALL": "", "TZ": "a\x00b"}
	for _, name := range []string{"APPDATA", "LOCALAPPDATA", "SystemRoot", "windir", "PATHEXT", "TMPDIR", "TEMP", "TMP", "CI", "USER", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "LD_PRELOAD", "CODEX_HOME", "NODE_OPTIONS", "HTTP_PROXY"} {
		agent[name] = "of the agent"
	}
	lookup := func(name string) (string, bool) { v, ok := agent[name]; return v, ok }
	for system, want := range map[string][]string{
		"linux":  {"CI=1", "HOME=" + root + "home", "LC_ALL=", "TMPDIR=scratch"},
		"darwin": {"CI=1", "HOME=" + root + "home", "LC_ALL=", "TMPDIR=scratch"},
		"windows": {
			"CI=1", "HOME=" + root + "home", "LC_ALL=", "USERPROFILE=" + root + "profile", "APPDATA=of the agent", "LOCALAPPDATA=of the agent",
			"SystemRoot=of the agent", "windir=of the agent", "PATHEXT=of the agent", "TMPDIR=scratch", "TEMP=scratch", "TMP=scratch",
		},
	} {
		env, dirs, home := environment(lookup, system)
		if got := withScratch(env, "scratch", system); !slices.Equal(got, want) {
			t.Errorf("%s: %q", system, got)
		}
		if !slices.Equal(dirs, []string{root + "a", root + "c d"}) || home != map[bool]string{true: root + "profile", false: root + "home"}[system == "windows"] {
			t.Errorf("%s: %q, %s", system, dirs, home)
		}
	}
	if env, dirs, home := environment(func(string) (string, bool) { return "here", true }, "linux"); pathOf(dirs) != "PATH=" || len(env) != 5 || dirs != nil || home != "" {
		t.Errorf("%q, %q, %q", env, dirs, home)
	}
}

func TestCompose(t *testing.T) {
	chat := []ai.ChatMessage{{Role: ai.RoleUser, Content: "a"}, {Role: ai.RoleAssistant, Content: ""}, {Role: ai.RoleSystem, Content: "c\n\nUser: d"}}
	for want, p := range map[string]ai.Payload{
		"":                                ai.Generate{},
		" p\n":                            ai.Generate{Prompt: " p\n", System: " \n\t"},
		"System instructions:\n s\n\n\np": ai.Generate{Prompt: "\np", System: " s"},
		"System instructions:\ns\n\n":     ai.Generate{System: "s"},
		"User: a\n\nAssistant: \n\nSystem: c\n\nUser: d":                            ai.Chat{Messages: chat},
		"System instructions:\ns\n\nUser: a\n\nAssistant: \n\nSystem: c\n\nUser: d": ai.Chat{Messages: chat, System: "s"},
	} {
		if got, ok := compose(p); got != want || !ok {
			t.Errorf("%q, not %q", got, want)
		}
	}
	for _, p := range []ai.Payload{nil, ai.Chat{Messages: []ai.ChatMessage{{Role: "tool", Content: "a"}}}} {
		if got, ok := compose(p); ok {
			t.Errorf("%v is %q", p, got)
		}
	}
}

// TestArguments holds that only the model can change them, and by one element.
func TestArguments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		model := rapid.String().Draw(t, "model")
		for id, tool := range tools {
			plain, args := tool.args("MODEL"), tool.args(model)
			if !slices.Contains(plain, "MODEL") || len(plain) != len(args) {
				t.Fatalf("%s: %q", id, args)
			}
			for i, a := range plain {
				if (a == "MODEL") != (i > 0 && plain[i-1] == "--model") || a != "MODEL" && args[i] != a || a == "MODEL" && args[i] != model {
					t.Fatalf("%s: %q", id, args)
				}
			}
		}
		if isModel(model) && (strings.HasPrefix(model, "-") || strings.ContainsFunc(model, func(r rune) bool { return r < ' ' || r == 0x7f })) {
			t.Fatalf("%q is a model", model)
		}
		if prompt := guardSlash(model); strings.HasPrefix(prompt, "/") || strings.TrimPrefix(prompt, "\n") != strings.TrimPrefix(model, "\n") {
			t.Fatalf("%q became %q", model, prompt)
		}
	})
}

func TestVersion(t *testing.T) {
	for out, want := range map[string]string{
		"2.1.197 (Claude Code)\n": "2.1.197", "codex-cli 0.171.0\n": "0.171.0", "warning\n1.2.3": "1.2.3", "1.2.3-rc.1": "1.2.3", "01.02.03": "1.2.3", "999999.0.0": "999999.0.0",
		"": "", "1.2": "", "v1.2.3": "", "1000000.0.0": "", "1.2.3000000": "", "a1.2.3": "", "\x1b[1m1.2.3": "", "1.2.٣": "",
	} {
		if _, text, ok := readVersion([]byte(out)); text != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", out, text, ok)
		}
	}
	ordered := []version{{0, 0, 1}, {0, 1, 0}, {0, 2, 0}, {0, 10, 0}, {1, 0, 0}, {1, 0, 9}, {2, 0, 0}, {10, 0, 0}}
	for i, v := range ordered {
		for j, w := range ordered {
			if v.less(w) != (i < j) {
				t.Errorf("%v, %v", v, w)
			}
		}
	}
}

// TestUsage holds the bounds of what is counted.
func TestUsage(t *testing.T) {
	for _, c := range []struct {
		completion int64
		prompt     []int64
		want       backend.Usage
	}{
		{4, []int64{1, 2, 3}, backend.Usage{Prompt: 6, Completion: 4, Counted: true}},
		{0, nil, backend.Usage{Counted: true}},
		{exact.MaxWhole, []int64{exact.MaxWhole}, backend.Usage{Prompt: exact.MaxWhole, Completion: exact.MaxWhole, Counted: true}},
		{exact.MaxWhole + 1, nil, backend.Usage{}},
		{-1, nil, backend.Usage{}},
		{1, []int64{-1, 2}, backend.Usage{}},
		{1, []int64{exact.MaxWhole, 1}, backend.Usage{}},
		{1, []int64{exact.MaxWhole + 1}, backend.Usage{}},
	} {
		if got := count(c.completion, c.prompt...); got != c.want {
			t.Errorf("%d, %d: %+v", c.completion, c.prompt, got)
		}
	}
}

// TestOutcomes holds that each refusal travels by its code, and that none of a
// start that failed says more than that.
func TestOutcomes(t *testing.T) {
	want := map[string]string{
		"program-not-logged-in": "unauthorized false", "program-usage-limit": "backend-error true", "program-no-model": "model-not-found false",
		"program-model-name": "model-not-found false", "program-service-failing": "backend-error true", "program-failed": "backend-error false",
		"program-empty-answer": "backend-error true", "program-prompt-unread": "backend-error false", "program-used-a-tool": "backend-error false",
		"program-timeout": "timeout true", "program-silent": "timeout true", "program-output-too-large": "output-too-large false",
	}
	for _, k := range Kinds.Kinds {
		f, ok := outcomeOf(k.With("A detail.")).(ai.Failure)
		code, meaning := want[k.Name()], k.Meaning()
		if code == "" {
			code, meaning = "backend-unreachable false", ErrStart.Meaning()
		}
		if !ok || fmt.Sprint(f.Code, " ", f.Retryable) != code || f.Message != meaning {
			t.Errorf("%s travels as %+v", k.Name(), f)
		}
	}
	for _, err := range []error{context.Canceled, fmt.Errorf("x: %w", context.Canceled)} {
		if outcomeOf(err) != (ai.Cancellation{}) {
			t.Errorf("%v", err)
		}
	}
	if Kinds.Title == "" || len(Kinds.Kinds) != 21 {
		t.Errorf("%q has %d", Kinds.Title, len(Kinds.Kinds))
	}
}

// FuzzReaders holds that nothing a program writes is an answer without being
// text, or counts what nobody can count.
func FuzzReaders(f *testing.F) {
	for _, s := range []string{
		`{"type":"result","subtype":"success","is_error":false,"result":"a","usage":{"input_tokens":1,"output_tokens":1}}`,
		`[{},{"type":"result","subtype":"success","is_error":false,"result":"\ud800","usage":{"input_tokens":9007199254740992,"output_tokens":1}}]`,
		"{\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"\xff\"}}\n{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}",
		`{"type":"turn.failed","error":{"message":"401"}}`, "[", "{", "[]", "null\n", strings.Repeat("[", 20_000),
	} {
		f.Add([]byte(s), "Not logged in", 0)
	}
	f.Fuzz(func(t *testing.T, out []byte, errs string, code int) {
		for id, tool := range tools {
			a, err := tool.read(ended{out: out, err: errs, code: code})
			if !utf8.ValidString(a.text) || a.usage != count(a.usage.Completion, a.usage.Prompt) && a.usage.Counted || !a.usage.Counted && a.usage != (backend.Usage{}) {
				t.Errorf("%s: %+v", id, a)
			}
			if err == nil && (id == "claude-cli" && a.text == "" || id == wirebackend.CodexCLI && code != 0) {
				t.Errorf("%s: %+v", id, a)
			}
			var k *refusal.Kind
			if err != nil && (!errors.As(err, &k) || !slices.Contains(Kinds.Kinds, k)) {
				t.Errorf("%s: %v", id, err)
			}
		}
	})
}
