package api_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/cloud/api"
	"github.com/allodhq/allod/internal/cloud/cluster"
	"github.com/allodhq/allod/internal/cloud/machine"
	"github.com/allodhq/allod/internal/cloud/nodes"
	"github.com/allodhq/allod/internal/cloud/people"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/store/memory"
	"github.com/allodhq/allod/internal/cloud/store/storecount"
	"github.com/allodhq/allod/internal/cloud/token"
	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/admin"
	"github.com/allodhq/allod/wire/zone/canon"
	wirecluster "github.com/allodhq/allod/wire/zone/cluster"
	"github.com/allodhq/allod/wire/zone/enroll"
	wiremachine "github.com/allodhq/allod/wire/zone/machine"
	"github.com/allodhq/allod/wire/zone/methods"
	wirenodes "github.com/allodhq/allod/wire/zone/nodes"
	"github.com/allodhq/allod/wire/zone/rpc"
	"github.com/allodhq/allod/wire/zone/spark"
)

var start = time.Date(2026, 12, 1, 15, 0, 0, 0, time.UTC)

const (
	goodOffer    = `{"interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.0"}`
	foreignOffer = `{"interfacesVersion":"33.1.0","minimumPeerVersion":"33.0.0"}`
	adminPath    = "/admin"
)

// source is randomness that several may read.
type source struct {
	mu sync.Mutex
	r  *rand.ChaCha8
}

func (s *source) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.r.Read(b)
}

// buffer is a log that several write.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// worlds makes each controller of a test another one.
var worlds atomic.Int32

// world is a controller behind its carrier.
type world struct {
	t      *testing.T
	store  *storecount.Store
	people *people.People
	api    *api.API
	url    string
	log    *buffer
	rand   io.Reader
	first  zone.Secret // the first login link

	mu   sync.Mutex
	now  time.Time
	next int
}

func newWorld(t *testing.T) *world { return newWorldOn(t, memory.New()) }

