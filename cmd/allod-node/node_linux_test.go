package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allodhq/allod/test/zonectl"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
)

// patience is how long a test waits for what must come.
const patience = 150 * time.Second

// machine is one machine, whose programs are processes of the command.
type machine struct {
	t            *testing.T
	data, socket string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "n") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &machine{t, filepath.Join(dir, "data"), filepath.Join(dir, "pallet", "s")}
}

func newController(t *testing.T) *zonectl.Controller {
	t.Helper()
	c, err := zonectl.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Stop() })
	return c
}

func invite(t *testing.T, c *zonectl.Controller) string {
	t.Helper()
	line, err := c.Invite()
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// command is the command with these words, as the user of the test.
func (m *machine) command(words ...string) *exec.Cmd {
	c := exec.Command(os.Args[0])
	c.Path = program
	c.Args = append([]string{"allod-node"}, append(words, "--user", "--data", m.data, "--socket", m.socket)...)
	return c
}

// do runs the command and returns what it printed.
func (m *machine) do(words ...string) (out, errs string, err error) {
	c := m.command(words...)
	var o, e bytes.Buffer
	c.Stdout, c.Stderr = &o, &e
	err = c.Run()
	return o.String(), e.String(), err
}

func (m *machine) must(words ...string) string {
	m.t.Helper()
	out, errs, err := m.do(words...)
	if err != nil {
		m.t.Fatalf("allod-node %s: %v\n%s", words[0], err, errs)
	}
	return strings.TrimSpace(out)
}

// begin starts the command, which is killed at the end of the test if it still runs.
func (m *machine) begin(words ...string) *exec.Cmd {
	m.t.Helper()
	c := m.command(words...)
	c.Stderr = &logs{t: m.t}
	if err := c.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		_ = c.Wait()
	})
	return c
}

// run keeps the machine a node until the test ends. It returns once that holds the
// folder: a command before that would take it.
func (m *machine) run() {
	m.t.Helper()
	m.begin("run")
	m.until("both run", func(s status) bool { return s.Spark.Running && s.Pallet.Running })
}

// logs is the log of a test, unless that has ended.
type logs struct{ t *testing.T }

func (l *logs) Write(b []byte) (int, error) {
	if l.t.Context().Err() == nil {
		l.t.Logf("%s", bytes.TrimSpace(b))
	}
	return len(b), nil
}

// status is what allod-node status says.
type status struct {
	State         string
	NodeID        string `json:"nodeId"`
	Spark, Pallet struct {
		Running    bool
		State      string
		Generation int64
		Rotating   bool
		Reports    int64 `json:"reportsSinceStart"`
		Problem    *struct{ Name string }
	}
}

func (m *machine) status() status {
	m.t.Helper()
	var s status
	if err := json.Unmarshal([]byte(m.must("status", "--json")), &s); err != nil {
		m.t.Fatal(err)
	}
	return s
}

// until waits until the machine is as wanted.
func (m *machine) until(what string, ok func(status) bool) status {
	m.t.Helper()
	var s status
	eventually(m.t, what, func() bool { s = m.status(); return ok(s) })
	return s
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("%s: it did not come to that", what)
		}
		time.Sleep(20 * time.Millisecond) // there is nobody to tell us
	}
}

// pid is the process that is one of this machine's programs, or 0.
func (m *machine) pid(name string) int {
	m.t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		m.t.Fatal(err)
	}
	for _, path := range processes {
		line, err := os.ReadFile(path)
		words := strings.Split(string(line), "\x00")
		if err != nil || len(words) < 3 || words[1] != name || !strings.Contains(string(line), m.data+"\x00") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			m.t.Fatal(err)
		}
		return pid
	}
	return 0
}

// kill kills a program of this machine, without warning.
func (m *machine) kill(name string) {
	m.t.Helper()
	pid := 0
	eventually(m.t, name+" runs", func() bool { pid = m.pid(name); return pid != 0 })
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		m.t.Fatal(err)
	}
}

