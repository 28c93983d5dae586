package cli

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/runner/ingress"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
)

// ErrNoLine refuses to page on from a line that is not in the log.
var ErrNoLine = refusal.NewKind("line-not-in-log", 404,
	"This machine's log has no line of this id: it is older than the log, or the id is not one that allod agent log gave.",
	"Leave out --before to begin at the newest lines.")

const maxLogLines = 10_000

// logQuery is what is looked for in the log. What is empty or zero asks for nothing.
type logQuery struct {
	since, until time.Time // since and later, before until
	owner        string
	site         string // the address of a server or the key of a site
	outcome      string
	job          string
	search       string // folded
	// before is the id of a line; those that come before it are looked at.
	before string
}

// logEntry is a line as --json shows it, with its id for --before.
type logEntry struct {
	ID string `json:"id"`
	ingress.Line
}

func newAgentLog(env Env) *cobra.Command {
	var q logQuery
	var since, until string
	var lines int
	var full bool
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Show what ran on this machine, and for whom",
		Long: `Shows the last lines of the log that are asked for, the newest last. What a job was
asked for and how it ended are two lines. Flags that say what to look for narrow each
other. Times are durations back from now, as 90m, 2h or 7d, or dates, as 2026-07-31 or
"2026-07-31 15:04" in this machine's time zone, or with another zone as
2026-07-31T15:04:05Z.

Where older lines are left the command ends with the id for --before that shows them.
With --json each line has its id: that of the first leads to the page before it.`,
		Example: "  allod agent log -n 50 --full\n  allod agent log --outcome refused --since 7d\n  allod agent log --search \"sky is blue\" --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if lines < 1 || lines > maxLogLines {
				return ErrUsage.With(fmt.Sprintf("The flag --lines takes 1 to %d.", maxLogLines))
			}
			now := time.Now()
			var err error
			if q.since, err = logTime("since", since, now); err != nil {
				return err
			}
			if q.until, err = logTime("until", until, now); err != nil {
				return err
			}
			if s, err := client.ParseServer(q.site); err == nil {
				q.site = s.String()
			}
			q.search = folded(q.search)
			dir, err := home.Dir()
			if err != nil {
				return err
			}
			page, damaged, err := q.read(dir, lines, full)
			if err != nil {
				return err
			}
			if damaged > 0 {
				fmt.Fprintf(env.Err, "%d damaged lines of the log were passed over.\n", damaged)
			}
			err = print(cmd, env, page.entries(), func(w io.Writer) error {
				if len(page.lines) == 0 && q != (logQuery{}) {
					_, err := io.WriteString(w, "There is no such line.\n")
					return err
				}
				return writeLog(w, page.lines)
			})
			if err == nil && page.more {
				asJSON, _ := cmd.Flags().GetBool("json")
				progress(env, asJSON, "There is more. For the lines before these, add: --before "+page.lines[0].ID())
			}
			return err
		},
	}
	cmd.Flags().IntVarP(&lines, "lines", "n", 20, "how many lines, the newest last")
	cmd.Flags().BoolVar(&full, "full", false, "show prompts")
	cmd.Flags().StringVar(&since, "since", "", "only lines of this time and later")
	cmd.Flags().StringVar(&until, "until", "", "only lines before this time")
	cmd.Flags().StringVar(&q.owner, "owner", "", "only jobs of this person, by the id that the site gives")
	cmd.Flags().StringVar(&q.site, "site", "", "only jobs of this site, by its address or its key's fingerprint")
	cmd.Flags().StringVar(&q.outcome, "outcome", "", "only ends of this kind: ok, error, canceled, refused or given-back")
	cmd.Flags().StringVar(&q.job, "job", "", "only the job of this id")
	cmd.Flags().StringVar(&q.search, "search", "", "only lines with this text, in prompts that are kept as well, in capitals or not")
	cmd.Flags().StringVar(&q.before, "before", "", "only lines before the one of this id")
	return cmd
}

