//go:build killpoints

package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/ca"
	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/cloud"
	"github.com/allodhq/allod/internal/cloud/people"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/store/sqlite"
	"github.com/allodhq/allod/internal/killpoint"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/admin"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/methods"
	"github.com/allodhq/allod/wire/zone/nodes"
	"github.com/allodhq/allod/wire/zone/spark"
)

// haste makes a node report twice a second, and Pallet ask every three.
const haste = "ALLOD_KILLPOINT_HASTE=20"

// TestF08ControllerKillPoints kills a controller at each of its points, starts it
// again, and looks whether what was durable is still there, was done once, and is
// answered with the same bytes.
func TestF08ControllerKillPoints(t *testing.T) {
	program := nodeProgram(t)
	var mu sync.Mutex
	hit := map[killpoint.Point]bool{}
	t.Run("points", func(t *testing.T) {
		for _, p := range killpoint.Controller() {
			t.Run(string(p), func(t *testing.T) {
				t.Parallel()
				k := &killing{t: t, p: p, data: filepath.Join(t.TempDir(), "data"), box: newBox(t, program)}
				switch p {
				case killpoint.ControllerInvited:
					k.invited()
				case killpoint.ControllerLoggedIn:
					k.loggedIn()
				case killpoint.ControllerEnrolled:
					k.enrolled()
				case killpoint.ControllerRotated:
					k.rotated()
				case killpoint.ControllerReported:
					k.reported()
				default:
					k.starting()
				}
				mu.Lock()
				hit[p] = true
				mu.Unlock()
			})
		}
	})
	for _, p := range killpoint.Controller() {
		if !hit[p] {
			t.Errorf("%s was not hit", p)
		}
	}
}

// nodeProgram builds allod-node, in haste where it is told to be.
func nodeProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "allod-node")
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "killpoints", "-o", path, "github.com/allodhq/allod/cmd/allod-node")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// box is a machine with a node's two programs, for this user.
type box struct {
	t                     *testing.T
	program, data, socket string
}

func newBox(t *testing.T, program string) *box {
	t.Helper()
	dir, err := os.MkdirTemp("", "n") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &box{t, program, filepath.Join(dir, "data"), filepath.Join(dir, "pallet", "s")}
}

func (b *box) command(words ...string) *exec.Cmd {
	c := exec.Command(b.program, append(words, "--user", "--data", b.data, "--socket", b.socket)...)
	c.Env = append(os.Environ(), haste)
	return c
}

// run starts both programs and returns what ends them.
func (b *box) run() (end func()) {
	b.t.Helper()
	c := b.command("run")
	if err := c.Start(); err != nil {
		b.t.Fatal(err)
	}
	ended := sync.OnceFunc(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		if err := c.Wait(); err != nil {
			b.t.Errorf("allod-node run ended with %v", err)
		}
	})
	b.t.Cleanup(ended)
	// An installer that finds nobody here would start both by itself, and be in the way.
	until(b.t, "both programs of the node run", func() bool { s := b.status(); return s.Spark.Running && s.Pallet.Running })
	return ended
}

// join begins to join by a line, and returns what waits for its end and gives the
// node's identifier.
func (b *box) join(line string) (id func() string) {
	b.t.Helper()
	c := b.command("join", line, "--hostname", "one", "--wait", "90s")
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Start(); err != nil {
		b.t.Fatal(err)
	}
	once := sync.OnceValue(c.Wait)
	b.t.Cleanup(func() { _ = c.Process.Kill(); _ = once() })
	return func() string {
		b.t.Helper()
		if err := once(); err != nil {
			b.t.Fatalf("join: %v\n%s", err, errs.String())
		}
		return strings.TrimSpace(out.String())
	}
}

// boxStatus is what allod-node status says.
type boxStatus struct {
	State         string
	NodeID        string `json:"nodeId"`
	Spark, Pallet struct {
		Running    bool
		State      string
		Generation int64
		Reports    int64 `json:"reportsSinceStart"`
	}
}

func (b *box) status() (s boxStatus) {
	b.t.Helper()
	out, err := b.command("status", "--json").Output()
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	if err != nil {
		b.t.Fatalf("status: %v\n%s", err, out)
	}
	return s
}