// nodes are those of a controller that were not removed.
func nodes(t *testing.T, c *zonectl.Controller) (ids []zone.NodeID) {
	t.Helper()
	list, err := c.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range list {
		if n.RemovedAt == 0 {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// one is the only node of a controller.
func one(t *testing.T, c *zonectl.Controller, want string) zone.NodeID {
	t.Helper()
	ids := nodes(t, c)
	if len(ids) != 1 || string(ids[0]) != want {
		t.Fatalf("the controller has %v, and the machine is %q", ids, want)
	}
	return ids[0]
}

// TestF08LostAnswer: the answer to each request of an enrollment is cut off, once. It is
// recovered exactly: one node, by one acknowledgement, and the line counts once.
func TestF08LostAnswer(t *testing.T) {
	t.Parallel()
	for _, fate := range []zonectl.Fate{zonectl.Lose, zonectl.Cut} {
		c, m := newController(t), newMachine(t)
		lost := map[string]bool{}
		c.Gate(func(method string) zonectl.Fate {
			if lost[method] { // requests of one machine come one after the other
				return zonectl.Pass
			}
			lost[method] = true
			return fate
		})
		id := m.must("join", invite(t, c), "--hostname", "one")
		one(t, c, id)
		want := 2
		if fate == zonectl.Cut {
			want = 3 // the bootstrap proof counts no more, and Spark's bearer does
		}
		if got := c.Count(enroll.MethodEnroll); got != want {
			t.Errorf("fate %d: the controller was asked to enroll %d times", fate, got)
		}
		if got := c.Count(zonectl.Heartbeat); got != 2 {
			t.Errorf("fate %d: %d reports", fate, got)
		}
	}
}

// TestF08KilledPallet kills Pallet after it was bound and before it is activated: it
// comes up, and is activated by the same enrollment.
func TestF08KilledPallet(t *testing.T) {
	t.Parallel()
	c, m := newController(t), newMachine(t)
	reached, goOn := make(chan struct{}), make(chan struct{})
	first := true
	c.Gate(func(method string) zonectl.Fate {
		if method == enroll.MethodEnroll && first {
			first = false
			close(reached)
			<-goOn
		}
		return zonectl.Pass
	})
	join := m.command("join", invite(t, c), "--hostname", "one")
	var out bytes.Buffer
	join.Stdout, join.Stderr = &out, &logs{t: t}
	if err := join.Start(); err != nil {
		t.Fatal(err)
	}
	<-reached
	m.kill("pallet")
	close(goOn)
	if err := join.Wait(); err != nil {
		t.Fatal(err)
	}
	one(t, c, strings.TrimSpace(out.String()))
	if s := m.status(); s.State != "active" || s.Pallet.State != "active" {
		t.Errorf("%+v", s)
	}
	if got := c.Count(enroll.MethodEnroll); got != 1 {
		t.Errorf("the controller was asked %d times", got)
	}
}

// TestF08KilledJoin kills the installer while the controller has its request, with the
// answer lost and without, and Spark too. The same line goes on, and makes one node.
func TestF08KilledJoin(t *testing.T) {
	t.Parallel()
	for _, victim := range []string{"join", "spark"} {
		for _, method := range []string{enroll.MethodEnroll, zonectl.Heartbeat} {
			t.Run(victim+" "+method, func(t *testing.T) {
				t.Parallel()
				c, m := newController(t), newMachine(t)
				line := invite(t, c)
				reached, goOn := make(chan struct{}), make(chan struct{})
				first := true
				c.Gate(func(name string) zonectl.Fate {
					if name == method && first {
						first = false
						close(reached)
						<-goOn
						return zonectl.Cut
					}
					return zonectl.Pass
				})
				join := m.command("join", line, "--hostname", "one")
				if err := join.Start(); err != nil {
					t.Fatal(err)
				}
				<-reached
				if victim == "join" {
					if err := join.Process.Kill(); err != nil {
						t.Fatal(err)
					}
				} else {
					m.kill("spark")
				}
				close(goOn)
				err := join.Wait()
				if victim == "spark" && err != nil {
					t.Errorf("Spark was killed, and the installer ended with %v", err)
				}
				one(t, c, m.must("join", line, "--hostname", "one"))
			})
		}
	}
}

// TestF09KilledInRotation kills Spark while the controller rotates its credential, with
// the answer lost: both programs come to the next generation, and no other.
func TestF09KilledInRotation(t *testing.T) {
	t.Parallel()
	c, m := newController(t), newMachine(t)
	m.run()
	id := one(t, c, m.must("join", invite(t, c), "--hostname", "one"))
	reached, goOn := make(chan struct{}), make(chan struct{})
	first := true
	c.Gate(func(method string) zonectl.Fate {
		if method == enroll.MethodRotate && first {
			first = false
			close(reached)
			<-goOn
			return zonectl.Cut
		}
		return zonectl.Pass
	})
	if err := c.Rotate(id, "r1"); err != nil {
		t.Fatal(err)
	}
	<-reached
	before := m.pid("spark")
	m.kill("spark")
	close(goOn)
	s := m.until("Spark has a new credential", func(s status) bool {
		return s.Spark.Generation == 2 && !s.Spark.Rotating && s.Spark.Reports > 0
	})
	if m.pid("spark") == before || s.NodeID != string(id) {
		t.Errorf("%+v", s)
	}
}

// TestF11AwayAndBack: a node keeps its identity while the controller is away, and
// reports to it again when it is back.
func TestF11AwayAndBack(t *testing.T) {
	t.Parallel()
	c, m := newController(t), newMachine(t)
	m.run()
	id := m.must("join", invite(t, c), "--hostname", "one")
	c.Stop()
	s := m.until("Spark says so", func(s status) bool { return s.Spark.Problem != nil })
	if s.Spark.Problem.Name != "peer-unreachable" || s.NodeID != id || !s.Pallet.Running {
		t.Errorf("%+v", s)
	}
	reports := s.Spark.Reports
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	m.until("it reports again", func(s status) bool { return s.Spark.Reports > reports && s.Spark.Problem == nil })
	one(t, c, id)
}

// TestF11FullDisk: a full disk takes neither a node's identity nor its reports, and a
// restart of Spark on it neither.
func TestF11FullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	t.Parallel()
	c, m := newController(t), newMachine(t)
	if err := os.Mkdir(m.data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", m.data, "tmpfs", 0, "mode=0700,size=256k"); err != nil {
		t.Skip("this machine does not let us mount a file system: ", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(m.data, syscall.MNT_DETACH) })
	m.run()
	id := m.must("join", invite(t, c), "--hostname", "one")
	ballast, err := os.Create(filepath.Join(m.data, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer ballast.Close()
	for page := make([]byte, 4096); ; {
		if _, err = ballast.Write(page); err != nil {
			break
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	before := m.status().Spark.Reports
	m.until("it reports on a full disk", func(s status) bool { return s.Spark.Reports > before })
	m.kill("spark")
	s := m.until("it reports after a restart", func(s status) bool { return s.Spark.Running && s.Spark.Reports > 0 })
	if s.NodeID != id || s.State != "active" {
		t.Errorf("%+v", s)
	}
	one(t, c, id)
	if out, _, err := m.do("doctor"); err == nil || !strings.Contains(out, "FAILED  disk") {
		t.Errorf("the doctor: %v\n%s", err, out)
	}
}

// TestF08WrongPin: a line with the pin of another authority sends nothing, and uses
// nothing up.
func TestF08WrongPin(t *testing.T) {
	t.Parallel()
	c, other, m := newController(t), newController(t), newMachine(t)
	line := invite(t, c)
	_, pin, _ := strings.Cut(line[strings.Index(line, "#"):], ".")
	theirs := invite(t, other)
	_, wrong, _ := strings.Cut(theirs[strings.Index(theirs, "#"):], ".")
	_, said, err := m.do("join", strings.Replace(line, pin, wrong, 1), "--hostname", "one")
	if err == nil || !strings.Contains(said, "(ca-other-authority)") {
		t.Errorf("%v: %s", err, said)
	}
	if c.Count(enroll.MethodEnroll) != 0 || len(nodes(t, c)) != 0 {
		t.Error("something reached the controller")
	}
	one(t, c, m.must("join", line, "--hostname", "one"))
}

// TestF10RunEndsBoth: whoever ends run ends both programs, and one that is killed takes
// both with it.
func TestF10RunEndsBoth(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		m := newMachine(t)
		run := m.command("run")
		run.Stderr = &logs{t: t}
		if err := run.Start(); err != nil {
			t.Fatal(err)
		}
		m.until("both run", func(s status) bool { return s.Spark.Running && s.Pallet.Running })
		m.kill("pallet")
		m.until("Pallet runs again", func(s status) bool { return s.Spark.Running && s.Pallet.Running && m.pid("pallet") != 0 })
		if err := run.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if err := run.Wait(); signal == syscall.SIGTERM && err != nil {
			t.Errorf("it ended with %v", err)
		}
		eventually(t, "both are gone", func() bool { return m.pid("spark") == 0 && m.pid("pallet") == 0 })
		for _, path := range []string{m.socket, filepath.Join(filepath.Dir(filepath.Dir(m.socket)), "spark", "s")} {
			if _, err := os.Lstat(path); err == nil {
				t.Errorf("after signal %d a socket is left", signal)
			}
		}
	}
}

// TestF10TwoStores: each program keeps its own credential, in a folder of its own that
// nobody else can reach, and neither file has the other's secret, nor the line's code
// once it is used. No log has any of them.
func TestF10TwoStores(t *testing.T) {
	t.Parallel()
	c, m := newController(t), newMachine(t)
	line := invite(t, c)
	run := m.command("run")
	var log bytes.Buffer
	run.Stdout, run.Stderr = &log, &log
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	m.must("join", line, "--hostname", "one")
	shown := m.must("status", "--json") + m.must("doctor", "--json")
	if err := run.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for name, path := range map[string]string{"spark": "spark/spark.json", "pallet": "pallet/pallet.json"} {
		full := filepath.Join(m.data, path)
		text, err := os.ReadFile(full)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(text)
		for path, want := range map[string]os.FileMode{full: 0o600, filepath.Dir(full): 0o700 | os.ModeDir} {
			if info, err := os.Stat(path); err != nil || info.Mode() != want {
				t.Errorf("%s: %v, %v", path, info.Mode(), err)
			}
		}
	}
	bearer := func(name string) string {
		var s struct{ Active struct{ Bearer string } }
		if err := json.Unmarshal([]byte(files[name]), &s); err != nil || len(s.Active.Bearer) != 43 {
			t.Fatalf("%s keeps no bearer: %v", name, err)
		}
		return s.Active.Bearer
	}
	spark, pallet := bearer("spark"), bearer("pallet")
	_, code, _ := strings.Cut(line, "#")
	for where, text := range map[string]string{"the log": log.String(), "what is shown": shown, "Spark's file": files["spark"], "Pallet's file": files["pallet"]} {
		for what, secret := range map[string]string{"Spark's bearer": spark, "Pallet's bearer": pallet, "the code": code[:16]} {
			mine := where == "Spark's file" && what == "Spark's bearer" || where == "Pallet's file" && what == "Pallet's bearer"
			if strings.Contains(text, secret) != mine {
				t.Errorf("%s in %s: %v", what, where, !mine)
			}
		}
	}
	if spark == pallet {
		t.Error("both have one credential")
	}
}

// TestF09Moved: a node follows its controller to another address while it runs, and
// reports there.
func TestF09Moved(t *testing.T) {
	t.Parallel()
	c, m := newController(t), newMachine(t)
	m.run()
	id := m.must("join", invite(t, c), "--hostname", "one")
	c.Stop()
	if err := c.Move(); err != nil {
		t.Fatal(err)
	}
	m.must("move", c.Origin.String())
	before := m.status().Spark.Reports
	m.until("it reports there", func(s status) bool { return s.Spark.Reports > before && s.Spark.Problem == nil })
	one(t, c, id)
}
