package bundle

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/canon"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "replaced" {
		os.Exit(replaced(os.Args[2]))
	}
	os.Exit(m.Run())
}

// replaced puts another file in the place of its own, and says what it runs then.
func replaced(self string) int {
	if err := errors.Join(os.Remove(self), os.WriteFile(self, []byte("another"), 0o600)); err != nil {
		fmt.Println(err)
		return 1
	}
	f, err := Own(Stamp{})
	fmt.Println(f.Digest, err)
	return 0
}

func problems(f Facts) (names []string) {
	for _, p := range f.Problems {
		names = append(names, p.Kind().Name())
	}
	return names
}

// TestF11Own compares with what another program says of this test's own binary.
func TestF11Own(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	f, err := Own(Stamp{Version: "1.2.3", Commit: strings.Repeat("0a", 20)})
	if err != nil || f.Digest != sum || f.Size != int64(len(content)) || f.Go != runtime.Version() {
		t.Errorf("%+v, %v", f, err)
	}
	if out, err := exec.Command("sha256sum", self).Output(); err == nil && !strings.HasPrefix(string(out), f.Digest.String()+" ") {
		t.Errorf("%s, and sha256sum says %s", f.Digest, out)
	}
	if f.Version == "" || f.Commit == "" || len(f.Problems) > 0 {
		t.Errorf("the stamp is lost: %+v", f)
	}
}

// TestF11ReplacedFile: the file that runs is told, and not the one that has its name.
func TestF11ReplacedFile(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells the running file from one of its name")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	content = append(content, 0) // another program than this one
	name := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(name, content, 0o700); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	out, err := exec.Command(name, "replaced", name).CombinedOutput()
	if want := hex.EncodeToString(sum[:]) + " <nil>\n"; err != nil || string(out) != want {
		t.Errorf("%s, %v; want %s", out, err, want)
	}
	if left, err := os.ReadFile(name); err != nil || string(left) != "another" {
		t.Fatal("the file was not replaced, so this test proves nothing")
	}
}

// TestF11Built builds a small program as ours are built, and compares with git.
func TestF11Built(t *testing.T) {
	dir := t.TempDir()
	clean := slices.DeleteFunc(os.Environ(), func(entry string) bool { // as where this test is a hook's
		return strings.HasPrefix(entry, "GIT_")
	})
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.Env = append(slices.Clone(clean), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GOFLAGS=-mod=mod", "GOWORK=off", "GOPROXY=off", "GOTOOLCHAIN=local", "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		if errors.Is(err, exec.ErrNotFound) {
			t.Skip("needs " + name)
		}
		if err != nil {
			t.Fatalf("%s %v: %s%v", name, args, out, err)
		}
		return strings.TrimSpace(string(out))
	}
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) string {
		t.Helper()
		return run("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"}, args...)...)
	}
	write("go.mod", "module example.org/program\n\ngo 1.26\n")
	write("main.go", "package main\n\nfunc main() {}\n")
	write(".gitignore", "/program*\n")
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "begin")
	git("tag", "v1.2.3")
	head := git("rev-parse", "HEAD")
	build := func(s Stamp, flags ...string) Facts {
		t.Helper()
		run("go", append(append([]string{"build", "-o", "program"}, flags...), ".")...)
		f, err := Read(filepath.Join(dir, "program"), s)
		if err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(filepath.Join(dir, "program"))
		if sum := sha256.Sum256(content); err != nil || f.Digest != sum || f.Size != int64(len(content)) {
			t.Errorf("%+v, %v", f, err)
		}
		f.Digest, f.Size = canon.Sum{}, 0
		return f
	}
	stamp := Stamp{Version: "v9.9.9", Commit: strings.Repeat("f", 40)}
	unknown := []*refusal.Refusal{refusal.From(ErrVersion), refusal.From(ErrCommit)}
	compare := func(what string, got, want Facts) {
		t.Helper()
		if want.Go = runtime.Version(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	compare("a tag", build(stamp, "-trimpath", "-buildvcs=true"), Facts{Version: "v1.2.3", Commit: head})
	compare("without symbols", build(Stamp{}, "-buildvcs=true", "-ldflags", "-s -w"), Facts{Version: "v1.2.3", Commit: head})
	compare("without the repository", build(Stamp{}, "-buildvcs=false"), Facts{Problems: unknown})
	compare("a release", build(stamp, "-trimpath", "-buildvcs=false"), Facts{Version: "v9.9.9", Stamped: true, Commit: stamp.Commit})
	write("main.go", "package main\n\nfunc main() { println() }\n")
	compare("modified", build(stamp, "-buildvcs=true"), Facts{Version: "v1.2.3+dirty", Commit: head, Modified: true})
}

func TestReadRefuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string, size int64) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if size > 0 {
			if err := os.Truncate(name, size); err != nil {
				t.Fatal(err)
			}
		}
		return name
	}
	for what, c := range map[string]struct {
		path string
		want error
	}{
		"nothing":   {filepath.Join(dir, "none"), ErrRead},
		"a folder":  {dir, ErrRead},
		"too large": {file("large", "", MaxSize+1), ErrRead},
		"empty":     {file("empty", "", 0), ErrForeign},
		"a script":  {file("script", "#!/bin/sh\nexit 0\n", 0), ErrForeign},
		"half":      {file("half", "\x7fELF\x02\x01\x01", 4096), ErrForeign},
	} {
		f, err := Read(c.path, Stamp{Version: "v1"})
		if !errors.Is(err, c.want) || !reflect.DeepEqual(f, Facts{}) || strings.Contains(refusal.Terminal(err), dir) {
			t.Errorf("%s: %+v, %v", what, f, err)
		}
		if what == "nothing" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the cause is lost: %v", err)
		}
	}
}

