package ai

import (
	"strings"
	"unicode/utf8"

	"github.com/allodhq/allod/wire/ai/backend"
)

// Disposition is how a run ended.
type Disposition string

// The dispositions.
const (
	DispositionOK       Disposition = "ok"
	DispositionError    Disposition = "error"
	DispositionCanceled Disposition = "canceled"
)

// Dispositions returns all dispositions.
func Dispositions() []Disposition {
	return []Disposition{DispositionOK, DispositionError, DispositionCanceled}
}

// State is the job state that the disposition ends in.
func (d Disposition) State() State { return State(d) }

// Outcome is what a run ended with: an [Answer], a [Failure] or a
// [Cancellation].
type Outcome interface {
	// Disposition is the outcome's kind.
	Disposition() Disposition

	outcome()
}

// Answer is a model's text. It is inert: never evaluated, never a path, never
// terminal control (MUST OUTPUT_INERT).
type Answer struct {
	// Text may be empty. The wire sets no bound but the message's own.
	Text string
	// ArtifactURL is where a larger result lies, an absolute http or https URL;
	// empty means none.
	ArtifactURL string
}

// Failure says why there is no answer.
type Failure struct {
	// Code is a short word for programs, as in "timeout"; at least one unit.
	Code string
	// Message is a sentence for people; at least one unit.
	Message string
	// Retryable says that the same job may succeed later.
	Retryable bool
}

// Cancellation says that the run was stopped on request.
type Cancellation struct{}

// Disposition is [DispositionOK].
func (Answer) Disposition() Disposition { return DispositionOK }

// Disposition is [DispositionError].
func (Failure) Disposition() Disposition { return DispositionError }

// Disposition is [DispositionCanceled].
func (Cancellation) Disposition() Disposition { return DispositionCanceled }

func (Answer) outcome()       {}
func (Failure) outcome()      {}
func (Cancellation) outcome() {}

// RunMetadata says what ran. It travels sealed and signed with the outcome, so
// a router cannot change it.
type RunMetadata struct {
	// Model is the name by which the device's owner knows the model.
	Model        string
	BackendClass backend.Class
	// DurationMs is the wall-clock time of the backend's call in milliseconds.
	DurationMs int64
	// Stop is why the model stopped, where the version can say it.
	Stop Stop
}

// StopReason is why a model stopped writing.
type StopReason string

// The stop reasons.
const (
	StopEnd      StopReason = "end"           // it had said all
	StopLength   StopReason = "length"        // it reached the longest answer
	StopSequence StopReason = "stop-sequence" // it wrote a text at which it was to stop
	StopUnknown  StopReason = "unknown"       // the backend gave a reason that has no name here, or none
)

// StopReasons returns all stop reasons.
func StopReasons() []StopReason {
	return []StopReason{StopEnd, StopLength, StopSequence, StopUnknown}
}

// Stop is why a model stopped. The zero value says nothing.
type Stop struct {
	Reason StopReason // empty when it is not said
	// Reported is true when the backend is one that says why it stopped.
	Reported bool
}

// Usage is how many tokens a run took, as the backend counts. It is no part of
// the contract's messages: Allod's agents sign it beside the outcome.
type Usage struct {
	// Prompt and Completion are from 0 to 2^53-1.
	Prompt, Completion int64
}

// Instead says that another model than the device's first choice ran, and why. It is
// no part of the contract's messages: Allod's agents sign it beside the outcome.
type Instead struct {
	// Model is the first choice, of 1 to 512 UTF-16 code units.
	Model string
	// Why is the name of the refusal for which it did not run, as
	// backend-unreachable: 1 to 64 lower-case letters of ASCII, digits and hyphens.
	Why string
}

// Valid reports whether both are as they have to be.
func (i Instead) Valid() bool {
	units := TextUnits(i.Model)
	return units >= 1 && units <= 512 && utf8.ValidString(i.Model) && len(i.Why) >= 1 && len(i.Why) <= 64 &&
		strings.Trim(i.Why, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// SealedOutcome is what a device seals to the site when a run has ended.
type SealedOutcome struct {
	Outcome Outcome
	Ran     RunMetadata
}

// Provenance says whose machine produced a result (MUST
// PROVENANCE_NAMES_DEVICE).
type Provenance struct {
	Audience     Audience
	RunnerID     RunnerID
	RunnerOwner  Owner
	BackendClass backend.Class
	// Model is the name by which the device's owner knows the model.
	Model string
	// Untrusted is true when the machine need not belong to the person who
	// asked. It follows from the audience alone.
	Untrusted bool
	// Stop is why the model stopped.
	Stop Stop
}

// ProvenanceOf builds the provenance of a finished job from its audience, the
// device that held the lease, and what the sealed outcome says was run.
func ProvenanceOf(audience Audience, runner RunnerID, owner Owner, ran RunMetadata) Provenance {
	return Provenance{
		Audience: audience, RunnerID: runner, RunnerOwner: owner,
		BackendClass: ran.BackendClass, Model: ran.Model,
		Untrusted: audience != AudienceSelf, Stop: ran.Stop,
	}
}

// ClaimedJob is a job as a device has opened it.
type ClaimedJob struct {
	ID       JobID
	Payload  Payload
	Audience Audience
	Owner    Owner
	// Site is the key id of the site that asks; empty when not known.
	Site KeyID
	// Service is the owner's service that is to run it; empty when none is named.
	Service string
	// DeadlineAt is the stub's; zero when not known.
	DeadlineAt Millis
	Lease      Lease
}

// DeliveredResult is what an app is told about a job.
type DeliveredResult struct {
	JobID JobID
	State State
	// Outcome is nil until the job has one.
	Outcome Outcome
	// Provenance is nil until the job has an outcome.
	Provenance *Provenance
	// Fallback is true when the outcome is not the owner's devices' (MUST
	// FALLBACK_LABELED). It is not written in a version that cannot say so.
	Fallback bool
}
