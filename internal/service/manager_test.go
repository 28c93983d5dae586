package service

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allodhq/allod/refusal"
)

// world is a user manager of systemd that a test holds in its hand.
type world struct {
	asked   []string
	deaf    bool // nobody answers
	linger  bool
	denied  bool // lingering cannot be switched on
	state   string
	fails   string // an order that fails
	starts  string // the state after a start
	answers bool   // an agent answers
	after   time.Duration
	began   time.Time
	judged  error
}

func (w *world) run(_ context.Context, program string, words ...string) ([]byte, error) {
	line := strings.Join(append([]string{program}, words...), " ")
	failed := errors.New("exit status 1")
	if line == "systemctl --version" {
		return []byte("systemd 252 (x)\n"), nil
	}
	if w.deaf {
		return nil, failed
	}
	switch {
	case line == "systemctl --user show-environment":
		return []byte("LANG=C\nODD=$'a\\'b\\n\"c'\n"), nil
	case strings.HasPrefix(line, "systemctl --user show --property=ActiveState"):
		return []byte(w.state + "\n"), nil
	case strings.HasPrefix(line, "loginctl show-user"):
		if w.linger {
			return []byte("yes\n"), nil
		}
		return []byte("no\n"), nil
	}
	w.asked = append(w.asked, line)
	if w.fails != "" && strings.Contains(line, w.fails) {
		return nil, failed
	}
	switch {
	case strings.HasPrefix(line, "loginctl enable-linger"):
		if w.denied {
			return nil, failed
		}
		w.linger = true
	case strings.HasPrefix(line, "systemctl --user start"):
		w.state, w.began = w.starts, time.Now()
	case strings.HasPrefix(line, "systemctl --user stop"), strings.HasPrefix(line, "systemctl --user disable"):
		w.state, w.answers, w.began = "inactive", false, time.Time{}
	}
	return nil, nil
}

func (w *world) took() []string {
	asked := w.asked
	w.asked = nil
	return asked
}

func (w *world) manager(dir string) *Manager {
	return &Manager{
		platform: systemd{run: w.run, units: filepath.Join(dir, "units"), user: "ann"},
		judge:    func(string) error { return w.judged },
		answers: func(context.Context, string) bool {
			return w.answers || !w.began.IsZero() && w.starts == "active" && time.Since(w.began) >= w.after
		},
	}
}

func TestInstall(t *testing.T) {
	dir := t.TempDir()
	w := &world{}
	m := w.manager(dir)
	spec := Spec{Program: filepath.Join(dir, "allod"), Home: filepath.Join(dir, "home")}

	s, err := m.Status(t.Context())
	if err != nil || s != (Status{State: NotInstalled}) || w.took() != nil {
		t.Errorf("before: %+v, %v", s, err)
	}
	r, err := m.Install(t.Context(), spec)
	if err != nil || r.Was != "new" || len(r.Notes) != 1 || !strings.HasPrefix(r.Notes[0], "Lingering was switched on") {
		t.Fatalf("%+v, %v", r, err)
	}
	want := []string{"systemctl --user daemon-reload", "systemctl --user enable allod-agent.service", "loginctl enable-linger ann"}
	if got := w.took(); !slices.Equal(got, want) {
		t.Errorf("asked for %q", got)
	}
	if text, err := os.ReadFile(r.File); err != nil || string(text) != r.Definition || r.File != filepath.Join(dir, "units", "allod-agent.service") {
		t.Errorf("%s has %s, %v", r.File, text, err)
	}
	// Again, and with another configuration.
	r, err = m.Install(t.Context(), spec)
	if err != nil || r.Was != "unchanged" || !strings.HasPrefix(r.Notes[0], "You linger already") {
		t.Errorf("%+v, %v", r, err)
	}
	spec.Config = filepath.Join(dir, "c.json")
	r, err = m.Install(t.Context(), spec)
	if err != nil || r.Was != "replaced" {
		t.Errorf("%+v, %v", r, err)
	}
	if got, ok, err := m.Installed(); got != spec || !ok || err != nil {
		t.Errorf("%+v, %v, %v", got, ok, err)
	}
	w.state = "inactive"
	if s, err := m.Status(t.Context()); err != nil || s.State != Stopped || s.Spec != spec || s.File != r.File || s.Log == "" {
		t.Errorf("%+v, %v", s, err)
	}
	// Gone, with what it had running.
	w.took()
	r, err = m.Uninstall(t.Context())
	if err != nil || r.Definition != "" || !strings.HasPrefix(r.Notes[0], "Lingering stays") {
		t.Errorf("%+v, %v", r, err)
	}
	if got := w.took(); !slices.Equal(got, []string{"systemctl --user disable --now allod-agent.service", "systemctl --user daemon-reload"}) {
		t.Errorf("asked for %q", got)
	}
	if _, err := os.Lstat(r.File); !os.IsNotExist(err) {
		t.Errorf("the file: %v", err)
	}
	if _, err := m.Uninstall(t.Context()); !errors.Is(err, ErrAbsent) {
		t.Errorf("again: %v", err)
	}
}

