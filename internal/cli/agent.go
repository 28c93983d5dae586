package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/httpd"
	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/control"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/runner/ingress"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
)

// agentFlags are common to the agent's commands.
type agentFlags struct{ config string }

func (f *agentFlags) add(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&f.config, "config", "", "the configuration file; by default config.json in the agent's folder, if there is one")
	return cmd
}

// agentConfig finds the agent's folder and reads its configuration.
func (f *agentFlags) agentConfig(env Env, log *slog.Logger) (runner.Config, error) {
	c := runner.Config{Version: env.Version, Logger: log, Settings: settings.Defaults()}
	var err error
	if c.Home, err = home.Dir(); err != nil {
		return c, err
	}
	path := f.config
	if path == "" {
		path = filepath.Join(c.Home, home.ConfigFile)
	}
	c.Save = saveTerms(path)
	if f.config == "" && !exists(path) {
		return c, nil
	}
	m, err := readMachine(path)
	if err != nil || m.Agent == nil {
		return c, err
	}
	c.Settings, err = m.Agent.Settings()
	return c, err
}

// withAgent calls do with the agent, running or not.
func (f *agentFlags) withAgent(ctx context.Context, env Env, do func(a control.Agent) error) error {
	c, err := f.agentConfig(env, nil)
	if err != nil {
		return err
	}
	a, _, done, err := control.Open(ctx, c)
	if err != nil {
		return err
	}
	defer done()
	return do(a)
}

func newAgent(env Env) *cobra.Command {
	return group(&cobra.Command{
		Use:   "agent",
		Short: "Run jobs of paired sites on this machine's models",
		Long: `The agent runs jobs of the sites this machine is paired with, on models of yours,
and keeps a log of everything that ran. Its folder is ALLOD_HOME, or allod in your
configuration folder.`,
		Example: "  allod connect https://app.example\n  allod agent status",
	}, newAgentRun(env), newAgentStatus(env), newAgentBackends(env), newAgentJobs(env), newAgentLog(env), newAgentPause(env),
		newAgentResume(env), newAgentName(env), newAgentForget(env), newAgentWhy(env),
		newAgentAllow(env), newAgentDisallow(env), newAgentOffer(env), newAgentSpend(env), newAgentSites(env), newAgentApprove(env),
		newAgentInstall(env), newAgentStart(env), newAgentStop(env), newAgentUninstall(env), newAgentService(env))
}

func newAgentRun(env Env) *cobra.Command {
	var f agentFlags
	var plain bool
	cmd := f.add(&cobra.Command{
		Use:   "run",
		Short: "Run the agent until it is stopped",
		Long: `Runs the agent until it is stopped. On a terminal it shows below its log what runs now
and what ended last; --plain, NO_COLOR or TERM=dumb leave that out.`,
		Example: "  allod agent run",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := cmd.Flags().GetBool("json")
			if err != nil {
				return err
			}
			out := newConsole(env, plain || asJSON)
			c, err := f.agentConfig(env, out.log)
			if err != nil {
				return err
			}
			a, err := control.OpenOwn(cmd.Context(), c)
			if err != nil {
				return err
			}
			defer a.Close()
			return serveAgent(cmd.Context(), env, c, a, out)
		},
	})
	cmd.Flags().BoolVar(&plain, "plain", false, plainUsage)
	return cmd
}

const plainUsage = "write a log and nothing else, on a terminal too"

// serveAgent runs an agent with its admin socket.
func serveAgent(ctx context.Context, env Env, c runner.Config, a *runner.Agent, out console) error {
	stop, err := serveSocket(ctx, c, a, out.log)
	if err != nil {
		return err
	}
	defer stop()
	warnRoot(env.Err)
	return out.run(ctx, a)
}

// serveSocket answers the owner's commands until stop is called.
func serveSocket(ctx context.Context, c runner.Config, a *runner.Agent, log *slog.Logger) (stop func(), err error) {
	numbers := prometheus.NewRegistry()
	numbers.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	admin, err := httpd.NewAdmin(c.Home, func(context.Context) error { _, err := a.Status(); return err },
		numbers, log, control.Serve(control.Local(a)))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := admin.Run(ctx); err != nil {
			log.Error("the admin socket ended", "error", err.Error())
		}
	}()
	return func() { cancel(); <-ended }, nil
}

func warnRoot(w io.Writer) {
	if os.Geteuid() == 0 {
		fmt.Fprintln(w, "Warning: "+rootWarning)
	}
}

const rootWarning = "the agent runs as root and need not. Run it as an ordinary user; backends that are programs will refuse to start as root."

