package service

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"time"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/httpd"
)

// State is how the service is.
type State string

// The states.
const (
	NotInstalled State = "not-installed"
	// Stopped means that it is installed and not running.
	Stopped State = "stopped"
	// Failed means that it is not running and will not be started again by itself.
	Failed State = "failed"
	// Restarting means that it begins, or waits to be started again after a
	// failure.
	Restarting State = "restarting"
	Running    State = "running"
)

// Status is what is known of the service.
type Status struct {
	State State `json:"state"`
	// File is the definition, and Log where the agent's log is; both are empty
	// where there is none.
	File string `json:"file,omitzero"`
	Log  string `json:"log,omitzero"`
	Spec Spec   `json:"spec,omitzero"`
}

// Report is what an owner is told about a change.
type Report struct {
	// File is the definition.
	File string `json:"file"`
	// Definition is what stands in it now; empty where it was taken away.
	Definition string `json:"definition,omitzero"`
	// Was is new, unchanged or replaced; empty where it was taken away.
	Was string `json:"was,omitzero"`
	// Notes are whole sentences that the owner must know.
	Notes []string `json:"notes"`
}

// LogFile is the agent's log in its folder where the manager keeps none.
const LogFile = "service.log"

// run runs a program of the system to its end and returns what it wrote.
type run func(ctx context.Context, program string, words ...string) ([]byte, error)

// platform is one kind of service manager.
type platform interface {
	// file is where the definition stands.
	file() string
	write(ctx context.Context, spec Spec) []byte
	// read understands what write wrote, and nothing that was changed since where
	// it says what is started.
	read(text []byte) (Spec, bool)
	// begin returns ErrNoManager.
	begin(ctx context.Context) error
	// installed tells the manager of a definition, removing that it goes, and
	// removed that it is gone. Notes are for the owner.
	installed(ctx context.Context) (notes []string, err error)
	removing(ctx context.Context) error
	removed(ctx context.Context) (notes []string, err error)
	start(ctx context.Context) error
	stop(ctx context.Context) error
	state(ctx context.Context, spec Spec) (State, error)
	environment(ctx context.Context) (map[string]string, error)
	log(spec Spec) string
}

// Manager is the service manager of this user.
type Manager struct {
	platform platform
	root     bool
	// judge says whether a program may be started by a service.
	judge func(path string) error
	// answers reports whether an agent answers in a folder.
	answers func(ctx context.Context, home string) bool
}

// New finds the service manager of this system. Nothing is asked of it yet. It
// returns [ErrSystem] where none is known.
func New() (*Manager, error) {
	u, err := user.Current()
	if err != nil {
		return nil, ErrSystem.Because(err)
	}
	config, err := os.UserConfigDir()
	if err != nil {
		return nil, ErrSystem.Because(err)
	}
	m := &Manager{root: os.Geteuid() == 0, judge: CheckProgram, answers: Answers}
	switch runtime.GOOS {
	case "linux":
		m.platform = systemd{run: execute, units: filepath.Join(config, "systemd", "user"), user: u.Username}
	case "darwin":
		m.platform = launchd{run: execute, agents: filepath.Join(u.HomeDir, "Library", "LaunchAgents"), uid: os.Getuid()}
	case "windows":
		m.platform = tasks{run: execute, folder: filepath.Join(config, "allod-service"), account: u.Username, answers: Answers}
	default:
		return nil, ErrSystem
	}
	return m, nil
}

// orderTime bounds what one order to a manager takes: stopping an agent is the
// longest.
const orderTime = 100 * time.Second

// maxOutput bounds what is read of a program's words, in bytes.
const maxOutput = 256 << 10

// execute runs a program with no input.
func execute(ctx context.Context, program string, words ...string) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, orderTime)
	defer cancel()
	cmd := exec.CommandContext(limited, program, words...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.WaitDelay = time.Second
	var out bounded
	cmd.Stdout = &out
	err := cmd.Run()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return out.kept, err
}

// bounded keeps the beginning of what is written.
type bounded struct{ kept []byte }

func (b *bounded) Write(p []byte) (int, error) {
	b.kept = append(b.kept, p[:min(len(p), maxOutput-len(b.kept))]...)
	return len(p), nil
}

// Answers reports whether an agent answers on the admin socket of its folder.
func Answers(ctx context.Context, home string) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/health", nil)
	if err != nil {
		return false
	}
	resp, err := httpd.AdminClient(home).Do(q)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return true
}

// Installed reads the definition. There is none where ok is false. It returns
// [ErrForeign] for one that Allod did not write.
func (m *Manager) Installed() (spec Spec, ok bool, err error) {
	spec, text, err := m.definition()
	return spec, text != nil, err
}

// maxDefinition is larger than any that is written.
const maxDefinition = 1 << 20

func (m *Manager) definition() (Spec, []byte, error) {
	text, err := datadir.Read(m.platform.file(), maxDefinition)
	if errors.Is(err, fs.ErrNotExist) {
		return Spec{}, nil, nil
	}
	if err != nil {
		return Spec{}, nil, ErrForeign.Because(err)
	}
	spec, ok := m.platform.read(text)
	if !ok || spec.check() != nil {
		return Spec{}, nil, ErrForeign
	}
	return spec, text, nil
}

// Status looks at the service. Where none is installed nobody is asked. It
// returns [ErrForeign] and [ErrNoManager].
func (m *Manager) Status(ctx context.Context) (Status, error) {
	spec, ok, err := m.Installed()
	if err != nil {
		return Status{}, err
	}
	if !ok {
		return Status{State: NotInstalled}, nil
	}
	s := Status{File: m.platform.file(), Log: m.platform.log(spec), Spec: spec}
	s.State, err = m.platform.state(ctx, spec)
	return s, err
}

