package cli

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	cloudcluster "github.com/allodhq/allod/internal/cloud/cluster"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/methods"
	"github.com/allodhq/allod/wire/zone/nodes"
)

func newNode(env Env) *cobra.Command {
	return group(&cobra.Command{
		Use:   "node",
		Short: "Invite machines to a controller, and look after its nodes",
		Long: `These commands speak to the controller that runs on this machine, by the socket in
its data folder.`,
		Example: "  allod node invite --data /var/lib/allod-controller\n  allod node ls --data /var/lib/allod-controller",
	}, newNodeInvite(env), newNodeList(env), newNodeShow(env), newNodeRotate(env), newNodeRemove(env), newNodeWhy(env))
}

type inviteReport struct {
	Line      string    `json:"line"`
	Cluster   string    `json:"clusterId"`
	ExpiresAt time.Time `json:"expiresAt"`
}

func newNodeInvite(env Env) *cobra.Command {
	var f controllerFolder
	var cluster string
	cmd := &cobra.Command{
		Use:   "invite",
		Short: "Make a line by which one machine joins",
		Long: `Makes a join line, the last line of the output. It works once, for an hour, and
carries the digest of the controller's own certificate authority, so that the machine
knows this controller from any other. Whoever has the line can become a node.`,
		Example: "  allod node invite --data /var/lib/allod-controller",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !zone.ValidID(cluster) {
				return ErrUsage.With("--cluster: must be the id of a cluster, as in main.")
			}
			a, err := askController(cmd.Context(), f, methods.InviteNode, nodes.InviteCodec, nodes.InvitationCodec, nodes.Invite{Cluster: zone.ClusterID(cluster)})
			if err != nil {
				return err
			}
			r := inviteReport{a.Line.Reveal(), cluster, a.ExpiresAt.Time()}
			if line, err := enroll.ParseJoinLine(r.Line); err == nil && local(line.Origin.Host()) {
				fmt.Fprintln(env.Err, "The controller is reached by a loopback address, so this line works on this machine only.")
			}
			return print(cmd, env, r, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "Run this as root on the machine that is to join. It works once, until %s:\n\nallod-node join \\\n%s\n", r.ExpiresAt.Format(time.RFC3339), r.Line)
				return err
			})
		},
	}
	f.flags(cmd)
	cmd.Flags().StringVar(&cluster, "cluster", string(cloudcluster.First), "the cluster that the machine joins")
	return cmd
}

// local reports whether a host is this machine for everybody.
func local(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// nodeJSON is a node as its messages have it.
func nodeJSON(n nodes.Node) (jsontext.Value, error) {
	text, err := nodes.Codec.Append(nil, n)
	return jsontext.Value(text), err
}

type nodesReport struct {
	Nodes []jsontext.Value `json:"nodes"`
}

func newNodeList(env Env) *cobra.Command {
	var f controllerFolder
	var cluster string
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List the nodes, and when each was last heard of",
		Example: "  allod node ls --data /var/lib/allod-controller --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cluster != "" && !zone.ValidID(cluster) {
				return ErrUsage.With("--cluster: must be the id of a cluster, as in main.")
			}
			var list []nodes.Node
			for cursor := zone.Cursor(""); ; {
				page, err := askController(cmd.Context(), f, methods.GetNodes, nodes.ListCodec, nodes.PageCodec, nodes.List{Cluster: zone.ClusterID(cluster), Cursor: cursor})
				if err != nil {
					return err
				}
				list = append(list, page.Nodes...)
				if cursor = page.Next; cursor == "" {
					break
				}
			}
			r := nodesReport{Nodes: []jsontext.Value{}}
			for _, n := range list {
				text, err := nodeJSON(n)
				if err != nil {
					return err
				}
				r.Nodes = append(r.Nodes, text)
			}
			return print(cmd, env, r, func(w io.Writer) error { return writeNodes(w, list) })
		},
	}
	f.flags(cmd)
	cmd.Flags().StringVar(&cluster, "cluster", "", "only the nodes of this cluster")
	return cmd
}

func writeNodes(w io.Writer, list []nodes.Node) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "There are no nodes. Invite a machine: allod node invite")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tHOSTNAME\tCLUSTER\tSTATE\tVERSION")
	for _, n := range list {
		version := "-"
		if n.Seen != nil {
			version = n.Seen.Report.Bundle.Version
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", inert(string(n.ID)), inert(n.Hostname), inert(string(n.Cluster)), liveness(n), inert(version))
	}
	return t.Flush()
}

