package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestEveryCommandHasHelp holds what every command promises: a summary and an
// example.
func TestEveryCommandHasHelp(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Short == "" || !strings.Contains(c.Example, c.Name()) {
			t.Errorf("%s has no summary or no example", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(Env{}))
}

// TestExitCodes holds the exit code of each class of ending that exists.
func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		args string
		want int
	}{
		{"version", 0}, {"", 0}, {"nonsense", 2}, {"demo --nonsense", 2}, {"relay serve", 7}, {"site serve", 2}, {"site keygen", 2}, {"up --json", 2},
	} {
		var out, errs bytes.Buffer
		got := Run(t.Context(), Env{Out: &out, Err: &errs, Version: "test"}, strings.Fields(c.args))
		if got != c.want {
			t.Errorf("allod %s ends with %d, want %d", c.args, got, c.want)
		}
		if (got == 0) != (errs.Len() == 0) {
			t.Errorf("allod %s: exit code %d and %d bytes on the error stream", c.args, got, errs.Len())
		}
	}
}
