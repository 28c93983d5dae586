package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/control"
	"github.com/allodhq/allod/internal/tty"
)

// console is where an agent that runs says what it does: its log, and on a terminal
// what runs now below it.
type console struct {
	log *slog.Logger
	// screen is nil where there is no terminal, or where none is wanted.
	screen *tty.Screen
}

// newConsole looks whether errors go to a terminal that can show what runs, and
// whether its owner wants that.
func newConsole(env Env, plain bool) console {
	f, ok := env.Err.(*os.File)
	if ok && !plain && draws(os.Getenv, runtime.GOOS) {
		if screen, ok := tty.Open(f); ok {
			return console{slog.New(slog.NewTextHandler(screen, nil)), screen}
		}
	}
	return console{log: slog.New(slog.NewTextHandler(env.Err, nil))}
}

// draws reports whether the environment lets a program draw on its terminal.
func draws(getenv func(string) string, system string) bool {
	term := getenv("TERM")
	return getenv("NO_COLOR") == "" && term != "dumb" && (term != "" || system == "windows")
}

// How often the view is drawn: soon after a change, but not more often than
// liveLeast apart, and else as time passes.
const (
	liveLeast = 250 * time.Millisecond
	liveEvery = time.Second
)

// run runs an agent and shows what it does until it ends.
func (c console) run(ctx context.Context, a *runner.Agent) error {
	defer slack(agentSlack)()
	if c.screen == nil {
		return a.Run(ctx)
	}
	showing, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		live(showing, c.screen, a)
	}()
	err := a.Run(ctx)
	stop()
	<-ended
	// What cannot be drawn any more is a terminal that is gone.
	_ = c.screen.Close()
	return err
}

// live draws until ctx ends.
func live(ctx context.Context, screen *tty.Screen, a *runner.Agent) {
	changed, stop := a.Watch()
	defer stop()
	for wait(ctx, nil, liveLeast) {
		if s, err := a.Status(); err == nil { // else what was drawn stays
			columns, rows := screen.Size()
			if screen.Show(liveLines(s, a.Activity(), time.Now(), columns, rows-1)) != nil {
				return
			}
		}
		if !wait(ctx, changed, liveEvery-liveLeast) {
			return
		}
	}
}

// wait waits for a token, but not longer than d, and reports whether ctx goes on.
func wait(ctx context.Context, token <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-token:
	case <-t.C:
	}
	return ctx.Err() == nil
}

// liveLines are what is drawn on a terminal of so many columns, at most rows lines:
// how the agent is, its sites and models where there is room, what runs, and what
// ended.
func liveLines(s runner.Status, a runner.Activity, now time.Time, columns, rows int) []string {
	v := view{columns: columns, rows: max(rows, 1)}
	v.line(title(s, a))
	v.table(v.rows/4, []column{{"SITE", 0}, {"STATE", 0}, {"FOR", 0}}, len(s.Servers), func(i int) []string {
		r := s.Servers[i]
		state := r.State
		if r.Refusal != "" {
			state += " (" + r.Refusal + ")"
		}
		owner := string(r.Owner)
		if r.OwnerLabel != "" {
			owner = r.OwnerLabel
		}
		return []string{address(r.Server), state, owner}
	})
	v.table(v.rows/4, []column{{"BACKEND", 0}, {"STATE", 0}, {"MODEL", 0}}, len(s.Backends), func(i int) []string {
		r := s.Backends[i]
		state := r.State
		if r.Refusal != "" {
			state += " (" + r.Refusal + ")"
		}
		return []string{r.Name, state, r.Model}
	})
	v.activity(a, now)
	return v.lines
}

// title says in one line how the agent is.
func title(s runner.Status, a runner.Activity) string {
	ready := 0
	for _, b := range s.Backends {
		if b.State == "ready" {
			ready++
		}
	}
	state := "runs"
	if s.Paused {
		state = "is paused"
	}
	text := fmt.Sprintf("Allod %s %s: %d of %d models ready, jobs in hand: %d", s.Version, state, ready, len(s.Backends), len(a.Running))
	if len(s.Problems) > 0 {
		text += "; see allod agent why"
	}
	return text
}

// view collects lines of cells.
type view struct {
	columns, rows int
	lines         []string
}

// column is a column of a table. Those without a width share what is left.
type column struct {
	name  string
	width int
}

// line adds a line of texts, which are inert from here on.
func (v *view) line(cells ...string) {
	for i, c := range cells {
		cells[i] = word(c)
	}
	v.add(strings.Join(cells, ""))
}

