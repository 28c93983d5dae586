package program

import (
	"os/exec"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

func prepare(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{HideWindow: true, CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

// group is a program and what it started, in a job object.
type group struct {
	cmd *exec.Cmd
	job windows.Handle
	// exited is closed when the program itself has ended.
	exited chan struct{}
}

func launch(cmd *exec.Cmd) (*group, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, err
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE},
	}
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation, uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		_ = windows.CloseHandle(job)
		return nil, err
	}
	g := &group{cmd: cmd, job: job, exited: make(chan struct{})}
	go func() {
		defer close(g.exited)
		_ = cmd.Wait()
	}()
	if err := assign(job, cmd.Process.Pid); err != nil {
		select {
		case <-g.exited: // it had ended before
		case <-time.After(killAfter):
			_ = cmd.Process.Kill()
			<-g.exited
			_ = windows.CloseHandle(job)
			return nil, err
		}
	}
	return g, nil
}

func assign(job windows.Handle, pid int) error {
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(pid))
	if err != nil {
		return err
	}
	defer windows.CloseHandle(process)
	return windows.AssignProcessToJobObject(job, process)
}

// ask ends it at once: a program without a console cannot be asked.
func (g *group) ask() { g.kill() }

func (g *group) kill() { _ = windows.TerminateJobObject(g.job, 1) }

// finish returns the exit code of the program, which has exited.
func (g *group) finish() int {
	_ = windows.CloseHandle(g.job)
	return g.cmd.ProcessState.ExitCode()
}

func sweep(string) {}

// Orphans looks for what killed agents left. Here none is found.
func Orphans(string) {}