func newConnect(env Env) *cobra.Command {
	var f agentFlags
	var name, origin string
	var pairOnly, plain bool
	cmd := f.add(&cobra.Command{
		Use:   "connect URL",
		Short: "Pair this machine with a site by a short code, then run the agent",
		Long: `Asks the site for a short code and shows it with this machine's fingerprint. Type the
code in the app, where you are signed in, and compare the fingerprint there: then
the machine works for you, and for nobody else. If an agent runs already, it takes
the pairing over; else this command becomes the agent.`,
		Example: "  allod connect https://app.example",
		Args:    oneArg("Give the address of one site, as in https://app.example."),
	})
	cmd.Flags().StringVar(&name, "name", "", "how you tell this machine apart; by default its saved name, or user@host")
	cmd.Flags().StringVar(&origin, "verification-origin", "", "another site that may approve, where the app sends you to one you know")
	cmd.Flags().BoolVar(&pairOnly, "pair-only", false, "pair and stop, without running the agent")
	cmd.Flags().BoolVar(&plain, "plain", false, plainUsage)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p := runner.Pairing{Name: name, Version: env.Version}
		var err error
		if p.Server, err = client.ParseServer(args[0]); err != nil {
			return err
		}
		if origin != "" {
			if p.Origin, err = client.ParseServer(origin); err != nil {
				return err
			}
		}
		if name != "" {
			if err := home.CheckLabel(name); err != nil {
				return err
			}
		}
		asJSON, err := cmd.Flags().GetBool("json")
		if err != nil {
			return err
		}
		return connect(cmd.Context(), env, f, p, pairOnly, plain, asJSON)
	}
	return cmd
}

// connect pairs, through the running agent or as the agent to be.
func connect(ctx context.Context, env Env, f agentFlags, p runner.Pairing, pairOnly, plain, asJSON bool) error {
	out := newConsole(env, plain || asJSON)
	c, err := f.agentConfig(env, out.log)
	if err != nil {
		return err
	}
	agent, own, done, err := control.Open(ctx, c)
	if err != nil {
		return err
	}
	defer done()
	if own != nil {
		// The owner's other commands work while this one waits.
		stop, err := serveSocket(ctx, c, own, out.log)
		if err != nil {
			return err
		}
		defer stop()
	}
	if p.Server.Plain() {
		fmt.Fprintln(env.Err, "Warning: this site is reached in plain HTTP over your network. What is asked and answered stays sealed, but others on it can see that you ask, and hold it back.")
	}
	if p.Keys, err = home.LoadKeys(c.Home); err != nil {
		return err
	}
	progress(env, asJSON, "Asking the model servers on this machine.")
	if err := agent.Look(ctx); err != nil {
		return err
	}
	status, err := agent.Status(ctx)
	if err != nil {
		return err
	}
	p.Offers = status.Offers()
	if p.Name == "" {
		if p.Name = status.Name; p.Name == "" {
			p.Name = runner.DefaultName()
		}
	} else if err := agent.SetName(ctx, p.Name); err != nil {
		return err
	}
	if len(p.Offers) == 0 {
		fmt.Fprintln(env.Err, "No model answers on this machine yet. You can pair all the same; nothing is offered until one does. See allod agent backends.")
	}
	p.Show = func(code runner.Code) { showCode(env.Out, p, code, asJSON) }
	paired, err := runner.Pair(ctx, p)
	if err != nil {
		return err
	}
	if err := agent.Adopt(ctx, paired); err != nil {
		return err
	}
	public := slices.ContainsFunc(status.Backends, func(b runner.BackendStatus) bool { return b.Offer == ai.OfferPublic })
	showPaired(env.Out, paired, public, asJSON)
	if own == nil || pairOnly {
		return nil
	}
	warnRoot(env.Err)
	return out.run(ctx, own)
}

// word shows a text from outside as a part of one line, and no more of it than a
// line has room for.
func word(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return '\ufffd'
		}
		return r
	}, inert(text))
	if runes := []rune(text); len(runes) > maxWord {
		return string(runes[:maxWord]) + "…"
	}
	return text
}

const maxWord = 200

func showCode(w io.Writer, p runner.Pairing, c runner.Code, asJSON bool) {
	if asJSON {
		line, _ := json.Marshal(struct {
			URL         string `json:"verificationUrl"`
			Code        string `json:"userCode"`
			Fingerprint string `json:"fingerprint"`
			Seconds     int64  `json:"expiresInSeconds,omitzero"`
		}{c.URL, c.Code, c.Fingerprint.String(), int64(believed(c.For) / time.Second)})
		fmt.Fprintf(w, "%s\n", inertJSON(line))
		return
	}
	fmt.Fprintf(w, `To let this machine, %s, work for you at %s, open

  %s

and type the code

  %s

The app shows a fingerprint. It must be this one:

  %s

%s
`, word(p.Name), p.Server, word(c.URL), word(c.Code), c.Fingerprint, lasts(c.For))
}

