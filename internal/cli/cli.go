package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/allodhq/allod/refusal"
)

// What the command line itself refuses.
var (
	ErrUsage = refusal.NewKind("usage", 400,
		"This is not how the command is used.",
		"Run the command with --help to see its flags and an example.")
	ErrNotBuilt = refusal.NewKind("not-built-yet", 501,
		"This command is planned and not built yet.",
		"Run allod --help for what works today, and see docs/status.md for what comes next.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Command line", Kinds: []*refusal.Kind{ErrUsage, ErrNotBuilt, ErrDemoFolder, ErrNothing, ErrNoArchive, ErrOutput, ErrAppKeyFile, ErrOwnerReach, ErrNoSite, ErrSiteSilent, ErrSiteRequest, ErrProgram, ErrNoTrace, ErrNoLine, ErrNeedsYes, ErrDeclined}}

// Env is what a command has of the world around it.
type Env struct {
	// In is where secrets are read from that must not stand on a command line.
	In io.Reader
	// Out is where results go.
	Out io.Writer
	// Err is where progress and errors go.
	Err io.Writer
	// Version is the version of the program.
	Version string
}

// Run runs the command line args, without the program's name, and returns the
// exit code: 0, or that of the refusal (see refusal.ExitCode).
func Run(ctx context.Context, env Env, args []string) int {
	root := newRoot(env)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		// Whoever stopped it knows why.
		fmt.Fprintln(env.Err, "Stopped.")
		return stopped
	}
	if err != nil {
		text := refusal.Terminal(err)
		// The system's own words for an error number are no input and no secret,
		// and a command has no log in which to look for them.
		var number syscall.Errno
		if errors.As(err, &number) {
			text += "\nThe system says: " + number.Error() + "."
		}
		if asksForJSON(args) {
			text = string(refusal.JSON(err))
		}
		fmt.Fprintln(env.Err, text)
	}
	return refusal.ExitCode(err)
}

// stopped is the exit code of a command that was interrupted, as shells have it.
const stopped = 130

// asksForJSON looks at the words themselves, since an error may come before the
// flags are read.
func asksForJSON(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool { return a == "--json" || a == "--json=true" })
}

func newRoot(env Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "allod",
		Short: "Services and models on machines people own",
		Long: `Allod runs services and models on machines people own.

A controller decides, a relay carries, an agent runs, sites ask. What a relay carries
is sealed to a device that was pinned, and says inside what it may reach.`,
		Example:       "  allod demo\n  allod demo --prompt \"Why is the sky blue?\" --json",
		Version:       env.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	root.PersistentFlags().Bool("json", false, "print the result, or the refusal, as one JSON object")
	root.SetFlagErrorFunc(func(*cobra.Command, error) error {
		return ErrUsage.With("There is no such flag, or its value is missing or of another kind.")
	})
	root.SetHelpCommand(newHelp(root))
	root.AddCommand(newDemo(env), newBench(env), newConnect(env), newAgent(env), newDoctor(env), newSite(env), newChat(env), newConfig(env), newCertify(env), newBackup(env), newRestore(env), newVersion(env))
	for _, c := range unbuilt {
		root.AddCommand(newUnbuilt(c))
	}
	root.AddCommand(newGateway(env))
	return root
}

// newHelp replaces cobra's help command, which repeats an unknown word and ends
// as if all were well.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "help [command]",
		Short:   "Show how a command is used",
		Example: "  allod help demo",
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return ErrUsage.With("There is no such command.")
			}
			return c.Help()
		},
	}
}

// group makes of c a command that only holds others: by itself it shows its help.
func group(c *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	c.Args = noArgs
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	c.AddCommand(commands...)
	return c
}

// noArgs refuses words behind a command that takes none, without repeating
// them as cobra's own check would.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return ErrUsage.With("There is no such command, or the command takes no words behind it.")
	}
	return nil
}

// print writes v as JSON under --json, else calls text.
func print(cmd *cobra.Command, env Env, v any, text func(io.Writer) error) error {
	if asJSON, err := cmd.Flags().GetBool("json"); err != nil || !asJSON {
		return text(env.Out)
	}
	b, err := json.Marshal(v, jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Out, "%s\n", inertJSON(b))
	return err
}
