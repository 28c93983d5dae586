package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allodhq/allod/test/programs"
)

// pseudoTerminal is a terminal of some size: what is written to far comes out of
// near.
func pseudoTerminal(t *testing.T, columns, rows uint16) (near, far *os.File) {
	t.Helper()
	near, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("this machine has no pseudo-terminals: ", err)
	}
	t.Cleanup(func() { near.Close() })
	number, err := unix.IoctlGetInt(int(near.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(near.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(near.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows})
	}
	if err == nil {
		far, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err != nil {
		t.Skip("this machine has no pseudo-terminals: ", err)
	}
	return near, far
}

// runOn starts the agent on a terminal and returns what comes out there.
func (a *machine) runOn(columns, rows uint16, env []string, args ...string) (cmd *exec.Cmd, shown *programs.Transcript, end func()) {
	a.t.Helper()
	near, far := pseudoTerminal(a.t, columns, rows)
	cmd = a.command(append([]string{"agent", "run"}, args...)...)
	cmd.Env = append(cmd.Env, append([]string{"TERM=xterm", "NO_COLOR="}, env...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = far, far, far
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	far.Close()
	shown = &programs.Transcript{}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(shown, near) // until nobody has the other end
	}()
	a.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, shown, func() {
		a.t.Helper()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			a.t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			a.t.Errorf("told to end: %v\n%s", err, shown)
		}
		<-read
	}
}

// TestLiveView: on a terminal the agent shows what runs while it runs, and how it
// ended, below its log. Nothing of it drives the terminal but the frames, and the
// terminal is left as it was.
func TestLiveView(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	release := make(chan struct{})
	m.holding(func(*http.Request, string) string { <-release; return "done" })
	s := serve(t, filepath.Join(t.TempDir(), "data"), "--limits", "off")
	a := newMachine(t, m)
	a.pair(s, s.url)

	_, shown, end := a.runOn(100, 30, nil)
	shown.Shows(t, "1 of 1 models ready")
	shown.Shows(t, "serving")
	s.ask("j1", "a question")
	shown.Shows(t, "\nrunning   you     alice")
	if out := a.do("agent", "jobs"); !strings.Contains(out, "running   you     alice") || !strings.Contains(out, "mine m1") {
		t.Errorf("allod agent jobs says\n%s", out)
	}
	close(release)
	shown.Shows(t, "  unknown") // this model server counts no tokens
	end()
	text := shown.String()
	for _, want := range []string{"msg=working", "  ok  ", "ENDED     ASKER"} {
		if !strings.Contains(text, want) {
			t.Errorf("it never shows %q:\n%q", want, text)
		}
	}
	rest := text
	for _, told := range []string{"\x1b[?2026h", "\x1b[?2026l", "\x1b[?25l", "\x1b[?25h", "\x1b[?7l", "\x1b[?7h", "\x1b[J"} {
		if n := strings.Count(text, told); n == 0 || strings.Count(text, "\x1b[?25l") != strings.Count(text, "\x1b[?25h") {
			t.Errorf("it tells the terminal %q %d times", told, n)
		}
		rest = strings.ReplaceAll(rest, told, "")
	}
	for n := range 30 {
		rest = strings.ReplaceAll(rest, fmt.Sprintf("\x1b[%dA", n), "")
	}
	if strings.ContainsAny(rest, "\x1b\u009b") {
		t.Errorf("it tells the terminal more: %q", rest)
	}
	// The last frame takes the view away.
	if last := text[strings.LastIndex(text, "\x1b[?2026h"):]; strings.Contains(last, "ASKER") || !strings.Contains(last, "\x1b[J") {
		t.Errorf("the last frame is %q", last)
	}

	// Whoever wants a log and nothing else gets that.
	for _, plain := range []struct {
		env  string
		args []string
	}{{"NO_COLOR=1", nil}, {"TERM=dumb", nil}, {"TERM=", nil}, {"", []string{"--plain"}}, {"", []string{"--json"}}} {
		_, shown, end := a.runOn(100, 30, []string{plain.env}, plain.args...)
		shown.Shows(t, "offers changed")
		end()
		if strings.Contains(shown.String(), "\x1b") {
			t.Errorf("%v: %q", plain, shown)
		}
	}
}
