package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allodhq/allod/test/programs"
)

// nobody is the ordinary user of these tests.
const nobody = 65534

// userManager is systemd's manager of an ordinary user, in a view of the file
// system where the machine looks booted by systemd.
type userManager struct {
	t       *testing.T
	dir     string // of the user
	program string
	cmd     *exec.Cmd
	said    *programs.Transcript
}

// newUserManager starts one, which only root can, and skips where the machine has
// no systemd or lets nobody make control groups.
func newUserManager(t *testing.T) *userManager {
	t.Helper()
	const systemd = "/usr/lib/systemd/systemd"
	if os.Geteuid() != 0 {
		t.Skip("only root can start a manager for another user")
	}
	for _, program := range []string{systemd, "unshare", "nsenter", "setpriv", "systemctl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("there is no " + program)
		}
	}
	// Not in a place for temporary files, which no service may be started from.
	dir, err := os.MkdirTemp("/var/lib", "allod-test")
	if err != nil {
		t.Skip("no folder can be made in /var/lib")
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	groups := controlGroups(t)
	m := &userManager{t: t, dir: dir, program: filepath.Join(dir, "a b %h $x", "allod"), said: &programs.Transcript{}}
	for _, sub := range []string{"run", "home", "agent", "bin", "a b %h $x"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	copyProgram(t, m.program)
	m.write("agent/pairings.json", `{"version":1,"pairings":[{"server":"https://site.invalid","runnerId":"r","owner":"alice","sites":{},"pairedAt":1}]}`)
	m.write("agent/config.json", `{"agent": {"backends": {"mine": {"backend": "openai-http", "baseUrl": "http://127.0.0.1:9/v1", "apiKeyEnv": "CANARY_API_KEY"},
		"own": {"backend": "claude-cli"}}}}`)
	m.write("bin/claude", "#!/bin/sh\necho '2.1.200 (Claude Code)'\n")
	if err := os.Chmod(filepath.Join(dir, "bin", "claude"), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "chown", "-R", strconv.Itoa(nobody)+":"+strconv.Itoa(nobody), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	script := `for g in "$@"; do echo $$ >"$g/cgroup.procs" || exit 9; done
mount -t tmpfs none /run/systemd && mkdir /run/systemd/system || exit 9
exec ` + strings.Join(m.as(systemd, "--user"), " ")
	words := append([]string{"--mount", "sh", "-c", script, "sh"}, groups...)
	if err := os.MkdirAll("/run/systemd", 0o755); err != nil {
		t.Skip("there is no /run")
	}
	m.cmd = exec.Command("unshare", words...) // it ends after the test's context
	m.cmd.Stdout, m.cmd.Stderr = m.said, m.said
	if err := m.cmd.Start(); err != nil {
		t.Skip("no view of its own: " + err.Error())
	}
	ended := make(chan struct{})
	go func() { _ = m.cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = m.cmd.Process.Signal(syscall.SIGTERM) // which ends its services too
		select {
		case <-ended:
		case <-time.After(patience):
			_ = m.cmd.Process.Kill()
			<-ended
		}
	})
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if _, err := m.command("systemctl", "--user", "show-environment").Output(); err == nil {
			return m
		}
		select {
		case <-ended:
			t.Skipf("no user manager runs here:\n%s", m.said)
		default:
			if time.Now().After(end) {
				t.Fatalf("the user manager does not answer:\n%s", m.said)
			}
		}
	}
}

// controlGroups makes a group for the manager in each hierarchy that systemd uses.
func controlGroups(t *testing.T) (groups []string) {
	t.Helper()
	const root = "/sys/fs/cgroup"
	places := []string{root}
	if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
		places = []string{filepath.Join(root, "systemd"), filepath.Join(root, "unified")}
	}
	for _, place := range places {
		if _, err := os.Stat(place); err != nil {
			continue
		}
		g, err := os.MkdirTemp(place, "allod-test")
		if err != nil {
			t.Skip("no control group can be made")
		}
		t.Cleanup(func() { removeGroup(g) })
		if out, err := exec.CommandContext(t.Context(), "chown", "-R", strconv.Itoa(nobody), g).CombinedOutput(); err != nil {
			t.Skipf("no control group can be given away: %s", out)
		}
		groups = append(groups, g)
	}
	if groups == nil {
		t.Skip("there are no control groups")
	}
	return groups
}

