package nodecli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/ca"
	"github.com/allodhq/allod/internal/command"
	"github.com/allodhq/allod/internal/node/daemon"
	"github.com/allodhq/allod/internal/node/host"
	"github.com/allodhq/allod/internal/node/link"
	"github.com/allodhq/allod/internal/node/spark"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/enroll"
)

// finding is one thing that was looked at.
type finding struct {
	// Name is what: clock, name, connection, certificate, spark, pallet and so on.
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Came is what was found, a sentence.
	Came string `json:"came"`
	// Do is the way out, where it is not well.
	Do string `json:"do,omitempty"`
}

type doctorReport struct {
	Findings []finding `json:"findings"`
}

// Bounds of what the doctor calls well.
const (
	patience = 8 * time.Second
	// tooFull is a part of the disk from which on a node may soon be unable to renew its
	// credential.
	tooFull = 0.98
)

func (n *node) doctor() *cobra.Command {
	return n.on(&cobra.Command{
		Use:   "doctor",
		Short: "Look at everything that a node needs, and say what to do",
		Long: `Looks at the clock, the way to the controller, both programs and their credentials, the
control sockets and the disk. It changes nothing. It ends with an error if something
does not work.`,
		Example: "  allod-node doctor\n  allod-node doctor --json",
		Args:    command.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			r := doctorReport{n.examine(c.Context())}
			if err := command.Print(c, n.env, r, func(w io.Writer) error { return writeDoctor(w, r) }); err != nil {
				return err
			}
			for _, f := range r.Findings {
				if !f.OK {
					return ErrSick
				}
			}
			return nil
		},
	})
}

// palletAgain is how a node gets another Pallet.
const palletAgain = "Run allod node rm with --pallet-only at the controller if that was not done. Then stop allod-node run, run allod-node leave --pallet, start it again, and run allod-node join --adopt."

func well(name, came string) finding { return finding{Name: name, OK: true, Came: came} }

func sick(name string, err error) finding {
	r := refusal.From(err)
	came := r.Kind().Meaning()
	if r.Detail() != "" {
		came += " " + r.Detail()
	}
	return finding{Name: name, Came: came, Do: r.Kind().WayOut()}
}

func (n *node) examine(ctx context.Context) (list []finding) {
	s, p, sparkRuns, palletRuns, err := n.programs(ctx)
	if err != nil {
		return append(list, sick("files", err))
	}
	var to spark.Controller
	if s.Origin != "" {
		to.Origin, err = enroll.ParseOrigin(s.Origin)
		if err == nil && s.Pin != "" {
			to.Pin, err = enroll.ParsePin(s.Pin)
		}
		if err != nil {
			return append(list, sick("files", err))
		}
		list = append(list, way(ctx, to)...)
	} else {
		list = append(list, finding{Name: "node", Came: "This machine is no node yet.", Do: "Join it with a line from allod node invite."})
	}
	client := n.client()
	counts := map[string]bool{} // at the controller
	for _, program := range []struct {
		name   string
		runs   bool
		status daemon.Status
		check  func(context.Context) error
		socket string
	}{{"spark", sparkRuns, s, client.CheckSpark, daemon.SparkSocket(n.socket)}, {"pallet", palletRuns, p, client.CheckPallet, n.socket}} {
		if !program.runs {
			list = append(list, finding{Name: program.name, Came: "It does not run, or does not answer on its control socket.", Do: "Start allod-node run, as a service. If it runs, start it again, and look in its log."})
			continue
		}
		list = append(list, well(program.name, "It runs."), socketOf(program.name, program.socket))
		if program.status.Node == "" {
			continue
		}
		err := program.check(ctx)
		counts[program.name] = err == nil
		switch {
		case errors.Is(err, enroll.ErrCredential) && counts["spark"]:
			list = append(list, finding{Name: program.name + " credential", Came: "The controller has ended Pallet's part of the node, or Pallet was put back from a copy.", Do: palletAgain})
		case err != nil:
			list = append(list, sick(program.name+" credential", err))
		default:
			list = append(list, well(program.name+" credential", "It counts at the controller."))
		}
		if program.status.Problem != nil {
			list = append(list, sick(program.name+" last step", problem(program.status)))
		}
	}
	return append(list, n.disk())
}

