package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/runner/ingress"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
)

// forged begins the lines that the texts below try to write on the screen.
const forged = "FORGED"

// forging are texts that try to begin a line of their own, to end the one that
// they stand in, or to write over it.
var forging = []string{
	"a\n" + forged, "a\r\n" + forged, "a\r" + forged, "\n\n  " + forged, "a\v" + forged, "a\f" + forged, "a\u0085" + forged, "a\u2028" + forged, "a\u2029" + forged,
	"a\x1b[1E" + forged, "a\x1b[2K\x1b[G" + forged, "a\u009b1E" + forged, "a\b\b" + forged, "\t" + forged, "a\n\t" + forged, "\u202e" + forged, strings.Repeat("x", 100_000),
}

// lineEnds are what ends a line for some reader.
var lineEnds = regexp.MustCompile("\r\n|[\n\r\v\f\u0085\u2028\u2029]")

// mustNotForge holds that a screen has the lines that it has for a harmless text,
// and none that a text wrote or that is longer than a screen has room for.
func mustNotForge(t *testing.T, write func(w io.Writer, text string) error) {
	t.Helper()
	show := func(text string) []string {
		t.Helper()
		var b bytes.Buffer
		if err := write(&b, text); err != nil {
			t.Fatal(err)
		}
		if drives(b.String()) {
			t.Errorf("%.40q drives the terminal: %.200q", text, b.String())
		}
		return lineEnds.Split(b.String(), -1)
	}
	want := show("harmless")
	for _, text := range forging {
		got := show(text)
		if len(got) != len(want) {
			t.Errorf("%.40q makes %d lines of %d:\n%.500s", text, len(got), len(want), strings.Join(got, "\n"))
			continue
		}
		for i, line := range got {
			// It begins as it would without the text, so no text began it.
			begin, _, _ := strings.Cut(want[i], "harmless")
			if !strings.HasPrefix(line, begin) || len(line) > 2000 {
				t.Errorf("%.40q: line %d is %.200q", text, i, line)
			}
		}
	}
}

