package runner

import (
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/runner/confine"
)

// TestUnconfined: a kernel without walls is named, and one with them is not.
func TestUnconfined(t *testing.T) {
	for name, c := range map[string]struct {
		state confine.Confinement
		want  string
	}{
		"walls":  {confine.Confinement{Enforced: true, ABI: 1, Missing: []string{"TCP to every port"}}, ""},
		"none":   {confine.Confinement{}, confine.ErrUnconfined.Meaning()},
		"reason": {confine.Confinement{Reason: confine.ErrUnconfined.With("The kernel has no Landlock.")}, "The kernel has no Landlock."},
	} {
		var said []string
		unconfined(c.state, func(text string) { said = append(said, text) })
		if got := strings.Join(said, "\n"); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