func newWorldOn(t *testing.T, s store.Store) *world {
	t.Helper()
	if err := keyfile.Platform(); err != nil {
		t.Skip("this system keeps no key files")
	}
	w := &world{t: t, now: start, log: &buffer{}, rand: &source{r: rand.NewChaCha8([32]byte{byte(worlds.Add(1))})}, store: storecount.Wrap(s)}
	keys, err := token.Open(t.TempDir(), w.rand, start)
	if err != nil {
		t.Fatal(err)
	}
	w.people = people.New(people.Config{Store: w.store, Keys: keys, Clock: w.clock, Rand: w.rand})
	if w.first, err = w.people.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	origin, err := enroll.ParseOrigin("https://controller.example.org")
	if err != nil {
		t.Fatal(err)
	}
	c := cluster.Config{Store: w.store, Clock: w.clock, Rand: w.rand}
	w.api = api.New(api.Config{
		People: w.people, Clusters: cluster.NewClusters(c), Services: cluster.NewServices(c),
		Machines: machine.New(machine.Config{Store: w.store, Clock: w.clock, Rand: w.rand, Tokens: keys}),
		Nodes:    nodes.New(nodes.Config{Store: w.store, Clock: w.clock, Rand: w.rand, Origin: origin}),
		Clock:    w.clock, Rand: w.rand,
		Log: slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	mux := http.NewServeMux()
	mux.Handle(carrier.Path, w.api.Carrier())
	mux.Handle(adminPath+carrier.Path, w.api.Carrier().Admin())
	mux.Handle(spark.Path, w.api.Heartbeat())
	server := httptest.NewServer(mux)
	w.url = server.URL
	t.Cleanup(func() {
		w.api.Close()
		server.Close()
	})
	return w
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// id is an identifier that was not there.
func (w *world) id() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	return fmt.Sprintf("id-%d", w.next)
}

func (w *world) mutation() zone.MutationID { return zone.MutationID(w.id()) }

func (w *world) client() *carrier.Client {
	return carrier.NewClient(w.url+carrier.Path, http.DefaultClient, w.rand)
}

func (w *world) admin() *carrier.Client {
	dial := &http.Client{Transport: redirect{w.url}}
	return carrier.NewAdminClient(adminPath+carrier.Path, dial, w.rand)
}

// redirect sends what is for the admin socket to the test's server.
type redirect struct{ url string }

func (r redirect) RoundTrip(q *http.Request) (*http.Response, error) {
	q = q.Clone(q.Context())
	q.URL.Host = strings.TrimPrefix(r.url, "http://")
	return http.DefaultTransport.RoundTrip(q)
}

func call[Req, Res any](w *world, h carrier.Hop, m *rpc.Method, req zone.Codec[Req], res zone.Codec[Res], content Req, with carrier.Proof) (Res, error) {
	return carrier.Call(w.t.Context(), h, m, req, res, content, with, registries...)
}

// must is call where an error ends the test.
func must[Req, Res any](w *world, h carrier.Hop, m *rpc.Method, req zone.Codec[Req], res zone.Codec[Res], content Req, with carrier.Proof) Res {
	w.t.Helper()
	a, err := call(w, h, m, req, res, content, with)
	if err != nil {
		w.t.Fatalf("%s: %v %v", m.Name, err, rpc.Reasons(err))
	}
	return a
}

// login uses a login link of an operator.
func (w *world) login(code zone.Secret) zone.Secret {
	w.t.Helper()
	return must(w, w.client(), methods.ExchangeLoginLink, admin.ExchangeLoginLinkCodec, admin.ExchangeLoginLinkAnswerCodec,
		admin.ExchangeLoginLink{Code: code}, carrier.Proof{}).Identity.JWT
}

// operator makes an operator with a role in an organization, and logs them in.
func (w *world) operator(id zone.OperatorID, o zone.OrganizationID, role admin.Role) zone.Secret {
	w.t.Helper()
	must(w, w.admin(), methods.CreateOperator, admin.CreateOperatorCodec, admin.CreateOperatorAnswerCodec,
		admin.CreateOperator{OperatorID: id, Name: string(id), MutationID: w.mutation()}, carrier.Proof{})
	if o != "" {
		must(w, w.admin(), methods.SetMember, admin.SetMemberCodec, admin.SetMemberAnswerCodec,
			admin.SetMember{OrganizationID: o, OperatorID: id, Role: role, MutationID: w.mutation()}, carrier.Proof{})
	}
	return w.login(w.link(id))
}

func (w *world) link(id zone.OperatorID) zone.Secret {
	w.t.Helper()
	return must(w, w.admin(), methods.CreateLoginLink, admin.CreateLoginLinkCodec, admin.CreateLoginLinkAnswerCodec,
		admin.CreateLoginLink{OperatorID: id}, carrier.Proof{}).Code
}

// estate is an organization with one of everything.
type estate struct {
	organization zone.OrganizationID
	operator     zone.OperatorID
	jwt          zone.Secret // of an administrator of it
	cluster      zone.ClusterID
	service      zone.ServiceID
	machine      zone.Secret // the bearer of the service's machine
	node         node
}

// node is a machine that has joined.
type node struct {
	id            zone.NodeID
	spark, pallet enroll.Bearer
}

func (w *world) estate(name string) estate {
	w.t.Helper()
	e := estate{organization: zone.OrganizationID("org-" + name), operator: zone.OperatorID("op-" + name)}
	must(w, w.admin(), methods.CreateOrganization, admin.CreateOrganizationCodec, admin.CreateOrganizationAnswerCodec,
		admin.CreateOrganization{OrganizationID: e.organization, Name: name, MutationID: w.mutation()}, carrier.Proof{})
	e.jwt = w.operator(e.operator, e.organization, admin.Administrator)
	as := carrier.Proof{Token: e.jwt}
	e.cluster = must(w, w.client(), methods.CreateCluster, wirecluster.CreateCodec, wirecluster.AnswerCodec,
		wirecluster.Create{Organization: e.organization, Cluster: wirecluster.Writable{Name: name}, Mutation: w.mutation()}, as).Cluster.ID
	e.service = must(w, w.client(), methods.CreateService, wirecluster.CreateServiceCodec, wirecluster.ServiceAnswerCodec,
		wirecluster.CreateService{Organization: e.organization, Service: wirecluster.WritableService{Name: name, Cluster: e.cluster}, Mutation: w.mutation()}, as).Service.ID
	e.machine = must(w, w.client(), methods.MutateMachine, wiremachine.MutateCodec, wiremachine.MutateAnswerCodec,
		wiremachine.Mutate{Operation: wiremachine.Ensure, Organization: e.organization, Service: e.service, Grant: wiremachine.PlatformSession, Mutation: w.mutation()}, as).Bearer
	e.node = w.join(e.cluster, as)
	return e
}

// invite makes a join line.
func (w *world) invite(c zone.ClusterID, as carrier.Proof) enroll.JoinLine {
	w.t.Helper()
	text := must(w, w.client(), methods.InviteNode, wirenodes.InviteCodec, wirenodes.InvitationCodec, wirenodes.Invite{Cluster: c}, as).Line
	line, err := enroll.ParseJoinLine(text.Reveal())
	if err != nil {
		w.t.Fatal(err)
	}
	return line
}

// proposal is one for a fresh machine, with the bearers that it prepared.
func (w *world) proposal(line enroll.JoinLine) (enroll.Proposal, node) {
	w.t.Helper()
	var n node
	var err error
	if n.spark, err = enroll.NewBearer(w.rand); err == nil {
		n.pallet, err = enroll.NewBearer(w.rand)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return enroll.Proposal{
		Origin: line.Origin, Hostname: "host-1", EnrollmentID: enroll.EnrollmentID(w.id()), BootstrapProofHash: line.Code.Hash(),
		Spark: enroll.Proposed{CredentialHash: n.spark.Hash()}, Pallet: enroll.Proposed{CredentialHash: n.pallet.Hash()},
	}, n
}

func (w *world) join(c zone.ClusterID, as carrier.Proof) node {
	w.t.Helper()
	line := w.invite(c, as)
	p, n := w.proposal(line)
	n.id = must(w, w.client(), methods.EnrollNode, enroll.RequestCodec, enroll.ResponseCodec,
		enroll.Request{Protocol: ours, Proposal: p, Proof: enroll.BootstrapByCode(line.Code)}, carrier.Proof{}).Acknowledgement.NodeID
	return n
}

// report is what a host says.
func report() spark.Report {
	return spark.Report{
		ObservedAt: zone.At(start), Load: spark.Load{CPU: 1, Memory: 2, Disk: 3},
		Host:   spark.Host{Hostname: "host-1", Kernel: "6.1.0", OS: "Debian", Architecture: "amd64", BootID: "boot-1", UptimeSeconds: 5, CPUs: 2, MemoryBytes: 1 << 30, DiskBytes: 1 << 40},
		Bundle: spark.Bundle{Version: "0.1.0", SourceCommit: strings.Repeat("0", 40), ManifestDigest: canon.Sum{1}},
	}
}

// post sends a body as it is.
func (w *world) post(path, body string) (int, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = a.Body.Close() }()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return a.StatusCode, string(text)
}

// dial opens a bare WebSocket.
func (w *world) dial() *websocket.Conn {
	w.t.Helper()
	c, _, err := websocket.Dial(w.t.Context(), w.url+carrier.Path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.CloseNow() })
	return c
}

// exchange sends one message and reads the next.
func (w *world) exchange(c *websocket.Conn, body string) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	if err := c.Write(ctx, websocket.MessageText, []byte(body)); err != nil {
		return "gone: " + err.Error()
	}
	_, text, err := c.Read(ctx)
	if err != nil {
		return "gone: " + err.Error()
	}
	return string(text)
}

// ask is a typed request with the members of its content.
func ask(method, members string) string {
	return `{"method":"` + method + `","request":{` + strings.TrimSuffix(members, ",") + `},"response":null,"correlation":{"id":"t-1","phase":"request"}}`
}

// socket is a client's socket with a session.
func (w *world) socket(jwt zone.Secret) (*carrier.Socket, error) {
	w.t.Helper()
	s, err := carrier.Dial(w.t.Context(), w.url+carrier.Path, carrier.DialConfig{
		HTTP: http.DefaultClient, Clock: w.clock, Rand: w.rand, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(s.Close)
	_, err = call(w, s, methods.RegisterSession, admin.RegisterCloudlyClientSessionCodec, admin.RegisterCloudlyClientSessionAnswerCodec,
		admin.RegisterCloudlyClientSession{JWT: jwt}, carrier.Proof{})
	return s, err
}

// machineToken exchanges the bearer of an estate's machine.
func (w *world) machineToken(e estate) zone.Secret {
	w.t.Helper()
	return must(w, w.client(), methods.ExchangeMachine, wiremachine.ExchangeCodec, wiremachine.ExchangeAnswerCodec,
		wiremachine.Exchange{Bearer: e.machine}, carrier.Proof{}).JWT
}
