package gateway

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// The headers besides OpenAI's. Those of the answer say which job it is, whose
// machine ran it, why its first choice did not, and what of the request was dropped.
const (
	headerIdempotency = "Idempotency-Key"
	headerDisconnect  = "X-Allod-Cancel-On-Disconnect"
	headerJob         = "X-Allod-Job"
	headerMachine     = "X-Allod-Machine"
	headerUntrusted   = "X-Allod-Untrusted"
	headerInstead     = "X-Allod-Instead"
	headerDropped     = "X-Allod-Dropped"
)

// maxIdempotency bounds an idempotency key, in bytes.
const maxIdempotency = 255

// asked is a question on its way.
type asked struct {
	request
	kind ai.Kind
	job  site.Job
	// again says that a repeat of the request finds the same job.
	again bool
	// wait is how long the answer is waited for.
	wait time.Duration
}

// complete answers one of the two endpoints that ask a model.
func (g *gateway) complete(c *call, kind ai.Kind) error {
	defer g.leave(c)
	if err := g.enter(c, ""); err != nil {
		return err
	}
	if c.access.Owner != "" {
		if err := g.enter(c, c.access.Owner); err != nil {
			return err
		}
	}
	cancels, err := cancelsOnDisconnect(c.r.Header)
	if err != nil {
		return err
	}
	a, err := g.ask(c, kind)
	if a.job.ID != "" {
		// Whoever is gone may be gone before the job is known to be stored.
		defer g.goneFrom(c, a.job.ID, cancels)
	}
	if err != nil {
		return err
	}
	c.w.Header().Set(headerJob, string(a.job.ID))
	control := hold(c.w, a.wait)
	if a.stream {
		return g.stream(c, control, a)
	}
	answer, err := g.await(c.r.Context(), a)
	if err != nil {
		return a.hindered(err)
	}
	setProvenance(c.w.Header(), a.job.Owner, answer.Provenance)
	if answer.Instead != nil {
		// The reason alone: what the owner calls a model is not said here.
		c.w.Header().Set(headerInstead, answer.Instead.Why)
	}
	return c.answer(wholeBody(a, answer))
}

// hold gives the answer to a request that long instead of the server's own bound,
// which is for requests that are not held.
func hold(w http.ResponseWriter, wait time.Duration) *http.ResponseController {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(wait + writeTime)) // a recorder has no connection
	return control
}

// writeTime is how long the client may take to read an answer, or what is written
// of one at a time.
const writeTime = time.Minute

func cancelsOnDisconnect(h http.Header) (bool, error) {
	switch values := h.Values(headerDisconnect); {
	case len(values) == 0, len(values) == 1 && values[0] == "false":
		return false, nil
	case len(values) == 1 && values[0] == "true":
		return true, nil
	}
	return false, ErrValue.With("The header " + headerDisconnect + " is neither true nor false.")
}

// goneFrom ends a request's wait for a job, and cancels the job if the client wants
// that and has closed the connection, nobody else waits for it, and it is not the
// site that closes connections. It is late for a job that is over, and then changes
// nothing.
func (g *gateway) goneFrom(c *call, id ai.JobID, cancels bool) {
	if last := g.part(id); !last || !cancels || c.r.Context().Err() == nil || g.Stopping.Err() != nil {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(c.r.Context()), writeTime)
	defer stop()
	if _, err := g.Site.Jobs.Cancel(ctx, id); err != nil && !errors.Is(err, site.ErrNoJob) {
		g.Logger.WarnContext(ctx, "job not canceled", "job", id, "error", refusal.From(err))
	}
}

// ask reads the request, stores its job, and joins those who wait for it. With an
// error the job has an id where it may have been stored, and is waited for then too.
func (g *gateway) ask(c *call, kind ai.Kind) (*asked, error) {
	a := &asked{kind: kind, wait: g.Wait}
	if n, ok := prefers(c.r.Header); ok {
		a.wait = min(a.wait, n)
	}
	body, err := g.body(c)
	if err != nil {
		return a, err
	}
	if a.request, err = readRequest(body, kind, g.Drop); err != nil {
		return a, err
	}
	owner, err := ownerOf(c.access, a.owner)
	if err != nil {
		return a, err
	}
	if c.access.Owner == "" {
		if err := g.enter(c, owner); err != nil {
			return a, err
		}
	}
	label, known := g.label(a.model)
	if !known || label.Kind != "" && label.Kind != kind {
		return a, about("model", ErrModel)
	}
	ids, err := g.ids(c.r, body)
	if err != nil {
		return a, err
	}
	if len(a.dropped) > 0 {
		c.w.Header().Set(headerDropped, strings.Join(a.dropped, ", "))
	}
	a.again = len(ids) > 1
	for i, id := range ids {
		if i > 0 {
			g.part(a.job.ID)
		}
		// First, so that nobody who leaves takes the job for one that nobody wants.
		g.join(id)
		a.job.ID = id
		job, err := g.Site.Jobs.Enqueue(c.r.Context(), site.Question{ID: id, Owner: owner, Audience: label.Audience, Payload: a.payload})
		if err != nil {
			return a, told(err)
		}
		a.job = job
		if !neverRan(job) {
			break
		}
	}
	if a.again && neverRan(a.job) && a.job.State == ai.StateCanceled {
		return a, g.spent(c.r.Context(), a.job)
	}
	// What is stored can be large, and is not needed while it is waited for.
	a.payload, a.job.Payload, a.job.Result = nil, ai.SealedEnvelope{}, nil
	g.Logger.InfoContext(c.r.Context(), "gateway asked", "job", a.job.ID, "key", c.access.KeyID, "stream", a.stream)
	return a, nil
}

