package certify

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/protocol"
)

// DefaultMaxWait is the longest wait for a clock of the server.
const DefaultMaxWait = 15 * time.Second

// Config says what is tested.
type Config struct {
	// Server is the server's origin, an http or https URL. Its devices are served
	// below ai.PathPrefix there.
	Server string
	// App is the app's half.
	App App
	// Versions are the protocol versions to test; empty means all that the server
	// names and this package speaks.
	Versions []string
	// Only are the ids of the checks to run; empty means all.
	Only []string
	// MaxWait is the longest wait for a clock of the server, as for a lease to
	// lapse; zero means [DefaultMaxWait]. What takes longer is not proved.
	MaxWait time.Duration
}

// Outcome is how a check ended.
type Outcome string

// The outcomes.
const (
	Passed    Outcome = "passed"
	Failed    Outcome = "failed"
	NotProved Outcome = "not-proved" // it could not be seen; says nothing
)

// Step is one thing that was sent, and what came back.
type Step struct {
	// Sent is who sent what, in short. It holds no secret and no text of a job.
	Sent string `json:"sent"`
	// Got is what came back: status, code, ids, and nothing else that the server
	// chose.
	Got string `json:"got"`
	// Times is how often the same came back in a row, at least 1.
	Times int `json:"times"`
}

// Result is one check in one version.
type Result struct {
	// ID never changes.
	ID string `json:"id"`
	// Title says what was proved, as a sentence without its full stop.
	Title string `json:"title"`
	// Musts are the MUSTs that the check is about.
	Musts []string `json:"musts,omitempty"`
	// Version is the protocol version that was spoken; empty in an audit.
	Version string  `json:"version,omitempty"`
	Outcome Outcome `json:"outcome"`
	// Why says what is wrong, or why nothing is proved; empty for what passed.
	Why string `json:"why,omitempty"`
	// Evidence are the steps in the order in which they were taken.
	Evidence []Step `json:"evidence"`
	// Millis is how long the check took.
	Millis int64 `json:"ms"`
}

// Unprovable is a MUST that no check is about.
type Unprovable struct {
	// Must is its id.
	Must string `json:"must"`
	// Why says why it cannot be seen from outside of a server.
	Why string `json:"why"`
}

// Report is what a run or an audit found.
type Report struct {
	// Server is the address as it was given.
	Server string `json:"server"`
	// Versions are the protocol versions that were tested; in an audit, those that
	// the server names and this package speaks.
	Versions []string `json:"versions,omitempty"`
	// Untested are versions that the server names and this package does not speak.
	Untested []string `json:"untested,omitempty"`
	// Passed is how many of the results did.
	Passed int `json:"passed"`
	// Failed is how many of the results did.
	Failed int `json:"failed"`
	// NotProved is how many of the results are not proved.
	NotProved int      `json:"notProved"`
	Results   []Result `json:"results"`
	// Unprovable are the MUSTs that no check is about; empty in an audit.
	Unprovable []Unprovable `json:"unprovable,omitempty"`
}

// Err returns [ErrFailed] when a check failed, and nil otherwise. With strict it
// returns [ErrNotProved] when one was not proved.
func (r Report) Err(strict bool) error {
	switch {
	case r.Failed > 0:
		return ErrFailed
	case strict && r.NotProved > 0:
		return ErrNotProved
	}
	return nil
}

func (r *Report) count() {
	for _, result := range r.Results {
		switch result.Outcome {
		case Passed:
			r.Passed++
		case Failed:
			r.Failed++
		default:
			r.NotProved++
		}
	}
}

// kit is one run.
type kit struct {
	base    string
	client  *http.Client
	app     App
	maxWait time.Duration
	// ahead is how far the server's clock is ahead of this machine's.
	ahead time.Duration
	// roots are the system's where nil.
	roots *x509.CertPool
}

func (k *kit) now() time.Time { return time.Now().Add(k.ahead) }

// check is one entry of the table.
type check struct {
	id, title string
	musts     []string
	run       func(t *trial)
}

