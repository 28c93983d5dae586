package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// bothPrograms is a folder with the two programs beside each other, as a release has
// them: this binary as allod, and allod-node, built from this tree.
func bothPrograms(t *testing.T) (allod, node string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	allod, node = filepath.Join(dir, "allod"), filepath.Join(dir, "allod-node")
	// A symbolic link would not do: the program looks beside its own file.
	if os.Link(self, allod) != nil {
		bytes, err := os.ReadFile(self)
		if err == nil {
			err = os.WriteFile(allod, bytes, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", node, "-ldflags", "-X main.version=v0.0.0-test", "github.com/allodhq/allod/cmd/allod-node")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return allod, node
}

// processesIn lists the command lines of processes that name a folder.
func processesIn(t *testing.T, dir string) (lines []string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no processes: %v", err)
	}
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(line), dir) {
			lines = append(lines, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return lines
}

// TestDemoJoinsThisMachine: the demo ends with this machine as a node that was heard
// of, and nothing of it is left, neither a file nor a process.
func TestDemoJoinsThisMachine(t *testing.T) {
	allod, _ := bothPrograms(t)
	tmp := t.TempDir()
	cmd := exec.CommandContext(t.Context(), allod, "demo", "--stand-in", "--json")
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var d struct {
		Zone struct {
			Controller, Absent string
			Nodes              []struct {
				Hostname  string
				RemovedAt *int64
				Liveness  struct {
					State string
					AgeMs int64
				}
				Seen *struct {
					Report struct {
						Host   struct{ Hostname, Kernel string }
						Bundle struct{ Version string }
					}
				}
				Credentials []struct{ Purpose, State string }
			}
		}
	}
	if err := json.Unmarshal(out, &d); err != nil {
		t.Fatal(err)
	}
	if d.Zone.Absent != "" || len(d.Zone.Nodes) != 1 {
		t.Fatalf("%s", out)
	}
	n := d.Zone.Nodes[0]
	hostname, _ := os.Hostname()
	if n.Hostname != hostname || n.Liveness.State != "online" || n.RemovedAt != nil || len(n.Credentials) != 2 ||
		n.Seen == nil || n.Seen.Report.Host.Kernel == "" || n.Seen.Report.Bundle.Version != "v0.0.0-test" {
		t.Errorf("%s", out)
	}
	if left := processesIn(t, tmp); len(left) > 0 {
		t.Errorf("still there: %q", left)
	}
	if entries, err := os.ReadDir(tmp); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v %v", entries, err)
	}
}
