//go:build unix

package adversarial

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// seen is what a fake program was given.
type seen struct {
	Args, Env []string
	Stdin     []byte
	Dir       string
	// Files are what was in the folder.
	Files []string
	// Descriptors are the open ones, where the system shows them.
	Descriptors []string
	Pid, Group  int
}

// report is what a fake program says behind walls.
type report struct {
	File  string
	Value json.RawMessage
}

// attempt is what a fake program tries, and what became of it: "done", "denied",
// or another error.
type attempt struct{ Do, At, Came string }

func (a *attempt) try() {
	var err error
	switch a.Do {
	case "read":
		_, err = os.ReadFile(a.At)
	case "list":
		_, err = os.ReadDir(a.At)
	case "write":
		if err = os.WriteFile(a.At, []byte("here"), 0o600); err == nil {
			err = os.Remove(a.At)
		}
	case "append":
		var f *os.File
		if f, err = os.OpenFile(a.At, os.O_APPEND|os.O_WRONLY, 0); err == nil {
			err = f.Close()
		}
	case "tcp", "unix":
		var c net.Conn
		if c, err = net.DialTimeout(a.Do, a.At, time.Minute); err == nil {
			err = c.Close()
		}
	}
	switch {
	case err == nil:
		a.Came = "done"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EAFNOSUPPORT): // there are no such sockets behind walls
		a.Came = "denied"
	default:
		a.Came = err.Error()
	}
}

// tryAll tries what the text names, and answers with what became of it.
func tryAll(text string, answer func(string)) {
	var all []attempt
	_ = json.Unmarshal([]byte(text), &all)
	for i := range all {
		all[i].try()
	}
	b, _ := json.Marshal(all)
	answer(string(b))
}

// fakeMain plays a backend. What it plays is in the file mode beside it, since
// neither arguments nor environment can say.
func fakeMain(name string) int {
	dir := filepath.Dir(os.Args[0])
	read := func(file string) string {
		b, _ := os.ReadFile(filepath.Join(dir, file))
		return string(b)
	}
	note := func(file string, v any) {
		b, _ := json.Marshal(v)
		// Behind walls it can write into what holds its login, and nowhere else.
		if path := read("reports"); path != "" {
			if f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0); err == nil {
				b, _ = json.Marshal(report{file, b})
				_, _ = f.Write(append(b, '\n'))
				_ = f.Close()
			}
			return
		}
		// Whole or not at all: a test waits for it.
		_ = os.WriteFile(filepath.Join(dir, file+".new"), b, 0o600)
		_ = os.Rename(filepath.Join(dir, file+".new"), filepath.Join(dir, file))
	}
	linger := func() {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
		time.Sleep(5 * time.Minute) // longer than any test waits
	}
	// leave starts a process that stays when this one goes, with its pipes open.
	leave := func(attr *syscall.SysProcAttr, env []string) {
		cmd := exec.Command(os.Args[0], "linger")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.SysProcAttr, cmd.Env = attr, env
		if err := cmd.Start(); err == nil {
			note("child", cmd.Process.Pid)
		}
	}
	answer := func(text string) {
		if name == "claude" {
			fmt.Printf(`{"type":"result","subtype":"success","is_error":false,"result":"%s","stop_reason":"end_turn","usage":{"input_tokens":2,"cache_read_input_tokens":3,"output_tokens":4}}`+"\n", quoted(text))
			return
		}
		fmt.Printf(`{"type":"thread.started","thread_id":"t"}`+"\n"+`{"type":"item.completed","item":{"id":"i","type":"agent_message","text":"%s"}}`+"\n"+
			`{"type":"turn.completed","usage":{"input_tokens":5,"output_tokens":4}}`+"\n", quoted(text))
	}

	switch {
	case len(os.Args) == 2 && os.Args[1] == "linger":
		linger()
		return 0
	case len(os.Args) == 2 && os.Args[1] == "--version":
		note("asked", os.Args)
		if v := read("version"); v != "" {
			fmt.Println(v)
		} else {
			fmt.Println(map[string]string{"claude": "2.1.197 (Claude Code)", "codex": "codex-cli 0.171.0"}[name])
		}
		return 0
	}
	if len(os.Args) == 2 && os.Args[1] == "free" {
		tryAll(read("attempts"), answer)
		return 0
	}
	s := seen{Args: os.Args[1:], Env: os.Environ(), Pid: os.Getpid(), Group: syscall.Getpgrp()}
	s.Dir, _ = os.Getwd()
	if entries, err := os.ReadDir("."); err == nil {
		for _, e := range entries {
			s.Files = append(s.Files, e.Name())
		}
	}
	// What Go opened itself is marked as not to be inherited, so the rest was
	// given.
	if entries, err := os.ReadDir("/dev/fd"); err == nil {
		for _, e := range entries {
			fd, _ := strconv.Atoi(e.Name())
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
				s.Descriptors = append(s.Descriptors, e.Name())
			}
		}
	}
	mode := read("mode")
	if mode != "unread" && mode != "closed" && mode != "half" {
		s.Stdin, _ = io.ReadAll(os.Stdin)
	}
	note("seen", s)
	text := "ready"
	if b, err := os.ReadFile(filepath.Join(dir, "text")); err == nil {
		text = string(b)
	}
	switch mode {
	case "", "answer", "unread":
		answer(text)
	case "closed":
		_ = os.Stdin.Close()
		answer(text)
	case "half":
		_, _ = io.ReadFull(os.Stdin, make([]byte, 1000))
		answer(text)
	case "echo":
		answer(string(s.Stdin))
	case "raw":
		fmt.Print(read("out"))
		fmt.Fprint(os.Stderr, read("err"))
		code, _ := strconv.Atoi(read("code"))
		return code
	case "try":
		tryAll(read("attempts"), answer)
	case "hang":
		linger()
	case "flood", "flood errors":
		out := os.Stdout
		if mode == "flood errors" {
			out = os.Stderr
		}
		for chunk := []byte(strings.Repeat("{flood\n", 1000)); ; {
			if _, err := out.Write(chunk); errors.Is(err, syscall.EPIPE) {
				return 1
			}
		}
	case "leave":
		leave(nil, nil)
		answer(text)
	case "escape":
		leave(&syscall.SysProcAttr{Setsid: true}, nil)
		answer(text)
	case "escape and hang":
		leave(&syscall.SysProcAttr{Setsid: true}, nil)
		linger()
	case "litter":
		_ = os.MkdirAll("closed/deeper", 0o700)
		_ = os.WriteFile("closed/deeper/file", nil, 0)
		_ = os.Chmod("closed/deeper", 0)
		_ = os.Chmod("closed", 0)
		_ = os.Symlink("/etc", "link")
		answer(text)
	case "killed":
		answer(text)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return 0
}
