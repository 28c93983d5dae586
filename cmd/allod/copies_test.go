//go:build unix

package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allodhq/allod/test/programs"
)

// TestCopiedFolder: two agents run with one key, as when a folder was copied. Both
// stop and say so, also after a restart, and the one that its owner pairs anew
// goes on alone.
func TestCopiedFolder(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	s := serve(t, filepath.Join(t.TempDir(), "data"), "--limits", "off")
	a := newMachine(t, m)
	a.pair(s, s.url)
	b := &machine{t: t, home: filepath.Join(t.TempDir(), "copy"), path: a.path, errs: &programs.Transcript{}}
	if out, err := exec.CommandContext(t.Context(), "cp", "-Rp", a.home, b.home).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, out)
	}
	both := []*machine{a, b}
	a.run()
	until(t, "the first serves", func() bool { return a.server(0)["state"] == "serving" })
	b.run()
	stopped := func() {
		t.Helper()
		for _, x := range both {
			until(t, "both are stopped", func() bool { return x.server(0)["state"] == "two-agents" })
			if why := x.do("agent", "why"); !strings.Contains(why, "another live agent") || !strings.Contains(why, "allod connect "+s.url) {
				t.Errorf("why:\n%s", why)
			}
		}
	}
	stopped()
	for _, x := range both {
		x.end()
		x.errs = &programs.Transcript{}
		x.run()
		until(t, "the agent runs again", func() bool { return x.status()["running"] == true })
	}
	stopped()
	for _, x := range both {
		if strings.Contains(x.errs.String(), "working") {
			t.Errorf("it began again by itself:\n%s", x.errs)
		}
	}
	s.ask("j", "for one of them")
	a.pair(s, s.url)
	if job := s.answer("j"); job["state"] != "ok" || job["attempts"] != 1.0 {
		t.Errorf("job %v\n%s", job, a.errs)
	}
	if state := a.server(0)["state"]; state != "serving" {
		t.Errorf("the one that was paired anew is %v", state)
	}
	if state := b.server(0)["state"]; state != "two-agents" {
		t.Errorf("the other is %v", state)
	}
	for _, x := range both {
		x.end()
	}
}
