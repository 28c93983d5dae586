package nodecli

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/command"
	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/node/bundle"
	"github.com/allodhq/allod/internal/node/control"
	"github.com/allodhq/allod/internal/node/daemon"
	"github.com/allodhq/allod/refusal"
)

// What the command line of a node refuses.
var (
	ErrSystem = refusal.NewKind("node-system", 501,
		"A machine becomes a node on Linux only.",
		"Run allod-node on a machine with Linux.")
	ErrRoot = refusal.NewKind("node-needs-root", 403,
		"A node looks after its whole machine, and this user is not root.",
		"Run the command with sudo. To try it as this user, give --user, and --data and --socket in folders of this user.")
	ErrSlow = refusal.NewKind("join-not-done", 503,
		"The machine is not a node yet, and the time to wait is over.",
		"Give the same line again: it goes on where it stands. allod-node doctor says what is in the way.")
	ErrChild = refusal.NewKind("node-program-ended", 500,
		"Spark or Pallet does not stay up.",
		"Run allod-node run in a terminal and look at its last lines.")
	ErrStillNode = refusal.NewKind("node-still-counts", 409,
		"The controller has not removed this node.",
		"Run allod node rm at the controller first. If the controller is gone for good, give --yes.")
	ErrSick = refusal.NewKind("node-sick", 500,
		"Something that a node needs does not work.",
		"Look at the findings above; each one says what to do.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "The command line of a node", Kinds: []*refusal.Kind{
	ErrSystem, ErrRoot, ErrSlow, ErrChild, ErrStillNode, ErrSick,
}}

// DefaultData is where a node keeps its identity.
const DefaultData = "/var/lib/allod-node"

// ownSocket is Pallet's control socket in the folder of a node that lies elsewhere.
const ownSocket = "run/pallet/control.sock"

// node is what all commands have.
type node struct {
	env   command.Env
	stamp bundle.Stamp

	data, socket string
	user         bool
}

// Run runs the command line args, without the program's name, and returns the exit
// code. stamp is what the linker wrote into the program.
func Run(ctx context.Context, env command.Env, stamp bundle.Stamp, args []string) int {
	return command.Run(ctx, env, newRoot(env, stamp), args)
}

func newRoot(env command.Env, stamp bundle.Stamp) *cobra.Command {
	n := &node{env: env, stamp: stamp}
	return command.Root(env, &cobra.Command{
		Use:   "allod-node",
		Short: "Make this machine a node of a small cloud",
		Long: `Makes this machine a node of a small cloud that its owner runs, and keeps it one.

A node is two programs: Spark, which reports on the machine, and Pallet, which runs
what the cloud places here. Each has a credential of its own and proves it to the
controller alone.`,
		Example: "  allod-node join https://cloud.example.org/join#CODE.PIN\n  allod-node run",
	},
		n.join(), n.run(), n.status(), n.doctor(), n.move(), n.leave(), n.version(), n.program("spark", daemon.Spark), n.program("pallet", daemon.Pallet))
}

// on adds the flags of a node to a command, and refuses other systems and users.
func (n *node) on(c *cobra.Command) *cobra.Command {
	f := c.Flags()
	f.StringVar(&n.data, "data", DefaultData, "the folder with the node's identity")
	f.StringVar(&n.socket, "socket", "", "Pallet's control socket; Spark's is beside it, in the folder spark (default \""+control.Path+"\", and run/pallet/control.sock in another --data)")
	f.BoolVar(&n.user, "user", false, "run as this user instead of root, to try it out")
	do := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case runtime.GOOS != "linux":
			return ErrSystem
		case os.Geteuid() != 0 && !n.user:
			return ErrRoot
		}
		if !f.Changed("socket") {
			n.socket = control.Path
			if f.Changed("data") && filepath.Clean(n.data) != DefaultData { // two nodes do not share a socket
				n.socket = filepath.Join(n.data, ownSocket)
			}
		}
		for _, path := range []*string{&n.data, &n.socket} {
			full, err := filepath.Abs(*path)
			if err != nil || *path == "" {
				return command.ErrUsage.With("The flags --data and --socket take a path.")
			}
			*path = full
		}
		return do(c, args)
	}
	return c
}

func (n *node) client() daemon.Client { return daemon.Client{Socket: n.socket} }

func (n *node) config(log *slog.Logger) daemon.Config {
	return daemon.Config{Data: n.data, Socket: n.socket, Stamp: n.stamp, Clock: time.Now, Rand: rand.Reader, Log: log}
}

func asksForJSON(c *cobra.Command) bool {
	asJSON, err := c.Flags().GetBool("json")
	return err == nil && asJSON
}

// program is the command that is one of the two programs. allod-node run starts it.
func (n *node) program(name string, run func(context.Context, daemon.Config) error) *cobra.Command {
	var parent bool
	c := n.on(&cobra.Command{
		Use:     name,
		Short:   "Be one of the node's two programs; allod-node run starts both",
		Example: "  allod-node " + name,
		Hidden:  true,
		Args:    command.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithCancel(c.Context())
			defer cancel()
			if parent {
				go func() { // the other end is closed when the parent ends, however it does
					var b [1]byte
					for {
						if _, err := n.env.In.Read(b[:]); err != nil {
							cancel()
							return
						}
					}
				}()
			}
			log := slog.New(slog.NewTextHandler(n.env.Err, nil)).With("program", name)
			return run(ctx, n.config(log))
		},
	})
	c.Flags().BoolVar(&parent, "parent", false, "end when standard input ends")
	return c
}

// held reports whether an error says that somebody else keeps the node running.
func held(err error) bool { return errors.Is(err, datadir.ErrRunning) }
