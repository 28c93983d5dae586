package repocheck

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// module is the path of this module.
const module = "github.com/allodhq/allod"

// systems are those that cmd/allod is built for. Rules about imports hold on each of them.
var systems = []string{"darwin", "linux", "windows"}

// A rule is what a test says when it fails.
type rule struct {
	broken string // what is wrong, in one sentence
	why    string // why it matters
	fix    string // what to do about it
}

// report fails the test once, with all problems under the rule they break.
func report(t *testing.T, r rule, problems []string) {
	t.Helper()
	if len(problems) == 0 {
		return
	}
	t.Errorf("%s\n  %s\nWhy: %s\nFix: %s", r.broken, strings.Join(problems, "\n  "), r.why, r.fix)
}

// mustFind is for controls: it fails unless exactly these problems were found, in any order.
// Each wanted text must be part of one problem.
func mustFind(t *testing.T, problems []string, want ...string) {
	t.Helper()
	rest := slices.Clone(problems)
	for _, w := range want {
		i := slices.IndexFunc(rest, func(p string) bool { return strings.Contains(p, w) })
		if i < 0 {
			t.Errorf("the check did not find %q", w)
			continue
		}
		rest = slices.Delete(rest, i, i+1)
	}
	for _, p := range rest {
		t.Errorf("the check complains without need: %s", p)
	}
}

// matches reports whether a path is matched by a pattern as the go command reads it:
// "a/..." is a and everything below it, "a" is a alone.
func matches(pattern, path string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == base || strings.HasPrefix(path, base+"/")
	}
	return path == pattern
}

// local returns the path of a package inside this module.
func local(importPath string) (string, bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// root is the folder of the module. Tests run in their package's folder.
var root = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return "", err
	}
	_, err = os.Stat(filepath.Join(dir, "go.mod"))
	return dir, err
})

// A listed package is one that "go list" printed. The field names are those of go list.
type listed struct {
	ImportPath   string
	Name         string
	Dir          string
	Standard     bool
	Export       string
	Module       *struct{ Path string }
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
	Deps         []string
}

// listing is every package of the module and all they import, for each system.
// It is made once for all tests, since it takes most of the time.
var listing = sync.OnceValues(func() (map[string][]listed, error) {
	all := map[string][]listed{}
	for _, goos := range systems {
		pkgs, err := goList(goos, "-deps")
		if err != nil {
			return nil, err
		}
		all[goos] = pkgs
	}
	return all, nil
})

func mustList(t *testing.T) map[string][]listed {
	t.Helper()
	all, err := listing()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// goList runs "go list" over the module. An empty system is the one of the machine.
func goList(goos string, flags ...string) ([]listed, error) {
	dir, err := root()
	if err != nil {
		return nil, err
	}
	if err := touchTree(); err != nil {
		return nil, err
	}
	args := append([]string{"list", "-json=ImportPath,Name,Dir,Standard,Export,Module,GoFiles,TestGoFiles,XTestGoFiles,Imports,Deps"}, flags...)
	cmd := exec.Command("go", append(args, "./...")...)
	cmd.Dir = dir
	// Releases are built without cgo, so the rules are about that build.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if goos != "" {
		cmd.Env = append(cmd.Env, "GOOS="+goos)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list fails, so nothing can be checked; does every package compile?\n%s%w", stderr.String(), err)
	}
	var pkgs []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			return pkgs, nil
		} else if err != nil {
			return nil, err
		}
		pkgs = append(pkgs, p)
	}
}

// touchTree reads every folder of the repository.
// Go reuses the result of a test whose files did not change, and it sees only files that the test
// itself opened, not those that "go list" and git read. Reading a folder counts as reading the names,
// sizes and times of all that is in it, so after this any change makes the tests run again.
var touchTree = sync.OnceValue(func() error {
	dir, err := root()
	if err != nil {
		return err
	}
	return walk(dir, func(string) {})
})

