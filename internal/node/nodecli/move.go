package nodecli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/command"
	"github.com/allodhq/allod/internal/node/daemon"
	"github.com/allodhq/allod/internal/node/spark"
	"github.com/allodhq/allod/wire/zone/enroll"
)

type moved struct {
	Node       string `json:"nodeId"`
	Controller string `json:"controller"`
}

func (n *node) move() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "move ORIGIN",
		Short: "Follow the controller to a new address, where it was restored",
		Long: `Asks the controller at the new address whether it knows this node, and keeps the address
if it does. It must prove the same authority as before. A controller without one of its
own, which has a public certificate, is whoever has that name: then the command asks
first, since the node shows its credential there.`,
		Example: "  allod-node move https://cloud2.example.org",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return command.ErrUsage.With("Give the controller's new address.")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			origin, err := enroll.ParseOrigin(args[0])
			if err != nil {
				return err
			}
			a, err := n.attend(ctx, io.Discard)
			if err != nil && !held(err) {
				return err
			}
			defer a.end()
			var s daemon.Status
			client := n.client()
			if err := n.reach(ctx, a, func(ctx context.Context) (err error) { s, err = client.Spark(ctx); return err }); err != nil {
				return err
			}
			if s.Node == "" {
				return spark.ErrNotJoined
			}
			if s.Pin == "" {
				if err := command.Confirm(n.env, yes, "The controller has no pin. Does the new name belong to the same owner?"); err != nil {
					return err
				}
			}
			if err := client.Move(ctx, origin); err != nil {
				return err
			}
			return command.Print(c, n.env, moved{string(s.Node), origin.String()}, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "The node %s reports to %s from now on.\n", s.Node, origin)
				return err
			})
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return n.on(c)
}