// logTime reads the time that a flag gives, or returns none.
func logTime(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if number, ok := strings.CutSuffix(text, "d"); ok {
		if days, err := strconv.ParseUint(number, 10, 16); err == nil {
			return now.AddDate(0, 0, -int(days)), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02 15:04", time.DateTime, "2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, ErrUsage.With("The flag --" + flag + " takes a duration, as 2h or 7d, or a date, as 2026-07-31.")
}

// logPage are some lines of the log, the oldest first.
type logPage struct {
	lines []ingress.Line
	// more is whether there are such lines before these.
	more bool
}

func (p logPage) entries() []logEntry {
	entries := []logEntry{}
	for _, l := range p.lines {
		entries = append(entries, logEntry{l.ID(), l})
	}
	return entries
}

// read returns the last lines that are asked for, at most so many, without their
// prompts unless full is set. It keeps no other. It returns [ErrNoLine] and
// ingress.ErrLog.
func (q logQuery) read(dir string, most int, full bool) (page logPage, damaged int, err error) {
	found := q.before == ""
	damaged, err = ingress.Read(dir, func(l ingress.Line) {
		if q.before != "" && (found || l.ID() == q.before) {
			found = true
			return
		}
		if !q.asksFor(l) {
			return
		}
		if !full {
			l.Prompt = ""
		}
		if page.lines = append(page.lines, l); len(page.lines) > most {
			page.lines[0] = ingress.Line{} // and its prompt is let go of
			page.lines, page.more = page.lines[1:], true
		}
	})
	if err == nil && !found {
		err = ErrNoLine
	}
	return page, damaged, err
}

func (q logQuery) asksFor(l ingress.Line) bool {
	is := func(want string, got ...string) bool { return want == "" || slices.Contains(got, want) }
	return (q.since.IsZero() || !l.At.Before(q.since)) && (q.until.IsZero() || l.At.Before(q.until)) &&
		is(q.owner, string(l.Owner)) && is(q.site, l.Server, string(l.Site)) && is(q.outcome, l.Outcome) && is(q.job, string(l.JobID)) &&
		(q.search == "" || has(l, q.search))
}

// has reports whether a text of a line has a folded text in it.
func has(l ingress.Line, search string) bool {
	for _, text := range []string{
		string(l.JobID), l.Server, string(l.Site), string(l.Kind), string(l.Audience), string(l.Owner), string(l.Backend), l.Model,
		l.PromptHash, l.Outcome, l.Detail, l.Prompt, l.Instead.Service, l.Instead.Model, l.Instead.Why,
	} {
		if strings.Contains(folded(text), search) {
			return true
		}
	}
	return false
}

// folded is a text in which letters that differ in their case only are the same.
func folded(text string) string {
	return strings.Map(func(r rune) rune {
		if r <= unicode.MaxASCII {
			return unicode.ToLower(r)
		}
		least := r
		for c := unicode.SimpleFold(r); c != r; c = unicode.SimpleFold(c) {
			least = min(least, c)
		}
		return unicode.ToLower(least)
	}, text)
}

func writeLog(w io.Writer, lines []ingress.Line) error {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%s  %s", l.At.Local().Format(time.DateTime), word(string(l.JobID)))
		switch l.Type {
		case ingress.TypePrompt:
			fmt.Fprintf(&b, "  runs %s of %d characters for %s at %s on %s, model %s", word(string(l.Kind)), l.PromptUnits, word(string(l.Owner)), word(l.Server), word(string(l.Backend)), word(l.Model))
			if l.Instead.Why != "" {
				fmt.Fprintf(&b, ", instead of %s, model %s (%s)", word(l.Instead.Service), word(l.Instead.Model), word(l.Instead.Why))
			}
			if l.Prompt != "" {
				fmt.Fprintf(&b, "\n    %s", strings.ReplaceAll(inert(l.Prompt), "\n", "\n    "))
			}
		case ingress.TypeOutcome:
			fmt.Fprintf(&b, "  %s", word(l.Outcome))
			if l.Detail != "" {
				fmt.Fprintf(&b, " (%s)", word(l.Detail))
			}
			if l.Outcome == "refused" { // no line before it says whose it was
				fmt.Fprintf(&b, " a %s job of %s at %s", word(string(l.Audience)), word(string(l.Owner)), word(l.Server))
			}
			if l.Reason != "" {
				fmt.Fprintf(&b, ". %s", word(l.Reason))
			}
			// What was answered was answered after some time, however short.
			if l.DurationMs > 0 || l.Outcome == string(ai.DispositionOK) {
				fmt.Fprintf(&b, " after %s, %d characters", time.Duration(l.DurationMs)*time.Millisecond, l.OutputUnits)
			}
		}
		b.WriteString("\n")
	}
	if len(lines) == 0 {
		b.WriteString("Nothing ran yet.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
