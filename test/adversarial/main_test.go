package adversarial

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/allodhq/allod/test/programs"
)

// agentEnv makes this binary an agent that runs one job.
const agentEnv = "ALLOD_ADVERSARIAL_AGENT"

// TestMain is also the programs that play the backends: started by their
// names this binary is one of them.
func TestMain(m *testing.M) {
	switch name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe"); name {
	case "claude", "codex":
		// os.Exit waits for a second where the race detector is on.
		syscall.Exit(fakeMain(name))
	}
	if os.Getenv(agentEnv) != "" {
		os.Exit(agentMain())
	}
	if code, done := asOrdinaryUser(m); done {
		os.Exit(code)
	}
	programs.Main(m)
}
