package cli

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/ca"
	"github.com/allodhq/allod/internal/ca/acme"
	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/cloud"
	"github.com/allodhq/allod/internal/cloud/people"
	webconsole "github.com/allodhq/allod/internal/console"
	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/httpd"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site/pairpage"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
)

// What serving a controller is refused with besides the packages' own refusals.
var (
	ErrPlainHTTP = refusal.NewKind("controller-plain-http", 400,
		"Plain HTTP is only for a loopback address behind a proxy that serves TLS, since whoever can listen on the way would be every node.",
		"Leave --plain-http out. Else listen on a loopback address and give --origin, the https address at which the proxy is reached.")
	ErrReach = refusal.NewKind("controller-reach", 400,
		"Nothing says by which name or address nodes reach this controller, since it listens on all of this machine's.",
		"Give --name with that name or address, or --origin with the whole https address.")
)

const defaultControllerListen = "127.0.0.1:8443"

// Bounds of connections to a controller: a node keeps one, and many may come from
// behind one address.
const (
	maxConnections        = 16384
	maxAddressConnections = 4096
)

// maxRoots is the largest file with roots for the authority's own server, in bytes.
const maxRoots = 1 << 20

func newController(env Env) *cobra.Command {
	return group(&cobra.Command{
		Use:   "controller",
		Short: "Run a controller: it knows the nodes of a small cloud and who may ask for what",
		Example: "  allod controller serve --roles zone --data /var/lib/allod-controller --listen 0.0.0.0:8443 --name cloud.example.org\n" +
			"  allod controller login-link --data /var/lib/allod-controller",
	}, newControllerServe(env), newControllerLoginLink(env), newControllerAudit(env))
}

// controllerFlags are what a controller is started with.
type controllerFlags struct {
	Roles        []string
	Data, Listen string
	Origin       string
	Names        []string
	PlainHTTP    bool

	ACMENames                           []string
	ACMEEmail, ACMEDirectory, ACMERoots string
	ACMEAgree                           bool
}

func newControllerServe(env Env) *cobra.Command {
	var f controllerFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a controller until it is stopped",
		Long: `Serves nodes, operators and the pages for people by TLS, from the first minute: the
first start makes a certificate authority in the data folder, and join lines carry its
digest. It also prints a login link, which works once.

A public name is served with a public certificate where --acme-name gives it; then
join lines need no digest. Health, metrics and the commands of the operator are on the
socket admin.sock in the data folder. See docs/zone.md.`,
		Example: "  allod controller serve --roles zone --data /var/lib/allod-controller --listen 0.0.0.0:8443 --name cloud.example.org\n" +
			"  allod controller serve --data /var/lib/allod-controller --listen :443 --acme-name cloud.example.org --acme-email me@example.org --acme-agree",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := cmd.Flags().GetBool("json")
			if err != nil {
				return err
			}
			s, err := f.setup()
			if err != nil {
				return err
			}
			return serveController(cmd.Context(), env, s, asJSON)
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&f.Roles, "roles", []string{"zone"}, "what the controller does: zone, which is all that is built")
	fl.StringVar(&f.Data, "data", "", "the controller's folder; it is made if it is absent")
	fl.StringVar(&f.Listen, "listen", defaultControllerListen, "the address to listen on; port 0 takes a free one")
	fl.StringVar(&f.Origin, "origin", "", "where nodes and people reach it, as in https://cloud.example.org:8443; by default the first name, or the address it listens on")
	fl.StringArrayVar(&f.Names, "name", nil, "a name or an address under which it is reached, for its certificate; may be repeated")
	fl.BoolVar(&f.PlainHTTP, "plain-http", false, "speak plain HTTP, on a loopback address alone, behind a proxy with TLS that --origin names")
	fl.StringArrayVar(&f.ACMENames, "acme-name", nil, "a public name to get a public certificate for; may be repeated")
	fl.StringVar(&f.ACMEEmail, "acme-email", "", "where the public certificate authority writes to")
	fl.BoolVar(&f.ACMEAgree, "acme-agree", false, "agree to the terms of the public certificate authority")
	fl.StringVar(&f.ACMEDirectory, "acme-directory", "", "the ACME directory of another authority than Let's Encrypt")
	fl.StringVar(&f.ACMERoots, "acme-roots", "", "a PEM file with the roots of that authority's own server")
	return cmd
}

// controllerSetup is what the flags mean.
type controllerSetup struct {
	controllerFlags
	origin enroll.Origin // none where the address says it
	host   string        // of the origin, where the port is not known yet
	hosts  []string      // for the own certificate
	roots  *x509.CertPool
}

