package program

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// DefaultSilence is how long a program may write nothing. claude says nothing
// before it is done, so for it this bounds the whole run.
const DefaultSilence = 5 * time.Minute

// Bounds of runs.
const (
	// maxOutput bounds what a request may allow: no result carries more.
	maxOutput = 32 << 20
	// envelope is what a program may write around its answer, beside the answer
	// itself, which some write twice.
	envelope = 256 << 10
	// maxModel bounds a model's name in bytes.
	maxModel = 256
	// versionTime and maxVersion are for a program that says its version.
	versionTime = 10 * time.Second
	maxVersion  = 4 << 10
	// probeTime and maxProbe are for a proof.
	probeTime = 2 * time.Minute
	maxProbe  = 1 << 20
)

// Config is one backend as its owner configured it.
type Config struct {
	// ID is of the contract's table.
	ID wirebackend.ID
	// Env reads the agent's environment; nil means os.LookupEnv.
	Env func(name string) (string, bool)
	// Scratch is an existing folder in which each run gets one of its own; empty
	// means the system's folder for temporary files.
	Scratch string
	// Silence is how long a run may write nothing; zero means [DefaultSilence].
	Silence time.Duration
	// Confine puts up walls around a command that is about to start. It is called
	// last; its error is the run's. Nil means none.
	Confine func(cmd *exec.Cmd, needs Needs) error
	// Now is the clock that runs are measured with; nil means time.Now.
	Now func() time.Time
}

// Needs is what a program needs of the machine beside the system's own files.
// The paths are absolute, and some may not exist.
type Needs struct {
	// Read has the program's settings.
	Read []string
	// Run is where the program is installed, and its interpreter if it has one.
	Run []string
	// Write has the scratch folder first, then the login that the program renews.
	Write []string
}

// Program is one backend of the class process. It may be used by many at once.
type Program struct {
	id      wirebackend.ID
	tool    tool
	command command
	env     []string
	home    string
	scratch string
	silence time.Duration
	confine func(*exec.Cmd, Needs) error
	now     func() time.Time

	mu sync.Mutex
	// known is the state of the program's file whose version was good.
	known fs.FileInfo
}

// command is how a program is started: a path, and for a script the arguments
// that name it to its interpreter.
type command struct {
	path string
	args []string
}

// file is what decides over what runs.
func (c command) file() string {
	if len(c.args) > 0 {
		return c.args[0]
	}
	return c.path
}

// euid is a variable for the tests, which do not run as every user.
var euid = os.Geteuid

// Open finds the program in the PATH that it will be given. It starts nothing.
// It returns [wirebackend.ErrUnknown], [ErrServer], [ErrRoot], [ErrNotFound],
// [ErrReplaceable] or [ErrShim], of which the first that holds.
func Open(c Config) (*Program, error) {
	d, ok := wirebackend.Find(c.ID)
	switch {
	case !ok:
		return nil, wirebackend.ErrUnknown
	case d.Class != wirebackend.Process:
		return nil, ErrServer
	case euid() == 0:
		return nil, ErrRoot
	}
	t, ok := tools[c.ID]
	if !ok {
		return nil, wirebackend.ErrUnknown
	}
	if c.Env == nil {
		c.Env = os.LookupEnv
	}
	p := &Program{id: c.ID, tool: t, scratch: c.Scratch, silence: c.Silence, confine: c.Confine, now: c.Now}
	if p.scratch == "" {
		p.scratch = os.TempDir()
	}
	if p.silence <= 0 {
		p.silence = DefaultSilence
	}
	if p.now == nil {
		p.now = time.Now
	}
	var dirs []string
	p.env, dirs, p.home = environment(c.Env, runtime.GOOS)
	p.env = append(p.env, t.env...)
	var err error
	if p.command, err = find(t.name, dirs); err != nil {
		return nil, err
	}
	return p, nil
}

// ID is the backend's id in the contract's table.
func (p *Program) ID() wirebackend.ID { return p.id }

// Path is the program's file, for showing.
func (p *Program) Path() string { return p.command.file() }

// Cost is always a subscription: the programs run on their owner's personal
// account (MUST SUBSCRIPTION_SELF_LOCK).
func (p *Program) Cost() wirebackend.Cost { return p.CostOf("") }

// CostOf is the same for every model.
func (p *Program) CostOf(model string) wirebackend.Cost {
	cost, err := wirebackend.CostOf(p.id, "", model)
	if err != nil {
		return wirebackend.Subscription
	}
	return cost
}

