package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/compose/bench"
	"github.com/allodhq/allod/refusal"
)

// ErrProgram refuses a benchmark that cannot start the program anew.
var ErrProgram = refusal.NewKind("own-program", 500,
	"The program does not find its own file, which it needs to start a site as a process of its own.",
	"Start it by its full path.")

func newBench(env Env) *cobra.Command {
	return group(&cobra.Command{
		Use:     "bench",
		Short:   "Measure the way of a job, or the cost of nodes, on this machine",
		Example: "  allod bench direct\n  allod bench heartbeats",
	}, newBenchDirect(env), newBenchHeartbeats(env))
}

func newBenchDirect(env Env) *cobra.Command {
	var c bench.Config
	var bars bool
	cmd := &cobra.Command{
		Use:   "direct",
		Short: "Measure a site that serves its devices itself",
		Long: `Starts a site as a process of its own, on a disk, and plays the app and the
devices: every request is signed, sealed and committed as always. No model runs.
docs/performance.md says how each number is measured. A missed bar is said in the
report; with --bars it is an error too.`,
		Example: "  allod bench direct\n  allod bench direct --jobs 500 --data /mnt/disk/bench --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"jobs", "runners", "samples", "backlog"} {
				// A zero would stand for the default.
				if n, err := cmd.Flags().GetInt(name); err != nil || n < 1 {
					return ErrUsage.With("The flag --" + name + " takes a number from 1.")
				}
			}
			var err error
			if c.Program, err = os.Executable(); err != nil {
				return ErrProgram.Because(err)
			}
			begun := time.Now()
			c.Progress = func(line string) {
				fmt.Fprintf(env.Err, "%6.1f s  %s\n", time.Since(begun).Seconds(), inert(line))
			}
			defer slack(agentSlack)() // as an agent's, for the devices
			r, err := bench.Direct(cmd.Context(), c)
			if err != nil {
				return err
			}
			err = print(cmd, env, r, func(w io.Writer) error { return writeBench(w, r) })
			if err == nil && bars {
				err = r.Judge()
			}
			return err
		},
	}
	fl := cmd.Flags()
	fl.IntVar(&c.Jobs, "jobs", bench.DefaultJobs, "how many jobs go from the app to the devices and back")
	fl.IntVar(&c.Runners, "runners", bench.DefaultRunners, "how many devices there are")
	fl.IntVar(&c.Samples, "samples", bench.DefaultSamples, "how many single jobs, commits and claims are timed")
	fl.IntVar(&c.Backlog, "backlog", bench.DefaultBacklog, "how many jobs wait where claims are compared with a hundredth of it")
	fl.StringVar(&c.Data, "data", "", "an absent or empty folder on the disk to measure; it is emptied at the end; by default a temporary one")
	fl.BoolVar(&bars, "bars", false, "end with an error when a bar is missed")
	return cmd
}

// writeBench writes a report for people, a bar beside each number that has one.
func writeBench(w io.Writer, r bench.Report) error {
	bars := map[string]string{}
	for _, b := range r.Bars() {
		verdict, side := "MISSED", "at most"
		if b.Met() {
			verdict = "met"
		}
		if b.AtLeast {
			side = "at least"
		}
		bars[b.Name] = fmt.Sprintf("  %s: %s %.4g", verdict, side, b.Limit)
	}
	s, c, k := r.Setup, r.ClaimToResult, r.ClaimToResult.Costs
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	var b strings.Builder
	line := func(name, value, unit, rest string) { fmt.Fprintf(&b, "%-22s %10s %-7s%s\n", name, value, unit, rest) }
	one := func(v float64) string { return fmt.Sprintf("%.1f", v) }
	two := func(v float64) string { return fmt.Sprintf("%.2f", v) }
	fmt.Fprintf(&b, "%d jobs, %d devices, %d processors, %d samples\n\n", s.Jobs, s.Runners, s.Cores, s.Samples)
	line("enqueue", one(r.Enqueue.JobsPerSecond), "jobs/s", "")
	line("claim to result", one(c.JobsPerSecond), "jobs/s", "")
	line("cryptographic limit", one(c.CryptoLimit), "jobs/s", "")
	line("part of the limit", two(c.OfLimit), "", bars["ofLimit"])
	line("idle, median", two(r.Idle.P50Ms), "ms", bars["p50Ms"]+fmt.Sprintf(" ms, which is 8 ms and %d commits", bench.IdleCommits))
	line("idle, 99th percentile", two(r.Idle.P99Ms), "ms", bars["p99Ms"]+" ms")
	line("a commit, median", two(r.Idle.CommitP50Ms), "ms", "")
	line("slowdown by a backlog", two(r.Backlog.Slowdown), "times", bars["slowdown"]+" times")
	if r.PeakMemoryMB > 0 {
		line("peak memory of a site", one(r.PeakMemoryMB), "MB", "")
	} else {
		line("peak memory of a site", "unknown", "", "  this system does not tell")
	}
	fmt.Fprintf(&b, "\nOn one processor: a signature %.1f µs, a verification %.1f µs,\nan X25519 multiplication %.1f µs, a new X25519 key %.1f µs.\n",
		us(k.Signature), us(k.Verification), us(k.Multiplication), us(k.Generation))
	fmt.Fprintf(&b, "A claim of four took %.2f ms where %d jobs wait, and %.2f ms where %d do.\n",
		r.Backlog.FewMs, r.Backlog.Few, r.Backlog.ManyMs, r.Backlog.Many)
	if s.Busy() {
		fmt.Fprintf(&b, "\nThe machine had other work: the cryptography got %.0f %% of the processors.\nThese numbers do not count; run it again when the machine is idle.\n", 100*s.Share)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
