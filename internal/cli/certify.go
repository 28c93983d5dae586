package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/allodhq/allod/certify"
)

func newCertify(env Env) *cobra.Command {
	var keyFile string
	var strict bool
	var c certify.Config
	cmd := &cobra.Command{
		Use:   "certify URL",
		Short: "Test whether a site keeps the AI contract, from outside",
		Long: `Plays the app and its users' devices against a site that runs, honest ones and others,
and says of each MUST of the AI contract whether what came back keeps it. What needs a
short clock is not proved on a site with long ones: start one for the test with
--lease 2s --liveness 2s --pair-ttl 2s --limits off. docs/certify.md lists the checks.

It makes jobs and devices under names of its own, and takes them back at the end. Use
it on a site that nobody depends on, and allod certify audit on one in use.`,
		Example: "  allod certify http://127.0.0.1:8080 --app-key-file /var/lib/allod/app-key\n" +
			"  allod certify http://127.0.0.1:8080 --app-key-file app-key --only A18,A19 --json",
		Args: oneArg("Give the address of one site, as in http://127.0.0.1:8080."),
		RunE: func(cmd *cobra.Command, args []string) error {
			if keyFile == "" {
				return ErrUsage.With("The flag --app-key-file is needed.")
			}
			if c.MaxWait <= 0 {
				return ErrUsage.With("The flag --max-wait takes a positive time, as 15s.")
			}
			k, err := readAppKey(keyFile)
			if err != nil {
				return err
			}
			c.Server = args[0]
			if c.App, err = certify.AllodApp(c.Server, k.Text()); err != nil {
				return err
			}
			r, err := certify.Run(cmd.Context(), c)
			if err != nil {
				return err
			}
			return printCertified(cmd, env, r, strict)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&keyFile, "app-key-file", "", "a file with an app key of the site that may do everything")
	fl.StringSliceVar(&c.Only, "only", nil, "run these checks only, by their ids")
	fl.StringSliceVar(&c.Versions, "protocol", nil, "test these protocol versions only; by default all that the site names")
	fl.DurationVar(&c.MaxWait, "max-wait", certify.DefaultMaxWait, "the longest wait for a clock of the site")
	fl.BoolVar(&strict, "strict", false, "end with an error also when a check was not proved")
	cmd.AddCommand(newCertifyAudit(env))
	return cmd
}

func newCertifyAudit(env Env) *cobra.Command {
	var c certify.AuditConfig
	cmd := &cobra.Command{
		Use:   "audit URL",
		Short: "Look at a server as a stranger who has nothing but its address",
		Long: `Sends some two hundred requests, one after the other, as anybody on the network can,
and says what they were answered. It writes nothing, so it may be pointed at a server in
use. What it cannot see does not pass. With --pair it also starts one pairing, which the
server keeps until its code ends.`,
		Example: "  allod certify audit https://app.example",
		Args:    oneArg("Give the address of one server, as in https://app.example."),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Server = args[0]
			r, err := certify.Audit(cmd.Context(), c)
			if err != nil {
				return err
			}
			return printCertified(cmd, env, r, true)
		},
	}
	cmd.Flags().BoolVar(&c.Pair, "pair", false, "start one pairing, to see what it tells and where people approve")
	return cmd
}

func printCertified(cmd *cobra.Command, env Env, r certify.Report, strict bool) error {
	if err := print(cmd, env, r, func(w io.Writer) error { return writeCertified(w, r) }); err != nil {
		return err
	}
	return r.Err(strict)
}

// mark is an outcome in a table.
func mark(o certify.Outcome) string {
	switch o {
	case certify.Passed:
		return "passed"
	case certify.Failed:
		return "FAILED"
	}
	return "not proved"
}

// writeCertified writes a table, what is wrong with its evidence, and what was not
// seen.
func writeCertified(out io.Writer, r certify.Report) error {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "check\t")
	// An audit has one column, whatever the server speaks.
	versions := r.Versions
	if len(r.Results) > 0 && r.Results[0].Version == "" {
		versions = []string{""}
		fmt.Fprint(w, "outcome\t")
	} else {
		for _, v := range versions {
			fmt.Fprintf(w, "version %s\t", v)
		}
	}
	fmt.Fprintln(w, "what")
	by := map[[2]string]certify.Result{}
	for _, one := range r.Results {
		by[[2]string{one.ID, one.Version}] = one
	}
	for _, one := range r.Results {
		if one.Version != versions[0] {
			continue
		}
		fmt.Fprintf(w, "%s\t", one.ID)
		for _, v := range versions {
			fmt.Fprintf(w, "%s\t", mark(by[[2]string{one.ID, v}].Outcome))
		}
		fmt.Fprintln(w, one.Title)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	name := func(one certify.Result) string {
		if one.Version == "" {
			return one.ID
		}
		return fmt.Sprintf("%s in version %s", one.ID, one.Version)
	}
	for _, one := range r.Results {
		if one.Outcome != certify.Failed {
			continue
		}
		fmt.Fprintf(&b, "\n%s FAILED: %s.\n", name(one), one.Why)
		if len(one.Musts) > 0 {
			fmt.Fprintf(&b, "  It is about %s. What was sent, and what came back:\n", strings.Join(one.Musts, ", "))
		}
		for _, step := range one.Evidence {
			fmt.Fprintf(&b, "    %s -> %s", step.Sent, step.Got)
			if step.Times > 1 {
				fmt.Fprintf(&b, ", %d times", step.Times)
			}
			b.WriteByte('\n')
		}
	}
	told := map[[2]string]bool{}
	for _, one := range r.Results {
		if why := [2]string{one.ID, one.Why}; one.Outcome == certify.NotProved && !told[why] {
			told[why] = true // and not once more for the next version
			fmt.Fprintf(&b, "\n%s is not proved: %s.\n", one.ID, one.Why)
		}
	}
	if len(r.Untested) > 0 {
		fmt.Fprintf(&b, "\nThe server also names versions that this program does not speak: %s.\n", strings.Join(r.Untested, ", "))
	}
	var reasons []string
	musts := map[string][]string{}
	for _, u := range r.Unprovable {
		if musts[u.Why] == nil {
			reasons = append(reasons, u.Why)
		}
		musts[u.Why] = append(musts[u.Why], u.Must)
	}
	for i, why := range reasons {
		if i == 0 {
			b.WriteString("\nNot provable from outside of a server:\n")
		}
		fmt.Fprintf(&b, "  %s\n    %s\n", why, strings.Join(musts[why], "\n    "))
	}
	fmt.Fprintf(&b, "\n%d passed, %d failed, %d not proved.\n", r.Passed, r.Failed, r.NotProved)
	_, err := io.WriteString(out, inert(b.String()))
	return err
}
