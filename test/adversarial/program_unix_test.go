//go:build unix

package adversarial

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/internal/runner/program"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// names are what the programs are called.
var names = map[wirebackend.ID]string{"claude-cli": "claude", wirebackend.CodexCLI: "codex"}

// fake is a program that attacks, in a folder of its own.
type fake struct {
	t    *testing.T
	id   wirebackend.ID
	dir  string
	home string
	// scratch is where runs have their folders.
	scratch string
}

func newFake(t *testing.T, id wirebackend.ID, mode string) fake {
	t.Helper()
	if os.Geteuid() == 0 {
		t.Skip("nothing is started for root")
	}
	f := fake{t: t, id: id, dir: t.TempDir(), home: t.TempDir(), scratch: t.TempDir()}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(f.dir, names[id])); err != nil {
		t.Fatal(err)
	}
	f.set("mode", mode)
	return f
}

func (f fake) set(file, text string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, file), []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// environment is the agent's: what a program needs, and what it must not get.
func (f fake) environment() map[string]string {
	return map[string]string{
		"PATH": "relative:" + f.dir + "::.:/usr/bin", "HOME": f.home, "LANG": "C.UTF-8", "TZ": "UTC",
		"ANTHROPIC_API_KEY": secret, "OPENAI_API_KEY": secret, "CODEX_HOME": secret, "LD_PRELOAD": secret, "NODE_OPTIONS": secret,
		"BASH_ENV": secret, "SSH_AUTH_SOCK": secret, "HTTPS_PROXY": secret, "CLAUDE_CONFIG_DIR": secret, "TMPDIR": secret, "ALLOD_HOME": secret,
	}
}

func (f fake) open(change ...func(*program.Config)) *program.Program {
	f.t.Helper()
	env := f.environment()
	c := program.Config{ID: f.id, Scratch: f.scratch, Silence: time.Minute, Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }}
	for _, change := range change {
		change(&c)
	}
	p, err := program.Open(c)
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

