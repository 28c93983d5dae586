package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/allodhq/allod/internal/ca"
	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/httpd"
	"github.com/allodhq/allod/internal/pace"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/methods"
	wirenodes "github.com/allodhq/allod/wire/zone/nodes"
	"github.com/allodhq/allod/wire/zone/spark"
)

const (
	// controllerFolder is the controller's in the folder of a run.
	controllerFolder = "controller"
	// firstCluster is the one that a controller makes at its first start.
	firstCluster zone.ClusterID = "main"
	// joiners is how many nodes join at once.
	joiners = 8
	// reportTime bounds one report.
	reportTime = 30 * time.Second
	// settle is how long nodes report before it is measured: each one once, by a
	// connection of its own, and some time more. A measurement that is shorter than
	// that is a trial, and waits no longer than it takes.
	settle = spark.Interval + 2*time.Second
)

// fleet is one run: a controller and the nodes that are played.
type fleet struct {
	HeartbeatsConfig
	folder string

	url   string
	admin *carrier.Client
	nodes []*node
}

func (f *fleet) measure(ctx context.Context, r *HeartbeatsReport) error {
	p, err := f.start(ctx)
	if err != nil {
		return err
	}
	defer p.end()
	defer f.close()
	if err := f.join(ctx); err != nil {
		return err
	}
	warm := min(settle, f.Duration)
	f.Progress(fmt.Sprintf("%d nodes report for %v, and then for %v that are measured", f.HeartbeatsConfig.Nodes, warm, f.Duration))
	running, stop := context.WithCancel(ctx)
	defer stop()
	begun := f.Clock()
	from, until := begun.Add(warm), begun.Add(warm+f.Duration)
	var all tally
	var wg sync.WaitGroup
	defer wg.Wait()
	tallies := make([]tally, len(f.nodes))
	for i, n := range f.nodes {
		wg.Go(func() { tallies[i] = f.run(running, n, from, until) })
	}
	if err := pause(ctx, warm); err != nil {
		return err
	}
	cpu, at := processorOf(p.pid()), f.Clock()
	if err := pause(ctx, f.Duration); err != nil {
		return err
	}
	took := f.Clock().Sub(at)
	r.Controller.Cores = cores(cpu, processorOf(p.pid()), took)
	if peak, ok := peakOfRunning(p.pid()); ok {
		r.Controller.PeakMemoryMB = float64(peak) / 1e6
	}
	stop()
	wg.Wait()
	for _, t := range tallies {
		all.add(t)
	}
	r.Seconds = took.Seconds()
	r.Heartbeats = all.report(took)
	return nil
}

// start starts a controller.
func (f *fleet) start(ctx context.Context) (*program, error) {
	return work{f.Program, f.folder, f.Progress}.launch(ctx, controllerFolder, ErrController, func(line []byte) error {
		var first struct {
			Origin string `json:"origin"`
		}
		if err := json.Unmarshal(line, &first); err != nil {
			return err
		}
		if !strings.HasPrefix(first.Origin, "https://") {
			return errors.New("bench: the controller does not say where it listens")
		}
		f.url = first.Origin
		f.admin = carrier.NewAdminClient(carrier.Path, httpd.AdminClient(filepath.Join(f.folder, controllerFolder)), f.Rand)
		return nil
	}, "controller", "serve", "--roles", "zone", "--data", controllerFolder, "--listen", "127.0.0.1:0", "--json")
}

func (f *fleet) close() {
	for _, n := range f.nodes {
		if n != nil {
			n.http.CloseIdleConnections()
		}
	}
}

// node is one machine that is played: what its Spark is known by, and a connection
// of its own.
type node struct {
	bearer enroll.Bearer
	who    enroll.Identity
	report spark.Report
	http   *http.Client
}

// join has every node invited by the local administrator and enrolled over the
// network, as machines are.
func (f *fleet) join(ctx context.Context) error {
	f.nodes = make([]*node, f.HeartbeatsConfig.Nodes)
	count, ended := phase(f.Progress, "joining nodes", len(f.nodes))
	defer ended()
	return together(ctx, joiners, func(ctx context.Context, joiner int) error {
		for i := joiner; i < len(f.nodes); i += joiners {
			invited, err := carrier.Call(ctx, f.admin, methods.InviteNode, wirenodes.InviteCodec, wirenodes.InvitationCodec, wirenodes.Invite{Cluster: firstCluster}, carrier.Proof{}, enroll.Kinds)
			if err != nil {
				return err
			}
			if f.nodes[i], err = f.enroll(ctx, i, invited.Line.Reveal()); err != nil {
				return err
			}
			count()
		}
		return nil
	})
}

