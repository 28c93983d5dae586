package zonectl

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allodhq/allod/internal/ca"
	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/cloud/nodes"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/store/memory"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/methods"
	wire "github.com/allodhq/allod/wire/zone/nodes"
	"github.com/allodhq/allod/wire/zone/rpc"
	"github.com/allodhq/allod/wire/zone/spark"
)

// Heartbeat is how a [Controller.Gate] knows a report, which has no method.
const Heartbeat = "heartbeat"

// Fate is what becomes of a request.
type Fate int

// The fates.
const (
	Pass Fate = iota
	// Lose cuts the connection before anything is done.
	Lose
	// Cut does what was asked, and cuts the connection before the answer.
	Cut
)

// Controller is one installation. It can be stopped and started again at its address.
type Controller struct {
	Nodes  *nodes.Nodes
	Origin enroll.Origin

	dir     string
	address string
	shift   atomic.Int64 // of its clock, in nanoseconds
	store   *memory.Store
	offer   atomic.Pointer[handshake.Offer]

	mu     sync.Mutex
	gate   func(method string) Fate
	counts map[string]int
	server *http.Server
	listen net.Listener
	typed  *carrier.Server
}

const cluster = zone.ClusterID("test")

// New makes an installation whose authority is kept in dir, and starts it.
func New(dir string) (*Controller, error) {
	c := &Controller{dir: dir, address: "127.0.0.1:0", store: memory.New(), counts: map[string]int{}}
	err := c.store.Write(context.Background(), func(tx store.Tx) error {
		if err := tx.PutOrganization(store.Organization{ID: "test", Name: "Test", CreatedAt: 1}); err != nil {
			return err
		}
		return tx.PutCluster(store.Cluster{ID: cluster, Organization: "test", Name: "Test", Revision: 1, CreatedAt: 1})
	})
	if err != nil {
		return nil, err
	}
	return c, c.Start()
}

// Clock is the controller's clock.
func (c *Controller) Clock() time.Time { return time.Now().Add(time.Duration(c.shift.Load())) }

// Shift puts its clock ahead by d, or back. It counts for a certificate from the next
// start on.
func (c *Controller) Shift(d time.Duration) { c.shift.Store(int64(d)) }

// Speak makes it offer another release, or its own where o is nil.
func (c *Controller) Speak(o *handshake.Offer) { c.offer.Store(o) }

func (c *Controller) ours(s handshake.Session) handshake.Offer {
	if o := c.offer.Load(); o != nil {
		return *o
	}
	return handshake.Ours(s)
}

// Gate decides the fate of each request from now on; nil lets all pass. It may wait.
func (c *Controller) Gate(f func(method string) Fate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gate = f
}

// Count is how many requests of a method came.
func (c *Controller) Count(method string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[method]
}

// Start starts it at the address that it has, or at one of the kernel's choice.
func (c *Controller) Start() error {
	authority, err := ca.Open(c.dir, rand.Reader, c.Clock)
	if err != nil {
		return err
	}
	server, err := authority.Server("127.0.0.1")
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", c.address)
	for range 100 { // a connection of another test may have the port for a moment
		if err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
		l, err = net.Listen("tcp", c.address)
	}
	if err != nil {
		return err
	}
	c.address = l.Addr().String()
	if c.Origin, err = enroll.ParseOrigin("https://" + c.address); err != nil {
		return err
	}
	pin, err := enroll.ParsePin(authority.Pin().String())
	if err != nil {
		return err
	}
	c.Nodes = nodes.New(nodes.Config{Store: c.store, Clock: c.Clock, Rand: rand.Reader, Origin: c.Origin, Pin: pin})
	quiet := slog.New(slog.DiscardHandler)
	c.typed = carrier.NewServer(carrier.Config{Answers: rpc.NewServer(rpc.Config{
		Registry: methods.Controller, Authenticator: c, Offer: c.ours, Bindings: []rpc.Binding{
			rpc.Bind(methods.EnrollNode, enroll.RequestCodec, enroll.ResponseCodec, func(ctx context.Context, _ *rpc.Call, r enroll.Request) (enroll.Response, error) {
				a, err := c.Nodes.Enroll(ctx, r.Proposal, r.Proof)
				return enroll.Response{Acknowledgement: a, Protocol: c.ours(handshake.SparkNode)}, err
			}),
			rpc.Bind(methods.EnrollmentState, enroll.StateRequestCodec, enroll.StateResponseCodec, func(ctx context.Context, _ *rpc.Call, r enroll.StateRequest) (enroll.StateResponse, error) {
				id, m, absent, err := c.Nodes.State(ctx, r.Bearer)
				return enroll.StateResponse{NodeID: id, Spark: m, PalletAbsent: absent, Protocol: c.ours(handshake.SparkNode)}, err
			}),
			rpc.Bind(methods.GetCredential, enroll.CredentialRequestCodec, enroll.CredentialResponseCodec, func(ctx context.Context, _ *rpc.Call, r enroll.CredentialRequest) (enroll.CredentialResponse, error) {
				id, m, err := c.Nodes.Credential(ctx, r.Bearer)
				return enroll.CredentialResponse{NodeID: id, Credential: m, Protocol: c.ours(handshake.SparkNode)}, err
			}),
			rpc.Bind(methods.RotateCredential, enroll.RotateRequestCodec, enroll.RotateResponseCodec, func(ctx context.Context, _ *rpc.Call, r enroll.RotateRequest) (enroll.RotateResponse, error) {
				receipt, err := c.Nodes.Rotate(ctx, r.Bearer, r.Rotation)
				return enroll.RotateResponse{Receipt: receipt, Protocol: c.ours(handshake.SparkNode)}, err
			}),
		}}), Clock: c.Clock, Rand: rand.Reader, Log: quiet})
	mux := http.NewServeMux()
	mux.Handle(carrier.Path, c.typed)
	mux.HandleFunc("POST "+spark.Path, c.report)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNotFound) })
	c.server = &http.Server{
		Handler:   http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.decide(w, r, mux) }),
		TLSConfig: server.Config(), ErrorLog: slog.NewLogLogger(quiet.Handler(), slog.LevelWarn),
		ReadHeaderTimeout: time.Minute,
	}
	c.listen = l
	go func(s *http.Server) { _ = s.ServeTLS(l, "", "") }(c.server)
	return nil
}

