package program

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKillOne: a process without an environment may be one that is just becoming
// another program, and is looked at again; one that has ended is not.
func TestKillOne(t *testing.T) {
	mark := []byte("\x00TMPDIR=/a/b\x00")
	begin := func(env ...string) *exec.Cmd {
		c := exec.Command("sleep", "600")
		c.Env = append([]string{}, env...)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
		return c
	}
	ended := begin("A=b")
	if err := ended.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, ended.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		pid             int
		killed, unknown bool
	}{
		"marked":      {begin("A=b", "TMPDIR=/a/b").Process.Pid, true, false},
		"at first":    {begin("TMPDIR=/a/b", "A=b").Process.Pid, true, false},
		"another":     {begin("TMPDIR=/a/bc", "XTMPDIR=/a/b").Process.Pid, false, false},
		"nothing":     {begin().Process.Pid, false, true},
		"ended":       {ended.Process.Pid, false, false},
		"this one":    {os.Getpid(), false, false},
		"none at all": {1 << 29, false, false},
	} {
		if killed, unknown := killOne(c.pid, mark); killed != c.killed || unknown != c.unknown {
			t.Errorf("%s: killed %t, unknown %t", name, killed, unknown)
		}
	}
}
