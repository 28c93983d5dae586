package confine

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allodhq/allod/refusal"
)

// The test binary is also the agent that starts a program, and the program.
const (
	asAgent   = "agent"
	asProgram = "program"
)

func TestMain(m *testing.M) {
	Main()
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case asAgent:
			os.Exit(agent())
		case asProgram:
			for _, words := range os.Args[2:] {
				if _, err := os.Stdout.WriteString(try(strings.Split(words, " ")) + "\n"); err != nil {
					os.Exit(1)
				}
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// order is what the agent is told to start.
type order struct {
	Confined bool
	Policy   Policy
	Path     string
	Args     []string
	Env      []string
	Dir      string
	// Leak is a file that the agent holds open at the descriptor leaked.
	Leak string
	// After happens between the preparation of the start and the start.
	After []string
}

const leaked = 100

// agent starts a program as an ordinary user, and ends as it ends.
func agent() int {
	var o order
	if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
		return 1
	}
	if o.Leak != "" {
		fd, err := unix.Open(o.Leak, unix.O_RDONLY, 0)
		if err != nil || unix.Dup2(fd, leaked) != nil {
			return 1
		}
	}
	cmd := &exec.Cmd{Path: o.Path, Args: o.Args, Env: o.Env, Dir: o.Dir, Stdout: os.Stdout, Stderr: os.Stderr}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if o.Confined {
		if err := o.Policy.Apply(cmd); err != nil {
			_, _ = os.Stderr.WriteString(err.Error())
			return 1
		}
	}
	if len(o.After) > 0 {
		switch got := try(o.After); {
		case o.After[0] == "env":
			cmd.Env = append(cmd.Env, o.After[1])
		case got != "fine":
			return 1
		}
	}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error())
		return 1
	}
	return 0
}

// try does one thing and says "fine", the name of the error, or what it saw.
func try(words []string) string {
	say := func(err error) string {
		if e, ok := errors.AsType[syscall.Errno](err); ok {
			return unix.ErrnoName(e)
		}
		if err != nil {
			return err.Error()
		}
		return "fine"
	}
	open := func(flags int) string {
		fd, err := unix.Open(words[1], flags|unix.O_CLOEXEC, 0o600)
		if err == nil {
			_ = unix.Close(fd)
		}
		return say(err)
	}
	connect := func(domain, kind, protocol int, to unix.Sockaddr) string {
		fd, err := unix.Socket(domain, kind, protocol)
		if err != nil {
			return say(err)
		}
		defer unix.Close(fd)
		return say(unix.Connect(fd, to))
	}
	loopback := func() *unix.SockaddrInet4 {
		port, _ := strconv.Atoi(words[1])
		return &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
	}
	switch words[0] {
	case "read":
		return open(unix.O_RDONLY)
	case "write":
		return open(unix.O_WRONLY)
	case "make":
		return open(unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL)
	case "list":
		return open(unix.O_RDONLY | unix.O_DIRECTORY)
	case "cut":
		return say(unix.Truncate(words[1], 0))
	case "remove":
		return say(unix.Unlink(words[1]))
	case "folder":
		return say(unix.Mkdir(words[1], 0o700))
	case "link":
		return say(unix.Symlink(words[1], words[2]))
	case "hardlink":
		return say(unix.Link(words[1], words[2]))
	case "pipe":
		return say(unix.Mkfifo(words[1], 0o600))
	case "move":
		return say(unix.Rename(words[1], words[2]))
	case "relink": // a file becomes a link
		if err := unix.Unlink(words[1]); err != nil {
			return say(err)
		}
		return say(unix.Symlink(words[2], words[1]))
	case "mode":
		return say(unix.Chmod(words[1], 0o600))
	case "exists":
		return say(unix.Access(words[1], unix.F_OK))
	case "watch":
		fd, err := unix.InotifyInit()
		if err != nil {
			return say(err)
		}
		_, err = unix.InotifyAddWatch(fd, words[1], unix.IN_ALL_EVENTS)
		return say(err)
	case "execute":
		return say(exec.Command(words[1]).Run())
	case "child":
		out, err := exec.Command(words[1], asProgram, strings.Join(words[2:], " ")).Output()
		if err != nil {
			return say(err)
		}
		return strings.TrimSpace(string(out))
	case "tcp":
		return connect(unix.AF_INET, unix.SOCK_STREAM, 0, loopback())
	case "mptcp":
		return connect(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP, loopback())
	case "listen":
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return say(err)
		}
		defer unix.Close(fd)
		return say(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	case "unix":
		return connect(unix.AF_UNIX, unix.SOCK_STREAM, 0, &unix.SockaddrUnix{Name: words[1]})
	case "pair":
		kind, _ := strconv.Atoi(words[1])
		_, err := unix.Socketpair(unix.AF_UNIX, kind, 0)
		return say(err)
	case "netlink":
		_, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 0)
		return say(err)
	case "ring":
		var parameters [120]byte
		_, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&parameters)), 0)
		if e != 0 {
			return say(e)
		}
		return "fine"
	case "signal":
		return say(unix.Kill(os.Getppid(), 0))
	case "parent": // something of the process that started this one
		words[1] = "/proc/" + strconv.Itoa(os.Getppid()) + "/" + words[1]
		return open(unix.O_RDONLY)
	case "privileges":
		set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
		if err != nil {
			return say(err)
		}
		return strconv.Itoa(set)
	case "leaked":
		_, err := unix.FcntlInt(leaked, unix.F_GETFD, 0)
		return say(err)
	case "group":
		return strconv.FormatBool(unix.Getpgrp() == os.Getpid())
	case "name":
		return os.Args[0]
	case "folder?":
		wd, err := os.Getwd()
		if err != nil {
			return say(err)
		}
		return wd
	}
	return "unknown"
}

