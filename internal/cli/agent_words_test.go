package cli

import (
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
)

// TestPairedSaysForWhom: where a backend is offered to anybody, a new pairing is
// not said to be for its owner alone.
func TestPairedSaysForWhom(t *testing.T) {
	for public, want := range map[bool]string{false: "and for nobody else.", true: "and for whoever may ask there: see allod agent offer."} {
		var b strings.Builder
		showPaired(&b, home.Pairing{Server: "https://app.example", Owner: "kim"}, public, false)
		if !strings.Contains(b.String(), want) {
			t.Errorf("%t: %s", public, b.String())
		}
	}
}

// TestProgramLine: a program is shown with its file, its cost and who may use it.
func TestProgramLine(t *testing.T) {
	var b strings.Builder
	backendLines(&b, []runner.BackendStatus{{Name: "mine", ID: "claude-cli", Program: "/usr/bin/claude", Cost: backend.Subscription, Offer: ai.OfferSelf, State: "ready", Model: "m", Kinds: []ai.Kind{ai.KindChat}}})
	const want = "mine: ready, 0s ago, model m\n  claude-cli at /usr/bin/claude, subscription, yours alone, for llm.chat\n"
	if b.String() != want {
		t.Errorf("%q", b.String())
	}
}

// TestFlagErrorsSayWhat: a flag that is wrong is said to be, and not repeated.
func TestFlagErrorsSayWhat(t *testing.T) {
	for _, args := range [][]string{{"agent", "log", "--owner"}, {"agent", "status", "--canary"}, {"agent", "offer", "x", "named", "--cap", "canary"}} {
		var out, err strings.Builder
		code := Run(t.Context(), Env{Out: &out, Err: &err, Version: "test"}, args)
		if code != 2 || !strings.Contains(err.String(), "There is no such flag, or its value is missing") || strings.Contains(err.String(), "canary") {
			t.Errorf("%q: %d %s", args, code, err.String())
		}
	}
}
