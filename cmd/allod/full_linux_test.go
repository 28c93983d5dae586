package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// small mounts a small file system as a folder, and returns what fills it and
// what makes room again.
func small(t *testing.T, size string) (dir string, fill, clear func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		t.Skip("this machine does not let us mount a file system: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	fill = func() {
		t.Helper()
		f, err := os.OpenFile(ballast, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for page := make([]byte, 4096); ; {
			if _, err := f.Write(page); errors.Is(err, syscall.ENOSPC) {
				return
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir, fill, func() {
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSiteOnAFullDisk: what cannot be made durable is refused by name, what was
// acknowledged stays, and the site goes on when there is room.
func TestSiteOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir, fill, clear := small(t, "8m")
	m := newModel(t)
	s := serve(t, filepath.Join(dir, "data"), "--limits", "off")
	a := newMachine(t, m)
	a.pair(s, s.url)
	s.ask("before", "before")
	fill()
	var refused anyJSON
	long := strings.Repeat("x", 100_000)
	body := `{"id":"full","kind":"llm.generate","owner":"alice","payload":{"prompt":"` + long + `"}}`
	if code := s.call("POST", "/v1/jobs", body, &refused); code < 500 || refused["error"] != "database-full" && refused["error"] != "disk-full" {
		t.Errorf("on a full disk: %d %.300v", code, refused)
	}
	clear()
	a.run()
	if job := s.answer("before"); text(job) != "echo before" {
		t.Errorf("job %v", job)
	}
	var job anyJSON
	if code := s.call("POST", "/v1/jobs", body, &job); code != 201 {
		t.Errorf("with room again: %d %.300v", code, job)
	}
	if job := s.answer("full"); job["state"] != "ok" {
		t.Errorf("job %.300v", job)
	}
}

// TestAgentOnAFullDisk: what cannot be logged does not run, and the job is given
// back and runs when there is room.
func TestAgentOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir, fill, clear := small(t, "1m")
	m := newModel(t)
	s := serve(t, filepath.Join(t.TempDir(), "data"), "--limits", "off")
	a := newMachine(t, m)
	config, err := os.ReadFile(filepath.Join(a.home, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	a.home = filepath.Join(dir, "agent")
	if err := os.Mkdir(a.home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(a.home, "config.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	a.pair(s, s.url)
	a.run()
	until(t, "the agent is heard", func() bool { return a.server(0)["state"] == "serving" })
	fill()
	s.ask("j", strings.Repeat("x", 8000))
	until(t, "the job is given back", func() bool {
		var job anyJSON
		s.call("GET", "/v1/jobs/j", "", &job)
		return job["attempts"].(float64) >= 1 && job["state"] == "queued"
	})
	if q := m.questions(); len(q) > 0 {
		t.Errorf("the model was asked what could not be logged: %d times", len(q))
	}
	if !strings.Contains(a.errs.String(), "data-write") && !strings.Contains(a.errs.String(), "ingress-log") {
		t.Errorf("the agent does not say why:\n%s", a.errs)
	}
	clear()
	if job := s.answer("j"); job["state"] != "ok" {
		t.Errorf("job %v\n%s", job, a.errs)
	}
	if q := m.questions(); len(q) != 1 {
		t.Errorf("the model was asked %d times", len(q))
	}
}