// neverRan reports whether a job is over and no device ever had it. A repeat of
// its request may be asked anew.
func neverRan(j site.Job) bool {
	return j.Attempts == 0 && (j.State == ai.StateCanceled || j.State == ai.StateExpired)
}

// maxRepeats is how many jobs a request can become under one idempotency key.
const maxRepeats = 8

// spent is the answer to a request all of whose jobs were canceled before a device
// had them. Only another idempotency key can help.
func (g *gateway) spent(ctx context.Context, job site.Job) error {
	now, err := g.Site.Jobs.Availability(ctx, job.Kind, job.Matching())
	if err != nil {
		return err
	}
	detail := "Nobody ran " + strconv.Itoa(maxRepeats) + " jobs under this " + headerIdempotency + ", so it takes another one."
	if why := whyNoRunner[now.Why]; why != "" {
		detail = why + " " + detail
	}
	return &problem{what: site.ErrNoRunnerAvailable.With(detail), retry: "false"}
}

// ids are the ids that the job of a request may have, the first that can be used
// counts. Without an idempotency key it is a random one. With one they follow from
// it, from the body and from the app key, so that a repeat of the request finds
// the same job, also after a restart. The app key is the secret in it: whoever
// sees ids, as a relay does, cannot try questions against them.
func (g *gateway) ids(r *http.Request, body []byte) ([]ai.JobID, error) {
	keys := r.Header.Values(headerIdempotency)
	if len(keys) == 0 {
		var b [16]byte
		if _, err := io.ReadFull(g.Rand, b[:]); err != nil {
			return nil, refusal.Internal.Because(err)
		}
		return []ai.JobID{ai.JobID(hex.EncodeToString(b[:]))}, nil
	}
	if len(keys) > 1 || keys[0] == "" || len(keys[0]) > maxIdempotency {
		return nil, ErrValue.With("The header " + headerIdempotency + " is not one text of 1 to 255 characters.")
	}
	digest := sha256.Sum256(body)
	ids := make([]ai.JobID, maxRepeats)
	for i := range ids {
		mac := hmac.New(sha256.New, []byte(r.Header.Get("Authorization")))
		for _, part := range []string{"allod idempotency v1", keys[0], string(digest[:]), strconv.Itoa(i)} {
			// A part's length goes before it, so that no two lists look the same.
			mac.Write([]byte(strconv.Itoa(len(part)) + ":" + part))
		}
		ids[i] = ai.JobID(hex.EncodeToString(mac.Sum(nil)[:16]))
	}
	return ids, nil
}

// await waits for a job's answer. Every other end is an error, [ErrStopping] where
// the site stops before there is one.
func (g *gateway) await(ctx context.Context, a *asked) (site.Answer, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(g.Stopping, func() { end(ErrStopping) })()
	answer, err := g.outlast(ctx, a)
	if err != nil && errors.Is(context.Cause(ctx), ErrStopping) && !ends(err) {
		err = stopped(err)
	}
	return answer, err
}

// ends reports whether an error is how a job ended, or that it was waited for long
// enough. Others can be what the site and its store make of a context that ends.
func ends(err error) bool {
	return errors.Is(err, site.ErrNoRunnerAvailable) || Kinds.Find(refusal.From(err).Kind().Name()) != nil
}

// outlast waits for a job's answer whether or not the site stops.
func (g *gateway) outlast(ctx context.Context, a *asked) (site.Answer, error) {
	end := g.Clock().Add(a.wait)
	for {
		// Now and then it is looked whether a device has given the job back.
		span := min(2*g.Grace, max(end.Sub(g.Clock()), time.Millisecond))
		answer, err := g.Site.Jobs.Wait(ctx, a.job.ID, site.Wait{Timeout: span, Grace: g.Grace, Fallback: noRunner})
		switch {
		case errors.Is(err, site.ErrEnded):
			return answer, ended(answer)
		case err == nil:
			return answer, outcome(answer)
		case errors.Is(err, site.ErrNoRunnerAvailable):
			return answer, g.unheld(ctx, a.job.ID, err)
		case !errors.Is(err, site.ErrTimeout):
			return answer, err
		}
		if !g.Clock().Before(end) {
			return answer, g.late(ctx, a.job.ID)
		}
		if err := g.takeBack(ctx, a.job.ID); err != nil {
			return answer, err
		}
	}
}

