package main

import (
	"os/exec"
	"testing"

	"github.com/allodhq/allod/internal/runner/confine"
)

// TestHelper: the command is the helper of the programs that it starts, before it is anything else.
func TestHelper(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Args, cmd.Env = []string{"allod confine", "version"}, []string{}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != confine.ExitUnconfined || string(out) != confine.MessageUnconfined {
		t.Errorf("the helper said %q, %v", out, err)
	}
}
