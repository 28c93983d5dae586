package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/internal/runner/confine"
	"github.com/allodhq/allod/internal/runner/program"
	"github.com/allodhq/allod/internal/runner/settings"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// backends asks each model server for its models, and each program for its
// version. Nothing generates, so nothing costs.
func (e exam) backends(ctx context.Context) []Probe {
	if e.Settings.Backends == nil {
		return e.detected(ctx)
	}
	names := slices.Sorted(maps.Keys(e.Settings.Backends))
	probes := make([]Probe, len(names))
	var group sync.WaitGroup
	for i, name := range names {
		group.Go(func() { probes[i] = e.backend(ctx, name, e.Settings.Backends[name]) })
	}
	group.Wait()
	for _, name := range names {
		if isProgram(e.Settings.Backends[name].ID) {
			return append(probes, isolation(confine.State()))
		}
	}
	return probes
}

func isProgram(id wirebackend.ID) bool {
	row, _ := wirebackend.Find(id)
	return row.Class == wirebackend.Process
}

// program finds a program and asks it for its version, behind the walls that it
// runs behind. Whether it is logged in only a run would tell, which costs.
func (e exam) program(ctx context.Context, name string, b settings.Backend) Probe {
	p := of("backend "+name, "program", "Looked for the program of %s in the PATH, and asked it for its version.", b.ID)
	began := time.Now()
	scratch, err := os.MkdirTemp(e.Home, "doctor")
	if err != nil {
		return *p.refused(Failed, program.ErrScratch)
	}
	defer os.RemoveAll(scratch)
	found, err := program.Open(program.Config{ID: b.ID, Scratch: scratch, Confine: func(cmd *exec.Cmd, n program.Needs) error {
		return confine.Policy{Read: n.Read, Run: n.Run, Write: n.Write, Hide: []string{e.Home}}.Apply(cmd)
	}})
	if err != nil {
		return *p.refused(Failed, err)
	}
	version, err := found.Version(ctx)
	p.Millis = time.Since(began).Milliseconds()
	if err != nil {
		return *p.refused(Failed, err)
	}
	return *p.is(OK, "It is "+version+" at "+found.Path()+". Whether it is logged in shows in a run: allod agent backends --prove.", "")
}

// isolation says what the kernel keeps programs from.
func isolation(c confine.Confinement) Probe {
	p := of("backends", "isolation", "Asked the kernel what it keeps programs from that the agent starts.")
	switch {
	case !c.Enforced && c.Reason != nil:
		p.refused(Warning, c.Reason)
	case !c.Enforced:
		p.refused(Warning, confine.ErrUnconfined)
	case len(c.Missing) > 0:
		p.is(Warning, fmt.Sprintf("They are confined, by version %d of Landlock. What stays open: %s.", c.ABI, strings.Join(c.Missing, ", ")), "A newer kernel closes that.")
	default:
		p.is(OK, fmt.Sprintf("They are confined, by version %d of Landlock.", c.ABI), "")
	}
	return *p
}

func (e exam) backend(ctx context.Context, name string, b settings.Backend) Probe {
	if isProgram(b.ID) {
		return e.program(ctx, name, b)
	}
	p := of("backend "+name, "models", "Asked it for its models, as %s.", b.ID)
	c := backend.Config{ID: b.ID, BaseURL: b.BaseURL}
	if b.KeyEnv != "" {
		text := os.Getenv(b.KeyEnv)
		if text == "" {
			p.refused(Failed, runner.ErrKeyUnset)
			p.Came += " It is " + b.KeyEnv + "."
			p.Do = "Set it where the agent is started; for the service, put it into service.env in the agent's folder."
			return *p
		}
		c.Key = backend.NewKey(text)
	}
	h, err := backend.Open(c)
	if err != nil {
		return *p.refused(Failed, err)
	}
	p.Tried = fmt.Sprintf("Asked it for its models, as %s at %s.", b.ID, h.BaseURL())
	began := time.Now()
	models, err := h.Models(ctx)
	p.Millis = time.Since(began).Milliseconds()
	if err != nil {
		return *p.refused(Failed, err)
	}
	for _, kind := range slices.Sorted(maps.Keys(e.Settings.Routes)) {
		if r := e.Settings.Routes[kind]; r.Backend == name && len(models) > 0 && !backend.HasModel(models, r.Model) {
			return *p.is(Failed, fmt.Sprintf("It lists %d, and not the one that the route %s names.", len(models), kind), "Load that model there, or name another one in the route.")
		}
	}
	return *p.is(e.listed(len(models)))
}

// listed says what a number of models means.
func (e exam) listed(n int) (s State, came, do string) {
	switch n {
	case 0:
		return Warning, "It answers and lists no model.", "Load one there, unless it takes names that it does not list."
	case 1:
		return OK, "It lists 1.", ""
	}
	return OK, fmt.Sprintf("It lists %d.", n), ""
}

// detected looks where model servers are by default.
func (e exam) detected(ctx context.Context) []Probe {
	const tried = "Asked the addresses where model servers are by default, since the configuration names none."
	began := time.Now()
	found := backend.Detect(ctx)
	took := time.Since(began).Milliseconds()
	var probes []Probe
	for _, f := range found {
		p := of("backend "+string(f.ID), "models", tried)
		p.Millis = took
		switch {
		case f.Locked:
			p.refused(Warning, backend.ErrUnauthorized)
			p.Do = "Give it in the configuration, with apiKeyEnv."
		default:
			p.is(e.listed(len(f.Models)))
		}
		probes = append(probes, *p)
	}
	if len(found) == 0 {
		p := of("backends", "models", tried)
		p.Millis = took
		p.refused(Failed, runner.ErrNoModel)
		if errors.Is(ctx.Err(), context.Canceled) {
			p.is(Skipped, "It was interrupted.", "")
		}
		probes = append(probes, *p)
	}
	return probes
}
