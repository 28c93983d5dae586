package compose

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/cloud"
	"github.com/allodhq/allod/internal/cloud/cluster"
	"github.com/allodhq/allod/internal/httpd"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/methods"
	"github.com/allodhq/allod/wire/zone/nodes"
)

// ErrNoNode is when the machine did not become a node.
var ErrNoNode = refusal.NewKind("demo-no-node", 500,
	"This machine did not become a node of the demo's controller.",
	"Read what allod-node said, which is above. allod demo --no-node leaves the node out.")

// NodeProgram is the name of the program that makes a machine a node.
const NodeProgram = "allod-node"

// Why no node is run beside the program, and what to do. "" means that one is.
const (
	NoLinux   = "A node needs Linux. Run this on a machine with Linux, as root."
	NoSibling = "There is no program allod-node beside this one. Build both with make build, or unpack both from one archive."
	NoRoot    = "A node needs root, since it is to run containers. Run this as root."
	NotWanted = "It was not asked for."
)

// Sibling finds the program of a node beside a program, such as the one that runs.
// absent says why there is none.
func Sibling(program string) (path, absent string) {
	if runtime.GOOS != "linux" {
		return "", NoLinux
	}
	path = filepath.Join(filepath.Dir(program), NodeProgram)
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return "", NoSibling
	}
	return path, ""
}

// Zone is what the zone part of a demo showed.
type Zone struct {
	// Controller is where the controller was.
	Controller string `json:"controller"`
	// Absent says why no machine was joined, and what to do; else it is empty.
	Absent string `json:"absent,omitzero"`
	// Nodes are the controller's, as allod node ls --json has them.
	Nodes []jsontext.Value `json:"nodes"`
	// List is the same.
	List []nodes.Node `json:"-"`
}

// joinTime bounds the join of the demo's node.
const joinTime = time.Minute

// openController opens a controller with its own certificates on loopback.
func (d *demo) openController(ctx context.Context) error {
	dir := filepath.Join(d.c.Dir, "zone")
	log := slog.New(slog.DiscardHandler)
	handler := &httpd.Late{}
	var server *httpd.Server
	c, err := cloud.Open(ctx, cloud.Config{
		Data: dir, Hosts: []string{"127.0.0.1"}, Clock: time.Now, Rand: rand.Reader, Log: log,
		Listen: func(own *tls.Config) (origin enroll.Origin, public bool, err error) {
			if server, err = httpd.NewTLS("127.0.0.1:0", handler, own, log); err == nil {
				origin, err = enroll.ParseOrigin("https://" + server.Address().String())
			}
			return origin, false, err
		},
	})
	if err != nil {
		return err
	}
	d.closers = append(d.closers, func() { _ = c.Close() })
	handler.Handler = c.Handler()
	d.serve(ctx, server.Run)
	if _, err := c.Bootstrap(ctx); err != nil {
		return err
	}
	admin := http.NewServeMux()
	c.Admin(admin)
	d.admin = carrier.NewAdminClient(carrier.Path, &http.Client{Transport: within{admin}}, rand.Reader)
	d.Zone.Controller = c.Origin().String()
	return nil
}

// join makes this machine a node, as its owner does by one line, and lists what the
// controller knows then.
func (d *demo) join(ctx context.Context) error {
	if d.Zone.Absent = d.c.NoNode; d.c.NoNode == "" {
		invited, err := carrier.Call(ctx, d.admin, methods.InviteNode, nodes.InviteCodec, nodes.InvitationCodec,
			nodes.Invite{Cluster: cluster.First}, carrier.Proof{})
		if err != nil {
			return err
		}
		if err := d.joinBy(ctx, invited.Line); err != nil {
			return err
		}
	}
	page, err := carrier.Call(ctx, d.admin, methods.GetNodes, nodes.ListCodec, nodes.PageCodec, nodes.List{}, carrier.Proof{})
	if err != nil {
		return err
	}
	d.Zone.List, d.Zone.Nodes = page.Nodes, []jsontext.Value{}
	for _, n := range page.Nodes {
		text, err := nodes.Codec.Append(nil, n)
		if err != nil {
			return err
		}
		d.Zone.Nodes = append(d.Zone.Nodes, text)
	}
	if d.c.NoNode == "" && (len(page.Nodes) != 1 || page.Nodes[0].Liveness.State != nodes.Online) {
		return ErrNoNode
	}
	return nil
}

// joinBy runs the program of a node until the controller has taken its first report.
func (d *demo) joinBy(ctx context.Context, line zone.Secret) error {
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	dir := filepath.Join(d.c.Dir, "node")
	args := []string{"join", "-", "--data", dir, "--socket", filepath.Join(dir, "run", "pallet", "control.sock")}
	if os.Geteuid() != 0 {
		args = append(args, "--user")
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, d.c.Node, args...)
	cmd.Stdin = strings.NewReader(line.Reveal() + "\n")
	cmd.Stdout, cmd.Stderr = io.Discard, &said
	// It ends its own programs when it is asked to.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() == nil || said.Len() > 0 {
			d.c.Progress(strings.TrimSpace(said.String()))
		}
		return ErrNoNode.Because(err)
	}
	return nil
}

// within answers requests by a handler of this process.
type within struct{ handler http.Handler }

// RoundTrip asks the handler. It takes the body of the answer as a whole.
func (w within) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := &recorded{header: http.Header{}, status: http.StatusOK}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	defer func() { _ = r.Body.Close() }()
	w.handler.ServeHTTP(answer, r)
	return &http.Response{
		StatusCode: answer.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: answer.header,
		Body: io.NopCloser(&answer.body), ContentLength: int64(answer.body.Len()), Request: r,
	}, nil
}

// recorded is an answer that a handler gave.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorded) Header() http.Header         { return r.header }
func (r *recorded) WriteHeader(status int)      { r.status = status }
func (r *recorded) Write(b []byte) (int, error) { return r.body.Write(b) }
