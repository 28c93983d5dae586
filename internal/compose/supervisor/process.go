package supervisor

import (
	"bytes"
	"context"
	"io"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/allodhq/allod/refusal"
)

// ErrProcess is what a part that is a process of its own died of.
var ErrProcess = refusal.NewKind("part-ended", 500,
	"A part that runs as a process of its own could not be started, or ended by itself.",
	"Read what it wrote, which is above. It is started again.")

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Parts that are kept up", Kinds: []*refusal.Kind{ErrProcess}}

// stopTime is how long a process may take to end once it is told to.
const stopTime = 15 * time.Second

// Process runs a program until ctx ends; then it asks the program to end, and ends it
// where that takes too long. What it writes goes to log. An interrupt at the terminal
// reaches it through this process alone, and on Linux it ends when this process does,
// however that happens. started, if set, is told its process id. It returns
// [ErrProcess], also for a program that ended well: it was not to end.
func Process(ctx context.Context, path string, args []string, log io.Writer, started func(pid int)) error {
	cmd := &exec.Cmd{Path: path, Args: append([]string{path}, args...), Stdout: log, Stderr: log, SysProcAttr: apart()}
	ended := make(chan error, 1)
	begun := make(chan error, 1)
	go func() {
		// The kernel ties the child to the thread that made it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		begun <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-begun; err != nil {
		return ErrProcess.Because(err)
	}
	if started != nil {
		started(cmd.Process.Pid)
	}
	select {
	case err := <-ended:
		return ErrProcess.Because(err)
	case <-ctx.Done():
	}
	if runtime.GOOS == "windows" || cmd.Process.Signal(syscall.SIGTERM) != nil {
		_ = cmd.Process.Kill()
	}
	late := time.AfterFunc(stopTime, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	<-ended
	return ctx.Err()
}

// maxLine is the longest line that [Lines] passes on in one piece, in bytes.
const maxLine = 16 << 10

// Lines passes on whole lines with a prefix, so that what several parts write at once
// can be read.
type Lines struct {
	Prefix string
	To     io.Writer
	// Lock is held while a line is written; parts that share To share it.
	Lock *sync.Mutex

	mu   sync.Mutex
	rest []byte
}

// Write passes on what ends a line, or is too long for one, and keeps the rest.
func (l *Lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, b...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole && len(l.rest) < maxLine {
			return len(b), nil
		}
		if !whole {
			line, rest = l.rest, nil
		}
		out := append([]byte(l.Prefix), line...)
		l.Lock.Lock()
		_, err := l.To.Write(append(out, '\n'))
		l.Lock.Unlock()
		l.rest = append(l.rest[:0], rest...)
		if err != nil {
			return len(b), err
		}
	}
}
