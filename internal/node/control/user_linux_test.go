package control_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/allodhq/allod/internal/node/control"
	"github.com/allodhq/allod/wire/zone/frame"
)

func owner(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

// stranger is a user that is not root, and owns nothing here.
const stranger = 65534

// roles are what this binary does as another process.
var roles = map[string]func(args []string) int{
	// ask says what comes of a request that takes any server.
	"ask": func(args []string) int {
		conn, err := net.Dial("unix", args[0])
		if err != nil {
			fmt.Println("cannot connect:", errors.Is(err, fs.ErrPermission))
			return 0
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, framed(`{"method":"m","request":1}`))
		_ = conn.(*net.UnixConn).CloseWrite()
		got, err := frame.Read(conn, frame.MaxResponse)
		fmt.Println(string(got), err)
		return 0
	},
	// listen serves until it is killed.
	"listen": func(args []string) int {
		s, err := control.Listen(args[0], control.Options{User: uint32(os.Geteuid())}, echo)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("listening")
		s.Run(context.Background())
		return 0
	},
}

// copied is this binary where every user can start it.
func copied(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "allod")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	name := filepath.Join(dir, "peer")
	out, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, self); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(out.Close(), os.Chmod(name, 0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	return name
}

// as starts a role as another user.
func as(ctx context.Context, binary string, user uint32, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir, cmd.Env = "/", []string{"GORACE=atexit_sleep_ms=0"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}, Pdeathsig: syscall.SIGKILL}
	return cmd
}

func mustBeRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process as another user")
	}
}

// TestF10NonRootPeer: the file keeps another user out, and so does the kernel's word
// on who is at the other end, each without the other.
func TestF10NonRootPeer(t *testing.T) {
	mustBeRoot(t)
	path := place(t)
	var calls atomic.Int32
	serve(t, path, control.Options{}, func(context.Context, string, []byte) ([]byte, error) {
		calls.Add(1)
		return []byte(`"hello"`), nil
	})
	binary := copied(t)
	ask := func(user uint32) string {
		out, err := as(t.Context(), binary, user, "ask", path).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		return strings.TrimSpace(string(out))
	}
	if got := ask(0); got != `{"response":"hello"} <nil>` || calls.Load() != 1 {
		t.Errorf("root: %s", got)
	}
	for name, mode := range map[string]fs.FileMode{filepath.Dir(filepath.Dir(path)): 0o755, filepath.Dir(path): 0o755} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	if got := ask(stranger); got != "cannot connect: true" {
		t.Errorf("through the socket's mode: %s", got)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if got := ask(stranger); !strings.Contains(got, `"code":"control-peer"`) || calls.Load() != 1 {
		t.Errorf("through the kernel's word: %s", got)
	}
	if got := ask(0); got != `{"response":"hello"} <nil>` || calls.Load() != 2 {
		t.Errorf("root again: %s", got)
	}
	if err := errors.Join(os.Chmod(path, 0o666), os.Chmod(filepath.Dir(path), 0o700)); err != nil {
		t.Fatal(err)
	}
	if got := ask(stranger); got != "cannot connect: true" {
		t.Errorf("through the folder's mode: %s", got)
	}
}

// TestF10NonRootServer: a client sends nothing to a server of another user.
func TestF10NonRootServer(t *testing.T) {
	mustBeRoot(t)
	path := place(t)
	if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.Chown(filepath.Dir(path), stranger, stranger), os.Chmod(filepath.Dir(filepath.Dir(path)), 0o755)); err != nil {
		t.Fatal(err)
	}
	listening(t, as(t.Context(), copied(t), stranger, "listen", path))
	if _, err := control.Ask(t.Context(), path, control.Options{}, "m", []byte(`"`+canary+`"`)); !errors.Is(err, control.ErrPeer) {
		t.Errorf("a server of another user: %v", err)
	}
	if got, err := control.Ask(t.Context(), path, control.Options{User: stranger}, "m", []byte("1")); codeOf(err) != "control-peer" {
		t.Errorf("and it does not take root's: %s, %v", got, err)
	}
}

// listening starts a server and waits until it listens.
func listening(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "listening\n" {
		t.Fatalf("%q, %v", line, err)
	}
}

// TestKilledServer: the socket of a server that was killed is replaced, and not
// before it was.
func TestKilledServer(t *testing.T) {
	path := place(t)
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "listen", path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	listening(t, cmd)
	if got, err := ask(t, path, "m", "1"); err != nil || got != `{"method":"m","got":1}` {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := control.Listen(path, control.Options{User: own()}, echo); !errors.Is(err, control.ErrInUse) {
		t.Errorf("while it lives: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if _, err := os.Lstat(path); err != nil {
		t.Fatal("a killed server removed its socket, so this test proves nothing")
	}
	if _, err := ask(t, path, "m", "1"); !errors.Is(err, control.ErrSilent) {
		t.Errorf("between: %v", err)
	}
	serve(t, path, control.Options{}, echo)
	if got, err := ask(t, path, "m", "1"); err != nil || got != `{"method":"m","got":1}` {
		t.Errorf("%s, %v", got, err)
	}
}
