package programs

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// Agent is Allod's agent on an owner's machine.
type Agent struct {
	t    *testing.T
	Home string   // its folder
	Env  []string // of its commands, besides the test's own
}

// NewAgent writes the configuration of an agent that asks one model.
func NewAgent(t *testing.T, m *Model, concurrency int) *Agent {
	t.Helper()
	a := &Agent{t: t, Home: filepath.Join(t.TempDir(), "agent")}
	a.Configure(map[string]any{
		"backends":    map[string]any{"mine": map[string]any{"backend": "openai-http", "baseUrl": m.URL + "/v1"}},
		"concurrency": concurrency,
	})
	return a
}

// AgentIn is the agent of a folder, with variables for its environment.
func AgentIn(t *testing.T, home string, env ...string) *Agent { return &Agent{t, home, env} }

// Configure writes the agent's section of its configuration, and makes its folder
// if there is none.
func (a *Agent) Configure(section map[string]any) {
	a.t.Helper()
	if err := os.MkdirAll(a.Home, 0o700); err != nil {
		a.t.Fatal(err)
	}
	write(a.t, filepath.Join(a.Home, "config.json"), map[string]any{"agent": section})
}

// Command is a command of the agent's that was not started.
func (a *Agent) Command(args ...string) *exec.Cmd {
	a.t.Helper()
	cmd := exec.CommandContext(a.t.Context(), Allod(a.t), args...)
	cmd.Env = append(append(os.Environ(), a.Env...), "ALLOD_HOME="+a.Home)
	return cmd
}

// Run starts the agent.
func (a *Agent) Run() *Process {
	a.t.Helper()
	return Start(a.t, a.Command("agent", "run"))
}

// Pair pairs the agent with a server. approve is given the code that the agent
// shows. The runner's id and its owner are what the agent was told.
func (a *Agent) Pair(url string, approve func(code string)) (runner, owner string) {
	a.t.Helper()
	cmd, said := a.Command("connect", url, "--pair-only", "--json"), &Transcript{}
	cmd.Stderr = said
	out, err := cmd.StdoutPipe()
	if err != nil {
		a.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := json.NewDecoder(out)
	var shown, paired struct{ UserCode, RunnerID, Owner string }
	if err := lines.Decode(&shown); err != nil || shown.UserCode == "" {
		a.t.Fatalf("connect: %+v %v\n%s", shown, err, said)
	}
	approve(shown.UserCode)
	if err := lines.Decode(&paired); err != nil {
		a.t.Fatalf("paired: %v\n%s", err, said)
	}
	if err := cmd.Wait(); err != nil {
		a.t.Fatalf("connect: %v\n%s", err, said)
	}
	return paired.RunnerID, paired.Owner
}

// judges is the folder of the published programs, seen from a suite beside it.
var judges = filepath.Join("..", "interop")

// Daemon is the published daemon on an owner's machine.
type Daemon struct {
	Home string // its folder, which has config.json and, once it is paired, keys.json
	t    *testing.T
	node string
}

// NewDaemon writes the configuration of a machine with one service for each list of
// kinds, all of which ask one model. The floor under the memory it keeps free is as
// low as it can be: these tests load no model. Where the daemon cannot be had, it
// does as [Node] does.
func NewDaemon(t *testing.T, m *Model, kinds ...[]string) *Daemon {
	t.Helper()
	d := &Daemon{Home: t.TempDir(), t: t, node: Node(t, judges)}
	services := map[string]any{}
	for i, k := range kinds {
		services[fmt.Sprintf("service-%d", i+1)] = map[string]any{
			"type": "openai-http", "baseUrl": m.URL + "/v1", "model": m.ID, "kinds": k, "offer": "private",
		}
	}
	write(t, filepath.Join(d.Home, "config.json"), map[string]any{
		"version": 1, "services": services, "concurrency": 1, "minAvailableMemoryBytes": 1,
	})
	return d
}

// Start starts a command of the daemon's, which is called judge. What it keeps
// outside of its own folder goes there as well.
func (d *Daemon) Start(args ...string) *Process {
	d.t.Helper()
	program := filepath.Join(judges, "node_modules", "byollm", "dist", "bin.js")
	cmd := exec.CommandContext(d.t.Context(), d.node, append([]string{program}, args...)...)
	cmd.Env = append(os.Environ(), "BYOLLM_HOME="+d.Home, "HOME="+d.Home, "BYOLLM_LABEL=judge")
	return Start(d.t, cmd)
}

var shownCode = regexp.MustCompile(`Enter code: .*?([A-Z0-9]{4}-[A-Z0-9]{4})`)

// Connect begins to pair and returns the code that the daemon shows.
func (d *Daemon) Connect(url string) (connecting *Process, code string) {
	d.t.Helper()
	connecting = d.Start("connect", url)
	connecting.Said.Shows(d.t, "waiting for approval")
	found := shownCode.FindStringSubmatch(connecting.Said.String())
	if found == nil {
		d.t.Fatalf("no code is shown:\n%s", connecting.Said)
	}
	return connecting, found[1]
}

func write(t *testing.T, path string, config any) {
	t.Helper()
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
