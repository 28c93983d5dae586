package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	cloudcluster "github.com/allodhq/allod/internal/cloud/cluster"
	"github.com/allodhq/allod/internal/compose"
	"github.com/allodhq/allod/internal/compose/supervisor"
	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/gateway"
	"github.com/allodhq/allod/internal/httpd"
	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site/pairpage"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/zone/methods"
	"github.com/allodhq/allod/wire/zone/nodes"
)

// What starting everything is refused with besides the parts' own refusals.
var (
	ErrUpNode = refusal.NewKind("up-node", 500,
		"This machine's own node did not come up.",
		"Read what allod-node said, which is above. It is tried again.")
	ErrUpAddress = refusal.NewKind("up-address", 500,
		"The file with the address that was used before cannot be read or written.",
		"Give the whole address as --listen, and look at the file address in the folder.")
)

// The parts' folders in the folder of all.
const (
	upController = "controller"
	upSite       = "site"
	upNode       = "node"
	// upAddress is the file with the address that port 0 led to.
	upAddress = "address"
)

// Times of the local node.
const (
	// upLook is how often it is asked how it stands.
	upLook = 500 * time.Millisecond
	// upAsk bounds one command of it.
	upAsk = 2 * time.Minute
)

// maxSaid bounds what a command of the node says.
const maxSaid = 64 << 10

type upFlags struct {
	data, listen string
	names        []string
	noNode       bool
}

func newUp(env Env) *cobra.Command {
	var f upFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start everything on this machine: a controller, this machine as its node, and a site",
		Long: `Starts a controller, this machine as its node, and a site, and keeps them up until it is
stopped. All of it is at one address, by TLS: the controller's pages, and the site's
surfaces below /byollm, /pair and /v1. The first start prints a link by which the
administrator logs in, once.

The certificate is the controller's own, which nodes know by its pin. Programs that ask
the site and trust public certificates alone reach it on this machine by the plain
address that is printed too.

The node is the program allod-node beside this one; it needs Linux and root. A second
start uses the same folder, and joins nothing twice.`,
		Example: "  allod up --data /var/lib/allod\n  allod up --data /var/lib/allod --listen 0.0.0.0:8443 --name cloud.example.org",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := cmd.Flags().GetBool("json")
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), env, asJSON)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.data, "data", "", "the folder of all parts; it is made if it is absent")
	fl.StringVar(&f.listen, "listen", defaultControllerListen, "the address to listen on; port 0 takes a free one at the first start, and the same one later")
	fl.StringArrayVar(&f.names, "name", nil, "a name or an address under which it is reached, for its certificate; may be repeated")
	fl.BoolVar(&f.noNode, "no-node", false, "leave this machine's node out")
	return cmd
}

// upStarted is the first line of output under --json.
type upStarted struct {
	// URL is where everything is.
	URL string `json:"url"`
	// Operator and Login are there after the first start only.
	Operator string `json:"operator,omitzero"`
	Login    string `json:"login,omitzero"`
	// Local is where programs on this machine reach the site by plain HTTP.
	Local      string `json:"siteUrl"`
	AppKeyFile string `json:"appKeyFile"`
	// Node says why no node is run here, and what to do; else it is empty.
	NoNode string `json:"noNode,omitzero"`
}

// upChange is every further line under --json.
type upChange struct {
	Part   string `json:"part"`
	State  string `json:"state"`
	Where  string `json:"where,omitzero"`
	Starts int    `json:"starts"`
	// Error is the name of the refusal that the part died of.
	Error   string `json:"error,omitzero"`
	AgainMs int64  `json:"againMs,omitzero"`
}

// up is what is under way.
type up struct {
	upFlags
	env    Env
	asJSON bool
	log    *slog.Logger
	node   string // the program, or "" with noNode
	absent string

	setup controllerSetup

	// surfaces is the site's handler while the site is up.
	surfaces atomic.Pointer[http.Handler]
	// The first ones are opened before anything is kept up.
	controllers chan *servedController
	sites       chan *servedSite
	out         sync.Mutex
}