func (v *view) add(line string) {
	if len(v.lines) < v.rows {
		v.lines = append(v.lines, strings.TrimRight(tty.Cell(line, v.columns), " "))
	}
}

// table adds a table of at most so many lines, its head among them. It adds
// nothing where there is no row, or no room for one besides how many there are.
func (v *view) table(most int, columns []column, rows int, row func(i int) []string) {
	most = min(most, v.rows-len(v.lines))
	if rows == 0 || most < 2 || most < 3 && rows > 1 {
		return
	}
	shared, sharing := v.columns-2*(len(columns)-1), 0
	for _, c := range columns {
		if shared -= c.width; c.width == 0 {
			sharing++
		}
	}
	add := func(cells func(i int) string) {
		var b strings.Builder
		left := sharing
		room := max(shared, 0)
		for i, c := range columns {
			width := c.width
			if width == 0 {
				width = max(room/left, 4)
				room, left = room-width, left-1
			}
			if i > 0 {
				b.WriteString("  ")
			}
			b.WriteString(tty.Cell(word(cells(i)), width))
		}
		v.add(b.String())
	}
	add(func(i int) string { return columns[i].name })
	shown := rows
	if rows > most-1 {
		shown = most - 2
	}
	for i := range shown {
		cells := row(i)
		add(func(i int) string { return cells[i] })
	}
	if shown < rows {
		v.add(fmt.Sprintf("and %d more", rows-shown))
	}
}

// activity adds what runs and what ended.
func (v *view) activity(a runner.Activity, now time.Time) {
	left := v.rows - len(v.lines)
	v.table(max(left*2/3, left-len(a.Ended)-1), []column{{"RUNNING", 8}, {"ASKER", 6}, {"OWNER", 0}, {"SITE", 0}, {"BACKEND", 0}, {"TIME", 9}}, len(a.Running), func(i int) []string {
		j := a.Running[i]
		return []string{j.State, asker(j), string(j.Owner), address(j.Server), backendOf(j), age(int64(max(now.Sub(j.Since), 0) / time.Second))}
	})
	v.table(v.rows, []column{{"ENDED", 8}, {"ASKER", 6}, {"OWNER", 0}, {"SITE", 0}, {"OUTCOME", 0}, {"TIME", 9}, {"TOKENS", 13}}, len(a.Ended), func(i int) []string {
		j := a.Ended[i]
		outcome, took, tokens := j.Outcome, "", ""
		if j.Detail != "" {
			outcome += " (" + j.Detail + ")"
		}
		if j.Model != "" && j.Outcome != "refused" { // else none had it
			took, tokens = (time.Duration(j.DurationMs) * time.Millisecond).Round(100*time.Millisecond).String(), "unknown"
		}
		if j.Tokens != nil {
			tokens = fmt.Sprintf("%d + %d", j.Tokens.Prompt, j.Tokens.Completion)
		}
		return []string{j.EndedAt.Local().Format(time.TimeOnly), asker(j), string(j.Owner), address(j.Server), outcome, took, tokens}
	})
}

// asker says in a column of its own whose a job is, since any person can be called
// anything.
func asker(j runner.JobActivity) string {
	if j.Own {
		return "you"
	}
	return "others"
}

// address is a server's without what all have in common.
func address(server string) string { return strings.TrimPrefix(server, "https://") }

// backendOf is where a job runs, by the name that the owner gave it.
func backendOf(j runner.JobActivity) string {
	if j.Model == "" {
		return j.Service
	}
	return j.Service + " " + j.Model
}

func newAgentJobs(env Env) *cobra.Command {
	var f agentFlags
	return f.add(&cobra.Command{
		Use:   "jobs",
		Short: "Show what runs now, and what ended last",
		Long: `Shows the jobs that the running agent has in hand and the last ones that ended, with the
tokens that they used where the backend counts them: those of the question and those of
the answer. The log has all that ever ran: allod agent log.`,
		Example: "  allod agent jobs --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.withAgent(cmd.Context(), env, func(a control.Agent) error {
				now, err := a.Activity(cmd.Context())
				if err != nil {
					return err
				}
				return print(cmd, env, now, func(w io.Writer) error { return writeActivity(w, now, time.Now()) })
			})
		},
	})
}

func writeActivity(w io.Writer, a runner.Activity, now time.Time) error {
	v := view{columns: 120, rows: len(a.Running) + len(a.Ended) + 4}
	v.activity(a, now)
	if len(v.lines) == 0 {
		v.line("Nothing runs, and nothing ended since the agent was started.")
	}
	_, err := io.WriteString(w, strings.Join(v.lines, "\n")+"\n")
	return err
}