// setup checks the flags without touching the data folder.
func (f controllerFlags) setup() (controllerSetup, error) {
	s := controllerSetup{controllerFlags: f}
	if f.Data == "" {
		return s, ErrUsage.With("The flag --data is needed.")
	}
	for _, role := range f.Roles {
		switch role {
		case "zone":
		case "ai":
			return s, ErrNotBuilt.With("The role ai will keep accounts and consents. Today a site keeps them, see allod site serve.")
		default:
			return s, ErrUsage.With("--roles: must be zone.")
		}
	}
	if len(f.Roles) == 0 {
		return s, ErrUsage.With("--roles: must be zone.")
	}
	listenHost, err := listenHost(f.Listen)
	if err != nil {
		return s, err
	}
	if f.Origin != "" {
		if s.origin, err = enroll.ParseOrigin(f.Origin); err != nil {
			return s, refusal.From(err).With("See --origin.")
		}
	}
	if f.PlainHTTP && (!pairpage.Loopback(f.Listen) || s.origin.IsZero() || len(f.ACMENames) > 0) {
		return s, ErrPlainHTTP
	}
	if len(f.ACMENames) == 0 && (f.ACMEEmail != "" || f.ACMEAgree || f.ACMEDirectory != "" || f.ACMERoots != "") {
		return s, ErrUsage.With("The other --acme flags are for --acme-name.")
	}
	if f.ACMERoots != "" {
		text, err := datadir.Read(f.ACMERoots, maxRoots)
		s.roots = x509.NewCertPool()
		if err != nil || !s.roots.AppendCertsFromPEM(text) {
			return s, ErrUsage.With("--acme-roots: must be a file with certificates, as PEM.")
		}
	}
	addressed := listenHost.IsValid() && !listenHost.IsUnspecified()
	switch {
	case !s.origin.IsZero():
		s.host = s.origin.Host()
	case len(f.ACMENames) > 0:
		s.host = f.ACMENames[0]
	case len(f.Names) > 0:
		s.host = f.Names[0]
	case addressed:
		s.host = listenHost.String()
	default:
		return s, ErrReach
	}
	s.hosts = append([]string{s.host}, f.Names...)
	if addressed {
		s.hosts = append(s.hosts, listenHost.String())
	}
	if !addressed || listenHost.IsLoopback() {
		s.hosts = append(s.hosts, "localhost", "127.0.0.1", "::1")
	}
	for i, host := range s.hosts {
		h, err := ca.ReadHost(host)
		if err != nil {
			return s, refusal.From(err).With("See --name, --acme-name and --origin.")
		}
		s.hosts[i] = h.String()
	}
	s.host = s.hosts[0]
	return s, nil
}

// listenHost is the address part of what to listen on: invalid for none, as in
// :8443.
func listenHost(listen string) (netip.Addr, error) {
	bad := ErrUsage.With("--listen: must be an address with a port, as in 127.0.0.1:8443.")
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return netip.Addr{}, bad
	}
	switch host {
	case "":
		return netip.Addr{}, nil
	case "localhost":
		host = "127.0.0.1"
	}
	a, err := netip.ParseAddr(host)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, bad
	}
	return a.Unmap(), nil
}

// controllerStarted is the first line of output under --json.
type controllerStarted struct {
	// Listening is the address, Origin where nodes and people reach it.
	Listening string `json:"listening"`
	Origin    string `json:"origin"`
	// Pin is that of the controller's own authority. Public is whether join lines go
	// without it.
	Pin    string `json:"pin"`
	Public bool   `json:"public"`
	// Operator and Login are there after the first start only: a link by which that
	// operator logs in, once.
	Operator string `json:"operator,omitzero"`
	Login    string `json:"login,omitzero"`
}

// listening is what a controller's network side is made of while it starts.
type listening struct {
	server  *httpd.Server
	handler httpd.Late
	names   *acme.Names // nil without a public name
}

// listen binds the address. See [cloud.Listen].
func (l *listening) listen(s controllerSetup, own *tls.Config, log *slog.Logger) (origin enroll.Origin, public bool, err error) {
	config := own
	if len(s.ACMENames) > 0 {
		l.names, err = acme.New(acme.Settings{
			Names: s.ACMENames, Email: s.ACMEEmail, Agreed: s.ACMEAgree, Dir: filepath.Join(s.Data, "acme"),
			Directory: s.ACMEDirectory, Roots: s.roots, Own: own.GetCertificate, Clock: time.Now, Log: log,
		})
		if err != nil {
			return enroll.Origin{}, false, err
		}
		config = l.names.Config()
	}
	if s.PlainHTTP {
		l.server, err = httpd.New(s.Listen, &l.handler, log)
	} else {
		l.server, err = httpd.NewTLS(s.Listen, &l.handler, config, log)
	}
	if err != nil {
		return enroll.Origin{}, false, refusal.From(err).With("See --listen.")
	}
	l.server.Through(func(inner net.Listener) net.Listener {
		return carrier.Guard(inner, maxConnections, maxAddressConnections)
	})
	if origin = s.origin; origin.IsZero() {
		if origin, err = originOf(s.host, l.server.Address()); err != nil {
			return enroll.Origin{}, false, err
		}
	}
	public = s.PlainHTTP || slices.ContainsFunc(s.ACMENames, func(name string) bool { return strings.EqualFold(name, origin.Host()) })
	return origin, public, nil
}

