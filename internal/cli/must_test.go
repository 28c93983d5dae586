package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/compose"
	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/runner/ingress"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/nodes"
)

// hostile texts try to drive the terminal: colours, titles, the clipboard, a
// cleared screen, a line written over, and words in another order.
var hostile = []string{
	"\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x1b]52;c;aWQ=\x07", "\u009b2J", "\u009d0;title\u009c", "over\rwritten", "back\b\b", "\x7f", "\x00", "\x0e\x0f", "\x05",
	"\u202eorder", "\u2066a\u2069", "\u200f", "\u061c", "\x85", "a\x9b2Jb", "\v\f",
}

// drives reports whether a text has a character that a terminal acts on, besides
// the end of a line and a tab.
func drives(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool {
		return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r))
	}) || strings.ContainsAny(text, "\x1b\r\b\a") || bytes.Contains([]byte(text), []byte{0xc2, 0x9b})
}

// TestOutputIsInert: what a model, a site or an app wrote cannot drive the
// owner's terminal, as text and as JSON (MUST OUTPUT_INERT).
func TestOutputIsInert(t *testing.T) {
	server, err := client.ParseServer("https://app.example")
	if err != nil {
		t.Fatal(err)
	}
	outputs := map[string]func(w io.Writer, asJSON bool, text string) error{
		"log": func(w io.Writer, asJSON bool, text string) error {
			lines := []ingress.Line{
				{Type: ingress.TypePrompt, At: time.Unix(0, 0), JobID: ai.JobID(text), Owner: ai.Owner(text), Model: text, Prompt: text, Kind: ai.KindChat},
				{Type: ingress.TypeOutcome, At: time.Unix(0, 0), JobID: ai.JobID(text), Owner: ai.Owner(text), Server: text, Audience: ai.Audience(text), Outcome: "refused", Detail: text, Reason: text},
			}
			return show(w, asJSON, lines, func(w io.Writer) error { return writeLog(w, lines) })
		},
		"spend": func(w io.Writer, asJSON bool, text string) error {
			s := runner.Spending{Rows: []runner.SpentRow{{Day: "2030-01-01", Backend: text, Owner: ai.Owner(text)}}, Backends: []runner.SpendingLimit{{Backend: text, Limit: 1}}}
			return show(w, asJSON, s, func(w io.Writer) error { return writeSpending(w, s) })
		},
		"status": func(w io.Writer, asJSON bool, text string) error {
			s := runner.Status{
				Version: "1", Name: text, Problems: []string{text},
				Servers:  []runner.ServerStatus{{Server: "https://app.example", Owner: ai.Owner(text), OwnerLabel: text, Sites: []string{text}, Protocol: text}, {Server: "https://app.example", Owner: ai.Owner(text)}},
				Backends: []runner.BackendStatus{{Name: text, Model: text, State: "ready"}},
			}
			return show(w, asJSON, s, func(w io.Writer) error { return writeStatus(w, s) })
		},
		"demo": func(w io.Writer, asJSON bool, text string) error {
			d := compose.Demo{Answer: text, Question: text, Model: text, Backend: "ollama", Provenance: &ai.Provenance{RunnerOwner: ai.Owner(text)},
				Zone: compose.Zone{Controller: "https://127.0.0.1", List: []nodes.Node{{ID: zone.NodeID(text), Hostname: text, Cluster: zone.ClusterID(text)}}}}
			return show(w, asJSON, d, func(w io.Writer) error { return writeDemo(w, d) })
		},
		"code": func(w io.Writer, asJSON bool, text string) error {
			showCode(w, runner.Pairing{Server: server, Name: text}, runner.Code{URL: text, Code: text}, asJSON)
			return nil
		},
		"paired": func(w io.Writer, asJSON bool, text string) error {
			showPaired(w, home.Pairing{Server: "https://app.example", RunnerID: ai.RunnerID(text), Owner: ai.Owner(text)}, false, asJSON)
			showPaired(w, home.Pairing{Server: "https://app.example", RunnerID: "r", Owner: "o", OwnerLabel: text}, false, false)
			return nil
		},
	}
	for name, write := range outputs {
		t.Run(name, func(t *testing.T) {
			for _, text := range hostile {
				for _, asJSON := range []bool{false, true} {
					var b bytes.Buffer
					if err := write(&b, asJSON, text); err != nil && !asJSON {
						t.Fatal(err)
					}
					if drives(b.String()) {
						t.Errorf("%q, as JSON %v, comes out as %q", text, asJSON, b.String())
					}
				}
			}
		})
	}
	// What JSON says is the text all the same.
	text := "a\u009b2J\u202e\x7f é"
	var b bytes.Buffer
	if err := show(&b, true, compose.Demo{Answer: text}, nil); err != nil {
		t.Fatal(err)
	}
	var got struct{ Answer string }
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || got.Answer != text {
		t.Errorf("read %q, %v from %s", got.Answer, err, b.Bytes())
	}
}

// show is print of a command with or without --json.
func show(w io.Writer, asJSON bool, v any, text func(io.Writer) error) error {
	cmd := &cobra.Command{}
	cmd.Flags().Bool("json", asJSON, "")
	return print(cmd, Env{Out: w}, v, text)
}