// walk calls f with the path of every file below dir, in slashes.
// It leaves out git's own folder and the top folders that .gitignore names.
func walk(dir string, f func(name string)) error {
	skip := []string{".git"}
	ignored, err := os.ReadFile(filepath.Join(dir, ".gitignore"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for line := range strings.Lines(string(ignored)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "/") && strings.HasSuffix(line, "/") {
			skip = append(skip, strings.Trim(line, "/"))
		}
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if slices.Contains(skip, name) {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if d.Type().IsRegular() {
			f(name)
		}
		return nil
	})
}

// tracked is the name of every file that belongs to the repository, in slashes and sorted:
// what git tracks, and what it would track after "git add". Without git it is every file.
var tracked = sync.OnceValues(func() ([]string, error) {
	dir, err := root()
	if err != nil {
		return nil, err
	}
	if err := touchTree(); err != nil {
		return nil, err
	}
	var names []string
	// Only a repository of our own counts. An unpacked source archive may lie inside some other one.
	if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
		cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
		cmd.Dir = dir
		if out, err := cmd.Output(); err == nil {
			for name := range strings.SplitSeq(string(out), "\x00") {
				info, err := os.Lstat(filepath.Join(dir, name))
				if name != "" && err == nil && info.Mode().IsRegular() {
					names = append(names, name)
				}
			}
		}
	}
	if names == nil {
		if err := walk(dir, func(name string) { names = append(names, name) }); err != nil {
			return nil, err
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
})

func mustTracked(t *testing.T) []string {
	t.Helper()
	names, err := tracked()
	if err != nil {
		t.Fatal(err)
	}
	if len(names) == 0 {
		t.Fatal("the repository seems to have no files")
	}
	return names
}

// readTracked returns the content of a file of the repository.
func readTracked(t *testing.T, name string) []byte {
	t.Helper()
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A source is a parsed Go file of the repository.
type source struct {
	name string // in slashes, from the root
	file *ast.File
}

// dir is the folder of the file, which is also the path of its package inside the module.
func (s source) dir() string { return path.Dir(s.name) }

// A code base is parsed files with the positions they share.
type codebase struct {
	fset    *token.FileSet
	sources []source
}

// code is every Go file of the repository that is neither a test nor test data.
// It is parsed without regard to build tags: a rule must not end at the edge of a system.
var code = sync.OnceValues(func() (codebase, error) {
	names, err := tracked()
	if err != nil {
		return codebase{}, err
	}
	dir, err := root()
	if err != nil {
		return codebase{}, err
	}
	c := codebase{fset: token.NewFileSet()}
	for _, name := range names {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || inTestdata(name) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return codebase{}, err
		}
		if err := c.add(name, data); err != nil {
			return codebase{}, err
		}
	}
	return c, nil
})

func mustCode(t *testing.T) codebase {
	t.Helper()
	c, err := code()
	if err != nil {
		t.Fatal(err)
	}
	if len(c.sources) == 0 {
		t.Fatal("the repository seems to have no Go code")
	}
	return c
}

func (c *codebase) add(name string, src []byte) error {
	f, err := parser.ParseFile(c.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	c.sources = append(c.sources, source{name, f})
	return nil
}

// at is a position as people write it: file and line.
func (c codebase) at(n ast.Node) string {
	p := c.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// parse makes a code base of texts, for controls. The keys are file names.
func parse(t *testing.T, files map[string]string) codebase {
	t.Helper()
	c := codebase{fset: token.NewFileSet()}
	for name, src := range files {
		if err := c.add(name, []byte(src)); err != nil {
			t.Fatal(err)
		}
	}
	slices.SortFunc(c.sources, func(a, b source) int { return strings.Compare(a.name, b.name) })
	return c
}

// inTestdata reports whether a file is test data, which no rule about our own code is for.
func inTestdata(name string) bool { return slices.Contains(strings.Split(name, "/"), "testdata") }

// A typed package is a package of this module with its types.
type typed struct {
	path  string // inside the module
	pkg   *types.Package
	info  *types.Info
	files []*ast.File
}

// A program is typed packages with the positions they share.
type program struct {
	fset *token.FileSet
	pkgs []typed
}

// loaded is every package of the module with its types, on the system of this machine.
// Our packages are checked from source, so that unexported types are there as well.
// What they import comes from export data, which the go command builds and caches.
var loaded = sync.OnceValues(func() (program, error) {
	pkgs, err := exported()
	if err != nil {
		return program{}, err
	}
	prog := program{fset: token.NewFileSet()}
	imports := exportImporter(prog.fset, pkgs)
	for _, p := range pkgs {
		name, ours := local(p.ImportPath)
		if !ours || len(p.GoFiles) == 0 {
			continue
		}
		srcs := map[string][]byte{}
		for _, file := range p.GoFiles {
			data, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				return program{}, err
			}
			srcs[path.Join(name, file)] = data
		}
		if err := prog.check(p.ImportPath, srcs, imports); err != nil {
			return program{}, err
		}
	}
	return prog, nil
})

func mustLoad(t *testing.T) program {
	t.Helper()
	prog, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	return prog
}

// exported is every package with its export data, on the system of this machine.
// The go command builds what it has not built yet, which is why this is made once as well.
var exported = sync.OnceValues(func() ([]listed, error) { return goList("", "-deps", "-export") })

// exportImporter reads packages from their export data.
func exportImporter(fset *token.FileSet, pkgs []listed) types.Importer {
	exports := map[string]string{}
	for _, p := range pkgs {
		exports[p.ImportPath] = p.Export
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		file := exports[path]
		if file == "" {
			return nil, fmt.Errorf("no export data for %s", path)
		}
		return os.Open(file)
	})
}

// check adds a package to the program. The keys of srcs are file names.
func (prog *program) check(importPath string, srcs map[string][]byte, imports types.Importer) error {
	name, _ := local(importPath)
	p := typed{path: name, info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{},
		Defs:  map[*ast.Ident]types.Object{},
	}}
	for _, file := range slices.Sorted(maps.Keys(srcs)) {
		f, err := parser.ParseFile(prog.fset, file, srcs[file], parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		p.files = append(p.files, f)
	}
	config := types.Config{Importer: imports}
	pkg, err := config.Check(importPath, prog.fset, p.files, p.info)
	if err != nil {
		return err
	}
	p.pkg = pkg
	prog.pkgs = append(prog.pkgs, p)
	return nil
}

// at is a position as people write it: file and line.
func (prog program) at(pos token.Pos) string {
	p := prog.fset.Position(pos)
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// A text is the source of one package, for controls.
type text struct{ path, src string } // the path is inside the module

// compile makes a program of texts, for controls. A text may import those before it.
// It may also import whatever this module imports, since the export data is there.
func compile(t *testing.T, texts ...text) program {
	t.Helper()
	pkgs, err := exported()
	if err != nil {
		t.Fatal(err)
	}
	prog := program{fset: token.NewFileSet()}
	imports := &layered{below: exportImporter(prog.fset, pkgs), pkgs: map[string]*types.Package{}}
	for _, tx := range texts {
		importPath := module + "/" + tx.path
		srcs := map[string][]byte{tx.path + "/control.go": []byte(tx.src)}
		if err := prog.check(importPath, srcs, imports); err != nil {
			t.Fatal(err)
		}
		imports.pkgs[importPath] = prog.pkgs[len(prog.pkgs)-1].pkg
	}
	return prog
}

// layered imports the packages of a control first, and real ones below them.
type layered struct {
	below types.Importer
	pkgs  map[string]*types.Package
}

func (l *layered) Import(path string) (*types.Package, error) {
	if p := l.pkgs[path]; p != nil {
		return p, nil
	}
	return l.below.Import(path)
}
