package runner

import (
	"context"
	random "crypto/rand"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/allodhq/allod/internal/killpoint"
	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/runner/ingress"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/envelope"
)

// What is refused once a job was opened, besides what the contract's packages
// refuse.
var (
	ErrPast = refusal.NewKind("job-past-deadline", 403,
		"The job and its sealed payload are both past their deadlines.",
		"Ask again; check the clocks of both machines if it was asked just now.")
	ErrUnsignedReach = refusal.NewKind("reach-unsigned", 403,
		"The site used to sign what a job may reach, and this job came without it.",
		"Do not run it; whoever carried it may have changed what the job may reach.")
	// ErrResealed is no verdict: the job comes again under the site's new name.
	ErrResealed = refusal.NewKind("job-resealed", 503,
		"The site began to use its next key between granting the job and sealing it.",
		"Nothing needs to be done: the job was given back, and comes again under the next key.")
)

// work does one job from fetch to kept result and says how it ended. ctx ends
// with cause errCanceled where the app canceled the job.
func (d *driver) work(ctx context.Context, w lane.Work) lane.WorkDone {
	done := lane.WorkDone{Lease: w.Stub.Lease.ID}
	killpoint.At(killpoint.AgentGranted)
	log := d.log.With("job", w.Stub.ID, "lease", w.Stub.Lease.ID)
	line := ingress.Line{
		Server: d.server, JobID: w.Stub.ID, Site: w.Stub.Site, Kind: w.Stub.Kind, Audience: w.Stub.Audience, Owner: w.Stub.Owner, Own: d.own(w.Stub.Owner),
		Backend: w.Offer.Capability.BackendID, Model: w.Offer.Capability.Model,
		Instead: ingress.Instead{Service: w.Offer.Instead.Service, Model: w.Offer.Instead.Model, Why: w.Offer.Instead.Why},
	}
	d.board.began(w.Stub, line, w.Offer.Capability.Service)
	result, err := d.answer(ctx, w, line)
	defer d.board.done(d.server, &done, &result, &err)
	switch {
	case context.Cause(ctx) == errCanceled:
		result.Outcome = ai.Cancellation{}
	case ctx.Err() != nil:
		done.End = lane.WorkGone
		return done
	case errors.Is(err, errGone):
		done.End = lane.WorkGone
		return done
	case judged(err):
		log.Warn("job refused", "error", refusal.From(err))
		done.End, done.Err = lane.WorkRefused, err
		return done
	case err != nil:
		// This machine's own trouble, as a full disk, says nothing about the job.
		log.Error("job given back", "error", refusal.From(err))
		d.givenBack(line, refusal.From(err).Kind().Name())
		done.End = lane.WorkDown
		return done
	}
	if f, ok := result.Outcome.(ai.Failure); ok && f.Code == backend.CodeUnreachable && d.firstDown(w.Stub.ID) {
		// Another device may have its model up, or this one in a moment. A job
		// that takes the model down twice is reported.
		d.givenBack(line, detailOf(f, result.Kind))
		done.End = lane.WorkDown
		return done
	}
	if done.Until, err = d.keep(w, result); err != nil {
		log.Error("a result was not kept", "error", refusal.From(err))
		d.givenBack(line, refusal.From(err).Kind().Name())
		done.End = lane.WorkDown
		return done
	}
	killpoint.At(killpoint.AgentResultKept)
	done.End = lane.WorkKept
	return done
}

// givenBack logs that a job did not run here.
func (d *driver) givenBack(line ingress.Line, why string) {
	line.Type, line.At, line.Outcome, line.Detail = ingress.TypeOutcome, d.clock(), "given-back", why
	if err := d.ingress.Write(line); err != nil {
		d.log.Error("a job that was given back was not logged", "job", line.JobID, "error", refusal.From(err))
	}
}

// judged reports whether an error is a verdict on the job: it must not run here,
// now or later.
func judged(err error) bool {
	if err == nil {
		return false
	}
	kind := refusal.From(err).Kind()
	switch kind {
	case lane.ErrSite, lane.ErrPayload, ErrPast, ErrUnsignedReach, ai.ErrBadRequest:
		return true
	}
	return envelope.Kinds.Find(kind.Name()) == kind || overdrawn(err)
}

