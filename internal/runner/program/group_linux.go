package program

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// prepare asks for a process group, and for the program's death with the agent's.
func prepare(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// group is a program and what it started, as long as that stays in its process
// group.
type group struct {
	pid int
	// exited is closed when the program itself has ended. It is reaped by finish
	// only, so that its number stays its group's until then.
	exited chan struct{}
	reap   chan struct{}
	code   chan int
}

// launch starts the program and stays on its thread until it is reaped: the
// kernel takes the end of the thread that started a process for its parent's.
func launch(cmd *exec.Cmd) (*group, error) {
	if err := closeOnStart(); err != nil {
		return nil, err
	}
	g := &group{exited: make(chan struct{}), reap: make(chan struct{}), code: make(chan int, 1)}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		g.pid = cmd.Process.Pid
		started <- nil
		for {
			err := unix.Waitid(unix.P_PID, g.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		close(g.exited)
		<-g.reap
		_ = cmd.Wait()
		g.code <- cmd.ProcessState.ExitCode()
	}()
	return g, <-started
}

func (g *group) ask() { _ = unix.Kill(-g.pid, unix.SIGTERM) }

func (g *group) kill() { _ = unix.Kill(-g.pid, unix.SIGKILL) }

// finish reaps the program, which has exited, and returns its exit code.
func (g *group) finish() int {
	close(g.reap)
	return <-g.code
}

const (
	// sweeps is how often processes are looked for that left a group. One that
	// starts another while it is looked for is found by the next.
	sweeps = 8
	// sweepAgain is how long a process has to become another program before it is
	// looked at again.
	sweepAgain = 2 * time.Millisecond
	// maxEnvironment bounds what is read of a process.
	maxEnvironment = 1 << 20
)

// sweep kills the processes of this user that have the run's folder in their
// environment, in whatever group or session they are.
func sweep(scratch string) { killAll([]byte("\x00TMPDIR=" + scratch + "\x00")) }

// Orphans kills what runs have left that nobody ended, since their agent was
// killed: the processes of this user with a run's folder below scratch in their
// environment, [Config.Scratch] of those runs. Nothing may run there. Elsewhere
// than on Linux it finds none.
func Orphans(scratch string) {
	// The folder itself may be gone.
	scratch = filepath.Join(resolved(filepath.Dir(scratch)), filepath.Base(scratch))
	if filepath.IsAbs(scratch) {
		killAll([]byte("\x00TMPDIR=" + filepath.Join(scratch, runPrefix)))
	}
}

func killAll(mark []byte) {
	for range sweeps {
		killed, unknown := killMarked(mark)
		if !killed && !unknown {
			return
		}
		if unknown {
			time.Sleep(sweepAgain)
		}
	}
}

// killMarked kills the processes with a mark, and says whether it killed some, and
// whether some could not be known.
func killMarked(mark []byte) (killed, unknown bool) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return false, false
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() {
			k, u := killOne(pid, mark)
			killed, unknown = killed || k, unknown || u
		}
	}
	return killed, unknown
}

// killOne kills a process that has the mark. The handle is taken before it is
// looked at, so that a number that was given anew meets nobody. A process that is
// just becoming another program shows no environment, and is not known.
func killOne(pid int, mark []byte) (killed, unknown bool) {
	handle, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false, false
	}
	defer unix.Close(handle)
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false, false
	}
	defer f.Close()
	env, err := io.ReadAll(io.LimitReader(f, maxEnvironment))
	switch {
	case err != nil:
		return false, false
	case len(env) == 0:
		return false, !dead(pid)
	case !bytes.Contains(append([]byte{0}, env...), mark):
		return false, false
	}
	return unix.PidfdSendSignal(handle, unix.SIGKILL, nil, 0) == nil, false
}

// dead reports whether a process has ended, and perhaps waits to be reaped.
func dead(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	// Its name stands in brackets, and may hold some.
	_, state, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return ok && len(state) > 0 && (state[0] == 'Z' || state[0] == 'X')
}