// Version asks the program for its version, as in 2.1.197. It takes at most ten
// seconds. It returns [ErrOld] for a program that is too old or says no version,
// [ErrReplaceable], [ErrNotFound], [ErrScratch], [ErrWalls], [ErrStart],
// [ErrTime], [ErrTooLarge], or context.Canceled where the caller gave up.
func (p *Program) Version(ctx context.Context) (string, error) {
	if err := p.command.judge(); err != nil {
		return "", err
	}
	e, err := p.start(ctx, job{args: []string{"--version"}, time: versionTime, silence: versionTime, max: maxVersion})
	if err != nil {
		return "", err
	}
	v, text, ok := readVersion(e.out)
	switch {
	case e.code != 0 || !ok:
		return "", ErrOld
	case v.less(p.tool.oldest):
		return text, ErrOld
	}
	return text, nil
}

// current refuses a program that is too old. It asks once for each state of the
// program's file, since programs update themselves.
func (p *Program) current(ctx context.Context) error {
	if err := p.command.judge(); err != nil {
		return err
	}
	file, err := os.Stat(p.command.file())
	if err != nil {
		return ErrNotFound.Because(err)
	}
	p.mu.Lock()
	known := p.known
	p.mu.Unlock()
	if known != nil && os.SameFile(known, file) && known.Size() == file.Size() && known.ModTime().Equal(file.ModTime()) {
		return nil
	}
	if _, err := p.Version(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	p.known = file
	p.mu.Unlock()
	return nil
}

// Run runs one job. MaxTokens of a request is not kept: the programs have no
// such bound. Usage is set also for a run that failed, where the program says
// what it used.
func (p *Program) Run(ctx context.Context, r backend.Request) backend.Result {
	start := p.now()
	a, err := p.answer(ctx, r)
	result := backend.Result{Usage: a.usage, Took: max(p.now().Sub(start), 0)}
	if err != nil {
		result.Outcome = outcomeOf(err)
		if !errors.Is(err, context.Canceled) {
			result.Kind = refusal.From(err).Kind()
		}
		return result
	}
	result.Outcome, result.Stop = ai.Answer{Text: a.text}, a.stop
	return result
}

// Probe has the model generate a little, and returns nil if it did. It takes at
// most two minutes, and the owner's account pays for it. It returns the refusals
// of this package but those of [Open], or context.Canceled where the caller gave
// up.
func (p *Program) Probe(ctx context.Context, model string) error {
	_, err := p.answer(ctx, backend.Request{
		Model: model, Payload: ai.Generate{Prompt: "Reply with the word ready."}, MaxTime: probeTime, MaxOutput: maxProbe,
	})
	return err
}

// answer is what is read of a program's output.
type answer struct {
	text  string
	usage backend.Usage
	stop  ai.Stop
}

func (p *Program) answer(ctx context.Context, r backend.Request) (answer, error) {
	if r.MaxTime <= 0 {
		r.MaxTime = backend.DefaultMaxTime
	}
	if r.MaxOutput <= 0 {
		r.MaxOutput = backend.DefaultMaxOutput
	}
	r.MaxOutput = min(r.MaxOutput, maxOutput)
	if !isModel(r.Model) {
		return answer{}, ErrModel
	}
	prompt, ok := compose(r.Payload)
	if !ok {
		return answer{}, ErrFailed.With("The job is of a kind that no program takes.")
	}
	ends := time.Now().Add(r.MaxTime)
	if err := p.current(ctx); err != nil {
		return answer{}, err
	}
	e, err := p.start(ctx, job{
		args: p.tool.args(r.Model), stdin: p.tool.guard(prompt),
		time: time.Until(ends), silence: p.silence, max: 2*r.MaxOutput + envelope,
	})
	if err != nil {
		return answer{}, err
	}
	a, err := p.tool.read(e)
	switch {
	case err != nil:
		return answer{usage: a.usage}, err
	case e.unread:
		return answer{usage: a.usage}, ErrUnread
	case e.code != 0:
		return answer{usage: a.usage}, ErrFailed
	case strings.TrimSpace(a.text) == "":
		return answer{usage: a.usage}, ErrEmpty
	case limitForm.MatchString(a.text):
		return answer{usage: a.usage}, ErrLimit
	case len(a.text) > r.MaxOutput:
		return answer{usage: a.usage}, ErrTooLarge
	}
	return a, nil
}

// isModel reports whether a name can be one argument that no program takes for
// an option.
func isModel(name string) bool {
	return name != "" && len(name) <= maxModel && name[0] != '-' && utf8.ValidString(name) &&
		strings.IndexFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// below are paths in the owner's home.
func (p *Program) below(names []string) (paths []string) {
	for _, name := range names {
		if p.home != "" {
			paths = append(paths, filepath.Join(p.home, filepath.FromSlash(name)))
		}
	}
	return paths
}