func (f upFlags) run(ctx context.Context, env Env, asJSON bool) (err error) {
	defer slack(siteSlack)()
	if f.data == "" {
		return ErrUsage.With("The flag --data is needed.")
	}
	u := &up{upFlags: f, env: env, asJSON: asJSON, log: slog.New(httpd.LogHandler(slog.NewTextHandler(env.Err, nil)))}
	switch u.node, u.absent = nodeProgram(); {
	case f.noNode:
		u.absent = compose.NotWanted
	case u.absent == "" && os.Geteuid() != 0:
		u.absent = compose.NoRoot
	}
	// The node's socket has to be found from another process, whatever folder that is in.
	if u.data, err = filepath.Abs(f.data); err != nil {
		return ErrUsage.With("The flag --data takes a path.")
	}
	if err := datadir.Prepare(u.data); err != nil {
		return err
	}
	release, err := datadir.Lock(u.data)
	if err != nil {
		return err
	}
	defer release()
	if err := u.remember(); err != nil {
		return err
	}
	if u.setup, err = (controllerFlags{Roles: []string{"zone"}, Data: u.folder(upController), Listen: u.listen, Names: f.names}).setup(); err != nil {
		return err
	}
	started, err := u.open(ctx)
	if err != nil {
		return err
	}
	if err := u.announce(started); err != nil {
		return err
	}
	parts := []supervisor.Part{{Name: upController, Run: u.controller}, {Name: upSite, Run: u.served}}
	if u.absent == "" {
		parts = append(parts, supervisor.Part{Name: upNode, Run: u.local})
	}
	supervisor.Run(ctx, parts, u.tell)
	return nil
}

func (u *up) folder(part string) string { return filepath.Join(u.data, part) }

// remember turns port 0 into the port of the start before, since nodes and links know
// it by then.
func (u *up) remember() error {
	host, port, err := net.SplitHostPort(u.listen)
	path := u.folder(upAddress)
	if err != nil || port != "0" || !exists(path) {
		return nil // the controller's flags are judged later
	}
	text, err := datadir.Read(path, 64)
	if err != nil {
		return ErrUpAddress.Because(err)
	}
	was, before, err := net.SplitHostPort(strings.TrimSpace(string(text)))
	if err != nil {
		return ErrUpAddress
	}
	if was == host {
		u.listen = net.JoinHostPort(host, before)
	}
	return nil
}

// open opens the controller and the site, so that what cannot work at all is refused
// at once.
func (u *up) open(ctx context.Context) (upStarted, error) {
	c, err := u.openController(ctx)
	if err != nil {
		return upStarted{}, err
	}
	s, err := u.openSite(ctx, c.first.Origin)
	if err != nil {
		c.l.server.Close()
		return upStarted{}, errors.Join(err, c.Close())
	}
	u.controllers, u.sites = make(chan *servedController, 1), make(chan *servedSite, 1)
	u.controllers <- c
	u.sites <- s
	return upStarted{
		URL: c.first.Origin, Operator: c.first.Operator, Login: c.first.Login,
		Local: "http://" + s.first.Listening, AppKeyFile: s.first.AppKeyFile, NoNode: u.absent,
	}, nil
}

func (u *up) openController(ctx context.Context) (*servedController, error) {
	c, err := openController(ctx, u.setup, u.log)
	if err != nil {
		return nil, err
	}
	// The address is the same from here on, also when it is opened again.
	address := c.first.Listening
	if host, _, err := net.SplitHostPort(u.listen); err == nil {
		if _, port, err := net.SplitHostPort(address); err == nil {
			address = net.JoinHostPort(host, port)
		}
	}
	u.setup.Listen = address
	path := u.folder(upAddress)
	if text, err := datadir.Read(path, 64); err != nil || strings.TrimSpace(string(text)) != address {
		if err := replace(path, address+"\n"); err != nil {
			c.l.server.Close()
			return nil, errors.Join(ErrUpAddress.Because(err), c.Close())
		}
	}
	c.l.handler.Handler = u.mux(c.Handler())
	return c, nil
}