// stateWords is a state for people.
func stateWords(s nodes.State) string { return strings.ReplaceAll(string(s), "-", " ") }

// liveness is a state with its age.
func liveness(n nodes.Node) string {
	return stateWords(n.Liveness.State) + " " + ageWords(time.Duration(n.Liveness.Age)*time.Millisecond)
}

// ageWords is a length of time in its largest whole unit.
func ageWords(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", max(d, 0)/time.Second)
}

// nodeArg takes the id of one node.
func nodeArg(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return ErrUsage.With("Name one node by its id; allod node ls shows the ids.")
	}
	if !zone.ValidID(args[0]) {
		return ErrUsage.With("This can be no node's id; allod node ls shows the ids.")
	}
	return nil
}

func newNodeShow(env Env) *cobra.Command {
	var f controllerFolder
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show what is known of a node",
		Example: "  allod node show 7k2m4p --data /var/lib/allod-controller",
		Args:    nodeArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := askController(cmd.Context(), f, methods.GetNode, nodes.GetCodec, nodes.AnswerCodec, nodes.Get{Node: zone.NodeID(args[0])})
			if err != nil {
				return err
			}
			return printNode(cmd, env, a.Node, writeNode)
		},
	}
	f.flags(cmd)
	return cmd
}

// printNode shows one node.
func printNode(cmd *cobra.Command, env Env, n nodes.Node, text func(io.Writer, nodes.Node) error) error {
	v, err := nodeJSON(n)
	if err != nil {
		return err
	}
	return print(cmd, env, v, func(w io.Writer) error { return text(w, n) })
}

func writeNode(w io.Writer, n nodes.Node) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", name, inert(fmt.Sprintf(format, args...)))
	}
	row("Node", "%s", n.ID)
	row("Hostname", "%s", n.Hostname)
	row("Cluster", "%s of %s", n.Cluster, n.Organization)
	row("State", "%s", liveness(n))
	row("Joined", "%s", n.JoinedAt.Time().Format(time.RFC3339))
	if n.RemovedAt != 0 {
		row("Removed", "%s", n.RemovedAt.Time().Format(time.RFC3339))
	}
	for _, c := range n.Credentials {
		asked := ""
		if c.RotationRequired {
			asked = ", to be renewed"
		}
		row("Credential", "%s, generation %d, %s%s", c.Purpose, c.Generation, c.State, asked)
	}
	if n.Seen != nil {
		r := n.Seen.Report
		row("Reported", "%s", n.Seen.AcceptedAt.Time().Format(time.RFC3339))
		row("System", "%s, kernel %s, %s", r.Host.OS, r.Host.Kernel, r.Host.Architecture)
		row("Up", "%s, boot %s", ageWords(time.Duration(r.Host.UptimeSeconds)*time.Second), r.Host.BootID)
		row("Size", "%d processors, %d MiB of memory, %d GiB of disk", r.Host.CPUs, r.Host.MemoryBytes>>20, r.Host.DiskBytes>>30)
		row("In use", "%.0f %% of the processors, %.0f %% of the memory, %.0f %% of the disk", 100*r.Load.CPU.Float(), 100*r.Load.Memory.Float(), 100*r.Load.Disk.Float())
		row("Program", "%s, %s", r.Bundle.Version, r.Bundle.ManifestDigest)
	}
	return t.Flush()
}

func newNodeRotate(env Env) *cobra.Command {
	var f controllerFolder
	cmd := &cobra.Command{
		Use:   "rotate ID",
		Short: "Ask a node for new credentials",
		Long: `Asks both programs of a node for new credentials, which each of them makes when it
next asks the controller: within seconds where the node is online. The old ones count
until then. For a credential that was stolen use allod node rm.`,
		Example: "  allod node rotate 7k2m4p --data /var/lib/allod-controller",
		Args:    nodeArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := askController(cmd.Context(), f, methods.RotateNode, nodes.RotateCodec, nodes.AnswerCodec,
				nodes.Rotate{Node: zone.NodeID(args[0]), Mutation: newMutation()})
			if err != nil {
				return err
			}
			return printNode(cmd, env, a.Node, func(w io.Writer, n nodes.Node) error {
				_, err := fmt.Fprintf(w, "Asked node %s for new credentials. It makes them when it next reports.\n", inert(string(n.ID)))
				return err
			})
		},
	}
	f.flags(cmd)
	return cmd
}

