package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/control"
	"github.com/allodhq/allod/internal/runner/ledger"
)

func newAgentSpend(env Env) *cobra.Command {
	var f agentFlags
	var days int
	cmd := f.add(&cobra.Command{
		Use:   "spend",
		Short: "Show what jobs cost, and what others may still have",
		Long: `Shows what jobs used by day, backend and owner: all jobs of others, and your own on
backends that cost money. Days are in UTC. An amount is what the backend counted, or
else an estimate, and says so. Then it shows what others may still have: jobs over all
backends, and money on each one that costs any.`,
		Example: "  allod agent spend --days 30",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if days < 1 || days > maxSpendDays {
				return ErrUsage.With(fmt.Sprintf("The flag --days takes 1 to %d.", maxSpendDays))
			}
			return f.withAgent(cmd.Context(), env, func(a control.Agent) error {
				today := time.Now().UTC().Truncate(24 * time.Hour)
				s, err := a.Spending(cmd.Context(), today.AddDate(0, 0, 1-days))
				if err != nil {
					return err
				}
				return print(cmd, env, s, func(w io.Writer) error { return writeSpending(w, s) })
			})
		},
	})
	cmd.Flags().IntVar(&days, "days", 7, "how many days, today included")
	return cmd
}

const maxSpendDays = 3650

func writeSpending(w io.Writer, s runner.Spending) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(s.Rows) == 0 {
		fmt.Fprintln(t, "Nothing was spent, and no job of others ran.")
	} else {
		fmt.Fprintln(t, "DAY\tBACKEND\tOWNER\tJOBS\tTOKENS IN\tOUT\tCOST")
	}
	for _, r := range s.Rows {
		owner := word(string(r.Owner))
		if r.Own {
			owner += " (you)"
		}
		cost := r.Amount.String()
		switch {
		case r.Estimated > 0 && r.Estimated == r.Amount:
			cost += ", estimated"
		case r.Estimated > 0:
			cost += ", of which " + r.Estimated.String() + " estimated"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%s\n", r.Day, word(r.Backend), owner, r.Jobs, r.Prompt, r.Completion, cost)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nJobs of others: %d of %d within an hour, %d of %d within 24 hours.\n", s.JobsHour, s.MostHour, s.JobsDay, s.MostDay)
	slices.SortFunc(s.Backends, func(x, y runner.SpendingLimit) int { return strings.Compare(x.Backend, y.Backend) })
	for _, l := range s.Backends {
		fmt.Fprintf(&b, "%s for others within 24 hours: ", word(l.Backend))
		if l.Limit == 0 {
			b.WriteString("nothing, since no ceiling was set.\n")
			continue
		}
		fmt.Fprintf(&b, "%s used and %s reserved of %s.", l.Used, l.Reserved, l.Limit)
		if l.Used > ledger.Money(0) {
			fmt.Fprintf(&b, " The first of it is free again on %s.", l.Reset.Local().Format(time.DateTime))
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
