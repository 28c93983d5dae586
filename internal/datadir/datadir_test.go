package datadir_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/refusal"
)

// holdEnv makes the test binary hold a folder until its input ends.
const holdEnv = "ALLOD_TEST_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdEnv); dir != "" {
		release, err := datadir.Lock(dir)
		if err != nil {
			fmt.Println(refusal.From(err).Kind().Name())
			os.Exit(1)
		}
		fmt.Println("held")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		release()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// other is another process that holds a folder, or was refused.
type other struct {
	said string
	end  func(kill bool)
}

func hold(t *testing.T, dir string) other {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), holdEnv+"="+dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() { _ = in.Close(); _ = cmd.Wait() })
	t.Cleanup(end)
	said, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return other{strings.TrimSpace(said), func(kill bool) {
		if kill {
			_ = cmd.Process.Kill()
		}
		end()
	}}
}

func mustBe(t *testing.T, what string, err error, kind *refusal.Kind) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: %v, want %s", what, err, kind.Name())
	}
}

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

// only fails unless a folder holds exactly these names.
func only(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the folder holds %q, want %q", got, want)
	}
}

func TestPrepare(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	for range 2 { // made, then found
		if err := datadir.Prepare(dir); err != nil {
			t.Fatal(err)
		}
	}
	if runtime.GOOS == "windows" {
		return
	}
	for _, made := range []string{dir, filepath.Dir(dir)} {
		if got := mode(t, made); got != 0o700 {
			t.Errorf("%s was made with the mode %o", made, got)
		}
	}
	for _, m := range []fs.FileMode{0o701, 0o702, 0o704, 0o710, 0o720, 0o740, 0o750, 0o755, 0o777} {
		if err := os.Chmod(dir, m); err != nil {
			t.Fatal(err)
		}
		mustBe(t, m.String(), datadir.Prepare(dir), datadir.ErrData)
		if got := mode(t, dir); got != m {
			t.Errorf("the mode %o became %o", m, got)
		}
	}
	for _, m := range []fs.FileMode{0o700, 0o500} {
		if err := os.Chmod(dir, m); err != nil {
			t.Fatal(err)
		}
		if err := datadir.Prepare(dir); err != nil {
			t.Errorf("%o: %v", m, err)
		}
	}
}

func TestPrepareRefusesWhatIsNoFolder(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mustBe(t, "a file", datadir.Prepare(file), datadir.ErrData)
	mustBe(t, "below a file", datadir.Prepare(filepath.Join(file, "dir")), datadir.ErrData)
	mustBe(t, "no name", datadir.Prepare(""), datadir.ErrData)
	nowhere := filepath.Join(dir, "nowhere")
	if err := os.Symlink(filepath.Join(dir, "absent", "deep"), nowhere); err != nil {
		t.Skip(err)
	}
	mustBe(t, "a link to nowhere", datadir.Prepare(nowhere), datadir.ErrData)
	only(t, dir, "file", "nowhere")
}

// TestLock: one process at a time, however the other one ended.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	for _, kill := range []bool{false, true} {
		o := hold(t, dir)
		if o.said != "held" {
			t.Fatalf("the other process said %s", o.said)
		}
		for range 2 {
			release, err := datadir.Lock(dir)
			mustBe(t, "held elsewhere", err, datadir.ErrRunning)
			if release != nil {
				t.Error("a refusal came with something to release")
			}
		}
		o.end(kill)
		release, err := datadir.Lock(dir)
		if err != nil {
			t.Fatalf("after the other ended, killed: %v: %v", kill, err)
		}
		// Now it is the other one's turn to be refused.
		if o := hold(t, dir); o.said != datadir.ErrRunning.Name() {
			t.Errorf("the other process said %s", o.said)
		}
		_, err = datadir.Lock(dir)
		mustBe(t, "held by this process", err, datadir.ErrRunning)
		release()
	}
	if runtime.GOOS != "windows" {
		if got := mode(t, filepath.Join(dir, datadir.LockFile)); got != 0o600 {
			t.Errorf("the lock has the mode %o", got)
		}
	}
	_, err := datadir.Lock(filepath.Join(dir, "absent"))
	mustBe(t, "no folder", err, datadir.ErrData)
	only(t, dir, datadir.LockFile)
}

func TestReplaceAndRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if _, err := datadir.Read(path, 10); err != fs.ErrNotExist {
		t.Errorf("absent: %v", err)
	}
	for _, content := range []string{"first", "", "a longer one\n\x00\xff", "s"} {
		if err := datadir.Replace(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		got, err := datadir.Read(path, len(content))
		if err != nil || string(got) != content {
			t.Errorf("%q was written, %q is there: %v", content, got, err)
		}
		if content != "" {
			got, err = datadir.Read(path, len(content)-1)
			mustBe(t, "one byte too long", err, datadir.ErrRead)
			if got != nil {
				t.Error("an error came with content")
			}
		}
		if runtime.GOOS != "windows" {
			if got := mode(t, path); got != 0o600 {
				t.Errorf("the mode is %o", got)
			}
		}
		only(t, dir, "file")
	}
	// What was open to others is not any more.
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := datadir.Replace(path, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if got := mode(t, path); runtime.GOOS != "windows" && got != 0o600 {
		t.Errorf("the mode stays %o", got)
	}
	_, err := datadir.Read(dir, 10)
	mustBe(t, "reading a folder", err, datadir.ErrRead)
}

func TestReplaceFails(t *testing.T) {
	dir := t.TempDir()
	mustBe(t, "no folder", datadir.Replace(filepath.Join(dir, "absent", "file"), nil), datadir.ErrWrite)
	taken := filepath.Join(dir, "taken")
	if err := os.Mkdir(taken, 0o700); err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(taken, "inside")
	if err := os.WriteFile(inside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mustBe(t, "a folder has the name", datadir.Replace(taken, []byte("x")), datadir.ErrWrite)
	mustBe(t, "a name that is too long", datadir.Replace(filepath.Join(dir, strings.Repeat("x", 250)), nil), datadir.ErrWrite)
	only(t, dir, "taken")
	only(t, taken, "inside")
	mustBe(t, "syncing no folder", datadir.Sync(filepath.Join(dir, "absent")), datadir.ErrWrite)
}

// TestReplaceOfALink takes the link's place and leaves what it led to alone.
func TestReplaceOfALink(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := os.WriteFile(target, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Skip(err)
	}
	if err := datadir.Replace(link, []byte("ours")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{target: "theirs", link: "ours"} {
		if got, err := datadir.Read(path, 10); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
}

// TestReplaceIsWhole: readers see one writer's content, whole, while several
// write.
func TestReplaceIsWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	content := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i)}, 1000*(i+1)) }
	if err := datadir.Replace(path, content(0)); err != nil {
		t.Fatal(err)
	}
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for i := range 4 {
		writers.Go(func() {
			for range 20 {
				if err := datadir.Replace(path, content(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	readers.Go(func() {
		for {
			got, err := datadir.Read(path, 10_000)
			if err != nil || len(got) == 0 || !bytes.Equal(got, content(int(got[0]-'a'))) {
				t.Errorf("%d bytes are read: %v", len(got), err)
				return
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	writers.Wait()
	close(done)
	readers.Wait()
	only(t, dir, "file")
}

func TestRefusalsHoldNoPath(t *testing.T) {
	const canary = "canarybird"
	path := filepath.Join(t.TempDir(), canary, canary)
	_, lock := datadir.Lock(path)
	for what, err := range map[string]error{
		"write": datadir.Replace(path, []byte(canary)), "lock": lock, "sync": datadir.Sync(path), "prepare": datadir.Prepare("/dev/null/" + canary),
	} {
		if err == nil || strings.Contains(refusal.Terminal(err), canary) || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
