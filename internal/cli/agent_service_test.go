package cli

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/doctor"
	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/internal/service"
)

// TestServiceLinesStayLines: a path or a name is a part of one line.
func TestServiceLinesStayLines(t *testing.T) {
	for name, write := range map[string]func(w io.Writer, text string) error{
		"the definition's file": func(w io.Writer, text string) error {
			return writeInstall(w, installReport{Report: service.Report{File: text, Was: "new"}})
		},
		"the environment's file": func(w io.Writer, text string) error {
			return writeInstall(w, installReport{Report: service.Report{Was: "new"}, NotCarried: []string{"A"}, Environment: text})
		},
		"the folder": func(w io.Writer, text string) error {
			return writeServiceStatus(w, serviceReport{Status: service.Status{State: service.Stopped, Spec: service.Spec{Home: "/x" + text}}}, true, "/home")
		},
		"the log": func(w io.Writer, text string) error {
			return writeServiceStatus(w, serviceReport{Status: service.Status{State: service.Stopped, Log: "/x" + text}}, true, "/home")
		},
		"what a probe is about": func(w io.Writer, text string) error {
			return writeDoctor(w, doctorReport{Probes: []doctor.Probe{{About: "x" + text, Name: "n", State: doctor.OK, Tried: "t", Came: "c"}}})
		},
		"what was tried": func(w io.Writer, text string) error {
			return writeDoctor(w, doctorReport{Probes: []doctor.Probe{{About: "a", Name: "n", State: doctor.Failed, Tried: text, Came: "c", Do: "d"}}})
		},
		"what came": func(w io.Writer, text string) error {
			return writeDoctor(w, doctorReport{Probes: []doctor.Probe{{About: "a", Name: "n", State: doctor.Failed, Tried: "t", Came: text, Do: "d"}}})
		},
	} {
		t.Run(name, func(t *testing.T) { mustNotForge(t, write) })
	}
}

// TestServiceStatus: a state is told from the others, and from an agent that runs
// in another way.
func TestServiceStatus(t *testing.T) {
	for _, c := range []struct {
		state   service.State
		refusal string
		home    string
		running bool
		want    string
	}{
		{service.NotInstalled, "", "", true, "The service: not installed. To have it start by itself: allod agent install\n"},
		{service.Running, "", "/h", true, "The service: running.\n"},
		{service.Stopped, "", "/h", false, "The service: installed, not running. Start it: allod agent start\n"},
		{service.Stopped, "", "/h", true, "The service: installed, not running. Start it: allod agent start\n  The agent that runs was started in another way.\n"},
		{service.Stopped, "", "/other", true, "The service: installed, not running. Start it: allod agent start\n  It is for another folder: /other\n"},
		{service.Failed, "", "/h", false, "The service: installed, not running, after a failure. Once it is mended: allod agent start\n"},
		{service.Restarting, "", "/h", false, "The service: installed, and about to be started again after a failure.\n"},
		{"", "service-foreign", "", true, "The service: not known (service-foreign).\n"},
	} {
		var b bytes.Buffer
		r := serviceReport{service.Status{State: c.state, Spec: service.Spec{Home: c.home}}, c.refusal}
		if err := writeServiceStatus(&b, r, c.running, "/h"); err != nil || b.String() != c.want {
			t.Errorf("%+v: %s, %v", c, &b, err)
		}
	}
}

// TestWanted: every variable with a key is among those that a service does not get
// by itself.
func TestWanted(t *testing.T) {
	c := runner.Config{Settings: settings.Settings{Backends: map[string]settings.Backend{"a": {KeyEnv: "ONE"}, "b": {}, "c": {KeyEnv: "TWO"}}}}
	got := wanted(c)
	for _, name := range []string{"ONE", "TWO", "HTTPS_PROXY", "no_proxy", "SSL_CERT_FILE"} {
		if !slices.Contains(got, name) {
			t.Errorf("%s is not in %s", name, strings.Join(got, ", "))
		}
	}
	if slices.Contains(got, "") {
		t.Error("no name is one")
	}
}
