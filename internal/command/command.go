package command

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

// What every command line refuses.
var (
	ErrUsage = refusal.NewKind("usage", 400,
		"This is not how the command is used.",
		"Run the command with --help to see its flags and an example.")
	ErrNeedsYes = refusal.NewKind("needs-yes", 400,
		"The command asks before it changes this, and there is no terminal to ask at.",
		"Run it at a terminal, or give --yes if you mean it.")
	ErrDeclined = refusal.NewKind("declined", 409,
		"The answer was not yes, so nothing was changed.",
		"Answer y or yes to go on.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Every command line", Kinds: []*refusal.Kind{ErrUsage, ErrNeedsYes, ErrDeclined}}

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

// stopped is the exit code of a command that was interrupted, as shells have it.
const stopped = 130

// Run runs the command line args, without the program's name, and returns the
// exit code: 0, or that of the refusal (see refusal.ExitCode).
func Run(ctx context.Context, env Env, root *cobra.Command, args []string) int {
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
		if AsksForJSON(args) {
			text = string(refusal.JSON(err))
		}
		fmt.Fprintln(env.Err, text)
	}
	return refusal.ExitCode(err)
}

// AsksForJSON looks at the words themselves, since an error may come before the
// flags are read.
func AsksForJSON(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool { return a == "--json" || a == "--json=true" })
}

// AsksForHelp looks at the words of a command that reads no flags.
func AsksForHelp(args []string) bool {
	return slices.Contains(args, "--help") || slices.Contains(args, "-h")
}

// Root makes of c the command of a whole program. By itself it shows its help.
func Root(env Env, c *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	c.Version = env.Version
	c.SilenceErrors, c.SilenceUsage = true, true
	c.CompletionOptions.DisableDefaultCmd = true
	c.SetOut(env.Out)
	c.SetErr(env.Err)
	c.PersistentFlags().Bool("json", false, "print the result, or the refusal, as one JSON object")
	c.SetFlagErrorFunc(func(*cobra.Command, error) error {
		return ErrUsage.With("There is no such flag, or its value is missing or of another kind.")
	})
	c.SetHelpCommand(newHelp(c))
	return Group(c, commands...)
}

// newHelp replaces cobra's help command, which repeats an unknown word and ends
// as if all were well.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "help [command]",
		Short:   "Show how a command is used",
		Example: "  " + root.Name() + " help version",
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return ErrUsage.With("There is no such command.")
			}
			return c.Help()
		},
	}
}

// Group makes of c a command that only holds others: by itself it shows its help.
func Group(c *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	c.Args = NoArgs
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	c.AddCommand(commands...)
	return c
}

// NoArgs refuses words behind a command that takes none, without repeating
// them as cobra's own check would.
func NoArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return ErrUsage.With("There is no such command, or the command takes no words behind it.")
	}
	return nil
}

// Print writes v as JSON under --json, else calls text.
func Print(cmd *cobra.Command, env Env, v any, text func(io.Writer) error) error {
	if asJSON, err := cmd.Flags().GetBool("json"); err != nil || !asJSON {
		return text(env.Out)
	}
	b, err := json.Marshal(v, jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Out, "%s\n", InertJSON(b))
	return err
}

// Progress tells a person how it goes. Who asked for JSON is told nothing.
func Progress(env Env, asJSON bool, text string) {
	if !asJSON {
		fmt.Fprintln(env.Err, text)
	}
}
