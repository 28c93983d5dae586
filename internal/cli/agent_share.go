package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/configfile"
	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/allowlist"
	"github.com/allodhq/allod/internal/runner/control"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/internal/runner/sharing"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

func newAgentAllow(env Env) *cobra.Command {
	var f agentFlags
	var yes, list bool
	cmd := f.add(&cobra.Command{
		Use:   "allow URL USER [NOTE]",
		Short: "Take the jobs of somebody else, by site and user",
		Long: `Puts a user of a paired site on the list of people whose jobs this machine takes
besides yours. The list is empty at first. A person on it reaches the backends that
you offer to named people (allod agent offer), within your limits. You can read
what they ask, since it runs on your machine. Without words it lists them.`,
		Example: "  allod agent allow https://app.example kim \"Kim from work\"\n  allod agent allow --list",
		Args: func(_ *cobra.Command, args []string) error {
			if n := len(args); n == 1 || n > 3 {
				return ErrUsage.With("Give the site's address, the user as the site names them, and perhaps a note in quotes.")
			}
			return nil
		},
	})
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&list, "list", false, "list the people")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if list && len(args) > 0 {
			return ErrUsage.With("The flag --list takes no words.")
		}
		return f.withAgent(cmd.Context(), env, func(a control.Agent) error {
			if len(args) == 0 {
				return listAllowed(cmd, env, a)
			}
			note := ""
			if len(args) == 3 {
				note = args[2]
			}
			question := fmt.Sprintf("Take jobs of %s at %s on this machine, where you could read them?", word(args[1]), word(args[0]))
			if err := confirm(env, yes, question); err != nil {
				return err
			}
			if err := a.Allow(cmd.Context(), args[0], ai.Owner(args[1]), note); err != nil {
				return err
			}
			said := "Allowed."
			s, err := a.Status(cmd.Context())
			if err == nil && !slices.ContainsFunc(s.Backends, func(b runner.BackendStatus) bool { return b.Offer == ai.OfferNamed || b.Offer == ai.OfferPublic }) {
				said += " No backend is offered to others yet: allod agent offer BACKEND named."
			}
			return say(cmd, env, said)
		})
	}
	return cmd
}

func listAllowed(cmd *cobra.Command, env Env, a control.Agent) error {
	people, err := a.Allowed(cmd.Context())
	if err != nil {
		return err
	}
	if people == nil {
		people = []allowlist.Entry{}
	}
	return print(cmd, env, people, func(w io.Writer) error {
		var b strings.Builder
		for _, p := range people {
			fmt.Fprintf(&b, "%s at %s, since %s", word(string(p.Owner)), word(p.Server), p.AddedAt.Time().Local().Format(time.DateOnly))
			if p.Note != "" {
				fmt.Fprintf(&b, " (%s)", word(p.Note))
			}
			b.WriteString("\n")
		}
		if len(people) == 0 {
			b.WriteString("Nobody. This machine works for you alone.\n")
		}
		_, err := io.WriteString(w, b.String())
		return err
	})
}

func newAgentDisallow(env Env) *cobra.Command {
	var f agentFlags
	return f.add(&cobra.Command{
		Use:     "disallow URL USER",
		Short:   "Take no more jobs of somebody, and give back those that run",
		Example: "  allod agent disallow https://app.example kim",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return ErrUsage.With("Give the site's address, and the user as the site names them.")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.change(cmd, env, "No more jobs of theirs are taken.", func(a control.Agent) error {
				return a.Disallow(cmd.Context(), args[0], ai.Owner(args[1]))
			})
		},
	})
}

func newAgentOffer(env Env) *cobra.Command {
	var f agentFlags
	var yes bool
	var ceiling, price int64
	cmd := f.add(&cobra.Command{
		Use:   "offer [BACKEND self|named|public]",
		Short: "Show or change who may use a backend",
		Long: `Offers a backend to you alone (self), also to the people on your list (named), or to
whoever may ask at a paired site (public). A personal subscription is yours alone
and cannot be offered. A backend that costs money is offered with a ceiling on what
others may cost in 24 hours, and only after you agreed to pay. Offering it to fewer
withdraws that. Without words it shows what is offered.

The wish is written into the agent's section of the configuration file.`,
		Example: "  allod agent offer\n  allod agent offer ollama named\n  allod agent offer openai named --cap 500",
		Args: func(_ *cobra.Command, args []string) error {
			if n := len(args); n != 0 && n != 2 {
				return ErrUsage.With("Give a backend's name and self, named or public; or nothing.")
			}
			return nil
		},
	})
	fl := cmd.Flags()
	fl.Int64Var(&ceiling, "cap", 0, "how many cents others may cost within 24 hours, for a backend that costs money")
	fl.Int64Var(&price, "price", 0, fmt.Sprintf("how many cents a million tokens cost (%d)", sharing.DefaultPrice))
	fl.BoolVar(&yes, "yes", false, "do not ask")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return f.withAgent(cmd.Context(), env, func(a control.Agent) error {
			asJSON, err := cmd.Flags().GetBool("json")
			if err != nil {
				return err
			}
			progress(env, asJSON, "Asking the model servers on this machine.")
			if err := a.Look(cmd.Context()); err != nil {
				return err
			}
			s, err := a.Status(cmd.Context())
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return listOffers(cmd, env, s)
			}
			scope := ai.OfferScope(args[1])
			if !slices.Contains(ai.OfferScopes(), scope) {
				return ErrUsage.With("A backend is offered to self, named or public.")
			}
			if bad := func(name string, most int64) bool {
				v, _ := cmd.Flags().GetInt64(name)
				return cmd.Flags().Changed(name) && (v < 1 || v > most)
			}; bad("cap", sharing.MaxCeiling) || bad("price", sharing.MaxPrice) {
				return ErrUsage.With("The flags --cap and --price take whole cents, at least 1.")
			}
			terms, question, err := widened(s.Backends, args[0], scope, ceiling, price)
			if err != nil {
				return err
			}
			if question != "" {
				if err := confirm(env, yes, question); err != nil {
					return err
				}
			}
			if err := a.SetTerms(cmd.Context(), args[0], terms); err != nil {
				return err
			}
			said := map[ai.OfferScope]string{
				ai.OfferSelf:   "It is offered to you alone.",
				ai.OfferNamed:  "It is offered to the people on your list: allod agent allow --list.",
				ai.OfferPublic: "It is offered to whoever may ask at a site that this machine is paired with.",
			}[scope]
			return say(cmd, env, said)
		})
	}
	return cmd
}