// errGone means that the server took the job back before it was fetched.
var errGone = errors.New("the job is no longer ours")

// answer fetches, opens, judges, logs and runs a job, in this order. It returns
// errGone, verdicts on the job (see judged), and this machine's own trouble.
func (d *driver) answer(ctx context.Context, w lane.Work, line ingress.Line) (backend.Result, error) {
	charge, err := d.purse.reserve(ctx, d.server, line.Own, w, d.shelf.terms(w.Offer.Capability.Service))
	if err != nil {
		return backend.Result{}, err
	}
	if charge != nil {
		defer d.shelf.refresh() // others may have more or less room now
		defer charge.drop(ctx)
	}
	sealed, err := d.fetch(ctx, w.Stub)
	if err != nil {
		return backend.Result{}, err
	}
	payload, err := d.open(w.Stub, sealed)
	if err != nil {
		return backend.Result{}, err
	}
	units := payload.TextUnits()
	if !line.Own && units > d.shelf.settings.Community.MaxPayload {
		return backend.Result{}, lane.ErrPayload
	}
	if most, bounded := w.Stub.SizeClass.Ceiling(); charge != nil && !line.Own && bounded && units > most {
		return backend.Result{}, lane.ErrPayload.With("It is longer than its site said, and room was taken for that.")
	}
	result, err := d.shelf.run(ctx, w.Offer, line.Own, payload, func() error {
		prompt := line
		prompt.Type, prompt.At = ingress.TypePrompt, d.clock()
		prompt.SetPrompt(promptText(payload), units, d.keepPrompts || !line.IsOwn())
		if err := d.ingress.Write(prompt); err != nil {
			return err
		}
		if err := charge.begin(ctx); err != nil {
			return err
		}
		d.board.runs(d.server, w.Stub.Lease.ID)
		killpoint.At(killpoint.AgentPromptLogged)
		return nil
	})
	if err != nil {
		return backend.Result{}, err
	}
	charge.settle(ctx, result, units)
	killpoint.At(killpoint.AgentAnswered)
	line.Type, line.At, line.DurationMs = ingress.TypeOutcome, d.clock(), result.Took.Milliseconds()
	line.Outcome = string(result.Outcome.Disposition())
	switch o := result.Outcome.(type) {
	case ai.Answer:
		line.OutputUnits = ai.TextUnits(o.Text)
	case ai.Failure:
		line.Detail = detailOf(o, result.Kind)
	}
	if err := d.ingress.Write(line); err != nil {
		// It ran, and the line before it says so.
		d.log.Error("the end of a run was not logged", "job", w.Stub.ID, "error", refusal.From(err))
	}
	return result, nil
}

// detailOf is what the owner's log calls a failure: its code, which the site is told
// too, or where that does not lead to the refusal behind it, the name of that one.
func detailOf(f ai.Failure, kind *refusal.Kind) string {
	if kind != nil && kind != backend.KindOf(f.Code) {
		return kind.Name()
	}
	return f.Code
}

// Waits between fetches of a payload that is not there yet.
const (
	firstFetch = 50 * time.Millisecond
	lastFetch  = time.Second
	// fetchTime is how long a payload is asked for.
	fetchTime = 30 * time.Second
)

