//go:build !windows

package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/ca"
	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/httpd"
	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/test/programs"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/methods"
	"github.com/allodhq/allod/wire/zone/spark"
)

// ruling is a controller in a process of its own.
type ruling struct {
	t     *testing.T
	data  string
	cmd   *exec.Cmd
	first struct {
		Listening, Origin, Pin, Operator, Login string
		Public                                  bool
	}
	out  io.Reader
	errs *programs.Transcript
}

// rule starts a controller on a folder.
func rule(t *testing.T, data string, flags ...string) *ruling {
	t.Helper()
	c := startRule(t, nil, data, flags...)
	c.hear()
	return c
}

// startRule starts one with variables of its own, and does not wait for its first line.
func startRule(t *testing.T, env []string, data string, flags ...string) *ruling {
	t.Helper()
	if err := keyfile.Platform(); err != nil {
		t.Skip("this system keeps no key files")
	}
	c := &ruling{t: t, data: data, errs: &programs.Transcript{}}
	c.cmd = exec.CommandContext(t.Context(), allodBinary(t), append([]string{"controller", "serve", "--data", data, "--listen", "127.0.0.1:0", "--json"}, flags...)...)
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stderr = c.errs
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill(); _ = c.cmd.Wait() })
	c.out = out
	return c
}

// hear takes the first line of what the controller prints.
func (c *ruling) hear() {
	c.t.Helper()
	line, err := bufio.NewReader(c.out).ReadBytes('\n')
	if err != nil {
		c.t.Fatalf("no first line: %v\n%s", err, c.errs)
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c.first); err != nil || c.first.Pin == "" {
		c.t.Fatalf("first line %s: %v", line, err)
	}
}

// end asks the controller to end, and it must.
func (c *ruling) end() {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		c.t.Fatal(err)
	}
	if err := c.cmd.Wait(); err != nil {
		c.t.Errorf("the controller ended with %v\n%s", err, c.errs)
	}
}

// do runs a command about the controller's folder, which must succeed.
func (c *ruling) do(words ...string) string {
	c.t.Helper()
	code, out, errs := command(c.t, append(words, "--data", c.data)...)
	if code != 0 {
		c.t.Fatalf("%v: %d %s", words, code, errs)
	}
	return out
}

// refused runs a command about the controller's folder, which must be refused by
// that name.
func (c *ruling) refused(name string, words ...string) {
	c.t.Helper()
	code, _, errs := command(c.t, append(words, "--data", c.data)...)
	if code == 0 || !strings.Contains(errs, "("+name+")") {
		c.t.Errorf("%v: %d %s, want %s", words, code, errs, name)
	}
}

// joined is a machine that became a node.
type joined struct {
	t             *testing.T
	id            zone.NodeID
	pin           ca.Pin
	spark, pallet enroll.Bearer
}

// web trusts the controller at an origin by the pin alone.
func (n *joined) web(origin enroll.Origin) *http.Client {
	n.t.Helper()
	trust, err := ca.NewTrust(n.pin, origin.Host(), time.Now)
	if err != nil {
		n.t.Fatal(err)
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: trust.Client(), DisableKeepAlives: true}}
}