// TestLinesStayLines: a text of a site, an app or a model is a part of one line.
func TestLinesStayLines(t *testing.T) {
	server, err := client.ParseServer("https://app.example")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(0, 0)
	for name, write := range map[string]func(w io.Writer, text string) error{
		"the machine's name, where it is paired": func(w io.Writer, text string) error {
			showCode(w, runner.Pairing{Server: server, Name: text}, runner.Code{URL: "https://app.example/pair", Code: "ABCD"}, false)
			return nil
		},
		"the page": func(w io.Writer, text string) error {
			showCode(w, runner.Pairing{Server: server, Name: "box"}, runner.Code{URL: text, Code: "ABCD"}, false)
			return nil
		},
		"the code": func(w io.Writer, text string) error {
			showCode(w, runner.Pairing{Server: server, Name: "box"}, runner.Code{URL: "https://app.example/pair", Code: text}, false)
			return nil
		},
		"the owner's label, once paired": func(w io.Writer, text string) error {
			showPaired(w, home.Pairing{Server: "https://app.example", Owner: "o", OwnerLabel: text, Sites: map[ai.KeyID]home.Site{"site": {}}}, false, false)
			return nil
		},
		"the owner, once paired": func(w io.Writer, text string) error {
			showPaired(w, home.Pairing{Server: "https://app.example", Owner: ai.Owner(text)}, false, false)
			return nil
		},
		"the machine's name": func(w io.Writer, text string) error { return writeStatus(w, runner.Status{Name: text}) },
		"the owner": func(w io.Writer, text string) error {
			return writeStatus(w, runner.Status{Servers: []runner.ServerStatus{{Server: "https://app.example", Owner: ai.Owner(text), State: "serving"}}})
		},
		"the owner's label": func(w io.Writer, text string) error {
			return writeStatus(w, runner.Status{Servers: []runner.ServerStatus{{Server: "https://app.example", OwnerLabel: text, State: "serving"}}})
		},
		"a site": func(w io.Writer, text string) error {
			return writeStatus(w, runner.Status{Servers: []runner.ServerStatus{{Server: "https://app.example", Sites: []string{text}}}})
		},
		"a server's version": func(w io.Writer, text string) error {
			return writeStatus(w, runner.Status{Servers: []runner.ServerStatus{{Server: "https://app.example", Protocol: text, State: "serving"}}})
		},
		"a backend's name": func(w io.Writer, text string) error {
			return writeStatus(w, runner.Status{Backends: []runner.BackendStatus{{Name: "x" + text, State: "ready"}}})
		},
		"a model": func(w io.Writer, text string) error {
			return writeStatus(w, runner.Status{Backends: []runner.BackendStatus{{Name: "b", Model: text, State: "ready", BaseURL: "http://localhost/v1"}}})
		},
		"a program": func(w io.Writer, text string) error {
			return writeStatus(w, runner.Status{Backends: []runner.BackendStatus{{Name: "b", ID: "claude-cli", State: "ready", Program: "/" + text}}})
		},
		"what is open to programs": func(w io.Writer, text string) error {
			return writeStatus(w, runner.Status{Backends: []runner.BackendStatus{{ID: "claude-cli"}}, Isolation: runner.Isolation{Enforced: true, Open: []string{text}}})
		},
		"a job that runs": func(w io.Writer, text string) error {
			return writeLog(w, []ingress.Line{{Type: ingress.TypePrompt, At: at, JobID: ai.JobID(text), Kind: ai.KindChat}})
		},
		"a job that ended": func(w io.Writer, text string) error {
			return writeLog(w, []ingress.Line{{Type: ingress.TypeOutcome, At: at, JobID: ai.JobID(text), Outcome: "ok"}})
		},
		"a job that is explained": func(w io.Writer, text string) error {
			return writeWhy(w, []ingress.Line{{Type: ingress.TypeOutcome, At: at, JobID: ai.JobID(text), Outcome: "refused", Detail: "site-unknown"}})
		},
		"the owner of a job": func(w io.Writer, text string) error {
			return writeLog(w, []ingress.Line{{Type: ingress.TypePrompt, At: at, JobID: "j", Owner: ai.Owner(text), Kind: ai.KindChat}})
		},
		"the server of a job": func(w io.Writer, text string) error {
			return writeLog(w, []ingress.Line{{Type: ingress.TypePrompt, At: at, JobID: "j", Server: text, Kind: ai.KindChat}})
		},
		"the model of a job": func(w io.Writer, text string) error {
			return writeLog(w, []ingress.Line{{Type: ingress.TypePrompt, At: at, JobID: "j", Model: text, Kind: ai.KindChat}})
		},
		"the model that was first choice": func(w io.Writer, text string) error {
			return writeWhy(w, []ingress.Line{{Type: ingress.TypePrompt, At: at, JobID: "j", Kind: ai.KindChat, Instead: ingress.Instead{Service: text, Model: text, Why: text}}})
		},
		"a backend's first choice": func(w io.Writer, text string) error {
			return writeStatus(w, runner.Status{Backends: []runner.BackendStatus{{Name: "b", State: "ready", Instead: text, InsteadWhy: text}}})
		},
		// A line may also be damaged by who can write the file.
		"the kind of a job": func(w io.Writer, text string) error {
			return writeLog(w, []ingress.Line{{Type: ingress.TypePrompt, At: at, JobID: "j", Kind: ai.Kind(text)}})
		},
		"the backend of a job": func(w io.Writer, text string) error {
			return writeLog(w, []ingress.Line{{Type: ingress.TypePrompt, At: at, JobID: "j", Backend: backend.ID(text)}})
		},
		"the end of a job": func(w io.Writer, text string) error {
			return writeLog(w, []ingress.Line{{Type: ingress.TypeOutcome, At: at, JobID: "j", Outcome: text}})
		},
		"the reason of an end": func(w io.Writer, text string) error {
			return writeLog(w, []ingress.Line{{Type: ingress.TypeOutcome, At: at, JobID: "j", Outcome: "error", Detail: text}})
		},
	} {
		t.Run(name, func(t *testing.T) { mustNotForge(t, write) })
	}
}

