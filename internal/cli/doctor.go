package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/doctor"
	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/service"
	"github.com/allodhq/allod/refusal"
)

// doctorReport is what allod doctor says.
type doctorReport struct {
	// As says in whose place the probes were made, a sentence.
	As     string         `json:"as"`
	Probes []doctor.Probe `json:"probes"`
}

func newDoctor(env Env) *cobra.Command {
	var f agentFlags
	var hold time.Duration
	cmd := f.add(&cobra.Command{
		Use:   "doctor [URL]",
		Short: "Try everything that the agent needs, from where it stands",
		Long: `Looks at the agent's folder and disk, its models, its clock, and the way to each
paired site, or to one more whose address is given. Where the agent is installed as a
service, all is tried in the environment that the service has. It says what was tried,
what came back and what to do, and ends with an error if something does not work. No
model generates, and no work is taken.`,
		Example: "  allod doctor\n  allod doctor https://app.example",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return ErrUsage.With("Give the address of one site, or none.")
			}
			return nil
		},
	})
	cmd.Flags().DurationVar(&hold, "hold", doctor.Hold, "how long paired sites are asked to hold a request; 0 to leave that out")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if hold < 0 || hold > maxHold || hold != hold.Truncate(time.Second) {
			return ErrUsage.With("The flag --hold takes whole seconds, 0s to 60s.")
		}
		c := doctor.Config{Version: env.Version, Hold: hold}
		if len(args) == 1 {
			var err error
			if c.Site, err = client.ParseServer(args[0]); err != nil {
				return err
			}
		}
		asJSON, err := cmd.Flags().GetBool("json")
		if err != nil {
			return err
		}
		r, err := examine(cmd.Context(), env, f, c, asJSON)
		if err != nil {
			return err
		}
		if err := print(cmd, env, r, func(w io.Writer) error { return writeDoctor(w, r) }); err != nil {
			return err
		}
		for _, p := range r.Probes {
			if p.State == doctor.Failed {
				return doctor.ErrSick
			}
		}
		return nil
	}
	return cmd
}

// maxHold bounds what sites are asked for.
const maxHold = time.Minute

// examine makes the probes, as the service where there is one.
func examine(ctx context.Context, env Env, f agentFlags, c doctor.Config, asJSON bool) (doctorReport, error) {
	r := doctorReport{As: "As the agent would in this terminal: with your rights and its environment."}
	m, err := service.New()
	var s service.Status
	if err == nil {
		s, err = m.Status(ctx)
	}
	var program error
	if err == nil && s.State != service.NotInstalled {
		program = service.CheckProgram(s.Spec.Program)
		r.As, f.config = become(ctx, m, s.Spec, f.config)
	}
	r.Probes = append(r.Probes, doctor.OfService(s, err, program))
	warnRoot(env.Err)
	a, err := f.agentConfig(env, slog.New(slog.DiscardHandler))
	if err != nil {
		return r, err
	}
	c.Home, c.Settings = a.Home, a.Settings
	c.Running = service.Answers(ctx, c.Home)
	if c.Hold > 0 {
		progress(env, asJSON, "Sites are asked to hold a request, which takes "+c.Hold.String()+" at least where this machine is paired.")
	}
	r.Probes = append(r.Probes, doctor.Examine(ctx, c)...)
	return r, ctx.Err()
}

// become takes on the environment of a service, where its folder is the one that
// is asked about, and says so.
func become(ctx context.Context, m *service.Manager, spec service.Spec, config string) (as, configOf string) {
	if home := os.Getenv("ALLOD_HOME"); home != "" && home != spec.Home || config != "" && config != spec.Config {
		return "As the agent would in this terminal, since the service has another folder or configuration.", config
	}
	vars, err := m.Environment(ctx, spec)
	if err != nil {
		return "As the agent would in this terminal: what the service has in its environment is not known (" + refusal.From(err).Kind().Name() + ").", spec.Config
	}
	os.Clearenv()
	for _, v := range vars {
		name, value, _ := strings.Cut(v, "=")
		_ = os.Setenv(name, value) // a name of the manager's that is none is not missed
	}
	return "As the service would: with your rights, its folder and its environment.", spec.Config
}

func writeDoctor(w io.Writer, r doctorReport) error {
	var b strings.Builder
	b.WriteString(r.As + "\n")
	about := ""
	for _, p := range r.Probes {
		if p.About != about {
			about = p.About
			fmt.Fprintf(&b, "\n%s\n", word(about))
		}
		mark := string(p.State)
		if p.State == doctor.Failed {
			mark = "FAILED"
		}
		fmt.Fprintf(&b, "  %-8s %s: %s %s\n", mark, p.Name, flat(p.Tried), flat(p.Came))
		if p.Do != "" {
			fmt.Fprintf(&b, "           %s\n", flat(p.Do))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// flat is a text of ours on one line, whatever stands in it.
func flat(text string) string {
	const most = 1000
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most])
	}
	return strings.NewReplacer("\n", "\ufffd", "\t", "\ufffd").Replace(inert(text))
}
