package program

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

const (
	// runPrefix begins the name of a run's folder.
	runPrefix = "allod-run-"
	// killAfter is how long a program has to end by itself when it is asked to, and
	// how long the pipes have to empty when it is gone.
	killAfter = 2 * time.Second
	// maxErr is what is kept of a program's standard error, in bytes. Nothing of it
	// is shown or sent: it only tells kinds of failure apart.
	maxErr = 8 << 10
)

// job is what is asked of a program.
type job struct {
	args          []string
	stdin         string
	time, silence time.Duration
	// max bounds the standard output in bytes.
	max int
}

// ended is how a program ended that was not stopped.
type ended struct {
	out []byte
	// err is the beginning of its standard error.
	err string
	// code is zero for success, and -1 for a program that a signal ended.
	code int
	// unread says that it did not read all of its standard input.
	unread bool
}

// start runs the program once, from a fresh folder to the last of its
// processes. It returns [ErrScratch], [ErrWalls], [ErrStart], [ErrTime],
// [ErrSilent], [ErrTooLarge], or context.Canceled where the caller gave up.
func (p *Program) start(ctx context.Context, j job) (ended, error) {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ended{}, context.Canceled
	case ctx.Err() != nil || j.time <= 0:
		return ended{}, ErrTime
	}
	scratch, err := os.MkdirTemp(p.scratch, runPrefix)
	if err != nil {
		return ended{}, ErrScratch.Because(err)
	}
	defer removeAll(scratch)
	// A link in its path would have other names than the processes see.
	if scratch, err = filepath.EvalSymlinks(scratch); err == nil {
		scratch, err = filepath.Abs(scratch)
	}
	if err != nil {
		return ended{}, ErrScratch.Because(err)
	}

	var pipes [3][2]*os.File
	closeAll := func(files ...*os.File) {
		for _, f := range files {
			_ = f.Close()
		}
	}
	for i := range pipes {
		r, w, err := os.Pipe()
		if err != nil {
			for _, pair := range pipes[:i] {
				closeAll(pair[:]...)
			}
			return ended{}, ErrStart.Because(err)
		}
		pipes[i] = [2]*os.File{r, w}
	}
	in, out, errs := pipes[0], pipes[1], pipes[2]
	cmd := exec.Command(p.command.path, slices.Concat(p.command.args, j.args)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in[0], out[1], errs[1]
	cmd.Dir = scratch
	cmd.Env = withScratch(p.env, scratch, runtime.GOOS)
	prepare(cmd)
	if p.confine != nil {
		if err := p.confine(cmd, p.needs(scratch)); err != nil {
			closeAll(slices.Concat(in[:], out[:], errs[:])...)
			return ended{}, ErrWalls.Because(err)
		}
	}
	g, err := launch(cmd)
	closeAll(out[1], errs[1])
	if err != nil {
		closeAll(in[0], in[1], out[0], errs[0])
		return ended{}, ErrStart.Because(err)
	}

	alive := make(chan struct{}, 1)
	flooded := make(chan struct{})
	stdout := &keeper{max: j.max, alive: alive, over: flooded}
	stderr := &keeper{max: maxErr, alive: alive}
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		other := make(chan struct{})
		go func() {
			defer close(other)
			_, _ = io.Copy(stderr, errs[0])
		}()
		_, _ = io.Copy(stdout, out[0])
		<-other
	}()
	writing := make(chan struct{})
	go func() {
		defer close(writing)
		_, _ = io.WriteString(in[1], j.stdin)
		_ = in[1].Close()
	}()

	stopped := watch(ctx, g, j, alive, flooded)
	if stopped != nil {
		g.ask()
		select {
		case <-g.exited:
		case <-time.After(killAfter):
			g.kill()
			<-g.exited
		}
	}
	g.kill() // what it left behind
	sweep(scratch)
	code := g.finish()

	// The pipe's reading end is ours too, so what is still in it was not read. The
	// writer ends as this empties it.
	left, _ := io.Copy(io.Discard, in[0])
	<-writing
	closeAll(in[0])
	select {
	case <-reading:
	case <-time.After(killAfter): // a process that got away holds them open
	}
	closeAll(out[0], errs[0])
	<-reading
	switch {
	case stopped != nil:
		return ended{}, stopped
	case stdout.full:
		return ended{}, ErrTooLarge
	}
	return ended{out: stdout.text, err: strings.ToValidUTF8(string(stderr.text), "\uFFFD"), code: code, unread: left > 0}, nil
}

// watch waits until the program ends, or is to end, and says why in the second
// case.
func watch(ctx context.Context, g *group, j job, alive, flooded <-chan struct{}) error {
	end := time.NewTimer(j.time)
	defer end.Stop()
	silence := time.NewTimer(j.silence)
	defer silence.Stop()
	for {
		select {
		case <-g.exited:
			return nil
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return context.Canceled
			}
			return ErrTime
		case <-end.C:
			return ErrTime
		case <-silence.C:
			return ErrSilent
		case <-flooded:
			return ErrTooLarge
		case <-alive:
			silence.Reset(j.silence)
		}
	}
}

// keeper keeps the beginning of what is written to it and tells of signs of
// life.
type keeper struct {
	text  []byte
	max   int
	full  bool
	alive chan<- struct{}
	// over is closed when there is more than max; nil where nobody asks.
	over chan struct{}
}

// Write takes everything.
func (k *keeper) Write(b []byte) (int, error) {
	select {
	case k.alive <- struct{}{}:
	default:
	}
	fits := min(len(b), k.max-len(k.text))
	k.text = append(k.text, b[:fits]...)
	if fits < len(b) && !k.full {
		k.full = true
		if k.over != nil {
			close(k.over)
		}
	}
	return len(b), nil
}

// needs is what walls must let through.
func (p *Program) needs(scratch string) Needs {
	n := Needs{Read: p.below(p.tool.settings), Write: append([]string{scratch}, p.below(p.tool.login)...)}
	files := append([]string{p.command.path}, p.command.args...)
	for i := 0; i < len(files); i++ {
		real, err := filepath.EvalSymlinks(files[i])
		if err != nil {
			continue
		}
		n.Run = append(n.Run, p.installed(real))
		if ext := filepath.Ext(real); i == 0 && (ext == ".js" || ext == ".cjs" || ext == ".mjs") {
			if node, err := find("node", p.dirs); err == nil {
				files = append(files, node.path)
			}
		}
	}
	return n
}

// installed is the folder with all of a program: the one that it is in, or the
// one that its package manager keeps it and what it depends on in. Of a program
// that lies in the home itself it is the file alone: the rest is the owner's.
func (p *Program) installed(file string) string {
	modules := string(filepath.Separator) + "node_modules"
	if before, _, ok := strings.Cut(file, modules+string(filepath.Separator)); ok {
		return before + modules
	}
	dir := filepath.Dir(file)
	if p.home == "" {
		return dir
	}
	for _, home := range []string{p.home, resolved(p.home)} {
		if rel, err := filepath.Rel(dir, home); err == nil && filepath.IsLocal(rel) {
			return file
		}
	}
	return dir
}

// resolved is where a path leads, or the path where that is not known.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}

// removeAll removes a run's folder, also one whose parts the program closed.
func removeAll(scratch string) {
	if os.RemoveAll(scratch) == nil {
		return
	}
	root, err := os.OpenRoot(scratch)
	if err != nil {
		return
	}
	defer root.Close()
	// A folder is opened before it is listed, so that the walk reaches what is in
	// it. The root follows no link out of itself.
	_ = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = root.Chmod(path, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(scratch)
}