// Move starts it at another address, as after a restore. It must be stopped.
func (c *Controller) Move() error {
	c.address = "127.0.0.1:0"
	return c.Start()
}

// Stop ends it, and cuts every connection.
func (c *Controller) Stop() {
	c.typed.Close()
	_ = c.server.Close()
	_ = c.listen.Close() // where it has not come to serve yet
}

// asked is the method of a typed request.
var asked = exact.Shape[string]{Unknown: exact.Drop, Fields: func(o *exact.Object, m *string) {
	exact.Text(o, "method", m, 1, 128)
}}

// decide reads a request whole, and lets it have its fate.
func (c *Controller) decide(w http.ResponseWriter, r *http.Request, next http.Handler) {
	method := ""
	if r.Body != nil {
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if method, err = asked.Read(body, exact.Limits{Bytes: 1 << 20, Depth: 16, Values: 4096}); err != nil && r.URL.Path == spark.Path {
			method = Heartbeat
		}
	}
	c.mu.Lock()
	c.counts[method]++
	gate := c.gate
	c.mu.Unlock()
	fate := Pass
	if gate != nil && method != "" {
		fate = gate(method)
	}
	answer := httptest.NewRecorder()
	if fate != Lose {
		next.ServeHTTP(answer, r)
	}
	if fate != Pass {
		panic(http.ErrAbortHandler)
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.Header().Set("Date", c.Clock().UTC().Format(http.TimeFormat))
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // whoever is gone is gone
}

// report is the route of F11.
func (c *Controller) report(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, spark.MaxRequest+1))
	if err == nil && len(body) > spark.MaxRequest {
		err = rpc.ErrSchema
	}
	if err == nil {
		err = c.take(r.Context(), w, body)
	}
	if err == nil {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if incompatible, ok := err.(*handshake.Refusal); ok {
		text, _ := handshake.RefusalCodec.Append(nil, *incompatible)
		w.WriteHeader(handshake.Status)
		_, _ = w.Write(text)
		return
	}
	status, text := refusal.HTTP(err)
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

func (c *Controller) take(ctx context.Context, w io.Writer, body []byte) error {
	theirs, err := handshake.Read(body)
	if err != nil {
		return err
	}
	if err := handshake.Negotiate(c.ours(spark.Session), theirs); err != nil {
		return err
	}
	q, err := spark.RequestCodec.Read(body)
	if err != nil {
		return rpc.ErrSchema
	}
	receipt, rotate, err := c.Nodes.Report(ctx, q.Bearer, q.Report)
	if err != nil {
		return err
	}
	text, err := spark.ResponseCodec.Append(nil, spark.Response{Receipt: receipt, RotationRequired: rotate, Protocol: c.ours(spark.Session)})
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// Authenticate knows the programs of nodes by their bearers.
func (c *Controller) Authenticate(ctx context.Context, q rpc.Credential) (rpc.Principal, error) {
	b, err := enroll.ParseBearer(q.Bearer.Reveal())
	if err != nil {
		return rpc.Principal{}, enroll.ErrCredential
	}
	id, m, err := c.Nodes.Credential(ctx, b)
	if err != nil {
		return rpc.Principal{}, err
	}
	caller := rpc.NodeSpark
	if m.Purpose == enroll.Pallet {
		caller = rpc.NodePallet
	}
	return rpc.Principal{Caller: caller, Subject: string(id), Generation: int64(m.Generation), Epoch: int64(m.SessionEpoch)}, nil
}

var administrator = who.Principal{Kind: who.Local}

// Invite makes a join line.
func (c *Controller) Invite() (string, error) {
	i, err := c.Nodes.Invite(context.Background(), administrator, wire.Invite{Cluster: cluster})
	return i.Line.Reveal(), err
}

// List is all nodes, removed ones too.
func (c *Controller) List() ([]wire.Node, error) {
	p, err := c.Nodes.List(context.Background(), administrator, wire.List{})
	return p.Nodes, err
}

// Rotate asks both programs of a node for new credentials.
func (c *Controller) Rotate(id zone.NodeID, mutation zone.MutationID) error {
	_, err := c.Nodes.AskRotation(context.Background(), administrator, wire.Rotate{Node: id, Mutation: mutation})
	return err
}

// Remove removes a node, or its Pallet alone.
func (c *Controller) Remove(id zone.NodeID, palletOnly bool, mutation zone.MutationID) error {
	_, err := c.Nodes.Remove(context.Background(), administrator, wire.Remove{Node: id, PalletOnly: palletOnly, Mutation: mutation})
	return err
}