// TestLingerDenied: what is lost is said.
func TestLingerDenied(t *testing.T) {
	dir := t.TempDir()
	w := &world{denied: true}
	r, err := w.manager(dir).Install(t.Context(), Spec{Program: "/opt/allod", Home: "/h"})
	if err != nil || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "stops when you log out") {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestInstallRefuses: what must not be installed is not, and nothing is written.
func TestInstallRefuses(t *testing.T) {
	good := Spec{Program: "/opt/allod", Home: "/h"}
	for what, c := range map[string]struct {
		change func(m *Manager, w *world, s *Spec)
		want   *refusal.Kind
	}{
		"root":       {func(m *Manager, _ *world, _ *Spec) { m.root = true }, ErrRoot},
		"a program":  {func(_ *Manager, w *world, _ *Spec) { w.judged = ErrTemporary }, ErrTemporary},
		"a path":     {func(_ *Manager, _ *world, s *Spec) { s.Home = "/a\nb" }, ErrPath},
		"no manager": {func(_ *Manager, w *world, _ *Spec) { w.deaf = true }, ErrNoManager},
	} {
		dir, w, s := t.TempDir(), &world{}, good
		m := w.manager(dir)
		c.change(m, w, &s)
		_, err := m.Install(t.Context(), s)
		if entries, _ := os.ReadDir(dir); !errors.Is(err, c.want) || len(entries) > 0 || w.took() != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	w := &world{fails: "enable"}
	if _, err := w.manager(t.TempDir()).Install(t.Context(), good); !errors.Is(err, ErrManager) {
		t.Errorf("an order that fails: %v", err)
	}
}

// TestForeign: what Allod did not write stays as it is.
func TestForeign(t *testing.T) {
	dir := t.TempDir()
	w := &world{}
	m := w.manager(dir)
	file := m.platform.file()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	const theirs = "[Service]\nExecStart=/usr/bin/other\n"
	if err := os.WriteFile(file, []byte(theirs), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, do := range map[string]func() error{
		"install":   func() error { _, err := m.Install(t.Context(), plainSpec); return err },
		"uninstall": func() error { _, err := m.Uninstall(t.Context()); return err },
		"start":     func() error { _, err := m.Start(t.Context()); return err },
		"stop":      func() error { _, err := m.Stop(t.Context()); return err },
		"status":    func() error { _, err := m.Status(t.Context()); return err },
	} {
		if err := do(); !errors.Is(err, ErrForeign) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != theirs || w.took() != nil {
		t.Errorf("it is now %q, %v", text, err)
	}
}

// TestStart: an agent is waited for, and what keeps it away is told from what
// takes time.
func TestStart(t *testing.T) {
	for what, c := range map[string]struct {
		w       world
		absent  bool
		root    bool
		already bool
		want    *refusal.Kind
		asked   int
		took    time.Duration
	}{
		"at once":               {w: world{state: "inactive", starts: "active"}, asked: 2},
		"after a while":         {w: world{state: "inactive", starts: "active", after: 7 * time.Second}, asked: 2, took: 7 * time.Second},
		"after a failure":       {w: world{state: "failed", starts: "active"}, asked: 2},
		"runs already":          {w: world{state: "active", answers: true}, already: true},
		"runs in a terminal":    {w: world{state: "inactive", answers: true}, want: ErrElsewhere},
		"in a terminal, failed": {w: world{state: "failed", answers: true}, want: ErrElsewhere},
		"never answers":         {w: world{state: "inactive", starts: "active", after: time.Hour}, want: ErrSilent, asked: 2, took: startTime + lookEvery},
		"ends":                  {w: world{state: "inactive", starts: "failed"}, want: ErrEnded, asked: 2},
		"ends, to start again":  {w: world{state: "inactive", starts: "activating"}, want: ErrEnded, asked: 2},
		"ends well":             {w: world{state: "inactive", starts: "inactive"}, want: ErrEnded, asked: 2, took: settleTime + lookEvery},
		"not installed":         {absent: true, want: ErrAbsent},
		"root":                  {w: world{state: "inactive", starts: "active"}, root: true, want: ErrRoot},
		"a bad program":         {w: world{state: "inactive", starts: "active", judged: ErrWritable}, want: ErrWritable},
		"an order that fails":   {w: world{state: "inactive", starts: "active", fails: "start"}, want: ErrManager, asked: 2},
		"nobody answers":        {w: world{deaf: true}, want: ErrNoManager},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := c.w
			m := w.manager(t.TempDir())
			if !c.absent {
				put(t, m)
			}
			m.root = c.root
			begin := time.Now()
			already, err := m.Start(t.Context())
			if already != c.already || (c.want == nil) != (err == nil) || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: %v, %v", what, already, err)
			}
			if asked := w.took(); len(asked) != c.asked || time.Since(begin) != c.took {
				t.Errorf("%s: asked for %q in %v", what, asked, time.Since(begin))
			}
		})
	}
}

// put writes the definition of a service as Install does.
func put(t *testing.T, m *Manager) {
	t.Helper()
	file := m.platform.file()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, m.platform.write(t.Context(), plainSpec), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestStop(t *testing.T) {
	for what, c := range map[string]struct {
		w       world
		hangs   bool
		already bool
		want    *refusal.Kind
		took    time.Duration
	}{
		"runs":               {w: world{state: "active", answers: true}},
		"waits to start":     {w: world{state: "activating"}},
		"does not run":       {w: world{state: "inactive"}, already: true},
		"failed":             {w: world{state: "failed"}, already: true},
		"runs in a terminal": {w: world{state: "inactive", answers: true}, want: ErrElsewhere},
		"hangs":              {w: world{state: "active", answers: true}, hangs: true, want: ErrSilent, took: stopTime + lookEvery},
		"fails":              {w: world{state: "active", answers: true, fails: "stop"}, want: ErrManager},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := c.w
			m := w.manager(t.TempDir())
			put(t, m)
			if c.hangs {
				m.answers = func(context.Context, string) bool { return true }
			}
			begin := time.Now()
			already, err := m.Stop(t.Context())
			if already != c.already || (c.want == nil) != (err == nil) || c.want != nil && !errors.Is(err, c.want) || time.Since(begin) != c.took {
				t.Errorf("%s: %v, %v after %v", what, already, err, time.Since(begin))
			}
		})
	}
}

