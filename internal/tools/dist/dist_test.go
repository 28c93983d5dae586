package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

var when = time.Date(2026, time.March, 4, 5, 6, 7, 0, time.UTC)

// formats are the two ways to write an archive, each with a reader that knows nothing of our writer.
var formats = []struct {
	name  string
	write func([]file, time.Time) ([]byte, error)
	read  func(*testing.T, []byte) []entry
}{
	{"tar.gz", tarGz, readTarGz},
	{"zip", zipped, readZip},
}

// An entry is what a reader sees of a file in an archive.
type entry struct {
	name string
	data string
	mode fs.FileMode
	when time.Time
}

func TestArchiveBytesDependOnContentOnly(t *testing.T) {
	files := []file{
		{name: "allod/allod", data: bytes.Repeat([]byte("binary"), 4096), executable: true},
		{name: "allod/LICENSE", data: []byte("terms\n")},
		{name: "allod/README.md", data: []byte("read me\n")},
		{name: "allod/empty"},
	}
	reversed := slices.Clone(files)
	slices.Reverse(reversed)
	rotated := append(slices.Clone(files[2:]), files[:2]...)
	changed := slices.Clone(files)
	changed[1].data = []byte("terms\r\n")
	mode := slices.Clone(files)
	mode[0].executable = false
	renamed := slices.Clone(files)
	renamed[3].name = "allod/vacant"

	for _, format := range formats {
		want, err := format.write(files, when)
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			name  string
			files []file
			when  time.Time
			same  bool
		}{
			{"the same again", files, when, true},
			{"files reversed", reversed, when, true},
			{"files rotated", rotated, when, true},
			{"another time zone", files, when.In(time.FixedZone("east", 9*3600)), true},
			{"part of a second", files, when.Add(123 * time.Millisecond), true},
			// The rest must differ. Otherwise the comparison would prove nothing.
			{"another date", files, when.Add(time.Hour), false},
			{"another content", changed, when, false},
			{"another mode", mode, when, false},
			{"another name", renamed, when, false},
		} {
			t.Run(format.name+"/"+tt.name, func(t *testing.T) {
				given := slices.Clone(tt.files)
				got, err := format.write(tt.files, tt.when)
				if err != nil {
					t.Fatal(err)
				}
				if bytes.Equal(got, want) != tt.same {
					t.Errorf("same bytes: %v, want %v", !tt.same, tt.same)
				}
				if !slices.EqualFunc(given, tt.files, func(a, b file) bool { return a.name == b.name }) {
					t.Error("the writer changed the order of its argument")
				}
			})
		}
	}
}

// TestArchiveFilesIgnoreTheDisk reads the same files from two folders that differ
// in everything but names and content, as two machines do.
func TestArchiveFilesIgnoreTheDisk(t *testing.T) {
	names := []string{"b.txt", "a.txt", "c.txt"}
	load := func(order []string, age time.Duration, perm fs.FileMode) []file {
		t.Helper()
		dir := t.TempDir()
		var files []file
		for _, name := range order {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte("content of "+name), perm); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, when.Add(-age), when.Add(-age)); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file{name: name, data: data})
		}
		return files
	}
	one := load(names, time.Hour, 0o600)
	slices.Reverse(names)
	two := load(names, 9000*time.Hour, 0o664)
	for _, format := range formats {
		a, err := format.write(one, when)
		if err != nil {
			t.Fatal(err)
		}
		b, err := format.write(two, when)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s: order, age or mode of the files on disk reached the archive", format.name)
		}
	}
}

func TestArchiveReadsBack(t *testing.T) {
	files := []file{
		{name: "allod/allod", data: []byte("binary"), executable: true},
		{name: "allod/LICENSE", data: []byte("terms\n")},
	}
	for _, format := range formats {
		t.Run(format.name, func(t *testing.T) {
			data, err := format.write(files, when)
			if err != nil {
				t.Fatal(err)
			}
			got := format.read(t, data)
			date := when
			if format.name == "zip" {
				date = when.Truncate(2 * time.Second)
			}
			want := []entry{
				{"allod/LICENSE", "terms\n", 0o644, date},
				{"allod/allod", "binary", 0o755, date},
			}
			if !slices.EqualFunc(got, want, func(a, b entry) bool {
				return a.name == b.name && a.data == b.data && a.mode == b.mode && a.when.Equal(b.when)
			}) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
		})
	}
}

