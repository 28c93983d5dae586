package adversarial

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/allodhq/allod/internal/cli"
	"github.com/allodhq/allod/internal/runner/confine"
	"github.com/allodhq/allod/test/programs"
)

// agentEnv makes this binary an agent that runs one job.
const agentEnv = "ALLOD_ADVERSARIAL_AGENT"

// allod is the command.
func allod() int {
	confine.Main()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return cli.Run(ctx, cli.Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Version: "test"}, os.Args[1:])
}

// TestMain is also the command, and the programs that play the backends: started by their
// names this binary is one of them.
func TestMain(m *testing.M) {
	switch name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe"); name {
	case "claude", "codex":
		// os.Exit waits for a second where the race detector is on.
		syscall.Exit(fakeMain(name))
	case "allod", "allod confine": // the second is how it starts itself to confine another
		syscall.Exit(allod())
	}
	if err := programs.Itself(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Getenv(agentEnv) != "" {
		os.Exit(agentMain())
	}
	if code, done := asOrdinaryUser(m); done {
		os.Exit(code)
	}
	programs.Main(m)
}
