//go:build unix

package gateway

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/allodhq/allod/test/programs"
)

func TestMain(m *testing.M) { programs.Main(m) }

type object = map[string]any

// newModel is a model whose name nobody but its owner is to see.
func newModel(t *testing.T) *programs.Model { return programs.NewModel(t, "owners-model") }

// lane is a site with a gateway, and keys for it: its own, which acts for every
// user, and one of alice's.
type lane struct {
	*programs.Site
	t         *testing.T
	alice     string // her key
	aliceFile string // the file that it is in
}

// newLane starts a site that gives up soon where nobody is there.
func newLane(t *testing.T) *lane {
	t.Helper()
	data, config := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "site.json")
	text, err := json.Marshal(object{"site": object{"data": data, "gateway": object{
		"labels": object{
			"friends": object{"audience": "named"},
			"chatty":  object{"audience": "self", "kind": "llm.chat"},
		},
		"drop": []string{"temperature", "safety_identifier"}, "grace": "1s",
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	l := &lane{Site: programs.Serve(t, "--config", config), t: t, aliceFile: filepath.Join(t.TempDir(), "alice-key")}

	made, err := exec.CommandContext(t.Context(), programs.Allod(t), "site", "key", "add", "--json", "--data", data,
		"--name", "alice", "--scope", "enqueue,read", "--owner", "alice").Output()
	var added struct{ Key string }
	if err := errors.Join(err, json.Unmarshal(made, &added)); err != nil {
		t.Fatalf("a key for alice: %v\n%s", err, l.Said)
	}
	l.alice = added.Key
	if err := os.WriteFile(l.aliceFile, []byte(l.alice+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return l
}

// online waits until the site knows that alice's machine offers chats.
func (l *lane) online(machine *programs.Process) {
	l.t.Helper()
	if !programs.Eventually(l.t, func() bool {
		return l.Call("GET", "/v1/availability?owner=alice&kind=llm.chat", nil)["available"] == true
	}) {
		l.t.Fatalf("alice's machine never offers anything:\n%s", machine.Said)
	}
}

// agent starts our agent as alice's machine.
func (l *lane) agent(m *programs.Model) {
	l.t.Helper()
	a := programs.NewAgent(l.t, m, 2)
	a.Pair(l.URL, func(code string) { l.Approve(code) })
	l.online(a.Run())
}
