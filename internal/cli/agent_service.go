package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/control"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/service"
	"github.com/allodhq/allod/refusal"
)

// installReport is what allod agent install says.
type installReport struct {
	service.Report
	// NotCarried are variables that are set here and that the service will not
	// have.
	NotCarried []string `json:"notCarried"`
	// Environment is the file that gives them to it.
	Environment string `json:"environmentFile"`
}

func newAgentInstall(env Env) *cobra.Command {
	var f agentFlags
	return f.add(&cobra.Command{
		Use:   "install",
		Short: "Have this system start the agent, now and after every restart",
		Long: `Defines the agent as a service of yours: for systemd, launchd or the Task Scheduler.
It uses this folder, this configuration and this program, so run it by the program
that is to stay. Running it again brings the definition up to date. No secret goes
into the definition: what the service is to have in its environment, API keys above
all, goes into service.env in the agent's folder.`,
		Example: "  allod agent install\n  allod agent start",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := service.New()
			if err != nil {
				return err
			}
			r, err := install(cmd.Context(), env, f, m)
			if err != nil {
				return err
			}
			return print(cmd, env, r, func(w io.Writer) error { return writeInstall(w, r) })
		},
	})
}

// install defines the agent as it would run here now.
func install(ctx context.Context, env Env, f agentFlags, m *service.Manager) (installReport, error) {
	if os.Geteuid() == 0 {
		return installReport{}, service.ErrRoot // before root's own folder is made
	}
	spec := service.Spec{Path: service.SafePath(os.Getenv("PATH"))}
	var err error
	if spec.Program, err = os.Executable(); err != nil {
		return installReport{}, service.ErrProgram.Because(err)
	}
	if err := service.CheckProgram(spec.Program); err != nil {
		return installReport{}, err // before anything is made
	}
	if f.config != "" {
		if spec.Config, err = filepath.Abs(f.config); err != nil {
			return installReport{}, service.ErrPath.Because(err)
		}
	}
	c, err := f.agentConfig(env, slog.New(slog.DiscardHandler))
	if err != nil {
		return installReport{}, err
	}
	spec.Home = c.Home
	if err := paired(ctx, c); err != nil {
		return installReport{}, err
	}
	given, err := service.ReadEnvironment(c.Home)
	if err != nil {
		return installReport{}, err
	}
	r := installReport{NotCarried: []string{}, Environment: filepath.Join(c.Home, service.EnvironmentFile)}
	if r.Report, err = m.Install(ctx, spec); err != nil {
		return installReport{}, err
	}
	for _, name := range wanted(c) {
		_, has := given[name]
		if !has && os.Getenv(name) != "" {
			r.NotCarried = append(r.NotCarried, name)
		}
	}
	if service.Downloaded(spec.Program) {
		r.Notes = append(r.Notes, "This program stands in a folder of downloads. When that is tidied up, the service breaks; better move the program and install again.")
	}
	return r, nil
}

// paired returns runner.ErrNoPairings for an agent that would end at once.
func paired(ctx context.Context, c runner.Config) error {
	a, _, done, err := control.Open(ctx, c)
	if err != nil {
		return err
	}
	defer done()
	s, err := a.Status(ctx)
	if err == nil && len(s.Servers) == 0 {
		err = runner.ErrNoPairings
	}
	return err
}

// wanted are the variables that the agent looks at and that a service does not
// get by itself: those with API keys, and how the network is reached.
func wanted(c runner.Config) []string {
	names := map[string]bool{}
	for _, b := range c.Settings.Backends {
		if b.KeyEnv != "" {
			names[b.KeyEnv] = true
		}
	}
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"} {
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

func writeInstall(w io.Writer, r installReport) error {
	var b strings.Builder
	did := map[string]string{"new": "Installed. This was written:", "replaced": "Installed anew. This was written in the place of what was there:", "unchanged": "Installed already. Nothing was changed:"}[r.Was]
	fmt.Fprintf(&b, "%s\n\n  %s\n", did, word(r.File))
	for line := range strings.Lines(r.Definition) {
		fmt.Fprintf(&b, "  | %s\n", strings.TrimRight(inert(line), "\r\n"))
	}
	b.WriteString("\n")
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "%s\n", n)
	}
	if len(r.NotCarried) > 0 {
		fmt.Fprintf(&b, "\nSet here, and not for the service: %s.\nPut each into %s, as NAME=value, for you alone (chmod 600).\n", word(strings.Join(r.NotCarried, ", ")), word(r.Environment))
	}
	b.WriteString("\nStart it now: allod agent start. To undo this: allod agent uninstall.\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func newAgentUninstall(env Env) *cobra.Command {
	return &cobra.Command{
		Use:   "uninstall",
		Short: "Stop the service and take its definition away",
		Long: `Stops the agent that runs as a service and takes the definition away. Its folder
stays, with its keys, pairings and log, and allod agent run works as before.`,
		Example: "  allod agent uninstall",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := service.New()
			if err != nil {
				return err
			}
			r, err := m.Uninstall(cmd.Context())
			if err != nil {
				return err
			}
			return print(cmd, env, r, func(w io.Writer) error {
				var b strings.Builder
				fmt.Fprintf(&b, "The service is stopped and this file is gone: %s\nThe agent's folder stays as it is.\n", word(r.File))
				for _, n := range r.Notes {
					fmt.Fprintf(&b, "%s\n", n)
				}
				_, err := io.WriteString(w, b.String())
				return err
			})
		},
	}
}

