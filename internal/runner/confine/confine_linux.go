package confine

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/allodhq/allod/refusal"
)

const (
	// helperName is the helper's argv[0]. A word with a space in it is nobody's file name by accident.
	helperName = "allod confine"
	// self is this program, also after its file was replaced by a newer version.
	self = "/proc/self/exe"
	// hiddenName goes before each entry of the environment on its way through the helper.
	hiddenName = "~"
	// endOfPolicy separates the policy from the program in the helper's arguments.
	endOfPolicy = "--"
)

// begun says that this program's main starts with Main. A program without it
// would start itself again, and again, in place of the helper.
var begun atomic.Bool

func begin() {
	if len(os.Args) > 0 && os.Args[0] == helperName {
		os.Exit(help(os.Args[1:], os.Environ()))
	}
	begun.Store(true)
}

// kernel returns the version of the kernel's Landlock, or why there is none.
func kernel() (abi int, reason *refusal.Refusal) {
	return judgeKernel(ll.LandlockGetABIVersion())
}

func judgeKernel(abi int, err error) (int, *refusal.Refusal) {
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return 0, ErrUnconfined.With("The kernel has Landlock, and it was turned off as the machine started.")
	case errors.Is(err, unix.ENOSYS):
		return 0, ErrUnconfined.With("The kernel has no Landlock.")
	case err != nil || abi < 1:
		return 0, ErrUnconfined.With("The kernel does not say whether it has Landlock.").Because(err)
	}
	return abi, nil
}

func state() Confinement { return describe(kernel()) }

func describe(abi int, reason *refusal.Refusal) Confinement {
	if reason != nil {
		return Confinement{Reason: reason}
	}
	c := Confinement{Enforced: true, ABI: abi}
	for _, g := range gaps {
		if abi < g.before {
			c.Missing = append(c.Missing, g.what)
		}
	}
	if auditArch == 0 && abi < 9 {
		c.Missing = append(c.Missing, "sockets with a name in the file system")
	}
	return c
}

func apply(p Policy, cmd *exec.Cmd) error {
	switch {
	case !begun.Load():
		return ErrProgram.With("This program does not begin as one with a helper must.")
	case cmd.Err != nil:
		return ErrProgram.Because(cmd.Err)
	case !filepath.IsAbs(cmd.Path):
		return ErrProgram.With("Its path is not absolute.")
	case len(cmd.ExtraFiles) > 0:
		return ErrProgram.With("It was to inherit descriptors.")
	case len(cmd.Args) > 0 && cmd.Args[0] == helperName:
		return ErrProgram.With("It was prepared already.")
	}
	if _, reason := kernel(); reason != nil {
		return nil
	}
	args := []string{helperName}
	for _, port := range p.Ports {
		args = append(args, "p"+strconv.Itoa(int(port)))
	}
	if len(p.Read)+len(p.Run)+len(p.Write)+len(p.Hide) > MaxPaths {
		return ErrPolicy.With("There are too many paths.")
	}
	hidden, err := hide(p.Hide)
	if err != nil {
		return err
	}
	for _, list := range []struct {
		letter string
		paths  []string
	}{{"r", p.Read}, {"x", p.Run}, {"w", p.Write}} {
		for _, path := range list.paths {
			switch real, err := judge(path, hidden); {
			case err != nil:
				return err
			case real != "":
				args = append(args, list.letter+real)
			}
		}
	}
	program, err := filepath.EvalSymlinks(cmd.Path)
	if err != nil {
		return ErrProgram.Because(err)
	}
	args = append(args, "x"+program, endOfPolicy, cmd.Path)
	if len(cmd.Args) > 0 {
		args = append(args, cmd.Args...)
	} else {
		args = append(args, cmd.Path)
	}
	for _, e := range cmd.Env {
		if strings.ContainsRune(e, 0) {
			return ErrProgram.With("Its environment holds a NUL.")
		}
	}
	env := []string{} // nil would be the agent's own environment
	for _, e := range cmd.Environ() {
		env = append(env, hiddenName+e)
	}
	cmd.Path, cmd.Args, cmd.Env = self, args, env
	return nil
}

// judge returns where a path leads, or nothing for one that is absent.
func judge(path string, hidden []os.FileInfo) (real string, err error) {
	if !plain(path) {
		return "", ErrPolicy.With("It is not absolute, not in its shortest form, or too long.")
	}
	real, err = filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil || !plain(real) {
		return "", ErrPolicy.Because(err)
	}
	info, err := os.Lstat(real)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", ErrPolicy.Because(err)
	case !info.IsDir() && !info.Mode().IsRegular():
		return "", ErrPolicy.With("It is neither a file nor a folder.")
	case among(info, hidden):
		return "", ErrPolicy.With("It would open what must stay hidden.")
	}
	return real, nil
}

// plain reports whether a path can be compared and passed on as it is.
func plain(path string) bool {
	return filepath.IsAbs(path) && filepath.Clean(path) == path && len(path) < unix.PathMax && !strings.ContainsRune(path, 0)
}

// hide returns everything that opens one of the hidden paths: itself, where it
// leads, and all folders above both. A hidden path that is absent may come to be,
// so the folders above it count too. It refuses one that every program reads.
func hide(paths []string) (hidden []os.FileInfo, err error) {
	for _, path := range paths {
		if !plain(path) {
			return nil, ErrPolicy.With("What is to stay hidden is not absolute, not in its shortest form, or too long.")
		}
		chain := []string{path}
		for p := path; len(chain) == 1; p = filepath.Dir(p) {
			switch real, err := filepath.EvalSymlinks(p); {
			case err == nil:
				chain = append(chain, real)
			case !errors.Is(err, fs.ErrNotExist):
				return nil, ErrPolicy.Because(err)
			}
		}
		for _, p := range chain {
			for ; ; p = filepath.Dir(p) {
				switch info, err := os.Stat(p); {
				case err == nil:
					hidden = append(hidden, info)
				case !errors.Is(err, fs.ErrNotExist):
					return nil, ErrPolicy.Because(err)
				}
				if p == filepath.Dir(p) {
					break
				}
			}
		}
	}
	for _, s := range system {
		for _, path := range s.paths {
			if info, err := os.Stat(path); err == nil && among(info, hidden) {
				return nil, ErrPolicy.With("What is to stay hidden lies where every program reads.")
			}
		}
	}
	return hidden, nil
}

// among compares files and not names, since one folder can have two names.
func among(info os.FileInfo, hidden []os.FileInfo) bool {
	for _, h := range hidden {
		if os.SameFile(info, h) {
			return true
		}
	}
	return false
}