// join makes a node by a join line, as a machine does.
func join(t *testing.T, text string) (*joined, enroll.JoinLine) {
	t.Helper()
	line, err := enroll.ParseJoinLine(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	n := &joined{t: t}
	if n.pin, err = ca.ParsePin(line.Pin.String()); err != nil {
		t.Fatal(err)
	}
	if n.spark, err = enroll.NewBearer(rand.Reader); err == nil {
		n.pallet, err = enroll.NewBearer(rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	a, err := carrier.Call(t.Context(), carrier.NewClient(line.Origin.String()+carrier.Path, n.web(line.Origin), rand.Reader),
		methods.EnrollNode, enroll.RequestCodec, enroll.ResponseCodec, enroll.Request{
			Protocol: handshake.Ours(handshake.SparkNode),
			Proposal: enroll.Proposal{
				Origin: line.Origin, Hostname: "box-7", EnrollmentID: enroll.EnrollmentID("e-" + strings.ToLower(rand.Text())), BootstrapProofHash: line.Code.Hash(),
				Spark: enroll.Proposed{CredentialHash: n.spark.Hash()}, Pallet: enroll.Proposed{CredentialHash: n.pallet.Hash()},
			},
			Proof: enroll.BootstrapByCode(line.Code),
		}, carrier.Proof{}, enroll.Kinds)
	if err != nil {
		t.Fatal(err)
	}
	n.id = a.Acknowledgement.NodeID
	return n, line
}

// report posts a report and returns the status and whether a rotation is asked for.
func (n *joined) report(to string) (status int, rotate bool) {
	n.t.Helper()
	origin, err := enroll.ParseOrigin(to)
	if err != nil {
		n.t.Fatal(err)
	}
	body, err := spark.RequestCodec.Append(nil, spark.Request{Bearer: n.spark, Protocol: handshake.Ours(spark.Session), Report: spark.Report{
		ObservedAt: zone.At(time.Now()),
		Host:       spark.Host{Hostname: "box-7", Kernel: "6.1.0", OS: "Debian 13", Architecture: "amd64", BootID: "boot-1", UptimeSeconds: 90, CPUs: 2, MemoryBytes: 1 << 32, DiskBytes: 1 << 40},
		Bundle:     spark.Bundle{Version: "0.7.1", SourceCommit: strings.Repeat("0", 40), ManifestDigest: canon.Sum{1}},
	}})
	if err != nil {
		n.t.Fatal(err)
	}
	a, err := n.web(origin).Post(origin.String()+spark.Path, "application/json", bytes.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	if a.StatusCode == http.StatusOK {
		r, err := spark.ResponseCodec.Read(text)
		if err != nil {
			n.t.Fatalf("%s: %v", text, err)
		}
		rotate = r.RotationRequired
	}
	return a.StatusCode, rotate
}

// invite is the last line of what the command prints.
func (c *ruling) invite() string {
	c.t.Helper()
	lines := strings.Split(strings.TrimRight(c.do("node", "invite"), "\n"), "\n")
	if len(lines) < 2 || !strings.HasSuffix(lines[len(lines)-2], `allod-node join \`) {
		c.t.Fatalf("%q", lines)
	}
	return lines[len(lines)-1]
}

// TestController runs a controller as a process, with its commands, a node, a
// person with a browser, a backup and a restore to another address.
func TestController(t *testing.T) {
	dir := t.TempDir()
	c := rule(t, filepath.Join(dir, "data"))
	if c.first.Public || c.first.Operator != "admin" || c.first.Origin != "https://"+c.first.Listening {
		t.Errorf("%+v", c.first)
	}
	if out := c.do("node", "ls"); !strings.Contains(out, "There are no nodes.") {
		t.Error(out)
	}

	// One machine joins; its line works once.
	text := c.invite()
	n, line := join(t, text)
	if n.pin.String() != c.first.Pin {
		t.Errorf("the line's pin is %s, and the controller's %s", n.pin, c.first.Pin)
	}
	if out := c.do("node", "ls"); !regexp.MustCompile(`(?m)^` + string(n.id) + ` +box-7 +main +never seen \d+s +-$`).MatchString(out) {
		t.Error(out)
	}
	if status, rotate := n.report(c.first.Origin); status != 200 || rotate {
		t.Errorf("a report: %d, %v", status, rotate)
	}
	if out := c.do("node", "ls"); !regexp.MustCompile(`(?m)^` + string(n.id) + ` +box-7 +main +online \d+s +0\.7\.1$`).MatchString(out) {
		t.Error(out)
	}
	var listed struct{ Nodes []anyJSON }
	if err := json.Unmarshal([]byte(c.do("node", "ls", "--json", "--cluster", "main")), &listed); err != nil || len(listed.Nodes) != 1 || listed.Nodes[0]["id"] != string(n.id) {
		t.Errorf("%+v, %v", listed, err)
	}
	if out := c.do("node", "show", string(n.id)); !strings.Contains(out, "Debian 13, kernel 6.1.0") || !strings.Contains(out, "spark, generation 1, active") {
		t.Error(out)
	}
	for _, words := range [][]string{{"node", "why", string(n.id)}, {"why", "node/" + string(n.id)}} {
		if out := c.do(words...); !strings.Contains(out, "Nothing is wrong with it.") {
			t.Error(out)
		}
	}
	if out := c.do("node", "rotate", string(n.id)); !strings.Contains(out, "Asked node "+string(n.id)) {
		t.Error(out)
	}
	if status, rotate := n.report(c.first.Origin); status != 200 || !rotate {
		t.Errorf("a report after a rotation was asked for: %d, %v", status, rotate)
	}
	if out := c.do("node", "why", string(n.id)); !strings.Contains(out, "(spark-rotation-asked)") {
		t.Error(out)
	}

	// A person opens the link, presses the button, and sees the node; the link works
	// once.
	person := n.web(line.Origin)
	person.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	press := func(link string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, link, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", c.first.Origin)
		a, err := person.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
		return a
	}
	in := press(c.first.Login)
	if in.StatusCode != http.StatusSeeOther || len(in.Cookies()) != 1 {
		t.Fatalf("%d %v", in.StatusCode, in.Cookies())
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.first.Origin+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(in.Cookies()[0])
	a, err := person.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := io.ReadAll(a.Body)
	_ = a.Body.Close()
	if err != nil || a.StatusCode != 200 || !strings.Contains(string(seen), "box-7") || !strings.Contains(string(seen), "online") {
		t.Errorf("%d %s %v", a.StatusCode, seen, err)
	}
	if again := press(c.first.Login); again.StatusCode != http.StatusForbidden {
		t.Errorf("the login link a second time: %d", again.StatusCode)
	}
	link := strings.TrimSpace(c.do("controller", "login-link"))
	link = link[strings.LastIndex(link, "\n")+1:]
	if u, err := url.Parse(link); err != nil || u.Host != c.first.Listening {
		t.Fatalf("%q", link)
	}
	if in := press(link); in.StatusCode != http.StatusSeeOther {
		t.Errorf("a new login link: %d", in.StatusCode)
	}

	// What cannot be.
	c.refused("zone-absent", "node", "show", "absent")
	c.refused("zone-absent", "node", "rm", "absent", "--yes")
	c.refused("zone-absent", "node", "invite", "--cluster", "absent")
	c.refused("zone-absent", "node", "ls", "--cluster", "absent")
	c.refused("zone-absent", "controller", "login-link", "--operator", "absent")
	c.refused("needs-yes", "node", "rm", string(n.id))
	c.refused("party-running", "controller", "serve", "--listen", "127.0.0.1:0")
	c.refused("party-running", "backup", "--out", filepath.Join(dir, "running.backup"))
	other := filepath.Join(dir, "other")
	if code, _, errs := command(t, "controller", "serve", "--data", other, "--listen", c.first.Listening); code == 0 || !strings.Contains(errs, "(listen)") {
		t.Errorf("a taken port: %d %s", code, errs)
	}
	plain, err := net.Dial("tcp", c.first.Listening)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(plain, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(plain); err == nil && strings.Contains(string(said), "200 OK") {
		t.Errorf("plain HTTP is answered: %s", said)
	}
	_ = plain.Close()

	// It ends, and the next start says nothing of a login and knows the node.
	c.end()
	c.refused("controller-no-answer", "node", "ls")
	c = rule(t, c.data)
	if c.first.Login != "" || c.first.Operator != "" || c.first.Pin != n.pin.String() {
		t.Errorf("the second start: %+v", c.first)
	}
	if status, _ := n.report(c.first.Origin); status != 200 {
		t.Errorf("a report after the restart: %d", status)
	}
	out := c.do("controller", "audit", "--limit", "3")
	if !strings.Contains(out, "createLoginLink") || !strings.Contains(out, "There are more: --cursor ") {
		t.Error(out)
	}
	cursor := strings.TrimSpace(out[strings.LastIndex(out, " ")+1:])
	if out := c.do("controller", "audit", "--cursor", cursor, "--json"); !strings.Contains(out, `"action": "bootstrap"`) || strings.Contains(out, "nextCursor") {
		t.Error(out)
	}
	c.end()

	// A backup comes back in another folder, at another address and under the same
	// pin, and the node comes back by its key.
	archive := filepath.Join(dir, "controller.backup")
	out = c.do("backup", "--out", archive)
	key := regexp.MustCompile(`AGE-SECRET-KEY-1\S+`).FindString(out)
	if !strings.Contains(out, "Wrote zone.db, ca.pem, operator-tokens.key, machine-tokens.key") || key == "" {
		t.Fatal(out)
	}
	restored := filepath.Join(dir, "restored")
	restore := exec.CommandContext(t.Context(), allodBinary(t), "restore", "--in", archive, "--data", restored)
	restore.Stdin = strings.NewReader(key + "\n")
	if said, err := restore.CombinedOutput(); err != nil || !strings.Contains(string(said), "of a controller") {
		t.Fatalf("%s %v", said, err)
	}
	before := c
	c = rule(t, restored)
	if c.first.Pin != before.first.Pin || c.first.Login != "" || c.first.Listening == before.first.Listening {
		t.Errorf("%+v and %+v", before.first, c.first)
	}
	if status, _ := n.report(c.first.Origin); status != 200 {
		t.Errorf("a report at the new address: %d", status)
	}
	if out := c.do("node", "ls"); !regexp.MustCompile(`(?m)^` + string(n.id) + ` +box-7 +main +online `).MatchString(out) {
		t.Error(out)
	}
	if second, _ := join(t, c.invite()); second.id == n.id {
		t.Error("a second machine is the first one")
	}

	// A node that is removed is refused at its next request.
	if out := c.do("node", "rm", string(n.id), "--pallet-only", "--yes"); !strings.Contains(out, "Pallet on node") {
		t.Error(out)
	}
	if status, _ := n.report(c.first.Origin); status != 200 {
		t.Errorf("a report after Pallet's end: %d", status)
	}
	c.do("node", "rm", string(n.id), "--yes")
	if status, _ := n.report(c.first.Origin); status != http.StatusUnauthorized {
		t.Errorf("a report after the removal: %d", status)
	}
	c.refused("node-removed", "node", "rotate", string(n.id))
	if out := c.do("node", "ls"); !strings.Contains(out, "removed ") {
		t.Error(out)
	}
	metrics := adminText(t, c.data, "/metrics")
	for _, want := range []string{`allod_controller_nodes{state="removed"} 1`, `allod_controller_nodes{state="never-seen"} 1`, "allod_controller_heartbeats_accepted_total 2", "allod_controller_heartbeats_refused_total 1", "allod_controller_store_commits_total "} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics do not say %s", want)
		}
	}
	c.end()

	// No secret is in a log, in the metrics or in any file of either folder.
	places := map[string]string{"the first log": before.errs.String(), "the second log": c.errs.String(), "the metrics": metrics}
	for _, folder := range []string{before.data, restored} {
		if err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			content, err := os.ReadFile(path)
			places[path] = string(content)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for name, secret := range map[string]string{
		"the Jump code": line.Code.Reveal(), "Spark's bearer": n.spark.Reveal(), "Pallet's bearer": n.pallet.Reveal(),
		"a login link": link[strings.LastIndex(link, "/")+1:], "a cookie": in.Cookies()[0].Value,
	} {
		for where, place := range places {
			if len(secret) < 16 || strings.Contains(place, secret) {
				t.Errorf("%s is in %s", name, where)
			}
		}
	}
}

// adminText asks the admin socket of a folder.
func adminText(t *testing.T, data, path string) string {
	t.Helper()
	a, err := httpd.AdminClient(data).Get("http://controller" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestControllerKilledAtTheStart: the first start is killed as soon as each of its
// files is there. The next one comes up whole: with a cluster to invite to, and a
// way to log in.
func TestControllerKilledAtTheStart(t *testing.T) {
	for _, file := range []string{"allod.lock", "ca.pem", "operator-tokens.key", "machine-tokens.key", "zone.db", "zone.db-wal", "admin.sock"} {
		data := filepath.Join(t.TempDir(), "data")
		if err := keyfile.Platform(); err != nil {
			t.Skip("this system keeps no key files")
		}
		cmd := exec.CommandContext(t.Context(), allodBinary(t), "controller", "serve", "--data", data, "--listen", "127.0.0.1:0", "--json")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		until(t, "the first start to make "+file, func() bool {
			_, err := os.Lstat(filepath.Join(data, file))
			return err == nil
		})
		_ = cmd.Process.Kill()
		if err := cmd.Wait(); err == nil {
			t.Fatal("it was not killed")
		} else if exit := new(exec.ExitError); !errors.As(err, &exit) {
			t.Fatal(err)
		}
		c := rule(t, data)
		join(t, c.invite())
		if out := c.do("controller", "login-link"); !strings.Contains(out, "/login/") {
			t.Error(out)
		}
		c.end()
	}
}
