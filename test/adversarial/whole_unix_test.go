//go:build unix

package adversarial

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/internal/runner/program"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// TestWholeWay has each text asked by an app and answered by a backend that says
// it again. It comes back as it was, and is nothing but text on the way.
func TestWholeWay(t *testing.T) {
	eachClass(t, func(t *testing.T, id wirebackend.ID) {
		m := newMachine(t, id, "echo", nil)
		type question struct {
			id, want string
			asked    any
		}
		var all []question
		add := func(asked any, want string) {
			if id == "claude-cli" && strings.HasPrefix(want, "/") {
				want = "\n" + want
			}
			all = append(all, question{m.prompt(asked), want, asked})
		}
		// Alone where its beginning could mean something, else together: what is blank
		// alone was not asked, and a program's start takes its time.
		together := "together:"
		for _, text := range oddTexts {
			if text != "" && strings.IndexByte("-/@#!$`|&;'\"%{<\x00\x1b\xff", text[0]) >= 0 {
				add(text, replaced(text))
			} else {
				together += "\n" + text
			}
		}
		add(together, replaced(together))
		// Half a character is none, and is refused before anybody is asked.
		for _, text := range []string{`"half \ud800 a pair"`, `"\udc00\ud83d"`, "\"\xff\"", "\"\xed\xa0\x80\""} {
			if status, answer := m.post(`{"kind":"llm.generate","owner":"alice","payload":{"prompt":` + text + `}}`); status != 400 || !strings.Contains(answer, `"app-request"`) {
				t.Errorf("%q: %d %s", text, status, answer)
			}
		}
		// As the app's own JSON has them.
		add(json.RawMessage(`"\u0000\u001b[2J\u009b\u202e\u0007"`), "\x00\x1b[2J\u009b\u202e\x07")
		long := strings.Repeat("a \x1b[31m@/etc/passwd $(id)\n", ai.MaxTextUnits/26) // the longest that is taken
		add(long, long)
		for _, q := range all {
			if got := m.answer(q.id); got != q.want {
				t.Errorf("%.80q came back as %.80q", q.want, got)
			}
		}
		chat := m.ask("llm.chat", "alice", "self", object{"system": "/cost $(touch pwned)", "messages": []any{object{"role": "user", "content": "--model evil"}}})
		last := map[bool]string{true: section("/cost $(touch pwned)") + "User: --model evil", false: "--model evil"}[names[id] != ""]
		if got := m.answer(chat); got != last {
			t.Errorf("a chat came back as %q", got)
		}

		// And what a backend says that no app could ask: each half is replaced.
		m.set("out", halves[id])
		m.set("code", map[bool]string{true: "0", false: "200"}[names[id] != ""])
		m.set("mode", "raw")
		if got := m.answer(m.prompt("say it")); got != "\x1b[31m\uFFFD\uFFFD" {
			t.Errorf("halves come as %q", got)
		}

		if names[id] != "" {
			want := []string{last, "say it"}
			for _, q := range all {
				want = append(want, q.want)
			}
			var got []string
			for _, s := range m.runs() {
				got = append(got, string(s.Stdin))
				m.environmentIs(s)
				if !slices.Equal(s.Args, argsOf[id]) || len(s.Files) > 0 || !slices.Equal(s.Descriptors, []string{"0", "1", "2"}) || s.Group != s.Pid {
					t.Errorf("arguments %q, files %q, descriptors %q, process %d in group %d", s.Args, s.Files, s.Descriptors, s.Pid, s.Group)
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%d texts were read that were not asked so, of %d", len(got), len(want))
			}
			m.clean()
		}

		// What a server knows of our key goes no further.
		if names[id] == "" {
			m.set("mode", "key")
			if got := m.answer(m.prompt("what is the key?")); got != "Bearer (API key)" {
				t.Errorf("the key comes as %q", got)
			}
		}

		// The owner sees all of it, and nothing acts.
		log := m.tell("", "agent", "log", "--full", "-n", "10000")
		if !strings.Contains(log, "; touch pwned") || !strings.Contains(log, "\uFFFD[2J") {
			t.Errorf("the log has not what was asked: %.300q", log)
		}
		m.tell("", "agent", "status")
		m.tell("", "agent", "jobs")
		for _, q := range all[:4] {
			m.tell("", "agent", "why", q.id)
		}
		var lines []struct{ Type, JobID, Prompt, Outcome string }
		m.tellJSON(&lines, "agent", "log", "--full", "-n", "10000")
		prompts, ends := map[string]string{}, map[string]string{}
		for _, l := range lines {
			if l.Outcome != "" {
				ends[l.JobID] = l.Outcome
			} else {
				prompts[l.JobID] = l.Prompt
			}
		}
		for _, q := range all {
			if ends[q.id] != "ok" || prompts[q.id] == "" {
				t.Errorf("the log has %.80q and %q of %.80q", prompts[q.id], ends[q.id], q.want)
			}
		}
		var now struct{ Ended []object }
		m.tellJSON(&now, "agent", "jobs")
		if len(now.Ended) == 0 {
			t.Error("no job ended")
		}
		m.inert(m.works.Said.String())
	})
}

// halves are answers with a broken escape and a broken byte.
var halves = map[wirebackend.ID]string{
	wirebackend.Generic: `{"choices":[{"finish_reason":"stop","message":{"content":"\u001b[31m\ud800` + "\xff" + `"}}]}`,
	"claude-cli":        `{"type":"result","subtype":"success","is_error":false,"result":"\u001b[31m\ud800` + "\xff" + `",` + used,
	wirebackend.CodexCLI: `{"type":"item.completed","item":{"type":"agent_message","text":"\u001b[31m\ud800` + "\xff" + `"}}` + "\n" +
		`{"type":"turn.completed",` + used,
}

// failure is what a backend does, and what comes of it.
type failure struct {
	mode, out, err string
	code           int // of a program's end, or of an answer's status
	// name is what the owner's log calls it.
	name      *refusal.Kind
	wire      string
	retryable bool
	// back is that the job is given back, and runs when the backend is there again.
	back bool
}

// failures are those that a job meets, by class.
var failures = map[wirebackend.ID]map[string]failure{
	wirebackend.Generic: {
		"limit":         {mode: "raw", out: `{"error":{"message":"slow down"}}`, code: 429, name: backend.ErrFailing, wire: backend.CodeBackend, retryable: true},
		"not logged in": {mode: "raw", out: `{}`, code: 401, name: backend.ErrUnauthorized, wire: backend.CodeUnauthorized},
		"empty":         {mode: "raw", out: ``, code: 200, name: backend.ErrBackend, wire: backend.CodeBackend},
		"redirect":      {mode: "redirect", name: backend.ErrBackend, wire: backend.CodeBackend},
		"crash":         {mode: "killed", name: backend.ErrUnreachable, back: true},
		"flood":         {mode: "flood", name: backend.ErrOutputTooLarge, wire: backend.CodeTooLarge},
	},
	"claude-cli": {
		"limit": {
			mode: "raw", out: `{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"You've hit your limit",` + used,
			name: program.ErrLimit, wire: backend.CodeBackend, retryable: true,
		},
		"not logged in": {mode: "raw", out: "Not logged in · Please run /login\n", code: 1, name: program.ErrLoggedOut, wire: backend.CodeUnauthorized},
		"empty": {
			mode: "raw", out: `{"type":"result","subtype":"success","is_error":false,"result":"",` + used,
			name: program.ErrEmpty, wire: backend.CodeBackend, retryable: true,
		},
		"crash": {mode: "killed", name: program.ErrFailed, wire: backend.CodeBackend},
		"gone":  {mode: "gone", name: program.ErrNotFound, back: true},
		"flood": {mode: "flood", name: program.ErrTooLarge, wire: backend.CodeTooLarge},
	},
	wirebackend.CodexCLI: {
		"limit": {
			mode: "raw", out: `{"type":"turn.failed","error":{"message":"You've hit your usage limit. Try again at 12:16 PM."}}`, code: 1,
			name: program.ErrLimit, wire: backend.CodeBackend, retryable: true,
		},
		"not logged in": {mode: "raw", err: "Not logged in. Run codex login.", code: 1, name: program.ErrLoggedOut, wire: backend.CodeUnauthorized},
		"empty":         {mode: "raw", out: `{"type":"turn.completed",` + used, name: program.ErrEmpty, wire: backend.CodeBackend, retryable: true},
		"crash":         {mode: "killed", name: program.ErrFailed, wire: backend.CodeBackend},
		"gone":          {mode: "gone", name: program.ErrNotFound, back: true},
		"flood":         {mode: "flood", name: program.ErrTooLarge, wire: backend.CodeTooLarge},
	},
}

// TestWholeWayOfFailures has jobs meet backends that fail.
func TestWholeWayOfFailures(t *testing.T) {
	eachClass(t, func(t *testing.T, id wirebackend.ID) {
		m := newMachine(t, id, "", nil)
		for name, f := range failures[id] {
			m.set("mode", "")
			m.tell("", "agent", "backends", "--prove")
			m.offers("llm.generate")
			m.set("out", f.out)
			m.set("err", f.err)
			m.set("code", fmt.Sprint(f.code))
			m.set("mode", f.mode)
			if f.back {
				m.givesBack(name, f)
			} else {
				m.fails(name, f)
			}
		}
		m.over()
	})
}

// TestWholeWayOfTime has a job meet a backend that never ends.
func TestWholeWayOfTime(t *testing.T) {
	eachClass(t, func(t *testing.T, id wirebackend.ID) {
		mode := "hang"
		if names[id] != "" {
			mode = "escape and hang"
		}
		m := newMachine(t, id, "", object{"limits": object{"maxWallClockMs": 3000}})
		m.set("mode", mode)
		f := failure{name: program.ErrTime, wire: backend.CodeTimeout, retryable: true}
		if names[id] == "" {
			f.name = backend.ErrTimeout
		}
		m.fails("time", f)
		m.over()
	})
}

// fails has a job fail as it must, for the app and for the owner.
func (m *machine) fails(name string, f failure) {
	m.t.Helper()
	job := m.prompt("canary of " + name)
	end := m.end(job)
	out, _ := end["outcome"].(object)
	if end["state"] != "error" || out["code"] != f.wire || out["retryable"] != f.retryable || out["message"] != f.name.Meaning() {
		m.t.Errorf("%s: the app is told %v of %v", name, out, end["state"])
	}
	detail := detailOf(f.wire, f.name)
	var lines []struct{ Outcome, Detail string }
	m.tellJSON(&lines, "agent", "log", "--job", job)
	if n := len(lines); n != 2 || lines[1].Outcome != "error" || lines[1].Detail != detail {
		m.t.Errorf("%s: the log has %+v", name, lines)
	}
	m.explains(job, f)
}

// givesBack has a job meet no backend at first.
func (m *machine) givesBack(name string, f failure) {
	m.t.Helper()
	there := filepath.Join(m.dir, names[m.id])
	if f.mode == "gone" {
		if err := os.Rename(there, there+".gone"); err != nil {
			m.t.Fatal(err)
		}
	}
	job := m.prompt("canary of " + name)
	detail := detailOf(backend.CodeUnreachable, f.name)
	m.works.Said.Shows(m.t, "msg=released")
	var lines []struct{ Outcome, Detail string }
	if m.tellJSON(&lines, "agent", "log", "--job", job, "--outcome", "given-back"); len(lines) != 1 || lines[0].Detail != detail {
		m.t.Errorf("%s: the log has %+v", name, lines)
	}
	m.explains(job, f)
	if f.mode == "gone" {
		if err := os.Rename(there+".gone", there); err != nil {
			m.t.Fatal(err)
		}
	}
	m.set("mode", "")
	m.tell("", "agent", "backends", "--prove")
	if got := m.answer(job); got != "ready" {
		m.t.Errorf("%s: %q", name, got)
	}
}

// detailOf is what the owner's log calls a failure.
func detailOf(code string, kind *refusal.Kind) string {
	if backend.KindOf(code) != kind { // the code says less
		return kind.Name()
	}
	return code
}

// explains holds that a failure is explained to the owner.
func (m *machine) explains(job string, f failure) {
	m.t.Helper()
	if why := m.tell("", "agent", "why", job); !strings.Contains(why, f.name.Meaning()) || !strings.Contains(why, f.name.WayOut()) || strings.Contains(why, "canary") {
		m.t.Errorf("%s: %s", f.name.Name(), why)
	}
}

// over holds that no process of a run is left, and nothing in its folder.
func (m *machine) over() {
	m.t.Helper()
	if m.login == "" {
		return
	}
	for _, s := range m.runs() {
		gone(m.t, s.Pid)
	}
	for _, text := range m.reports("child") {
		var pid int
		if err := json.Unmarshal(text, &pid); err != nil {
			m.t.Fatal(err)
		}
		gone(m.t, pid)
	}
	m.clean()
}
