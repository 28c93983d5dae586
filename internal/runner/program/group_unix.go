//go:build unix && !linux

package program

import (
	"os/exec"
	"syscall"
)

func prepare(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// group is a program and what it started, as long as that stays in its process
// group.
type group struct {
	cmd *exec.Cmd
	// exited is closed when the program itself has ended.
	exited chan struct{}
}

func launch(cmd *exec.Cmd) (*group, error) {
	if err := closeOnStart(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	g := &group{cmd: cmd, exited: make(chan struct{})}
	go func() {
		defer close(g.exited)
		_ = cmd.Wait()
	}()
	return g, nil
}

func (g *group) ask() { _ = syscall.Kill(-g.cmd.Process.Pid, syscall.SIGTERM) }

// kill reaches the rest of the group also when the program is gone: its number
// is not given to another while the group has a member. Where the group is empty
// there is a moment in which it could be.
func (g *group) kill() { _ = syscall.Kill(-g.cmd.Process.Pid, syscall.SIGKILL) }

func (g *group) finish() int { return g.cmd.ProcessState.ExitCode() }

// sweep looks for processes that left the group. This system does not show
// their environment.
func sweep(string) {}

// Orphans looks for what killed agents left. Here none is found.
func Orphans(string) {}