// replace puts a new file in the place of one.
func replace(path, text string) error {
	next, err := keyfile.WriteTemp(path, []byte(text))
	if err == nil {
		err = os.Rename(next, path)
	}
	if err == nil {
		err = keyfile.SyncDir(filepath.Dir(path))
	}
	return err
}

// mux has the controller's pages and requests, and the site's surfaces at the paths
// that are theirs.
func (u *up) mux(controller http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", controller)
	for _, path := range append(gateway.Paths(), ai.PathPrefix+"/", "/v1/", pairpage.Path, pairpage.Path+"/") {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if h := u.surfaces.Load(); h != nil {
				(*h).ServeHTTP(w, r)
				return
			}
			w.Header().Set("Retry-After", "1")
			http.Error(w, "The site is being started.", http.StatusServiceUnavailable)
		})
	}
	return mux
}

func (u *up) openSite(ctx context.Context, origin string) (*servedSite, error) {
	setup, problems := siteConfig{Data: u.folder(upSite), Listen: "127.0.0.1:0", Origin: origin}.setup(places{})
	if len(problems) > 0 {
		return nil, problems[0].refusal()
	}
	return openSite(ctx, setup, places{}, u.log)
}

// taken is the one that was opened first, or another one.
func taken[T any](first chan T, open func() (T, error)) (T, error) {
	select {
	case v := <-first:
		return v, nil
	default:
		return open()
	}
}

