//go:build unix

package adversarial

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/allodhq/allod/internal/runner/program"
	"github.com/allodhq/allod/test/programs"
)

// rootTests are the tests that are root's. The others are not.
const rootTests = "^TestRoot"

// asOrdinaryUser runs this binary again as a user that is not root, since
// nothing is started for root, and then the tests that are root's. It reports
// false where all tests are to run here.
func asOrdinaryUser(m *testing.M) (code int, done bool) {
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
	bin, temporary := filepath.Join(dir, "bin"), filepath.Join(dir, "tmp")
	copied := filepath.Join(bin, "tests")
	if err := errors.Join(os.Mkdir(bin, 0o755), os.WriteFile(copied, binary, 0o755), os.Chmod(dir, 0o755), os.Mkdir(temporary, 0o700)); err != nil {
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
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		return code, true
	}
	flag.Parse()
	if run := flag.Lookup("test.run").Value; run.String() == "" || strings.Contains(run.String(), "Root") {
		_ = flag.Set("test.run", rootTests)
		programs.Main(m)
	}
	return 0, true
}