// TestJudge: what has not the right form is not told.
func TestJudge(t *testing.T) {
	commit, long := strings.Repeat("0123456789", 4), strings.Repeat("ab", 32)
	info := func(version string, settings ...string) *buildinfo.BuildInfo {
		i := &buildinfo.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: version}}
		for n := 0; n < len(settings); n += 2 {
			i.Settings = append(i.Settings, debug.BuildSetting{Key: settings[n], Value: settings[n+1]})
		}
		return i
	}
	for what, c := range map[string]struct {
		info    *buildinfo.BuildInfo
		stamp   Stamp
		version string
		commit  string
		wrong   string
	}{
		"all there":            {info("v1.0.0", "vcs.revision", commit), Stamp{}, "v1.0.0", commit, "[]"},
		"a longer commit":      {info("v1.0.0", "vcs.revision", long), Stamp{}, "v1.0.0", long, "[]"},
		"the stamp is second":  {info("v1.0.0", "vcs.revision", commit), Stamp{"v2", long}, "v1.0.0", commit, "[]"},
		"the stamp alone":      {info("(devel)"), Stamp{"v2", long}, "v2", long, "[]"},
		"nothing":              {info(""), Stamp{}, "", "", "[bundle-version bundle-commit]"},
		"a development build":  {info("(devel)"), Stamp{}, "", "", "[bundle-version bundle-commit]"},
		"a short commit":       {info("v1.0.0", "vcs.revision", commit[:12]), Stamp{}, "v1.0.0", "", "[bundle-commit]"},
		"a commit in capitals": {info("v1.0.0", "vcs.revision", strings.ToUpper(long)), Stamp{}, "v1.0.0", "", "[bundle-commit]"},
		"words for a commit":   {info("v1.0.0", "vcs.revision", commit+"\n"), Stamp{"", "main"}, "v1.0.0", "", "[bundle-commit]"},
		"no commit":            {info("v1.0.0", "vcs.revision", strings.Repeat("0", 40)), Stamp{}, "v1.0.0", "", "[bundle-commit]"},
		"another's revision":   {info("v1.0.0", "vcs", commit), Stamp{}, "v1.0.0", "", "[bundle-commit]"},
		"a long version":       {info(strings.Repeat("v", MaxVersion+1), "vcs.revision", commit), Stamp{}, "", commit, "[bundle-version]"},
		"the longest version":  {info(strings.Repeat("v", MaxVersion), "vcs.revision", commit), Stamp{}, strings.Repeat("v", MaxVersion), commit, "[]"},
		"a version of escapes": {info("v1\x1b[2J", "vcs.revision", commit), Stamp{Version: "v1 v2"}, "", commit, "[bundle-version]"},
	} {
		f := judge(c.info, c.stamp)
		if f.Version != c.version || f.Commit != c.commit || fmt.Sprint(problems(f)) != c.wrong || f.Stamped != (f.Version != "" && f.Version == c.stamp.Version) {
			t.Errorf("%s: %+v, %v", what, f, problems(f))
		}
	}
}
