package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/control"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/wire/ai"
)

func newAgentSites(env Env) *cobra.Command {
	var f agentFlags
	return f.add(&cobra.Command{
		Use:   "sites",
		Short: "Show the sites that are served, and those that wait for approval",
		Long: `Shows each site with its fingerprint, when and how it was approved, and which key it
came after. A site that waits is served nothing: compare its fingerprint with whoever
runs it, then approve it with allod agent approve.`,
		Example: "  allod agent sites",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.withAgent(cmd.Context(), env, func(a control.Agent) error {
				list, err := a.Sites(cmd.Context())
				if err != nil {
					return err
				}
				return print(cmd, env, list, func(w io.Writer) error { return writeSites(w, list) })
			})
		},
	})
}

func writeSites(w io.Writer, list []runner.SiteStatus) error {
	var b strings.Builder
	if len(list) == 0 {
		b.WriteString("This machine is paired with no site. Pair it: allod connect URL.\n")
	}
	for i, s := range list {
		if i == 0 || list[i-1].Server != s.Server {
			if i > 0 {
				b.WriteString("\n")
			}
			fmt.Fprintf(&b, "%s\n", word(s.Server))
		}
		fmt.Fprintf(&b, "  %s %s\n", word(string(s.Fingerprint)), siteState(s))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// siteState says in half a sentence how a site stands.
func siteState(s runner.SiteStatus) string {
	var text string
	switch s.State {
	case runner.SitePending:
		return "waits for your approval since " + day(s.SeenAt) + ", and is served nothing"
	case runner.SiteRetiring:
		text = "counts until " + day(s.CountsUntil) + ", followed by " + word(string(s.SucceededBy)) + ", "
	case runner.SiteRetired:
		text = "counts no more since " + day(s.CountsUntil) + ", followed by " + word(string(s.SucceededBy)) + ", "
	}
	if s.Succeeds != "" {
		text += "succeeds " + word(string(s.Succeeds)) + " since " + day(s.ApprovedAt)
	} else {
		text += "approved by " + word(string(s.ApprovedBy)) + " " + day(s.ApprovedAt)
	}
	if s.ChangedAt != 0 {
		text += "; another key was shown under this name " + day(s.ChangedAt) + ", and refused"
	}
	return text
}

// day is a time as lists show it.
func day(at ai.Millis) string { return at.Time().Format(time.DateTime) + " UTC" }

func newAgentApprove(env Env) *cobra.Command {
	var f agentFlags
	var all, yes bool
	cmd := f.add(&cobra.Command{
		Use:   "approve FINGERPRINT|URL",
		Short: "Let a site be served that waits for approval",
		Long: `Lets a site be served, by its fingerprint, or by the address of the server where it
is the only one that waits. Compare the fingerprint with whoever runs the site before:
from then on the machine believes what is signed with that key. If the server offers
another key meanwhile than the one that is shown, nothing is approved.`,
		Example: "  allod agent approve BYOLLM-6BYQ-1TSM-Z0RK-DMQ1-G132-3GA0\n  allod agent approve --all",
		Args: func(_ *cobra.Command, args []string) error {
			if all == (len(args) > 0) || len(args) > 1 {
				return ErrUsage.With("Give the fingerprint of one site, or --all.")
			}
			return nil
		},
	})
	cmd.Flags().BoolVar(&all, "all", false, "approve every site that waits")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask; for use without a terminal")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return f.withAgent(cmd.Context(), env, func(a control.Agent) error {
			list, err := a.Sites(cmd.Context())
			if err != nil {
				return err
			}
			chosen, err := choose(list, strings.Join(args, ""))
			if err != nil {
				return err
			}
			if err := writeSites(env.Err, chosen); err != nil {
				return err
			}
			if err := confirm(env, yes, "Serve what is listed here?"); err != nil {
				return err
			}
			done := []runner.SiteStatus{}
			for _, s := range chosen {
				if err := a.Approve(cmd.Context(), s); err != nil {
					return err
				}
				done = append(done, s)
			}
			return print(cmd, env, done, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, "Approved. The agent serves what is offered under these keys.")
				return err
			})
		})
	}
	return cmd
}

// choose returns the sites that a word of the command line means, or all that wait
// for none. It returns runner.ErrNotOffered, [lane.ErrChanged] for a site that
// showed another key, and [ErrUsage] where an address is not enough.
func choose(list []runner.SiteStatus, name string) (chosen []runner.SiteStatus, err error) {
	server := ""
	if s, err := client.ParseServer(name); err == nil {
		server = s.String()
	}
	for _, s := range list {
		named := strings.EqualFold(name, string(s.Fingerprint))
		switch {
		case named && s.ChangedAt != 0:
			return nil, lane.ErrChanged
		case named, s.State == runner.SitePending && (name == "" || s.Server == server):
			chosen = append(chosen, s)
		}
	}
	switch {
	case len(chosen) == 0:
		return nil, runner.ErrNotOffered
	case server != "" && len(chosen) > 1:
		return nil, ErrUsage.With("Several sites wait at that address. Name one by its fingerprint.")
	}
	return chosen, nil
}
