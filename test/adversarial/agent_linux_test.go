package adversarial

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/internal/runner/program"
)

// agentMain runs one job on the claude of its PATH.
func agentMain() int {
	p, err := program.Open(program.Config{ID: "claude-cli", Scratch: os.Getenv(agentEnv)})
	if err != nil {
		return 1
	}
	p.Run(context.Background(), backend.Request{Model: "m", Payload: generate("p")})
	return 0
}

// TestProgramsDieWithTheAgent kills an agent the hard way.
func TestProgramsDieWithTheAgent(t *testing.T) {
	t.Parallel()
	f := newFake(t, "claude-cli", "hang")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	agent := exec.Command(self)
	agent.Env = append(os.Environ(), "PATH="+f.dir, "HOME="+f.home, agentEnv+"="+f.scratch)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(2 * time.Minute)
	for {
		if _, err := os.Stat(filepath.Join(f.dir, "seen")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the program did not start")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait()
	var s seen
	f.read("seen", &s)
	gone(t, s.Pid)
}