// fetch asks for the payload until it is there, for half a minute. It returns
// errGone where the server says that the job is not ours, or the server's error.
func (d *driver) fetch(ctx context.Context, s ai.ClaimedStub) (ai.SealedEnvelope, error) {
	end := d.clock().Add(fetchTime)
	for wait := firstFetch; ; wait = min(wait*2, lastFetch) {
		got, err := d.device.Fetch(ctx, ai.Grant{JobID: s.ID, LeaseID: s.Lease.ID})
		if err == nil {
			return got.Envelope, nil
		}
		again, after := client.Retry(err)
		// Full jitter, so that devices that wait for one server do not ask at once.
		wait := max(after, rand.N(wait)+1)
		switch {
		case ctx.Err() != nil:
			return ai.SealedEnvelope{}, errGone
		case errors.Is(err, ai.ErrNotFound), errors.Is(err, ai.ErrTooLate), errors.Is(err, ai.ErrForbidden), errors.Is(err, ai.ErrRevoked):
			d.log.Warn("a job was taken back before it was fetched", "job", s.ID, "error", refusal.From(err))
			return ai.SealedEnvelope{}, errGone
		case !again:
			// A refusal of the request is none of the job.
			return ai.SealedEnvelope{}, client.ErrAnswer.Because(err)
		case d.clock().Add(wait).After(end):
			return ai.SealedEnvelope{}, err
		case !pause(ctx, wait):
			return ai.SealedEnvelope{}, errGone
		}
	}
}

// pause waits, and reports whether ctx is still good.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// open opens a payload with the key of the site that the stub names, and no
// other (MUST SITE_KEY_BY_STUB), compares what the site signed with what the
// stub says, and reads it as the kind says (MUST KIND_TYPED_ONLY).
func (d *driver) open(s ai.ClaimedStub, sealed ai.SealedEnvelope) (ai.Payload, error) {
	site, ok := d.site(s.Site)
	if !ok {
		return nil, lane.ErrSite
	}
	opened, err := envelope.Open(d.keys.Opener(), site.Identity.Signing(), sealed, envelope.Context{
		JobID: s.ID, Direction: ai.DirectionPayload,
		Sender: site.Identity.Fingerprint(), Recipient: d.keys.Identity().Fingerprint(),
	})
	if err != nil {
		if d.follows(sealed.SenderKeyID, s.Site) {
			return nil, ErrResealed.Because(err)
		}
		return nil, err
	}
	if now := ai.MillisOf(d.clock()); sealed.DeadlineAt < now && s.DeadlineAt < now {
		return nil, ErrPast
	}
	switch {
	case opened.Reach != nil:
		if err := opened.Reach.Check(s.Stub); err != nil {
			return nil, err
		}
		if err := d.signsReach(s.Site); err != nil {
			return nil, err
		}
	case site.SignsReach:
		return nil, ErrUnsignedReach
	}
	return d.device.Codec().ReadPayload(s.Kind, []byte(opened.Plaintext))
}

// keep seals a result to its site and keeps it until it is handed in.
func (d *driver) keep(w lane.Work, r backend.Result) (ai.Millis, error) {
	until := ai.MillisOf(d.clock().Add(envelope.MaxAge))
	instead := d.insteadFor(w)
	seal := func(o ai.Outcome) error {
		ran := ai.RunMetadata{Model: w.Offer.Capability.Model, BackendClass: w.Offer.Capability.BackendClass, DurationMs: r.Took.Milliseconds(), Stop: r.Stop}
		var used *ai.Usage
		if r.Usage.Counted {
			used = &ai.Usage{Prompt: r.Usage.Prompt, Completion: r.Usage.Completion}
		}
		return d.seal(w.Stub.Site, until, ai.Grant{JobID: w.Stub.ID, LeaseID: w.Stub.Lease.ID}, ai.SealedOutcome{Outcome: o, Ran: ran}, used, instead)
	}
	err := seal(r.Outcome)
	var wire *ai.Error
	if errors.As(err, &wire) {
		// The message would be larger than any server takes.
		err = seal(answerTooLarge)
	}
	if err != nil && d.box.InMemory(w.Stub.Lease.ID) {
		d.log.Error("a result is kept in memory only", "job", w.Stub.ID, "error", refusal.From(err))
		err = nil
	}
	return until, err
}

// insteadFor is what an app is told of the first choice that did not run; nil where it
// did. Apps of other people are told only of a model that is offered as far as the one
// that ran, since any other is none of theirs.
func (d *driver) insteadFor(w lane.Work) *ai.Instead {
	first := w.Offer.Instead
	own := w.Stub.Audience == ai.AudienceSelf || d.own(w.Stub.Owner)
	far := func(s ai.OfferScope) int { return slices.Index(ai.OfferScopes(), s) }
	said := ai.Instead{Model: first.Model, Why: first.Why}
	if !said.Valid() || !own && far(first.Offer) < far(w.Offer.Capability.OfferScope) {
		return nil
	}
	return &said
}