// widened are the terms that a backend is to be offered on, and what its owner is
// asked before; empty where nothing is to be asked. Zero leaves the ceiling and
// the price as they are. It returns runner.ErrNoBackend, match.ErrSubscription and
// sharing.ErrNoCeiling.
func widened(backends []runner.BackendStatus, name string, scope ai.OfferScope, ceiling, price int64) (sharing.Terms, string, error) {
	var cost backend.Cost
	terms := sharing.Terms{Scope: scope}
	for _, b := range backends {
		if b.Name != name {
			continue
		}
		// The costliest of its models counts.
		if at := slices.Index(backend.Costs(), b.Cost); cost == "" || at > slices.Index(backend.Costs(), cost) {
			cost = b.Cost
		}
		terms.Ceiling, terms.Price = b.CapCents, b.PriceCents
	}
	if ceiling > 0 {
		terms.Ceiling = ceiling
	}
	if price > 0 {
		terms.Price = price
	}
	switch {
	case !slices.ContainsFunc(backends, func(b runner.BackendStatus) bool { return b.Name == name }):
		return sharing.Terms{}, "", runner.ErrNoBackend
	case scope == ai.OfferSelf:
		return terms, "", nil
	case cost == backend.Free:
		if scope == ai.OfferPublic {
			return terms, "Whoever may ask at a paired site could have this machine work for them, within your limits. Offer it?", nil
		}
		return terms, "", nil
	case cost == backend.Metered && terms.Ceiling == 0:
		return sharing.Terms{}, "", sharing.ErrNoCeiling
	case cost == backend.Metered:
		terms.Acknowledged = true
		who := "the people on your list"
		if scope == ai.OfferPublic {
			who = "whoever may ask at a paired site"
		}
		return terms, fmt.Sprintf("This costs you money: jobs of %s may cost up to %s in any 24 hours, at %s for a million tokens. Pay for them?",
			who, dollars(terms.Ceiling), dollars(terms.PerMillion())), nil
	}
	return sharing.Terms{}, "", match.ErrSubscription
}

// dollars is a sum in cents as people say it.
func dollars(cents int64) string { return fmt.Sprintf("$%d.%02d", cents/100, cents%100) }

func listOffers(cmd *cobra.Command, env Env, s runner.Status) error {
	return print(cmd, env, s.Backends, func(w io.Writer) error {
		var b strings.Builder
		for _, r := range s.Backends {
			fmt.Fprintf(&b, "%s", word(r.Name))
			if r.Model != "" {
				fmt.Fprintf(&b, ", model %s", word(r.Model))
			}
			fmt.Fprintf(&b, ": %s\n", offered(r))
		}
		if len(s.Backends) == 0 {
			b.WriteString("There is no backend. See allod agent backends.\n")
		}
		_, err := io.WriteString(w, b.String())
		return err
	})
}

// offered says to whom a backend is offered and for what.
func offered(r runner.BackendStatus) string {
	text := "offered to " + map[ai.OfferScope]string{ai.OfferNamed: "named people", ai.OfferPublic: "anybody"}[r.Offer]
	if r.Offer != ai.OfferNamed && r.Offer != ai.OfferPublic {
		return "yours alone"
	}
	if r.Cost == backend.Metered {
		text += fmt.Sprintf(", up to %s in 24 hours", dollars(r.CapCents))
	}
	return text
}

// saveTerms writes how far a backend is offered into the agent's section of the
// file at path. A section that names no backends gets all that were found, so that
// none of them is lost by naming one.
func saveTerms(path string) func(backends map[string]settings.Backend, name string) error {
	return func(backends map[string]settings.Backend, name string) error {
		var named bool
		if exists(path) {
			m, err := readMachine(path)
			if err != nil {
				return err
			}
			if m.Agent != nil {
				s, err := m.Agent.Settings()
				if err != nil {
					return err
				}
				named = s.Backends != nil
			}
		}
		at := []string{"agent", "backends"}
		var changes []configfile.Change
		if !named {
			rows := map[string]agentBackend{}
			for n, b := range backends {
				rows[n] = backendMeaning(b)
			}
			changes = append(changes, configfile.Change{Path: at, Value: rows})
		} else {
			row := backendMeaning(backends[name])
			at = append(at, name)
			changes = append(changes, configfile.Change{Path: append(slices.Clone(at), "offer"), Value: row.Offer})
			spend := configfile.Change{Path: append(slices.Clone(at), "spend")}
			if row.Spend != nil {
				spend.Value = row.Spend
			}
			changes = append(changes, spend)
		}
		return configfile.Edit(path, changes, func(content []byte) error {
			m, err := configfile.ReadBytes(content, machineShape)
			if err == nil && m.Agent != nil {
				_, err = m.Agent.Settings()
			}
			return err
		})
	}
}