// noRunner stands in for a fallback: the site cancels a job before it calls one,
// so that the job cannot run later unseen.
func noRunner(_ context.Context, why site.NoRunner) (ai.Outcome, error) {
	return nil, nobody(why)
}

func nobody(why site.NoRunner) error {
	return site.ErrNoRunnerAvailable.With(whyNoRunner[why]).After(afterNoRunner)
}

// unheld is what a job was canceled for: nobody, unless a device had it meanwhile
// and may have begun with it.
func (g *gateway) unheld(ctx context.Context, id ai.JobID, nobody error) error {
	job, err := g.Site.Jobs.Get(ctx, id)
	switch {
	case err != nil:
		return err
	case job.Attempts > 0:
		return ErrGivenBack
	}
	return nobody
}

// late is the answer where the wait is over before the job is. A job that no device
// ever had and none could run now is canceled, as at the end of the grace.
func (g *gateway) late(ctx context.Context, id ai.JobID) error {
	job, err := g.Site.Jobs.Get(ctx, id)
	if err != nil {
		return err
	}
	if job.State != ai.StateQueued || job.Attempts > 0 {
		return ErrPending
	}
	now, err := g.Site.Jobs.Availability(ctx, job.Kind, job.Matching())
	if err != nil {
		return err
	}
	if now.Available {
		return ErrPending
	}
	if job, err = g.Site.Jobs.CancelWaiting(ctx, id); err != nil {
		return err
	}
	if job.State != ai.StateCanceled {
		return ErrPending
	}
	return g.unheld(ctx, id, nobody(now.Why))
}

var whyNoRunner = map[site.NoRunner]string{
	site.NonePaired:   "No device is paired with this site.",
	site.NoneOnline:   "No paired device was heard of lately.",
	site.NoneCapable:  "No device that is there offers this kind of job.",
	site.NoneAdmitted: "The devices that are there do not run this user's jobs, or the model's label does not admit them.",
}

// takeBack cancels a job that a device has had and that none has taken since, and
// returns [ErrGivenBack]. A device that takes it in between wins.
func (g *gateway) takeBack(ctx context.Context, id ai.JobID) error {
	job, err := g.Site.Jobs.Get(ctx, id)
	if err != nil || job.State != ai.StateQueued || job.Attempts == 0 || g.Clock().Sub(job.UpdatedAt.Time()) < g.Grace {
		return err
	}
	job, err = g.Site.Jobs.CancelWaiting(ctx, id)
	if err == nil && job.State == ai.StateCanceled {
		err = ErrGivenBack
	}
	return err
}

// ended is why a job is over without an outcome.
func ended(a site.Answer) error {
	if a.State == ai.StateExpired {
		return ErrExpired
	}
	return ErrCanceled
}

// outcome is an outcome that is no answer, as an error.
func outcome(a site.Answer) error {
	switch o := a.Outcome.(type) {
	case ai.Answer:
		return nil
	case ai.Failure:
		p := &problem{what: ErrDevice, code: deviceCode(o)}
		if !o.Retryable {
			p.retry = "false"
		}
		return p
	}
	return ErrCanceled
}

// hindered is an end without an answer as it is told. OpenAI's clients repeat by
// themselves what fails with certain statuses: they are told not to where that
// could not help, or would ask a second time while the first goes on.
func (a *asked) hindered(err error) error {
	p := *problemOf(err)
	switch {
	case errors.Is(err, site.ErrNoRunnerAvailable):
		// It was canceled before any device had it, so repeating it is safe.
	case (errors.Is(err, ErrPending) || errors.Is(err, ErrStopping)) && a.again:
		p.retry = "true" // which waits on
	case a.again, !errors.Is(err, ErrDevice):
		p.retry = "false"
	}
	return &p
}

// setProvenance says whose machine ran a job. The word of a machine that is not
// the user's own is not the user's word.
func setProvenance(h http.Header, owner ai.Owner, p *ai.Provenance) {
	if p == nil {
		return
	}
	h.Set(headerMachine, machine(owner, p))
	h.Set(headerUntrusted, strconv.FormatBool(p.Untrusted))
}

func machine(owner ai.Owner, p *ai.Provenance) string {
	if p.RunnerOwner == owner {
		return "own"
	}
	return "shared"
}
