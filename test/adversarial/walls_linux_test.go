package adversarial

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/runner/confine"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// TestWalls has a program that a running agent started try what its owner did not
// hand to it.
func TestWalls(t *testing.T) {
	t.Parallel()
	if c := confine.State(); !c.Enforced || c.ABI < 4 {
		if os.Getenv("ALLOD_LANDLOCK") == "required" {
			t.Fatalf("the kernel has not all walls, and ALLOD_LANDLOCK=required: %+v", c)
		}
		t.Skipf("the kernel has not all walls; ALLOD_LANDLOCK=required makes that a failure: %+v", c)
	}
	for _, id := range []wirebackend.ID{"claude-cli", wirebackend.CodexCLI} {
		t.Run(string(id), func(t *testing.T) {
			if os.Geteuid() == 0 {
				t.Skip("nothing is started for root")
			}
			t.Parallel()
			m := newMachine(t, id, "try", nil)
			ssh := filepath.Join(m.home, ".ssh")
			if err := os.Mkdir(ssh, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(ssh, "id"), []byte("canary"), 0o600); err != nil {
				t.Fatal(err)
			}
			// Everybody's, and so may be tried by the test as well.
			other := t.TempDir()
			closed := []attempt{
				{Do: "read", At: filepath.Join(m.agent.Home, "keys.json")},
				{Do: "read", At: filepath.Join(m.agent.Home, "pairings.json")},
				{Do: "read", At: filepath.Join(m.agent.Home, "config.json")},
				{Do: "read", At: filepath.Join(ssh, "id")},
				{Do: "list", At: m.agent.Home},
				{Do: "list", At: m.home},
				{Do: "list", At: ssh},
				{Do: "list", At: m.scratch},
				{Do: "write", At: filepath.Join(m.agent.Home, "new")},
				{Do: "write", At: filepath.Join(m.home, "new")},
				{Do: "write", At: filepath.Join(ssh, "authorized_keys")},
				{Do: "write", At: filepath.Join(m.dir, "new")},
				{Do: "write", At: filepath.Join(other, "new")},
				{Do: "tcp", At: m.site.Address},
				{Do: "unix", At: filepath.Join(m.agent.Home, "admin.sock")},
			}
			open := []attempt{{Do: "read", At: m.login}, {Do: "append", At: m.login}, {Do: "write", At: "here"}, {Do: "list", At: "."}}
			text, err := json.Marshal(append(closed, open...))
			if err != nil {
				t.Fatal(err)
			}
			m.set("attempts", string(text))

			var came []attempt
			if err := json.Unmarshal([]byte(m.answer(m.prompt("try"))), &came); err != nil || len(came) != len(closed)+len(open) {
				t.Fatalf("%v %v", came, err)
			}
			for i, a := range came {
				if want := map[bool]string{true: "denied", false: "done"}[i < len(closed)]; a.Came != want {
					t.Errorf("%s %s: %s", a.Do, a.At, a.Came)
				}
			}
			// Without walls it could do all of it, so it is they that keep it.
			cmd := exec.CommandContext(t.Context(), filepath.Join(m.dir, names[id]), "free")
			cmd.Dir, cmd.Stderr = t.TempDir(), io.Discard
			out, err := cmd.Output()
			if err != nil || strings.Contains(string(out), "denied") || strings.Count(string(out), "done") != len(came) {
				t.Errorf("without walls: %s %v", out, err)
			}

			status := m.tell("", "agent", "status")
			if !strings.Contains(status, "Programs run behind walls.") || !strings.Contains(m.tell("", "agent", "backends"), "Programs run behind walls.") {
				t.Errorf("%s", status)
			}
			for _, missing := range confine.State().Missing {
				if !strings.Contains(status, missing) {
					t.Errorf("%q is not in %s", missing, status)
				}
			}
			var s struct {
				Isolation struct {
					Enforced bool
					Open     []string
				}
			}
			if m.tellJSON(&s, "agent", "status"); !s.Isolation.Enforced || len(s.Isolation.Open) != len(confine.State().Missing) {
				t.Errorf("%+v", s)
			}
		})
	}
}
