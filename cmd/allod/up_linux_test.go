package main

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allodhq/allod/test/programs"
)

// upAll is an allod up that runs.
type upAll struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
	errs  *programs.Transcript
	first struct{ URL, Operator, Login, SiteURL, AppKeyFile, NoNode string }
}

func startUp(t *testing.T, allod, data string, flags ...string) *upAll {
	t.Helper()
	u := &upAll{t: t, lines: make(chan string, 64), errs: &programs.Transcript{}}
	u.cmd = exec.CommandContext(t.Context(), allod, append([]string{"up", "--data", data, "--listen", "127.0.0.1:0", "--json"}, flags...)...)
	u.cmd.Stderr = u.errs
	out, err := u.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := u.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = u.cmd.Process.Kill(); _ = u.cmd.Wait() })
	go func() {
		defer close(u.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			u.lines <- s.Text()
		}
	}()
	if err := json.Unmarshal([]byte(u.next()), &u.first); err != nil {
		t.Fatalf("%v\n%s", err, u.errs)
	}
	return u
}

func (u *upAll) next() string {
	u.t.Helper()
	select {
	case line, ok := <-u.lines:
		if !ok {
			u.t.Fatalf("it says nothing more\n%s", u.errs)
		}
		return line
	case <-time.After(patience):
		u.t.Fatalf("it is silent\n%s", u.errs)
	}
	return ""
}

// change is one line about a part.
type change struct {
	Part, State, Where, Error string
	Starts                    int
	AgainMs                   int64
}

// until reads lines until a part has a state.
func (u *upAll) until(part, state string) change {
	u.t.Helper()
	for {
		var c change
		if err := json.Unmarshal([]byte(u.next()), &c); err != nil {
			u.t.Fatal(err)
		}
		if c.Part == part && c.State == state {
			return c
		}
	}
}

func (u *upAll) end() {
	u.t.Helper()
	if err := u.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		u.t.Fatal(err)
	}
	for range u.lines {
	}
	if err := u.cmd.Wait(); err != nil {
		u.t.Errorf("told to end: %v\n%s", err, u.errs)
	}
}

// status is how something is answered at an address of up.
func (u *upAll) status(url, path string) int {
	u.t.Helper()
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}} // whose it is, is tested elsewhere
	answer, err := c.Get(url + path)
	if err != nil {
		u.t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// TestUp starts everything with one command, kills the node, ends all, and starts it
// again on the same folder.
func TestUp(t *testing.T) {
	allod, _ := bothPrograms(t)
	data := filepath.Join(t.TempDir(), "all")
	root := os.Geteuid() == 0

	u := startUp(t, allod, data)
	if !strings.HasPrefix(u.first.Login, u.first.URL+"/login/") || u.first.Operator != "admin" || (u.first.NoNode == "") != root {
		t.Fatalf("the first line: %+v", u.first)
	}
	// The controller and the site are at one address, the site by plain HTTP as well.
	if page, own := u.status(u.first.URL, "/"), u.status(u.first.SiteURL, "/"); page != 401 || own != 404 {
		t.Errorf("the pages: %d at the address of all, %d at the site's own", page, own)
	}
	for path, want := range map[string]int{"/v1/models": 401, "/v1/jobs/a": 401, "/v1/files": 401, "/pair": 0, "/byollm/x": 0} {
		at, local := u.status(u.first.URL, path), u.status(u.first.SiteURL, path)
		if at != local || want != 0 && at != want {
			t.Errorf("%s: %d at the address of all, %d at the site's own", path, at, local)
		}
	}
	// One at a time.
	second, err := exec.CommandContext(t.Context(), allod, "up", "--data", data, "--listen", "127.0.0.1:0").CombinedOutput()
	if err == nil || !strings.Contains(string(second), "(party-running)") {
		t.Errorf("twice at once: %v\n%s", err, second)
	}

	var node string
	nodes := func() (ids []string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), allod, "node", "ls", "--json", "--data", filepath.Join(data, "controller")).Output()
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Nodes []struct {
				ID       string
				Liveness struct{ State string }
			}
		}
		if err := json.Unmarshal(out, &list); err != nil {
			t.Fatal(err)
		}
		for _, n := range list.Nodes {
			if n.Liveness.State == "online" {
				ids = append(ids, n.ID)
			}
		}
		return ids
	}
	if root {
		node = u.until("node", "up").Where
		if got := nodes(); node == "" || !slices.Equal(got, []string{node}) {
			t.Errorf("the nodes are %q, want %q", got, node)
		}
		// A part that is killed is said, and started again.
		keeper := pidOf(t, data, "run")
		if err := syscall.Kill(keeper, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if died := u.until("node", "died"); died.Error != "part-ended" || died.AgainMs != 250 {
			t.Errorf("%+v", died)
		}
		if again := u.until("node", "up"); again.Where != node || again.Starts != 2 {
			t.Errorf("%+v", again)
		}
	} else if u.first.NoNode == "" || !strings.Contains(u.first.NoNode, "root") {
		t.Errorf("why there is no node: %q", u.first.NoNode)
	}
	u.end()
	if left := processesIn(t, data); len(left) > 0 {
		t.Errorf("still there: %q", left)
	}

	// The same folder: nobody logs in for the first time, and nothing joins twice.
	before := u.first.URL
	u = startUp(t, allod, data)
	if u.first.URL != before || u.first.Login != "" {
		t.Errorf("the second start: %+v, before %s", u.first, before)
	}
	if root {
		if again := u.until("node", "up"); again.Where != node {
			t.Errorf("the node is %+v, was %s", again, node)
		}
		if got := nodes(); !slices.Equal(got, []string{node}) {
			t.Errorf("the nodes are %q, want %q", got, node)
		}
	}
	u.end()

	// It can be left out.
	u = startUp(t, allod, data, "--no-node")
	if u.first.NoNode == "" {
		t.Errorf("%+v", u.first)
	}
	u.end()
	if left := processesIn(t, data); len(left) > 0 {
		t.Errorf("still there: %q", left)
	}
}

// pidOf is the process of allod-node on a folder that does one command.
func pidOf(t *testing.T, dir, command string) int {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		line, err := os.ReadFile(path)
		words := strings.Split(string(line), "\x00")
		if err == nil && len(words) > 2 && strings.HasSuffix(words[0], "allod-node") && words[1] == command && strings.Contains(string(line), dir) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("no allod-node %s runs", command)
	return 0
}
