package cli

import (
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
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
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Seal a question, show what each party sees of it, and open it",
		Long: `Seals a question from a site to a device on this machine, shows what a relay
between them would see, lets a stranger and a dishonest relay try, and opens it
with the right key. No model runs: that comes with the direct lane.`,
		Example: "  allod demo --prompt \"Why is the sky blue?\"",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n := ai.TextUnits(prompt); n < 1 || n > ai.MaxTextUnits || !utf8.ValidString(prompt) {
				return ErrUsage.With(fmt.Sprintf("The prompt must be 1 to %d characters of UTF-8.", ai.MaxTextUnits))
			}
			dir, err := os.MkdirTemp("", "allod-demo-")
			if err != nil {
				return ErrDemoFolder.Because(err)
			}
			defer os.RemoveAll(dir)
			d, err := compose.SealedQuestion(rand.Reader, time.Now, dir, prompt)
			if err != nil {
				return err
			}
			return print(cmd, env, d, func(w io.Writer) error { return writeDemo(w, d) })
		},
	}
	cmd.Flags().StringVar(&prompt, "prompt", prompt,
		fmt.Sprintf("the question, 1 to %d characters", ai.MaxTextUnits))
	return cmd
}

func writeDemo(w io.Writer, d compose.Demo) error {
	var b strings.Builder
	part := func(who string, lines ...string) {
		fmt.Fprintf(&b, "%s\n", who)
		for _, l := range lines {
			fmt.Fprintf(&b, "  %s\n", l)
		}
		b.WriteString("\n")
	}
	part("The site asks, and sees its own question:",
		inert(d.Site.Question),
		"It signs as "+d.Site.KeyID+" and seals to "+d.Device.KeyID+".")
	found := "The question is nowhere in it."
	if d.Relay.QuestionFound {
		found = "THE QUESTION STANDS IN IT. This must never happen; please report it."
	}
	part("A relay between them sees the stub and a sealed box:",
		fmt.Sprintf("job %s, %s, for %s, audience %s, size %s", d.Relay.JobID, d.Relay.Kind, d.Relay.Owner, d.Relay.Audience, d.Relay.SizeClass),
		fmt.Sprintf("%.48s… (%d characters)", d.Relay.Ciphertext, len(d.Relay.Ciphertext)),
		found)
	part("A stranger with a key of its own tries to open the box:", outcome(d.Stranger))
	part("A dishonest relay changes the audience to public, and the device compares:", outcome(d.WidenedStub))
	part("The device opens it, verifies the site's signature, and sees:", inert(d.Device.Question))
	b.WriteString("No model ran: this shows the sealing that every job will go through.\n")
	for _, s := range d.Steps {
		fmt.Fprintf(&b, "  %8.2f ms  %s\n", s.Ms, s.Name)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func outcome(r compose.RefusedView) string {
	if r.Refusal == "" {
		return "IT SUCCEEDED. This must never happen; please report it."
	}
	return "Refused (" + r.Refusal + "). " + r.Meaning
}

// inert shows text without letting it control the terminal or reorder what
// stands around it (MUST OUTPUT_INERT).
func inert(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return '\ufffd'
		}
		return r
	}, text)
}
