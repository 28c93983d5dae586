package nodecli

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/ca"
	"github.com/allodhq/allod/internal/command"
	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/node/control"
	"github.com/allodhq/allod/internal/node/daemon"
	"github.com/allodhq/allod/internal/node/keep"
	"github.com/allodhq/allod/internal/node/link"
	"github.com/allodhq/allod/internal/node/pallet"
	"github.com/allodhq/allod/internal/node/spark"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/handshake"
)

// joined is what allod-node join prints.
type joined struct {
	Node       string `json:"nodeId"`
	Controller string `json:"controller"`
	Hostname   string `json:"hostname"`
}

func (n *node) join() *cobra.Command {
	var hostname string
	var adopt bool
	var wait time.Duration
	c := &cobra.Command{
		Use:   "join LINE",
		Short: "Make this machine a node, with a line from allod node invite",
		Long: `Makes this machine a node of the controller that the line names. The line works once,
for an hour. It is a secret until then: with - in its place it is read from standard
input, and stands in no list of processes.

If the command is cut off or the controller was away, give the same line again: it goes
on where it stands. Where allod-node run is running already, that does the work, and
goes on with it.`,
		Example: "  allod-node join https://cloud.example.org/join#CODE.PIN\n  echo LINE | allod-node join -\n  allod-node join --adopt",
		Args: func(_ *cobra.Command, args []string) error {
			if adopt && len(args) > 0 || !adopt && len(args) != 1 {
				return command.ErrUsage.With("Give one join line, or --adopt and no line.")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if hostname == "" {
				hostname, _ = os.Hostname() // what it is not told is judged as empty
			}
			if !enroll.ValidHostname(hostname) {
				return command.ErrUsage.With("The machine's name cannot be used; give one with --hostname.")
			}
			client := n.client()
			if adopt {
				return n.becomes(c, hostname, wait, spark.Controller{}, func(ctx context.Context) error { return client.Adopt(ctx, hostname) })
			}
			line, err := n.line(args[0])
			if err != nil {
				return err
			}
			to := spark.Controller{Origin: line.Origin, Pin: line.Pin}
			return n.becomes(c, hostname, wait, to, func(ctx context.Context) error { return client.Join(ctx, line, hostname) })
		},
	}
	f := c.Flags()
	f.StringVar(&hostname, "hostname", "", "the machine's name at the controller; without it, its own")
	f.BoolVar(&adopt, "adopt", false, "give a node that has lost its Pallet a new one")
	f.DurationVar(&wait, "wait", time.Minute, "how long to try where the controller does not answer")
	return n.on(c)
}

// line reads the join line, which may be on standard input.
func (n *node) line(word string) (enroll.JoinLine, error) {
	if word == "-" {
		text, err := bufio.NewReader(io.LimitReader(n.env.In, int64(enroll.MaxJoinLine)+2)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return enroll.JoinLine{}, enroll.ErrJoinLine
		}
		word = strings.TrimRight(text, "\r\n")
	}
	return enroll.ParseJoinLine(word)
}

// steps say what has been reached when a step begins, in their order.
var steps = []struct{ name, text string }{
	{"prepare", "Pallet prepares its credential."},
	{"bind", "Pallet is tied to the enrollment."},
	{"enroll", "The controller is asked."},
	{"activate", "The controller has admitted the machine."},
	{"report", "The machine is a node; its first report is sent."},
}

// progress tells of the steps up to that one which were not told yet. Some are over too
// quickly to be seen.
type progress struct {
	say  func(string)
	told int
}

func (p *progress) reached(step string) {
	for i, s := range steps {
		if s.name != step {
			continue
		}
		for ; p.told <= i; p.told++ {
			p.say(steps[p.told].text)
		}
	}
}

// becomes has Spark begin, and waits until the machine is a node and the controller has
// taken a report.
func (n *node) becomes(c *cobra.Command, hostname string, wait time.Duration, to spark.Controller, begin func(context.Context) error) error {
	ctx := c.Context()
	asJSON := asksForJSON(c)
	say := func(text string) { command.Progress(n.env, asJSON, text) }
	clock := n.clocks(ctx, say, to)
	a, err := n.attend(ctx, io.Discard)
	switch {
	case held(err):
		say("allod-node run has this machine already; it does the work.")
	case err != nil:
		return err
	}
	defer a.end()
	client := n.client()
	if err := n.reach(ctx, a, func(ctx context.Context) error { _, err := client.Pallet(ctx); return err }); err != nil {
		return err
	}
	var before daemon.Status
	if err := n.reach(ctx, a, func(ctx context.Context) (err error) { before, err = client.Spark(ctx); return err }); err != nil {
		return err
	}
	if err := n.reach(ctx, a, begin); err != nil {
		return clockFirst(clock, err)
	}
	shown := progress{say: say}
	if before.Phase == daemon.Active && !to.Origin.IsZero() { // another line was refused just now
		say("The machine is a node already, by this line.")
		shown.told = len(steps)
	}
	s, err := n.follow(ctx, a, wait, &shown, begin)
	if err != nil {
		return clockFirst(clock, err)
	}
	return command.Print(c, n.env, joined{string(s.Node), s.Origin, hostname}, func(w io.Writer) error {
		if a != nil {
			say("Start allod-node run now, as a service: it keeps this machine a node.")
		}
		_, err := fmt.Fprintf(w, "%s\n", s.Node)
		return err
	})
}

// reach asks a program that may be about to start.
func (n *node) reach(ctx context.Context, a *attendant, ask func(context.Context) error) error {
	until := time.Now().Add(starting)
	for {
		err := ask(ctx)
		if err == nil || !absent(err) {
			return err
		}
		if why := a.why(); why != nil && (hopeless(why) || time.Now().After(until)) {
			return why
		}
		if time.Now().After(until) {
			return err
		}
		if rest(ctx, 50*time.Millisecond); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// absent reports whether nobody answered, which the next try may change.
func absent(err error) bool {
	return errors.Is(err, control.ErrSilent) || errors.Is(err, daemon.ErrBusy)
}

// hopeless reports whether a program that ended with it will do so again.
func hopeless(err error) bool {
	for _, kind := range []error{keep.ErrDamaged, keep.ErrOpen, datadir.ErrData, control.ErrPath, control.ErrFolder, control.ErrUser, control.ErrListen} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// follow watches Spark until it has done what was begun.
func (n *node) follow(ctx context.Context, a *attendant, wait time.Duration, shown *progress, begin func(context.Context) error) (daemon.Status, error) {
	client := n.client()
	until := time.Now().Add(wait)
	var told string
	var last error
	for {
		s, err := client.Spark(ctx)
		switch {
		case err != nil && !absent(err):
			return s, err
		case err != nil:
			if why := a.why(); why != nil && hopeless(why) {
				return s, why
			}
		case s.GaveUp && s.Problem != nil:
			return s, problem(s)
		case s.Phase == daemon.Active && s.Reports > 0:
			shown.reached("report")
			return s, nil
		case s.Phase == daemon.New:
			// Spark was started anew before it had kept anything.
			if err := begin(ctx); err != nil && !absent(err) {
				return s, err
			}
		}
		if err == nil {
			shown.reached(s.Step)
			last = problem(s)
			if last != nil && final(last) {
				return s, last
			}
			if last != nil && s.Problem.Name != told {
				told = s.Problem.Name
				shown.say("It does not work yet, and is tried again: " + last.Error())
			}
		}
		if time.Now().After(until) {
			if last != nil {
				return s, last
			}
			return s, ErrSlow
		}
		if rest(ctx, 50*time.Millisecond); ctx.Err() != nil {
			return s, context.Cause(ctx)
		}
	}
}

// problem is a status's problem as the refusal that it is, or nil.
func problem(s daemon.Status) error {
	if s.Problem == nil {
		return nil
	}
	if named := daemon.Named(s.Problem.Name, s.Problem.Detail); named != nil {
		return named
	}
	return refusal.Internal
}

// final reports whether waiting does not help, though nothing was used up: somebody has
// to change something first.
func final(err error) bool {
	for _, kind := range []error{ca.ErrPin, ca.ErrHost, ca.ErrChain, ca.ErrClock, ca.ErrHostName, handshake.ErrIncompatible, pallet.ErrActive} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// apartEnough is a difference of two clocks that is told.
const apartEnough = time.Minute

// clocks says by how much the clocks differ before anything else, since that is behind
// many another failure. It returns the sentence, or "".
func (n *node) clocks(ctx context.Context, say func(string), to spark.Controller) string {
	if to.Origin.IsZero() {
		return ""
	}
	l, err := link.New(to, time.Now, rand.Reader)
	if err != nil {
		return ""
	}
	defer l.Close()
	r, err := l.Clocks(ctx)
	if err != nil || r.Ahead().Abs() <= apartEnough {
		return "" // whoever does not answer, or is another one, has no time to tell
	}
	sentence := clockSentence(r.Ahead())
	say(sentence + " Correct the clock that is wrong; the same line works then.")
	return sentence
}

// clockFirst puts that sentence before what else an error says.
func clockFirst(sentence string, err error) error {
	if sentence == "" || errors.Is(err, context.Canceled) {
		return err
	}
	r := refusal.From(err)
	if errors.Is(err, ca.ErrClock) {
		return r.Kind().With(sentence)
	}
	return r.Kind().With(strings.TrimSpace(sentence + " " + r.Detail()))
}

// clockSentence says by how much this machine's clock is ahead or behind.
func clockSentence(ahead time.Duration) string {
	way := "ahead of"
	if ahead < 0 {
		way = "behind"
	}
	return fmt.Sprintf("This machine's clock is %s %s the controller's.", ahead.Abs().Round(time.Second), way)
}
