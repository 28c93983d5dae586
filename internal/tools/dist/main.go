// Dist builds the archives of a release.
//
// There is one archive for each system and processor, and a SHA256SUMS file beside them.
// Anyone who has the same sources and the same version of Go gets the same bytes,
// so a stranger can check that a release was made from the sources it names.
//
// Each holds cmd/allod, and those for Linux cmd/allod-node too. Since nothing of the builder's
// repository gets into them, the version and the commit are written in by the linker: the commit
// is git's, or the one that is given, and a source archive without either says that it has none.
//
// It does not sign, upload or tag anything.
//
// Usage:
//
//	go run ./internal/tools/dist -out dist -version v1.2.3 [-commit HASH]
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

// A target is one system and processor that a release is built for.
type target struct{ goos, goarch string }

// targets are all that a release holds.
var targets = []target{
	{"darwin", "amd64"},
	{"darwin", "arm64"},
	{"linux", "amd64"},
	{"linux", "arm64"},
	{"windows", "amd64"},
	{"windows", "arm64"},
}

func (t target) String() string { return t.goos + "/" + t.goarch }

// programs are the binaries for a target: what runs as root on a node is for Linux only.
func (t target) programs() []string {
	if t.goos == "linux" {
		return []string{"allod", "allod-node"}
	}
	return []string{"allod"}
}

// A stamp is what the binaries say about themselves.
type stamp struct {
	version string
	commit  string // empty where nobody knows it
}

// documents go into each archive beside the binary.
var documents = []string{"LICENSE", "README.md"}

// fallbackDate is used where neither SOURCE_DATE_EPOCH nor a commit gives a date.
// Any fixed date would do. The current time would not: it changes the bytes.
var fallbackDate = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// versionShape keeps the version safe in a file name and in a linker flag.
var versionShape = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}$`)

// commitShape is the full name of a commit.
var commitShape = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("dist", flag.ContinueOnError)
	flags.SetOutput(stderr)
	out := flags.String("out", "dist", "write the archives to this folder")
	version := flags.String("version", "dev", "name this version in the archives and in the binary")
	commit := flags.String("commit", "", "name this commit in the binary of a node; by default git's")
	module := flags.String("module", ".", "build the module in this folder")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if !versionShape.MatchString(*version) {
		return fmt.Errorf("version %q: use up to 64 letters, digits and . + _ - only", *version)
	}
	if *commit == "" {
		*commit = gitCommit(ctx, *module)
	} else if !commitShape.MatchString(*commit) {
		return fmt.Errorf("commit %q: use all of its 40 or 64 lower-case hexadecimal digits", *commit)
	}
	when, err := releaseDate(ctx, *module, os.Getenv("SOURCE_DATE_EPOCH"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}

	var sums strings.Builder
	for _, t := range targets {
		name, data, err := archive(ctx, *module, stamp{*version, *commit}, when, t)
		if err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
		if err := os.WriteFile(filepath.Join(*out, name), data, 0o644); err != nil {
			return err
		}
		line := fmt.Sprintf("%x  %s\n", sha256.Sum256(data), name)
		sums.WriteString(line)
		fmt.Fprint(stdout, line)
	}
	return os.WriteFile(filepath.Join(*out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// releaseDate is the date that every file of a release gets.
// The epoch is the value of SOURCE_DATE_EPOCH, the variable that reproducible builds agreed on.
func releaseDate(ctx context.Context, module, epoch string) (time.Time, error) {
	if epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil || seconds < 0 {
			return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is %q; it must be a number of seconds since 1970", epoch)
		}
		return time.Unix(seconds, 0).UTC(), nil
	}
	cmd := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct")
	cmd.Dir = module
	text, err := cmd.Output()
	if err != nil {
		// No git, no repository or no commit yet. That is how a source archive is built.
		return fallbackDate, nil
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return time.Time{}, errors.New("git gave no date for the last commit")
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// gitCommit is the commit that is checked out. It is empty where there is no git, no repository or
// no commit yet, and where the sources have changes: no commit names those.
func gitCommit(ctx context.Context, module string) string {
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = module
		text, err := cmd.Output()
		return strings.TrimSpace(string(text)), err
	}
	changes, err := git("status", "--porcelain")
	if err != nil || changes != "" {
		return ""
	}
	commit, err := git("rev-parse", "--verify", "HEAD")
	if err != nil || !commitShape.MatchString(commit) {
		return ""
	}
	return commit
}

// archive builds the module for one target and returns the name and bytes of its archive.
func archive(ctx context.Context, module string, say stamp, when time.Time, t target) (string, []byte, error) {
	// Everything sits in one folder, so that unpacking does not litter the place where it is done.
	folder := "allod-" + say.version + "-" + t.goos + "-" + t.goarch
	var files []file
	for _, program := range t.programs() {
		binary, err := build(ctx, module, program, say, t)
		if err != nil {
			return "", nil, fmt.Errorf("%s: %w", program, err)
		}
		if t.goos == "windows" {
			program += ".exe"
		}
		files = append(files, file{name: folder + "/" + program, data: binary, executable: true})
	}
	for _, name := range documents {
		data, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", nil, err
		}
		files = append(files, file{name: folder + "/" + name, data: data})
	}
	if t.goos == "windows" {
		data, err := zipped(files, when)
		return folder + ".zip", data, err
	}
	data, err := tarGz(files, when)
	return folder + ".tar.gz", data, err
}

// build compiles a program for one target and returns the binary.
func build(ctx context.Context, module, program string, say stamp, t target) ([]byte, error) {
	dir, err := os.MkdirTemp("", "allod-dist-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, program)
	flags := "-s -w -X main.version=" + say.version
	if program == "allod-node" && say.commit != "" {
		flags += " -X main.commit=" + say.commit // a node reports it
	}

	cmd := exec.CommandContext(ctx, "go", "build",
		"-trimpath",       // no folder of the builder in the binary
		"-buildvcs=false", // no state of the builder's repository either
		"-ldflags", flags,
		"-o", binary, "./cmd/"+program)
	cmd.Dir = module
	cmd.Env = environment(os.Environ(), t)
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s\n%w", strings.TrimSpace(output.String()), err)
	}
	return os.ReadFile(binary)
}

// environment is the environment of the Go command for a target.
// Settings that change the bytes are fixed here. The rest, such as proxies and caches, stays the builder's.
func environment(base []string, t target) []string {
	fixed := map[string]string{
		"CGO_ENABLED":  "0", // no C library and no C compiler of the builder
		"GOOS":         t.goos,
		"GOARCH":       t.goarch,
		"GOAMD64":      "v1",   // the oldest processors we serve
		"GOARM64":      "v8.0", // likewise
		"GOEXPERIMENT": "",
		"GOFIPS140":    "off",
		"GOFLAGS":      "-trimpath", // none of the builder's; an empty value would let a saved one in
		"GOWORK":       "off",
	}
	env := slices.DeleteFunc(slices.Clone(base), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		if runtime.GOOS == "windows" {
			name = strings.ToUpper(name) // names of variables ignore case there
		}
		_, replaced := fixed[name]
		return replaced
	})
	for name, value := range fixed {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}