// originOf is the origin of a host at the port that is listened on.
func originOf(host string, at net.Addr) (enroll.Origin, error) {
	_, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return enroll.Origin{}, refusal.Internal.Because(err)
	}
	text := "https://" + net.JoinHostPort(host, port)
	return enroll.ParseOrigin(strings.TrimSuffix(text, ":443"))
}

func serveController(ctx context.Context, env Env, s controllerSetup, asJSON bool) (err error) {
	log := slog.New(httpd.LogHandler(slog.NewTextHandler(env.Err, nil)))
	c, err := openController(ctx, s, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := announceController(env.Out, c.first, s.Data, asJSON); err != nil {
		return err
	}
	return c.serve(ctx)
}

// servedController is a controller that listens and does not serve yet.
type servedController struct {
	*cloud.Controller
	l     listening
	admin *httpd.Server
	log   *slog.Logger
	first controllerStarted
}

// openController opens a controller and binds its addresses. Its first login link, if
// there is one, is made last.
func openController(ctx context.Context, s controllerSetup, log *slog.Logger) (_ *servedController, err error) {
	c := &servedController{log: log}
	defer func() {
		if err == nil {
			return
		}
		if c.l.server != nil {
			c.l.server.Close()
		}
		if c.Controller != nil {
			_ = c.Close()
		}
	}()
	c.Controller, err = cloud.Open(ctx, cloud.Config{
		Data: s.Data, Hosts: s.hosts, Clock: time.Now, Rand: rand.Reader, Log: log,
		Listen: func(own *tls.Config) (enroll.Origin, bool, error) { return c.l.listen(s, own, log) },
		Pages: func(c *cloud.Controller) http.Handler {
			return webconsole.New(webconsole.Config{Controller: pages{c}, Clock: time.Now, Logger: log})
		},
	})
	if err != nil {
		return nil, err
	}
	c.l.handler.Handler = c.Handler()
	if c.admin, err = httpd.NewAdmin(s.Data, c.Healthy, c.Metrics(), log, c.Admin); err != nil {
		return nil, err
	}
	code, err := c.Bootstrap(ctx)
	if err != nil {
		return nil, err
	}
	pin, public := c.Pin()
	c.first = controllerStarted{Listening: c.l.server.Address().String(), Origin: c.Origin().String(), Pin: pin.String(), Public: public}
	if !code.IsZero() {
		c.first.Operator, c.first.Login = string(people.FirstOperator), loginURL(c.Origin(), code)
	}
	return c, nil
}

// serve serves until ctx ends. [servedController.Close] is still to be called.
func (c *servedController) serve(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer stop()
	beside.Go(func() { c.Run(ctx) })
	if c.l.names != nil {
		beside.Go(func() {
			if err := c.l.names.Run(ctx, c.l.server.Address()); err != nil && ctx.Err() == nil {
				c.log.ErrorContext(ctx, "public certificates are not renewed any more", "why", refusal.From(err))
			}
		})
	}
	return runBoth(ctx, c.l.server, c.admin)
}

func loginURL(origin enroll.Origin, code zone.Secret) string {
	return origin.String() + webconsole.LoginPath + code.Reveal()
}

func announceController(w io.Writer, s controllerStarted, data string, asJSON bool) error {
	if asJSON {
		line, err := json.Marshal(s)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s\n", line)
		return err
	}
	text := fmt.Sprintf("Listening on %s. Nodes and people reach it at\n\n  %s\n\n", s.Listening, s.Origin)
	if s.Public {
		text += "with a certificate that machines trust anyway. "
	}
	text += fmt.Sprintf("The pin of the controller's own authority:\n\n  %s\n", s.Pin)
	if s.Login != "" {
		text += fmt.Sprintf("\nLog in as %s by this link. It works once, for an hour:\n\n  %s\n", s.Operator, s.Login)
	}
	text += fmt.Sprintf("\nInvite a machine:\n\n  allod node invite --data %s\n", inert(data))
	_, err := io.WriteString(w, text)
	return err
}

// pages is a controller as the pages ask it.
type pages struct{ c *cloud.Controller }

// Login is as in [webconsole.Controller].
func (p pages) Login(ctx context.Context, code zone.Secret) (zone.Secret, time.Time, error) {
	return p.c.Login(ctx, code)
}

// Nodes is as in [webconsole.Controller]. It looks for one node more than the page
// shows, so that the page can say that there are more.
func (p pages) Nodes(ctx context.Context, jwt zone.Secret) ([]webconsole.NodeLine, error) {
	list, err := p.c.NodesOf(ctx, jwt, webconsole.MaxNodes+1)
	if err != nil {
		return nil, err
	}
	lines := make([]webconsole.NodeLine, 0, len(list))
	for _, n := range list {
		line := webconsole.NodeLine{ID: string(n.ID), Hostname: n.Hostname, Cluster: string(n.Cluster), State: stateWords(n.Liveness.State)}
		if n.Seen != nil {
			line.Seen, line.Age = true, time.Since(n.Seen.AcceptedAt.Time())
		}
		lines = append(lines, line)
	}
	return lines, nil
}