// TestStatusSaysWhatIsAroundPrograms, and nothing of it where there is none.
func TestStatusSaysWhatIsAroundPrograms(t *testing.T) {
	for want, walls := range map[string]runner.Isolation{
		"Programs run behind walls.\n": {Enforced: true},
		"Programs run behind walls. Open in this kernel: signals; UDP to every port.\n": {Enforced: true, Open: []string{"signals", "UDP to every port"}},
		"Programs run without walls (programs-unconfined).\n":                           {Refusal: "programs-unconfined"},
	} {
		for id, said := range map[backend.ID]bool{"claude-cli": true, backend.CodexCLI: true, "ollama": false, backend.Generic: false} {
			var b bytes.Buffer
			if err := writeStatus(&b, runner.Status{Backends: []runner.BackendStatus{{Name: "x", ID: id, State: "ready"}}, Isolation: walls}); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(b.String(), want) != said || strings.Contains(b.String(), "walls") != said {
				t.Errorf("%s, %+v: %q", id, walls, b.String())
			}
		}
	}
}

// TestPromptsAreIndented: a prompt has the lines that it has, and none of them
// can pass for one of the log.
func TestPromptsAreIndented(t *testing.T) {
	for _, text := range forging {
		var b bytes.Buffer
		if err := writeLog(&b, []ingress.Line{{Type: ingress.TypePrompt, At: time.Unix(0, 0), JobID: "j", Prompt: text, Kind: ai.KindChat}}); err != nil {
			t.Fatal(err)
		}
		lines := lineEnds.Split(strings.TrimSuffix(b.String(), "\n"), -1)
		for _, line := range lines[1:] {
			if !strings.HasPrefix(line, "    ") {
				t.Errorf("%.40q: %.100q", text, line)
			}
		}
	}
}

// TestHowLongACodeLasts: where the clocks of the machine and of the site do not
// agree, no time is told.
func TestHowLongACodeLasts(t *testing.T) {
	server, err := client.ParseServer("https://app.example")
	if err != nil {
		t.Fatal(err)
	}
	for d, want := range map[time.Duration]string{
		10 * time.Minute: "The code lasts 10m0s. Waiting.", 90*time.Second + 400*time.Millisecond: "The code lasts 1m30s. Waiting.", time.Second: "The code lasts 1s. Waiting.", 24 * time.Hour: "The code lasts 24h0m0s. Waiting.",
		0: "", -time.Second: "", 999 * time.Millisecond: "", 24*time.Hour + 1: "", math.MaxInt64: "", math.MinInt64: "", -292 * 365 * 24 * time.Hour: "",
	} {
		var text, asJSON bytes.Buffer
		code := runner.Code{URL: "https://app.example/pair", Code: "ABCD", For: d}
		showCode(&text, runner.Pairing{Server: server, Name: "box"}, code, false)
		showCode(&asJSON, runner.Pairing{Server: server, Name: "box"}, code, true)
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		last := lines[len(lines)-1]
		var got struct{ ExpiresInSeconds *int64 }
		if err := json.Unmarshal(asJSON.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if want == "" {
			if last != "Waiting for you to approve it." || got.ExpiresInSeconds != nil {
				t.Errorf("%v: %q and %s", d, last, asJSON.Bytes())
			}
			continue
		}
		if last != want || got.ExpiresInSeconds == nil || *got.ExpiresInSeconds != int64(d/time.Second) {
			t.Errorf("%v: %q and %s", d, last, asJSON.Bytes())
		}
	}
}

// TestQuickRun: an answer that took less than a millisecond is told like any
// other.
func TestQuickRun(t *testing.T) {
	var b bytes.Buffer
	if err := writeLog(&b, []ingress.Line{{Type: ingress.TypeOutcome, JobID: "j", Outcome: "ok", OutputUnits: 7}}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "ok after 0s, 7 characters") {
		t.Errorf("%s", b.String())
	}
}
