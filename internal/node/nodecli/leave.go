package nodecli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/command"
	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/node/daemon"
	"github.com/allodhq/allod/internal/node/link"
	"github.com/allodhq/allod/internal/node/spark"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
)

type left struct {
	Node string `json:"nodeId,omitempty"`
	// Pallet says that only Pallet's part was forgotten.
	Pallet bool `json:"palletOnly"`
}

func (n *node) leave() *cobra.Command {
	var yes, palletOnly bool
	c := &cobra.Command{
		Use:   "leave",
		Short: "Forget this node's identity, after the controller has removed it",
		Long: `Forgets who this node is, so that the machine can join again. It asks the controller
first, and goes on only if the node counts no more there; with --yes it goes on in any
case. allod-node run must not be running.

With --pallet it forgets Pallet's part only, for a node that is to adopt a new Pallet.`,
		Example: "  allod-node leave\n  allod-node leave --pallet",
		Args:    command.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := datadir.Prepare(n.data); err != nil {
				return err
			}
			whole, err := datadir.Lock(n.data)
			if err != nil {
				return err
			}
			defer whole()
			release, err := daemon.Lock(n.data)
			if err != nil {
				return err
			}
			defer release()
			id, had, err := n.forget(c.Context(), yes, palletOnly)
			if err != nil {
				return err
			}
			return command.Print(c, n.env, left{string(id), palletOnly}, func(w io.Writer) error {
				text := "This machine is no node any more."
				switch {
				case !had:
					text = "There is nothing to forget in this folder."
				case palletOnly:
					text = "Pallet's part is forgotten. Give the node a new one with allod-node join --adopt."
				}
				_, err := fmt.Fprintln(w, text)
				return err
			})
		},
	}
	f := c.Flags()
	f.BoolVar(&yes, "yes", false, "do not ask the controller")
	f.BoolVar(&palletOnly, "pallet", false, "forget Pallet's part only")
	return n.on(c)
}

// forget removes the files, and says whether there were any. The caller has the folders.
// A damaged file needs --yes.
func (n *node) forget(ctx context.Context, yes, palletOnly bool) (id zone.NodeID, had bool, err error) {
	paths := []string{daemon.PalletFile(n.data).Path}
	var bearer enroll.Bearer
	state, err := daemon.SparkFile(n.data).Load()
	if err != nil && !yes {
		return "", had, err
	}
	if state.Active != nil {
		id, bearer = state.Active.Who.NodeID, state.Active.Bearer
	}
	if palletOnly {
		p, err := daemon.PalletFile(n.data).Load()
		if err != nil && !yes {
			return "", had, err
		}
		bearer = enroll.Bearer{}
		if p.Active != nil {
			bearer = p.Active.Bearer
		}
	} else {
		// Spark's file goes first: without it nothing else counts.
		paths = []string{daemon.SparkFile(n.data).Path, paths[0], daemon.ControllerFile(n.data).Path}
	}
	if !yes && !bearer.IsZero() {
		if err := counts(ctx, state.Controller, bearer); err != nil {
			return "", had, err
		}
	}
	for _, path := range paths {
		err := os.Remove(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", had, datadir.ErrWrite.Because(err)
		}
		had = had || err == nil
		if err := datadir.Sync(filepath.Dir(path)); err != nil {
			return "", had, err
		}
	}
	return id, had, nil
}

// counts returns nil where a controller says that a bearer counts no more.
func counts(ctx context.Context, to spark.Controller, b enroll.Bearer) error {
	if to.Origin.IsZero() {
		return ErrStillNode
	}
	l, err := link.New(to, time.Now, rand.Reader)
	if err != nil {
		return err
	}
	defer l.Close()
	switch _, err := l.Credential(ctx, b); {
	case err == nil:
		return ErrStillNode
	case errors.Is(err, enroll.ErrCredential), errors.Is(err, enroll.ErrExpired):
		return nil
	default:
		return ErrStillNode.With("It could not be asked (" + refusal.From(err).Kind().Name() + ").")
	}
}