// active waits until both programs count, by credentials of one generation, and Spark
// has reported since it was last asked.
func (b *box) active(generation int64) boxStatus {
	b.t.Helper()
	var s boxStatus
	reports := b.status().Spark.Reports
	until(b.t, "both programs of the node count", func() bool {
		s = b.status()
		return s.State == "active" && s.Pallet.State == "active" && s.Spark.Generation == generation && s.Pallet.Generation == generation && s.Spark.Reports > reports
	})
	return s
}

// kept is a member of a file in the node's folder, and of what is in it; "" where it is
// not there.
func (b *box) kept(file string, names ...string) string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.data, file))
	if err != nil {
		b.t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		b.t.Fatal(err)
	}
	for _, name := range names {
		o, _ := v.(map[string]any)
		v = o[name]
	}
	s, _ := v.(string)
	return s
}

// killing is one point with the machine that joins there.
type killing struct {
	t    *testing.T
	p    killpoint.Point
	data string
	box  *box
	c    *ruling
}

// begin starts the controller that is to die, with the node's programs beside it.
func (k *killing) begin() (end func()) {
	k.t.Helper()
	k.c = startRule(k.t, []string{"ALLOD_KILLPOINT=" + string(k.p)}, k.data)
	k.c.hear()
	return k.box.run()
}

// dies waits for the controller to kill itself. One that never comes to the point is
// asked to end, which is no such death.
func (k *killing) dies() {
	k.t.Helper()
	late := time.AfterFunc(patience, func() { _ = k.c.cmd.Process.Signal(syscall.SIGTERM) })
	defer late.Stop()
	killed(k.t, k.c.cmd)
}

// again starts the controller on the same folder and port.
func (k *killing) again() {
	k.t.Helper()
	k.c = rule(k.t, k.data, "--listen", k.c.first.Listening)
}

// ledger is what a controller that does not run has on its disk.
type ledger struct {
	Nodes         []store.Node
	Spark, Pallet store.Credential // of the first node
	Report        store.Report
	Enrollment    store.Enrollment
	Audit         []store.AuditEntry // newest first
}

// acts is how many entries of the audit log are of a method.
func (l ledger) acts(method string) (n int) {
	for _, e := range l.Audit {
		if e.Action == method {
			n++
		}
	}
	return n
}

// rotated is a credential with the receipt of a rotation, if there is one.
func (l ledger) rotated() (store.Credential, bool) {
	for _, c := range []store.Credential{l.Spark, l.Pallet} {
		if len(c.Receipt) > 0 {
			return c, true
		}
	}
	return store.Credential{}, false
}

