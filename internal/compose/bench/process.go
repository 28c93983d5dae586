package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/allodhq/allod/refusal"
)

const (
	// startTime is how long a site may take to say where it listens.
	startTime = 30 * time.Second
	// stopTime is how long it may take to end, which is longer than it gives
	// requests that are under way.
	stopTime = 15 * time.Second
	// maxLine bounds its first line, and maxTail what is shown of its log.
	maxLine = 64 << 10
	maxTail = 2 << 10
)

// program is the command in a process of its own.
type program struct {
	cmd   *exec.Cmd
	ended chan struct{}
	once  sync.Once
}

// launch starts the command with these arguments in a folder, and returns when read
// has taken the first line that it writes. Its log is the file name.log there. A
// program that does not come up is refused as failed, and what it said is told.
func (w work) launch(ctx context.Context, name string, failed *refusal.Kind, read func(line []byte) error, args ...string) (*program, error) {
	logPath := filepath.Join(w.folder, name+".log")
	log, err := os.OpenFile(logPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, ErrFolder.Because(err)
	}
	defer log.Close()
	s := &program{ended: make(chan struct{}), cmd: exec.Command(w.program)}
	// Under this name the program is the command, whatever its file is called.
	s.cmd.Args = append([]string{"allod"}, args...)
	// The admin socket's path must be short, so it is a relative one.
	s.cmd.Dir, s.cmd.Stderr = w.folder, log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, failed.Because(err)
	}
	if err := s.cmd.Start(); err != nil {
		return nil, failed.Because(err)
	}
	// Whatever happens to this function, the process ends with the context.
	release := context.AfterFunc(ctx, s.end)
	late := time.AfterFunc(startTime, func() { _ = s.cmd.Process.Kill() })
	line := make(chan []byte, 1)
	go func() {
		defer close(s.ended)
		defer release()
		r := bufio.NewReaderSize(out, maxLine)
		first, _ := r.ReadSlice('\n') // what is no line is no JSON either
		line <- bytes.Clone(first)
		_, _ = io.Copy(io.Discard, r)
		_ = s.cmd.Wait()
	}()
	first := <-line
	if !late.Stop() {
		err = context.DeadlineExceeded
	}
	if err == nil {
		err = read(first)
	}
	if err != nil {
		s.end()
		if said := tail(logPath); said != "" {
			w.progress(said)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, failed.Because(err)
	}
	return s, nil
}

// work is where and with what programs are started.
type work struct {
	program  string
	folder   string
	progress func(line string)
}

// process is a site in a process of its own.
type process struct {
	*program
	url string
	app *app
}

// start starts a site on the folder of that name, and returns when it listens.
// It returns [ErrSite], having shown what the site said.
func (b *bench) start(ctx context.Context, name string) (*process, error) {
	s := &process{}
	var err error
	s.program, err = work{b.Program, b.folder, b.Progress}.launch(ctx, name, ErrSite, func(line []byte) error { return s.read(line, b.folder) },
		"site", "serve", "--data", name, "--listen", "127.0.0.1:0", "--limits", "off", "--json")
	if err != nil {
		if s.app != nil {
			s.app.close()
		}
		return nil, err
	}
	return s, nil
}

// read reads the first line of output, and the app key that it points to.
func (s *process) read(line []byte, folder string) error {
	var first struct {
		Listening  string `json:"listening"`
		AppKeyFile string `json:"appKeyFile"`
	}
	if err := json.Unmarshal(line, &first); err != nil {
		return err
	}
	if first.Listening == "" {
		return errors.New("bench: the site does not say where it listens")
	}
	path := first.AppKeyFile
	if !filepath.IsAbs(path) {
		path = filepath.Join(folder, path)
	}
	appKey, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	s.url = "http://" + first.Listening
	s.app = newApp(s.url, strings.TrimSpace(string(appKey)))
	return nil
}

// stop lets go of the site's connections, ends it and returns when it has ended.
// A second call does nothing.
func (s *process) stop() {
	if s.app != nil {
		s.app.close()
	}
	s.end()
}

// end ends the process and returns when it has ended.
func (s *program) end() {
	s.once.Do(func() {
		if runtime.GOOS == "windows" || s.cmd.Process.Signal(syscall.SIGTERM) != nil {
			_ = s.cmd.Process.Kill()
		}
		late := time.AfterFunc(stopTime, func() { _ = s.cmd.Process.Kill() })
		<-s.ended
		late.Stop()
	})
	<-s.ended
}

func (s *program) pid() int { return s.cmd.Process.Pid }

// state is how the process ended; it is there after stop.
func (s *program) state() *os.ProcessState { return s.cmd.ProcessState }

// tail is the end of a log.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text[max(0, len(text)-maxTail):]))
}
