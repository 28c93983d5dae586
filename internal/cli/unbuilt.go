package cli

import (
	"github.com/spf13/cobra"
)

// unbuiltCommand is a command that the design has and the program has not.
type unbuiltCommand struct {
	name string
	what string // what it will do, a sentence
}

// unbuilt lists them, so that a person who reads the documents and types one is
// told plainly instead of "no such command".
var unbuilt = []unbuiltCommand{
	{"relay", "It will carry sealed jobs between sites and machines that do not reach each other."},
}

func newUnbuilt(c unbuiltCommand) *cobra.Command {
	return &cobra.Command{
		Use:     c.name,
		Short:   "Not built yet. " + c.what,
		Example: "  allod " + c.name,
		Hidden:  true,
		// Whatever stands behind it, the answer is the same.
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if asksForHelp(args) {
				return cmd.Help()
			}
			return ErrNotBuilt.With(c.what)
		},
	}
}

// newGateway tells where the gateway is, since the design's name for it is a
// command.
func newGateway(Env) *cobra.Command {
	const where = "OpenAI clients are answered by allod site serve, below /v1. See docs/gateway.md, or ask by allod chat."
	return &cobra.Command{
		Use:                "gateway",
		Short:              where,
		Example:            "  allod site serve --data /var/lib/allod  # allod gateway is a part of it",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if asksForHelp(args) {
				return cmd.Help()
			}
			return ErrUsage.With(where)
		},
	}
}
