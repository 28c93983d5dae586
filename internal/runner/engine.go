package runner

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/internal/runner/confine"
	"github.com/allodhq/allod/internal/runner/program"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// engine is what runs a backend's models: a model server, or a program that is
// started for each run.
type engine interface {
	Cost() wirebackend.Cost
	CostOf(model string) wirebackend.Cost
	Run(ctx context.Context, r backend.Request) backend.Result
	Probe(ctx context.Context, model string) error
}

// How often a program is looked for, and looked at once it was found.
const (
	findEvery  = time.Minute
	checkEvery = 10 * time.Minute
)

// classOf is how a backend of the table is reached.
func classOf(id wirebackend.ID) wirebackend.Class {
	row, _ := wirebackend.Find(id)
	return row.Class
}

func (st *stand) isProgram() bool { return classOf(st.id) == wirebackend.Process }

// serve makes a model server a stand's engine.
func (st *stand) serve(c backend.Config) {
	h, err := backend.Open(c)
	if st.err = err; err == nil {
		st.http, st.engine = h, h
	}
}

// check finds a stand's program and asks for its version where that is due. One
// that is not there, or is not as it must be, is no engine.
func (sh *shelf) check(ctx context.Context, st *stand) {
	now := sh.clock()
	sh.mu.Lock()
	p, every := st.program, findEvery
	if st.engine != nil {
		every = checkEvery
	}
	due := st.listed.IsZero() || now.Sub(st.listed) >= every
	if due {
		st.listed = now
	}
	sh.mu.Unlock()
	if !due {
		return
	}
	var err error
	if p == nil {
		if err = os.MkdirAll(sh.scratch, 0o700); err != nil {
			err = program.ErrScratch.Because(err)
		}
	}
	if p == nil && err == nil {
		p, err = program.Open(program.Config{ID: st.id, Scratch: sh.scratch, Confine: sh.confine})
	}
	if err == nil {
		_, err = p.Version(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if st.err = err; err != nil {
		st.program, st.engine = nil, nil // it may have moved
		return
	}
	st.program, st.engine = p, p
}

// confine puts up the walls around a program: of the agent's folder it sees
// nothing but its own scratch folder, and of the rest what it needs.
func (sh *shelf) confine(cmd *exec.Cmd, n program.Needs) error {
	return confine.Policy{Read: n.Read, Run: n.Run, Write: n.Write, Hide: []string{filepath.Dir(sh.scratch)}}.Apply(cmd)
}
