package shapes

import (
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/weburl"
)

// outcome is one of three objects, told apart by their member outcome.
var outcome = exact.Shape[ai.Outcome]{Fields: func(o *exact.Object, p *ai.Outcome) {
	var d ai.Disposition
	if o.Writing() {
		switch out := (*p).(type) {
		case ai.Answer, ai.Failure, ai.Cancellation:
			d = out.Disposition()
		default: // nothing, or a pointer, whose members would be lost
			o.Fail(exact.ErrMissing, "an outcome")
			return
		}
	}
	exact.Word(o, "outcome", &d, ai.Dispositions())
	switch d {
	case ai.DispositionOK:
		variant(o, p, func(a *ai.Answer) {
			exact.Text(o, "text", &a.Text, 0, 0)
			optURL(o, "artifactUrl", &a.ArtifactURL)
		})
	case ai.DispositionError:
		variant(o, p, func(f *ai.Failure) {
			exact.Text(o, "code", &f.Code, 1, 0)
			exact.Text(o, "message", &f.Message, 1, 0)
			exact.Bool(o, "retryable", &f.Retryable)
		})
	case ai.DispositionCanceled:
		variant(o, p, func(*ai.Cancellation) {})
	}
}}

// variant reads or writes the members of one kind of outcome in place.
func variant[T ai.Outcome](o *exact.Object, p *ai.Outcome, fields func(*T)) {
	var v T
	if o.Writing() {
		v, _ = (*p).(T)
	}
	fields(&v)
	if !o.Failed() {
		*p = v
	}
}

func (d *Dialect) sealedOutcome() exact.Shape[ai.SealedOutcome] {
	runMetadata := exact.Shape[ai.RunMetadata]{Fields: func(o *exact.Object, r *ai.RunMetadata) {
		exact.Text(o, "model", &r.Model, 1, 0)
		exact.Word(o, "backendClass", &r.BackendClass, backend.Classes())
		exact.Whole(o, "durationMs", &r.DurationMs, 0, 0)
		d.stop(o, &r.Stop)
	}}
	return exact.Shape[ai.SealedOutcome]{Fields: func(o *exact.Object, s *ai.SealedOutcome) {
		exact.Sub(o, "outcome", &s.Outcome, outcome)
		exact.Sub(o, "ran", &s.Ran, runMetadata)
	}}
}

// stop is why a model stopped, in two members.
func (d *Dialect) stop(o *exact.Object, s *ai.Stop) {
	if !d.Stops {
		return
	}
	exact.OptWord(o, "stop", &s.Reason, ai.StopReasons())
	if o.Writing() && s.Reason != "" { // a reason says whether it is the backend's own
		exact.Bool(o, "stopReported", &s.Reported)
		return
	}
	exact.OptBool(o, "stopReported", &s.Reported)
}

func (d *Dialect) provenance() exact.Shape[ai.Provenance] {
	return exact.Shape[ai.Provenance]{Fields: func(o *exact.Object, p *ai.Provenance) {
		named(o, "audience", &p.Audience, d.Audiences)
		exact.Text(o, "runnerId", &p.RunnerID, 1, 0)
		exact.Text(o, "runnerOwner", &p.RunnerOwner, 1, 0)
		exact.Word(o, "backendClass", &p.BackendClass, backend.Classes())
		exact.Text(o, "model", &p.Model, 1, 0)
		exact.Bool(o, "untrusted", &p.Untrusted)
		d.stop(o, &p.Stop)
	}}
}

func (d *Dialect) deliveredResult() exact.Shape[ai.DeliveredResult] {
	provenance := d.provenance()
	return exact.Shape[ai.DeliveredResult]{Fields: func(o *exact.Object, r *ai.DeliveredResult) {
		exact.Text(o, "jobId", &r.JobID, 1, 0)
		exact.Word(o, "state", &r.State, ai.States())
		var out *ai.Outcome
		if o.Writing() && r.Outcome != nil {
			out = &r.Outcome
		}
		exact.OptSub(o, "outcome", &out, outcome)
		if out != nil {
			r.Outcome = *out
		}
		exact.OptSub(o, "provenance", &r.Provenance, provenance)
		if d.Stops {
			exact.OptTrue(o, "fallback", &r.Fallback)
		} else if r.Fallback { // MUST FALLBACK_LABELED
			o.Fail(exact.ErrRange, "a result without a fallback, which this version cannot label")
		}
	}}
}

// optURL is an optional absolute http or https URL, kept as it was sent but for
// white space around it.
func optURL(o *exact.Object, name string, p *string) {
	exact.OptText(o, name, p, 1, 0)
	checkURL(o, name, p)
}

func checkURL(o *exact.Object, name string, p *string) {
	if o.Failed() || *p == "" {
		return
	}
	trimmed := weburl.Trim(*p)
	_, err := weburl.ParseWeb(trimmed)
	// Reading trims, so a text with white space would not come back as written.
	if err != nil || o.Writing() && trimmed != *p {
		o.Fail(exact.ErrRange, "an absolute http or https URL in "+name)
		return
	}
	*p = trimmed
}
