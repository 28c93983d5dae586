package nodecli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/command"
	"github.com/allodhq/allod/internal/node/control"
	"github.com/allodhq/allod/internal/node/daemon"
	"github.com/allodhq/allod/wire/zone"
)

// statusReport is what allod-node status says.
type statusReport struct {
	// State is new, joining or active.
	State      string `json:"state"`
	Node       string `json:"nodeId,omitempty"`
	Controller string `json:"controller,omitempty"`
	Pin        string `json:"pin,omitempty"`
	// LastAccepted is when, by its own clock, the controller took the last report that
	// is known, and Age how long ago that is by this machine's clock.
	LastAccepted string        `json:"lastReportAcceptedAt,omitempty"`
	Age          int64         `json:"lastReportAgeSeconds,omitzero"`
	Spark        programReport `json:"spark"`
	Pallet       programReport `json:"pallet"`
}

type programReport struct {
	// Running says whether the program answers on its control socket. If it does not,
	// the rest is what its file says.
	Running    bool           `json:"running"`
	State      string         `json:"state"`
	Generation int64          `json:"generation,omitzero"`
	Epoch      int64          `json:"sessionEpoch,omitzero"`
	Rotating   bool           `json:"rotating"`
	Step       string         `json:"step,omitempty"`
	Reports    int64          `json:"reportsSinceStart,omitzero"`
	Problem    *problemReport `json:"problem,omitempty"`
}

type problemReport struct {
	Name    string `json:"name"`
	Message string `json:"message"`
	Since   string `json:"at"`
}

func (n *node) status() *cobra.Command {
	return n.on(&cobra.Command{
		Use:     "status",
		Short:   "Show who this node is, and how it stands with its controller",
		Example: "  allod-node status\n  allod-node status --json",
		Args:    command.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := n.report(c.Context())
			if err != nil {
				return err
			}
			return command.Print(c, n.env, r, func(w io.Writer) error { return writeStatus(w, r) })
		},
	})
}

// programs are both programs' status, from those that run and else from their files.
func (n *node) programs(ctx context.Context) (spark, pallet daemon.Status, sparkRuns, palletRuns bool, err error) {
	client := n.client()
	if spark, err = client.Spark(ctx); err == nil {
		sparkRuns = true
	} else if !errors.Is(err, control.ErrSilent) {
		return
	} else if state, e := daemon.SparkFile(n.data).Load(); e == nil {
		spark = daemon.OfSpark(state)
	} else {
		err = e
		return
	}
	if pallet, err = client.Pallet(ctx); err == nil {
		palletRuns = true
	} else if !errors.Is(err, control.ErrSilent) {
		return
	} else if state, e := daemon.PalletFile(n.data).Load(); e == nil {
		pallet = daemon.OfPallet(state)
	} else {
		err = e
		return
	}
	return spark, pallet, sparkRuns, palletRuns, nil
}

func (n *node) report(ctx context.Context) (statusReport, error) {
	spark, pallet, sparkRuns, palletRuns, err := n.programs(ctx)
	if err != nil {
		return statusReport{}, err
	}
	r := statusReport{
		State: string(spark.Phase), Node: string(spark.Node), Controller: spark.Origin, Pin: spark.Pin,
		Spark: programOf(spark, sparkRuns), Pallet: programOf(pallet, palletRuns),
	}
	if spark.AcceptedAt != 0 {
		at := timeOf(spark.AcceptedAt)
		r.LastAccepted, r.Age = at.Format(time.RFC3339), int64(time.Since(at)/time.Second)
	}
	return r, nil
}

func timeOf(m zone.Millis) time.Time { return time.UnixMilli(int64(m)).UTC() }

func programOf(s daemon.Status, running bool) programReport {
	p := programReport{
		Running: running, State: string(s.Phase), Generation: int64(s.Generation), Epoch: int64(s.Epoch),
		Rotating: s.Rotating, Step: s.Step, Reports: s.Reports,
	}
	if s.Problem != nil {
		p.Problem = &problemReport{s.Problem.Name, problem(s).Error(), timeOf(s.Problem.At).Format(time.RFC3339)}
	}
	return p
}

func writeStatus(w io.Writer, r statusReport) error {
	var b strings.Builder
	switch r.State {
	case string(daemon.New):
		b.WriteString("This machine is no node yet. Join it with a line from allod node invite.\n")
	case string(daemon.Joining):
		fmt.Fprintf(&b, "This machine is joining %s.\n", r.Controller)
	default:
		fmt.Fprintf(&b, "This machine is the node %s of %s.\n", r.Node, r.Controller)
	}
	if r.Pin != "" {
		fmt.Fprintf(&b, "  pin          %s\n", r.Pin)
	}
	if r.LastAccepted != "" {
		fmt.Fprintf(&b, "  last report  %s, %s ago\n", r.LastAccepted, time.Duration(r.Age)*time.Second)
	}
	for _, p := range []struct {
		name string
		programReport
	}{{"spark", r.Spark}, {"pallet", r.Pallet}} {
		runs := "does not run"
		if p.Running {
			runs = "runs"
		}
		fmt.Fprintf(&b, "  %-12s %s, %s", p.name, runs, p.State)
		if p.Generation > 0 {
			fmt.Fprintf(&b, ", credential generation %d", p.Generation)
		}
		if p.Rotating {
			b.WriteString(", a new credential is asked for")
		}
		b.WriteString("\n")
		if p.Problem != nil {
			fmt.Fprintf(&b, "               %s\n", command.Inert(p.Problem.Message))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
