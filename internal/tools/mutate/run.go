package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// workers is how many tests run, or are compiled, at once.
const workers = 2

// patience bounds every run of a test that has no timeout of its own.
const patience = 2 * time.Minute

// A verdict is how a run of a test ended.
type verdict string

// The verdicts. Only red and late prove anything, and late only where the list allows it.
const (
	red     verdict = "red"
	late    verdict = "red by its timeout"
	green   verdict = "SURVIVED"
	noBuild verdict = "DOES NOT BUILD"
	stuck   verdict = "TIMED OUT"
	died    verdict = "DIED WITHOUT A FAILED TEST"
	noTest  verdict = "NO SUCH TEST"
	unmade  verdict = "NOT MADE" // the change could not be made
	already verdict = "RED WITHOUT IT"
)

// An outcome is a verdict with what the go command printed.
type outcome struct {
	verdict verdict
	output  string // the end of it
	took    time.Duration
}

// prove compiles every test with all changes that can be compiled together, runs it without a change,
// then with each, and prints a table. A change that needs a binary of its own gets one. It returns an
// error unless every mutation turned its test red.
func prove(ctx context.Context, out io.Writer, root string, proofs []proof, verbose bool) error {
	begin := time.Now()
	temp, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }()

	var list []mutation
	var targets []target
	var packages []string
	wide := 0
	seen := map[target]int{}
	for _, p := range proofs {
		for _, m := range p.mutations {
			list = append(list, m)
			wide = max(wide, len(m.name()))
			if _, ok := seen[m.target]; !ok {
				seen[m.target] = len(targets)
				targets = append(targets, m.target)
			}
			if !slices.Contains(packages, m.target.pkg) {
				packages = append(packages, m.target.pkg)
			}
		}
	}

	binaries, together, err := buildTogether(ctx, root, temp, list, packages)
	if err != nil {
		return err
	}
	of := func(t target) binary { return binaries[slices.Index(packages, t.pkg)] }

	// Without a change first: what is red anyway proves nothing.
	before := make([]outcome, len(targets))
	each(len(targets), func(i int) { before[i] = targets[i].run(ctx, of(targets[i]), "") }, func(int) {})
	after := make([]outcome, len(list))
	bad := 0
	each(len(list), func(i int) {
		m, b := list[i], of(list[i].target)
		if was := before[seen[m.target]]; was.verdict != green {
			if after[i] = was; was.verdict == red {
				after[i].verdict = already
			}
			return
		}
		if together[i] && !b.plain {
			after[i] = m.judge(m.target.run(ctx, b, fmt.Sprint(i)))
			return
		}
		after[i] = m.try(ctx, root, filepath.Join(temp, fmt.Sprint(i)))
	}, func(i int) {
		o := after[i]
		fmt.Fprintf(out, "%-*s  %5.1fs  %s\n", wide, list[i].name(), o.took.Seconds(), o.verdict)
		if o.verdict != red && o.verdict != late {
			bad++
		}
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	for i, m := range list {
		if o := after[i]; verbose || o.verdict != red && o.verdict != late {
			fmt.Fprintf(out, "\n%s: %s: %s\n  go test %s -run '%s'\n%s\n", m.where(), m.name(), o.verdict, m.target.pkg, m.target.pattern, indent(o.output))
		}
	}
	fmt.Fprintf(out, "\n%d mutations, %d of them red, in %s.\n",
		len(list), len(list)-bad, time.Since(begin).Round(time.Second))
	if bad > 0 {
		return fmt.Errorf("%d mutations prove nothing", bad)
	}
	return nil
}

// buildTogether compiles the tests of the packages with all mutations that can be compiled together, and
// says which these are. Those that the compiler does not take are left out, and show by themselves why.
func buildTogether(ctx context.Context, root, temp string, list []mutation, packages []string) ([]binary, []bool, error) {
	binaries := make([]binary, len(packages))
	out := map[int]bool{}
	for round := 0; ; round++ {
		joint := newMerger(root)
		together := make([]bool, len(list))
		for i, m := range list {
			together[i] = !out[i] && joint.add(i, m)
		}
		overlay, err := writeOverlay(root, filepath.Join(temp, fmt.Sprintf("joint%d", round)), joint.texts())
		if err != nil {
			return nil, nil, err
		}
		each(len(packages), func(i int) {
			binaries[i] = build(ctx, root, packages[i], overlay, filepath.Join(temp, fmt.Sprintf("test%d.exe", i)))
		}, func(int) {})
		before := len(out)
		for _, b := range binaries {
			for _, n := range guilty(b.said) {
				out[n] = true
			}
		}
		if ctx.Err() == nil && len(out) > before {
			continue
		}
		// What is left does not compile for another reason, and perhaps not without a change either.
		each(len(packages), func(i int) {
			if binaries[i].file == "" {
				binaries[i] = build(ctx, root, packages[i], "", binaries[i].name)
				binaries[i].plain = true
			}
		}, func(int) {})
		return binaries, together, nil
	}
}

// each calls do for 0 to n-1, a few at once, and shown in order as soon as each is done.
func each(n int, do, shown func(i int)) {
	todo := make(chan int)
	done := make([]chan struct{}, n)
	for i := range done {
		done[i] = make(chan struct{})
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range todo {
				do(i)
				close(done[i])
			}
		})
	}
	wg.Go(func() {
		for i := range n {
			todo <- i
		}
		close(todo)
	})
	for i := range done {
		<-done[i]
		shown(i)
	}
	wg.Wait()
}