// controller is that part.
func (u *up) controller(ctx context.Context, say func(string)) (err error) {
	c, err := taken(u.controllers, func() (*servedController, error) { return u.openController(ctx) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	say(c.first.Origin)
	return c.serve(ctx)
}

// served is the site.
func (u *up) served(ctx context.Context, say func(string)) error {
	s, err := taken(u.sites, func() (*servedSite, error) { return u.openSite(ctx, u.setup.reached()) })
	if err != nil {
		return err
	}
	defer s.close()
	u.surfaces.Store(&s.handler)
	defer u.surfaces.Store(nil)
	say("http://" + s.first.Listening)
	return runBoth(ctx, s.server, s.admin)
}

// local is this machine as a node: the program that keeps it one, and the join where
// it is none yet.
func (u *up) local(ctx context.Context, say func(string)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	log := &supervisor.Lines{Prefix: "node: ", To: u.env.Err, Lock: &sync.Mutex{}}
	go func() {
		ended <- supervisor.Process(ctx, u.node, u.nodeArgs("run"), log, nil)
	}()
	joined := make(chan error, 1)
	go func() { joined <- u.join(ctx, say) }()
	select {
	case err := <-ended:
		stop()
		<-joined
		return err
	case err := <-joined:
		if err != nil {
			stop()
			<-ended
			return err
		}
		return <-ended
	}
}

func (u *up) nodeArgs(args ...string) []string {
	dir := u.folder(upNode)
	return append(args, "--json", "--data", dir, "--socket", filepath.Join(dir, "run", "pallet", "control.sock"))
}

// nodeStatus is what allod-node status says, as far as it counts.
type nodeStatus struct {
	State      string `json:"state"`
	Node       string `json:"nodeId"`
	Controller string `json:"controller"`
	Spark      struct {
		Running bool  `json:"running"`
		Reports int64 `json:"reportsSinceStart"`
	} `json:"spark"`
}

// join waits until the node's program is there, joins where the machine is no node,
// and returns when the controller has taken a report.
func (u *up) join(ctx context.Context, say func(string)) error {
	asked, moved := false, false
	for {
		var s nodeStatus
		text, err := u.ask(ctx, "", "status")
		if err == nil {
			err = json.Unmarshal(text, &s)
		}
		origin := u.setup.reached()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil || !s.Spark.Running:
			// It comes up, or dies, which is told.
		case s.State == "active" && s.Spark.Reports > 0:
			say(s.Node)
			return nil
		case s.State == "active" && s.Controller != origin && !moved:
			moved = true
			if _, err := u.ask(ctx, "", "move", origin); err != nil {
				return err
			}
		case s.State != "active" && !asked:
			asked = true
			a, err := askController(ctx, controllerFolder{data: u.folder(upController)}, methods.InviteNode, nodes.InviteCodec, nodes.InvitationCodec, nodes.Invite{Cluster: cloudcluster.First})
			if err != nil {
				return err
			}
			if _, err := u.ask(ctx, a.Line.Reveal()+"\n", "join", "-"); err != nil {
				return err
			}
		}
		t := time.NewTimer(upLook)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}

// ask runs one command of the node. It returns [ErrUpNode], and has shown what the
// command said then, unless it only asked how the node stands.
func (u *up) ask(ctx context.Context, in string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, upAsk)
	defer cancel()
	cmd := exec.CommandContext(ctx, u.node, u.nodeArgs(args...)...)
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &capped{&out}, &capped{&said}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	if err := cmd.Run(); err != nil {
		if args[0] != "status" && ctx.Err() == nil {
			fmt.Fprintf(u.env.Err, "node: %s\n", inert(strings.TrimSpace(said.String())))
		}
		return nil, ErrUpNode.Because(err)
	}
	return out.Bytes(), nil
}

// capped takes what fits and drops the rest.
type capped struct{ to *bytes.Buffer }

func (c *capped) Write(b []byte) (int, error) {
	_, _ = c.to.Write(b[:min(len(b), maxSaid-c.to.Len())])
	return len(b), nil
}

// reached is where the controller is reached, once its port is known.
func (s controllerSetup) reached() string {
	if !s.origin.IsZero() {
		return s.origin.String()
	}
	_, port, err := net.SplitHostPort(s.Listen)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix("https://"+net.JoinHostPort(s.host, port), ":443")
}

func (u *up) announce(s upStarted) error {
	u.out.Lock()
	defer u.out.Unlock()
	if u.asJSON {
		return u.line(s)
	}
	var b strings.Builder
	if s.Login != "" {
		fmt.Fprintf(&b, "Log in as %s by this link. It works once, for an hour:\n\n  %s\n\n", s.Operator, s.Login)
	} else {
		fmt.Fprintf(&b, "Everything is at\n\n  %s\n\nA new login link: allod controller login-link --data %s\n\n", s.URL, inert(u.folder(upController)))
	}
	fmt.Fprintf(&b, "Apps and agents on this machine reach the site at %s as well.\n", s.Local)
	if s.AppKeyFile != "" {
		fmt.Fprintf(&b, "The app's first key is in %s\n", inert(s.AppKeyFile))
	}
	if s.NoNode != "" {
		fmt.Fprintf(&b, "This machine is no node. %s\n", s.NoNode)
	}
	b.WriteString("\n")
	_, err := io.WriteString(u.env.Out, b.String())
	return err
}

// line writes one JSON object in a line.
func (u *up) line(v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(u.env.Out, "%s\n", inertJSON(text))
	}
	return err
}

// tell says what a part has come to be.
func (u *up) tell(c supervisor.Change) {
	u.out.Lock()
	defer u.out.Unlock()
	name := ""
	if c.Err != nil {
		name = refusal.From(c.Err).Kind().Name()
	}
	if u.asJSON {
		_ = u.line(upChange{c.Part, string(c.State), c.Where, c.Starts, name, c.Pause.Milliseconds()})
		return
	}
	rest := c.Where
	if c.State == supervisor.Died {
		rest = fmt.Sprintf("it is started again in %v", c.Pause)
		if c.Err != nil {
			rest = fmt.Sprintf("%s (%s); %s", refusal.From(c.Err).Error(), name, rest)
		}
	}
	fmt.Fprintf(u.env.Out, "%s\n", strings.TrimRight(fmt.Sprintf("%-12s%-10s%s", c.Part, c.State, inert(rest)), " "))
}
