package programs

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience is how long a test waits for something that should take moments. The
// published daemon looks for work every ten seconds when it is idle. It is no
// measure of speed.
const Patience = time.Minute

// Eventually waits for something to become true and reports whether it did.
func Eventually(t *testing.T, is func() bool) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// Wait waits for a channel of the test's own to be closed. If it is not, the test
// ends and shows what a process said.
func Wait(t *testing.T, c <-chan struct{}, what string, said fmt.Stringer) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(Patience):
		t.Fatalf("never: %s\n%s", what, said)
	}
}

// Transcript keeps what a process writes. It may be read meanwhile.
type Transcript struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write keeps p.
func (r *Transcript) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(p)
}

// String is what was written so far.
func (r *Transcript) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.String()
}

// Shows waits until the process has written a text.
func (r *Transcript) Shows(t *testing.T, text string) {
	t.Helper()
	if !Eventually(t, func() bool { return strings.Contains(r.String(), text) }) {
		t.Fatalf("it never says %q:\n%s", text, r)
	}
}

// Process is a program that runs beside the test.
type Process struct {
	Said *Transcript // on both outputs
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// Start starts a command, which is killed at the end of the test.
func Start(t *testing.T, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Said: &Transcript{}, cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.Said, p.Said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-p.done })
	return p
}

// Ended waits for the process to end by itself and returns its exit code.
func (p *Process) Ended(t *testing.T) int {
	t.Helper()
	Wait(t, p.done, "the end of the process", p.Said)
	return p.cmd.ProcessState.ExitCode()
}

// Terminate ends the process as a service manager does.
func (p *Process) Terminate(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.Ended(t)
}