// try compiles the change alone and runs its test. dir is a folder for what that needs, which is made.
func (m mutation) try(ctx context.Context, root, dir string) outcome {
	mutated, err := m.mutate(root)
	if err != nil {
		return outcome{verdict: unmade, output: err.Error()}
	}
	overlay, err := writeOverlay(root, dir, map[string]string{m.file: mutated})
	if err != nil {
		return outcome{verdict: unmade, output: err.Error()}
	}
	begin := time.Now()
	o := m.judge(m.target.run(ctx, build(ctx, root, m.target.pkg, overlay, filepath.Join(dir, "test.exe")), ""))
	o.took = time.Since(begin)
	return o
}

// judge takes running out of time for red where the list says so.
func (m mutation) judge(o outcome) outcome {
	if o.verdict == stuck && m.target.timeout > 0 {
		o.verdict = late
	}
	return o
}

// writeOverlay writes texts into a folder, which is made, and the file that tells the go command to take
// them for the files of those names.
func writeOverlay(root, dir string, texts map[string]string) (name string, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range texts {
		to := filepath.Join(dir, fmt.Sprintf("%d-%s", len(replace), path.Base(file)))
		replace[filepath.Join(root, filepath.FromSlash(file))] = to
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	name = filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, text, 0o600)
}

// A binary is a compiled test.
type binary struct {
	name  string // where it should be; one system wants .exe, and the others do not mind
	file  string // where it is; empty where it does not compile
	dir   string // of its package
	plain bool   // it has no change in it
	said  string // by the compiler
}

// build compiles the tests of a package, with an overlay or none.
func build(ctx context.Context, root, pkg, overlay, name string) binary {
	args := []string{"test", "-c", "-vet=off", "-o", name}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	// As go test does for a binary that it runs itself: without what only a debugger reads.
	cmd := exec.CommandContext(ctx, "go", append(args, "-ldflags=-s -w", pkg)...)
	cmd.Dir = root
	said, err := cmd.CombinedOutput()
	b := binary{name: name, dir: filepath.Join(root, filepath.FromSlash(pkg)), said: string(said)}
	if _, gone := os.Stat(name); err == nil && gone == nil {
		b.file = name
	}
	return b
}

// run runs the test, with the change of that number or with none.
func (t target) run(ctx context.Context, b binary, number string) outcome {
	if b.file == "" {
		return outcome{verdict: noBuild, output: b.said}
	}
	limit := t.timeout
	if limit == 0 {
		limit = patience
	}
	begin := time.Now()
	// The marks of test2json tell what the testing package says from what tests print.
	cmd := exec.CommandContext(ctx, b.file, "-test.v=test2json", "-test.paniconexit0", "-test.timeout="+limit.String(), "-test.run="+t.pattern)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), switchEnv+"="+number)
	cmd.WaitDelay = 5 * time.Second
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	read := make(chan report)
	go func() { read <- readReport(r) }()
	err := cmd.Run()
	_ = w.Close()
	rep := <-read
	return outcome{verdict: rep.verdict(err == nil, strings.Count(t.pattern, "/")), output: rep.tail, took: time.Since(begin)}
}

// A report is what a test says of its run.
type report struct {
	deepest int  // how many names the longest name of a test that ran has
	failed  bool // a test did
	stuck   bool
	tail    string // the end of the output
}

// maxTail bounds what is kept of the output, in bytes.
const maxTail = 4 << 10

// mark stands before what the testing package says of a test.
const mark = "\x16"

// readReport reads what a test prints.
func readReport(from io.Reader) (r report) {
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadString('\n')
		if printed, said, marked := strings.Cut(line, mark); marked {
			line = printed + said
			if name, ok := strings.CutPrefix(said, "=== RUN "); ok {
				r.deepest = max(r.deepest, 1+strings.Count(name, "/"))
			}
			r.failed = r.failed || strings.HasPrefix(strings.TrimLeft(said, " "), "--- FAIL: ")
		}
		r.stuck = r.stuck || strings.HasPrefix(line, "panic: test timed out after ")
		r.tail += line
		if len(r.tail) > maxTail {
			r.tail = "..." + r.tail[len(r.tail)-maxTail+3:]
		}
		if err != nil {
			return r
		}
	}
}

// verdict judges a run. slashes is how many the pattern has: a test without the named subtests passes,
// and has shown nothing.
func (r report) verdict(ok bool, slashes int) verdict {
	switch {
	case ok && r.deepest <= slashes:
		return noTest
	case ok:
		return green
	case r.failed:
		return red
	case r.stuck:
		return stuck
	}
	return died
}
