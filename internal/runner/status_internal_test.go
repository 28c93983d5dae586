package runner

import (
	"reflect"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/runner/confine"
)

// TestIsolation holds what is said of the walls around programs, and that it is a
// problem only where a program would run without them.
func TestIsolation(t *testing.T) {
	none := confine.ErrUnconfined.With("The kernel has no Landlock.")
	programs := Status{Backends: []BackendStatus{{Name: "desk", ID: "ollama"}, {Name: "me", ID: "claude-cli"}}}
	servers := Status{Backends: programs.Backends[:1]}
	for name, c := range map[string]struct {
		walls    confine.Confinement
		want     Isolation
		problems int // with a program
	}{
		"all":  {confine.Confinement{Enforced: true, ABI: 10}, Isolation{Enforced: true}, 0},
		"some": {confine.Confinement{Enforced: true, ABI: 7, Missing: []string{"a"}}, Isolation{Enforced: true, Open: []string{"a"}}, 0},
		"none": {confine.Confinement{Reason: none}, Isolation{Refusal: "programs-unconfined"}, 1},
	} {
		if got := isolation(c.walls); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v", name, got)
		}
		got := openProblem(programs, c.walls.Reason)
		if len(got) != c.problems {
			t.Errorf("%s: %q", name, got)
		}
		for _, text := range got {
			for _, want := range []string{confine.ErrUnconfined.Meaning(), none.Detail(), confine.ErrUnconfined.WayOut()} {
				if !strings.Contains(text, want) {
					t.Errorf("%s: %q is not in %q", name, want, text)
				}
			}
		}
		if got := openProblem(servers, c.walls.Reason); got != nil {
			t.Errorf("%s, without programs: %q", name, got)
		}
	}
}