func (k *killing) ledger(enrollment string) (l ledger) {
	k.t.Helper()
	s, err := sqlite.Open(k.t.Context(), sqlite.Config{Path: filepath.Join(k.data, cloud.Database), Clock: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		k.t.Fatal(err)
	}
	defer s.Close()
	if err := s.Read(k.t.Context(), func(tx store.Tx) (err error) {
		var errs []error
		l.Nodes, err = tx.Nodes("", "", 10)
		errs = append(errs, err)
		l.Audit, err = tx.Audit("", 0, store.MaxList)
		errs = append(errs, err)
		if len(l.Nodes) > 0 {
			id := l.Nodes[0].ID
			l.Spark, _, err = tx.Credential(id, string(enroll.Spark))
			errs = append(errs, err)
			l.Pallet, _, err = tx.Credential(id, string(enroll.Pallet))
			errs = append(errs, err)
			l.Report, _, err = tx.Report(id)
			errs = append(errs, err)
		}
		if enrollment != "" {
			l.Enrollment, _, err = tx.Enrollment(enrollment)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}); err != nil {
		k.t.Fatal(err)
	}
	return l
}

// settled ends all of it, and compares what is on the controller's disk with what was
// there at its death: one node, which is the machine, and every act that was recorded.
func (k *killing) settled(before ledger, enrollment string, generation int64, end func()) (after ledger) {
	k.t.Helper()
	s := k.box.active(generation)
	var listed struct {
		Nodes []struct {
			ID       string
			Liveness struct{ State string }
		}
	}
	if err := json.Unmarshal([]byte(k.c.do("node", "ls", "--json")), &listed); err != nil {
		k.t.Fatal(err)
	}
	if len(listed.Nodes) != 1 || listed.Nodes[0].ID != s.NodeID || listed.Nodes[0].Liveness.State != "online" {
		k.t.Errorf("the controller has %+v, and the machine is %s", listed.Nodes, s.NodeID)
	}
	end()
	k.c.end()
	after = k.ledger(enrollment)
	if n := len(before.Audit); n > len(after.Audit) || n > 0 && !reflect.DeepEqual(before.Audit, after.Audit[len(after.Audit)-n:]) {
		k.t.Errorf("%+v was recorded, and %+v is", before.Audit, after.Audit)
	}
	if n := len(before.Nodes); len(after.Nodes) != 1 || n > 0 && !reflect.DeepEqual(before.Nodes, after.Nodes) {
		k.t.Errorf("%+v was there, and %+v is", before.Nodes, after.Nodes)
	}
	if n := after.acts(enroll.MethodEnroll); n != 1 {
		k.t.Errorf("%d enrollments", n)
	}
	if n := after.acts(enroll.MethodRotate); n != 2*int(generation-1) {
		k.t.Errorf("%d rotations", n)
	}
	for _, c := range []store.Credential{after.Spark, after.Pallet} {
		if c.Generation != generation {
			k.t.Errorf("%s is of generation %d", c.Purpose, c.Generation)
		}
	}
	return after
}

// starting dies before the first line is there. The next start is a first one to
// whoever looks: there is somebody to log in, and a cluster to invite to.
func (k *killing) starting() {
	k.c = startRule(k.t, []string{"ALLOD_KILLPOINT=" + string(k.p)}, k.data)
	k.dies()
	// A link that was durable and not shown is lost, and another one is made.
	lost := k.p == killpoint.ControllerOperator || k.p == killpoint.ControllerBegun
	var before ledger
	if _, err := os.Lstat(filepath.Join(k.data, cloud.Database)); (err == nil) != lost {
		k.t.Errorf("the database: %v", err)
	}
	if lost {
		before = k.ledger("")
	}
	if n := map[killpoint.Point]int{killpoint.ControllerOperator: 1, killpoint.ControllerBegun: 2}[k.p]; before.acts("bootstrap") != n {
		k.t.Errorf("%+v", before.Audit)
	}
	k.c = rule(k.t, k.data)
	if (k.c.first.Login == "") != lost {
		k.t.Errorf("the first line says %+v", k.c.first)
	}
	link := k.c.first.Login
	if lost {
		link = k.link()
	}
	if _, err := k.login(link); err != nil {
		k.t.Error(err)
	}
	end := k.box.run()
	k.box.join(k.c.invite())()
	if after := k.settled(before, "", 1, end); after.acts("bootstrap") != 2 { // the operator with the organization, and the cluster
		k.t.Errorf("%+v", after.Audit)
	}
}

// invited dies with an invitation that nobody has seen. It makes no node, and another
// one does.
func (k *killing) invited() {
	end := k.begin()
	if code, out, _ := command(k.t, "node", "invite", "--data", k.data); code == 0 || strings.Contains(out, "#") {
		k.t.Errorf("a dead controller invites: %d", code)
	}
	k.dies()
	before := k.ledger("")
	if before.acts(nodes.MethodInvite) != 1 || len(before.Nodes) != 0 {
		k.t.Errorf("%+v", before)
	}
	k.again()
	k.box.join(k.c.invite())()
	if after := k.settled(before, "", 1, end); after.acts(nodes.MethodInvite) != 2 {
		k.t.Errorf("%+v", after.Audit)
	}
}

// link makes a login link.
func (k *killing) link() string {
	k.t.Helper()
	said := strings.Fields(k.c.do("controller", "login-link"))
	return said[len(said)-1]
}

// login uses a login link up by the network.
func (k *killing) login(link string) (admin.ExchangeLoginLinkAnswer, error) {
	k.t.Helper()
	origin, err := enroll.ParseOrigin(k.c.first.Origin)
	if err != nil {
		k.t.Fatal(err)
	}
	pin, err := ca.ParsePin(k.c.first.Pin)
	if err != nil {
		k.t.Fatal(err)
	}
	web := (&joined{t: k.t, pin: pin}).web(origin)
	return carrier.Call(k.t.Context(), carrier.NewClient(origin.String()+carrier.Path, web, rand.Reader), methods.ExchangeLoginLink,
		admin.ExchangeLoginLinkCodec, admin.ExchangeLoginLinkAnswerCodec, admin.ExchangeLoginLink{Code: zone.Conceal(link[strings.LastIndex(link, "/")+1:])}, carrier.Proof{}, people.Kinds)
}

// loggedIn dies with a login link that is used up for nothing. It stays used up, and
// another one lets its operator in.
func (k *killing) loggedIn() {
	end := k.begin()
	link := k.c.first.Login
	if a, err := k.login(link); err == nil || !a.Identity.JWT.IsZero() {
		k.t.Error("a dead controller answers")
	}
	k.dies()
	before := k.ledger("")
	if before.acts(admin.MethodExchangeLoginLink) != 1 {
		k.t.Errorf("%+v", before.Audit)
	}
	k.again()
	if _, err := k.login(link); !errors.Is(err, people.ErrLink) {
		k.t.Errorf("the link a second time: %v", err)
	}
	if a, err := k.login(k.link()); err != nil || a.OperatorID != people.FirstOperator || a.Identity.JWT.IsZero() {
		k.t.Errorf("another link: %v, %v", a.OperatorID, err)
	}
	k.box.join(k.c.invite())()
	if after := k.settled(before, "", 1, end); after.acts(admin.MethodExchangeLoginLink) != 2 {
		k.t.Errorf("%+v", after.Audit)
	}
}

// enrolled dies with an enrollment that the node has not heard of. The node hears the
// same acknowledgement, and keeps it byte for byte.
func (k *killing) enrolled() {
	end := k.begin()
	id := k.box.join(k.c.invite())
	k.dies()
	enrollment := k.box.kept("spark/spark.json", "pending", "enrollmentId")
	before := k.ledger(enrollment)
	if len(before.Nodes) != 1 || len(before.Enrollment.Answer) == 0 {
		k.t.Fatalf("%+v", before)
	}
	k.again()
	if got := id(); got != string(before.Nodes[0].ID) {
		k.t.Errorf("the machine is %s, and %s was enrolled", got, before.Nodes[0].ID)
	}
	after := k.settled(before, enrollment, 1, end)
	if !reflect.DeepEqual(before.Enrollment, after.Enrollment) || k.box.kept("spark/spark.json", "evidence") != string(before.Enrollment.Answer) {
		k.t.Errorf("the node keeps %s, %s was recorded and %s is", k.box.kept("spark/spark.json", "evidence"), before.Enrollment.Answer, after.Enrollment.Answer)
	}
}

// rotated dies with a rotation whose receipt was not sent. The node gets that receipt,
// by its new bearer, and no further credential.
func (k *killing) rotated() {
	end := k.begin()
	id := k.box.join(k.c.invite())()
	k.box.active(1)
	k.c.do("node", "rotate", id)
	k.dies()
	before := k.ledger("")
	was, found := before.rotated()
	if !found || was.Generation != 2 {
		k.t.Fatalf("%+v", before)
	}
	k.again()
	after := k.settled(before, "", 2, end)
	is := after.Spark
	if was.Purpose == string(enroll.Pallet) {
		is = after.Pallet
	}
	if !reflect.DeepEqual(was, is) {
		k.t.Errorf("%+v was recorded, and %+v is", was, is)
	}
}

// reported dies with a report whose receipt was not sent. It is there, and those that
// follow are taken.
func (k *killing) reported() {
	end := k.begin()
	id := k.box.join(k.c.invite())
	k.dies()
	before := k.ledger("")
	r, err := spark.ReceiptCodec.Read(before.Report.Receipt)
	if err != nil || len(before.Nodes) != 1 || r.NodeID != before.Nodes[0].ID || r.AcceptedAt != before.Report.AcceptedAt {
		k.t.Fatalf("%+v, %v", before, err)
	}
	k.again()
	if out := k.c.do("node", "show", string(r.NodeID)); !strings.Contains(out, "kernel") {
		k.t.Errorf("the report is lost: %s", out)
	}
	id()
	if after := k.settled(before, "", 1, end); after.Report.AcceptedAt <= before.Report.AcceptedAt || after.Report.Generation != 1 {
		k.t.Errorf("%+v", after.Report)
	}
}
