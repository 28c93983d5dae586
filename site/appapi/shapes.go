package appapi

import (
	"time"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// maxBody bounds a request: the largest payload, every character escaped.
const maxBody = 32 << 20

var limits = exact.Limits{Bytes: maxBody, Depth: 5, Values: 1 << 14}

// ask is the body of POST /v1/jobs.
type ask struct {
	id            ai.JobID
	kind          ai.Kind
	owner         ai.Owner
	audience      string
	allowedOwners []ai.Owner
	dependsOn     []ai.JobID
	ttlMs         exact.Opt[int64]
	deadlineAt    exact.Opt[ai.Millis]
	payload       payload
}

// payload holds either kind's members; the kind says which must be there.
type payload struct {
	prompt   string
	system   string
	messages []ai.ChatMessage
}

var messageShape = exact.Shape[ai.ChatMessage]{Fields: func(o *exact.Object, m *ai.ChatMessage) {
	exact.Word(o, "role", &m.Role, ai.Roles())
	exact.Text(o, "content", &m.Content, 0, ai.MaxTextUnits)
}}

func payloadShape(kind ai.Kind) exact.Shape[payload] {
	return exact.Shape[payload]{Fields: func(o *exact.Object, p *payload) {
		if kind == ai.KindChat {
			exact.List(o, "messages", &p.messages, 1, ai.MaxMessages, messageShape)
		} else {
			exact.Text(o, "prompt", &p.prompt, 1, ai.MaxTextUnits)
		}
		exact.OptText(o, "system", &p.system, 0, ai.MaxTextUnits)
	}}
}

var askShape = exact.Shape[ask]{Fields: func(o *exact.Object, a *ask) {
	exact.OptText(o, "id", &a.id, 1, 0)
	exact.Word(o, "kind", &a.kind, ai.Kinds())
	exact.OptText(o, "owner", &a.owner, 1, 0)
	exact.OptText(o, "audience", &a.audience, 1, 0)
	exact.OptTexts(o, "allowedOwners", &a.allowedOwners)
	exact.OptTexts(o, "dependsOn", &a.dependsOn)
	exact.OptWhole(o, "ttlMs", &a.ttlMs, 1, 0)
	exact.OptWhole(o, "deadlineAt", &a.deadlineAt, 1, 0)
	exact.Sub(o, "payload", &a.payload, payloadShape(a.kind))
}}

func (a ask) question() site.Question {
	q := site.Question{
		ID: a.id, Owner: a.owner, Audience: audienceOf(a.audience), AllowedOwners: a.allowedOwners, DependsOn: a.dependsOn,
		Payload: ai.Generate{Prompt: a.payload.prompt, System: a.payload.system},
	}
	if a.kind == ai.KindChat {
		q.Payload = ai.Chat{Messages: a.payload.messages, System: a.payload.system}
	}
	if a.ttlMs.Set {
		// What is longer than a site takes stays longer, without overflow.
		q.TTL = time.Duration(min(a.ttlMs.V, 2*site.MaxJobDeadline.Milliseconds())) * time.Millisecond
	}
	if a.deadlineAt.Set {
		q.Deadline = a.deadlineAt.V.Time()
	}
	return q
}

// audienceOf is the audience of a name. Apps may say private and team, which is
// how people speak of them, in place of the protocol's self and named.
func audienceOf(name string) ai.Audience {
	switch name {
	case "private":
		return ai.AudienceSelf
	case "team":
		return ai.AudienceNamed
	}
	return ai.Audience(name)
}

// decision is the body of an approval.
type decision struct{ owner ai.Owner }

var decisionShape = exact.Shape[decision]{Fields: func(o *exact.Object, d *decision) {
	exact.OptText(o, "owner", &d.owner, 1, 0)
}}

// The answers. Their JSON names are the interface.
type (
	jobAnswer struct {
		ID              ai.JobID          `json:"id"`
		Kind            ai.Kind           `json:"kind"`
		Owner           ai.Owner          `json:"owner"`
		Audience        ai.Audience       `json:"audience"`
		AllowedOwners   []ai.Owner        `json:"allowedOwners,omitzero"`
		DependsOn       []ai.JobID        `json:"dependsOn,omitempty"`
		TTL             int64             `json:"ttlMs"`
		DeadlineAt      ai.Millis         `json:"deadlineAt,omitzero"`
		State           ai.State          `json:"state"`
		Reason          site.Reason       `json:"reason,omitempty"`
		Blocked         bool              `json:"blocked"`
		CancelRequested bool              `json:"cancelRequested"`
		Attempts        int               `json:"attempts"`
		CreatedAt       ai.Millis         `json:"createdAt"`
		UpdatedAt       ai.Millis         `json:"updatedAt"`
		ClaimableAt     ai.Millis         `json:"claimableAt,omitzero"`
		RunnerID        ai.RunnerID       `json:"runnerId,omitempty"`
		NoRunner        site.NoRunner     `json:"noRunner,omitempty"`
		Outcome         *outcomeAnswer    `json:"outcome,omitempty"`
		Provenance      *provenanceAnswer `json:"provenance,omitempty"`
		Usage           *usageAnswer      `json:"usage,omitempty"`
		Instead         *insteadAnswer    `json:"instead,omitempty"`
	}
	jobsAnswer struct {
		Jobs []jobAnswer `json:"jobs"`
		Next ai.JobID    `json:"next,omitempty"`
	}
	outcomeAnswer struct {
		Outcome     ai.Disposition `json:"outcome"`
		Text        *string        `json:"text,omitzero"`
		ArtifactURL string         `json:"artifactUrl,omitempty"`
		Code        string         `json:"code,omitempty"`
		Message     string         `json:"message,omitempty"`
		Retryable   *bool          `json:"retryable,omitzero"`
	}
	provenanceAnswer struct {
		Audience     ai.Audience   `json:"audience"`
		RunnerID     ai.RunnerID   `json:"runnerId"`
		RunnerOwner  ai.Owner      `json:"runnerOwner"`
		BackendClass string        `json:"backendClass"`
		Model        string        `json:"model"`
		Untrusted    bool          `json:"untrusted"`
		Stop         ai.StopReason `json:"stop,omitempty"`
		StopReported *bool         `json:"stopReported,omitzero"`
	}
	usageAnswer struct {
		Prompt     int64 `json:"promptTokens"`
		Completion int64 `json:"completionTokens"`
	}
	insteadAnswer struct {
		Model string `json:"model"`
		Why   string `json:"why"`
	}
	availabilityAnswer struct {
		Available  bool          `json:"available"`
		Reason     site.NoRunner `json:"reason,omitempty"`
		Candidates int           `json:"candidates"`
	}
	capabilityAnswer struct {
		Kind       ai.Kind       `json:"kind"`
		Model      string        `json:"model"`
		OfferScope ai.OfferScope `json:"offerScope"`
	}
	pairingAnswer struct {
		Fingerprint  string             `json:"fingerprint"`
		Label        string             `json:"label"`
		Platform     ai.Platform        `json:"platform"`
		Version      string             `json:"version"`
		Capabilities []capabilityAnswer `json:"capabilities"`
		CreatedAt    ai.Millis          `json:"createdAt"`
		ExpiresAt    ai.Millis          `json:"expiresAt"`
	}
	runnerAnswer struct {
		ID           ai.RunnerID        `json:"id"`
		Owner        ai.Owner           `json:"owner"`
		Fingerprint  string             `json:"fingerprint"`
		Label        string             `json:"label"`
		Platform     ai.Platform        `json:"platform"`
		Version      string             `json:"version"`
		Protocol     string             `json:"protocol,omitempty"`
		Capabilities []capabilityAnswer `json:"capabilities"`
		Online       bool               `json:"online"`
		Paused       bool               `json:"paused"`
		CreatedAt    ai.Millis          `json:"createdAt"`
		SeenAt       ai.Millis          `json:"seenAt"`
		RevokedAt    ai.Millis          `json:"revokedAt,omitzero"`
	}
	runnersAnswer struct {
		Runners []runnerAnswer `json:"runners"`
	}
)

func outcomeOf(o ai.Outcome) *outcomeAnswer {
	if o == nil {
		return nil
	}
	out := &outcomeAnswer{Outcome: o.Disposition()}
	switch o := o.(type) {
	case ai.Answer:
		out.Text, out.ArtifactURL = &o.Text, o.ArtifactURL
	case ai.Failure:
		out.Code, out.Message, out.Retryable = o.Code, o.Message, &o.Retryable
	}
	return out
}

func provenanceOf(p *ai.Provenance) *provenanceAnswer {
	if p == nil {
		return nil
	}
	out := &provenanceAnswer{
		Audience: p.Audience, RunnerID: p.RunnerID, RunnerOwner: p.RunnerOwner,
		BackendClass: string(p.BackendClass), Model: p.Model, Untrusted: p.Untrusted, Stop: p.Stop.Reason,
	}
	if p.Stop != (ai.Stop{}) {
		out.StopReported = &p.Stop.Reported
	}
	return out
}

func usageOf(u *ai.Usage) *usageAnswer {
	if u == nil {
		return nil
	}
	return &usageAnswer{u.Prompt, u.Completion}
}

func insteadOf(i *ai.Instead) *insteadAnswer {
	if i == nil {
		return nil
	}
	return &insteadAnswer{i.Model, i.Why}
}

func capabilitiesOf(list []ai.Capability) []capabilityAnswer {
	out := make([]capabilityAnswer, len(list))
	for i, c := range list {
		out[i] = capabilityAnswer{c.Kind, c.Model, c.OfferScope}
	}
	return out
}

func (a *api) runnerOf(r site.Runner) runnerAnswer {
	return runnerAnswer{
		ID: r.ID, Owner: r.Owner, Fingerprint: r.Device.String(), Label: r.Daemon.Label, Platform: r.Daemon.Platform,
		Version: r.Daemon.Version, Protocol: r.Protocol, Capabilities: capabilitiesOf(r.Capabilities), Online: a.site.Devices.Online(r), Paused: r.Paused,
		CreatedAt: r.CreatedAt, SeenAt: r.SeenAt, RevokedAt: r.RevokedAt,
	}
}

// jobOf is a job as it stands, without what has to be looked up.
func jobOf(j site.Job) jobAnswer {
	out := jobAnswer{
		ID: j.ID, Kind: j.Kind, Owner: j.Owner, Audience: j.Audience, AllowedOwners: j.AllowedOwners, DependsOn: j.DependsOn,
		TTL: j.TTL.Milliseconds(), DeadlineAt: j.DeadlineAt, State: j.State, Reason: j.Reason, Blocked: j.Blocked(),
		CancelRequested: j.CancelRequested, Attempts: j.Attempts,
		CreatedAt: j.CreatedAt, UpdatedAt: j.UpdatedAt, ClaimableAt: j.ClaimableAt,
	}
	if j.Lease != nil {
		out.RunnerID = j.Lease.RunnerID
	}
	return out
}