func TestArchiveNamesNobody(t *testing.T) {
	data, err := tarGz([]file{{name: "a"}}, when)
	if err != nil {
		t.Fatal(err)
	}
	zr, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if zr.Name != "" || zr.Comment != "" || !zr.ModTime.IsZero() || zr.OS != 255 {
		t.Errorf("the gzip header tells more than it must: %+v", zr.Header)
	}
	header, err := tar.NewReader(zr).Next()
	if err != nil {
		t.Fatal(err)
	}
	if header.Uid != 0 || header.Gid != 0 || header.Uname != "" || header.Gname != "" {
		t.Errorf("the archive names an owner: %+v", header)
	}
}

func TestArchiveRefusesTwoFilesOfOneName(t *testing.T) {
	files := []file{{name: "a", data: []byte("1")}, {name: "b"}, {name: "a", data: []byte("2")}}
	for _, format := range formats {
		if data, err := format.write(files, when); err == nil || data != nil {
			t.Errorf("%s: got %d bytes and error %v, want an error only", format.name, len(data), err)
		}
	}
}

func TestZipTakesAnyDate(t *testing.T) {
	data, err := zipped([]file{{name: "a"}}, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	if got := readZip(t, data)[0].when; !got.Equal(zipFirst) {
		t.Errorf("the date is %v, want %v", got, zipFirst)
	}
}

func TestReleaseDate(t *testing.T) {
	none := t.TempDir() // not a repository
	for _, tt := range []struct {
		name, epoch string
		want        time.Time
		fails       bool
	}{
		{"given", "1772600767", time.Unix(1772600767, 0), false},
		{"given as zero", "0", time.Unix(0, 0), false},
		{"nothing to go by", "", fallbackDate, false},
		{"not a number", "yesterday", time.Time{}, true},
		{"negative", "-1", time.Time{}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// The temporary folder may itself lie in some repository. Git must not find that one.
			t.Setenv("GIT_DIR", filepath.Join(none, "nothing"))
			got, err := releaseDate(t.Context(), none, tt.epoch)
			if (err != nil) != tt.fails || !got.Equal(tt.want) {
				t.Errorf("got %v and %v, want %v and error: %v", got, err, tt.want, tt.fails)
			}
		})
	}
}

func TestRunRefusesWhatItDoesNotUnderstand(t *testing.T) {
	for _, args := range [][]string{
		{"-version", ""},
		{"-version", "v1 -X main.other=1"},
		{"-version", "../v1"},
		{"-version", strings.Repeat("1", 65)},
		{"-commit", "0123456789abcdef"},
		{"-commit", strings.Repeat("A", 40)},
		{"-commit", strings.Repeat("a", 40) + " -X main.other=1"},
		{"extra"},
		{"-unknown"},
	} {
		args = append([]string{"-out", filepath.Join(t.TempDir(), "dist")}, args...)
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("dist %q: no error", args)
		}
		if _, err := os.Stat(args[1]); err == nil {
			t.Errorf("dist %q: wrote something", args)
		}
	}
}

func TestEnvironmentKeepsTheBuilderOut(t *testing.T) {
	got := environment([]string{"PATH=/bin", "GOFLAGS=-tags=odd", "GOOS=plan9", "CGO_ENABLED=1", "GOPROXY=off"}, target{"linux", "arm64"})
	for _, want := range []string{"PATH=/bin", "GOPROXY=off", "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing", want)
		}
	}
	for _, gone := range []string{"GOFLAGS=-tags=odd", "GOOS=plan9", "CGO_ENABLED=1"} {
		if slices.Contains(got, gone) {
			t.Errorf("%s is still there", gone)
		}
	}
}

// TestPrograms: what runs as root on a node is in the archives for Linux, and in no others.
func TestPrograms(t *testing.T) {
	for _, to := range targets {
		want := []string{"allod"}
		if to.goos == "linux" {
			want = append(want, "allod-node")
		}
		if got := to.programs(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", to, got, want)
		}
	}
}