// believed is how long a code lasts, or zero where the two clocks do not agree
// enough to know.
func believed(d time.Duration) time.Duration {
	if d < time.Second || d > 24*time.Hour {
		return 0
	}
	return d
}

func lasts(d time.Duration) string {
	if believed(d) == 0 {
		return "Waiting for you to approve it."
	}
	return "The code lasts " + d.Round(time.Second).String() + ". Waiting."
}

// showPaired says whom the machine works for. public is whether a backend is
// offered to anybody.
func showPaired(w io.Writer, p home.Pairing, public, asJSON bool) {
	if asJSON {
		sites := []ai.KeyID{}
		for id := range p.Sites {
			sites = append(sites, id)
		}
		line, _ := json.Marshal(struct {
			Server   string      `json:"server"`
			RunnerID ai.RunnerID `json:"runnerId"`
			Owner    ai.Owner    `json:"owner"`
			Sites    []ai.KeyID  `json:"sites"`
		}{p.Server, p.RunnerID, p.Owner, sites})
		fmt.Fprintf(w, "%s\n", inertJSON(line))
		return
	}
	who := string(p.Owner)
	if p.OwnerLabel != "" {
		who = p.OwnerLabel
	}
	alone := ", and for nobody else"
	if public {
		alone = ", and for whoever may ask there: see allod agent offer"
	}
	fmt.Fprintf(w, "\nPaired. This machine works for %s at %s%s.\nThe keys that were pinned:\n\n", word(who), p.Server, alone)
	for id := range p.Sites {
		fmt.Fprintf(w, "  %s\n", word(string(id)))
	}
	fmt.Fprintln(w)
}

func newAgentStatus(env Env) *cobra.Command {
	var f agentFlags
	return f.add(&cobra.Command{
		Use:     "status",
		Short:   "Show whom the agent works for, what it offers, and what is in the way",
		Example: "  allod agent status --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.withAgent(cmd.Context(), env, func(a control.Agent) error {
				s, err := a.Status(cmd.Context())
				if err != nil {
					return err
				}
				return printStatus(cmd, env, s)
			})
		},
	})
}

