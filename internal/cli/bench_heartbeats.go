package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/compose/bench"
)

func newBenchHeartbeats(env Env) *cobra.Command {
	var c bench.HeartbeatsConfig
	var bars bool
	cmd := &cobra.Command{
		Use:   "heartbeats",
		Short: "Measure what nodes that report cost a controller",
		Long: `Starts a controller as a process of its own, on a disk, and plays the nodes: each
one is invited, joins, and then reports every 10 seconds by the schedule that a real
node has, over a TLS connection of its own. The controller's processor time and memory
are read from outside of it. What it meets when it comes back after a restart is
played in virtual time, by the same schedule.
docs/performance.md says more. A missed bar is said in the report; with --bars it is an
error too.`,
		Example: "  allod bench heartbeats\n  allod bench heartbeats --nodes 500 --duration 30s --data /mnt/disk/bench --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.Nodes < 1 || c.Duration <= 0 {
				return ErrUsage.With("The flag --nodes takes a number from 1, and --duration a time such as 60s.") // a zero would stand for the default
			}
			var err error
			if c.Program, err = os.Executable(); err != nil {
				return ErrProgram.Because(err)
			}
			begun := time.Now()
			c.Progress = func(line string) {
				fmt.Fprintf(env.Err, "%6.1f s  %s\n", time.Since(begun).Seconds(), inert(line))
			}
			r, err := bench.MeasureHeartbeats(cmd.Context(), c)
			if err != nil {
				return err
			}
			err = print(cmd, env, r, func(w io.Writer) error { return writeHeartbeats(w, r) })
			if err == nil && bars {
				err = r.Judge()
			}
			return err
		},
	}
	fl := cmd.Flags()
	fl.IntVar(&c.Nodes, "nodes", bench.DefaultNodes, "how many nodes report")
	fl.DurationVar(&c.Duration, "duration", bench.DefaultDuration, "how long their reports are measured, once each has reported")
	fl.StringVar(&c.Data, "data", "", "an absent or empty folder on the disk to measure; it is emptied at the end; by default a temporary one")
	fl.BoolVar(&bars, "bars", false, "end with an error when a bar is missed")
	return cmd
}

// writeHeartbeats writes a report for people, a bar beside each number that has one.
func writeHeartbeats(w io.Writer, r bench.HeartbeatsReport) error {
	bars := map[string]string{}
	for _, b := range r.Bars {
		verdict := "MISSED"
		if b.Met {
			verdict = "met"
		}
		bars[b.Name] = fmt.Sprintf("  %s: at most %.4g", verdict, b.Limit)
	}
	var b strings.Builder
	line := func(name, value, unit, rest string) { fmt.Fprintf(&b, "%-22s %10s %-7s%s\n", name, value, unit, rest) }
	known := func(name string, v float64, form, unit, bar string) {
		if v > 0 {
			line(name, fmt.Sprintf(form, v), unit, bars[bar])
		} else {
			line(name, "unknown", "", "  this system does not tell")
		}
	}
	h := r.Heartbeats
	fmt.Fprintf(&b, "%d nodes, %.0f seconds, %d processors\n\n", r.Nodes, r.Seconds, r.Cores)
	known("controller", r.Controller.Cores, "%.3f", "cores", "cores")
	known("peak memory", r.Controller.PeakMemoryMB, "%.1f", "MB", "peakMemoryMB")
	line("heartbeats", fmt.Sprintf("%.1f", h.PerSecond), "/s", "")
	line("answer, median", fmt.Sprintf("%.2f", h.P50Ms), "ms", "")
	line("answer, 99th percent.", fmt.Sprintf("%.2f", h.P99Ms), "ms", "")
	line("refused or failed", fmt.Sprint(h.Refused+h.Failed), "", bars["refused"])
	line("peak after a restart", fmt.Sprintf("%.2f", r.Reconnect.PeakOverMean), "times", bars["peakOverMean"])
	fmt.Fprintf(&b, "\nIn virtual time, the fullest 100 ms after a restart had %d requests; the mean is %.1f.\n", r.Reconnect.Peak, r.Reconnect.Mean)
	_, err := io.WriteString(w, b.String())
	return err
}
