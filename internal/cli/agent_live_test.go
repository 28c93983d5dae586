package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode"

	"golang.org/x/text/width"
	"pgregory.net/rapid"

	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
)

var liveNow = time.Date(2026, 7, 31, 12, 0, 0, 0, time.Local)

// liveState is an agent in the middle of its work. Each text of others is text, or
// begins with it.
func liveState(text string) (runner.Status, runner.Activity) {
	job := runner.JobActivity{
		JobID: ai.JobID(text), Server: "https://app.example", Site: ai.KeyID(text), Owner: ai.Owner("alice" + text), Own: true, Kind: ai.KindChat, Service: "mine" + text, Backend: "ollama", Model: "m1" + text,
		Since: liveNow.Add(-75 * time.Second), State: runner.JobRuns,
	}
	other, answered, failed, refused := job, job, job, job
	other.Own, other.Owner, other.State, other.Since = false, ai.Owner("bob"+text), runner.JobWaits, liveNow.Add(time.Hour)
	answered.State, answered.EndedAt, answered.Outcome, answered.DurationMs, answered.Tokens = runner.JobEnded, liveNow, "ok", 1234, &runner.Tokens{Prompt: 120, Completion: 45}
	failed.State, failed.EndedAt, failed.Outcome, failed.Detail, failed.DurationMs = runner.JobEnded, liveNow.Add(-time.Second), "error", "timeout"+text, 600_000
	refused = runner.JobActivity{JobID: "r", Server: "http://127.0.0.1:9", Owner: ai.Owner("you" + text), State: runner.JobEnded, EndedAt: liveNow.Add(-2 * time.Second), Outcome: "refused", Detail: "audience-other-owner"}
	return runner.Status{
			Version: "1.2", Running: true, Problems: []string{text},
			Servers: []runner.ServerStatus{
				{Server: "https://app.example", OwnerLabel: "Alice" + text, State: "serving"},
				{Server: "http://127.0.0.1:9", Owner: ai.Owner("alice" + text), State: "unreachable", Refusal: "server-unreachable"},
			},
			Backends: []runner.BackendStatus{{Name: "mine" + text, ID: "ollama", Model: "m1" + text, State: "ready"}, {Name: "rack", ID: backend.Generic, State: "failed", Refusal: "backend-unreachable"}},
		}, runner.Activity{
			Running: []runner.JobActivity{job, other}, Ended: []runner.JobActivity{answered, failed, refused},
		}
}

// TestLiveLines is the view of a usual terminal, of a narrow one, and of a low one.
func TestLiveLines(t *testing.T) {
	s, a := liveState("")
	busy := a
	for range 40 {
		busy.Running, busy.Ended = append(busy.Running, a.Running[1]), append(busy.Ended, a.Ended[0])
	}
	for _, c := range []struct {
		what          string
		columns, rows int
		a             runner.Activity
		want          string
	}{
		{"usual", 100, 30, a, liveUsual},
		{"narrow", 40, 30, a, liveNarrow},
		{"low", 80, 8, a, liveLow},
		{"busy", 80, 23, busy, liveBusy},
		{"one line", 80, 1, a, "Allod 1.2 runs: 1 of 2 models ready, jobs in hand: 2; see allod agent why\n"},
		{"none", 80, 0, a, "Allod 1.2 runs: 1 of 2 models ready, jobs in hand: 2; see allod agent why\n"},
	} {
		if got := strings.Join(liveLines(s, c.a, liveNow, c.columns, c.rows), "\n") + "\n"; got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.what, got, c.want)
		}
	}
	if got := liveLines(runner.Status{Version: "1.2", Paused: true}, runner.Activity{}, liveNow, 80, 24); len(got) != 1 || got[0] != "Allod 1.2 is paused: 0 of 0 models ready, jobs in hand: 0" {
		t.Errorf("%q", got)
	}
}

const liveUsual = `Allod 1.2 runs: 1 of 2 models ready, jobs in hand: 2; see allod agent why
SITE                              STATE                             FOR
app.example                       serving                           Alice
http://127.0.0.1:9                unreachable (server-unreachable)  alice
BACKEND                           STATE                             MODEL
mine                              ready                             m1
rack                              failed (backend-unreachable)
RUNNING   ASKER   OWNER                   SITE                    BACKEND                  TIME
running   you     alice                   app.example             mine m1                  1m15s
waiting   others  bob                     app.example             mine m1                  0s
ENDED     ASKER   OWNER              SITE               OUTCOME             TIME       TOKENS
12:00:00  you     alice              app.example        ok                  1.2s       120 + 45
11:59:59  you     alice              app.example        error (timeout)     10m0s      unknown
11:59:58  others  you                http://127.0.0.1…  refused (audience…
`

const liveNarrow = `Allod 1.2 runs: 1 of 2 models ready, jo…
SITE          STATE         FOR
app.example   serving       Alice
http://127.…  unreachable…  alice
BACKEND       STATE         MODEL
mine          ready         m1
rack          failed (bac…
RUNNING   ASKER   OWN…  SITE  BAC…  TIM…
running   you     ali…  app…  min…  1m1…
waiting   others  bob   app…  min…  0s …
ENDED     ASKER   OWN…  SITE  OUT…  TIM…
12:00:00  you     ali…  app…  ok    1.2…
11:59:59  you     ali…  app…  err…  10m…
11:59:58  others  you   htt…  ref…     …
`