// TestWaitEnds: whoever waits can stop to.
func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{state: "inactive", starts: "active", after: time.Hour}
		m := w.manager(t.TempDir())
		put(t, m)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		begin := time.Now()
		if _, err := m.Start(ctx); !errors.Is(err, context.Canceled) || time.Since(begin) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

// TestOtherManagers: what the others are told.
func TestOtherManagers(t *testing.T) {
	type step struct {
		do   func(m *Manager) error
		want []string
	}
	install := func(m *Manager) error { _, err := m.Install(t.Context(), plainSpec); return err }
	start := func(m *Manager) error { _, err := m.Start(t.Context()); return err }
	stop := func(m *Manager) error { _, err := m.Stop(t.Context()); return err }
	uninstall := func(m *Manager) error { _, err := m.Uninstall(t.Context()); return err }
	for name, c := range map[string]struct {
		make  func(dir string, run run, answers func(context.Context, string) bool) platform
		steps []step
	}{
		"launchd": {func(dir string, r run, _ func(context.Context, string) bool) platform {
			return launchd{run: r, agents: dir, uid: 501}
		}, []step{
			{install, nil},
			{start, []string{"launchctl bootstrap gui/501 DIR/com.github.allodhq.allod.agent.plist"}},
			{stop, []string{"launchctl bootout gui/501/com.github.allodhq.allod.agent"}},
			{start, []string{"launchctl bootstrap gui/501 DIR/com.github.allodhq.allod.agent.plist"}},
			{uninstall, []string{"launchctl bootout gui/501/com.github.allodhq.allod.agent"}},
		}},
		"tasks": {func(dir string, r run, answers func(context.Context, string) bool) platform {
			return tasks{run: r, folder: dir, account: `DESK\ann`, answers: answers}
		}, []step{
			{install, []string{`schtasks /Create /TN \Allod\Agent /XML DIR/agent-task.xml /F`}},
			{start, []string{`schtasks /Run /TN \Allod\Agent`}},
			{stop, []string{`schtasks /End /TN \Allod\Agent`}},
			{start, []string{`schtasks /Run /TN \Allod\Agent`}},
			{uninstall, []string{`schtasks /End /TN \Allod\Agent`, `schtasks /Delete /TN \Allod\Agent /F`}},
		}},
	} {
		dir := t.TempDir()
		var asked []string
		up := false
		answers := func(context.Context, string) bool { return up }
		run := func(_ context.Context, program string, words ...string) ([]byte, error) {
			line := strings.ReplaceAll(strings.Join(append([]string{program}, words...), " "), dir, "DIR")
			switch {
			case strings.HasPrefix(line, "launchctl print gui/501/"):
				if !up {
					return nil, errors.New("exit status 113")
				}
				return []byte("gui/501/x = {\n\tactive count = 1\n\tstate = running\n\n\tprogram = /x\n"), nil
			case strings.HasPrefix(line, "launchctl print"), strings.HasPrefix(line, "schtasks /Query"):
				return nil, nil
			}
			asked = append(asked, line)
			up = strings.Contains(line, "bootstrap") || strings.Contains(line, "/Run")
			return nil, nil
		}
		m := &Manager{platform: c.make(dir, run, answers), judge: func(string) error { return nil }, answers: answers}
		for i, s := range c.steps {
			if err := s.do(m); err != nil || !slices.Equal(asked, s.want) {
				t.Errorf("%s, step %d: %v, asked for %q", name, i, err, asked)
			}
			asked = nil
		}
		if _, ok, err := m.Installed(); ok || err != nil {
			t.Errorf("%s: it is there after all, %v", name, err)
		}
	}
}

// TestExecute: a program's words are bounded, and it has no input.
func TestExecute(t *testing.T) {
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("there is no shell")
	}
	out, err := execute(t.Context(), "/bin/sh", "-c", `read x && exit 9; printf "%s" "$LC_ALL"; head -c 300000 /dev/zero`)
	if err != nil || len(out) != maxOutput || string(out[:1]) != "C" {
		t.Errorf("%d bytes, %v", len(out), err)
	}
	if _, err := execute(t.Context(), "/bin/sh", "-c", "exit 3"); err == nil {
		t.Error("a failure is none")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := execute(ctx, "/bin/sh", "-c", "exit 0"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