// TestCommitIsTheOneOfTheSources asks in a repository of its own.
func TestCommitIsTheOneOfTheSources(t *testing.T) {
	dir := t.TempDir()
	for name, value := range map[string]string{
		"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CEILING_DIRECTORIES": filepath.Dir(dir),
		"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org",
	} {
		t.Setenv(name, value)
	}
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	is := func(what, want string) {
		t.Helper()
		if got := gitCommit(t.Context(), dir); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	is("no repository", "")
	git("init", "-q")
	is("no commit yet", "")
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	git("add", "file")
	git("commit", "-q", "-m", "one")
	is("as committed", git("rev-parse", "HEAD"))
	if err := os.WriteFile(file, []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	is("changed", "")
}

// TestBuildIsReproducible builds this module from two folders and compares the archives byte for byte.
// It also looks for the folders in the binary, because the build cache could hide a difference:
// with -trimpath the second build may reuse what the first compiled.
func TestBuildIsReproducible(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a binary twice")
	}
	root := filepath.Join("..", "..", "..")
	host := target{runtime.GOOS, runtime.GOARCH}
	const version = "v0.0.0-test"
	commit := strings.Repeat("c0ffee42", 5)

	var archives [2][]byte
	dirs := [2]string{filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "another", "place")}
	for i, dir := range dirs {
		copyModule(t, root, dir)
		// A date of the files on disk must not matter. It differs between the copies.
		date := when.Add(time.Duration(i+1) * 1000 * time.Hour)
		if err := os.Chtimes(filepath.Join(dir, "LICENSE"), date, date); err != nil {
			t.Fatal(err)
		}
		name, data, err := archive(t.Context(), dir, stamp{version, commit}, when, host)
		if err != nil {
			t.Fatal(err)
		}
		if want := "allod-" + version + "-" + host.goos + "-" + host.goarch; !strings.HasPrefix(name, want+".") {
			t.Errorf("the archive is called %s, want %s and an ending", name, want)
		}
		archives[i] = data
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two folders gave two archives: something of the folder is in the binary")
	}

	read := readTarGz
	if host.goos == "windows" {
		read = readZip
	}
	entries := read(t, archives[0])
	programs := host.programs()
	if len(entries) != len(programs)+len(documents) {
		t.Fatalf("the archive holds %d files, want %d", len(entries), len(programs)+len(documents))
	}
	var binaries string
	for _, program := range programs {
		at := slices.IndexFunc(entries, func(e entry) bool {
			return strings.TrimSuffix(path.Base(e.name), ".exe") == program && e.mode == 0o755
		})
		if at < 0 {
			t.Fatalf("the archive holds no %s that can be run", program)
		}
		if !strings.Contains(entries[at].data, version) {
			t.Errorf("the version is not in %s; is it still main.version?", program)
		}
		if program == "allod-node" && !strings.Contains(entries[at].data, commit) {
			t.Error("the commit is not in allod-node; is it still main.commit?")
		}
		binaries += entries[at].data
	}
	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{dirs[0], dirs[1], absolute, goEnv(t, "GOMODCACHE"), goEnv(t, "GOCACHE")} {
		if strings.Contains(binaries, folder+string(filepath.Separator)) {
			t.Errorf("a binary holds a path of this machine: %s", folder)
		}
	}
}

// copyModule copies the files of the module that belong to the repository.
func copyModule(t *testing.T, from, to string) {
	t.Helper()
	for _, name := range moduleFiles(t, from) {
		data, err := os.ReadFile(filepath.Join(from, name))
		if os.IsNotExist(err) {
			continue // removed, and git was not told yet
		}
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(target, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// moduleFiles asks git for the files. A source archive has no git; then it walks the folder.
func moduleFiles(t *testing.T, root string) []string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, ".git")); err == nil {
		cmd := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
		cmd.Dir = root
		if out, err := cmd.Output(); err == nil {
			return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
		}
	}
	var names []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{".git", "bin", "dist"}, name) {
			return filepath.SkipDir
		}
		if d.Type().IsRegular() {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(context.Background(), "go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func readTarGz(t *testing.T, data []byte) []entry {
	t.Helper()
	zr, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	var entries []entry
	for tr := tar.NewReader(zr); ; {
		header, err := tr.Next()
		if err == io.EOF {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, entry{header.Name, string(content), fs.FileMode(header.Mode), header.ModTime})
	}
}

func readZip(t *testing.T, data []byte) []entry {
	t.Helper()
	zr, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	var entries []entry
	for _, f := range zr.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, entry{f.Name, string(content), f.Mode(), f.Modified})
	}
	return entries
}