// way is the way to the controller, in the order in which it can fail. The clock comes
// first, since it is behind many another failure.
func way(ctx context.Context, to spark.Controller) []finding {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l, err := link.New(to, time.Now, rand.Reader)
	if err != nil {
		return []finding{sick("controller", err)}
	}
	defer l.Close()
	clocks, failed := l.Clocks(ctx)
	clock := well("clock", "It agrees with the controller's.")
	switch ahead := clocks.Ahead(); {
	case failed != nil:
		clock = finding{Name: "clock", Came: "The controller did not tell its time.", Do: "Look at the findings below first."}
	case ahead.Abs() > apartEnough:
		clock = finding{Name: "clock", Came: clockSentence(ahead), Do: "Correct the clock that is wrong, as by timedatectl set-ntp true."}
	}
	list := []finding{clock}
	host := to.Origin.Host()
	if net.ParseIP(host) == nil {
		if _, err := net.DefaultResolver.LookupHost(ctx, host); err != nil {
			return append(list, finding{Name: "name", Came: "The controller's name is not found.", Do: "Check the name and this machine's name servers, as in /etc/resolv.conf."})
		}
		list = append(list, well("name", "The controller's name is found."))
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", to.Origin.Address())
	if err != nil {
		return append(list, finding{Name: "connection", Came: "The controller takes no connection.", Do: "Check that it runs, its address, and what is between: routes and firewalls."})
	}
	_ = conn.Close()
	list = append(list, well("connection", "The controller takes connections."))
	if failed != nil {
		return append(list, sick("certificate", failed))
	}
	what := "It is one that this machine trusts."
	if !to.Pin.IsZero() {
		what = "It is of the authority that the pin names."
	}
	// The time of the certificate is left out above, so that the clocks can be told.
	if err := greet(ctx, l); errors.Is(err, ca.ErrClock) {
		return append(list, sick("certificate", err))
	}
	return append(list, well("certificate", what))
}

// greet makes a whole handshake, and asks with a bearer that is nobody's.
func greet(ctx context.Context, l *link.Link) error {
	nobody, err := enroll.NewBearer(rand.Reader)
	if err != nil {
		return err
	}
	_, err = l.Credential(ctx, nobody)
	return err
}

// socketOf looks whether others can reach a control socket.
func socketOf(name, path string) finding {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return finding{Name: name + " socket", Came: "It is not where the program listens.", Do: "Start allod-node run again."}
	case info.Mode().Perm() != 0o600:
		return finding{Name: name + " socket", Came: "Its mode is not 0600.", Do: "Start allod-node run again, and find out what changed it."}
	}
	return well(name+" socket", "Only this user reaches it.")
}

// disk looks at the file system with the node's identity.
func (n *node) disk() finding {
	s, err := host.New(host.Options{Data: n.data})
	if err != nil {
		return sick("disk", err)
	}
	load, known := s.Sample(time.Now()).DiskLoad.Value()
	switch {
	case !known:
		return finding{Name: "disk", Came: "How full it is is not known.", Do: "Check that the data folder exists."}
	case load > tooFull:
		return finding{Name: "disk", Came: fmt.Sprintf("It is full to %.0f %%.", load*100), Do: "Free some space: without it the node cannot renew its credential."}
	}
	return well("disk", fmt.Sprintf("It is full to %.0f %%.", load*100))
}

func writeDoctor(w io.Writer, r doctorReport) error {
	var b strings.Builder
	for _, f := range r.Findings {
		mark := "ok"
		if !f.OK {
			mark = "FAILED"
		}
		fmt.Fprintf(&b, "%-7s %s: %s\n", mark, f.Name, command.Inert(f.Came))
		if f.Do != "" {
			fmt.Fprintf(&b, "        %s\n", command.Inert(f.Do))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