// needLandlock skips where the kernel confines nothing.
func needLandlock(t testing.TB) {
	t.Helper()
	if c := State(); !c.Enforced {
		if os.Getenv("ALLOD_LANDLOCK") == "required" {
			t.Fatalf("%v, and ALLOD_LANDLOCK=required", c.Reason)
		}
		t.Skipf("%v; ALLOD_LANDLOCK=required makes that a failure", c.Reason)
	}
}

// place is a machine's files as far as the tests need them.
type place struct {
	dir     string
	program string
}

func (p place) in(name string) string { return filepath.Join(p.dir, name) }

// newPlace makes them. All belong to the ordinary user who runs the agent, so
// only walls can close them.
func newPlace(t testing.TB) place {
	t.Helper()
	needLandlock(t)
	p := place{dir: t.TempDir()}
	p.program = p.in("program")
	for folder := p.dir; folder != filepath.Dir(folder) && strings.HasPrefix(folder, os.TempDir()+"/"); folder = filepath.Dir(folder) {
		if err := os.Chmod(folder, 0o755); err != nil {
			t.Skipf("the other user cannot reach the folder: %v", err)
		}
	}
	for _, folder := range []string{"home", "home/.ssh", "home/.tool", "home/agent", "home/agent/scratch", "home/bin"} {
		if err := os.Mkdir(p.in(folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"home/.ssh/id", "home/.tool/login", "home/.tool/settings", "home/agent/keys.json", "home/agent/scratch/notes", "home/other"} {
		if err := os.WriteFile(p.in(file), []byte("canary"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, script := range []string{"home/bin/script", "home/agent/scratch/script"} {
		if err := os.WriteFile(p.in(script), []byte("#!/bin/sh\nexit 0\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	own, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.program, own, 0o755); err != nil {
		t.Fatal(err)
	}
	p.give(t)
	return p
}

const nobody = 65534

// give makes the ordinary user the owner of all.
func (p place) give(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	err := filepath.WalkDir(p.in("home"), func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, nobody, nobody)
	})
	if err != nil {
		t.Skipf("this machine does not let root give a file away: %v", err)
	}
}

func (p place) scratch() string { return p.in("home/agent/scratch") }

// policy is what the tests open unless they say otherwise.
func (p place) policy() Policy {
	return Policy{
		Read:  []string{p.in("home/.tool/login")},
		Run:   []string{p.in("home/bin")},
		Write: []string{p.scratch()},
		Hide:  []string{p.in("home/agent"), p.in("home/.ssh")},
	}
}

// run has the agent start a program, as an ordinary user.
func run(t testing.TB, o order) (out, errs string, code int) {
	t.Helper()
	said, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", asAgent)
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Dir = bytes.NewReader(said), &stdout, &stderr, "/"
	if err := cmd.Start(); err != nil {
		t.Skipf("no process of another user can be started here: %v", err)
	}
	_ = cmd.Wait()
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// ask returns what the program says about each of the things that it tries.
func (p place) ask(t testing.TB, o order, things ...string) []string {
	t.Helper()
	o.Path = p.program
	o.Args = append([]string{"the name it is given", asProgram}, things...)
	if o.Env == nil {
		o.Env = []string{}
	}
	out, errs, code := run(t, o)
	if code != 0 || errs != "" {
		t.Fatalf("the program ended with %d: %s", code, errs)
	}
	said := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if len(said) != len(things) {
		t.Fatalf("the program said %q", out)
	}
	return said
}

// TestWalls: each thing is possible for this user, and what becomes of it behind walls.
func TestWalls(t *testing.T) {
	listen := func(network, address string) net.Listener {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	port := func(l net.Listener) string { return strconv.Itoa(l.Addr().(*net.TCPAddr).Port) }
	closed, open := listen("tcp4", "127.0.0.1:0"), listen("tcp4", "127.0.0.1:0")
	walled, free := newPlace(t), newPlace(t)
	admin := walled.in("socket")
	listen("unix", admin)
	if err := os.Chmod(admin, 0o777); err != nil {
		t.Fatal(err)
	}
	abstract := "@allod-confine-" + port(closed)
	listen("unix", abstract)

	abi := State().ABI
	since := func(version int, word string) string {
		if abi < version {
			return "fine"
		}
		return word
	}
	type attempt struct{ thing, free, walled string }
	attempts := func(p place) []attempt {
		scratch := p.scratch()
		return []attempt{
			// What is granted.
			{"read " + p.in("home/.tool/login"), "fine", "fine"},
			{"write " + p.in("home/.tool/login"), "fine", "EACCES"},
			{"cut " + p.in("home/.tool/login"), "fine", since(3, "EACCES")},
			{"execute " + p.in("home/bin/script"), "fine", "fine"},
			{"write " + p.in("home/bin/script"), "fine", "EACCES"},
			{"read " + scratch + "/notes", "fine", "fine"},
			{"list " + scratch, "fine", "fine"},
			{"write " + scratch + "/notes", "fine", "fine"},
			{"cut " + scratch + "/notes", "fine", "fine"},
			{"make " + scratch + "/new", "fine", "fine"},
			{"folder " + scratch + "/folder", "fine", "fine"},
			{"move " + scratch + "/new " + scratch + "/folder/new", "fine", map[bool]string{true: "fine", false: "EXDEV"}[abi >= 2]},
			{"execute " + scratch + "/script", "fine", "EACCES"},
			{"link " + p.in("home/.ssh/id") + " " + scratch + "/link", "fine", "EACCES"},
			{"hardlink " + p.in("home/.ssh/id") + " " + scratch + "/hard", "fine", "EXDEV"},
			{"hardlink " + p.in("home/.tool/login") + " " + scratch + "/hard2", "fine", "EXDEV"},
			{"pipe " + scratch + "/pipe", "fine", "EACCES"},
			// What is not.
			{"read " + p.in("home/agent/keys.json"), "fine", "EACCES"},
			{"write " + p.in("home/agent/keys.json"), "fine", "EACCES"},
			{"cut " + p.in("home/agent/keys.json"), "fine", since(3, "EACCES")},
			{"remove " + p.in("home/other"), "fine", "EACCES"},
			{"list " + p.in("home/agent"), "fine", "EACCES"},
			{"list " + p.in("home"), "fine", "EACCES"},
			{"list /", "fine", "EACCES"},
			{"list /tmp", "fine", "EACCES"},
			{"read " + p.in("home/.ssh/id"), "fine", "EACCES"},
			{"read " + p.in("home/.tool/settings"), "fine", "EACCES"},
			{"read " + scratch + "/../keys.json", "fine", "EACCES"},
			{"make " + p.in("home/new"), "fine", "EACCES"},
			{"make " + p.in("home/agent/new"), "fine", "EACCES"},
			{"folder " + p.in("home/newfolder"), "fine", "EACCES"},
			{"read /etc/hostname", "fine", "EACCES"},
			// What Landlock does not see.
			{"mode " + p.in("home/.tool/settings"), "fine", "fine"},
			{"watch " + p.in("home/.ssh"), "fine", "fine"},
			{"exists " + p.in("home/.ssh/id"), "fine", "fine"},
			// What every program needs.
			{"list /usr", "fine", "fine"},
			{"execute /bin/true", "fine", "fine"},
			{"read /etc/passwd", "fine", "fine"},
			{"read /proc/self/maps", "fine", "fine"},
			{"write /dev/null", "fine", "fine"},
			{"read /dev/urandom", "fine", "fine"},
			// Its children.
			{"child " + p.program + " read " + p.in("home/.tool/login"), "fine", "fine"},
			{"child " + p.program + " read " + p.in("home/.ssh/id"), "fine", "EACCES"},
			{"child " + p.program + " child " + p.program + " read " + p.in("home/.ssh/id"), "fine", "EACCES"},
			{"child " + p.program + " read /proc/self/maps", "fine", "fine"},
			{"child " + p.program + " tcp " + port(closed), "fine", since(4, "EACCES")},
			{"child " + p.program + " unix " + admin, "fine", "EAFNOSUPPORT"},
			{"child " + p.program + " signal", "fine", "fine"}, // its parent is the program
			// The network.
			{"tcp " + port(closed), "fine", since(4, "EACCES")},
			{"tcp " + port(open), "fine", "fine"},
			{"listen", "fine", since(4, "EACCES")},
			{"mptcp " + port(closed), "fine", "EPROTONOSUPPORT"},
			{"netlink", "fine", "fine"},
			// Other processes.
			{"unix " + admin, "fine", "EAFNOSUPPORT"},
			{"unix " + abstract, "fine", "EAFNOSUPPORT"},
			{"pair " + strconv.Itoa(unix.SOCK_STREAM|unix.SOCK_CLOEXEC), "fine", "fine"},
			{"pair " + strconv.Itoa(unix.SOCK_SEQPACKET), "fine", "fine"},
			{"pair " + strconv.Itoa(unix.SOCK_DGRAM), "fine", "EPROTONOSUPPORT"},
			{"pair " + strconv.Itoa(unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK), "fine", "EPROTONOSUPPORT"},
			{"ring", "fine", "ENOSYS"},
			{"signal", "fine", since(6, "EPERM")},
			{"parent cmdline", "fine", "fine"},
			{"parent environ", "fine", "EACCES"},
			{"parent maps", "fine", "EACCES"},
			{"parent mem", "fine", "EACCES"},
			{"parent fd/" + strconv.Itoa(leaked), "fine", "EACCES"},
			{"parent root" + p.in("home/.ssh/id"), "fine", "EACCES"},
			{"parent cwd", "fine", "EACCES"},
			// The process.
			{"privileges", "0", "1"},
			{"leaked", "fine", "EBADF"},
			{"group", "true", "true"},
			{"name", "the name it is given", "the name it is given"},
			{"folder?", scratch, scratch},
		}
	}
	said := map[bool][]string{}
	for confined, p := range map[bool]place{true: walled, false: free} {
		policy := p.policy()
		policy.Ports = []uint16{uint16(open.Addr().(*net.TCPAddr).Port)}
		var things []string
		for _, a := range attempts(p) {
			things = append(things, a.thing)
		}
		said[confined] = p.ask(t, order{Confined: confined, Policy: policy, Dir: p.scratch(), Leak: p.in("home/.ssh/id")}, things...)
	}
	inFree := attempts(free)
	for i, a := range attempts(walled) {
		// A machine may lack these two, and then shows only what the filter says.
		if got := said[false][i]; got != inFree[i].free && a.thing != "ring" && !strings.HasPrefix(a.thing, "mptcp") {
			t.Errorf("%s: without walls %s, want %s", a.thing, got, inFree[i].free)
		}
		if got := said[true][i]; got != a.walled {
			t.Errorf("%s: behind walls %s, want %s", a.thing, got, a.walled)
		}
	}
	for _, port := range []string{"443", "53"} {
		if got := walled.ask(t, order{Confined: true, Policy: walled.policy()}, "tcp "+port)[0]; got != "ECONNREFUSED" && got != "fine" {
			t.Errorf("the port %s: %s", port, got)
		}
	}
	// What was refused left nothing behind.
	for _, name := range []string{"new", "newfolder", "agent/new"} {
		if _, err := os.Lstat(walled.in("home/" + name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"agent/keys.json", "other", ".ssh/id", ".tool/login"} {
		if content, err := os.ReadFile(walled.in("home/" + name)); err != nil || string(content) != "canary" {
			t.Errorf("%s: %q, %v", name, content, err)
		}
	}
}

// TestStart: what the command said of the program reaches it as it was.
func TestStart(t *testing.T) {
	p := newPlace(t)
	env := []string{"GODEBUG=inittrace=1", "GOTRACEBACK=crash", "LD_AUDIT=", "~=x", "HOME=" + p.in("home"), "ODD", "SPACE= a b ", "NL=a\nb"}
	out, errs, code := run(t, order{Confined: true, Policy: p.policy(), Path: "/usr/bin/env", Args: []string{"env"}, Env: env})
	if want := strings.Join(env, "\n") + "\n"; out != want || errs != "" || code != 0 {
		t.Errorf("the environment %q became %q; %q, %d", want, out, errs, code)
	}
	out, errs, code = run(t, order{Confined: true, Policy: p.policy(), Path: "/bin/sh",
		Args: []string{"sh", "-c", `tr '\0' '\n' </proc/$$/cmdline; echo "$0|$1|$2"; exit 7`, "--", "", "a\nb"}, Env: []string{}})
	if want := "sh\n-c\ntr '\\0' '\\n' </proc/$$/cmdline; echo \"$0|$1|$2\"; exit 7\n--\n\na\nb\n--||a\nb\n"; out != want || errs != "" || code != 7 {
		t.Errorf("the program said %q, want %q; %q, %d", out, want, errs, code)
	}
	// The path of a script is as it was given, though it is reached through a link.
	if err := os.Symlink("bin/name", p.in("home/tool")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.in("home/bin/name"), []byte("#!/bin/sh\necho \"$0\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p.give(t)
	out, errs, code = run(t, order{Confined: true, Path: p.in("home/tool")})
	if out != p.in("home/tool")+"\n" || errs != "" || code != 0 {
		t.Errorf("the script said %q; %q, %d", out, errs, code)
	}
}

// TestNothingRuns: where the walls or the program are not as prepared, the helper says so and nothing runs.
func TestNothingRuns(t *testing.T) {
	p := newPlace(t)
	made := p.in("home/agent/scratch/made")
	program := order{Confined: true, Policy: p.policy(), Path: "/bin/sh", Args: []string{"sh", "-c", ">" + made}, Env: []string{}}
	linked := program
	linked.After = []string{"relink", p.in("home/.tool/login"), p.in("home/.ssh/id")}
	changed := program
	changed.After = []string{"env", "GODEBUG=inittrace=1"}
	noProgram := program
	noProgram.Path = p.in("home/other")
	for name, c := range map[string]struct {
		order order
		code  int
		says  string
	}{
		"a grant became a link":             {linked, ExitUnconfined, MessageUnconfined},
		"the environment was added to":      {changed, ExitUnconfined, MessageUnconfined},
		"the program cannot be executed":    {noProgram, ExitNotRun, MessageNotRun},
		"nothing is wrong, so that it runs": {program, 0, ""},
	} {
		_, errs, code := run(t, c.order)
		if code != c.code || !strings.HasSuffix(errs, c.says) || c.says == "" && errs != "" {
			t.Errorf("%s: %d, %q", name, code, errs)
		}
		_, err := os.Lstat(made)
		if ran := err == nil; ran != (c.code == 0) {
			t.Errorf("%s: it ran: %v", name, ran)
		}
		_ = os.Remove(made)
	}
	// By hand.
	for name, words := range map[string][]string{
		"nothing":                {},
		"no program":             {"--"},
		"no arguments":           {"--", "/bin/sh"},
		"no end":                 {"/bin/sh", "sh", "-c", ">" + made},
		"a relative program":     {"--", "sh", "sh", "-c", ">" + made},
		"an unknown letter":      {"q/tmp", "--", "/bin/sh", "sh", "-c", ">" + made},
		"an empty word":          {"", "--", "/bin/sh", "sh", "-c", ">" + made},
		"a relative path":        {"wtmp", "--", "/bin/sh", "sh", "-c", ">" + made},
		"no path":                {"w", "--", "/bin/sh", "sh", "-c", ">" + made},
		"a path with two dots":   {"w/tmp/..", "--", "/bin/sh", "sh", "-c", ">" + made},
		"a path that is a link":  {"w/proc/self/cwd", "--", "/bin/sh", "sh", "-c", ">" + made},
		"a path below a file":    {"w/etc/passwd/x", "--", "/bin/sh", "sh", "-c", ">" + made},
		"a port too far":         {"p65536", "--", "/bin/sh", "sh", "-c", ">" + made},
		"a port that is a word":  {"phttps", "--", "/bin/sh", "sh", "-c", ">" + made},
		"options of the program": {"agent", "run"},
	} {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Args, cmd.Env = append([]string{helperName}, words...), []string{}
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != ExitUnconfined || string(out) != MessageUnconfined {
			t.Errorf("%s: %v, %q", name, err, out)
		}
		if _, err := os.Lstat(made); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%s: the program ran", name)
		}
	}
}

// kind is the name of an error's refusal, and its detail.
func kind(err error) string {
	if err == nil {
		return ""
	}
	r := refusal.From(err)
	return strings.TrimSpace(r.Kind().Name() + " " + r.Detail())
}

func TestPaths(t *testing.T) {
	p := newPlace(t)
	link := func(to, name string) string {
		if err := os.Symlink(to, p.in(name)); err != nil {
			t.Fatal(err)
		}
		return p.in(name)
	}
	socket := p.in("socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	program, err := filepath.EvalSymlinks("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	toHome, toKeys := link("home", "tohome"), link("home/agent/keys.json", "tokeys")
	toLogin, loop := link("home/.tool/login", "tologin"), link("loop", "loop")
	const (
		form   = "confine-path It is not absolute, not in its shortest form, or too long."
		hidden = "confine-path It would open what must stay hidden."
		thing  = "confine-path It is neither a file nor a folder."
	)
	for name, c := range map[string]struct{ path, grant, want string }{
		"a file":                  {p.in("home/.tool/login"), p.in("home/.tool/login"), ""},
		"a link to one":           {toLogin, p.in("home/.tool/login"), ""},
		"a folder":                {p.in("home/.tool"), p.in("home/.tool"), ""},
		"below what is hidden":    {p.in("home/agent/scratch"), p.in("home/agent/scratch"), ""},
		"through a link":          {filepath.Join(toHome, ".tool"), p.in("home/.tool"), ""},
		"absent":                  {p.in("home/absent"), "", ""},
		"absent below absent":     {p.in("home/absent/absent"), "", ""},
		"empty":                   {"", "", form},
		"relative":                {"home", "", form},
		"relative to here":        {"./home", "", form},
		"two dots":                {p.in("home/.tool") + "/..", "", form},
		"a slash at the end":      {p.in("home/.tool") + "/", "", form},
		"two slashes":             {"/" + p.in("home/.tool"), "", form},
		"a NUL":                   {p.in("home/.tool") + "\x00", "", form},
		"too long":                {"/" + strings.Repeat("a", 4095), "", form},
		"the longest, in pieces":  {p.in(strings.Repeat("a/", 1000) + "a"), "", ""},
		"a name that is too long": {p.in(strings.Repeat("a", 256)), "", "confine-path"},
		"what is hidden":          {p.in("home/agent"), "", hidden},
		"a file that is hidden":   {p.in("home/.ssh/id"), "", hidden},
		"above what is hidden":    {p.in("home"), "", hidden},
		"far above":               {p.dir, "", hidden},
		"everything":              {"/", "", hidden},
		"a link above":            {toHome, "", hidden},
		"a link to it":            {toKeys, "", hidden},
		"through a link, hidden":  {filepath.Join(toHome, "agent"), "", hidden},
		"above a link's goal":     {p.in("home/bin"), "", hidden},
		"a link to itself":        {loop, "", "confine-path"},
		"below a file":            {p.in("home/other/x"), "", "confine-path"},
		"a device":                {"/dev/null", "", thing},
		"a socket":                {socket, "", thing},
	} {
		for list := range 3 {
			var policy Policy
			policy.Hide = []string{p.in("home/agent"), p.in("home/agent/keys.json"), p.in("home/.ssh/id"), link("home/bin/script", name+strconv.Itoa(list))}
			*[]*[]string{&policy.Read, &policy.Run, &policy.Write}[list] = []string{c.path}
			cmd := exec.Command("/bin/true")
			err := policy.Apply(cmd)
			if got := kind(err); got != c.want {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
			want := []string{"/bin/true"}
			if err == nil {
				want = []string{helperName, "x" + program, "--", "/bin/true", "/bin/true"}
				if c.grant != "" {
					want = slices.Insert(want, 1, "rxw"[list:list+1]+c.grant)
				}
			}
			if !slices.Equal(cmd.Args, want) {
				t.Errorf("%s: the command became %q, want %q", name, cmd.Args, want)
			}
		}
	}
}

func TestHide(t *testing.T) {
	p := newPlace(t)
	link := p.in("link")
	if err := os.Symlink("home/agent", link); err != nil {
		t.Fatal(err)
	}
	inner := p.in("inner")
	if err := os.Symlink("home/agent/scratch", inner); err != nil {
		t.Fatal(err)
	}
	const (
		form   = "confine-path What is to stay hidden is not absolute, not in its shortest form, or too long."
		hidden = "confine-path It would open what must stay hidden."
		common = "confine-path What is to stay hidden lies where every program reads."
	)
	for name, c := range map[string]struct{ hide, grant, want string }{
		"beside":                {p.in("home/agent"), p.in("home/.tool"), ""},
		"below":                 {p.in("home/agent"), p.scratch(), ""},
		"itself":                {p.in("home/agent"), p.in("home/agent"), hidden},
		"above":                 {p.in("home/agent"), p.in("home"), hidden},
		"absent":                {p.in("home/agent/scratch/later"), p.scratch(), hidden},
		"absent below absent":   {p.in("home/agent/scratch/much/later"), p.scratch(), hidden},
		"where a link leads":    {link, p.in("home/agent"), hidden},
		"above where it leads":  {link, p.in("home"), hidden},
		"above the link":        {link, p.dir, hidden},
		"absent below it":       {filepath.Join(link, "scratch", "later"), p.scratch(), hidden},
		"absent, and far above": {filepath.Join(inner, "later"), p.in("home/agent"), hidden},
		"below the link":        {filepath.Join(link, "keys.json"), p.in("home/agent"), hidden},
		"relative":              {"home", p.in("home/.tool"), form},
		"two dots":              {p.dir + "/home/../home", p.in("home/.tool"), form},
		"empty":                 {"", p.in("home/.tool"), form},
		"a NUL":                 {p.in("home\x00"), p.in("home/.tool"), form},
		"below a file":          {p.in("home/other/x"), p.in("home/.tool"), "confine-path"},
		"a system folder":       {"/usr", p.in("home/.tool"), common},
		"below one":             {"/usr/local/allod", p.in("home/.tool"), common},
		"through a link":        {"/bin/allod", p.in("home/.tool"), common},
	} {
		cmd := exec.Command("/bin/true")
		if got := kind((Policy{Read: []string{c.grant}, Hide: []string{c.hide}}).Apply(cmd)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if started := cmd.Path != "/bin/true"; started != (c.want == "") {
			t.Errorf("%s: the command was rewritten: %v", name, started)
		}
	}
}

func TestPrograms(t *testing.T) {
	p := newPlace(t)
	const name = "confine-program"
	file, err := os.Open(p.in("home/other"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	twice := exec.Command("/bin/true")
	if err := p.policy().Apply(twice); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		cmd    *exec.Cmd
		detail string
	}{
		"no path":         {&exec.Cmd{}, "Its path is not absolute."},
		"a relative path": {&exec.Cmd{Path: "true"}, "Its path is not absolute."},
		"not found":       {exec.Command("allod-there-is-no-such-program"), ""},
		"absent":          {&exec.Cmd{Path: p.in("absent")}, ""},
		"a descriptor":    {&exec.Cmd{Path: "/bin/true", ExtraFiles: []*os.File{file}}, "It was to inherit descriptors."},
		"a NUL":           {&exec.Cmd{Path: "/bin/true", Env: []string{"A=b\x00"}}, "Its environment holds a NUL."},
		"twice":           {twice, "It was prepared already."},
	} {
		before := *c.cmd
		if got, want := kind(p.policy().Apply(c.cmd)), strings.TrimSpace(name+" "+c.detail); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
		if c.cmd.Path != before.Path || !slices.Equal(c.cmd.Args, before.Args) || !slices.Equal(c.cmd.Env, before.Env) {
			t.Errorf("%s: the command was changed", what)
		}
	}
	begun.Store(false)
	defer begun.Store(true)
	if got := kind(p.policy().Apply(exec.Command("/bin/true"))); got != name+" This program does not begin as one with a helper must." {
		t.Errorf("without Main: %q", got)
	}
}

func TestBounds(t *testing.T) {
	p := newPlace(t)
	for over := range 2 {
		policy := p.policy()
		for len(policy.Read)+len(policy.Run)+len(policy.Write)+len(policy.Hide) < MaxPaths+over {
			policy.Read = append(policy.Read, p.in("home/.tool/login"))
		}
		want := []string{"", "confine-path There are too many paths."}[over]
		if got := kind(policy.Apply(exec.Command("/bin/true"))); got != want {
			t.Errorf("%d paths: %q, want %q", MaxPaths+over, got, want)
		}
	}
}

// TestInterpreters: programs of others start behind walls.
func TestInterpreters(t *testing.T) {
	p := newPlace(t)
	for name, args := range map[string][]string{
		"sh":   {"-c", "echo fine >&2; echo fine"},
		"node": {"-e", "require('fs').writeFileSync('written', 'fine'); console.error('fine'); console.log(require('fs').readFileSync('written', 'utf8'))"},
		"curl": {"--silent", "--show-error", "--output", "/dev/null", "--write-out", "%{stderr}fine\n%{stdout}fine\n", "file:///etc/passwd"},
	} {
		path := filepath.Join("/usr/bin", name)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		out, errs, code := run(t, order{Confined: true, Policy: p.policy(), Path: path, Args: append([]string{name}, args...),
			Env: []string{"PATH=/usr/bin:/bin", "TMPDIR=" + p.scratch()}, Dir: p.scratch()})
		if out != "fine\n" || errs != "fine\n" || code != 0 {
			t.Errorf("%s said %q and %q, and ended with %d", name, out, errs, code)
		}
	}
}

func TestState(t *testing.T) {
	everything := []string{"cutting short any file of the user", "TCP to every port", "controlling devices",
		"signals to other processes of the user", "UDP to every port"}
	for _, c := range []struct {
		abi     int
		err     error
		reason  string
		missing []string
	}{
		{-1, unix.ENOSYS, "programs-unconfined The kernel has no Landlock.", nil},
		{-1, unix.EOPNOTSUPP, "programs-unconfined The kernel has Landlock, and it was turned off as the machine started.", nil},
		{-1, unix.EPERM, "programs-unconfined The kernel does not say whether it has Landlock.", nil},
		{0, nil, "programs-unconfined The kernel does not say whether it has Landlock.", nil},
		{1, nil, "", everything},
		{2, nil, "", everything},
		{3, nil, "", everything[1:]},
		{4, nil, "", everything[2:]},
		{5, nil, "", everything[3:]},
		{6, nil, "", everything[4:]},
		{9, nil, "", everything[4:]},
		{10, nil, "", nil},
		{99, nil, "", nil},
	} {
		got := describe(judgeKernel(c.abi, c.err))
		reason := ""
		if got.Reason != nil {
			reason = kind(got.Reason)
		}
		if auditArch == 0 {
			t.Skip("this processor has no filter, and says so")
		}
		if reason != c.reason || !slices.Equal(got.Missing, c.missing) || got.Enforced != (c.reason == "") || got.Enforced && got.ABI != c.abi {
			t.Errorf("ABI %d, %v: %+v, %q", c.abi, c.err, got, reason)
		}
	}
}

// FuzzParse: whatever the arguments are, what is accepted grants only what its words name.
func FuzzParse(f *testing.F) {
	f.Add("r/a\x00w/b\x00x/c\x00p1\x00--\x00/bin/sh\x00sh", "~A=b\x00~C")
	f.Add("--\x00/bin/sh\x00sh\x00--\x00w/", "")
	f.Fuzz(func(t *testing.T, args, env string) {
		words, names := strings.Split(args, "\x00"), strings.Split(env, "\x00")
		s, err := parse(words, names)
		if err != nil {
			if s.path != "" || len(s.grants) > 0 {
				t.Fatal("a refusal came with a start")
			}
			return
		}
		end := slices.Index(words, endOfPolicy)
		if len(s.grants)+len(s.ports) != end || !filepath.IsAbs(s.path) || len(s.args) == 0 || len(s.env) != len(names) {
			t.Fatalf("%q became %+v", words, s)
		}
		for _, g := range s.grants {
			if !plain(g.path) || g.access&^(toWrite|toRun) != 0 || g.access&toWrite&^toRead != 0 && g.access&unix.LANDLOCK_ACCESS_FS_EXECUTE != 0 {
				t.Fatalf("%q grants %v to %q", words, g.access, g.path)
			}
		}
	})
}

// BenchmarkStart is what the walls add to the start of a program.
func BenchmarkStart(b *testing.B) {
	p := newPlace(b)
	for _, confined := range []bool{false, true} {
		b.Run(map[bool]string{false: "free", true: "confined"}[confined], func(b *testing.B) {
			for b.Loop() {
				cmd := exec.Command("/bin/true")
				if confined {
					if err := p.policy().Apply(cmd); err != nil {
						b.Fatal(err)
					}
				}
				if err := cmd.Run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
