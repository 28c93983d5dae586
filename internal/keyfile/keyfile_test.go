//go:build linux || darwin

package keyfile_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
)

var created = time.UnixMilli(1785499200123)

// secretOf are the bytes from which keysOf makes the keys of a number.
func secretOf(number byte) []byte {
	secret := make([]byte, 64)
	for i := range secret {
		secret[i] = byte(i*37+11) ^ number
	}
	return secret
}

func keysOf(number byte) key.DeviceKeys {
	k, err := key.NewKeys[key.DeviceRole](bytes.NewReader(secretOf(number)), created)
	if err != nil {
		panic(err) // only without randomness
	}
	return k
}

func contentOf(t testing.TB, k key.DeviceKeys) []byte {
	t.Helper()
	content, err := key.MarshalFile(k)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// write makes a file with exactly that mode, whatever the umask is.
func write(t testing.TB, path string, content []byte, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// wantNames fails unless the folder holds these names and no others, such as
// temporary files.
func wantNames(t testing.TB, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the folder holds %q, want %q", got, want)
	}
}

// wantKind fails unless err is that refusal, by errors.Is and for a caller.
func wantKind(t testing.TB, what string, err error, kind *refusal.Kind) {
	t.Helper()
	if !errors.Is(err, kind) || refusal.From(err).Kind() != kind {
		t.Errorf("%s: %v, want %s", what, err, kind.Name())
	}
}

func wantRefused(t testing.TB, what, path string, kind *refusal.Kind) {
	t.Helper()
	k, err := keyfile.Load[key.DeviceRole](path)
	wantKind(t, what, err, kind)
	if !k.IsZero() || !k.Signer().Public().IsZero() || !k.Opener().Public().IsZero() {
		t.Errorf("%s: an error came with keys", what)
	}
}

func wantLoads(t testing.TB, what, path string, want key.DeviceKeys) {
	t.Helper()
	got, err := keyfile.Load[key.DeviceRole](path)
	if err != nil || got.Identity() != want.Identity() {
		t.Errorf("%s: loaded %v, %v, want %v", what, got.Identity(), err, want.Identity())
	}
}

func TestCreateAndLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "device.keys")
	want := keysOf(1)
	if err := keyfile.Create(path, want); err != nil {
		t.Fatal(err)
	}
	wantNames(t, dir, "device.keys")
	content, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(content, contentOf(t, want)) {
		t.Errorf("the file is %q, %v", content, err)
	}
	got, err := keyfile.Load[key.DeviceRole](path)
	if err != nil {
		t.Fatal(err)
	}
	// The halves are the same if they do the same.
	message := []byte("m")
	sig, err := got.Signer().Sign(message)
	if err != nil || !want.Identity().Signing().Verify(message, sig) {
		t.Errorf("another key signs, %v", err)
	}
	box, err := want.Identity().Sealing().Seal(bytes.NewReader(make([]byte, 32)), message)
	if err != nil {
		t.Fatal(err)
	}
	if opened, err := got.Opener().Open(box); err != nil || !bytes.Equal(opened, message) {
		t.Errorf("another key opens: %q, %v", opened, err)
	}
	if got.Identity() != want.Identity() || !got.Created().Equal(created) {
		t.Errorf("loaded %v, created %v", got.Identity(), got.Created())
	}
	// Loading changes nothing, so it works twice.
	wantLoads(t, "again", path, want)
	wantNames(t, dir, "device.keys")
}

func TestModeIs0600WhateverTheUmask(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077, 0o177, 0o277, 0o777} {
		path := filepath.Join(t.TempDir(), "keys")
		old := syscall.Umask(umask)
		err := keyfile.Create(path, keysOf(1))
		syscall.Umask(old)
		if err != nil {
			t.Errorf("umask %#o: %v", umask, err)
			continue
		}
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != 0o600 {
			t.Errorf("umask %#o: the file has the mode %v, want 0600", umask, info.Mode())
		}
		wantLoads(t, fmt.Sprintf("umask %#o", umask), path, keysOf(1))
	}
}