const liveLow = `Allod 1.2 runs: 1 of 2 models ready, jobs in hand: 2; see allod agent why
RUNNING   ASKER   OWNER            SITE              BACKEND           TIME
running   you     alice            app.example       mine m1           1m15s
waiting   others  bob              app.example       mine m1           0s
ENDED     ASKER   OWNER       SITE         OUTCOME      TIME       TOKENS
12:00:00  you     alice       app.example  ok           1.2s       120 + 45
11:59:59  you     alice       app.example  error (tim…  10m0s      unknown
11:59:58  others  you         http://127…  refused (a…
`

const liveBusy = `Allod 1.2 runs: 1 of 2 models ready, jobs in hand: 42; see allod agent why
SITE                       STATE                      FOR
app.example                serving                    Alice
http://127.0.0.1:9         unreachable (server-unre…  alice
BACKEND                    STATE                      MODEL
mine                       ready                      m1
rack                       failed (backend-unreacha…
RUNNING   ASKER   OWNER            SITE              BACKEND           TIME
running   you     alice            app.example       mine m1           1m15s
waiting   others  bob              app.example       mine m1           0s
waiting   others  bob              app.example       mine m1           0s
waiting   others  bob              app.example       mine m1           0s
waiting   others  bob              app.example       mine m1           0s
waiting   others  bob              app.example       mine m1           0s
waiting   others  bob              app.example       mine m1           0s
waiting   others  bob              app.example       mine m1           0s
and 34 more
ENDED     ASKER   OWNER       SITE         OUTCOME      TIME       TOKENS
12:00:00  you     alice       app.example  ok           1.2s       120 + 45
11:59:59  you     alice       app.example  error (tim…  10m0s      unknown
11:59:58  others  you         http://127…  refused (a…
12:00:00  you     alice       app.example  ok           1.2s       120 + 45
and 39 more
`

// columnsIn is how many columns a line takes.
func columnsIn(line string) (n int) {
	for _, r := range line {
		if unicode.In(r, unicode.Mn, unicode.Me) {
			continue
		}
		n++
		if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
			n++
		}
	}
	return n
}

// TestLiveIsInert: whatever others are called, a view has the lines that it has, in
// the columns that there are, and nothing in it drives the terminal.
func TestLiveIsInert(t *testing.T) {
	texts := append(append([]string{}, hostile...), forging...)
	texts = append(texts, strings.Repeat("long", 10_000), strings.Repeat("世界", 200), strings.Repeat("\u0301", 500), strings.Repeat("\u200b", 500), "\u200d\ufeff\u2060", "you", strings.Repeat(" ", 300)+"you")
	check := func(t interface{ Errorf(string, ...any) }, text string, columns, rows int) {
		s, a := liveState("")
		want := liveLines(s, a, liveNow, columns, rows)
		s, a = liveState(text)
		got := liveLines(s, a, liveNow, columns, rows)
		if len(got) != len(want) || len(got) > max(rows, 1) {
			t.Errorf("%.40q makes %d lines of %d in %d rows", text, len(got), len(want), rows)
			return
		}
		for i, line := range got {
			if drives(line) || strings.ContainsAny(line, "\n\t\u200b\u200d\ufeff\u2028") || strings.Contains(line, "\u0301\u0301\u0301\u0301") {
				t.Errorf("%.40q: line %d is %q", text, i, line)
			}
			if n := columnsIn(line); n > columns && columns > 0 {
				t.Errorf("%.40q: line %d has %d of %d columns: %q", text, i, n, columns, line)
			}
			// Whose a job is stands where no text of others reaches.
			if begin := min(len(want[i]), 16); columns >= 40 && (strings.HasPrefix(want[i], "running") || strings.HasPrefix(want[i], "waiting") || strings.HasPrefix(want[i], "1")) && line[:begin] != want[i][:begin] {
				t.Errorf("%.40q: line %d begins with %q, want %q", text, i, line[:begin], want[i][:begin])
			}
		}
	}
	for _, text := range texts {
		for _, columns := range []int{0, 1, 20, 40, 80, 300} {
			check(t, text, columns, 30)
		}
		var b bytes.Buffer
		if _, a := liveState(text); writeActivity(&b, a, liveNow) != nil || drives(b.String()) || strings.Count(b.String(), "\n") != 7 {
			t.Errorf("%.40q: allod agent jobs says %q", text, b.String())
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.Rune())).Draw(r, "text")
		check(r, text, rapid.IntRange(0, 200).Draw(r, "columns"), rapid.IntRange(0, 60).Draw(r, "rows"))
	})
}

// TestNothingRuns: allod agent jobs says so.
func TestNothingRuns(t *testing.T) {
	var b bytes.Buffer
	if err := writeActivity(&b, runner.Activity{}, liveNow); err != nil || b.String() != "Nothing runs, and nothing ended since the agent was started.\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}

// TestDraws: what a terminal's owner asks for in the environment is done.
func TestDraws(t *testing.T) {
	for _, c := range []struct {
		noColor, term, system string
		want                  bool
	}{
		{"", "xterm", "linux", true}, {"1", "xterm", "linux", false}, {"", "dumb", "linux", false}, {"", "", "linux", false},
		{"", "", "windows", true}, {"", "dumb", "windows", false}, {"1", "", "windows", false}, {"", "vt100", "darwin", true},
	} {
		get := func(name string) string { return map[string]string{"NO_COLOR": c.noColor, "TERM": c.term}[name] }
		if got := draws(get, c.system); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	// Whatever is written to is no terminal here.
	var b bytes.Buffer
	if out := newConsole(Env{Err: &b}, false); out.screen != nil {
		t.Error("a buffer was taken for a terminal")
	} else if out.log.Info("hello"); !strings.Contains(b.String(), "hello") {
		t.Errorf("the log is %q", b.String())
	}
}
