//go:build linux && killpoints

package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/allodhq/allod/internal/killpoint"
	"github.com/allodhq/allod/wire/zone"
)

// output is what a process writes, to be looked at while it does.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// runAt starts run so that its programs kill themselves at p, and returns its log.
func (m *machine) runAt(p killpoint.Point) (*exec.Cmd, *output) {
	m.t.Helper()
	c, log := m.command("run"), &output{}
	c.Stderr = log
	c.Env = append(os.Environ(), "ALLOD_KILLPOINT="+string(p))
	if err := c.Start(); err != nil {
		m.t.Fatal(err)
	}
	// An installer that finds nobody here would start both by itself, and none would die.
	eventually(m.t, "both run", func() bool {
		return strings.Contains(log.String(), `msg="spark runs"`) && strings.Contains(log.String(), `msg="pallet runs"`)
	})
	return c, log
}

// TestF08KillPoints kills Spark or Pallet at each point of joining, of the first report
// and of a rotation, and starts it again. The machine becomes one node, by the same
// line, and both programs come to one credential that counts.
func TestF08KillPoints(t *testing.T) {
	// What takes a minute with Pallet takes three seconds. The order of the steps is the same.
	t.Setenv("ALLOD_KILLPOINT_HASTE", "20")
	for _, p := range killpoint.Node() {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			c, m := newController(t), newMachine(t)
			line := invite(t, c)
			rotates := strings.HasSuffix(string(p), "-renewed") || strings.HasSuffix(string(p), "-rotated")
			if rotates {
				id := m.must("join", line, "--hostname", "one")
				if err := c.Rotate(zone.NodeID(id), "r1"); err != nil {
					t.Fatal(err)
				}
			}
			run, log := m.runAt(p)
			join := m.command("join", line, "--hostname", "one", "--wait", "10s")
			if err := join.Start(); err != nil {
				t.Fatal(err)
			}
			name, _, _ := strings.Cut(string(p), "-")
			eventually(t, "it is killed", func() bool {
				return strings.Contains(log.String(), "name="+name+" refusal=node-program-ended end=\"signal: killed\"")
			})
			if err := run.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := run.Wait(); err != nil {
				t.Error(err)
			}
			_ = join.Process.Kill()
			_ = join.Wait()
			m.run()
			id := one(t, c, m.must("join", line, "--hostname", "one"))
			m.until("both count", func(s status) bool {
				generation := int64(1)
				if rotates {
					generation = 2
				}
				mine := s.Spark.Generation
				if name == "pallet" {
					mine = s.Pallet.Generation
				}
				return s.NodeID == string(id) && mine == generation && s.Spark.Reports > 0 && s.Pallet.State == "active" && s.State == "active"
			})
			out, _, err := m.do("doctor")
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
