package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/compose"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
)

// ErrDemoFolder refuses a demo that has nowhere to put its key files.
var ErrDemoFolder = refusal.NewKind("demo-folder", 500,
	"The demo could not make a temporary folder for its key files.",
	"Free some space, or set TMPDIR to a folder that this user can write.")

func newDemo(env Env) *cobra.Command {
	prompt := "What did the heir of an allod owe, and to whom?"
	var standIn, noNode bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Carry one question from an app to a model on this machine, sealed, and its answer back",
		Long: `Opens a site and an agent on this machine, each with its own folder and keys, pairs
them over loopback, asks one question and shows the answer, how long each step took,
and what the site has stored. A stranger asks too, and is refused. The model is the first local model server that
answers; without one a stand-in answers, and says that it is no model.

Then it opens a controller, and on Linux this machine joins it as a node by the program
allod-node, which stands beside this one. Everything is removed at the end.`,
		Example: "  allod demo --prompt \"Why is the sky blue?\"",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n := ai.TextUnits(prompt); n < 1 || n > ai.MaxTextUnits || !utf8.ValidString(prompt) {
				return ErrUsage.With(fmt.Sprintf("The prompt must be 1 to %d characters of UTF-8.", ai.MaxTextUnits))
			}
			asJSON, err := cmd.Flags().GetBool("json")
			if err != nil {
				return err
			}
			dir, err := os.MkdirTemp("", "allod-demo-")
			if err != nil {
				return ErrDemoFolder.Because(err)
			}
			defer os.RemoveAll(dir)
			node, absent := nodeProgram()
			if noNode {
				absent = compose.NotWanted
			}
			d, err := compose.RunDemo(cmd.Context(), compose.DemoConfig{
				Dir: dir, Question: prompt, Version: env.Version, StandIn: standIn, Node: node, NoNode: absent,
				Progress: func(text string) { progress(env, asJSON, text) },
			})
			if err != nil {
				return err
			}
			return print(cmd, env, d, func(w io.Writer) error { return writeDemo(w, d) })
		},
	}
	cmd.Flags().StringVar(&prompt, "prompt", prompt,
		fmt.Sprintf("the question, 1 to %d characters", ai.MaxTextUnits))
	cmd.Flags().BoolVar(&standIn, "stand-in", false, "use the stand-in without looking for a model server")
	cmd.Flags().BoolVar(&noNode, "no-node", false, "leave the node out")
	return cmd
}

// nodeProgram finds the program of a node beside this one, or says why there is none.
func nodeProgram() (path, absent string) {
	self, err := os.Executable()
	if err != nil {
		return "", compose.NoSibling
	}
	return compose.Sibling(self)
}

func writeDemo(w io.Writer, d compose.Demo) error {
	var b strings.Builder
	part := func(who string, lines ...string) {
		fmt.Fprintf(&b, "%s\n", who)
		for _, l := range lines {
			fmt.Fprintf(&b, "  %s\n", strings.ReplaceAll(l, "\n", "\n  "))
		}
		b.WriteString("\n")
	}
	part("A site and an agent, each with its own keys, were paired by the code "+d.Code+":",
		"site   "+d.Site, "agent  "+d.Device)
	part("The app asked:", inert(d.Question))
	by := fmt.Sprintf("%s answered with %s:", d.Backend, inert(d.Model))
	if d.StandIn {
		by = "No model server answers on this machine, so a stand-in did, which is no model:"
	}
	part(by, inert(d.Answer))
	if p := d.Provenance; p != nil {
		part("The app knows who answered:", fmt.Sprintf("device %s of %s, for the audience %s", p.RunnerID, inert(string(p.RunnerOwner)), p.Audience))
	}
	part("A stranger at the same site asked too, for the machines that are shared with them. The agent refused ("+d.Refused+"), since",
		"nobody is on its owner's list: see docs/sharing.md.")
	sealed := "Neither question nor answer stands in any of the site's files (" + strings.Join(d.StoredFiles, ", ") + ")."
	if !d.SealedAtRest {
		sealed = "QUESTION OR ANSWER STANDS IN THE SITE'S FILES. This must never happen; please report it."
	}
	part("The site stored both sealed:",
		fmt.Sprintf("question %.48s… (%d characters)", d.StoredQuestion, len(d.StoredQuestion)),
		fmt.Sprintf("answer   %.48s… (%d characters)", d.StoredAnswer, len(d.StoredAnswer)),
		sealed,
		"The site's own key opens them, and lies beside them here: see docs/site-keys.md.",
		"The agent's log holds the question in the clear: it belongs to the person who asked.")
	for _, s := range d.Steps {
		fmt.Fprintf(&b, "  %8.2f ms  %s\n", s.Ms, s.Name)
	}
	fmt.Fprintf(&b, "\nA controller with an authority of its own was at %s.\n", d.Zone.Controller)
	if d.Zone.Absent == "" {
		b.WriteString("This machine joined it by a line that works once, and reported. allod node ls says:\n\n")
	} else {
		fmt.Fprintf(&b, "No machine joined it. %s\nallod node ls says:\n\n", d.Zone.Absent)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	return writeNodes(w, d.Zone.List)
}
