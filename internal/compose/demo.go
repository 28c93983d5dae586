package compose

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/httpd"
	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/internal/runner/sharing"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/sqlite"
	"github.com/allodhq/allod/wire/ai"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/protocol"
)

// What the demo refuses.
var (
	ErrNotRefused = refusal.NewKind("demo-not-refused", 500,
		"The demo's agent did not refuse a stranger's question.",
		"This must never happen; please report it.")
	ErrNoAnswer = refusal.NewKind("demo-no-answer", 500,
		"The demo's job ended without an answer.",
		"Look at the model server's own log, or stop it: then the demo brings a stand-in.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "The demo", Kinds: []*refusal.Kind{ErrNoAnswer, ErrNotRefused, ErrNoNode}}

// Demo is what a demo run showed. Its JSON form is the output of allod demo
// --json.
type Demo struct {
	Answer string `json:"answer"`
	// Backend is the table's name of what answered.
	Backend string `json:"backend"`
	// StandIn is whether that was the built-in stand-in, which is no model.
	StandIn bool `json:"standIn"`
	// SealedAtRest is whether neither question nor answer stands in any file of
	// the site, in any encoding in which bytes travel.
	SealedAtRest bool `json:"sealedAtRest"`
	// Refused names why the agent did not run a stranger's question.
	Refused string `json:"refused"`
	// Zone is the other half: a controller and this machine as its node.
	Zone Zone `json:"zone"`
	// Steps are the steps in order with their wall-clock time.
	Steps []Step `json:"steps"`

	// The rest is shown to people only.
	Question       string         `json:"-"`
	Site           string         `json:"-"` // the site's fingerprint
	Device         string         `json:"-"` // the device's
	Code           string         `json:"-"` // the short code
	Model          string         `json:"-"`
	Provenance     *ai.Provenance `json:"-"`
	StoredQuestion string         `json:"-"` // as the site's file has it
	StoredAnswer   string         `json:"-"`
	StoredFiles    []string       `json:"-"`
}

// Step is one step of the demo.
type Step struct {
	Name string `json:"name"`
	// Ms is the step's wall-clock time in milliseconds.
	Ms float64 `json:"ms"`
}

// DemoConfig says how a demo runs.
type DemoConfig struct {
	// Dir is an empty folder that only this user can reach.
	Dir string
	// Question is the prompt.
	Question string
	// Version is the program's own.
	Version string
	// StandIn takes the built-in stand-in without looking for a model.
	StandIn bool
	// Node is the program that makes this machine a node; without one, NoNode says
	// why (see [Sibling]).
	Node, NoNode string
	// Progress tells the person what takes a while.
	Progress func(text string)
}

// owner is the person in the demo, as its app knows them.
const owner = ai.Owner("you")

// RunDemo carries one question over the direct lane on this machine: a site and
// an agent, each with its own folder and keys, that speak HTTP over loopback. A
// person's part, approving the code, is done by the demo. The model is the first
// local model server that answers, else a stand-in that says what it is. Then a
// controller, with a folder and keys of its own, takes this machine as a node, which
// joins by a line as any other does. It returns refusals of the packages it uses,
// [ErrNoAnswer], [ErrNotRefused] and [ErrNoNode].
func RunDemo(ctx context.Context, c DemoConfig) (Demo, error) {
	ctx, cancel := context.WithCancel(ctx)
	d := &demo{c: c, Demo: Demo{Question: c.Question}}
	defer func() {
		cancel()
		for i := len(d.closers) - 1; i >= 0; i-- {
			d.closers[i]()
		}
	}()
	for _, step := range []struct {
		name string
		run  func(ctx context.Context) error
	}{
		{"open a site with keys of its own", d.openSite},
		{"open an agent and find a model that works", d.openAgent},
		{"pair them by a short code", d.pair},
		{"ask: seal the question and store it", d.ask},
		{"claim, open, run, seal, hand in, deliver", d.wait},
		{"refuse a stranger, who is not on the owner's list", d.refuse},
		{"search the site's files for question and answer", d.search},
		{"open a controller with an authority of its own", d.openController},
		{d.joining(), d.join},
	} {
		start := time.Now()
		if err := step.run(ctx); err != nil {
			return Demo{}, err
		}
		ms := float64(time.Since(start).Microseconds()) / 1000
		d.Steps = append(d.Steps, Step{step.name, ms})
	}
	return d.Demo, nil
}

// demo is the state between the steps.
type demo struct {
	Demo
	c       DemoConfig
	closers []func()

	site  *site.Site
	at    net.Addr
	agent *runner.Agent
	job   site.Job

	admin *carrier.Client // asks the controller as its local user
}

// joining is the name of the last step.
func (d *demo) joining() string {
	if d.c.NoNode != "" {
		return "ask it for its nodes"
	}
	return "join this machine by a line: enroll, prove, report"
}

func (d *demo) siteDir() string { return filepath.Join(d.c.Dir, "site") }

func (d *demo) openSite(ctx context.Context) error {
	log := slog.New(slog.DiscardHandler)
	mux := &httpd.Late{}
	server, err := httpd.New("127.0.0.1:0", mux, log)
	if err != nil {
		return err
	}
	d.at = server.Address()
	if d.site, err = sqlite.OpenSite(ctx, d.siteDir(), site.Config{VerificationURL: "http://" + d.at.String() + "/pair"}); err != nil {
		return err
	}
	d.closers = append(d.closers, func() { _ = d.site.Close() })
	mux.Handler = d.site.Handler()
	d.serve(ctx, server.Run)
	d.Site = d.site.KeyID().String()
	return nil
}

// serve runs something until ctx ends, which the closers wait for.
func (d *demo) serve(ctx context.Context, run func(context.Context) error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = run(ctx)
	}()
	d.closers = append(d.closers, func() { <-ended })
}

func (d *demo) openAgent(ctx context.Context) error {
	if !d.c.StandIn {
		d.c.Progress("Looking for a model server on this machine.")
		if err := d.openWith(ctx, settings.Defaults()); err != nil {
			return err
		}
		if d.agent != nil {
			return nil
		}
	}
	server, err := httpd.New("127.0.0.1:0", standIn(), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	d.serve(ctx, server.Run)
	s := settings.Defaults()
	s.Backends = map[string]settings.Backend{"stand-in": {ID: wirebackend.Generic, BaseURL: "http://" + server.Address().String() + "/v1"}}
	d.StandIn = true
	if err := d.openWith(ctx, s); err != nil {
		return err
	}
	if d.agent == nil {
		return backend.ErrUnreachable
	}
	return nil
}

// openWith opens the agent if a model is ready under these settings.
func (d *demo) openWith(ctx context.Context, s settings.Settings) error {
	a, err := runner.Open(runner.Config{Home: filepath.Join(d.c.Dir, agentFolder), Version: d.c.Version, Settings: s})
	if err != nil {
		return err
	}
	a.LookOnce(ctx)
	status, err := a.Status()
	if err != nil || len(status.Offers()) == 0 {
		_ = a.Close()
		return err
	}
	d.agent = a
	d.Device = a.Fingerprint().String()
	d.closers = append(d.closers, func() { _ = a.Close() })
	return nil
}

func (d *demo) pair(ctx context.Context) error {
	server, err := client.ParseServer("http://" + d.at.String())
	if err != nil {
		return err
	}
	status, err := d.agent.Status()
	if err != nil {
		return err
	}
	var approving error
	pairing, err := runner.Pair(ctx, runner.Pairing{
		Server: server, Keys: d.agent.Keys(), Offers: status.Offers(), Version: d.c.Version, Name: "demo",
		Show: func(c runner.Code) {
			d.Code = c.Code
			// The person compares what the app shows with what the agent shows.
			waiting, err := d.site.Devices.Pending(ctx, c.Code)
			if err == nil && waiting.Device.Fingerprint() != c.Fingerprint {
				err = ErrNoAnswer.With("The fingerprints differ.")
			}
			if err == nil {
				_, err = d.site.Devices.Approve(ctx, c.Code, owner)
			}
			approving = err
		},
	})
	if approving != nil {
		return approving
	}
	if err != nil {
		return err
	}
	if err := d.agent.Adopt(pairing); err != nil {
		return err
	}
	d.serve(ctx, d.agent.Run)
	return nil
}

func (d *demo) ask(ctx context.Context) (err error) {
	d.job, err = d.site.Jobs.Enqueue(ctx, site.Question{Owner: owner, Payload: ai.Generate{Prompt: d.Question}})
	return err
}

func (d *demo) wait(ctx context.Context) error {
	d.c.Progress("The model answers.")
	answer, err := d.site.Jobs.Wait(ctx, d.job.ID, site.Wait{Timeout: 10 * time.Minute})
	if err != nil {
		return err
	}
	switch o := answer.Outcome.(type) {
	case ai.Answer:
		d.Answer = o.Text
	case ai.Failure:
		return ErrNoAnswer.With("The agent reports: " + backend.KindOf(o.Code).Meaning())
	default:
		return ErrNoAnswer
	}
	d.Provenance = answer.Provenance
	status, err := d.agent.Status()
	if err != nil {
		return err
	}
	for _, b := range status.Backends {
		if len(b.Kinds) > 0 {
			d.Backend, d.Model = string(b.ID), b.Model
			break
		}
	}
	return nil
}

// stranger is somebody else at the same site.
const stranger = ai.Owner("a stranger")

// refuse has somebody else ask, after the owner offered the model to the people on
// a list with nobody on it. The site may hand the job on; the agent has the last
// word.
func (d *demo) refuse(ctx context.Context) error {
	status, err := d.agent.Status()
	if err != nil {
		return err
	}
	for _, b := range status.Backends {
		if len(b.Kinds) > 0 {
			if err := d.agent.SetTerms(b.Name, sharing.Terms{Scope: ai.OfferNamed}); err != nil {
				return err
			}
		}
	}
	job, err := d.site.Jobs.Enqueue(ctx, site.Question{Owner: stranger, Audience: ai.AudienceNamed, Payload: ai.Generate{Prompt: d.Question}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, refusalTime)
	defer cancel()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		lines, err := runner.Why(filepath.Join(d.c.Dir, agentFolder), job.ID)
		switch {
		case err != nil:
			return err
		case len(lines) == 1 && lines[0].Outcome == "refused":
			d.Refused = lines[0].Detail
			return nil
		case len(lines) > 0:
			return ErrNotRefused
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return ErrNotRefused
			}
			return ctx.Err()
		}
	}
}

// refusalTime bounds the wait for a refusal. It comes with the first claim.
const refusalTime = time.Minute

// agentFolder is the agent's in the demo's folder.
const agentFolder = "agent"

// search looks for question and answer in every file of the site.
func (d *demo) search(ctx context.Context) error {
	job, err := d.site.Store().Jobs().Job(ctx, d.job.ID, true)
	if err != nil {
		return err
	}
	if job.Result == nil {
		return ErrNoAnswer
	}
	d.StoredQuestion, d.StoredAnswer = job.Payload.Ciphertext, job.Result.Envelope.Ciphertext
	payload, err := protocol.Latest().WritePayload(ai.Generate{Prompt: d.Question})
	if err != nil {
		return err
	}
	outcome, err := protocol.Latest().Outcome.Write(ai.SealedOutcome{
		Outcome: ai.Answer{Text: d.Answer}, Ran: ai.RunMetadata{Model: d.Model, BackendClass: wirebackend.HTTP},
	})
	if err != nil {
		return err
	}
	places, err := d.files()
	if err != nil {
		return err
	}
	// A text of a few letters can stand in random bytes by chance, so those are
	// looked for as they would be stored.
	needles := [][]byte{payload, outcome[:len(outcome)/2]}
	for _, text := range []string{d.Question, d.Answer} {
		if len(text) >= 12 {
			needles = append(needles, []byte(text))
		}
	}
	d.SealedAtRest = true
	for _, needle := range needles {
		if holds(needle, places...) {
			d.SealedAtRest = false
		}
	}
	return nil
}

func (d *demo) files() (contents [][]byte, err error) {
	err = filepath.WalkDir(d.siteDir(), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		contents = append(contents, content)
		d.StoredFiles = append(d.StoredFiles, e.Name())
		return nil
	})
	return contents, err
}
