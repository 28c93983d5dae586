package nodecli

import (
	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/command"
)

func (n *node) run() *cobra.Command {
	return n.on(&cobra.Command{
		Use:   "run",
		Short: "Keep this machine a node: run Spark and Pallet until stopped",
		Long: `Runs Spark and Pallet as two processes, starts either again when it ends, and ends both
when it is stopped. Before the machine is a node, they wait for allod-node join.`,
		Example: "  allod-node run\n  allod-node run --data /srv/allod-node",
		Args:    command.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx := c.Context()
			a, err := n.attend(ctx, n.env.Err)
			if err != nil {
				return err
			}
			defer a.end()
			<-ctx.Done()
			return nil
		},
	})
}