func TestCreateWritesOverNothing(t *testing.T) {
	for what, content := range map[string][]byte{
		"another's keys": contentOf(t, keysOf(2)),
		"the same keys":  contentOf(t, keysOf(1)),
		"a damaged file": contentOf(t, keysOf(2))[:100],
		"an empty file":  {},
		"anything else":  []byte("shopping list"),
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "keys")
		write(t, path, content, 0o640)
		before, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		wantKind(t, what, keyfile.Create(path, keysOf(1)), keyfile.ErrExists)
		after, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		now, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(now, content) || !os.SameFile(before, after) || after.Mode() != before.Mode() || !after.ModTime().Equal(before.ModTime()) {
			t.Errorf("%s: the file became %q, %v, %v", what, now, after.Mode(), err)
		}
		wantNames(t, dir, "keys")
	}
}

// What is not a plain file is written over as little.
func TestCreateWritesOverNoOtherThing(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	write(t, in("target"), []byte("x"), 0o600)
	for _, err := range []error{
		os.Mkdir(in("folder"), 0o700), os.Symlink("target", in("link")), os.Symlink("nowhere", in("dangling")), syscall.Mkfifo(in("pipe"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"folder", "folder/", "link", "dangling", "pipe", "target"} {
		path := in(name)
		if strings.HasSuffix(name, "/") {
			path += "/" // Join takes it away
		}
		wantKind(t, name, keyfile.Create(path, keysOf(1)), keyfile.ErrExists)
	}
	wantNames(t, dir, "folder", "link", "dangling", "pipe", "target")
	wantNames(t, in("folder"))
	if content, err := os.ReadFile(in("target")); err != nil || string(content) != "x" {
		t.Errorf("the target became %q, %v", content, err)
	}
}

func TestCreateLeavesNothingBehindWhenItFails(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir) // where a file of no path would be
	in := func(name string) string { return filepath.Join(dir, name) }
	write(t, in("file"), nil, 0o600)
	for what, path := range map[string]string{
		"no such folder":     in("missing/keys"),
		"a file as a folder": in("file/keys"),
		"too long a name":    in(strings.Repeat("n", 300)),
		"a zero byte":        in("a\x00b"),
		"no path":            "",
	} {
		wantKind(t, what, keyfile.Create(path, keysOf(1)), keyfile.ErrUnreadable)
	}
	if err := keyfile.Create(in("zero"), key.DeviceKeys{}); err == nil {
		t.Error("no keys were written")
	}
	// Keys that no file can hold are refused before there is a file.
	undated, err := key.NewKeys[key.DeviceRole](bytes.NewReader(secretOf(1)), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if err := keyfile.Create(in("undated"), undated); err == nil {
		t.Error("keys without a time were written")
	}
	wantNames(t, dir, "file")
}

func TestLoadRefusesFilesThatAreOpenToOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	want := keysOf(1)
	write(t, path, contentOf(t, want), 0o600)
	for bits := range fs.FileMode(0o100) {
		for _, owner := range []fs.FileMode{0o400, 0o600, 0o700} {
			if err := os.Chmod(path, owner|bits); err != nil {
				t.Fatal(err)
			}
			what := fmt.Sprintf("mode %#o", owner|bits)
			if bits == 0 {
				wantLoads(t, what, path, want)
			} else {
				wantRefused(t, what, path, keyfile.ErrOpen)
			}
			if info, err := os.Lstat(path); err != nil || info.Mode() != owner|bits {
				t.Errorf("%s: loading changed the mode to %v, %v", what, info.Mode(), err)
			}
		}
	}
	// A damaged file says first that others can reach it.
	write(t, path, []byte("damaged"), 0o644)
	wantRefused(t, "open and damaged", path, keyfile.ErrOpen)
}

func TestLoadRefusesFilesOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	path := filepath.Join(t.TempDir(), "keys")
	write(t, path, contentOf(t, keysOf(1)), 0o600)
	if err := os.Chown(path, 4711, -1); err != nil {
		t.Skipf("this machine does not let root give a file away: %v", err)
	}
	wantRefused(t, "another's file", path, keyfile.ErrOpen)
	if err := os.Chown(path, 0, 4711); err != nil {
		t.Fatal(err)
	}
	wantLoads(t, "another group, which the mode keeps out", path, keysOf(1))
}

