//go:build unix

package adversarial

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/allodhq/allod/internal/runner/program"
)

// asOrdinaryUser runs this binary again as a user that is not root, since
// nothing is started for root. It reports false where the tests are to run here.
func asOrdinaryUser() (code int, done bool) {
	if os.Geteuid() != 0 {
		return 0, false
	}
	const nobody = 65534
	fail := func(err error) (int, bool) {
		fmt.Fprintln(os.Stderr, "the tests cannot run as an ordinary user:", err)
		return 1, true
	}
	for id, name := range names {
		if _, err := program.Open(program.Config{ID: id}); !errors.Is(err, program.ErrRoot) {
			return fail(fmt.Errorf("root may start %s: %v", name, err))
		}
	}
	dir, err := os.MkdirTemp("", "allod-adversarial-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	binary, err := os.ReadFile(os.Args[0])
	if err != nil {
		return fail(err)
	}
	copied, temporary := filepath.Join(dir, "tests"), filepath.Join(dir, "tmp")
	if err := errors.Join(os.WriteFile(copied, binary, 0o755), os.Chmod(dir, 0o755), os.Mkdir(temporary, 0o700)); err != nil {
		return fail(err)
	}
	_ = os.Chown(temporary, nobody, nobody) // where it fails, the start does too
	var args []string
	for _, a := range os.Args[1:] {
		// The files of these would be root's.
		if !strings.HasPrefix(a, "-test.testlogfile") && !strings.HasPrefix(a, "-test.coverprofile") && !strings.HasPrefix(a, "-test.gocoverdir") {
			args = append(args, a)
		}
	}
	cmd := exec.Command(copied, args...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary, "HOME="+temporary)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if err := cmd.Start(); err != nil {
		// As in a container that has no other users. The suites of programs skip.
		fmt.Fprintln(os.Stderr, "no process of another user can be started here:", err)
		return 0, false
	}
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), true
}