// removeGroup removes a control group and those that the manager made in it.
func removeGroup(g string) {
	entries, _ := os.ReadDir(g)
	for _, e := range entries {
		if e.IsDir() {
			removeGroup(filepath.Join(g, e.Name()))
		}
	}
	_ = os.Remove(g)
}

func copyProgram(t *testing.T, to string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

func (m *userManager) write(name, text string) {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Chown(path, nobody, nobody); err != nil {
		m.t.Fatal(err)
	}
}

// path is the user's PATH, with a folder of the user's own.
func (m *userManager) path() string { return filepath.Join(m.dir, "bin") + ":/usr/bin:/bin" }

// as are the words that run a command as the user, with the user's environment.
func (m *userManager) as(words ...string) []string {
	id := strconv.Itoa(nobody)
	return append([]string{"setpriv", "--reuid", id, "--regid", id, "--clear-groups", "env", "-i",
		"HOME=" + filepath.Join(m.dir, "home"), "XDG_RUNTIME_DIR=" + filepath.Join(m.dir, "run"), "PATH=" + m.path()}, words...)
}

func (m *userManager) command(words ...string) *exec.Cmd {
	words = append([]string{"-t", strconv.Itoa(m.cmd.Process.Pid), "-m"}, m.as(words...)...)
	return exec.CommandContext(m.t.Context(), "nsenter", words...)
}

// allod runs a command of the user's at a terminal, where an API key is set.
func (m *userManager) allod(words ...string) (string, int) {
	m.t.Helper()
	words = append([]string{"ALLOD_HOME=" + filepath.Join(m.dir, "agent"), "CANARY_API_KEY=" + canaryAPIKey, m.program}, words...)
	out, err := m.command(words...).CombinedOutput()
	var ended *exec.ExitError
	if err != nil && !asExit(err, &ended) {
		m.t.Fatal(err)
	}
	if strings.Contains(string(out), canaryAPIKey) {
		m.t.Errorf("a key is shown: %s", out)
	}
	if ended != nil {
		return string(out), ended.ExitCode()
	}
	return string(out), 0
}

func asExit(err error, to **exec.ExitError) bool {
	e, ok := err.(*exec.ExitError)
	*to = e
	return ok
}

// must runs a command that ends with that code and says something.
func (m *userManager) must(code int, says string, words ...string) string {
	m.t.Helper()
	out, got := m.allod(words...)
	if got != code || !strings.Contains(out, says) {
		m.t.Fatalf("allod %s: %d\n%s\nwant %d and %q\nthe manager:\n%s", strings.Join(words, " "), got, out, code, says, m.said)
	}
	return out
}

func (m *userManager) property(name string) string {
	m.t.Helper()
	out, err := m.command("systemctl", "--user", "show", "--value", "--property="+name, "allod-agent.service").Output()
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// TestService runs the agent under systemd itself.
func TestService(t *testing.T) {
	m := newUserManager(t)
	m.must(0, "The service: not installed", "agent", "status")
	m.must(4, "service-not-installed", "agent", "start")

	// The key stays out of the definition, and the owner is told.
	out := m.must(0, "CANARY_API_KEY", "agent", "install")
	unit := filepath.Join(m.dir, "home", ".config", "systemd", "user", "allod-agent.service")
	text, err := os.ReadFile(unit)
	if err != nil || strings.Contains(string(text), canaryAPIKey) || !strings.Contains(out, unit) || !strings.Contains(out, "allod agent uninstall") {
		t.Errorf("%v: %s\n%s", err, text, out)
	}
	m.must(0, "Nothing was changed", "agent", "install")
	m.must(0, "The service: installed, not running", "agent", "status")
	m.must(0, "It did not run", "agent", "stop")
	// The doctor stands where the service does, and not in this terminal.
	if out := m.must(1, "As the service would", "doctor", "--hold", "0s"); !strings.Contains(out, "api-key-unset") {
		t.Errorf("the doctor has a key that the service has not: %s", out)
	}

	// It runs from a folder that its manager could misread, with what the owner's
	// file gives it.
	m.write("agent/service.env", "CANARY_API_KEY="+canaryAPIKey+"\n")
	if out := m.must(0, "Nothing was changed", "agent", "install"); strings.Contains(out, "CANARY_API_KEY") {
		t.Errorf("it has the variable, and is said not to: %s", out)
	}
	m.must(0, "The agent runs as a service", "agent", "start")
	m.must(0, "It runs already", "agent", "start")
	m.must(0, "The service: running", "agent", "status")
	if out := m.must(0, "mine: ", "agent", "status"); strings.Contains(out, "api-key-unset") {
		t.Errorf("the key did not arrive: %s", out)
	}
	if out := m.must(1, "It runs as a service", "doctor", "--hold", "0s"); strings.Contains(out, "api-key-unset") || !strings.Contains(out, "backend-unreachable") || !strings.Contains(out, "It is 2.1.200 at "+filepath.Join(m.dir, "bin", "claude")) {
		t.Errorf("the doctor has not the key and the PATH that the service has: %s", out)
	}
	pid, err := strconv.Atoi(m.property("MainPID"))
	if err != nil {
		t.Fatal(err)
	}
	words, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	want := strings.Join([]string{m.program, "agent", "service", "--home", filepath.Join(m.dir, "agent"), "--path", m.path()}, "\x00") + "\x00"
	if err != nil || string(words) != want {
		t.Errorf("it was started by %q, %v, want %q", words, err, want)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil || !strings.Contains(string(status), "NoNewPrivs:\t1\n") || !strings.Contains(string(status), "Umask:\t0077\n") || !strings.Contains(string(status), "Uid:\t65534\t65534\t") {
		t.Errorf("%s, %v", status, err)
	}

	// One that dies is started again, after a while.
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	m.until("activating")
	m.must(0, "about to be started again", "agent", "status")
	m.must(0, "The service is stopped", "agent", "stop")
	m.must(0, "The service: installed, not running", "agent", "status")

	// One that would end for the same reason again is not.
	m.write("agent/service.env", "no variable")
	m.must(1, "service-ended", "agent", "start")
	if state, again := m.property("ActiveState"), m.property("NRestarts"); state != "failed" || again != "0" {
		t.Errorf("it is %s after %s new starts", state, again)
	}
	m.must(0, "not running, after a failure", "agent", "status")
	m.write("agent/service.env", "")

	// One that runs in a terminal is not the service.
	own := m.command("ALLOD_HOME="+filepath.Join(m.dir, "agent"), m.program, "agent", "run")
	said := &programs.Transcript{}
	own.Stderr = said
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = own.Process.Kill(); _ = own.Wait() }()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if out, _ := m.allod("agent", "status", "--json"); running(out) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the agent does not run:\n%s", said)
		}
	}
	m.must(5, "service-runs-elsewhere", "agent", "start")
	m.must(5, "service-runs-elsewhere", "agent", "stop")
	m.must(0, "started in another way", "agent", "status")
	if err := own.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := own.Wait(); err != nil {
		t.Errorf("the agent in the terminal: %v\n%s", err, said)
	}

	// What is taken away is gone, and the agent's folder is not.
	m.must(0, "runs as a service", "agent", "start")
	m.must(0, "The agent's folder stays", "agent", "uninstall")
	if _, err := os.Lstat(unit); !os.IsNotExist(err) {
		t.Errorf("the unit: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(m.dir, "home", ".config", "systemd", "user", "default.target.wants", "allod-agent.service")); !os.IsNotExist(err) {
		t.Errorf("its link: %v", err)
	}
	if _, err := os.Stat(filepath.Join(m.dir, "agent", "keys.json")); err != nil {
		t.Error(err)
	}
	m.must(4, "service-not-installed", "agent", "uninstall")
	m.must(0, "The service: not installed", "agent", "status")
}

// until waits for a state of the service.
func (m *userManager) until(state string) {
	m.t.Helper()
	for end := time.Now().Add(patience); m.property("ActiveState") != state; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("it is %s", m.property("ActiveState"))
		}
	}
}

func running(status string) bool {
	var s struct{ Running bool }
	return json.Unmarshal([]byte(status), &s) == nil && s.Running
}