func newAgentStart(env Env) *cobra.Command {
	return &cobra.Command{
		Use:     "start",
		Short:   "Start the installed service, and wait until its agent answers",
		Example: "  allod agent start",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return order(cmd, env, (*service.Manager).Start, "The agent runs as a service.", "It runs already.")
		},
	}
}

func newAgentStop(env Env) *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Stop the service, and wait until its agent is gone",
		Long: `Stops the service until allod agent start, or until the machine or your session
starts again. Work under way is given back. To stop for longer: allod agent pause, or
allod agent uninstall.`,
		Example: "  allod agent stop",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return order(cmd, env, (*service.Manager).Stop, "The service is stopped.", "It did not run.")
		},
	}
}

// order has the manager start or stop the service.
func order(cmd *cobra.Command, env Env, do func(*service.Manager, context.Context) (bool, error), did, was string) error {
	m, err := service.New()
	if err != nil {
		return err
	}
	already, err := do(m, cmd.Context())
	if err != nil {
		return err
	}
	if already {
		did = was
	}
	return say(cmd, env, did)
}

// serviceReport is what allod agent status says of the service.
type serviceReport struct {
	service.Status
	// Refusal names why nothing is known, where that is so.
	Refusal string `json:"refusal,omitzero"`
}

// statusReport is what allod agent status says.
type statusReport struct {
	runner.Status
	Service serviceReport `json:"service"`
}

// printStatus shows the agent and its service.
func printStatus(cmd *cobra.Command, env Env, s runner.Status) error {
	r := statusReport{s, serviceStatus(cmd.Context())}
	return print(cmd, env, r, func(w io.Writer) error {
		if err := writeStatus(w, s); err != nil {
			return err
		}
		here, err := home.Dir()
		if err != nil {
			return err
		}
		return writeServiceStatus(w, r.Service, s.Running, here)
	})
}

// serviceStatus looks at the service. What is in the way is a part of the answer.
func serviceStatus(ctx context.Context) serviceReport {
	m, err := service.New()
	if err != nil {
		return serviceReport{Refusal: refusal.From(err).Kind().Name()}
	}
	s, err := m.Status(ctx)
	if err != nil {
		return serviceReport{Status: s, Refusal: refusal.From(err).Kind().Name()}
	}
	return serviceReport{Status: s}
}

// writeServiceStatus says how the service is. here is the agent's folder.
func writeServiceStatus(w io.Writer, r serviceReport, running bool, here string) error {
	var b strings.Builder
	switch r.State {
	case service.NotInstalled:
		b.WriteString("The service: not installed. To have it start by itself: allod agent install\n")
	case service.Running:
		b.WriteString("The service: running.\n")
	case service.Restarting:
		b.WriteString("The service: installed, and about to be started again after a failure.\n")
	case service.Failed:
		b.WriteString("The service: installed, not running, after a failure. Once it is mended: allod agent start\n")
	case service.Stopped:
		b.WriteString("The service: installed, not running. Start it: allod agent start\n")
	default:
		fmt.Fprintf(&b, "The service: not known (%s).\n", r.Refusal)
	}
	other := r.Spec.Home != "" && r.Spec.Home != here
	if other {
		fmt.Fprintf(&b, "  It is for another folder: %s\n", word(r.Spec.Home))
	}
	if running && !other && r.State != "" && r.State != service.NotInstalled && r.State != service.Running {
		b.WriteString("  The agent that runs was started in another way.\n")
	}
	if r.Log != "" {
		fmt.Fprintf(&b, "  Its log: %s\n", word(r.Log))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// maxServiceLog is how large the log of a service may be when the agent starts,
// in bytes, where the manager keeps no log of its own.
const maxServiceLog = 4 << 20

// newAgentService is what a service manager starts: allod agent run, in the
// environment that the definition and the agent's folder give.
func newAgentService(env Env) *cobra.Command {
	var spec service.Spec
	cmd := newAgentRun(env)
	cmd.Use = service.Command
	cmd.Short = "Run the agent as a service manager does"
	cmd.Long = "What a service manager starts: allod agent run, with what service.env in the agent's\nfolder puts into its environment."
	cmd.Example = "  allod agent service --home ~/.config/allod"
	cmd.Hidden = true
	cmd.Flags().StringVar(&spec.Home, service.FlagHome, "", "the agent's folder")
	cmd.Flags().StringVar(&spec.Path, service.FlagPath, "", "where other programs are looked for")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := serviceEnvironment(spec)
		if err == nil {
			err = run(cmd, args)
		}
		// launchd has no list of exit codes after which it does not start again.
		if err != nil && runtime.GOOS == "darwin" && service.EndsForGood(refusal.ExitCode(err)) {
			fmt.Fprintln(env.Err, refusal.Terminal(err))
			return nil
		}
		return err
	}
	return cmd
}

// serviceEnvironment makes this process's environment the service's.
func serviceEnvironment(spec service.Spec) error {
	if !filepath.IsAbs(spec.Home) {
		return ErrUsage.With("The flag --home takes a whole path.")
	}
	log := filepath.Join(spec.Home, service.LogFile)
	if info, err := os.Stat(log); err == nil && info.Mode().IsRegular() && info.Size() > maxServiceLog {
		_ = os.Truncate(log, 0) // or it grows on
	}
	vars, err := service.ReadEnvironment(spec.Home)
	if err != nil {
		return err
	}
	all := spec.Variables()
	maps.Copy(all, vars)
	for name, value := range all {
		if err := os.Setenv(name, value); err != nil {
			return service.ErrEnvironment.Because(err)
		}
	}
	return nil
}