// answerTooLarge is what an app is told of an answer that cannot be sent.
var answerTooLarge = ai.Failure{Code: backend.CodeTooLarge, Message: backend.ErrOutputTooLarge.Meaning()}

// tooLarge puts a failure in the place of a result that its server does not take.
func (d *driver) tooLarge(q ai.ResultRequest) error {
	return d.seal(q.Envelope.RecipientKeyID, q.Envelope.DeadlineAt, q.Grant, ai.SealedOutcome{
		Outcome: answerTooLarge, Ran: ai.RunMetadata{Model: "-", BackendClass: wirebackend.HTTP},
	}, nil, nil)
}

// seal seals an outcome to a site and keeps it as the result of a grant. It
// returns lane.ErrSite, and the codec's error for what is too large.
func (d *driver) seal(id ai.KeyID, until ai.Millis, g ai.Grant, o ai.SealedOutcome, used *ai.Usage, instead *ai.Instead) error {
	site, ok := d.site(id)
	if !ok {
		return lane.ErrSite
	}
	text, err := d.device.Codec().Outcome.Write(o)
	if err != nil {
		return err
	}
	sealed, err := envelope.Seal(random.Reader, d.keys.Signer(), site.Identity, envelope.Letter{
		JobID: g.JobID, Direction: ai.DirectionResult, DeadlineAt: until, Plaintext: string(text), Usage: used, Instead: instead,
	})
	if err != nil {
		return err
	}
	return d.box.Keep(ai.ResultRequest{
		RunnerID: d.device.RunnerID(), Grant: g, Envelope: sealed, Disposition: o.Outcome.Disposition(),
	})
}

// promptText is a payload as a person reads it in the log.
func promptText(p ai.Payload) string {
	var b strings.Builder
	part := func(who ai.Role, text string) {
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString(string(who) + ": " + text)
	}
	switch p := p.(type) {
	case ai.Generate:
		if p.System == "" {
			return p.Prompt
		}
		part(ai.RoleSystem, p.System)
		part(ai.RoleUser, p.Prompt)
	case ai.Chat:
		if p.System != "" {
			part(ai.RoleSystem, p.System)
		}
		for _, m := range p.Messages {
			part(m.Role, m.Content)
		}
	}
	return b.String()
}

// site is what is pinned of a site.
func (d *driver) site(id ai.KeyID) (home.Site, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, ok := d.pairing.Sites[id]
	return s, ok
}

// follows reports whether a site's key is known to have come right after another.
func (d *driver) follows(id, before ai.KeyID) bool {
	s, ok := d.site(id)
	return ok && s.From == before && before != ""
}

// signsReach remembers that a site signs what a job may reach.
func (d *driver) signsReach(id ai.KeyID) error {
	d.mu.Lock()
	s := d.pairing.Sites[id]
	known := s.SignsReach
	d.mu.Unlock()
	if known {
		return nil
	}
	return d.remember(func(p *home.Pairing) {
		if s, ok := p.Sites[id]; ok {
			s.SignsReach = true
			p.Sites[id] = s
		}
	})
}

// agreed remembers which version of the protocol the server speaks. If that
// fails it is asked again at the next start, which costs one request.
func (d *driver) agreed(s client.Spoken) {
	d.log.Info("protocol agreed", "version", s.Version)
	if err := d.remember(func(p *home.Pairing) { p.Protocol = home.Protocol(s) }); err != nil {
		d.log.Warn("the protocol that was agreed on was not kept", "error", refusal.From(err))
	}
}

// maxDowns bounds how many jobs are remembered as having met no model.
const maxDowns = 256

// firstDown reports whether this job met no model for the first time.
func (d *driver) firstDown(id ai.JobID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.downs[id] {
		return false
	}
	if len(d.downs) >= maxDowns {
		clear(d.downs)
	}
	d.downs[id] = true
	return true
}

func logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}
