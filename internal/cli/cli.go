package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/command"
	"github.com/allodhq/allod/refusal"
)

// ErrNotBuilt refuses what the design has and the program has not.
var ErrNotBuilt = refusal.NewKind("not-built-yet", 501,
	"This command is planned and not built yet.",
	"Run allod --help for what works today, and see docs/status.md for what comes next.")

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Command line", Kinds: []*refusal.Kind{ErrNotBuilt, ErrDemoFolder, ErrNothing, ErrParties, ErrNoArchive, ErrOutput, ErrAppKeyFile, ErrOwnerReach, ErrNoSite, ErrSiteSilent, ErrSiteRequest, ErrProgram, ErrUpNode, ErrUpAddress, ErrNoTrace, ErrNoLine, ErrPlainHTTP, ErrReach, ErrNoController, ErrControllerSilent}}

// Env is what a command has of the world around it.
type Env = command.Env

// What all command lines have in common, by the names that this package uses.
var (
	ErrUsage    = command.ErrUsage
	ErrNeedsYes = command.ErrNeedsYes

	group       = command.Group
	noArgs      = command.NoArgs
	print       = command.Print
	progress    = command.Progress
	confirm     = command.Confirm
	terminal    = command.Terminal
	inert       = command.Inert
	inertJSON   = command.InertJSON
	asksForHelp = command.AsksForHelp
)

// Run runs the command line args, without the program's name, and returns the
// exit code: 0, or that of the refusal (see refusal.ExitCode).
func Run(ctx context.Context, env Env, args []string) int {
	return command.Run(ctx, env, newRoot(env), args)
}

func newRoot(env Env) *cobra.Command {
	root := command.Root(env, &cobra.Command{
		Use:   "allod",
		Short: "Services and models on machines people own",
		Long: `Allod runs services and models on machines people own.

A controller decides, a relay carries, an agent runs, sites ask. What a relay carries
is sealed to a device that was pinned, and says inside what it may reach.`,
		Example: "  allod demo\n  allod demo --prompt \"Why is the sky blue?\" --json",
	})
	root.AddCommand(newDemo(env), newBench(env), newConnect(env), newAgent(env), newDoctor(env), newSite(env), newChat(env), newConfig(env), newCertify(env), newBackup(env), newRestore(env), newController(env), newUp(env), newNode(env), newWhy(env), newVersion(env))
	for _, c := range unbuilt {
		root.AddCommand(newUnbuilt(c))
	}
	root.AddCommand(newGateway(env))
	return root
}