// Install writes the definition, in the place of an earlier one of ours, and
// tells the manager. A service that runs goes on as it was started. It returns
// [ErrRoot], the refusals of [CheckProgram], [ErrPath], [ErrNoManager],
// [ErrForeign], [ErrManager] and datadir.ErrWrite.
func (m *Manager) Install(ctx context.Context, spec Spec) (Report, error) {
	if m.root {
		return Report{}, ErrRoot
	}
	if err := m.judge(spec.Program); err != nil {
		return Report{}, err
	}
	if err := spec.check(); err != nil {
		return Report{}, err
	}
	if err := m.platform.begin(ctx); err != nil {
		return Report{}, err
	}
	_, before, err := m.definition()
	if err != nil {
		return Report{}, err
	}
	file, text := m.platform.file(), m.platform.write(ctx, spec)
	r := Report{File: file, Definition: string(text), Was: "new", Notes: []string{}}
	switch {
	case bytes.Equal(before, text):
		r.Was = "unchanged"
	case before != nil:
		r.Was = "replaced"
	}
	if r.Was != "unchanged" {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return Report{}, datadir.ErrWrite.Because(err)
		}
		if err := datadir.Replace(file, text); err != nil {
			return Report{}, err
		}
	}
	notes, err := m.platform.installed(ctx)
	if err != nil {
		return Report{}, err
	}
	r.Notes = append(r.Notes, notes...)
	return r, nil
}

// Uninstall stops the service and takes its definition away. The agent's folder
// stays. It returns [ErrRoot], [ErrAbsent], [ErrForeign], [ErrNoManager] and
// [ErrManager].
func (m *Manager) Uninstall(ctx context.Context) (Report, error) {
	if _, err := m.mine(ctx); err != nil {
		return Report{}, err
	}
	if err := m.platform.removing(ctx); err != nil {
		return Report{}, err
	}
	file := m.platform.file()
	if err := os.Remove(file); err != nil {
		return Report{}, ErrManager.Because(err)
	}
	notes, err := m.platform.removed(ctx)
	if err != nil {
		return Report{}, err
	}
	return Report{File: file, Notes: append([]string{}, notes...)}, nil
}

// mine is the installed service of an ordinary user whose manager answers.
func (m *Manager) mine(ctx context.Context) (Spec, error) {
	if m.root {
		return Spec{}, ErrRoot
	}
	spec, ok, err := m.Installed()
	if err != nil {
		return Spec{}, err
	}
	if !ok {
		return Spec{}, ErrAbsent
	}
	return spec, m.platform.begin(ctx)
}

// How long an agent is waited for, and how often it is looked at.
const (
	startTime = time.Minute
	stopTime  = 90 * time.Second
	lookEvery = 100 * time.Millisecond
	// settleTime is how long a manager may take to begin.
	settleTime = 10 * time.Second
)

// Start starts the service and returns when its agent answers; already says that
// it ran. It returns what [Manager.Uninstall] does, the refusals of
// [CheckProgram], [ErrElsewhere] where another agent has the folder, [ErrEnded]
// and [ErrSilent].
func (m *Manager) Start(ctx context.Context) (already bool, err error) {
	spec, err := m.mine(ctx)
	if err != nil {
		return false, err
	}
	state, err := m.platform.state(ctx, spec)
	switch {
	case err != nil:
		return false, err
	case state == Running && m.answers(ctx, spec.Home):
		return true, nil
	case state != Running && m.answers(ctx, spec.Home):
		return false, ErrElsewhere
	}
	if err := m.judge(spec.Program); err != nil {
		return false, err
	}
	if state != Running { // else it is just beginning
		if err := m.platform.start(ctx); err != nil {
			if state, _ := m.platform.state(ctx, spec); state == Failed || state == Restarting {
				return false, ErrEnded.Because(err)
			}
			return false, err
		}
	}
	began := time.Now()
	return false, m.wait(ctx, startTime, func() (bool, error) {
		if m.answers(ctx, spec.Home) {
			return true, nil
		}
		state, err := m.platform.state(ctx, spec)
		if err == nil && (state == Failed || state == Restarting || state == Stopped && time.Since(began) > settleTime) {
			err = ErrEnded
		}
		return false, err
	})
}

// Stop ends the service and returns when its agent is gone; already says that it
// did not run. It returns what [Manager.Uninstall] does, [ErrElsewhere] where
// another agent has the folder, and [ErrSilent].
func (m *Manager) Stop(ctx context.Context) (already bool, err error) {
	spec, err := m.mine(ctx)
	if err != nil {
		return false, err
	}
	state, err := m.platform.state(ctx, spec)
	if err != nil {
		return false, err
	}
	if state != Running && state != Restarting {
		if m.answers(ctx, spec.Home) {
			return false, ErrElsewhere
		}
		return true, nil
	}
	if err := m.platform.stop(ctx); err != nil {
		return false, err
	}
	return false, m.wait(ctx, stopTime, func() (bool, error) { return !m.answers(ctx, spec.Home), nil })
}

// wait looks until something is so, for a time. It returns look's error,
// [ErrSilent], and the context's cause.
func (m *Manager) wait(ctx context.Context, longest time.Duration, look func() (bool, error)) error {
	for end := time.Now().Add(longest); ; {
		done, err := look()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case done || err != nil:
			return err
		case time.Now().After(end):
			return ErrSilent
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lookEvery):
		}
	}
}