func newNodeRemove(env Env) *cobra.Command {
	var f controllerFolder
	var palletOnly, yes bool
	cmd := &cobra.Command{
		Use:   "rm ID",
		Short: "End a node's authority, at once and for good",
		Long: `Ends what a node may do: its next request is refused. The node stays in the list as
removed. To have the machine again, invite it anew.

With --pallet-only the node goes on reporting and loses only the credential of
Pallet, the program that runs workloads; the machine can then adopt a new one.`,
		Example: "  allod node rm 7k2m4p --data /var/lib/allod-controller --yes",
		Args:    nodeArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			id := zone.NodeID(args[0])
			a, err := askController(cmd.Context(), f, methods.GetNode, nodes.GetCodec, nodes.AnswerCodec, nodes.Get{Node: id})
			if err != nil {
				return err
			}
			question := fmt.Sprintf("Remove node %s (%s) for good?", id, inert(a.Node.Hostname))
			if palletOnly {
				question = fmt.Sprintf("End what Pallet on node %s (%s) may do?", id, inert(a.Node.Hostname))
			}
			if err := confirm(env, yes, question); err != nil {
				return err
			}
			if a, err = askController(cmd.Context(), f, methods.RemoveNode, nodes.RemoveCodec, nodes.AnswerCodec,
				nodes.Remove{Node: id, PalletOnly: palletOnly, Mutation: newMutation()}); err != nil {
				return err
			}
			return printNode(cmd, env, a.Node, func(w io.Writer, n nodes.Node) error {
				text := "Removed node %s. What it sends from now on is refused.\n"
				if palletOnly {
					text = "Pallet on node %s may do nothing any more.\n"
				}
				_, err := fmt.Fprintf(w, text, inert(string(n.ID)))
				return err
			})
		},
	}
	f.flags(cmd)
	cmd.Flags().BoolVar(&palletOnly, "pallet-only", false, "end only the credential of Pallet")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

type whyFinding struct {
	Name     string `json:"name"`
	Sentence string `json:"sentence"`
}

type nodeWhyReport struct {
	Node     jsontext.Value `json:"node"`
	Findings []whyFinding   `json:"findings"`
}

func newNodeWhy(env Env) *cobra.Command {
	var f controllerFolder
	cmd := &cobra.Command{
		Use:     "why ID",
		Short:   "Say why a node is as it is, and what to do",
		Example: "  allod node why 7k2m4p --data /var/lib/allod-controller",
		Args:    nodeArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			return whyNode(cmd, env, f, zone.NodeID(args[0]))
		},
	}
	f.flags(cmd)
	return cmd
}

func whyNode(cmd *cobra.Command, env Env, f controllerFolder, id zone.NodeID) error {
	e, err := askController(cmd.Context(), f, methods.ExplainNode, nodes.GetCodec, nodes.ExplanationCodec, nodes.Get{Node: id})
	if err != nil {
		return err
	}
	r := nodeWhyReport{Findings: []whyFinding{}}
	if r.Node, err = nodeJSON(e.Node); err != nil {
		return err
	}
	for _, finding := range e.Findings {
		r.Findings = append(r.Findings, whyFinding{finding.Name, finding.Sentence})
	}
	return print(cmd, env, r, func(w io.Writer) error {
		text := fmt.Sprintf("Node %s (%s) is %s.\n", inert(string(e.Node.ID)), inert(e.Node.Hostname), liveness(e.Node))
		if len(e.Findings) == 0 {
			text += "Nothing is wrong with it.\n"
		}
		for _, finding := range e.Findings {
			text += fmt.Sprintf("\n%s (%s)\n", inert(finding.Sentence), inert(finding.Name))
		}
		_, err := io.WriteString(w, text)
		return err
	})
}

// newWhy asks about anything by its kind and name, of which nodes are built.
func newWhy(env Env) *cobra.Command {
	var f controllerFolder
	cmd := &cobra.Command{
		Use:     "why node/ID",
		Short:   "Say why something is as it is, and what to do",
		Example: "  allod why node/7k2m4p --data /var/lib/allod-controller",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return ErrUsage.With("Name what is meant, as in node/7k2m4p.")
			}
			kind, id, _ := strings.Cut(args[0], "/")
			switch kind {
			case "node":
				return nodeArg(cmd, []string{id})
			case "job", "device", "service":
				return ErrNotBuilt.With("Only nodes can be asked about today.")
			}
			return ErrUsage.With("Name what is meant, as in node/7k2m4p.")
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			_, id, _ := strings.Cut(args[0], "/")
			return whyNode(cmd, env, f, zone.NodeID(id))
		},
	}
	f.flags(cmd)
	return cmd
}