// enroll joins one machine by its line.
func (f *fleet) enroll(ctx context.Context, i int, text string) (*node, error) {
	line, err := enroll.ParseJoinLine(text)
	if err != nil {
		return nil, err
	}
	pin, err := ca.ParsePin(line.Pin.String())
	if err != nil {
		return nil, err
	}
	trust, err := ca.NewTrust(pin, line.Origin.Host(), f.Clock)
	if err != nil {
		return nil, err
	}
	n := &node{http: &http.Client{Transport: &http.Transport{
		TLSClientConfig: trust.Client(), DialContext: dialer(i).DialContext, DisableCompression: true,
		MaxIdleConnsPerHost: 1, MaxConnsPerHost: 1,
	}}}
	hostname := fmt.Sprintf("bench-%05d", i)
	n.report = reportOf(hostname)
	var bearers [2]enroll.Bearer
	for i := range bearers {
		if bearers[i], err = enroll.NewBearer(f.Rand); err != nil {
			return nil, err
		}
	}
	n.bearer = bearers[0]
	p := enroll.Proposal{Origin: line.Origin, Hostname: hostname, EnrollmentID: enroll.EnrollmentID(hostname), BootstrapProofHash: line.Code.Hash()}
	p.Spark.CredentialHash, p.Pallet.CredentialHash = bearers[0].Hash(), bearers[1].Hash()
	answer, err := carrier.Call(ctx, carrier.NewClient(line.Origin.String()+carrier.Path, n.http, f.Rand), methods.EnrollNode, enroll.RequestCodec, enroll.ResponseCodec,
		enroll.Request{Protocol: handshake.Ours(spark.Session), Proposal: p, Proof: enroll.BootstrapByCode(line.Code)}, carrier.Proof{}, enroll.Kinds)
	if err != nil {
		return nil, err
	}
	n.who = answer.Acknowledgement.Identity(enroll.Spark)
	return n, enroll.BindAcknowledgement(p, answer.Acknowledgement)
}

// dialer dials for one node. Machines have addresses of their own, and so do these
// where every address of 127.0.0.0/8 is this machine's.
func dialer(i int) *net.Dialer {
	d := &net.Dialer{Timeout: reportTime}
	if runtime.GOOS == "linux" {
		d.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, byte(1+i/62500), byte(i/250%250), byte(1+i%250))}
	}
	return d
}

// reportOf is what a machine says of itself. It is as long as a real one's.
func reportOf(hostname string) spark.Report {
	return spark.Report{
		Host: spark.Host{
			Hostname: hostname, Kernel: "6.12.48+deb13-amd64", OS: "Debian GNU/Linux 13 (trixie)", Architecture: "amd64",
			BootID: "0b8a3f6e-6a52-4b1c-9d5e-1f2a3b4c5d6e", CPUs: 8, MemoryBytes: 33_554_432_000, DiskBytes: 512_110_190_592,
		},
		Bundle: spark.Bundle{Version: "v0.0.0-20260101000000-0123456789ab", SourceCommit: strings.Repeat("0123456789", 4), ManifestDigest: canon.Sum{1}},
	}
}

// run is one node until the context ends: it reports as the schedule of Spark says.
// What begins between the two times counts.
func (f *fleet) run(ctx context.Context, n *node, from, until time.Time) (t tally) {
	schedule := pace.New(spark.Interval)
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for round := int64(1); ; round++ {
		if at, wait := schedule.Wait(f.Clock(), f.Rand); wait {
			timer.Reset(at.Sub(f.Clock()))
			select {
			case <-ctx.Done():
				return t
			case <-timer.C:
			}
		}
		begun := f.Clock()
		r := n.report
		r.ObservedAt, r.Host.UptimeSeconds = zone.At(begun), round*int64(spark.Interval/time.Second)
		r.Load = spark.Load{CPU: spark.Fraction(round * 7919 % spark.Whole), Memory: 500_000, Disk: 250_000}
		err := f.post(ctx, n, r)
		if ctx.Err() != nil {
			return t
		}
		now := f.Clock()
		if err != nil {
			schedule.Failed(now, err)
		} else {
			schedule.Done(now)
		}
		switch {
		case begun.Before(from) || !begun.Before(until):
		case err == nil:
			t.times = append(t.times, now.Sub(begun))
		case errors.Is(err, errNoReceipt):
			t.refused++
		default:
			t.failed++
		}
	}
}

// errNoReceipt is an answer that is no receipt for the report.
var errNoReceipt = errors.New("bench: the answer is no receipt")

// post reports, and checks the receipt as Spark does.
func (f *fleet) post(ctx context.Context, n *node, r spark.Report) error {
	body, err := spark.RequestCodec.Append(nil, spark.Request{Bearer: n.bearer, Protocol: handshake.Ours(spark.Session), Report: r})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+spark.Path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := n.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, spark.MaxResponse+1))
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return errNoReceipt
	}
	got, err := spark.ResponseCodec.Read(text)
	if err != nil || spark.BindReceipt(n.who, r, got.Receipt) != nil {
		return errNoReceipt
	}
	return nil
}