func writeStatus(w io.Writer, s runner.Status) error {
	var b strings.Builder
	state := "does not run"
	switch {
	case s.Running && s.Paused:
		state = "runs, paused"
	case s.Running:
		state = "runs"
	case s.Paused:
		state = "does not run, and is paused"
	}
	fmt.Fprintf(&b, "The agent %s (version %s).\nThis machine's fingerprint: %s\n", state, s.Version, s.Fingerprint)
	if s.Name != "" {
		fmt.Fprintf(&b, "Its name: %s\n", word(s.Name))
	}
	for _, r := range s.Servers {
		owner := string(r.Owner)
		if r.OwnerLabel != "" {
			owner = r.OwnerLabel
		}
		fmt.Fprintf(&b, "\n%s for %s: %s", r.Server, word(owner), r.State)
		if r.AnsweredSeconds != nil {
			fmt.Fprintf(&b, ", answered %s ago", age(*r.AnsweredSeconds))
		}
		if r.Protocol != "" {
			fmt.Fprintf(&b, ", protocol version %s", word(r.Protocol))
		}
		fmt.Fprintf(&b, "\n  %d running, %d results to hand in\n", r.JobsRunning, r.ResultsKept)
		details := map[string]runner.SiteStatus{}
		for _, s := range r.SiteDetails {
			details[string(s.Fingerprint)] = s
		}
		for _, id := range r.Sites {
			fmt.Fprintf(&b, "  site %s", word(id))
			if s := details[id]; s.Succeeds != "" {
				fmt.Fprintf(&b, ", succeeds %s since %s", word(string(s.Succeeds)), day(s.ApprovedAt))
			}
			b.WriteString("\n")
		}
	}
	if len(s.Backends) > 0 {
		b.WriteString("\n")
		backendLines(&b, s.Backends)
		wallLines(&b, s)
	}
	if s.Root {
		b.WriteString("\n! " + rootWarning + "\n")
	}
	for _, p := range s.Problems {
		fmt.Fprintf(&b, "\n! %s\n", inert(p))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func backendLines(b *strings.Builder, rows []runner.BackendStatus) {
	for _, r := range rows {
		fmt.Fprintf(b, "%s: %s", word(r.Name), r.State)
		switch r.State {
		case "ready", "failed":
			fmt.Fprintf(b, ", %s ago", age(r.AgeSeconds))
		}
		if r.Refusal != "" {
			fmt.Fprintf(b, " (%s)", r.Refusal)
		}
		if r.Model != "" {
			fmt.Fprintf(b, ", model %s", word(r.Model))
		}
		if at := r.BaseURL + r.Program; at != "" { // it has one of them
			fmt.Fprintf(b, "\n  %s at %s, %s, %s", r.ID, word(at), r.Cost, offered(r))
		}
		for i, k := range r.Kinds {
			if i == 0 {
				b.WriteString(", for ")
			} else {
				b.WriteString(" and ")
			}
			b.WriteString(string(k))
		}
		if r.Instead != "" {
			fmt.Fprintf(b, ", instead of %s (%s)", word(r.Instead), word(r.InsteadWhy))
		}
		if r.Untested {
			b.WriteString("; untested: Allod was not run against the real one")
		}
		b.WriteString("\n")
	}
}

// wallLines say what is around the backends that are programs, if there are any.
func wallLines(b *strings.Builder, s runner.Status) {
	switch {
	case !s.HasPrograms():
	case !s.Isolation.Enforced:
		fmt.Fprintf(b, "Programs run without walls (%s).\n", s.Isolation.Refusal)
	case len(s.Isolation.Open) == 0:
		b.WriteString("Programs run behind walls.\n")
	default:
		fmt.Fprintf(b, "Programs run behind walls. Open in this kernel: %s.\n", word(strings.Join(s.Isolation.Open, "; ")))
	}
}

// age is a number of seconds as people say it.
func age(seconds int64) string { return (time.Duration(seconds) * time.Second).String() }

func newAgentBackends(env Env) *cobra.Command {
	var f agentFlags
	var prove bool
	cmd := f.add(&cobra.Command{
		Use:   "backends",
		Short: "Show the models, and whether each was proved to work",
		Long: `Shows each backend with the model that is used. Ready means that a small real
generation passed, with its age. Backends that cost money are never tried unasked:
--prove has every one generate a little now. Ends with an error when none is ready.`,
		Example: "  allod agent backends --prove",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.withAgent(cmd.Context(), env, func(a control.Agent) error {
				asJSON, err := cmd.Flags().GetBool("json")
				if err != nil {
					return err
				}
				progress(env, asJSON, "Asking the model servers. A model that has to be loaded first takes a while.")
				failed := a.Look(cmd.Context())
				if prove {
					failed = a.Prove(cmd.Context())
				}
				s, err := a.Status(cmd.Context())
				if err != nil {
					return err
				}
				err = print(cmd, env, s.Backends, func(w io.Writer) error {
					var b strings.Builder
					backendLines(&b, s.Backends)
					wallLines(&b, s)
					_, err := io.WriteString(w, b.String())
					return err
				})
				if err == nil && len(s.Offers()) == 0 {
					err = runner.ErrNoModel
				}
				if failed != nil {
					return failed
				}
				return err
			})
		},
	})
	cmd.Flags().BoolVar(&prove, "prove", false, "have every model generate a little now, those that cost money too")
	return cmd
}

// doneReport is what a command that only changes something prints.
type doneReport struct {
	Done string `json:"done"`
}

func newAgentPause(env Env) *cobra.Command {
	var f agentFlags
	var release bool
	cmd := f.add(&cobra.Command{
		Use:     "pause",
		Short:   "Take no new work, also after a restart",
		Example: "  allod agent pause --release",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.change(cmd, env, "Paused. Let it go on: allod agent resume.", func(a control.Agent) error {
				return a.Pause(cmd.Context(), release)
			})
		},
	})
	cmd.Flags().BoolVar(&release, "release", false, "give back work in flight as well, instead of finishing it")
	return cmd
}

// change does one thing to the agent and says so.
func (f *agentFlags) change(cmd *cobra.Command, env Env, said string, do func(control.Agent) error) error {
	return f.withAgent(cmd.Context(), env, func(a control.Agent) error {
		if err := do(a); err != nil {
			return err
		}
		return say(cmd, env, said)
	})
}

// say prints what was done.
func say(cmd *cobra.Command, env Env, said string) error {
	return print(cmd, env, doneReport{said}, func(w io.Writer) error { _, err := fmt.Fprintln(w, said); return err })
}

func newAgentResume(env Env) *cobra.Command {
	var f agentFlags
	return f.add(&cobra.Command{
		Use:     "resume",
		Short:   "Take work again",
		Example: "  allod agent resume",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.change(cmd, env, "The agent takes work again when it runs.", func(a control.Agent) error { return a.Resume(cmd.Context()) })
		},
	})
}

