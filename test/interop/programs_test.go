//go:build unix

package interop

import (
	"os/exec"
	"testing"

	"github.com/allodhq/allod/test/programs"
)

func TestMain(m *testing.M) { programs.Main(m) }

type object = map[string]any

// script is a script of this folder, in which node finds its packages.
func script(t *testing.T, node, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(t.Context(), node, append([]string{name}, args...)...)
}

// site is `allod site serve` whose jobs are alice's.
type site struct {
	*programs.Site
	t *testing.T
}

// serve starts a site. Without an address it takes a free one.
func serve(t *testing.T, data, address string, flags ...string) *site {
	t.Helper()
	if address == "" {
		address = "127.0.0.1:0"
	}
	return &site{programs.Serve(t, append([]string{"--data", data, "--listen", address}, flags...)...), t}
}

// ask enqueues a job of alice.
func (s *site) ask(id, kind string, payload object) {
	s.t.Helper()
	s.Call("POST", "/v1/jobs", object{"id": id, "kind": kind, "owner": "alice", "payload": payload})
}

// becomes waits for a job's state.
func (s *site) becomes(id, state string) (job object) {
	s.t.Helper()
	if !programs.Eventually(s.t, func() bool { job = s.Call("GET", "/v1/jobs/"+id, nil); return job["state"] == state }) {
		s.t.Fatalf("job %s never becomes %s: %v\n%s", id, state, job, s.Said)
	}
	return job
}

// at follows names into nested objects; nil where one is absent.
func at(v any, names ...string) any {
	for _, n := range names {
		o, _ := v.(object)
		v = o[n]
	}
	return v
}
