package confine

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// start is what the helper is told.
type start struct {
	grants []grant
	ports  []uint16
	path   string
	args   []string
	env    []string
}

type grant struct {
	access landlock.AccessFSSet
	path   string
}

var errArguments = errors.New("these are not the arguments of a helper")

// help becomes the program. It returns only to say how it failed.
func help(args, env []string) int {
	s, err := parse(args, env)
	if err == nil {
		// Landlock binds a thread, and a program that is executed has the rights of the
		// thread that executes it. The thread is never let go.
		runtime.LockOSThread()
		err = restrict(s)
	}
	if err != nil {
		_, _ = os.Stderr.WriteString(MessageUnconfined)
		return ExitUnconfined
	}
	_ = syscall.Exec(s.path, s.args, s.env)
	_, _ = os.Stderr.WriteString(MessageNotRun)
	return ExitNotRun
}

// parse reads what apply wrote.
func parse(args, env []string) (s start, err error) {
	end := slices.Index(args, endOfPolicy)
	if end < 0 || len(args) < end+3 {
		return start{}, errArguments
	}
	for _, a := range args[:end] {
		if a == "" {
			return start{}, errArguments
		}
		letter, value := a[0], a[1:]
		switch letter {
		case 'r':
			s.grants = append(s.grants, grant{toRead, value})
		case 'x':
			s.grants = append(s.grants, grant{toRun, value})
		case 'w':
			s.grants = append(s.grants, grant{toWrite, value})
		case 'p':
			port, err := strconv.ParseUint(value, 10, 16)
			if err != nil {
				return start{}, errArguments
			}
			s.ports = append(s.ports, uint16(port))
			continue
		default:
			return start{}, errArguments
		}
		if !plain(value) {
			return start{}, errArguments
		}
	}
	s.path, s.args = args[end+1], args[end+2:]
	if !strings.HasPrefix(s.path, "/") {
		return start{}, errArguments
	}
	for _, e := range env {
		e, ok := strings.CutPrefix(e, hiddenName)
		if !ok {
			return start{}, errArguments
		}
		s.env = append(s.env, e)
	}
	return s, nil
}

// restrict puts up the walls around this thread.
func restrict(s start) error {
	abi, reason := kernel()
	if reason != nil {
		return reason
	}
	// All that the library knows is closed, and an older kernel closes what it can.
	config := landlock.V11.BestEffort()
	var rules []landlock.Rule
	add := func(access landlock.AccessFSSet, path string, how uint64) error {
		fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: how})
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return err
		}
		var info unix.Stat_t
		if err := unix.Fstat(fd, &info); err != nil {
			return err
		}
		if info.Mode&unix.S_IFMT != unix.S_IFDIR {
			access &= ofFiles
		}
		// The descriptor stays open until the program starts, and names what was opened.
		rules = append(rules, landlock.PathAccess(access, fmt.Sprintf("/proc/self/fd/%d", fd)))
		return nil
	}
	for _, entry := range system {
		for _, path := range entry.paths {
			_ = add(entry.access, path, 0) // what this user cannot open stays closed
		}
	}
	for _, g := range s.grants {
		// The first version cannot allow moving between folders, and the library would
		// rather close nothing than close that.
		if g.access == toWrite && abi >= 2 {
			g.access |= ll.AccessFSRefer
		}
		if err := add(g.access, g.path, unix.RESOLVE_NO_SYMLINKS); err != nil {
			return err
		}
	}
	for _, port := range slices.Concat(ports, s.ports) {
		rules = append(rules, landlock.ConnectTCP(port))
	}
	// A name is asked for in a datagram, from a port that the kernel chooses.
	rules = append(rules, landlock.BindUDP(0), landlock.ConnectSendUDP(53))

	fd, flags, err := config.NewRulesetFD(rules...)
	if err != nil {
		return err
	}
	if fd < 0 {
		return ErrUnconfined
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := ll.LandlockRestrictSelf(fd, flags); err != nil {
		return err
	}
	if err := filterSockets(); err != nil {
		return err
	}
	// What this process opened and what it inherited closes as the program starts.
	return unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}