func (f fake) read(file string, v any) {
	f.t.Helper()
	b, err := os.ReadFile(filepath.Join(f.dir, file))
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// clean holds that nothing of a run is left in the folder for runs.
func (f fake) clean() {
	f.t.Helper()
	entries, err := os.ReadDir(f.scratch)
	if err != nil || len(entries) > 0 {
		f.t.Errorf("left behind: %v, %v", entries, err)
	}
}

func ask(p *program.Program, payload ai.Payload) backend.Result {
	return p.Run(context.Background(), backend.Request{Model: "model-1", Payload: payload, MaxTime: 2 * time.Minute, MaxOutput: 1 << 20})
}

func generate(prompt string) ai.Payload { return ai.Generate{Prompt: prompt} }

func failed(t *testing.T, r backend.Result, kind *refusal.Kind, code string, retryable bool) {
	t.Helper()
	if r.Outcome != (ai.Failure{Code: code, Message: kind.Meaning(), Retryable: retryable}) || r.Kind != kind {
		t.Errorf("%+v, not %s", r, kind.Name())
	}
}

func answered(t *testing.T, r backend.Result, text string) {
	t.Helper()
	if r.Outcome != (ai.Answer{Text: text}) || r.Kind != nil {
		t.Errorf("%+v", r)
	}
}

// gone waits for the end of a process. One that nobody reaps has ended too.
func gone(t *testing.T, pid int) {
	t.Helper()
	if pid <= 1 {
		t.Fatalf("process %d", pid)
	}
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return
		}
		if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil {
			if _, rest, ok := bytes.Cut(stat, []byte(") ")); ok && len(rest) > 0 && rest[0] == 'Z' {
				return
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	t.Errorf("process %d is still there", pid)
}

// argsOf are the arguments of every run, but for the model.
var argsOf = map[wirebackend.ID][]string{
	"claude-cli": {
		"--print", "--output-format", "json", "--tools", "", "--strict-mcp-config", "--mcp-config", `{"mcpServers":{}}`,
		"--safe-mode", "--disable-slash-commands", "--no-session-persistence", "--model", "model-1",
	},
	wirebackend.CodexCLI: {
		"exec", "--json", "--color", "never", "--sandbox", "read-only", "--skip-git-repo-check", "--ephemeral", "--ignore-user-config", "--ignore-rules",
		"-c", "features.shell_tool=false", "-c", "features.unified_exec=false", "-c", "features.shell_snapshot=false", "-c", "features.apps=false",
		"-c", "features.plugins=false", "-c", "features.hooks=false", "-c", "features.goals=false", "-c", "features.multi_agent=false",
		"-c", "features.tool_suggest=false", "-c", "features.skill_search=false", "-c", "features.image_generation=false", "-c", "features.view_image=false",
		"-c", "features.browser_use=false", "-c", "features.computer_use=false", "-c", "features.code_mode_host=false",
		"-c", `web_search="disabled"`, "-c", "skills.include_instructions=false", "--model", "model-1", "-",
	},
}

// programSuite is a program that is the enemy, and text that wants to be more
// than text.
func programSuite(t *testing.T, id wirebackend.ID) {
	t.Run("injection", func(t *testing.T) {
		t.Parallel()
		f := newFake(t, id, "echo")
		p := f.open()
		texts := append(slices.Clone(oddTexts), strings.Repeat("a \x1b[31m@/etc/passwd\n", 100_000))
		for i, text := range texts {
			for _, payload := range []ai.Payload{generate(text), []ai.Payload{
				ai.Generate{Prompt: "p", System: text},
				ai.Chat{System: text, Messages: []ai.ChatMessage{{Role: ai.RoleUser, Content: text}, {Role: ai.RoleAssistant, Content: "b"}}},
			}[i%2]} {
				want := text
				switch payload := payload.(type) {
				case ai.Generate:
					if payload.Prompt == "p" {
						want = section(text) + "p"
					}
				case ai.Chat:
					want = section(text) + "User: " + text + "\n\nAssistant: b"
				}
				if id == "claude-cli" && strings.HasPrefix(want, "/") {
					want = "\n" + want
				}
				r := p.Run(context.Background(), backend.Request{Model: "model-1", Payload: payload, MaxTime: 2 * time.Minute, MaxOutput: 16 << 20})
				if strings.TrimSpace(want) == "" {
					failed(t, r, program.ErrEmpty, backend.CodeBackend, true)
				} else {
					answered(t, r, replaced(want))
				}
				var s seen
				f.read("seen", &s)
				if !bytes.Equal(s.Stdin, []byte(want)) {
					t.Errorf("%.80q was read as %.80q", want, s.Stdin)
				}
				if !slices.Equal(s.Args, argsOf[id]) {
					t.Errorf("%.80q: arguments %q", text, s.Args)
				}
				f.environmentIs(s)
				if len(s.Files) > 0 {
					t.Errorf("%.80q: files %q", text, s.Files)
				}
			}
		}
		f.clean()
		if entries, err := os.ReadDir(f.home); err != nil || len(entries) > 0 {
			t.Errorf("in the home: %v, %v", entries, err)
		}
	})

	t.Run("what it is given", func(t *testing.T) {
		t.Parallel()
		f := newFake(t, id, "answer")
		// One that children inherit, as whoever starts the agent may leave it.
		leak, err := syscall.Dup(0)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(leak)
		r := ask(f.open(), generate("p"))
		answered(t, r, "ready")
		if r.Usage != (backend.Usage{Prompt: 5, Completion: 4, Counted: true}) {
			t.Errorf("usage %+v", r.Usage)
		}
		var s seen
		f.read("seen", &s)
		f.environmentIs(s)
		if !slices.Equal(s.Descriptors, []string{"0", "1", "2"}) {
			t.Errorf("descriptors %q", s.Descriptors)
		}
		if s.Group != s.Pid || s.Group == syscall.Getpgrp() {
			t.Errorf("process %d is in group %d", s.Pid, s.Group)
		}
		gone(t, s.Pid)
		f.clean()
	})

	t.Run("unread prompt", func(t *testing.T) {
		t.Parallel()
		for _, mode := range []string{"unread", "closed", "half"} {
			for _, size := range []int{2000, 1 << 20} { // below and above what a pipe holds
				f := newFake(t, id, mode)
				failed(t, ask(f.open(), generate(strings.Repeat("p", size))), program.ErrUnread, backend.CodeBackend, false)
				f.clean()
			}
		}
	})

	t.Run("hangs", func(t *testing.T) {
		t.Parallel()
		f := newFake(t, id, "hang")
		r := f.open().Run(context.Background(), backend.Request{Model: "model-1", Payload: generate("p"), MaxTime: 2 * time.Second})
		failed(t, r, program.ErrTime, backend.CodeTimeout, true)
		f.goneIfSeen()
		f.clean()
	})

	t.Run("says nothing", func(t *testing.T) {
		t.Parallel()
		f := newFake(t, id, "hang")
		r := ask(f.open(func(c *program.Config) { c.Silence = 2 * time.Second }), generate("p"))
		failed(t, r, program.ErrSilent, backend.CodeTimeout, true)
		f.goneIfSeen()
		f.clean()
	})

	t.Run("is canceled", func(t *testing.T) {
		t.Parallel()
		f := newFake(t, id, "hang")
		p := f.open()
		ctx, cancel := f.until("seen")
		defer cancel()
		r := p.Run(ctx, backend.Request{Model: "model-1", Payload: generate("p")})
		if r.Outcome != (ai.Cancellation{}) || r.Kind != nil {
			t.Errorf("%+v", r)
		}
		var s seen
		f.read("seen", &s)
		gone(t, s.Pid)
		f.clean()
		if err := os.Remove(filepath.Join(f.dir, "seen")); err != nil {
			t.Fatal(err)
		}
		if r := p.Run(ctx, backend.Request{Model: "model-1", Payload: generate("p")}); r.Outcome != (ai.Cancellation{}) {
			t.Errorf("%+v", r)
		}
		if _, err := os.Stat(filepath.Join(f.dir, "seen")); err == nil {
			t.Error("a canceled run was started")
		}
	})

	t.Run("floods", func(t *testing.T) {
		t.Parallel()
		f := newFake(t, id, "flood")
		failed(t, ask(f.open(), generate("p")), program.ErrTooLarge, backend.CodeTooLarge, false)
		f.goneIfSeen()
		f.clean()
		f = newFake(t, id, "answer")
		f.set("text", strings.Repeat("a", 1<<20+1))
		failed(t, ask(f.open(), generate("p")), program.ErrTooLarge, backend.CodeTooLarge, false)
		f.set("text", strings.Repeat("a", 1<<20))
		answered(t, ask(f.open(), generate("p")), strings.Repeat("a", 1<<20))
	})

	t.Run("floods its errors", func(t *testing.T) {
		t.Parallel()
		f := newFake(t, id, "flood errors")
		r := f.open().Run(context.Background(), backend.Request{Model: "model-1", Payload: generate("p"), MaxTime: 2 * time.Second})
		failed(t, r, program.ErrTime, backend.CodeTimeout, true)
		f.goneIfSeen()
		f.clean()
	})

	t.Run("leaves processes", func(t *testing.T) {
		t.Parallel()
		modes := []string{"leave"}
		if runtime.GOOS == "linux" {
			modes = append(modes, "escape")
		}
		for _, mode := range modes {
			f := newFake(t, id, mode)
			answered(t, ask(f.open(), generate("p")), "ready")
			var child int
			f.read("child", &child)
			gone(t, child)
			f.clean()
		}
	})

	t.Run("escapes and hangs", func(t *testing.T) {
		t.Parallel()
		if runtime.GOOS != "linux" {
			t.Skip("this system does not show the environment of processes")
		}
		f := newFake(t, id, "escape and hang")
		ctx, cancel := f.until("child")
		defer cancel()
		r := f.open().Run(ctx, backend.Request{Model: "model-1", Payload: generate("p")})
		if r.Outcome != (ai.Cancellation{}) {
			t.Errorf("%+v", r)
		}
		var child int
		f.read("child", &child)
		gone(t, child)
		f.goneIfSeen()
		f.clean()
	})

	t.Run("litters", func(t *testing.T) {
		t.Parallel()
		f := newFake(t, id, "litter")
		answered(t, ask(f.open(), generate("p")), "ready")
		f.clean()
	})

	t.Run("dies", func(t *testing.T) {
		t.Parallel()
		f := newFake(t, id, "killed")
		failed(t, ask(f.open(), generate("p")), program.ErrFailed, backend.CodeBackend, false)
	})

	t.Run("its own words", func(t *testing.T) {
		t.Parallel()
		f := newFake(t, id, "raw")
		p := f.open()
		for _, c := range outputs[id] {
			f.set("out", c.out)
			f.set("err", c.err)
			f.set("code", strconv.Itoa(c.code))
			r := ask(p, generate("p"))
			if c.kind == nil {
				answered(t, r, c.text)
			} else {
				failed(t, r, c.kind, c.wire, c.retryable)
			}
			if t.Failed() {
				t.Fatalf("by %q, %q, %d", c.out, c.err, c.code)
			}
		}
	})

	t.Run("old", func(t *testing.T) {
		t.Parallel()
		before := map[wirebackend.ID]string{"claude-cli": "2.1.196 (Claude Code)", wirebackend.CodexCLI: "codex-cli 0.170.9"}[id]
		for _, v := range []string{"0.0.1", before, "no version", "\x1b[31m2", strings.Repeat("9", 3000) + ".1.1"} {
			f := newFake(t, id, "answer")
			f.set("version", v)
			p := f.open()
			if _, err := p.Version(context.Background()); !errors.Is(err, program.ErrOld) {
				t.Errorf("%q: %v", v, err)
			}
			// Why nothing is started is the owner's business, not the site's.
			want := ai.Failure{Code: backend.CodeUnreachable, Message: program.ErrStart.Meaning()}
			if r := ask(p, generate("p")); r.Outcome != want || r.Kind != program.ErrOld {
				t.Errorf("%q: %+v", v, r)
			}
			if _, err := os.Stat(filepath.Join(f.dir, "seen")); err == nil {
				t.Errorf("%q was given a job", v)
			}
		}
		f := newFake(t, id, "answer")
		f.set("version", "\x1b]0;evil\x07 7.8.9-beta \x1b[31m")
		if v, err := f.open().Version(context.Background()); v != "7.8.9" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		f.clean()
	})

	t.Run("models", func(t *testing.T) {
		t.Parallel()
		f := newFake(t, id, "answer")
		p := f.open()
		for _, model := range []string{"", "-", "--dangerously-skip-permissions", "-c", "a\nb", "a\x00b", "\x1b[31m", "\xff", "\u202ea", strings.Repeat("m", 257)} {
			r := p.Run(context.Background(), backend.Request{Model: model, Payload: generate("p")})
			if r.Kind != program.ErrModel {
				t.Errorf("%q: %+v", model, r)
			}
		}
		if _, err := os.Stat(filepath.Join(f.dir, "asked")); err == nil {
			t.Error("a program was started for a name that is none")
		}
		model := `m"x' $(touch pwned);%PATH%`
		answered(t, p.Run(context.Background(), backend.Request{Model: model, Payload: generate("p")}), "ready")
		var s seen
		f.read("seen", &s)
		if i := slices.Index(s.Args, "--model"); i < 0 || s.Args[i+1] != model || len(s.Args) != len(argsOf[id]) {
			t.Errorf("%q", s.Args)
		}
	})

	t.Run("walls", func(t *testing.T) {
		t.Parallel()
		f := newFake(t, id, "answer")
		var needs program.Needs
		walls := func(cmd *exec.Cmd, n program.Needs) error {
			if needs = n; cmd.Process != nil || cmd.Dir != n.Write[0] || !slices.Contains(cmd.Env, "TMPDIR="+n.Write[0]) {
				t.Errorf("walls for %+v, %+v", cmd, n)
			}
			return nil
		}
		answered(t, ask(f.open(func(c *program.Config) { c.Confine = walls }), generate("p")), "ready")
		self, _ := os.Executable()
		self, _ = filepath.EvalSymlinks(self)
		want := map[wirebackend.ID]program.Needs{
			"claude-cli": {
				Read: []string{filepath.Join(f.home, ".claude"), filepath.Join(f.home, ".claude.json")}, Run: []string{filepath.Dir(self)},
				Write: []string{needs.Write[0], filepath.Join(f.home, ".claude/.credentials.json")},
			},
			wirebackend.CodexCLI: {Run: []string{filepath.Dir(self)}, Write: []string{needs.Write[0], filepath.Join(f.home, ".codex")}},
		}[id]
		if fmt.Sprint(needs) != fmt.Sprint(want) {
			t.Errorf("%+v", needs)
		}
		f = newFake(t, id, "answer")
		r := ask(f.open(func(c *program.Config) {
			c.Confine = func(*exec.Cmd, program.Needs) error { return errors.New(secret) }
		}), generate("p"))
		if r.Kind != program.ErrWalls || strings.Contains(said(r), secret) {
			t.Errorf("%+v", r)
		}
		for _, file := range []string{"seen", "asked"} {
			if _, err := os.Stat(filepath.Join(f.dir, file)); err == nil {
				t.Error("it was started without walls")
			}
		}
		f.clean()
	})

	t.Run("replaceable", func(t *testing.T) {
		t.Parallel()
		f := newFake(t, id, "answer")
		p := f.open()
		for _, mode := range []os.FileMode{0o777, 0o777 | os.ModeSticky, 0o707} {
			if err := os.Chmod(f.dir, mode); err != nil {
				t.Fatal(err)
			}
			env := f.environment()
			_, err := program.Open(program.Config{ID: id, Env: func(name string) (string, bool) { return env[name], true }})
			if !errors.Is(err, program.ErrReplaceable) {
				t.Errorf("%v: %v", mode, err)
			}
			if r := ask(p, generate("p")); r.Kind != program.ErrReplaceable {
				t.Errorf("%v: %+v", mode, r)
			}
		}
	})
}

// section is a system text as it stands in front.
func section(system string) string {
	if strings.TrimSpace(system) == "" {
		return ""
	}
	return "System instructions:\n" + system + "\n\n"
}

// until is canceled when the program has written a file.
func (f fake) until(file string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(f.dir, file)); err == nil {
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	return ctx, cancel
}

// environmentIs holds that a program saw its own environment and no more.
func (f fake) environmentIs(s seen) {
	f.t.Helper()
	want := []string{"PATH=" + f.dir + ":/usr/bin", "CI=1", "HOME=" + f.home, "LANG=C.UTF-8", "TZ=UTC"}
	if f.id == "claude-cli" {
		want = append(want, "CLAUDE_CODE_DISABLE_ATTACHMENTS=1")
	}
	want = append(want, "TMPDIR="+s.Dir)
	if !slices.Equal(slices.Sorted(slices.Values(s.Env)), slices.Sorted(slices.Values(want))) {
		f.t.Errorf("environment %q", s.Env)
	}
	scratch, _ := filepath.EvalSymlinks(f.scratch)
	if filepath.Dir(s.Dir) != scratch {
		f.t.Errorf("it ran in %s", s.Dir)
	}
	if strings.Contains(fmt.Sprint(s.Args, s.Env), secret) {
		f.t.Error("it was given a key")
	}
}

// goneIfSeen is for programs that may be killed before they can say anything.
func (f fake) goneIfSeen() {
	f.t.Helper()
	if _, err := os.Stat(filepath.Join(f.dir, "seen")); err == nil {
		var s seen
		f.read("seen", &s)
		gone(f.t, s.Pid)
	}
}

// output is what a program writes, and what comes of it.
type output struct {
	out, err  string
	code      int
	text      string // of an answer
	kind      *refusal.Kind
	wire      string
	retryable bool
}

func wrong(out, err string, code int) output {
	return output{out: out, err: err, code: code, kind: program.ErrFailed, wire: backend.CodeBackend}
}

func limited(out, err string, code int) output {
	return output{out: out, err: err, code: code, kind: program.ErrLimit, wire: backend.CodeBackend, retryable: true}
}

func empty(out string) output {
	return output{out: out, kind: program.ErrEmpty, wire: backend.CodeBackend, retryable: true}
}

func loggedOut(out, err string, code int) output {
	return output{out: out, err: err, code: code, kind: program.ErrLoggedOut, wire: backend.CodeUnauthorized}
}

func noModel(out string, code int) output {
	return output{out: out, code: code, kind: program.ErrNoModel, wire: backend.CodeNoModel}
}

func service(out string, code int) output {
	return output{out: out, code: code, kind: program.ErrService, wire: backend.CodeBackend, retryable: true}
}

func usedTool(out string) output {
	return output{out: out, kind: program.ErrUsedTool, wire: backend.CodeBackend}
}

const used = `"usage":{"input_tokens":2,"output_tokens":4}}`

// outputs are what the programs say, the good first. Those with an error are as
// the real ones wrote them where they were seen.
var outputs = map[wirebackend.ID][]output{
	"claude-cli": {
		{out: `{"type":"result","subtype":"success","is_error":false,"result":"a",` + used, text: "a"},
		{out: `[{"type":"system","subtype":"init"},{"type":"result","subtype":"success","is_error":false,"result":"a",` + used + `]`, text: "a"},
		{out: "\n" + `{"type":"result","subtype":"success","is_error":false,"api_error_status":null,"result":"\u001b[31m\ud800` + "\xff" + `",` + used, text: "\x1b[31m\uFFFD\uFFFD"},
		wrong("", "", 0), wrong("", "", 1), wrong("text", "", 0), wrong("{", "", 0), wrong("[]", "", 0), wrong("[{}]", "", 0), wrong("null", "", 0),
		wrong(`{"type":"result","subtype":"success","result":"a",`+used, "", 0),
		wrong(`{"type":"result","subtype":"success","is_error":false,"result":"a",`+used, "", 1),
		wrong(`{"type":"result","subtype":"success","is_error":true,"result":"a",`+used, "", 0),
		wrong(`{"type":"result","subtype":"error_max_turns","is_error":false,"result":"a",`+used, "", 0),
		wrong(`{"type":"result","subtype":"success","is_error":false,"result":"a"}`, "", 0),
		wrong(`{"type":"result","subtype":"success","is_error":false,"result":"a","usage":{"input_tokens":-1,"output_tokens":4}}`, "", 0),
		wrong(`{"type":"result","subtype":"success","is_error":false,"result":"Unknown command: /a.","usage":{"input_tokens":0,"output_tokens":0}}`, "", 0),
		wrong(`{"type":"assistant","is_error":false,"result":"a",`+used, "", 0),
		wrong("", "Error: Input must be provided either through stdin or as a prompt argument when using --print", 1),
		empty(`{"type":"result","subtype":"success","is_error":false,"result":"",` + used),
		empty(`{"type":"result","subtype":"success","is_error":false,"result":" \n",` + used),
		limited(`{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"x",`+used, "", 0),
		limited(`{"type":"result","subtype":"success","is_error":true,"result":"You've hit your limit · resets 3:30am (Europe/Moscow)",`+used, "", 1),
		limited(`{"type":"result","subtype":"success","is_error":false,"result":"Claude AI usage limit reached|1755615600",`+used, "", 0),
		limited("Claude AI usage limit reached|1755615600", "", 0),
		limited("You've hit your limit · resets 1pm (Europe/Lisbon)\n", "", 1),
		limited("", "You're out of extra usage · resets 1pm", 1),
		loggedOut(`{"type":"result","subtype":"success","is_error":true,"api_error_status":null,"result":"Not logged in · Please run /login",`+used, "", 1),
		loggedOut(`{"type":"result","subtype":"success","is_error":true,"api_error_status":401,"result":"x",`+used, "", 0),
		loggedOut(`{"type":"result","subtype":"success","is_error":true,"api_error_status":403,"result":"x",`+used, "", 0),
		loggedOut("Not logged in · Please run /login\n", "", 1),
		loggedOut("", "Invalid API key · Please run /login", 1),
		noModel(`{"type":"result","subtype":"success","is_error":true,"api_error_status":404,"result":"x",`+used, 0),
		noModel(`{"type":"result","subtype":"success","is_error":true,"result":"There's an issue with the selected model (x). It may not exist",`+used, 1),
		service(`{"type":"result","subtype":"success","is_error":true,"api_error_status":529,"result":"x",`+used, 0),
	},
	wirebackend.CodexCLI: {
		{out: `{"type":"item.completed","item":{"type":"agent_message","text":"a"}}` + "\n" + `{"type":"turn.completed",` + used, text: "a"},
		{
			out: `{"type":"item.completed","item":{"type":"agent_message","text":"first"}}` + "\n" + `{"type":"item.completed","item":{"type":"reasoning","text":"r"}}` + "\n" +
				`{"type":"error","message":"Reconnecting... 1/5"}` + "\n" + `{"type":"item.completed","item":{"type":"agent_message","text":"\u001b[31m` + "\xff" + `"}}` + "\n" + `{"type":"turn.completed",` + used,
			text: "\x1b[31m\uFFFD",
		},
		wrong("", "", 0), wrong("", "", 1), wrong("text", "", 0), wrong("{", "", 0), wrong("{}", "", 0),
		wrong(`{"type":"item.completed","item":{"type":"agent_message","text":"a"}}`, "", 0),
		wrong(`{"type":"item.completed","item":{"type":"agent_message","text":"a"}}`+"\n"+`{"type":"turn.completed",`+used, "", 1),
		wrong(`{"type":"item.completed"}`+"\n"+`{"type":"turn.completed",`+used, "", 0),
		wrong(`{"type":"item.completed","item":{"type":"agent_message","text":"a"}}`+"\n"+`{"type":"turn.failed"}`, "", 0),
		wrong(`{"type":"item.completed","item":{"type":"agent_message","text":"a"}}`+"\n"+`{"type":"turn.failed","error":{"message":"x"}}`+"\n"+`{"type":"turn.completed",`+used, "", 0),
		empty(`{"type":"turn.completed",` + used),
		empty(`{"type":"item.completed","item":{"type":"agent_message","text":" "}}` + "\n" + `{"type":"turn.completed",` + used),
		limited(`{"type":"turn.failed","error":{"message":"You've hit your usage limit. To get more access now, send a request to your admin or try again at 12:16 PM."}}`, "", 1),
		limited(`{"type":"turn.failed","error":{"message":"exceeded retry limit, last status: 429 Too Many Requests"}}`, "", 1),
		limited(`{"type":"item.completed","item":{"type":"agent_message","text":"You've hit your usage limit. Upgrade to Pro"}}`+"\n"+`{"type":"turn.completed",`+used, "", 0),
		limited("", "ERROR: Quota exceeded. Check your plan and billing details.", 1),
		loggedOut(`{"type":"turn.failed","error":{"message":"unexpected status 401 Unauthorized: no, url: http://127.0.0.1/v1/responses"}}`, "", 1),
		loggedOut("", "Not logged in. Run codex login.", 1),
		noModel(`{"type":"turn.failed","error":{"message":"The model x does not exist or you do not have access to it."}}`, 1),
		service(`{"type":"error","message":"Reconnecting... waiting for network (Connection failed: error sending request)"}`, 1),
		usedTool(`{"type":"item.started","item":{"type":"command_execution","command":"cat /etc/passwd"}}` + "\n" +
			`{"type":"item.completed","item":{"type":"agent_message","text":"a"}}` + "\n" + `{"type":"turn.completed",` + used),
		usedTool(`{"type":"item.completed","item":{"type":"agent_message","text":"a"}}` + "\n" + `{"type":"item.completed","item":{"type":"web_search"}}` + "\n" + `{"type":"turn.completed",` + used),
	},
}