func TestLoadOfOtherThings(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	want := keysOf(1)
	content := contentOf(t, want)
	write(t, in("keys"), content, 0o600)
	write(t, in("open"), content, 0o604)
	for _, err := range []error{
		os.Mkdir(in("folder"), 0o700), syscall.Mkfifo(in("pipe"), 0o600),
		os.Symlink("keys", in("link")), os.Symlink("open", in("link to open")), os.Symlink("nowhere", in("dangling")),
		os.Symlink("loop", in("loop")), os.Symlink("folder", in("link to folder")), os.Symlink("pipe", in("link to pipe")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	// Opening a pipe waits for a writer. Here is one, so that a Load that opens it
	// gets keys instead of hanging.
	stop, written := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(written)
		for {
			if f, err := os.OpenFile(in("pipe"), os.O_WRONLY, 0); err == nil {
				_, _ = f.Write(content)
				_ = f.Close()
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	defer func() {
		close(stop)
		// A reader at last lets the writer go.
		f, err := os.OpenFile(in("pipe"), os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		<-written
	}()
	// A link is followed, and what counts is the file behind it.
	wantLoads(t, "link", in("link"), want)
	for name, kind := range map[string]*refusal.Kind{
		"absent": keyfile.ErrAbsent, "absent/keys": keyfile.ErrAbsent, "dangling": keyfile.ErrAbsent, "": keyfile.ErrUnreadable,
		"folder": keyfile.ErrUnreadable, "pipe": keyfile.ErrUnreadable, "link to folder": keyfile.ErrUnreadable, "link to pipe": keyfile.ErrUnreadable,
		"loop": keyfile.ErrUnreadable, "keys/keys": keyfile.ErrUnreadable, "a\x00b": keyfile.ErrUnreadable, strings.Repeat("n", 300): keyfile.ErrUnreadable,
		"link to open": keyfile.ErrOpen,
	} {
		wantRefused(t, name, in(name), kind)
	}
	wantRefused(t, "no path", "", keyfile.ErrAbsent)
	if runtime.GOOS == "linux" {
		wantRefused(t, "a device", "/dev/zero", keyfile.ErrUnreadable)
	}
}

func TestLoadOfDamagedContent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	want := keysOf(1)
	good := string(contentOf(t, want))
	for what, content := range map[string]string{
		"empty":           "",
		"cut":             good[:len(good)-3],
		"twice":           good + good,
		"something else":  "shopping list",
		"other halves":    strings.Replace(good, want.Identity().Sealing().String(), keysOf(2).Identity().Sealing().String(), 1),
		"zeros":           strings.Repeat("\x00", len(good)),
		"a byte too many": good + strings.Repeat(" ", key.MaxFile-len(good)+1),
		"a text after":    good + strings.Repeat(" ", key.MaxFile-len(good)) + "x",
	} {
		write(t, path, []byte(content), 0o600)
		wantRefused(t, what, path, key.ErrFile)
		if now, err := os.ReadFile(path); err != nil || string(now) != content {
			t.Errorf("%s: loading changed the file, %v", what, err)
		}
	}
	write(t, path, []byte(good+strings.Repeat(" ", key.MaxFile-len(good))), 0o600)
	wantLoads(t, "as large as a file may be", path, want)
}

// A file of a gigabyte must not be read into memory first.
func TestLoadReadsNoMoreThanAFileMayHold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	write(t, path, contentOf(t, keysOf(1)), 0o600)
	if err := os.Truncate(path, 1<<30); err != nil { // a hole, which takes no room
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	wantRefused(t, "huge", path, key.ErrFile)
	runtime.ReadMemStats(&after)
	if total := after.TotalAlloc - before.TotalAlloc; total > 1<<20 {
		t.Errorf("%d bytes of memory for a file that is too large", total)
	}
}

// Sixteen goroutines create one file, while another reads it all the time.
func TestOneOfManyGoroutinesWins(t *testing.T) {
	for round := range 20 {
		dir := t.TempDir()
		path := filepath.Join(dir, "keys")
		const racers = 16
		var all [racers]key.DeviceKeys
		for i := range all {
			all[i] = keysOf(byte(i))
		}
		var errs [racers]error
		var group, reader sync.WaitGroup
		start, done := make(chan struct{}), make(chan struct{})
		var seen []key.Device
		reader.Go(func() {
			<-start
			for {
				// A file that is there is whole, at every moment.
				k, err := keyfile.Load[key.DeviceRole](path)
				switch {
				case err == nil:
					seen = append(seen, k.Identity())
				case !errors.Is(err, keyfile.ErrAbsent):
					t.Errorf("round %d: a reader got %v", round, err)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
		for i := range racers {
			group.Go(func() {
				<-start
				errs[i] = keyfile.Create(path, all[i])
			})
		}
		close(start)
		group.Wait()
		close(done)
		reader.Wait()
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner < 0:
				winner = i
			case err == nil:
				t.Errorf("round %d: %d and %d both won", round, winner, i)
			default:
				wantKind(t, "a loser", err, keyfile.ErrExists)
			}
		}
		if winner < 0 {
			t.Fatalf("round %d: nobody won: %v", round, errs)
		}
		content, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(content, contentOf(t, all[winner])) {
			t.Errorf("round %d: the file is not the winner's: %v", round, err)
		}
		wantLoads(t, "the winner's file", path, all[winner])
		for _, id := range seen {
			if id != all[winner].Identity() {
				t.Errorf("round %d: a reader saw %v, the winner is %v", round, id, all[winner].Identity())
			}
		}
		wantNames(t, dir, "keys")
	}
}

// helper starts this test binary again as another process, which does what the
// words say; see TestMain.
func helper(t testing.TB, program string, words ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(program)
	// The race detector waits for a second at the end, unless told otherwise.
	cmd.Env = append(os.Environ(), "KEYFILE_HELPER="+strings.Join(words, "\n"), "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	return cmd
}

// forbidLinks makes hard links fail, where a test knows how.
var forbidLinks func() error

func TestMain(m *testing.M) {
	words := strings.Split(os.Getenv("KEYFILE_HELPER"), "\n")
	path := words[len(words)-1]
	switch words[0] {
	case "create": // number, path
		raceFor(path, words[1][0])
	case "create without links": // number, path
		if err := forbidLinks(); err != nil {
			fmt.Println("said: links cannot be forbidden here")
			return
		}
		if err := os.Link(os.Args[0], path+".link"); !errors.Is(err, fs.ErrPermission) {
			panic(fmt.Sprint("a link was made: ", err))
		}
		raceFor(path, words[1][0])
	case "create with no room": // path
		// The system refuses to let a file grow beyond this, as a full disk would.
		limit := syscall.Rlimit{Cur: 100, Max: 100}
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			panic(err)
		}
		say(keyfile.Create(path, keysOf(1)))
	case "load": // path
		_, err := keyfile.Load[key.DeviceRole](path)
		say(err)
	default:
		os.Exit(m.Run())
	}
}

// raceFor creates a key file as soon as standard input ends, which it does for
// all processes of a race at once.
func raceFor(path string, number byte) {
	k := keysOf(number)
	fmt.Println("ready")
	_, _ = io.ReadAll(os.Stdin)
	say(keyfile.Create(path, k))
}

// say tells the parent process how it went, by the refusal's name.
func say(err error) {
	if err == nil {
		fmt.Println("said: fine")
		return
	}
	fmt.Println("said: " + refusal.From(err).Kind().Name())
}

// said finds in a helper's output what it said.
func said(t testing.TB, output string) string {
	t.Helper()
	for line := range strings.Lines(output) {
		if word, ok := strings.CutPrefix(line, "said: "); ok {
			return strings.TrimSpace(word)
		}
	}
	t.Fatalf("the other process said nothing: %q", output)
	return ""
}

// race lets four processes create one file and returns the number of the winner.
func race(t testing.TB, path, how string) (winner byte) {
	t.Helper()
	type process struct {
		cmd    *exec.Cmd
		number byte
		start  io.WriteCloser
		out    *bufio.Reader
	}
	var all []process
	for number := byte('0'); number < '4'; number++ {
		p := process{cmd: helper(t, os.Args[0], how, string(number), path), number: number}
		var err error
		if p.start, err = p.cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		out, err := p.cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		p.out = bufio.NewReader(out)
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	for _, p := range all { // all have their keys and wait
		if line, err := p.out.ReadString('\n'); err != nil || line != "ready\n" {
			t.Fatalf("the other process said %q, %v", line, err)
		}
	}
	for _, p := range all {
		if err := p.start.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var winners []byte
	for _, p := range all {
		rest, err := io.ReadAll(p.out)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		switch word := said(t, string(rest)); word {
		case "fine":
			winners = append(winners, p.number)
		case keyfile.ErrExists.Name():
		default:
			t.Errorf("a process got %s", word)
		}
	}
	if len(winners) != 1 {
		t.Fatalf("%d processes won", len(winners))
	}
	return winners[0]
}

func TestOneOfSeveralProcessesWins(t *testing.T) {
	for range 3 {
		dir := t.TempDir()
		path := filepath.Join(dir, "keys")
		wantLoads(t, "the winner's file", path, keysOf(race(t, path, "create")))
		wantNames(t, dir, "keys")
	}
}

// A file system may have no hard links. Then a crash can leave a part of a file,
// but one process still wins, and nothing is written over.
func TestCreateWithoutHardLinks(t *testing.T) {
	if forbidLinks == nil {
		t.Skip("this system has no way to forbid hard links")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "keys")
	ask := func(path string) string {
		t.Helper()
		cmd := helper(t, os.Args[0], "create without links", "x", path)
		cmd.Stdin = strings.NewReader("")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return said(t, string(out))
	}
	if got := ask(path); got == "links cannot be forbidden here" {
		t.Skip(got)
	} else if got != "fine" {
		t.Fatalf("creating: %s", got)
	}
	wantLoads(t, "the file", path, keysOf('x'))
	wantNames(t, dir, "keys")
	if info, err := os.Lstat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	write(t, path, []byte("damaged"), 0o600)
	if got := ask(path); got != keyfile.ErrExists.Name() {
		t.Errorf("creating over a file: %s", got)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "damaged" {
		t.Errorf("the file became %q, %v", content, err)
	}
	if got := ask(filepath.Join(dir, "missing", "keys")); got != keyfile.ErrUnreadable.Name() {
		t.Errorf("creating in a folder that is not there: %s", got)
	}
	wantNames(t, dir, "keys")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	wantLoads(t, "the winner's file", path, keysOf(race(t, path, "create without links")))
	wantNames(t, dir, "keys")
}

func TestCreateOnAFullDiskLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "keys")
	out, err := helper(t, os.Args[0], "create with no room", path).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := said(t, string(out)); got != keyfile.ErrUnreadable.Name() {
		t.Errorf("it said %s, want %s", got, keyfile.ErrUnreadable.Name())
	}
	wantNames(t, dir)
}

// TestWithoutPermission needs a user for whom permissions count, which root is
// not. As root it starts a process of the user 65534, which often is called
// nobody.
func TestWithoutPermission(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	// Everybody may come this far, since the other user must.
	for folder := dir; folder != filepath.Dir(folder) && strings.HasPrefix(folder, os.TempDir()+"/"); folder = filepath.Dir(folder) {
		if err := os.Chmod(folder, 0o755); err != nil {
			t.Skipf("the other user cannot reach the folder: %v", err)
		}
	}
	content := contentOf(t, keysOf(1))
	for _, folder := range []string{"mine", "closed", "read only", "write only"} {
		if err := os.Mkdir(in(folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, in("mine/good"), content, 0o600)
	write(t, in("mine/unreadable"), content, 0)
	write(t, in("closed/keys"), content, 0o600)
	run := func(words ...string) *exec.Cmd { return helper(t, os.Args[0], words...) }
	if os.Geteuid() == 0 {
		const nobody = 65534
		for _, name := range []string{"mine", "mine/good", "mine/unreadable", "closed", "closed/keys", "read only", "write only"} {
			if err := os.Chown(in(name), nobody, nobody); err != nil {
				t.Skipf("this machine does not let root give a file away: %v", err)
			}
		}
		write(t, in("of root"), content, 0o600)
		program, err := os.ReadFile(os.Args[0])
		if err != nil {
			t.Fatal(err)
		}
		write(t, in("program"), program, 0o755)
		run = func(words ...string) *exec.Cmd {
			cmd := helper(t, in("program"), words...)
			cmd.Dir = "/"
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
			return cmd
		}
	}
	for name, mode := range map[string]fs.FileMode{"closed": 0, "read only": 0o500, "write only": 0o300} {
		if err := os.Chmod(in(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(words ...string) string {
		t.Helper()
		cmd := run(words...)
		var out bytes.Buffer
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Skipf("no process of another user can be started here: %v", err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		return said(t, out.String())
	}
	if got := ask("load", in("mine/good")); got != "fine" {
		t.Fatalf("the control does not load: %s", got)
	}
	for name, want := range map[string]*refusal.Kind{
		"mine/unreadable": keyfile.ErrUnreadable,
		"closed/keys":     keyfile.ErrUnreadable,
		"closed/absent":   keyfile.ErrUnreadable, // nobody can know that it is absent
	} {
		if got := ask("load", in(name)); got != want.Name() {
			t.Errorf("loading %s: %s, want %s", name, got, want.Name())
		}
	}
	if os.Geteuid() == 0 {
		if got := ask("load", in("of root")); got != keyfile.ErrUnreadable.Name() {
			t.Errorf("loading a file of root: %s, want %s", got, keyfile.ErrUnreadable.Name())
		}
	}
	for _, name := range []string{"closed/new", "read only/new"} {
		if got := ask("create", "1", in(name)); got != keyfile.ErrUnreadable.Name() {
			t.Errorf("creating %s: %s, want %s", name, got, keyfile.ErrUnreadable.Name())
		}
	}
	// A folder that cannot be opened cannot be synced, so nobody can say that the
	// file is on the disk.
	if got := ask("create", "1", in("write only/new")); got != keyfile.ErrUnreadable.Name() {
		t.Errorf("creating in a folder that cannot be read: %s", got)
	}
	if got := ask("create", "1", in("mine/new")); got != "fine" {
		t.Errorf("creating in an own folder: %s", got)
	}
	for _, name := range []string{"closed", "read only", "write only"} { // so that the folder can be removed
		if err := os.Chmod(in(name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	wantNames(t, in("closed"), "keys")
	wantNames(t, in("read only"))
	wantNames(t, in("mine"), "good", "unreadable", "new")
}

// forms of a secret in which a text could hold it.
func forms(secret []byte) (all []string) {
	for at := 0; at+12 <= len(secret); at++ {
		w := secret[at : at+9] // each way to group bytes for base64 is among these
		all = append(all, hex.EncodeToString(w), strings.ToUpper(hex.EncodeToString(w)), string(w), base64.StdEncoding.EncodeToString(w), base64.URLEncoding.EncodeToString(w),
			strings.Trim(fmt.Sprint(w), "[]"), strings.Trim(fmt.Sprintf("%q", w), `"`))
	}
	return all
}

func holds(text string, secret []byte) bool {
	return slices.ContainsFunc(forms(secret), func(form string) bool { return strings.Contains(text, form) })
}

func TestErrorsDoNotHoldTheKey(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	k := keysOf(1)
	good := string(contentOf(t, k))
	if !holds(good, secretOf(1)[:32]) || !holds(good, secretOf(1)[32:]) {
		t.Fatal("a key file does not hold the key, so the test shows nothing")
	}
	var errs []error
	load := func(content string, mode fs.FileMode) {
		write(t, in("keys"), []byte(content), mode)
		_, err := keyfile.Load[key.DeviceRole](in("keys"))
		errs = append(errs, err)
	}
	load(good, 0o644)
	load(good[:len(good)-3], 0o600)
	load(good+good, 0o600)
	load("x"+good, 0o600)
	load(strings.Replace(good, "version", "Version", 1), 0o600)
	load(strings.Replace(good, `"identityPrivate": "`, `"identityPrivate": "A`, 1), 0o600)
	load(strings.Replace(good, `"identityPrivate": `, `"identityPublic": `, 1), 0o600)
	load(strings.Replace(good, k.Identity().Signing().String(), k.Identity().Sealing().String(), 1), 0o600)
	load(good+strings.Repeat(" ", key.MaxFile), 0o600)
	errs = append(errs, keyfile.Create(in("keys"), k), keyfile.Create(in("missing/keys"), k), keyfile.Create(in(strings.Repeat("n", 300)), k))
	_, err := keyfile.Load[key.DeviceRole](in("absent"))
	errs = append(errs, err)
	_, err = keyfile.Load[key.DeviceRole](dir)
	errs = append(errs, err)
	for i, err := range errs {
		if err == nil {
			t.Errorf("error %d is none", i)
			continue
		}
		var log bytes.Buffer
		slog.New(slog.NewJSONHandler(&log, nil)).Error("m", "err", err)
		texts := []string{log.String(), string(refusal.JSON(err)), refusal.Terminal(err)}
		for e := err; e != nil; e = errors.Unwrap(e) {
			texts = append(texts, fmt.Sprintf("%v %+v %#v", e, e, e))
		}
		for _, text := range texts {
			if holds(text, secretOf(1)[:32]) || holds(text, secretOf(1)[32:]) {
				t.Errorf("error %d holds the key: %s", i, text)
			}
		}
		// A caller does not see the path either, which may name a person.
		for _, text := range []string{string(refusal.JSON(err)), refusal.Terminal(err), err.Error()} {
			if strings.Contains(text, dir) {
				t.Errorf("error %d shows the path: %s", i, text)
			}
		}
	}
}

func TestKindsAreRegistered(t *testing.T) {
	for kind, status := range map[*refusal.Kind]int{
		keyfile.ErrExists: 409, keyfile.ErrAbsent: 404, keyfile.ErrOpen: 403, keyfile.ErrUnreadable: 500, keyfile.ErrPlatform: 501,
	} {
		if keyfile.Kinds.Find(kind.Name()) != kind || kind.Status() != status {
			t.Errorf("%s: status %d, want %d, registered as %v", kind.Name(), kind.Status(), status, keyfile.Kinds.Find(kind.Name()))
		}
	}
	if len(keyfile.Kinds.Kinds) != 5 {
		t.Errorf("%d kinds are registered, want 5", len(keyfile.Kinds.Kinds))
	}
}

func TestSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if err := keyfile.Platform(); err != nil {
		t.Fatal(err)
	}
	if err := keyfile.CreateSecret(path, []byte("secret")); err != nil {
		t.Fatal(err)
	}
	if err := keyfile.CreateSecret(path, []byte("other")); !errors.Is(err, keyfile.ErrExists) {
		t.Errorf("again: %v", err)
	}
	for limit, want := range map[int]string{100: "secret", 6: "secret", 5: "secret", 4: "secre"} {
		if got, err := keyfile.LoadSecret(path, limit); err != nil || string(got) != want {
			t.Errorf("at most %d bytes: %q, %v", limit, got, err)
		}
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if got, err := keyfile.LoadSecret(path, 100); !errors.Is(err, keyfile.ErrOpen) || got != nil {
		t.Errorf("open to others: %q, %v", got, err)
	}
}