// parallel is how many checks run at once. Most of a run is waiting.
const parallel = 8

// Run tests a server. A check that fails is no error; see [Report.Err]. It returns
// [ErrConfig], [ErrUnreachable], [ErrNoContract], [ErrApp] and the context's error.
//
// Everything it makes stands under names of its own, and is canceled and revoked
// at the end. It does not need an empty server.
func Run(ctx context.Context, c Config) (Report, error) {
	base, err := parseServer(c.Server)
	if err != nil {
		return Report{}, err
	}
	if c.App == nil {
		return Report{}, ErrConfig.With("The app's half is missing.")
	}
	if c.MaxWait < 0 {
		return Report{}, ErrConfig.With("The longest wait is negative.")
	}
	chosen, err := choose(checks(), c.Only)
	if err != nil {
		return Report{}, err
	}
	k := &kit{base: base.String(), client: newClient(), app: c.App, maxWait: cmp.Or(c.MaxWait, DefaultMaxWait)}
	defer k.client.CloseIdleConnections()
	report := Report{Server: c.Server, Unprovable: unprovable()}
	if report.Versions, report.Untested, err = k.hears(ctx); err != nil {
		return Report{}, firstOf(ctx, err)
	}
	if len(c.Versions) > 0 {
		for _, v := range c.Versions {
			if !slices.Contains(report.Versions, v) {
				return Report{}, ErrConfig.With("The server, or this program, does not speak a version that was asked for.")
			}
		}
		report.Versions = c.Versions
	}
	// An app's half that does nothing would make every check fail alike.
	if _, err := c.App.Available(ctx, ai.Owner(newTag()+"-nobody"), ai.KindGenerate, ai.AudienceSelf); err != nil && !isUnsupported(err) {
		if !errors.Is(err, ErrApp) {
			err = ErrApp.Because(err)
		}
		return Report{}, firstOf(ctx, err)
	}
	trials := make([]*trial, 0, len(report.Versions)*len(chosen))
	for _, v := range report.Versions {
		codec, _ := protocol.Find(v)
		for _, one := range chosen {
			trials = append(trials, &trial{ctx: ctx, kit: k, codec: codec, check: one, tag: newTag()})
		}
	}
	report.Results = make([]Result, len(trials))
	each(len(trials), func(i int) { report.Results[i] = trials[i].judge() })
	if ctx.Err() != nil {
		return Report{}, ctx.Err()
	}
	report.count()
	return report, nil
}

// firstOf is the context's error where that is why there is another.
func firstOf(ctx context.Context, err error) error { return cmp.Or(ctx.Err(), err) }

// each calls do for 0 to n-1, a few at once.
func each(n int, do func(i int)) {
	todo := make(chan int)
	var wg sync.WaitGroup
	for range min(parallel, n) {
		wg.Go(func() {
			for i := range todo {
				do(i)
			}
		})
	}
	for i := range n {
		todo <- i
	}
	close(todo)
	wg.Wait()
}

// choose returns the checks with these ids, in the order of the table.
func choose(all []check, ids []string) (chosen []check, err error) {
	if len(ids) == 0 {
		return all, nil
	}
	for _, c := range all {
		if slices.Contains(ids, c.id) {
			chosen = append(chosen, c)
		}
	}
	for _, id := range ids {
		if !slices.ContainsFunc(all, func(c check) bool { return c.id == id }) {
			return nil, ErrConfig.With("There is no check with an id that was asked for; docs/certify.md lists them.")
		}
	}
	return chosen, nil
}

// Check is what a check is about, for lists of them.
type Check struct {
	// ID never changes; Title says what is proved, as a sentence without its full
	// stop.
	ID, Title string
	// Musts are the MUSTs that it is about; none in an audit.
	Musts []string
}

// Checks are those of [Run], in their order.
func Checks() []Check { return listed(checks()) }

func listed(all []check) []Check {
	list := make([]Check, len(all))
	for i, c := range all {
		list[i] = Check{c.id, c.title, c.musts}
	}
	return list
}
