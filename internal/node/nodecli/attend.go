package nodecli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/node/daemon"
	"github.com/allodhq/allod/refusal"
)

// Times of keeping the programs up.
const (
	// again is the pause before a program that ended is started again. It doubles up to
	// rarely, and is again that after a program that lived for as long as lived.
	again  = 250 * time.Millisecond
	rarely = 30 * time.Second
	lived  = time.Minute
	// gone is how long a program may take to end.
	gone = 12 * time.Second
	// look is how often it is asked for, where another process started it.
	look = 500 * time.Millisecond
	// stays is after how many looks it is said that such a program stays.
	stays = 4
	// starting is how long both programs may take to come up.
	starting = 15 * time.Second
)

// attendant keeps Spark and Pallet up, as processes of this same program.
type attendant struct {
	n       *node
	log     io.Writer
	release func()
	cancel  func()
	wg      sync.WaitGroup

	mu     sync.Mutex
	failed error // how a program ended last
}

// attend takes the node's folder and keeps both programs up until end. It returns
// datadir's refusals; datadir.ErrRunning where another process does that already.
func (n *node) attend(ctx context.Context, log io.Writer) (*attendant, error) {
	if err := datadir.Prepare(n.data); err != nil {
		return nil, err
	}
	release, err := datadir.Lock(n.data)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	a := &attendant{n: n, log: log, release: release, cancel: cancel}
	c := n.client()
	a.wg.Go(func() { a.tend(ctx, "pallet", c.Pallet) })
	a.wg.Go(func() { a.tend(ctx, "spark", c.Spark) })
	return a, nil
}

// end ends both programs and waits until they have.
func (a *attendant) end() {
	if a == nil {
		return
	}
	a.cancel()
	a.wg.Wait()
	a.release()
}

// why is how a program last ended by itself, or nil.
func (a *attendant) why() error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

// tend keeps one program up.
func (a *attendant) tend(ctx context.Context, name string, ask func(context.Context) (daemon.Status, error)) {
	pause := again
	others := 0 // looks at which a program answered that is none of ours
	log := slog.New(slog.NewTextHandler(a.log, nil)).With("program", "run")
	for ctx.Err() == nil {
		if _, err := ask(ctx); err == nil { // somebody else's, or one that is about to end
			if others++; others == stays {
				log.Warn("a program that another process started answers on the control socket, and is left alone", "name", name)
			}
			rest(ctx, look)
			continue
		}
		others = 0
		began := time.Now()
		err := a.once(ctx, name)
		if ctx.Err() != nil {
			return
		}
		a.mu.Lock()
		a.failed = err
		a.mu.Unlock()
		attrs := []any{"name", name, "refusal", refusal.From(err).Kind().Name()}
		if cause := errors.Unwrap(refusal.From(err)); cause != nil {
			attrs = append(attrs, "end", cause.Error()) // its exit code, or the signal
		}
		log.Warn("a program ended, and is started again", attrs...)
		if time.Since(began) > lived {
			pause = again
		}
		rest(ctx, pause)
		pause = min(2*pause, rarely)
	}
}

// once runs a program until it ends. Its standard input is how it knows that this
// process lives.
func (a *attendant) once(ctx context.Context, name string) error {
	self, err := os.Executable()
	if err != nil {
		return ErrChild.Because(err)
	}
	args := []string{os.Args[0], name, "--parent", "--json", "--data", a.n.data, "--socket", a.n.socket}
	if a.n.user {
		args = append(args, "--user")
	}
	said := &tail{next: a.log}
	c := &exec.Cmd{Path: self, Args: args, Stdout: said, Stderr: said, SysProcAttr: apart()}
	in, err := c.StdinPipe()
	if err != nil {
		return ErrChild.Because(err)
	}
	if err := c.Start(); err != nil {
		_ = in.Close()
		return ErrChild.Because(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	select {
	case err = <-done:
	case <-ctx.Done():
		_ = in.Close()
		_ = c.Process.Signal(syscall.SIGTERM)
		select {
		case err = <-done:
		case <-time.After(gone):
			_ = c.Process.Kill()
			err = <-done
		}
	}
	if refused := said.refusal(); err != nil && refused != nil {
		return refused
	}
	return ErrChild.Because(err)
}

// rest waits, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// maxTail is how much of what a program wrote is kept, in bytes.
const maxTail = 4 << 10

// tail passes on what is written and keeps the end of it.
type tail struct {
	next io.Writer

	mu   sync.Mutex
	last []byte
}

// Write keeps and passes on.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	t.last = append(t.last, b...)
	if over := len(t.last) - maxTail; over > 0 {
		t.last = append(t.last[:0], t.last[over:]...)
	}
	t.mu.Unlock()
	return t.next.Write(b)
}

// ended is what a command prints when it ends with a refusal, as far as it counts.
var ended = exact.Shape[string]{Unknown: exact.Drop, Fields: func(o *exact.Object, name *string) {
	exact.Text(o, "error", name, 1, 128)
}}

// refusal is that of the last line, or nil.
func (t *tail) refusal() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.last)), "\n")
	name, err := ended.Read([]byte(lines[len(lines)-1]), exact.Limits{Bytes: maxTail, Depth: 2, Values: 16})
	if err != nil {
		return nil
	}
	return daemon.Named(name, "")
}