func newAgentName(env Env) *cobra.Command {
	var f agentFlags
	return f.add(&cobra.Command{
		Use:     "name [NAME]",
		Short:   "Show or change how this machine is called",
		Long:    "Shows this machine's name, or changes it. Sites learn it when the machine is paired with them.",
		Example: "  allod agent name \"the desk in the study\"",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return ErrUsage.With("Put a name of several words in quotes.")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return f.change(cmd, env, "Named.", func(a control.Agent) error { return a.SetName(cmd.Context(), args[0]) })
			}
			return f.withAgent(cmd.Context(), env, func(a control.Agent) error {
				s, err := a.Status(cmd.Context())
				if err != nil {
					return err
				}
				name := s.Name
				if name == "" {
					name = runner.DefaultName()
				}
				return print(cmd, env, struct {
					Name string `json:"name"`
				}{name}, func(w io.Writer) error { _, err := fmt.Fprintln(w, word(name)); return err })
			})
		},
	})
}

func newAgentForget(env Env) *cobra.Command {
	var f agentFlags
	return f.add(&cobra.Command{
		Use:   "forget URL",
		Short: "Stop working for a site and remove its pairing",
		Long: `Gives back what is under way for the site and removes the pairing, its pinned keys
and results that are not handed in yet. The site keeps its own record: revoke the
machine in the app as well. What ran stays in the log.`,
		Example: "  allod agent forget https://app.example",
		Args:    oneArg("Give the address of one site, as allod agent status shows it."),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.change(cmd, env, "Forgotten. Revoke this machine in the app as well.", func(a control.Agent) error {
				return a.Forget(cmd.Context(), args[0])
			})
		},
	})
}

// whyReport is what allod agent why says.
type whyReport struct {
	// Problems are what is in the way of serving, without a job.
	Problems []string `json:"problems,omitzero"`
	// Lines are what the log says of a job.
	Lines []ingress.Line `json:"lines,omitzero"`
}

func newAgentWhy(env Env) *cobra.Command {
	var f agentFlags
	return f.add(&cobra.Command{
		Use:     "why [JOB]",
		Short:   "Say why nothing is served, or what became of a job",
		Example: "  allod agent why\n  allod agent why job_01H8",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return ErrUsage.With("Give the id of one job, or none.")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				dir, err := home.Dir()
				if err != nil {
					return err
				}
				lines, err := runner.Why(dir, ai.JobID(args[0]))
				if err != nil {
					return err
				}
				if len(lines) == 0 {
					return ErrNoTrace
				}
				return print(cmd, env, whyReport{Lines: lines}, func(w io.Writer) error { return writeWhy(w, lines) })
			}
			return f.withAgent(cmd.Context(), env, func(a control.Agent) error {
				s, err := a.Status(cmd.Context())
				if err != nil {
					return err
				}
				return print(cmd, env, whyReport{Problems: s.Problems}, func(w io.Writer) error {
					text := "Nothing is in the way.\n"
					if len(s.Problems) > 0 {
						text = inert(strings.Join(s.Problems, "\n")) + "\n"
					}
					_, err := io.WriteString(w, text)
					return err
				})
			})
		},
	})
}

// ErrNoTrace refuses to say anything about a job that is not in the log.
var ErrNoTrace = refusal.NewKind("job-not-in-log", 404,
	"This machine's log has nothing about a job of this id: it was never granted to this machine, or its lines are older than the log.",
	"Ask the app's own allod why, or look at allod agent log for the ids this machine knows.")

func writeWhy(w io.Writer, lines []ingress.Line) error {
	if err := writeLog(w, lines); err != nil {
		return err
	}
	for _, l := range lines {
		if k := runner.Explain(l.Detail); k != nil {
			_, err := fmt.Fprintf(w, "\n%s: %s\n%s\n", k.Name(), k.Meaning(), k.WayOut())
			return err
		}
	}
	for _, l := range lines {
		if l.Instead == (ingress.Instead{}) {
			continue
		}
		text := fmt.Sprintf("\nThe first choice was model %s on %s, and it did not run: %s.\n", word(l.Instead.Model), word(l.Instead.Service), word(l.Instead.Why))
		if k := runner.Explain(l.Instead.Why); k != nil {
			text += k.Meaning() + "\n" + k.WayOut() + "\n"
		}
		_, err := io.WriteString(w, text)
		return err
	}
	return nil
}

// oneArg wants exactly one word behind a command.
func oneArg(need string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return ErrUsage.With(need)
		}
		return nil
	}
}
