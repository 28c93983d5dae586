package cli

import "github.com/spf13/cobra"

// unbuiltCommand is a command that the design has and the program has not.
type unbuiltCommand struct {
	name string
	what string // what it will do, a sentence
}

// unbuilt lists them, so that a person who reads the documents and types one is
// told plainly instead of "no such command".
var unbuilt = []unbuiltCommand{
	{"gateway", "It will answer OpenAI clients with the models of their users."},
	{"relay", "It will carry sealed jobs between sites and machines that do not reach each other."},
	{"controller", "It will keep accounts and consents, or the nodes of a small cloud."},
	{"node", "It will add machines to a small cloud."},
	{"up", "It will start everything on one machine."},
	{"why", "It will say why a job, a device, a node or a service is as it is."},
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
			for _, a := range args {
				if a == "--help" || a == "-h" {
					return cmd.Help()
				}
			}
			return ErrNotBuilt.With(c.what)
		},
	}
}
